"""A config in the making: YAML files and options, one after the other, on the defaults of a config dataclass.

Its fields may be annotated with str, int, float, bool, None, Any, Literal of texts, list[...], dict[str, ...], another such
dataclass (a *section*), and unions of these. Values are plain data of just these types from the moment they are read, so a
mistake is told in the words of a config file, with the place at which it stands.

An option for a section may give several of its keys at once: ``--columns mission=Station,label=Result``; a list is given
item by item, ``texts=part,texts=state``.

Keys that nobody knows are gathered, so that one reading mends them all; a wrong value is told at once. Ranges are checked by
the dataclasses themselves, at the end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import math
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from stageb.errors import BadInputError, BadLine, ConfigError
from stageb.untrusted import strict_yaml
from stageb.untrusted.strict_yaml import TEXT, BrokenYamlError, YamlError

WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", NoneType: "null", Any: "a value"}
PAIRS = re.compile(r"\w+=[^,]*(,\w+=[^,]*)*")
AT_ONCE = yaml.Mark("", 0, 0, 0, None, None)  # where a value stands that is no YAML
LOOP = "loop"  # the key that chose the dataclass; what it says is known already


class Draft:
    """The values of one config, as the sources read so far leave them."""

    def __init__(
        self, kind: type, plain_options: Sequence[str] = (), beneath: Mapping[str, Any] = types.MappingProxyType({})
    ) -> None:
        """``kind`` is the dataclass; ``plain_options`` are options that are no keys, for a remedy to name; ``beneath`` are
        whole values, as plain data, that take the place of defaults."""
        self.kind = kind
        self.values = defaults(kind) | dict(beneath)
        self._plain_options = plain_options
        self._bad: list[BadLine] = []
        self._path = ""  # the file that is being read; empty: the command line
        self._places: dict[str, str] = {}  # where the values of keys stand that came from files

    def add_file(self, path: str, root: yaml.MappingNode) -> None:
        """Read the keys under ``root``. Raises ``ConfigError`` for a value of a wrong type."""
        self._path = path
        self.values = self._section(root, self.kind, "", self.values)

    def add_option(self, name: str, text: str | None) -> None:
        """Read ``--name text``; None where no value was given. Raises ``ConfigError`` for a value of a wrong type."""
        self._path = ""
        key, known = name.removesuffix("+"), dict(dotted(self.kind))
        parent, _, last = key.rpartition(".")
        free = get_origin(known.get(parent)) is dict and last  # a mapping with keys of the user's own
        annotation = get_args(known[parent])[1] if free else known.get(key)
        item = inner_of(annotation, list)
        if annotation is None or (name != key and item is None):
            self._unknown(0, name, [*self._plain_options, *known])
            return
        if text is None:
            self._refuse(0, f"--{name} has no value", f"give it {in_words(annotation)}")
            return
        if (section := section_of(annotation)) and PAIRS.fullmatch(text):
            self._add_pairs(key, section, text)
            return
        self._places = {other: place for other, place in self._places.items() if not f"{other}.".startswith(f"{key}.")}
        holder, path = self.values, parent.split(".") if parent else []
        for depth, part in enumerate(path, 1):
            if not isinstance(holder[part], dict):
                holder[part] = defaults(section_of(known[".".join(path[:depth])]))
            holder = holder[part]
        before = holder.get(self._checked(last, parent))
        if name == key:
            holder[last] = self._option(text, annotation, key, before)
        else:  # one more item of a list, or several
            more = self._option(text, annotation | item, key)
            unset = before == defaults(section_of(known[parent]) if parent else self.kind)[last]
            first = before if isinstance(before, list) else [] if unset else [before]
            holder[last] = [*first, *(more if isinstance(more, list) else [more])]

    def _add_pairs(self, key: str, section: type, text: str) -> None:
        """Read ``--key name=value,other=value``."""
        lists = {name for name, annotation in get_type_hints(section).items() if inner_of(annotation, list)}
        given: set[str] = set()
        for name, _, value in (pair.partition("=") for pair in text.split(",")):
            if name in lists and name not in given:
                self.add_option(f"{key}.{name}", "[]")
            self.add_option(f"{key}.{name}{'+' * (name in lists)}", value)
            given.add(name)

    def check(self) -> None:
        """Raise ``BadInputError`` for all keys so far that cannot be."""
        if self._bad:
            raise BadInputError("config keys" if len(self._bad) > 1 else "config key", self._bad)

    def build(self) -> Any:
        """The frozen config. Raises ``ConfigError`` for a value out of range."""
        try:
            return build(self.kind, self.values)
        except ConfigError as error:
            place = f" ({self._places[error.key]})" if error.key in self._places else ""
            raise ConfigError(error.key, error.value, f"{error.remedy}{place}") from None

    def _section(self, node: yaml.MappingNode, section: Any, key: str, before: Any) -> dict[str, Any]:
        """The section's values: what ``node`` names, and of the rest what ``before`` holds or else its default."""
        values = dict(before) if isinstance(before, dict) else defaults(section)
        annotations = get_type_hints(section)
        for name, inner, line, value in self._entries(node, key):
            if name not in annotations:
                self._unknown(line, inner, [key for key, _ in dotted(self.kind, items=True)])
            elif inner != LOOP:
                values[name] = self._take(value, annotations[name], inner, values[name])
        return values

    def _entries(self, node: yaml.MappingNode, key: str) -> Iterator[tuple[str, str, int, yaml.Node]]:
        """Name, whole key, line and value of what stands in ``node``. Refuses what stands there twice."""
        seen: set[str] = set()
        for name, line, value, own in strict_yaml.entries(node):
            inner = f"{key}.{name}" if key else name
            if own and name in seen:
                self._refuse(line, f"{inner} stands here twice", "keep one of the two")
            elif own:
                seen.add(name)
            if self._path:
                self._places[inner] = f"{self._path}:{line}"
            yield name, inner, line, value

    def _option(self, text: str, annotation: Any, key: str, before: Any = None) -> Any:
        """An option's value: YAML; but where a text may stand, ``text`` itself, unless it says something else that may."""
        try:
            node = strict_yaml.compose(text)
        except BrokenYamlError:
            node = None
        except YamlError as error:
            raise ConfigError(key, text, f"{error.what}; {error.remedy}") from None
        try:
            value = self._take(node or yaml.ScalarNode(TEXT, text, AT_ONCE), annotation, key, before)
        except ConfigError:
            if str not in choices(annotation):
                raise
            value = text
        return self._checked(text, key) if isinstance(value, str) and str in choices(annotation) else value

    def _take(self, node: yaml.Node, annotation: Any, key: str, before: Any = None) -> Any:
        """``node`` as plain data of ``annotation``."""
        if isinstance(node, yaml.ScalarNode):
            with contextlib.suppress(ValueError):
                return self._checked(scalar(node, choices(annotation)), key, node)
        elif isinstance(node, yaml.SequenceNode):
            if item := inner_of(annotation, list):
                return [self._take(each, item, key) for each in node.value]
        elif section := section_of(annotation):
            return self._section(node, section, key, before)
        elif item := inner_of(annotation, dict):
            values = self._entries(node, key)
            return {self._checked(name, key, node): self._take(value, item, whole) for name, whole, _, value in values}
        given = node.value if isinstance(node, yaml.ScalarNode) else self._take(node, Any, key)
        raise self._wrong(key, given, f"expected {in_words(annotation)}", node)

    def _checked(self, value: Any, key: str, node: yaml.Node | None = None) -> Any:
        """``value``, if a file name and the JSON and YAML of a run's files can hold it."""
        if isinstance(value, str) and re.search("[\0\ud800-\udfff]", value):
            raise self._wrong(key, value, "text without NUL characters and undecodable bytes", node)
        if isinstance(value, float) and not math.isfinite(value):
            raise self._wrong(key, value, "a finite number", node)
        return value

    def _wrong(self, key: str, value: Any, remedy: str, node: yaml.Node | None) -> ConfigError:
        place = f" ({self._path}:{node.start_mark.line + 1})" if self._path and node else ""
        return ConfigError(key, value, f"{remedy}{place}")

    def _refuse(self, line: int, what: str, remedy: str) -> None:
        self._bad.append(BadLine(self._path or "command line", line if self._path else 0, what, remedy))

    def _unknown(self, line: int, key: str, known: Sequence[str]) -> None:
        """Say that ``key`` does not exist, and which existing one is nearest by its whole name or by its last part."""
        last = key.rpartition(".")[2]
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.7)
        near = near or [other for other in known if other.rpartition(".")[2] == last][:2]
        near = near or difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        remedy = f"did you mean {' or '.join(near)}?" if near else "--print_config shows the keys that exist"
        self._refuse(line, f"there is no key {key}", remedy)


