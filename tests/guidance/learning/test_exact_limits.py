"""Limits are found exactly where tables are clean, and nothing is proven where labels are dealt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from math import inf
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from times import TIMES

from lab.bench.labels import are_right, learn
from stageb.guidance.config import LoopConfig, ReflectionConfig, RunnerConfig, SplitConfig
from stageb.guidance.learning.lists import refine
from stageb.guidance.learning.scales import Scale
from stageb.guidance.learning.terms import Masks, Scales, hold_any
from stageb.guidance.rules.candidates import find_numbers
from stageb.guidance.rules.conditions import Expression, Limit, compile_expression
from stageb.guidance.rules.limits import Side, write_limit
from stageb.guidance.rules.value_types import OPERATORS, Computed, parse_quantity, read_summaries
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.words.costs import PriceConfig
from stageb.guidance.words.types import Content, Ticket

CONFIG = LoopConfig(
    tickets=["made"],
    split=SplitConfig(1.0, 0.0, 0.0),
    runner=RunnerConfig(judge="both"),
    reflection=ReflectionConfig(
        scope="all", arithmetic=True, max_rule_chars=10_000, max_guidance_tokens=100_000
    ),
)
Rule = list[tuple[str, str, float]]
"""Field, above or below, limit: all must hold."""


def ticket(number: int, row: dict[str, str], label: str) -> Ticket:
    return Ticket(
        "parts", f"p{number}", label, (("image_1", "-"),), content=Content(tuple(row.items()), ())
    )


def holds(rule: Rule, row: dict[str, float]) -> bool:
    return all(
        row[name] > limit if side == "above" else row[name] < limit for name, side, limit in rule
    )


def draw_table(seed: int, rows: int) -> tuple[list[Ticket], list[Rule]]:
    """A clean table, and its rules, each of which decides some tickets alone."""
    draw = Random(seed)
    makers: list[Callable[[], float]] = [
        partial(draw.uniform, 0, 20),
        partial(draw.gauss, 50, 10),
        partial(draw.randint, 0, 200),
    ]
    fields = {name: makers[place % 3] for place, name in enumerate("abcd")}
    numbers = [{name: round(make(), 2) for name, make in fields.items()} for _ in range(rows)]
    while True:
        rules: list[Rule] = []
        for _ in range(draw.randint(1, 3)):
            names = draw.sample("abcd", draw.randint(1, 3))
            limits = [
                sorted(row[name] for row in numbers)[int(rows * draw.uniform(0.2, 0.8))]
                for name in names
            ]
            rule = [
                (n, draw.choice(("above", "below")), float(f"{x:.3g}"))
                for n, x in zip(names, limits, strict=True)
            ]
            rules.append(rule)
        held = [[holds(rule, row) for rule in rules] for row in numbers]
        alone = [
            sum(each == [n == place for n in range(len(rules))] for each in held)
            for place in range(len(rules))
        ]
        if min(alone) > 0.03 * rows and sum(map(any, held)) < 0.7 * rows:
            told = zip(numbers, held, strict=True)
            rows_told = [
                ({n: f"{x:g}" for n, x in row.items()}, "fail" if any(each) else "pass")
                for row, each in told
            ]
            return [ticket(n, row, label) for n, (row, label) in enumerate(rows_told)], rules


@pytest.mark.parametrize("seed", range(5 if TIMES > 1 else 2))
def test_clean_tables_of_three_rules_are_learnt_without_an_error(seed: int) -> None:
    tickets, rules = draw_table(seed, 600)
    guidance, is_proven = learn(tickets[:400], CONFIG)
    assert is_proven
    assert all(are_right(guidance, Vocabulary.of(tickets), tickets[:400])), (rules, guidance.rules)
    assert sum(are_right(guidance, Vocabulary.of(tickets), tickets[400:])) >= 196


def test_one_limit_is_one_rule_with_the_fewest_digits() -> None:
    draw = Random(0)
    rows = [
        {"a": f"{draw.uniform(0, 20):.2f} mm", "b": f"{draw.uniform(0, 100):.2f}"}
        for _ in range(2000)
    ]
    is_fail = [float(row["a"].split()[0]) > 12.3 for row in rows]
    tickets = [
        ticket(n, row, "fail" if each else "pass")
        for n, (row, each) in enumerate(zip(rows, is_fail, strict=True))
    ]
    guidance, _ = learn(tickets, CONFIG)
    assert [rule.text for rule in guidance.rules] == [
        "A ticket passes unless a rule fails it.",
        "Fail if a is above 12.3 mm.",
    ]


def test_a_limit_that_another_implies_does_not_creep() -> None:
    """Each of three limits on one field would give way to the next better gap among the tickets
    that the others leave."""
    draw = Random(3)
    rows = [
        {"temp": f"{draw.gauss(80, 20):.0f}", "bar": f"{draw.uniform(1, 9):.1f}"}
        for _ in range(400)
    ]
    rows = [row if n % 7 else {"bar": row["bar"]} for n, row in enumerate(rows)]
    is_fail = [float(row.get("temp", 0)) > 95 and float(row["bar"]) >= 4 for row in rows]
    tickets = [
        ticket(n, row, "fail" if each else "pass")
        for n, (row, each) in enumerate(zip(rows, is_fail, strict=True))
    ]
    guidance, _ = learn(tickets, CONFIG)
    assert all(are_right(guidance, Vocabulary.of(tickets), tickets))
    (rule,) = guidance.rules[1:]
    assert rule.text.startswith("Fail if temp (if given) is above 9") or rule.text.startswith(
        "Fail if bar"
    )


@pytest.mark.parametrize(
    ("share", "price"),
    [(0.65, 1.0), (0.35, 10.0), *([(0.9, 1.0), (0.65, 10.0)] if TIMES > 1 else [])],
)
def test_dealt_labels_prove_nothing_where_failing_all_costs_least(
    share: float, price: float
) -> None:
    """A start that passed all tickets would let any rule that fails most of them seem proven."""
    proven = 0
    for seed in range(TIMES):
        draw = Random(f"{seed} {share}")
        rows = [
            {f"c{n}": draw.choice("xyz") for n in range(10)} | {"e": str(draw.randint(0, 9))}
            for _ in range(80)  # so few that chance brings rules to prove
        ]
        tickets = [
            ticket(n, row, "fail" if draw.random() < share else "pass")
            for n, row in enumerate(rows)
        ]
        guidance, is_proven = learn(
            tickets, replace(CONFIG, price=PriceConfig(missed_failure=price))
        )
        proven += is_proven
        if len(guidance.rules) == 1:
            assert guidance.rules[0].text == "A ticket fails unless a rule passes it."
    assert proven == 0


NUMBERS = st.decimals(-1000, 1000, places=2, allow_nan=False).map(float)


@given(st.lists(NUMBERS, min_size=2, max_size=40, unique=True), st.data())
@settings(max_examples=60)
def test_the_best_of_all_limits_is_found(numbers: list[float], data: st.DataObject) -> None:
    wanted = data.draw(st.integers(0, 2 ** len(numbers) - 1))
    everyone = (1 << len(numbers)) - 1
    scale = Scale.of(dict(enumerate(numbers)), "1 mm")
    without_number = 1 << data.draw(st.integers(len(numbers), 200))  # says nothing of any limit
    for side in ("above", "below"):
        text = scale.find_limit(
            side, wanted | without_number, everyone & ~wanted, lambda right, wrong: right - wrong
        )
        limit, without = parse_quantity(text), 2 * wanted.bit_count() - len(numbers)

        def score(at: float, side: str = side) -> int:
            held = [
                n
                for n, number in enumerate(numbers)
                if (number > at if side == "above" else number < at)
            ]
            return sum(1 if wanted >> n & 1 else -1 for n in held)

        ordered = sorted(numbers)
        middles = [(one + other) / 2 for one, other in pairwise(ordered)]
        if without > max(map(score, middles)):
            assert limit is None  # all of them together score best
            continue
        assert limit and limit.unit == "mm" and score(limit.number) == max(map(score, middles))
        held = [
            n
            for n, number in enumerate(numbers)
            if (number > limit.number if side == "above" else number < limit.number)
        ]
        assert scale.find_beyond(side, limit.number) == sum(1 << n for n in held)


def test_no_ticket_is_known_to_lie_beyond_a_limit_where_there_are_no_numbers() -> None:
    """Of the field, or in the limit."""
    scales = Scales({"a": {n: (float(n), f"{n} mm") for n in range(4)}, "b": {}})
    assert scales.find_beyond(Limit("a", "above", "1.5 mm")) == 0b1100
    for of, limit in (("a", "high"), ("b", "1.5 mm"), ("c", "1.5 mm")):
        assert scales.find_beyond(Limit(of, "above", limit)) is None


def test_no_limit_is_found_where_tickets_write_numbers_as_no_limit_is_written() -> None:
    scale = Scale.of({0: 62.0, 1: 125.0}, "1 h 2 min")
    assert scale.find_limit("above", 0b10, 0b01, lambda right, wrong: right - wrong) == ""


@given(NUMBERS, st.floats(0.01, 500), st.sampled_from(("above", "below")))
def test_a_limit_lies_in_the_middle_of_a_wide_gap(under: float, gap: float, side: str) -> None:
    over = round(under + gap, 2)
    if over <= under:
        return
    text = write_limit("above" if side == "above" else "below", under, over, "3.5 mm")
    found = parse_quantity(text)
    assert found and found.unit == "mm"
    assert under <= found.number < over if side == "above" else under < found.number <= over
    quarter = (over - under) / 4
    step = 10.0 ** -max(len(f"{end:g}".partition(".")[2]) for end in (under, over))
    if over - under > 1.5 * step:  # numbers as fine as these fit in between
        assert under + quarter - 1e-9 <= found.number <= over - quarter + 1e-9


@given(st.integers(1, 100_000), st.integers(0, 6))
@example(243, 1)
def test_a_limit_between_neighbours_is_one_of_them_and_as_fine_as_they_are(
    number: int, decimals: int
) -> None:
    """Above 24.3, where the next number is 24.4, and not above 24.35."""
    under, over = (round(each / 10**decimals, decimals) for each in (number, number + 1))
    for side, end in (("above", under), ("below", over)):
        text = write_limit("above" if side == "above" else "below", under, over, "7 mm")
        assert parse_quantity(text) == (end, "mm")


@pytest.mark.parametrize(
    ("under", "over", "sample"),
    [(1e-14, 2e-14, "1e-14"), (1.0, inf, "9" * 400)],
    ids=["more than twelve decimals", "beyond all numbers"],
)
@pytest.mark.parametrize("side", ["above", "below"])
def test_a_gap_in_which_no_limit_can_be_written_has_none(
    side: Side, under: float, over: float, sample: str
) -> None:
    assert write_limit(side, under, over, sample) == ""


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), min_size=4, max_size=30
    ),
    st.sampled_from([0.2, 0.5, 0.8]),
    st.tuples(st.integers(1, 8), st.integers(1, 8)),
)
def test_no_limit_of_a_refined_line_could_be_moved_to_where_it_costs_less(
    rows: list[tuple[int, int, bool]], least: float, start: tuple[int, int]
) -> None:
    """A false alarm costs ``least`` and a miss the rest of 1. A limit that should rather be dropped
    stays where it is."""
    cells = [*((a, b) for a, b, _ in rows), *((n, n) for n in range(10))]  # the last teach nothing
    readings = [read_summaries((f"a: {a}; b: {b}",)) for a, b in cells]
    masks, everyone = Masks({}, Scales(find_numbers(readings))), (1 << len(rows)) - 1
    wanted = sum(1 << n for n, row in enumerate(rows) if row[2])

    def cost(*line: Expression) -> float:
        held = hold_any(masks, [line]) & everyone
        missed, alarms = wanted & ~held, held & ~wanted
        return (1 - least) * missed.bit_count() + least * alarms.bit_count()

    low, high = Limit("a", "above", f"{start[0]}.5"), Limit("b", "below", f"{start[1]}.5")
    ((one, other),) = refine([(low, high)], masks, wanted, everyone & ~wanted, least)
    for kept, of, side in ((other, "a", "above"), (one, "b", "below")):
        free = masks[kept] & everyone  # which the limit may part
        others = [Limit(of, "above" if side == "above" else "below", f"{n}.5") for n in range(9)]
        costs = [cost(each, kept) for each in others if masks[each] & free not in (0, free)]
        best = min(costs, default=cost(one, other))
        assert cost(one, other) <= best + 1e-9 or cost(kept) < best


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("least", [0.3, 0.4, 0.5])
def test_each_limit_of_refined_lines_costs_least_beside_the_other_lines(
    seed: int, least: float
) -> None:
    """Tickets that another line has already, rightly or wrongly, play no part."""
    draw, rows = Random(seed), 60
    cells = [(draw.randint(0, 20), draw.randint(0, 20)) for _ in range(rows)]
    readings = [read_summaries((f"a: {a}; b: {b}",)) for a, b in cells]
    masks, everyone = Masks({}, Scales(find_numbers(readings))), (1 << rows) - 1
    is_wanted = [(a > 12 or b > 14) != (draw.random() < 0.15) for a, b in cells]
    wanted = sum(told << n for n, told in enumerate(is_wanted))

    def cost(*limits: Limit) -> float:
        held = hold_any(masks, [(limit,) for limit in limits]) & everyone
        missed, alarms = wanted & ~held, held & ~wanted
        return (1 - least) * missed.bit_count() + least * alarms.bit_count()

    start = [(Limit("a", "above", "9.5"),), (Limit("b", "above", "9.5"),)]
    limits = [line[0].as_limit for line in refine(start, masks, wanted, everyone & ~wanted, least)]
    one, other = (limit for limit in limits if limit)
    for kept, of in ((other, "a"), (one, "b")):
        moved = [Limit(of, "above", f"{n}.5") for n in range(20)]
        assert cost(one, other) <= min(cost(each, kept) for each in moved) + 1e-9


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_limits_on_what_two_fields_give_hold_as_the_rule_does(operator: str) -> None:
    """Where a field is 0, and where one is missing; nothing is divided by 0."""
    texts = [f"a: {a}; b: {b}" for a in range(-2, 5) for b in range(-2, 5)] + ["a: 3", "b: 3"]
    readings = [read_summaries((text,)) for text in texts]
    masks = Masks({}, Scales(find_numbers(readings)))
    of = Computed("a", operator, "b")
    for side, limit in product(("above", "below"), ("-1.5", "0", "0.7", "3")):
        term = Limit(of, "above" if side == "above" else "below", limit)
        judged = map(compile_expression(term), readings)
        assert masks[term] == sum((said is True) << n for n, said in enumerate(judged))
