"""The whole loop on small made-up tickets, one process, the scripted engine.

What a loop owes at several ranks, and when it is killed, is the same for every loop:
``tests/test_conformance.py``.
"""

import contextlib
import io
import json
import random
import re
import shutil
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from conformance import content, differing
from programs import models, small

from stageb.__main__ import main
from stageb.engines.protocol import Decode, Prompt
from stageb.errors import JournalError
from stageb.guidance.commands.fit.progress import FitProgress
from stageb.guidance.commands.fit.resume import LIMITS
from stageb.guidance.judging.answers import parse_answer
from stageb.guidance.judging.follower import respond
from stageb.guidance.rules.prompts import WORDS, ticket_text
from stageb.guidance.rules.read_guidance import load_seed, make_neutral
from stageb.guidance.tickets.tickets import read_tickets
from stageb.guidance.words.types import Guidance
from stageb.store.journal import Journal, safe_name

JUDGED = [(0, "val"), (0, "test"), (1, "train"), (1, "val"), (2, "train"), (2, "val"), (2, "test")]
# nothing to choose by: the last guidance is the final one
NO_VAL = {"split__train": 0.85, "split__val": 0.0}
# an edit for nearly every bundle, all of them kept
UNTESTED = {"gate": "none", "guidance.retention": 1000}


class Fit:
    """Runs in a folder of their own: their tickets, their output, what they print."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "out"
        self.tickets = small.write(folder / "tickets.jsonl", "valves")
        self.out = self.err = ""

    def __call__(self, *options: str, **keys: Any) -> int:
        """Run with ``keys`` (``__`` for the dot); the exit code."""
        dotted = {key.replace("__", "."): value for key, value in keys.items()}
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([*small.arguments(self.tickets, self.root, keys=dotted), *options])
        self.out, self.err = out.getvalue(), err.getvalue()
        return code

    @property
    def run(self) -> Path:
        return self.root / "run"

    def rows(self, file: str, mission: str = "valves") -> list[dict[str, Any]]:
        """The rows of a mission's file."""
        path = self.run / safe_name(mission) / f"{file}.jsonl"
        return (
            [json.loads(line) for line in path.read_text("utf-8").splitlines()]
            if path.exists()
            else []
        )

    def guidance(self, mission: str = "valves") -> Guidance:
        """What the mission's guidance.json holds."""
        return load_seed(self.run / safe_name(mission) / "guidance.json")[mission]

    def state(self) -> dict[str, Any]:
        """Where the run stands."""
        return dict(json.loads((self.run / "commit.json").read_text("utf-8"))["state"])


@pytest.fixture
def fit(tmp_path: Path) -> Fit:
    return Fit(tmp_path)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Fit:
    """A run as configured, to look at."""
    fit = Fit(tmp_path_factory.mktemp("plain"))
    assert fit() == 0
    return fit


Asked = list[tuple[Prompt, Decode]]
Model = Callable[[models.Respond], tuple[str, Asked]]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    """Makes a function of the test the model: its name for a config, and what it will have been
    asked."""

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


