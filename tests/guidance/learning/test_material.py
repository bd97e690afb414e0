"""What chance lets the best of several guidances seem better by is taken off its estimate."""

from __future__ import annotations

from random import Random
from statistics import mean

import pytest

from stageb.guidance.learning.material import Material, find_optimism
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


def test_the_best_of_guidances_that_are_all_as_good_is_estimated_as_good_as_it_is() -> None:
    left = []
    for seed in range(40):
        chance = Random(seed)
        tried = [draw_mask(chance, 0.5) for _ in range(40)]
        best = min(tried, key=int.bit_count)
        optimism = find_optimism(tried, EVEN, ALL)
        assert optimism.cost == optimism.wrong
        left.append(best.bit_count() / TICKETS + optimism.wrong)
        assert best.bit_count() / TICKETS < 0.46
    assert mean(left) == pytest.approx(0.5, abs=0.015)


def test_what_is_better_by_far_or_the_only_one_is_as_good_as_it_seems() -> None:
    chance = Random(1)
    best, *others = draw_mask(chance, 0.05), *(draw_mask(chance, 0.5) for _ in range(40))
    for tried in ([best], [best, best], [best, *others]):
        assert find_optimism(tried, EVEN, ALL) == (0, 0)


def test_tickets_that_say_the_same_tell_as_little_as_one_of_them() -> None:
    chance, times = Random(3), 5
    tickets = TICKETS // times
    tried = [draw_mask(chance, 0.5, tickets) for _ in range(40)]
    repeated = [sum(mask << n * tickets for n in range(times)) for mask in tried]
    same = sum(1 << n * tickets for n in range(times))
    joined = make(dict(EVEN.labelled), groups=tuple(same << n for n in range(tickets)))
    once = find_optimism(tried, EVEN, (1 << tickets) - 1)
    assert find_optimism(repeated, joined, ALL).wrong == pytest.approx(once.wrong, abs=0.01)
    assert find_optimism(repeated, EVEN, ALL).wrong < 0.6 * once.wrong


def test_prices_say_which_guidance_would_be_chosen_and_what_it_costs() -> None:
    chance = Random(5)
    tried = [draw_mask(chance, 0.5) for _ in range(20)]
    priced = make(dict(EVEN.labelled), {"fail": 10.0, "pass": 0.0})
    optimism = find_optimism(tried, priced, ALL)
    assert optimism.cost > 2 * optimism.wrong
    # of tickets among which nothing costs anything, no guidance seems better than it is
    assert find_optimism(tried, priced, priced.labelled["pass"]).cost == 0
