"""A block of environments: hosts that train as one batch, each with its slots, and what it costs.

What a block comes to depends on its environments' numbers and on what decides: on no rank, and on
no other block. The test set is for ``stageb evaluate`` and ``stageb play`` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor

from stageb import seeds
from stageb.errors import StagebError
from stageb.growth import hosts, tasks, training, views
from stageb.growth.config import GrowthConfig
from stageb.growth.hosts import Plan
from stageb.growth.lifecycle import Effect, Rules
from stageb.growth.tasks import Task
from stageb.growth.training import BrokenHostsError, EpochFigures
from stageb.growth.types import SLOTS, Action, EnvironmentView, Slots, SlotView, Stage
from stageb.growth.views import Measurements, Sizes
from stageb.job import heartbeat
from stageb.training.step import Recorder

EMPTY: Slots = (SlotView(), SlotView(), SlotView())
PlantedSeeds = tuple[tuple[int, int], ...]  # slot and blueprint of each
Course = tuple[tuple[float, float], ...]  # of a host: FLOPs so far, and validation accuracy


class HostError(StagebError):
    """The host of an environment can train no further."""


@dataclass(frozen=True)
class Setting:
    """The objects that all environments of a run share."""

    config: GrowthConfig
    task: Task
    plan: Plan
    rules: Rules
    device: str
    # one for all blocks, which train one after the other
    recorder: Recorder = field(default_factory=Recorder)

    @classmethod
    def of(cls, config: GrowthConfig, device: str) -> Setting:
        """Reads the task. Raises ``ConfigError`` and ``InputError`` for what cannot be."""
        task = tasks.load(config.task, config.host, device)
        plan = hosts.make_plan(config.host, task.shape)
        enabled = cast(tuple[bool, bool, bool], tuple(slot in config.host.slots for slot in SLOTS))
        return cls(config, task, plan, Rules(config.gates, enabled, len(plan.blueprints)), device)


@dataclass(frozen=True)
class Places:
    """Environments of a block: their numbers, among those that are learnt from or among those held
    out."""

    numbers: tuple[int, ...]
    held_out: bool = False

    def keys(self, seed: int) -> list[int]:
        """The streams of the environments, by which all that is drawn for them is named."""
        return [
            seeds.stream(seed, "growth", "held out" if self.held_out else "learning", each)
            for each in self.numbers
        ]


class Block:
    """Environments that train together: all that changes in them."""

    def __init__(
        self, setting: Setting, places: Places, begins: Sequence[PlantedSeeds] | None = None
    ) -> None:
        """``begins``: seeds that stand in each host for good from the start."""
        self.setting, self.places = setting, places
        self.keys = places.keys(setting.config.seed)
        self.lessons = tasks.make_lessons(setting.task, setting.plan, self.keys)
        self.hosts = training.make_hosts(setting.plan, self.lessons.start, setting.device)
        self.hosts.recorder = setting.recorder
        self.slots: list[Slots] = [EMPTY] * len(self.keys)
        self.views: list[EnvironmentView | None] = [None] * len(self.keys)
        self.flops = [0.0] * len(self.keys)
        self.skipped = [0] * len(self.keys)
        self.epochs = 0
        # FLOPs and validation accuracies at each look
        self.noted: list[tuple[list[float], list[float]]] = []
        for member, grown in enumerate(begins or ()):
            self._plant(member, grown)

    # What is asked of tensors

    def active(self) -> Tensor:
        """The blueprint in every slot: int64 (B, 3), -1 where there is none."""
        return torch.tensor([views.list_blueprints(slots) for slots in self.slots])

    def alphas(self) -> Tensor:
        """The weight of every seed in its host: float32 (B, 3)."""
        return torch.tensor([[slot.alpha for slot in slots] for slots in self.slots])

    def train(self) -> EpochFigures:
        """An epoch of every host. Raises ``HostError``."""
        host, fit = self.setting.config.host, self.lessons.sets.fit
        steps, size, device = host.steps_per_epoch, host.batch_size, self.setting.device
        batches = tasks.draw_batches(self.keys, self.epochs, steps, size, len(fit), device)
        learns = torch.tensor([[slot.stage.learns for slot in slots] for slots in self.slots])
        try:
            figures = training.train_epoch(
                self.hosts, self.active(), self.alphas(), learns, fit, batches
            )
        except BrokenHostsError as error:
            named = ", ".join(str(self.places.numbers[member]) for member in error.members)
            raise HostError(f"environment {named}, epoch {self.epochs + 1}: {error}") from error
        self.epochs += 1
        for member in range(len(self.keys)):
            self.flops[member] += self.price(member)
            self.skipped[member] += int(figures.skipped[member].sum())
        heartbeat.tick()
        return figures

    def look(self, figures: EpochFigures) -> list[EnvironmentView]:
        """Judge every host on the validation set, in full and with each slot turned; what is known
        of it now."""
        judged = training.judge(
            self.hosts, self.lessons.sets.validation, self.active(), self._turn_alphas()
        )
        config, after = self.setting.config, []
        columns = (
            figures.loss,
            figures.accuracy,
            judged.loss[:, 0],
            judged.accuracy,
            figures.gradient_norms,
        )
        rows = zip(self.slots, *(each.tolist() for each in columns), strict=True)
        for member, (
            slots,
            train_loss,
            train_accuracy,
            loss,
            (accuracy, *changed),
            norms,
        ) in enumerate(rows):
            self.flops[member] += self.price_of_looking(member)
            measured = Measurements(
                train_loss, train_accuracy, loss, accuracy, tuple(changed), tuple(norms[1:])
            )
            sizes = Sizes(
                config.host.epochs, config.host.steps_per_epoch, *self.count_parameters(member)
            )
            after.append(views.view_after_epoch(self.views[member], slots, measured, sizes))
        self.views = list(after)
        self.note([view.accuracy for view in after])
        return after

    def note(self, accuracies: Sequence[float]) -> None:
        """Remember how accurate every host is on the validation set, and what was spent on it so
        far."""
        self.noted.append((list(self.flops), list(accuracies)))

    def course(self, member: int, accuracy: float) -> Course:
        """Return the points that were noted of a host that has ended now, and its last one, of
        ``accuracy``."""
        spent = self.flops[member]
        noted = [(paid[member], accuracies[member]) for paid, accuracies in self.noted]
        return (*(point for point in noted if point[0] <= spent), (spent, accuracy))

    def act(self, actions: Sequence[Action]) -> None:
        """Have every environment do what was chosen for it, and end its epoch."""
        for member, (view, action) in enumerate(zip(self.views, actions, strict=True)):
            assert view is not None, "an action answers a view"
            slots, effects = self.setting.rules.act(view, action)
            self._take(member, slots, effects)

    def close(self, member: int) -> None:
        """Take out all that was not kept for good."""
        view = self.views[member]
        assert view is not None, "an episode has an epoch at least"
        self._take(member, *self.setting.rules.end(view))

    def judge(self, test: bool) -> list[tuple[float, float]]:
        """Loss and accuracy of every host as it stands, on the validation or the test set."""
        sets = self.lessons.sets
        split = sets.test if test else sets.validation
        judged = training.judge(self.hosts, split, self.active(), self.alphas()[:, None])
        return list(zip(judged.loss[:, 0].tolist(), judged.accuracy[:, 0].tolist(), strict=True))

    # What it costs

    def count_parameters(self, member: int) -> tuple[int, int]:
        """Parameters of a host, and of the seeds in it."""
        return self.setting.plan.count_parameters(views.list_blueprints(self.slots[member]))

    def price(self, member: int) -> float:
        """FLOPs of the next epoch of training."""
        host, slots = self.setting.config.host, self.slots[member]
        beside = [slot.stage.learns and slot.alpha == 0 for slot in slots]
        step = self.setting.plan.count_training(views.list_blueprints(slots), beside)
        return float(step * host.batch_size * host.steps_per_epoch)

    def price_of_looking(self, member: int) -> float:
        """FLOPs of judging the four settings on the validation set."""
        one = self.setting.plan.count_evaluation(
            views.list_blueprints(self.slots[member]), len(SLOTS) + 1
        )
        return float(one * len(self.lessons.sets.validation))

    # Within

    def _turn_alphas(self) -> Tensor:
        """Weights of the seeds in four settings, float32 (B, 4, 3): as they are; then early, mid,
        late turned.

        A seed that its host sees is out where it is turned, and one that trains beside its host is
        in.
        """
        alphas = self.alphas()[:, None].repeat(1, len(SLOTS) + 1, 1)
        unseen = torch.tensor(
            [[not slot.stage.is_visible for slot in slots] for slots in self.slots]
        )
        alphas[:, 1:].diagonal(dim1=1, dim2=2).copy_(unseen)
        return alphas

    def _take(self, member: int, slots: Slots, effects: Sequence[tuple[int, Effect]]) -> None:
        """The slots of the next epoch, and what they ask of the tensors."""
        self.slots[member] = self.setting.rules.weigh(slots)
        for slot, effect in effects:
            if effect is Effect.REMOVE:
                self.hosts.cull(member, slot)
            else:
                self._germinate(member, slot, slots[slot].blueprint)

    def _plant(self, member: int, grown: PlantedSeeds) -> None:
        """Seeds that stand from the start, as if they had been kept."""
        slots = list(EMPTY)
        for number, (slot, blueprint) in enumerate(grown):
            slots[slot] = SlotView(
                stage=Stage.FOSSILIZED, blueprint=blueprint, seed_id=number, alpha=1.0
            )
            self._germinate(member, slot, blueprint)
        self.slots[member] = cast(Slots, tuple(slots))

    def _germinate(self, member: int, slot: int, blueprint: int) -> None:
        self.hosts.germinate(member, slot, blueprint, tasks.seed_key(self.keys[member]))
