"""What code learns at once, put before a model that judges all tickets: demonstrations, and a
calibration that weighs the rules as code beside the model."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import forks, small

from stageb.__main__ import main
from stageb.engines.config import ModelConfig
from stageb.errors import BadInputError
from stageb.guidance.config import GateConfig, LoopConfig, ReflectionConfig, RunnerConfig
from stageb.guidance.judging.questions import JudgeTickets, answer_all
from stageb.guidance.learning.at_once import RuleLearner, RuleSetLesson
from stageb.guidance.learning.calibrate import FEWEST_TO_FIT
from stageb.guidance.learning.gate.budget import Pool
from stageb.guidance.learning.gate.judgements import Judge
from stageb.guidance.learning.gate.sequential import BettingTest
from stageb.guidance.learning.preparing import prepare
from stageb.guidance.learning.proof import Preparers, Proof
from stageb.guidance.learning.schedule import GuidanceSchedule
from stageb.guidance.learning.stacking import JudgedTicket, Stacker
from stageb.guidance.learning.state import LearningStopped, MissionState
from stageb.guidance.learning.tools import Tools
from stageb.guidance.rules.guidance_json import from_json, to_json
from stageb.guidance.rules.prompts import WORDS, rule_lines
from stageb.guidance.rules.read_guidance import make_neutral, read_guidance
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.tickets.groups import whole_groups
from stageb.guidance.tickets.splits import split_tickets
from stageb.guidance.words.calibration import find_shares, sigmoid
from stageb.guidance.words.costs import PriceConfig
from stageb.guidance.words.types import (
    PASS_FAIL,
    UNCALIBRATED,
    Budget,
    Calibration,
    Guidance,
    Judgement,
    JudgeName,
    Rule,
    Ticket,
    Verdict,
)
from stageb.seeds import stream, uniform

CONFIG = LoopConfig(tickets=["t.jsonl"], model=ModelConfig(model_name_or_path="some/model"))
START = make_neutral("m", WORDS["en"])
TORN = replace(START, rules=(*START.rules, Rule("G1", "Fail if state is torn.")))


def make_tickets(right: float) -> list[Ticket]:
    """Tickets of which the rule is right with this chance."""
    found = []
    for n in range(300):
        torn, true = n % 3 == 0, uniform(stream("label", n), 0) < right
        text = f"state: {'torn' if torn else 'new'}; number: {n}"
        found.append(Ticket("m", f"g{n}", "fail" if torn == true else "pass", (("image_1", text),)))
    return found


class Trial:
    """A stacker, and a model behind it whose log-odds know of labels as much as ``sees`` says, and
    add a ``bias`` to all."""

    def __init__(
        self, right: float, sees: float = 1.0, weighs: bool = True, bias: float = 4.0
    ) -> None:
        self.tickets, self.sees, self.bias = make_tickets(right), sees, bias
        splits = split_tickets(self.tickets, CONFIG)["m"]
        pool = Pool(whole_groups(splits.test_order, self.tickets), 64)
        tools = Tools(
            CONFIG,
            self.tickets,
            splits,
            pool,
            Vocabulary.of(self.tickets),
            lambda some: [9] * len(some),
            16,
            weighs=weighs,
        )
        self.blocks = [range(60, 110), range(110, 160), range(160, 210)]
        self.stacker = Stacker(tools, Judge(self.tickets, CONFIG.gating, TORN), range(40))
        self.prepared: list[Guidance | None] = []

    def log_odds(self, position: int) -> float:
        side = 1 if self.tickets[position].label == "pass" else -1
        return self.bias + self.sees * side + 4 * uniform(stream("odds", position), 0) - 2

    def is_right(self, position: int) -> bool:
        """Whether the model, uncalibrated, is right."""
        return (self.log_odds(position) > 0) == (self.tickets[position].label == "pass")

    def answer(self, question: JudgeTickets) -> list[list[Judgement]]:
        found = []
        for guidance, positions in question.asked:
            # it is fitted on what the model says as it is
            assert guidance.calibration == UNCALIBRATED and not guidance.judge
            shown = {each.source for each in guidance.shown}
            # it could copy the verdict
            assert not any(self.tickets[i].key in shown for i in positions)
            odds = {i: self.log_odds(i) for i in positions}
            shares = {
                i: sigmoid(each, CONFIG.sampler.grid[0].temperature) for i, each in odds.items()
            }
            p_correct = {
                i: share if self.tickets[i].label == "pass" else 1 - share
                for i, share in shares.items()
            }
            found.append([Judgement(p_correct[i], 9, scores=(odds[i], 0.0)) for i in positions])
        return found

    def run(self, learnt: Guidance = TORN) -> Guidance:
        for block in self.blocks:
            taught = range(block.start)
            guidance, self.stacker = answer_all(
                self.stacker.prepare(learnt, taught, block), self.answer
            )
            self.prepared.append(guidance)
        last = self.prepared[-1]
        assert last is not None
        return last

    def chances(self, block: range) -> dict[int, float]:
        """How probable right verdicts are that were calibrated."""
        known = {i: self.stacker.weighed[i] for i in block}
        calibrated = {i: each.calibrated for i, each in known.items() if each.calibrated}
        return {
            i: find_shares(scores, 0.7)[PASS_FAIL.index(known[i].label)]
            for i, scores in calibrated.items()
        }


def test_the_first_block_calibrates_and_is_not_calibrated() -> None:
    trial = Trial(right=0.9)
    trial.run()
    assert [each is None for each in trial.prepared] == [True, False, False]
    assert not trial.chances(trial.blocks[0]) and not trial.stacker.map_correctness(trial.blocks[0])
    assert (
        set(trial.chances(trial.blocks[1]))
        == set(trial.stacker.map_correctness(trial.blocks[1]))
        == set(trial.blocks[1])
    )


def test_what_is_known_of_any_tickets_is_what_was_judged_calibrated() -> None:
    trial = Trial(right=0.9)
    trial.run()
    known = trial.stacker.map_correctness(range(len(trial.tickets)))
    assert {*known} == {*trial.blocks[1], *trial.blocks[2]}


def test_a_guidance_whose_judge_was_learnt_before_is_judged_by_the_model_all_the_same() -> None:
    """Or nobody would learn how right the model is."""
    again = replace(TORN, judge="rules", calibration=Calibration(3.0, 1.0))
    assert Trial(right=0.9).run(again) == Trial(right=0.9).run(TORN)


@pytest.mark.parametrize(
    "rule", ["Fail if state is torn.", "Fail if it has 3 points or more: 4 if state is torn."]
)
def test_a_model_that_sees_next_to_nothing_is_as_right_as_one_verdict_for_all_beside_any_rules(
    rule: str,
) -> None:
    """What the rules say plays no part in how the model alone is calibrated."""
    trial = Trial(right=0.95, sees=0.1)
    trial.run(replace(START, rules=(*START.rules, Rule("G1", rule))))
    known = [trial.tickets[i].label for block in trial.blocks[1:] for i in block]
    shares = trial.stacker.measure_judges()
    assert shares["model"] > known.count("pass") / len(known) - 0.05
    assert shares["rules"] > 0.9


def test_without_rules_the_model_judges_by_a_calibration_of_its_own() -> None:
    trial = Trial(right=0.9)
    made = trial.run(START)
    assert {each.ruling for each in trial.stacker.weighed.values()} == {None}, "by a headline alone"
    assert made.judge == "model" and made.calibration != UNCALIBRATED
    assert (made.calibration.rules, made.calibration.points, made.calibration.reach) == (0, 0, 0)


def test_a_ticket_counts_by_how_many_taught_the_rules_that_judge_it() -> None:
    """Rules of few tickets are wrong, those of many right: so rules as they are in the end are to
    be trusted, both by who weighs them and by who chooses a judge."""

    def weigh(n: int, taught: int, is_right: bool) -> JudgedTicket:
        label, other = ("pass", "fail") if n % 2 else ("fail", "pass")
        return JudgedTicket(
            (0.0, 0.0),
            (0.0, 0.0),
            label if is_right else other,
            (0.0, 0.0),
            label,
            None,
            taught,
            {"rules": is_right, "model": not is_right},
            "weighed",
        )

    stacker = Trial(right=0.9).stacker
    for early, late in ((2, 200), (200, 2)):
        known = {n: weigh(n, early, False) for n in range(40)} | {
            n: weigh(n, late, True) for n in range(40, 80)
        }
        after = replace(stacker, weighed=known)
        assert (after._fit().rules > 0) == (late > early)
        assert after.measure_judges() == pytest.approx(
            {"rules": late / (early + late), "model": early / (early + late)}, abs=1e-6
        )
        assert after.choose_judge() == ("rules" if late > early else "model")
    few, many = (
        replace(stacker, weighed={n: weigh(n, times * (1 + n % 2), n % 5 > 0) for n in range(80)})
        for times in (1, 100)
    )
    assert few._fit() == many._fit(), "in proportion, and not the more for a larger mission"


@pytest.mark.parametrize(("missed_failure", "judge"), [(1.0, "rules"), (4.0, "model")])
def test_who_judges_is_chosen_at_the_prices_of_errors_once_enough_tickets_tell(
    missed_failure: float, judge: JudgeName
) -> None:
    """Code is right of what passes and of no failure; of these there are fewer."""
    stacker, none = Trial(right=1.0).stacker, (0.0, 0.0)
    prices = PriceConfig(missed_failure=missed_failure).by_label
    tickets = [
        replace(ticket, label="fail" if n % 5 < 2 else "pass")
        for n, ticket in enumerate(stacker.tools.tickets)
    ]

    def know(count: int) -> Stacker:
        known = {}
        for n, ticket in enumerate(tickets[:count]):
            passes = ticket.label == "pass"
            is_right: dict[JudgeName, bool] = {"rules": passes, "model": not passes}
            known[n] = JudgedTicket(
                none, none, "pass", none, ticket.label, None, 9, is_right, "model"
            )
        mine = replace(stacker.judge, tickets=tickets, prices=prices)
        return replace(stacker, judge=mine, weighed=known)

    shares = know(100).measure_judges()
    assert shares["model"] == pytest.approx(40 * missed_failure / (60 + 40 * missed_failure))
    assert sum(shares.values()) == pytest.approx(1.0)
    assert know(100).choose_judge() == know(FEWEST_TO_FIT).choose_judge() == judge
    few = know(FEWEST_TO_FIT - 1)
    assert (few.measure_judges(), few.choose_judge()) == ({}, "weighed")


def test_where_all_tickets_to_compare_prompts_by_are_shown_prompts_are_taken_as_they_are() -> None:
    trial = Trial(right=0.9)
    trial.stacker = replace(trial.stacker, reference=())
    made = trial.run()
    assert made.calibration != UNCALIBRATED and made.calibration.rules > 0


def test_the_verdict_follows_the_rules_where_they_are_right_and_the_model_where_it_knows_more() -> (
    None
):
    by_rules, by_model = (
        Trial(right=1.0, sees=0.3).run().calibration,
        Trial(right=0.5, sees=1.5).run().calibration,
    )
    assert by_rules.rules > 3 * by_model.rules
    # whatever the model says
    assert by_rules.given("fail").of(5.0) < 0 < by_rules.given("pass").of(3.0)
    assert by_model.given("fail").of(6.0) > 0 > by_model.given("pass").of(2.0)


def test_calibrated_verdicts_are_better_than_either_and_tell_how_sure_they_are() -> None:
    trial = Trial(right=0.85, sees=1.2)
    trial.run()
    last = trial.blocks[-1]
    right = sum(p > 0.5 for p in trial.chances(last).values())
    code = sum(
        ("torn" in trial.tickets[i].per_image[0][1]) == (trial.tickets[i].label == "fail")
        for i in last
    )
    alone = sum((trial.log_odds(i) > 4.0) == (trial.tickets[i].label == "pass") for i in last)
    assert right >= max(code, alone)
    errors = trial.stacker.calibration_errors
    assert errors and errors[1] < errors[0] / 2


def test_a_model_that_is_all_but_certain_of_one_verdict_is_calibrated_as_one_that_is_not() -> None:
    mild, certain = (Trial(right=0.85, sees=1.2, bias=bias) for bias in (4.0, 40.0))
    mild.run(), certain.run()
    last = mild.blocks[-1]
    found = [[round(p, 4) for p in trial.chances(last).values()] for trial in (mild, certain)]
    assert found[0] == found[1]


def test_a_card_weighs_as_much_whatever_a_point_is_worth() -> None:
    """What is fitted, who judges, and how far ahead code must be."""
    known = []
    for times in (1, 3, 10):
        card = (
            f"Fail if it has {3 * times} points or more: {4 * times} if state is torn; "
            f"{2 * times} if number is above 150."
        )
        trial = Trial(right=0.85, sees=1.2)
        last = trial.run(replace(START, rules=(*START.rules, Rule("G1", card))))
        fitted = last.calibration
        assert fitted.points > 0 and fitted.rules > 0
        calibrated = [each.calibrated or () for each in trial.stacker.weighed.values()]
        figures = (fitted.points * times, fitted.slope, fitted.offset, fitted.rules, fitted.reach)
        known.append((figures, calibrated, trial.stacker.measure_judges(), last.judge))
    for figures, calibrated, judges, judge in known[1:]:
        assert figures == pytest.approx(known[0][0], abs=1e-4)
        for one, other in zip(calibrated, known[0][1], strict=True):
            assert one == pytest.approx(other, abs=1e-4)
        assert (judges, judge) == known[0][2:]


def test_no_label_of_a_block_plays_a_part_in_its_own_calibration() -> None:
    one, other = Trial(right=0.9), Trial(right=0.9)
    for i in other.blocks[-1]:
        flipped: Verdict = "pass" if other.tickets[i].label == "fail" else "fail"
        other.tickets[i] = replace(other.tickets[i], label=flipped)
    assert one.run() == other.run()


@pytest.mark.parametrize("weighs", [True, False])
def test_what_the_model_judged_wrong_is_shown_before_what_it_has_not_judged_or_judged_right(
    weighs: bool,
) -> None:
    trial = Trial(right=0.9, sees=0.3, weighs=weighs, bias=4.0 if weighs else 0.5)
    shown, known = {each.source for each in trial.run().shown}, trial.stacker.weighed
    for text, label in (("torn", "fail"), ("new", "pass")):  # what the rule says of them
        taught = [
            i for i in range(trial.blocks[-1].start) if text in trial.tickets[i].per_image[0][1]
        ]
        right = {i: trial.tickets[i].key for i in taught if trial.tickets[i].label == label}
        wrong = {
            key
            for i, key in right.items()
            if i in known
            and not ((known[i].scores[0] > 0) == (label == "pass") if weighs else trial.is_right(i))
        }
        assert wrong and (wrong <= shown or not (set(right.values()) - wrong) & shown)


def test_without_probabilities_there_are_demonstrations_alone() -> None:
    trial = Trial(right=0.9, weighs=False)
    guidance, after = answer_all(
        trial.stacker.prepare(TORN, range(60), trial.blocks[0]), trial.answer
    )
    assert guidance and guidance.shown and guidance.calibration == UNCALIBRATED
    assert guidance.judge == "model" and after.calibration_errors is None
    right = after.map_correctness(trial.blocks[0])
    assert right == {i: trial.is_right(i) for i in trial.blocks[0]}
    by_model = sum(right.values()) / len(right)
    by_rule = [
        ("torn" in trial.tickets[i].per_image[0][1]) == (trial.tickets[i].label == "fail")
        for i in trial.blocks[0]
    ]
    assert after.measure_judges() == {"rules": sum(by_rule) / len(by_rule), "model": by_model}
    # where rules say nothing, the model judges in their place
    _, silent = answer_all(trial.stacker.prepare(START, range(60), trial.blocks[0]), trial.answer)
    assert silent.measure_judges() == {"rules": by_model, "model": by_model}
    guidance, _ = answer_all(after.prepare(TORN, range(110)), trial.answer)
    # right of nine in ten, and the model, which passes nearly all, of fewer
    assert guidance and guidance.judge == "rules"


def test_where_all_tickets_teach_nothing_no_block_is_judged_under_what_it_might_teach() -> None:
    trial = Trial(right=1.0)
    learner, asked = RuleLearner(trial.stacker.tools), list[tuple[Rule, ...]]()

    def answer(question: JudgeTickets) -> list[list[Judgement]]:
        asked.extend(guidance.rules for guidance, _ in question.asked)
        return trial.answer(question)

    _, bundles = answer_all(learner.draw(MissionState(START)), answer)
    (lesson,) = answer_all(learner.propose(bundles, START), answer)
    assert lesson.learnt and not asked
    for learnt in (lesson.learnt, None):
        asked.clear()
        proof = Proof(lesson.teacher, learnt, learner.tools.make_judge(START))
        _, preparers, _ = answer_all(proof.prove(0.05), answer)
        assert preparers and preparers.present.weighed
        assert ({*asked} == {START.rules}) == (learnt is None)


@pytest.mark.parametrize("right", [0.8, 1.0])
def test_what_is_learnt_at_once_asks_for_no_more_verdicts_than_were_forecast(right: float) -> None:
    """Those that prepare the first guidance included."""
    trial = Trial(right)
    tools = trial.stacker.tools
    config = replace(CONFIG, reflection=ReflectionConfig(scope="all"))
    learner = RuleLearner(replace(tools, config=config))
    start = MissionState(START, left=Budget((0.01, 0.01, 0.01)))
    mission, first = answer_all(prepare(start, learner.tools), trial.answer)
    mission, bundles = answer_all(learner.draw(mission), trial.answer)
    (lesson,) = answer_all(learner.propose(bundles, mission.guidance), trial.answer)
    result = answer_all(learner.prove(mission, bundles[0], lesson), trial.answer)
    asked = first.judged + bundles[0].asked + result.verdicts.judged
    forecast = GuidanceSchedule({"m": tools.splits}, config, 12).forecast().judged
    assert first.judged and result.decision.tried and asked <= forecast


def test_where_a_model_judges_a_stop_leaves_the_guidance_and_its_budget_as_they_are() -> None:
    """Nobody knows yet how far to trust the rules beside it."""
    trial, left = Trial(right=1.0), Budget((0.01, 0.02, 0.0))

    def stop(doing: str) -> None:
        raise LearningStopped

    learner, mission = RuleLearner(trial.stacker.tools), MissionState(START, left=left)
    mission, bundles = answer_all(learner.draw(mission), trial.answer)
    (lesson,) = answer_all(learner.propose(bundles, START), trial.answer)
    told = replace(lesson.teacher, tools=replace(learner.tools, pause=stop))
    proving = learner.prove(mission, bundles[0], replace(lesson, teacher=told))
    result = answer_all(proving, trial.answer)
    assert result.is_stopped and result.left == left
    assert (result.decision.tried, result.decision.winner, result.prepared) == ((), None, None)


def test_where_a_model_judges_a_stop_before_anything_is_learnt_is_a_stop() -> None:
    """And prepares nothing, which would take tickets from tests of what is learnt later."""
    trial = Trial(right=1.0)

    def stop(doing: str) -> None:
        raise LearningStopped

    config = replace(CONFIG, reflection=ReflectionConfig(scope="all"))
    learner = RuleLearner(replace(trial.stacker.tools, config=config))
    mission, (bundle,) = answer_all(learner.draw(MissionState(START)), trial.answer)
    stopping = RuleLearner(replace(learner.tools, pause=stop))
    (lesson,) = answer_all(stopping.propose([bundle], START), trial.answer)
    assert lesson.is_stopped and lesson.learnt is None
    told = replace(lesson, teacher=replace(lesson.teacher, tools=learner.tools))
    result = answer_all(learner.prove(mission, bundle, told), trial.answer)
    assert result.is_stopped and result.left == mission.left
    assert (result.decision.tried, result.prepared) == ((), None)


def test_tickets_that_the_rules_judge_right_prepare_nothing() -> None:
    """Nothing can be learnt from them, so they are kept for later tests."""
    trial = Trial(right=1.0)
    config = replace(CONFIG, reflection=ReflectionConfig(scope="all"))
    learner = RuleLearner(replace(trial.stacker.tools, config=config))
    mission, (bundle,) = answer_all(learner.draw(MissionState(TORN)), trial.answer)
    (lesson,) = answer_all(learner.propose([bundle], TORN), trial.answer)
    assert bundle.why_not and lesson.learnt is None
    result = answer_all(learner.prove(mission, bundle, lesson), trial.answer)
    assert result.left == mission.left and result.prepared is None


@pytest.mark.parametrize(
    ("before", "after", "outcomes"),
    [(9, 0, ("unlikely", "unlikely")), (1, 1, ("provisional", "unlikely"))],
)
def test_unproven_rules_are_kept_beside_a_model_that_is_not_better_without_them(
    before: int, after: int, outcomes: tuple[str, str]
) -> None:
    """And that are likely to be better than one verdict for all. The model sees so much of labels
    ``before`` rules are shown, and ``after``."""
    trial = Trial(right=0.85)
    learner = RuleLearner(trial.stacker.tools)

    def answer(question: JudgeTickets) -> list[list[Judgement]]:
        found = list[list[Judgement]]()
        for asked in question.asked:
            trial.sees = after if len(asked[0].rules) > 1 else before
            found += trial.answer(replace(question, asked=(asked,)))
        return found

    _, bundles = answer_all(learner.draw(MissionState(START)), answer)
    (lesson,) = answer_all(learner.propose(bundles, START), answer)
    likely = lesson.learnt
    assert likely
    unlikely = likely._replace(rule_set=replace(likely.rule_set, z_score=0.0))
    proof = Proof(lesson.teacher, likely, learner.tools.make_judge(START))
    test, preparers, _ = answer_all(proof.prove(1e-9), answer)
    for learnt, outcome in zip((likely, unlikely), outcomes, strict=True):
        tried = answer_all(proof.conclude(learnt, test, preparers), answer)
        assert tried.outcome == outcome and tried.calibration_errors and tried.judges
        assert [rule.is_provisional for rule in tried.edit.guidance.rules[1:]] == [
            outcome == "provisional"
        ]


def test_rules_leave_half_of_a_models_prompt_to_the_rest() -> None:
    tools = replace(  # a prompt has tokens of its own around a text
        Trial(0.9).stacker.tools, count_tokens=lambda some: [9 + len(each.system) for each in some]
    )
    room = len(rule_lines(TORN))
    for most in (2 * room, 2 * room - 1):
        config = replace(CONFIG, sampler=replace(CONFIG.sampler, max_prompt_tokens=most))
        assert replace(tools, config=config).fits(TORN) == (most == 2 * room)
        by_code = replace(config, runner=RunnerConfig(judge="both"))
        assert replace(tools, config=by_code).fits(TORN), "of which code needs none"


@pytest.mark.parametrize("scope", ["all", "bundle"])
def test_where_code_learns_nothing_the_present_guidance_is_prepared_unless_edits_are_tested_later(
    scope: Any,
) -> None:
    """Its calibration takes the tickets that these are tested on."""
    trial = Trial(right=0.5)
    for n, ticket in enumerate(trial.tickets):
        trial.tickets[n] = replace(ticket, per_image=(("image_1", f"part {n}"),))
    config = replace(CONFIG, reflection=ReflectionConfig(scope=scope))
    vocabulary = Vocabulary.of(trial.tickets)
    learner = RuleLearner(replace(trial.stacker.tools, config=config, vocabulary=vocabulary))
    mission, (bundle,) = answer_all(learner.draw(MissionState(START)), trial.answer)
    (lesson,) = answer_all(learner.propose([bundle], START), trial.answer)
    assert lesson.learnt is None and not bundle.why_not
    result = answer_all(learner.prove(mission, bundle, lesson), trial.answer)
    assert result.decision.winner is None and bool(result.prepared) == (scope == "all")


def learn_at_once(
    trial: Trial, scope: Any, present: Guidance = START, provisional: Any = "keep"
) -> tuple[RuleLearner, RuleSetLesson]:
    """The learner of a run that a model judges, and what code makes of all train tickets."""
    config = replace(
        CONFIG, reflection=ReflectionConfig(scope=scope), gate=GateConfig(provisional=provisional)
    )
    learner = RuleLearner(replace(trial.stacker.tools, config=config))
    _, bundles = answer_all(learner.draw(MissionState(present)), trial.answer)
    (lesson,) = answer_all(learner.propose(bundles, present), trial.answer)
    return learner, lesson


@pytest.mark.parametrize("scope", ["all", "bundle"])
@pytest.mark.parametrize("alpha", [0.03, 1e-30])
def test_without_a_proof_bundles_keep_half_of_the_budget_and_the_tickets_that_test_them(
    scope: str, alpha: float
) -> None:
    """Where no bundles follow, all of it is spent, and all tickets prepare the present guidance. A
    proof gives the budget back, and takes the place of that guidance."""
    trial, left = Trial(right=1.0, sees=0.1), Budget((alpha / 3,) * 3)
    learner, lesson = learn_at_once(trial, scope, provisional="drop")
    mission = MissionState(START, left=left)
    proving = learner.prove(mission, lesson.teacher.bundle, lesson)
    found = answer_all(proving, trial.answer)
    is_proven = alpha > 1e-9
    share = 0.0 if is_proven else 1.0 if scope == "all" else 0.5
    assert found.left.edits == pytest.approx([each * (1 - share) for each in left.edits], abs=0)
    assert (found.decision.winner is not None) == is_proven
    assert (found.prepared is not None) == (scope == "all" and not is_proven)


def test_two_thirds_of_the_race_tickets_only_teach_and_the_others_calibrate_what_is_bet_on() -> (
    None
):
    trial = Trial(right=1.0)
    learner, lesson = learn_at_once(trial, "all")
    proof = Proof(lesson.teacher, lesson.learnt, learner.tools.make_judge(START))
    test, preparers, _ = answer_all(proof.prove(1e-300), trial.answer)
    race_on = whole_groups(learner.tools.splits.race_set, learner.tools.tickets)
    others = learner.tools.pool.groups_outside(None)
    judged = [*race_on[len(race_on) * 2 // 3 :], *others]
    assert preparers and [*preparers.present.weighed] == [i for group in judged for i in group]
    assert test.seen == len(others)


@pytest.mark.parametrize(
    ("seems", "gains", "is_beaten", "outcome"),
    [
        (9.0, (1.0, 0.8), False, "provisional"),
        (9.0, (0.0, 0.0), False, "provisional"),  # better than one verdict for all, and no worse
        (9.0, (0.0, 0.0), True, "unlikely"),  # than the model, which knows better without it
        (1.0, (1.0, 0.8), True, "provisional"),  # its test says more than what code makes of it
        (1.0, (0.0, 0.0), False, "unlikely"),
    ],
)
@pytest.mark.parametrize("provisional", ["keep", "drop"])
def test_what_is_not_proven_stays_if_its_test_makes_it_likely_or_code_does_and_no_model_is_better(
    seems: float, gains: tuple[float, float], is_beaten: bool, outcome: str, provisional: str
) -> None:
    trial = Trial(right=1.0)
    learner, lesson = learn_at_once(trial, "all", provisional=provisional)
    assert lesson.learnt
    learnt = lesson.learnt._replace(rule_set=replace(lesson.learnt.rule_set, z_score=seems))
    proof = Proof(lesson.teacher, learnt, learner.tools.make_judge(START))
    _, preparers, _ = answer_all(proof.prove(1e-300), trial.answer)
    assert preparers
    wrong = {
        i: replace(each, is_right=dict.fromkeys(each.is_right, not is_beaten))
        for i, each in preparers.edited.weighed.items()
    }
    right = {
        i: replace(each, is_right=dict.fromkeys(each.is_right, True))
        for i, each in preparers.present.weighed.items()
    }
    preparers = preparers._replace(
        edited=replace(preparers.edited, weighed=wrong),
        present=replace(preparers.present, weighed=right),
    )
    test = BettingTest(1e-300, 40).plus([[gain] for gain in gains * 20])
    found = answer_all(proof.conclude(learnt, test, preparers), trial.answer)
    kept = provisional == "keep" or outcome == "unlikely"
    assert found.outcome == (outcome if kept else "unproven")
    rules = found.edit.guidance.rules
    assert any(rule.is_provisional for rule in rules) == (found.outcome == "provisional")


@pytest.mark.parametrize("weighs", [True, False])
def test_where_too_little_is_known_to_weigh_by_rules_that_are_ahead_of_the_model_judge_as_code(
    weighs: bool,
) -> None:
    """Without probabilities, nothing is weighed, and they are not likely for that alone."""
    trial = Trial(right=1.0, weighs=weighs)
    learner, lesson = learn_at_once(trial, "all")
    assert lesson.learnt and lesson.learnt.rule_set.z_score > 2
    proof = Proof(lesson.teacher, lesson.learnt, learner.tools.make_judge(START))
    _, preparers, _ = answer_all(proof.prove(1e-300), trial.answer)
    assert preparers
    none = BettingTest(1e-300, 40).plus([[0.0]])
    wrong = {
        i: replace(each, is_right=dict.fromkeys(("rules", "weighed", "model"), False))
        for i, each in preparers.present.weighed.items()
    }
    little = Preparers(
        replace(preparers.edited, weighed={}), replace(preparers.present, weighed=wrong)
    )
    found = answer_all(proof.conclude(lesson.learnt, none, little), trial.answer)
    assert found.outcome == ("provisional" if weighs else "unlikely")
    assert found.edit.guidance.judge == ("rules" if weighs else "model")
    assert found.edit.guidance.rules[1].text == "Fail if state is torn."


# Who judges


def judge_after(trial: Trial, by_folds: float = 0.0) -> tuple[str, Mapping[JudgeName, float]]:
    """Who judges under the guidance that all blocks have taught, and what was measured; on folds,
    code is right of this share."""
    trial.run()
    known = {
        i: n < by_folds * 150 for n, i in enumerate(i for block in trial.blocks for i in block)
    }
    guidance, after = answer_all(
        trial.stacker.prepare(TORN, range(210), by_folds=known), trial.answer
    )
    assert guidance and guidance.calibration.weighs_rules == (guidance.judge != "model")
    return guidance.judge, after.measure_judges()


def test_who_is_right_most_often_judges_and_of_equals_code() -> None:
    judge, shares = judge_after(Trial(right=1.0, sees=0.3))
    assert judge == "rules" and shares["rules"] == 1.0 >= max(shares.values()) > shares["model"]
    judge, shares = judge_after(Trial(right=0.5, sees=2.5))
    assert (
        judge in ("model", "weighed")
        and shares[cast(JudgeName, judge)] == max(shares.values()) > shares["rules"] + 0.3
    )
    assert shares["model"] > 0.8
    judge, shares = judge_after(Trial(right=0.85, sees=1.2))
    assert shares[cast(JudgeName, judge)] == max(shares.values())


def test_where_rules_say_nothing_they_are_measured_by_what_judges_there_then() -> None:
    """Tickets that do not tell a state mostly fail: the calibration beside rules knows, and the
    model's own does not, since of all tickets most pass."""
    trial = Trial(right=1.0, sees=0.0)
    for n in range(300):
        said = {0: "state: torn; ", 3: "", 6: "", 9: ""}.get(n % 10, "state: new; ")
        label = "pass" if "new" in said or n % 40 == 3 else "fail"
        images = (("image_1", f"{said}number: {n}"),)
        trial.tickets[n] = replace(trial.tickets[n], label=label, per_image=images)
    tools = replace(trial.stacker.tools, vocabulary=Vocabulary.of(trial.tickets))
    trial.stacker = replace(trial.stacker, tools=tools)
    assert trial.run().judge == "rules"
    for block, guidance in zip(trial.blocks, trial.prepared, strict=True):
        for i in block if guidance else ():
            known, label = trial.stacker.weighed[i], trial.tickets[i].label
            assert guidance and known.ruling in (None, label)
            log_odds, _ = guidance.calibration.given(known.ruling).weigh((trial.log_odds(i), 0.0))
            assert (
                known.is_right["rules"]
                == known.is_right["weighed"]
                == ((log_odds > 0) == (label == "pass"))
            )
    shares = trial.stacker.measure_judges()
    assert shares["rules"] > 0.9 > 0.7 > shares["model"]


