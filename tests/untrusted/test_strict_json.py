"""JSON and JSON Lines that others wrote."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stageb.untrusted import strict_json
from stageb.untrusted.strict_json import FaultError, lines


def test_plain_json_passes() -> None:
    assert strict_json.loads(' {"a": [1, 2.5, null, true, "é\\u00e9", "\\ud83d\\ude00"]} ') == {
        "a": [1, 2.5, None, True, "éé", "😀"]
    }


def test_the_key_that_comes_twice_is_found_at_once_among_many() -> None:
    keys = "".join(f'"k{n}": 0, ' for n in range(50_000))
    begun = time.process_time()
    with pytest.raises(ValueError, match="'k49999' is given twice"):
        strict_json.loads(f'{{{keys} "k49999": 1}}')
    assert time.process_time() - begun < 10  # a quadratic search takes half a minute


def test_brackets_side_by_side_are_not_deep() -> None:
    assert len(strict_json.loads("[" + "[], {}, " * 500 + "0]")) == 1001
    assert strict_json.loads("[" * 64 + "]" * 64)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": 1, "a": 1}', "'a' is given twice"),
        ('[{"b": {"a": 1, "c": 0, "c": 2}}]', "'c' is given twice"),
        ("[NaN]", "NaN"),
        ("-Infinity", "-Infinity"),
        ("1e999", "too large"),
        ("9" * 5000, "4300"),
        ('"\\ud800"', "surrogate"),
        ('{"\\udc00": 1}', "surrogate"),
        ("[" * 100_000, "deep"),
        ('{"a":' * 100_000, "deep"),
        ("[" * 65 + "0" + "]" * 65, "deep"),
        ("{} {}", "Extra data"),
        ("", "Expecting value"),
    ],
)
def test_what_the_standard_refuses_is_a_value_error(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        strict_json.loads(text)


@pytest.mark.parametrize(
    ("begin", "told"),
    [
        (b"", "not a text file"),
        (b"first\n", "line 2 is over 64 MiB"),
        (b"1\n2", "line 2 is over 64 MiB"),
    ],
)
def test_the_hole_in_a_sparse_file_fills_no_memory(tmp_path: Path, begin: bytes, told: str) -> None:
    path = tmp_path / "rows.jsonl"
    with path.open("wb") as opened:
        opened.write(begin)
        opened.truncate(5 << 30)
    with pytest.raises(FaultError, match=told):
        list(lines(str(path), "row"))


def test_lines_up_to_the_limit_are_read_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"123456789\n\n1234")
    assert list(lines(str(path), "row", most=10)) == [(1, b"123456789\n"), (2, b"\n"), (3, b"1234")]
    with pytest.raises(FaultError, match="line 1 is over 0 MiB"):
        list(lines(str(path), "row", most=9))
