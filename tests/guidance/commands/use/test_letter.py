"""Rules by their letter beside what a model made of them."""

import pytest

from stageb.engines.protocol import Decode
from stageb.guidance.commands.use.record import compare_with_code, warn_of_misread
from stageb.guidance.exports.decisions import decide
from stageb.guidance.exports.protocol import code_mission
from stageb.guidance.judging.answers import parse_answer
from stageb.guidance.judging.coded import code_rules
from stageb.guidance.judging.follower import respond
from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.fields import Columns
from stageb.guidance.rules.judge import make_explainer
from stageb.guidance.rules.prompts import WORDS, rollout_prompt
from stageb.guidance.words.types import Guidance, Rule, Ticket

TEXTS = ["state: torn", "state: new", "state: torn", "state: worn"]
LABELS = ["fail", "pass", "fail", "pass"]


def test_a_rule_that_the_model_does_not_apply_as_written_is_named() -> None:
    tickets = [Ticket("m", str(n), "pass", (("image_1", text),)) for n, text in enumerate(TEXTS)]
    rows = [
        {"mission": "m", "label": label, "verdict": verdict}
        for label, verdict in zip(LABELS, ["pass", "pass", "fail", "pass"], strict=True)
    ]
    rules = (
        Rule("G0", WORDS["en"].neutral_headline),
        Rule("G1", "Fail if state is torn."),
        Rule("G2", "Pass if state is worn."),
    )
    guidance = {"m": Guidance("m", 2, rules, 3)}
    found = compare_with_code(
        zip(rows, tickets, strict=True), code_rules(guidance, tickets, WORDS["en"])
    )["m"]
    assert {
        name: found[name] for name in ("tickets", "decided", "right", "followed", "model_right")
    } == {"tickets": 4, "decided": 4, "right": 4, "followed": 3, "model_right": 3}
    assert [(rule["rule"], rule["decided"], rule["followed"]) for rule in found["rules"]] == [
        ("G0", 1, 1),
        ("G1", 2, 1),
        ("G2", 1, 1),
    ]
    first, second, third = warn_of_misread("m", found)
    assert first == (
        "m: by their letter the rules decide 4 of 4 tickets, 100.0% of them rightly; the model "
        "judged 75.0% of these as the rules say"
    )
    assert second == (
        "m: the model does not apply G1 as written: it judged 1 of its 2 tickets otherwise: "
        "Fail if state is torn."
    )
    assert third == "m: to judge by code, as the rules are written: --by rules"
    found["rules"].append(
        {"rule": "G3", "text": "Fail if it looks odd.", "out_of_reach": "no condition"}
    )
    assert warn_of_misread("m", found)[-1].endswith(
        ": --by both, which asks the model for what rules cannot decide"
    )


def test_what_each_rule_wins_and_loses_is_counted_on_all_tickets() -> None:
    texts = [
        "state: torn; size: 3",
        "state: torn; size: 9",
        "state: new; size: 9",
        "state: torn; size: 1",
        "state: new",
    ]
    tickets = [Ticket("m", str(n), "pass", (("image_1", text),)) for n, text in enumerate(texts)]
    rows = [
        {"mission": "m", "label": label, "verdict": label}
        for label in ["pass", "fail", "fail", "fail", "pass"]
    ]
    rules = (
        Rule("G0", WORDS["en"].neutral_headline),
        Rule("G1", "Fail if state is torn."),
        Rule("G2", "Fail if size is above 5."),
        Rule("G3", "Pass if size is below 5."),
    )
    coded = code_rules({"m": Guidance("m", 3, rules, 4)}, tickets, WORDS["en"])
    found = compare_with_code(zip(rows, tickets, strict=True), coded, by_model=False)["m"]
    # The fifth ticket does not tell its size. G1 decides the second, which G2 fails too; G3 passes
    # the first and fourth.
    assert (found["decided"], found["tickets"]) == (4, 5)
    assert {
        rule["rule"]: (rule["decided"], rule["right"], rule["won"], rule["lost"])
        for rule in found["rules"]
    } == {"G1": (1, 1, 0, 0), "G2": (1, 1, 1, 0), "G3": (2, 1, 1, 1)}


def test_what_cannot_be_read_is_said_and_nothing_is_claimed() -> None:
    ticket = Ticket("m", "g", "pass", (("image_1", "state: new"),))
    rules = (Rule("G0", WORDS["en"].neutral_headline), Rule("G1", "Fail if it looks odd."))
    rows = [{"mission": "m", "label": "pass", "verdict": "pass"}]
    judged = zip(rows, [ticket], strict=True)
    found = compare_with_code(
        judged, code_rules({"m": Guidance("m", 1, rules, 2)}, [ticket], WORDS["en"])
    )["m"]
    assert found["decided"] == 0
    assert found["rules"][0]["out_of_reach"]
    assert warn_of_misread("m", found) == []


@pytest.mark.parametrize("language", WORDS)
def test_whoever_judges_says_in_one_wording_that_no_rule_speaks(language: str) -> None:
    words = WORDS[language]
    ticket = Ticket("m", "g", "pass", (("image_1", "state: new"),))
    known = [ticket, Ticket("m", "h", "fail", (("image_1", "state: torn"),))]
    text = {"en": "Fail if state is torn.", "zh": "不通过：若state为torn。"}[language]
    guidance = Guidance("m", 1, (Rule("G0", words.neutral_headline), Rule("G1", text)), 2)
    coded = code_rules({"m": guidance}, known, words)["m"]
    said = make_explainer(coded)(coded.compile()(reading(ticket)), reading(ticket))
    answer = parse_answer(
        respond(rollout_prompt(ticket, guidance, words), Decode(temperature=0), 0), words
    )
    rows = [{"mission": "m", "label": "pass", "verdict": "pass"}]
    found = compare_with_code(zip(rows, [ticket], strict=True), {"m": coded})["m"]
    decisions = decide(code_mission(guidance, coded, Columns(()), known), "a form")
    assert answer == ("pass", f"G0: {said}")
    assert found["rules"][0]["text"] == decisions.cases[-1].said == said