def test_no_judge_is_more_than_a_point_behind_code_as_all_tickets_teach_it() -> None:
    def make() -> Trial:
        return Trial(right=0.5, sees=1.2)

    judge, shares = judge_after(make())
    assert judge != "rules" and shares[cast(JudgeName, judge)] < 0.98
    assert judge_after(make(), 1.0)[0] == "rules"


@pytest.mark.parametrize(("ahead", "judge"), [(0, "weighed"), (1, "weighed"), (5, "rules")])
def test_code_that_is_half_a_point_ahead_on_folds_does_not_judge_for_that(
    ahead: int, judge: JudgeName
) -> None:
    """Of 200 tickets; others, of which no judge is known to be right, do not count."""
    trial, none = Trial(right=1.0), (0.0, 0.0)
    is_right: dict[JudgeName, bool] = {"rules": False, "weighed": True, "model": False}
    known = {
        n: JudgedTicket(
            none,
            none,
            "pass",
            none,
            "fail",
            None,
            100,
            {**is_right, "weighed": n >= 20} if n < 200 else {},
            "weighed",
        )
        for n in range(260)
    }
    by_folds = {n: n >= 20 - ahead for n in known}
    assert replace(trial.stacker, weighed=known).choose_judge(by_folds) == judge


@given(
    st.sampled_from(PASS_FAIL),
    st.integers(0, 9),
    st.integers(0, 9),
    st.floats(0, 9),
    st.floats(0, 2),
    st.floats(0.01, 9),
)
def test_what_code_is_sure_of_no_word_within_the_models_reach_overturns(
    ruling: Verdict, one: int, other: int, rules: float, points: float, reach: float
) -> None:
    calibration, leads = (
        Calibration(1.0, 0.0, rules, points, reach=reach),
        (("pass", one), ("fail", other)),
    )
    for odds in (-reach, reach):
        passes = calibration.given(ruling, leads).of(odds) > 0
        assert not calibration.is_sure(ruling, leads, PASS_FAIL) or passes == (ruling == "pass")
    assert not calibration.is_sure(None, leads, PASS_FAIL)
    assert not replace(calibration, reach=0.0).is_sure(ruling, leads, PASS_FAIL)
    labels = ("low", "high", "medium")
    told = Calibration.of_labels(labels, 1.0, [0.0, 0.0, 0.0], rules, points)
    led = (("high", one), ("medium", other))
    if replace(told, reach=reach).is_sure("high", led, labels):
        scores = told.given("high", led).weigh([reach, 0.0, reach])
        assert scores[1] == max(scores)


