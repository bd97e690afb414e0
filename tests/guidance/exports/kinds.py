"""Tickets of every kind, and generated rules on them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

from guidance.rules.made_rules import FIELDS, MENTIONED
from guidance.rules.test_generated_rules import LABELS, generate, generate_points

from stageb.guidance.exports.protocol import CodedMission, code_mission
from stageb.guidance.rules.conditions import Mentions
from stageb.guidance.rules.fields import Columns, read_images, read_row, sort_summaries
from stageb.guidance.rules.judge import read_rules, write_rule
from stageb.guidance.rules.prompts import WORDS, name_labels
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.words.types import PASS_FAIL, Guidance, Rule, Ticket

Cells = Mapping[str, Any]


class Kind(NamedTuple):
    """A kind of tickets."""

    # of each field, such as rules name; of those with numbers one stands first
    values: Mapping[str, Sequence[str]]
    # a row as a table or a database holds it, or the documents of a ticket's images
    draw: Callable[[Random], Cells]
    columns: Columns = Columns(())
    is_typed: bool = False
    are_texts: bool = False  # whether a database keeps all cells as texts
    is_json: bool = False  # whether what is drawn are documents of images, and no cells


TEXTS = {
    "Seal": ["worn", "good", "NEW"],
    "Torque Nm": ["40", "12.5", "-3", "40.0"],
    "Width": ["2.75", "3", "40"],
    "Grade": ["1", "1.0", "2.50", "A1.0", "10"],
}
ODD = [
    "n/a",
    "unknown",
    "2-3",
    "1.2.3",
    "5.",
    ".5",
    "1e-3",
    "5e5",
    "007",
    "-0.50",
    "+7",
    "A1",
    "5mm23",
    "2024-05-01",
    "--",
    "12,50-",
    "2.75   mm",
    " worn\t",
    "n/a\n-",
]
UNITS = [
    "2.75 mm",
    "3mm",
    "40 kg",
    "7 Nm",
    "12.5 nm",
    "3 mm.",
    "2 mms",
    "40 %",
    "1e-3 mm",
    "4 m2",
    "5 mm2",
]


def draw_table(draw: Random) -> Cells:
    cells = {
        name: draw.choice([*values, *values, draw.choice(ODD), "", None])
        for name, values in TEXTS.items()
    }
    return {**cells, "Width": draw.choice([cells["Width"], draw.choice(UNITS)])}


def draw_marked(draw: Random) -> Cells:
    """Cells of which some stand for missing values."""
    marks = ["n/a", "N/A", " n/A ", "?", "--", "n/a 5"]
    return {
        name: draw.choice([cell, cell, draw.choice(marks)])
        for name, cell in draw_table(draw).items()
    }


def draw_commas(draw: Random) -> Cells:
    commas = [
        "0,5",
        "2,75 mm",
        "2,75\tmm",
        "\r\n2,75 mm \t",
        "2,75    mm",
        "-1,5 \u00a0",
        "2,75 Mm",
        "2,75 Meters",
        "2,75 meter",
        "-1,5",
        "1,5-",
        "-1,5-",
        "7,25-",
        "2,75mm",
        "-,25",
        ",5",
        "5,",
        "1,2,3",
        "3,5 kg",
        "1,5 2",
        "2,5 eV",
        "2,5-",
        "3,0",
        "2,75  mm",
    ]
    cells = draw_table(draw)
    return {
        name: draw.choice([cell, draw.choice(commas)]) if name != "Seal" else cell
        for name, cell in cells.items()
    }


FLAGS = {
    "guard": ["True", "False"],
    "sealed": ["true"],
    "gap": ["1", "0", "2.5"],
    "load": ["1", "3"],
    "Type": ["H", "M"],
}


def draw_flags(draw: Random) -> Cells:
    cells: dict[str, Any] = {name: draw.choice([True, False, None]) for name in ("guard", "sealed")}
    cells |= {"gap": draw.choice([1, 0, 2.5, None]), "load": draw.choice([1, 3, 0])}
    return cells | {"Type": draw.choice(["H", "M", None])}


def draw_flagged_commas(draw: Random) -> Cells:
    """The same where decimals have a comma, so that numbers are texts."""
    gaps = {1: "1", 0: "0,0", 2.5: "2,5"}
    cells = draw_flags(draw)
    return {**cells, "gap": gaps.get(cells["gap"]), "load": str(cells["load"])}


NUMBERS = {
    "TSH": ["6.3", "1", "0.25"],
    "FTI": ["64", "1"],
    "T3": ["1.5", "64"],
    "T4 [\u00b5g/l]": ["100", "1"],
}


def draw_numbers(draw: Random) -> Cells:
    return {
        name: draw.choice(
            [None, draw.randint(-2, 9), round(draw.uniform(-1, 99), 2), *map(float, values)]
        )
        for name, values in NUMBERS.items()
    }


COUNTS = {
    "of_plug": ["1", "0", "2"],
    "a": ["3", "1"],
    "a_b": ["1", "2"],
    "of_plug_state_loose": ["1", "0"],
    "lid": ["torn", "fine"],
    "image_1_of_plug": ["1", "2"],
}


STATES: list[dict[str, Any]] = [{}, {"state": "loose"}, {"n": 2}]


def draw_documents(draw: Random) -> Cells:
    """Documents in which a path is an object in one image and a number, a text or nothing in
    another."""

    def draw_one() -> object:
        a: object = draw.choice(
            [
                3,
                1,
                {"b": draw.choice([1, 2, "x", None])},
                "3",
                None,
                [1, 2],
                {"b": {"c": 1}},
                True,
                2.5,
            ]
        )
        plugs = [{"object": "plug", **draw.choice(STATES)} for _ in range(draw.randint(0, 2))]
        return {
            **draw.choice([{"a": a}, {}]),
            **draw.choice([{"lid": draw.choice(["torn", "fine"])}, {}]),
            "of": plugs,
        }

    documents = [json.dumps(draw_one()) for _ in range(draw.choice([1, 1, 2]))]
    return {f"image_{n}": text for n, text in enumerate(documents, 1)}


def draw_mixture(draw: Random) -> Cells:
    """The same, and prose, which counts nothing: a number that it does not name is not known."""
    said = draw_documents(draw)
    return (
        said
        if draw.random() < 0.8
        else {**said, "image_1": draw.choice(["lid: torn; a: 2", "a word", "{}", '{"a": 1'])}
    )


KINDS = {
    "table": Kind(TEXTS, draw_table),
    "decimal commas": Kind(TEXTS, draw_commas, Columns((), decimal=",")),
    "missing values": Kind(TEXTS, draw_marked, Columns((), missing=("n/a", "?", "--"))),
    "booleans": Kind(FLAGS, draw_flags),
    "booleans and decimal commas": Kind(FLAGS, draw_flagged_commas, Columns((), decimal=",")),
    "numbers": Kind(NUMBERS, draw_numbers, is_typed=True),
    "numbers and others": Kind(FLAGS, draw_flags, is_typed=True),
    "numbers as texts": Kind(NUMBERS, draw_numbers, are_texts=True),
    "JSON": Kind(COUNTS, draw_documents, is_json=True),
    "JSON and prose": Kind(COUNTS, draw_mixture, is_json=True),
}


def make_ticket(kind: Kind, row: Cells) -> Ticket:
    if kind.is_json:
        shown, content = read_images(sort_summaries(row.items()), {})
    else:
        shown, content = read_row(
            {name: "" if cell is None else str(cell) for name, cell in row.items()}, kind.columns
        )
    return Ticket("m", "g", "pass", tuple(shown), content=content)


def make_missions(
    name: str, kind: Kind, missions: int, size: int
) -> list[tuple[CodedMission, list[Cells]]]:
    """Rules as texts, read beside so many tickets, below either headline; every other mission has
    labels of its own. Every other rule gives points."""
    FIELDS[name], MENTIONED[name] = (
        {key: [*values] for key, values in kind.values.items()},
        ["lid", "worn"],
    )
    draw, codes, made = Random(name), iter(generate(name, missions * 60)), []
    for number in range(missions):
        labels = LABELS if number % 2 else PASS_FAIL
        words = name_labels(WORDS["en"], labels)
        rows = [kind.draw(draw) for _ in range(size)] + [dict.fromkeys(kind.draw(draw), "")] * (
            not kind.is_json
        )
        tickets = [make_ticket(kind, row) for row in rows]
        vocabulary, texts = Vocabulary.of(tickets), list[str]()
        while len(texts) < 5:
            code = next(codes)
            if labels == LABELS:
                code = replace(code, verdict=draw.choice(LABELS))
            if draw.random() < 0.5:
                code = replace(code, condition=generate_points(draw, name), exception=None)
            has_words = any(isinstance(each, Mentions) for each in code.expression.conditions())
            texts += [write_rule(code, words)] if not has_words or draw.random() < 0.05 else []
        headline = draw.choice([*words.headlines.values()])
        rules = tuple(Rule(f"G{n}", text) for n, text in enumerate([headline, *texts]))
        guidance = Guidance("m", 1, rules, len(rules), labels=labels)
        coded = read_rules(guidance, vocabulary, WORDS["en"])
        made.append((code_mission(guidance, coded, kind.columns, tickets, kind.is_typed), rows))
    return made
