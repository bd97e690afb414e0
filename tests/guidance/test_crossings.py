"""Features crossed: whatever else is on, what each of them promises holds.

Each of ``RUNS`` is a small run with some of ``FEATURES`` on; together they have every pair that can
go together. Each of ``PROMISES`` is asked of what every run has left, and is computed anew from its
rows.

| feature | on | promise |
|---|---|---|
| at once | code learns all rules, and judges by them | every verdict is that of the rules as code; they are learnt |
| numbers | a limit decides | no number of train lies between it and the one that is learnt |
| joined | each third ticket says what another one says | both are in one split; what taught is train |
| prices | a missed failure costs four false alarms | costs are those of the rows; val chooses by them |
| drawn | one in twenty fails, at the price of twenty | the same, of val each row for those it stands for |
| val | a sixth of the groups | the final guidance is within a standard error of the best on it |
| grid, ties | two decodes; a model of two minds | a vote over all of them, a tie to the first by name |
| budget | rollouts, tokens, seconds | no round learns once it was spent |
| resume | the run is killed at its fourth commit | the same bytes |
| provisional | no test can prove anything | nothing is accepted, what stays is marked |
| limited | of verdicts few may change | no more do |
| labels | three of the mission's own, two rules for one ticket | the first rule decides |
| Chinese | texts, verdict words and rules | rules are written so, and read back |
| calibrated | an instruct model's probabilities | what it is shown is train |

Not here, since a model that sees takes longer: images, crossed with ranks, resume and splits in
``commands/use/test_summarize.py`` and ``tickets/test_images.py``. Prices and limits are of pass and
fail; code that judges needs no calibration.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
from conformance import content, differing
from programs import small

from stageb.__main__ import main
from stageb.engines.protocol import Decode, Prompt
from stageb.guidance.judging.coded import CodeJudge, code_rules
from stageb.guidance.judging.follower import respond
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.read_guidance import read_guidance
from stageb.guidance.tickets.tickets import read_tickets
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.types import BY_RULES, Guidance, Ticket
from stageb.seeds import stream, uniform
from stageb.store.journal import Journal

LIMIT, CHANGED, SPENT = 12.35, 0.3, 300
FEATURES: Mapping[str, Mapping[str, Any]] = {
    "at once": {"reflection.scope": "all", "runner.judge": "both"},
    "numbers": {},
    "joined": {},
    "prices": {"price.missed_failure": 4.0},
    "drawn": {"price.missed_failure": 20.0},
    "val": {"split.train": 0.66, "split.val": 0.17, "split.test": 0.17},
    "grid": {"sampler.grid": [{"temperature": 0.2}, {"temperature": 1.0}]},
    "ties": {
        "model.engine": "scripted",
        "model.model_name_or_path": "guidance.test_crossings:answer_in_two_minds",
    },
    "budget": {"budget.rollouts": SPENT, "budget.tokens": 10**9, "budget.seconds": 1e6},
    "resume": {},
    "provisional": {"gate.alpha": 1e-200},
    "limited": {"gate.max_changed_verdicts": CHANGED},
    "labels": {"reflection.scope": "all", "runner.judge": "both"},
    "Chinese": {"prompt.language": "zh"},
    "calibrated": {
        "model.engine": "programs.weighing:build",
        "model.model_name_or_path": "some/model",
        "prompt.style": "instruct",
        "prompt.prefill": True,
        "early_stop.reflections": 1,
    },
}
APART = [
    *(("labels", other) for other in ("prices", "drawn", "limited", "calibrated")),
    *(("calibrated", other) for other in ("at once", "Chinese")),
    ("prices", "drawn"),
]
RUNS: Sequence[Set[str]] = [
    {"at once", "joined", "drawn", "grid", "resume", "provisional"},
    {"prices", "val", "budget", "provisional", "limited", "calibrated"},
    {"numbers", "joined", "prices", "grid", "ties", "Chinese"},
    {"at once", "numbers", "budget", "resume", "labels", "Chinese"},
    {"drawn", "grid", "ties", "budget", "limited", "calibrated"},
    {"at once", "val", "grid", "ties", "provisional", "labels"},
    {"numbers", "joined", "val", "ties", "resume", "calibrated"},
    {"at once", "joined", "prices", "resume", "provisional", "limited"},
    {"numbers", "drawn", "val", "provisional", "limited", "Chinese"},
    {"at once", "joined", "budget", "resume", "labels", "Chinese"},
    {"at once", "numbers", "joined", "prices", "val", "Chinese"},
    {"at once", "numbers", "drawn", "val", "limited"},
    {"joined", "prices", "val", "grid", "budget", "resume"},
]
TORN, STATE = {"en": "torn", "zh": "破损"}, {"en": "state", "zh": "状态"}


def answer_in_two_minds(prompt: Prompt, decode: Decode, key: int) -> str:
    """The follower's answer; of every third pair of keys one is the other verdict."""
    said = respond(prompt, decode, key)
    if uniform(stream("minds", key), 0) > 0.25:
        return said
    one, other = ("pass", "fail") if "Verdict: pass" in said else ("fail", "pass")
    return said.replace(f"Verdict: {one}", f"Verdict: {other}")


