"""What a run says in words: what each reflection tried and what came of it, and what to try where
nothing was learnt."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import Mock

import pytest
from programs import small

from stageb.__main__ import main
from stageb.guidance.commands.fit.advice import advise
from stageb.guidance.commands.fit.artifacts import MissionFiles
from stageb.guidance.commands.fit.progress import FitProgress
from stageb.guidance.config import (
    BudgetConfig,
    GateConfig,
    GuidanceConfig,
    LoopConfig,
    ReflectionConfig,
)
from stageb.guidance.learning.attempts import (
    ALL_RIGHT,
    NO_CANDIDATE,
    TOO_MANY,
    Attempts,
    describe_judge,
    describe_provisional,
    describe_reflection,
    explain_refusals,
    keep_furthest,
    list_attempts,
    name_last_stage,
)
from stageb.guidance.learning.reflection_file import parse_row
from stageb.guidance.learning.state import TOLD_TO_STOP, State
from stageb.guidance.words.costs import PriceConfig
from stageb.guidance.words.types import PROVISIONAL, Guidance, Rule
from stageb.store.journal import Journal

NONE_TRIED = Attempts(0, (), {}, {}, None)


def metrics(fails: int, passes: int, acc: float = 0.5) -> list[dict[str, Any]]:
    classes = {"fail": {"n": fails}, "pass": {"n": passes}}
    return [{"epoch": 0, "split": "test", "acc": acc, "classes": classes}]


def config(**gate: Any) -> LoopConfig:
    return LoopConfig(tickets=["t.jsonl"], gate=GateConfig(**gate), budget=BudgetConfig())


def test_the_facts_of_a_run_say_what_to_try() -> None:
    told = list(advise(metrics(3, 97), NONE_TRIED, config(), "budget.rollouts"))
    assert (
        told[0]
        == "budget.rollouts was spent on judging val and test, before the first reflection: "
        "raise it."
    )
    assert "Only 3 of 100 val and test tickets are labelled fail." in told[1]
    assert "--price.missed_failure 20" in told[1]
    assert "--guidance.path rules.json" in told[-1]
    dear = replace(config(), price=PriceConfig(missed_failure=20.0))
    assert not any(
        "missed_failure" in line for line in advise(metrics(3, 97), NONE_TRIED, dear, "")
    )
    [one] = advise(metrics(0, 40), NONE_TRIED, config(), "")
    assert one == "None of 40 val and test tickets is labelled fail: give tickets with both labels."
    refused = Attempts(
        9, (), {}, {"no ticket has 'X'": 20, "not one JSON object: Expecting value": 4}, None
    )
    assert explain_refusals({"not one JSON object": 1}) == [("was not in the form asked for", 1)]
    assert explain_refusals({"not one JSON object": 2}) == [("were not in the form asked for", 2)]
    assert any(
        "24 proposals could not be used, most of them since they named what no ticket has" in line
        for line in advise(metrics(40, 60), refused, config(), "")
    )
    lost = Attempts(9, (Mock(outcome="dropped"), Mock(outcome="dropped")), {}, {}, None)
    idle = Attempts(9, (), {ALL_RIGHT: 9}, {}, None)
    for attempts, said in (
        (lost, "2 edits lost their race"),
        (idle, "The model was right and sure"),
    ):
        assert any(
            line.startswith(said) for line in advise(metrics(40, 60), attempts, config(), "")
        )


def tried(*outcomes: str, estimate: bool = False) -> Attempts:
    """Edits that came to these ends in many reflections."""
    return Attempts(
        9, tuple(Mock(outcome=each, estimate=estimate) for each in outcomes), {}, {}, None
    )


@pytest.mark.parametrize(
    ("attempts", "gate", "said"),
    [
        (tried("unproven", "dropped"), {}, "1 edit could not be proven"),
        (tried("turns no evidence", "dropped"), {}, "1 of 2 edits fixed none of the tickets"),
        (tried("turns no evidence", "unproven", "dropped"), {}, ""),
        (tried(), {}, ""),
        (tried("unproven", estimate=True), {"provisional": "drop"}, "The rules seem better"),
        (tried("unproven", estimate=True), {}, ""),
        (tried("unproven"), {"provisional": "drop"}, ""),
        (replace(NONE_TRIED, reflections=1), {}, "There was 1 reflection: raise runner.epochs"),
    ],
)
def test_what_edits_came_to_says_what_to_try(
    attempts: Attempts, gate: dict[str, Any], said: str
) -> None:
    told = "\n".join(advise(metrics(40, 60), attempts, config(**gate), ""))
    assert said in told
    for other in ("fixed none", "The rules seem better", "raise runner.epochs"):
        assert (other in told) == (other in said)


def test_code_that_learns_at_once_is_not_told_to_reflect_more() -> None:
    at_once = replace(config(), reflection=ReflectionConfig(scope="all"))
    once = replace(NONE_TRIED, reflections=1)
    assert not any("runner.epochs" in line for line in advise(metrics(40, 60), once, at_once, ""))


def test_a_run_that_began_with_a_rule_by_hand_is_not_told_to_write_one() -> None:
    started = LoopConfig(tickets=["t.jsonl"], guidance=GuidanceConfig(path="rules.json"))
    assert not any(
        "--guidance.path" in line for line in advise(metrics(40, 60), NONE_TRIED, started, "")
    )


def test_where_nothing_better_was_found_the_rules_that_a_run_began_with_stand() -> None:
    idle = Attempts(1, (), {NO_CANDIDATE: 1}, {}, None)
    begun = LoopConfig(tickets=["t.jsonl"], guidance=GuidanceConfig(path="rules.json"))
    assert "The rules that it began with stand: nothing better was found." in list(
        advise(metrics(40, 60), idle, begun, "")
    )
    assert not any("began with" in line for line in advise(metrics(40, 60), idle, config(), ""))


@pytest.mark.parametrize(
    "why", [TOLD_TO_STOP, NO_CANDIDATE, "no usable edit was proposed", "what a later release says"]
)
@pytest.mark.parametrize("others", [{}, {ALL_RIGHT: 2}])
def test_reflections_that_had_nothing_to_try_for_other_reasons_praise_no_model(
    why: str, others: dict[str, int]
) -> None:
    idle = Attempts(3, (), {**others, why: 1}, {}, None)
    assert not any("right and sure" in line for line in advise(metrics(40, 60), idle, config(), ""))


def reflection(number: int, accepted: bool = False, race: int = 0) -> dict[str, Any]:
    """A row of reflection.jsonl with one edit, which turned none of its evidence, raced, or was
    accepted."""
    race_row = {"tickets": race, "won": 3.0, "lost": 1.0}
    test = (
        {"level": 0.05, "tickets": 32, "groups": 32, "mean_gain": 0.525, "won": 20, "lost": 3}
        if accepted
        else None
    )
    outcome = "accepted" if accepted else "unpromising" if race else "turns no evidence"
    said: dict[str, Any] = {
        "op": "add",
        "key": None,
        "merged_from": [],
        "text": f"Fail if x is {number}.",
    }
    said |= {"rationale": "", "evidence": []}
    edit = {
        "proposals": [0],
        "proposed_times": 1,
        "outcome": outcome,
        "race": race_row,
        "test": test,
    }
    edit |= {"evidence": {"tickets": 2, "turned": 0}}
    return {
        "reflection_id": f"R{number}",
        "guidance_step_before": 0,
        "guidance_step_after": int(accepted),
        "proposals": [{"proposal": 0, "operations": [said], "refused": [], "text": ""}],
        "gate": {"judged": 9, "budget_before": 0.05, "budget_after": 0.05, "edits": [edit]},
        "applied": accepted,
        "applied_proposals": [0] if accepted else [],
        "why_not": "",
    }


def told(row: dict[str, Any], is_weighed: bool = False) -> str:
    return describe_reflection(list_attempts([parse_row(row)]), is_weighed)


def test_an_edit_is_shown_where_it_got_as_far_as_a_comparison() -> None:
    assert told(reflection(1)).endswith(
        "none accepted: 1 had no effect on the tickets that taught them"
    )
    assert told(reflection(1, race=8)).endswith("such as: Fail if x is 1.")


def untested() -> dict[str, Any]:
    """A row of a run without a gate."""
    return {**reflection(1, accepted=True), "gate": None}


def unproven(outcome: str, tickets: int = 32) -> dict[str, Any]:
    """A row of what was learnt at once and tested on so many tickets."""
    row = reflection(5, accepted=True)
    row["gate"]["edits"][0]["outcome"] = outcome
    row["gate"]["edits"][0]["test"] |= {"tickets": tickets, "mean_gain": 0.525 if tickets else 0.0}
    return row


def join(*rows: dict[str, Any]) -> dict[str, Any]:
    """One row with the edits of several."""
    proposals = [{**each["proposals"][0], "proposal": n} for n, each in enumerate(rows)]
    edits = [{**each["gate"]["edits"][0], "proposals": [n]} for n, each in enumerate(rows)]
    return {**rows[0], "proposals": proposals, "gate": {**rows[0]["gate"], "edits": edits}}


def test_of_edits_that_were_compared_the_best_is_shown_and_of_equals_the_shortest() -> None:
    better, worse, tested = reflection(1, race=4), reflection(2, race=8), unproven("unproven")
    assert told(join(worse, better)).endswith("such as: Fail if x is 1.")
    assert told(join(better, tested, worse)).endswith("such as: Fail if x is 5.")
    longer = reflection(3, race=4)
    longer["proposals"][0]["operations"] *= 2
    assert told(join(longer, better)).endswith("such as: Fail if x is 1.")


def test_what_came_of_an_edit_that_was_applied_is_told_with_its_gain_where_one_was_measured() -> (
    None
):
    assert told(untested()) == "an edit applied untested"
    kept, gain = "1 rule learnt, not proven, and kept as provisional", "+52.5 points of accuracy"
    assert told(unproven("provisional")).startswith(f"{kept}: {gain} on 32 tickets")
    assert told(unproven("provisional", tickets=0)) == kept
    rows = [untested(), unproven("provisional", tickets=0), unproven("unproven")]
    attempts = list_attempts([*map(parse_row, rows)])
    assert [each.gain for each in attempts.tried] == [None, None, 0.525]
    assert [parse_row(row).is_provisional for row in rows] == [False, True, False]
    assert [each.outcome for each in attempts.others] == ["unproven"]


@pytest.mark.parametrize("row", [untested(), unproven("provisional")])
def test_a_judge_that_was_not_measured_is_named_without_a_share(row: dict[str, Any]) -> None:
    attempts = list_attempts([parse_row(row)])
    assert attempts.judge == ""
    assert [*describe_judge("model", attempts)] == ["Judged by the model."]


def test_a_run_that_has_learnt_nothing_says_how_far_it_came() -> None:
    def say(*rows: dict[str, Any]) -> str:
        return name_last_stage(list_attempts([*map(parse_row, rows)]))

    raced, learnt, refused = reflection(1, race=1500), unproven("unlikely"), reflection(2)
    assert say() == "nothing was reflected on"
    assert say(reflection(2), raced).endswith("tested (on 1,500 tickets 3 judged better, 1 worse)")
    shares = {"acc_before": 0.5, "acc": 0.625, "cost_before": 0.5, "cost": 0.375}
    learnt["gate"]["edits"][0]["estimate"] = {"tickets": 40, **shares}
    assert "likely (50.0% right without these rules, 62.5% with them" in say(raced, learnt)
    refused["proposals"][0] |= {"operations": [], "refused": [{"raw": "", "reason": "no room"}]}
    refused["gate"]["edits"] = []
    words = f"no edit was tried: 2 proposals would be {TOO_MANY}"
    assert say(refused, refused) == words
    assert told({**refused, "proposals": []}) == f"nothing to try: {NO_CANDIDATE}"


def test_gains_that_prices_weigh_are_called_points_of_cost() -> None:
    assert "one accepted: +52.5 points of accuracy on 32 tickets" in told(
        reflection(1, accepted=True)
    )
    assert "+52.5 points of cost, weighed by the prices, on 32 tickets" in told(
        reflection(1, accepted=True), is_weighed=True
    )


def test_what_led_to_a_step_is_what_was_accepted_until_then(tmp_path: Path) -> None:
    rows = [reflection(1), *(reflection(number, accepted=True) for number in (2, 3)), reflection(4)]
    for step, row in zip((0, 1, 2, 2), rows, strict=True):
        row["guidance_step_after"] = step
    with Journal.open(tmp_path, "run", {}) as journal:
        files = MissionFiles(journal, "valves")
        files.append("reflection.jsonl", rows)
        assert files.list_attempts().reflections == 4
        for until in range(3):
            found = files.list_attempts(until)
            assert found.reflections == len(found.accepted) == until


def test_a_run_is_of_its_last_change_and_of_all_that_its_gate_spent() -> None:
    def measured(number: int, judge: str, share: float) -> dict[str, Any]:
        row = reflection(number, accepted=True)
        row["gate"] |= {"budget_before": 6.0 - number, "budget_after": 5.0 - number}
        row["gate"]["edits"][0]["test"] |= {"judge": judge, "judges": {judge: share}}
        return row

    rows = [measured(1, "model", 0.7), measured(2, "rules", 0.9), reflection(3)]
    # one that a model proposed chose no judge, and one had nothing to try
    rows += [reflection(4, accepted=True), {**reflection(5), "gate": None, "why_not": ALL_RIGHT}]
    attempts = list_attempts([*map(parse_row, rows)])
    assert attempts.judge == "rules"
    (said,) = describe_judge(attempts.judge, attempts)
    assert said.endswith("(right of train tickets that taught none of it: rules 90.0%).")
    assert list_attempts([*map(parse_row, rows[:2])]).budget == (5.0, 3.0)
    assert list_attempts([*map(parse_row, [rows[-1], *rows[:2], rows[-1]])]).budget == (5.0, 3.0)
    assert list_attempts([parse_row(rows[-1])]).budget is None
    assert attempts.outcomes == [("accepted", 3), ("turns no evidence", 1)]
    assert attempts.idle == {ALL_RIGHT: 1}


def test_of_all_edits_those_that_came_furthest_are_shown_and_of_equals_the_better() -> None:
    rows = [reflection(1), reflection(2, race=8), reflection(3, race=4), reflection(4, race=4)]
    attempts = list_attempts([*map(parse_row, rows)])
    names = [[each.name for each in keep_furthest(attempts.tried, most)] for most in range(5)]
    assert names == [[], ["R3"], ["R3", "R4"], ["R2", "R3", "R4"], ["R1", "R2", "R3", "R4"]]
    assert [each.gain for each in attempts.tried] == [None, 0.25, 0.5, 0.5]
    worse = reflection(5, accepted=True)
    worse["gate"]["edits"][0]["outcome"] = "futile"
    worse["gate"]["edits"][0]["test"]["mean_gain"] = -0.5
    attempts = list_attempts([*map(parse_row, [*rows, worse])])
    assert [each.name for each in keep_furthest(attempts.tried, 1)] == ["R5"]
    assert name_last_stage(attempts) == "the edit that came furthest was given up in its test"


def test_an_edit_that_was_not_tried_on_tickets_of_its_own_is_not_said_to_turn_none() -> None:
    joined, untold = reflection(1), reflection(2)
    joined["proposals"] *= 2
    joined["proposals"][1] = {**joined["proposals"][1], "proposal": 1}
    joined["gate"]["edits"][0]["proposals"] = [0, 1]
    untold["gate"]["edits"][0]["evidence"] = {"tickets": 0, "turned": 0}
    attempts = list_attempts([*map(parse_row, [joined, untold, reflection(3)])])
    assert [each.turned for each in attempts.tried] == [None, None, (0, 2)]


def test_a_reflection_without_an_edit_says_whether_anything_was_proposed() -> None:
    row = reflection(1)
    row["gate"]["edits"] = []
    silent = {**row, "proposals": []}
    idle = list_attempts([parse_row(row), parse_row(silent)]).idle
    assert idle == {"no usable edit was proposed": 1, NO_CANDIDATE: 1}


def test_an_edit_that_only_removes_a_rule_has_no_text_to_show() -> None:
    row = reflection(1, race=8)
    row["proposals"][0]["operations"][0] |= {"op": "remove", "key": "G1", "text": ""}
    assert "such as" not in told(row)


def test_rules_that_are_proven_are_not_called_provisional() -> None:
    marked = Rule("G2", "Fail if c is d.", {PROVISIONAL: True})
    assert describe_provisional([Rule("G1", "Fail if a is b."), marked]) == [
        "G2 is provisional, not proven to help"
    ]
    assert describe_provisional([marked, replace(marked, key="G3")]) == [
        "G2, G3 are provisional, not proven to help"
    ]


def begin_progress(
    to_come: Mapping[str, int] = MappingProxyType({}),
) -> tuple[FitProgress, Guidance]:
    """Of one mission, and its guidance."""
    schedule = Mock(
        missions=["valves"],
        bundle_size=lambda name: 1,
        count=lambda *_: 9,
        to_come=lambda *_: to_come,
    )
    guidance = Guidance("valves", 0, (Rule("G0", "Look."),), 1)
    return FitProgress(config(), schedule, State({}), []), guidance


def test_edits_that_are_kept_unproven_are_tried_and_not_accepted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress, guidance = begin_progress()
    kept = reflection(2, accepted=True)
    kept["gate"]["edits"][0]["outcome"] = "provisional"
    for row in (reflection(1, accepted=True), kept, reflection(3)):
        progress.show_edits("valves", row, guidance, guidance)
    batch = Mock(tickets=(0,), mission="valves", epoch=1, split="train")
    progress.show_round(batch, Mock(accuracy=lambda scale: 0.5, unreadable=0), 2)
    progress.close()
    assert "1 of 3 edits accepted" in capsys.readouterr().err


def test_judging_is_foretold_by_the_pace_of_a_round_once_the_first_has_warmed_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress, _ = begin_progress({"judged": 600})
    batch = Mock(tickets=range(9), mission="valves", epoch=0, split="val", last=False)
    for _ in range(2):
        assert "At this pace" not in capsys.readouterr().err
        progress.show_round(batch, Mock(accuracy=lambda scale: 0.5, unreadable=0), 0)
    progress.close()
    assert "At this pace, judging takes less than a minute;" in capsys.readouterr().err


def test_a_long_tail_of_reflections_that_change_nothing_shares_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress, guidance = begin_progress()
    for number in range(1, 27):
        progress.show_edits("valves", reflection(number), guidance, guidance)
    progress.show_edits("valves", reflection(27, accepted=True), guidance, guidance)
    progress.show_edits("valves", reflection(28), guidance, guidance)
    progress.close()
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("valves")]
    assert [line.partition(": ")[0] for line in lines[:5]] == [
        f"valves, reflection {number}" for number in range(1, 6)
    ]
    assert lines[5:7] == [
        f"valves: 10 more up to reflection {last}, none accepted; valves/reflection.jsonl says "
        f"what was tried"
        for last in (15, 25)
    ]
    assert [line.partition(": ")[0] for line in lines[7:]] == [
        "valves, reflection 27",
        "valves, reflection 28",
    ]


def test_a_run_that_learnt_nothing_ends_with_what_to_try(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tickets = small.write(tmp_path / "t.jsonl", "valves")
    keys = {"model.model_name_or_path": "programs.models:idle", "reflection.num_proposals": 2}
    assert main(small.arguments(tickets, tmp_path / "out", keys=keys)) == 0
    told = capsys.readouterr()
    rows = [
        json.loads(line)
        for line in (tmp_path / "out/run/valves/reflection.jsonl").read_text().splitlines()
    ]
    assert rows
    assert told.err.count("valves, reflection ") == min(len(rows), 5)  # further ones share lines
    assert "nothing to try: 2 proposals were not in the form asked for" in told.err
    assert re.search(
        r"Nothing was learnt: no edit was tried: \d+ proposals were not in the form asked for\. What to try next:",
        told.out,
    )
    assert (
        "proposals could not be used, most of them since they were not in the form asked for"
        in told.out
    )
