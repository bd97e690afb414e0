"""Language models behind one Protocol (``protocol.py``), by name (``registry.py``)."""

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
from stageb.engines.registry import ENGINES, build

__all__ = [
    "ENGINES", "Completion", "Decode", "Engine", "Finish", "ImageEngine", "Prompt", "Question",
    "Request", "Resumer", "Scorer", "build",
]  # fmt: skip
