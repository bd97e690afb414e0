"""A block of environments from start to end: hosts that train as one batch, and a controller that
looks at each of them.

An *episode* is ``host.epochs`` epochs. At the end of each but the last the controller chooses one
action for every environment; what that asks of the slots holds from the next epoch on. After the
last, all that was not kept for good is taken out, and what stays is judged on the validation set,
for the last reward. The test set is for ``stageb evaluate`` and ``stageb play`` alone.

What a block comes to depends on its environments' numbers and on what decides: on no rank, and on
no other block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

import torch
from torch import Tensor

from stageb import seeds
from stageb.errors import StagebError
from stageb.growth import hosts, lifecycle, tasks, training, views
from stageb.growth.config import GrowthConfig
from stageb.growth.controllers import Controller
from stageb.growth.hosts import Plan
from stageb.growth.lifecycle import LEARNS, VISIBLE, Effect, Rules
from stageb.growth.observation import observe
from stageb.growth.policy import GrowthRollout, encode_action, make_masks
from stageb.growth.tasks import Task
from stageb.growth.training import BrokenHostsError, EpochFigures
from stageb.growth.types import (
    SLOTS,
    Action,
    EnvironmentView,
    EpisodeResult,
    Op,
    Slots,
    SlotView,
    Stage,
)
from stageb.growth.views import Measurements, Sizes, compute_objective, compute_reward
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


@dataclass(frozen=True)
class Episodes:
    """A block from its start to its end."""

    ended: tuple[EpisodeResult, ...]
    played: GrowthRollout  # what PPO learns from
    views: tuple[tuple[EnvironmentView, ...], ...]  # of every epoch, by member
    actions: tuple[tuple[Action, ...], ...]  # of every epoch but the last


class Turn(NamedTuple):
    """A block's turn: what its controller knew at an epoch's end, and the actions that it chose."""

    observations: Tensor  # float32 (B, 80)
    legal: Tensor  # bool (B, 4, 3)
    actions: tuple[Action, ...]


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
        learns = torch.tensor([[slot.stage in LEARNS for slot in slots] for slots in self.slots])
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
            host, extra = hosts.count_parameters(self.setting.plan, views.list_blueprints(slots))
            sizes = Sizes(config.host.epochs, config.host.steps_per_epoch, host, extra)
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

    def price(self, member: int) -> float:
        """FLOPs of the next epoch of training."""
        host, slots = self.setting.config.host, self.slots[member]
        beside = [slot.stage in LEARNS and slot.alpha == 0 for slot in slots]
        step = hosts.count_training(self.setting.plan, views.list_blueprints(slots), beside)
        return float(step * host.batch_size * host.steps_per_epoch)

    def price_of_looking(self, member: int) -> float:
        """FLOPs of judging the four settings on the validation set."""
        one = hosts.count_evaluation(
            self.setting.plan, views.list_blueprints(self.slots[member]), len(SLOTS) + 1
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
            [[slot.stage not in VISIBLE for slot in slots] for slots in self.slots]
        )
        alphas[:, 1:].diagonal(dim1=1, dim2=2).copy_(unseen)
        return alphas

    def _take(self, member: int, slots: Slots, effects: Sequence[tuple[int, Effect]]) -> None:
        """The slots of the next epoch, and what they ask of the tensors."""
        config = self.setting.config
        self.slots[member] = cast(Slots, tuple(_set_alpha(slot, config) for slot in slots))
        for slot, effect in effects:
            if effect is Effect.REMOVE:
                training.cull(self.hosts, member, slot)
            else:
                training.germinate(
                    self.hosts,
                    member,
                    slot,
                    slots[slot].blueprint,
                    tasks.seed_key(self.keys[member]),
                )

    def _plant(self, member: int, grown: PlantedSeeds) -> None:
        """Seeds that stand from the start, as if they had been kept."""
        slots = list(EMPTY)
        for number, (slot, blueprint) in enumerate(grown):
            slots[slot] = SlotView(
                stage=Stage.FOSSILIZED, blueprint=blueprint, seed_id=number, alpha=1.0
            )
            training.germinate(
                self.hosts, member, slot, blueprint, tasks.seed_key(self.keys[member])
            )
        self.slots[member] = cast(Slots, tuple(slots))


def play(block: Block, controller: Controller) -> Episodes:
    """Whole episodes of a block that has just begun."""
    config = block.setting.config
    seen: list[tuple[EnvironmentView, ...]] = []
    turns: list[Turn] = []
    for epoch in range(1, config.host.epochs + 1):
        known = block.look(block.train())
        seen.append(tuple(known))
        if epoch < config.host.epochs:
            turns.append(take_turn(block, controller, known))
    for member in range(len(block.keys)):
        block.close(member)
    finals = _view_finals(block)
    rewards = _compute_rewards(seen, finals, config)
    decided = tuple(turn.actions for turn in turns)
    played = GrowthRollout(
        torch.stack([turn.observations for turn in turns]),
        torch.stack([turn.legal for turn in turns]),
        torch.tensor([[encode_action(action) for action in actions] for actions in decided]),
        rewards,
    )
    ended = _make_results(block, finals, decided, rewards)
    return Episodes(ended, played, tuple(seen), decided)


def take_turn(block: Block, controller: Controller, known: Sequence[EnvironmentView]) -> Turn:
    """Have every environment of a block do what ``controller`` chooses for it, and end its
    epoch."""
    observations, legal = (
        observe(known),
        make_masks([block.setting.rules.legal(view) for view in known]),
    )
    keys = [seeds.stream(key, "action", block.epochs) for key in block.keys]
    actions = tuple(controller.act(known, observations, legal, keys))
    block.act(actions)
    return Turn(observations, legal, actions)


def _view_finals(block: Block) -> list[EnvironmentView]:
    """The networks that stay, as the validation set judges them."""
    plan, finals = block.setting.plan, []
    for view, slots, (loss, accuracy) in zip(
        block.views, block.slots, block.judge(test=False), strict=True
    ):
        assert view is not None, "an episode has an epoch at least"
        extra = hosts.count_parameters(plan, views.list_blueprints(slots))[1]
        finals.append(
            replace(view, slots=slots, loss=loss, accuracy=accuracy, extra_parameters=extra)
        )
    return finals


def _compute_rewards(
    seen: Sequence[Sequence[EnvironmentView]],
    finals: Sequence[EnvironmentView],
    config: GrowthConfig,
) -> Tensor:
    """Of every action: float32 (T, B)."""
    last = len(seen) - 2
    rows = [
        [
            compute_reward(
                before, after, final if step == last else None, config.reward, config.ppo.gamma
            )
            for before, after, final in zip(seen[step], seen[step + 1], finals, strict=True)
        ]
        for step in range(last + 1)
    ]
    return torch.tensor(rows)


def _make_results(
    block: Block,
    finals: Sequence[EnvironmentView],
    decided: Sequence[Sequence[Action]],
    rewards: Tensor,
) -> tuple[EpisodeResult, ...]:
    """Return the results of a block's episodes, with its slots closed."""
    right, ended = block.lessons.right, []
    for member, final in enumerate(finals):
        done = [actions[member].op for actions in decided]
        ended.append(
            EpisodeResult(
                environment=block.places.numbers[member],
                epochs=block.epochs,
                loss=final.loss,
                accuracy=final.accuracy,
                objective=compute_objective(final, block.setting.config.reward),
                reward=float(rewards[:, member].sum()),
                host_parameters=final.host_parameters,
                extra_parameters=final.extra_parameters,
                germinated=done.count(Op.GERMINATE),
                fossilized=done.count(Op.FOSSILIZE),
                culled=done.count(Op.CULL),
                skipped=block.skipped[member],
                flops=block.flops[member],
                kept=views.list_kept(final.slots),
                truth=right[member] if right else None,
            )
        )
    return tuple(ended)


def _set_alpha(slot: SlotView, config: GrowthConfig) -> SlotView:
    """A slot with the weight that its stage gives it in the coming epoch."""
    if slot.stage is Stage.BLENDING:
        epochs = config.gates.blending_epochs
        alpha = lifecycle.compute_alpha(slot.epochs_in_stage + 1, epochs + 1)
    else:
        alpha = 1.0 if slot.stage in VISIBLE else 0.0
    return slot if slot.alpha == alpha else replace(slot, alpha=alpha)
