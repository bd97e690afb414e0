"""What chance lets the best of several guidances seem better by is taken off its estimate."""

from __future__ import annotations

from math import inf
from random import Random
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stageb.guidance.learning.material import Material, find_optimism, find_z_score
from stageb.guidance.learning.terms import Masks
from stageb.guidance.words.types import Verdict

TICKETS = 200
ALL = (1 << TICKETS) - 1


def draw_mask(chance: Random, share: float, tickets: int = TICKETS) -> int:
    return sum(1 << place for place in range(tickets) if chance.random() < share)


def make(
    labelled: dict[Verdict, int],
    prices: dict[str, float] | None = None,
    groups: tuple[int, ...] = (),
) -> Material:
    fails = labelled.get("fail", 0)
    return Material(Masks({}), {}, labelled, fails, frozenset(), prices or {}, groups=groups)


EVEN = make({"fail": ALL >> TICKETS // 2, "pass": ALL & ~(ALL >> TICKETS // 2)})


@pytest.mark.parametrize("near", [0.0, 1.0])
def test_what_is_taken_of_guidances_that_are_all_as_good_is_estimated_as_good_as_it_is(
    near: float,
) -> None:
    seeming, left = [], []
    for seed in range(40):
        chance = Random(seed)
        tried = [draw_mask(chance, 0.5) for _ in range(40)]
        best = min(tried, key=int.bit_count)
        taken = next(mask for mask in tried if find_z_score(best, mask, EVEN, ALL) <= near)
        optimism = find_optimism(tried, taken, near, EVEN, ALL)
        assert optimism.cost == optimism.wrong
        seeming.append(taken.bit_count() / TICKETS)
        left.append(taken.bit_count() / TICKETS + optimism.wrong)
    assert mean(seeming) < 0.475
    assert mean(left) == pytest.approx(0.5, abs=0.02)


@pytest.mark.filterwarnings("error")
def test_what_is_better_by_far_or_the_only_one_is_as_good_as_it_seems() -> None:
    chance = Random(1)
    best, *others = draw_mask(chance, 0.05), *(draw_mask(chance, 0.5) for _ in range(40))
    for tried in ([best], [best, best], [best, *others]):
        assert find_optimism(tried, best, 0.0, EVEN, ALL) == (0, 0)
    # where all tickets belong together, none is ever left out to measure it
    joined = make(dict(EVEN.labelled), groups=(ALL,))
    assert find_optimism([*others, best], best, 0.0, joined, ALL) == (0, 0)


def test_tickets_that_say_the_same_tell_as_little_as_one_of_them() -> None:
    chance, times = Random(3), 5
    tickets = TICKETS // times
    tried = [draw_mask(chance, 0.5, tickets) for _ in range(40)]
    repeated = [sum(mask << n * tickets for n in range(times)) for mask in tried]
    same = sum(1 << n * tickets for n in range(times))
    joined = make(dict(EVEN.labelled), groups=tuple(same << n for n in range(tickets)))
    best = min(range(len(tried)), key=lambda n: tried[n].bit_count())
    once = find_optimism(tried, tried[best], 0.0, EVEN, (1 << tickets) - 1)
    together, apart = (
        find_optimism(repeated, repeated[best], 0.0, of, ALL).wrong for of in (joined, EVEN)
    )
    assert together == pytest.approx(once.wrong, abs=0.01)
    assert apart < 0.6 * once.wrong


@pytest.mark.parametrize("near", [0.0, 1.0])
def test_a_group_of_one_ticket_is_that_ticket(near: float) -> None:
    """Also where others of its group are not among those that count."""
    chance, among = Random(4), ALL >> 20
    tried = [draw_mask(chance, 0.5) & among for _ in range(20)]
    best = min(tried, key=int.bit_count)
    plain, grouped = (
        find_optimism(tried, best, near, make(dict(EVEN.labelled), groups=groups), among)
        for groups in ((), (1 << 3, 1 << 60 | 1 << TICKETS - 1, 1 << TICKETS - 2))
    )
    assert grouped == plain and plain.wrong > 0


@given(st.integers(0, 1 << 32), st.sampled_from([0.0, 0.5, 1.0]))
@settings(max_examples=10, deadline=None)
def test_what_chance_adds_is_the_same_in_any_currency(seed: int, near: float) -> None:
    chance = Random(seed)
    tried = [draw_mask(chance, 0.4) for _ in range(20)]
    best = min(tried, key=int.bit_count)
    found = [
        find_optimism(tried, best, near, make(dict(EVEN.labelled), {"fail": 3 * k, "pass": k}), ALL)
        for k in (1.0, 64.0, 1 / 64)  # powers of two, so that no sum is rounded otherwise
    ]
    assert len({each.wrong for each in found}) == 1
    assert [each.cost for each in found] == pytest.approx(
        [found[0].cost * k for k in (1.0, 64.0, 1 / 64)]
    )


def test_what_is_worse_by_far_is_near_nothing() -> None:
    """A guidance that is wrong on four tickets of five where another one is right is more than 20
    standard errors behind it, however the tickets are drawn."""
    worse = sum(1 << place for place in range(TICKETS) if place % 5)
    assert find_z_score(0, worse, EVEN, ALL) > 28
    assert find_optimism([worse, 0], 0, 20.0, EVEN, ALL) == (0, 0)


def test_what_is_worse_on_some_tickets_and_better_on_none_is_never_as_good() -> None:
    """However many tickets both are wrong on: these say nothing of which is better."""
    both, more = (1 << 100) - 1, (1 << 12) - 1 << 100
    assert find_optimism([both | more, both], both, 1.0, EVEN, ALL) == (0, 0)
    assert find_z_score(both, both | more, EVEN, ALL) > 3
    assert find_z_score(0, ALL, EVEN, ALL) == inf  # what is better on every ticket is surely better


@given(
    st.integers(0, ALL),
    st.integers(0, ALL),
    st.lists(st.sampled_from(range(12)), min_size=TICKETS, max_size=TICKETS),
)
def test_what_one_guidance_gains_on_another_this_one_loses(
    one: int, other: int, owners: list[int]
) -> None:
    """At unequal prices, with tickets in groups, too, of which one alone tells no more than the
    same change in a ticket that costs as much."""
    groups = tuple(
        sum(1 << place for place, owner in enumerate(owners) if owner == group)
        for group in range(6)
    )
    priced = make(dict(EVEN.labelled), {"fail": 3.0, "pass": 1.0}, groups)
    gain = find_z_score(one, other, priced, ALL)
    assert find_z_score(other, one, priced, ALL) == (pytest.approx(-gain) if gain < inf else 0)


def test_prices_say_which_guidance_would_be_chosen_and_what_it_costs() -> None:
    chance = Random(5)
    tried = [draw_mask(chance, 0.5) for _ in range(20)]
    priced = make(dict(EVEN.labelled), {"fail": 10.0, "pass": 0.0})
    taken = min(tried, key=lambda mask: (mask & priced.labelled["fail"]).bit_count())
    optimism = find_optimism(tried, taken, 0.0, priced, ALL)
    assert optimism.cost > 2 * optimism.wrong
    # of tickets among which nothing costs anything, no guidance seems better than it is
    assert find_optimism(tried, taken, 0.0, priced, priced.labelled["pass"]).cost == 0
