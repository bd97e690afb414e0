"""Answers on their way to those that learn from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
import torch
from lightning.fabric import Fabric

from stageb.job.world import World
from stageb.two_channel.config import ChannelBConfig, ScheduleConfig, TopologyConfig, TwoChannelConfig
from stageb.two_channel.learning.exchange import GROUPS, SharedRanks, group_size
from stageb.two_channel.learning.rollout import Writer
from stageb.two_channel.learning.schedule import DetectorSchedule
from stageb.two_channel.types import DetectorRollout, Object, Sample

SAMPLE = Sample("a.png", "a.png", 100, 100, (Object("cat", (10, 10, 40, 40)),))


class Scribe:
    """Writes one token, whatever it is shown."""

    version = -1

    def take(self, _weights: Iterator[tuple[str, torch.Tensor]], version: int) -> None:
        self.version = version

    def write(self, samples: Sequence[Sample], *_how: Any) -> list[DetectorRollout]:
        return [DetectorRollout((7,), True, self.version) for _ in samples]


@pytest.mark.parametrize("staleness", [0, 1])
def test_answers_ahead_are_begun_before_the_first_is_learnt_from(staleness: int) -> None:
    """Or else the ranks that answer wait for those that learn."""
    config = TwoChannelConfig(
        schedule=ScheduleConfig(steps=3, pattern=["A", "B", "B"]),
        channel_b=ChannelBConfig(rollouts_per_step=2),
        topology=TopologyConfig(rollout=1, learn=1, staleness=staleness),
    )
    world = World(Fabric(accelerator="cpu", devices=1))
    writer, schedule = cast(Writer, Scribe()), DetectorSchedule(config, 2)
    exchange = SharedRanks(world, writer, schedule, lambda _step: [SAMPLE] * 2, lambda: iter(()))
    taken = exchange.rollouts(1)
    assert next(taken) == (SAMPLE, DetectorRollout((7,), True, 1))
    assert list(exchange.pending()) == ([2] if staleness else [])
    assert len(list(taken)) == 1
    assert [each.version for _, each in exchange.rollouts(2)] == [1 if staleness else 2] * 2


def test_a_rank_sends_its_answers_in_so_many_groups_at_most() -> None:
    assert max(-(-answers // group_size(answers)) for answers in range(100)) == GROUPS
