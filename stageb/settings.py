"""How a key of a config is declared: once, with its default and what its values must be; functions
of yours that keys name.

A config is frozen dataclasses of the standard library, one for each section. Values are checked
here, where they enter; a wrong one raises ``ConfigError`` with its key.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from stageb.errors import ConfigError

DATA = "data"  # what a key decides or names: see ``store.trust``
AUTHORITY = "authority"
CODE = "code that runs"
CHECKPOINT = "a checkpoint that is loaded, from this machine or the hub"
READ = "files that are read"
WRITTEN = "files that are written"
DEVICES = "devices that work"


class Check(NamedTuple):
    """A test of a value, and the remedy where it fails."""

    holds: Callable[[Any], bool]
    remedy: str

    def or_null(self) -> Check:
        """The same where the value may be null."""
        return Check(lambda value: value is None or self.holds(value), f"{self.remedy}, or null")


def at_least(least: float, most: float = math.inf) -> Check:
    """A number from ``least`` to ``most``."""
    remedy = f"at least {least}" if least else "0 or more"
    return Check(
        lambda value: least <= value <= most,
        remedy if most == math.inf else f"{remedy}, at most {most}",
    )


def one_of(*words: str) -> Check:
    """One of some ``words``."""
    return Check(lambda value: value in words, f"choose one of {', '.join(words)}")


ABOVE_0 = Check(lambda value: value > 0, "above 0")
UNIT = Check(lambda value: 0 <= value <= 1, "0 to 1")
SHARE = Check(UNIT.holds, "a share between 0 and 1")
SHARE_ABOVE_0 = Check(lambda value: 0 < value <= 1, "above 0, at most 1")
SHARE_BELOW_1 = Check(lambda value: 0 <= value < 1, "0 to below 1")
SECONDS = Check(lambda value: 0 < value <= 1e6, "seconds above 0, at most 1000000")
PLAIN_NAME = Check(
    lambda name: name.isprintable() and name not in ("", ".", "..") and not set(name) & set("/\\"),
    "one path component of printable characters, without / or \\",
)
PRICE = Check(lambda value: 0 < value < math.inf, "a number above 0")


def setting(default: Any, *checks: Check, trust: str = "") -> Any:
    """A key of a config: its ``default`` or what makes it, ``checks`` of its values, and what it
    names, for ``store.trust`` (numbers, booleans and words from a fixed choice need not say that
    they are ``DATA``)."""
    metadata = {"checks": checks, "trust": trust}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


class Section:
    """A section of a config, at the key ``at`` ("" for a whole config). Its values are checked when
    it is made."""

    at = ""

    def __init_subclass__(cls, at: str | None = None) -> None:
        if at is not None:
            cls.at = at

    def __post_init__(self) -> None:
        # subclasses are dataclasses
        for each in dataclasses.fields(self):  # type: ignore[arg-type]
            for check in each.metadata.get("checks", ()):
                self.require(check.holds(getattr(self, each.name)), each.name, check.remedy)
        self.check()

    def check(self) -> None:
        """Raise ``ConfigError`` where values do not go together."""

    def require(self, holds: bool, name: str, remedy: str) -> None:
        """Raise ``ConfigError`` for the key ``name`` of this section unless ``holds``."""
        if not holds:
            raise ConfigError(f"{self.at}.{name}".removeprefix("."), getattr(self, name), remedy)


class Key(NamedTuple):
    """A key of a section, as it is declared."""

    annotation: Any
    trust: str  # ``DATA``, or what it names


@cache
def read_annotations(section: Any) -> Mapping[str, Any]:
    """What the keys of a section may hold, by name; evaluated once, since that takes long."""
    return get_type_hints(section)


def describe_keys(section: Any) -> dict[str, Key]:
    """The keys of a section by name."""
    annotations = read_annotations(section)
    return {
        each.name: Key(
            annotation := annotations[each.name],
            each.metadata.get("trust") or _infer_trust(annotation),
        )
        for each in dataclasses.fields(section)
    }


def _infer_trust(annotation: Any) -> str:
    """``DATA`` for numbers, booleans, words from a fixed choice, and lists of these, which can name
    nothing."""
    lists = [
        get_args(choice) if get_origin(choice) is list else [choice]
        for choice in choices(annotation)
    ]
    fixed = all(
        part in (bool, int, float, NoneType) or get_origin(part) is Literal
        for parts in lists
        for part in parts
    )
    return DATA if fixed else AUTHORITY


def choices(annotation: Any) -> tuple[Any, ...]:
    """The members of a union; of anything else, itself."""
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def section_of(annotation: Any) -> Any:
    """The config dataclass that ``annotation`` is or allows, or None."""
    return next(
        (choice for choice in choices(annotation) if dataclasses.is_dataclass(choice)), None
    )


def inner_of(annotation: Any, outer: type) -> Any:
    """The annotation of what stands in the list or dict (``outer``) that ``annotation`` is or
    allows, or None."""
    allowed = (
        choice for choice in choices(annotation) if choice is Any or get_origin(choice) is outer
    )
    return next((choice if choice is Any else get_args(choice)[-1] for choice in allowed), None)


# Functions of a user's own that a config names: ``package.module:function``.


def function_named(key: str, name: str) -> Callable[..., Any]:
    """The function that ``key`` of a config names; its module is imported. Raises ``ConfigError``
    where there is none."""
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise ConfigError(key, name, "name a function, written package.module:function")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        remedy = "name a function that Python can find; PYTHONPATH=. has it look into this folder"
        raise ConfigError(key, name, f"{name} cannot be imported: {error}; {remedy}") from error
    if not callable(found):
        raise ConfigError(key, name, f"{name} is not a function")
    function_found: Callable[..., Any] = found
    return function_found
