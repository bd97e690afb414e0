"""The engines that ``model.engine`` may name.

An engine is a function of its model config that returns an ``Engine``; the module that holds it is
imported when it is asked for, so that naming an engine costs nothing. To add one, write ``build``
and enter it below: it can be chosen, and ``stageb doctor`` tells of it. Users name theirs in full:
``model.engine: my_package.my_module:build``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stageb.engines.protocol import Engine
from stageb.errors import ConfigError
from stageb.settings import function_named

if TYPE_CHECKING:
    from stageb.engines.config import ModelConfig


@dataclass(frozen=True, slots=True)
class EngineEntry:
    """An engine, as its name in the registry stands for it."""

    build: str  # package.module:function
    summary: str


ENGINES: dict[str, EngineEntry] = {
    "transformers": EngineEntry(
        "stageb.engines.native.transformers:build",
        summary="loads checkpoints; the default, with the model that ships in the package",
    ),
    "openai": EngineEntry(
        "stageb.engines.remote.openai:build",
        summary="asks a server, such as vLLM's: set model.base_url and model.model_name_or_path",
    ),
    "scripted": EngineEntry(
        "stageb.engines.scripted:build",
        summary="follows simple rules to the letter, to try things out",
    ),
}


def build(model: ModelConfig, device: str) -> Engine:
    """The engine that ``model.engine`` names, on ``device`` (a torch device string).

    Raises ``ConfigError`` for a name that is none, ``EngineError`` where the model cannot be
    loaded.
    """
    entry = ENGINES.get(model.engine)
    if entry is None and ":" not in model.engine:
        remedy = (
            f"choose one of {', '.join(sorted(ENGINES))}, or name one of your own: "
            f"package.module:function"
        )
        raise ConfigError("model.engine", model.engine, remedy)
    function = function_named("model.engine", entry.build if entry else model.engine)
    engine: Engine = function(model, device)
    return engine
