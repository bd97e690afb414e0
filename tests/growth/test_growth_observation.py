"""What a controller observes, and how it is normalised."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from growth.made_hosts import slots_of
from hypothesis import given
from hypothesis import strategies as st

from stageb.growth import observation as memory
from stageb.growth.observation import observe
from stageb.growth.types import EnvironmentView, SlotView, Stage
from stageb.training.ppo import RunningNorm

EMPTY = SlotView()
VIEW = EnvironmentView(
    7,
    20,
    56,
    0.8,
    0.7,
    1.1,
    0.6,
    (2.0, 1.5, 1.1),
    (0.4, 0.5, 0.6),
    1.1,
    0.6,
    0,
    1000,
    250,
    (EMPTY,) * 3,
    2,
    -0.1,
    0.05,
)
OF_SLOT = [
    [*range(23 + 9 * slot, 32 + 9 * slot), *range(50 + 10 * slot, 60 + 10 * slot)]
    for slot in range(3)
]
SEEDS = [
    SlotView(Stage.BLENDING, 1, 0, 0.5, 2, 5, 0.03, 0.02, 0.4, False, False, 0, 0.57),
    SlotView(Stage.TRAINING, 2, 1, 0.0, 1, 1, -0.01, 0.01, 3.0, False, True, 0, 0.6),
    SlotView(Stage.FOSSILIZED, 0, 2, 1.0, 4, 11, 0.1, 0.05, 0.0, True, False, 0, 0.5),
]

numbers = st.floats(allow_nan=True, allow_infinity=True)
few, flags, many = st.integers(0, 99), st.booleans(), st.integers(0, 10**9)
slot_views = st.builds(
    SlotView,
    *(
        st.sampled_from(Stage),
        st.integers(-1, 4),
        few,
        numbers,
        few,
        few,
        *[numbers] * 3,
        flags,
        flags,
        few,
        numbers,
    ),
)
histories = st.lists(numbers, max_size=5).map(tuple)
views = st.builds(
    EnvironmentView,
    *(
        st.integers(1, 20),
        st.just(20),
        many,
        *[numbers] * 4,
        histories,
        histories,
        numbers,
        numbers,
        few,
        st.integers(1, 999),
    ),
    *(many, st.tuples(slot_views, slot_views, slot_views), few, numbers, numbers),
)


@given(views)
def test_eighty_numbers_whatever_was_measured_all_between_minus_one_and_one(
    view: EnvironmentView,
) -> None:
    observation = observe([view])
    assert observation.shape == (1, 80)
    assert observation.dtype == torch.float32
    assert bool((observation.abs() <= 1).all())
    for slot, of in enumerate(OF_SLOT):
        if view.slots[slot].stage is Stage.DORMANT:
            assert observation[0, of].tolist() == [0.0] * 19
        assert view.slots[slot].stage.is_seeded or observation[0, of[9:]].tolist() == [0.0] * 10


def test_for_all_occupancies_a_slot_moves_its_own_numbers_alone() -> None:
    for occupied in itertools.product((False, True), repeat=3):
        slots = [seed if here else EMPTY for seed, here in zip(SEEDS, occupied, strict=True)]
        before = observe([replace(VIEW, slots=slots_of(slots))])[0]
        for slot, of in enumerate(OF_SLOT):
            assert bool((before[of] != 0).any()) == occupied[slot]
            other = [*slots]
            other[slot] = EMPTY if occupied[slot] else SEEDS[(slot + 1) % 3]
            after = observe([replace(VIEW, slots=slots_of(other))])[0]
            rest = [index for index in range(80) if index not in of]
            assert torch.equal(before[rest], after[rest])
            assert not torch.equal(before[of], after[of])


def test_a_view_is_read_into_the_places_that_the_table_names() -> None:
    seen = observe([replace(VIEW, slots=slots_of(SEEDS))])[0].tolist()
    host = [
        7 / 20,
        0.056 / 1.056,
        0.8 / 1.8,
        0.7,
        math.tanh(-0.1),
        0.05,
        math.tanh(1.1 - 1.5),
        0.1,
        0,
        1.1 / 2.1,
        0.6,
    ]
    histories = [1.1 / 2.1, 1.5 / 2.5, 2 / 3, 0, 0, 0.6, 0.5, 0.4, 0, 0]
    assert seen[:23] == pytest.approx([*host, *histories, 0.2, 0.1])
    assert seen[23:32] == pytest.approx([1, 3 / 8, 0.5, 0.03, 0, 1, 0, 0, 0])
    assert seen[41:50] == pytest.approx([1, 5 / 8, 1, 0.1, 1, 0, 0, 0, 0])
    assert seen[60:70] == pytest.approx([0.75, 0, 0, 1, 1 / 20, 0.6, 0.01, 2 / 8, 0, 1 / 20])
    shut = observe([replace(VIEW, slots=(SlotView(Stage.EMBARGOED, dwell=2), EMPTY, EMPTY))])[0]
    assert {index: value for index, value in enumerate(shut.tolist()) if index >= 23 and value} == {
        24: 7 / 8
    }


@given(st.integers(0, 2**32), st.integers(1, 4))
def test_moments_taken_in_parts_are_those_of_the_whole(seed: int, parts: int) -> None:
    chance = torch.Generator().manual_seed(seed)
    rows = [torch.randn(3 + part, 2, 4, generator=chance) * 3 + 5 for part in range(parts)]
    normaliser, again = RunningNorm(4), RunningNorm(4)
    for each in rows:
        normaliser.take(each)
    whole = torch.cat([each.flatten(0, 1) for each in rows])
    normal = normaliser(whole)
    assert torch.allclose(normal.mean(0), torch.zeros(4), atol=1e-5)
    assert torch.allclose(normal.square().mean(0), torch.ones(4), atol=1e-4)
    again.load_state_dict(normaliser.state_dict())
    assert torch.equal(again(whole), normal)


def test_a_culled_seed_is_remembered_with_what_it_came_to() -> None:
    steps = [(SEEDS[0], EMPTY, EMPTY), (EMPTY, SEEDS[1], EMPTY), (EMPTY, EMPTY, EMPTY)]
    observations = observe([replace(VIEW, slots=slots) for slots in steps])
    remembered = memory.remember_all(observations[:, None])
    assert torch.equal(remembered[0], memory.remember(memory.make_blank(1), observations[:1]))
    tried, seen = remembered[-1, 0].unbind(-1)
    assert tried.nonzero().tolist() == [[0, 1], [1, 2]]
    assert seen[0, 1] == pytest.approx(0.03)
    assert seen[1, 2] == pytest.approx(-0.01)
