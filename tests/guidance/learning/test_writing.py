"""What is learnt is written in the fewest and plainest rules that say the same."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stageb.guidance.learning.material import DecisionList, Material, RuleSet, find_wrong
from stageb.guidance.learning.scorecards import Scorecard
from stageb.guidance.learning.terms import Conjunction, find_gaps, find_terms
from stageb.guidance.learning.writing import join_codes, write_rule_set
from stageb.guidance.rules.candidates import SearchSpace, reading
from stageb.guidance.rules.conditions import (
    All,
    AtLeast,
    Expression,
    Limit,
    Mentions,
    Not,
    OneOf,
    Some,
    compile_expression,
)
from stageb.guidance.rules.judge import read_rules, write_rule
from stageb.guidance.rules.parse import RuleCode, parse_rule
from stageb.guidance.rules.prompts import WORDS, name_labels
from stageb.guidance.rules.value_types import read_summaries
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.rules.word_lists import WordList, read_word_list
from stageb.guidance.words.types import Content, Guidance, Rule, Ticket

LEAKS = ["seep", "drip", "puddle", "spill"]
TEXTS = ("leak", "leaking", "leaked oil", "oil", "open", "not open", "worn", "door open")
ATOMS: st.SearchStrategy[Expression] = st.one_of(
    st.builds(
        lambda name, value: OneOf(name, (value,)), st.sampled_from("ab"), st.sampled_from("xyz")
    ),
    st.builds(
        lambda word: Mentions((word,)),
        st.sampled_from(("leak*", "leak", "lea*", "oil", "not open", "open")),
    ),
)
PARTS = st.lists(ATOMS, min_size=1, max_size=2, unique=True)
CODES = st.lists(
    PARTS.map(lambda parts: parts[0] if len(parts) == 1 else All(tuple(parts))),
    min_size=1,
    max_size=6,
)
SUMMARIES = st.builds(
    lambda pairs, texts: "; ".join(
        [*(f"{name}: {value}" for name, value in pairs.items()), *texts]
    ),
    st.dictionaries(st.sampled_from("ab"), st.sampled_from("xyz"), max_size=2),
    st.lists(st.sampled_from(TEXTS), max_size=2),
)


@given(CODES, st.lists(SUMMARIES, min_size=1, max_size=8))
def test_joined_rules_say_the_same(codes: list[Expression], summaries: list[str]) -> None:
    joined = [expression for expression, _ in join_codes([(each, ()) for each in codes])]
    assert len(joined) <= len(codes)
    before, after = (compile_expression(Some(tuple(some))) for some in (codes, joined))
    for summary in summaries:
        ticket = read_summaries((summary,))
        assert before(ticket) == after(ticket), (summary, joined)


def test_words_that_tell_the_same_verdict_are_one_list_without_those_implied() -> None:
    words = ("blow*", "blow", "com*", "not open", "open")
    codes: Any = [(Mentions((word,)), ()) for word in words]
    assert [expression for expression, _ in join_codes(codes)] == [
        Mentions(("blow*", "com*", "open"))
    ]
    codes = [(All((OneOf("a", ("x",)), OneOf("b", (value,)))), ()) for value in "xyz"]
    assert [expression for expression, _ in join_codes(codes)] == [
        All((OneOf("a", ("x",)), OneOf("b", ("x", "y", "z"))))
    ]


LIMITS = st.builds(
    Limit, st.sampled_from("ab"), st.sampled_from(["above", "below"]), st.sampled_from("1379")
)


@given(st.sampled_from("137"), st.sampled_from(["above", "below"]), st.booleans())
def test_a_limit_takes_in_the_value_at_which_it_stands(
    value: str, side: Any, is_first: bool
) -> None:
    some: list[Expression] = [OneOf("a", (value,)), Limit("a", side, value)]
    ((joined, _),) = join_codes([(each, ()) for each in (some if is_first else some[::-1])])
    known = Vocabulary.of([Ticket("m", "g", "pass", (("image_1", f"a: {value}"),))])
    text = write_rule(RuleCode("fail", joined), WORDS["en"])
    assert text == f"Fail if a is at {'least' if side == 'above' else 'most'} {value}."
    assert parse_rule(text, known, WORDS["en"]) == RuleCode("fail", joined)
    before, after = compile_expression(Some(tuple(some))), compile_expression(joined)
    assert all(
        before(each) == after(each) for each in (read_summaries((f"a: {n}",)) for n in range(10))
    )


@given(
    st.lists(
        LIMITS | st.just(OneOf("c", ("x",))),
        min_size=2,
        max_size=5,
        unique_by=lambda each: each.key[:2],
    )
)
def test_limits_of_a_field_stand_together_from_below_upwards(line: list[Expression]) -> None:
    rows = [{"a": str(a), "b": str(b), "c": "x"} for a in range(0, 10, 2) for b in range(0, 10, 2)]
    tickets = [
        Ticket("m", f"g{n}", "pass", (), content=Content(tuple(row.items()), ()))
        for n, row in enumerate(rows)
    ]
    known, words = Vocabulary.of(tickets), WORDS["en"]
    (rule,) = write_rule_set(RuleSet((DecisionList("fail", (tuple(line),)),), "pass"), known, words)
    assert all(rule.text.count(f"{name} is") <= 1 for name in "abc")
    code = parse_rule(rule.text, known, words)
    assert isinstance(code, RuleCode)
    holds, meant = compile_expression(code.expression), compile_expression(All(tuple(line)))
    assert all(holds(reading(each)) == meant(reading(each)) for each in tickets)


LABELS = ("no", "one", "two")  # the first of tickets that no rule speaks of
OF_TWO = [OneOf(name, (value,)) for name in "ab" for value in "xy"]
OF_THREE = AtLeast(2, (OneOf("a", ("x",)), OneOf("b", ("x",)), OneOf("c", ("x",))))
LABELLED = [
    Ticket("m", f"g{n}", label, (), content=Content(tuple(pairs.items()), ()))
    for n, (*cells, label) in enumerate(product(*[("x", "y", "")] * 3, LABELS))
    if (pairs := {name: value for name, value in zip("abc", cells, strict=True) if value})
]
DENIED = Not(OneOf("b", ("x",)))
LINES = st.lists(
    st.sampled_from([*OF_TWO, OF_THREE, DENIED]), min_size=1, max_size=2, unique=True
).map(tuple)


@given(
    st.lists(st.lists(LINES, min_size=1, max_size=2), min_size=1, max_size=2),
    st.integers(0, (1 << len(LABELLED)) - 1),
)
def test_what_is_learnt_is_wrong_where_the_written_rules_are(
    lines: list[list[Conjunction]], held: int
) -> None:
    """Where fields are missing, too: a ticket that a list may still decide has no verdict by those
    behind it, and one that a list before decides has its own. Those that fixed rules hold are right
    or wrong whatever is learnt."""
    lists = tuple(
        DecisionList(label, tuple(some)) for label, some in zip(("one", "two"), lines, strict=False)
    )
    rule_set, known, words = (
        RuleSet(lists, "no"),
        Vocabulary.of(LABELLED),
        name_labels(WORDS["en"], LABELS),
    )
    rules = [
        Rule(f"G{n}", each.text) for n, each in enumerate(write_rule_set(rule_set, known, words), 1)
    ]
    guidance = Guidance("m", 1, tuple(rules), 9, labels=LABELS)
    judge = read_rules(guidance, known, words).compile()
    readings = [reading(each) for each in LABELLED]
    masks = find_terms(readings, SearchSpace(wide=False))
    material = Material(
        masks.plus({DENIED: masks[OneOf("b", ("y",))]}),  # where b is given
        find_gaps(masks, readings),
        {
            label: sum(1 << n for n, each in enumerate(LABELLED) if each.label == label)
            for label in LABELS
        },
        0,
        frozenset(),
        {},
        held=held,
    )
    wrong = find_wrong(rule_set, material, (1 << len(LABELLED)) - 1)
    assert [bool(wrong >> n & 1) for n in range(len(LABELLED))] == [
        not held >> n & 1 and judge(each).verdict != ticket.label
        for n, (each, ticket) in enumerate(zip(readings, LABELLED, strict=True))
    ]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_many_words_of_a_rule_are_a_list_that_has_a_name(language: str) -> None:
    tickets = [
        Ticket("m", f"g{n}", "pass", (("image_1", f"{word} here; a: x"),))
        for n, word in enumerate(LEAKS)
    ]
    known, words = Vocabulary.of(tickets), WORDS[language]
    for some in (LEAKS, LEAKS[:3]):
        lines = tuple((Mentions((word,)), OneOf("a", ("x",))) for word in some)
        rule_set = RuleSet((DecisionList("fail", lines),), "pass")
        *lists, rule = write_rule_set(rule_set, known, words)
        assert [read_word_list(each.text) for each in lists] == [
            WordList("drip", tuple(sorted(some)))
        ][: len(some) > 3]
        assert rule.lines == rule_set.lines and all(each.lines == rule_set.lines for each in lists)
        judge = read_rules(
            Guidance(
                "m",
                1,
                tuple(Rule(f"G{n}", each.text) for n, each in enumerate([*lists, rule], 1)),
                9,
            ),
            known,
            words,
        ).compile()
        judged = [judge(reading(each)).verdict for each in tickets]
        assert judged == ["fail" if word in some else "pass" for word in LEAKS]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["fail", "pass"]),
            st.lists(st.sampled_from([*LEAKS, "rust"]), min_size=4, unique=True),
        ),
        min_size=2,
        max_size=3,
    )
)
def test_lists_of_the_same_words_have_names_of_their_own(found: list[tuple[str, Any]]) -> None:
    """So that each rule is read back with the words that are meant."""
    telling = [(name, *each) for name, each in zip("abc", found, strict=False)]
    parts = tuple(
        DecisionList(
            verdict,
            tuple(
                (Mentions((word,)), OneOf(name, ("x",)))
                for name, each, some in telling
                if each == verdict
                for word in some
            ),
        )
        for verdict in ("fail", "pass")
    )
    pairs = [(name, word) for name, _, _ in telling for word in (*LEAKS, "rust")]
    told = [f"a: y; b: y; c: y; {word}".replace(f"{name}: y", f"{name}: x") for name, word in pairs]
    tickets = [Ticket("m", f"g{n}", "pass", (("image_1", each),)) for n, each in enumerate(told)]
    known, words = Vocabulary.of(tickets), WORDS["en"]
    texts = [each.text for each in write_rule_set(RuleSet(parts, "pass"), known, words)]
    lists = [each for text in texts if (each := read_word_list(text))]
    assert len({each.name for each in lists}) == len(found) == len(texts) / 2
    rules = tuple(Rule(f"G{n}", text) for n, text in enumerate([words.neutral_headline, *texts]))
    judge = read_rules(Guidance("m", 1, rules, 9), known, words).compile()
    meant = {(name, word): verdict for name, verdict, some in telling for word in some}
    judged = [judge(reading(each)).verdict for each in tickets]
    assert judged == [meant.get(pair, "pass") for pair in pairs]


@pytest.mark.parametrize(
    ("telling", "name"),
    [
        (("39", "un", "after", "strike", "talks"), "strike"),
        (("2024", "b52", "after", "strike"), "strike"),
        (("39", "un"), "39"),
        (("漏水", "松动"), "漏水"),
    ],
)
def test_a_list_is_named_by_the_surest_word_that_says_something(
    telling: Sequence[str], name: str
) -> None:
    lines = [(Mentions((word,)),) for word in telling]
    rule_set = RuleSet((Scorecard("fail", dict.fromkeys(lines, 1), 1, (lines,)),), "pass")
    tickets = [Ticket("m", "g", "pass", (("image_1", " ".join(telling)),))]
    named, _ = write_rule_set(rule_set, Vocabulary.of(tickets), WORDS["en"])
    assert read_word_list(named.text) == WordList(name, tuple(sorted(telling)))


def test_words_of_a_list_give_their_points_once() -> None:
    listed = [(Mentions((word,)),) for word in LEAKS]
    points: dict[Conjunction, int] = {**dict.fromkeys(listed, 2), (OneOf("a", ("x",)),): 3}
    rule_set = RuleSet((Scorecard("fail", points, 4, (listed,)),), "pass")
    summaries = [f"{word} here; a: {cell}" for word in (*LEAKS, "rust") for cell in "xy"]
    summaries.append(f"{' '.join(LEAKS[:2])}; a: y")
    tickets = [
        Ticket("m", f"g{n}", "pass", (("image_1", each),)) for n, each in enumerate(summaries)
    ]
    known, words = Vocabulary.of(tickets), WORDS["en"]
    written = [each.text for each in write_rule_set(rule_set, known, words)]
    rules = tuple(Rule(f"G{n}", text) for n, text in enumerate([words.neutral_headline, *written]))
    judge = read_rules(Guidance("m", 1, rules, len(rules)), known, words).compile()
    judged = [judge(reading(each)).verdict for each in tickets]
    assert judged == ["fail", "pass"] * len(LEAKS) + ["pass", "pass", "fail"]


@pytest.mark.parametrize("telling", [[], LEAKS])
def test_lines_whose_rule_would_be_read_otherwise_are_not_written(telling: Sequence[str]) -> None:
    """Nor is a list that only such a rule names: where a value is "x or y", a is x or y may be that
    value or any of two."""
    texts = [f"{' '.join(LEAKS)}; a: {value}" for value in ("x", "y", "x or y", "z")]
    tickets = [Ticket("m", f"g{n}", "pass", (("image_1", each),)) for n, each in enumerate(texts)]

    def write(values: str) -> list[str]:
        spoken: list[Conjunction] = [(Mentions((word,)),) for word in telling] or [()]
        lines = [(OneOf("a", (value,)), *words) for value in values for words in spoken]
        rule_set = RuleSet((DecisionList("fail", tuple(lines)),), "pass")
        return [each.text for each in write_rule_set(rule_set, Vocabulary.of(tickets), WORDS["en"])]

    assert len(write("xz")) == (2 if telling else 1)
    assert write("xy") == []


def test_exactly_so_many_is_written_and_read() -> None:
    parts = tuple(OneOf(name, ("1",)) for name in "abc")
    both: Conjunction = (AtLeast(2, parts), Not(AtLeast(3, parts)))
    code = RuleCode("fail", All(both))
    vocabulary = Vocabulary.of([Ticket("m", "g", "pass", (("image_1", "a: 1; b: 1; c: 1"),))])
    for language, text in (
        ("en", "Fail if exactly 2 of (a is 1; b is 1; c is 1)."),
        ("zh", "不通过：若恰有2项成立（a为1；b为1；c为1）。"),
    ):
        assert write_rule(code, WORDS[language]) == text
        assert parse_rule(text, vocabulary, WORDS[language]) == code
        for line in (both, both[::-1]):  # as either is learnt first
            rule_set = RuleSet((DecisionList("fail", (line,)),), "pass")
            (rule,) = write_rule_set(rule_set, vocabulary, WORDS[language])
            assert rule.text == text


def test_what_would_not_be_read_back_is_not_written_and_the_rest_is() -> None:
    """A value that looks like two: of a list its line is left out, of a card its points."""
    odd, plain = OneOf("seal", ("torn or worn",)), OneOf("seal", ("new",))
    texts = ["seal: torn or worn", "seal: new", "seal: torn", "seal: worn"]
    tickets = [Ticket("m", f"g{n}", "pass", (("image_1", text),)) for n, text in enumerate(texts)]
    for part in (
        DecisionList("fail", ((odd,), (plain,))),
        Scorecard("fail", {(odd,): 2, (plain,): 1}, 1),
    ):
        written = write_rule_set(RuleSet((part,), "pass"), Vocabulary.of(tickets), WORDS["en"])
        assert len(written) == 1 and "torn" not in written[0].text and "new" in written[0].text


def test_the_rules_of_a_verdict_stand_with_the_shortest_first() -> None:
    long, short = (OneOf("a", ("1",)), OneOf("b", ("1",))), (OneOf("c", ("1",)),)
    vocabulary = Vocabulary.of([Ticket("m", "g", "pass", (("image_1", "a: 1; b: 1; c: 1"),))])
    rule_set = RuleSet((DecisionList("fail", (long, short)),), "pass")
    assert [rule.lines for rule in write_rule_set(rule_set, vocabulary, WORDS["en"])] == [
        (short,),
        (long,),
    ]
