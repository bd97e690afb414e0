import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stageb.errors import InputError, JournalError
from stageb.runs.folder import RunFolder
from stageb.store import disk
from stageb.store.commits import check_config, check_folder, flatten
from stageb.store.journal import Journal, safe_name

CONFIG: dict[str, Any] = {"seed": 17, "model": {"name": "x"}, "output": {"root": "out"}}


def opened(root: Path, **options: Any) -> Journal:
    return Journal.open(root, "run", options.pop("config", CONFIG), ignored=("output.",), **options)


def content(folder: Path) -> dict[str, bytes]:
    """The bytes of a run that are to be equal, by file."""
    files = (
        path
        for path in folder.rglob("*")
        if path.is_file() and path.name not in (".lock", "timings.jsonl")
    )
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def work(root: Path) -> None:
    """A short run with a file of each kind."""
    with opened(root) as journal:
        journal.append("m/rows.jsonl", [{"n": 1}, {"n": 2}])
        journal.replace("m/whole.json", "{}")
        journal.note("timings.jsonl", [{"s": 0.1}])
        journal.commit({"done": 1})


def test_rows_after_the_last_commit_are_gone_and_those_before_are_there(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.append("a.jsonl", [{"n": 1}])
        journal.commit({"at": [1, None, "é"]})
        journal.append("a.jsonl", [{"n": 2}])
        journal.append("b.jsonl", [{"n": 3}])
        assert journal.rows("a.jsonl") == [{"n": 1}, {"n": 2}]
    with (tmp_path / "run" / "a.jsonl").open("ab") as file:
        file.write(b'{"n": ')
    with opened(tmp_path) as journal:
        assert (journal.number, journal.state) == (1, {"at": [1, None, "é"]})
        assert journal.rows("a.jsonl") == [{"n": 1}]
        assert journal.rows("b.jsonl") == []
    assert not (tmp_path / "run" / "b.jsonl").exists()


def test_a_run_without_a_commit_begins_again_under_any_config(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.append("a.jsonl", [{"n": 1}])
        journal.replace("config.yaml", "x")
    with opened(tmp_path, config={"seed": 18}) as journal:
        assert (journal.number, journal.state, journal.rows("a.jsonl")) == (0, None, [])


def test_nothing_else_in_the_folder_is_touched(tmp_path: Path) -> None:
    work(tmp_path)
    for name in ("mine.jsonl", "m/mine.txt", "m/.mine.tmp"):
        (tmp_path / "run" / name).write_text("mine")
    work(tmp_path)
    assert all(
        (tmp_path / "run" / name).read_text() == "mine"
        for name in ("mine.jsonl", "m/mine.txt", "m/.mine.tmp")
    )


def test_rows_are_written_as_they_are(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"b": "é\u2028\n", "a": [1.5, None]}, {"half": "\ud800"}]
    with opened(tmp_path) as journal:
        journal.append("a.jsonl", rows)
        assert journal.rows("a.jsonl") == rows
        with pytest.raises(ValueError, match="JSON"):
            journal.append("a.jsonl", [{"fine": 1}, {"acc": float("nan")}])
        assert journal.rows("a.jsonl") == rows
    assert (
        tmp_path / "run" / "a.jsonl"
    ).read_bytes() == '{"b": "é\\u2028\\n", "a": [1.5, null]}\n{"half": "\\ud800"}\n'.encode()


def test_the_order_in_which_files_were_begun_makes_no_difference(tmp_path: Path) -> None:
    for root, files in (
        (tmp_path / "a", ("x.jsonl", "y.jsonl")),
        (tmp_path / "b", ("y.jsonl", "x.jsonl")),
    ):
        with opened(root) as journal:
            for file in files:
                journal.append(file, [{"n": 1}])
            journal.commit(1)
    assert content(tmp_path / "a" / "run") == content(tmp_path / "b" / "run")


def test_a_replacement_that_a_crash_left_unfinished_is_removed(tmp_path: Path) -> None:
    work(tmp_path)
    before = content(tmp_path / "run")
    (tmp_path / "run" / "m" / ".unfinished-late.json").write_text("{")
    opened(tmp_path).close()
    assert content(tmp_path / "run") == before


def test_notes_outlive_crashes_and_half_a_note_goes(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.note("timings.jsonl", [{"s": 1}])
    with (tmp_path / "run" / "timings.jsonl").open("ab") as file:
        file.write(b'{"s": 2, "what": "a long row that the crash cut off in its mid')
    with opened(tmp_path) as journal:
        journal.note("timings.jsonl", [{"s": 3}])
    assert (tmp_path / "run" / "timings.jsonl").read_text() == '{"s": 1}\n{"s": 3}\n'


def test_a_changed_config_is_refused_with_the_keys_and_the_ways_out(tmp_path: Path) -> None:
    work(tmp_path)
    before = content(tmp_path / "run")
    changed = {"seed": 18, "model": {"dtype": "auto"}, "output": {"root": "elsewhere"}}
    with pytest.raises(InputError) as raised:
        opened(tmp_path, config=changed)
    message = str(raised.value)
    for part in (
        "seed: 17 there, 18 now",
        'model.name: "x" there, absent now',
        'model.dtype: absent there, "auto" now',
    ):
        assert part in message
    assert "give --fresh to set it aside and begin anew, or another output.run_name" in message
    assert "elsewhere" not in message
    assert content(tmp_path / "run") == before


def test_fresh_sets_the_old_run_aside_and_deletes_nothing(tmp_path: Path) -> None:
    work(tmp_path)
    old = content(tmp_path / "run")
    with opened(tmp_path, fresh=True, config={"seed": 18}) as journal:
        assert journal.state is None
        journal.commit(1)
    opened(tmp_path, fresh=True).close()
    assert content(tmp_path / "run.1") == old
    assert content(tmp_path / "run.2").keys() == {"commit.json"}
    opened(tmp_path, fresh=True).close()
    assert not (tmp_path / "run.3").exists()  # an empty run is no run to keep


def test_a_second_writer_is_refused_and_told_who_holds_the_folder(tmp_path: Path) -> None:
    script = "\n".join([
        "import sys, time",
        "from stageb.store.journal import Journal",
        "journal = Journal.open(sys.argv[1], 'run', {})",
        "print('held', flush=True)",
        "time.sleep(60)",
    ])  # fmt: skip
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        for fresh in (False, True):
            with pytest.raises(JournalError, match=f"process {holder.pid} on "):
                Journal.open(tmp_path, "run", {}, fresh=fresh)
    finally:
        holder.kill()
        holder.wait()
    Journal.open(tmp_path, "run", {}).close()  # the dead leave no lock


def test_a_file_that_lost_committed_bytes_is_named(tmp_path: Path) -> None:
    work(tmp_path)
    victim = tmp_path / "run" / "m" / "rows.jsonl"
    whole = victim.read_bytes()
    victim.write_bytes(whole[:-5])
    with pytest.raises(JournalError, match=r"m/rows.jsonl: another program cut it"):
        opened(tmp_path)
    victim.unlink()
    with pytest.raises(JournalError, match=r"m/rows.jsonl: another program cut it: 0 bytes"):
        opened(tmp_path)
    victim.write_bytes(whole)
    opened(tmp_path).close()


def test_a_file_that_another_program_writes_to_is_noticed(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.append("a.jsonl", [{"n": 1}])
        with (tmp_path / "run" / "a.jsonl").open("ab") as file:
            file.write(b"{}\n")
        with pytest.raises(JournalError, match=r"a\.jsonl: another program changed it"):
            journal.append("a.jsonl", [{"n": 2}])


@pytest.mark.parametrize(
    "broken",
    [
        *("", "{", "[]", "7", '{"number": 1}'),
        '{"number": 1, "state": 0, "config": {}, "lengths": {"../x": 0}, "versions": {}}',
        *(
            f'{{"number": 1, "state": 0, "config": {{}}, "lengths": {{}}, "versions": {versions}}}'
            for versions in (
                "[]",
                '{"../x": [[1, 0]]}',
                '{"x": []}',
                '{"x": [1]}',
                '{"x": [["1", 0]]}',
                '{"x": null}',
            )
        ),
    ],
)
def test_a_commit_that_another_program_changed_is_named(tmp_path: Path, broken: str) -> None:
    work(tmp_path)
    (tmp_path / "run" / "commit.json").write_text(broken)
    with pytest.raises(JournalError, match=r"commit\.json: another program changed it"):
        opened(tmp_path)


def test_a_folder_that_no_run_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("x")
    for fresh in (False, True):
        with pytest.raises(InputError, match="holds files but no run"):
            opened(tmp_path, fresh=fresh)
    assert [path.name for path in tmp_path.rglob("*")] == ["run", "thesis.tex"]


def test_a_copy_without_hidden_files_goes_on(tmp_path: Path) -> None:
    work(tmp_path)
    whole = content(tmp_path)
    (tmp_path / "run" / ".lock").unlink()
    with opened(tmp_path) as journal:
        assert journal.number > 0
    assert content(tmp_path) == whole
    assert (tmp_path / "run" / ".lock").exists()


def test_a_refused_open_leaves_no_folder_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("", ".", "..", "a/b", "a\\b", "a\0b"):
        with pytest.raises(InputError, match="run name"):
            Journal.open(tmp_path / "out", name, CONFIG)
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="file is no folder; give another folder"):
        opened(tmp_path / "file")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("stageb.store.commits.cut_back", full)
    with pytest.raises(JournalError, match="free some space"):
        opened(tmp_path / "deep" / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(InputError, match="cannot be made"):
            opened(tmp_path)
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/abs",
        "../x",
        "a/../b",
        "a//b",
        "a/",
        ".lock",
        ".begun",
        "commit.json",
        "m/.hidden",
        "a\nb",
        "a\\b",
        "a\0",
    ],
)
def test_file_names_can_not_escape_or_clash(tmp_path: Path, name: str) -> None:
    with opened(tmp_path) as journal:
        acts: list[Callable[[], None]] = [
            lambda: journal.append(name, []),
            lambda: journal.note(name, []),
            lambda: journal.replace(name, ""),
            lambda: journal.put(name, weights(1)),
        ]
        for act in acts:
            with pytest.raises(ValueError, match="no place for a file"):
                act()


def test_a_file_is_appended_to_or_whole_never_both(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.append("a.jsonl", [])
        acts: list[Callable[[], None]] = [
            lambda: journal.replace("a.jsonl", ""),
            lambda: journal.remove("a.jsonl"),
            lambda: journal.note("a.jsonl", []),
        ]
        for act in acts:
            with pytest.raises(ValueError, match="is appended to"):
                act()
        journal.replace("b.jsonl", "x")
        with pytest.raises(JournalError, match=r"b\.jsonl"):
            journal.append("b.jsonl", [{"n": 1}])
        assert (tmp_path / "run" / "b.jsonl").read_text() == "x"


def test_a_closed_journal_writes_nothing(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.close()
    journal.close()
    acts: list[Callable[[], None]] = [
        lambda: journal.append("a.jsonl", []),
        lambda: journal.put("a.bin", weights(1)),
        lambda: journal.commit(1),
    ]
    for act in acts:
        with pytest.raises(ValueError, match="closed"):
            act()


def test_what_is_committed_reached_the_disk_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = disk.sync

    def sync(path: Path) -> None:
        real(path)
        synced.append(path.name)

    monkeypatch.setattr(disk, "sync", sync)
    with opened(tmp_path) as journal:
        journal.append("m/a.jsonl", [{"n": 1}])
        assert {"run", "m"} <= set(synced)  # the names of what was made
        synced.clear()
        journal.commit(1)
        assert synced == ["a.jsonl", ".unfinished-commit.json", "run"]


def test_a_folder_that_was_set_aside_is_so_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    with opened(tmp_path) as journal:
        journal.commit(1)
    monkeypatch.setattr(disk, "sync", synced.append)
    opened(tmp_path, fresh=True).close()
    assert synced == [tmp_path]


@pytest.mark.parametrize("name", ["../out", "m/../../out", "{root}/out", "..\\out", "m//../../out"])
def test_what_a_strange_list_names_outside_the_folder_is_left_alone(
    tmp_path: Path, name: str
) -> None:
    with opened(tmp_path) as journal:
        journal.append("m/a.jsonl", [{"n": 1}])
        journal.commit(1)
    (tmp_path / "out").write_text("somebody's own")
    (tmp_path / "run" / ".begun").write_text(name.format(root=tmp_path) + "\n")
    opened(tmp_path).close()
    assert (tmp_path / "out").read_text() == "somebody's own"
    assert not (tmp_path / "run" / ".begun").exists()


def weights(size: int) -> Callable[[Path], object]:
    """A writer of some bytes, which are told apart by their number."""
    return lambda path: path.write_bytes(b"w" * size)


def test_a_version_belongs_to_its_commit(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        assert journal.path("w/policy.bin") is None
        journal.put("w/policy.bin", weights(1))
        journal.commit(1)
        journal.put("w/policy.bin", weights(2))
        place = journal.folder / "w"
        assert journal.path("w/policy.bin") == place / "policy-00000002.bin"
        # until the commit
        assert content(place) == {"policy-00000001.bin": b"w", "policy-00000002.bin": b"ww"}
    with opened(tmp_path) as journal:  # the second was never committed
        assert journal.path("w/policy.bin") == place / "policy-00000001.bin"
        assert content(place) == {"policy-00000001.bin": b"w"}
        journal.put("w/policy.bin", weights(3))
        journal.put("w/policy.bin", weights(4))
        journal.commit(2)
        journal.commit(3)
        assert content(place) == {"policy-00000002.bin": b"wwww"}
    with opened(tmp_path) as journal:
        assert journal.path("w/policy.bin") == place / "policy-00000002.bin"


def test_a_writer_is_given_a_path_with_the_suffix_of_the_file(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.put("w/policy.npz", lambda path: path.write_text(path.suffix))
        journal.commit({})
    [written] = (tmp_path / "run/w").iterdir()
    assert written.read_text() == ".npz"


def test_a_writer_that_fails_leaves_what_was(tmp_path: Path) -> None:
    def fails(path: Path) -> None:
        path.write_bytes(b"half")
        raise RuntimeError("iostream error\nin some C++")

    with opened(tmp_path) as journal:
        journal.put("w.bin", weights(1))
        journal.commit(1)
        with pytest.raises(
            JournalError,
            match=r"w\.bin: it could not be written: RuntimeError: iostream error; the last",
        ):
            journal.put("w.bin", fails)
        with pytest.raises(ValueError, match="no file was written"):
            journal.put("w.bin", lambda _: None)
        journal.commit(2)
        assert content(journal.folder).keys() == {"commit.json", "w-00000001.bin"}
        assert journal.path("w.bin") == journal.folder / "w-00000001.bin"


def test_a_commit_writes_the_parts_that_changed_and_keeps_the_others(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        assert journal.part("valves") is None
        journal.commit(
            {"done": 1},
            {"valves": {"pending": [1, 2]}, "挡风板": ["é\u2028\n", "half \ud800"], "gone": 7},
        )
        others = {
            file: data for file, data in content(journal.folder).items() if "valves" not in file
        }
        journal.commit({"done": 2}, {"valves": {"pending": []}, "gone": None, "never there": None})
        assert (
            journal.folder / "commit.d" / "valves-00000002.json"
        ).read_text() == '{"pending": []}\n'
        assert len(list((journal.folder / "commit.d").iterdir())) == 2
        journal.commit({"done": 3})
    with opened(tmp_path) as journal:
        assert journal.state == {"done": 3}
        assert journal.part("valves") == {"pending": []}
        assert journal.part("挡风板") == ["é\u2028\n", "half \ud800"]
        assert journal.part("gone") is None
        now = content(journal.folder)
        assert [
            file for file in others if file != "commit.json" and now.get(file) != others[file]
        ] == [file for file in others if "gone" in file]


def test_what_is_no_json_changes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.commit(1, {"a": 1})
        before = content(journal.folder)
        for state, part in ((float("nan"), 2), (2, float("nan"))):
            with pytest.raises(ValueError, match="JSON"):
                journal.commit(state, {"a": part})
        assert (journal.number, journal.state, journal.part("a")) == (1, 1, 1)
        assert content(journal.folder) == before


ODD = [
    *"..|../../x|/etc/passwd|a/b|a\\b||.|\0|a\nb|\ud800|con|A|a|a-00000001".split("|"),
    "挡" * 200,
]
NAMES = st.text(max_size=60) | st.sampled_from(ODD)


@given(
    st.lists(
        st.dictionaries(NAMES, st.none() | st.integers() | st.text(max_size=5), max_size=5),
        max_size=4,
    )
)
def test_parts_may_have_any_name(commits: list[dict[str, Any]]) -> None:
    """They stay apart and in the folder, and are after every commit what the last commit that named
    them gave."""
    with tempfile.TemporaryDirectory() as root:
        expected: dict[str, Any] = {}
        for parts in commits:
            with opened(Path(root)) as journal:
                journal.commit(None, parts)
                expected |= parts
                assert {name: journal.part(name) for name in expected} == expected
                files = set(content(Path(root))) - {"run/commit.json"}
                assert len(files) == sum(value is not None for value in expected.values())
                assert all(
                    file.startswith("run/commit.d/") and file.count("/") == 2 for file in files
                )


def test_a_version_that_lost_committed_bytes_is_named(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.put("w/policy.bin", weights(100))
        journal.commit(1, {"valves": [1, 2, 3]})
        journal.put("w/policy.bin", weights(100))
        journal.commit(2)
    before = content(tmp_path / "run")
    for name in ("w/policy-00000002.bin", "commit.d/valves-00000001.json"):
        victim = tmp_path / "run" / name
        whole = victim.read_bytes()
        for spoilt, did in ((whole[:-5], "cut"), (b"", "cut"), (whole + b"x", "changed")):
            victim.write_bytes(spoilt)
            said = (
                f"{name}: another program {did} it: {len(spoilt)} bytes, {len(whole)} were "
                f"committed"
            )
            with pytest.raises(JournalError, match=said):
                opened(tmp_path)
        victim.unlink()
        with pytest.raises(JournalError, match=f"{name}: another program cut it: 0 bytes"):
            opened(tmp_path)
        # what is left was not touched
        assert content(tmp_path / "run").keys() == before.keys() - {name}
        victim.write_bytes(whole)
    opened(tmp_path).close()
    assert content(tmp_path / "run") == before


def test_an_empty_version_that_is_missing_is_noticed(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.put("w.bin", weights(0))
        journal.commit(1)
    (tmp_path / "run" / "w-00000001.bin").unlink()
    with pytest.raises(JournalError, match=r"w-00000001\.bin: another program"):
        opened(tmp_path)


def test_a_part_that_another_program_changed_is_named(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.commit(1, {"valves": [1]})
        (tmp_path / "run" / "commit.d" / "valves-00000001.json").write_text("[1}\n")
    with (
        opened(tmp_path) as journal,
        pytest.raises(JournalError, match=r"valves-00000001\.json: another program changed it"),
    ):
        journal.part("valves")


def test_names_of_versions_are_taken_by_nothing_else(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        acts: list[Callable[[], None]] = [
            lambda: journal.append("m/a-00000001.jsonl", []),
            lambda: journal.note("a-12345678", []),
            lambda: journal.replace("commit.d/a-00000012.json", ""),
            lambda: journal.remove("commit.d/a-00000012.json"),
        ]
        for act in acts:
            with pytest.raises(ValueError, match="called as versions are"):
                act()
        with pytest.raises(ValueError, match="where parts lie"):
            journal.put("commit.d/valves.json", weights(1))
        journal.replace("snapshots/guidance-000012.json", "six digits are nobody's")


def test_a_file_of_another_program_is_never_overwritten_by_a_version(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        for name in ("w-00000001.bin", "commit.d/valves-00000001.json"):
            (journal.folder / name).parent.mkdir(exist_ok=True)
            (journal.folder / name).write_text("mine")
        with pytest.raises(JournalError, match=r"w-00000001\.bin: .*a file stands in the way"):
            journal.put("w.bin", weights(1))
        with pytest.raises(
            JournalError, match=r"valves-00000001\.json: .*a file stands in the way"
        ):
            journal.commit(1, {"valves": 1})
        journal.commit(1)
    opened(tmp_path).close()
    assert [
        (tmp_path / "run" / name).read_text()
        for name in ("w-00000001.bin", "commit.d/valves-00000001.json")
    ] == ["mine"] * 2


def test_files_of_others_that_are_called_like_versions_are_let_lie(tmp_path: Path) -> None:
    work(tmp_path)
    mine = tmp_path / "run" / "m" / "photo-20260101.png"
    mine.write_text("mine")
    with opened(tmp_path) as journal:
        journal.put("m/photo.png", weights(1))
    with opened(tmp_path) as journal:
        journal.commit(2)
    assert mine.read_text() == "mine"


def test_versions_reach_the_disk_before_the_commit_and_go_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as journal:
        journal.put("w/a.bin", weights(1))
        journal.commit(1, {"p": 1})
        done: list[str] = []
        real_sync, real_unlink = disk.sync, Path.unlink

        def sync(path: Path) -> None:
            real_sync(path)
            done.append(f"sync {path.name}")

        def unlink(path: Path, missing_ok: bool = False) -> None:
            stood = path.exists()
            real_unlink(path, missing_ok)
            done.extend([f"unlink {path.name}"] if stood else [])

        monkeypatch.setattr(disk, "sync", sync)
        monkeypatch.setattr(Path, "unlink", unlink)
        journal.put("w/a.bin", weights(2))
        assert done == ["sync .begun", "sync run", "sync .unfinished-a-00000002.bin", "sync w"]
        done.clear()
        journal.commit(2, {"p": 2})
        before, after = (
            done[: done.index("sync .unfinished-commit.json")],
            done[done.index("sync .unfinished-commit.json") + 1 :],
        )
        assert before == [
            "sync .begun",
            "sync run",
            "sync .unfinished-p-00000002.json",
            "sync commit.d",
        ]
        assert (after[0], set(after[1:-1]), after[-1]) == (
            "sync run", {"unlink a-00000001.bin", "unlink p-00000001.json"}, "unlink .begun",
        )  # fmt: skip


# Going back


def lead_to(journal: Journal, keep: str = "") -> None:
    """A commit with a file of each kind."""
    number = journal.number + 1
    journal.append("rows.jsonl", [{"n": number}])
    journal.put("w/a.bin", weights(number))
    journal.commit(number, {"p": number} if number % 2 else {}, keep=keep)


def test_a_run_goes_back_to_a_commit_that_was_kept_and_leaves_what_it_would_have_left_then(
    tmp_path: Path,
) -> None:
    with opened(tmp_path / "straight") as journal:
        for _ in range(4):
            lead_to(journal)
    with opened(tmp_path) as journal:
        # the first that is kept under a name stays
        for keep in ("", "", "first", "first", "second", ""):
            lead_to(journal, keep)
        journal.append("later.jsonl", [{"n": 0}])
        lead_to(journal)
    with opened(tmp_path) as journal:
        journal.go_back("never kept")
        assert journal.number == 7
        journal.go_back("second")
        assert (journal.number, journal.state, journal.part("p")) == (4, 4, 3)
        journal.go_back("first")
        assert (journal.number, journal.state, journal.part("p")) == (2, 2, 1)
        journal.go_back("second")
        assert journal.number == 2, "what was kept later is gone"
        lead_to(journal)
        lead_to(journal)
    assert content(tmp_path / "run") == content(tmp_path / "straight" / "run")


def test_a_run_that_is_killed_while_it_goes_back_goes_back_again_or_has_gone_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "whole") as journal:
        for keep in ("", "end", "", ""):
            lead_to(journal, keep)
    shutil.copytree(tmp_path / "whole", tmp_path / "back")
    with opened(tmp_path / "back") as journal:
        journal.go_back("end")
    steps = [
        (disk, "replace"),
        (disk, "sync"),
        (disk, "write_at"),
        (os, "truncate"),
        (Path, "unlink"),
    ]
    killed = 0
    for number, (place, name) in enumerate(steps):
        for nth in range(12):
            root, left, real = tmp_path / f"{number}-{nth}", [nth], getattr(place, name)
            shutil.copytree(tmp_path / "whole", root)

            def dies(*given: Any, left: list[int] = left, real: Any = real, **options: Any) -> Any:
                left[0] -= 1
                if left[0] < 0:
                    raise KeyboardInterrupt
                return real(*given, **options)

            with (
                opened(root) as journal,
                monkeypatch.context() as patched,
                contextlib.suppress(KeyboardInterrupt),
            ):
                patched.setattr(place, name, dies)
                journal.go_back("end")
            killed += left[0] < 0
            with opened(root) as journal:
                assert journal.number in (1, 4)
                journal.go_back("end")
            assert content(root / "run") == content(tmp_path / "back" / "run")
    assert killed >= 10


def test_limits_may_be_higher_never_lower(tmp_path: Path) -> None:
    def limited(most: int | None, **options: Any) -> Journal:
        return opened(
            tmp_path,
            config={**CONFIG, "budget": {"most": most}},
            limits=("budget.most",),
            **options,
        )

    with limited(10) as journal:
        journal.commit(1)
    with limited(11) as journal:
        assert journal.raised == ("budget.most",)
        journal.commit(2)
    with limited(11) as journal:
        assert journal.raised == ()
    with pytest.raises(
        InputError,
        match=r"budget.most: 11 there, 10 now\n.*higher values are allowed for budget.most",
    ):
        limited(10)
    with limited(None) as journal:
        journal.commit(3)
    with pytest.raises(InputError, match=r"budget.most: null there, 12 now"):
        limited(12)


def test_notes_are_added_without_reading_those_before(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        row = {"text": "x" * 999_000}
        journal.note("timings.jsonl", [row] * 30)
        tracemalloc.start()
        journal.note("timings.jsonl", [{"s": 1}])
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 500_000
        assert journal.notes("timings.jsonl")[-1] == {"s": 1}


PLAIN = st.text(alphabet="abc-_0", min_size=1, max_size=14)


@example(["0 0"])
@given(
    st.lists(
        st.text(max_size=80) | PLAIN | PLAIN.map(safe_name) | PLAIN.map(str.upper), max_size=12
    )
)
def test_safe_names_are_safe_and_never_shared(names: list[str]) -> None:
    safe = {name: safe_name(name) for name in names}
    assert len({made.casefold() for made in safe.values()}) == len(safe)
    for made in safe.values():
        assert 1 <= len(made) <= 61
        assert len(made.encode()) < 255
        assert made == Path(made).name
        assert all(letter.isalnum() or letter in "-_ " for letter in made)
        assert made == made.strip()
        assert made.lower() == made


def test_safe_names_stay_readable() -> None:
    assert safe_name("valves") == "valves"
    # whoever is called that is another one
    assert safe_name(safe_name("Valves")) != safe_name("Valves")
    assert safe_name("rack cabling") == "rack cabling"
    assert safe_name("rack cabling ") != safe_name("rack cabling") != safe_name("Rack cabling")
    assert safe_name("挡风板安装检查").startswith("挡风板安装检查-")
    assert {safe_name(name) for name in ("config.yaml", "commit.json", "..", "")}.isdisjoint(
        {"config.yaml", "commit.json", "..", ""}
    )


def test_flattened_configs_have_dotted_keys_and_plain_values() -> None:
    assert flatten({"a": {"b": {"c": 1}, "d": (1, 2)}, "e": {}, "f": [{"g": None}]}) == {
        "a.b.c": 1, "a.d": [1, 2], "e": {}, "f": [{"g": None}],
    }  # fmt: skip


def test_a_run_whose_commit_was_removed_is_not_begun_anew(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.put("weights/w.bin", weights(1))
        journal.commit(1, parts={"m": {"a": 1}})
    (tmp_path / "run" / "commit.json").unlink()
    before = content(tmp_path / "run")
    with pytest.raises(
        InputError,
        match=r"commit\.json: another program removed it, .*-00000001.* set the run's folder",
    ):
        opened(tmp_path)
    with pytest.raises(InputError, match="another program removed it"):
        check_folder(tmp_path / "run", {}, fresh=False)
    assert content(tmp_path / "run") == before
    check_folder(tmp_path / "run", {}, fresh=True)


@pytest.mark.parametrize("row", [b"rubbish", b"[1]", b"\xff\0"])
def test_a_row_that_another_program_changed_is_told_by_its_line(tmp_path: Path, row: bytes) -> None:
    """Of what runs do not need, such as timings.jsonl, it is taken out; of what they do, the run
    begins anew."""
    with opened(tmp_path) as journal:
        journal.note("timings.jsonl", [{"seconds": 1}, {"seconds": 2}])
        journal.append("rows.jsonl", [{"a": "a long row"}, {"a": 2}])
        journal.commit({})
        for file in ("timings.jsonl", "rows.jsonl"):
            (journal.folder / file).write_bytes(b'{"seconds": 1}\n' + row + b"\n" * 40)
        with pytest.raises(
            JournalError, match=r"timings\.jsonl:2: another program changed it; take the row out"
        ):
            journal.notes("timings.jsonl")
        with pytest.raises(
            JournalError,
            match=r"rows\.jsonl:2: another program changed it; set the run's folder aside",
        ):
            journal.rows("rows.jsonl")
        folder = RunFolder(journal.folder)
        with pytest.raises(
            JournalError, match=r"timings\.jsonl:2: another program changed it; take the row out"
        ):
            folder.read_notes("timings.jsonl")
        (journal.folder / "run.json").write_bytes(row)
        with pytest.raises(
            JournalError, match=r"run\.json: another program changed it; take it out of the folder"
        ):
            folder.read_machine()


def test_one_process_can_not_open_a_run_twice(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(JournalError, match="is writing there"):
        opened(tmp_path)
    opened(tmp_path).close()


def test_a_long_value_that_differs_is_told_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        check_config(
            tmp_path, {"rules": ["x" * 5000]}, {"rules": ["y" * 5000]}, "name another folder"
        )
    assert len(str(caught.value)) < 800
