"""YAML 1.1 as configs speak it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stageb.untrusted import strict_yaml
from stageb.untrusted.strict_yaml import YamlError

TEXTS = st.sampled_from(
    [
        "1e-3",
        "2E8",
        "1.5e3",
        "2020-01-01",
        "20:1",
        "1:30.5",
        "null",
        "yes",
        "0x_",
        "._",
        "<<",
        "=",
        "'",
        "a: b",
        "# a",
        "",
    ]
)


def read(text: str) -> Any:
    """What ``text`` says."""
    return strict_yaml.read(text)[0]


@given(
    TEXTS
    | st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)
    | st.integers(-(2**70), 2**70)
    | st.booleans()
    | st.none()
)
def test_what_is_dumped_is_read_again(value: Any) -> None:
    again = read(strict_yaml.dump(value))
    assert (again, type(again)) == (value, type(value))
    if value is not None and not isinstance(value, str):
        assert yaml.safe_load(strict_yaml.dump(value)) == value


@given(st.floats(allow_nan=False))
def test_numbers_are_read_as_they_are_written(value: float) -> None:
    assert read(strict_yaml.dump(value)) == value
    assert read(repr(value).replace("inf", ".inf")) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("1e-3", 0.001), ("1E3", 1000.0), ("'1e-3'", "1e-3"), ("2020-01-01", "2020-01-01")],
        *[("20:1", "20:1"), ("1:30.5", "1:30.5"), ("[1:30:00, 2]", ["1:30:00", 2])],
    ],
)
def test_powers_of_ten_are_numbers_and_dates_and_ratios_are_texts(text: str, value: Any) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "!!timestamp 2020-01-01",
        "!!float x",
        "!a b",
        "{? [a]: b}",
        "{1: a}",
        "<<",
        "&a [*a]",
        "{a: 1, a: 1}",
    ],
)
def test_more_than_plain_data_is_refused(text: str) -> None:
    with pytest.raises(YamlError):
        read(text)


def test_merged_keys_lose_to_those_that_stand_there_and_the_first_of_several_wins() -> None:
    values, lines = strict_yaml.read("<<: [{a: 1, b: 1}, {b: 2, c: 2}]\nc: 3\n")
    assert values == {"a": 1, "b": 1, "c": 3}
    assert lines == {("a",): 1, ("b",): 1, ("c",): 2}


def test_every_key_and_item_has_a_line() -> None:
    _, lines = strict_yaml.read("a:\n  b: 1\n  c:\n  - x\n  - d: 2\n")
    assert lines == {
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "c"): 3,
        ("a", "c", 0): 4,
        ("a", "c", 1): 5,
        ("a", "c", 1, "d"): 5,
    }
