"""Rules as Python, SQL and JSON: what is exported judges as the rules do, and is safe whatever they
are made of."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from guidance.rules.made_rules import Fields, export_text, judge_by_python, judge_by_sql
from hypothesis import example, given
from hypothesis import strategies as st

from stageb.guidance.exports.json_rules import TreeExporter
from stageb.guidance.exports.protocol import CodedMission, code_mission
from stageb.guidance.exports.python import PythonExporter
from stageb.guidance.exports.sql import limit_to_sql, write_sql
from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.conditions import (
    All,
    AtLeast,
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
    Some,
)
from stageb.guidance.rules.fields import BY_NAMES, read_ticket
from stageb.guidance.rules.judge import CodedRule, CodedRules, read_rules
from stageb.guidance.rules.parse import RuleCode
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.value_types import Computed
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.words.types import Guidance, Rule, Ticket


def coded(texts: Sequence[str], tickets: Sequence[Ticket]) -> CodedMission:
    rules = tuple(
        Rule(f"G{n}", text) for n, text in enumerate([WORDS["en"].neutral_headline, *texts])
    )
    read = read_rules(Guidance("m", 3, rules, len(rules)), Vocabulary.of(tickets), WORDS["en"])
    return CodedMission("m", 3, read)


def ticket(fields: Fields, note: str = "") -> Ticket:
    pairs = "; ".join(f"{name}: {value}" for name, value in fields.items() if value)
    return Ticket("m", "g", "pass", (("image_1", pairs + note),))


ROWS: list[Fields] = [
    {"Seal": "worn", "Torque Nm": "40 Nm", "Limit": "39", "État": "Élevé"},
    {"Seal": "NEW", "Torque Nm": "12.5", "Limit": "12.5", "État": "bas"},
    {"Seal": "new", "Torque Nm": None, "Limit": "-3", "État": "élevé"},
    {"Seal": None, "Torque Nm": "1e5", "Limit": "7", "État": None},
    {"Seal": "worn", "Torque Nm": "0.2 - 0.3", "Limit": "0.2 - 0.3", "État": "bas"},
    {"Seal": "worn", "Torque Nm": "1,234.5", "Limit": "1,234.5", "État": "bas"},
]
TEXTS = [
    "Fail if Seal is worn and Torque Nm is above Limit.",
    "Pass if État is élevé unless Torque Nm is below 30 or Torque Nm is not below 41.",
    "Fail unless Torque Nm equals Limit.",
]


def test_rows_are_judged_alike_by_python_sql_and_the_rules_themselves() -> None:
    mission = coded(TEXTS, list(map(ticket, ROWS)))
    by_rules, by_python = mission.coded.compile(), judge_by_python([mission])
    by_sql = judge_by_sql(mission, ROWS)
    for row, (verdict, rule) in zip(ROWS, by_sql, strict=True):
        ruling = by_rules(reading(ticket(row)))
        assert (
            (by_python(row).verdict, by_python(row).rule)
            == (ruling.verdict, ruling.rule)
            == (verdict, rule or "")
        )
        assert by_python({"per_image": {"1": ticket(row).per_image[0][1]}}, "m") == by_python(row)
    assert by_sql == [("pass", "G2"), ("pass", "G0"), *[(None, None)] * 4]


NUMBERS = st.one_of(
    st.text("0123.-+,eE m%", min_size=1, max_size=8),
    # Any letter but NUL: to SQLite's functions a text ends there, and tickets are read with a space
    # in its place.
    st.from_regex(
        r"-?[0-9]{1,2}(\.[0-9]{0,2})?[eE][-+]?[0-9]{1,3}( ?(m|m2|m3|5|e-5|[^\0]5))?", fullmatch=True
    ),
    st.sampled_from(
        [
            "26.5 mm",
            "26.54 %",
            "310K",
            "0.2 - 0.3",
            "1,234.5",
            "1.234,5",
            "2024-05-01",
            "5 m2",
            "5 m23",
            "5mm32",
            "5mm22",
        ]
    ),
    st.sampled_from(
        [
            "5½",
            "5 ¼ in",
            "10³",
            "10⁻³",
            "1e-05½",
            "4 m²",
            "25 ⁰C",
            "5万",
            "5 个",
            "5千克",
            "0.5兆帕",
            "5mm23",
        ]
    ),
)


@example(["1,5", "2,75", "3,5 mm", "-1,5", "12,50-"])  # which have no decimal comma here
@given(st.lists(NUMBERS.map(str.strip).filter(bool), min_size=1, max_size=20))
def test_sql_makes_a_number_of_the_same_values_as_the_rules_or_none(values: list[str]) -> None:
    for limit in ("2.5", "2.5 mm"):
        rules = CodedRules([CodedRule("G1", "high", RuleCode("fail", Limit("A", "above", limit)))])
        judge, rows = rules.compile(), [{"A": value} for value in values]
        expected = [judge(read_ticket(row)).verdict for row in rows]
        for value, one, (other, _) in zip(
            values, expected, judge_by_sql(CodedMission("m", 1, rules), rows), strict=True
        ):
            assert other in (None, one), value
            assert other == one or not re.fullmatch(
                r"[-+]?[0-9]+(\.[0-9]+)?([eE]-[0-9]+)?( ?[mK%]+)?", value
            ), value


def test_a_column_that_is_not_there_is_an_error_in_sql_and_no_text() -> None:
    mission = coded(["Fail if Seal is seal."], [ticket({"Seal": "seal"})])
    try:
        judge_by_sql(mission, [{"Other": "x"}])
    except sqlite3.OperationalError as error:
        assert "no such column" in str(error)
    else:
        raise AssertionError


def test_columns_may_be_called_as_what_the_query_makes() -> None:
    rows: list[Fields] = [
        {"rule": "worn", "verdict": "4", "G1": None},
        {"rule": "new", "verdict": "2", "G1": "x"},
    ]
    mission = coded(
        ["Fail if rule is worn and verdict is above 3.", "Fail if G1 is x."],
        list(map(ticket, rows)),
    )
    assert judge_by_sql(mission, rows) == [("fail", "G1"), ("fail", "G2")]


def test_where_an_empty_cell_counts_none_no_field_is_missing_in_sql() -> None:
    rows: list[Fields] = [{"Seal": None}, {"Seal": "worn"}]
    mission = replace(coded(["Fail if Seal is missing."], list(map(ticket, rows))), is_counted=True)
    assert judge_by_sql(mission, rows) == [("pass", "G0")] * 2


def test_json_holds_the_tree_and_names_what_it_lacks() -> None:
    mission = coded(
        ["Fail if Seal is not worn or new and Torque Nm is above 3.", "Fail if it looks odd."],
        list(map(ticket, ROWS)),
    )
    content = json.loads(export_text(TreeExporter(), [mission]))
    tree = {
        "all": [
            {"not": {"field": "Seal", "is": ["worn", "new"]}},
            {"field": "Torque Nm", "above": 3.0},
        ]
    }
    (rule,) = content["missions"]["m"]["rules"]
    assert (content["version"], rule["verdict"], rule["if"]) == (1, "fail", tree)
    (gone,) = content["missions"]["m"]["unreadable"]
    assert (gone["key"], gone["text"]) == ("G2", "Fail if it looks odd.")


SUM, DIFFERENCE = Computed("A", "+", "B"), Computed("C", "-", "D")


@pytest.mark.parametrize(
    ("condition", "tree"),
    [
        (Limit(SUM, "below", "2.5 mm"), {"compute": "+", "fields": ["A", "B"], "below": 2.5}),
        (Order("A", "above", "B"), {"field": "A", "over": {"field": "B"}}),
        (
            Order(SUM, "below", DIFFERENCE),
            {"compute": "+", "fields": ["A", "B"], "under": {"compute": "-", "fields": ["C", "D"]}},
        ),
        (Same("A", "B"), {"field": "A", "equals": {"field": "B"}}),
        (Same("A", "B", is_same=False), {"field": "A", "differs": {"field": "B"}}),
        (Missing("A"), {"field": "A", "missing": True}),
        (Mentions(("leak", "rust*")), {"mentions": ["leak", "rust*"]}),
        (Mentions(("leak",), "Note"), {"field": "Note", "mentions": ["leak"]}),
        (
            Some((Missing("A"), Limit("B", "above", "3"))),
            {"any": [{"field": "A", "missing": True}, {"field": "B", "above": 3.0}]},
        ),
        (
            Points(2, ((2, Missing("A")), (-1, OneOf("B", ("x",))))),
            {
                "points_at_least": 2,
                "of": [
                    {"points": 2, "if": {"field": "A", "missing": True}},
                    {"points": -1, "if": {"field": "B", "is": ["x"]}},
                ],
            },
        ),
    ],
)
def test_json_says_every_kind_of_condition(condition: Expression, tree: Mapping[str, Any]) -> None:
    rules = CodedRules([CodedRule("G1", "a rule", RuleCode("fail", condition))])
    content = json.loads(export_text(TreeExporter(), [CodedMission("m", 0, rules)]))
    (rule,) = content["missions"]["m"]["rules"]
    assert rule["if"] == tree


def test_json_says_which_rules_are_provisional() -> None:
    mission = coded(["Fail if Seal is worn.", "Fail if Seal is new."], list(map(ticket, ROWS)))
    first, second = mission.coded.each
    rules = [first, replace(second, is_provisional=True)]
    mission = replace(mission, coded=replace(mission.coded, each=rules))
    content = json.loads(export_text(TreeExporter(), [mission]))
    said = [rule.get("provisional", False) for rule in content["missions"]["m"]["rules"]]
    assert said == [False, True]


def test_a_count_is_a_count_in_every_language() -> None:
    text = "Fail if at least 2 of (Seal is worn; Torque Nm is above 30; Limit is below 10)."
    mission = coded([text], list(map(ticket, ROWS)))
    judge, rows = (
        judge_by_python([mission]),
        [*ROWS[:3], {"Seal": "new", "Torque Nm": None, "Limit": "50"}],
    )
    said = [judge(row).verdict for row in rows]
    assert (
        said
        == [verdict for verdict, _ in judge_by_sql(mission, rows)]
        == ["fail", "pass", None, "pass"]
    )
    (rule,) = json.loads(export_text(TreeExporter(), [mission]))["missions"]["m"]["rules"]
    assert (rule["if"]["at_least"], len(rule["if"]["of"])) == (2, 3)


def test_a_count_in_columns_of_numbers_is_unknown_exactly_where_what_is_missing_decides() -> None:
    codes = RuleCode("fail", AtLeast(2, tuple(Limit(name, "above", "3") for name in "ABC")))
    mission = CodedMission(
        "m", 0, CodedRules([CodedRule("G1", "", codes)]), numeric=frozenset("ABC")
    )
    rows: list[Mapping[str, int | None]] = [
        dict(zip("ABC", cells, strict=True)) for cells in product((4, 2, None), repeat=3)
    ]
    judge = mission.coded.compile()
    texts = [{name: str(cell) for name, cell in row.items() if cell} for row in rows]
    said = [(found.verdict, found.rule or None) for found in map(judge, map(read_ticket, texts))]
    assert judge_by_sql(mission, rows) == said  # type: ignore[arg-type]  # cells are numbers
    assert {verdict for verdict, _ in said} == {"pass", "fail", None}


def test_words_are_out_of_the_reach_of_sql_and_leave_open_what_hangs_on_them() -> None:
    mission = coded(
        ["Fail if a summary mentions rust.", "Pass if Seal is new."],
        [ticket({"Seal": "new"}, "; rust")],
    )
    assert limit_to_sql(mission).unreadable == {"G1": "SQL sees columns, and no words of free text"}
    rows: list[Fields] = [{"Seal": "new"}, {"Seal": "worn"}]
    assert judge_by_sql(limit_to_sql(mission), rows) == [("pass", "G2"), (None, None)]
    judge = judge_by_python([mission])
    assert judge({"Seal": "worn", "Remarks": "much rust, here"}).rule == "G1"


def test_tickets_as_dicts_are_read_as_files_are() -> None:
    """Headers, the order of images, cells with separators in them, columns called image_1."""
    from stageb.guidance.tickets.tables import TableReader
    from stageb.guidance.tickets.tickets import make_ticket
    from stageb.guidance.words.column_names import ColumnsConfig

    lines = [
        {"per_image": {"图片_10": "a: x", "image_2": "<DOMAIN=BBU>,<TASK=SUMMARY>\na: y; b: z"}},
        {"per_image": {"1": "rust here. part is a valve"}},
    ]
    for line in lines:
        whole = make_ticket({"mission": "m", "group_id": "g", **line}, False, None)
        assert read_ticket(line) == reading(whole)
    text = (
        'mission,group_id,Seal,Remarks,image_1\nm,g,worn,"dusty, cleaned; Seal: new",Seal: '
        "old\nm,g,,seen  twice,\n"
    )
    table = TableReader(
        ((n, row.encode()) for n, row in enumerate(text.splitlines(True), 1)),
        ColumnsConfig(),
        "t.csv",
        False,
    )
    for row, cells in zip(table.rows(), csv.DictReader(io.StringIO(text)), strict=True):
        said = table.read_row(row)
        whole = make_ticket(said, False, said.pop("content"))
        assert read_ticket(cells) == reading(whole)


HOSTILE = st.one_of(
    st.text(min_size=1, max_size=20),
    st.sampled_from(
        [
            "'", '"', "\\", "'''", '"""', "'); DROP TABLE tickets; --", '"); raise SystemExit #', "{__import__('os')}",
            "\\'", "%s", "?1", ":a", "a\nb", "\u2028", "*/", "--", "\r", "]", "`", "$$", "\ud800", "#", "é\u202e",
        ]
    ),
)  # fmt: skip


