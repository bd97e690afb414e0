"""Losses and packs, against what is written out by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from stageb.errors import InputError
from stageb.two_channel.config import LossConfig
from stageb.two_channel.learning.losses import NAMES, PackLabels, compute_losses, soft_cross_entropy
from stageb.two_channel.learning.packing import AHEAD, Line, fits, make_packs
from stageb.two_channel.model.model import Head
from stageb.two_channel.types import BINS, Target

FIRST = 10  # id of the coordinate token of bin 0
VOCABULARY = FIRST + BINS + 5
HEAD = Head(lambda logits: logits, FIRST, rows=1 << 20)


def taught(tokens: list[int], bins: list[tuple[int, ...]], words: Sequence[int] = ()) -> PackLabels:
    """Rows of one sample; the boxes' coordinates are the last rows."""
    begin = len(tokens) - 4 * len(bins)
    return PackLabels(
        tokens=torch.tensor(tokens),
        words=torch.tensor(words, dtype=torch.int64),
        slots=torch.arange(begin, len(tokens)).reshape(-1, 4),
        bins=torch.tensor(bins, dtype=torch.int64).reshape(-1, 4),
        word_share=1 / max(1, len(words)),
        object_share=1 / max(1, len(bins)),
    )


def logits(rows: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 3


def test_each_term_is_what_its_words_say() -> None:
    bins = (100, 200, 300, 400)
    rows = [3, 4, *(FIRST + each for each in bins)]
    made = logits(6).detach()
    found = compute_losses(made, taught(rows, [bins], [0, 1]), HEAD, LossConfig())
    chances = made.detach().log_softmax(-1)
    assert float(found.text) == pytest.approx(-float(chances[0, 3] + chances[1, 4]) / 2, rel=1e-5)
    assert float(found.coordinates) == pytest.approx(
        -sum(float(chances[2 + i, FIRST + b]) for i, b in enumerate(bins)) / 4
    )
    assert float(found.mass) == pytest.approx(
        float(chances[2:, FIRST : FIRST + BINS].exp().sum(-1).mean()), rel=1e-5
    )
    assert float(found.total) == pytest.approx(float(found.text + found.coordinates), rel=1e-6)


def test_text_that_leaks_into_boxes_costs() -> None:
    """A softmax over coordinate tokens alone would not notice a word where a coordinate belongs."""
    bins = (5, 5, 6, 6)
    plain = torch.zeros(4, VOCABULARY)
    leaking = plain.clone()
    leaking[:, 0] = 8.0
    one, other = (
        compute_losses(each, taught([FIRST] * 4, [bins]), HEAD, LossConfig(soft_width=3.0))
        for each in (plain, leaking)
    )
    assert float(other.coordinates) > float(one.coordinates) + 1 and float(
        other.mass
    ) < 0.5 < float(one.mass)


def test_few_rows_at_a_time_come_to_the_same_losses_and_gradients() -> None:
    told = taught([3, 4, 5, *[FIRST] * 8], [(100, 200, 300, 400), (1, 2, 30, 40)], [0, 1])
    found = []
    for rows in (1 << 20, 4, 3, 1):
        made = logits(11).requires_grad_()
        each = compute_losses(made, told, replace(HEAD, rows=rows), LossConfig(soft_width=2.0))
        each.total.backward()
        assert made.grad is not None
        found.append((torch.stack([getattr(each, name).detach() for name in NAMES]), made.grad))
    for terms, gradient in found[1:]:
        assert torch.allclose(terms, found[0][0], rtol=1e-6)
        assert torch.allclose(gradient, found[0][1], atol=1e-7)


def test_memory_does_not_grow_with_what_the_logits_would_take() -> None:
    rows, width, words = 512, 8, 20_000
    weight = torch.randn(words, width, requires_grad=True)
    states = torch.randn(rows, width, requires_grad=True)
    told = taught([1] * rows, [(1, 2, 30, 40)] * (rows // 8), list(range(rows // 2)))

    def logits_of(states: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return states @ weight.T

    whole = 4 * rows * words  # bytes of all logits in single precision
    peak = peak_bytes(
        lambda: compute_losses(
            states, told, Head(logits_of, FIRST, 16), LossConfig()
        ).total.backward()
    )
    assert peak < whole / 3
    everything = Head(logits_of, FIRST, rows)
    assert (
        peak_bytes(lambda: compute_losses(states, told, everything, LossConfig()).total.backward())
        > whole
    )


def peak_bytes(work: Callable[[], object]) -> int:
    """The most memory that ``work`` holds of what it allocates."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        work()
    profiler: Any = seen.profiler
    events = [each for each in profiler.kineto_results.events() if each.name() == "[memory]"]
    return max(
        accumulate(int(each.nbytes()) for each in sorted(events, key=lambda each: each.start_ns()))
    )


@given(st.integers(0, BINS - 1), st.floats(0.5, 100))
def test_soft_targets_are_least_where_the_model_says_the_same(place: int, width: float) -> None:
    away = (torch.arange(BINS) - place).double() / width
    best = (-0.5 * away**2).log_softmax(-1).float()
    where = torch.tensor(place)
    entropy = -(best.exp() * best).sum()
    assert float(soft_cross_entropy(best, where, width)) == pytest.approx(float(entropy), rel=1e-3)
    assert float(soft_cross_entropy(best.roll(1), where, width)) > float(entropy)
    assert float(soft_cross_entropy(best, where, 0)) == pytest.approx(-float(best[place]), rel=1e-5)


def test_a_line_as_long_as_the_room_fits() -> None:
    assert [fits(line(0, tokens), 9, set_aside=True) for tokens in (8, 9, 10)] == [
        True,
        True,
        False,
    ]
    assert fits(line(0, 9), 9, set_aside=False)
    with pytest.raises(InputError, match=r"packing\.max_length 9"):
        fits(line(0, 10), 9, set_aside=False)


def line(number: int, tokens: int) -> Line:
    return Line(
        str(number),
        (1,) * (tokens // 2),
        Target((1,) * (tokens - tokens // 2), (True,) * (tokens - tokens // 2), ()),
    )


@given(st.lists(st.integers(1, 100), max_size=60))
def test_packs_hold_every_line_once_and_no_more_than_fits(lengths: list[int]) -> None:
    lines = [line(number, tokens) for number, tokens in enumerate(lengths)]
    found = list(make_packs(iter(lines), 100))
    assert sorted(int(each.key) for pack in found for each in pack) == list(range(len(lines)))
    assert all(sum(map(len, pack)) <= 100 for pack in found)
    assert all(sum(map(len, one)) + sum(map(len, other)) > 100 for one, other in pairwise(found))


@pytest.mark.parametrize("seed", range(8))
def test_packs_are_full(seed: int) -> None:
    """Lines of many lengths, none above a sixth of a pack: at most one pack above the bound, and 97
    of 100 places taken."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(150, 680, (200,), generator=draw).tolist()
    found = list(make_packs((line(number, tokens) for number, tokens in enumerate(lengths)), 4096))
    assert len(found) <= -(-sum(lengths) // 4096) + 1
    fill = sum(sum(map(len, pack)) for pack in found[:-1]) / (4096 * (len(found) - 1))
    assert fill >= 0.97


def test_packs_go_while_lines_still_come() -> None:
    asked = 0

    def coming() -> object:
        nonlocal asked
        for asked in range(1, 1000):
            yield line(asked, 10)

    first = next(make_packs(coming(), 100))  # type: ignore[arg-type]
    assert len(first) == 10 and asked == AHEAD * 10 + 1
