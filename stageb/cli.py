"""From a command line to a frozen config: jsonargparse, with messages that name the key, the place and the remedy.

jsonargparse gives keys, help and ``--print_config`` from a loop's config dataclass, and merges files with options. What it
says about a mistake is long and speaks of Python types, so keys are checked here first, against the same dataclass and
with the line at which they stand, and a wrong type is told in the words of a config file.

The standard library, PyYAML and jsonargparse alone are imported here: ``--help`` must not wait for torch.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml
from jsonargparse import ArgumentParser, set_parsing_settings

from stageb import strict_yaml
from stageb.errors import BadInputError, BadLine, ConfigError, InputError, shown
from stageb.strict_yaml import MERGE, NULL, BrokenYamlError, YamlError

# Options of every command that are no keys of its config.
PLAIN_OPTIONS = ("config", "help", "print_config", "fresh")
MAX_FILE_BYTES = 256 * 1024  # of a config file; one with every key is a hundredth of this


def command_parser(kind: type, prog: str, summary: str) -> ArgumentParser:
    """The parser of one command, with every key of the config ``kind`` as an option."""
    # jsonargparse takes a text in a section's place for the path of a class, and would import what it names.
    own = ["stageb.config", kind.__module__]
    set_parsing_settings(docstring_parse_attribute_docstrings=True, import_path_denylist=["*"], import_path_allowlist=own)
    usage = f"{prog} [--config FILE] [--KEY VALUE ...] [--print_config] [--fresh]"
    parser = ArgumentParser(prog=prog, usage=usage, description=summary, exit_on_error=False, allow_abbrev=False)
    parser.add_argument("--config", action="config", help="A YAML file of keys. Options after it win over it.")
    again = "Start anew where the run's folder already holds a run."
    parser.add_argument("--fresh", action="store_true", default=argparse.SUPPRESS, help=again)
    parser.add_class_arguments(kind, nested_key=None)
    return parser


def parse(parser: ArgumentParser, kind: type, arguments: Sequence[str]) -> tuple[Any, str, bool]:
    """The config that ``arguments`` ask for, the same as YAML text with every key, and whether ``--fresh`` was given.

    Raises ``InputError`` with one message; ``--help`` and ``--print_config`` print and exit.
    """
    places = check_keys(kind, arguments)
    # --fresh is about this one call: kept from the parser, it never gets into --print_config or a run's config.yaml.
    rest = [argument for argument in arguments if argument != "--fresh"]
    try:
        namespace = parser.parse_args(rest)
    except argparse.ArgumentError as error:
        raise explain(kind, str(error), places) from None
    del namespace["config"]
    try:
        check_values(namespace.as_dict())
        config = build(kind, namespace.as_dict())
    except ConfigError as error:
        if error.key not in places:
            raise
        raise ConfigError(error.key, error.value, f"{error.remedy} ({places[error.key]})") from None
    return config, parser.dump(namespace, skip_unset=False), len(rest) < len(arguments)


# Keys -------------------------------------------------------------------------------------------------------------------


def section_of(annotation: Any) -> type | None:
    """The config dataclass that ``annotation`` is or allows, or None."""
    options = (annotation, *get_args(annotation)) if get_origin(annotation) is not list else ()
    return next((option for option in options if isinstance(option, type) and dataclasses.is_dataclass(option)), None)


def item_of(annotation: Any) -> Any:
    """The annotation of a list's items; None for what is no list."""
    return get_args(annotation)[0] if get_origin(annotation) is list else None


def dotted(kind: type, prefix: str = "", items: bool = False) -> Iterator[tuple[str, Any]]:
    """Every key under ``kind`` as users write it, sections included, with its annotation; ``items``: of list items too."""
    for name, annotation in get_type_hints(kind).items():
        yield prefix + name, annotation
        if section := section_of(annotation) or (section_of(item_of(annotation)) if items else None):
            yield from dotted(section, f"{prefix}{name}.", items)


