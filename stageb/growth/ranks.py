"""The work of every rank for the loop: play its share of the blocks, and gather the results.

Every method is for all ranks, in the same order. Rank 0 alone learns and writes: ``run.py``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch

from stageb.growth.config import GrowthConfig
from stageb.growth.deciding import Decider, Snapshot
from stageb.growth.environment import Block, Places, Setting
from stageb.growth.episodes import play
from stageb.growth.policy import GrowthRollout
from stageb.growth.types import EpisodeResult
from stageb.job.world import World, decode, encode, pack, unpack
from stageb.training import run
from stageb.training.schedules import is_due, share_done


@dataclass(frozen=True)
class GrowthSchedule:
    """The same on every rank, and at every world size."""

    config: GrowthConfig

    @property
    def updates(self) -> int:
        """Updates of the run."""
        return self.config.growth.updates

    def blocks(self, update: int) -> list[range]:
        """The environments of an update, a range of numbers for each block. No two updates share
        one."""
        first, count = update * self.config.growth.environments, self.config.growth.environments
        return cut_blocks(range(first, first + count), self.config.growth.block)

    def done(self, update: int) -> float:
        """How much of the run lies before an update, from 0 at the first to 1 at the last: what
        annealing goes by."""
        return share_done(update, self.updates)

    def shares(self, world_size: int) -> list[int]:
        """How many environments of an update each rank trains: block i is rank ``i %
        world_size``'s."""
        return [sum(map(len, self.blocks(0)[rank::world_size])) for rank in range(world_size)]

    def commits(self, update: int) -> bool:
        """Whether a commit follows an update."""
        return is_due(update, self.config.growth.commit_every, self.updates)

    def evaluates(self, update: int) -> bool:
        """Whether an evaluation follows an update."""
        return is_due(update, self.config.evaluation.every, self.updates)


def cut_blocks(numbers: range, block: int) -> list[range]:
    """``numbers`` in blocks, of which the last alone may be short. By the numbers alone, never by
    the ranks."""
    return [numbers[place : place + block] for place in range(0, len(numbers), block)]


@dataclass(frozen=True)
class RoundResult:
    """The results of all ranks, in the order of environments; on rank 0, and empty elsewhere."""

    results: tuple[EpisodeResult, ...]
    rollouts: tuple[GrowthRollout, ...]  # of each block
    ranks: tuple[dict[str, Any], ...]  # what each rank did, for timings


class GrowthRanks:
    """The ranks of a run, as the loop sees them."""

    def __init__(self, config: GrowthConfig, world: World) -> None:
        """Reads the task. Raises ``ConfigError`` and ``InputError``, the same on every rank."""
        torch.backends.cudnn.deterministic = True
        run.keep_freed(world.device)
        self.config, self.schedule, self.world = config, GrowthSchedule(config), world
        self.setting = Setting.of(config, world.device)

    def places(self) -> list[str]:
        """The device of every rank, by rank."""
        return self.world.collect(self.world.device)

    def play(self, update: int, snapshot: Snapshot) -> RoundResult:
        """The episodes of an update, under one snapshot of what decides."""
        decider = Decider(self.config.growth.controller, snapshot)
        return self._play_share(
            self.schedule.blocks(update), decider, held_out=False, label=f"update {update + 1}"
        )

    def evaluate(self, update: int, snapshot: Snapshot) -> RoundResult:
        """Episodes with the most probable actions; the same environments each time, none of which
        is learnt from."""
        blocks = cut_blocks(range(self.config.evaluation.environments), self.config.growth.block)
        decider = Decider(self.config.growth.controller, snapshot, greedy=True)
        return self._play_share(
            blocks, decider, held_out=True, label=f"evaluation after update {update + 1}"
        )

    def _play_share(
        self, blocks: Sequence[range], decider: Decider, held_out: bool, label: str
    ) -> RoundResult:
        """This rank's share of the blocks played, and all of them brought to rank 0."""
        mine: list[dict[str, Any]] = []
        begun = time.monotonic()
        for numbers in self.world.share(blocks):
            with self.world.at(f"{label}, {name_environments(numbers)}"):
                block = Block(self.setting, Places(tuple(numbers), held_out))
                episodes = play(block, decider.of(block))
                mine.append({"ended": _text(episodes.ended), "played": _tensors(episodes.played)})
        parts = self.world.gather(
            pack({"blocks": mine, "rank": self._facts(mine, time.monotonic() - begun)})
        )
        if not self.world.is_global_zero:
            return RoundResult((), (), ())
        unpacked = [unpack(part) for part in parts]
        together = self.world.join_shares([each["blocks"] for each in unpacked])
        ended = tuple(EpisodeResult.of(row) for block in together for row in decode(block["ended"]))
        return RoundResult(
            ended,
            tuple(GrowthRollout(**block["played"]) for block in together),
            tuple(each["rank"] for each in unpacked),
        )

    def _facts(self, blocks: Sequence[dict[str, Any]], seconds: float) -> dict[str, Any]:
        """Return facts about this rank's work: how many environments, on which device, in how long,
        and the peak memory there."""
        device = torch.device(self.world.device)
        peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
        environments = sum(block["played"]["rewards"].shape[1] for block in blocks)
        return {
            "rank": self.world.rank,
            "device": str(device),
            "environments": environments,
            "play_s": round(seconds, 3),
            "peak_bytes": peak,
        }


def name_environments(numbers: range) -> str:
    """The environments of a block, for errors."""
    return f"environment{f's {numbers[0]} to' * (len(numbers) > 1)} {numbers[-1]}"


def _text(ended: Sequence[EpisodeResult]) -> str:
    """As ``pack`` takes it soonest, which reads objects one by one, back too."""
    return encode(list(map(asdict, ended))).decode()


def _tensors(played: GrowthRollout) -> dict[str, torch.Tensor]:
    return {each.name: getattr(played, each.name).cpu() for each in fields(played)}
