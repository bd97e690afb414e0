"""Outputs that name no file to write: refused before any work, with nothing left behind."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from stageb.__main__ import main

COLUMNS = "mission_name=rc,group_id=Rack,label=Checked,passes=OK,fails=NG"
RULES = {
    "rc": {
        "experiences": {
            "G0": "A ticket passes unless a rule fails it.",
            "G1": "Fail if Seal is worn.",
        }
    }
}
TABLE = "Rack,Seal,Remarks,Checked\nr-1,worn,,NG\nr-3,new,fine,OK\n"
OF_TICKETS = ["--tickets", "t.csv", "--columns", COLUMNS]
EXPORT = ["guidance", "export", "rules.json", "--format", "python", *OF_TICKETS]
PREDICT = ["predict", "--guidance", "rules.json", "--by", "rules", *OF_TICKETS]
EVALUATE = ["evaluate", "--guidance", "rules.json", "--by", "rules", *OF_TICKETS]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with guidance and tickets, and this process in it."""
    (tmp_path / "rules.json").write_text(json.dumps(RULES))
    (tmp_path / "t.csv").write_text(TABLE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def content_of(folder: Path) -> dict[str, bytes | None]:
    """Every name below a folder, with the bytes of files."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def check_refused(words: Sequence[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = content_of(Path())
    assert main(words) == 2
    assert said in capsys.readouterr().err
    assert content_of(Path()) == before


@pytest.mark.parametrize("command", [EXPORT, PREDICT, [*PREDICT, "--fresh"]])
def test_what_is_no_plain_file_is_not_written_to(
    command: Sequence[str], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo("ff")
    Path("gone").symlink_to("nowhere")
    Path("nothing").symlink_to("/dev/null")
    Path("folder").mkdir()
    for name in ("ff", "gone", "nothing", "/dev/null", "/dev/stdout", "/proc/self/fd/1"):
        check_refused(
            [*command, "--output", name], f"{name}: not a file; name a file to write", capsys
        )
    check_refused(
        [*command, "--output", "folder"], "folder: a folder; name a file to write", capsys
    )
    for name in ("n" * 250, f"{'n' * 300}/q.jsonl"):
        check_refused([*command, "--output", name], "too long; name a file to write", capsys)
    assert not Path("/dev/null.commit.json").exists()


def test_evaluate_writes_over_no_pipe(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("e").mkdir()
    os.mkfifo("e/wrong.jsonl")
    check_refused(
        [*EVALUATE, "--output", "e"], "e/wrong.jsonl: not a file; name a file to write", capsys
    )


def test_guidance_is_promoted_into_no_pipe(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("ff.json")
    check_refused(
        ["guidance", "promote", "rules.json", "--to", "ff.json", "--yes"],
        "ff.json: not a file",
        capsys,
    )


def test_a_link_to_a_file_may_be_written(place: Path) -> None:
    Path("rules.py").write_text("")
    Path("link.py").symlink_to("rules.py")
    assert main([*EXPORT, "--output", "link.py"]) == 0


HOLDS = "it holds the {}; name another file"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ([*EXPORT, "--output", "t.csv"], "tickets"),
        ([*EXPORT, "--output", "link.csv"], "tickets"),
        ([*EXPORT, "--output", "rules.json"], "guidance"),
        ([*EXPORT, "--output", "rules.history.jsonl"], "guidance"),
        ([*PREDICT, "--fresh", "--output", "t.csv"], "tickets"),
        ([*PREDICT, "--fresh", "--output", "rules.json"], "guidance"),
        ([*PREDICT, "--fresh", "--vocabulary", "v.csv", "--output", "v.csv"], "vocabulary"),
        (["summarize", "--tickets", "s.jsonl", "--output", "./s.jsonl", "--fresh"], "tickets"),
    ],
)
def test_an_output_is_no_input_of_its_command(
    words: Sequence[str], what: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("v.csv").write_text(TABLE)
    Path("s.jsonl").write_text("{}\n")
    Path("rules.history.jsonl").write_text("")
    Path("link.csv").symlink_to("t.csv")
    check_refused(words, HOLDS.format(what), capsys)


@pytest.mark.parametrize("name", ["predictions-rules.jsonl", "evaluation.json", "wrong.jsonl"])
def test_evaluate_writes_over_none_of_its_inputs(
    name: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("e").mkdir()
    os.link("rules.json", f"e/{name}")
    check_refused(
        [*EVALUATE, "--output", "e", "--fresh"], f"e/{name}: {HOLDS.format('guidance')}", capsys
    )


@pytest.fixture
def run(place: Path) -> Path:
    """A run's folder with all that a run writes of its own, as far as names go, and a file that
    somebody put there."""
    folder = place / "out" / "run"
    (folder / "rc-1" / "snapshots").mkdir(parents=True)
    (folder / "rc-1" / "guidance.json").write_text(json.dumps(RULES))
    (folder / "config.yaml").write_text("tickets: [t.csv]\n")
    (folder / "report.html").write_text("")
    lengths = {"rc-1/metrics.jsonl": 0, "audit.jsonl": 0}
    commit = {"number": 1, "state": {}, "config": {}, "lengths": lengths, "versions": {}}
    (folder / "commit.json").write_text(json.dumps(commit))
    (folder / "rules.py").write_text("")
    return folder


OWN = [
    "config.yaml",
    "commit.json",
    ".lock",
    "commit.d/x.json",
    "rc-1/guidance.json",
    "rc-1/new.json",
    "audit.jsonl",
]


@pytest.mark.parametrize("command", [EXPORT, [*PREDICT, "--fresh"]])
def test_an_output_is_no_file_of_a_run(
    command: Sequence[str], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("linked").symlink_to("out")
    for name in [*OWN, "report.html", "run.json", "timings.jsonl"]:
        check_refused(
            [*command, "--output", f"linked/run/{name}"], f"run/{name}: belongs to a run", capsys
        )
    trained = ["--guidance", "out/run", "--by", "rules", "--fresh"]
    check_refused(
        ["predict", *trained, "--tickets", "rules.json", "--output", "t.csv"],
        HOLDS.format("tickets"),
        capsys,
    )
    for name in ("rules.py", "mine/rules.py"):
        assert main([*EXPORT, "--output", f"out/run/{name}"]) == 0


def test_a_report_takes_the_place_of_its_own_runs_alone(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("config.yaml", "rc-1/guidance.json", "rc-1/report.html"):
        check_refused(
            ["report", "out/run", "--output", f"out/run/{name}"],
            f"out/run/{name}: belongs to a run",
            capsys,
        )
    check_refused(["report", "out/run", "--output", "t.csv"], HOLDS.format("tickets"), capsys)
    check_refused(
        ["report", "out/run", "--tickets", "rules.json", "--output", "rules.json"],
        HOLDS.format("tickets"),
        capsys,
    )
    for output in ([], ["--output", "out/run/report.html"]):
        main(["report", "out/run", *output])
        assert "belongs to a run" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [["coco", "a.jsonl", "--images", "."], ["yolo", ".", "--names", "a.jsonl", "--images", "."]],
)
def test_boxes_are_written_over_no_labels_and_into_no_run(
    words: Sequence[str], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.jsonl").write_text("")
    check_refused(["boxes", *words, "--to", "a.jsonl"], HOLDS.format("labels"), capsys)
    check_refused(["boxes", *words, "--to", "out/run/timings.jsonl"], "belongs to a run", capsys)


LONG = "x" * 5000  # no file can have such a name


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "--guidance", LONG, *OF_TICKETS],
        ["evaluate", "--guidance", "rules.json", "--compare", LONG, "--by", "rules", *OF_TICKETS],
        ["evaluate", LONG],
        ["report", LONG],
        ["fit", "--config", LONG],
        ["fit", "--guidance.path", LONG, *OF_TICKETS],
        ["validate", "--model.model_name_or_path", f"./{LONG}", *OF_TICKETS],
        ["guidance", "show", LONG],
        ["guidance", "history", LONG],
        ["guidance", "promote", "rules.json", "--to", LONG, "--yes"],
        ["boxes", "coco", LONG, "--images", LONG, "--to", LONG],
    ],
    ids=lambda words: " ".join(word[:20] for word in words[:3]),
)
def test_a_name_that_no_file_can_have_is_told_in_one_line(
    place: Path, words: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "File name too long" in line
    assert len(line) < 500
    assert sorted(path.name for path in place.iterdir()) == ["rules.json", "t.csv"]
