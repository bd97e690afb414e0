"""A config in the making: YAML files and options, one after the other, on the defaults of a config
dataclass.

Its fields may be annotated with str, int, float, bool, None, Any, Literal of texts, list[...],
dict[str, ...], another such dataclass (a *section*), and unions of these. Values are plain data of
just these types from the moment they are read, so a mistake is told in the words of a config file,
with the place at which it stands.

An option for a section may give several of its keys at once: ``--columns
mission=Station,label=Result``; a list is given item by item, ``texts=part,texts=state``. Where
texts stand in a list, one may stand without brackets: ``--tickets my.csv``.

Keys that nobody knows and values of a wrong type are gathered, so that one reading mends them all.
Ranges are checked by the dataclasses themselves, at the end.

jsonargparse prints the help from the same dataclasses. It does not parse: configs are handed on by
others, and its release 4.53 imports what a value names, reads the file that is named in a section's
place, makes a null of a quoted ``'null'``, knows no lines, and ends the process at ``--seed
[[[[...``. Keeping that from it takes the walk below, after which nothing is left to parse
(``lab/notes/parsing.md`` has the figures).
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import json
import math
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin

from stageb.errors import BadInputError, BadLine, ConfigError, shown
from stageb.settings import choices, inner_of, read_annotations, section_of
from stageb.untrusted import strict_yaml
from stageb.untrusted.strict_yaml import BrokenYamlError, KeyPath, YamlError

WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    NoneType: "null",
    Any: "a value",
}
PAIRS = re.compile(r"\w+=[^,]*(,\w+=[^,]*)*")
RATIO = re.compile(r"(\d+(?:\.\d+)?) ?: ?1(?:\.0*)?")
SERVES_BOTH = (
    "keep a file of columns alone, which serves both commands, and give fit the rest "
    "in a second --config"
)
LOOP = "loop"  # the key that chose the dataclass; what it says is known already


class ConfigFile(NamedTuple):
    """A config file's content."""

    path: str  # as the user named it
    values: Mapping[str, Any]  # plain data
    lines: Mapping[KeyPath, int] = types.MappingProxyType({})  # where they stand


class Option(NamedTuple):
    """An option's text on the command line."""

    text: str
    adds: bool  # to a list


OPTIONS = ConfigFile("command line", {})


class WrongValueError(ConfigError):
    """A value that its annotation does not allow, and where it stands."""

    def __init__(self, key: str, value: Any, remedy: str, path: str, line: int) -> None:
        super().__init__(key, value, f"{remedy} ({path}:{line})" if line else remedy)
        self.line = BadLine(path, line, f"{key}: {shown(repr(value), 200)}", remedy)