def reach_of(
    said: Sequence[tuple[float, bool]],
    groups: int = 0,
    price: Mapping[Verdict, float] | None = None,
) -> Calibration:
    """How far code must be ahead, by tickets of which rules lead by so many points, and are right
    or not; the model beside them is right of all."""
    tickets = [
        Ticket(
            "m",
            f"g{n % (groups or len(said))}",
            "fail" if n % 2 else "pass",
            (("image_1", f"{n}"),),
        )
        for n in range(len(said))
    ]
    stacker, none = Trial(right=1.0).stacker, (0.0, 0.0)
    weighed = {
        n: JudgedTicket(
            none,
            apart_by(n, ticket.label),
            ticket.label if is_right else ("pass" if ticket.label == "fail" else "fail"),
            (lead, 0.0) if (ticket.label == "pass") == is_right else (0.0, lead),
            ticket.label,
            none,
            100,
            {"rules": is_right, "weighed": True, "model": True},
            "weighed",
        )
        for n, (ticket, (lead, is_right)) in enumerate(zip(tickets, said, strict=True))
    }
    tools = replace(stacker.tools, tickets=tickets)
    judge = Judge(tickets, CONFIG.gating, TORN, prices=price or {"pass": 1.0, "fail": 1.0})
    known = Stacker(tools, judge, range(40), weighed)
    guidance, _ = answer_all(
        known.prepare(TORN, [], []),
        lambda asked: [[Judgement(0.5, 9, scores=(0.1 * (i % 2), 0.0)) for i in range(40)]],
    )
    assert guidance is not None
    return guidance.calibration


