"""A run of the Snake loop of which a rank raises amid the work, as a loop of its own: registered
once this is imported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stageb.cli.commands import Loop, loops
from stageb.ppo.config import PpoLoopConfig

loops()["falling"] = Loop(
    "Play Snake, and fall.", "programs.falling:FallingConfig", "programs.falling:fit"
)


@dataclass(frozen=True)
class FallingConfig(PpoLoopConfig):
    """A run of which a rank raises."""

    loop: Literal["falling"] = "falling"  # type: ignore[assignment]
    """The loop that these keys are of."""
    raises_on: int = -1
    """The rank."""


def fit(config: FallingConfig, resolved_yaml: str, fresh: bool) -> int:
    """A run that breaks on one rank."""
    from stageb.job import world as worlds
    from stageb.job.world import World
    from stageb.ppo import loop, rollout

    play = rollout.Player.play

    def falling(self: rollout.Player, first_step: int) -> tuple[rollout.Rollout, rollout.Totals]:
        if (self.rank, first_step) == (config.raises_on, 12):  # type: ignore[attr-defined]
            raise ValueError("the snake is gone")
        return play(self, first_step)

    def main(world: World) -> int:
        rollout.Player.rank = world.rank  # type: ignore[attr-defined]
        rollout.Player.play = falling  # type: ignore[method-assign]
        return loop.main(world, config, resolved_yaml, fresh)

    return worlds.run(config.fabric, main)
