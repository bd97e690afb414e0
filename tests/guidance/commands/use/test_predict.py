"""``stageb predict``, as a command and as a function; real processes where ranks and kills are the
matter."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from conformance import check_equal_bytes, content
from guidance.commands.use.made import guidance, options, rows, run_folder, tickets
from programs import forks

import stageb
from stageb.__main__ import main
from stageb.engines.config import ModelConfig
from stageb.engines.protocol import Completion, Question, Request
from stageb.engines.scripted import ScriptedEngine
from stageb.guidance.commands.use.predict_ranks import weigh_verdicts
from stageb.guidance.commands.use.rounds import Waves
from stageb.guidance.config import DecodeConfig, LoopConfig, SamplerConfig
from stageb.guidance.judging.follower import respond
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.words.types import Answers, Calibration, Candidate, Guidance, Rule, Ticket

TORN = {"valves": "Fail if state is torn.", "pumps": "Fail if colour is red."}


class Job:
    """A folder with tickets and guidance, and the command on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keys = {
            "guidance": guidance(folder / "g.json", TORN),
            "tickets": tickets(folder / "in.jsonl", "valves", "pumps", labelled=False),
            "output": str(folder / "out.jsonl"),
        }
        self.out = folder / "out.jsonl"

    def __call__(self, *flags: str, **keys: Any) -> int:
        dotted = {key.replace("__", "."): value for key, value in keys.items()}
        return main([*options("predict", self.keys | dotted), *flags])


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_a_row_per_ticket_in_order_with_its_verdict(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    assert job(round_size=24) == 0
    given, found = rows(job.folder / "in.jsonl"), rows(job.out)
    assert [row["line"] for row in found] == list(range(1, 81))
    assert {row["file"] for row in found} == {str(job.folder / "in.jsonl")}
    assert [(row["mission"], row["group_id"]) for row in found] == [
        (row["mission"], row["group_id"]) for row in given
    ]
    for ticket, row in zip(given, found, strict=True):
        said = ticket["per_image"]["image_2"]
        fails = "torn" in said if ticket["mission"] == "valves" else "red" in said
        assert row["label"] is None
        assert row["guidance_step"] == 3
        assert row["probability"] is None  # this engine cannot tell
        assert row["agreement"] == (
            0.0
            if row["verdict"] is None
            else 0.5
            if row["why"].startswith("low agreement")
            else 1.0
        )
        assert row["review"] == bool(row["why"])
        if not row["review"]:
            assert row["verdict"] == ("fail" if fails else "pass")
            assert row["reason"].startswith("G1" if fails else "G0")
    assert sum(not row["review"] for row in found) > 60
    assert f"A row per ticket, in their order: {job.out}" in capsys.readouterr().out


def test_labels_and_the_size_of_rounds_change_no_verdict(job: Job) -> None:
    assert job() == 0
    labelled = tickets(job.folder / "labelled.jsonl", "valves", "pumps")
    assert job(tickets=labelled, output=str(job.folder / "other.jsonl"), round_size=7) == 0
    plain, other = rows(job.out), rows(job.folder / "other.jsonl")
    assert [row["label"] for row in other] == [row["label"] for row in rows(Path(labelled))]
    for one, same in zip(plain, other, strict=True):
        assert {**one, "file": "", "label": ""} == {**same, "file": "", "label": ""}


def test_what_cannot_be_read_or_is_too_long_is_recorded_for_a_person(job: Job) -> None:
    with (job.folder / "in.jsonl").open("a") as opened:
        long = {"mission": "valves", "group_id": "long", "per_image": {"1": "state: torn " * 200}}
        opened.write(json.dumps(long) + "\n")
    assert job(sampler__samples_per_decode=1, sampler__max_prompt_tokens=150, seed=3) == 0
    found = rows(job.out)
    unread = [row for row in found[:-1] if row["verdict"] is None]
    assert unread
    for row in unread:
        why = "no usable answer in 1 candidates; the first: Verdict: hard to say"
        assert (row["reason"], row["agreement"], row["review"], row["why"]) == ("", 0.0, True, why)
    assert (found[-1]["verdict"], found[-1]["review"]) == (None, True)
    assert "at most 150 (sampler.max_prompt_tokens)" in found[-1]["why"]


class Weighing(ScriptedEngine):
    """Can tell probabilities: torn ones fail, worn ones are a toss-up."""

    def score(self, questions: Sequence[Question]) -> list[tuple[float, ...]]:
        fails = {"torn": 3.0, "worn": 0.1}
        leads = [
            next((lead for word, lead in fails.items() if word in each.prompt.user), -3.0)
            for each in questions
        ]
        assert all(each.answers == ("Verdict: pass", "Verdict: fail") for each in questions)
        return [(0.0, lead) for lead in leads]

    def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
        self.asked = [*getattr(self, "asked", []), len(requests)]
        return super().generate(requests)


def test_an_engine_that_can_tell_says_how_probable_a_verdict_is(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Weighing(respond)
    monkeypatch.setattr("stageb.engines.build", lambda model, device: engine)
    assert job(sampler__samples_per_decode=1, sampler__grid="[{temperature: 0}]") == 0
    for row, ticket in zip(rows(job.out), rows(job.folder / "in.jsonl"), strict=True):
        state = ticket["per_image"]["image_2"]
        fails = 0.952574 if "torn" in state else 0.524979 if "worn" in state else 0.047426
        assert row["probability"] == pytest.approx(
            fails if row["verdict"] == "fail" else 1 - fails, abs=2e-6
        )
        assert row["review"] == (row["probability"] < 0.8)
        assert row["why"] == (f"low probability: {row['probability']:.2f}" if row["review"] else "")
    assert engine.asked == [40, 40]  # a mission's tickets at once, not one by one
    assert job("--fresh", probability="false") == 0
    assert {row["probability"] for row in rows(job.out)} == {None}


def test_a_ticket_that_is_set_aside_leaves_others_as_probable_as_they_were() -> None:
    seen = [
        replace(Ticket("valves", state, "", (("image_1", state),)), ruling=ruling)
        for state, ruling in (("torn", "pass"), ("worn", None), ("good", "fail"))
    ]
    said = Candidate(0, 0, 0.0, "Verdict: pass", "pass", "", format_ok=True, tokens=1)
    weighed = Guidance("valves", 1, (Rule("G0", "Look."),), 1, calibration=Calibration(rules=2.0))

    def weigh(*asked: bool) -> list[dict[str, float] | None]:
        answers = [
            Answers(ticket.key, 1, (said,) if is_asked else ())
            for ticket, is_asked in zip(seen, asked, strict=True)
        ]
        return weigh_verdicts(seen, answers, weighed, Weighing(respond), WORDS["en"])

    whole = weigh(True, True, True)
    assert len({*map(str, whole)}) == 3
    for asked in product((True, False), repeat=3):
        assert weigh(*asked) == [
            shares if is_asked else None for shares, is_asked in zip(whole, asked, strict=True)
        ]


class Interrupted(Weighing):
    """A person presses Ctrl-C while the third group is judged."""

    def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
        if len(getattr(self, "asked", [])) == 2:
            raise KeyboardInterrupt
        return super().generate(requests)


def test_a_round_that_is_interrupted_goes_on_within_and_leaves_the_same_bytes(
    job: Job, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One round of 80 tickets, ten groups of 8."""
    size = {"sampler__micro_batch_size": 8, "round_size": 192, "sampler__samples_per_decode": 1}
    monkeypatch.setattr("stageb.engines.build", lambda model, device: Weighing(respond))
    whole = job.folder / "whole.jsonl"
    assert job(output=str(whole), **size) == 0
    monkeypatch.setattr("stageb.guidance.commands.use.rounds.EVERY_S", 0.0)
    monkeypatch.setattr("stageb.engines.build", lambda model, device: Interrupted(respond))
    capsys.readouterr()
    assert job(**size) == 130
    assert "interrupted by SIGINT; 16 of 80 tickets are done and kept; " in capsys.readouterr().err
    assert job.out.read_bytes() == b""  # rows are written in the tickets' order, a round at once
    engine = Weighing(respond)
    monkeypatch.setattr("stageb.engines.build", lambda model, device: engine)
    assert job(**size) == 0
    assert engine.asked == [8] * 8
    assert f"{job.out}: resuming after 16 of 80 tickets" in capsys.readouterr().err
    assert job.out.read_bytes() == whole.read_bytes()
    committed = (
        json.loads(path.with_name(f"{path.name}.commit.json").read_text())
        for path in (job.out, whole)
    )
    assert len({json.dumps(each) for each in committed}) == 1


def test_a_wave_takes_as_many_groups_as_some_seconds_judge(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("stageb.guidance.commands.use.rounds.time.monotonic", lambda: now[0])
    waves = Waves(Mock(answered=[]))
    waves.begin()
    assert waves.plan(24, 2) == (0, 2)  # the first, one for each rank, tells how long they take
    now[0] = 4.0
    waves.add([[1], [2]], is_last=False)
    # 2 seconds a group: 5 of them in 10 seconds, and the same for either rank
    assert waves.plan(24, 2) == (2, 6)
    waves.begin()
    assert waves.plan(3, 2) == (0, 3)


def test_a_runs_folder_gives_its_model_and_sampler(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    sampler = SamplerConfig(samples_per_decode=1, grid=[DecodeConfig(temperature=0.0)])
    config = LoopConfig(
        tickets=["x"], seed=5, model=ModelConfig(engine="scripted"), sampler=sampler
    )
    folder = run_folder(job.folder / "run", config, TORN)
    line = [
        "predict",
        f"--guidance={folder}",
        f"--tickets={job.keys['tickets']}",
        f"--output={job.out}",
    ]
    line.append("--model.engine=scripted")  # which is no choice of a folder's: test_of_run.py
    assert main([*line, "--fabric.accelerator=cpu"]) == 0
    # greedy: no slips
    assert all(
        row["verdict"] in ("pass", "fail") and row["agreement"] == 1 for row in rows(job.out)
    )
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main([*line, "--sampler.samples_per_decode=3", "--print_config"])
    printed = capsys.readouterr().out
    assert "samples_per_decode: 3\n" in printed
    assert "temperature: 0.0\n" in printed
    assert "seed: 5\n" in printed
    snake = job.folder / "snake"
    snake.mkdir()
    (snake / "config.yaml").write_text("loop: ppo\n")
    assert job(guidance=str(snake)) == 2
    assert "a run of loop ppo, which learns no guidance" in capsys.readouterr().err


def test_faults_are_told_together_and_nothing_is_written(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    with (job.folder / "in.jsonl").open("a") as opened:
        opened.write(
            '{"mission": "valves", "group_id": "x", "label": "ok", "per_image": {"1": "a"}}\n'
        )
        opened.write('{"mission": "taps", "group_id": "y", "per_image": {"1": "a"}}\n')
    assert job(tickets=f"[{job.keys['tickets']}, {job.folder / 'none.csv'}]") == 2
    said = capsys.readouterr().err
    assert '/in.jsonl:81: label "ok"; write "pass" or "fail"' in said
    assert (
        "/in.jsonl:82: mission 'taps', for which there is no guidance; there is some for pumps, "
        "valves" in said
    )
    assert "/none.csv: cannot be read" in said
    assert job(guidance=str(job.folder / "nowhere")) == 2
    assert "name a run's folder or a guidance.json" in capsys.readouterr().err
    assert job(guidance=str(job.folder)) == 2
    assert job(guidance="") == 2
    assert job(tickets="[]") == 2
    assert job("--fresh", output=job.keys["tickets"]) == 2
    assert sorted(path.name for path in job.folder.iterdir()) == ["g.json", "in.jsonl"]


def test_the_same_command_finds_all_done_and_another_one_is_refused(
    job: Job, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert job() == 0
    whole = job.out.read_bytes()
    monkeypatch.setattr(
        "stageb.engines.build", lambda model, device: pytest.fail("no model is needed")
    )
    assert job() == 0
    assert job.out.read_bytes() == whole
    capsys.readouterr()
    guidance(job.folder / "g.json", {**TORN, "pumps": "Fail if colour is blue."})
    assert job(seed=18) == 2
    said = capsys.readouterr().err
    assert "seed: 17 there, 18 now" in said
    assert "guidance of pumps: " in said
    assert "guidance of valves" not in said
    assert "--fresh" in said
    guidance(job.folder / "g.json", TORN)
    tickets(job.folder / "in.jsonl", "valves", "pumps", labelled=True)
    assert job() == 2
    assert "the tickets: " in capsys.readouterr().err
    assert job.out.read_bytes() == whole
    (job.folder / "mine.jsonl").write_text("mine\n")
    assert job(output=str(job.folder / "mine.jsonl")) == 2
    assert "holds something that this command did not write" in capsys.readouterr().err
    assert (job.folder / "mine.jsonl").read_text() == "mine\n"
    monkeypatch.undo()
    assert job("--fresh") == 0
    assert (job.folder / "out.jsonl.1").read_bytes() == whole
    assert job.out.read_bytes() != whole


def test_the_function_is_the_command(job: Job) -> None:
    assert job() == 0
    done = stageb.predict(
        guidance=job.keys["guidance"],
        tickets=[job.keys["tickets"]],
        output=job.folder / "by_function.jsonl",
        model=ModelConfig(engine="scripted"),
        sampler={"samples_per_decode": 2},
        fabric={"accelerator": "cpu"},
    )
    assert list(done) == rows(job.out)
    assert sum(done.counts["valves"][name] for name in ("pass", "fail", "none")) == 40
    with pytest.raises(
        stageb.BadInputError, match=r"there is no key sampel; did you mean sampler\?"
    ):
        stageb.predict(guidance=job.keys["guidance"], tickets="x", sampel={})
    with pytest.raises(stageb.ConfigError, match="seed"):
        stageb.predict(guidance=job.keys["guidance"], tickets="x", seed="x")
    with pytest.raises(
        stageb.InputError,
        match=r"\{17\} is no text, number, list or mapping; give keys as stageb predict --help",
    ):
        stageb.predict(guidance=job.keys["guidance"], tickets="x", seed={17})


# Ranks and kills: real processes ------------------------------------------------------------------


def line(job: Job, out: Path, world_size: int, **keys: Any) -> list[str]:
    small = {
        "round_size": 24,
        "sampler.micro_batch_size": 4,
        "fabric.devices": world_size,
        "output": str(out),
    }
    return options("predict", job.keys | small | keys)


def test_every_world_size_and_every_kill_leaves_the_same_bytes(job: Job) -> None:
    def line_of(name: str, world_size: int) -> list[str]:
        return line(job, job.folder / name / "out.jsonl", world_size)

    kills = [(0.0, 2, 1), (0.3, 2, 1), (0.8, 2, 1)]
    check_equal_bytes(
        job.folder, line_of, lambda name: content(job.folder / name), (1, 2, 3), kills
    )
    assert content(job.folder / "1").keys() == {"out.jsonl", "out.jsonl.commit.json"}
    assert (job.folder / "1/out.jsonl").read_bytes().count(b"\n") == 80


def test_a_rank_that_raises_ends_all_and_names_the_ticket(job: Job) -> None:
    keys = {"model.model_name_or_path": "programs.models:raising_on_1"}
    ended = forks.run(line(job, job.out, 2, **keys), 2, job.folder / "job")
    assert set(ended.codes) == {1}
    assert "rank 1 failed at ticket g-" in ended.err
    assert "ValueError: the lamp went out" in ended.err


def test_answers_that_cannot_be_read_end_it_before_a_row_is_written(
    job: Job, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    mute = "guidance.test_readable:echoing"
    assert job(model__model_name_or_path=mute) == 2
    said = capsys.readouterr().err
    assert re.search(
        r"^stageb: (\d+) of the first \1 answers cannot be read .*, so few tickets would get a verdict",
        said,
        re.M,
    )
    assert "max_unreadable says how many may be unreadable" in said
    assert not job.out.exists() or job.out.read_text() == ""
    assert job(model__model_name_or_path=mute, max_unreadable=2) == 2
    assert "max_unreadable: 2.0: a share between 0 and 1" in capsys.readouterr().err
    assert job("--fresh") == 0
    assert len(rows(job.out)) == 80
    job.out.unlink()
    assert job("--fresh", model__model_name_or_path=mute, max_unreadable=1.0) == 0
    assert {row["verdict"] for row in rows(job.out)} == {None}


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_keys_of_fit_alone_are_told_with_their_lines_and_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    prices = [(3, "price")] if command == "predict" else []  # evaluate weighs errors, too
    told = [(2, "split"), *prices, (4, "gate"), (6, "output")]
    path = tmp_path / "mine.yaml"
    path.write_text(
        "columns: {label: Checked}\nsplit: {train: 0.5}\nprice: {missed_failure: 20}\ngate:\n  "
        "alpha: 0.1\n"
        "output: {run_name: mine}\n"
    )
    assert (
        main([command, "--config", str(path), "--tickets", "x.csv", "--guidance", "out/mine"]) == 2
    )
    remedy = (
        "keep a file of columns alone, which serves both commands, and give fit the rest "
        "in a second --config"
    )
    assert capsys.readouterr().err.splitlines() == [
        f"stageb: {len(told)} unusable config keys:",
        *(f"  {path}:{line}: {key} belongs to fit alone; {remedy}" for line, key in told),
    ]
    assert main([command, "--gate.pool_size", "20"]) == 2
    assert (
        "command line: gate.pool_size belongs to fit alone; leave it out" in capsys.readouterr().err
    )


def test_a_name_in_csv_makes_a_table_of_the_same_rows(job: Job) -> None:
    assert job() == 0 and job(output=str(job.folder / "out.csv")) == 0
    table = list(csv.DictReader((job.folder / "out.csv").open(encoding="utf-8-sig", newline="")))
    found = rows(job.out)
    assert list(table[0]) == list(found[0])
    assert [(row["group_id"], row["verdict"], row["reason"]) for row in table] == [
        (row["group_id"], row["verdict"] or "", row["reason"]) for row in found
    ]
    assert {row["review"] for row in table} <= {"true", "false"}
