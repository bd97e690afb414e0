"""A run of the Snake loop of which a rank parts from the others, as a loop of its own: registered
once this is imported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stageb.cli.commands import Loop, loops
from stageb.ppo.config import PpoLoopConfig

loops()["parting"] = Loop(
    "Play Snake, and part.", "programs.parting:PartingConfig", "programs.parting:fit"
)
UPDATE = 6  # from 0, in which it happens, unless the run goes on from a commit


@dataclass(frozen=True)
class PartingConfig(PpoLoopConfig):
    """A run of which a rank parts."""

    loop: Literal["parting"] = "parting"  # type: ignore[assignment]
    """The loop that these keys are of."""
    parts: Literal["weights", "moments"] = "weights"
    """What changes by its last bit."""
    parts_on: int = -1
    """The rank."""


def fit(config: PartingConfig, resolved_yaml: str, fresh: bool) -> int:
    """A run in which one rank parts."""
    import torch

    from stageb.ppo import loop
    from stageb.ppo.ranks import Ranks
    from stageb.ppo.rollout import Rollout
    from stageb.training.ppo import Figures

    learn, begins = Ranks.learn, not (config.output.folder / "commit.json").exists()

    def parting(self: Ranks, rollout: Rollout, update: int) -> Figures:
        figures = learn(self, rollout, update)
        if begins and (self.world.rank, update) == (config.parts_on, UPDATE):
            weight = next(iter(self.agent.parameters()))
            spoilt = (
                weight.data
                if config.parts == "weights"
                else self.optimizer.state[weight]["exp_avg_sq"]
            )
            spoilt[0, 0, 0, 0] = torch.nextafter(
                spoilt[0, 0, 0, 0], torch.ones_like(spoilt[0, 0, 0, 0])
            )
        return figures

    Ranks.learn = parting  # type: ignore[method-assign]
    return loop.fit(config, resolved_yaml, fresh)