# Annotations ------------------------------------------------------------------------------------------------------------


def choices(annotation: Any) -> tuple[Any, ...]:
    """The members of a union; of anything else, itself."""
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def section_of(annotation: Any) -> Any:
    """The config dataclass that ``annotation`` is or allows, or None."""
    return next((choice for choice in choices(annotation) if dataclasses.is_dataclass(choice)), None)


def inner_of(annotation: Any, outer: type) -> Any:
    """The annotation of what stands in the list or dict (``outer``) that ``annotation`` is or allows, or None."""
    allowed = (choice for choice in choices(annotation) if choice is Any or get_origin(choice) is outer)
    return next((choice if choice is Any else get_args(choice)[-1] for choice in allowed), None)


def dotted(kind: type, prefix: str = "", items: bool = False) -> Iterator[tuple[str, Any]]:
    """Every key under ``kind`` as users write it, sections included, with its annotation; ``items``: of list items too."""
    for name, annotation in get_type_hints(kind).items():
        yield prefix + name, annotation
        if section := section_of(annotation) or (section_of(inner_of(annotation, list)) if items else None):
            yield from dotted(section, f"{prefix}{name}.", items)


def scalar(node: yaml.ScalarNode, allowed: tuple[Any, ...]) -> Any:
    """What a scalar says that is allowed: in quotes a text, or where none may stand, what it says without them.

    Raises ``ValueError``.
    """
    words = [word for choice in allowed if get_origin(choice) is Literal for word in get_args(choice)]
    if node.value in words:
        return node.value
    for each in (node, strict_yaml.unquoted(node)):
        value = strict_yaml.plain(each)
        if type(value) in allowed or Any in allowed:
            return value
        if type(value) is int and float in allowed:
            return float(value)
    raise ValueError(f"{node.value} is not allowed")


