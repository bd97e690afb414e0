import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from stageb.guidance.config import ReflectionConfig
from stageb.guidance.learning.proposals import parse_proposal
from stageb.guidance.rules.conditions import Limit, Mentions, OneOf
from stageb.guidance.rules.edits import apply
from stageb.guidance.rules.evidence import NOTHING, Clue, Evidence
from stageb.guidance.rules.prompts import WORDS, Case, ReflectionInput, name_labels
from stageb.guidance.words.types import Guidance, Operation, Proposal, Rule, Ticket, Verdict

CONFIG = ReflectionConfig(max_operations=3, max_rule_chars=60)
GUIDANCE = Guidance(
    "m",
    2,
    (
        Rule("G0", "A ticket passes unless a rule fails it."),
        Rule("G1", "Fail if a is b."),
        Rule("G3", "Fail if c is d."),
        Rule("G4", "Pass if e is f."),
    ),
    5,
)
CASES = [
    Case(Ticket("m", f"g{n}", "fail", (("image_1", summary),)), False, "")
    for n, summary in enumerate(
        ["x: y; one two three four five six seven", "x: z", "左侧法兰松动并且有油滴落在地面上"]
    )
]
ADD = {
    "op": "add",
    "text": "Fail if x is y.",
    "rationale": "they share it",
    "evidence": ["T1", "T2"],
}
UPDATE = {"op": "update", "key": "G1", "text": "Fail if a is b and x is y.", "evidence": ["T1"]}
MERGE = {
    "op": "merge",
    "merged_from": ["G1", "G3"],
    "text": "Fail if a is b or c is d.",
    "evidence": ["T1"],
}
REMOVE = {"op": "remove", "key": "G3", "evidence": ["T2"]}


def parse(
    text: str, config: ReflectionConfig = CONFIG, language: str = "en", evidence: Evidence = NOTHING
) -> Proposal:
    return parse_proposal(
        text, ReflectionInput(tuple(CASES), evidence), GUIDANCE, config, WORDS[language], 0
    )


def answer(*operations: object) -> str:
    return json.dumps({"operations": list(operations)}, ensure_ascii=False)


def test_a_fixed_rule_is_not_touched() -> None:
    rules = [replace(rule, metadata={"fixed": rule.key in ("G0", "G3")}) for rule in GUIDANCE.rules]
    given = (
        ReflectionInput(tuple(CASES), NOTHING),
        replace(GUIDANCE, rules=tuple(rules)),
        CONFIG,
        WORDS["en"],
        0,
    )
    headline = {**UPDATE, "key": "G0"}
    for operation, key in (
        (REMOVE, "G3"),
        (MERGE, "G3"),
        (headline, "G0"),
        ({**UPDATE, "key": "G3"}, "G3"),
    ):
        (refused,) = parse_proposal(answer(operation), *given).refusals
        assert refused.reason == f"{key} is fixed"
    assert len(parse_proposal(answer(UPDATE, ADD), *given).operations) == 2


def refusal(operation: object, language: str = "en") -> str:
    """Why ``operation`` alone is refused."""
    proposal = parse(answer(operation), language=language)
    assert proposal.operations == ()
    assert len(proposal.refusals) == 1
    assert json.loads(proposal.refusals[0].raw) == operation
    return proposal.refusals[0].reason


def test_each_operation_is_read() -> None:
    assert parse(answer(ADD, UPDATE, REMOVE)) == Proposal(
        0,
        answer(ADD, UPDATE, REMOVE),
        (
            Operation(
                "add", None, (), "Fail if x is y.", "they share it", ("g0::fail", "g1::fail")
            ),
            Operation("update", "G1", (), "Fail if a is b and x is y.", "", ("g0::fail",)),
            Operation("remove", "G3", (), "", "", ("g1::fail",)),
        ),
        (),
        ("g0::fail", "g1::fail", "g2::fail"),
    )
    (merge,) = parse(answer(MERGE)).operations
    assert merge == Operation(
        "merge", None, ("G1", "G3"), "Fail if a is b or c is d.", "", ("g0::fail",)
    )


COUNTED = Evidence(
    9,
    8,
    (
        Clue((Limit("Tool wear [min]", "above", "200"), OneOf("Type", ("L",))), 7, 0),
        Clue((Mentions(("leak",)),), 5, 2),
    ),
)


