"""The registry of loops: what ``loop:`` in a config may say, and where that loop's config and its fit lie.

A loop is one entry here and a folder of its own. Its config is a frozen dataclass whose first field names the loop,
``loop: Literal["guidance"] = "guidance"``; its other fields are the loop's keys, and every one has a default. Its fit takes
that config, the same as YAML text, and whether to start anew, and returns an exit code. Both are dotted names, imported when
they are needed: a config costs little, a fit brings torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

DEFAULT = "guidance"


@dataclass(frozen=True)
class Loop:
    """One line of the registry."""

    summary: str  # what --help says
    config: str  # "module:dataclass"
    fit: str  # "module:function"


LOOPS = {
    "guidance": Loop(
        summary="Learn written guidance for the missions of your tickets; no weight changes.",
        config="stageb.guidance.config:LoopConfig",
        fit="stageb.guidance.loop:fit",
    ),
    "snake": Loop(
        summary="Learn to play Snake: PPO, its gradients reduced over ranks.",
        config="stageb.snake.config:SnakeConfig",
        fit="stageb.snake.loop:fit",
    ),
}


def config_of(loop: str) -> type:
    """The dataclass whose fields are the keys of ``loop``."""
    kind: type = _named(LOOPS[loop].config)
    return kind


def fit_of(loop: str) -> Callable[[Any, str, bool], int]:
    """What runs ``loop``, called with (config, its YAML text, fresh)."""
    function: Callable[[Any, str, bool], int] = _named(LOOPS[loop].fit)
    return function


def _named(dotted: str) -> Any:
    module, _, name = dotted.partition(":")
    return getattr(importlib.import_module(module), name)