class Draft:
    """The values of one config, as the sources read so far leave them."""

    def __init__(
        self,
        kind: type,
        plain_options: Sequence[str] = (),
        beneath: Mapping[str, Any] = types.MappingProxyType({}),
        fit_kind: type | None = None,
    ) -> None:
        """``kind`` is the dataclass; ``plain_options`` are options that are no keys, for a remedy
        to name; ``beneath`` are whole values, as plain data, that take the place of defaults;
        ``fit_kind`` is the dataclass of fit, where another command's keys are read: people have one
        file for both."""
        self.kind = kind
        self._own, self._of_fit = (
            dict(list_keys(kind)),
            dict(list_keys(fit_kind)) if fit_kind else {},
        )
        self.values = defaults(kind) | dict(beneath)
        self._plain_options = plain_options
        # what takes the place of keys
        self._former: Mapping[str, str] = getattr(kind, "former_keys", {})
        self._bad: list[BadLine | WrongValueError] = []
        self._source = OPTIONS  # what is being read
        self._by_option: list[str] = []  # keys
        self._places: dict[str, str] = {}  # where the values of keys stand that came from files

    def add_file(self, file: ConfigFile) -> None:
        """Read the keys of a file. One that was set to another value by an option before it is
        refused: a file is easily believed to lie beneath all options."""
        self._source, before = file, {key: _look_up(self.values, key) for key in self._by_option}
        self.values = self._section(file.values, self.kind, (), self.values)
        for key, value in before.items():
            if _look_up(self.values, key) != value:
                path = next(
                    (path for path in file.lines if _write_key(path) == key), tuple(key.split("."))
                )
                what = f"sets {key}, and --{key} stands before it"
                self._refuse(
                    path, what, f"put --{key} behind --config {file.path}, or leave it out"
                )
        keys = {path: line for path, line in file.lines.items() if isinstance(path[-1], str)}
        self._places |= {_write_key(path): f"{file.path}:{line}" for path, line in keys.items()}

    def add_option(self, name: str, text: str | None) -> None:
        """Read ``--name text``; None where no value was given."""
        self._source = OPTIONS
        key, known = name.removesuffix("+"), self._own
        parent, _, last = key.rpartition(".")
        # a mapping with keys of the user's own
        free = get_origin(known.get(parent)) is dict and last
        annotation = get_args(known[parent])[1] if free else known.get(key)
        if annotation is None and self._belongs_to_fit(key, None):
            self._refuse((name,), f"{name} belongs to fit alone", "leave it out")
        elif annotation is None or (name != key and inner_of(annotation, list) is None):
            self._unknown((name,), [*self._plain_options, *known])
        elif text is None:
            self._refuse((), f"--{name} has no value", f"give it {describe_type(annotation)}")
        else:
            self._by_option.append(key)
            given: Any = Option(text, name != key)
            for part in reversed(key.split(".")):
                given = {part: given}
            self.values = self._section(given, self.kind, (), self.values)

    def check(self) -> None:
        """Raise ``ConfigError`` for a value that cannot be, ``BadInputError`` for a key, or for all
        of several."""
        if len(self._bad) == 1 and isinstance(self._bad[0], WrongValueError):
            raise self._bad[0]
        if self._bad:
            lines = [bad.line if isinstance(bad, WrongValueError) else bad for bad in self._bad]
            raise BadInputError("config keys" if len(lines) > 1 else "config key", lines)

    def build(self) -> Any:
        """The frozen config. Raises ``ConfigError`` for a value out of range."""
        try:
            return build(self.kind, self.values)
        except ConfigError as error:
            place = f" ({self._places[error.key]})" if error.key in self._places else ""
            raise ConfigError(error.key, error.value, f"{error.remedy}{place}") from None

    def _section(
        self, given: Mapping[str, Any], section: Any, path: KeyPath, before: Any
    ) -> dict[str, Any]:
        """The section's values: those ``given``, and of the rest what ``before`` holds or else its
        defaults."""
        annotations, known = read_annotations(section), before if isinstance(before, dict) else {}
        is_whole = known.keys() >= annotations.keys()
        values = dict(known) if is_whole else defaults(section) | known
        for name, value in given.items():
            inner = (*path, name)
            if name not in annotations and (former := self._find_former(inner, value)):
                for key in former:
                    self._unknown(key, ())
            elif self._belongs_to_fit(_write_key(inner), value):
                self._refuse(inner, f"{_write_key(inner)} belongs to fit alone", SERVES_BOTH)
            elif name not in annotations:
                self._unknown(inner, [known for known, _ in list_keys(self.kind, items=True)])
            elif inner != (LOOP,):
                try:
                    if isinstance(value, Option) and value.adds:
                        values[name] = self._extend_list(
                            value, annotations[name], inner, values[name], defaults(section)[name]
                        )
                    else:
                        values[name] = self._take(value, annotations[name], inner, values[name])
                except WrongValueError as wrong:
                    self._bad.append(wrong)
        return values

    def _belongs_to_fit(self, key: str, value: Any) -> bool:
        """Whether a key is fit's and not this command's, or a section where this has a value."""
        own, of_fit = self._own.get(key), self._of_fit.get(key)
        is_section = isinstance(value, dict) and section_of(of_fit) is not None
        return of_fit is not None and (own is None or (is_section and section_of(own) is None))

    def _extend_list(
        self, option: Option, annotation: Any, path: KeyPath, before: Any, usual: Any
    ) -> list[Any]:
        """The list ``before`` with one more item, or several."""
        more = self._option(option.text, annotation | inner_of(annotation, list), path)
        first = before if isinstance(before, list) else [] if before == usual else [before]
        return [*first, *(more if isinstance(more, list) else [more])]

    def _option(self, text: str, annotation: Any, path: KeyPath, before: Any = None) -> Any:
        """An option's value: YAML; but where a text may stand, ``text`` itself, unless it says
        something else that may."""
        if (section := section_of(annotation)) and PAIRS.fullmatch(text):
            for pair in parse_pairs(section, text):
                before = self._section(pair, section, path, before)
            return before
        key = _write_key(path)
        self._places = {
            other: place
            for other, place in self._places.items()
            if not f"{other}.".startswith(f"{key}.")
        }
        try:
            value = strict_yaml.read(text)[0]
        except BrokenYamlError:
            value = text
        except YamlError as error:
            raise self._wrong(path, text, f"{error.what}; {error.remedy}") from None
        try:
            value = self._take(value, annotation, path, before)
        except WrongValueError as wrong:
            if str not in choices(annotation):
                own = isinstance(wrong.value, str) and wrong.key == key
                raise self._wrong(path, text, wrong.remedy) if own else wrong from None
            value = text
        return (
            self._check_value(text, path)
            if isinstance(value, str) and str in choices(annotation)
            else value
        )

    def _take(self, value: Any, annotation: Any, path: KeyPath, before: Any = None) -> Any:
        """``value`` as plain data of ``annotation``. Raises ``WrongValueError``."""
        if isinstance(value, Option):
            return self._option(value.text, annotation, path, before)
        texts = str in choices(inner_of(annotation, list))
        if type(value) in (str, int, float) and texts and str not in choices(annotation):
            # one path or word, as everybody writes it; a config holds a list all the same
            value = [value]
        if isinstance(value, list) and (item := inner_of(annotation, list)):
            # A list of texts may say 0 or 1.5: so YAML and Python write what stands in a table's
            # cells.
            each_text = [
                str(each) if item is str and type(each) in (int, float) else each for each in value
            ]
            return [self._take(each, item, (*path, place)) for place, each in enumerate(each_text)]
        if isinstance(value, dict) and (section := section_of(annotation)):
            return self._section(value, section, path, before)
        if isinstance(value, dict) and (item := inner_of(annotation, dict)):
            stays = isinstance(before, dict) and any(
                isinstance(each, Option) for each in value.values()
            )
            rest = before if stays else {}
            return rest | {
                self._check_value(name, path): self._take(each, item, (*path, name))
                for name, each in value.items()
            }
        try:
            return self._check_value(scalar(value, choices(annotation)), path)
        except ValueError:
            given = value if isinstance(value, str | list | dict) else json.dumps(value)
            # YAML takes yes, no, on and off for true and false, and 2048 for a number.
            is_text = isinstance(value, bool | int | float) and str in choices(annotation)
            what, text = (
                ("yes, no, on and off", "yes" if value else "no")
                if isinstance(value, bool)
                else ("it", value)
            )
            quoted = f"; put {what} in quotes: '{text}'" if is_text else ""
            ratio = (
                RATIO.fullmatch(value)
                if isinstance(value, str) and {int, float} & {*choices(annotation)}
                else None
            )
            whole = f"; write {ratio[1]}" if ratio else ""
            is_paired = isinstance(value, str) and "=" in value and section_of(annotation)
            comma = (
                f"; a value with a comma has an option of its own: --{_write_key(path)}.KEY VALUE"
                if is_paired
                else ""
            )
            raise self._wrong(
                path, given, f"expected {describe_type(annotation)}{quoted}{whole}{comma}"
            ) from None

    def _check_value(self, value: Any, path: KeyPath) -> Any:
        """``value``, if a file name and the JSON and YAML of a run's files can hold it."""
        if isinstance(value, str) and re.search("[\0\ud800-\udfff]", value):
            raise self._wrong(path, value, "text without NUL characters and undecodable bytes")
        if isinstance(value, float) and not math.isfinite(value):
            raise self._wrong(path, value, "a finite number")
        return value

    def _wrong(self, path: KeyPath, value: Any, remedy: str) -> WrongValueError:
        return WrongValueError(
            _write_key(path), value, remedy, self._source.path, self._source.lines.get(path, 0)
        )

    def _refuse(self, path: KeyPath, what: str, remedy: str) -> None:
        self._bad.append(BadLine(self._source.path, self._source.lines.get(path, 0), what, remedy))

    def _find_former(self, path: KeyPath, value: Any) -> list[KeyPath]:
        """A key, or those below it, that this kind of config once had."""
        if _write_key(path) in self._former:
            return [path]
        below = value.items() if isinstance(value, dict) else ()
        return [key for name, inner in below for key in self._find_former((*path, name), inner)]

    def _unknown(self, path: KeyPath, known: Sequence[str]) -> None:
        """Say that a key does not exist, and which existing one is nearest by its whole name or by
        its last part."""
        key = _write_key(path)
        if key in self._former:
            self._refuse(path, f"there is no key {key}", self._former[key])
            return
        last = key.rpartition(".")[2]
        above, _, inner = key.rpartition(".")
        item = section_of(inner_of(self._own.get(above), list))
        if item and len(path) == 1:  # an option, which a list's keys are not
            names = [
                *difflib.get_close_matches(inner, read_annotations(item), n=1, cutoff=0.5),
                inner,
            ]
            self._refuse(
                path,
                f"there is no key {key}",
                f'{above} is a list: --{above} "[{{{names[0]}: VALUE}}]"',
            )
            return
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.7)
        near = near or [other for other in known if other.rpartition(".")[2] == last][:2]
        near = near or difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        remedy = (
            f"did you mean {' or '.join(near)}?"
            if near
            else "--print_config shows the keys that exist"
        )
        self._refuse(path, f"there is no key {key}", remedy)