def apart_by(n: int, label: Verdict) -> tuple[float, float]:
    """What a model says that is sure of a ticket in thirty."""
    far = 1.0 if n % 30 else 60.0
    return (far, -far) if label == "pass" else (-far, far)


def lead(calibration: Calibration, points: float) -> bool:
    """Whether code that leads by so many points, of a spread as tickets have, decides alone."""
    ahead = calibration.rules + calibration.points * points
    return 0 < calibration.reach < ahead


def test_code_decides_alone_where_that_is_proven_to_cost_at_most_a_point() -> None:
    sure = [(3.0, True)] * 600
    unsure = [(1.0, n % 10 > 0) for n in range(600)]
    found = reach_of(sure + unsure)
    assert lead(found, 3) and not lead(found, 1)
    assert lead(reach_of(sure * 2), 3)
    assert not lead(reach_of(sure[:100] + unsure[:100]), 3), "too few tickets to prove it"
    assert not lead(reach_of(sure + unsure, groups=60), 3), "copies of 60 cases are 60"
    less = [(3.0, n % 10 > 0) for n in range(300)] + [(1.0, n % 10 > 0) for n in range(300)]
    found = reach_of([(4.0, True)] * 600 + less)
    assert lead(found, 4) and not lead(found, 3)
    wrong = [(3.0, n % 20 > 0) for n in range(1200)]
    assert not lead(reach_of(wrong), 3)
    cheap = {"pass": 1.0, "fail": 0.001}
    assert lead(reach_of([(3.0, n % 2 == 0 or n % 20 > 1) for n in range(1200)], price=cheap), 3)


