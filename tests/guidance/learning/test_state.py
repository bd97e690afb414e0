import json
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from statistics import fmean, pstdev

import pytest
from guidance.made import VERDICT
from hypothesis import given
from hypothesis import strategies as st

from stageb.guidance.config import LoopConfig
from stageb.guidance.learning.state import MissionState, Spent, State, Tally
from stageb.guidance.learning.transitions import after_choice, after_round
from stageb.guidance.rules.prompts import Case
from stageb.guidance.words.costs import EQUAL, PriceConfig, measure_ratio
from stageb.guidance.words.types import (
    BY_RULES,
    PASS_FAIL,
    Answers,
    Budget,
    Candidate,
    Choice,
    Guidance,
    Record,
    Round,
    Rule,
    Selection,
    Split,
    Ticket,
    Verdict,
)

SPENT = st.builds(Spent, *(st.integers(0, 10**6) for _ in fields(Spent)))


def test_no_field_of_a_mission_is_forgotten_and_tickets_are_named_alone() -> None:
    """A commit is written after every round: what tickets say stays in their files."""
    ticket = Ticket("m", "g", "fail", (("image_1", "a: b"),))
    guidance = Guidance("m", 3, (Rule("G0", "headline"),), 1)
    record = Record(
        ticket,
        1,
        2,
        3,
        Answers("g::fail", 9, ()),
        Selection(None, "", None, 0.0, True, False, "why"),
    )
    mission = MissionState(
        guidance,
        Budget((0.1, 0.2, 0.3)),
        (record,),
        True,
        {"g::fail": Case(ticket, True, "so")},
        Tally(tokens=1),
        2,
        {"val": (1, Tally(tokens=2))},
        {"g::fail": 0.5},
        (("digest", 2), ("other", 0)),
        True,
        5,
        7,
        (Choice(guidance, 3, {"pass": 1, "fail": 1}, {"pass": 9.5}),),
        6,
        Spent(1, 2, 3, 4, 5),
        True,
    )
    assert all(
        getattr(mission, each.name) != getattr(MissionState(guidance), each.name)
        for each in fields(mission)[1:]
    )
    written = json.dumps(mission.to_plain())
    assert MissionState.from_plain("m", json.loads(written), {ticket.key: ticket}) == mission
    assert ticket.key in written and "a: b" not in written


def test_no_field_of_a_run_is_forgotten() -> None:
    first = (
        Candidate(0, 1, 0.7, "It fails.", None, "", False, 3, "hm", "not the two-line answer"),
    )
    state = State({}, (2, 1, 3, 4), "budget.rollouts", {"m": "budget.tokens"}, True, first)
    assert all(
        getattr(state, each.name) != getattr(State({}), each.name) for each in fields(state)[1:]
    )
    assert State.from_plain(json.loads(json.dumps(state.to_plain())), {}) == state


# Tallies

# label, verdict, whether sent to review, candidates
Judged = tuple[Verdict, Verdict | None, bool, int]
CASES = st.lists(
    st.tuples(VERDICT, st.none() | VERDICT, st.booleans(), st.integers(0, 3)), max_size=12
)


def counted(cases: list[Judged]) -> Tally:
    tally = Tally.of(PASS_FAIL)
    for label, verdict, review, candidates in cases:
        ticket = Ticket("m", "g", label, (("image_1", "x"),))
        answers = Answers("g", 9, (Candidate(0, 0, 0.7, "", None, "", False, 5),) * candidates)
        selection = Selection(
            verdict, "", None, 1.0, False, verdict == label, "why" if review else ""
        )
        tally = tally.plus(ticket, answers, selection)
    return tally


