"""Shell completion: a script for bash, zsh and others, made by shtab from the command table and the config dataclasses.

The script is whole in itself: no key press starts Python. It knows the keys of all loops, since it cannot see which one a
config names.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import shtab

from stageb.cli import registry
from stageb.cli.draft import LOOP, choices, dotted, section_of
from stageb.cli.parsing import FLAGS
from stageb.engines import ENGINES
from stageb.errors import InputError

SHELLS = tuple(shtab.SUPPORTED_SHELLS)
FILES = {"config", "guidance", "model_name_or_path", "output", "path", "paths", "root", "stage_a_paths", "tickets"}


def script(arguments: Sequence[str], summaries: Mapping[str, str], of_runs: Collection[str]) -> str:
    """The script for the shell that ``arguments`` name. ``summaries`` say what each command does; ``of_runs`` are those that
    take a run's folder.

    Raises ``InputError`` where they name none.
    """
    if len(arguments) != 1 or arguments[0] not in SHELLS:
        remedy = 'such as: eval "$(stageb completion bash)", in ~/.bashrc'
        raise InputError(f"stageb completion: name your shell, one of {', '.join(SHELLS)}, {remedy}")
    return str(shtab.complete(_parser(summaries, of_runs), shell=arguments[0]))


def _parser(summaries: Mapping[str, str], of_runs: Collection[str]) -> argparse.ArgumentParser:
    """A parser with every command, key and value that can be told beforehand; it parses nothing."""
    parser = argparse.ArgumentParser(prog="stageb")
    parser.add_argument("--version", action="store_true")
    table = parser.add_subparsers()
    tools = registry.tools()
    for name, summary in summaries.items():
        command = table.add_parser(name, help=summary.replace("%", "%%"))
        if name == "completion":
            command.add_argument("shell", choices=SHELLS)
        elif name in ("fit", "validate"):
            _add_keys(command, list(registry.LOOPS.values()), {LOOP: list(registry.LOOPS), "fresh": None})
        elif name in tools and tools[name].config:
            _add_keys(command, [tools[name]], {"fresh": None} if tools[name].fresh else {})
        if name in of_runs or (name in tools and not tools[name].config):
            _files(command.add_argument("run", nargs="*"))
    return parser


def _add_keys(command: argparse.ArgumentParser, entries: Sequence[Any], more: Mapping[str, Sequence[str] | None]) -> None:
    """Every key of the configs of ``entries`` as an option; of ``more`` those with these values, or with none."""
    annotations: dict[str, list[Any]] = {}
    for entry in entries:
        for key, annotation in dotted(registry.config_of(entry)):
            annotations.setdefault(key, []).extend(choices(annotation))
    _files(command.add_argument("--config"))
    for flag in sorted({*FLAGS, *more} - {"help", *annotations} - ({"fresh"} - more.keys())):
        command.add_argument(f"--{flag}", action="store_true")
    for key, either in sorted(annotations.items()):
        values = more.get(key) or _values(key, either)
        if values or not all(section_of(annotation) for annotation in either):
            option = command.add_argument(f"--{key}", choices=values or None)
            if not values and key.rpartition(".")[2] in FILES:
                _files(option)


def _values(key: str, either: Sequence[Any]) -> list[str]:
    """The values that a key may have, where they can be listed."""
    words = [word for annotation in either if get_origin(annotation) is Literal for word in get_args(annotation)]
    words += ["true", "false"] if bool in either else []
    words += list(ENGINES) if key.endswith("model.engine") else []
    return list(dict.fromkeys([*words, "null"] if words and NoneType in either else words))


def _files(option: argparse.Action) -> None:
    """Have files and folders offered for ``option``."""
    option.complete = shtab.FILE  # type: ignore[attr-defined]
