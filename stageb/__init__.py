"""stageb: rollout-driven learning on Lightning Fabric.

A *loop* repeats one cycle: hand every rank the same snapshot of what has been learnt, roll out a shard of work on each rank,
gather what came back, update, commit to disk. The first loop is training-free: what it learns is written guidance that a
language model reads; no weight changes.

The map:

- ``errors``, ``config``, ``seeds``, ``draws``, ``functions``: the tree of errors, the config that all loops share, random
  streams from names (``draws``: in torch's arithmetic), functions of your own that a config names
- ``untrusted``: JSON, YAML, names and pictures that others wrote, read strictly
- ``store``: a run's folder: lock, atomic files, append-only records, weights, commits, resume; what it may decide
- ``job``: a job's ranks on Lightning Fabric: launched, placed, brought together (``world``), watched, ended
- ``engines``: language models behind one Protocol; ``scripted`` is a deterministic fake to test with
- ``runs``: what the runs of all loops share: their folder's life, progress, loggers, curves
- ``training``: what loops that learn weights share: PPO, Muon, CUDA graphs, steps left out
- ``cli``: from a command line to a frozen config; the registry of loops; completion. ``__main__`` is the command table
- ``guidance``: the training-free loop; ``guidance/loop.py`` is its table of contents; ``guidance/use`` judges tickets under
  what was learnt
- ``snake``, ``growth``, ``two_channel``: the loops that learn weights
- ``tiny``, ``demo``: the language model and the tickets that ship with the package

The names below are imported when they are first used, so that ``import stageb`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stageb.engines import ENGINES, Completion, Decode, Engine, Prompt, Request
    from stageb.errors import BadInputError, ConfigError, EngineError, InputError, JournalError, RankError, StagebError
    from stageb.guidance.config import LoopConfig
    from stageb.guidance.summarize.summarize import summarize
    from stageb.guidance.types import Guidance, Rule, Ticket
    from stageb.guidance.use.evaluate import evaluate
    from stageb.guidance.use.predict import predict
    from stageb.guidance.use.validate import validate

__version__ = "0.1.0.dev0"

__all__ = [
    "ENGINES",
    "BadInputError",
    "Completion",
    "ConfigError",
    "Decode",
    "Engine",
    "EngineError",
    "Guidance",
    "InputError",
    "JournalError",
    "LoopConfig",
    "Prompt",
    "RankError",
    "Request",
    "Rule",
    "StagebError",
    "Ticket",
    "evaluate",
    "predict",
    "summarize",
    "validate",
]

_HOMES = {
    "stageb.engines": ("ENGINES", "Completion", "Decode", "Engine", "Prompt", "Request"),
    "stageb.guidance.config": ("LoopConfig",),
    "stageb.guidance.summarize.summarize": ("summarize",),
    "stageb.guidance.types": ("Guidance", "Rule", "Ticket"),
    "stageb.guidance.use.evaluate": ("evaluate",),
    "stageb.guidance.use.predict": ("predict",),
    "stageb.guidance.use.validate": ("validate",),
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'stageb' has no attribute {name!r}")
    home = next((home for home, names in _HOMES.items() if name in names), "stageb.errors")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
