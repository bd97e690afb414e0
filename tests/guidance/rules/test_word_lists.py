"""Word lists: lines of guidance that name words, by which rules speak of them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import pytest
from guidance.rules.made_rules import judge_by_python
from hypothesis import given
from hypothesis import strategies as st

from stageb.guidance.exports.protocol import CodedMission
from stageb.guidance.judging.coded import Coder
from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.conditions import Expression, OutOfReach
from stageb.guidance.rules.judge import (
    find_touched,
    keep_named,
    make_explainer,
    read_rules,
    write_rule,
)
from stageb.guidance.rules.parse import RuleCode
from stageb.guidance.rules.prompts import WORDS, Words, choose_grammar, rule_lines
from stageb.guidance.rules.value_types import begins_cjk, has_phrase
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.rules.word_lists import (
    FIRST,
    WordList,
    find_deciding,
    find_word_lists,
    read_word_list,
    shorten_list,
    write_word_list,
)
from stageb.guidance.rules.wordings import CHINESE, ENGLISH, Grammar
from stageb.guidance.words.types import Content, Guidance, Rule, Ticket

EN, ZH = WORDS["en"], WORDS["zh"]
NOTES = (
    "act now, prize inside",
    "the prize was late",
    "asap please",
    "nothing to see",
    "prize asap now",
    "",
)
TICKETS = [Ticket("m", f"g{n}", "pass", (("image_1", note),)) for n, note in enumerate(NOTES)]
VOCABULARY = Vocabulary.of(TICKETS)
HURRY = '"hurry" words: act now, asap, now'
CARD = (
    'Fail if it has 2 points or more: 2 for each "hurry" word that a summary mentions; -1 if '
    "a summary mentions prize."
)


def guide(*texts: str) -> Guidance:
    rules = [EN.neutral_headline, *texts]
    return Guidance("m", 1, tuple(Rule(f"G{n}", text) for n, text in enumerate(rules)), len(rules))


def judge(guidance: Guidance) -> list[tuple[str | None, str]]:
    rules = read_rules(guidance, VOCABULARY, EN).compile()
    return [
        (ruling.verdict, ruling.rule) for ruling in (rules(reading(ticket)) for ticket in TICKETS)
    ]


def code_of(guidance: Guidance) -> Expression:
    (rule,) = read_rules(guidance, VOCABULARY, EN).each
    assert isinstance(rule.code, RuleCode), rule.code
    return rule.code.expression


@pytest.mark.parametrize(
    ("by_list", "by_words"),
    [
        (
            'Fail if a summary mentions a "hurry" word.',
            "Fail if a summary mentions act now, asap or now.",
        ),
        (
            'Pass unless a summary mentions a "hurry" word.',
            "Pass unless a summary mentions act now, asap or now.",
        ),
        (
            'Fail if a summary does not mention a "hurry" word and a summary mentions prize.',
            "Fail if a summary does not mention act now, asap or now and a summary mentions prize.",
        ),
        (
            CARD,
            "Fail if it has 2 points or more: 2 for each of act now, asap, now that a summary "
            "mentions; -1 if a summary mentions prize.",
        ),
        (
            'Fail if at least 2 of (a summary mentions a "hurry" word; a summary mentions prize).',
            "Fail if at least 2 of (a summary mentions act now, asap or now; a summary mentions "
            "prize).",
        ),
    ],
)
def test_a_rule_that_names_a_list_says_what_one_does_that_names_its_words(
    by_list: str, by_words: str
) -> None:
    guidance = guide(HURRY, by_list)
    as_it_learns = Coder(TICKETS, EN).rule_on(guidance, TICKETS)
    assert [(each.verdict, each.rule) for each in as_it_learns] == judge(guidance)
    named = [("G2" if rule == "G1" else rule) for _, rule in judge(guide(by_words))]
    assert judge(guidance) == [
        (verdict, rule) for (verdict, _), rule in zip(judge(guide(by_words)), named, strict=True)
    ]
    assert write_rule(
        RuleCode("pass" if by_list.startswith("Pass") else "fail", code_of(guidance)), EN
    ) == by_list.replace("Pass unless a summary mentions", "Pass if a summary does not mention")
    assert [rule.key for rule in find_deciding(guidance.rules)] == ["G2"]
    assert f"G1. {HURRY}" in rule_lines(guidance)  # the model reads it once


NAMED = {
    'a "hurry" word': "act now, asap or now",
    'a "worth" word': "prize or inside",
    "late": "late",
    "please or see": "please or see",
}
PARTS = st.tuples(st.sampled_from(["a summary", "Note"]), st.booleans(), st.sampled_from([*NAMED]))


@given(
    st.sampled_from(["Fail if", "Fail unless", "Pass if", "Pass unless"]),
    st.sampled_from([" or ", " and "]),
    st.lists(PARTS, min_size=2, max_size=4, unique_by=lambda part: (part[0], part[2])),
)
def test_lists_and_words_beside_each_other_are_all_named_where_the_rule_is_written_again(
    begin: str, joint: str, parts: list[tuple[str, bool, str]]
) -> None:
    tickets = [
        Ticket("m", f"g{n}", "pass", (("image_1", one),), content=Content((("Note", two),), (one,)))
        for n, (one, two) in enumerate(product(NOTES[:4], NOTES[1:5]))
    ]
    known = Vocabulary.of(tickets)

    def write(named: Mapping[str, str]) -> str:
        said = [
            f"{subject} {'does not mention' if is_denied else 'mentions'} {named[what]}"
            for subject, is_denied, what in parts
        ]
        return f"{begin} {joint.join(said)}."

    def judge_by(text: str) -> tuple[list[str | None], RuleCode]:
        rules = read_rules(guide(HURRY, '"worth" words: prize, inside', text), known, EN)
        (rule,) = rules.each
        assert isinstance(rule.code, RuleCode), rule.code
        judge = rules.compile()
        return [judge(reading(each)).verdict for each in tickets], rule.code

    text = write({what: what for what in NAMED})
    verdicts, code = judge_by(text)
    assert verdicts == judge_by(write(NAMED))[0]
    again = write_rule(code, EN)
    assert judge_by(again)[0] == verdicts, again
    for name in ('"hurry"', '"worth"'):
        assert again.count(name) == text.count(name), again


@given(
    st.from_regex(r"[a-zA-Z][a-zA-Z ]{0,46}[a-zA-Z]", fullmatch=True),
    st.lists(
        st.sampled_from(["leak", "leak*", "oil leak", "not", "裂纹", "3rd", "don't"]),
        min_size=1,
        max_size=5,
        unique=True,
    ),
    st.sampled_from([ENGLISH, CHINESE]),
)
def test_a_list_is_read_as_it_is_written(name: str, words: list[str], grammar: Grammar) -> None:
    """With the full stop of its language, too."""
    of = WordList(name, tuple(words))
    written = write_word_list(of, grammar)
    assert read_word_list(written) == read_word_list(written + grammar.end) == of


@pytest.mark.parametrize(
    "text",
    ["“漏”类词：漏水、渗漏、滴水", "“漏”类词：漏水，渗漏，滴水。", "“漏”类词：漏水, 渗漏、滴水"],
)
def test_a_list_of_chinese_words_may_have_any_comma(text: str) -> None:
    assert read_word_list(text) == WordList("漏", ("漏水", "渗漏", "滴水"))


@pytest.mark.parametrize(
    "text",
    ["Fail if seal is worn.", '"a" words: ', '"a" words: x y z u', "“” words: leak", '"a: leak"'],
)
def test_what_names_no_words_is_no_list(text: str) -> None:
    assert read_word_list(text) is None


def test_a_name_that_two_lists_have_stands_for_none() -> None:
    guidance = guide(HURRY, '"hurry" words: swift', 'Fail if a summary mentions a "hurry" word.')
    assert find_word_lists(guidance.rules) == {}
    (rule,) = read_rules(guidance, VOCABULARY, EN).each
    assert isinstance(rule.code, OutOfReach) and "no word list is called 'hurry'" in rule.code.why
    same = guide(HURRY, HURRY, 'Fail if a summary mentions a "hurry" word.')
    assert judge(same)[0] == ("fail", "G3")


@given(
    st.lists(st.sampled_from(["leak", "oil", "asap", "裂纹", "松动"]), min_size=2, max_size=3),
    st.sampled_from([" ", "; ", " / ", ". ", "；", "  ", ": "]),
    st.sampled_from([ENGLISH, CHINESE]),
)
def test_what_is_read_as_a_phrase_can_be_mentioned(
    words: list[str], between: str, grammar: Grammar
) -> None:
    """Or else a list whose words stand between other marks would hold for no ticket, and nobody
    would be told."""
    text = between.join(words)
    found = read_word_list(write_word_list(WordList("a", (text,)), grammar))
    is_phrase = between == " " and not any(map(begins_cjk, words))
    assert (found is not None) == is_phrase
    assert has_phrase(f"an {text} here", text) == is_phrase


@pytest.mark.parametrize("end", ["", "。"])
def test_chinese_lists(end: str) -> None:
    tickets = [Ticket("m", note, "pass", (("image_1", note),)) for note in ("表面有裂纹", "牢固")]
    rules = (
        Rule("G0", ZH.neutral_headline),
        Rule("G1", f"“损坏”类词：裂纹、松动{end}"),
        Rule("G2", "不通过：若摘要提到“损坏”类词。"),
    )
    compiled = read_rules(Guidance("m", 1, rules, 3), Vocabulary.of(tickets), ZH).compile()
    assert [compiled(reading(ticket)).verdict for ticket in tickets] == ["fail", "pass"]


def test_other_words_touch_the_tickets_that_mention_them() -> None:
    rule = 'Fail if a summary mentions a "hurry" word.'
    before, after = guide(HURRY, rule), guide('"hurry" words: act now, now', rule)
    is_touched = find_touched(before, after, VOCABULARY, EN)
    assert [is_touched(reading(ticket)) for ticket in TICKETS] == [
        True,
        False,
        True,
        False,
        True,
        False,
    ]
    assert not any(map(find_touched(before, before, VOCABULARY, EN), map(reading, TICKETS)))


def test_a_ticket_is_told_the_words_that_it_has_points_for() -> None:
    rules = read_rules(guide(HURRY, CARD), VOCABULARY, EN)
    told = make_explainer(rules)(rules.compile()(reading(TICKETS[4])), reading(TICKETS[4]))
    assert "2 for each of asap, now that a summary mentions" in told and "hurry" not in told


def test_exported_python_judges_lists_without_the_tickets_that_taught_them() -> None:
    guidance = keep_named(guide(HURRY, CARD), VOCABULARY, EN)
    exported = judge_by_python(
        [CodedMission("m", 1, read_rules(guidance, Vocabulary.of([]), EN, is_whole=False))]
    )
    rows = [{"mission": "m", "text": note} for note in NOTES if note]
    assert [exported(row)[0] for row in rows] == [verdict for verdict, _ in judge(guidance)][
        : len(rows)
    ]


@pytest.mark.parametrize("words", [EN, ZH])
@given(count=st.integers(2, 40))
def test_a_line_of_progress_shows_the_first_words_of_a_long_list_and_their_number(
    words: Words, count: int
) -> None:
    listed = tuple(f"word{n}" for n in range(count))
    grammar = choose_grammar(words)
    text = write_word_list(WordList("prize", listed), grammar)
    first = write_word_list(WordList("prize", listed[:FIRST]), grammar)
    assert shorten_list(text) == (text if count <= FIRST else f"{first} ... ({count})")
    rule = "Fail if a summary mentions a, b, c, d, e, f, g, h, i, j, k, l, m, n or o."
    assert shorten_list(rule) == rule
