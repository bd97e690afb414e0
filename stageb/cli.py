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
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import yaml
from jsonargparse import ArgumentParser, set_parsing_settings

from stageb.errors import BadInputError, BadLine, ConfigError, InputError

# Options of every command that are no keys of its config.
PLAIN_OPTIONS = ("config", "help", "print_config", "fresh")


def command_parser(kind: type, prog: str, summary: str) -> ArgumentParser:
    """The parser of one command, with every key of the config ``kind`` as an option."""
    set_parsing_settings(docstring_parse_attribute_docstrings=True)
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
    """Refuse keys that ``kind`` does not have, in files and options. Returns where the keys of the files stand."""
    known = dict(dotted(kind))
    bad: list[BadLine] = []
    places: dict[str, str] = {}
    options: set[str] = set()
    for position, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if not option.startswith("--") or option == "--":
            continue
        if option == "--config":
            for path in [value] if equals else arguments[position + 1 : position + 2]:
                check_file(path, kind, bad, places)
            continue
        name = option.removeprefix("--")
        key = name.removesuffix("+").removesuffix(".help")
        free = get_origin(known.get(key.rpartition(".")[0])) is dict  # a mapping with keys of the user's own
        if name not in PLAIN_OPTIONS and key not in known and not free:
            bad.append(unknown_key("command line", 0, name, [*PLAIN_OPTIONS, *known]))
        options.add(key)
    if bad:
        raise BadInputError("config keys" if len(bad) > 1 else "config key", bad)
    return {key: place for key, place in places.items() if key not in options}


def check_file(path: str, kind: type, bad: list[BadLine], places: dict[str, str]) -> None:
    """Read a config file, adding its unusable keys to ``bad`` and where the others stand to ``places``."""

    every = [key for key, _ in dotted(kind, items=True)]

    def walk(node: yaml.MappingNode, section: type, prefix: str) -> None:
        annotations = get_type_hints(section)
        seen: set[str] = set()
        for key_node, value in node.value:
            name, line = str(key_node.value), key_node.start_mark.line + 1
            key = prefix + name
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            if name not in annotations:
                bad.append(unknown_key(path, line, key, every))
                continue
            if name in seen:
                bad.append(BadLine(path, line, f"{key} stands here twice", "keep one of the two"))
            seen.add(name)
            places[key] = f"{path}:{line}"
            inner = section_of(annotations[name])
            items = section_of(item_of(annotations[name]))
            if inner and isinstance(value, yaml.MappingNode):
                walk(value, inner, f"{key}.")
            elif inner and inner is annotations[name]:
                bad.append(BadLine(path, line, f"{key} holds no keys", f"give it {in_words(inner)}, or leave it out"))
            elif items and isinstance(value, yaml.SequenceNode):
                for item in value.value:
                    if isinstance(item, yaml.MappingNode):
                        walk(item, items, f"{key}.")

    try:
        root = yaml.compose(Path(path).read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        whole = BadLine(path, 0, f"cannot be read ({reason})", "name a YAML file after --config")
        raise BadInputError("config file", [whole]) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = str(getattr(error, "problem", None) or error)
        line = BadLine(path, mark.line + 1 if mark else 0, f"no valid YAML: {what}", "mend it here or just above")
        raise BadInputError("config file", [line]) from None
    if not isinstance(root, yaml.MappingNode):
        whole = BadLine(path, 0, "holds no keys", "write one 'key: value' a line (--print_config shows them all)")
        raise BadInputError("config file", [whole])
    walk(root, kind, "")


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
        return InputError(" ".join(message.split()))
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
