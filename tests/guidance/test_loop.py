"""The whole loop on small made-up tickets, one process, the scripted engine.

What a loop owes at several ranks, and when it is killed, is the same for every loop: ``tests/test_conformance.py``.
"""

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conformance import content
from programs import models, small

from stageb.__main__ import main
from stageb.engines.protocol import Decode, Prompt
from stageb.guidance.follower import respond
from stageb.guidance.guidance_file import load_seed, neutral
from stageb.guidance.prompts import WORDS
from stageb.guidance.types import Guidance
from stageb.journal import Journal, safe_name

SPLITS = ("train", "val", "test")
UNTESTED = {"gate": "none", "guidance.retention": 1000}  # an edit for nearly every bundle, all of them kept


class Fit:
    """Runs in a folder of their own: their tickets, their output, what they print."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.root = folder / "out"
        self.tickets = small.write(folder / "tickets.jsonl", "valves")
        self._capfd = capfd
        self.out = self.err = ""

    def __call__(self, *options: str, **keys: Any) -> int:
        """Run with ``keys`` (``__`` for the dot); the exit code."""
        dotted = {key.replace("__", "."): value for key, value in keys.items()}
        self._capfd.readouterr()
        code = main([*small.arguments(self.tickets, self.root, keys=dotted), *options])
        self.out, self.err = self._capfd.readouterr()
        return code

    @property
    def run(self) -> Path:
        return self.root / "run"

    def rows(self, file: str, mission: str = "valves") -> list[dict[str, Any]]:
        """The rows of a mission's file."""
        path = self.run / safe_name(mission) / f"{file}.jsonl"
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []

    def guidance(self, mission: str = "valves") -> Guidance:
        """What the mission's guidance.json holds."""
        return load_seed(self.run / safe_name(mission) / "guidance.json")[mission]


