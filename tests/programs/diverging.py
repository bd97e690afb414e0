"""A run of the growth loop whose ranks train together, and of which one parts from the others, as a loop of its own.

    python -m programs.diverging fit --loop diverging --mishap weights --on 1 --fabric.devices 2 ...

It is registered once this is imported.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Literal

from stageb.__main__ import main as stageb
from stageb.cli.registry import LOOPS, Loop
from stageb.growth.config import GrowthConfig

LOOPS["diverging"] = Loop("Grow networks, and part.", "programs.diverging:DivergingConfig", "programs.diverging:fit")
EPOCH = 3  # of a block, in which it happens to weights and gradients


@dataclass(frozen=True)
class DivergingConfig(GrowthConfig):
    """A run of which one rank parts."""

    loop: Literal["diverging"] = "diverging"  # type: ignore[assignment]
    """The loop that these keys are of."""
    mishap: Literal["weights", "lifecycle", "absent"] = "weights"
    """A weight changes by its last bit; actions are not done; an epoch's gradients are not brought together."""
    on: int = 1
    """The rank."""


def fit(config: DivergingConfig, resolved_yaml: str, fresh: bool) -> int:
    """A run that breaks on one rank."""
    import torch

    from stageb.growth import loop
    from stageb.growth.ddp import AllRanks
    from stageb.growth.types import Action

    epoch, mean, decide = AllRanks.epoch, AllRanks.mean, AllRanks.decide

    def at(together: AllRanks, mishap: str) -> bool:
        return (together.world.rank, config.mishap) == (config.on, mishap)

    def parting_epoch(together: AllRanks, hosts: Any, *given: Any) -> Any:
        if at(together, "weights") and together.step + 1 == EPOCH:
            weight = hosts.weights["host"][0, 0]
            weight.copy_(torch.nextafter(weight, torch.ones_like(weight)))
        return epoch(together, hosts, *given)

    def parting_mean(together: AllRanks, tensors: Any) -> Any:
        return tensors if at(together, "absent") and together.step == EPOCH else mean(together, tensors)

    def parting_decide(together: AllRanks, actions: Any) -> Any:
        decided = decide(together, actions)
        return [Action()] * len(decided) if at(together, "lifecycle") else decided

    AllRanks.epoch, AllRanks.mean, AllRanks.decide = parting_epoch, parting_mean, parting_decide  # type: ignore[method-assign]
    return loop.fit(config, resolved_yaml, fresh)


if __name__ == "__main__":
    sys.exit(stageb())
