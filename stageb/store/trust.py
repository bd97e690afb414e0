"""Which keys a run's folder may decide for the person who gives it to a command, and which that
person alone may.

Runs are handed on, so a folder may be somebody else's work, and anything may stand in its
``config.yaml``. Every key of a loop's config is one of two things:

- *data*: numbers, words and prompts. They decide what comes of a command, and may be taken from a
  folder.
- *authority*: what names code, a server, a secret, a checkpoint or a file. It is taken from the
  user's own command line or config, and never from a folder, since it would act in the user's name.

A key's declaration says which (``settings.setting``). One that says nothing is data only if its
values are numbers, booleans or words from a fixed choice, which name nothing; otherwise it counts
as authority.

Of the standard library alone, since ``--help`` reads it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stageb.errors import InputError, shown
from stageb.settings import AUTHORITY, CHECKPOINT, DATA, Key, describe_keys, inner_of, section_of


@dataclass(frozen=True)
class WithheldValue:
    """Stands for a value that a folder wants and may not set. What the user gives takes its place,
    or else it is refused."""

    folder: str
    key: str
    value: Any
    names: str  # what the key names


def take_data(
    folder: str,
    values: Mapping[str, Any],
    kind: type,
    defaults: Mapping[str, Any],
    prefix: str = "",
) -> dict[str, Any]:
    """``values``, as plain data, of the section ``kind`` of the config in ``folder``, with
    authority that is not as in ``defaults`` withheld."""
    found: dict[str, Any] = {}
    keys = describe_keys(kind)
    for name, value in values.items():
        key, default = f"{prefix}{name}", defaults[name]
        if value == default or _is_data(value, keys.get(name)):
            found[name] = value
        elif (
            isinstance(value, Mapping)
            and isinstance(default, Mapping)
            and (section := section_of(keys[name].annotation))
        ):
            found[name] = take_data(folder, value, section, default, f"{key}.")
        else:
            found[name] = WithheldValue(
                folder, key, value, keys[name].trust if name in keys else AUTHORITY
            )
    return found


def _is_data(value: Any, key: Key | None) -> bool:
    """Whether ``value`` of ``key``, None where there is no such key, is data and nothing else."""
    if key is None or key.trust == DATA or value in ([], {}):  # what is empty names nothing
        return key is not None
    if isinstance(value, Mapping) and value and (section := section_of(key.annotation)):
        keys = describe_keys(section)
        return all(_is_data(inner, keys.get(name)) for name, inner in value.items())
    if isinstance(value, list) and value and section_of(item := inner_of(key.annotation, list)):
        return all(_is_data(each, Key(item, "")) for each in value)
    return key.trust == CHECKPOINT and _is_checkpoint(value)


def _is_checkpoint(name: Any) -> bool:
    """Whether this is a plain checkpoint of this machine, which is as good as data: nothing of it
    runs, as long as trust_remote_code is not set, and nothing is fetched. An adapter names another
    checkpoint; a colon stands in names of functions."""
    if not isinstance(name, str) or ":" in name:
        return False
    folder = Path(name).expanduser()
    return (folder / "config.json").is_file() and not (folder / "adapter_config.json").exists()


def file_of(folder: Path, path: Path) -> Path:
    """``path``, a file in the folder of a run, or a place where none is. Raises ``InputError``
    where a link leads out of the folder, or something stands there that is no file, and might keep
    its reader waiting."""
    try:
        real, within = path.resolve(), folder.resolve()
    # links in a circle, or a name that no file can have
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(
            shown(f"{path}: cannot be read: {error}; take it out of the folder")
        ) from None
    if not real.is_relative_to(within):
        raise InputError(
            shown(f"{path}: leads out of {folder} by a link; put the file itself in its place")
        )
    if real.exists() and not real.is_file():
        raise InputError(shown(f"{path}: not a file; take it out of the folder"))
    return path


def check(values: Mapping[str, Any]) -> None:
    """Raise ``InputError`` where something is withheld still: what, and the options that would set
    it."""
    left = list(_find_withheld(values))
    if left:
        refuse(
            left[0].folder, [(each.key, each.names, f"--{each.key}", each.value) for each in left]
        )


def refuse(folder: str | Path, asked: Sequence[tuple[str, str, str, Any]]) -> None:
    """Raise ``InputError`` unless nothing is ``asked``: keys that only a user may set, each with
    what it names, the option that sets it and the value that the config in ``folder`` has."""
    if asked:
        lines = [
            f"  {key} ({names}): {shown(_format_value(value), 200)}"
            for key, names, _, value in asked
        ]
        options = " ".join(
            f"{option} {shlex.quote(shown(_format_value(value), 200))}"
            for *_, option, value in asked
        )
        raise InputError(
            "\n".join(
                [
                    f"{shown(str(folder))}: its config.yaml names what the folder of a run may "
                    f"not choose for you:",
                    *lines,
                    "Choose it yourself, on the command line or in a --config of your own. To "
                    "have what stands there, if you know where the folder comes from,",
                    f"add: {options}",
                ]
            )
        )


def _find_withheld(value: Any) -> Iterator[WithheldValue]:
    if isinstance(value, WithheldValue):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _find_withheld(inner)


def _format_value(value: Any) -> str:
    """A value as an option has it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
