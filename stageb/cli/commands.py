"""The loops and their commands: what ``loop:`` in a config may say, and where that loop's config and its fit lie.

A loop is one entry here and a folder of its own. Its config is a frozen dataclass whose first field names the loop,
``loop: Literal["guidance"] = "guidance"``; its other fields are the loop's keys, and every one has a default. Its fit takes
that config, the same as YAML text, and whether to start anew, and returns an exit code. A loop may have commands of its own:
some for a run that it left (``stageb evaluate RUN``), called with the run's folder, its config, and the words that follow;
others beside any run (*tools*, ``stageb predict --tickets FILE``), called with a config of their own or with the bare words.
All are dotted names, imported when they are needed: a config costs little, a fit brings torch.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from stageb.errors import InputError
from stageb.job.process import collector_off

DEFAULT = "guidance"


@dataclass(frozen=True)
class Tool:
    """A command of a loop that is not about one run's folder."""

    summary: str  # what --help says
    run: str  # "module:function", called with (config, its YAML text), or with the words where ``config`` is empty
    config: str = ""  # "module:dataclass", every field with a default; empty: ``run`` reads the words itself
    fresh: bool = False  # whether it can start anew: ``run`` is called with a third argument then, whether --fresh was given
    beneath: str = ""  # "module:function" from the values given to whole values that take the place of defaults
    operand: str = ""  # the key that a first word without dashes gives
    needs: tuple[str, ...] = ()  # modules that ``extra`` brings; a tool asks for no more of its loop's extra than it uses
    extra: str = ""


@dataclass(frozen=True)
class RunCommand:
    """What a run of a loop can be asked for: ``stageb NAME RUN``."""

    summary: str  # what --help says
    run: str  # "module:function", called with the run's folder, its config, and the words that follow


@dataclass(frozen=True)
class Loop:
    """A loop of this table."""

    summary: str  # what --help says
    config: str  # "module:dataclass"
    fit: str  # "module:function"
    check: str = ""  # "module:function", called with the config: says what a fit would do, and starts nothing
    commands: Mapping[str, RunCommand] = field(default_factory=dict)  # by name
    lacks: Mapping[str, str] = field(default_factory=dict)  # by name: why not, and what there is instead
    tools: Mapping[str, Tool] = field(default_factory=dict)  # by the name of the command
    needs: tuple[str, ...] = ()  # modules that the extra of the loop's name brings
    score: str = "stageb.runs.folder:find_score"  # "module:function" from a run's folder to what a sweep maximises


def _judging(name: str, summary: str) -> Tool:
    """A command that judges tickets by guidance; the keys that it is not given, it takes from the guidance's run."""
    use = "stageb.guidance.commands.use"
    return Tool(summary, f"{use}.{name}:main", f"{use}.config:{name.title()}Config", True, f"{use}.source:inherit_keys")


LOOPS = {
    "guidance": Loop(
        summary="Learn written guidance for the missions of your tickets; no weight changes.",
        config="stageb.guidance.config:LoopConfig",
        fit="stageb.guidance.start:fit",
        check="stageb.guidance.commands.use.validate:main",
        score="stageb.guidance.commands.fit.summary:find_score",
        commands={
            "report": RunCommand(
                "Write what a run did and learnt on one page: HTML for a browser.",
                "stageb.guidance.commands.report.write:main",
            ),
            "stop": RunCommand(
                "End a run's learning at its next step, and keep what it has learnt.", "stageb.guidance.start:stop"
            ),
        },
        tools={
            "predict": _judging(
                "predict", "Judge new tickets by the rules that a run has learnt, or box pictures by its detector."
            ),
            "evaluate": _judging(
                "evaluate", "Say how good guidance is on labelled tickets; or with a run's folder, what that run has learnt."
            ),
            "automate": replace(
                _judging("automate", "Find which tickets need no person, under a proven bound on the errors among them."),
                operand="guidance",
            ),
            "summarize": Tool(
                summary="Have a model that can see write what the images of tickets show.",
                run="stageb.guidance.commands.use.summarize:main",
                config="stageb.guidance.commands.use.config:SummarizeConfig",
                fresh=True,
            ),
            "new": Tool(
                summary="Write a config for a table of your tickets: which columns say what, and which words mean pass.",
                run="stageb.guidance.commands.use.new:main",
            ),
            "tickets": Tool(
                summary="Have people correct labels that a run doubts: list them, and write a ticket file with their words.",
                run="stageb.guidance.commands.use.relabel:main",
            ),
            "audit": Tool(
                summary="Watch whether what automate promised still holds, by a sample that people look at.",
                run="stageb.guidance.commands.audit.main:main",
            ),
            "guidance": Tool(
                summary="Show learnt rules; compare, export and promote them, roll them back.",
                run="stageb.guidance.commands.govern.main:main",
            ),
        },
    ),
    "ppo": Loop(
        summary="Learn to play Snake, or in any environment, by PPO, its gradients reduced over ranks.",
        config="stageb.ppo.config:PpoLoopConfig",
        fit="stageb.ppo.loop:fit",
        check="stageb.ppo.check:main",
        commands={
            "evaluate": RunCommand("Play games that a run's agent did not learn from.", "stageb.ppo.evaluate:main"),
            "play": RunCommand("Watch a game of a run's agent: ppo.", "stageb.ppo.play:main"),
            "export": RunCommand("Write the agent of a run as ONNX: ppo.", "stageb.ppo.export:main"),
        },
        needs=("PIL", "gymnasium"),
    ),
    "growth": Loop(
        summary="Learn when and how networks should grow: PPO over many trainings at once.",
        config="stageb.growth.config:GrowthConfig",
        fit="stageb.growth.loop:fit",
        check="stageb.growth.loop:check",
        commands={
            "evaluate": RunCommand("Compare a run's controller with others at equal FLOPs.", "stageb.growth.evaluate:main"),
            "play": RunCommand("Watch an episode of a growth run.", "stageb.growth.play:main"),
        },
        needs=("sklearn",),
    ),
    "two_channel": Loop(
        summary="Teach a vision-language model to write the objects of images, from the truth and its own answers.",
        config="stageb.two_channel.config:TwoChannelConfig",
        fit="stageb.two_channel.loop:fit",
        check="stageb.two_channel.boxes.data:check",
        commands={
            "evaluate": RunCommand(
                "Measure a run's detector on labelled images.", "stageb.two_channel.learning.evaluate:main"
            ),
            "predict": RunCommand(
                "Box the pictures of a folder by a run's detector.", "stageb.two_channel.commands.predict:main"
            ),
        },
        lacks={
            "export": "a detector is not written as ONNX: it writes its boxes word by word, which takes a program around "
            "the network; take its checkpoint as it is, RUN/best (without val RUN/model), which transformers loads, or "
            "export what it finds: stageb predict RUN --images FOLDER --to FOLDER writes COCO, Label Studio and YOLO"
        },
        tools={
            "boxes": Tool(
                summary="Make data for detectors: from VOC, COCO, YOLO or Label Studio, or drawn.",
                run="stageb.two_channel.commands.boxes:main",
                needs=("PIL",),
                extra="images",
            )
        },
        needs=("PIL", "faster_coco_eval", "scipy"),
    ),
}


