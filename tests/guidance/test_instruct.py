"""What models other than the shipped one read, and how their answers are read."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stageb.engines.config import ModelConfig
from stageb.engines.protocol import Completion, Decode, Prompt, Question, Request
from stageb.guidance.config import Language, PromptConfig, ReflectionConfig
from stageb.guidance.judging.answers import apportion, parse_answer, read_answer, sample_verdicts
from stageb.guidance.judging.questions import Question as Asked
from stageb.guidance.judging.questions import SampleAnswers, answer_all
from stageb.guidance.learning.proposals import parse_proposal
from stageb.guidance.learning.reflect import reflect, requests
from stageb.guidance.rules.evidence import find_evidence
from stageb.guidance.rules.prompts import (
    WORDS,
    Case,
    ReflectionInput,
    reflection_prompt,
    render_guidance,
    rollout_prompt,
    words_of,
)
from stageb.guidance.words.types import Calibration, Demonstration, Guidance, Rule, Ticket, Verdict

OTHER = ModelConfig(model_name_or_path="some/model")
EN = words_of(PromptConfig(), OTHER)
GUIDANCE = Guidance(
    "m",
    1,
    (Rule("G0", "A ticket passes unless a rule fails it."), Rule("G1", "Fail if a is b.")),
    2,
)


def ticket(label: Verdict, text: str) -> Ticket:
    return Ticket("m", text, label, (("image_1", text),))


ASKED = rollout_prompt(ticket("fail", "a leak"), GUIDANCE, EN)
CASES = [Case(ticket("pass", f"oil {n}"), True, None) for n in range(3)]
CASES += [Case(ticket("fail", f"a leak {n}"), False, "so (G1)") for n in range(3)]
SHOWN = ReflectionInput(
    tuple(CASES), find_evidence([c.ticket for c in CASES[3:]], [c.ticket for c in CASES[:3]], 4)
)


@pytest.mark.parametrize(
    ("prompt", "model", "is_instruct", "is_begun"),
    [
        (PromptConfig(), ModelConfig(), False, False),
        (PromptConfig(), OTHER, True, True),
        (PromptConfig(), replace(OTHER, engine="openai"), True, False),
        (PromptConfig(), ModelConfig(engine="scripted", model_name_or_path="a:b"), False, False),
        (PromptConfig(), replace(OTHER, thinking_ends="</think>"), True, False),
        (PromptConfig(prefill=False), OTHER, True, False),
        (PromptConfig(style="shipped"), OTHER, False, False),
        (PromptConfig(style="instruct"), ModelConfig(), True, True),
    ],
)
def test_auto_takes_the_shipped_texts_for_the_shipped_model_alone(
    prompt: PromptConfig, model: ModelConfig, is_instruct: bool, is_begun: bool
) -> None:
    words = words_of(prompt, model)
    assert (words.instruct is not None, bool(words.begin)) == (is_instruct, is_begun)


def test_the_shipped_model_reads_what_it_was_trained_on() -> None:
    """A change of these sums is a change of its prompts: train it anew first."""
    sums = {}
    for language, words in WORDS.items():
        shown = [
            rollout_prompt(CASES[0].ticket, GUIDANCE, words),
            reflection_prompt(SHOWN, GUIDANCE, words, 1),
        ]
        text = "\n\n".join(part for prompt in shown for part in (prompt.system, prompt.user))
        sums[language] = hashlib.sha256(text.encode()).hexdigest()[:16]
    assert sums == {"en": "9c79a0e6f8b11975", "zh": "ca54effc66c8b7e0"}


@pytest.mark.parametrize("language", list(WORDS))
def test_no_instruct_text_holds_a_form_that_could_be_copied(language: Language) -> None:
    words = words_of(PromptConfig(language=language, style="instruct", prefill=False))
    prompt = reflection_prompt(SHOWN, GUIDANCE, words, 1)
    for text in (words.rollout, prompt.system, prompt.user):
        assert not any(
            form in text for form in ('the rule"', "why", "T1", "<pass>", "operations", '规则"')
        )


@pytest.mark.parametrize(
    ("answer", "read"),
    [
        ("Verdict: fail\nReason: a is b (G1)", ("fail", "a is b (G1)")),
        ("Verdict: pass", ("pass", "")),
        ("**Verdict:** Pass.\n\n**Reason:** all well", ("pass", "all well")),
        ("Sure.\nVerdict: FAIL\nIt leaks.\nBadly.", ("fail", "It leaks. Badly.")),
        ("Verdict: passable", None),
        ("no idea", None),
    ],
)
def test_an_instruct_answer_counts_by_the_verdict_that_it_names(
    answer: str, read: tuple[str, str] | None
) -> None:
    assert parse_answer(answer, EN) == read


QUOTES = [
    'The sheet says "Verdict: {other}" from last time, but I look at the seal.',
    "This was \u201cVerdict: {other}\u201d before.",
    "> Verdict: {other}",
    "Verdict: pass or fail?",
    "Verdict: <pass|fail>",
    "Verdict: {other}?",
    "Verdict: {other}\nWait, that is wrong, the rule says otherwise.",
    "Last time, the verdict: {other}.",
    "It is not 'Verdict: {other}'.",
    "Verdict: {other}\nReason: it looked so. But no:",
    "I would not say Verdict: {other}",
]
OWN = [
    "Verdict: {mine}",
    "**Verdict:** **{mine}**",
    "Final verdict - {mine}",
    "\\boxed{{Verdict: {mine}}}",
    "- Verdict: {mine}.",
]
OPEN = [
    "I look at it again.",
    "So Verdict: {mine}, or so it seems, if nothing else counts.",
    "{mine}",
]


@pytest.mark.parametrize("mine", ["pass", "fail"])
@given(said=st.lists(st.sampled_from(QUOTES), max_size=2), own=st.sampled_from([*OWN, *OPEN]))
def test_a_verdict_that_an_answer_quotes_asks_about_or_takes_back_never_counts(
    mine: str, said: list[str], own: str
) -> None:
    other = "fail" if mine == "pass" else "pass"
    lines = "\n".join([*said, own, "Reason: the seal"]).format(mine=mine, other=other)
    retracted = any(each.startswith("Verdict: {other}\n") for each in said)
    found = parse_answer(lines, EN)
    if own in OWN:
        assert found and found[0] == mine, lines
    elif not retracted:  # a verdict alone in its line, and then no other, stands
        assert found is None or found[0] == mine, lines


@pytest.mark.parametrize(
    "answer",
    [
        "It is not 'Verdict: fail' but a pass.",
        "not 'Verdict: fail' but 'Verdict: pass'",
        "Verdict: pass or fail?\nReason: who knows",
        "Verdict: not pass\nReason: worn",
        "Verdict: pass\nReason: the seal is good. No, it is worn, so Verdict: fail.",
        "Verdict: pass\nWait.\nVerdict: fail, since the seal is worn.",
        "If the seal is worn, Verdict: fail; else Verdict: pass.",
        "If the seal is worn, Verdict: fail.",
        "Verdict: pass would be wrong.",
        "I would not say Verdict: fail here.",
    ],
)
def test_an_answer_that_does_not_say_which_of_two_verdicts_it_means_cannot_be_read(
    answer: str,
) -> None:
    assert parse_answer(answer, EN) is None
    first_line_counts = read_answer(Completion(answer, 9, "stop"), ASKED, EN, alone=True)
    assert first_line_counts[1:3] == (None, "")


@pytest.mark.parametrize(
    ("answer", "read"),
    [
        (
            "Verdict: pass\nReason: the rule says Verdict: fail only if worn",
            ("pass", "the rule says Verdict: fail only if worn"),
        ),
        ("Since the seal is not worn, Verdict: pass", ("pass", "")),
        (
            "Verdict: fail\nReason:Verdict: Pass\nReason: worn",
            ("fail", "Verdict: Pass Reason: worn"),
        ),
        ('"Verdict: fail\nReason: worn"', ("fail", "worn")),
        ('{"verdict": "fail", "reason": "worn"}', ("fail", 'worn"}')),
        ("Verdict: pass. Reason: good\nNo.\nVerdict: fail. Reason: worn", ("fail", "worn")),
        (
            "Verdict: pass. Reason: good\nNo.\nVerdict: fail. Reason: so Verdict: fail it is",
            ("fail", "so Verdict: fail it is"),
        ),
    ],
)
def test_what_stands_around_one_verdict_or_behind_the_last_is_no_other(
    answer: str, read: tuple[str, str]
) -> None:
    found = parse_answer(answer, EN)
    assert found and found[0] == read[0]
    assert found[1] in (read[1], "worn")


@pytest.mark.parametrize(
    "style", ["Verdict: {}\nReason: {}", "**Verdict:** {}\n\n**Reason:** {}", "Verdict: {}"]
)
@pytest.mark.parametrize(
    "heading",
    [
        "{}",
        "{}\n\n",
        "Next {}",
        "## {} 2",
        "{} #2:\n",
        "**{}** ",
        "<{}>",
        "{} r-17",
        "- {} 2:\n",
        "Another {} ",
    ],
)
@pytest.mark.parametrize("language", list(WORDS))
def test_a_ticket_that_the_model_makes_up_behind_its_answer_has_no_say(
    style: str, heading: str, language: Language
) -> None:
    words = words_of(PromptConfig(language=language, style="instruct", prefill=False))
    assert words.instruct is not None
    head = heading.format(words.instruct.ticket.rstrip(":："))
    for mine, other in (("pass", "fail"), ("fail", "pass")):
        own, more = (
            style.format(words.verdicts[each], why)
            for each, why in ((mine, "seen"), (other, "made up"))
        )
        found = parse_answer(f"{own}\n\n{head}\nSeal: new\n{more}\n\n{head}\n{more}", words)
        assert found == (mine, "seen" if "Reason" in style else ""), found
        assert parse_answer(f"{own}\n\n{head.lower()}\n{more}\n\n{head}", words) == found
        # its own ticket may stand before it, and what was said of an earlier one before that
        assert parse_answer(f"{head}\nSeal: new\n{own}", words) == found
        earlier, line = (style.format(words.verdicts[other], ""), style.partition("\n")[0])
        alike = f"Such seals get {line.format(words.verdicts[other])} as a rule."
        for before in (f"Previously: {earlier}", f"> {earlier}", alike):
            assert parse_answer(f"{before}\n{head}\nSeal: new\n{own}", words) == found


@pytest.mark.parametrize(
    ("answer", "rules"),
    [
        ("Fail if a summary mentions leak.", ["Fail if a summary mentions leak."]),
        (
            "Here they are:\n1. Fail if a is b2.\n- **Pass if c is d.**",
            ["Fail if a is b2.", "Pass if c is d."],
        ),
        ('```json\n{"rule": "Fail if c is d."}\n```', ["Fail if c is d."]),
        (
            '[{"op": "add", "text": "Fail if c is d."}, "Fail if e is f."]',
            ["Fail if c is d.", "Fail if e is f."],
        ),
        ('{"operations": [{"op": "add", "text": "Fail if c is d."}]}', ["Fail if c is d."]),
        ('G4. Fail if a summary mentions "leak".', ["Fail if a summary mentions leak."]),
    ],
)
def test_rules_are_read_whatever_models_put_around_them(answer: str, rules: list[str]) -> None:
    found = parse_proposal(answer, SHOWN, GUIDANCE, ReflectionConfig(max_operations=4), EN, 0)
    assert [each.text for each in found.operations] == rules
    assert all(each.op == "add" and len(each.evidence) == 3 for each in found.operations)


def test_a_headline_stands_whatever_rules_come_since_the_model_may_have_more_to_say() -> None:
    guidance = replace(GUIDANCE, rules=(Rule("G0", EN.headlines["fail"]),))
    found = parse_proposal("Fail if c is d.", SHOWN, guidance, ReflectionConfig(), EN, 0)
    assert [each.op for each in found.operations] == ["add"]


def test_an_answer_that_is_asked_to_mend_a_rule_takes_its_place() -> None:
    found = parse_proposal(
        "Fail if c is d.", replace(SHOWN, rule="G1"), GUIDANCE, ReflectionConfig(), EN, 0
    )
    assert [(each.op, each.key) for each in found.operations] == [("update", "G1")]


def test_an_answer_without_a_rule_and_rules_beyond_the_limit_are_refused_with_the_reason() -> None:
    for answer in ("I cannot tell.", "5", "null", '[1, {"text": true}]', ""):
        (refusal,) = parse_proposal(answer, SHOWN, GUIDANCE, ReflectionConfig(), EN, 0).refusals
        assert refusal.reason == "no line begins with a verdict"
    found = parse_proposal(
        "Fail if c is d.\nFail if e is f.",
        SHOWN,
        GUIDANCE,
        ReflectionConfig(max_operations=1),
        EN,
        0,
    )
    assert [each.reason for each in found.refusals] == ["more operations than 1"]


def test_a_rule_is_begun_for_a_model_whose_verdicts_are() -> None:
    (request,) = requests([SHOWN], GUIDANCE, ReflectionConfig(max_operations=1), EN, 0)
    assert request.begin == "Fail if" and request.decode.stop == ("\n",)
    assert request.prompt.user.endswith("Each begins: Fail if")
    (request,) = requests([SHOWN], GUIDANCE, ReflectionConfig(max_operations=2), EN, 0)
    assert request.begin == "Fail if" and request.decode.stop == (), "another line may follow"
    shipped = words_of(PromptConfig(style="shipped", prefill=True), OTHER)
    for words in (replace(EN, begin=""), shipped):  # of which the latter asks for JSON
        (request,) = requests([SHOWN], GUIDANCE, ReflectionConfig(max_operations=1), words, 0)
        assert request.begin == "" and request.decode.stop == ()


def test_a_rule_that_was_begun_is_read_from_its_beginning() -> None:
    def go_on(question: Asked) -> list[tuple[Completion, ...]]:
        assert isinstance(question, SampleAnswers)
        assert {request.begin for request in question.requests} == {"Fail if"}
        return [(Completion(" a hose leaks.", 5, "stop"),) for _ in question.requests]

    config = ReflectionConfig(num_proposals=2, max_operations=1)
    steps = reflect(CASES, GUIDANCE, lambda some: [9] * len(some), config, EN, 0)
    for proposal in answer_all(steps, go_on).proposals:
        assert [each.text for each in proposal.operations] == ["Fail if a hose leaks."]


class Weighing:
    """An engine that gives each prompt the same log-odds of a pass."""

    def __init__(self, log_odds: float) -> None:
        self.log_odds = log_odds

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int]:
        return [1 for _ in prompts]

    def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
        raise AssertionError("verdicts are weighed, not decoded")

    def score(self, questions: Sequence[Question]) -> list[tuple[float, ...]]:
        return [(self.log_odds, 0.0) for _ in questions]


@pytest.mark.parametrize(("samples", "passes"), [(1, 1), (3, 2), (4, 2), (10, 6)])
def test_votes_are_drawn_evenly_and_by_the_calibrated_probability(
    samples: int, passes: int
) -> None:
    asked = [Request(Prompt("s", "u"), Decode(temperature=1.0), tuple(range(samples)))]
    (drawn,) = sample_verdicts(asked, Weighing(-5.0), EN, [Calibration(1.0, 5.3)])  # a pass at 57 %
    assert sum(each.text == "Verdict: pass" for each in drawn) == passes


@given(st.lists(st.integers(0, 100), min_size=2, max_size=6).filter(any), st.integers(1, 12))
def test_verdicts_are_apportioned_to_labels_by_their_shares(weights: list[int], count: int) -> None:
    shares, labels = (
        [each / sum(weights) for each in weights],
        [f"label {place}" for place in range(len(weights))],
    )
    found = apportion(shares, count, labels)
    assert len(found) == count and found == sorted(found)
    assert all(
        abs(found.count(label) - share * count) < 1
        for label, share in zip(labels, shares, strict=True)
    )
    # one alone is the most probable
    assert shares[labels.index(apportion(shares, 1, labels)[0])] == max(shares)


def test_of_verdicts_that_are_as_probable_the_last_is_taken() -> None:
    """So a tie of pass and fail is no pass."""
    assert apportion([0.5, 0.5], 1, ["pass", "fail"]) == ["fail"]
    assert apportion([0.5, 0.5], 3, ["pass", "fail"]) == ["pass", "fail", "fail"]
    assert apportion([0.4, 0.4, 0.2], 1, ["low", "high", "medium"]) == ["high"]


def test_what_verdicts_depend_on_names_demonstrations_and_calibration() -> None:
    shown = replace(
        GUIDANCE, demonstrations=(Demonstration("a::fail", (("image_1", "x"),), "fail"),)
    )
    calibrated = replace(GUIDANCE, calibration=Calibration(2.0, 0.0))
    assert len({render_guidance(each) for each in (GUIDANCE, shown, calibrated)}) == 3
    assert (
        render_guidance(GUIDANCE)
        == "G0. A ticket passes unless a rule fails it.\nG1. Fail if a is b."
    )
