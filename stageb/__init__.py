"""Learn written rules for inspection tickets from labelled examples, and judge new tickets by them.

From Python, as the commands of the same names do:

    import stageb

    columns = {"mission_name": "racks", "group_id": None}
    checked = stageb.validate(tickets=["my.csv"], columns=columns)
    run = stageb.fit(table, config=["tickets", "frugal"], columns=columns)
    run.report()
    for row in stageb.predict(guidance="out/first", tickets="new.jsonl", output="verdicts.jsonl"):
        print(row["group_id"], row["verdict"], row["reason"])
    found = stageb.evaluate(guidance="out/first", tickets="labelled.jsonl", output="out/measured")
    print(found.figures)

- ``validate`` checks what ``fit`` would read, and estimates its cost; ``fit`` learns from files,
  rows or a DataFrame, in processes of its own, and returns a ``Run``
- ``GuidanceClassifier`` is a scikit-learn classifier that learns such rules by code alone
- ``predict`` judges tickets by rules that were learnt; ``evaluate`` says how often they are right;
  ``summarize`` has a model write what images show
- whatever cannot be used or breaks raises a ``StagebError``; an ``InputError`` is about what was
  given
- ``Engine``, ``Request``, ``Prompt``, ``Completion``, ``Decode`` and ``ENGINES`` are for a model of
  your own; ``LoopConfig`` holds every key of a fit; ``Guidance``, ``Rule`` and ``Ticket`` are what
  rules and tickets are read into

Names are imported when they are first used, so ``import stageb`` takes no time. The guides are in
docs/, the map of the package in docs/architecture.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stageb.engines import ENGINES, Completion, Decode, Engine, Prompt, Request
    from stageb.errors import (
        BadInputError,
        ConfigError,
        EngineError,
        InputError,
        JournalError,
        RankError,
        StagebError,
    )
    from stageb.guidance.commands.use.automate import automate
    from stageb.guidance.commands.use.classifier import GuidanceClassifier
    from stageb.guidance.commands.use.evaluate import evaluate
    from stageb.guidance.commands.use.fit import Run, fit
    from stageb.guidance.commands.use.predict import predict
    from stageb.guidance.commands.use.summarize import summarize
    from stageb.guidance.commands.use.validate import validate
    from stageb.guidance.config import LoopConfig
    from stageb.guidance.words.types import Guidance, Rule, Ticket

__version__ = "0.1.0"

__all__ = [
    "ENGINES", "BadInputError", "Completion", "ConfigError", "Decode", "Engine", "EngineError",
    "Guidance", "GuidanceClassifier", "InputError", "JournalError", "LoopConfig", "Prompt",
    "RankError", "Request", "Rule", "Run", "StagebError", "Ticket", "automate", "evaluate", "fit",
    "predict", "summarize", "validate",
]  # fmt: skip

_HOMES = {
    "stageb.engines": ("ENGINES", "Completion", "Decode", "Engine", "Prompt", "Request"),
    "stageb.guidance.config": ("LoopConfig",),
    "stageb.guidance.commands.use.automate": ("automate",),
    "stageb.guidance.commands.use.summarize": ("summarize",),
    "stageb.guidance.words.types": ("Guidance", "Rule", "Ticket"),
    "stageb.guidance.commands.use.classifier": ("GuidanceClassifier",),
    "stageb.guidance.commands.use.evaluate": ("evaluate",),
    "stageb.guidance.commands.use.fit": ("Run", "fit"),
    "stageb.guidance.commands.use.predict": ("predict",),
    "stageb.guidance.commands.use.validate": ("validate",),
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'stageb' has no attribute {name!r}")
    home = next((home for home, names in _HOMES.items() if name in names), "stageb.errors")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
