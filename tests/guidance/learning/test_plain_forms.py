"""What scorecards say plainly, and what is said without one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, product
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stageb.guidance.learning.compared_cards import judge_compared
from stageb.guidance.learning.material import (
    DecisionList,
    Material,
    RuleSet,
    find_undecided,
    find_wrong,
    judge_by_rule_set,
)
from stageb.guidance.learning.plain_forms import (
    drop_constant,
    drop_needless,
    find_opposites,
    make_points_positive,
    spell_out,
    turn_list,
    turn_points,
    write_as_count,
    write_as_list,
    write_in_order,
)
from stageb.guidance.learning.scorecards import Scorecard
from stageb.guidance.learning.terms import (
    Conjunction,
    Masks,
    Scales,
    add_guards,
    drop_guards,
    find_counts,
    find_gaps,
    find_possible,
    find_terms,
    hold_any,
    is_guard,
    list_guards,
    make_guard,
)
from stageb.guidance.learning.tiers import learn_cards, learn_compared
from stageb.guidance.rules.candidates import SearchSpace, find_numbers
from stageb.guidance.rules.conditions import (
    All,
    AtLeast,
    Expression,
    Limit,
    Mentions,
    Missing,
    OneOf,
    Same,
)
from stageb.guidance.rules.value_types import read_summaries

TERMS = [OneOf(name, ("1",)) for name in "abcd"]
ROWS = list(product((False, True), repeat=len(TERMS)))  # a ticket for each
MASKS = Masks(
    {term: sum(row[place] << n for n, row in enumerate(ROWS)) for place, term in enumerate(TERMS)}
)


def make(masks: Masks) -> Material:
    """Tickets of which one fails, all of equal price."""
    labelled, prices = {"fail": 1, "pass": (1 << len(ROWS)) - 2}, {"fail": 1.0, "pass": 1.0}
    return Material(masks, {}, labelled, 1, frozenset(), prices)


@given(
    st.lists(st.integers(-5, 5).filter(bool), min_size=1, max_size=len(TERMS)), st.integers(-6, 8)
)
def test_lists_hold_exactly_where_the_card_is_reached_and_where_it_is_not(
    points: list[int], least: int
) -> None:
    card = Scorecard(
        "fail", {(term,): each for term, each in zip(TERMS, points, strict=False)}, least
    )
    reached = sum(
        (sum(each for each, held in zip(points, row, strict=False) if held) >= least) << n
        for n, row in enumerate(ROWS)
    )
    everyone = (1 << len(ROWS)) - 1
    lists = spell_out(card, MASKS, everyone, lambda _: True)
    assert [hold_any(MASKS, lines) & everyone for lines in lists] == [reached, everyone & ~reached]
    for lines in lists:
        for line in lines:  # no shorter line would do
            shorter = [[each for each in line if each != term] for term in line]
            side = reached if lines is lists[0] else ~reached
            assert all(hold_any(MASKS, [tuple(some)]) & everyone & ~side for some in shorter)
            others = [each for each in lines if each != line]  # which leave something to it
            assert hold_any(MASKS, others) & everyone != hold_any(MASKS, lines) & everyone


@given(
    st.lists(st.integers(-1, 6).filter(bool), min_size=2, max_size=len(TERMS)), st.integers(-1, 14)
)
@example([5, 4, 4], 7)
@example([1, 1, 1], 2)
def test_a_card_that_any_so_many_conditions_reach_is_a_count_of_these(
    points: list[int], least: int
) -> None:
    """And any other is none."""
    card = Scorecard(
        "fail", {(term,): each for term, each in zip(TERMS, points, strict=False)}, least
    )
    everyone = (1 << len(ROWS)) - 1
    material = make(MASKS)
    rule_set = write_as_count(card, "pass", material)
    sums = [sum(each for each, held in zip(points, row, strict=False) if held) for row in ROWS]
    met = [sum(row[: len(points)]) for row in ROWS]
    fewest = min(
        (count for count, total in zip(met, sums, strict=True) if total >= least), default=0
    )
    by_count = all(
        (count >= fewest) == (total >= least) for count, total in zip(met, sums, strict=True)
    )
    assert bool(rule_set) == (by_count and min(points) > 0 and 2 <= fewest < len(points))
    if rule_set:
        reached = sum((total >= least) << place for place, total in enumerate(sums))
        assert judge_by_rule_set(rule_set, MASKS, everyone)["fail"] & everyone == reached
        assert rule_set.size == card.size
    spelt_out = write_as_list(card, "pass", material, everyone)
    assert spelt_out is None or spelt_out.size <= card.size + 1  # a list is hardly longer


@pytest.mark.parametrize(
    "kind",
    [
        lambda n: Mentions((("leak", "rust", "dent")[n],), "abc"[n]),
        lambda n: Same("ab"[n > 0], "bcd"[n], False),
        lambda n: All((Limit("abc"[n], "above", "1"), Limit("abc"[n], "below", "9"))),
    ],
    ids=["words", "comparisons", "ranges"],
)
def test_no_conditions_but_plain_ones_are_counted(kind: Callable[[int], Expression]) -> None:
    """A card that any two of three reach stays a card, and nothing else counts them."""
    three = [kind(n) for n in range(3)]
    masks = Masks(dict(zip(three, (MASKS[term] for term in TERMS[:3]), strict=True)))
    card = Scorecard("fail", {(term,): 1 for term in three}, 2)
    assert write_as_count(card, "pass", make(masks)) is None
    reached, everyone = find_reached(card, masks, (1 << len(ROWS)) - 1), (1 << len(ROWS)) - 1
    assert find_counts(masks, {}, reached, everyone & ~reached) == {}
    plain = find_counts(MASKS, {}, reached, everyone & ~reached)
    assert reached in plain.values()


@pytest.mark.parametrize(
    "gappy",
    [
        ["a: 1; b: 1"],  # one ticket lacks a field: too few to say of any rule that it is missing
        ["a: 1; b: 1", "b: 1", "a: 1; c: 1", "a: 0; b: 1", "a: 1; b: 0", "c: 1", "b: 1; c: 1"],
    ],
)
def test_a_count_of_what_some_tickets_lack_says_where_it_is_given(gappy: list[str]) -> None:
    """As a card does, for which the unknown has no points."""
    texts = [
        "; ".join(f"{name}: {cell}" for name, cell in zip("abc", row, strict=True))
        for row in product("01", repeat=3)
    ]
    texts += gappy
    readings = [read_summaries((text,)) for text in texts]
    masks, everyone = find_terms(readings, SearchSpace(wide=True)), (1 << len(texts)) - 1
    gaps = find_gaps(masks, readings)
    masks = masks.plus(list_guards(gaps, everyone))
    labelled, prices = {"fail": 1, "pass": everyone - 1}, {"fail": 1.0, "pass": 1.0}
    material = Material(masks, gaps, labelled, 1, frozenset(), prices)
    lines = [(OneOf(name, ("1",)),) for name in "abc"]
    rule_set = write_as_count(
        Scorecard("fail", dict(zip(lines, (5, 4, 4), strict=True)), 7), "pass", material
    )
    assert rule_set and not find_undecided(rule_set, material, everyone)
    reached = [sum(each.pairs.get(name) == "1" for name in "abc") >= 2 for each in readings]
    assert judge_by_rule_set(rule_set, masks, everyone)["fail"] == sum(
        held << place for place, held in enumerate(reached)
    )


VALUES = ("x", "y", "z", "")  # of each of two fields; the last one: it is missing
# a ticket for each combination, with two words
MIXED = list(product(VALUES, VALUES, (False, True), (False, True)))
OF_FIELDS = [OneOf(name, some) for name in "ab" for some in (("x",), ("y",), ("x", "z"))]
WORDS = [Mentions(("leak",)), Mentions(("rust",))]
OF_MIXED = Masks(
    {
        **{
            term: sum(
                (row["ab".index(term.field)] in term.values) << n for n, row in enumerate(MIXED)
            )
            for term in OF_FIELDS
        },
        **{
            word: sum(row[2:][place] << n for n, row in enumerate(MIXED))
            for place, word in enumerate(WORDS)
        },
    }
)


@given(
    st.dictionaries(
        st.sampled_from([*OF_FIELDS, *WORDS]),
        st.integers(-5, 5).filter(bool),
        min_size=1,
        max_size=6,
    ),
    st.integers(-6, 8),
    st.sets(st.sampled_from(range(len(MIXED))), min_size=1),
)
def test_lists_say_what_the_card_does_of_values_that_tickets_show_in_any_combination(
    points: dict[Expression, int], least: int, seen: set[int]
) -> None:
    card = Scorecard("fail", {(term,): each for term, each in points.items()}, least)
    reached = 0
    for place in range(len(MIXED)):
        total = sum(each for term, each in points.items() if OF_MIXED[term] >> place & 1)
        reached |= (total >= least) << place
    values = [{MIXED[place][field] for place in seen} for field in range(4)]
    shown = sum(
        all(value in known for value, known in zip(row, values, strict=True)) << n
        for n, row in enumerate(MIXED)
    )
    among = sum(1 << place for place in seen)
    for denied in ({*OF_MIXED}, set[Expression]()):
        lists = spell_out(card, OF_MIXED, among, denied.__contains__)
        for lines, side in zip(lists, (reached, ~reached), strict=True):
            is_same = hold_any(OF_MIXED, lines) & shown == side & shown
            assert is_same or (not lines and not denied)
            assert denied or not any(term.is_denied for line in lines for term in line)


def test_what_a_value_implies_of_others_is_not_said() -> None:
    """Nor what is always so: of two limits with no ticket between, one says it all."""
    yes, no = (OneOf("vote", (value,)) for value in ("y", "n"))
    high, low = Limit("torque", "above", "12.31"), Limit("torque", "below", "12.3")
    known = Masks({yes: 0b0011, no: 0b1100, high: 0b0101, low: 0b1010})

    def spell(points: dict[Expression, int], least: int) -> list[list[Conjunction]]:
        card = Scorecard("fail", {(term,): each for term, each in points.items()}, least)
        return spell_out(card, known, 0b1111, lambda _: True)

    assert spell({yes: -2, no: 2, high: 1}, 2)[0] == [(no,)]
    assert spell({yes: -1, no: 1, high: -1, low: 1}, 2) == [[(no, low)], [(yes,), (high,)]]


def find_reached(card: Scorecard, masks: Masks, among: int) -> int:
    """The tickets ``among`` these that reach the card."""
    return judge_compared([card], masks, among)["fail"]


@given(
    st.dictionaries(
        st.sampled_from([*OF_FIELDS, *WORDS]), st.integers(-5, 5).filter(bool), min_size=1
    ),
    st.integers(-6, 8),
    st.sets(st.sampled_from(range(len(MIXED))), min_size=8),
)
def test_what_a_ticket_has_counts_in_the_place_of_its_opposite_for_the_same_verdicts(
    points: dict[Expression, int], least: int, seen: set[int]
) -> None:
    among = sum(1 << place for place in seen)
    card = Scorecard("fail", {(term,): each for term, each in points.items()}, least)
    opposites = find_opposites(OF_MIXED, among)
    turned = make_points_positive(card, opposites)
    assert find_reached(turned, OF_MIXED, among) == find_reached(card, OF_MIXED, among)
    assert not any(opposites.get(line[0]) for line, each in turned.points.items() if each < 0)
    given = {term for (term,) in turned.points}
    assert not any(opposites.get(term) in given for term in given)  # one of them holds anyway
    assert opposites.keys().isdisjoint(WORDS)  # nobody reads that a text lacks a word
    if not turned.points:  # all tickets have the same
        return
    rule_set = turn_points(card, "pass", opposites)
    assert bool(rule_set) == (least <= 0)
    if rule_set:
        (other,) = rule_set.cards
        assert other.verdict == "pass" and rule_set.default == "fail" and other.least > 0
        passed = judge_compared([other], OF_MIXED, among)["pass"]
        assert passed == among & ~find_reached(card, OF_MIXED, among)


@example([({TERMS[0]: 1}, 0), ({}, 0), ({TERMS[0]: 1}, -1)])  # the last is ahead by one
@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from(TERMS), st.integers(-3, 3).filter(bool), max_size=2),
            st.integers(-3, 3),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_compared_cards_give_the_same_verdicts_without_those_that_have_no_condition(
    drawn: list[tuple[dict[OneOf, int], int]],
) -> None:
    everyone, labels = (1 << len(ROWS)) - 1, "abcd"
    cards = [
        Scorecard(label, {(term,): each for term, each in points.items()}, least)
        for label, (points, least) in zip(labels, drawn, strict=False)
    ]
    kept, default = drop_constant(cards, "else")
    assert all(card.points for card in kept)

    def judge(some: Sequence[Scorecard], rest: str) -> dict[str, int]:
        judged = judge_compared(some, MASKS, everyone) if some else {}
        verdicts = dict.fromkeys((*labels, "else"), 0) | judged
        verdicts[rest] |= everyone & ~sum(judged.values())
        return verdicts

    assert judge(kept, default) == judge(cards, "else")


def test_a_limit_that_takes_points_gives_them_on_its_other_side() -> None:
    readings = [
        read_summaries((f"torque: {place}; seal: {'ok' if place % 3 else 'worn'}",))
        for place in range(30)
    ]
    masks = find_terms(readings, SearchSpace(wide=True))
    everyone = (1 << 28) - 1  # that teach: two do not
    high = next(
        t for t in masks if t.as_limit and 5 < masks[t].bit_count() < 25 and "above" in t.key
    )
    (ok,), (worn,) = (
        [term for term in masks if term == OneOf("seal", (value,))] for value in ("ok", "worn")
    )
    card = Scorecard("fail", {(high,): -3, (worn,): -1, (ok,): 2}, -2)
    opposites = find_opposites(masks, everyone)
    low = opposites[high]
    assert "below" in low.key and masks[low] & everyone == everyone & ~masks[high]
    turned = make_points_positive(card, opposites)
    assert turned.points == {(low,): 3, (ok,): 3} and turned.least == 2


@pytest.mark.parametrize(("count", "is_counted"), [(8, True), (9, False)])
def test_no_more_than_eight_conditions_are_counted(count: int, is_counted: bool) -> None:
    """Nobody keeps count of more; nor of pairs, each of which is one for a card."""
    terms = [OneOf(name, ("1",)) for name in "abcdefghi"[:count]]
    masks = Masks({term: 1 << place for place, term in enumerate(terms)})
    card = Scorecard("fail", {(term,): 1 for term in terms}, 3)
    assert bool(write_as_count(card, "pass", make(masks))) == is_counted
    pairs: dict[Conjunction, int] = dict.fromkeys(combinations(terms[:3], 2), 1)
    assert write_as_count(Scorecard("fail", pairs, 2), "pass", make(masks)) is None


def test_a_card_that_any_three_of_five_conditions_reach_is_learnt_as_a_count() -> None:
    rows = list(product("01", repeat=5))
    readings = [
        read_summaries(("; ".join(map(": ".join, zip("abcde", row, strict=True))),)) for row in rows
    ]
    fails = sum(1 << n for n, row in enumerate(rows) if row.count("1") >= 3)
    masks, everyone = find_terms(readings, SearchSpace(wide=False)), (1 << len(rows)) - 1
    labelled, prices = {"fail": fails, "pass": everyone & ~fails}, {"fail": 1.0, "pass": 1.0}
    material = Material(masks, {}, labelled, fails, frozenset(), prices)
    found = [
        rule_set for rule_set in learn_cards(None, 5, material, everyone) if rule_set.size == 5
    ]
    assert any(
        type(term) is AtLeast for rule_set in found for line in rule_set.lines for term in line
    )
    assert all(find_wrong(rule_set, material, everyone) == 0 for rule_set in found)


def test_a_card_of_what_some_tickets_lack_is_a_list_for_those_that_have_it() -> None:
    readings = [
        read_summaries((text,))
        for text in ["history: 0"] * 30 + ["history: 1"] * 30 + ["area: x"] * 6
    ]
    masks = find_terms(readings, SearchSpace(wide=True))
    everyone, gaps = (1 << len(readings)) - 1, find_gaps(masks, readings)
    masks = masks.plus(list_guards(gaps, everyone))
    fails = (1 << 30) - 1
    material = Material(
        masks,
        gaps,
        {"fail": fails, "pass": everyone & ~fails},
        fails,
        frozenset(),
        {"fail": 1.0, "pass": 1.0},
    )
    rule_set = learn_cards(None, 1, material, everyone)[0]
    # no ticket is left without a verdict
    assert rule_set.lists and find_wrong(rule_set, material, everyone) == 0


def test_no_condition_of_another_field_stands_for_an_opposite() -> None:
    """Though tickets may show them so."""
    rows = [("x", "qr"[n % 2]) for n in range(10)] + [("yz"[n % 2], "p") for n in range(10)]
    masks = find_terms(
        [read_summaries((f"a: {a}; b: {b}",)) for a, b in rows], SearchSpace(wide=False)
    )
    one, other = OneOf("a", ("x",)), OneOf("b", ("p",))
    everyone = (1 << len(rows)) - 1
    assert masks[one] == everyone & ~masks[other]
    opposites = find_opposites(masks, everyone)
    assert all(each.fields == term.fields for term, each in opposites.items())


def test_a_limit_has_its_other_side_for_an_opposite_whatever_else_tickets_there_show() -> None:
    worn, new = (OneOf("seal", (value,)) for value in ("worn", "new"))
    high, low = Limit("torque", "above", "5"), Limit("torque", "below", "5")
    known = Masks({worn: 0b1111, low: 0b1111, new: 0b11110000, high: 0b11110000})
    assert find_opposites(known, 0b11111111) == {worn: new, new: worn}
    alone = Masks({worn: 0b1111, high: 0b11110000, low: 0b1111})
    assert find_opposites(alone, 0b11111111) == {high: low}


def test_a_value_says_more_than_all_others() -> None:
    one, others = OneOf("a", ("x",)), OneOf("a", ("y", "z"))
    assert find_opposites(Masks({one: 0b1111, others: 0b11110000}), 0b11111111) == {others: one}


def test_a_ticket_without_any_point_never_reaches_a_card_that_is_learnt() -> None:
    """Where most tickets fail, points are given to those that pass."""
    draw = Random(1)
    readings = [
        read_summaries(("; ".join(f"{name}: {draw.choice('xyz')}" for name in "abcdefgh"),))
        for _ in range(300)
    ]
    passes = sum(
        1 << n
        for n, each in enumerate(readings)
        if sum(value == "x" for value in each.pairs.values()) > 3 + draw.randint(0, 1)
    )
    everyone = (1 << 300) - 1
    labelled = {"fail": everyone & ~passes, "pass": passes}
    prices = {"fail": 1.0, "pass": 1.0}
    masks = find_terms(readings, SearchSpace(wide=True))
    material = Material(masks, {}, labelled, passes, frozenset(), prices)
    cards = [card for each in learn_cards(None, 12, material, everyone) for card in each.cards]
    assert {card.verdict for card in cards} == {"pass"} and all(card.least > 0 for card in cards)


def test_where_a_line_tells_every_label_it_is_said_in_lines() -> None:
    readings = [read_summaries((f"health: {'abc'[n % 3]}; size: {n % 7}",)) for n in range(90)]
    labelled = {name: sum(1 << n for n in range(place, 90, 3)) for place, name in enumerate("ABC")}
    everyone = (1 << 90) - 1
    masks = find_terms(readings, SearchSpace())
    material = Material(masks, {}, labelled, everyone, frozenset(), {})
    rule_set, *_ = learn_compared(0, None, 2, material, everyone)
    assert [part.verdict for part in rule_set.lists] == ["A", "B"] and rule_set.default == "C"
    assert find_wrong(rule_set, material, everyone) == 0


@pytest.mark.parametrize(("wrong", "is_told"), [(0, True), (1, True), (2, False)])
def test_a_label_that_one_line_tells_has_no_card(wrong: int, is_told: bool) -> None:
    """Of a hundred tickets, one may have another label. Two lines tell no label, and one without
    tickets has neither a line nor a card."""
    rows = [
        (f"health: {'abc'[n % 3]}; size: {n * 7 % 30}; kind: {'xy'[n * 11 % 5 // 3]}", n)
        for n in range(303)
    ]
    readings = [read_summaries((text,)) for text, _ in rows]
    masks, everyone = find_terms(readings, SearchSpace(wide=True)), (1 << len(rows)) - 1
    refused = sum(1 << n for _, n in rows if n % 3 == 2) & ~((1 << 3 * wrong) - 1)
    first = sum(1 << n for _, n in rows if n * 7 % 30 > 17 or n * 11 % 5 < 3) & ~refused
    second = everyone & ~refused & ~first
    labelled = {"refused": refused, "none": 0, "first": first, "second": second}
    material = Material(masks, {}, labelled, everyone, frozenset(), {})
    *_, rule_set = learn_compared(0, None, 4, material, everyone)
    assert [part.verdict for part in rule_set.lists] == ["refused"] * is_told
    assert {card.verdict for card in rule_set.cards} == {"first", "second", "refused"} - {
        part.verdict for part in rule_set.lists
    }
    if is_told:
        assert rule_set.lines == ((OneOf("health", ("c",)),),)
        judged = judge_by_rule_set(rule_set, masks, everyone)
        assert judged["refused"] == masks[OneOf("health", ("c",))]  # whatever the cards would say
        assert sum(map(int.bit_count, judged.values())) <= len(rows)  # each has one verdict


ANY_LINES = st.lists(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(("above", "below")), st.integers(0, 3)),
        min_size=1,
        max_size=3,
        unique_by=lambda each: each[:2],
    ),
    min_size=1,
    max_size=3,
)


@given(ANY_LINES, st.booleans(), st.booleans())
@example([[("a", "below", 2)], [("b", "above", 1)]], False, False)
@example([[("a", "above", 1), ("b", "below", 2), ("c", "above", 0)]], False, False)
@example([[("a", "below", 2)], [("c", "below", 1)]], True, True)
@example([[("a", "below", 2)], [("c", "below", 1)]], True, False)
def test_what_passes_is_said_as_what_fails_where_that_is_as_short(
    rows: list[list[tuple[str, str, int]]], lacks: bool, is_missing_fine: bool
) -> None:
    """Of limits that are numbers of tickets, too, and of numbers that tickets lack."""
    cells = [*product(range(4), repeat=3)]
    texts = [
        "; ".join(map("{}: {}".format, "ab" if lacks and c > 2 else "abc", (a, b, c)))
        for a, b, c in cells
    ]
    readings = [read_summaries((text,)) for text in texts]
    plain, everyone = Masks({}, Scales(find_numbers(readings))), (1 << len(cells)) - 1
    gaps = {"c": sum(1 << n for n, (_, _, c) in enumerate(cells) if c > 2)} if lacks else {}
    masks = plain.plus(list_guards(gaps, everyone))
    written: list[Conjunction] = [
        tuple(Limit(name, "above" if side == "above" else "below", str(n)) for name, side, n in row)
        for row in rows
    ]
    if lacks and is_missing_fine:
        written.append((Missing("c"),))
    lines = drop_guards([add_guards(line, masks, gaps, everyone) for line in written])
    material = replace(make(masks), gaps=gaps)
    rule_set = RuleSet((DecisionList("pass", lines),), "fail")
    turned = turn_list(rule_set, material, everyone)
    if turned is None:
        names = [name for row in rows for name, _, _ in row]
        is_one_deep = len(written) == 1 or all(len(line) == 1 for line in written)
        is_plain = len({*names}) == len(names) and is_one_deep
        tells = all(0 < (masks[term] & everyone) < everyone for line in lines for term in line)
        assert not (is_plain and tells) or (lacks and "c" in names)
        return
    (part,) = turned.lists
    assert (part.verdict, turned.default) == ("fail", "pass") and turned.size <= rule_set.size
    possible = Masks(
        {term: find_possible(term, masks, gaps) for line in part.lines for term in line}
    )
    failed = hold_any(possible, part.lines)  # no ticket is left open for what it lacks
    assert failed & everyone == everyone & ~hold_any(masks, lines)
    assert not any(term.is_denied and not is_guard(term) for line in part.lines for term in line)


def test_what_is_missing_and_passes_does_not_keep_a_list_from_saying_what_fails() -> None:
    rows = [*product(("good", "new", "worn"), (None, 20, 23, 25, 30))]
    texts = [f"Seal: {seal}" + (f"; Temp: {temp}" if temp else "") for seal, temp in rows]
    readings, everyone = [read_summaries((text,)) for text in texts], (1 << len(rows)) - 1
    masks = find_terms(readings, SearchSpace())
    gaps = find_gaps(masks, readings)
    masks = masks.plus(list_guards(gaps, everyone))
    assert Missing("Temp") not in masks  # it is missing too seldom
    above, worn = Limit("Temp", "above", "24"), OneOf("Seal", ("worn",))
    lines = ((OneOf("Seal", ("good", "new")),), (above.turned,), (Missing("Temp"),))
    rule_set = RuleSet((DecisionList("pass", lines),), "fail")
    turned = turn_list(rule_set, replace(make(masks), gaps=gaps), everyone)
    assert turned and turned.lines == ((make_guard("Temp"), worn, above),)


@given(
    st.lists(
        st.tuples(
            st.dictionaries(
                st.sampled_from([*OF_FIELDS, *WORDS]), st.integers(-4, 4).filter(bool), max_size=5
            ),
            st.integers(-4, 8),
        ),
        min_size=2,
        max_size=4,
    ),
    st.sets(st.sampled_from(range(len(MIXED))), min_size=8),
    st.booleans(),
)
@example([({OF_FIELDS[0]: 3, OF_FIELDS[1]: 1}, 3), ({OF_FIELDS[2]: 1}, 2)], {*range(8)}, False)
def test_compared_cards_give_the_same_verdicts_without_needless_lines(
    drawn: list[tuple[dict[Expression, int], int]], seen: set[int], is_listed: bool
) -> None:
    """Of tickets that no list before them decides. Words of a list stay, and a card that none of
    these tickets reaches is gone."""
    among, labels = sum(1 << place for place in seen), ["a", "b", "c", "d"]
    first = DecisionList("first", ((OF_FIELDS[-1],),))
    cards = []
    for label, (points, least) in zip(labels, drawn, strict=False):
        words = [(term,) for term in points if term in WORDS] if is_listed else []
        each: dict[Conjunction, int] = {(term,): score for term, score in points.items()}
        cards.append(Scorecard(label, each, least, (words,) if words else ()))
    before = RuleSet((first, *cards), "else")
    material = replace(make(OF_MIXED), labelled=dict.fromkeys(["first", *labels, "else"], 0))
    plain = drop_needless(before, material, among)

    def judge(rule_set: RuleSet) -> dict[str, int]:
        judged = judge_by_rule_set(rule_set, OF_MIXED, among)
        verdicts = dict.fromkeys(("first", *labels, "else"), 0) | judged
        verdicts["else"] |= among & ~sum(judged.values())
        return verdicts

    assert judge(plain) == judge(before)
    assert plain.size <= before.size and plain.lists[0] == first
    said = {term for part in plain.cards for line in part.points for term in line}
    said |= {term for line in plain.lines for term in line}
    assert said >= {term for card in cards for words in card.lists for (term,) in words}
    free = among & ~OF_MIXED[OF_FIELDS[-1]]
    for card in plain.cards if plain != before else ():
        is_taken = any(score < 0 for score in card.points.values())
        assert card.lists or is_taken or judge_compared([card], OF_MIXED, free)[card.verdict]


def test_a_line_that_is_needed_does_not_keep_a_needless_one_of_more_points() -> None:
    """All tickets that have b have a."""
    a, b, _, d = TERMS
    among = sum(1 << ROWS.index(row) for row in ROWS if sum(row) == 1 or row[:2] == (True, True))
    among &= ~MASKS[b] | MASKS[a]
    cards = (Scorecard("A", {(a,): 1, (b,): 2}, 1), Scorecard("D", {(d,): 5}, 1))
    material = replace(make(MASKS), labelled={"A": 0, "D": 0, "else": among})
    plain = drop_needless(RuleSet(cards, "else"), material, among)
    assert plain == RuleSet((DecisionList("D", ((d,),)), DecisionList("A", ((a,),))), "else")
    both_or_none = among & ~(MASKS[a] ^ MASKS[b])  # either line would do: that of more points stays
    plain = drop_needless(RuleSet(cards, "else"), material, both_or_none)
    assert plain == RuleSet((DecisionList("D", ((d,),)), DecisionList("A", ((b,),))), "else")


@given(
    st.lists(
        st.tuples(st.sampled_from(TERMS), st.integers(1, 8), st.integers(-3, 8)),
        min_size=1,
        max_size=4,
    )
)
@example([(TERMS[0], 7, 3), (TERMS[1], 6, 2)])
@example([(TERMS[0], 7, 0), (TERMS[1], 6, 6), (TERMS[2], 3, 0)])
def test_cards_of_one_condition_each_are_lists_in_an_order_that_says_the_same(
    drawn: list[tuple[OneOf, int, int]],
) -> None:
    """At ties, too, and where a card is reached without any point."""
    everyone, labels = (1 << len(ROWS)) - 1, "wxyz"
    cards = tuple(
        Scorecard(label, {(term,): points}, least)
        for label, (term, points, least) in zip(labels, drawn, strict=False)
    )
    compared, material = RuleSet(cards, "else"), make(MASKS)
    plain = write_in_order(compared, material, everyone)

    def judge(rule_set: RuleSet) -> dict[str, int]:
        judged = judge_by_rule_set(rule_set, MASKS, everyone)
        verdicts = dict.fromkeys((*labels, "else"), 0) | judged
        verdicts[rule_set.default or ""] |= everyone & ~sum(judged.values())
        return verdicts

    if plain is None:
        one_for_all = sum(map(bool, judge(compared).values())) == 1
        assert one_for_all or any(card.least <= 0 for card in cards)
    else:
        assert judge(plain) == judge(compared) and not plain.cards
        assert plain.default == "else"
        assert plain.size <= compared.size
    more = Scorecard("w", {(TERMS[0],): 1, (TERMS[1],): 1}, 1)
    taken = Scorecard("w", {(TERMS[0],): -1}, 0)
    for other in (more, taken):
        assert write_in_order(RuleSet((other, *cards), "else"), material, everyone) is None
