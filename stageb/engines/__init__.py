"""Language models behind one Protocol (``protocol.py``) and a registry that is a dict.

An engine is a function of its model config that returns an ``Engine``; the module that holds it is imported when it is
asked for, so that naming an engine costs nothing. Users add theirs: ``ENGINES["mine"] = "my_package.my_module:build"``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from stageb.engines.protocol import Completion, Decode, Engine, Finish, Prompt, Question, Request, Scorer, Sighted
from stageb.errors import ConfigError

if TYPE_CHECKING:
    from stageb.engines.config import ModelConfig

__all__ = [
    "ENGINES",
    "Completion",
    "Decode",
    "Engine",
    "Finish",
    "Prompt",
    "Question",
    "Request",
    "Scorer",
    "Sighted",
    "build",
]

ENGINES: dict[str, str] = {
    "transformers": "stageb.engines.transformers:build",
    "vllm": "stageb.engines.vllm:build",
    "openai": "stageb.engines.openai:build",
    "scripted": "stageb.engines.scripted:build",
}


def build(model: ModelConfig, device: str) -> Engine:
    """The engine that ``model.engine`` names, on ``device`` (a torch device string).

    Raises ``ConfigError`` for a name that is not registered, ``EngineError`` where the model cannot be loaded.
    """
    target = ENGINES.get(model.engine)
    if target is None:
        raise ConfigError("model.engine", model.engine, f"choose one of {', '.join(sorted(ENGINES))}")
    module, _, function = target.partition(":")
    engine: Engine = getattr(importlib.import_module(module), function)(model, device)
    return engine