SIDES = st.sampled_from(["above", "below"])


def expressions(
    names: st.SearchStrategy[str], values: st.SearchStrategy[str]
) -> st.SearchStrategy[Expression]:
    atom = st.one_of(
        st.builds(lambda name, several: OneOf(name, tuple(several)), names, st.lists(values, min_size=1, max_size=2)),
        st.builds(Limit, names, SIDES, st.integers(-5, 5).map(str)),
        st.builds(Order, names, SIDES, names),
        st.builds(Same, names, names, st.booleans()),
        st.builds(lambda name, word: Mentions((word,), name), st.one_of(st.just(""), names), values),
        st.builds(lambda side, one, sign, other: Limit(Computed(one, sign, other), side, "3"),
                  SIDES, names, st.sampled_from("+-×/"), names),
        st.builds(lambda side, one, other: Order(Computed(one, "×", other), side, Computed(other, "/", one)),
                  SIDES, names, names),
    )  # fmt: skip
    parts = st.lists(st.one_of(atom, atom.map(Not)), min_size=1, max_size=3).map(tuple)
    return st.one_of(
        atom,
        parts.map(All),
        parts.map(Some),
        parts.map(lambda them: AtLeast(len(them) // 2 + 1, them)),
    )


@given(st.data())
def test_hostile_names_values_and_texts_stay_literals(data: st.DataObject) -> None:
    codes = st.builds(RuleCode, st.sampled_from(["pass", "fail"]), expressions(HOSTILE, HOSTILE))
    rules = [
        CodedRule(f"G{n}", data.draw(HOSTILE), data.draw(st.one_of(codes, HOSTILE.map(OutOfReach))))
        for n in range(1, 4)
    ]
    mission = CodedMission(data.draw(HOSTILE), 0, CodedRules(rules))
    module: dict[str, Any] = {"__name__": "exported"}
    exec(compile(export_text(PythonExporter(), [mission]), "exported.py", "exec"), module)
    assert [(rule.key, rule.text) for rule in module["RULES"][mission.name]] == [
        (rule.key, rule.text) for rule in rules
    ]
    assert module["UNREADABLE"] == {mission.name: mission.unreadable}
    names = [
        name
        for rule in rules
        if isinstance(rule.code, RuleCode)
        for name in rule.code.expression.fields
    ]
    row = {"per_image": {"1": "; ".join(f"{name}: 1" for name in names) or "x"}}
    mine = mission.coded.compile()(read_ticket(row))
    its = module["judge"](row, mission.name)
    assert (its.verdict, its.rule, its.unknown) == (mine.verdict, mine.rule, mine.unknown)
    assert json.loads(export_text(TreeExporter(), [mission]))["missions"][mission.name]["step"] == 0


@given(st.data())
def test_hostile_names_and_values_stay_literals_in_sql(data: st.DataObject) -> None:
    printable = HOSTILE.map(lambda text: "".join(filter(str.isprintable, text)).strip()).filter(
        bool
    )
    names = st.sampled_from(
        data.draw(st.lists(printable, min_size=2, max_size=3, unique_by=str.casefold))
    )
    codes = st.builds(RuleCode, st.sampled_from(["pass", "fail"]), expressions(names, printable))
    rules = [CodedRule(f"G{n}", data.draw(HOSTILE), data.draw(codes)) for n in range(1, 4)]
    mission = limit_to_sql(CodedMission("m", 0, CodedRules(rules)))
    named = {name.casefold(): name for rule in rules if isinstance(rule.code, RuleCode)
             for name in rule.code.expression.fields}  # fmt: skip
    cells = st.sampled_from(["1", "-2", "x y", "Fail", None])
    row = {name: data.draw(cells) for name in named.values() if name.casefold() != "mission"}
    judge_by_sql(mission, [row or {"other": "x"}])


def test_of_two_cards_that_a_ticket_exceeds_alike_the_first_wins_in_sql_too() -> None:
    def card(least: int, points: int) -> Points:
        return Points(
            least, ((points, OneOf("Seal", ("worn",))), (1, Limit("Torque Nm", "above", "3")))
        )

    labels = ("low", "high", "mid")
    rows: list[Fields] = [
        {"Seal": seal, "Torque Nm": torque}
        for seal in ("worn", "new", None)
        for torque in ("4", "2", None)
    ]
    for first, second, wanted in ((2, 2, "high"), (2, 1, "mid"), (1, 2, "high")):
        codes = [("G1", RuleCode("high", card(first, 2))), ("G2", RuleCode("mid", card(second, 2)))]
        mission = CodedMission(
            "m", 0, CodedRules([CodedRule(key, "", code) for key, code in codes], labels)
        )
        judge = mission.coded.compile()
        said = [(found.verdict, found.rule) for found in (judge(read_ticket(row)) for row in rows)]
        assert judge_by_sql(mission, rows) == said
        assert said[1][0] == wanted


def test_points_for_what_is_missing_count_in_sql_whatever_else_cannot_be_known() -> None:
    part = All((Not(OneOf("Seal", ("worn",))), Missing("Tag")))
    counted = AtLeast(1, (Missing("Tag"), Limit("Size", "above", "3")))
    mission = CodedMission(
        "m",
        0,
        CodedRules([CodedRule("G1", "", RuleCode("fail", Points(2, ((1, part), (1, counted)))))]),
    )
    rows: list[Fields] = [
        {"Seal": "new", "Tag": None, "Size": None},
        {"Seal": "spr\u00f6de", "Tag": None, "Size": None},
    ]
    assert judge_by_sql(mission, rows) == [("fail", "G1"), (None, None)]
    assert judge_by_sql(replace(mission, letters="\u00f6"), rows) == [("fail", "G1")] * 2


def test_a_query_of_columns_that_are_numbers_is_as_short_as_one_by_hand() -> None:
    rows: list[Fields] = [
        {"TSH": "7.5", "FTI": "60"},
        {"TSH": "1", "FTI": "60"},
        {"TSH": None, "FTI": "70"},
        {"TSH": None},
    ]
    texts = ["Fail if TSH is above 6.3 and FTI is below 64."]
    mission = replace(coded(texts, list(map(ticket, rows))), numeric=frozenset({"TSH", "FTI"}))
    query = write_sql([mission]).partition("\n\n")[2]
    assert query == (
        '-- mission "m", step 3\n-- G1. "Fail if TSH is above 6.3 and FTI is below 64."\nSELECT '
        "t.*,\n"
        "    CASE\n"
        """      WHEN NOT ((t."TSH" > 6.3) AND (t."FTI" < 64.0)) THEN 'pass'\n"""
        """      WHEN ((t."TSH" > 6.3) AND (t."FTI" < 64.0)) THEN 'fail'\n"""
        "    END AS verdict,\n"
        "    CASE\n"
        """      WHEN NOT ((t."TSH" > 6.3) AND (t."FTI" < 64.0)) THEN 'G0'\n"""
        """      WHEN ((t."TSH" > 6.3) AND (t."FTI" < 64.0)) THEN 'G1'\n"""
        "    END AS rule\nFROM tickets AS t;\n"
    )


def test_where_rules_judge_what_is_missing_a_row_that_says_nothing_has_no_verdict_anywhere() -> (
    None
):
    mission = replace(
        coded(["Fail if Seal is missing."], list(map(ticket, ROWS))), columns_all=("Seal", "Size")
    )
    rows: list[Fields] = [
        {"Seal": None, "Size": "3"},
        {"Seal": " ", "Size": ""},
        {"Seal": "new", "Size": None},
    ]
    assert judge_by_sql(mission, rows) == [("fail", "G1"), (None, None), ("pass", "G0")]
    judge = judge_by_python([mission])
    assert [judge(row)[:2] for row in rows] == [("fail", "G1"), (None, ""), ("pass", "G0")]
    assert judge({"per_image": {"1": " "}}, "m").verdict is None


def test_a_row_that_says_nothing_has_no_verdict_in_sql_beside_a_rule_that_sql_cannot_say() -> None:
    """Where words alone might say more, a rule on what is missing decides, but not of nothing."""
    texts = ["Fail if a summary mentions rust.", "Fail if Seal is missing."]
    known = [*map(ticket, ROWS), ticket({"Seal": "new"}, "; rust")]
    mission = replace(coded(texts, known), columns_all=("Seal", "Size"))
    rows: list[Fields] = [{"Seal": None, "Size": "3"}, {"Seal": None, "Size": None}]
    assert [verdict for verdict, _ in judge_by_sql(mission, rows)] == ["fail", None]


def test_a_rule_that_code_cannot_read_either_hides_no_other_rule_in_sql() -> None:
    texts = ["Pass if it looks odd.", "Pass if Seal is new."]
    mission = coded(texts, list(map(ticket, ROWS)))
    row: Fields = {"Seal": "new"}
    assert mission.coded.compile()(reading(ticket(row)))[:2] == ("pass", "G2")
    assert judge_by_sql(mission, [row]) == [("pass", "G2")]


def test_a_limit_beyond_all_numbers_of_a_database_is_not_said_in_sql() -> None:
    rules = [f"Fail if Torque is above 1{'0' * 320}.", "Fail if Torque is above 3."]
    row: Fields = {"Torque": "40"}
    mission = coded(rules, [ticket(row)])
    for each in (mission, replace(mission, numeric=frozenset({"Torque"}))):
        assert [*limit_to_sql(each).unreadable] == ["G1"]
        assert judge_by_sql(each, [row]) == [("fail", None)]  # the first might say it, too


def test_where_labels_have_an_order_sql_needs_to_know_no_rule_behind_the_one_that_holds() -> None:
    codes = [
        ("G1", RuleCode("high", OneOf("Seal", ("worn",)))),
        ("G2", RuleCode("mid", OneOf("Tag", ("x",)))),
    ]
    rules = CodedRules([CodedRule(key, "", code) for key, code in codes], ("low", "high", "mid"))
    rows: list[Fields] = [{"Seal": "worn", "Tag": "spr\u00f6de"}, {"Seal": "new", "Tag": "x"}]
    assert judge_by_sql(CodedMission("m", 0, rules), rows) == [("high", "G1"), ("mid", "G2")]


def test_a_column_of_which_nothing_is_known_holds_no_flags() -> None:
    """1 is a number there, and not true."""
    headline, rule = WORDS["en"].neutral_headline, "Fail if Torque is above 0."
    guidance = Guidance("m", 1, (Rule("G0", headline), Rule("G1", rule)), 2)
    read = read_rules(guidance, Vocabulary.of([ticket({"Torque": "3"})]), WORDS["en"])
    guidance = replace(guidance, named=(("Torque", ""),))
    mission = code_mission(guidance, read, BY_NAMES, [])
    assert judge_by_sql(mission, [{"Torque": "1"}]) == [("fail", "G1")]


def test_what_is_no_number_of_python_is_an_empty_cell_of_the_exported_module() -> None:
    judge = judge_by_python([coded(["Fail if Torque Nm is above 13."], list(map(ticket, ROWS)))])
    assert judge({"Seal": "new", "Torque Nm": float("nan")}) == judge(
        {"Seal": "new", "Torque Nm": None}
    )
    assert judge({"Seal": "new", "Torque Nm": 40.0}).verdict == "fail"