def tools() -> dict[str, Tool]:
    """The tools of all loops, by the name of the command."""
    return {name: tool for loop in LOOPS.values() for name, tool in loop.tools.items()}


def run_commands() -> dict[str, str]:
    """What runs can be asked for, by name, and the summaries of all loops that can be."""
    found: dict[str, str] = {}
    for name, command in (each for loop in LOOPS.values() for each in loop.commands.items()):
        found[name] = f"{found[name]} {command.summary}" if name in found else command.summary
    return found


def config_of(entry: Loop | Tool) -> type:
    """The dataclass whose fields are the keys of a loop or of a tool."""
    return cast(type, named(entry.config))


def fit_of(loop: str) -> Callable[[Any, str, bool], int]:
    """What runs ``loop``, called with (config, its YAML text, fresh). Raises ``InputError`` where its extra is missing."""
    check_extra(loop)
    return named(LOOPS[loop].fit)


def check_sweep(loop: str) -> None:
    """Raise ``InputError`` where the extra of ``loop``, or that of sweeps, is missing."""
    check_extra(loop)
    _check("stageb sweep", "sweep", ("optuna",))


def command_of(loop: str, name: str) -> Callable[[Path, Any, Sequence[str]], int]:
    """The command ``name`` for runs of ``loop``, called with (folder, config, arguments); it returns the exit code.

    Raises ``InputError`` where the loop has no such command, or its extra is missing.
    """
    if why := LOOPS[loop].lacks.get(name):
        raise InputError(f"stageb {name}: {why}")
    if name not in LOOPS[loop].commands:
        able = ", ".join(each for each, entry in LOOPS.items() if name in entry.commands)
        beside = f"; or without a run's folder: stageb {name} --help" if name in LOOPS[loop].tools else ""
        raise InputError(f"stageb {name}: there is none for runs of loop {loop}; there is one for: {able}{beside}")
    check_extra(loop)
    return named(LOOPS[loop].commands[name].run)


def check_of(loop: str) -> Callable[[Any], int] | None:
    """What checks the config of ``loop`` beyond its keys, if anything does; it returns the exit code."""
    if not LOOPS[loop].check:
        return None
    check_extra(loop)
    return named(LOOPS[loop].check)


def tool_of(name: str) -> Callable[..., int]:
    """What runs the tool ``name``; it returns the exit code. Raises ``InputError`` where its extra is missing."""
    tool = tools()[name]
    _check(f"stageb {name}", tool.extra, tool.needs)
    return named(tool.run)


def check_extra(loop: str) -> None:
    """Raise ``InputError`` where the extra of ``loop`` is missing."""
    _check(f"loop {loop}", loop.replace("_", "-"), LOOPS[loop].needs)


def _check(who: str, extra: str, modules: Sequence[str]) -> None:
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        remedy = f"python -m pip install 'stageb[{extra}]', or in a checkout: pip install -c constraints.txt -e '.[{extra}]'"
        raise InputError(f"{who} needs the extra {extra}, of which {', '.join(missing)} cannot be found: {remedy}")


def named(dotted: str) -> Callable[..., Any]:
    """What lies at "module:function", imported."""
    module, _, name = dotted.partition(":")
    with collector_off():  # all that torch brings lives to the end: looking for garbage in it takes a fifth of the import
        return cast(Callable[..., Any], getattr(importlib.import_module(module), name))
