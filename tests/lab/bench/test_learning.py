"""Methods of learning on a fake that follows rules by their letter: what they spend, count, and
hand back."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter as Count
from collections.abc import Sequence
from pathlib import Path

import pytest
from guidance.made import guidances
from hypothesis import given

from lab.bench.learning import cells, data, missions, options, ours, proposals, proposer
from lab.bench.learning.cells import Cell, Place
from lab.bench.learning.method import ENGLISH, CodeFirst, Judge, Learnt, Point, Task
from stageb.engines import Completion
from stageb.engines.protocol import Decode, Prompt, Request
from stageb.engines.scripted import ScriptedEngine
from stageb.errors import InputError, StagebError
from stageb.guidance.judging import follower
from stageb.guidance.learning.proposals import parse_proposal
from stageb.guidance.rules.edits import apply
from stageb.guidance.rules.prompts import Case, ReflectionInput, rule_lines
from stageb.guidance.rules.read_guidance import make_neutral
from stageb.guidance.words.types import Guidance, Operation, Proposal, Rule, Ticket, Verdict

CONFIG = """
model: {engine: scripted}
runner: {per_rank_rollout_batch_size: 32, tickets_per_epoch: 64}
reflection: {batch_size: 64, num_proposals: 4}
"""


class Counting(ScriptedEngine):
    """The follower, and how many samples it was asked for."""

    def __init__(self) -> None:
        super().__init__(follower.respond)
        self.asked = 0

    def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
        self.asked += sum(len(request.keys) for request in requests)
        return super().generate(requests)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    tickets = missions.tickets("plain")[:400]
    engine = Counting()
    (tmp_path / "config.yaml").write_text(CONFIG)
    return Task(
        tickets=tickets,
        parts=cells.split(tickets, 1),
        first=make_neutral(tickets[0].mission, ENGLISH),
        model="stageb-tiny",
        engine=engine,
        reflector=engine,
        judge=Judge(engine),
        seed=1,
        budget=3000,
        device="cpu",
        configs=[tmp_path / "config.yaml"],
        folder=tmp_path,
    )


def accuracy(task: Task, guidance: Guidance) -> float:
    right = task.judge.right(guidance, task.parts["test"])
    return sum(right) / len(right)


# The judge


def test_a_verdict_is_asked_of_the_model_once(task: Task) -> None:
    engine = task.engine
    assert isinstance(engine, Counting)
    some = task.parts["test"][:10]
    right = task.judge.right(task.first, some)
    assert right == [ticket.label == "pass" for ticket in some], "without rules everything passes"
    assert task.judge.right(task.first, [*some[::-1], *some]) == [*right[::-1], *right]
    assert engine.asked == 10
    other = Guidance(
        task.first.mission, 0, (*task.first.rules, Rule("G1", "Fail if rivet is cobalt.")), 2
    )
    task.judge.right(other, some)
    assert engine.asked == 20


# Edits


@given(guidances())
def test_guidance_written_as_a_prompt_shows_it_is_read_back(guidance: Guidance) -> None:
    read = proposals.parse_rules(guidance.mission, rule_lines(guidance))
    assert [(rule.key, rule.text) for rule in read.rules] == [
        (rule.key, rule.text) for rule in guidance.rules
    ]
    assert read.next_number > max(int(rule.key[1:]) for rule in guidance.rules)


def operation(op: str, text: str, key: str | None = None) -> Proposal:
    made = Operation(op, key, (), text, "", ("g::fail",))  # type: ignore[arg-type]
    return Proposal(0, "", (made,), ())


def test_idle_edits_are_taken_by_the_loop_and_change_no_verdict(task: Task) -> None:
    cases = [Case(task.parts["train"][0], False, "")]
    texts = set()
    for key in range(5):
        answer = proposer.idle(Prompt("", ""), Decode(), key)
        proposal = parse_proposal(
            answer, ReflectionInput(tuple(cases)), task.first, proposals.SETTINGS, ENGLISH, 0
        )
        assert not proposal.refusals
        edited = apply(task.first, proposal.operations)
        texts.add(edited.rules[-1].text)
        assert task.judge.right(edited, task.parts["val"]) == task.judge.right(
            task.first, task.parts["val"]
        )
    assert len(texts) == 5, "edits that are equal would be tried once"


# Evidence


def case(number: int, text: str, label: Verdict, right: bool) -> Case:
    return Case(
        Ticket("m", f"g{number:04d}", label, (("image_1", text),)),
        right,
        "" if right else "none fails it (G0)",
    )


def leaking(label: Verdict) -> list[Case]:
    """Cases of which three in four wrong ones, of that label, are red, and no right one; the wet
    ones tell less."""
    other: Verdict = "pass" if label == "fail" else "fail"
    wrong = [
        case(
            n,
            f"hue: {'red' if n % 4 else 'blue'}; {'dry' if n % 3 else 'wet'} ground",
            label,
            False,
        )
        for n in range(24)
    ]
    return wrong + [
        case(n, f"hue: blue; {'dry' if n % 6 else 'wet'} ground", other, True)
        for n in range(24, 48)
    ]


def prompt_of(cases: Sequence[Case], guidance: Guidance, counted: Sequence[Case]) -> Prompt:
    """The prompt of one answer."""
    seen: list[Prompt] = []

    def respond(prompt: Prompt, decode: Decode, key: int) -> str:
        seen.append(prompt)
        return ""

    assert proposals.propose(
        cases, guidance, ScriptedEngine(respond), 1, 7, proposals.Counting(counted)
    ) == ([], 1)
    return seen[0]


@pytest.mark.parametrize("label", ["pass", "fail"])
def test_statistics_makes_rules_of_the_evidence_the_first_ranks_most_often(
    task: Task, label: Verdict
) -> None:
    prompt = prompt_of(leaking(label), task.first, leaking(label))
    texts: Count[str] = Count()
    for key in range(60):
        answer = proposer.statistics(prompt, Decode(), key)
        proposal = parse_proposal(
            answer,
            ReflectionInput(tuple(leaking(label))),
            task.first,
            proposals.SETTINGS,
            ENGLISH,
            0,
        )
        operation, *_ = proposal.operations  # of rules that all pass the headline turns
        texts[operation.text] += 1
    assert texts.most_common(1)[0][0] == f"{label.capitalize()} if hue is red."
    assert len(texts) > 1


def test_evidence_is_counted_over_what_is_given_and_fits_the_prompt(task: Task) -> None:
    many = [
        case(
            n,
            f"hue: {'red' if n % 2 else 'blue'}; {'word ' * 100}",
            "fail" if n % 2 else "pass",
            not n % 2,
        )
        for n in range(300)
    ]
    prompt = prompt_of(many[:24], task.first, many)
    assert (
        "Counted in 150 wrong that should fail, 150 right to pass:\n[1] 150 to 0: hue is red"
        in prompt.user
    )
    assert len((prompt.system + " " + prompt.user).split()) <= proposals.SETTINGS.max_prompt_tokens
    assert prompt.user.count("\nT") >= 2


# The methods


def test_gepa_keeps_to_its_budget_and_learns(task: Task) -> None:
    pytest.importorskip("gepa")
    from lab.bench.learning import gepa_peer

    learnt = gepa_peer.learn(task, gepa_peer.Settings(minibatch=24, most_val=50, cache=True))
    iteration = 2 * 24 + 50
    assert task.budget <= learnt.rollouts < task.budget + iteration, (
        "GEPA ends with the iteration that reaches the budget"
    )
    assert learnt.accepted >= len(learnt.points) - 2
    assert accuracy(task, learnt.points[-1].guidance) > accuracy(task, task.first) + 0.2


def test_gepa_with_evidence_counts_it_over_train_tickets_that_its_budget_pays_for(
    task: Task,
) -> None:
    pytest.importorskip("gepa")
    from lab.bench.learning import gepa_peer

    adapter = gepa_peer.Adapter(task, 60)
    candidate = {gepa_peer.COMPONENT: rule_lines(task.first)}
    train, val = task.parts["train"], task.parts["val"]
    adapter.evaluate(list(train[:24]), candidate, capture_traces=True)
    adapter.evaluate(list(val), candidate)
    counted = adapter.counted(candidate, 60)
    assert {each.ticket.key for each in counted} >= {ticket.key for ticket in train[:24]}
    assert (
        len({each.ticket.key for each in counted} & {ticket.key for ticket in train})
        == len(counted)
        == 60
    )
    assert [each.right for each in counted] == task.judge.right(
        task.first, [each.ticket for each in counted]
    )
    assert adapter.rollouts == 60 + len(val)
    adapter.counted(candidate, 60)
    assert adapter.rollouts == 60 + len(val), "what is known is not judged again"


def test_gepa_by_code_learns_without_rollouts_where_code_judges_all(task: Task) -> None:
    pytest.importorskip("gepa")
    from lab.bench.learning import gepa_peer

    settings = gepa_peer.Settings(minibatch=24, cache=True, evidence_tickets=10_000, by_code=True)
    learnt = gepa_peer.learn(
        dataclasses.replace(task, reflector=ScriptedEngine(proposer.statistics)), settings
    )
    assert learnt.judges_by_code
    assert learnt.rollouts == 0
    coder = CodeFirst(task.judge, task.tickets)
    first, last = (
        sum(coder.right(each.guidance, task.parts["test"]))
        for each in (learnt.points[0], learnt.points[-1])
    )
    assert last > first + 0.2 * len(task.parts["test"])


def test_gepa_with_idle_edits_hands_back_what_it_began_with(task: Task) -> None:
    pytest.importorskip("gepa")
    from lab.bench.learning import gepa_peer

    idle = dataclasses.replace(task, budget=500, idle=True, reflector=ScriptedEngine(proposer.idle))
    learnt = gepa_peer.learn(idle, gepa_peer.Settings())
    assert learnt.reflections > 0
    assert learnt.accepted == 0
    assert learnt.points[-1].guidance.rules == task.first.rules


@pytest.mark.parametrize("idle", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_ours_is_what_the_files_of_a_run_say(task: Task, idle: bool) -> None:
    learnt = ours.learn(dataclasses.replace(task, idle=idle))
    commit = json.loads((task.folder / "run" / "commit.json").read_text())
    (place,) = (path.parent for path in task.folder.glob("run/*/trajectories.jsonl"))
    tests = sum(row["split"] == "test" for row in ours.rows(place / "trajectories.jsonl"))
    assert (
        "budget.rollouts" not in (task.folder / "log.txt").read_text()
        or learnt.rollouts >= task.budget
    )
    assert json.dumps(commit).count('"spent"') == 1
    spent = commit["state"]["spent"]
    assert learnt.rollouts == spent["rollouts"] + spent["judged"] - tests
    assert learnt.reflections == spent["reflections"]
    assert [point.rollouts for point in learnt.points] == sorted(
        point.rollouts for point in learnt.points
    )
    if idle:
        assert learnt.accepted == 0
        assert {point.guidance.rules for point in learnt.points} == {task.first.rules}
    else:
        assert learnt.accepted == len(learnt.points) - 2 > 0
        assert learnt.points[-1].guidance == ours.load(place / "guidance.json")


@pytest.mark.slow
def test_ours_learns_with_the_model_that_the_others_get(task: Task) -> None:
    with pytest.raises(StagebError, match="no_such_module"):
        ours.learn(dataclasses.replace(task, model="no_such_module:respond"))


def test_ours_says_why_a_run_failed(task: Task) -> None:
    task.configs[0].write_text("nonsense: 1")
    with pytest.raises(StagebError, match="nonsense"):
        ours.learn(task)


# Cells and commands


@pytest.mark.parametrize("noise", [None, "shuffled", "one-rule", "idle"])
def test_what_is_learnt_counts_within_the_budget_and_noise_beyond_it_too(
    noise: cells.Noise | None,
) -> None:
    first = make_neutral("m", ENGLISH)
    better = apply(first, operation("add", "Fail if label is missing.").operations)
    done = Learnt([Point(0, first), Point(101, better)], rollouts=120, reflections=1, accepted=1)
    cell = Cell("demo-rack", "ours", seed=1, budget=100, noise=noise, measured=False)
    points = list(
        cells.curve(done, Judge(ScriptedEngine(lambda prompt, decode, key: "")), [], cell)
    )
    assert [point["rollouts"] for point in points] == ([0, 101] if noise else [0])


def test_what_code_decides_is_measured_by_code_and_the_rest_by_the_model() -> None:
    """A model that fails everything; of the two rules one is out of reach for code, and one is for
    tickets of its own."""
    tickets = data.load("demo-rack", None)
    assert tickets
    judge = Judge(ScriptedEngine(lambda prompt, decode, key: "Verdict: fail"))
    bare = make_neutral(tickets[0].mission, ENGLISH)
    readable = apply(bare, operation("add", "Fail if label is missing.").operations)
    odd = apply(bare, operation("add", "Fail if it looks odd.").operations)
    fails = [ticket.label == "fail" for ticket in tickets]
    by_code = CodeFirst(judge, tickets).right(readable, tickets)
    assert by_code != fails
    assert by_code == [
        ("label: missing" in str(ticket.per_image)) == (ticket.label == "fail")
        for ticket in tickets
    ]
    assert CodeFirst(judge, tickets).right(odd, tickets) == fails


@pytest.mark.slow
def test_a_cell_is_run_once_and_leaves_its_curve(tmp_path: Path) -> None:
    place = Place(tmp_path, None, options.CONFIGS, "stageb-tiny", "cpu")
    cell = Cell("demo-rack", "statistics", seed=1, budget=350)
    (result,) = cells.run_all([cell], place, workers=1)
    tickets = data.load("demo-rack", None)
    assert tickets
    parts = cells.split(tickets, 1)
    assert result["tickets"] == {name: len(part) for name, part in parts.items()}
    assert result["curve"][0]["rollouts"] == 0
    assert result["rollouts"] <= 350
    passes = "".join("01"[ticket.label == "pass"] for ticket in parts["test"])
    assert result["curve"][0]["right"] == passes
    path = tmp_path / "cells" / cell.name / "result.json"
    path.write_text(json.dumps(result | {"seconds": -1}))
    assert cells.run_all([cell], place, workers=1)[0]["seconds"] == -1


def test_a_data_set_that_is_missing_is_left_out_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = options.parser_of("learn", "", "plain,maintie", "ours", 100, 1)
    given = parser.parse_args(["--out", str(tmp_path)])
    assert options.datasets_of(given) == ["plain"]
    assert "maintie" in capsys.readouterr().err
    with pytest.raises(InputError, match="--data"):
        options.datasets_of(parser.parse_args(["--out", str(tmp_path), "--datasets", "maintie"]))
