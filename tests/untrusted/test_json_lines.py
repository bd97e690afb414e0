"""Lines of files that others wrote: how long one may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from stageb.untrusted.strict_json import FaultError, lines


@pytest.mark.parametrize(
    ("begin", "told"), [(b"", "not a text file"), (b"first\n", "line 2 is over 64 MiB"), (b"1\n2", "line 2 is over 64 MiB")]
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
