import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from bending import NASTY, TEXTS
from hypothesis import example, given
from hypothesis import strategies as st

from stageb.guidance.rules.candidates import SearchSpace, find_conditions, reading
from stageb.guidance.rules.conditions import (
    Expression,
    Limit,
    Mentions,
    OneOf,
    Order,
    Same,
    compile_expression,
)
from stageb.guidance.rules.limits import LIMITS
from stageb.guidance.rules.parse import RuleCode, parse_rule
from stageb.guidance.rules.prompts import WORDS, clue_text
from stageb.guidance.rules.value_types import (
    MOST_CHARS,
    OPERATORS,
    Computed,
    Reading,
    begins_cjk,
    parse_number,
    read_summaries,
)
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.words.types import Content, Ticket
from stageb.untrusted.clean_text import fold_value, text_fault

# Reading


@pytest.mark.parametrize(
    ("summary", "pairs", "words"),
    [
        ("part: hose; state: worn", {"part": "hose", "state": "worn"}, ""),
        ("part = hose, state=worn", {"part": "hose", "state": "worn"}, ""),
        ("The hose is worn. part is  a   valve.", {"The hose": "worn", "part": "a valve"}, ""),
        ("阀门：松动；颜色:红，位置＝上。", {"阀门": "松动", "颜色": "红", "位置": "上"}, ""),
        ("a: b | c: d\ne: f\r\ng: h", {"a": "b", "c": "d", "e": "f", "g": "h"}, ""),
        ("weight: 3.5 kg; time: 12:30", {"weight": "3.5 kg", "time": "12:30"}, ""),
        ("a: b; a: c", {"a": "c"}, ""),
        ("  a\t:\t b \x0b", {"a": "b"}, ""),
        ("hoses leak", {}, "hos hose hoses leak"),  # an ending may hide a word
        ("leaked leaking LEAKS", {}, "leak leaked leaking leaks"),
        ("its is a wee age-old shoe's age", {}, "its is wee age-old shoe's shoe' age"),
        ("漏油", {}, "漏油"),
        ("管子漏油 now", {}, "管子 子漏 漏油 管子漏 子漏油 管子漏油 now"),
        # a heading
        ("note: the hose had been torn by it", {}, "note the hose had been torn by it"),
        ("a: ; : b; :; = ; is", {}, "is"),
        ("a: \u200b; \u200b: b", {}, ""),
        ("", {}, ""),
    ],
)
def test_pairs_are_told_from_words_by_punctuation(
    summary: str, pairs: dict[str, str], words: str
) -> None:
    found = read_summaries((summary,))
    assert found.pairs == pairs
    assert found.words == set(words.split())


def test_summaries_are_read_together() -> None:
    read = read_summaries(("a: b", "Leak; c: d"))
    assert (read.pairs, read.words, read.texts) == (
        {"a": "b", "c": "d"},
        frozenset({"leak"}),
        ("leak",),
    )


@given(st.lists(TEXTS, max_size=3))
def test_any_text_can_be_read_and_what_is_read_fits_on_a_line(summaries: list[str]) -> None:
    found = read_summaries(tuple(summaries))
    for text in (*found.pairs, *found.pairs.values()):
        assert not text_fault(text)
        assert len(text) <= MOST_CHARS
    for word in found.words:
        assert 1 < len(word) <= MOST_CHARS
        assert len(word.splitlines()) == len(word.split()) == 1
    once, twice = (find_conditions(some) for some in ([found], [found, found]))
    assert set(twice.values()) <= {3} and once.keys() <= twice.keys()
    # characters are a word where they come often enough
    assert all(begins_cjk(each.word) for each in twice.keys() - once.keys())


