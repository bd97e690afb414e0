"""stageb: rollout-driven learning on Lightning Fabric.

A *loop* repeats one cycle: hand every rank the same snapshot of what has been learnt, roll out a shard of work on each rank,
gather what came back, update, commit to disk. The first loop is training-free: what it learns is written guidance that a
language model reads; no weight changes.

The map:

- ``errors``, ``seeds``, ``config``: the tree of errors, random streams from names, the config that all loops share
- ``loops``: the registry of loops: what ``loop:`` in a config may say
- ``strict_yaml``, ``draft``, ``cli``, ``__main__``: from a command line to a frozen config; the command table
- ``completion``, ``functions``: the script that completes command lines in a shell; functions that a config names
- ``strict_json``: JSON that others wrote
- ``world``: a job's ranks on Lightning Fabric, and the collectives that a loop may use
- ``placing``, ``network``, ``launching``, ``meeting``, ``watchdog``, ``pulse``: how ranks are started, watched, and ended
  together
- ``speaking``, ``loggers``: what libraries may say on the terminal; Lightning's loggers, as configs name them
- ``journal``, ``commits``, ``versions``, ``disk``: a run's folder: lock, atomic files, append-only records, weights,
  commits, resume
- ``pictures``: image files, opened with suspicion
- ``engines``: language models behind one Protocol; ``scripted`` is a deterministic fake to test with
- ``guidance``: the training-free loop; ``guidance/loop.py`` is its table of contents; ``guidance/use`` judges tickets under
  what was learnt
- ``snake``: PPO on the game of Snake, gradients reduced over ranks
- ``growth``: PPO that decides when and how networks grow
- ``two_channel``: a vision-language model that learns to write the objects of images
- ``tiny``: the language model that ships with the package
- ``demo``: the demo's tickets

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
