"""Rules on words name the column that has them, and other columns do not count."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product

import pytest

from stageb.guidance.rules.candidates import SearchSpace, find_conditions, reading
from stageb.guidance.rules.conditions import Mentions, OutOfReach, compile_expression
from stageb.guidance.rules.fields import Columns, read_said
from stageb.guidance.rules.judge import keep_named, read_rules, write_rule
from stageb.guidance.rules.parse import RuleCode, parse_rule
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.words.types import Guidance, Rule, Ticket

ROWS = [
    {"Description": "the hose leaks at the upper end again", "Machine": "press 3", "Note": ""},
    {"Description": "hose changed, no fault", "Machine": "leak tester", "Note": ""},
    {"Description": "", "Machine": "leak tester", "Note": ""},
    {"Description": "quiet and dry", "Machine": "press 3", "Note": ""},
]


def read(rows: list[dict[str, str]]) -> list[Ticket]:
    return [
        Ticket("m", f"g{n}", "pass", (), content=read_said(row, Columns())[1])
        for n, row in enumerate(rows)
    ]


TICKETS = read(ROWS)
KNOWN = Vocabulary.of(TICKETS)


def judged(text: str, language: str = "en") -> list[bool | None]:
    code = parse_rule(text, KNOWN, WORDS[language])
    assert isinstance(code, RuleCode), code
    assert write_rule(code, WORDS[language]) == text
    return [compile_expression(code.expression)(reading(ticket)) for ticket in TICKETS]


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "Fail if Description mentions leak.", [True, False, False, False]),
        # any text of the ticket
        ("en", "Fail if a summary mentions leak.", [True, True, True, False]),
        ("en", "Fail if Description does not mention leak.", [False, True, True, True]),
        ("en", "Fail if Description mentions lea* or hose changed.", [True, True, False, False]),
        ("en", "Fail if Machine mentions leak or press.", [True, True, True, True]),
        (
            "en",
            "Fail if it has 3 points or more: 3 for each of leak, quiet that Description mentions.",
            [True, 0, 0, True],
        ),
        (
            "en",
            "Fail if it has 2 points or more: 2 if Description mentions hose.",
            [True, True, False, False],
        ),
        ("zh", "不通过：若Description提到leak。", [True, False, False, False]),
        ("zh", "不通过：若摘要提到leak。", [True, True, True, False]),
        ("zh", "不通过：若Description未提到leak或hose。", [False, False, True, True]),
        (
            "zh",
            "不通过：若总分至少3：3分，Description每提到以下一项：leak、quiet。",
            [True, 0, 0, True],
        ),
        (
            "zh",
            "不通过：若总分至少3：3分，摘要每提到以下一项：leak、quiet。",
            [True, True, True, True],
        ),
    ],
)
def test_words_count_where_a_rule_says(language: str, text: str, expected: list[bool]) -> None:
    assert judged(text, language) == expected


def test_guidance_that_names_no_column_reads_as_before() -> None:
    same = [
        parse_rule(text, KNOWN, WORDS["zh"])
        for text in (
            "不通过：若总分至少3：3分，每提到以下一项：leak、quiet。",
            "不通过：若总分至少3：3分，摘要每提到以下一项：leak、quiet。",
        )
    ]
    assert same[0] == same[1] and isinstance(same[0], RuleCode)
    none, denied = (
        parse_rule(f"Pass if {text}.", KNOWN, WORDS["en"])
        for text in ("no summary mentions leak", "a summary does not mention leak")
    )
    assert none == denied and isinstance(none, RuleCode)


def test_a_column_that_is_not_there_is_told() -> None:
    found = parse_rule("Fail if Descripton mentions leak.", KNOWN, WORDS["en"])
    assert isinstance(found, OutOfReach)
    assert found.why == "no ticket has 'Descripton'; the nearest is 'Description'"


def test_what_is_learnt_names_the_column_if_one_alone_has_texts() -> None:
    readings = [reading(ticket) for ticket in TICKETS]
    found = find_conditions(readings, SearchSpace(wide=True))
    assert found[Mentions(("leak",), "Description")] == 0b1
    assert found[Mentions(("hose",), "Description")] == 0b11
    assert Mentions(("leak",)) not in found
    # as the shipped model was taught to say it
    assert Mentions(("leak",)) in find_conditions(readings)
    both = [{**row, "Note": "seen by two people on Monday morning"} for row in ROWS]
    several = find_conditions([reading(ticket) for ticket in read(both)], SearchSpace(wide=True))
    assert several[Mentions(("leak",))] == 0b111


def test_a_guidance_keeps_the_column_that_its_rules_read() -> None:
    rules = (
        Rule("G0", WORDS["en"].neutral_headline),
        Rule("G1", "Fail if Description mentions leak."),
    )
    kept = keep_named(Guidance("m", 1, rules, 2), KNOWN, WORDS["en"])
    assert set(kept.named) == {("Description", ""), ("", "leak")}
    (rule,) = read_rules(kept, Vocabulary.of(()), WORDS["en"], is_whole=False).each
    assert isinstance(rule.code, RuleCode)
    assert compile_expression(rule.code.expression)(reading(TICKETS[0])) is True


# What two conditions say together ------------------------------------------------------------------

MANY = read(
    [
        {"Description": described, "Note": note, "Machine": machine, "Size": size, "Depth": depth}
        for described, note in product(
            ("the hose leaks at the upper end", "a crack in it, once more", ""),
            ("there is a crack somewhere in it", "it leaks from the hose again", ""),
        )
        for machine, size, depth in (("press 3", "3", "5"), ("saw 1", "5", "9"), ("", "9", ""))
    ]
)
LISTED = replace(
    Vocabulary.of(MANY), lists={"wet": ("leak", "upper end"), "dry": ("crack", "hose")}
)
CONDITIONS = (
    "Description mentions leak", "Description does not mention leak", "Description mentions hose or crack",
    "Note mentions leak", "a summary mentions crack", 'Description mentions a "wet" word',
    'Description mentions a "dry" word', 'Note mentions a "wet" word', "Machine is press 3", "Machine is not saw 1",
    "Machine is missing", "Size is above 5", "Size is 5", "Size is 3 or 5", "Size is below 9",
    "Depth is 5", "Depth is below 9",
)  # fmt: skip


def judge_many(condition: str) -> list[bool | None]:
    code = parse_rule(f"Fail if {condition}.", LISTED, WORDS["en"])
    assert isinstance(code, RuleCode), code
    again = parse_rule(write_rule(code, WORDS["en"]), LISTED, WORDS["en"])
    assert isinstance(again, RuleCode) and again.expression == code.expression
    return [compile_expression(code.expression)(reading(ticket)) for ticket in MANY]


ALONE = {condition: judge_many(condition) for condition in CONDITIONS}


@pytest.mark.parametrize(("joint", "decides"), [("or", True), ("and", False)])
def test_conditions_say_together_what_they_say_one_by_one(joint: str, decides: bool) -> None:
    """Of two fields, of a word and a list, of a value and a limit: none is read into the other."""

    def join(*truths: bool | None) -> bool | None:
        return decides if decides in truths else None if None in truths else not decides

    for pair in permutations(CONDITIONS, 2):
        held = judge_many(f" {joint} ".join(pair))
        assert held == [*map(join, *(ALONE[each] for each in pair))], pair