def write_tickets(path: Path, on: Set[str]) -> Path:
    """320 tickets: a part fails if it is torn, or too long; of labels of its own, it is high if
    torn, else mid if it is red and long enough."""
    language = "zh" if "Chinese" in on else "en"
    lines, groups = [], 320
    for n, row in enumerate(small.rows("valves", groups)):
        colour = row["per_image"]["image_2"].rpartition(": ")[2]
        is_torn = uniform(stream("torn", n), 0) < (0.06 if "drawn" in on else 0.35)
        length = round(20 * uniform(stream("length", n), 0), 1)
        if "drawn" in on and "numbers" in on:
            length = length if is_torn or length < LIMIT else round(length / 2, 1)
        is_long = length > LIMIT
        told = TORN[language] if is_torn else "new"
        fails = is_long and (is_torn or "drawn" not in on) if "numbers" in on else is_torn
        label = "fail" if fails else "pass"
        if "labels" in on:
            label = "high" if is_torn else "mid" if is_long else "low"
        texts = {
            "image_1": f"number: {n}; length: {length} mm",
            "image_2": f"{STATE[language]}: {told}; colour: {colour}",
        }
        lines.append(
            {"mission": "valves", "group_id": f"g-{n}", "label": label, "per_image": texts}
        )
    if "joined" in on:
        lines += [{**line, "group_id": f"again-{line['group_id']}"} for line in lines[::3]]
    path.write_text(
        "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines), encoding="utf-8"
    )
    return path


