"""Named values are read as they stand, whatever marks they hold, and wherever they stand."""

from __future__ import annotations

import json
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stageb.guidance.rules.conditions import Limit, Order, compile_expression
from stageb.guidance.rules.fields import Columns, read_images, read_row, read_ticket, sort_summaries
from stageb.guidance.rules.predicates import is_missing, is_one_of
from stageb.guidance.rules.value_types import (
    OPERATORS,
    Computed,
    Quantity,
    Reading,
    clean_value,
    find_quantity,
    parse_quantity,
    read_content,
    read_summaries,
)
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.words.types import Ticket
from stageb.untrusted.clean_text import fold_value

NAMES = ("Seal", "No. of cracks", "Temp. [°C]", "Length, max", "Seal: state", "Remarks", "A is B")
TEXTS = st.text(st.sampled_from("ab ;,|=:：；，。\n.5"), max_size=12)
PLUGS = [{"object": "plug", "state": {"loose": 2}}, {"object": "plug", "kind": "ODF"}, {"n": 3}]


@given(st.fixed_dictionaries(dict.fromkeys(NAMES, TEXTS)))
def test_a_column_has_the_value_of_its_own_cell_under_its_own_name(cells: dict[str, str]) -> None:
    shown, content = read_row(cells, Columns())
    pairs = read_content(content).pairs
    assert pairs == {name: clean_value(text) for name, text in cells.items() if text.strip()}
    assert [text.count(": ") >= len(pairs) for _, text in shown] == [True] * bool(pairs)


def test_a_text_in_a_cell_is_read_as_words_too_and_a_value_is_not() -> None:
    read = read_ticket({"Seal": "worn", "Remarks": "was fixed, and holds again"})
    assert (
        "fix" in read.words
        and "worn" not in read.words
        and read.pairs["Remarks"].endswith("holds again")
    )
    assert "bolt" in read_ticket({"Parts": "nuts, bolts"}).words


def test_values_are_equal_however_they_are_composed_and_stopped() -> None:
    for one, other in [
        ("Köln", "Ko\u0308ln"),
        ("Köln", "Ｋöln"),
        ("worn", "Worn."),
        ("1", "1.0"),
        ("ok。", "OK"),
    ]:
        assert fold_value(one) == fold_value(other)
    for one, other in [("10³", "103"), ("½", "1/2"), ("x" * 48 + "a", "x" * 48 + "b")]:
        assert fold_value(one) != fold_value(other)


@given(st.from_regex(r"[1-9]0{1,3}(\.[05]?5)?", fullmatch=True), st.integers(1, 3))
def test_only_zeros_at_the_end_of_a_decimal_are_no_part_of_a_value(number: str, zeros: int) -> None:
    """Those before its point are: 10.0 is 10, and not 1."""
    written = number + "." * ("." not in number) + "0" * zeros
    for value in (number, number.replace("0", "", 1), number.replace("0", "00", 1)):
        found = is_one_of("code", value)(read_ticket({"code": written}))
        assert found == (float(value) == float(written))


def test_numbers_have_units_signs_currencies_and_powers() -> None:
    said = {"250 cm": (250, "cm"), "−93": (-93, ""), "+3": (3, ""), ".892": (0.892, ""), "4.2e4": (42000, ""),
            "$734": (734, "$"), "5 Pieces": (5, "piece"), "5 MW": (5, "MW"), "5 mW": (5, "mW")}  # fmt: skip
    assert {text: parse_quantity(text) for text in said} == said
    assert not any(
        map(
            parse_quantity, ("83 731", "31'824", "1e5", "2024-05-01", "12:30", "--5", "-+5", "-$-5")
        )
    )


def test_json_becomes_counts_by_path_summed_over_images_and_what_is_not_there_is_0() -> None:
    images = {"2": json.dumps({"seen": PLUGS}), "图片_1": f"<DOMAIN=X>, <TASK=COUNT>\n{json.dumps({'seen': PLUGS[:1]})}",
              "3": "无关图片", "4": json.dumps({"notes": ["bent a little"], "size": 2.5, "ok": True})}  # fmt: skip
    read = read_ticket({"per_image": images})
    assert read.is_counted and "bent" in read.words and "无关" not in read.words
    pairs = {name: value for name, value in read.pairs.items() if not name.startswith("image_")}
    assert pairs == {"seen_plug": "3", "seen_plug_state_loose": "4", "seen_plug_kind_ODF": "1", "seen": "1", "seen_n": "3",
                     "size": "2.5", "ok": "true"}  # fmt: skip
    assert read.pairs["image_1_seen_plug"] == "1" and read.pairs["image_2_seen_plug"] == "2"
    shown, content = read_images(sort_summaries([("1", images["2"])]), {})
    ticket = Ticket("m", "g", "pass", (("image_1", shown[0].text),), content=content)
    assert Vocabulary.of([ticket]).values["seen_plug"] == {"0", "2"}


def test_what_was_not_counted_is_0_and_no_other_value() -> None:
    """Of a field of words that a ticket lacks nobody knows what it would say, beside counts too."""
    counted = read_ticket({"per_image": {"1": json.dumps({"seen": PLUGS})}})
    plain = read_summaries(("part: hose",))
    for values, known in (
        (("0",), True),
        (("1", "2"), False),
        (("0", "worn"), None),
        (("worn",), None),
    ):
        assert is_one_of("nowhere", *values)(counted) is known
        assert is_one_of("nowhere", *values)(plain) is None
    assert is_missing("nowhere")(plain) and not is_missing("nowhere")(counted)