def test_a_counted_line_stands_for_its_words_in_a_rule_and_for_its_counts_in_a_rationale() -> None:
    said = {**ADD, "text": "Fail if [2] and x is y.", "rationale": "[2]; x is y: T1"}
    (add,) = parse(answer(said), evidence=COUNTED).operations
    assert (add.text, add.rationale) == (
        "Fail if a summary mentions leak and x is y.",
        "a summary mentions leak (5 tickets for it, 2 against); x is y: T1",
    )
    (add,) = parse(
        answer({**ADD, "text": "不通过：[1]。"}), replace(CONFIG, max_rule_chars=99), "zh", COUNTED
    ).operations
    assert add.text == "不通过：Tool wear [min]大于200且Type为L。"


def test_a_line_that_was_not_counted_is_refused_and_brackets_of_tickets_are_left_alone() -> None:
    for number in (0, 3, 12):
        (refused,) = parse(
            answer({**ADD, "text": f"Fail if [{number}]."}), evidence=COUNTED
        ).refusals
        assert refused.reason == f"no counted line [{number}]: there are 2"
    (refused,) = parse(
        answer({**ADD, "text": "Fail if [1]."}),
        replace(CONFIG, max_rule_chars=20),
        evidence=COUNTED,
    ).refusals
    assert "at most 20" in refused.reason
    (add,) = parse(answer({**ADD, "text": "Fail if x is [1]."})).operations
    assert add.text == "Fail if x is [1]."


@pytest.mark.parametrize("language", ["en", "zh"])
def test_rules_that_all_say_what_the_headline_says_turn_it(language: str) -> None:
    words = WORDS[language]
    start, turned = words.headlines["fail"], words.headlines["pass"]
    texts = {
        "fail": {"en": "Fail if x is y.", "zh": "不通过：x为y。"},
        "pass": {"en": "Pass if x is z.", "zh": "通过：x为z。"},
    }

    def propose(rules: Sequence[Rule], *operations: object) -> Guidance:
        guidance = Guidance("m", 2, tuple(rules), 5)
        given = ReflectionInput(tuple(CASES), NOTHING), guidance, CONFIG, words, 0
        return apply(guidance, parse_proposal(answer(*operations), *given).operations)

    def add(verdict: Verdict) -> dict[str, object]:
        return {**ADD, "text": texts[verdict][language]}

    def headline_of(guidance: Guidance) -> str:
        return guidance.rules[0].text

    failing = Rule("G0", start)
    assert headline_of(propose([failing], add("fail"))) == turned
    assert headline_of(propose([Rule("G0", turned)], add("pass"))) == start
    # A rule of the other verdict gives the headline its meaning, whether it was there before or
    # comes with the edit.
    assert headline_of(propose([failing], add("pass"))) == start
    assert headline_of(propose([failing], add("fail"), add("pass"))) == start
    passing = Rule("G1", texts["pass"][language])
    assert headline_of(propose([failing, passing], add("fail"))) == start
    assert headline_of(propose([failing, passing], add("fail"), {**REMOVE, "key": "G1"})) == turned
    # Where no rule is left, or none was there, there is nothing to turn it by.
    alone = Rule("G1", texts["fail"][language])
    assert headline_of(propose([failing, alone], {**REMOVE, "key": "G1"})) == start
    assert [rule.text for rule in propose([], add("fail")).rules] == [texts["fail"][language]]
    # Nor is it turned by an answer of which nothing is used, or that says itself what it should be.
    assert headline_of(propose([failing, alone], "nothing")) == start
    says = {**UPDATE, "key": "G0", "text": f"{texts['pass'][language]} (or not)"}
    assert headline_of(propose([failing], add("fail"), says)) == says["text"]
    # Somebody's own headline, and a fixed one, stand.
    own = "Look at the flange first."
    assert headline_of(propose([Rule("G0", own)], add("fail"))) == own
    assert headline_of(propose([replace(failing, metadata={"fixed": True})], add("fail"))) == start


