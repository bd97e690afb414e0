"""A mission's guidance before it learns with a model that reads instruct texts: demonstrations, and
a calibration."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from programs import small

from stageb.__main__ import main
from stageb.engines.config import ModelConfig
from stageb.engines.protocol import Decode, Prompt
from stageb.errors import BadInputError
from stageb.guidance.commands.fit.first_guidance import check_sealed
from stageb.guidance.config import LoopConfig, PromptConfig, RunnerConfig
from stageb.guidance.judging.questions import Dialogue, JudgeTickets, answer_all
from stageb.guidance.learning import bundles
from stageb.guidance.learning.bundles import Reflection
from stageb.guidance.learning.gate.budget import Pool
from stageb.guidance.learning.gate.decide import Decision, Edit, Gate, Join
from stageb.guidance.learning.gate.judgements import Verdicts
from stageb.guidance.learning.preparing import Preparer, prepare
from stageb.guidance.learning.proposer import Bundle, Lesson
from stageb.guidance.learning.state import MissionState
from stageb.guidance.learning.tools import Tools
from stageb.guidance.learning.transitions import is_unprepared
from stageb.guidance.rules.guidance_json import from_json, to_json
from stageb.guidance.rules.prompts import WORDS, Case
from stageb.guidance.rules.read_guidance import load_seed, make_neutral
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.tickets.groups import whole_groups
from stageb.guidance.tickets.splits import split_tickets
from stageb.guidance.words.calibration import CALIBRATED_ON, sigmoid
from stageb.guidance.words.types import (
    UNCALIBRATED,
    Answers,
    Calibration,
    Judgement,
    Operation,
    Proposal,
    Record,
    Selection,
    Ticket,
)

CONFIG = LoopConfig(tickets=["t.jsonl"], model=ModelConfig(model_name_or_path="some/model"))
TICKETS = [
    Ticket("m", f"g{n}", "fail" if n % 2 else "pass", (("image_1", f"text {n}"),))
    for n in range(300)
]
START = MissionState(replace(make_neutral("m", WORDS["en"]), step=3))
BIAS = 3.0  # log-odds that the model adds to every pass


def count_tokens(prompts: Sequence[Prompt]) -> list[int]:
    return [len(prompt.system.split()) for prompt in prompts]


def judge(question: JudgeTickets) -> list[list[Judgement]]:
    """A model that orders tickets rightly, and says pass of nearly all."""
    found = []
    for guidance, positions in question.asked:
        assert guidance.calibration == UNCALIBRATED and guidance.shown
        # it could copy the verdict
        assert {each.source for each in guidance.shown}.isdisjoint(
            TICKETS[i].key for i in positions
        )
        sides = [1 if TICKETS[i].label == "pass" else -1 for i in positions]
        odds = {side: 2.0 * side + BIAS for side in sides}
        found.append(
            [
                Judgement(sigmoid(side * odds[side], 0.7), 9, scores=(odds[side], 0.0))
                for side in sides
            ]
        )
    return found


def tools(config: LoopConfig = CONFIG, weighs: bool = True) -> Tools:
    splits = split_tickets(TICKETS, config)["m"]
    pool = Pool(whole_groups(splits.test_order, TICKETS), 64)
    return Tools(
        config, TICKETS, splits, pool, Vocabulary.of(TICKETS), count_tokens, 16, weighs=weighs
    )


def test_a_first_guidance_shows_race_tickets_alone_and_puts_the_cut_where_labels_are() -> None:
    mine = tools()
    mission, judged = answer_all(prepare(START, mine), judge)
    guidance, raced = mission.guidance, {TICKETS[i].key for i in mine.splits.race_set}
    assert guidance.step == START.guidance.step + 1 and guidance.rules == START.guidance.rules
    assert guidance.demonstrations and {each.source for each in guidance.demonstrations} <= raced
    assert guidance.calibration.of(2.0 + BIAS) > 0 > guidance.calibration.of(-2.0 + BIAS)
    assert 0 < judged.judged == len(mission.p_correct) <= CALIBRATED_ON
    assert min(mission.p_correct.values()) > 0.5  # as they are judged once calibrated
    assert from_json(to_json(guidance), "a test")["m"] == guidance


def test_without_a_gate_whose_race_tickets_prepare_a_guidance_all_of_train_does() -> None:
    mine = tools(replace(CONFIG, gate="none"))
    guidance = answer_all(prepare(START, mine), judge)[0].guidance
    assert not mine.splits.race_set and guidance.demonstrations
    assert guidance.calibration != UNCALIBRATED


def test_no_ticket_that_a_guidance_shows_calibrates_it() -> None:
    """Edits keep what the present guidance shows, and are calibrated on tickets that they race
    on."""
    mine = tools()
    prepared = answer_all(prepare(START, mine), judge)[0].guidance
    shown = prepared.demonstrations
    some = [
        replace(prepared, calibration=UNCALIBRATED, demonstrations=each)
        for each in (shown, shown[:6], shown[6:])
    ]
    preparer, race_on = Preparer(mine, mine.make_judge(START.guidance)), mine.splits.race_set
    found, verdicts = answer_all(preparer.calibrate(some, race_on, Verdicts()), judge)
    for guidance, each in zip(found, some, strict=True):
        assert guidance.demonstrations == each.demonstrations and guidance.calibration.slope > 0
        known = {TICKETS[i].key for i in verdicts.of(guidance)}
        unshown = {TICKETS[i].key for i in race_on} - {one.source for one in each.shown}
        assert known == unshown and len(known) < CALIBRATED_ON


def test_it_is_prepared_once_and_only_where_another_model_judges_all_tickets() -> None:
    assert is_unprepared(START, CONFIG)
    assert not is_unprepared(answer_all(prepare(START, tools()), judge)[0], CONFIG)
    assert not is_unprepared(replace(START, bundles=1), CONFIG)
    shown, _ = answer_all(prepare(START, tools(weighs=False)), judge)
    assert shown.guidance.demonstrations and not is_unprepared(shown, CONFIG)
    unsure = Selection("pass", "", 0, 1.0, False, True, "")
    record = Record(TICKETS[0], 1, 0, 0, Answers(TICKETS[0].key, 9, ()), unsure)
    assert not is_unprepared(replace(START, pending=(record,)), CONFIG)
    calibrated = replace(START.guidance, calibration=Calibration(2.0))
    assert not is_unprepared(replace(START, guidance=calibrated), CONFIG)
    assert not is_unprepared(START, replace(CONFIG, model=ModelConfig()))
    assert not is_unprepared(START, replace(CONFIG, runner=RunnerConfig(judge="both")))


def look(prompt: Prompt, decode: Decode, key: int) -> str:
    """Fails what is torn, in the words of an instruct model."""
    torn = "torn" in prompt.user
    return f"Verdict: {'fail' if torn else 'pass'}. It is {'torn' if torn else 'sound'}."


def test_a_run_with_another_model_begins_by_showing_it_labelled_tickets(tmp_path: Path) -> None:
    tickets = small.write(tmp_path / "tickets.jsonl", "valves", groups=50)
    keys = {
        "model.model_name_or_path": f"{__name__}:look",
        "prompt.style": "instruct",
        "runner.epochs": 1,
        "sampler.samples_per_decode": 1,
        "reflection.num_proposals": 1,
        "reflection.scope": "bundle",
        "gate": "none",
    }
    assert main(small.arguments(tickets, tmp_path / "out", keys=keys)) == 0
    learnt = load_seed(tmp_path / "out" / "run" / "valves" / "guidance.json")["valves"]
    assert {each.verdict for each in learnt.demonstrations} == {"pass", "fail"}


@pytest.mark.parametrize("config", [CONFIG, replace(CONFIG, gate="none")])
def test_an_edit_comes_to_the_gate_with_demonstrations_and_a_calibration_of_its_own(
    config: LoopConfig,
) -> None:
    """Without a gate nothing tests what these do, so what the present guidance has stays."""
    offered: list[Edit] = []

    def choose(edits: Sequence[Edit], gate: Gate) -> Dialogue[Edit | None]:
        yield from ()
        offered.extend(edits)
        return edits[0]

    mine = replace(tools(config), choose=choose)
    cases = tuple(Case(TICKETS[i], False, None) for i in mine.pool.fold(0))
    add = Operation("add", None, (), "Fail if a summary mentions text.", "", (cases[0].ticket.key,))
    lesson = Lesson(proposals=(Proposal(0, "", (add,), ()),))
    result = answer_all(Reflection(mine).prove(START, Bundle(0, 0, cases), lesson), judge)
    assert result.decision.winner
    guidance = result.decision.winner.guidance
    assert guidance.rules[-1].text == add.text
    if not config.has_gate:
        assert not guidance.demonstrations and guidance.calibration == UNCALIBRATED
    else:
        assert result.decision.winner is offered[0] and guidance.demonstrations
        assert guidance.calibration.of(2.0 + BIAS) > 0 > guidance.calibration.of(-2.0 + BIAS)


def test_edits_that_are_joined_are_calibrated_as_the_first_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    joined: list[tuple[Edit, Edit | None]] = []

    def decide(edits: Sequence[Edit], gate: Gate, join: Join, left: float) -> Dialogue[Decision]:
        yield from ()
        joined.append((edits[0], join(edits[0], edits[1])))
        return Decision((), left)

    monkeypatch.setattr(bundles, "decide", decide)
    mine, texts = tools(), ("Fail if a summary mentions text.", "Pass if a summary mentions text.")
    cases = tuple(Case(TICKETS[i], False, None) for i in mine.pool.fold(0))
    proposals = tuple(
        Proposal(n, "", (Operation("add", None, (), text, "", (cases[n].ticket.key,)),), ())
        for n, text in enumerate(texts)
    )
    lesson = Lesson(proposals=proposals)
    answer_all(Reflection(mine).prove(START, Bundle(0, 0, cases), lesson), judge)
    ((first, both),) = joined
    assert both and {rule.text for rule in both.guidance.rules} >= {*texts}
    assert both.guidance.calibration == first.guidance.calibration != UNCALIBRATED


@pytest.mark.parametrize("tokens", [0, 1536])
def test_without_probabilities_there_is_no_calibration_and_without_room_no_demonstration(
    tokens: int,
) -> None:
    config = replace(CONFIG, prompt=PromptConfig(demonstration_tokens=tokens))
    mission, _ = answer_all(prepare(START, tools(config, weighs=False)), judge)
    assert mission.guidance.calibration == UNCALIBRATED
    assert bool(mission.guidance.demonstrations) == bool(tokens)
    assert mission.guidance.step == START.guidance.step + bool(tokens)


@pytest.mark.parametrize(
    "config",
    [replace(CONFIG, model=ModelConfig()), replace(CONFIG, runner=RunnerConfig(judge="both"))],
)
def test_the_shipped_model_and_code_are_not_calibrated_and_shown_nothing(
    config: LoopConfig,
) -> None:
    mission, verdicts = answer_all(
        prepare(START, tools(config)), lambda question: pytest.fail("nobody is asked")
    )
    assert mission == START and verdicts == Verdicts()


def test_what_a_starting_guidance_demonstrates_may_not_be_sealed() -> None:

    prepared = answer_all(prepare(START, tools()), judge)[0].guidance
    splits = {"m": split_tickets(TICKETS, CONFIG)["m"]}
    check_sealed(CONFIG, TICKETS, splits, {"m": prepared})
    other = replace(CONFIG, seed=CONFIG.seed + 1)
    with pytest.raises(BadInputError, match="taught or chose"):
        check_sealed(other, TICKETS, {"m": split_tickets(TICKETS, other)["m"]}, {"m": prepared})