@given(CASES)
def test_metrics_count_what_was_answered(cases: list[Judged]) -> None:
    row = counted(cases).row(EQUAL)
    for figures, group in (
        (row, cases),
        (row["without_review"], [case for case in cases if not case[2]]),
    ):
        assert figures["n"] == len(group)
        assert figures["fp"] == sum(case[:2] == ("fail", "pass") for case in group)
        assert figures["fn"] == sum(case[:2] == ("pass", "fail") for case in group)
        assert figures["acc"] == measure_ratio(
            sum(case[0] == case[1] for case in group), len(group)
        )
    assert row["without_review"].keys() == {"acc", "fp", "fn", "n"}
    assert row["unanswered"] == sum(case[1] is None for case in cases)
    for label, figures in row["classes"].items():
        own, said = (
            [case[1] for case in cases if case[0] == label],
            [case[0] for case in cases if case[1] == label],
        )
        assert figures == {
            "n": len(own),
            "recall": measure_ratio(own.count(label), len(own)),
            "precision": measure_ratio(said.count(label), len(said)),
            "unanswered": own.count(None),
        }
    assert "confusion" not in row, "it would say what fp and fn say"
    if cases:
        assert counted(cases).accuracy({}) == pytest.approx(row["acc"], abs=1e-6)
    assert (row["rollouts"], row["tokens"]) == (
        sum(case[3] for case in cases),
        5 * sum(case[3] for case in cases),
    )


@given(CASES, st.integers(1, 5))
def test_a_sample_of_one_label_is_scaled_up_to_what_it_stands_for(
    cases: list[Judged], times: int
) -> None:
    prices = {"pass": 1.0, "fail": 20.0}
    row = counted(cases).row(prices, {"pass": float(times)})
    whole = counted([case for case in cases for _ in range(times if case[0] == "pass" else 1)]).row(
        prices
    )
    for name in ("acc", "cost", "classes", "always"):
        assert (
            row[name] == pytest.approx(whole[name])
            if name in ("acc", "cost")
            else row[name] == whole[name]
        )
    if cases:
        assert counted(cases).accuracy({"pass": float(times)}) == pytest.approx(
            row["acc"], abs=1e-6
        )
    assert (row["n"], row["fp"], row["fn"]) == tuple(
        counted(cases).row(prices)[name] for name in ("n", "fp", "fn")
    )


def test_accuracy_of_a_sample_is_known_as_well_as_its_tickets_tell() -> None:
    """Half of 100 passes stand for 1,000 and are right in 90 of 100 cases; that of all failures
    counts next to nothing."""
    cases: list[Judged] = [("pass", "pass" if n % 10 else "fail", False, 1) for n in range(100)]
    failures: list[Judged] = [("fail", "fail", False, 1)] * 10
    alone, beside = counted(cases), counted(cases + failures)
    assert alone.row(EQUAL, {"pass": 10.0})["acc_interval"] == alone.row(EQUAL)["acc_interval"]
    assert beside.row(EQUAL, {"pass": 10.0})["acc_interval"] == pytest.approx(
        alone.row(EQUAL)["acc_interval"], abs=0.005
    )


def answered(read: Sequence[bool] | None) -> Record:
    """A ticket with an answer for each of ``read``, whether it could be read; None: rules as code
    judged it."""
    ticket = Ticket("m", "g", "fail", (("image_1", "x"),))
    candidates = tuple(Candidate(0, 0, 0.7, "", None, "", ok, 5) for ok in read or ())
    if read is None:
        candidates = (Candidate(0, BY_RULES, 0.0, "", "fail", "", True, 0),)
    selection = Selection("fail", "", 0, 1.0, False, True, "")
    return Record(ticket, 1, 0, 0, Answers(ticket.key, 9, candidates), selection)


READ = st.none() | st.lists(st.booleans(), max_size=3)


