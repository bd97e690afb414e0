"""The figures of labelled rows, against brute force."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import sqrt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stageb.guidance.commands.use.compare import (
    ALL,
    PairedComparison,
    compare_gains,
    count_verdicts,
)

LABELS = dict.fromkeys("ab", ("pass", "fail"))
VERDICT = st.sampled_from(["pass", "fail", None])
ROW = st.fixed_dictionaries(
    {
        "mission": st.sampled_from(["a", "b"]),
        "group_id": st.integers(0, 4).map(str),
        "label": st.sampled_from(["pass", "fail"]),
        "verdict": VERDICT,
        "by": st.sampled_from(["model", "rules"]),
        "review": st.booleans(),
        "provisional": st.booleans(),
    }
)


@given(st.lists(ROW, min_size=1, max_size=30))
def test_counts_are_those_of_a_table(rows: list[dict[str, Any]]) -> None:
    counts = count_verdicts(rows, {"a": frozenset({"1::pass"})}, LABELS)
    for mission, count in counts.items():
        of = [row for row in rows if mission in (ALL, row["mission"])]
        figures = count.figures({"pass": 1.0, "fail": 20.0})
        passed, failed = (
            sum(r["label"] == label != r["verdict"] for r in of) for label in ("pass", "fail")
        )
        assert figures["cost"] == (round((passed + 20 * failed) / len(of), 6))
        for found, some in (
            (figures, of),
            (figures["without_review"], [row for row in of if not row["review"]]),
        ):
            assert found["n"] == len(some)
            assert found["acc"] == (
                round(sum(r["verdict"] == r["label"] for r in some) / len(some), 6)
                if some
                else None
            )
            assert found["fp"] == sum((r["label"], r["verdict"]) == ("fail", "pass") for r in some)
            assert found["fn"] == sum((r["label"], r["verdict"]) == ("pass", "fail") for r in some)
            assert found["unanswered"] == sum(r["verdict"] is None for r in some)
        assert figures["asked"] == sum(r["by"] == "model" for r in of)
        assert figures["provisional"] == sum(r["provisional"] for r in of)
        assert figures["taught"] == sum(
            (r["mission"], r["group_id"], r["label"]) == ("a", "1", "pass") for r in of
        )


@pytest.mark.parametrize(("won", "lost"), [(0, 0), (1, 0), (5, 0), (0, 5), (7, 2), (2, 7), (4, 4)])
def test_p_is_how_often_fair_coins_part_as_far(won: int, lost: int) -> None:
    falls = [
        abs(2 * sum(coins) - won - lost) >= abs(won - lost)
        for coins in product((0, 1), repeat=won + lost)
    ]
    expected = Fraction(sum(falls), len(falls))
    for drawn in (0, 3):
        found = compare_gains([1.0] * won + [-1.0] * lost + [0.0] * (drawn + (not won + lost)))
        assert found["p"] == pytest.approx(float(expected), abs=1e-12)
        assert (found["won"], found["lost"]) == (won, lost)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 200))
def test_the_interval_is_bonett_and_prices_where_groups_are_single_tickets(
    won: int, lost: int, drawn: int
) -> None:
    n = won + lost + drawn
    better, worse = (won + 1) / (n + 2), (lost + 1) / (n + 2)
    half = 1.959964 * sqrt((better + worse - (better - worse) ** 2) / (n + 2))
    found = compare_gains([1.0] * won + [-1.0] * lost + [0.0] * drawn)
    low, high = found["difference_interval"]
    assert low == pytest.approx(max(-1, better - worse - half), abs=1e-6)
    assert high == pytest.approx(min(1, better - worse + half), abs=1e-6)
    assert found["difference"] == pytest.approx((won - lost) / n, abs=1e-6)


@given(st.lists(st.tuples(ROW, VERDICT), min_size=1, max_size=30))
def test_a_group_counts_once(pairs: list[tuple[dict[str, Any], str | None]]) -> None:
    paired = PairedComparison()
    groups: dict[tuple[str, str], list[int]] = {}
    for one, verdict in pairs:
        paired.add(one, {**one, "verdict": verdict})
        gain = (one["verdict"] == one["label"]) - (verdict == one["label"])
        groups.setdefault((one["mission"], one["group_id"]), []).append(gain)
    for mission, found in paired.figures().items():
        means = [
            sum(gains) / len(gains) for (of, _), gains in groups.items() if mission in (ALL, of)
        ]
        assert found["groups"] == len(means)
        assert found["won"] == sum(mean > 0 for mean in means)
        assert found["lost"] == sum(mean < 0 for mean in means)
        assert found["difference"] == pytest.approx(sum(means) / len(means), abs=1e-6)


@given(st.lists(st.tuples(ROW, VERDICT), min_size=1, max_size=30))
def test_the_difference_of_costs_is_that_of_the_mean_costs_of_a_ticket(
    pairs: list[tuple[dict[str, Any], str | None]],
) -> None:
    prices = {"pass": 1.0, "fail": 20.0}
    paired, sides = (
        PairedComparison(prices),
        ([one for one, _ in pairs], [{**one, "verdict": said} for one, said in pairs]),
    )
    for one, other in zip(*sides, strict=True):
        paired.add(one, other)
    first, second = (
        count_verdicts(rows, {}, LABELS)[ALL].figures(prices)["cost"] for rows in sides
    )
    found = paired.figures()[ALL]
    low, high = found["cost_difference_interval"]
    assert found["cost_difference"] == pytest.approx(first - second, abs=2e-6)
    assert low < high
    assert low <= 0 <= high or abs(first - second) > 0


@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.integers(0, 6), st.booleans()), min_size=2, max_size=12
    )
)
def test_the_interval_of_costs_is_that_of_a_ratio_of_groups_of_any_size(
    groups: list[tuple[int, int, bool]],
) -> None:
    """Of each group the cost that it adds to the mean one of its tickets, over the mean size of a
    group."""
    prices, paired, costs = (
        {"pass": 1.0, "fail": 20.0},
        PairedComparison({"pass": 1.0, "fail": 20.0}),
        list[float](),
    )
    label = {True: "fail", False: "pass"}
    for number, (tickets, wrong, dear) in enumerate(groups):
        row = {
            "mission": "a",
            "group_id": str(number),
            "label": label[dear],
            "verdict": label[dear],
        }
        for n in range(tickets):
            paired.add({**row, "verdict": label[not dear] if n < wrong else label[dear]}, row)
        costs.append(min(wrong, tickets) * prices[label[dear]])
    sizes = [tickets for tickets, _, _ in groups]
    mean = sum(costs) / sum(sizes)
    gains = [
        mean + (cost - mean * size) / (sum(sizes) / len(sizes))
        for cost, size in zip(costs, sizes, strict=True)
    ]
    unit = sqrt(
        sum(
            size * prices[label[dear]] ** 2
            for size, (_, _, dear) in zip(sizes, groups, strict=True)
        )
        / sum(sizes)
    )
    more = [*gains, unit, -unit]
    centre = sum(more) / len(more)
    half = 1.959964 * sqrt(sum((gain - centre) ** 2 for gain in more) / len(more) / len(more))
    found = paired.figures()["a"]
    assert found["cost_difference"] == pytest.approx(mean, abs=1e-6)
    assert found["cost_difference_interval"] == pytest.approx(
        [centre - half, centre + half], abs=1e-4
    )
