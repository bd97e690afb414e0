"""Rules as code beside a model that judges."""

from __future__ import annotations

from dataclasses import replace

import pytest
from guidance.rules.made_rules import ticket

from stageb.guidance.judging.coded import Coder
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.read_guidance import make_neutral
from stageb.guidance.words.types import UNCALIBRATED, Calibration, Rule

TICKETS = [
    ticket({"state": state, "part": part})
    for state in ("torn", "new")
    for part in ("hose", "seal", "valve")
]
CARD = "Fail if it has 4 points or more: 3 if state is torn; 2 if part is hose; -1 if part is seal."
START = make_neutral("m", WORDS["en"])
GUIDANCE = replace(START, rules=(*START.rules, Rule("G1", CARD)))


@pytest.mark.parametrize(
    "calibration",
    [Calibration(rules=1.0), Calibration(points=1.0), Calibration(rules=1.0, points=1.0)],
)
def test_a_model_beside_which_rules_are_weighed_is_told_verdicts_and_points(
    calibration: Calibration,
) -> None:
    coder = Coder(TICKETS, WORDS["en"])
    rulings = coder.rule_on(GUIDANCE, TICKETS)
    assert {each.leads for each in rulings} == {(("fail", lead),) for lead in (1, -2, -1, -5, -4)}
    noted = coder.note_rulings(replace(GUIDANCE, calibration=calibration), TICKETS)
    assert noted == TICKETS, "what a ticket says and is labelled stays as it was"
    for one, ruling in zip(noted, rulings, strict=True):
        assert (one.ruling, one.leads) == (ruling.verdict, ruling.leads)


def test_rules_are_read_by_the_fields_that_tickets_of_their_own_mission_have() -> None:
    rule = Rule("G1", "Fail if reel is torn.")
    guidance = replace(START, rules=(*START.rules, rule))
    reel = ticket({"reel": "torn"})
    for own, verdict in ((True, "fail"), (False, None)):
        tickets = [*TICKETS, reel if own else replace(reel, mission="n")]
        assert Coder(tickets, WORDS["en"]).rule_on(guidance, [reel])[0].verdict == verdict


def test_a_model_that_judges_alone_is_told_nothing_of_rules_as_code() -> None:
    told = Coder(TICKETS, WORDS["en"]).note_rulings(
        replace(GUIDANCE, calibration=replace(UNCALIBRATED, slope=2.0)), TICKETS
    )
    assert {(one.ruling, one.leads) for one in told} == {(None, ())}
