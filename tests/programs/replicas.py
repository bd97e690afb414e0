"""A block of hosts that all ranks train together while they grow, by random actions; and what must come of it.

    python -m programs.replicas cuda 2

does so on two GPUs, and prints what each rank did as JSON.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from stageb.config import FabricConfig
from stageb.growth.config import GrowthConfig, GrowthSection, HostConfig, TaskConfig
from stageb.growth.controllers import Random
from stageb.growth.ddp import AllRanks, digests
from stageb.growth.environment import Block, Places, Setting, play
from stageb.growth.training import EpochFigures
from stageb.growth.types import Op
from stageb.job.world import World, decode, encode, run

CONFIG = GrowthConfig(
    task=TaskConfig("digits"),  # whose hosts learn; those of teachers are given
    host=HostConfig(width=8, blend="gated", epochs=120, steps_per_epoch=1, batch_size=24),
    growth=GrowthSection(ddp=True, environments=2, block=2),
)


@dataclass
class Noting(AllRanks):
    """Notes what this rank holds after every epoch."""

    world: World
    step: int = 0
    held: list[dict[str, str]] = field(default_factory=list)

    def epoch(self, *given: Any) -> EpochFigures:
        """Train, and note."""
        figures = super().epoch(*given)
        self.held.append(digests(given[0].state()))
        return figures


def operate(world: World, config: GrowthConfig = CONFIG) -> tuple[list[str], list[dict[str, str]]]:
    """Whole episodes of a block: the operations that were done, and digests of all that this rank held after each epoch."""
    setting = Setting.of(config, world.device)
    together = Noting(world)
    block = Block(setting, Places(tuple(range(config.growth.block))), trainer=together)
    episodes = play(block, together.led(Random(setting.rules, log_odds=(0.0, 0.0, 0.0, 0.0))))
    done = [action.op.name for actions in episodes.actions for action in actions if action.op is not Op.WAIT]
    return done, together.held


def main(world: World) -> int:
    """On every rank; rank 0 prints."""
    torch.backends.cudnn.deterministic = True
    many = replace(CONFIG, growth=replace(CONFIG.growth, environments=4, block=4))  # how many operations, chance says
    done, held = operate(world, many)
    cuda = torch.device(world.device).type == "cuda"
    peak = torch.cuda.max_memory_allocated(world.device) if cuda else 0
    mine = {"device": world.device, "peak_bytes": peak, "operations": done, "held": held}
    ranks = [decode(each) for each in world.gather(encode(mine))]
    if world.is_global_zero:
        print(json.dumps(ranks))
    return 0


if __name__ == "__main__":
    accelerator, devices = sys.argv[1:]
    sys.exit(run(FabricConfig(accelerator=accelerator, devices=int(devices), timeout_s=60), main))
