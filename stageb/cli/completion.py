"""Shell completion: a script for bash, zsh and others, made by jsonargparse and shtab from the command table and the config
dataclasses.

The script is whole in itself: no key press starts Python. It knows the keys of all loops, since it cannot see which one a
config names.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from functools import reduce
from operator import or_
from typing import Any, Literal

import shtab
from jsonargparse import ArgumentParser

from stageb import __version__
from stageb.cli import loops
from stageb.cli.draft import dotted
from stageb.cli.loops import Loop, Tool
from stageb.engines import ENGINES
from stageb.errors import InputError
from stageb.settings import choices

SHELLS = tuple(shtab.SUPPORTED_SHELLS)
FILES = {"config", "guidance", "model_name_or_path", "output", "path", "paths", "root", "tickets"}


def script(arguments: Sequence[str], summaries: Mapping[str, str]) -> str:
    """The script for the shell that ``arguments`` name. ``summaries`` say what each command does.

    Raises ``InputError`` where they name none.
    """
    if len(arguments) != 1 or arguments[0] not in SHELLS:
        remedy = 'such as: eval "$(stageb completion bash)", in ~/.bashrc'
        raise InputError(f"stageb completion: name your shell, one of {', '.join(SHELLS)}, {remedy}")
    return _parser(summaries).get_completion_script(f"shtab-{arguments[0]}")


def _parser(summaries: Mapping[str, str]) -> ArgumentParser:
    """A parser with every command and key; it parses nothing."""
    parser = ArgumentParser(prog="stageb", version=__version__)
    table = parser.add_subcommands()
    tools = loops.tools()
    for name, summary in summaries.items():
        command = ArgumentParser()
        if name == "completion":
            command.add_argument("shell", choices=SHELLS)
        elif name in ("fit", "validate"):
            _add_keys(command, list(loops.LOOPS.values()), fresh=True)
        elif name in tools and tools[name].config:
            _add_keys(command, [tools[name]], tools[name].fresh)
        if name in tools and tools[name].words:
            command.add_argument("command", choices=tools[name].words)
        if name in loops.run_commands() or (name in tools and not tools[name].config):
            _files(command.add_argument("run", nargs="*"))
        table.add_subcommand(name, command, help=summary.replace("%", "%%"))
    return parser


def _add_keys(command: ArgumentParser, entries: Sequence[Loop | Tool], fresh: bool) -> None:
    """Every key of the configs of ``entries`` as an option, but for sections, of which no value is written on a line."""
    annotations: dict[str, list[Any]] = {}
    for entry in entries:
        for key, annotation in dotted(loops.config_of(entry)):
            annotations.setdefault(key, []).extend(each for each in choices(annotation) if not is_dataclass(each))
    _files(command.add_argument("--config"))
    for flag in ["print_config", *["fresh"] * fresh]:
        command.add_argument(f"--{flag}", action="store_true")
    for key, kinds in sorted(annotations.items()):
        if kinds:
            engine = Literal[tuple(ENGINES)] if key.endswith("model.engine") else None
            option = command.add_argument(f"--{key}", type=engine or reduce(or_, kinds))
            if key.rpartition(".")[2] in FILES:
                _files(option)


def _files(option: argparse.Action) -> None:
    """Have files and folders offered for ``option``."""
    option.complete = shtab.FILE  # type: ignore[attr-defined]
