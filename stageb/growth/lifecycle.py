"""The life of a seed as a table: (stage, event, facts) -> (stage, effects); and how its weight
rises as it blends in.

A controller's events germinate a seed, fossilise it or cull it. After them, at the end of every
epoch, every slot is told that the epoch is over; its stage goes on where the gates of its row are
open:

    DORMANT -G0-> GERMINATED -G1-> TRAINING -G2-> BLENDING -G3-> PROBATIONARY -G4, G5-> FOSSILIZED
    any of these seeds -cull-> CULLED -> EMBARGOED -> RESETTING -> DORMANT

What stands in no row is illegal, and so is a controller's event where a gate is shut: both raise.
The masks by which controllers choose are asked of the same rows, so that nothing they allow is ever
refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import cast

from stageb.errors import StagebError
from stageb.growth.config import GatesConfig
from stageb.growth.types import SLOTS, Action, EnvironmentView, Op, Slots, SlotView, Stage


class LifecycleError(StagebError):
    """An event that a slot's stage or its gates do not allow: a fault of the controller."""


class Event(IntEnum):
    """An event in the life of a slot. The first four have the numbers of the operations of a
    controller."""

    EPOCH = 0  # an epoch is over
    GERMINATE = 1
    FOSSILIZE = 2
    CULL = 3
    END = 4  # the episode is over: what is not kept for good is taken out