NUMBERS = st.sampled_from(["0", "1", "2", "3", "2.5", "-4", "12 mm", "1400"])


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), min_size=3, max_size=9))
def test_a_rule_in_the_words_of_a_computed_condition_decides_the_tickets_that_were_counted(
    rows: list[Any],
) -> None:
    names = ("Torque [Nm]", "speed", "a", "tool wear")
    texts = [
        "; ".join(f"{name}: {value}" for name, value in zip(names, row, strict=True))
        for row in rows
    ]
    readings = [read_summaries((text,)) for text in texts]
    known = Vocabulary.of(
        Ticket("m", str(place), "pass", (("image_1", text),)) for place, text in enumerate(texts)
    )
    computed = {
        condition: mask
        for condition, mask in find_conditions(
            readings, SearchSpace(arithmetic=True, comparable=frozenset(names))
        ).items()
        if condition.family == "computed"
    }
    for condition, mask in computed.items():
        code = parse_rule(f"Fail if {clue_text([condition], WORDS['en'])}.", known, WORDS["en"])
        assert isinstance(code, RuleCode)
        holds = compile_expression(code.expression)
        assert mask == sum(1 << place for place, each in enumerate(readings) if holds(each))
    assert not any(condition.family == "computed" for condition in find_conditions(readings))


def test_limits_lie_where_the_wrong_tickets_do() -> None:
    wrong = [("80", "3"), ("85", "9"), ("90", "-20")]
    rows = [*wrong, *((str(k % 71), str(k % 43)) for k in range(200))]
    readings = [Reading({"torque": one, "wear": other}, frozenset()) for one, other in rows]
    forms = SearchSpace(arithmetic=True, comparable=frozenset({"torque", "wear"}))
    evenly, nearby = (find_conditions(readings, forms, count) for count in (0, len(wrong)))
    assert evenly.items() <= nearby.items()
    for condition, met in [
        (Limit("torque", "above", "70"), 0b111),
        (Limit("torque", "above", "85"), 0b100),
        (Limit("wear", "below", "0"), 0b100),
        (Limit(Computed("torque", "-", "wear"), "above", "76"), 0b101),
    ]:
        assert nearby[condition] == met
        assert condition not in evenly


WORDS_SAID = "oil leak leaks leaking at the then theory theft hose a hoses,"
SAID = st.lists(st.sampled_from(WORDS_SAID.split()), min_size=1, max_size=9)


def test_products_are_compared_with_products_of_other_names() -> None:
    readings = [
        Reading({"a": "2", "b": "3", "c": "1", "d": str(d)}, frozenset()) for d in (1, 5, 6, 7)
    ]
    readings += [
        Reading({name: str(k + 1) for k, name in enumerate("abcd")}, frozenset()) for _ in range(2)
    ]
    readings.append(Reading({"a": "9", "b": "1", "c": "7", "d": "1"}, frozenset()))
    found = find_conditions(readings, SearchSpace(arithmetic=True, comparable=frozenset("abcd")))
    assert found[Order(Computed("a", "×", "b"), "above", Computed("c", "×", "d"))] == 0b1000011


def test_fields_of_two_units_or_of_other_values_are_not_compared_unless_a_person_allows_it() -> (
    None
):
    rows = [(f"{300 + n % 7}", f"{310 + n % 5}", f"{n % 40}", f"{n % 4}") for n in range(200)]
    names = ("air [K]", "process [K]", "torque [Nm]", "roles")
    readings = [Reading(dict(zip(names, row, strict=True)), frozenset()) for row in rows]

    def find_pairs(comparable: frozenset[str]) -> set[frozenset[str]]:
        found = find_conditions(readings, SearchSpace(arithmetic=True, comparable=comparable))
        return {frozenset(each.fields) for each in found if each.family == "computed"}

    kelvin = frozenset({"air [K]", "process [K]"})
    assert find_pairs(frozenset()) == {kelvin}
    allowed = frozenset({"torque [Nm]", "air [K]"})
    assert find_pairs(allowed) == {kelvin, allowed}