def test_a_guidance_that_names_no_judge_is_read_as_before_and_one_that_is_unknown_refused() -> None:
    torn = replace(TORN, next_number=2)
    plain = to_json(replace(torn, judge="rules"))
    assert plain["m"]["judge"] == "rules" and from_json(plain, "g.json")["m"].judge == "rules"
    assert "judge" not in to_json(torn)["m"] and from_json(to_json(torn), "g.json")["m"].judge == ""
    with pytest.raises(BadInputError, match="judge: none of rules, model and weighed"):
        from_json({"m": {**plain["m"], "judge": "oracle"}}, "g.json")


# Through the loop

KEYS = {
    "model.engine": "programs.weighing:build",
    "model.model_name_or_path": "some/model",
    "prompt.style": "instruct",
    "prompt.prefill": True,
    "runner.epochs": 1,
    "split.val": 0.0,
    "split.train": 0.8,
    "split.test": 0.2,
    "gate.race_size": 48,
    "early_stop.reflections": 1,
}
FILES = ("selections.jsonl", "reflection.jsonl", "metrics.jsonl", "guidance.json")


def read_rows(run: Path, file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "valves" / file).read_text().splitlines()]


@pytest.fixture(scope="module")
def tickets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.write(tmp_path_factory.mktemp("tickets") / "tickets.jsonl", "valves", groups=320)


