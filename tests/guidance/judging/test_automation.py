"""Bounds on the errors among verdicts that are decided alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import comb
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stageb.guidance.judging.automation import (
    BoundSearch,
    Judged,
    binomial_tail,
    count_more,
    count_needed,
    describe_promises,
    find_bound,
    find_bounds,
    find_promises,
    holds,
    make_sequence,
    name_guidance,
    order_levels,
)
from stageb.guidance.rules.guidance_json import from_json, to_json
from stageb.guidance.words.automation import MODEL, Automation, Bound
from stageb.guidance.words.types import PASS_FAIL, Guidance, Rule
from stageb.seeds import stream, uniform

Errors = dict[str, tuple[float, float]]
"""By decider, the share of tickets that it decides, and of these the share that it decides
wrongly."""


def draw(errors: Errors, tickets: int, key: int) -> list[Judged]:
    """Tickets whose verdicts are wrong so often."""
    found = []
    for n in range(tickets):
        place = uniform(stream(key, "decider"), n)
        for decider, (share, error) in errors.items():
            if place < share:
                verdict = "pass" if decider.startswith("P") else "fail"
                found.append(Judged(decider, 0, verdict, uniform(stream(key, "error"), n) >= error))
                break
            place -= share
    return found


def find_error(bound: Bound | None, errors: Errors) -> float:
    """How often verdicts under a bound are wrong, of all there could be."""
    decided = [errors[decider] for decider in bound.least if decider in errors] if bound else []
    return (
        sum(share * error for share, error in decided) / sum(share for share, _ in decided)
        if decided
        else 0.0
    )


@given(st.integers(1, 60), st.integers(0, 60), st.integers(1, 99))
def test_the_tail_is_the_sum_of_its_terms(tickets: int, wrong: int, percent: int) -> None:
    share = Fraction(percent, 100)
    terms = [
        comb(tickets, k) * share**k * (1 - share) ** (tickets - k)
        for k in range(min(wrong, tickets) + 1)
    ]
    assert binomial_tail(wrong, tickets, percent / 100) == pytest.approx(
        float(sum(terms)), rel=1e-9
    )


@given(st.integers(0, 12), st.sampled_from([0.01, 0.02, 0.1, 0.5]), st.sampled_from([0.05, 0.01]))
def test_no_fewer_tickets_prove_a_bound(wrong: int, max_error: float, level: float) -> None:
    needed = count_needed(wrong, max_error, level)
    assert (
        binomial_tail(wrong, needed, max_error)
        <= level
        < binomial_tail(wrong, needed - 1, max_error)
    )


MISLED: Errors = {"G1": (0.3, 0.14), "G2": (0.3, 0.02), "G3": (0.2, 0.3), "P4": (0.2, 0.0)}
FLAT: Errors = {"G1": (0.5, 0.101), "G2": (0.5, 0.101)}
RISING: Errors = {"G1": (0.4, 0.02), "G2": (0.3, 0.08), "G3": (0.3, 0.35)}


@pytest.mark.parametrize("errors", [MISLED, FLAT, RISING], ids=["misled", "flat", "rising"])
def test_bounds_are_broken_as_rarely_as_is_said_whatever_the_pilot_says(errors: Errors) -> None:
    """The pilot of ``misled`` holds that the rules are right in the opposite order."""
    told = dict(zip(errors, reversed(list(errors.values())), strict=True))
    pilot, resamples = draw(told if errors is MISLED else errors, 400, 1), 200
    found = [
        find_bound(pilot, draw(errors, 150, key), "", 0.1, 0.05).bound
        for key in range(2, 2 + resamples)
    ]
    broken = sum(find_error(bound, errors) > 0.1 for bound in found)
    assert broken <= 0.05 * resamples + 3 * (resamples * 0.05 * 0.95) ** 0.5
    if errors is RISING:  # the bound does not hold by deciding nothing
        assert sum(bound is not None and "G1" in bound.least for bound in found) > 0.7 * resamples


def test_bounds_of_several_verdicts_hold_together_and_others_are_for_a_person() -> None:
    errors: Errors = {"G1": (0.4, 0.101), "P1": (0.4, 0.101), "G2": (0.2, 0.0)}
    pilot = draw(errors, 500, 1)
    broken = 0
    for key in range(2, 152):
        found = find_bounds(pilot, draw(errors, 300, key), {"pass": 0.1, "fail": 0.05}, 0.95)
        broken += any(
            of.bound and find_error(of.bound, errors) > of.bound.max_error for of in found.values()
        )
    assert broken <= 0.05 * 150 + 3 * (150 * 0.05 * 0.95) ** 0.5
    [only] = find_bounds(pilot, draw(errors, 300, 3), {"fail": 0.2}, 0.95).values()
    assert only.bound
    assert only.bound.covers("fail", "G2", 0)
    assert only.bound.tickets == sum(each.verdict == "fail" for each in draw(errors, 300, 3))
    assert not only.bound.covers("pass", "P1", 0)
    assert not only.bound.covers("pass", "G2", 0), "it is of the other verdict"
    [free] = find_bounds(pilot, draw({"G1": (1.0, 0.9)}, 20, 3), {"fail": 1}, 0.95).values()
    assert free.bound
    assert free.bound.least.keys() == {"G1", "G2"}  # without a bound all are decided, however wrong


FINE: Errors = {f"G{n}": (0.05, 0.02 * n) for n in range(10)} | {"P": (0.5, 0.1)}


@given(st.integers(0, 99))
def test_a_verdict_that_no_bound_is_asked_of_takes_nothing_from_the_others(key: int) -> None:
    pilot, tested = draw(FINE, 400, 1), draw(FINE, 200, 2 + key)
    alone = find_bounds(pilot, tested, {"fail": 0.1}, 0.9)
    beside = find_bounds(pilot, tested, {"pass": 1.0, "fail": 0.1}, 0.9)
    assert beside["fail"] == alone["fail"]
    both = find_bounds(pilot, tested, {"pass": 0.2, "fail": 0.1}, 0.9)
    surer = find_bounds(pilot, tested, {"fail": 0.1}, 0.95)
    assert both["fail"] == surer["fail"], "two bounds share what may go wrong"


def test_more_margin_is_never_less_sure_and_each_set_holds_the_one_before() -> None:
    rates = {0: 0.6, 1: 0.9, 2: 0.7, 3: 0.95, 4: 0.99}  # by chance 2 is worse than 1
    pilot = [
        Judged("G1", margin, "fail", n < 100 * rate)
        for margin, rate in rates.items()
        for n in range(100)
    ]
    pilot += [Judged("G2", 0, "pass", n < 98) for n in range(100)]
    levels = order_levels(pilot)
    mine = [level for level in levels if level.decider == "G1"]
    assert [level.margin for level in mine] == [4, 3, 1, 0]
    assert sum(level.share for level in levels) == pytest.approx(1)
    sets = make_sequence(levels, 100, 0)
    for first, then in pairwise(sets):
        assert all(then[decider] <= least for decider, least in first.items())
    assert sets[-1] == {"G1": 0, "G2": 0}
    large = make_sequence(levels, 500, 149)
    assert len(large) < len(sets)  # what is too small to be proven does not end the sequence


def test_a_decider_that_is_always_right_comes_first_however_many_margins_it_has() -> None:
    """Unless it decided too few tickets to tell."""
    pilot = [Judged(MODEL, 0.9 + n / 1000, "fail", True) for n in range(90)]
    pilot += [Judged("G1", 0, "fail", n > 0) for n in range(90)]
    pilot.append(Judged("G2", 0, "fail", True))
    levels = order_levels(pilot)
    assert [(level.decider, level.margin) for level in levels] == [
        (MODEL, 0.9),
        ("G1", 0),
        ("G2", 0),
    ]


@given(st.data())
def test_the_order_of_the_pilots_tickets_plays_no_part(data: st.DataObject) -> None:
    pilot = data.draw(
        st.lists(
            st.builds(
                Judged,
                st.sampled_from(["G1", "G2", MODEL]),
                st.integers(0, 3),
                st.just("fail"),
                st.booleans(),
            ),
            max_size=30,
        )
    )
    assert order_levels(data.draw(st.permutations(pilot))) == order_levels(pilot)


def test_what_is_missing_is_about_what_it_takes() -> None:
    errors: Errors = {"G1": (0.5, 0.0), "G2": (0.5, 0.4)}
    pilot = draw(errors, 400, 1)
    few = draw(errors, 100, 2)
    assert find_bound(pilot, few, "", 0.02, 0.05).bound is None
    more = count_more(pilot, few, "", 0.02, 0.05)
    assert more is not None
    assert 180 <= more <= 320  # 149 of those that G1 decides, half of all, with some room
    after = [
        find_bound(pilot, draw(errors, 100 + more, key), "", 0.02, 0.05).bound for key in range(20)
    ]
    assert sum(bound is not None for bound in after) > 15
    rare: Errors = {"G1": (0.1, 0.0), "P2": (0.9, 0.2)}
    told = count_more(draw(rare, 400, 1), draw(rare, 100, 2), "fail", 0.1, 0.05)
    assert told is not None
    assert 180 <= told <= 400  # of all tickets: 29 of those judged so, one in ten of them
    hopeless: Errors = {"G1": (1.0, 0.4)}
    assert count_more(draw(hopeless, 400, 1), draw(hopeless, 400, 2), "", 0.02, 0.05) is None


def test_what_is_missing_proves_the_first_set_and_not_one_behind_it() -> None:
    """All tickets together are proven already; but the surest ones, which stand first, are not."""
    told: Errors = {"G1": (0.2, 0.0), "G2": (0.8, 0.01)}
    pilot, misled = draw(told, 2000, 1), {**told, "G1": (0.2, 0.01)}
    tested = [Judged("G1", 0, "fail", n >= 2) for n in range(200)]
    tested += [Judged("G2", 0, "fail", n >= 4) for n in range(800)]
    assert find_bound(pilot, tested, "", 0.02, 0.05) == BoundSearch(None, 200, 2)
    more = count_more(pilot, tested, "", 0.02, 0.05)
    assert more is not None
    after = [find_bound(pilot, draw(misled, 1000 + more, key), "", 0.02, 0.05) for key in range(20)]
    assert sum(each.bound is not None for each in after) > 10
    never = [each._replace(is_right=n >= 8) for n, each in enumerate(tested)]
    assert count_more(pilot, never, "", 0.02, 0.05) is None


def repeat(decider: str, tickets: int, wrong: int = 0) -> list[Judged]:
    return [Judged(decider, 0, "fail", n >= wrong) for n in range(tickets)]


def test_as_many_tickets_as_are_needed_prove_a_bound_though_the_pilot_asks_for_some_more() -> None:
    level = binomial_tail(0, 29, 0.1)
    assert count_needed(0, 0.1, level) == 29
    enough = find_bound(repeat("G1", 50), repeat("G1", 29), "", 0.1, level)
    assert enough == BoundSearch(Bound("", 0.1, {"G1": 0}, 29, 29, 0), 29, 0)
    few = find_bound(repeat("G1", 50), repeat("G1", 28), "", 0.1, level)
    assert few == BoundSearch(None, 28, 0)


def test_a_surest_set_of_too_few_tickets_does_not_end_the_search() -> None:
    pilot = repeat("G1", 40) + repeat("G2", 200, wrong=10)
    found = find_bound(pilot, repeat("G1", 15) + repeat("G2", 75), "", 0.1, 0.05)
    assert found.bound and found.bound.least == {"G1": 0, "G2": 0}


def test_what_is_told_of_a_search_is_of_the_set_that_is_proven() -> None:
    """Which no later one takes back."""
    pilot = repeat("G1", 50) + repeat("G2", 50, wrong=2) + repeat("G3", 50, wrong=25)
    tested = repeat("G1", 60) + repeat("G2", 60, wrong=2) + repeat("G3", 60, wrong=30)
    proven = Bound("", 0.1, {"G1": 0, "G2": 0}, 180, 120, 2)
    assert find_bound(pilot, tested, "", 0.1, 0.05) == BoundSearch(proven, 120, 2)


NOBODY = Judged("", 0, None, False)  # a ticket that is for a person


@pytest.mark.parametrize(
    ("pilot", "tested", "max_error"),
    [
        ([*repeat("G1", 50, wrong=1), *[NOBODY] * 50], [], 0.2),
        ([*repeat("G1", 50), *[NOBODY] * 50], [*repeat("G1", 10), *[NOBODY] * 90], 0.1),
        ([*repeat("G1", 90), *[NOBODY] * 10], [*repeat("G1", 25, wrong=1)] * 2, 0.1),
        (repeat("G1", 100) + repeat("G2", 300, wrong=90), [], 0.1),
        ([*repeat("G1", 50, wrong=5), *[NOBODY] * 450], [], 0.2),
        (repeat("G1", 40) + repeat("G2", 200, wrong=10), [], 0.1),
    ],
    ids=[
        "nothing tested",
        "decided less often",
        "some wrong",
        "the rest hopeless",
        "most for a person",
        "few of the surest",
    ],
)
def test_so_many_further_tickets_prove_the_bound_and_half_of_all_would_not(
    pilot: list[Judged], tested: list[Judged], max_error: float
) -> None:
    """If further ones are as those before, or, where there are none, as the pilot's."""
    more = count_more(pilot, tested, "", max_error, 0.05)
    assert more is not None
    alike = tested or pilot

    def prove(tickets: int) -> Bound | None:
        some = [
            each
            for each, count in Counter(alike).items()
            for _ in range(round(count * tickets / len(alike)))
        ]
        return find_bound(pilot, some, "", max_error, 0.05).bound

    assert prove(len(tested) + more)
    assert not prove((len(tested) + more) // 2)


RULES = Guidance(
    "valves",
    3,
    (Rule("G0", "A ticket passes unless a rule fails it."), Rule("G1", "Fail if torn.")),
    2,
)
BOUND = Bound("", 0.02, {"G1": 0, MODEL: 0.9}, 300, 200, 1)
KEPT = Automation(0.95, name_guidance(RULES), "both", "ab12", 300, ("Torque",), (BOUND,))


BY_VERDICT = tuple(
    replace(BOUND, verdict=verdict, max_error=max_error, tickets=150, decided=120)
    for verdict, max_error in (("pass", 1.0), ("fail", 0.02))
)


@pytest.mark.parametrize("bounds", [(BOUND,), BY_VERDICT, ()])
def test_a_guidance_file_keeps_what_is_promised(bounds: tuple[Bound, ...]) -> None:
    bounded = replace(RULES, automation=replace(KEPT, bounds=bounds))
    assert from_json(to_json(bounded), "g.json")["valves"] == bounded


def test_a_promise_is_told_of_the_verdicts_that_it_is_of_and_none_where_there_is_no_limit() -> None:
    said = [
        replace(KEPT, bounds=bounds).describe() for bounds in ((BOUND,), BY_VERDICT, BY_VERDICT[:1])
    ]
    assert said == [
        "decides 67 % alone; at most 2 % of these are wrong (95 % confidence)",
        "decides 80 % alone; at most 2 % of those judged fail are wrong (95 % confidence)",
        "decides 40 % alone",
    ]


def test_a_promise_that_does_not_hold_here_is_told_as_one_that_was() -> None:
    guidance = {"valves": replace(RULES, automation=KEPT), "pumps": replace(RULES, mission="pumps")}
    promises = find_promises(guidance, "both", "ab12")
    [kept] = describe_promises(guidance, promises)
    assert kept == f"valves: {KEPT.describe()}"
    [broken] = describe_promises(guidance, find_promises(guidance, "both", "cd34"))
    assert broken == (
        f"valves: nothing is promised of how tickets are judged here; promised was: "
        f"{KEPT.describe()} (stageb automate)"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"confidence": 1.5}, {"confidence": "high"}, {"tickets": -1}, {"bounds": {}}, {"bounds": [1]}, {"by": None},
        {"more": 1}, {"least": {"G1": "0"}}, {"least": {"G1": True}}, {"least": []}, {"verdict": "maybe"}, {"max_error": 0},
        {"wrong": 201}, {"decided": 301}, {"tickets": 300.0}, {"tickets": True}, {"told": "Torque"}, {"told": [1]},
        {"wrong": 0.5}, {"wrong": -1}, {"bounds": [{}]}, {"bounds": [None]},
        {"least": {"G1": float("inf")}},
    ],
)  # fmt: skip
def test_what_stageb_automate_never_writes_is_refused(change: dict[str, Any]) -> None:
    plain = KEPT.to_plain()
    assert Automation.parse(plain, PASS_FAIL) == KEPT
    inner = {
        key: value
        for key, value in change.items()
        if key in ("least", "verdict", "max_error", "wrong", "decided")
    }
    bad = (
        {**plain, **change} if not inner else {**plain, "bounds": [{**plain["bounds"][0], **inner}]}
    )
    assert Automation.parse(bad, PASS_FAIL) is None
    of_all, of_fail = ({**plain["bounds"][0], "verdict": verdict} for verdict in ("", "fail"))
    for bounds in ([of_all, of_all], [of_fail, of_fail], [of_all, of_fail]):
        assert Automation.parse({**plain, "bounds": bounds}, PASS_FAIL) is None
    inner_more = {**plain, "bounds": [{**of_all, "more": 1}]}
    assert Automation.parse(inner_more, PASS_FAIL) is None


def test_a_ticket_without_a_verdict_is_decided_by_nobody() -> None:
    assert KEPT.decides("pass", MODEL, 1.0) and not KEPT.decides(None, MODEL, 1.0)


def test_what_is_promised_holds_of_the_same_rules_judged_in_the_same_way() -> None:
    assert holds(KEPT, RULES, "both", "ab12")
    assert not holds(KEPT, RULES, "both", "cd34")
    assert not holds(KEPT, RULES, "rules", "ab12")
    by_rules = replace(KEPT, by="rules", bounds=(replace(BOUND, least={"G1": 0}),))
    assert holds(by_rules, RULES, "rules", "")
    # the same verdicts by rules, with a model behind them
    assert holds(by_rules, RULES, "both", "cd34")
    assert holds(by_rules, replace(RULES, step=9), "rules", "")
    assert not holds(by_rules, RULES, "model", "")
    for other in (
        replace(RULES, rules=(RULES.rules[0], Rule("G1", "Fail if worn."))),
        replace(RULES, judge="model"),
        replace(RULES, labels=("fail", "pass")),
    ):
        assert not holds(by_rules, other, "rules", "")
