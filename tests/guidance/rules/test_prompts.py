import re
from dataclasses import replace

import pytest
from bending import TEXTS
from guidance.made import LINE, VERDICT, guidances
from hypothesis import given
from hypothesis import strategies as st

from stageb.guidance.rules.conditions import (
    All,
    AtLeast,
    Expression,
    Limit,
    Mentions,
    Missing,
    OneOf,
    Order,
    Same,
)
from stageb.guidance.rules.evidence import NOTHING, Clue, Evidence, find_evidence
from stageb.guidance.rules.prompts import (
    WORDS,
    Case,
    ReflectionInput,
    clue_text,
    evidence_lines,
    ordered_cases,
    reflection_prompt,
    rollout_prompt,
    rule_lines,
)
from stageb.guidance.words.types import Guidance, Rule, Ticket, Verdict

LANGUAGES = st.sampled_from(list(WORDS))
SECRET = "group-7f3e"  # what every group is named by
GUIDANCE = Guidance(
    "m",
    2,
    (Rule("G0", "A ticket passes unless a rule fails it."), Rule("G3", "Fail if a is b.")),
    4,
)


@st.composite
def shown(draw: st.DrawFn) -> ReflectionInput:
    """Cases of one kind of error, of any text, and what is counted over them."""
    label: Verdict = draw(VERDICT)
    opposite: Verdict = "fail" if label == "pass" else "pass"
    cases = []
    for number in range(draw(st.integers(1, 8))):
        right = draw(st.booleans()) and number > 0
        texts = draw(
            st.lists(
                TEXTS | st.sampled_from(["a: b; c: d", "a: b; c: e", "leak", "漏油"]),
                min_size=1,
                max_size=2,
            )
        )
        images = tuple((f"image_{n}", text) for n, text in enumerate(texts, 1))
        reason = draw(st.sampled_from(["so (G3)", "", None]))
        cases.append(
            Case(
                Ticket("m", f"{SECRET}-{number}", opposite if right else label, images),
                right,
                reason,
            )
        )
    wrong, right_ = (
        [case.ticket for case in cases if case.right is side] for side in (False, True)
    )
    return ReflectionInput(
        tuple(ordered_cases(cases)),
        find_evidence(wrong, right_, 12),
        draw(st.sampled_from(["", "G3"])),
    )


@given(shown(), LANGUAGES)
def test_a_reflection_prompt_holds_each_clue_and_each_case_on_a_line_of_its_own(
    made: ReflectionInput, language: str
) -> None:
    user = reflection_prompt(made, GUIDANCE, WORDS[language], 1).user
    lines, words = user.split("\n"), WORDS[language]
    assert user.splitlines() == lines
    first = made.evidence.clues[0] if made.evidence.clues else None
    begin = 1 + len(GUIDANCE.rules)
    assert lines[:begin] == [words.mission.format(mission="m"), *rule_lines(GUIDANCE).split("\n")]
    if first:
        counted = [
            words.clue.format(
                place=place,
                wrong=clue.wrong,
                right=clue.right,
                text=clue_text(clue.conditions, WORDS[language]),
            )
            for place, clue in enumerate(made.evidence.clues, 1)
        ]
        start = lines.index(counted[0])
        assert lines[start : start + len(counted)] == counted
        assert all(lines.count(line) == counted.count(line) for line in counted)
        label = next(case.ticket.label for case in made.cases if not case.right)
        assert lines[start - 1] == words.counted[label].format(
            wrong=made.evidence.wrong, right=made.evidence.right
        )
        assert start - 1 < lines.index(next(line for line in lines if line.startswith("T1. ")))
    named = [line for line in lines[begin:] if re.match(r"T\d+\. ", line)]
    assert [line.partition(".")[0] for line in named] == [
        f"T{n}" for n in range(1, len(made.cases) + 1)
    ]


@given(shown(), LANGUAGES)
def test_neither_a_label_nor_a_group_leaks(made: ReflectionInput, language: str) -> None:
    """Cases stand under what they are, as headings say; beside that, other labels and groups make
    the same prompt."""
    prompt = reflection_prompt(made, GUIDANCE, WORDS[language], 1)
    assert SECRET not in prompt.user + prompt.system
    renamed = [
        replace(case, ticket=replace(case.ticket, group_id=f"g{n}"))
        for n, case in enumerate(made.cases)
    ]
    assert (
        reflection_prompt(replace(made, cases=tuple(renamed)), GUIDANCE, WORDS[language], 1)
        == prompt
    )
    ticket = made.cases[0].ticket
    asked = rollout_prompt(ticket, GUIDANCE, WORDS[language])
    other: Verdict = "fail" if ticket.label == "pass" else "pass"
    assert (
        rollout_prompt(replace(ticket, label=other, group_id="g"), GUIDANCE, WORDS[language])
        == asked
    )


