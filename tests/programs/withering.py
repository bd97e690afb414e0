"""A run of the growth loop of which a rank raises amid the work, as a loop of its own: registered
once this is imported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from stageb.cli.commands import Loop, loops
from stageb.growth.config import GrowthConfig

loops()["withering"] = Loop(
    "Grow networks, and wither.", "programs.withering:WitheringConfig", "programs.withering:fit"
)


@dataclass(frozen=True)
class WitheringConfig(GrowthConfig):
    """A run of which a rank raises."""

    loop: Literal["withering"] = "withering"  # type: ignore[assignment]
    """The loop that these keys are of."""
    raises_on: int = -1
    """The rank, which must have a share of the blocks."""


def fit(config: WitheringConfig, resolved_yaml: str, fresh: bool) -> int:
    """A run that breaks on one rank."""
    from stageb.growth import loop, ranks
    from stageb.growth.episodes import play
    from stageb.job import world as worlds
    from stageb.job.world import World

    def main(world: World) -> int:
        def withering(block: Any, controller: Any) -> Any:
            if (
                world.rank == config.raises_on
                and block.places.numbers[0] >= 3 * config.growth.environments
            ):
                raise ValueError("the seed is gone")
            return play(block, controller)

        ranks.play = withering  # type: ignore[attr-defined]
        return loop.main(world, config, resolved_yaml, fresh)

    return worlds.run(config.fabric, main)