def check_keys(kind: type, arguments: Sequence[str]) -> dict[str, str]:
    """Refuse keys that ``kind`` does not have and values of another shape, in files and options.

    Returns where the keys of the files stand.
    """
    known = dict(dotted(kind))
    every = [key for key, _ in dotted(kind, items=True)]
    bad: list[BadLine] = []
    places: dict[str, str] = {}
    options: set[str] = set()
    for position, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if not option.startswith("--") or option == "--":
            continue
        values = [value] if equals else arguments[position + 1 : position + 2]
        if option == "--config":
            for path in values:
                bad += misfits(read_file(path), kind, "", path, every, places)
            continue
        name = option.removeprefix("--")
        key = name.removesuffix("+").removesuffix(".help")
        free = get_origin(known.get(key.rpartition(".")[0])) is dict  # a mapping with keys of the user's own
        if name not in PLAIN_OPTIONS and key not in known and not free:
            bad.append(unknown_key("command line", 0, name, [*PLAIN_OPTIONS, *known]))
        elif name in (key, f"{key}+") and name not in PLAIN_OPTIONS:
            for text in values:
                bad += option_misfits(name, known.get(key, Any), text, every)
        options.add(key)
    if bad:
        raise BadInputError("config keys" if len(bad) > 1 else "config key", bad)
    return {key: place for key, place in places.items() if key not in options}


def read_file(path: str) -> yaml.MappingNode:
    """The keys of a config file, and their values, as nodes."""
    fault: tuple[int, str, str] = 0, "holds no keys", "write one 'key: value' a line (--print_config shows them all)"
    try:
        data = Path(path).read_bytes()
        if len(data) > MAX_FILE_BYTES:
            raise YamlError(0, f"{len(data)} bytes, too many for a config", "name a YAML file after --config")
        root = strict_yaml.compose(data.decode("utf-8"))
        if isinstance(root, yaml.MappingNode):
            return root
    except YamlError as error:
        fault = error.line, error.what, error.remedy
    except (OSError, ValueError) as error:  # a ValueError is about bytes that are no UTF-8, or a name that no file can have
        reason = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", None) or error
        fault = 0, f"cannot be read ({reason})", "name a YAML file after --config"
    raise BadInputError("config file", [BadLine(path, *fault)])


def option_misfits(name: str, annotation: Any, text: str, every: Sequence[str]) -> Iterator[BadLine]:
    """What in an option's value has no place in ``annotation``. Raises ``ConfigError`` where the whole value has none."""
    key = name.removesuffix("+")
    check_values(text, key)
    try:
        root = strict_yaml.compose(text)
    except BrokenYamlError:
        root = None
    except YamlError as error:
        raise ConfigError(key, text, f"{error.what}; {error.remedy}") from None
    if key != name and not isinstance(root, yaml.SequenceNode):  # one more item of a list
        annotation = item_of(annotation) or annotation
    if str in choices(annotation):
        return
    if root is None or not fits(root, annotation):
        raise ConfigError(key, text, f"expected {in_words(annotation)}")
    for bad in misfits(root, annotation, key, "command line", every, {}):
        yield dataclasses.replace(bad, line=0)


def misfits(
    node: yaml.Node, annotation: Any, key: str, path: str, every: Sequence[str], places: dict[str, str]
) -> Iterator[BadLine]:
    """What in ``node``, the value of ``key``, has no place in ``annotation``. Notes in ``places`` where keys stand.

    Shapes alone are looked at: whether a value is of the right type, jsonargparse tells.
    """
    section, item = section_of(annotation), item_of(annotation)
    if not fits(node, annotation):
        what = f"{key} holds no keys" if section else f"{key} is of another kind"
        yield BadLine(path, node.start_mark.line + 1, what, f"give it {in_words(annotation)}, or leave it out")
    elif section and isinstance(node, yaml.MappingNode):
        annotations = get_type_hints(section)
        seen: set[str] = set()
        for name, line, value, own in entries(node):
            inner = f"{key}.{name}" if key else name
            if name not in annotations:
                yield unknown_key(path, line, inner, every)
                continue
            if own and name in seen:
                yield BadLine(path, line, f"{inner} stands here twice", "keep one of the two")
            if own:
                seen.add(name)
            places[inner] = f"{path}:{line}"
            yield from misfits(value, annotations[name], inner, path, every, places)
    elif item and isinstance(node, yaml.SequenceNode):
        for each in node.value:
            yield from misfits(each, item, key, path, every, places)


def entries(node: yaml.MappingNode) -> Iterator[tuple[str, int, yaml.Node, bool]]:
    """The keys of a mapping, merged ones first: name, line, value, and whether it stands there itself."""
    for key, value in node.value:
        if key.tag == MERGE:
            for merged in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if isinstance(merged, yaml.MappingNode):
                    yield from ((name, line, inner, False) for name, line, inner, _ in entries(merged))
    yield from ((key.value, key.start_mark.line + 1, value, True) for key, value in node.value if key.tag != MERGE)