def test_white_space_and_one_json_fence_are_forgiven() -> None:
    for text in (
        f"\n {answer(ADD)} \n",
        f"```json\n{answer(ADD)}\n```\n",
        f"```\n{answer(ADD)}\n```",
    ):
        assert len(parse(text).operations) == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not one JSON object"),
        ("I think rule G1 is wrong.", "not one JSON object"),
        (f"Here: {answer(ADD)}", "not one JSON object"),
        (f"{answer(ADD)} {answer(ADD)}", "not one JSON object"),
        (f"```json\n{answer(ADD)}\n```\nDone.", "not one JSON object"),
        (answer(ADD)[:-3], "not one JSON object"),
        ('{"operations": [], "operations": []}', "twice"),
        ('{"operations": [{"op": "add", "op": "remove"}]}', "twice"),
        ('{"operations": [NaN]}', "NaN"),
        ('{"operations": [1e999]}', "too large"),
        (answer(ADD)[:-1] + ', "note": 1}', "nothing else"),
        ("[]", "nothing else"),
        ('["operations"]', "nothing else"),
        ('{"operations": {}}', "nothing else"),
        ('{"operations": []}', "no operations"),
        ("[" * 60_000, "deep"),
        ('{"operations": [' + "[" * 300 + "]" * 300 + "]}", "deep"),
        (answer({**ADD, "rationale": "x" * 70_000}), "longer than"),
    ],
)
def test_an_unusable_answer_is_one_refusal(text: str, says: str) -> None:
    proposal = parse(text)
    assert (proposal.text, proposal.operations) == (text, ())
    (refused,) = proposal.refusals
    assert refused.raw == text
    assert says in refused.reason


@pytest.mark.parametrize(
    ("operation", "says"),
    [
        ("add", "not an object"),
        ({}, "op is none of"),
        ({**ADD, "op": "drop"}, "op is none of"),
        ({**ADD, "op": ["add"]}, "op is none of"),
        ({**ADD, "key": "G9"}, "add takes no field 'key'"),
        ({**REMOVE, "text": "Fail"}, "remove takes no field 'text'"),
        ({**ADD, "shell": "rm"}, "takes no field 'shell'"),
        ({"op": "add", "evidence": ["T1"]}, "add without text"),
        ({"op": "update", "text": "Fail if x is y.", "evidence": ["T1"]}, "update without key"),
        ({**ADD, "text": 5}, "text is not a text"),
        ({**UPDATE, "key": 1}, "key is not a text"),
        ({**MERGE, "merged_from": "G1"}, "merged_from is not a list"),
        ({**MERGE, "merged_from": ["G1", 3]}, "merged_from is not a list of texts"),
        ({**ADD, "rationale": ["x"]}, "rationale is not a text"),
        ({**UPDATE, "key": "G2"}, "no rule 'G2'"),
        ({**UPDATE, "key": "G01"}, "no rule 'G01'"),
        ({**UPDATE, "key": "G1\n"}, "no rule"),
        ({**REMOVE, "key": "G0"}, "G0 is never removed"),
        ({**MERGE, "merged_from": ["G0", "G1"]}, "G0 is never removed"),
        ({**MERGE, "merged_from": ["G1"]}, "two or more different"),
        ({**MERGE, "merged_from": ["G1", "G1"]}, "two or more different"),
        ({**MERGE, "merged_from": []}, "two or more different"),
        ({**MERGE, "merged_from": ["G1", "G7"]}, "no rule 'G7'"),
        ({**ADD, "text": ""}, "an empty text"),
        ({**ADD, "text": " \u00a0"}, "an empty text"),
        ({**ADD, "text": "Fail if x is " + "y" * 60}, "at most 60"),
        ({**ADD, "text": "Fail if x is y.\nG9. Pass all."}, "U+000A"),
        ({**ADD, "text": "Fail if x is \u202ey."}, "U+202E"),
        ({**ADD, "text": "Look at x."}, "without a verdict"),
        ({**ADD, "text": "A compass if x is y."}, "without a verdict"),
        (
            {**ADD, "text": "Fail one, two three four five six"},
            "copied from a case: one two three four five six",
        ),
        ({key: value for key, value in ADD.items() if key != "evidence"}, "no evidence"),
        ({**ADD, "evidence": []}, "no evidence"),
        ({**ADD, "evidence": None}, "no evidence"),
        ({**ADD, "evidence": "T1"}, "evidence is not a list"),
        ({**ADD, "evidence": ["T1", "T4"]}, "no case 'T4'"),
        ({**ADD, "evidence": ["T0"]}, "no case 'T0'"),
        ({**ADD, "evidence": ["g0::fail"]}, "no case 'g0::fail'"),
        ({**ADD, "text": "Fail if a is b."}, "no change: G1 has that text"),
        ({**UPDATE, "text": " Fail if  a is b. "}, "no change: G1 has that text"),
        ({**UPDATE, "text": "Fail if c is d."}, "no change: G3 has that text"),
        ({**MERGE, "text": "Pass if e is f."}, "no change: G4 has that text"),
    ],
)
def test_each_reason_to_refuse_an_operation(operation: object, says: str) -> None:
    assert says in refusal(operation)