@pytest.fixture
def fit(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Fit:
    return Fit(tmp_path, capfd)


Asked = list[tuple[Prompt, Decode]]
Model = Callable[[models.Respond], tuple[str, Asked]]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    """Makes a function of the test the model: its name for a config, and what it will have been asked."""

    def named(answer: models.Respond) -> tuple[str, Asked]:
        asked: Asked = []

        def listening(prompt: Prompt, decode: Decode, key: int) -> str:
            asked.append((prompt, decode))
            return answer(prompt, decode, key)

        monkeypatch.setattr(models, "stand_in", listening, raising=False)
        return "programs.models:stand_in", asked

    return named


def by_epoch(metrics: list[dict[str, Any]], split: str) -> list[float]:
    return [row["acc"] for row in metrics if row["split"] == split]


# What a run brings


def test_it_learns_the_hidden_rule(fit: Fit) -> None:
    assert fit() == 0
    before, *_, after = by_epoch(fit.rows("metrics"), "val")
    assert (before < 0.8, after) == (True, 1.0)
    assert by_epoch(fit.rows("metrics"), "test")[-1] == 1.0
    learnt = fit.guidance()
    assert [rule.text for rule in learnt.rules] == ["A ticket passes unless a rule fails it.", "Fail if state is torn."]
    assert learnt.step == 1
    assert "G1. Fail if state is torn." in fit.out
    assert "Traceback" not in fit.err


def test_metrics_have_a_row_for_each_epoch_and_split_that_counts_the_selections(fit: Fit) -> None:
    assert fit() == 0
    metrics, selections = fit.rows("metrics"), fit.rows("selections")
    assert [(row["epoch"], row["split"]) for row in metrics] == [(epoch, split) for epoch in range(3) for split in SPLITS]
    sizes = Counter(row["split"] for row in metrics for _ in range(row["n"]))
    assert sum(sizes.values()) == 3 * 60
    latest: dict[str, list[dict[str, Any]]] = {}
    for row in metrics:
        of = [each for each in selections if (each["epoch"], each["split"]) == (row["epoch"], row["split"])]
        latest[row["split"]] = of = of or latest[row["split"]]  # not judged again under the same guidance
        assert row["n"] == len(of) == len({each["ticket_key"] for each in of})
        assert row["acc"] == round(sum(each["label_match"] for each in of) / len(of), 6)
        assert row["fp"] == sum((each["label"], each["verdict"]) == ("fail", "pass") for each in of)
        assert row["fn"] == sum((each["label"], each["verdict"]) == ("pass", "fail") for each in of)
        kept = [each for each in of if not each["manual_review"]]
        assert row["without_review"]["n"] == len(kept)
        assert row["without_review"]["acc"] == round(sum(each["label_match"] for each in kept) / len(kept), 6)


def test_every_ticket_leaves_its_candidates_and_one_selection(fit: Fit) -> None:
    assert fit() == 0
    trajectories, selections = fit.rows("trajectories"), fit.rows("selections")
    names = ("epoch", "split", "round", "ticket_key", "guidance_step")
    keys = [tuple(row[name] for name in names) for row in selections]
    assert len(set(keys)) == len(keys)
    assert [tuple(row[name] for name in names) for row in trajectories] == [key for key in keys for _ in range(2)]
    assert [row["candidate_index"] for row in trajectories] == [0, 1] * len(keys)
    malformed = [row for row in trajectories if not row["format_ok"]]
    failures = [row for row in fit.rows("failure_malformed") if row["source"] == "rollout"]
    assert [(row["ticket_key"], row["text"]) for row in failures] == [(row["ticket_key"], row["text"]) for row in malformed]
    review = [row["ticket_key"] for row in selections if row["manual_review"]]
    assert [row["ticket_key"] for row in fit.rows("manual_review_queue")] == review


def test_an_edit_is_seen_by_the_next_round_and_never_by_the_current_one(fit: Fit) -> None:
    assert fit(**UNTESTED) == 0
    rounds: dict[tuple[int, str, int], set[int]] = {}
    for row in fit.rows("trajectories"):
        rounds.setdefault((row["epoch"], row["split"], row["round"]), set()).add(row["guidance_step"])
    assert all(len(steps) == 1 for steps in rounds.values())
    steps = [step for (step,) in rounds.values()]
    assert steps == sorted(steps)
    assert steps[-1] > steps[0]
    changes = [(row["guidance_step_before"], row["guidance_step_after"]) for row in fit.rows("reflection")]
    assert changes[0][0] == 0
    assert all(after == later for (_, after), (later, _) in pairwise(changes))


def test_reflection_reads_train_tickets_alone(fit: Fit, model: Model) -> None:
    """A val or test ticket's group has a number of its own, and every summary names it."""
    lines = [json.loads(line) for line in fit.tickets.read_text().splitlines()]
    for line in lines:
        line["per_image"]["image_1"] += f"; tag: {line['group_id'].replace('-', '')}"
    fit.tickets.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    name, asked = model(respond)
    assert fit(model__model_name_or_path=name) == 0
    held_out = {row["group_id"].replace("-", "") for row in fit.rows("selections") if row["split"] != "train"}
    reflections = [prompt for prompt, _ in asked if prompt.system.startswith(WORDS["en"].reflection.partition("{")[0])]
    shown = {word.rstrip(";") for prompt in reflections for word in prompt.user.split()}
    assert held_out
    assert reflections
    assert not held_out & shown


# Reflection and gate


def test_a_bundle_that_is_all_right_is_recorded_and_asks_no_model(fit: Fit, model: Model) -> None:
    rows = [row | {"label": "pass"} for row in small.rows()]
    fit.tickets.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    name, asked = model(models.idle)
    assert fit(model__model_name_or_path=name) == 0
    reflection = fit.rows("reflection")
    assert len(reflection) == 2 * 3  # 39 train tickets: two bundles of 18 and one of what is left, in both epochs
    assert {(row["eligible"], row["why_not"], row["applied"]) for row in reflection} == {
        (False, "all right with high agreement", False)
    }
    assert all(row["proposals"] == [] and row["gate"] is None for row in reflection)
    assert [row["records"] for row in reflection] == [18, 18, 3] * 2
    beginning = WORDS["en"].rollout.partition("{")[0]
    assert all(prompt.system.startswith(beginning) and decode.temperature > 0 for prompt, decode in asked)
    assert fit.guidance() == neutral("valves", "en")


def test_gate_none_applies_the_first_edit_untested(fit: Fit, model: Model) -> None:
    name, asked = model(respond)
    assert fit(model__model_name_or_path=name, **UNTESTED) == 0
    proposed = [row for row in fit.rows("reflection") if any(proposal["operations"] for proposal in row["proposals"])]
    assert len(proposed) > 3
    for row in proposed:
        assert (row["applied"], row["gate"]) == (True, None)
        assert row["guidance_step_after"] == row["guidance_step_before"] + 1
        first = next(proposal["proposal"] for proposal in row["proposals"] if proposal["operations"])
        assert row["applied_proposal"] == first
    assert all(decode.temperature > 0 for _, decode in asked)  # verdicts for a gate are asked greedily


def test_the_gates_figures_tell_why(fit: Fit, model: Model) -> None:
    name, asked = model(respond)
    assert fit(model__model_name_or_path=name) == 0
    gates = [row for row in fit.rows("reflection") if row["gate"]]
    assert {row["applied"] for row in gates} == {True, False}
    right = gates[0]["gate"]["right_before"]
    for row in gates:
        gate = row["gate"]
        assert (gate["pool"], gate["right_before"]) == (39, right)
        assert gate["verdicts"] == sum(contender["seen"] for contender in gate["contenders"])
        assert sum(contender["proposed_times"] for contender in gate["contenders"]) <= len(row["proposals"])
        if row["applied"]:
            (winner,) = [each for each in gate["contenders"] if each["proposal"] == row["applied_proposal"]]
            assert winner["seen"] == gate["pool"]
            assert winner["won"] > winner["lost"]
            right += winner["won"] - winner["lost"]
    greedy = sum(decode.temperature == 0 for _, decode in asked)
    assert greedy == 39 + sum(row["gate"]["verdicts"] for row in gates)  # the present guidance judges the pool but once


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_rule_that_no_operation_names_is_never_lost(fit: Fit, seed: int) -> None:
    assert fit(seed=seed, runner__epochs=3, **UNTESTED) == 0
    snapshots = {
        guidance.step: guidance
        for path in (fit.run / "valves" / "snapshots").iterdir()
        for guidance in load_seed(path).values()
    }
    applied = [row for row in fit.rows("reflection") if row["applied"]]
    assert len(applied) > 3
    for row in applied:
        (proposal,) = [each for each in row["proposals"] if each["proposal"] == row["applied_proposal"]]
        named = {key for op in proposal["operations"] for key in [op["key"], *op["merged_from"]]}
        before, after = snapshots[row["guidance_step_before"]], snapshots[row["guidance_step_after"]]
        assert all(rule.key in named or after.rule(rule.key) == rule for rule in before.rules)
        assert after.next_number >= before.next_number
    assert sorted(snapshots) == list(range(len(snapshots)))
    assert snapshots[len(applied)] == fit.guidance()


# Folders and files


NAMES = (
    "../../x",
    "/etc/x",
    "a/b",
    "a-b",
    "A",
    "a",
    "x",
    "x ",
    "..",
    "con",
    "[/b]",
    ":warning:",
    "阀门",
    "commit.json",
    "n" * 300,
)


def test_missions_never_share_a_folder_and_stay_inside_the_runs(fit: Fit) -> None:
    small.write(fit.tickets, *NAMES, groups=12)
    assert fit(runner__epochs=1, split__train=0.8, split__val=0.1, split__test=0.1) == 0
    assert {path.name for path in fit.folder.iterdir()} == {"tickets.jsonl", "out"}
    assert [path.name for path in fit.root.iterdir()] == ["run"]
    assert len({safe_name(name).casefold() for name in NAMES}) == len(NAMES)
    for name in NAMES:
        assert {row["mission"] for row in fit.rows("trajectories", name)} == {name}
        assert fit.guidance(name).mission == name
        assert name in fit.out
    missions = [path for path in fit.run.iterdir() if path.is_dir()]
    assert {path.name for path in missions} == {safe_name(name) for name in NAMES}


def test_retention_keeps_the_newest_snapshots(fit: Fit) -> None:
    assert fit(**{**UNTESTED, "guidance__retention": 3}) == 0
    step = fit.guidance().step
    assert step > 4
    kept = sorted(path.name for path in (fit.run / "valves" / "snapshots").iterdir())
    assert kept == [f"guidance-{n:06d}.json" for n in (step - 2, step - 1, step)]
    newest = fit.run / "valves" / "snapshots" / kept[-1]
    assert newest.read_bytes() == (fit.run / "valves" / "guidance.json").read_bytes()


def test_a_ticket_that_is_too_long_is_set_aside_counted_wrong_and_queued(fit: Fit) -> None:
    lines = fit.tickets.read_text().splitlines()
    long = json.loads(lines[0])
    long["per_image"]["image_1"] = "word " * 300
    fit.tickets.write_text("\n".join([json.dumps(long), *lines[1:]]))
    assert fit(sampler__max_prompt_tokens=200) == 0
    key = f"{long['group_id']}::{long['label']}"
    selections = [row for row in fit.rows("selections") if row["ticket_key"] == key]
    assert {(row["verdict"], row["label_match"], row["manual_review"]) for row in selections} == {(None, False, True)}
    assert all(row["prompt_tokens"] > 300 for row in selections)
    assert not [row for row in fit.rows("trajectories") if row["ticket_key"] == key]
    queued = [row for row in fit.rows("manual_review_queue") if row["ticket_key"] == key]
    assert len(queued) == len(selections)
    assert all("sampler.max_prompt_tokens" in row["why"] for row in queued)


def test_unusable_lines_are_set_aside_where_that_is_asked_for(fit: Fit) -> None:
    fit.tickets.write_text(fit.tickets.read_text() + '{"mission": 3}\n')
    assert fit(on_bad_record="skip") == 0
    (row,) = [json.loads(line) for line in (fit.run / "bad_records.jsonl").read_text().splitlines()]
    assert (row["line"], row["raw"]) == (61, '{"mission": 3}')


# Where guidance starts


def seed_file(fit: Fit, missions: Mapping[str, Mapping[str, str]]) -> str:
    path = fit.folder / "seed.json"
    path.write_text(json.dumps({mission: {"experiences": experiences} for mission, experiences in missions.items()}))
    return str(path)


def test_a_seed_is_what_the_mission_starts_with(fit: Fit) -> None:
    small.write(fit.tickets, "valves", "seals")
    seed = seed_file(fit, {"valves": {"G0": "Judge valves.", "G7": "Fail if state is torn."}})
    assert fit(guidance__path=seed) == 0
    assert by_epoch(fit.rows("metrics"), "val")[0] == 1.0
    assert [(rule.key, rule.text) for rule in fit.guidance().rules] == [
        ("G0", "Judge valves."),
        ("G7", "Fail if state is torn."),
    ]
    assert by_epoch(fit.rows("metrics", "seals"), "val")[0] < 1.0
    assert fit.guidance("seals").rule("G1") is not None


def test_new_rules_count_on_from_a_seeds(fit: Fit) -> None:
    assert (
        fit(
            guidance__path=seed_file(
                fit, {"valves": {"G0": "Judge valves.", "G7": "Fail if colour is red and part is hose."}}
            )
        )
        == 0
    )
    texts = {rule.key: rule.text for rule in fit.guidance().rules}
    assert texts["G0"] == "Judge valves."
    assert texts.get("G8") == "Fail if state is torn."


def test_a_run_can_start_from_what_another_one_learnt(fit: Fit) -> None:
    assert fit() == 0
    learnt = fit.guidance()
    assert fit(output__run_name="again", guidance__path=str(fit.run / "valves" / "guidance.json")) == 0
    again = fit.root / "again" / "valves"
    first = min(path.name for path in (again / "snapshots").iterdir())
    assert load_seed(again / "snapshots" / first) == {"valves": learnt}


# Same inputs, same bytes


def test_equal_runs_leave_equal_bytes(fit: Fit) -> None:
    assert fit() == 0
    assert fit(output__run_name="again") == 0
    assert content(fit.run) == content(fit.root / "again")
    assert fit(output__run_name="other", seed=18) == 0
    assert content(fit.run) != content(fit.root / "other")


def test_a_missions_files_depend_on_its_own_tickets_and_not_on_their_order(fit: Fit) -> None:
    assert fit() == 0
    lines = [json.dumps(row) for mission in ("seals", "valves") for row in small.rows(mission)]
    random.Random(3).shuffle(lines)
    fit.tickets.write_text("\n".join(lines))
    assert fit(output__run_name="more") == 0
    assert content(fit.run / "valves") == content(fit.root / "more" / "valves")


@pytest.mark.parametrize(("per_rank", "micro"), [(12, 1), (12, 32), (24, 2)])
def test_a_models_batches_change_no_answer(fit: Fit, per_rank: int, micro: int) -> None:
    """The scripted engine is exact; so what is left are the keys. A round of another size reflects at other moments."""
    assert fit(runner__epochs=0) == 0
    keys = {"sampler__micro_batch_size": micro, "runner__per_rank_rollout_batch_size": per_rank}
    assert fit(runner__epochs=0, output__run_name="other", **keys) == 0
    told = [
        {
            (row["ticket_key"], row["candidate_index"]): row["text"]
            for line in (folder / "valves" / "trajectories.jsonl").read_text().splitlines()
            for row in [json.loads(line)]
        }
        for folder in (fit.run, fit.root / "other")
    ]
    assert told[0] == told[1]


# Starting again


def test_a_finished_run_says_so_and_changes_nothing(fit: Fit, model: Model) -> None:
    name, asked = model(respond)
    assert fit(model__model_name_or_path=name) == 0
    report, before = fit.out, content(fit.run, not_compared=frozenset({".lock"}))
    asked.clear()
    assert fit(model__model_name_or_path=name) == 0
    assert "finished already" in fit.err
    assert fit.out == report
    assert content(fit.run, not_compared=frozenset({".lock"})) == before
    assert asked == []


def test_a_run_that_goes_on_elsewhere_is_left_alone(fit: Fit) -> None:
    with Journal.open(fit.root, "run", {}):
        before = content(fit.run)
        assert fit() == 1
        assert f"process {os.getpid()}" in fit.err
        assert "another run name" in fit.err
        assert content(fit.run) == before


def test_another_config_is_refused_by_name_and_changes_nothing(fit: Fit) -> None:
    assert fit() == 0
    before = content(fit.run, not_compared=frozenset({".lock"}))
    assert fit(seed=18, reflection__batch_size=9) == 2
    assert "seed: 17 there, 18 now" in fit.err
    assert "reflection.batch_size: 18 there, 9 now" in fit.err
    assert "--fresh" in fit.err
    assert fit.err.count("stageb:") == 1
    fit.tickets.write_text(fit.tickets.read_text().replace("torn", "worn", 1))
    assert fit() == 2
    assert "tickets:" in fit.err
    assert content(fit.run, not_compared=frozenset({".lock"})) == before


def test_what_shapes_no_result_may_differ(fit: Fit) -> None:
    assert fit() == 0
    before = content(fit.run)
    moved = fit.folder / "moved.jsonl"
    fit.tickets.rename(moved)
    fit.tickets = moved
    shutil.move(fit.root, fit.folder / "elsewhere")
    fit.root = fit.folder / "elsewhere"
    assert fit(runner__logging_steps=5, fabric__timeout_s=30) == 0
    assert "finished already" in fit.err
    assert content(fit.run) == before


def test_fresh_sets_the_old_folder_aside(fit: Fit) -> None:
    assert fit(seed=18) == 0
    before = content(fit.run)
    assert fit("--fresh") == 0
    assert content(fit.root / "run.1") == before
    assert content(fit.run) != before
    assert fit(seed=18, guidance__reset_on_rerun="true") == 0
    assert {path.name for path in fit.root.iterdir()} == {"run", "run.1", "run.2"}


# Errors


def odd_one_out(prompt: Prompt, decode: Decode, key: int) -> str:
    """The follower, but for one ticket."""
    if "tag: odd" in prompt.user:
        raise ValueError("the lamp went out")
    return respond(prompt, decode, key)


def test_a_ticket_at_which_the_model_raises_ends_the_run_by_name(fit: Fit, model: Model) -> None:
    lines = list(small.rows())
    lines[40]["per_image"]["image_1"] += "; tag: odd"
    fit.tickets.write_text("".join(f"{json.dumps(row)}\n" for row in lines))
    assert fit(model__model_name_or_path=model(odd_one_out)[0]) == 1
    place = f"ticket g-40::{lines[40]['label']} of mission valves"
    assert f"rank 0 failed at {place}: ValueError: the lamp went out" in fit.err


def test_a_run_that_broke_goes_on_from_its_last_commit(fit: Fit, model: Model) -> None:
    def weary(prompt: Prompt, decode: Decode, key: int) -> str:
        if len(asked) > 300:
            raise ValueError("the lamp went out")
        return respond(prompt, decode, key)

    name, whole = model(respond)
    assert fit(model__model_name_or_path=name, output__run_name="whole") == 0
    _, asked = model(weary)
    assert fit(model__model_name_or_path=name) == 1
    _, rest = model(respond)
    assert fit(model__model_name_or_path=name) == 0
    assert len(rest) < len(whole) - 200
    assert content(fit.run) == content(fit.root / "whole")


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"runner__epochs": -1}, "config: runner.epochs: -1: 0 or more"),
        ({"stage_a_paths": ["missing.jsonl"]}, "missing.jsonl: cannot be read"),
        ({"guidance__path": "missing.json"}, "missing.json: No such file"),
        ({"model__model_name_or_path": "programs.models:nobody"}, "config: model.model_name_or_path"),
        ({"model__engine": "abacus"}, "config: model.engine: 'abacus'"),
        ({"output__run_name": "../run"}, "config: output.run_name: '../run'"),
        ({"fabric__devices": "abc"}, "config: fabric"),
    ],
)
def test_what_cannot_be_used_is_told_before_anything_is_made(fit: Fit, keys: dict[str, Any], says: str) -> None:
    assert fit(**keys) == 2
    assert fit.err.startswith("stageb: ")
    assert fit.err.count("stageb: ") == 1
    assert says in fit.err
    assert "Traceback" not in fit.err
    assert fit.out == ""
    assert {path.name for path in fit.folder.iterdir()} == {"tickets.jsonl"}


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('{"mission": "valves"}\nnot json\n', "2 unusable places in the ticket files"),
        (json.dumps(next(small.rows())) + "\n" + json.dumps(next(small.rows())), "stands at"),
        ("", "empty"),
    ],
)
def test_a_broken_ticket_file_is_told_before_anything_is_made(fit: Fit, lines: str, says: str) -> None:
    fit.tickets.write_text(lines)
    test_what_cannot_be_used_is_told_before_anything_is_made(fit, {}, says)


def test_a_mission_without_a_train_ticket_is_told(fit: Fit) -> None:
    small.write(fit.tickets, "valves", groups=1)
    shares = {"split__train": 0.1, "split__val": 0.45, "split__test": 0.45}
    test_what_cannot_be_used_is_told_before_anything_is_made(fit, shares, "mission 'valves' has no train ticket")