def in_words(annotation: Any) -> str:
    """What a value of ``annotation`` looks like in a config file."""
    if annotation in WORDS:
        return WORDS[annotation]
    if get_origin(annotation) is Literal:
        return " or ".join(get_args(annotation))
    if dataclasses.is_dataclass(annotation):
        return f"keys ({', '.join(field.name for field in dataclasses.fields(annotation))})"
    if get_origin(annotation) is list:
        return f"a list in brackets, each item {in_words(inner_of(annotation, list))}"
    if get_origin(annotation) is dict:
        return "a mapping {name: value}"
    return ", or ".join(map(in_words, choices(annotation)))


# Defaults and dataclasses -----------------------------------------------------------------------------------------------


def defaults(kind: Any) -> dict[str, Any]:
    """The defaults of a config dataclass as plain data, which is the caller's to change; not checked as a config is."""
    bare = object.__new__(kind)
    for field in dataclasses.fields(kind):
        value = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        object.__setattr__(bare, field.name, value)
    return dataclasses.asdict(bare)


def build(annotation: Any, value: Any) -> Any:
    """``value``, plain data of the right types, as the frozen dataclasses that ``annotation`` names."""
    if isinstance(value, dict) and (section := section_of(annotation)):
        annotations = get_type_hints(section)
        return section(**{name: build(annotations[name], inner) for name, inner in value.items()})
    if isinstance(value, list):
        return [build(inner_of(annotation, list), item) for item in value]
    return value
