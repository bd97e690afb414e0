"""Tickets of every kind, judged by generated rules as code, and by the SQL that is exported: the
same, in every row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import pytest
from guidance.exports.databases import ENGINES, ask
from guidance.exports.kinds import KINDS, Cells, Kind, make_missions, make_ticket
from guidance.rules.made_rules import load_python
from guidance.rules.test_generated_rules import LABELS
from times import TIMES

from stageb.guidance.commands.use.doubts import find_missing_fields
from stageb.guidance.exports.protocol import CodedMission, code_mission
from stageb.guidance.exports.sql import judge_rows, limit_to_sql, list_fields, write_sql
from stageb.guidance.exports.sql_dialects import DIALECTS
from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.conditions import OutOfReach
from stageb.guidance.rules.judge import read_rules
from stageb.guidance.rules.parse import parse_rule
from stageb.guidance.rules.predicates import Ruling, measure_margin
from stageb.guidance.rules.prompts import WORDS, name_labels
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.words.automation import PERSON, STAGEB, Automation, Bound
from stageb.guidance.words.types import HEADLINE_KEY, PASS_FAIL, Guidance, Rule, Ticket, Verdict

MISSIONS = {"sqlite": 3 * TIMES, "spark": 2}  # of each kind; of the others 2, or more
ROWS = {"spark": 600 * TIMES, "sqlite": 60}  # of each mission; of the others 60, or more


def ask_sql(
    engine: str, mission: CodedMission, rows: Sequence[Cells], kind: Kind
) -> list[tuple[str | None, ...]]:
    """Verdict and rule of each row, and who decides it."""
    names = list(dict.fromkeys([*kind.values, *(name for row in rows for name in row)]))
    types = {
        name: "text" if kind.are_texts else find_type([row.get(name) for row in rows])
        for name in names
    }

    def keep(name: str, cell: Any) -> Any:
        if cell is None or (cell == "" and types[name] != "text"):
            return None
        kept = {"text": str, "number": float, "flag": int if engine == "sqlite" else bool}
        return kept[types[name]](cell)

    cells = [["m", *(keep(name, row.get(name)) for name in names)] for row in rows]
    query = write_sql([mission], DIALECTS[engine])
    return ask(engine, query, {"mission": "text", **types}, cells, columns=3)


def promise(mission: CodedMission, rulings: Sequence[Ruling], draw: Random) -> CodedMission:
    """The mission where some of the tickets with these rulings are decided alone."""
    margins: dict[Verdict, dict[str, set[int]]] = {}
    for ruling in rulings:
        if ruling.verdict:
            of_rules = margins.setdefault(ruling.verdict, {})
            of_rules.setdefault(ruling.rule, set()).add(measure_margin(ruling, HEADLINE_KEY))
    bounds = tuple(
        Bound(verdict, 0.02, {key: draw.choice(sorted(seen)) for key, seen in of.items()}, 9, 9, 0)
        for verdict, of in margins.items()
        if draw.random() < 0.8
    )
    fields = list_fields(mission)
    told = tuple(draw.sample(fields, min(len(fields), draw.choice([0, 0, 1, 2]))))
    automation = Automation(0.95, "x", "rules", "", 9, told, bounds)
    return replace(mission, automation=automation)


def tell_decider(mission: CodedMission, ticket: Ticket, ruling: Ruling) -> str:
    found, read = mission.automation, reading(ticket)
    assert found is not None
    margin = measure_margin(ruling, HEADLINE_KEY)
    is_sure = found.decides(ruling.verdict, ruling.rule, margin)
    return STAGEB if is_sure and not find_missing_fields(found.told, read, True) else PERSON


def find_type(cells: Sequence[Any]) -> str:
    found = {type(cell) for cell in cells if cell not in (None, "")}
    return "flag" if found == {bool} else "number" if found and found <= {int, float} else "text"


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("engine", ENGINES)
def test_sql_gives_every_ticket_the_verdict_and_the_rule_that_code_gives(
    engine: str, name: str
) -> None:
    """And the same decider."""
    kind, missions = KINDS[name], MISSIONS.get(engine, 2 * TIMES)
    size, draw = ROWS.get(engine, 600 if TIMES > 1 else 60), Random(f"{engine} {name}")
    told = sum(
        count_told(engine, kind, mission, rows, draw)
        for mission, rows in make_missions(name, kind, missions, size)
    )
    assert told > missions


@pytest.mark.parametrize("engine", ENGINES)
def test_sql_finds_words_of_a_column_as_code_does(engine: str) -> None:
    """With any ending, stems and phrases, whatever stands between words."""
    missions = MISSIONS.get(engine, 2 * TIMES) * (1 if TIMES > 1 else 4)
    size, draw = ROWS.get(engine, 600 if TIMES > 1 else 60), Random(f"{engine} words")
    kind = Kind({"Remark": [], "Seal": ["worn", "good"]}, draw_remark)
    for number in range(missions):
        rows = [draw_remark(draw) for _ in range(size)]
        mission = code_remarks(kind, rows, LABELS if number % 2 else PASS_FAIL, draw)
        assert not limit_to_sql(mission).unreadable
        told = count_told(engine, kind, mission, rows, draw)
        assert told > size / 2


WORDY = (
    "leak leaks leaked leaking leakage leaker leaky leakeds Leak LEAKS re-leak leak-proof o'ring o\u2019ring "
    "ring rings is iss in oil oils cleared oiled tank tanks u_v u v 12 3.5 12mm caf\u00e9 b a water waters inlet"
).split()
BETWEEN = [
    *"  ,.;:-'/()%_\\\n&#",
    "\u2019",
    ", ",
    " - ",
    "--",
    "-'",
    "...",
    "  ",
    "\u00b0",
    "!? ",
    "--- ",
]
ASKED = (
    "leak leak leak oil lea* lea* leaks re-leak leak-proof o'ring ring is in tank u_v 12 12mm caf\u00e9 water inl* wat*"
).split()
PHRASES = ["water in", "leak is", "in tank", "leak tank", "12 3"]


def draw_remark(draw: Random) -> Cells:
    pieces = [
        piece
        for _ in range(draw.randint(0, 9))
        for piece in (draw.choice(WORDY), draw.choice([" ", " ", draw.choice(BETWEEN)]))
    ]
    return {
        "Remark": draw.choice(["", "", " "])[:1] + "".join(pieces) or None,
        "Seal": draw.choice(["worn", "good", "1", None]),
    }


def code_remarks(
    kind: Kind, rows: Sequence[Cells], labels: tuple[Verdict, ...], draw: Random
) -> CodedMission:
    """Rules on words of remarks, beside such rows; every other one gives points."""
    tickets = [make_ticket(kind, row) for row in rows]
    vocabulary, words = Vocabulary.of(tickets), name_labels(WORDS["en"], labels)
    known = [
        each
        for each in (*ASKED, *PHRASES)
        if vocabulary.holds_stem(each) or vocabulary.holds(each.removesuffix("*"))
    ]

    def ask() -> str:
        asked = draw.sample(known, min(len(known), draw.choice([1, 1, 2])))
        return f"Remark {draw.choice(['mentions', 'does not mention'])} {' or '.join(asked)}"

    texts: list[str] = []
    while len(texts) < 5:
        said = ["Fail", "Pass"] if labels == PASS_FAIL else [*labels]
        points = "; ".join(f"{draw.choice([-2, -1, 1, 3])} if {ask()}" for _ in range(3))
        text = draw.choice(
            [
                f"{draw.choice(said)} if {ask()}.",
                f"{draw.choice(said)} if {ask()} and Seal is worn.",
                f"{draw.choice(said)} if it has 1 point or more: {points}.",
            ]
        )
        if not isinstance(parse_rule(text, vocabulary, words), OutOfReach):
            texts.append(text)
    headline = draw.choice([*words.headlines.values()])
    rules = tuple(Rule(f"G{n}", text) for n, text in enumerate([headline, *texts]))
    guidance = Guidance("m", 1, rules, len(rules), labels=labels)
    return code_mission(guidance, read_rules(guidance, vocabulary, words), kind.columns, tickets)


def count_told(
    engine: str, kind: Kind, mission: CodedMission, rows: Sequence[Cells], draw: Random
) -> int:
    """How many rows SQL gives a verdict, which is that of code in all of them."""
    judge, tickets = mission.coded.compile(), mission.tickets
    expected = [Ruling(None) if ticket.is_blank else judge(reading(ticket)) for ticket in tickets]
    mission = promise(mission, expected, draw)
    wanted_all = [
        (ruling.verdict, ruling.rule or None, tell_decider(mission, ticket, ruling))
        for ruling, ticket in zip(expected, tickets, strict=True)
    ]
    if engine == "sqlite":
        judge_one, decides = (load_python([mission])[name] for name in ("judge", "decides"))
        given = [{"per_image": row} if kind.is_json else row for row in rows]
        said = [(*judge_one(row, "m")[:2], decides(row, "m")) for row in given]
        assert [(each[0], each[1] or None, each[2]) for each in said] == wanted_all
    asked = rows if not kind.is_json else [dict(reading(ticket).pairs) for ticket in tickets]
    is_whole = not limit_to_sql(mission).unreadable and mission.is_counted is not None
    told = 0
    for row, wanted, found in zip(
        rows, wanted_all, ask_sql(engine, mission, asked, kind), strict=True
    ):
        unknown = (None, None, PERSON)
        is_same = found == wanted or (
            not is_whole
            and all(f in (w, u) for f, w, u in zip(found, wanted, unknown, strict=True))
        )
        assert is_same, (row, found, wanted, [rule.text for rule in mission.coded.each])
        told += found[0] is not None
    return told


def compare_in_sqlite(
    rules: Sequence[str],
    labels: tuple[Verdict, ...],
    rows: Sequence[Mapping[str, str]],
    is_typed: bool,
) -> list[tuple[str | None, str | None]]:
    """Verdict and rule of each row by SQL, which are those by code; and who decides is the same,
    whatever margin it takes."""
    kind = Kind({}, lambda draw: {}, is_typed=is_typed)
    texts = [name_labels(WORDS["en"], labels).neutral_headline, *rules]
    all_rules = tuple(Rule(f"G{n}", text) for n, text in enumerate(texts))
    guidance = Guidance("m", 1, all_rules, len(texts), labels=labels)
    tickets = [make_ticket(kind, row) for row in rows]
    coded = read_rules(guidance, Vocabulary.of(tickets), WORDS["en"])
    judge, mission = coded.compile(), code_mission(guidance, coded, kind.columns, tickets, is_typed)
    rulings = [Ruling(None) if each.is_blank else judge(reading(each)) for each in tickets]
    found = judge_rows(mission, rows)
    assert found == [(each.verdict, each.rule or None) for each in rulings]
    cells = [
        {name: float(cell) if is_typed else cell for name, cell in row.items()} for row in rows
    ]
    for margin in {measure_margin(each, HEADLINE_KEY) for each in rulings}:
        least = dict.fromkeys((rule.key for rule in all_rules), margin)
        bound = Bound("", 0.02, least, 9, 9, 0)
        mission = replace(mission, automation=Automation(0.95, "", "rules", "", 9, (), (bound,)))
        decided = [tell_decider(mission, *each) for each in zip(tickets, rulings, strict=True)]
        assert [each[2] for each in ask_sql("sqlite", mission, cells, kind)] == decided
    return found


def test_sql_compares_numbers_of_one_unit_alone_as_code_does() -> None:
    cells = product(["3 mm", "2 mm", "2 kg", "2", "3"], repeat=2)
    rows = [dict(zip("ab", each, strict=True)) for each in cells]
    found = [
        compare_in_sqlite([f"Fail if {what}."], PASS_FAIL, rows, False)
        for what in ("a is above b", "a + b is above 4", "a - b is above 0")
    ]
    assert all(len({*each}) == 3 for each in found)  # it fails, passes, or is not told


def test_sql_takes_no_letter_for_another_in_capitals_as_code_does() -> None:
    """The capital of a dotless i is I, whose small letter has a dot."""
    rows = [{"Seal": cell} for cell in ("\u0131l\u0131k", "ILIK", "ilik", "\u0131L\u0131K")]
    found = compare_in_sqlite(["Fail if Seal is \u0131l\u0131k."], PASS_FAIL, rows, False)
    assert [verdict for verdict, _ in found] == ["fail", "pass", "pass", "fail"]


def test_sql_finds_a_phrase_whatever_number_of_marks_stands_in_it_as_code_does() -> None:
    rows = [{"Remark": f"much water{'!' * count} in it"} for count in (1, 2, 3, 5, 9, 17, 30)]
    rows += [{"Remark": "water in it"}, {"Remark": "water is in it"}]
    found = compare_in_sqlite(["Fail if Remark mentions water in."], PASS_FAIL, rows, False)
    assert {verdict for verdict, _ in found} == {"fail", "pass"}


CARD = (
    "{} if it has {} points or more: 1 if {} is above 0; 1 if {} is above 0; -1 if {} is above 0."
)


@pytest.mark.parametrize("least", [-1, 0, 1, 2])
@pytest.mark.parametrize(
    "verdicts", ["Fail", "Pass Fail", "High", "High Mid", "Low High Mid", "High | Mid Low"]
)
@pytest.mark.parametrize("is_typed", [True, False])
def test_sql_counts_points_as_code_does_below_at_and_above_the_least(
    least: int, verdicts: str, is_typed: bool
) -> None:
    """And of rules whose points are compared chooses the same one: of those between which no rule
    without points stands."""
    names = zip(verdicts.split(), ("abc", "bca", "cab", "bca"), strict=False)
    rules = [
        CARD.format(verdict, least, *fields)
        if verdict != "|"
        else "Mid if a is above 0 and b is above 0 and c is below 1."
        for verdict, fields in names
    ]
    cells = product(("0", "1", None), repeat=3)
    rows = [{name: cell for name, cell in zip("abc", each, strict=True) if cell} for each in cells]
    labels = PASS_FAIL if "Fail" in verdicts else LABELS
    assert len({*compare_in_sqlite(rules, labels, rows, is_typed)}) > 1


@pytest.mark.parametrize("blank", " \t\n\r\u00a0")
def test_sql_takes_up_to_eight_blanks_for_one_as_code_does(blank: str) -> None:
    rows = [{"Note": f"{blank * count}worn{blank * count}out{blank}"} for count in range(1, 9)]
    rows += [{"Note": f"worn{blank} {blank}out"}, {"Note": "wornout"}]
    found = compare_in_sqlite(["Fail if Note is worn out."], PASS_FAIL, rows, False)
    assert [rule for _, rule in found] == ["G1"] * (len(rows) - 1) + ["G0"]


@pytest.mark.parametrize(
    ("cell", "words", "why"),
    [
        ("\u6f0f\u6c34\u4e25\u91cd", "\u6f0f\u6c34", "texts without spaces"),
        ("true", "true", "numbers and flags"),
        ("a b, c", "a", "cannot find 'a'"),
        (f"{'x' * 46} y", "x" * 46, "cannot find"),
        (f"{'x' * 45} y", "x" * 45, ""),
        (f"{'x' * 46} y", "xxx*", ""),
        ("o'ring", "o'ring", ""),
        ("are you more", "are you more", ""),
    ],
)
def test_words_that_sql_cannot_find_are_told(cell: str, words: str, why: str) -> None:
    kind = Kind({}, lambda draw: {})
    tickets = [make_ticket(kind, {"Remark": cell})]
    rules = (
        Rule("G0", WORDS["en"].neutral_headline),
        Rule("G1", f"Fail if Remark mentions {words}."),
    )
    guidance = Guidance("m", 1, rules, 2)
    coded = read_rules(guidance, Vocabulary.of(tickets), WORDS["en"])
    mission = code_mission(guidance, coded, kind.columns, tickets)
    told = limit_to_sql(mission).unreadable
    assert (why in told["G1"]) if why else not told
    if not why:
        assert judge_rows(mission, [{"Remark": cell}, {"Remark": "dry"}]) == [
            ("fail", "G1"),
            ("pass", "G0"),
        ]


def test_sql_finds_the_words_of_long_lists() -> None:
    """Which no engine's limit on brackets within brackets may cut."""
    listed = [f"word{n}" for n in range(400)]
    rules = [
        f'"long" words: {", ".join(listed)}',
        'Pass if Remark mentions a "long" word and Seal is worn.',
        'Fail if it has 2 points or more: 1 for each "long" word that Remark mentions.',
    ]
    texts = [
        " ".join(listed[place : place + 400 // size])
        for size, place in ((1, 0), (400, 399), (200, 7))
    ]
    rows = [
        {"Remark": text, "Seal": seal} for text in (*texts, "none") for seal in ("worn", "good")
    ]
    assert len({*compare_in_sqlite(rules, PASS_FAIL, rows, False)}) == 3