@given(
    st.dictionaries(
        st.sampled_from(["Pressure", "Speed", "Kind"]), st.sampled_from(["", "NA", "7"])
    ),
    st.sets(st.integers(1, 4), min_size=1),
)
def test_no_empty_cell_beside_counts_is_0(cells: dict[str, str], images: set[int]) -> None:
    """A column of a table is no count, whatever else is empty in a row."""
    row = {**{f"image_{n}": json.dumps({"seen": PLUGS}) for n in images}, **cells}
    columns = Columns(missing=("na",))
    read = read_ticket(row, columns)
    assert find_quantity(read, "seen_plug") == Quantity(2.0 * len(images), "")
    for name, cell in cells.items():
        assert find_quantity(read, name) == (Quantity(7.0, "") if cell == "7" else None)
        assert is_one_of(name, "0")(read) is (False if cell == "7" else None)
    assert find_quantity(read, "seen_bolt") == (None if cells else Quantity(0.0, ""))
    # what a model reads: each once, in the order of their numbers, and sums of several alone
    shown, content = read_row(row, columns)
    numbers = [int(image.removeprefix("image_")) for image, _ in shown]
    assert numbers == sorted({*numbers}) and images <= {*numbers}
    assert len(numbers) == len(images) + ("7" in cells.values())
    assert content.counts.count("seen_plug: ") == (len(images) > 1)


def test_images_that_disagree_on_a_value_leave_it_open_and_irrelevant_ones_count_nothing() -> None:
    read = read_ticket({"per_image": {"1": '{"seal": "ok"}', "2": '{"seal": "worn"}'}})
    assert "seal" not in read.pairs and read.pairs["image_2_seal"] == "worn"
    read = read_ticket({"per_image": {"1": '{"seal": "ok"}', "2": '{"seal": 2}'}})
    assert read.pairs["seal"] == "2", "what any of them counts is a count"
    for text in ("irrelevant image", " Irrelevant Image\n"):
        read = read_ticket({"per_image": {"1": text}})
        assert (read.pairs, read.words, read.texts, read.is_counted) == ({}, frozenset(), (), False)


@given(st.recursive(st.none() | st.integers() | st.floats() | st.text(max_size=4) | st.booleans(),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
                    max_leaves=12))  # fmt: skip
def test_any_json_is_read(document: object) -> None:
    shown, content = read_images(sort_summaries([("1", json.dumps(document))]), {})
    assert shown[0].text.strip() and all(name and value for name, value in content.fields)


@pytest.mark.parametrize("operator", list(OPERATORS))
def test_numbers_of_two_units_have_no_sum_and_no_difference(operator: str) -> None:
    computed = Computed("a", operator, "b")
    for one, other, is_one_unit in (
        ("3 mm", "2 kg", False),
        ("3 mm", "2 mm", True),
        ("3 mm", "2", True),
        ("3", "2", True),
    ):
        found = find_quantity(Reading({"a": one, "b": other}, frozenset()), computed)
        expected = Quantity(OPERATORS[operator](3.0, 2.0), "")
        assert found == (expected if is_one_unit or operator in "×/" else None), (one, other)


@pytest.mark.parametrize(
    ("one", "other", "is_above"),
    [("3 mm", "2 kg", None), ("3 mm", "2 mm", True), ("3 mm", "2", True), ("1", "2 kg", False)],
)
def test_numbers_of_two_units_are_neither_above_nor_below_each_other(
    one: str, other: str, is_above: bool | None
) -> None:
    ticket = Reading({"a": one, "b": other}, frozenset())
    assert compile_expression(Order("a", "above", "b"))(ticket) is is_above
    assert compile_expression(Limit("a", "above", other))(ticket) is is_above


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("mPa", "MPa", False),
        ("mpa", "MPA", False),
        ("pF", "PF", False),
        ("kPa", "KPA", True),
        ("Pieces", "pieces", True),
    ],
)
def test_case_tells_units_apart_where_it_tells_milli_from_mega(
    one: str, other: str, is_same: bool
) -> None:
    above = Limit("a", "above", f"3 {other}")
    assert compile_expression(above)(read_ticket({"a": f"5 {one}"})) is (True if is_same else None)


@pytest.mark.parametrize(
    ("most", "more"), [("one two three four", " five"), ("表面有划痕和裂纹以及明显的锈", "迹斑")]
)
def test_a_value_is_free_text_from_five_words_on(most: str, more: str) -> None:
    """Or as many characters of a script without spaces as those have."""
    assert not read_ticket({"note": most}).words and read_ticket({"note": most + more}).words


@given(st.from_regex(r"[a-z]{2,8}[a-rt-z]", fullmatch=True), st.sampled_from(["{}", "{}.", " {} "]))
@example("day", "{}")
@example("bar", "{}")
@example("min", "{}")
def test_an_s_for_many_makes_no_other_unit(unit: str, written: str) -> None:
    """Whether the ticket has it, or the limit of a rule."""
    one, many = written.format(unit), written.format(f"{unit}s")
    assert parse_quantity(f"3 {one}") == parse_quantity(f"3 {many}") == (3.0, unit)
    for value, limit in product((one, many), repeat=2):
        read = read_ticket({"age": f"3 {value}"})
        least, most = f"1 {limit}".strip(), f"9 {limit}".strip()
        limits = Limit("age", "above", least), Limit("age", "below", least)
        assert [compile_expression(each)(read) for each in limits] == [True, False]
        assert compile_expression(Limit("age", "below", most))(read) is True


@pytest.mark.parametrize("symbol", ["s", "ms", "ks"])
def test_a_short_symbol_that_ends_with_an_s_is_no_plural(symbol: str) -> None:
    assert parse_quantity(f"3 {symbol}") == (3.0, symbol)
    limit = Limit("time", "above", f"1 {symbol}")
    assert compile_expression(limit)(read_ticket({"time": f"3 {symbol}"})) is True
    assert compile_expression(limit)(read_ticket({"time": f"3 {symbol[:-1]}m"})) is None