@pytest.fixture
def one_label(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a run learn from tickets of one label alone, which it refuses: then all answers are
    wrong, or all are right."""
    monkeypatch.setattr("stageb.guidance.commands.fit.inputs.check_labels", lambda *given: None)


def test_a_run_says_how_long_judging_takes_and_once_a_reflection_is_timed_how_long_all_does(
    plain: Fit, fit: Fit
) -> None:
    judging = (
        "At this pace, judging takes less than a minute; reflections and their tests come on top"
    )
    whole = (
        "At this pace, less than a minute to go, reflections and tests included; less where "
        "learning ends early"
    )
    lines = plain.err.splitlines()
    (at,) = (number for number, line in enumerate(lines) if line.startswith(judging))
    assert ": round 2/" in lines[at - 1]
    first = next(
        number for number, line in enumerate(lines) if line.startswith("valves, reflection 1:")
    )
    assert lines.count(whole) == 1
    assert lines.index(whole) == next(
        number for number in range(first + 1, len(lines)) if lines[number][0] != " "
    )
    assert fit(runner__epochs=0) == 0
    assert judging not in fit.err
    assert whole not in fit.err


def test_it_learns_the_hidden_rule(plain: Fit) -> None:
    before, *_, after = by_epoch(plain.rows("metrics"), "val")
    assert before < 0.8
    assert after > 0.9
    assert by_epoch(plain.rows("metrics"), "test")[-1] > 0.9
    learnt = plain.guidance()
    assert [rule.text for rule in learnt.rules] == [
        "A ticket passes unless a rule fails it.",
        "Fail if state is torn.",
    ]
    assert learnt.step == 1
    assert "G1. Fail if state is torn." in plain.out
    assert "Traceback" not in plain.err and "What to try next" not in plain.out


def test_metrics_have_a_row_for_what_each_epoch_judges_that_counts_the_selections(
    plain: Fit,
) -> None:
    metrics, selections = plain.rows("metrics"), plain.rows("selections")
    assert [(row["epoch"], row["split"]) for row in metrics] == JUDGED
    held_out = sum(row["n"] for row in metrics if row["epoch"] == 0)
    raced = (160 - held_out) // 3
    assert next(row["n"] for row in metrics if row["split"] == "train") == 160 - held_out - raced
    latest: dict[str, list[dict[str, Any]]] = {}
    for row in metrics:
        of = [
            each
            for each in selections
            if (each["epoch"], each["split"]) == (row["epoch"], row["split"])
        ]
        # not judged again under the same guidance
        latest[row["split"]] = of = of or latest[row["split"]]
        assert row["n"] == len(of) == len({each["ticket_key"] for each in of})
        assert row["acc"] == round(sum(each["label_match"] for each in of) / len(of), 6)
        assert row["acc_interval"][0] < row["acc"] < row["acc_interval"][1]
        assert row["fp"] == sum((each["label"], each["verdict"]) == ("fail", "pass") for each in of)
        assert row["fn"] == sum((each["label"], each["verdict"]) == ("pass", "fail") for each in of)
        kept = [each for each in of if not each["manual_review"]]
        assert row["without_review"]["n"] == len(kept)
        assert row["without_review"]["acc"] == round(
            sum(each["label_match"] for each in kept) / len(kept), 6
        )
        assert row["without_review"]["fp"] == sum(
            (each["label"], each["verdict"]) == ("fail", "pass") for each in kept
        )
    tests = [row for row in metrics if row["split"] == "test"]
    line = next(line for line in plain.out.splitlines() if line.startswith("valves   test"))
    assert f"{tests[0]['acc']:.1%} -> {tests[-1]['acc']:.1%}" in line
    # to be reviewed
    assert int(line.split()[-1]) == tests[-1]["n"] - tests[-1]["without_review"]["n"]


def learn_well_then_badly(fit: Fit, model: Model) -> None:
    """The first epoch's edit is good, the second one's bad, and both are applied untested."""
    rules = iter(["Fail if state is torn.", "Fail if part is hose."])

    def answer(prompt: Prompt, decode: Decode, key: int) -> str:
        if prompt.system.startswith(WORDS["en"].rollout.partition("{")[0]):
            return respond(prompt, decode, key)
        return json.dumps({"operations": [{"op": "add", "text": next(rules), "evidence": ["T1"]}]})

    one_bundle = {"reflection__batch_size": 999, "reflection__num_proposals": 1}
    assert fit(model__model_name_or_path=model(answer)[0], **one_bundle, **UNTESTED) == 0


def test_the_final_guidance_is_chosen_on_val(fit: Fit, model: Model) -> None:
    learn_well_then_badly(fit, model)
    choice = fit.rows("choice")
    val = {row["guidance_step"]: row for row in fit.rows("metrics") if row["split"] == "val"}
    assert [
        (row["guidance_step"], round(row["right"] / row["n"], 6), row["n"]) for row in choice
    ] == [(step, row["acc"], row["n"]) for step, row in val.items()]
    assert [(row["guidance_step"], row["chosen"]) for row in choice] == [
        (0, False),
        (1, True),
        (2, False),
    ]
    assert "back to guidance step 1" in fit.err
    assert fit.rows("metrics")[-1]["guidance_step"] == 1
    assert (
        fit.guidance()
        == load_seed(fit.run / "valves" / "snapshots" / "guidance-000001.json")["valves"]
    )
    line = next(line for line in fit.out.splitlines() if line.startswith("valves   val"))
    # of the first epoch, not the last
    assert f"-> {val[1]['acc']:.1%}" in line and val[1]["acc"] > val[2]["acc"]


def test_what_was_spent_is_what_the_files_hold_and_never_more_than_was_forecast(plain: Fit) -> None:
    spent, reflections = plain.state()["spent"], plain.rows("reflection")
    assert spent["rollouts"] == len(plain.rows("trajectories"))
    assert spent["reflections"] == sum(len(row["proposals"]) for row in reflections)
    assert spent["judged"] == sum(
        row["gate"]["judged"] + row.get("judged", 0) for row in reflections
    )
    rollouts = sum(row["tokens"] for row in plain.rows("trajectories"))
    assert spent["tokens"] > rollouts
    told = [
        int(number.replace(",", ""))
        for number in re.findall(r"[\d,]*\d", plain.err.splitlines()[0])
    ]
    assert spent["rollouts"] <= told[0]
    # what taught something is reflected on again
    accepted = sum(row["applied"] for row in reflections)
    assert spent["reflections"] <= told[1] + 4 * accepted
    assert spent["judged"] <= told[3]
    # steps divide among them what validate learns the pace of
    timings = [json.loads(line) for line in (plain.run / "timings.jsonl").read_text().splitlines()]
    assert sum(row["tickets"] for row in timings) == len(plain.rows("selections"))
    assert sum(row["bundles"] for row in timings) == sum(
        bool(row["proposals"]) for row in reflections
    )
    assert (
        f"Spent: {spent['rollouts']:,} rollouts, {spent['judged']:,} verdicts for the gate"
        in plain.out
    )


def test_every_ticket_leaves_its_candidates_and_one_selection(plain: Fit) -> None:
    trajectories, selections = plain.rows("trajectories"), plain.rows("selections")
    names = ("epoch", "split", "round", "ticket_key", "guidance_step")
    keys = [tuple(row[name] for name in names) for row in selections]
    assert len(set(keys)) == len(keys)
    assert [tuple(row[name] for name in names) for row in trajectories] == [
        key for key in keys for _ in range(2)
    ]
    assert [row["candidate_index"] for row in trajectories] == [0, 1] * len(keys)
    malformed = [row for row in trajectories if not row["format_ok"]]
    failures = [row for row in plain.rows("failure_malformed") if row["source"] == "rollout"]
    assert [(row["ticket_key"], row["text"]) for row in failures] == [
        (row["ticket_key"], row["text"]) for row in malformed
    ]
    review = [row["ticket_key"] for row in selections if row["manual_review"]]
    assert [row["ticket_key"] for row in plain.rows("manual_review_queue")] == review


def test_an_edit_is_seen_by_the_next_round_and_never_by_the_current_one(fit: Fit) -> None:
    assert fit(**UNTESTED) == 0
    rounds: dict[tuple[int, str, int], set[int]] = {}
    for row in fit.rows("trajectories"):
        if (row["epoch"], row["split"]) == (2, "test"):
            continue  # under the guidance that was chosen
        rounds.setdefault((row["epoch"], row["split"], row["round"]), set()).add(
            row["guidance_step"]
        )
    assert all(len(steps) == 1 for steps in rounds.values())
    steps = [step for (step,) in rounds.values()]
    assert steps == sorted(steps)
    assert steps[-1] > steps[0]
    changes = [
        (row["guidance_step_before"], row["guidance_step_after"]) for row in fit.rows("reflection")
    ]
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
    held_out = {
        row["group_id"].replace("-", "")
        for row in fit.rows("selections")
        if row["split"] != "train"
    }
    reflections = [
        prompt
        for prompt, _ in asked
        if prompt.system.startswith(WORDS["en"].reflection.partition("{")[0])
    ]
    shown = {word.rstrip(";") for prompt in reflections for word in prompt.user.split()}
    assert held_out
    assert reflections
    assert not held_out & shown


# Reflection and gate


@pytest.mark.usefixtures("one_label")
def test_a_bundle_that_is_all_right_is_recorded_and_asks_no_model(fit: Fit, model: Model) -> None:
    rows = [row | {"label": "pass"} for row in small.rows()]
    fit.tickets.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    name, asked = model(models.idle)
    assert fit(model__model_name_or_path=name) == 0
    reflection = fit.rows("reflection")
    train = sum(row["split"] == "train" and row["epoch"] == 1 for row in fit.rows("selections"))
    bundles = -(-train // 18)  # and what is left, in both epochs
    assert {(row["eligible"], row["why_not"], row["applied"]) for row in reflection} == {
        (False, "all right with high agreement", False)
    }
    assert len(reflection) == 2 * bundles
    for row in reflection:
        assert (row["proposals"], row["evidence"], row["wrong"], row["gate"]["judged"]) == (
            [],
            [],
            0,
            0,
        )
    beginning = WORDS["en"].rollout.partition("{")[0]
    assert all(prompt.system.startswith(beginning) for prompt, _ in asked)
    greedy = sum(decode.temperature == 0 for _, decode in asked)
    # to look for errors, and none twice
    assert greedy == sum(row["judged"] for row in reflection) <= train
    assert fit.guidance() == make_neutral("valves", WORDS["en"])


def test_gate_none_applies_the_first_edit_untested(fit: Fit, model: Model) -> None:
    name, asked = model(respond)
    assert fit(model__model_name_or_path=name, **UNTESTED) == 0
    proposed = [
        row
        for row in fit.rows("reflection")
        if any(proposal["operations"] for proposal in row["proposals"])
    ]
    assert len(proposed) > 3
    for row in proposed:
        assert (row["applied"], row["gate"]) == (True, None)
        assert row["guidance_step_after"] == row["guidance_step_before"] + 1
        first = next(
            proposal["proposal"] for proposal in row["proposals"] if proposal["operations"]
        )
        assert row["applied_proposals"] == [first]
    # verdicts for a gate are asked greedily
    assert all(decode.temperature > 0 for _, decode in asked)


def test_the_gates_figures_tell_why(fit: Fit, model: Model) -> None:
    name, asked = model(respond)
    assert fit(model__model_name_or_path=name, **{"gate.alpha": 0.5}) == 0
    rows = [row for row in fit.rows("reflection") if row["gate"]]
    assert {row["applied"] for row in rows} == {True, False}
    left = 0.5
    for row in rows:
        gate = row["gate"]
        assert gate["budget_before"] == pytest.approx(left, abs=1e-8)
        for edit in gate["edits"]:
            assert edit["evidence"]["turned"] <= edit["evidence"]["tickets"]
            assert (edit["outcome"] == "accepted") == (
                row["applied"] and edit["proposals"] == row["applied_proposals"]
            )
            if edit["test"] and edit["outcome"] != "accepted":
                left -= edit["test"]["level"]
        assert gate["budget_after"] == pytest.approx(left, abs=1e-8)
        left = gate["budget_after"]
        if row["applied"]:
            (winner,) = [edit for edit in gate["edits"] if edit["outcome"] == "accepted"]
            assert winner["test"]["mean_gain"] > 0
            assert winner["race"]["won"] > winner["race"]["lost"]
    greedy = sum(decode.temperature == 0 for _, decode in asked)
    # no verdict is asked for twice
    assert greedy == sum(row["gate"]["judged"] + row.get("judged", 0) for row in rows)


@pytest.mark.usefixtures("one_label")
def test_what_reflection_saw_is_never_what_an_edit_is_raced_or_tested_on(
    fit: Fit, model: Model
) -> None:
    """All tickets are wrong; the first answers teach nothing."""
    rows = [row | {"label": "fail"} for row in small.rows()]
    for row in rows:
        row["per_image"]["image_1"] += f"; tag: {row['group_id'].replace('-', '')}"
    fit.tickets.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    rolling = WORDS["en"].rollout.partition("{")[0]
    shown: list[set[str]] = []  # by each reflection answer
    edited: list[set[str]] = []  # judged for the gate under the edit, in order

    def tags(prompt: Prompt) -> set[str]:
        return set(re.findall(r"tag: (\w+)", prompt.user))

    def answer(prompt: Prompt, decode: Decode, key: int) -> str:
        if prompt.system.startswith(rolling):
            if decode.temperature == 0 and "G1. " in prompt.system:
                edited.append(tags(prompt))
            return f"Verdict: {'fail' if 'G1. ' in prompt.system else 'pass'}\nReason: so"
        shown.append(tags(prompt))
        if len(shown) <= 2 * 4:
            return "nothing comes to mind"
        return json.dumps(
            {"operations": [{"op": "add", "text": "Fail if asked.", "evidence": ["T1"]}]}
        )

    name, _ = model(answer)
    assert (
        fit(
            model__model_name_or_path=name,
            reflection__batch_size=6,
            reflection__max_cases=18,
            runner__epochs=1,
        )
        == 0
    )
    first = next(row for row in fit.rows("reflection") if row["applied"])
    assert first["reflection_id"] == "R3"
    cases = set().union(*shown[8:12])
    (edit,) = first["gate"]["edits"]
    judged = edit["evidence"]["tickets"] + edit["race"]["tickets"] + edit["test"]["tickets"]
    by_the_gate = edited[:judged]
    assert len(set().union(*by_the_gate)) == judged
    assert len(cases & set().union(*by_the_gate)) == edit["evidence"]["tickets"] == 1


def shining_at_first(fit: Fit) -> models.Respond:
    """A model whose one edit looks good on the first tickets that it is tried on, evidence and
    race, and on no other."""
    fit.tickets.write_text(
        "".join(f"{json.dumps(row | {'label': 'fail'})}\n" for row in small.rows())
    )
    tried = []

    def answer(prompt: Prompt, decode: Decode, key: int) -> str:
        if not prompt.system.startswith(WORDS["en"].rollout.partition("{")[0]):
            return json.dumps(
                {"operations": [{"op": "add", "text": "Fail if asked.", "evidence": ["T1"]}]}
            )
        tried.extend([prompt] * ("G1. " in prompt.system))
        return f"Verdict: {'fail' if 'G1. ' in prompt.system and len(tried) < 45 else 'pass'}\nReason: so"

    return answer


@pytest.mark.usefixtures("one_label")
def test_a_run_that_goes_on_from_learnt_guidance_has_what_is_left_of_the_budget(
    fit: Fit, model: Model
) -> None:
    name, _ = model(shining_at_first(fit))
    assert fit(model__model_name_or_path=name, runner__epochs=1) == 0
    last = [row for row in fit.rows("reflection") if row["gate"]][-1]
    spent = fit.guidance().spent
    assert 0.001 < spent.chance == pytest.approx(0.05 - last["gate"]["budget_after"], abs=1e-8)
    on = {"output__run_name": "on", "guidance__path": str(fit.run / "valves" / "guidance.json")}
    assert fit(model__model_name_or_path=name, runner__epochs=1, **on) == 0
    assert "of its part of gate.alpha on these tickets" in fit.err
    rows = (fit.root / "on" / "valves" / "reflection.jsonl").read_text("utf-8").splitlines()
    gates = [gate for row in rows if (gate := json.loads(row)["gate"])]
    assert gates[0]["budget_before"] == pytest.approx(0.05 - spent.chance, abs=1e-8)
    (after,) = load_seed(fit.root / "on" / "valves" / "guidance.json").values()
    assert after.spent.chance == pytest.approx(0.05 - gates[-1]["budget_after"], abs=1e-8)


def test_val_test_and_new_tickets_are_judged_at_a_temperature_of_their_own(
    fit: Fit, tmp_path: Path
) -> None:
    assert fit(sampler__eval_temperature=0, runner__epochs=1) == 0
    texts: dict[tuple[str, str, int], set[str]] = {}
    for row in fit.rows("trajectories"):
        texts.setdefault((row["split"], row["ticket_key"], row["epoch"]), set()).add(row["text"])
    differ = {split for (split, _, _), some in texts.items() if len(some) > 1}
    assert {split for split, _, _ in texts} == {"train", "val", "test"} and differ == {"train"}
    output = tmp_path / "told.jsonl"
    keys = [
        "--guidance",
        str(fit.run),
        "--tickets",
        str(fit.tickets),
        "--output",
        str(output),
        "--model.engine",
        "scripted",
    ]
    assert main(["predict", *keys, "--fabric.devices", "1"]) == 0
    assert {json.loads(line)["agreement"] for line in output.read_text().splitlines()} == {1.0}


# Limits on what is learnt


def test_rules_never_grow_beyond_the_limit_and_what_would_is_refused(fit: Fit) -> None:
    seed = seed_file(
        fit,
        {
            "valves": {
                "G0": "A ticket passes unless a rule fails it.",
                "G7": "Fail if colour is green.",
            }
        },
    )
    assert fit(reflection__max_rules=2, guidance__path=seed) == 0
    refused = [
        each["reason"]
        for row in fit.rows("reflection")
        for one in row["proposals"]
        for each in one["refused"]
    ]
    assert any(reason.startswith("no room: ") for reason in refused)
    assert not any(
        op["op"] == "add"
        for row in fit.rows("reflection")
        for one in row["proposals"]
        for op in one["operations"]
    )
    assert [rule.key for rule in fit.guidance().rules] == ["G0", "G7"]
    assert (
        "more than reflection.max_rules or reflection.max_guidance_tokens allows"
        in fit.out + fit.err
    )
    assert fit("--fresh", reflection__max_rules=3, **UNTESTED, **NO_VAL) == 0
    sizes = {
        len(load_seed(path)["valves"].rules)
        for path in (fit.run / "valves" / "snapshots").iterdir()
    }
    assert max(sizes) == 3


def test_what_was_counted_stands_in_the_prompt_and_in_the_file(fit: Fit, model: Model) -> None:
    name, asked = model(respond)
    assert fit(model__model_name_or_path=name, runner__epochs=1) == 0
    first = fit.rows("reflection")[0]
    prompts = "\n".join(
        prompt.user
        for prompt, _ in asked
        if prompt.system.startswith(WORDS["en"].reflection.partition("{")[0])
    )
    assert first["tickets"] > first["wrong"] > 0
    (counted,) = first["evidence"]
    assert (
        f"Counted in {counted['wrong']} wrong that should fail, {counted['right']} right to pass:"
        in prompts
    )
    assert [counted["rule"], counted["clues"][0][2]] == ["", "state is torn"]
    for place, (wrong, right, text) in enumerate(counted["clues"], 1):
        assert f"\n[{place}] {wrong} to {right}: {text}" in prompts
    assert counted["wrong"] + counted["right"] <= first["tickets"]


# Limits on what learning costs


def trained(fit: Fit) -> set[int]:
    """The epochs in which train tickets were rolled out."""
    return {row["epoch"] for row in fit.rows("selections") if row["split"] == "train"}


def test_a_mission_that_has_been_idle_for_long_enough_learns_no_more(
    fit: Fit, model: Model
) -> None:
    name, _ = model(models.idle)
    keys = {"model__model_name_or_path": name, "runner__epochs": 4}
    assert fit(**keys, early_stop__patience=1) == 0
    assert trained(fit) == {1}
    epochs = [(row["epoch"], row["split"]) for row in fit.rows("metrics")]
    assert epochs == [*JUDGED[:4], *((epoch, "val") for epoch in (2, 3, 4)), (4, "test")]
    assert fit("--fresh", **keys, early_stop__patience="null", early_stop__reflections="null") == 0
    assert trained(fit) == {1, 2, 3, 4}


def test_a_mission_that_has_reflected_in_vain_for_long_enough_learns_no_more(
    fit: Fit, model: Model
) -> None:
    keys = {
        "model__model_name_or_path": model(models.idle)[0],
        "runner__epochs": 4,
        "early_stop__patience": "null",
    }
    assert fit(**keys, early_stop__reflections=2) == 0
    assert len(fit.rows("reflection")) == 2
    assert trained(fit) == {1}
    assert "valves: 2 reflections in a row without an accepted edit: it stops learning" in fit.err


def test_an_accepted_edit_starts_the_count_of_idle_epochs_anew(fit: Fit) -> None:
    assert fit(runner__epochs=4, early_stop__patience=1) == 0
    accepted = {row["guidance_step_after"] for row in fit.rows("reflection") if row["applied"]}
    assert accepted == {1}  # in the first epoch
    assert trained(fit) == {1, 2}


@pytest.mark.parametrize(
    ("name", "limit"), [("rollouts", 260), ("tokens", 18_000), ("seconds", 1e-6)]
)
def test_learning_ends_with_the_step_that_reaches_a_budget_and_val_and_test_follow(
    fit: Fit, name: str, limit: float
) -> None:
    assert fit(**{f"budget.{name}": limit}) == 0
    assert f"Learning ended at budget.{name}." in fit.out
    rounds = [row["round"] for row in fit.rows("metrics") if row["split"] == "train"]
    assert len(rounds) <= 1
    metrics = [
        (row["epoch"], row["split"]) for row in fit.rows("metrics") if row["split"] != "train"
    ]
    assert metrics == [judged for judged in JUDGED if judged[1] != "train"]
    learning = [row for row in fit.rows("trajectories") if row["split"] == "train"]
    first = [row for row in fit.rows("trajectories") if row["epoch"] == 0]
    reflections = fit.rows("reflection")
    if name == "seconds":
        assert learning == reflections == []
        return
    if name == "rollouts":
        judged = sum(row["gate"]["judged"] for row in reflections)
        spent = len(first) + len(learning) + judged
        last = max((row["epoch"], row["round"]) for row in learning)
        last_step = (
            sum((row["epoch"], row["round"]) == last for row in learning)
            + reflections[-1]["gate"]["judged"]
        )
        assert spent >= limit > spent - last_step
    assert 0 < len(learning) < 2 * 140


def test_a_budget_that_only_the_last_judging_reaches_has_not_ended_learning(
    fit: Fit, plain: Fit
) -> None:
    spent = plain.state()["spent"]
    assert fit(**{"budget.rollouts": spent["rollouts"] + spent["judged"]}) == 0
    assert fit.state()["spent"] == spent
    assert "Learning ended" not in fit.out


LIMITED = {"budget.rollouts": 260}


@pytest.mark.parametrize(
    ("limits", "higher", "keys"),
    [
        (LIMITED, {"budget.rollouts": 600}, {"report": True}),
        (LIMITED, {"budget.rollouts": "null"}, {"distill__size": 5}),
        (
            {"budget.tokens": 36_000, "budget.rollouts": 9_000},
            {"budget.tokens": 80_000, "budget.rollouts": 10_000},
            NO_VAL,
        ),
        ({"runner.epochs": 1}, {"runner.epochs": 3}, {"early_stop__patience": 1}),
        ({"runner.epochs": 1, **UNTESTED}, {"runner.epochs": 3, **UNTESTED}, {}),
        ({"runner.epochs": 1, **LIMITED}, {"runner.epochs": 3, "budget.rollouts": 500}, {}),
    ],
)
def test_a_run_goes_on_under_a_higher_limit_as_if_it_had_had_it_from_the_start(
    fit: Fit, limits: dict[str, Any], higher: dict[str, Any], keys: dict[str, Any]
) -> None:
    fit.tickets = small.write(fit.folder / "two.jsonl", "valves", "site photos", groups=100)
    assert fit(**higher, **keys, output__run_name="straight") == 0
    straight, spent = content(fit.root / "straight"), fit.out[fit.out.index("Spent") :]
    assert fit(**limits, **keys) == 0
    trained_before = len(fit.rows("trajectories"))
    assert content(fit.run) != straight
    assert fit(**higher, **keys) == 0, fit.err
    assert re.search(
        r"with a higher \S+( and \S+)?; everything after learning ended is done again", fit.err
    )
    assert differing(content(fit.run), straight) == []
    assert fit.out[fit.out.index("Spent") :].partition("Files")[0] == spent.partition("Files")[0]
    assert len(fit.rows("trajectories")) > trained_before
    assert yaml.safe_load((fit.run / "config.yaml").read_text())["runner"]["epochs"] == higher.get(
        "runner.epochs", 2
    )
    assert fit(**limits, **keys) == 2
    assert f"(higher values are allowed for {', '.join(LIMITS)})" in fit.err


def test_a_guidance_that_val_did_not_choose_is_learnt_on_from_under_more_epochs(
    fit: Fit, model: Model
) -> None:
    def answer(prompt: Prompt, decode: Decode, key: int) -> str:
        """The first epoch's edit is good, later ones are bad, and all are applied untested."""
        if prompt.system.startswith(WORDS["en"].rollout.partition("{")[0]):
            return respond(prompt, decode, key)
        rules = [f"Fail if {what}." for what in ("state is torn", "part is hose", "colour is red")]
        text = next((rule for rule in rules if rule not in prompt.user), rules[-1])
        return json.dumps({"operations": [{"op": "add", "text": text, "evidence": ["T1"]}]})

    keys = {
        "model__model_name_or_path": model(answer)[0],
        "reflection__batch_size": 999,
        "reflection__num_proposals": 1,
    }
    assert fit(**keys, **UNTESTED, output__run_name="straight", runner__epochs=3) == 0
    assert fit(**keys, **UNTESTED, runner__epochs=2) == 0
    assert "back to guidance step 1" in fit.err
    assert fit(**keys, **UNTESTED, runner__epochs=3) == 0
    assert len(fit.rows("choice")) == 4
    assert differing(content(fit.run), content(fit.root / "straight")) == []


def test_a_limit_may_be_raised_wherever_the_run_was_interrupted(
    fit: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    higher = {"budget.rollouts": 500, "runner.epochs": 2}
    assert fit(**higher, output__run_name="straight") == 0
    real, left = Journal.commit, [0]

    def dies(journal: Journal, *given: Any, **named: Any) -> None:
        real(journal, *given, **named)
        left[0] -= 1
        if not left[0]:
            raise JournalError("no more")

    for commits in range(1, 20, 4):
        left[0], name = commits, f"after-{commits}"
        with monkeypatch.context() as patched:
            patched.setattr(Journal, "commit", dies)
            code = fit(**LIMITED, runner__epochs=1, output__run_name=name)
            assert code == (1 if left[0] <= 0 else 0)
        assert fit(**higher, output__run_name=name) == 0
        assert differing(content(fit.root / name), content(fit.root / "straight")) == []


def test_a_finished_run_says_how_it_learns_on_and_a_limit_that_ended_nothing_changes_nothing(
    fit: Fit,
) -> None:
    assert fit(**LIMITED, budget__seconds=1e6) == 0
    assert (
        "Learning ended at budget.rollouts. To learn on, run the same command with a higher one."
        in fit.out
    )
    before = content(fit.run)
    assert fit(**LIMITED, budget__seconds=2e6) == 0
    assert (
        "already finished\nTo learn on, run the same command with a higher runner.epochs, or "
        "with a higher budget " in fit.err
    )
    assert fit(**{**LIMITED, "budget.rollouts": 200}, budget__seconds=1e6) == 2
    assert "budget.rollouts: 260 there, 200 now" in fit.err
    assert content(fit.run) == before


@pytest.mark.parametrize("commits", [3, 5])
def test_a_run_that_is_told_to_stop_keeps_what_it_has_learnt_and_can_learn_on(
    fit: Fit, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    assert fit(runner__epochs=3, output__run_name="straight") == 0
    real, done = Journal.commit, [0]

    def told(journal: Journal, *given: Any, **named: Any) -> None:
        done[0] += 1
        if done[0] == commits:
            assert main(["stop", str(fit.run)]) == 0
        real(journal, *given, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "commit", told)
        assert fit() == 0
    assert (
        "Learning was told to stop. To learn on, run the same command with a higher runner.epochs."
        in fit.out
    )
    assert [row["split"] for row in fit.rows("metrics")][-1] == "test"
    assert not (fit.run / "stop").exists()
    assert main(["stop", str(fit.run)]) == 2  # it has ended
    assert fit(runner__epochs=3) == 0
    assert differing(content(fit.run), content(fit.root / "straight")) == []


AT_ONCE: dict[str, Any] = {
    "reflection__scope": "all",
    "runner__judge": "both",
    "runner__log_every_s": 0,
}


@pytest.mark.parametrize("is_proving", [False, True])
def test_learning_by_code_stops_between_two_small_steps_and_goes_on_as_if_it_had_not(
    fit: Fit, monkeypatch: pytest.MonkeyPatch, is_proving: bool
) -> None:
    assert fit(**AT_ONCE, runner__epochs=2, output__run_name="straight") == 0
    real, seen = FitProgress.show_learning, list[str]()

    def show(progress: FitProgress, mission: str, doing: str) -> None:
        real(progress, mission, doing)
        seen.append(doing)
        # first all tickets teach, then fewer, to test what they teach on others
        if len(set(seen)) == 1 + is_proving:
            assert main(["stop", str(fit.run)]) == 0

    with monkeypatch.context() as patched:
        patched.setattr(FitProgress, "show_learning", show)
        assert fit(**AT_ONCE, runner__epochs=1) == 0
    assert seen.count(seen[-1]) == 1
    assert f"valves: {seen[-1]}, 0:00:0" in fit.err
    (row,) = fit.rows("reflection")
    rules = json.loads((fit.run / "valves" / "guidance.json").read_text("utf-8"))["valves"][
        "metadata"
    ]
    if is_proving:  # what all tickets teach is known, and its proof is not
        assert row["gate"]["edits"][0]["outcome"] == "provisional"
        assert rules["G1"]["provisional"]
    else:
        assert row["why_not"] == "learning was told to stop" and not row["proposals"]
        assert rules.keys() <= {"G0"}
        assert "Nothing was learnt: no edit was tried: learning was told to stop." in fit.out
    assert (
        "Learning was told to stop. To learn on, run the same command with a higher runner.epochs."
        in fit.out
    )
    assert [each["split"] for each in fit.rows("metrics")][-1] == "test"
    assert not (fit.run / "stop").exists()
    assert fit(**AT_ONCE, runner__epochs=2) == 0
    assert differing(content(fit.run), content(fit.root / "straight")) == []


def test_a_folder_learnt_from_other_tickets_says_so_in_words(fit: Fit) -> None:
    assert fit(runner__epochs=0) == 0
    first, fit.tickets = fit.tickets, small.write(fit.folder / "others.jsonl", "pumps")
    assert fit(runner__epochs=0) == 2
    assert f"  tickets: learnt from {first}; these are {fit.tickets}" in fit.err
    assert "experiences" not in fit.err and not re.search("[0-9a-f]{32}", fit.err)
    shutil.copy(fit.tickets, first)
    fit.tickets = first
    assert fit(runner__epochs=0) == 2
    assert f"tickets: what they say has changed since it learnt from them ({first})" in fit.err


def test_stop_writes_through_no_link(
    fit: Fit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A folder may come from others."""
    real, elsewhere = Journal.commit, tmp_path / "elsewhere"

    def told(journal: Journal, *given: Any, **named: Any) -> None:
        if journal.number == 3:
            (fit.run / "stop").symlink_to(elsewhere)
            assert main(["stop", str(fit.run)]) == 0
        real(journal, *given, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "commit", told)
        assert fit() == 0
    assert "Learning was told to stop." in fit.out
    assert not elsewhere.exists() and not (fit.run / "stop").is_symlink()


def test_a_stop_that_comes_too_late_does_not_stop_what_learns_on(
    fit: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Journal.commit

    def told(journal: Journal, state: dict[str, Any], *given: Any, **named: Any) -> None:
        if state["ended"] and not state["finished"]:
            assert main(["stop", str(fit.run)]) == 0
        real(journal, state, *given, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "commit", told)
        assert fit(**LIMITED) == 0
    assert not (fit.run / "stop").exists()
    assert "Learning ended at budget.rollouts." in fit.out


def test_more_epochs_for_a_run_that_stopped_early_say_that_they_change_nothing(
    fit: Fit, model: Model
) -> None:
    keys = {
        "model__model_name_or_path": model(lambda *asked: "nothing to read")[0],
        "runner__max_unreadable": 1.0,
    }
    assert fit(**keys, early_stop__patience=1, runner__epochs=2) == 0
    assert "all the same" not in fit.err
    assert fit(**keys, early_stop__patience=1, runner__epochs=4) == 0
    assert (
        "valves: early_stop.patience has ended its learning all the same; for more, start a run "
        "with another" in fit.err
    )


# Distillation


def test_right_answers_under_the_final_guidance_become_training_data(fit: Fit) -> None:
    assert fit(distill__size=1000) == 0
    tickets = {ticket_text(ticket): ticket for ticket in read_tickets([fit.tickets], "error")[0]}
    train = 160 - sum(row["n"] for row in fit.rows("metrics") if row["epoch"] == 0)
    rows = fit.rows("distill_chatml")
    assert train * 0.8 < len(rows) <= train
    for row in rows:
        assert list(row) == ["messages"]
        assert [message["role"] for message in row["messages"]] == ["system", "user", "assistant"]
        system, user, assistant = (message["content"] for message in row["messages"])
        assert system.endswith("\nG1. Fail if state is torn.")
        verdict, reason = parse_answer(assistant, WORDS["en"]) or ("", "")
        assert verdict == tickets[user].label
        assert reason
    assert fit.state()["spent"]["rollouts"] == len(fit.rows("trajectories")) + train
    assert fit("--fresh", distill__size=5) == 0
    assert fit.rows("distill_chatml") == rows[:5]


# Folders and files


def test_retention_keeps_the_newest_snapshots(fit: Fit) -> None:
    assert fit(**{**UNTESTED, **NO_VAL, "guidance.retention": 3}) == 0
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
    assert {(row["verdict"], row["label_match"], row["manual_review"]) for row in selections} == {
        (None, False, True)
    }
    assert all(row["prompt_tokens"] > 300 for row in selections)
    assert not [row for row in fit.rows("trajectories") if row["ticket_key"] == key]
    queued = [row for row in fit.rows("manual_review_queue") if row["ticket_key"] == key]
    assert len(queued) == len(selections)
    assert all("sampler.max_prompt_tokens" in row["why"] for row in queued)


def test_unusable_lines_are_set_aside_where_that_is_asked_for(fit: Fit) -> None:
    fit.tickets.write_text(fit.tickets.read_text() + '{"mission": 3}\n')
    assert fit(on_bad_record="skip") == 0
    (row,) = [json.loads(line) for line in (fit.run / "bad_records.jsonl").read_text().splitlines()]
    assert (row["line"], row["raw"]) == (161, '{"mission": 3}')


# Where guidance starts


def seed_file(fit: Fit, missions: Mapping[str, Mapping[str, str]]) -> str:
    path = fit.folder / "seed.json"
    path.write_text(
        json.dumps(
            {mission: {"experiences": experiences} for mission, experiences in missions.items()}
        )
    )
    return str(path)


def test_a_seed_is_what_the_mission_starts_with(fit: Fit) -> None:
    small.write(fit.tickets, "valves", "seals")
    seed = seed_file(fit, {"valves": {"G0": "Judge valves.", "G7": "Fail if state is torn."}})
    assert fit(guidance__path=seed) == 0
    assert by_epoch(fit.rows("metrics"), "val")[0] > 0.9
    assert [(rule.key, rule.text) for rule in fit.guidance().rules] == [
        ("G0", "Judge valves."),
        ("G7", "Fail if state is torn."),
    ]
    assert by_epoch(fit.rows("metrics", "seals"), "val")[0] < 0.9
    assert fit.guidance("seals").rule("G1") is not None


# Same inputs, same bytes


def test_a_missions_files_depend_on_its_own_tickets_and_not_on_their_order_or_on_what_the_others_are(
    fit: Fit,
) -> None:
    """How many missions there are does matter: the budget of false acceptances is shared."""
    small.write(fit.tickets, "valves", "seals")
    assert fit(runner__epochs=1) == 0
    lines = [json.dumps(row) for mission in ("hoses", "valves") for row in small.rows(mission)]
    random.Random(3).shuffle(lines)
    fit.tickets.write_text("\n".join(lines))
    assert fit(output__run_name="more", runner__epochs=1) == 0
    assert content(fit.run / "valves") == content(fit.root / "more" / "valves")
    assert fit.rows("reflection")[0]["gate"]["budget_before"] == pytest.approx(0.05 / 2)


# Starting again


def test_other_tickets_are_refused(fit: Fit) -> None:
    assert fit() == 0
    fit.tickets.write_text(fit.tickets.read_text().replace("torn", "worn", 1))
    assert fit() == 2
    assert "tickets:" in fit.err


def test_a_finished_run_has_its_result_again_where_it_was_removed(fit: Fit) -> None:
    assert fit() == 0
    before, (result, *others) = content(fit.run), sorted(fit.run.glob("*/guidance.json"))
    result.unlink()
    for other in others:
        other.write_text("changed by hand")
    assert fit() == 0
    assert content(fit.run).keys() == before.keys()
    assert result.read_bytes() == before[result.relative_to(fit.run).as_posix()]
    assert all(other.read_text() == "changed by hand" for other in others)


def test_what_shapes_no_result_may_differ(fit: Fit) -> None:
    assert fit() == 0
    before = content(fit.run)
    moved = fit.folder / "moved.jsonl"
    fit.tickets.rename(moved)
    fit.tickets = moved
    shutil.move(fit.root, fit.folder / "elsewhere")
    fit.root = fit.folder / "elsewhere"
    assert fit(runner__log_every_s=5, fabric__timeout_s=30) == 0
    assert "already finished" in fit.err
    assert content(fit.run) == before


def test_a_finished_run_shows_its_table_without_a_model(
    fit: Fit, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, _ = model(respond)
    assert fit(model__model_name_or_path=name) == 0
    shown = fit.out
    monkeypatch.delattr(models, "stand_in")
    assert fit(model__model_name_or_path=name) == 0
    assert fit.out == shown
    assert fit("--fresh", model__model_name_or_path=name) != 0  # one that must run needs it


# Errors


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"runner__epochs": -1}, "config: runner.epochs: -1: 0 or more"),
        ({"tickets": ["missing.jsonl"]}, "missing.jsonl: cannot be read"),
        ({"guidance__path": "missing.json"}, "missing.json: No such file"),
        (
            {"model__model_name_or_path": "programs.models:nobody"},
            "config: model.model_name_or_path",
        ),
        ({"model__engine": "abacus"}, "config: model.engine: 'abacus'"),
        ({"output__run_name": "../run"}, "config: output.run_name: '../run'"),
        ({"fabric__devices": "abc"}, "config: fabric"),
    ],
)
def test_what_cannot_be_used_is_told_before_anything_is_made(
    fit: Fit, keys: dict[str, Any], says: str
) -> None:
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
        (
            json.dumps(next(small.rows()))
            + "\n"
            + json.dumps({**next(small.rows()), "per_image": {"image_1": "-"}}),
            "stands at",
        ),
        ("", "empty"),
    ],
)
def test_a_broken_ticket_file_is_told_before_anything_is_made(
    fit: Fit, lines: str, says: str
) -> None:
    fit.tickets.write_text(lines)
    test_what_cannot_be_used_is_told_before_anything_is_made(fit, {}, says)


def test_a_mission_without_a_train_ticket_is_told(fit: Fit) -> None:
    small.write(fit.tickets, "valves", groups=1)
    shares = {"split__train": 0.1, "split__val": 0.45, "split__test": 0.45}
    test_what_cannot_be_used_is_told_before_anything_is_made(
        fit, shares, "mission 'valves' has no train ticket"
    )


# What is sealed


def test_guidance_is_refused_where_its_rules_were_learnt_from_sealed_tickets(fit: Fit) -> None:
    assert fit(seed=1, reflection__max_cases=2) == 0  # one source
    learnt = fit.folder / "learnt.json"
    shutil.copy(fit.run / "valves" / "guidance.json", learnt)
    rule = json.loads(learnt.read_text())["valves"]["metadata"]["G1"]
    assert rule["split_seed"] == 1
    codes = {
        seed: fit("--fresh", seed=seed, guidance__path=str(learnt), runner__epochs=0)
        for seed in range(2, 9)
    }
    assert set(codes.values()) == {2}  # whichever of them another split seals
    assert "give --split.seed 1, or tickets that it has not seen" in told(fit, codes, learnt)
    assert fit("--fresh", seed=2, guidance__path=str(learnt), split__seed=1, runner__epochs=0) == 0


def told(fit: Fit, codes: Mapping[int, int], learnt: Path) -> str:
    """What the first refused seed was told."""
    seed = next(seed for seed, code in codes.items() if code == 2)
    assert fit("--fresh", seed=seed, guidance__path=str(learnt), runner__epochs=0) == 2
    return fit.err