@dataclass(frozen=True)
class Run:
    """What a run has left."""

    on: Set[str]
    keys: Mapping[str, Any]
    tickets: Mapping[str, Ticket]
    folder: Path

    def rows(self, file: str) -> list[dict[str, Any]]:
        path = self.folder / "valves" / f"{file}.jsonl"
        return (
            [json.loads(line) for line in path.read_text("utf-8").splitlines()]
            if path.exists()
            else []
        )

    @cached_property
    def selections(self) -> list[dict[str, Any]]:
        return self.rows("selections")

    @cached_property
    def guidance(self) -> Guidance:
        return read_guidance(str(self.folder))["valves"]

    @cached_property
    def prices(self) -> dict[str, float]:
        return {"pass": 1.0, "fail": self.keys.get("price.missed_failure", 1.0)}

    def judged(self, figures: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The selections that a row of metrics counts: an earlier epoch's where the guidance was
        the same."""
        names = ("split", "guidance_step")
        rows = [row for row in self.selections if all(row[name] == figures[name] for name in names)]
        last = max((row["epoch"] for row in rows if row["epoch"] <= figures["epoch"]), default=-1)
        return [row for row in rows if row["epoch"] == last]

    def costs(self, figures: Mapping[str, Any]) -> list[tuple[float, float]]:
        """Of each ticket of a row of metrics what its verdict cost, and for how many it stands."""
        rows = self.judged(figures)
        counted = Counter(row["label"] for row in rows)
        stand = {label: figures["classes"][label]["n"] / n for label, n in counted.items()}
        return [
            (self.prices.get(row["label"], 1.0) * (not row["label_match"]), stand[row["label"]])
            for row in rows
        ]

    def judge_by_code(
        self, tickets: Sequence[Ticket], guidance: Guidance | None = None
    ) -> list[str | None]:
        train = [ticket for ticket in self.tickets.values() if self.split_of[ticket.key] == "train"]
        judge = CodeJudge(
            code_rules(
                {"valves": guidance or self.guidance},
                train,
                WORDS["zh" if "Chinese" in self.on else "en"],
            )
        )
        return [judge.judge(ticket).verdict for ticket in tickets]

    @cached_property
    def split_of(self) -> dict[str, str]:
        seen = {row["ticket_key"]: row["split"] for row in self.selections}
        return {key: seen.get(key, "train") for key in self.tickets}


def check_figures(run: Run) -> None:
    for figures in run.rows("metrics"):
        costs = run.costs(figures)
        if not costs or (figures["split"] == "train"):
            continue
        n = sum(stand for _, stand in costs)
        assert figures["cost"] == pytest.approx(
            sum(cost * stand for cost, stand in costs) / n, abs=1e-5
        )
        assert figures["acc"] == pytest.approx(
            sum(stand for cost, stand in costs if not cost) / n, abs=1e-5
        )
        if run.on & {"prices", "drawn"}:
            rows = run.judged(figures)
            assert figures["fp"] == sum(
                row["label"] == "fail" and row["verdict"] == "pass" for row in rows
            )


def check_votes(run: Run) -> None:
    names = ("epoch", "split", "round", "ticket_key")
    answers: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in run.rows("trajectories"):
        answers.setdefault(tuple(row[name] for name in names), []).append(row)
    for row in run.selections:
        given = answers[tuple(row[name] for name in names)]
        if given[0]["decode"] != BY_RULES:
            assert len(given) == 2 * (1 + ("grid" in run.on))
        usable = [each for each in given if each["format_ok"]]
        votes = Counter(each["verdict"] for each in usable)
        best = min((-count, verdict) for verdict, count in votes.items())
        assert (row["verdict"], row["vote_strength"]) == (
            best[1],
            pytest.approx(-best[0] / len(usable), abs=1e-6),
        )
        assert row["label_match"] == (row["verdict"] == row["label"])


def check_ties(run: Run) -> None:
    if "ties" in run.on and not run.on & {"at once", "calibrated"}:
        assert any(row["vote_strength"] == 0.5 for row in run.selections)


def check_groups(run: Run) -> None:
    splits: dict[tuple[Any, ...], set[str]] = {}
    for ticket in run.tickets.values():
        splits.setdefault(ticket.per_image, set()).add(run.split_of[ticket.key])
    assert all(len(found) == 1 for found in splits.values())
    taught = {key for rule in run.guidance.rules for key in rule.sources} | {
        each.source for each in run.guidance.shown
    }
    assert {run.split_of[key] for key in taught} <= {"train"}
    tickets = [ticket for ticket in run.tickets.values() if run.split_of[ticket.key] == "test"]
    assert len({row["ticket_key"] for row in run.selections if row["split"] == "test"}) == len(
        tickets
    )


def check_choice(run: Run) -> None:
    final = run.rows("metrics")[-1]
    assert (final["split"], final["guidance_step"]) == ("test", run.guidance.step)
    by_step = {
        figures["guidance_step"]: figures
        for figures in run.rows("metrics")
        if figures["split"] == "val"
    }
    assert bool(by_step) == ("val" in run.on)
    means = {
        step: (sum(c * s for c, s in costs) / sum(s for _, s in costs), costs)
        for step, costs in ((step, run.costs(each)) for step, each in by_step.items())
    }
    if means:
        least, costs = min(means.values(), key=lambda each: each[0])
        total = sum(stand for _, stand in costs)
        # of those drawn, no less than this
        error = sqrt(sum(stand * stand * cost * cost for cost, stand in costs)) / total
        allowed = {
            step
            for step, (mean, _) in means.items()
            if mean <= least + max(error, max(run.prices.values()) / sqrt(total)) + 1e-9
        }
        assert run.guidance.step in allowed


def check_budget(run: Run) -> None:
    if "budget" not in run.on:
        return
    spent, last = 0, 0
    rounds: dict[tuple[int, str, int], int] = {}
    for row in run.rows("trajectories"):
        place = row["epoch"], row["split"], row["round"]
        rounds[place] = rounds.get(place, 0) + (row["decode"] != BY_RULES)
    for (_, split, _), count in rounds.items():
        last = spent if split == "train" else last
        spent += count
    assert last < SPENT


def check_provisional(run: Run) -> None:
    outcomes = {
        edit["outcome"]
        for row in run.rows("reflection")
        if row["gate"]
        for edit in row["gate"]["edits"]
    }
    learnt = [rule for rule in run.guidance.rules if rule.key != "G0"]
    if "provisional" in run.on:
        assert "accepted" not in outcomes
        assert all(rule.is_provisional for rule in learnt)
    else:
        assert not any(rule.is_provisional for rule in learnt) or "provisional" in outcomes
    assert bool(learnt) <= bool(outcomes & {"accepted", "provisional"})


def check_limits(run: Run) -> None:
    if not {"limited", "at once"} <= run.on:
        return
    train = [ticket for ticket in run.tickets.values() if run.split_of[ticket.key] == "train"]
    step = run.folder / "valves" / "snapshots" / "guidance-000000.json"
    first = read_guidance(str(step))["valves"]
    before, after = run.judge_by_code(train, first), run.judge_by_code(train)
    turned = [
        (one == ticket.label) != (other == ticket.label)
        for ticket, one, other in zip(train, before, after, strict=True)
    ]
    assert sum(turned) <= CHANGED * len(train)


def check_code(run: Run) -> None:
    if "at once" not in run.on:
        return
    rows = run.judged(run.rows("metrics")[-1])
    by_code = run.judge_by_code([run.tickets[row["ticket_key"]] for row in rows])
    assert all(
        verdict in (None, row["verdict"]) for verdict, row in zip(by_code, rows, strict=True)
    )
    assert sum(verdict is not None for verdict in by_code) > 0.9 * len(rows)
    if not run.on & {"provisional", "ties"}:
        assert run.guidance.step and sum(row["label_match"] for row in rows) > 0.93 * len(rows)


def check_texts(run: Run) -> None:
    for rule in run.guidance.rules:
        assert bool(re.search("[一-鿿]", rule.text)) == ("Chinese" in run.on), rule.text
    if {"numbers", "at once"} <= run.on:
        train = [
            str(ticket.per_image)
            for ticket in run.tickets.values()
            if run.split_of[ticket.key] == "train"
        ]
        numbers = [
            float(found[1]) for text in train if (found := re.search(r"length: ([\d.]+) mm", text))
        ]
        limits = [
            float(limit)
            for rule in run.guidance.rules
            for limit in re.findall(r"(\d+(?:\.\d+)?) mm", rule.text)
        ]
        assert not [
            n for n in numbers for limit in limits if min(limit, LIMIT) < n < max(limit, LIMIT)
        ]
        assert limits or run.on & {"provisional", "limited", "drawn"}


def check_labels(run: Run) -> None:
    known = {ticket.label for ticket in run.tickets.values()}
    assert {row["verdict"] for row in run.selections} <= known | {None}
    assert set(run.guidance.labels) == (known if "labels" in run.on else {"pass", "fail"})


PROMISES: Sequence[Callable[[Run], None]] = (
    check_figures,
    check_votes,
    check_ties,
    check_groups,
    check_choice,
    check_budget,
    check_provisional,
    check_limits,
    check_code,
    check_texts,
    check_labels,
)


def make_run(on: Set[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    path = write_tickets(folder / "tickets.jsonl", on)
    keys = {
        "runner.epochs": 2,
        "split.train": 0.8,
        "split.val": 0.0,
        "split.test": 0.2,
        "guidance.retention": 100,
    }
    for name in FEATURES:
        keys |= FEATURES[name] if name in on else {}
    assert main(small.arguments(path, folder / "out", keys=keys)) == 0
    if "resume" in on:
        real = Journal.commit

        def kill(journal: Journal, *given: Any, **named: Any) -> None:
            real(journal, *given, **named)
            if journal.number == 4:
                raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(Journal, "commit", kill)
            assert main(small.arguments(path, folder / "again", keys=keys)) == 130
        assert main(small.arguments(path, folder / "again", keys=keys)) == 0
        assert differing(content(folder / "again" / "run"), content(folder / "out" / "run")) == []
    tickets, _ = read_tickets([str(path)], "error", ColumnsConfig())
    return Run(on, keys, {ticket.key: ticket for ticket in tickets}, folder / "out" / "run")


def test_every_pair_that_can_go_together_does() -> None:
    apart = set(map(frozenset, APART))
    wanted = {frozenset(pair) for pair in combinations(FEATURES, 2)} - apart
    assert wanted - {frozenset(pair) for on in RUNS for pair in combinations(on, 2)} == set()
    assert not any(frozenset(pair) in apart for on in RUNS for pair in combinations(on, 2))


@pytest.mark.parametrize("on", RUNS, ids=lambda on: ", ".join(sorted(on)))
def test_what_each_feature_promises_holds_beside_the_others(
    on: Set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(on, tmp_path, monkeypatch)
    for check in PROMISES:
        check(run)