@pytest.mark.parametrize("language", WORDS)
@pytest.mark.parametrize("rule", ["", "G3"])
def test_headings_say_what_cases_are_and_name_the_rule_to_mend(language: str, rule: str) -> None:
    made: list[Case] = []
    labels: tuple[Verdict, Verdict] = ("pass", "fail")
    for right in (True, False):
        made += [
            Case(Ticket("m", f"{right}", label, (("image_1", "x"),)), right, "so")
            for label in labels
        ]
    lines = reflection_prompt(
        ReflectionInput(tuple(made), NOTHING, rule), GUIDANCE, WORDS[language], 1
    ).user.split("\n")
    above = [lines[lines.index(line) - 1] for line in lines if re.match(r"T\d\. ", line)]
    by = {"en": " by G3", "zh": "由G3"}[language] if rule else ""
    wrong = f"Wrong or unsure{by}, should"
    wanted = {
        "en": [f"Right to pass{by}:", f"Right to fail{by}:", f"{wrong} pass:", f"{wrong} fail:"],
        "zh": [
            f"{by}判{text}："
            for text in ("通过，正确", "不通过，正确", "错或不确定，应通过", "错或不确定，应不通过")
        ],
    }
    assert above == wanted[language]


CONDITIONS: dict[str, tuple[Expression, str, str]] = {
    "is": (OneOf("a", ("v",)), "a is v", "a为v"),
    "among": (OneOf("a", ("v", "w")), "a is v or w", "a为v或w"),
    "above": (Limit("a", "above", "3"), "a is above 3", "a大于3"),
    "below": (Limit("a", "below", "3"), "a is below 3", "a小于3"),
    "missing": (Missing("a"), "a is missing", "a缺失"),
    "within": (
        All((Limit("a", "above", "3"), Limit("a", "below", "5"))),
        "a is above 3 and below 5",
        "a大于3且小于5",
    ),
    "mentions": (Mentions(("w",)), "a summary mentions w", "摘要提到w"),
    "equals": (Same("a", "b"), "a equals b", "a等于b"),
    "differs": (Same("a", "b", False), "a differs from b", "a不等于b"),
    "over": (Order("a", "above", "b"), "a is above b", "a大于b"),
    "under": (Order("a", "below", "b"), "a is below b", "a小于b"),
    "count": (
        AtLeast(2, (OneOf("a", ("v",)), Limit("b", "above", "3"), OneOf("c", ("w",)))),
        "at least 2 of (a is v; b is above 3; c is w)",
        "至少2项成立（a为v；b大于3；c为w）",
    ),
}


def test_conditions_read_as_rules_do() -> None:
    for condition, en, zh in CONDITIONS.values():
        assert (clue_text([condition], WORDS["en"]), clue_text([condition], WORDS["zh"])) == (
            en,
            zh,
        )
    three = [CONDITIONS[kind][0] for kind in ("is", "mentions", "equals")]
    assert clue_text(three, WORDS["en"]) == "a is v and a summary mentions w and a equals b"
    assert clue_text(three, WORDS["zh"]) == "a为v且摘要提到w且a等于b"


@given(LANGUAGES, VERDICT, st.lists(LINE, min_size=1, max_size=3), guidances())
def test_braces_in_texts_are_texts(
    language: str, label: Verdict, values: list[str], guidance: Guidance
) -> None:
    clues = tuple(Clue((OneOf("{wrong}", (f"{{text}}{value}",)),), 5, 1) for value in values)
    made = ReflectionInput(
        (Case(Ticket("m", "g", label, (("image_1", "{by} {0}"),)), False, "{reason}"),),
        Evidence(7, 3, clues),
        "",
    )
    lines = evidence_lines(made, WORDS[language])
    assert all("{wrong}" in line and "{text}" in line for line in lines[2:])
    assert len(lines) == 2 + len(clues)
    assert "{by} {0} => {reason}" in reflection_prompt(made, guidance, WORDS[language], 1).user


def test_without_errors_or_clues_nothing_is_counted() -> None:
    right = Case(Ticket("m", "g", "pass", (("image_1", "x"),)), True, None)
    wrong = replace(right, right=False)
    clue = Clue((OneOf("a", ("b",)),), 2, 0)
    assert evidence_lines(ReflectionInput((right,), Evidence(0, 1, (clue,))), WORDS["en"]) == []
    assert evidence_lines(ReflectionInput((wrong,), Evidence(1, 0, ())), WORDS["en"]) == []
    counted = ["", "Counted in 3 wrong that should pass, 1 right to fail:", "[1] 2 to 0: a is b"]
    assert (
        evidence_lines(ReflectionInput((wrong,), Evidence(3, 1, (clue,))), WORDS["en"]) == counted
    )
