"""Rollouts matched with the truth and corrected."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from two_channel.spelt import placed, spelling

from stageb.seeds import bits, stream
from stageb.two_channel.boxes.metrics import (
    find_duplicates,
    ious,
    match,
    match_prefix,
    prefer_first,
)
from stageb.two_channel.boxes.text import Spelling, parse, sort_objects, write_answer
from stageb.two_channel.learning.targets import make_corrected_target, make_true_target
from stageb.two_channel.types import BINS, Bins, Detection, Target

GATES = (0.1, 0.5, 0.75)


def close_objects(key: int, most: int, least: int = 0) -> list[Detection]:
    """Objects of two kinds that crowd one corner, so that many overlap."""
    draws = iter(range(1 << 20))

    def below(limit: int) -> int:
        return bits(key, next(draws)) % limit

    found = []
    for _ in range(least + below(most - least + 1)):
        x, y = below(6), below(6)
        found.append(Detection("ab"[below(2)], (x, y, x + 1 + below(8), y + 1 + below(8))))
    return found


def best_by_force(predicted: list[Detection], true: list[Detection], gate: float) -> float:
    """The largest sum of IoU - gate over all one-to-one pairings."""
    n, m, overlap = len(predicted), len(true), ious(predicted, true)
    value = [
        [
            max(0.0, overlap[i, j] - gate) if predicted[i].desc == true[j].desc else 0.0
            for j in range(m)
        ]
        for i in range(n)
    ]
    if n > m:
        value, n, m = [list(column) for column in zip(*value, strict=True)], m, n
    return max(
        (sum(value[i][j] for i, j in enumerate(order)) for order in permutations(range(m), n)),
        default=0.0,
    )


def test_matching_is_as_good_as_trying_all() -> None:
    for number in range(300):
        gate, least, most = GATES[number % 3], *((7, 7) if number % 30 == 0 else (0, 5))
        predicted, true = (
            close_objects(stream("match", who, number), most, least)
            for who in ("predicted", "true")
        )
        found = match(predicted, true, gate)
        overlap = ious(predicted, true)
        gain = sum(overlap[i, j] - gate for i, j in found.pairs)
        assert gain == pytest.approx(best_by_force(predicted, true, gate), abs=1e-6)
        assert all(
            overlap[i, j] >= gate and predicted[i].desc == true[j].desc for i, j in found.pairs
        )
        assert sorted([i for i, _ in found.pairs] + list(found.false_positives)) == list(
            range(len(predicted))
        )
        assert sorted([j for _, j in found.pairs] + list(found.missed)) == list(range(len(true)))


def sums_by_force(predicted: list[Detection], true: list[Detection], gate: float) -> list[float]:
    """Of the IoU of all ways to pair all of ``predicted``."""
    overlap, found = ious(predicted, true), []
    for order in permutations(range(len(true)), len(predicted)):
        pairs = list(enumerate(order))
        if all(overlap[i, j] >= gate and predicted[i].desc == true[j].desc for i, j in pairs):
            found.append(sum(float(overlap[pair]) for pair in pairs))
    return found


def test_the_longest_beginning_that_can_be_paired_as_a_whole_is() -> None:
    for number in range(300):
        gate = GATES[number % 3]
        predicted, true = (
            close_objects(stream("prefix", who, number), 5) for who in ("predicted", "true")
        )
        found = match_prefix(predicted, true, gate)
        count = max(
            count
            for count in range(len(predicted) + 1)
            if sums_by_force(predicted[:count], true, gate)
        )
        assert [i for i, _ in found.pairs] == list(range(count))
        sums = sums_by_force(predicted[:count], true, gate)
        assert sum(ious(predicted, true)[pair] for pair in found.pairs) == pytest.approx(max(sums))
        assert found.false_positives == tuple(range(count, len(predicted)))


def test_overlaps_are_areas_and_duplicates_are_later_ones_of_one_desc() -> None:
    a, half, twice = (
        Detection("a", (0, 0, 10, 10)),
        Detection("a", (0, 0, 10, 5)),
        Detection("a", (0, 0, 10, 11)),
    )
    apart, point = Detection("a", (10, 10, 20, 20)), Detection("a", (5, 5, 5, 5))
    assert ious([a], [a, half, twice, apart, point])[0].tolist() == pytest.approx(
        [1, 0.5, 100 / 110, 0, 0]
    )
    assert ious([point], [point])[0, 0] == 0  # nothing is no answer
    other = Detection("b", a.bins)
    assert find_duplicates((a, half, twice, other, a)) == ((0, 2), (0, 4), (2, 4))
    found = match([a, twice, other, a, half], [a], 0.5)
    assert found.pairs in (((0, 0),), ((3, 0),)) and found.false_positives[-1] == 4
    assert match([half], [a], 0.5).pairs == ((0, 0),)  # right at the gate
    assert match([half], [a], 0.51).missed == (0,)
    assert match([], [a], 0.5).missed == (0,) and match([a], [], 0.5).false_positives == (0,)


def boxes_of(target: Target) -> list[Bins]:
    """What stands in a target where its slots are."""
    found = [
        tuple(spelling().bins[target.ids[place]] for place in slot.positions)
        for slot in target.slots
    ]
    return [(a, b, c, d) for a, b, c, d in found]


@given(st.lists(placed(), max_size=4))
@settings(max_examples=30)
def test_the_truth_is_taught_whole(objects: list[Detection]) -> None:
    true = sort_objects(objects)
    target = make_true_target(true, spelling())
    assert target.ids == write_answer(true, spelling()).ids
    assert [slot.bins for slot in target.slots] == boxes_of(target) == [each.bins for each in true]
    coordinates = {place for slot in target.slots for place in slot.positions}
    assert [place for place, told in enumerate(target.taught) if not told] == sorted(coordinates)


def rolled_out(number: int, true: list[Detection], s: Spelling) -> tuple[int, ...]:
    """The tokens of an answer that saw something of the truth, and went wrong somewhere."""
    key, draws = stream("rollout", number), iter(range(1 << 20))

    def below(limit: int) -> int:
        return bits(key, next(draws)) % limit

    told: list[Detection] = []
    for each in true:
        for _ in range((0, 1, 1, 1, 2, 3)[below(6)]):
            x1, y1, x2, y2 = (min(BINS - 1, max(0, at + below(3) - 1)) for at in each.bins)
            told.append(Detection(each.desc, (min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2))))
    told += close_objects(key, 2)
    ids = list(write_answer(told, s).ids)
    for _ in range((0, 0, 1, 1, 4)[below(5)]):
        place = below(len(ids))
        ids[place : place + below(2)] = [below(len(s.tokenizer) + 8) for _ in range(below(3))]
    return tuple(ids[: below(len(ids) + 1)] if below(3) == 0 else ids)


def hold(number: int) -> None:
    """What holds for every rollout."""
    s = spelling(box_first=number % 8 >= 4)
    true = sort_objects(close_objects(stream("true", number), 6))
    answer = rolled_out(number, list(true), s)
    parsed = parse(answer, s)
    matched = match_prefix(parsed.objects, true, 0.5)
    target = make_corrected_target(answer, parsed, matched, true, s)
    paired = prefer_first(matched, parsed.objects)
    count = min(paired.false_positives, default=len(parsed.objects))
    kept = (0, *parsed.ends)[count]
    assert target.ids[:kept] == answer[:kept]  # untouched
    whole = parse(target.ids, s)
    assert whole.complete and whole.tokens == (
        len(target.ids) - len(s.closing) - 1 if whole.objects else 0
    )
    found = {j for i, j in paired.pairs if i < count}
    missed = [each for j, each in enumerate(true) if j not in found]
    # what was kept is read once more, then what that misses
    assert whole.objects == (*parsed.objects[:count], *missed)
    # each exactly once
    assert sorted(slot.bins for slot in target.slots) == sorted(each.bins for each in true)
    told = [place for slot in target.slots for place in slot.positions]
    assert len(set(told)) == len(told) and all(target.ids[place] in s.bins for place in told)
    assert not any(target.taught[:kept])
    assert [not each for each in target.taught[kept:]] == [
        token in s.bins for token in target.ids[kept:]
    ]
    assert len(target.taught) == len(target.ids)
    if parsed.complete and count == len(parsed.objects) and not missed:
        assert target.ids[: len(answer)] == answer


def test_rollouts_are_set_right_whatever_they_say() -> None:
    for number in range(2000):
        hold(number)


@given(st.lists(st.integers(0, 1400), max_size=60), st.lists(placed(), max_size=3))
@settings(max_examples=100)
def test_any_tokens_are_an_answer(answer: list[int], objects: list[Detection]) -> None:
    s, true = spelling(), sort_objects(objects)
    parsed = parse(answer, s)
    target = make_corrected_target(answer, parsed, match_prefix(parsed.objects, true, 0.5), true, s)
    assert parse(target.ids, s).complete and len(target.slots) == len(true)


def test_of_one_told_twice_the_first_is_kept() -> None:
    """Though the later lies nearer to the truth."""
    s, true = spelling(), [Detection("a", (0, 0, 100, 100))]
    told = [
        Detection("a", (0, 0, 100, 92)),
        Detection("a", (0, 0, 100, 95)),
        Detection("a", (0, 0, 100, 99)),
    ]
    answer = write_answer(told, s)
    parsed = parse(answer.ids, s)
    matched = match(parsed.objects, true, 0.5)
    assert matched.pairs == ((2, 0),)
    target = make_corrected_target(answer.ids, parsed, matched, true, s)
    assert [slot.positions for slot in target.slots] == [answer.boxes[0]]
    assert parse(target.ids, s).objects == (told[0],)
    apart = prefer_first(match([told[0], true[0]], true, 0.995), [told[0], true[0]])
    assert (apart.pairs, apart.false_positives) == (((0, 0),), (1,))
