"""The life of a seed: every pair of stage and event, every gate, and many random legal steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from growth.made_hosts import slots_of

from stageb import seeds
from stageb.growth.config import GatesConfig
from stageb.growth.lifecycle import (
    GATES,
    TABLE,
    Effect,
    Event,
    Facts,
    LifecycleError,
    Rules,
    transition,
)
from stageb.growth.policy import Policy, make_masks
from stageb.growth.types import Action, EnvironmentView, Op, SlotView, Stage

S, E = Stage, Event
GATES_CONFIG = GatesConfig(
    training_epochs=2,
    blending_epochs=3,
    probation_epochs=2,
    least_contribution=0.01,
    embargo_epochs=2,
)
RULES = Rules(GATES_CONFIG, (True, True, True), 3)
OPEN = Facts(epochs_left=99, epochs_in_stage=99, dwell=1, contribution=1.0)
EMPTY = (SlotView(), SlotView(), SlotView())
VIEW = EnvironmentView(1, 30, 8, 1.0, 0.5, 1.0, 0.5, (1.0,), (0.5,), 1.0, 0.5, 0, 1000, 0, EMPTY)

# Where each event leads from each stage with all gates open: in the order of the stages.
EXPECTED: dict[Event, list[Stage | None]] = {
    E.EPOCH: [
        S.DORMANT,
        S.TRAINING,
        S.BLENDING,
        *[S.PROBATIONARY] * 2,
        S.FOSSILIZED,
        S.EMBARGOED,
        S.RESETTING,
        S.DORMANT,
    ],
    E.GERMINATE: [S.GERMINATED] + [None] * 8,
    E.FOSSILIZE: [None] * 4 + [S.FOSSILIZED] + [None] * 4,
    E.CULL: [None] + [S.CULLED] * 4 + [None] * 4,
    E.END: [S.DORMANT, *[S.CULLED] * 4, S.FOSSILIZED, *[S.DORMANT] * 3],
}


@pytest.mark.parametrize("event", Event)
def test_every_stage_and_event_lead_where_the_life_of_a_seed_says(event: Event) -> None:
    for stage, expected in zip(Stage, EXPECTED[event], strict=True):
        if expected is None:
            with pytest.raises(
                LifecycleError, match=f"{event.name} is not for a slot that is {stage.name}"
            ):
                transition(stage, event, OPEN, GATES_CONFIG)
            continue
        found, effects = transition(stage, event, OPEN, GATES_CONFIG)
        assert found is expected
        removed = found is S.CULLED
        assert effects == ((Effect.MAKE,) if event is E.GERMINATE else (Effect.REMOVE,) * removed)
    assert len(TABLE) == sum(each is not None for row in EXPECTED.values() for each in row)


def test_each_gate_opens_at_its_threshold() -> None:
    shut_and_open: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "G0": ({"epochs_left": 7}, {"epochs_left": 8}),
        "G1": ({"sound": False}, {}),
        "G2": ({"epochs_in_stage": 1}, {"epochs_in_stage": 2}),
        "G3": ({"epochs_in_stage": 2}, {"epochs_in_stage": 3}),
        "G4": ({"epochs_in_stage": 1}, {"epochs_in_stage": 2}),
        "G5": ({"contribution": 0.01}, {"contribution": 0.011}),
        "embargo": ({"dwell": 2}, {"dwell": 1}),
    }
    assert set(GATES) == set(shut_and_open)
    for name, (closed, open_segment) in shut_and_open.items():
        assert not GATES[name](replace(OPEN, **closed), GATES_CONFIG), name
        assert GATES[name](replace(OPEN, **open_segment), GATES_CONFIG), name
    assert not GATES["G0"](replace(OPEN, enabled=False), GATES_CONFIG)
    for name in ("G2", "G3", "G4"):
        assert not GATES[name](replace(OPEN, sound=False), GATES_CONFIG), name


def test_behind_a_shut_gate_a_stage_stays_and_a_controller_is_refused() -> None:
    young = replace(OPEN, epochs_in_stage=0)
    assert transition(S.TRAINING, E.EPOCH, young, GATES_CONFIG) == (S.TRAINING, ())
    with pytest.raises(LifecycleError, match="gate G4 is shut"):
        transition(S.PROBATIONARY, E.FOSSILIZE, young, GATES_CONFIG)


def test_a_seed_takes_the_epochs_that_the_config_says_and_a_culled_slot_dwells() -> None:
    view, stages = VIEW, []
    slots, effects = RULES.act(view, Action(Op.GERMINATE, 1, 2))
    assert effects == [(1, Effect.MAKE)]
    assert (slots[1].blueprint, slots[1].seed_id, slots[0], slots[2]) == (
        2,
        0,
        SlotView(),
        SlotView(),
    )
    for epoch in range(2, 16):
        lived = (
            replace(slot, epochs_in_stage=slot.epochs_in_stage + 1, contribution=0.1)
            for slot in slots
        )
        view = replace(view, epoch=epoch, slots=slots_of(lived), germinated=1)
        stages.append(view.slots[1].stage)
        slots, _ = RULES.act(view, Action(Op.CULL, 1) if epoch == 10 else Action())
    lived_through = (
        [S.TRAINING] * 2
        + [S.BLENDING] * 3
        + [S.PROBATIONARY] * 4
        + [S.EMBARGOED] * 2
        + [S.RESETTING]
    )
    assert stages == [*lived_through, S.DORMANT, S.DORMANT]
    assert view.slots[1].blueprint == view.slots[1].seed_id == -1


@pytest.mark.parametrize(
    "action",
    [
        Action(Op.WAIT, 0),
        Action(Op.GERMINATE, 3, 0),
        Action(Op.GERMINATE, 0, 3),
        Action(Op.GERMINATE, 0),
        Action(Op.CULL),
        Action(Op.CULL, 0, 0),
        Action(Op.CULL, -1),
    ],
)
def test_what_does_not_resolve_fails_at_once(action: Action) -> None:
    with pytest.raises(LifecycleError, match="does not resolve"):
        RULES.act(VIEW, action)


def test_at_the_end_fossils_alone_stay() -> None:
    fossil = SlotView(stage=S.FOSSILIZED, blueprint=1, seed_id=0, alpha=1.0)
    slots, effects = RULES.end(
        replace(VIEW, slots=(SlotView(stage=S.BLENDING, blueprint=0), fossil, SlotView()))
    )
    assert slots == (SlotView(), fossil, SlotView())
    assert effects == [(0, Effect.REMOVE)]


def test_twenty_thousand_sampled_actions_are_legal_and_ids_are_unique() -> None:
    """A policy that knows nothing chooses; what it is shown changes at random, and slots are as
    they may be."""
    environments, steps = 100, 200
    policy = Policy(8, 3, 1)
    nothing = torch.zeros(environments, 80), torch.zeros(environments, 3, 5, 2)
    rules = replace(RULES, enabled=(True, True, False))
    start = replace(VIEW, epochs=60)
    views = [start] * environments
    seen: set[Stage] = set()
    for step in range(steps):
        keys = [seeds.stream(step, each) for each in range(environments)]
        actions = policy.decide((*nothing, make_masks([rules.legal(view) for view in views])), keys)
        for each, (view, action) in enumerate(zip(views, actions, strict=True)):
            slots, effects = rules.act(view, action)  # raises where an action is illegal
            made = [slots[slot].seed_id for slot, effect in effects if effect is Effect.MAKE]
            assert made == [view.germinated] * len(made)
            fate = seeds.bits(keys[each], 9)
            shown = [(fate >> place & 3) / 2 - 0.5 for place in range(3)]
            lived = [
                replace(
                    slot,
                    epochs_in_stage=slot.epochs_in_stage + 1,
                    contribution=adds,
                    exploding=fate >> 8 & 15 == place,
                )
                if slot.stage.is_seeded
                else slot
                for place, (slot, adds) in enumerate(zip(slots, shown, strict=True))
            ]
            seen |= {slot.stage for slot in lived}
            over = sum(slot.stage is S.FOSSILIZED for slot in lived) == 2
            later = replace(
                view,
                epoch=view.epoch % 40 + 1,
                slots=slots_of(lived),
                germinated=view.germinated + len(made),
            )
            views[each] = start if over else later
        assert not any(view.slots[2].stage is not S.DORMANT for view in views)
    # an epoch's end takes these two further at once
    assert seen == set(Stage) - {S.CULLED, S.GERMINATED}