def test_chinese_rules_speak_of_a_verdict_in_chinese() -> None:
    assert "without a verdict" in refusal(ADD, language="zh")
    (kept,) = parse(answer({**ADD, "text": "不通过：x为y。"}), language="zh").operations
    assert kept.text == "不通过：x为y。"
    text = "不通过：左侧法兰松动并且有油滴落。"
    copied = {**ADD, "text": text}
    assert "copied" in refusal(copied, language="zh")
    (refused,) = parse(answer(copied), language="zh").refusals
    assert text in refused.raw, "which people can read as it was written"


def test_a_merge_may_keep_the_text_of_one_of_its_rules() -> None:
    assert len(parse(answer({**MERGE, "text": "Fail if c is d."})).operations) == 1


def test_a_rule_may_be_as_long_as_the_limit_says() -> None:
    text = "Fail if x is ".ljust(CONFIG.max_rule_chars, "y")
    assert len(parse(answer({**ADD, "text": text})).operations) == 1
    assert "text of 61 characters, at most 60" in refusal({**ADD, "text": f"{text}y"})


def test_of_labels_of_its_own_a_rule_is_added_again_to_decide_before_others() -> None:
    """No headline is turned there, either: it names none of two verdicts."""
    labels = ("low", "high", "none")
    rules = (GUIDANCE.rules[0], Rule("G1", "Say high if a is b."))
    guidance = replace(GUIDANCE, rules=rules, labels=labels)
    given = ReflectionInput(tuple(CASES), NOTHING), guidance, CONFIG
    words = name_labels(WORDS["en"], labels)
    again = {**ADD, "text": rules[1].text}
    proposal = parse_proposal(answer(again), *given, words, 0)
    assert [operation.op for operation in proposal.operations] == ["add"]
    update = {**UPDATE, "text": rules[1].text}
    assert "no change" in parse_proposal(answer(update), *given, words, 0).refusals[0].reason
    words = name_labels(WORDS["en"], labels[:2])
    headline = Rule("G0", words.headlines["low"])
    two = replace(GUIDANCE, rules=(headline,), labels=labels[:2])
    added = {**ADD, "text": "Low if x is y."}
    proposal = parse_proposal(answer(added), given[0], two, CONFIG, words, 0)
    assert [operation.op for operation in proposal.operations] == ["add"]


def test_evidence_named_twice_counts_once() -> None:
    (kept,) = parse(answer({**ADD, "evidence": ["T2", "T1", "T2"]})).operations
    assert kept.evidence == ("g1::fail", "g0::fail")


def test_the_headline_may_be_updated() -> None:
    assert len(parse(answer({**UPDATE, "key": "G0"})).operations) == 1


def test_of_two_operations_that_touch_one_rule_the_second_is_refused() -> None:
    for second in (REMOVE, MERGE, {**UPDATE, "key": "G3"}):
        proposal = parse(answer({**UPDATE, "key": "G3"}, second))
        assert len(proposal.operations) == 1
        assert "an earlier operation touches G3" in proposal.refusals[0].reason
    proposal = parse(answer(ADD, {**UPDATE, "text": ADD["text"]}))
    assert "an earlier operation writes that text" in proposal.refusals[0].reason


def test_operations_beyond_the_allowed_number_are_refused_one_by_one() -> None:
    proposal = parse(answer(ADD, REMOVE, UPDATE), replace(CONFIG, max_operations=1))
    assert [operation.op for operation in proposal.operations] == ["add"]
    assert [refused.reason for refused in proposal.refusals] == ["more operations than 1"] * 2


def test_a_bad_operation_does_not_take_the_good_ones_with_it() -> None:
    proposal = parse(answer("x", ADD, {**REMOVE, "key": "G9"}))
    assert ([operation.op for operation in proposal.operations], len(proposal.refusals)) == (
        ["add"],
        2,
    )


def test_rationales_become_one_short_line() -> None:
    (kept,) = parse(answer({**ADD, "rationale": "a\n b\u202e" + "c" * 500})).operations
    assert kept.rationale.startswith("a b ccc")
    assert len(kept.rationale) == 200