@pytest.fixture(scope="module")
def run(tickets: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("out")
    assert main(small.arguments(tickets, root, keys={**KEYS, "report": True})) == 0
    return root / "run"


@pytest.mark.slow
def test_a_model_that_judges_is_given_what_code_learns(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ((guidance, *_),) = (json.loads((run / "valves" / "guidance.json").read_text()).values(),)
    assert guidance["experiences"]["G1"] == "Fail if state is torn."
    assert guidance["demonstrations"] and guidance["calibration"]["rules"] > 0
    (edit,) = read_rows(run, "reflection.jsonl")[0]["gate"]["edits"]
    before, after = edit["test"]["calibration_errors"]
    assert edit["outcome"] == "accepted" and after < before
    first, *_, last = [
        row["acc"] for row in read_rows(run, "metrics.jsonl") if row["split"] == "test"
    ]
    assert first < 0.9 < last
    page = (run / "report.html").read_text()
    assert (
        "once calibrated by" in page
        and "Judged by the rules as code, and the model where they give none (right of" in page
    )
    assert main(["guidance", "show", str(run)]) == 0
    assert "rules as code: " in capsys.readouterr().out


@pytest.mark.slow
def test_of_few_tickets_rules_that_seem_better_than_the_model_decide(tmp_path: Path) -> None:
    """A label that takes seven fields to tell is learnt from a hundred tickets, but not from
    fifty."""
    chance, path = random.Random(0), tmp_path / "tickets.jsonl"
    with path.open("w") as file:
        for n in range(110):
            fields = [chance.choice("ab") for _ in range(7)]
            is_right, text = (
                chance.random() > 0.08,
                "; ".join(f"field {i}: {value}" for i, value in enumerate(fields)),
            )
            label = "fail" if (fields.count("b") > 3) == is_right else "pass"
            row = {
                "mission": "valves",
                "group_id": f"g{n}",
                "label": label,
                "per_image": {"image_1": f"{text}; number: {n}"},
            }
            file.write(json.dumps(row) + "\n")
    assert main(small.arguments(path, tmp_path, keys={**KEYS, "seed": 0})) == 0
    (edit,) = read_rows(tmp_path / "run", "reflection.jsonl")[0]["gate"]["edits"]
    assert edit["outcome"] == "provisional" and edit["test"]["judge"] == "rules"
    before, *_, after = [
        row["acc"] for row in read_rows(tmp_path / "run", "metrics.jsonl") if row["split"] == "test"
    ]
    assert before < 0.6 and after > 0.8


def test_without_rules_all_train_tickets_teach_how_to_read_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Code can tell nothing of colours; the model half sees what is torn, as every ticket says in
    its own words."""
    chance, path = random.Random(0), tmp_path / "tickets.jsonl"
    with path.open("w") as file:
        for n in range(160):
            is_torn = n % 2 == 0
            text = f"{''.join(chance.choice('bcdfg') for _ in range(9))}{'torn' if is_torn else 'fine'}{chance.random()}"
            row = {
                "mission": "valves",
                "group_id": f"g{n}",
                "label": "fail" if is_torn == (n % 9 > 0) else "pass",
            }
            file.write(json.dumps({**row, "per_image": {"image_1": text}}) + "\n")
    assert main(small.arguments(path, tmp_path, keys={**KEYS, "gate.race_size": 8})) == 0
    ((guidance, *_),) = (
        json.loads((tmp_path / "run" / "valves" / "guidance.json").read_text()).values(),
    )
    assert (
        list(guidance["experiences"]) == ["G0"]
        and guidance["calibration"]
        and guidance["judge"] == "model"
    )
    said = capsys.readouterr().out
    assert (
        "train tickets with their verdicts, and told no rule." in said
        and "No rule was learnt: " in said
    )
    assert len(guidance["demonstrations"]) > 8  # as many as there are race tickets
    before, *_, after = [
        row["acc"] for row in read_rows(tmp_path / "run", "metrics.jsonl") if row["split"] == "test"
    ]
    assert before < 0.6 and after > before + 0.05


def test_predict_weighs_the_rules_as_learning_did(run: Path, tickets: Path, tmp_path: Path) -> None:
    given = json.loads((run / "valves" / "guidance.json").read_text())

    def judge(name: str, guidance: Mapping[str, Any]) -> tuple[int, set[str]]:
        """How many verdicts are right, and who gave them."""
        path, out = tmp_path / f"{name}.json", tmp_path / f"{name}.jsonl"
        path.write_text(json.dumps(guidance))
        keys = {
            "guidance": path,
            "tickets": tickets,
            "output": out,
            "vocabulary": tickets,
            "prompt.style": "instruct",
            "prompt.prefill": "true",
        }
        keys |= {key: KEYS[key] for key in ("model.engine", "model.model_name_or_path")} | {
            "fabric.accelerator": "cpu"
        }
        assert main(["predict", *(f"--{key}={value}" for key, value in keys.items())]) == 0
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        labels = [json.loads(line)["label"] for line in tickets.read_text().splitlines()]
        right = sum(row["verdict"] == label for row, label in zip(rows, labels, strict=True))
        return right, {row["by"] for row in rows}

    alone = json.loads(json.dumps(given))
    given["valves"]["judge"], alone["valves"]["judge"] = "weighed", "model"
    alone["valves"]["calibration"] |= {"rules": 0.0, "points": 0.0}
    given["valves"]["calibration"]["reach"] = 1e3
    weighed, by = judge("weighed", given)
    assert weighed > 310 > judge("alone", alone)[0] and by == {"model"}
    given["valves"]["calibration"]["reach"] = 1e-3  # so code is sure
    assert judge("sure", given) == (weighed, {"rules"})


def test_the_judge_that_is_learnt_judges_rounds_predictions_and_promoted_files(
    run: Path, tickets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert read_guidance(run)["valves"].judge == "rules"  # the model knows nothing that they do not
    after = [row for row in read_rows(run, "metrics.jsonl") if row["split"] == "test"][-1]
    assert after["by_rules"] == after["n"] and after["tokens"] == 0
    assert (
        main(["guidance", "promote", str(run), "--to", str(tmp_path / "kept.json"), "--yes"]) == 0
    )
    keys = {"tickets": tickets, "vocabulary": tickets, "fabric.accelerator": "cpu"}
    keys |= {key: KEYS[key] for key in ("model.engine", "model.model_name_or_path")}

    def judge(name: str, guidance: Path, *options: str) -> set[str]:
        given = {**keys, "guidance": guidance, "output": tmp_path / name}
        assert (
            main(["predict", *(f"--{key}={value}" for key, value in given.items()), *options]) == 0
        )
        return {json.loads(line)["by"] for line in (tmp_path / name).read_text().splitlines()}

    assert judge("run.jsonl", run) == judge("kept.jsonl", tmp_path / "kept.json") == {"rules"}
    assert judge("model.jsonl", run, "--by", "model") == {"model"}
    capsys.readouterr()
    assert main(["guidance", "show", str(run)]) == 0
    assert "judged by: the rules as code" in capsys.readouterr().out


@pytest.mark.slow
def test_a_kill_between_preparing_and_what_is_learnt_at_once_leaves_the_same_bytes(
    tickets: Path, tmp_path: Path
) -> None:
    def run_in(name: str, job: str, kill_before: int | None = None) -> forks.Ended:
        return forks.run(
            small.arguments(tickets, tmp_path / name, 1, KEYS), 1, tmp_path / job, kill_before
        )

    def written(name: str) -> dict[str, bytes]:
        return {file: (tmp_path / name / "run" / "valves" / file).read_bytes() for file in FILES}

    rule_set = run_in("whole", "job")
    assert rule_set.codes == (0,), rule_set.err
    place = next(
        place
        for place, operation in enumerate(rule_set.operations[0])
        if operation.endswith("reflection.jsonl")
    )
    assert any("guidance-000001" in operation for operation in rule_set.operations[0][:place])
    assert run_in("killed", "killing", place).codes == (137,)
    resumed = run_in("killed", "resuming")
    assert resumed.codes == (0,), resumed.err
    assert written("killed") == written("whole")


def test_where_code_learns_at_once_no_model_reflects_unless_it_is_told_to(
    tickets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def count(**keys: Any) -> tuple[int, int]:
        root = tmp_path / str(len(keys))
        assert main(small.arguments(tickets, root, keys={**KEYS, "runner.epochs": 1, **keys})) == 0
        rounds = [
            json.loads(line)
            for line in (root / "run" / "valves" / "selections.jsonl").read_text().splitlines()
        ]
        return len(read_rows(root / "run", "reflection.jsonl")), sum(
            row["split"] == "train" for row in rounds
        )

    reflections, rolled_out = count()
    assert (reflections, rolled_out) == (1, 0)
    assert main(["validate", *small.arguments(tickets, tmp_path, keys=KEYS)[1:]]) == 0
    said = capsys.readouterr().out
    assert (
        "the model judges tickets by them. At most" in said
        and "verdicts that calibrate the model and test rules" in said
    )
    reflections, rolled_out = count(**{"reflection.scope": "bundle", "early_stop.reflections": 3})
    assert reflections > 1 and rolled_out > 0
