"""Judging by rules as code, alone and before a model, as commands; real processes where ranks and
kills are the matter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conformance import check_equal_bytes, content
from guidance.commands.use.made import guidance, options, rows, tickets
from programs import forks, small

import stageb
from stageb.__main__ import main
from stageb.guidance.commands.use.record import RuleFigures
from stageb.guidance.judging.coded import CodeJudge

RULES = {"valves": "Fail if state is torn.", "pumps": "Fail if it looks odd."}
NEARLY_RIGHT = RuleFigures(20, 0.95, "fail", 20, 1)


class Job:
    """A folder with tickets of two missions, one of whose rules cannot be read as code, and the
    commands on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keys = {
            "guidance": guidance(folder / "g.json", RULES),
            "tickets": tickets(folder / "in.jsonl", "valves", "pumps"),
            "output": str(folder / "out.jsonl"),
        }
        self.out = folder / "out.jsonl"

    def __call__(self, command: str = "predict", /, *flags: str, **keys: Any) -> int:
        return main([*options(command, self.keys | keys), *flags])


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def torn(ticket: dict[str, Any]) -> bool:
    return "torn" in ticket["per_image"]["image_2"]


def test_rules_judge_without_a_model_and_say_what_they_cannot(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    assert job(by="rules") == 0
    told = capsys.readouterr()
    assert (
        "The rules as code judged 40 of 80 tickets; 40 have no verdict: their rows say why."
        in told.out
    )
    assert "a file of guidance does not tell which names and values its rules speak of" in told.err
    unreadable = "pumps: G1 cannot be read as code (it compares no fields)"
    assert f"{unreadable}: tickets that hang on it are for a person" in " ".join(told.err.split())
    for ticket, row in zip(rows(job.folder / "in.jsonl"), rows(job.out), strict=True):
        assert (row["by"], row["probability"], row["guidance_step"]) == ("rules", None, 3)
        if row["mission"] == "pumps":
            assert (row["verdict"], row["reason"], row["agreement"], row["review"]) == (
                None,
                "",
                0.0,
                True,
            )
            assert row["why"] == "G1: cannot be read as code: it compares no fields"
        else:
            said = (
                ("fail", "G1: Fail if state is torn.")
                if torn(ticket)
                else ("pass", "G0: no rule speaks of it")
            )
            assert (row["verdict"], row["reason"], row["agreement"], row["review"]) == (
                *said,
                1.0,
                False,
            )


@pytest.mark.parametrize("by", ["rules", "model"])
def test_tickets_without_a_label_are_judged_where_learning_skips_them(job: Job, by: str) -> None:
    """``columns.unlabelled: skip`` leaves them out where labels are needed alone, as to measure."""
    given = rows(job.folder / "in.jsonl")[::2]
    for place, row in enumerate(given):
        row["label"] = row["label"] if place % 4 else None
    path = job.folder / "some.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in given))
    keys = {"tickets": str(path), "by": by, "columns.unlabelled": "skip"}
    assert job(**keys) == 0
    assert [row["group_id"] for row in rows(job.out)] == [row["group_id"] for row in given]
    assert job("evaluate", **keys, output=str(job.folder / "measured")) == 0
    labelled = [row["group_id"] for row in given if row["label"]]
    (measured,) = (job.folder / "measured").glob("predictions*.jsonl")
    assert [row["group_id"] for row in rows(measured)] == labelled


def test_another_guidance_is_refused_by_what_matters_to_rules_alone(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    assert job(by="rules") == 0
    whole = job.out.read_bytes()
    # what only asks the model changes nothing
    assert job(by="rules", seed=18, **{"sampler.micro_batch_size": 4}) == 0
    guidance(job.folder / "g.json", {**RULES, "valves": "Fail if state is worn."})
    for keys in (
        {"by": "rules", "sampler.micro_batch_size": 4, "sampler.grid": "[{temperature: 0}]"},
        {"by": "model"},
    ):
        capsys.readouterr()
        assert job(**keys) == 2
        said = capsys.readouterr().err
        assert "guidance of valves: " in said
        assert ("by: " in said) == (keys["by"] == "model")
        assert not any(
            name in said for name in ("sampler.", "seed", "model.", "manual_review", "round_size")
        )
    assert job.out.read_bytes() == whole


def test_no_model_and_no_torch_is_loaded(job: Job) -> None:
    line = options("predict", {**job.keys, "by": "rules", "model.engine": "transformers"})
    watch = (
        "import sys; from stageb.__main__ import main; code = main(sys.argv[1:])\n"
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    subprocess.run([sys.executable, "-c", watch, *line], check=True, capture_output=True)
    assert len(rows(job.out)) == 80


def test_both_asks_the_model_for_what_code_cannot_decide(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    assert job(by="both", round_size=8) == 0
    assert (
        "The model was asked for 40 of 80 tickets; the rules as code judged the others."
        in capsys.readouterr().out
    )
    both = rows(job.out)
    assert [row["by"] for row in both] == ["rules", "model"] * 40
    assert job(by="rules", output=str(job.folder / "rules.jsonl")) == 0
    assert job(by="model", output=str(job.folder / "model.jsonl")) == 0
    parts = {"rules": rows(job.folder / "rules.jsonl"), "model": rows(job.folder / "model.jsonl")}
    assert {row["by"] for row in parts["model"]} == {"model"}
    assert both == [parts[row["by"]][n] for n, row in enumerate(both)]


def test_where_code_decides_all_no_model_is_loaded(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "stageb.engines.build", lambda model, device: pytest.fail("no model is needed")
    )
    guidance(job.folder / "g.json", {**RULES, "pumps": "Fail if colour is red."})
    assert job(by="both") == 0
    assert {row["by"] for row in rows(job.out)} == {"rules"}


def test_a_run_is_used_as_it_judged_unless_the_user_says_otherwise(job: Job) -> None:
    keys = {"runner.epochs": 1, "runner.judge": "both"}
    assert (
        main(small.arguments(small.write(job.folder / "t.jsonl", "valves"), job.folder, keys=keys))
        == 0
    )
    given = {
        "guidance": str(job.folder / "run"),
        "tickets": tickets(job.folder / "new.jsonl", "valves"),
    }
    for by, flags in (("rules", []), ("model", ["--by", "model"])):
        assert (
            main([*options("predict", given), "--output", str(job.folder / f"{by}.jsonl"), *flags])
            == 0
        )
        assert {row["by"] for row in rows(job.folder / f"{by}.jsonl")} == {by}


def test_names_and_values_come_from_the_tickets_that_are_named(job: Job) -> None:
    """New tickets may have none of a rule's values. Alone one can only be read as a value; of two
    nobody knows."""
    guidance(
        job.folder / "g.json",
        {"valves": "Fail if state is torn.", "pumps": "Fail if state is torn or frayed."},
    )
    kept = [
        line for line in (job.folder / "in.jsonl").read_text().splitlines() if "torn" not in line
    ]
    (job.folder / "new.jsonl").write_text("\n".join(kept) + "\n")
    new = str(job.folder / "new.jsonl")
    assert job(by="rules", tickets=new) == 0
    assert {row["verdict"] for row in rows(job.out) if row["mission"] == "valves"} == {"pass"}
    (why,) = {row["why"] for row in rows(job.out) if row["mission"] == "pumps"}
    assert why.startswith("G1: cannot be read as code: no ticket has 'state' as")
    known = job.folder / "known.jsonl"
    lines = [
        {"mission": "pumps", "group_id": state, "per_image": {"1": f"state: {state}"}}
        for state in ("torn", "frayed")
    ]
    known.write_text("\n".join(map(json.dumps, [*lines, lines[0] | {"mission": "valves"}])))
    assert job(by="rules", tickets=new, vocabulary=str(known)) == 2  # other rows would come of it
    assert job("predict", "--fresh", by="rules", tickets=new, vocabulary=str(known)) == 0
    assert {row["verdict"] for row in rows(job.out)} == {"pass"}
    assert job("predict", "--fresh", by="rules", vocabulary=str(job.folder / "none.jsonl")) == 2


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_table_that_tells_names_and_values_has_the_columns_of_the_tickets(
    job: Job, command: str
) -> None:
    guidance(job.folder / "g.json", {"valves": "Fail if State is torn or frayed."})
    for name, states in (("new", ["torn", "new"]), ("known", ["torn", "frayed", "new"])):
        table = "".join(f"{state},{'OK' if state == 'new' else 'NG'}\n" for state in states)
        (job.folder / f"{name}.csv").write_text(f"State,Checked\n{table}")
    columns = (
        "columns:\n  {mission_name: valves, group_id: null, label: Checked, passes: [OK], "
        "fails: [NG]}\n"
    )
    (job.folder / "columns.yaml").write_text(columns)
    files = {"tickets": str(job.folder / "new.csv"), "vocabulary": str(job.folder / "known.csv")}
    assert job(command, by="rules", config=str(job.folder / "columns.yaml"), **files) == 0
    judged = job.out if command == "predict" else job.out / "predictions-rules.jsonl"
    assert [row["verdict"] for row in rows(judged)] == ["fail", "pass"]


def test_the_functions_judge_by_rules_too(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    done = stageb.predict(
        guidance=job.keys["guidance"], tickets=job.keys["tickets"], output=job.out, by="rules"
    )
    assert [row["by"] for row in done] == ["rules"] * 80
    assert done.counts["valves"]["model"] == 0
    found = stageb.evaluate(
        guidance=job.keys["guidance"],
        tickets=job.keys["tickets"],
        output=job.folder / "measured",
        by="rules",
    )
    assert found.figures["figures"]["guidance"]["missions"]["valves"]["n"] == 40
    tickets(job.folder / "in.jsonl", "valves", labelled=True)  # other ones than the rows are of
    for call, output in ((stageb.predict, job.out), (stageb.evaluate, job.folder / "measured")):
        given: dict[str, Any] = {
            "guidance": job.keys["guidance"],
            "tickets": job.keys["tickets"],
            "output": output,
            "by": "rules",
        }
        with pytest.raises(
            stageb.InputError, match=r"give fresh=True to set it aside .* or another output$"
        ):
            call(**given)
    assert job(by="rules") == 2
    assert "give --fresh to set it aside" in capsys.readouterr().err


# Evaluate -----------------------------------------------------------------------------------------


def test_ways_to_judge_stand_side_by_side(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    folder = job.folder / "measured"
    assert job("evaluate", by="model,rules,both", output=str(folder)) == 0
    told = " ".join(capsys.readouterr().out.split())
    found = json.loads((folder / "evaluation.json").read_text())
    assert list(found["by"]) == ["model", "rules", "both"]
    assert found["by"]["model"] == found["figures"]["guidance"]
    valves = found["by"]["rules"]["missions"]["valves"]
    labels = [row["label"] for row in rows(job.folder / "in.jsonl") if row["mission"] == "valves"]
    predicted = [
        row for row in rows(folder / "predictions-rules.jsonl") if row["mission"] == "valves"
    ]
    right = sum(row["verdict"] == label for row, label in zip(predicted, labels, strict=True))
    assert valves["acc"] == pytest.approx(right / 40, abs=1e-6)
    assert found["by"]["rules"]["missions"]["pumps"]["unanswered"] == 40
    assert found["by"]["both"]["missions"]["valves"]["acc"] == valves["acc"]
    assert [found["by"][by]["all"]["asked"] for by in ("model", "rules", "both")] == [80, 0, 40]
    assert (
        found["by"]["both"]["missions"]["pumps"]["acc"]
        == found["by"]["model"]["missions"]["pumps"]["acc"]
    )
    files = ["predictions.jsonl", "predictions-rules.jsonl", "predictions-both.jsonl"]
    assert found["files"] == ["evaluation.json", "wrong.jsonl", *files]
    letter = {rule["rule"]: rule for rule in found["letter"]["valves"]["rules"]}
    decided = [row["reason"].partition(":")[0] for row in predicted]
    model = [
        row["verdict"] for row in rows(folder / "predictions.jsonl") if row["mission"] == "valves"
    ]
    for key in ("G0", "G1"):
        mine = [n for n in range(40) if decided[n] == key]
        assert letter[key]["decided"] == len(mine)
        assert letter[key]["right"] == sum(predicted[n]["verdict"] == labels[n] for n in mine)
        assert letter[key]["model_right"] == sum(model[n] == labels[n] for n in mine)
    assert "no verdict review model asked" in told
    assert f"rules valves 40 {valves['acc']:.1%}" in told
    assert "valves: rules as code rule decides right by code right by the model text" in told
    assert "G1 Fail if it looks odd. (not read as code: it compares no fields)" in told


def test_rules_alone_are_measured_without_a_model(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    other = guidance(job.folder / "other.json", {**RULES, "valves": "Fail if state is worn."})
    folder = job.folder / "measured"
    assert (
        job("evaluate", by="rules", compare=other, output=str(folder), **{"model.engine": "none"})
        == 0
    )
    found = json.loads((folder / "evaluation.json").read_text())
    assert set(found["figures"]) == {"guidance", "compare"}
    assert "followed" not in found["letter"]["valves"]
    assert found["files"][-2:] == ["compared-rules.jsonl", "changed.jsonl"]
    assert found["difference"]["missions"]["valves"]["difference"] > 0
    assert "right by the model" not in capsys.readouterr().out
    assert job("evaluate", by="rules,rules", output=str(folder)) == 2


# Ranks and kills ----------------------------------------------------------------------------------


def test_every_world_size_and_every_kill_leaves_the_same_bytes(job: Job) -> None:
    def line(name: str, world_size: int) -> list[str]:
        small = {
            "by": "both",
            "round_size": 12,
            "sampler.micro_batch_size": 4,
            "fabric.devices": world_size,
        }
        return options(
            "predict", job.keys | small | {"output": str(job.folder / name / "out.jsonl")}
        )

    check_equal_bytes(job.folder, line, lambda name: content(job.folder / name))


def test_of_several_ranks_one_judges_by_rules(job: Job) -> None:
    """As under torchrun: the others have nothing to do."""
    one = job.folder / "one.jsonl"
    assert job(by="rules", output=str(one)) == 0
    ended = forks.run(options("predict", job.keys | {"by": "rules"}), 2, job.folder / "job")
    assert set(ended.codes) == {0}, ended.err
    assert not [each for each in ended.operations[1] if "out.jsonl" in each]
    assert job.out.read_bytes() == one.read_bytes()


def test_rules_alone_survive_a_kill_too(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stageb.guidance.commands.use.judged.MOST_UNCOMMITTED", 16)
    assert job(by="rules") == 0
    whole = job.out.read_bytes()
    out = job.folder / "killed.jsonl"

    def fail(*_: Any) -> str:
        raise KeyboardInterrupt

    calls, explain = iter(range(40)), CodeJudge.explain
    monkeypatch.setattr(
        CodeJudge,
        "explain",
        lambda judge, *given: explain(judge, *given) if next(calls, None) is not None else fail(),
    )
    assert job(by="rules", output=str(out)) == 130
    assert out.read_bytes().count(b"\n") == 32
    monkeypatch.setattr(CodeJudge, "explain", explain)
    assert job(by="rules", output=str(out)) == 0
    assert out.read_bytes() == whole
