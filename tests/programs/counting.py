"""A loop of its own, for tests of the command line: it counts, and its keys are of every type that
a config may have.

python -m programs.counting fit --loop counting ...   the ``stageb`` command with this loop
registered
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from stageb.__main__ import main
from stageb.cli.commands import Loop, Tool, loops
from stageb.config import OutputConfig, require

COUNTING = Loop(
    "Count to a number.",
    "programs.counting:CountingConfig",
    "programs.counting:fit",
    tools={
        "recount": Tool(
            "Count once more.", "programs.counting:recount", "programs.counting:CountingConfig"
        ),
        "play": Tool("Count words.", "programs.counting:words"),
    },
)


@dataclass(frozen=True)
class StepConfig:
    """One kind of step."""

    size: float = 1.0
    """How far it goes."""
    word: str = "tick"
    """What it says."""


@dataclass(frozen=True)
class CountingConfig:
    """A run that counts."""

    loop: Literal["counting"] = "counting"
    """The loop that these keys are of."""
    upto: int = 3
    """Where counting ends."""
    aloud: bool | None = None
    """Whether it is heard; null: who knows."""
    rest: StepConfig | None = None
    """A step in between."""
    steps: list[StepConfig] = field(default_factory=lambda: [StepConfig()])
    """The steps, in turn."""
    prices: dict[str, float] = field(default_factory=lambda: {"tick": 1.0})
    """What a word costs."""
    notes: dict[str, Any] = field(default_factory=dict)
    """Anything."""
    output: OutputConfig = field(default_factory=OutputConfig)

    def __post_init__(self) -> None:
        require(self.upto >= 0, "upto", self.upto, "0 or more")


def fit(config: CountingConfig, resolved_yaml: str, fresh: bool) -> int:
    """Keep the config in the run's folder, and say where counting ended."""
    folder = Path(config.output.root, config.output.run_name)
    folder.mkdir(parents=True, exist_ok=fresh)
    (folder / "config.yaml").write_text(resolved_yaml, encoding="utf-8")
    print(f"counted to {config.upto}")
    return 0


def recount(config: CountingConfig) -> int:
    """A tool with keys."""
    print(f"recounted to {config.upto}")
    return 0


def words(arguments: Sequence[str]) -> int:
    """A tool with words, of a name that runs know too."""
    print(f"{len(arguments)} words")
    return 0


if __name__ == "__main__":
    loops()["counting"] = COUNTING
    sys.exit(main())
