"""Rules as code: which tickets an edit touches, and which tickets show a rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stageb.engines.config import ModelConfig
from stageb.guidance.config import PromptConfig
from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.conditions import OneOf, Points
from stageb.guidance.rules.demonstrations import BY_LABEL, BY_RULES, demonstrate
from stageb.guidance.rules.judge import (
    begin_rule,
    find_touched,
    keep_named,
    make_explainer,
    read_rules,
    write_rule,
)
from stageb.guidance.rules.parse import RuleCode, parse_rule
from stageb.guidance.rules.prompts import (
    WORDS,
    Case,
    Words,
    choose_grammar,
    demonstration_text,
    name_labels,
    rollout_prompt,
    words_of,
)
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.words.types import BACKGROUND, Guidance, Rule, Ticket, Verdict

EN = WORDS["en"]
TEXTS = (
    "state: torn; part: hose",
    "state: torn; part: seal",
    "state: new; part: hose",
    "part: hose",
    "a loose remark",
)
TICKETS = [Ticket("m", f"g{n}", "pass", (("image_1", text),)) for n, text in enumerate(TEXTS)]
TOUCHED_VOCABULARY = Vocabulary.of(TICKETS)
TORN, HOSE, BOTH = (
    "Fail if state is torn.",
    "Fail if part is hose.",
    "Fail if state is torn and part is hose.",
)


def guidance(*rules: str) -> Guidance:
    texts = (EN.neutral_headline, *rules)
    return Guidance(
        "m", 0, tuple(Rule(f"G{n}", text) for n, text in enumerate(texts) if text), len(texts)
    )


def touched(before: Guidance, after: Guidance) -> list[int]:
    is_touched = find_touched(before, after, TOUCHED_VOCABULARY, EN)
    return [n for n, ticket in enumerate(TICKETS) if is_touched(reading(ticket))]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([TORN], [TORN], []),
        # Where a ticket does not tell (3 and 4 name no state, 4 no part), a rule may hold.
        ([], [TORN], [0, 1, 3, 4]),
        ([TORN], [""], [0, 1, 3, 4]),  # removed
        ([HOSE], [HOSE, TORN], [0, 1, 3, 4]),  # what the other rule holds for is judged as before
        ([TORN], [BOTH], [0, 1, 3, 4]),  # before or after
        ([BOTH], [HOSE], [0, 2, 3, 4]),
        ([TORN, HOSE], [BOTH], [0, 1, 2, 3, 4]),
        ([], ["Fail unless part is hose."], [1, 4]),
        ([], ["Fail if it looks bad."], [0, 1, 2, 3, 4]),  # nobody knows
        ([TORN], ["", TORN], [0, 1, 3, 4]),  # reasons name it otherwise
    ],
)
def test_what_no_changed_rule_holds_for_before_or_after_is_not_touched(
    before: Sequence[str], after: Sequence[str], expected: Sequence[int]
) -> None:
    assert touched(guidance(*before), guidance(*after)) == list(expected)


@pytest.mark.parametrize("is_after", [False, True])
def test_what_a_model_reads_beside_the_rules_may_touch_every_ticket(is_after: bool) -> None:
    """The headline, and what is no rule but background."""
    plain, everyone = guidance(TORN), [*range(len(TICKETS))]
    background = Rule("G2", "Hoses age in the sun.", {"background": True})
    for other in (
        replace(plain, rules=(*plain.rules, background)),
        replace(plain, rules=(Rule("G0", EN.headlines["fail"]), *plain.rules[1:])),
    ):
        pair = (plain, other) if is_after else (other, plain)
        assert touched(*pair) == everyone
        assert touched(other, other) == []


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
@pytest.mark.parametrize("fails", [False, True])
def test_the_headline_says_what_happens_to_tickets_that_no_rule_speaks_of(
    words: Words, fails: bool
) -> None:
    said = Rule("G0", words.headlines["fail" if fails else "pass"])
    other = parse_rule("Fail if state is torn.", TOUCHED_VOCABULARY, EN)
    assert isinstance(other, RuleCode)
    rules = (
        said,
        Rule("G1", write_rule(replace(other, verdict="pass" if fails else "fail"), words)),
    )
    judge = read_rules(Guidance("m", 0, rules, 2), TOUCHED_VOCABULARY, words).compile()
    torn, *_, new = (judge(reading(ticket)) for ticket in TICKETS[:3])
    assert (torn.verdict, torn.rule) == ("pass" if fails else "fail", "G1")
    assert (new.verdict, new.rule) == ("fail" if fails else "pass", "G0")


SCARCE = (
    "Fail if it has 4 points or more: 3 if state is torn; 2 if part is hose; -1 if part is seal."
)
LOOSE = (
    "Busy if it has 1 points or more: 1 for each of loose, remark, hose that a summary mentions."
)
STATED = "Late if it has 2 points or more: 2 if state is torn; 1 if part is hose."


@pytest.mark.parametrize(
    ("rules", "labels", "reasons"),
    [
        (
            [SCARCE],
            ("pass", "fail"),
            [
                "5 points, fail from 4 on: 3 if state is torn; 2 if part is hose",
                "no rule speaks of it (2 points, fail from 4 on)",
                "no rule speaks of it (2 points, fail from 4 on)",
                "no rule speaks of it (2 points, fail from 4 on)",
                "no rule speaks of it (0 points, fail from 4 on)",
            ],
        ),
        (
            [LOOSE, STATED],
            ("calm", "Busy", "Late"),
            [
                "3 points, Late from 2 on: 2 if state is torn; 1 if part is hose",
                "2 points, Late from 2 on: 2 if state is torn",
                "1 point, Busy from 1 on: 1 if a summary mentions hose",
                "1 point, Busy from 1 on: 1 if a summary mentions hose",
                "2 points, Busy from 1 on: 1 for each of loose, remark that a summary mentions",
            ],
        ),
        (
            [TORN],
            ("pass", "fail"),
            [TORN, TORN, "no rule speaks of it", "G1: the ticket does not tell state"],
        ),
    ],
)
def test_a_card_says_what_a_ticket_has_points_for(
    rules: Sequence[str], labels: tuple[Verdict, ...], reasons: Sequence[str]
) -> None:
    headline = Rule("G0", name_labels(EN, labels).neutral_headline)
    own = replace(guidance(*rules), labels=labels, rules=(headline, *guidance(*rules).rules[1:]))
    coded = read_rules(own, TOUCHED_VOCABULARY, EN)
    judge, explain = coded.compile(), make_explainer(coded)
    told = [explain(judge(reading(ticket)), reading(ticket)) for ticket in TICKETS]
    assert told[: len(reasons)] == list(reasons)


def test_a_card_names_the_largest_points_alone() -> None:
    seen = "abcdefg"
    ticket = Ticket("m", "g", "fail", (("image_1", "; ".join(f"{name}: x" for name in seen)),))
    points = "; ".join(f"{n} if {name} is x" for n, name in enumerate(seen, 1))
    coded = read_rules(
        guidance(f"Fail if it has 9 points or more: {points}."), Vocabulary.of([ticket]), EN
    )
    why = make_explainer(coded)(coded.compile()(reading(ticket)), reading(ticket))
    assert why.startswith("28 points, fail from 9 on: 7 if g is x; 6 if f is x; ") and why.endswith(
        "; 3 for 2 more"
    )


@given(
    st.lists(st.integers(-5, 5).filter(bool), min_size=2, max_size=5), st.integers(-3, 6), st.data()
)
def test_a_card_says_what_a_ticket_has_points_for_in_the_language_of_its_rules(
    points: list[int], least: int, data: st.DataObject
) -> None:
    parts = [OneOf(f"f{n}", ("x",)) for n in range(len(points))]
    code, held = (
        RuleCode("fail", Points(least, tuple(zip(points, parts, strict=True)))),
        [data.draw(st.booleans()) for _ in points],
    )
    ticket = Ticket(
        "m",
        "g",
        "fail",
        (("image_1", "; ".join(f"f{n}: {'x' if each else 'y'}" for n, each in enumerate(held))),),
    )
    every = Ticket(
        "m", "h", "fail", (("image_1", "; ".join(f"f{n}: x" for n in range(len(points)))),)
    )
    known, total = (
        Vocabulary.of([ticket, every]),
        sum(each for each, is_held in zip(points, held, strict=True) if is_held),
    )
    for language, words in WORDS.items():
        rules = (Rule("G0", words.neutral_headline), Rule("G1", write_rule(code, words)))
        coded = read_rules(Guidance("m", 1, rules, 2), known, words)
        why = make_explainer(coded)(coded.compile()(reading(ticket)), reading(ticket))
        shown, limit = (each + max(0, -least) for each in (total, least))  # none asks for less
        tally = {
            "en": f"{shown} point{'s' * (shown != 1)}, fail from {limit} on",
            "zh": f"{shown}分，{limit}分起不通过",
        }[language]
        if total < least:
            assert (
                why
                == {"en": f"no rule speaks of it ({tally})", "zh": f"没有规则涉及（{tally}）"}[
                    language
                ]
            )
        elif any(held):  # as the rule says it, of these parts alone
            said = why.removeprefix(tally + {"en": ": ", "zh": "："}[language])
            opening, end = begin_rule("fail", words)
            read = parse_rule(
                f"{opening}{choose_grammar(words).points.format(least=shown, s='s' * (shown != 1))}{said}{end}",
                known,
                words,
            )
            assert isinstance(read, RuleCode) and isinstance(read.expression, Points)
            assert sorted(part.fields for _, part in read.expression.scored) == sorted(
                part.fields for part, is_held in zip(parts, held, strict=True) if is_held
            )
            assert read.expression.least == sum(each for each, _ in read.expression.scored) == total


@pytest.mark.parametrize(
    ("said", "written"),
    [
        (
            "-3 points or more: 2 if state is torn",
            "0 points or more: 3 to begin with; 2 if state is torn",
        ),
        (
            "3 points or more: 5 to begin with; -1 if state is torn",
            "0 points or more: 2 to begin with; -1 if state is torn",
        ),
        (
            "3 points or more: 3 to begin with; -1 if state is torn",
            "0 points or more: -1 if state is torn",
        ),
        ("3 points or more: -1 if state is torn; 3 to begin with", ""),
        ("3 points or more: 3 to begin with", ""),
    ],
)
def test_no_card_asks_for_fewer_points_than_0(said: str, written: str) -> None:
    read = parse_rule(f"Fail if it has {said}.", TOUCHED_VOCABULARY, EN)
    assert isinstance(read, RuleCode) == bool(written)
    if isinstance(read, RuleCode):
        again = write_rule(read, EN)
        assert again == f"Fail if it has {written}."
        assert parse_rule(again, TOUCHED_VOCABULARY, EN) == read


@pytest.mark.parametrize(
    ("language", "untold"), [("en", "the ticket does not tell state"), ("zh", "工单未说明state")]
)
def test_what_a_ticket_lacks_is_told_in_the_language_of_the_rules(
    language: str, untold: str
) -> None:
    words, code = WORDS[language], parse_rule(TORN, TOUCHED_VOCABULARY, EN)
    assert isinstance(code, RuleCode)
    rules = (Rule("G0", words.neutral_headline), Rule("G1", write_rule(code, words)))
    coded = read_rules(Guidance("m", 1, rules, 2), TOUCHED_VOCABULARY, words)
    assert (
        make_explainer(coded)(coded.compile()(reading(TICKETS[3])), reading(TICKETS[3]))
        == f"G1: {untold}"
    )


def test_numbers_of_two_units_are_told_as_what_cannot_be_compared() -> None:
    texts = ("gap: 3 mm; width: 2 mm", "gap: 3 mm; width: 2 kg")
    tickets = [Ticket("m", text, "pass", (("image_1", text),)) for text in texts]
    rules = read_rules(guidance("Fail if gap is above width."), Vocabulary.of(tickets), EN)
    other_units = reading(tickets[1])
    assert (
        make_explainer(rules)(rules.compile()(other_units), other_units)
        == "G1: no number that it can compare in gap, width"
    )


def test_a_headline_that_is_background_decides_nothing() -> None:
    headline = Rule("G0", "Look at seals and hoses.", {BACKGROUND: True})
    rules = replace(guidance(TORN), rules=(headline, *guidance(TORN).rules[1:]))
    judge = read_rules(rules, TOUCHED_VOCABULARY, EN).compile()
    assert [judge(reading(ticket)).verdict for ticket in TICKETS[:3]] == ["fail", "fail", "pass"]


def test_what_rules_name_is_kept_beside_a_rule_that_code_cannot_read() -> None:
    kept = keep_named(guidance("Fail if it looks odd.", TORN), TOUCHED_VOCABULARY, EN)
    assert ("state", "torn") in kept.named
    coded = read_rules(kept, Vocabulary.of([]), EN, is_whole=False)
    assert [isinstance(rule.code, RuleCode) for rule in coded.each] == [False, True]


def test_another_headline_may_touch_every_ticket() -> None:
    rules = (Rule("G0", "Be strict."), *guidance(TORN).rules[1:])
    assert touched(guidance(TORN), Guidance("m", 1, rules, 2)) == [0, 1, 2, 3, 4]


INSTRUCT = words_of(PromptConfig(), ModelConfig(model_name_or_path="another"))
HEADLINE = Rule("G0", INSTRUCT.neutral_headline)
LEAK, CRACK = (
    Rule("G1", "Fail if a summary mentions leak."),
    Rule("G2", "Fail if a summary mentions crack."),
)


def case(number: int, label: Verdict, text: str, right: bool = True) -> Case:
    return Case(Ticket("m", f"g{number}", label, (("image_1", text),)), right, None)


CASES = [
    case(1, "fail", "a leak at the hose"),
    case(2, "fail", "one more leak", right=False),
    case(3, "pass", "a leak, mended"),
    case(4, "fail", "a crack in the glass"),
    case(5, "pass", "swap the oil"),
    case(6, "pass", "clean the filter"),
    case(7, "fail", "burnt out"),
]
VOCABULARY = Vocabulary.of(each.ticket for each in CASES)


def shown(
    rules: tuple[Rule, ...],
    cases: list[Case] = CASES,
    room: int = 1000,
    before: Guidance | None = None,
) -> Guidance:
    guidance = replace(before, rules=rules) if before else Guidance("m", 1, rules, 9)
    return demonstrate(guidance, cases, VOCABULARY, INSTRUCT, lambda text: len(text.split()), room)


def test_a_card_is_shown_by_what_a_ticket_has_points_for_so_that_the_room_holds_some() -> None:
    others = "1 if a summary mentions oil; " * 40
    text = (
        f"Fail if it has 2 points or more: 2 if a summary mentions leak; {others}2 if a "
        f"summary mentions crack."
    )
    card = Rule("G1", text)
    found = shown((HEADLINE, card), room=120).demonstrations
    texts = [demonstration_text(each, INSTRUCT) for each in found if each.rule == "G1"]
    assert len(texts) == 3 and all(text.endswith(" (G1)") and "oil" not in text for text in texts)
    assert "2 if a summary mentions crack (G1)" in "".join(texts)
    changed = (HEADLINE, replace(card, text=card.text.replace("2 points", "1 points")))
    assert not [
        each
        for each in replace(shown((HEADLINE, card), room=120), rules=changed).shown
        if each.rule == "G1"
    ]


def test_where_room_is_short_each_rule_shows_some() -> None:
    texts = ("a leak", "a crack", "clean")
    many = [case(n, "pass" if n % 3 == 2 else "fail", f"{texts[n % 3]}, {n}") for n in range(90)]
    few, most = (
        Counter(
            each.rule for each in shown((HEADLINE, LEAK, CRACK), many, room=room).demonstrations
        )
        for room in (150, 9999)
    )
    assert (
        few.total() < 12
        and abs(few["G1"] - few["G2"]) <= 1
        and abs(few["G0"] - few["G1"] - few["G2"]) <= 2
    )
    assert most["G1"] == most["G2"] == BY_RULES / 2


def test_each_rule_shows_a_ticket_that_it_judges_rightly_the_wrong_ones_first() -> None:
    found = {
        each.rule: each
        for each in reversed(shown((HEADLINE, LEAK, CRACK)).demonstrations)
        if each.rule != "G0"
    }
    assert found["G1"].source == "g2::fail"  # judged wrong; g3, of the other label, is never shown
    assert found["G2"].source == "g4::fail"


def test_where_no_rule_holds_passes_are_shown_and_no_fail_that_no_rule_explains() -> None:
    others = [each.source for each in shown((HEADLINE, LEAK)).demonstrations if each.rule == "G0"]
    assert others == ["g5::pass", "g6::pass"]


def test_without_rules_as_many_of_each_label_are_shown_in_turn() -> None:
    many = [case(n, "fail" if n % 2 else "pass", f"text {n}") for n in range(100)]
    found = shown((HEADLINE,), many).demonstrations
    assert [each.verdict for each in found] == ["fail", "pass"] * (BY_LABEL // 2)
    assert all(not each.rule for each in found)


def test_a_rule_that_goes_takes_its_demonstration_with_it() -> None:
    before = shown((HEADLINE, LEAK, CRACK))
    assert {each.rule for each in replace(before, rules=(HEADLINE, LEAK)).shown} == {"G0", "G1"}
    changed = Rule("G2", "Fail if a summary mentions burnt.")
    after = shown((HEADLINE, LEAK, changed), before=before)
    assert [each.source for each in after.shown if each.rule == "G2"] == ["g7::fail"]


def test_what_only_tells_a_label_makes_room_for_rules() -> None:
    many = [case(n, "fail" if n % 2 else "pass", f"text {n}") for n in range(100)]
    first = shown((HEADLINE,), many)
    after = shown((HEADLINE, LEAK, CRACK), before=first)
    assert {"G1", "G2"} <= {each.rule for each in after.demonstrations}
    assert len(after.demonstrations) == BY_LABEL


@pytest.mark.parametrize("room", [0, 30, 60])
def test_room_is_kept_to(room: int) -> None:
    found = shown((HEADLINE, LEAK, CRACK), room=room)
    prompt = rollout_prompt(CASES[0].ticket, found, INSTRUCT)
    bare = rollout_prompt(CASES[0].ticket, replace(found, demonstrations=()), INSTRUCT)
    assert len(prompt.system.split()) - len(bare.system.split()) <= room + 1  # the heading


def test_demonstrations_stand_before_the_ticket_in_what_all_tickets_share() -> None:
    prompt = rollout_prompt(CASES[0].ticket, shown((HEADLINE, LEAK)), INSTRUCT)
    assert prompt.system.endswith("Verdict: pass\nReason: no other rule's condition is true (G0)")
    assert (
        "one more leak\nVerdict: fail\nReason: Fail if a summary mentions leak (G1)"
        in prompt.system
    )
    assert prompt.user == "Ticket:\nimage_1: a leak at the hose"
