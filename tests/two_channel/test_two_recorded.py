"""Layers that replay recordings learn what others do, whatever was recorded before; a step may
begin ahead of its turn.

There is no GPU to record on, so what would be replayed is computed once more.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from two_channel import made

from stageb.errors import InputError
from stageb.job.placement import Fabric
from stageb.job.world import World
from stageb.two_channel.config import PackingConfig
from stageb.two_channel.learning import packing, recorded
from stageb.two_channel.learning.learner import DetectorLearner
from stageb.two_channel.learning.targets import count_totals
from stageb.two_channel.types import StepTotals

ROOM = 150  # tokens of a pack: steps have several, of several lengths


class Again:
    """In place of a recorder."""

    def record(self, act: Callable[[], Any], ready: Callable[[], Any]) -> Callable[[], Any]:
        ready()
        act()
        return act


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint and its images."""
    return made.folder_of(tmp_path_factory.mktemp("detector"))


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention on a CPU is told where sequences end by a list, which recordings have none of."""
    monkeypatch.setattr(recorded, "Recorder", Again)
    monkeypatch.setattr(recorded, "GRAIN", 64)
    attend = packing.Apart.attend

    def attend_to_the_end(self: packing.Apart, layer: int, *parts: Any) -> Tensor:
        edges = [edge for edge, _ in groupby(self.sent.tolist())]
        assert max(end - begin for begin, end in pairwise(edges)) <= self.longest
        return attend(packing.Apart(edges, self.sent, self.longest), layer, *parts)

    monkeypatch.setattr(packing.Apart, "attend", attend_to_the_end)


class Taught:
    """A learner and what it is taught: in each step one image fewer."""

    def __init__(self, root: Path, replays: bool) -> None:
        detector = made.detector(root)
        self.targets = made.taught(root, detector)
        if replays:
            recorded.record_layers(detector.model, nullcontext)
        config = made.config(packing=PackingConfig(ROOM, ROOM))
        self.learner = DetectorLearner(
            World(Fabric(accelerator="cpu", devices=1)), detector, config
        )

    def lot(self, step: int) -> tuple[list[Any], StepTotals]:
        targets = self.targets[step:]
        return targets, count_totals(target for _, target in targets)

    def step(self, step: int) -> float:
        figures = made.step(self.learner, step, self.lot(step)[0])
        assert figures.packs >= 2
        return sum(figures.losses.values())

    def weights(self) -> dict[str, Tensor]:
        return {
            name: each.detach().clone()
            for name, each in self.learner.detector.model.named_parameters()
        }


@pytest.mark.usefixtures("recording")
def test_replayed_layers_learn_what_others_do(root: Path) -> None:
    plain, replaying = Taught(root, replays=False), Taught(root, replays=True)
    assert [replaying.step(step) for step in range(3)] == pytest.approx(
        [plain.step(step) for step in range(3)], rel=1e-5
    )
    for name, each in plain.weights().items():
        torch.testing.assert_close(replaying.weights()[name], each, rtol=1e-3, atol=1e-5)


@pytest.mark.usefixtures("recording")
def test_which_lengths_came_before_changes_no_byte(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "KEPT", 1)
    whole, begun, resumed = (Taught(root, replays=True) for _ in range(3))
    for step in range(4):
        whole.step(step)
    for step in range(2):
        begun.step(step)
    resumed.learner.take_up(begun.learner.state())
    for step in range(2, 4):
        resumed.step(step)
    assert all(torch.equal(each, whole.weights()[name]) for name, each in resumed.weights().items())


@pytest.mark.usefixtures("recording")
def test_where_nothing_learns_nothing_is_replayed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taught = Taught(root, replays=True)
    lines = [packing.make_line(taught.learner.detector, *target) for target in taught.targets[:1]]
    pack = packing.pack(taught.learner.detector, lines, made.totals(lines))
    monkeypatch.setattr(recorded, "Recording", None)
    with torch.no_grad():
        assert taught.learner.detector.model.get_image_features(
            **pack.images, return_dict=True
        ).pooler_output


def test_a_step_begun_ahead_is_the_same_step(root: Path) -> None:
    plain, ahead = Taught(root, replays=False), Taught(root, replays=False)
    for step in range(3):
        plain.step(step)
        targets, totals = ahead.lot(step)
        ahead.learner.teach(step, iter(targets), totals)
        ahead.learner.prepare(ahead.learner.plan(step + 1, *ahead.lot(step + 1)))
        ahead.learner.finish(1e-3)
    assert all(torch.equal(each, plain.weights()[name]) for name, each in ahead.weights().items())


def test_a_step_begun_ahead_that_does_not_come_is_forgotten(root: Path) -> None:
    plain, ahead = Taught(root, replays=False), Taught(root, replays=False)
    ahead.learner.prepare(ahead.learner.plan(1, *ahead.lot(1)))
    assert ahead.step(0) == plain.step(0)
    assert all(torch.equal(each, plain.weights()[name]) for name, each in ahead.weights().items())


def test_what_cannot_be_begun_is_refused_and_leaves_nothing(root: Path) -> None:
    plain, ahead = Taught(root, replays=False), Taught(root, replays=False)
    (sample, target), *_ = ahead.targets
    too_long = replace(target, ids=target.ids * ROOM)
    with pytest.raises(InputError, match=r"more than packing\.max_length"):
        ahead.learner.plan(1, [(sample, too_long)], StepTotals(1, 1))
    assert ahead.step(1) == plain.step(1)
