"""Language models behind one Protocol (``protocol.py``) and a registry that is a dict.

An engine is a function of its model config that returns an ``Engine``; the module that holds it is imported when it is
asked for, so that naming an engine costs nothing. To add one, write ``build`` and name it in ``ENGINES`` below; users name
theirs in full: ``model.engine: my_package.my_module:build``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stageb.engines.protocol import (
    Completion,
    Decode,
    Engine,
    Finish,
    ImageEngine,
    Prompt,
    Question,
    Request,
    Resumer,
    Scorer,
)
from stageb.errors import ConfigError
from stageb.settings import function_named

if TYPE_CHECKING:
    from stageb.engines.config import ModelConfig

__all__ = [
    "ENGINES",
    "Completion",
    "Decode",
    "Engine",
    "Finish",
    "ImageEngine",
    "Prompt",
    "Question",
    "Request",
    "Resumer",
    "Scorer",
    "build",
]

ENGINES: dict[str, str] = {
    "transformers": "stageb.engines.native.transformers:build",
    "vllm": "stageb.engines.remote.vllm:build",
    "openai": "stageb.engines.remote.openai:build",
    "scripted": "stageb.engines.scripted:build",
}


def build(model: ModelConfig, device: str) -> Engine:
    """The engine that ``model.engine`` names, on ``device`` (a torch device string).

    Raises ``ConfigError`` for a name that is none, ``EngineError`` where the model cannot be loaded.
    """
    if model.engine not in ENGINES and ":" not in model.engine:
        remedy = f"choose one of {', '.join(sorted(ENGINES))}, or name one of your own: package.module:function"
        raise ConfigError("model.engine", model.engine, remedy)
    function = function_named("model.engine", ENGINES.get(model.engine, model.engine))
    engine: Engine = function(model, device)
    return engine
