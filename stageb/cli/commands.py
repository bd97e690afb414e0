"""The loops and their commands: what ``loop:`` in a config may say, and where that loop's config
and its fit lie.

A loop is a package whose ``LOOP`` is a ``Loop``: a folder of stageb that holds ``loop.py``, or one
that an installed package names under the entry points ``stageb.loops``. Nothing else names it, so a
folder that is taken away takes its loop with it.

Its config is a frozen dataclass whose first field names the loop, ``loop: Literal["guidance"] =
"guidance"``; its other fields are the loop's keys, and every one has a default. Its fit takes that
config, the same as YAML text, and whether to start anew, and returns an exit code. A loop may have
commands of its own: some for a run that it left (``stageb evaluate RUN``), called with the run's
folder, its config, and the words that follow; others beside any run (*tools*, ``stageb predict
--tickets FILE``), called with a config of their own or with the bare words. All are dotted names,
imported when they are needed: a config costs little, a fit brings torch.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, cast

import stageb
from stageb.errors import InputError, shown
from stageb.job.process import collector_off

DEFAULT = "guidance"
_GROUP = "stageb.loops"  # of entry points


@dataclass(frozen=True)
class Tool:
    """A command of a loop that is not about one run's folder."""

    summary: str  # what --help says
    # "module:function", called with its config, or with the words where ``config`` is empty
    run: str
    # "module:dataclass", every field with a default; empty: ``run`` reads the words itself
    config: str = ""
    fresh: bool = False  # whether it can start anew: ``run`` is told then whether --fresh was given
    # "module:function" from the values given to whole values that take the place of defaults
    beneath: str = ""
    operand: str = ""  # the key that a first word without dashes gives
    # modules that ``extra`` brings; a tool asks for no more of its loop's extra than it uses
    needs: tuple[str, ...] = ()
    extra: str = ""


@dataclass(frozen=True)
class RunCommand:
    """A command on a run of a loop: ``stageb NAME RUN``."""

    summary: str  # what --help says
    # "module:function", called with the run's folder, its config, and the words that follow
    run: str


@dataclass(frozen=True)
class Loop:
    """A loop: what a package calls ``LOOP``."""

    summary: str  # what --help says
    config: str  # "module:dataclass"
    fit: str  # "module:function"
    # "module:function", called with the config: says what a fit would do, and starts nothing
    check: str = ""
    commands: Mapping[str, RunCommand] = field(default_factory=dict)  # by name
    # by name: why not, and what there is instead
    lacks: Mapping[str, str] = field(default_factory=dict)
    tools: Mapping[str, Tool] = field(default_factory=dict)  # by the name of the command
    needs: tuple[str, ...] = ()  # modules that the extra of the loop's name brings
    # "module:function" from a run's folder to what a sweep maximises
    score: str = "stageb.runs.folder:find_score"


@cache
def loops() -> dict[str, Loop]:
    """All loops by name, guidance first. Raises ``InputError`` where two packages have a loop of
    one name."""
    return _find_loops()[0]


@cache
def unloaded() -> dict[str, str]:
    """By the names of the loops of installed packages that cannot be imported: why not."""
    return _find_loops()[1]


@cache
def _find_loops() -> tuple[dict[str, Loop], dict[str, str]]:
    names = sorted(path.parent.name for path in Path(stageb.__path__[0]).glob("*/loop.py"))
    found = {
        name: cast(Loop, import_object(f"stageb.{name}:LOOP"))
        for name in sorted(names, key=lambda name: name != DEFAULT)
    }
    faults = dict[str, str]()
    for point in sorted(entry_points(group=_GROUP), key=lambda point: point.name):
        if point.name in found:
            raise InputError(
                f"{point.value}: there is another loop {point.name}; uninstall one of the two "
                f"packages"
            )
        try:
            found[point.name] = point.load()
        except (ImportError, AttributeError) as error:
            faults[point.name] = shown(f"{point.value}: {error}")
    return found, faults


def tools() -> dict[str, Tool]:
    """The tools of all loops, by the name of the command."""
    return {name: tool for loop in loops().values() for name, tool in loop.tools.items()}


def run_commands() -> set[str]:
    """Return the names of all commands on runs."""
    return {name for loop in loops().values() for name in loop.commands}


def summaries() -> dict[str, str]:
    """Return the summaries of all loops' commands by name, tools first. A name may be that of a
    tool and of a command on runs."""
    found = {name: tool.summary for name, tool in tools().items()}
    for name, command in (each for loop in loops().values() for each in loop.commands.items()):
        found[name] = f"{found[name]} {command.summary}" if name in found else command.summary
    return found


def load_config_class(entry: Loop | Tool) -> type:
    """The dataclass whose fields are the keys of a loop or of a tool."""
    return cast(type, import_object(entry.config))


def load_fit(loop: str) -> Callable[[Any, str, bool], int]:
    """Import the function that runs ``loop``, called with (config, its YAML text, fresh). Raises
    ``InputError`` where its extra is missing."""
    check_extra(loop)
    return import_object(loops()[loop].fit)


def check_sweep(loop: str) -> None:
    """Raise ``InputError`` where the extra of ``loop``, or that of sweeps, is missing."""
    check_extra(loop)
    _check("stageb sweep", "sweep", ("optuna",))


def load_command(loop: str, name: str) -> Callable[[Path, Any, Sequence[str]], int]:
    """The command ``name`` for runs of ``loop``, called with (folder, config, arguments); it
    returns the exit code.

    Raises ``InputError`` where the loop has no such command, or its extra is missing.
    """
    if why := loops()[loop].lacks.get(name):
        raise InputError(f"stageb {name}: {why}")
    if name not in loops()[loop].commands:
        able = ", ".join(each for each, entry in loops().items() if name in entry.commands)
        beside = (
            f"; or without a run's folder: stageb {name} --help"
            if name in loops()[loop].tools
            else ""
        )
        raise InputError(
            f"stageb {name}: there is none for runs of loop {loop}; there is one for: "
            f"{able}{beside}"
        )
    check_extra(loop)
    return import_object(loops()[loop].commands[name].run)


def load_check(loop: str) -> Callable[[Any], int] | None:
    """Import the function that checks the config of ``loop`` beyond its keys, if there is one; it
    returns the exit code."""
    if not loops()[loop].check:
        return None
    check_extra(loop)
    return import_object(loops()[loop].check)


def load_tool(name: str) -> Callable[..., int]:
    """Import the function that runs the tool ``name``; it returns the exit code. Raises
    ``InputError`` where its extra is missing."""
    tool = tools()[name]
    _check(f"stageb {name}", tool.extra, tool.needs)
    return import_object(tool.run)


def check_extra(loop: str) -> None:
    """Raise ``InputError`` where the extra of ``loop`` is missing."""
    _check(f"loop {loop}", loop.replace("_", "-"), loops()[loop].needs)


def _check(who: str, extra: str, modules: Sequence[str]) -> None:
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        remedy = (
            f"python -m pip install 'stageb[{extra}]', or in a checkout: pip install -c "
            f"constraints.txt -e '.[{extra}]'"
        )
        raise InputError(
            f"{who} needs the extra {extra}, of which {', '.join(missing)} cannot be found: "
            f"{remedy}"
        )


def import_object(dotted: str) -> Callable[..., Any]:
    """Import the object at "module:function"."""
    module, _, name = dotted.partition(":")
    # all that torch brings lives to the end: looking for garbage in it takes a fifth of the import
    with collector_off():
        return cast(Callable[..., Any], getattr(importlib.import_module(module), name))
