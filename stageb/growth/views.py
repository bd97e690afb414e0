"""The view of an environment after each epoch, and its controller's reward; of the standard library
alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from stageb.growth.config import RewardConfig
from stageb.growth.types import EnvironmentView, Slots, SlotView, Stage

# What a controller is paid: for the network that an episode leaves, and on the way for what brings
# it about.
#
# An episode ends with the objective J = accuracy - lambda ln(1 + extra / host), of the network that
# stays: the host and its fossils. Shaping pays what J changes by from epoch to epoch: a potential
# (Ng, Harada & Russell 1999, "Policy invariance under reward transformations", theorem 1), of 0 at
# the end, so that no policy gains by it that did not before.
#
# All figures are of the validation set.

SCALE = 10.0  # of all rewards, so that their size is near 1


def compute_objective(view: EnvironmentView, config: RewardConfig) -> float:
    """J: accuracy less the price of its size."""
    return view.accuracy - config.size_price * measure_growth(view)


def measure_growth(view: EnvironmentView) -> float:
    """ln(1 + extra / host parameters): 0 for the bare host."""
    return math.log1p(view.extra_parameters / view.host_parameters)


def compute_reward(
    before: EnvironmentView,
    after: EnvironmentView,
    final: EnvironmentView | None,
    config: RewardConfig,
    gamma: float,
) -> float:
    """Of what was done on seeing ``before``: it led to ``after``, an epoch later.

    ``final`` is the network that stays, judged once the episode is over; None where it goes on.
    """
    potential = config.shaping * compute_objective(after, config) if final is None else 0.0
    paid = gamma * potential - config.shaping * compute_objective(before, config)
    if final is not None:
        paid += compute_objective(final, config)
    return SCALE * paid


VANISHING, EXPLODING = 1e-6, 100.0  # gradient norms of a seed, averaged over an epoch
REMEMBERED = 5  # epochs of which a view holds the validation figures


@dataclass(frozen=True, slots=True)
class Measurements:
    """One epoch of one environment, as tensors told it."""

    train_loss: float  # means over the epoch's steps
    train_accuracy: float
    loss: float  # on the validation set
    accuracy: float
    # validation accuracy with early, mid, late turned: out where the host sees it, else in
    changed: tuple[float, ...]
    gradient_norms: tuple[float, ...]  # of early, mid, late; infinite where a step was not finite


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes that training does not change."""

    epochs: int  # of the episode
    steps: int  # of an epoch
    host_parameters: int
    extra_parameters: int


def view_after_epoch(
    before: EnvironmentView | None, slots: Slots, measured: Measurements, sizes: Sizes
) -> EnvironmentView:
    """The view at the end of an epoch in which the slots were ``slots``; ``before`` is that of the
    epoch before."""
    losses = (*(before.loss_history if before else ()), measured.loss)[-REMEMBERED:]
    accuracies = (*(before.accuracy_history if before else ()), measured.accuracy)[-REMEMBERED:]
    best, plateau = (before.best_loss, before.plateau) if before else (math.inf, 0)
    better = measured.loss < best
    germinated = max((slot.seed_id + 1 for slot in slots), default=0)
    return EnvironmentView(
        epoch=before.epoch + 1 if before else 1,
        epochs=sizes.epochs,
        steps=(before.steps if before else 0) + sizes.steps,
        train_loss=measured.train_loss,
        train_accuracy=measured.train_accuracy,
        loss=measured.loss,
        accuracy=measured.accuracy,
        loss_history=losses,
        accuracy_history=accuracies,
        best_loss=measured.loss if better else best,
        best_accuracy=max(measured.accuracy, before.best_accuracy if before else 0.0),
        plateau=0 if better else plateau + 1,
        host_parameters=sizes.host_parameters,
        extra_parameters=sizes.extra_parameters,
        slots=cast(
            Slots, tuple(_view_slot(place, slot, measured) for place, slot in enumerate(slots))
        ),
        germinated=max(germinated, before.germinated if before else 0),
        train_loss_delta=measured.train_loss - before.train_loss if before else 0.0,
        train_accuracy_delta=measured.train_accuracy - before.train_accuracy if before else 0.0,
    )


def _view_slot(place: int, slot: SlotView, measured: Measurements) -> SlotView:
    """A slot that went through the epoch."""
    if not slot.stage.is_seeded:
        return slot
    sees = slot.stage.is_visible
    norm, gain = measured.gradient_norms[place], measured.accuracy - measured.changed[place]
    return replace(
        slot,
        epochs_in_stage=slot.epochs_in_stage + 1,
        age=slot.age + 1,
        contribution=gain if sees else -gain,
        accuracy_without=measured.changed[place] if sees else measured.accuracy,
        improvement=measured.accuracy - slot.accuracy_at_entry,
        gradient_norm=norm,
        vanishing=norm < VANISHING,
        exploding=not norm <= EXPLODING,
    )


def list_blueprints(slots: Slots) -> list[int]:
    """The blueprint in each slot, -1 where there is none."""
    return [slot.blueprint if slot.stage.is_seeded else -1 for slot in slots]


def list_kept(slots: Sequence[SlotView]) -> tuple[tuple[int, int], ...]:
    """Slot and blueprint of every seed that stays for good."""
    return tuple(
        (place, slot.blueprint)
        for place, slot in enumerate(slots)
        if slot.stage is Stage.FOSSILIZED
    )