def parse_pairs(section: type, text: str) -> Iterator[dict[str, Any]]:
    """Yield the values that ``name=value,other=value`` sets in ``section``, a key at a time."""
    lists = {
        name for name, annotation in read_annotations(section).items() if inner_of(annotation, list)
    }
    yield {name: [] for name in lists if f",{name}=" in f",{text}"}
    for name, _, value in (pair.partition("=") for pair in text.split(",")):
        yield {name: Option(value, name in lists)}


def _look_up(values: Any, key: str) -> Any:
    """The value of a dotted ``key``; None where there is none."""
    for part in key.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values


def _write_key(path: KeyPath) -> str:
    """A key as users write it: without the places in lists."""
    return ".".join(part for part in path if isinstance(part, str))


# Annotations --------------------------------------------------------------------------------------


def list_keys(kind: type, prefix: str = "", items: bool = False) -> Iterator[tuple[str, Any]]:
    """Every key under ``kind`` as users write it, sections included, with its annotation;
    ``items``: of list items too."""
    for name, annotation in read_annotations(kind).items():
        yield prefix + name, annotation
        if section := section_of(annotation) or (
            section_of(inner_of(annotation, list)) if items else None
        ):
            yield from list_keys(section, f"{prefix}{name}.", items)


def scalar(value: Any, allowed: tuple[Any, ...]) -> Any:
    """``value`` as it is allowed; a text in quotes as what it says without them, where no text may
    stand.

    Raises ``ValueError``.
    """
    words = [
        word for choice in allowed if get_origin(choice) is Literal for word in get_args(choice)
    ]
    if value in words or type(value) in allowed or Any in allowed:
        return value
    if type(value) is int and float in allowed:
        return float(value)
    with contextlib.suppress(YamlError):
        if isinstance(value, str) and (bare := strict_yaml.read(value)[0]) != value:
            return scalar(bare, allowed)
    raise ValueError(f"{value} is not allowed")


