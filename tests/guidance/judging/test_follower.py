import json
from collections.abc import Sequence
from typing import Any

import pytest

from stageb.engines.protocol import Decode, Prompt
from stageb.guidance.config import ReflectionConfig
from stageb.guidance.judging.answers import parse_answer
from stageb.guidance.judging.follower import respond
from stageb.guidance.learning.proposals import parse_proposal
from stageb.guidance.rules.conditions import Limit, OneOf
from stageb.guidance.rules.evidence import NOTHING, Clue, Evidence
from stageb.guidance.rules.prompts import (
    WORDS,
    Case,
    ReflectionInput,
    reflection_prompt,
    rollout_prompt,
)
from stageb.guidance.words.types import Guidance, Rule, Ticket, Verdict
from stageb.seeds import stream

GREEDY, WARM = Decode(temperature=0), Decode(temperature=0.7)


def guidance(*rules: str) -> Guidance:
    texts = ("A ticket passes unless a rule fails it.", *rules)
    return Guidance("m", 1, tuple(Rule(f"G{k}", text) for k, text in enumerate(texts)), len(texts))


def ticket(*summaries: str, label: Verdict = "fail", group: str = "g") -> Ticket:
    return Ticket(
        "m", group, label, tuple((f"image_{n}", text) for n, text in enumerate(summaries, 1))
    )


def verdict(rules: Sequence[str], *summaries: str, language: str = "en") -> Verdict | None:
    parsed = parse_answer(
        respond(rollout_prompt(ticket(*summaries), guidance(*rules), WORDS[language]), GREEDY, 0),
        WORDS[language],
    )
    return parsed[0] if parsed else None


@pytest.mark.parametrize(
    ("rules", "summaries", "right"),
    [
        ([], ["a: b"], "pass"),
        (["Fail if a is b."], ["a: b; c: d"], "fail"),
        (["Fail if a is b."], ["c: d", "A: B"], "fail"),
        (["Fail if a is b."], ["a: bb; c: b"], "pass"),
        (["Fail if a is b and c is d."], ["a: b; c: d"], "fail"),
        (["Fail if a is b and c is d."], ["a: b; c: e"], "pass"),
        (["Fail if a is not b."], ["a: c"], "fail"),
        (["Fail if a is not b."], ["a: b"], "pass"),
        (["Fail unless a is b."], ["a: c"], "fail"),
        (["Fail unless a is b."], ["a: b"], "pass"),
        (["Fail if a is b.", "Pass if c is d."], ["a: b; c: d"], "pass"),
        (["Pass if c is d.", "Fail if a is b."], ["a: b; c: d"], "pass"),
        (["Fail if a summary mentions leak."], ["the hose has a Leak."], "fail"),
        (["Fail if it mentions leak."], ["the hose is leakproof"], "pass"),
        (["Look closely."], ["a: b"], "pass"),
    ],
)  # fmt: skip
def test_rules_are_followed_by_their_letter(
    rules: list[str], summaries: list[str], right: Verdict
) -> None:
    assert verdict(rules, *summaries) == right


def test_the_reason_names_the_rule() -> None:
    answer = respond(
        rollout_prompt(ticket("a: b"), guidance("Fail if c is d.", "Fail if a is b."), WORDS["en"]),
        GREEDY,
        0,
    )
    assert answer == "Verdict: fail\nReason: G2: a is b"


def test_sampled_answers_slip_now_and_then_and_greedy_ones_never() -> None:
    prompt = rollout_prompt(ticket("a: b"), guidance("Fail if a is b."), WORDS["en"])
    parsed = [
        parse_answer(respond(prompt, WARM, stream("slip", n)), WORDS["en"]) for n in range(2000)
    ]
    assert 0.01 < sum(answer is None for answer in parsed) / 2000 < 0.04
    assert (
        0.015 < sum(answer is not None and answer[0] == "pass" for answer in parsed) / 2000 < 0.05
    )
    assert {respond(prompt, GREEDY, stream("slip", n)) for n in range(200)} == {
        "Verdict: fail\nReason: G1: a is b"
    }


