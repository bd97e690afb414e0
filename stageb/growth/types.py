"""The words of the growth loop and its records, as they pass between its stages. Standard library
alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

SLOTS = ("early", "mid", "late")  # everywhere in this order


class Stage(IntEnum):
    """Where a slot's seed is in its life."""

    DORMANT = 0  # the slot is empty
    GERMINATED = 1  # made, not yet trained
    TRAINING = 2  # trains beside the host; the host does not see it
    BLENDING = 3  # its alpha rises from 0 to 1
    PROBATIONARY = 4  # at alpha 1, on trial
    FOSSILIZED = 5  # stays for good: terminal
    CULLED = 6  # taken out
    EMBARGOED = 7  # the slot dwells before it may be used again
    RESETTING = 8  # on its way back to dormant

    @property
    def is_seeded(self) -> bool:
        """Whether a seed is in the slot."""
        return Stage.GERMINATED <= self <= Stage.FOSSILIZED

    @property
    def learns(self) -> bool:
        """Whether the seed's parameters are updated."""
        return Stage.TRAINING <= self <= Stage.FOSSILIZED

    @property
    def is_visible(self) -> bool:
        """Whether the host sees the seed."""
        return Stage.BLENDING <= self <= Stage.FOSSILIZED


class Op(IntEnum):
    """A controller's operation; one an epoch."""

    WAIT = 0
    GERMINATE = 1  # names a slot and a blueprint
    FOSSILIZE = 2  # names a slot
    CULL = 3  # names a slot


@dataclass(frozen=True, slots=True)
class Action:
    """A controller's choice for one environment and epoch."""

    op: Op = Op.WAIT
    slot: int | None = None  # index into SLOTS; None for WAIT
    blueprint: int | None = None  # index into the plan's blueprints; of GERMINATE alone


@dataclass(frozen=True, slots=True)
class SlotView:
    """A slot at the end of an epoch. An empty slot has the defaults."""

    stage: Stage = Stage.DORMANT
    blueprint: int = -1  # index; -1: none
    seed_id: int = -1  # unique in its environment: counts up from 0 with every germination
    alpha: float = 0.0  # weight of the seed in the host's forward, 0 to 1
    epochs_in_stage: int = 0
    age: int = 0  # epochs since it germinated
    # Validation accuracy with it less that without it, -1 to 1: as it stands against alpha 0; of a
    # seed in training, which the host does not see yet, alpha 1 against as it stands.
    contribution: float = 0.0
    improvement: float = 0.0  # validation accuracy now less that when it entered its stage
    # of its parameters, mean over the epoch's steps; 0 where nothing trains
    gradient_norm: float = 0.0
    vanishing: bool = False  # that norm is below the config's threshold though it trains
    exploding: bool = False  # above it, or not finite
    dwell: int = 0  # epochs that the embargo still lasts
    accuracy_without: float = 0.0  # of the validation set with its alpha at 0
    accuracy_at_entry: float = 0.0  # and when it entered its stage


Slots = tuple[SlotView, SlotView, SlotView]


@dataclass(frozen=True, slots=True)
class EnvironmentView:
    """All that a controller may know of one environment at the end of an epoch: fit and validation
    figures, never test."""

    epoch: int  # done so far, from 1
    epochs: int  # of the episode
    steps: int  # of the host's optimiser so far
    train_loss: float
    train_accuracy: float
    loss: float  # on the validation set
    accuracy: float
    loss_history: tuple[float, ...]  # validation, newest last, at most five
    accuracy_history: tuple[float, ...]
    best_loss: float
    best_accuracy: float
    plateau: int  # epochs since the best validation loss got better
    host_parameters: int
    extra_parameters: int  # of active seeds and their gates; fossils once
    slots: Slots
    germinated: int = 0  # seeds so far: the next one's id
    train_loss_delta: float = 0.0  # less that of the epoch before
    train_accuracy_delta: float = 0.0


@dataclass(frozen=True, slots=True)
class EpisodeResult:
    """The result of one episode, after all seeds that were not kept were removed."""

    environment: int  # its number
    epochs: int
    loss: float  # on the validation set
    accuracy: float
    objective: float  # J: validation accuracy less the price of the parameters
    reward: float  # sum over the episode
    host_parameters: int
    extra_parameters: int  # of seeds that were kept, and their gates
    germinated: int  # seeds
    fossilized: int
    culled: int  # by the controller
    skipped: int  # steps of the host's optimiser whose gradient was not finite
    flops: float  # forward and backward, counterfactuals too
    kept: tuple[tuple[int, int], ...]  # slot and blueprint of every seed that stays
    # the right ones, where the task knows: a teacher's
    truth: tuple[tuple[int, int], ...] | None = None

    @property
    def extra(self) -> float:
        """Parameters that were added, as a share of the host's."""
        return self.extra_parameters / self.host_parameters

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> EpisodeResult:
        """From what ``asdict`` made, JSON in between."""
        return cls(**restore_tuples(plain))


def restore_tuples(plain: Mapping[str, Any]) -> dict[str, Any]:
    """A record whose ``kept`` and ``truth`` JSON has made lists, as it was."""
    truth = plain["truth"]
    return {
        **plain,
        "kept": tuple(map(tuple, plain["kept"])),
        "truth": tuple(map(tuple, truth)) if truth else None,
    }