def describe_type(annotation: Any) -> str:
    """Describe a value of ``annotation`` in a config file."""
    if annotation in WORDS:
        return WORDS[annotation]
    if get_origin(annotation) is Literal:
        return " or ".join(get_args(annotation))
    if dataclasses.is_dataclass(annotation):
        return f"keys ({', '.join(field.name for field in dataclasses.fields(annotation))})"
    if get_origin(annotation) is list:
        return f"a list in brackets, each item {describe_type(inner_of(annotation, list))}"
    if get_origin(annotation) is dict:
        return "a mapping {name: value}"
    return ", or ".join(map(describe_type, choices(annotation)))


# Defaults and dataclasses -------------------------------------------------------------------------


def defaults(kind: Any) -> dict[str, Any]:
    """The defaults of a config dataclass as plain data, which is the caller's to change; not
    checked as a config is."""
    bare = object.__new__(kind)
    for field in dataclasses.fields(kind):
        value = (
            field.default
            if field.default_factory is dataclasses.MISSING
            else field.default_factory()
        )
        object.__setattr__(bare, field.name, value)
    return dataclasses.asdict(bare)


def build(annotation: Any, value: Any) -> Any:
    """``value``, plain data of the right types, as the frozen dataclasses that ``annotation``
    names."""
    if isinstance(value, dict) and (section := section_of(annotation)):
        annotations = read_annotations(section)
        return section(**{name: build(annotations[name], inner) for name, inner in value.items()})
    if isinstance(value, list):
        return [build(inner_of(annotation, list), item) for item in value]
    return value