def choices(annotation: Any) -> tuple[Any, ...]:
    """The members of a union; of anything else, itself."""
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def fits(node: yaml.Node, annotation: Any) -> bool:
    """Whether ``annotation`` takes a node of this kind: keys, a list, null, one of its words, a value."""
    allowed = choices(annotation)
    if Any in allowed:
        return True
    if isinstance(node, yaml.MappingNode):
        return any(dataclasses.is_dataclass(choice) or get_origin(choice) is dict for choice in allowed)
    if isinstance(node, yaml.SequenceNode):
        return any(get_origin(choice) is list for choice in allowed)
    if node.tag == NULL:
        return NoneType in allowed
    words = [word for choice in allowed if get_origin(choice) is Literal for word in get_args(choice)]
    return node.value in words or any(choice in (str, int, float, bool) for choice in allowed)


def unknown_key(path: str, line: int, key: str, known: Sequence[str]) -> BadLine:
    """Says that ``key`` does not exist, and which existing one is nearest by its whole name or by its last part."""
    last = key.rpartition(".")[2]
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.7)
    near = near or [other for other in known if other.rpartition(".")[2] == last][:2]
    near = near or difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    remedy = f"did you mean {' or '.join(near)}?" if near else "--print_config shows the keys that exist"
    return BadLine(path, line, f"there is no key {key}", remedy)


# Types and values -------------------------------------------------------------------------------------------------------


def build(annotation: Any, value: Any) -> Any:
    """``value``, plain data of the right types, as the frozen dataclasses that ``annotation`` names.

    (jsonargparse can do this, but wraps what ``__post_init__`` raises beyond recognition inside lists and unions.)
    """
    section = section_of(annotation)
    if section and isinstance(value, Mapping):
        annotations = get_type_hints(section)
        return section(**{name: build(annotations[name], inner) for name, inner in value.items()})
    if isinstance(value, list):
        return [build(item_of(annotation), item) for item in value]
    return value


def check_values(values: Any, key: str = "") -> None:
    """Refuse what neither a file name nor the JSON and YAML of a run's files can hold."""
    if isinstance(values, Mapping):
        for name, value in values.items():
            check_values(name, key)
            check_values(value, f"{key}.{name}" if key else name)
    elif isinstance(values, list):
        for value in values:
            check_values(value, key)
    elif isinstance(values, str):
        if re.search("[\0\ud800-\udfff]", values):
            raise ConfigError(key, values, "text without NUL characters and undecodable bytes")
    elif isinstance(values, float) and not math.isfinite(values):
        raise ConfigError(key, values, "a finite number")


def explain(kind: type, message: str, places: Mapping[str, str]) -> InputError:
    """One of jsonargparse's messages in the words of a config file."""
    key = ""
    for part in re.findall(r'Parser key "([^"]+)"', message):
        key = part if not key or part.startswith(f"{key}.") else f"{key}.{part}" if part != key else key
    if refused := re.search(r"[Oo]ption '([^']+)'(?: is not accepted|$)", message):
        name = f"{key}.{refused[1]}" if key and not refused[1].startswith(f"{key}.") else refused[1]
        every = [key for key, _ in dotted(kind, items=True)]
        return BadInputError("config key", [unknown_key("command line", 0, name, every)])
    patterns = (r"Got value: (.*)", r"Given value: (.*)", r"Unable to load config '(.*)'")
    value = next((found for pattern in patterns if (found := re.search(pattern, message))), None)
    annotation = annotation_of(kind, key)
    if annotation is None or value is None:
        told = " ".join(message.split())
        return InputError(shown(f"{told} ''" if told.endswith(":") else told, 400))  # an argument that is empty
    place = f" ({places[key]})" if key in places else ""
    return ConfigError(key, value[1], f"expected {in_words(annotation)}{place}")


def annotation_of(kind: type, key: str) -> Any:
    """The annotation of ``key``, which may lie in the items of a list; None where there is no such key."""
    annotation: Any = kind
    for name in key.split("."):
        section = section_of(annotation) or section_of(item_of(annotation))
        annotation = get_type_hints(section).get(name) if section else None
    return annotation


def in_words(annotation: Any) -> str:
    """What a value of ``annotation`` looks like in a config file."""
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false", NoneType: "null"}
    if annotation in words:
        return words[annotation]
    if get_origin(annotation) is Literal:
        return " or ".join(map(str, get_args(annotation)))
    if dataclasses.is_dataclass(annotation):
        return f"keys ({', '.join(field.name for field in dataclasses.fields(annotation))})"
    if get_origin(annotation) is list:
        return f"a list in brackets, each item {in_words(item_of(annotation))}"
    if get_origin(annotation) is dict:
        return "a mapping {name: value}"
    return ", or ".join(map(in_words, get_args(annotation)))
