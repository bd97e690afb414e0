"""Counts of nested objects go by phrases in Chinese rules, which say what the paths say."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stageb.guidance.exports.protocol import CodedMission
from stageb.guidance.exports.sql import write_sql
from stageb.guidance.learning.terms import find_terms
from stageb.guidance.rules.candidates import SearchSpace, reading
from stageb.guidance.rules.conditions import (
    All,
    AtLeast,
    Expression,
    Limit,
    Not,
    OneOf,
    Points,
    Some,
    compile_expression,
)
from stageb.guidance.rules.fields import Columns, read_said
from stageb.guidance.rules.judge import CodedRule, CodedRules, keep_named, read_rules, write_rule
from stageb.guidance.rules.parse import RuleCode, parse_rule
from stageb.guidance.rules.paths import call_counts
from stageb.guidance.rules.prompts import WORDS, choose_grammar
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.words.types import Guidance, Rule, Ticket

EN, ZH = WORDS["en"], WORDS["zh"]
NAMES = [
    "光纤_保护措施_无保护",
    "光纤_弯曲半径_半径不合理<4cm或成环",
    "挡风板_可见性_完整",
    "挡风板_备注",
]


def count(*images: Mapping[str, object]) -> Ticket:
    shown = {
        f"image_{n}": json.dumps({"统计": image}, ensure_ascii=False)
        for n, image in enumerate(images, 1)
    }
    content = read_said({"per_image": shown}, Columns())[1]
    return Ticket("m", f"g{hash(str(images))}", "pass", tuple(shown.items()), content=content)


def place(counts: list[int]) -> Ticket:
    """A ticket that counts so many of each of ``NAMES``."""
    tree: dict[str, object] = {}
    for name, number in zip(NAMES, counts, strict=True):
        *path, last = name.split("_")
        here = tree
        for key in path:
            here = here.setdefault(key, {})  # type: ignore[assignment]
        if number and last not in here:
            here[last] = number
    return count(tree)


TICKETS = [
    count(
        {"光纤": {"保护措施": {"无保护": 2}, "弯曲半径": {"半径不合理<4cm或成环": 1}}},
        {"挡风板": {"可见性": {"完整": 1}}},
    ),
    count({"挡风板": {"备注": 1}}),
    count({"光纤": {"保护措施": {"无保护": 1}}}, {"光纤": {"保护措施": {"无保护": 3}}}),
]
KNOWN = Vocabulary.of(TICKETS)
CALLED = call_counts(KNOWN, choose_grammar(ZH))


@pytest.mark.parametrize(
    ("by_path", "by_phrase"),
    [
        ("若统计_光纤_保护措施_无保护大于1", "若保护措施为无保护的光纤多于1个"),
        ("若统计_挡风板_可见性_完整为0", "若没有可见性为完整的挡风板"),
        ("若统计_挡风板_备注大于0", "若有挡风板的备注"),
        ("若统计_光纤_保护措施_无保护为4", "若恰有4个保护措施为无保护的光纤"),
        (
            "若统计_光纤_弯曲半径_半径不合理<4cm或成环不小于2",
            "若弯曲半径为半径不合理<4cm或成环的光纤至少2个",
        ),
        ("若统计_光纤_保护措施_无保护不为0", "若保护措施为无保护的光纤的数量不为0"),
        ("若统计_光纤_保护措施_无保护为2或4", "若保护措施为无保护的光纤的数量为2或4"),
        (
            "若统计_光纤_保护措施_无保护大于统计_挡风板_备注",
            "若保护措施为无保护的光纤的数量大于挡风板的备注的数量",
        ),
        (
            "除非统计_挡风板_备注小于1且统计_挡风板_可见性_完整不大于3",
            "除非挡风板的备注少于1个且可见性为完整的挡风板至多3个",
        ),
    ],
)
def test_a_path_is_a_phrase_and_both_are_read(by_path: str, by_phrase: str) -> None:
    code = parse_rule(f"不通过：{by_path}。", KNOWN, ZH)
    assert isinstance(code, RuleCode), code
    assert write_rule(code, ZH, CALLED) == f"不通过：{by_phrase}。"
    assert parse_rule(f"不通过：{by_phrase}。", KNOWN, ZH) == code


def test_guidance_keeps_what_its_phrases_stand_for() -> None:
    rules = (
        Rule("G0", ZH.neutral_headline),
        Rule("G1", "不通过：若保护措施为无保护的光纤多于1个。"),
    )
    kept = keep_named(Guidance("m", 1, rules, 2), KNOWN, ZH)
    blank = Vocabulary.of([count({"别的": 1})])  # tickets that count nothing of it
    judge = read_rules(kept, blank, ZH, is_whole=False).compile()
    assert [judge(reading(ticket)).verdict for ticket in TICKETS] == ["fail", "pass", "fail"]


def test_fields_that_could_be_mistaken_keep_their_paths() -> None:
    twins = Vocabulary.of([count({"a": {"b": 1}, "a的b": 1, "c": 1})])
    called = call_counts(twins, choose_grammar(ZH))
    assert set(called) == {"统计_c"}
    said = json.dumps({"统计": {"a": {"b": 1}, "c": 1}, "a的b": "x", "C": "y"}, ensure_ascii=False)
    content = read_said({"per_image": {"image_1": said}}, Columns())[1]
    named = Vocabulary.of([Ticket("m", "g", "pass", (("image_1", said),), content=content)])
    assert call_counts(named, choose_grammar(ZH)) == {}  # fields of texts that are called so
    code = parse_rule("不通过：若a的b为x。", named, ZH)
    assert isinstance(code, RuleCode)
    assert code.expression == OneOf("a的b", ("x",))
    rows = Vocabulary.of(
        [Ticket("m", "g", "pass", (), content=read_said({"扭矩_最大": "3"}, Columns())[1])]
    )
    assert call_counts(rows, choose_grammar(ZH)) == {} == call_counts(KNOWN, choose_grammar(EN))


def expressions() -> st.SearchStrategy[Expression]:
    names = st.sampled_from(sorted(CALLED))
    number = st.integers(0, 3).map(str)
    atoms = st.one_of(
        st.builds(
            lambda name, value: OneOf(name, (value,)), names, st.sampled_from(["0", "1", "2"])
        ),
        st.builds(Limit, names, st.sampled_from(["above", "below"]), number),
    )
    some = st.lists(atoms, min_size=2, max_size=3, unique=True).map(tuple)
    alike = st.one_of(atoms, atoms.map(Not))
    scored = st.lists(st.tuples(st.integers(-3, 3), atoms), min_size=2, max_size=4).map(tuple)
    return st.one_of(
        alike,
        st.lists(alike, min_size=2, max_size=3, unique=True).map(tuple).map(All),
        some.map(Some),
        some.map(lambda parts: AtLeast(2, parts)),
        scored.map(lambda parts: Points(2, parts)),
    )


@given(
    expressions(),
    st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=1, max_size=8),
)
def test_rules_of_both_languages_decide_alike_and_leave_alike(
    expression: Expression, drawn: list[list[int]]
) -> None:
    values = {name: frozenset(map(str, range(4))) for name in KNOWN.units}
    known = Vocabulary(**{**vars(KNOWN), "values": {**KNOWN.values, **values}})
    codes = []
    for words, called in ((EN, {}), (ZH, {}), (ZH, CALLED)):
        text = write_rule(RuleCode("fail", expression), words, called)
        code = parse_rule(text, known, words)
        assert isinstance(code, RuleCode), (text, code)
        assert "统计_" not in text or not called
        codes.append(code)
    assert len({each.expression for each in codes}) == 1
    verdicts = [
        [compile_expression(each.expression)(reading(place(counts))) for counts in drawn]
        for each in codes
    ]
    assert verdicts[0] == verdicts[1] == verdicts[2]
    missions = [
        CodedMission("m", 1, CodedRules([CodedRule("G1", "", code)]), tickets=TICKETS)
        for code in codes
    ]
    assert len({write_sql([mission]) for mission in missions}) == 1


def test_that_something_is_there_is_said_before_how_often() -> None:
    readings = [
        reading(count({"光纤": {"保护措施": {"无保护": number}}, "挡风板": 2}))
        for number in (0, 1, 2, 0, 1, 1)
    ]
    there = [
        reading(count({"光纤": {"保护措施": {"无保护": number}}, "挡风板": 2}))
        for number in (0, 1, 1, 0, 1, 1)
    ]
    name = "统计_光纤_保护措施_无保护"
    told = {mask: term for term, mask in find_terms(there, SearchSpace(wide=True)).items()}
    assert told[0b110110] == Limit(name, "above", "0")
    assert OneOf(name, ("1",)) in find_terms(readings, SearchSpace(wide=True))