class Effect(Enum):
    """A change of the tensors that a transition asks for."""

    MAKE = "make"  # draw the seed's parameters; its moments are zero
    REMOVE = "remove"  # the seed leaves the network; its moments are zeroed


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a slot and its episode at the end of an epoch, which gates go by."""

    enabled: bool = True  # the config lets seeds germinate here
    epochs_left: int = 0  # of the episode
    epochs_in_stage: int = 0
    dwell: int = 0  # epochs that an embargo still lasts
    contribution: float = 0.0
    sound: bool = True  # its gradients are finite, and below the threshold of exploding ones


Gate = Callable[[Facts, GatesConfig], bool]

GATES: Mapping[str, Gate] = {
    # Germinate only where seeds may, and where there is time left to keep the seed and to train
    # with it for an epoch.
    "G0": lambda facts, gates: facts.enabled and facts.epochs_left > gates.shortest_life,
    "G1": lambda facts, gates: facts.sound,
    "G2": lambda facts, gates: facts.sound and facts.epochs_in_stage >= gates.training_epochs,
    "G3": lambda facts, gates: facts.sound and facts.epochs_in_stage >= gates.blending_epochs,
    "G4": lambda facts, gates: facts.sound and facts.epochs_in_stage >= gates.probation_epochs,
    "G5": lambda facts, gates: facts.contribution > gates.least_contribution,
    "embargo": lambda facts, gates: facts.dwell <= 1,
}


@dataclass(frozen=True, slots=True)
class StageChange:
    """A row of the table: through ``gates``, all of them, to a stage."""

    to: Stage
    gates: tuple[str, ...] = ()
    effects: tuple[Effect, ...] = ()


_CULL = StageChange(Stage.CULLED, (), (Effect.REMOVE,))
_STAY = {
    (stage, Event.EPOCH): StageChange(stage)
    for stage in (Stage.DORMANT, Stage.PROBATIONARY, Stage.FOSSILIZED)
}

TABLE: Mapping[tuple[Stage, Event], StageChange] = {
    (Stage.DORMANT, Event.GERMINATE): StageChange(Stage.GERMINATED, ("G0",), (Effect.MAKE,)),
    (Stage.GERMINATED, Event.EPOCH): StageChange(Stage.TRAINING, ("G1",)),
    (Stage.TRAINING, Event.EPOCH): StageChange(Stage.BLENDING, ("G2",)),
    (Stage.BLENDING, Event.EPOCH): StageChange(Stage.PROBATIONARY, ("G3",)),
    (Stage.PROBATIONARY, Event.FOSSILIZE): StageChange(Stage.FOSSILIZED, ("G4", "G5")),
    (Stage.GERMINATED, Event.CULL): _CULL,
    (Stage.TRAINING, Event.CULL): _CULL,
    (Stage.BLENDING, Event.CULL): _CULL,
    (Stage.PROBATIONARY, Event.CULL): _CULL,
    (Stage.CULLED, Event.EPOCH): StageChange(Stage.EMBARGOED),
    (Stage.EMBARGOED, Event.EPOCH): StageChange(Stage.RESETTING, ("embargo",)),
    (Stage.RESETTING, Event.EPOCH): StageChange(Stage.DORMANT),
    **_STAY,
    **{
        (stage, Event.END): _CULL if stage.is_seeded else StageChange(Stage.DORMANT)
        for stage in Stage
    },
    (Stage.FOSSILIZED, Event.END): StageChange(Stage.FOSSILIZED),
}


def shut(stage: Stage, event: Event, facts: Facts, gates: GatesConfig) -> list[str]:
    """The gates that hold ``event`` up. Raises ``LifecycleError`` for an event that the stage does
    not know."""
    rule = TABLE.get((stage, event))
    if rule is None:
        raise LifecycleError(f"lifecycle: {event.name} is not for a slot that is {stage.name}")
    return [name for name in rule.gates if not GATES[name](facts, gates)]


def transition(
    stage: Stage, event: Event, facts: Facts, gates: GatesConfig
) -> tuple[Stage, tuple[Effect, ...]]:
    """The stage that follows, and what that asks of the tensors.

    Behind shut gates a slot stays as it is at an epoch's end. Raises ``LifecycleError`` for an
    event that the stage does not know, and for a controller's event where a gate is shut.
    """
    closed = shut(stage, event, facts, gates)
    if closed and event is not Event.EPOCH:
        raise LifecycleError(
            f"lifecycle: {event.name} of a slot that is {stage.name}: gate {closed[0]} is shut "
            f"({facts})"
        )
    return (stage, ()) if closed else (TABLE[stage, event].to, TABLE[stage, event].effects)


# Over the three slots of an environment.

# by operation, then by slot; of WAIT the first alone says that it is legal
Legal = tuple[tuple[bool, bool, bool], ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of the lifecycle in a run."""

    gates: GatesConfig
    enabled: tuple[bool, bool, bool]  # slots in which seeds may germinate
    blueprints: int  # how many there are to choose from

    def facts(self, view: EnvironmentView, slot: int, of: SlotView) -> Facts:
        """Return the facts about a slot as it is now, for gates."""
        return Facts(
            self.enabled[slot],
            view.epochs - view.epoch,
            of.epochs_in_stage,
            of.dwell,
            of.contribution,
            not of.exploding,
        )

    def legal(self, view: EnvironmentView) -> Legal:
        """Which operations may be done in which slots; every blueprint may germinate where a seed
        may."""

        facts = [self.facts(view, slot, of) for slot, of in enumerate(view.slots)]

        def may(op: Op, slot: int) -> bool:
            stage, event = view.slots[slot].stage, Event(op)
            return (stage, event) in TABLE and not shut(stage, event, facts[slot], self.gates)

        def row(op: Op) -> tuple[bool, bool, bool]:
            return (may(op, 0), may(op, 1), may(op, 2))

        return ((True, True, True), *(row(op) for op in (Op.GERMINATE, Op.FOSSILIZE, Op.CULL)))

    def act(self, view: EnvironmentView, action: Action) -> tuple[Slots, list[tuple[int, Effect]]]:
        """Advance the slots by an epoch: first ``action``, then the epoch's end. Returns the new
        slots and the changes of the tensors, each with its slot.

        A slot that enters a stage has been in it for 0 epochs. Raises ``LifecycleError`` for an
        illegal action.
        """
        self._check(action)
        effects: list[tuple[int, Effect]] = []
        after = []
        for slot, before in enumerate(view.slots):
            now = before
            events = [Event.EPOCH] if action.slot != slot else [Event(action.op), Event.EPOCH]
            for event in events:
                now, asked = self._step(view, slot, now, event)
                effects += [(slot, effect) for effect in asked]
                if event is Event.GERMINATE:
                    now = replace(
                        now, blueprint=cast(int, action.blueprint), seed_id=view.germinated
                    )
            after.append(now)
        return cast(Slots, tuple(after)), effects

    def end(self, view: EnvironmentView) -> tuple[Slots, list[tuple[int, Effect]]]:
        """Close the slots at the end of the episode: only fossils stay. Returns as ``act`` does."""
        steps = [
            self._step(view, slot, before, Event.END) for slot, before in enumerate(view.slots)
        ]
        kept = tuple(now if now.stage is Stage.FOSSILIZED else SlotView() for now, _ in steps)
        return cast(Slots, kept), [
            (slot, effect) for slot, (_, asked) in enumerate(steps) for effect in asked
        ]

    def weigh(self, slots: Slots) -> Slots:
        """Give every slot the weight that its stage has in the coming epoch."""
        return cast(Slots, tuple(map(self._weigh_slot, slots)))

    def _weigh_slot(self, slot: SlotView) -> SlotView:
        if slot.stage is Stage.BLENDING:
            alpha = compute_alpha(slot.epochs_in_stage + 1, self.gates.blending_epochs + 1)
        else:
            alpha = float(slot.stage.is_visible)
        return slot if slot.alpha == alpha else replace(slot, alpha=alpha)

    def _step(
        self, view: EnvironmentView, slot: int, before: SlotView, event: Event
    ) -> tuple[SlotView, tuple[Effect, ...]]:
        stage, effects = transition(before.stage, event, self.facts(view, slot, before), self.gates)
        if stage == before.stage:
            return (replace(before, dwell=before.dwell - 1) if before.dwell else before), effects
        if not stage.is_seeded:
            dwell = self.gates.embargo_epochs if stage is Stage.EMBARGOED else 0
            return SlotView(stage=stage, dwell=dwell), effects
        now = replace(
            before, stage=stage, epochs_in_stage=0, accuracy_at_entry=view.accuracy, improvement=0.0
        )
        return now, effects

    def _check(self, action: Action) -> None:
        """That an action names what its operation needs, and nothing else."""
        slot = action.slot is None if action.op is Op.WAIT else action.slot in range(len(SLOTS))
        needs = action.op is Op.GERMINATE
        blueprint = (
            action.blueprint in range(self.blueprints) if needs else action.blueprint is None
        )
        if not slot or not blueprint:
            raise LifecycleError(
                f"lifecycle: {action} does not resolve: there are 3 slots and {self.blueprints} "
                f"blueprints"
            )


STEEPNESS = 6.0  # of the sigmoid: from its middle to an end, in units of its argument


def compute_alpha(epochs_in_stage: int, epochs: int) -> float:
    """The weight after ``epochs_in_stage`` of ``epochs`` epochs of blending: 0 at none, 1 at all of
    them, never falling.

    It is a sigmoid, cut to its middle and scaled, so that it does meet 0 and 1.
    """
    done = min(1.0, max(0.0, epochs_in_stage / max(1, epochs)))
    if done in (0.0, 1.0):
        return done
    low, high = 1 / (1 + math.exp(STEEPNESS)), 1 / (1 + math.exp(-STEEPNESS))
    return (1 / (1 + math.exp(STEEPNESS * (1 - 2 * done))) - low) / (high - low)
