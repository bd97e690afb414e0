"""A file of rows, at the disk."""

from __future__ import annotations

import csv
import io
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stageb.errors import InputError, JournalError
from stageb.store import disk
from stageb.store.output import Output, encode_table, read_rows, set_aside, unquote


def test_rows_reach_the_disk_before_their_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(disk, "sync", lambda path: synced.append(path.name))
    output = Output(tmp_path / "out.jsonl", {}, {})
    assert synced[0] == tmp_path.name  # the names of what was made
    synced.clear()
    output.add([{"n": 1}], 1, {}, finished=True)
    output.close()
    assert synced == ["out.jsonl", ".unfinished-out.jsonl.commit.json", tmp_path.name]


@pytest.mark.parametrize(
    "content", [b'{"a": 1}\nrubbish\n', b'{"a": 1}\n[2]\n', b'{"a": 1}\n\xff\n', None]
)
def test_rows_that_another_program_changed_are_told_by_their_line(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "rows.jsonl"
    if content is not None:
        path.write_bytes(content)
    what = (
        "rows.jsonl:2: another program changed it"
        if content
        else "rows.jsonl: cannot be read: No such file or directory"
    )
    with pytest.raises(JournalError, match=f"{what}; give --fresh"):
        list(read_rows(path))


def test_a_kill_amid_setting_aside_leaves_no_commit_without_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.jsonl"
    output = Output(path, {}, {})
    output.add([{"n": 1}], 1, {}, finished=True)
    output.close()
    rename = Path.rename

    def rename_once(self: Path, target: Path) -> None:
        rename(self, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", rename_once)
    with pytest.raises(KeyboardInterrupt):
        set_aside(path)
    assert path.exists()
    # rows that nothing is known of, not a commit that would begin them anew
    with pytest.raises(InputError):
        Output(path, {}, {})


def test_rows_that_were_cut_off_are_told_and_left_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    output = Output(path, {}, {})
    output.add([{"n": 1}, {"n": 2}], 2, {}, finished=False)
    output.close()
    path.write_bytes(cut := path.read_bytes()[:-3])
    with pytest.raises(JournalError, match="give --fresh"):
        Output(path, {}, {})
    assert path.read_bytes() == cut


def test_where_nothing_is_nothing_is_set_aside(tmp_path: Path) -> None:
    set_aside(tmp_path / "out.jsonl")
    assert not list(tmp_path.glob("*.1"))


@pytest.mark.parametrize(
    ("was", "by"),
    [(b'"tickets": 4', b'"tickets": "4"'), (b'"done": 1', b'"done": 2'), (b'"state"', b'"x"')],
)
def test_a_commit_that_another_program_changed_is_refused(
    tmp_path: Path, was: bytes, by: bytes
) -> None:
    path = tmp_path / "out.jsonl"
    output = Output(path, {}, {})
    output.add([{"n": 1}], 1, {"tickets": 4}, finished=False)
    output.close()
    Output(path, {}, {}).close()
    commit = tmp_path / "out.jsonl.commit.json"
    assert was in commit.read_bytes()
    commit.write_bytes(commit.read_bytes().replace(was, by))
    rows = path.read_bytes()
    with pytest.raises(JournalError, match="another program changed it; give --fresh"):
        Output(path, {}, {})
    assert path.read_bytes() == rows


def test_a_pipe_in_the_place_of_a_commit_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "out.jsonl.commit.json")
    with pytest.raises(InputError, match="not a file; take it out"):
        Output(tmp_path / "out.jsonl", {}, {})


def test_a_key_of_another_config_moves_no_terminal(tmp_path: Path) -> None:
    Output(tmp_path / "out.jsonl", {"\x1b[2J\u202e": 1}, {}).close()
    with pytest.raises(InputError) as caught:
        Output(tmp_path / "out.jsonl", {}, {})
    assert all(line.isprintable() for line in str(caught.value).split("\n"))


def test_rows_in_a_table_have_one_header_however_often_they_go_on(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    rows: list[dict[str, object]] = [
        {"group": f'g, "{n}"\n阀门', "n": n, "verdict": None, "review": n > 1} for n in range(4)
    ]
    for place, row in enumerate(rows):
        output = Output(path, {}, {})
        output.add([], 0, {}, finished=False)
        output.add([row], 1, {}, finished=place == 3)
        output.close()
    told = [
        {**row, "n": str(n), "verdict": "", "review": ("false", "true")[n > 1]}
        for n, row in enumerate(rows)
    ]
    assert list(read_rows(path)) == told
    assert path.read_bytes().startswith("\ufeffgroup,n,verdict,review\n".encode())
    path.write_bytes(path.read_bytes() + b"cut off")
    Output(path, {}, {}).close()
    assert list(read_rows(path)) == told


@given(
    st.lists(
        st.text(st.sampled_from("=+-@'\t\r\n1.,a\"; "), max_size=5).filter(
            lambda cell: "\r" not in cell
        ),
        min_size=1,
        max_size=5,
    )
)
def test_no_spreadsheet_computes_what_a_table_holds_and_it_reads_back(cells: list[str]) -> None:
    data = encode_table(["cell"], [{"cell": cell} for cell in cells]).decode("utf-8-sig")
    _, *rows = csv.reader(io.StringIO(data, newline=""))
    found = [row[0] if row else "" for row in rows]
    assert [unquote(cell) for cell in found] == cells
    for cell in found:
        assert cell[:1] not in {*"=+-@\t"} or re.fullmatch(r"[+-][\d.,]+", cell)


def test_a_cell_with_line_breaks_of_any_kind_is_one_cell() -> None:
    data = encode_table(["one", "two"], [{"one": "a\rb\r\nc", "two": "d"}]).decode("utf-8-sig")
    assert [*csv.reader(io.StringIO(data, newline=""))][1:] == [["a\nb\nc", "d"]]
