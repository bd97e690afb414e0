"""Thousands of rules: read back as they were written, refused where they name what nobody knows,
judged alike by the rules themselves and by exported Python and SQL."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product
from random import Random
from typing import Any

import pytest
from guidance.rules.made_rules import (
    FIELDS,
    MENTIONED,
    NOTES,
    judge_by_python,
    judge_by_sql,
    listed_with,
    ticket,
    tickets_of,
)
from times import TIMES

from stageb.guidance.config import PromptConfig
from stageb.guidance.exports.protocol import CodedMission
from stageb.guidance.exports.sql import limit_to_sql
from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.conditions import (
    All,
    AtLeast,
    Condition,
    Expression,
    Limit,
    Mentions,
    Missing,
    Not,
    OneOf,
    Order,
    OutOfReach,
    Points,
    Same,
    Side,
    Some,
)
from stageb.guidance.rules.conditions.logic import conjoin
from stageb.guidance.rules.fields import BY_NAMES, read_row
from stageb.guidance.rules.judge import (
    CodedRule,
    CodedRules,
    keep_named,
    make_explainer,
    read_rules,
    write_rule,
)
from stageb.guidance.rules.parse import RuleCode, parse_rule
from stageb.guidance.rules.prompts import WORDS, name_labels, words_of
from stageb.guidance.rules.row_keys import make_row_keys
from stageb.guidance.rules.value_types import Computed, parse_number, read_content
from stageb.guidance.rules.vocabulary import Vocabulary, find_letters
from stageb.guidance.words.types import PASS_FAIL, Guidance, Rule, Ticket, Verdict

SIDES: list[Side] = ["above", "below"]
LABELS = ("low", "high", "mid")
RULES = 160 * TIMES


def generate(language: str, count: int) -> Iterator[RuleCode]:
    """Rules of every form that there is."""
    draw = Random(f"rules in {language}")
    for _ in range(count):
        verdict: Verdict = "pass" if draw.random() < 0.5 else "fail"
        form = draw.randrange(4)
        condition = None if form == 0 else generate_condition(draw, language)
        yield RuleCode(verdict, condition, generate_condition(draw, language) if form < 2 else None)


def generate_condition(draw: Random, language: str) -> Expression:
    if draw.random() < 0.1:
        return generate_points(draw, language)
    parts = [generate_all(draw, language) for _ in range(draw.choice([1, 1, 2, 3]))]
    # of two that are written as one list, one
    parts = list({listed_with(part): part for part in parts}.values())
    return parts[0] if len(parts) == 1 else Some(tuple(parts))


def generate_points(draw: Random, language: str) -> Expression:
    """Points of which some reach the least just so."""
    parts = [
        list(dict.fromkeys(generate_atom(draw, language) for _ in range(draw.choice([1, 1, 2]))))
        for _ in range(4)
    ]
    scored = [(draw.randint(-9, 9), join(part)) for part in parts][: draw.choice([1, 2, 4])]
    listed = [Mentions((word,)) for word in draw.sample(MENTIONED[language], draw.choice([0, 2]))]
    scored += [(4, word) for word in listed]
    return Points(sum(points for points, _ in scored if draw.random() < 0.5), tuple(scored))


def generate_all(draw: Random, language: str) -> Expression:
    pieces = [
        generate_count if draw.random() < 0.15 else generate_atom
        for _ in range(draw.choice([1, 2, 2, 3]))
    ]
    parts = tuple(dict.fromkeys(piece(draw, language) for piece in pieces))
    return join(parts)


def join(parts: Sequence[Expression]) -> Expression:
    """All of the parts, each condition once."""
    return conjoin(tuple(dict.fromkeys(conjoin(parts).conjuncts)))


def generate_count(draw: Random, language: str) -> Expression:
    parts = tuple(
        dict.fromkeys(generate_atom(draw, language) for _ in range(draw.choice([3, 4, 5])))
    )
    count = AtLeast(draw.randint(1, len(parts)), parts)
    return parts[0] if len(parts) == 1 else draw.choice((count, Not(count)))


def generate_atom(draw: Random, language: str) -> Expression:
    fields = FIELDS[language]
    numeric = [name for name, values in fields.items() if parse_number(values[0]) is not None]
    kind = draw.choice(
        ["is", "is", "limit", "pair", "mentions", "computed", "within", "missing", "given"]
    )
    if kind == "given":
        name = draw.choice(numeric)
        said = draw.choice(
            (OneOf(name, (draw.choice(fields[name]),)), Limit(name, "above", generate_limit(draw)))
        )
        return All((Not(Missing(name)), draw.choice((said, Not(said)))))
    if kind == "within":
        name = draw.choice(numeric)
        return All(
            (
                Limit(name, "above", str(draw.choice([-3, 0]))),
                Limit(name, "below", str(draw.choice([12.5, 40]))),
            )
        )
    if kind == "computed":
        one, other = (
            Computed(a, draw.choice("+-×/"), b)
            for a, b in (draw.sample(numeric, 2) for _ in range(2))
        )
        if draw.random() < 0.5:
            return Order(one, draw.choice(SIDES), other)
        return Limit(one, draw.choice(SIDES), generate_limit(draw))
    if kind == "pair":
        name, beside = draw.sample(numeric, 2)
        pairs = (
            Same(name, beside),
            Same(name, beside, False),
            Order(name, "above", beside),
            Order(name, "below", beside),
        )
        return draw.choice(pairs)
    if kind == "limit":
        atom: Expression = Limit(draw.choice(numeric), draw.choice(SIDES), generate_limit(draw))
    elif kind == "missing":
        atom = Missing(draw.choice(sorted(fields)))
    elif kind == "is":
        name = draw.choice(sorted(fields))
        atom = OneOf(name, tuple(draw.sample(fields[name], draw.randint(1, len(fields[name])))))
    else:
        atom = Mentions(tuple(draw.sample(MENTIONED[language], draw.randint(1, 2))))
    return draw.choice((atom, Not(atom)))


def generate_limit(draw: Random) -> str:
    return str(draw.choice([-3, 0, 12.5, 40, draw.randint(-9, 2000)]))


def rename(expression: Expression, old: Expression, new: Expression) -> Expression:
    """``expression`` with another condition."""
    if isinstance(expression, Not):
        return Not(rename(expression.part, old, new))
    if isinstance(expression, Condition):
        return new if expression == old else expression
    if isinstance(expression, Points):
        return replace(
            expression,
            scored=tuple((points, rename(part, old, new)) for points, part in expression.scored),
        )
    assert isinstance(expression, All | Some | AtLeast)
    return replace(expression, parts=tuple(rename(part, old, new) for part in expression.parts))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_is_written_is_read_back_and_what_nobody_knows_is_refused(language: str) -> None:
    vocabulary = Vocabulary.of(tickets_of(language))
    own = {"pass": "OK", "fail": "NG"}
    both = [words_of(PromptConfig(language=language, verdict_words=each)) for each in (None, own)]  # type: ignore[arg-type]
    draw = Random(0)
    for number, code in enumerate(generate(language, RULES // 2)):
        words = draw.choice(both)
        text = write_rule(code, words)
        assert parse_rule(text, vocabulary, words) == code, text
        kept = keep_named(Guidance("m", 0, (Rule("G1", text),), 2), vocabulary, words)
        (alone,) = read_rules(
            kept, Vocabulary.of(()), words, is_whole=False
        ).each  # by what it keeps, beside no ticket at all
        assert alone.code == code, text
        if number % 4 == 0 and code.condition is not None and code.exception is None:
            atom: Any = draw.choice(list(code.condition.conditions()))
            first = dataclasses.fields(atom)[0].name
            said = getattr(atom, first)
            unheard = {tuple: ("quux",), Computed: Computed("quux", "+", "quux"), str: "quux"}[
                type(said)
            ]
            unknown = replace(atom, **{first: unheard})
            text = write_rule(replace(code, condition=rename(code.condition, atom, unknown)), words)
            assert isinstance(parse_rule(text, vocabulary, words), OutOfReach), text


def make_missions(language: str) -> list[CodedMission]:
    """Five rules a mission, every other one with labels of its own and some cards that are
    compared."""
    draw, codes = Random(1), list(generate(language, RULES // 2))
    missions = []
    for n in range(0, len(codes), 5):
        some, labels = codes[n : n + 5], LABELS if n % 10 else PASS_FAIL
        if labels == LABELS:
            cards = [
                generate_points(draw, language) if draw.random() < 0.7 else code.condition
                for code in some
            ]
            some = [
                replace(code, verdict=draw.choice(LABELS), condition=card)
                for code, card in zip(some, cards, strict=True)
            ]
        rules = [CodedRule(f"G{1 + i}", "", code) for i, code in enumerate(some)]
        missions.append(CodedMission(f"m{n}", 0, CodedRules(rules, labels)))
    return missions


@pytest.mark.parametrize("language", ["en", "zh"])
def test_exported_code_judges_as_the_rules_do(language: str) -> None:
    """Tickets that have all fields, that lack some, and with words beside them."""
    draw, missions = Random(1), make_missions(language)
    fields = FIELDS[language]
    rows = [
        {
            name: draw.choice(values) if draw.random() < 0.8 else None
            for name, values in fields.items()
        }
        for _ in range(12)
    ]
    tickets = [ticket(row) for row in rows]
    noted = [
        *tickets,
        *(
            replace(each, per_image=(*each.per_image, ("image_2", NOTES[language])))
            for each in tickets
        ),
    ]
    readings = list(map(reading, noted))
    by_python = judge_by_python(missions)
    given = set()
    for number, mission in enumerate(missions):
        judge = mission.coded.compile()
        rulings = [judge(each) for each in readings]
        given |= {ruling.verdict for ruling in rulings}
        assert [
            by_python({"per_image": dict(each.per_image)}, mission.name) for each in noted
        ] == rulings
        if number % 10 in (0, 1):
            limited = limit_to_sql(replace(mission, letters=find_letters(readings)))
            said = [
                (ruling.verdict, ruling.rule or None)
                for ruling in map(judge, readings[: len(rows)])
            ]
            by_sql = judge_by_sql(limited, rows)  # says nothing where it hangs on words
            for row, one, other in zip(rows, by_sql, said, strict=True):
                assert one == other or (limited.unreadable and one[0] in (other[0], None)), (
                    row,
                    limited.coded,
                )
    assert given == {"pass", "fail", *LABELS, None}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_rows_of_one_key_are_judged_alike_for_the_same_reason(language: str) -> None:
    """Rows as tables have them, some of them without some fields, or with values that no rule can
    compare, and with a column of texts."""
    draw, fields = (
        Random(2),
        {**FIELDS[language], "note": [NOTES[language], "cracked; a stain", "lid"]},
    )
    rows = [
        {name: draw.choice(["", "n/a", *values, *values]) for name, values in fields.items()}
        for _ in range(300)
    ]
    columns = {name: [row[name] for row in rows] for name in fields}
    readings = [read_row(row, BY_NAMES)[1] for row in rows]
    kinds = 0
    for mission in make_missions(language):
        words = name_labels(words_of(PromptConfig(language=language)), mission.coded.labels)  # type: ignore[arg-type]
        judge, explain = (
            mission.coded.compile(),
            make_explainer(replace(mission.coded, words=words)),
        )
        found: dict[Hashable, object] = {}
        for key, content in zip(
            make_row_keys(mission.coded, [*fields])(columns), readings, strict=True
        ):
            ruling = judge(read_content(content))
            said = ruling, explain(ruling, read_content(content))
            assert found.setdefault(key, said) == said, (content, mission.coded)
        kinds += len(found)
    assert kinds < len(rows) * len(make_missions(language))  # one is judged for others


def test_rows_of_one_key_have_the_same_of_the_fields_that_rules_or_a_caller_name() -> None:
    """Of two fields that are compared, a table may have one alone."""
    vocabulary = Vocabulary.of(
        [Ticket("m", "g", "pass", (("image_1", "Air: 40; Torque: 40; Type: H"),))]
    )
    rules = (
        Rule("G0", WORDS["en"].neutral_headline),
        Rule("G1", "Fail if Air × Torque is above 900."),
    )
    coded = read_rules(Guidance("m", 1, rules, 2), vocabulary, WORDS["en"])
    assert isinstance(coded.each[0].code, RuleCode)
    names = ("Air", "Type", "Note")
    rows = [dict(zip(names, cells, strict=True)) for cells in product(["", "40"], repeat=3)]
    columns = {name: [row[name] for row in rows] for name in names}
    for named in ((), ("Type",), ("Torque", "Type")):
        keys = [*make_row_keys(coded, [*columns], named)(columns)]
        for one, other in combinations(range(1, len(rows)), 2):
            told = ("Air", *named)
            alike = all(rows[one].get(name) == rows[other].get(name) for name in told)
            assert (keys[one] == keys[other]) is alike, (rows[one], rows[other], named)