def proposed(
    shown: ReflectionInput | list[Case], rules: Guidance, language: str = "en", key: int = 1
) -> Any:
    shown = ReflectionInput(tuple(shown)) if isinstance(shown, list) else shown
    text = respond(reflection_prompt(shown, rules, WORDS[language], 1), GREEDY, key)
    proposal = parse_proposal(text, shown, rules, ReflectionConfig(), WORDS[language], 0)
    assert proposal.refusals == ()
    return proposal.operations[0]


def case(
    *summaries: str, label: Verdict = "fail", right: bool = False, reason: str | None = ""
) -> Case:
    return Case(ticket(*summaries, label=label, group="; ".join(summaries)), right, reason)


def test_a_missed_fault_adds_what_tells_it_from_the_right_ones() -> None:
    cases = [
        case("a: x; c: p", label="pass", right=True),
        case("a: y; c: q", label="pass", right=True),
        case("a: x; c: z", reason="G0: no rule fails it"),
        case("a: y", "c: z"),
    ]
    operation = proposed(cases, guidance())
    assert (operation.op, operation.text, len(operation.evidence)) == ("add", "Fail if c is z.", 2)
    assert proposed(cases, guidance("Fail if c is z.")).text != "Fail if c is z."
    assert proposed(cases, guidance(), language="zh").text == "不通过：若c为z。"


def test_a_rule_that_fails_good_tickets_goes_or_becomes_narrower() -> None:
    rules = guidance("Fail if q is r.", "Fail if a is b.")
    cases = [
        case("a: b; c: d", right=True),
        case("a: b; c: e", label="pass", reason="G2: a is b"),
        case("a: b; c: f", label="pass", reason="G2: a is b"),
    ]
    operations = {
        proposed(cases, rules, key=key).op: proposed(cases, rules, key=key) for key in range(20)
    }
    assert set(operations) == {"remove", "update"}
    assert {operation.key for operation in operations.values()} == {"G2"}
    assert operations["update"].text == "Fail if a is b and c is d."


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_rule_that_headings_name_is_mended_whatever_reasons_say(language: str) -> None:
    rules = (
        guidance("Fail if q is r.", "Pass if a is b.")
        if language == "en"
        else guidance("不通过：若q为r。", "通过：若a为b。")
    )
    cases = (
        case("a: b; c: d", label="pass", right=True),
        case("a: b; c: e", reason=None),
        case("a: b; c: f", reason="so"),
    )
    operations = [
        proposed(ReflectionInput(cases, NOTHING, "G2"), rules, language, key) for key in range(20)
    ]
    assert {(operation.op, operation.key) for operation in operations} == {
        ("remove", "G2"),
        ("update", "G2"),
    }
    texts = {operation.text for operation in operations if operation.text}
    assert texts == {"Pass if a is b and c is d." if language == "en" else "通过：若a为b且c为d。"}


def test_the_first_clue_that_it_understands_and_has_not_yet_is_taken() -> None:
    cases = (
        case("w: 1; c: d", label="pass", right=True),
        case("w: 4; a: b; c: e"),
        case("w: 5; a: b; c: e; x: y"),
    )
    clues = [
        (Limit("w", "above", "3"),),
        (OneOf("q", ("r",)),),
        (OneOf("x", ("y",)), OneOf("a", ("b",))),
        (OneOf("c", ("e",)),),
    ]
    shown = ReflectionInput(
        cases, Evidence(9, 9, tuple(Clue(conditions, 5, 0) for conditions in clues))
    )
    operation = proposed(shown, guidance())
    assert (operation.text, len(operation.evidence)) == ("Fail if x is y and a is b.", 1)
    assert proposed(shown, guidance("Fail if x is y and a is b.")).text == "Fail if c is e."
    assert proposed(shown, guidance(), language="zh").text == "不通过：若x为y且a为b。"
    strange = ReflectionInput(cases, Evidence(9, 9, (Clue((Limit("w", "above", "3"),), 5, 0),)))
    assert proposed(strange, guidance()).text == proposed(ReflectionInput(cases), guidance()).text


def test_other_prompts_get_a_remark() -> None:
    assert "nothing else" in respond(Prompt("Be nice.", "Hello"), GREEDY, 0)
    assert json.loads(
        respond(reflection_prompt(ReflectionInput(()), guidance(), WORDS["en"], 1), GREEDY, 0)
    )  # and no cases are no trouble