@given(st.lists(READ, max_size=6))
def test_what_code_judges_costs_no_rollout_and_is_counted_as_saved(
    reads: list[list[bool] | None],
) -> None:
    records, tally = [*map(answered, reads)], Tally.of(PASS_FAIL)
    for record in records:
        tally = tally.plus(record.ticket, record.answers, record.selection)
    answers, by_code = [ok for read in reads for ok in read or ()], reads.count(None)
    assert (tally.n, tally.by_rules, tally.rollouts) == (len(reads), by_code, len(answers))
    assert tally.unreadable == answers.count(False)
    spent = Spent(rollouts=1, saved=2).on(records, samples=4)
    assert (spent.rollouts, spent.saved) == (1 + len(answers), 2 + 4 * by_code)
    assert spent.tokens == 5 * len(answers) + 9 * sum(bool(read) for read in reads)


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_rounds_of_a_split_add_up_and_the_next_split_begins_anew(split: Split) -> None:
    """Val tells what the guidance is worth, and records of train wait to be reflected on."""
    record = answered([True, True])
    former = Tally.of(PASS_FAIL).plus(record.ticket, record.answers, record.selection)
    start = Guidance("m", 3, (Rule("G0", "headline"),), 1)
    mission = MissionState(start, tally=former, choices=(Choice(start, 1, {}),))
    for number in range(3):
        batch = Round(
            (1, 0, number, 0), 1, "m", split, number, (), number == 2, scale={"pass": 2.0}
        )
        mission = after_round(mission, batch, [answered([True]), answered([False, True])])
    assert (mission.tally.n, mission.tally.rollouts, mission.tally.unreadable) == (6, 9, 3)
    assert mission.judged == {split: (3, mission.tally)}
    assert len(mission.pending) == (6 if split == "train" else 0)
    chosen = Choice(start, 6, {"pass": 0, "fail": 0}, {"pass": 2.0})
    assert mission.choices == (Choice(start, 1, {}), *([chosen] if split == "val" else []))


def test_a_share_of_nothing_is_none() -> None:
    assert (measure_ratio(0, 0), measure_ratio(0, 3), measure_ratio(1, 3), measure_ratio(3, 3)) == (
        None,
        0.0,
        0.333333,
        1.0,
    )


@given(SPENT, SPENT)
def test_what_was_spent_adds_up(one: Spent, other: Spent) -> None:
    assert asdict(one.plus(**asdict(other))) == {
        name: value + getattr(other, name) for name, value in asdict(one).items()
    }


def test_what_was_spent_on_tests_stays_spent_where_val_prefers_an_earlier_guidance() -> None:
    """Or a run that goes on from it would spend it twice."""
    early = Guidance("m", 1, (Rule("G0", "headline"),), 1)
    late = replace(early, step=2, spent=Budget((0.01, 0.02, 0.0)))
    choices = tuple(
        Choice(each, 100, {"pass": wrong, "fail": 0}) for each, wrong in ((early, 1), (late, 60))
    )
    chosen = after_choice(
        MissionState(late, choices=choices), LoopConfig(tickets=["t.jsonl"])
    ).guidance
    assert (chosen.step, chosen.spent) == (1, late.spent) and late.spent != early.spent


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6),
    st.sampled_from([(1.0, 1.0), (20.0, 1.0), (1.0, 5.0), (40.0, 20.0)]),
)
def test_val_chooses_the_latest_guidance_that_costs_no_more_than_the_cheapest_may_by_chance(
    errors: list[tuple[int, int]], prices: tuple[float, float]
) -> None:
    """Of 100 tickets, at the prices of missed failures and of false alarms."""
    guides = [Guidance("m", n, (Rule("G0", "headline"),), 1) for n in range(len(errors))]
    choices = tuple(
        Choice(guide, 100, {"fail": missed, "pass": alarms})
        for guide, (missed, alarms) in zip(guides, errors, strict=True)
    )
    config = LoopConfig(tickets=["t.jsonl"], price=PriceConfig(*prices))
    chosen = after_choice(MissionState(guides[-1], choices=choices), config).guidance
    costs = [
        [prices[0]] * missed + [prices[1]] * alarms + [0.0] * (100 - missed - alarms)
        for missed, alarms in errors
    ]
    best = min(costs, key=fmean)
    most = fmean(best) + pstdev(best) / 100**0.5
    near = {n for n, each in enumerate(costs) if fmean(each) <= most * (1 + 1e-9)}
    clearly = {n for n, each in enumerate(costs) if fmean(each) <= most * (1 - 1e-9)}
    assert max(clearly, default=0) <= chosen.step <= max(near) and chosen.step in near