def test_no_rule_names_a_word_that_only_holds_a_sentence_together() -> None:
    found = find_conditions(
        [
            read_summaries((text,))
            for text in ("it is the seal", "the seal was not in", "a hose off")
        ]
    )
    assert {each.word for each in found if each.word} == {"seal", "not", "hose", "off"}


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """What takes longer is a failure, also where it would never end."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"over {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


LONG = " |\t \t|a |a is |is | is|a:|: |a-|-|1.|漏|a: b; |\u200b|\x00:|s|a'|.|\n".split("|")


@pytest.mark.parametrize("part", LONG)
def test_long_hostile_texts_are_read_at_once(part: str) -> None:
    """100,000 characters; of a pattern that goes back over them, each would cost as many."""
    long = part * (100_000 // len(part))
    with within(5.0):
        for text in (long, f"{long}a", f"a{long}b", f"a: b{long}c", f"a{long}: b", f"a is{long}b:"):
            read_summaries((text,))


# Conditions, against the plain statement of each

VALUES = st.sampled_from(
    ["1", "2", "3.5", "-4", "10 kg", "07", "1.0", "low", "Low", "med", "high", "b"]
)
READINGS = st.lists(
    st.builds(
        Reading,
        st.dictionaries(st.sampled_from(["a", "b", "c", "left w"]), VALUES, max_size=4),
        st.frozensets(st.sampled_from(["leak", "rust", "漏油"]), max_size=2),
        st.just(()),
        st.just(False),
    ),
    max_size=12,
)


def plainly(condition: Expression, each: Reading) -> bool:
    """Whether a condition holds, as its words say."""
    kind, name, value, second = condition.key
    if kind == "mentions":
        return value in each.words
    if name not in each.pairs:
        return False
    own, pairs = each.pairs[name], each.pairs
    match kind:
        case "is":
            return fold_value(own) == fold_value(value)
        case "among":
            return fold_value(own) in map(fold_value, (value, second))
        case "above":
            return (parse_number(own) or 0.0) > (parse_number(value) or 0.0)
        case "below":
            return (parse_number(own) or 0.0) < (parse_number(value) or 0.0)
    if value not in pairs:
        return False
    other = pairs[value]
    match kind:
        case "equals":
            return fold_value(own) == fold_value(other)
        case "differs":
            return fold_value(own) != fold_value(other)
        case "over":
            return (parse_number(own) or 0.0) > (parse_number(other) or 0.0)
        case _:
            return (parse_number(own) or 0.0) < (parse_number(other) or 0.0)


@given(READINGS)
def test_a_condition_holds_where_its_words_say(readings: list[Reading]) -> None:
    found = find_conditions(readings)
    for condition, mask in found.items():
        assert mask == sum(
            plainly(condition, each) << place for place, each in enumerate(readings)
        ), condition
    named = [c.key[1:3] for c in found if c.key[0] == "is"]
    assert {*named} <= (said := {pair for each in readings for pair in each.pairs.items()})
    assert sorted((name, fold_value(value)) for name, value in named) == sorted(
        {(name, fold_value(value)) for name, value in said}
    )
    words = {word for each in readings for word in each.words}
    assert (
        {word for word in words if not begins_cjk(word)}
        <= {c.word for c in found if c.word}
        <= words
    )


@given(READINGS, st.lists(st.booleans(), min_size=12, max_size=12))
def test_a_condition_is_suggested_of_the_tickets_that_it_holds_of_as_code(
    readings: list[Reading], are_counted: list[bool]
) -> None:
    """Of counts, too, where what a ticket does not name is 0."""
    readings = [
        Reading(each.pairs, each.words, (), is_counted)
        for each, is_counted in zip(readings, are_counted, strict=False)
    ]
    for condition, mask in find_conditions(readings, SearchSpace(wide=True)).items():
        holds = compile_expression(condition)
        assert mask == sum(1 << place for place, each in enumerate(readings) if holds(each)), (
            condition
        )


def column(values: list[str], name: str = "a") -> list[Reading]:
    return [Reading({name: value}, frozenset()) for value in values]


def of_kind(found: Mapping[Expression, int], *kinds: str) -> set[Expression]:
    return {condition for condition in found if condition.key[0] in kinds}


def test_a_column_that_is_called_like_a_count_of_one_image_is_a_column_where_nothing_is_counted() -> (
    None
):
    readings = [read_summaries((f"image_1_lid: {state}",)) for state in ("torn", "new", "torn")]
    assert OneOf("image_1_lid", ("torn",)) in find_conditions(readings)


def test_no_line_names_an_endless_word_or_a_text_as_a_value() -> None:
    contents = (Content((("code", value),), ()) for value in ("x" * 60, "a b c d e", "y"))
    readings = [reading(Ticket("m", "g", "fail", (), content=each)) for each in contents]
    named = {each.values for each in find_conditions(readings) if isinstance(each, OneOf)}
    assert named == {("y",)}


def test_numbers_of_two_units_have_no_limits() -> None:
    mixed = find_conditions(column(["1 mm", "2 kg", "3 mm"]))
    assert of_kind(mixed, "above", "below") == set()


def test_names_with_few_values_in_common_are_not_compared() -> None:
    pairs = zip("abcde", "abxyz", strict=True)
    readings = [read_summaries((f"one: {one}; other: {other}",)) for one, other in pairs]
    assert of_kind(find_conditions(readings), "equals", "differs") == set()


def test_limits_are_sought_where_all_values_are_numbers_and_values_joined_where_they_are_not() -> (
    None
):
    numbers, words = (
        find_conditions(column(["1", "2", "3"])),
        find_conditions(column(["1", "2", "x"])),
    )
    assert len(of_kind(numbers, "above", "below")) == 6
    assert of_kind(numbers, "among") == of_kind(words, "above", "below") == set()
    assert len(of_kind(words, "among")) == 3
    # nothing that is does not say
    assert of_kind(find_conditions(column(["1", "2"])), "above", "below", "among") == set()
    assert of_kind(find_conditions(column(list("abcdefgh"))), "among") == set()  # names, rather


@given(st.lists(st.integers(-50, 50), min_size=3, max_size=60, unique=True))
def test_limits_are_written_as_tickets_have_them_and_are_spread_evenly(values: list[int]) -> None:
    found = of_kind(find_conditions(column([f"{value} mm" for value in values])), "above")
    limits = sorted(int(condition.key[2].removesuffix(" mm")) for condition in found)
    assert set(limits) <= set(values)
    assert len(limits) == min(LIMITS, len(values))
    places = [sorted(values).index(limit) for limit in limits]
    gaps = {after - before for before, after in pairwise(places)}
    assert max(gaps) - min(gaps) <= 1


@given(
    st.lists(NUMBERS, min_size=3, max_size=60),
    st.lists(SAID.map(" ".join), min_size=3, max_size=60),
)
def test_a_rule_in_the_words_of_a_condition_decides_the_tickets_that_were_counted(
    numbers: list[str], texts: list[str]
) -> None:
    contents = [
        Content((("size", size), ("note", note)), ())
        for size, note in zip(numbers, texts, strict=False)
    ]
    tickets = [
        Ticket("m", str(place), "pass", (("image_1", "-"),), content=each)
        for place, each in enumerate(contents)
    ]
    readings, known = [*map(reading, tickets)], Vocabulary.of(tickets)
    for condition, mask in find_conditions(readings, SearchSpace(wide=True)).items():
        code = parse_rule(f"Fail if {clue_text([condition], WORDS['en'])}.", known, WORDS["en"])
        assert isinstance(code, RuleCode)
        holds = compile_expression(code.expression)
        assert mask == sum(1 << place for place, each in enumerate(readings) if holds(each)), (
            condition
        )


def test_a_stem_stands_for_all_words_that_begin_so() -> None:
    readings = [
        read_summaries((text,))
        for text in ("vibrates", "high vibration", "vibrating shaft", "quiet shaft")
    ]
    found = find_conditions(readings, SearchSpace(wide=True))
    assert found[Mentions(("vibrat*",))] == 0b111  # all that these words have in common
    assert Mentions(("vibra*",)) not in found
    assert Mentions(("shaft*",)) not in found  # no stem of several words
    assert not any(condition.word.endswith("*") for condition in find_conditions(readings))


def test_words_of_a_text_column_count_in_short_texts_too() -> None:
    notes = [
        "leak at the lower seal of pump",
        "leak",
        "seal replaced",
        "torn hose at the upper end",
    ]
    readings = [
        reading(Ticket("m", str(n), "pass", (), content=Content((("note", note),), ())))
        for n, note in enumerate(notes)
    ]
    found = find_conditions(readings)
    assert found[Mentions(("leak",))] == 0b11
    assert found[Mentions(("seal",))] == 0b101


def test_two_limits_at_once_hold_for_most_of_many_tickets_and_rules_say_them() -> None:
    readings, forms = column([str(n) for n in range(3000)]), SearchSpace(wide=True)
    found = {
        condition.key: mask
        for condition, mask in find_conditions(readings, forms).items()
        if condition.is_between
    }
    assert any(int(low) < 500 and int(high) > 2500 for _, _, low, high in found)
    for (_, _, low, high), mask in found.items():
        inside = [n for n in range(3000) if int(low) < n < int(high)]
        assert mask == sum(1 << n for n in inside) and len(inside) > 1500
    # from few, chance makes them
    assert not any(each.is_between for each in find_conditions(readings[::8], forms))


def test_fine_limits_have_the_fewest_digits_in_the_middle_of_the_gap_and_lie_at_both_ends() -> None:
    found = find_conditions(
        column(["95.1275", "95.8956", "98.2103", "104"]), SearchSpace(wide=True)
    )
    limits = {
        (limit.side, limit.limit): mask for each, mask in found.items() if (limit := each.as_limit)
    }
    assert limits["above", "97"] == 0b1100
    assert limits["above", "100"] == 0b1000
    assert limits["below", "97"] == 0b11
    many = find_conditions(column([f"{n} mm" for n in range(1000)]), SearchSpace(wide=True))
    above = sorted(int(c.key[2].removesuffix(" mm")) for c in of_kind(many, "above"))
    assert above[1] - above[0] < (above[17] - above[16]) / 2
    assert above[-1] - above[-2] < (above[17] - above[16]) / 2


def test_of_many_tickets_limits_are_denser_and_whole_numbers_that_few_share_are_no_names() -> None:
    def count(values: Iterable[int]) -> tuple[int, int]:
        found = find_conditions(column([str(value) for value in values]), SearchSpace(wide=True))
        return len(of_kind(found, "is")), len(of_kind(found, "above"))

    assert count(range(4_000)) == (4_000, 32)
    assert count(range(8_000)) == (0, 62)
    assert count(n % 1_000 for n in range(8_000))[0] == 1_000  # names of parts, say


def test_of_several_ways_to_write_a_limit_one_is_taken_whatever_the_order() -> None:
    values = ["1", "1.0", "1 mm", "2", "3"]
    assert set(find_conditions(column(values))) == set(find_conditions(column(values[::-1])))
    assert len(of_kind(find_conditions(column(values)), "above")) == 3


def test_names_are_compared_where_they_have_values_in_common() -> None:
    apart = [Reading({"a": "1", "b": "x"}, frozenset()), Reading({"a": "2", "b": "y"}, frozenset())]
    alike = [Reading({"a": "x", "b": "x"}, frozenset()), Reading({"a": "y", "b": "x"}, frozenset())]
    assert of_kind(find_conditions(apart), "equals", "differs") == set()
    # one value in common is a chance
    assert of_kind(find_conditions(alike), "equals", "differs", "over", "under") == set()
    alike.append(Reading({"a": "x", "b": "y"}, frozenset()))
    assert find_conditions(alike)[Same("a", "b")] == 0b001
    assert find_conditions(alike)[Same("a", "b", False)] == 0b110
    assert of_kind(find_conditions(alike), "over", "under") == set()


@given(st.sets(st.sampled_from("pqrs"), min_size=2), st.sets(st.sampled_from("pqrs"), min_size=2))
@example({"p", "q", "r"}, {"p", "q", "s"})
def test_names_are_compared_where_half_of_their_values_are_common(
    one: set[str], other: set[str]
) -> None:
    readings = [Reading({"a": a, "b": b}, frozenset()) for a in one for b in other]
    found = of_kind(find_conditions(readings), "equals", "differs")
    both = {Same("a", "b"), Same("a", "b", False)}
    assert found == (both if len(one & other) >= len(one ^ other) else set())


@given(READINGS, st.data())
def test_the_order_of_tickets_does_not_matter(readings: list[Reading], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(readings))))
    masks, mixed = find_conditions(readings), find_conditions([readings[place] for place in order])
    assert set(masks) == set(mixed)
    for condition, mask in masks.items():
        assert mixed[condition] == sum(
            (mask >> place & 1) << now for now, place in enumerate(order)
        )


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("3", 3.0), ("-2.5 kg", -2.5), ("26.54 %", 26.54), ("310K", 310.0), ("1.", 1.0), ("7 kg/m3", 7.0), ("4 cm2", 4.0),
        ("3-4", None), ("0.2 - 0.3", None), ("1,5", None), ("1,234.5", None), ("1.234,5", None), ("2024-05-01", None),
        ("20:1", None), ("4 m32", None), ("1e5", None), ("kg 3", None), ("#REF!", None), ("", None), (".5", 0.5),
        ("5½", None), ("5 ½ in", None), ("10³", None), ("1.5⁻³", None), ("1e-05²", None), ("5万", None),
        ("4 m²", 4.0), ("4m³", 4.0), ("25 ⁰C", 25.0), ("1.5 kg·m⁻³", 1.5), ("5k", 5.0), ("5 个", 5.0),
        ("5千克", 5.0), ("0.5兆帕", 0.5), ("1e-05", 1e-05), ("2.5E-5 m2", 2.5e-05), ("0.2-", None), ("3.-", None),
        ("1e-05-", None), ("3 --", 3.0), ("3 mm-", 3.0),
    ],
)  # fmt: skip
def test_a_value_is_a_number_if_nothing_follows_but_a_unit(
    value: str, wanted: float | None
) -> None:
    assert parse_number(value) == wanted


@pytest.mark.parametrize("value", NASTY)
def test_no_value_breaks_numbers(value: str) -> None:
    parse_number(value[:MOST_CHARS])


@given(st.integers(0, 60), st.integers(13, 40), st.booleans())
def test_whole_numbers_in_a_row_are_measured_and_scattered_ones_may_be_codes(
    least: int, count: int, in_a_row: bool
) -> None:
    values = [least + each if in_a_row else 100 + 37 * each for each in range(count)]
    readings = [read_summaries((f"a: {value}",)) for value in values for _ in range(6)]
    found = find_conditions(readings, SearchSpace(wide=True))
    assert any(isinstance(each, Limit) for each in found)
    assert any(isinstance(each, OneOf) for each in found) != in_a_row


@pytest.mark.parametrize("sign", sorted(OPERATORS))
def test_limits_are_sought_on_what_two_fields_give_by_every_operator(sign: str) -> None:
    """Nothing is divided by 0, and two values alone tell no more than a value does."""
    rows = [(n % 7 - 3, n % 5 - 2) for n in range(35)]
    found = find_conditions(
        [read_summaries((f"one: {one}; other: {other}",)) for one, other in rows],
        SearchSpace(arithmetic=True),
    )
    limits = [
        (term, mask)
        for term, mask in found.items()
        if isinstance(term, Limit) and term.of == Computed("one", sign, "other")
    ]
    assert limits
    for limit, mask in limits:
        for place, (one, other) in enumerate(rows):
            if sign == "/" and not other:
                assert not mask >> place & 1
                continue
            number, most = OPERATORS[sign](one, other), float(limit.limit)
            holds = number > most if limit.side == "above" else number < most
            assert holds == bool(mask >> place & 1)
