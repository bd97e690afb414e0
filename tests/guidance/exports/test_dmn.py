"""Rules as a decision table, judged by the words of the standard, and by feelin where
``STAGEB_NODE`` names a folder of Node's modules that has it."""

from __future__ import annotations

import json
import operator
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from guidance.exports.kinds import Cells
from guidance.exports.test_export import coded
from guidance.exports.typed import SIZE, TYPED_KINDS, compare
from times import TIMES

from stageb.guidance.exports.decisions import Decisions, decide
from stageb.guidance.exports.dmn import DmnExporter, _Feel
from stageb.guidance.exports.sql_dialects import DIALECTS
from stageb.guidance.rules.value_types import Reading
from stageb.guidance.words.types import Content, Ticket

JUDGE = Path(__file__).parent / "judge.js"


def ask_node(form: str, document: str, rows: list[Any]) -> list[Any]:
    if "STAGEB_NODE" not in os.environ:
        pytest.skip("STAGEB_NODE names no modules")
    # modules are found beside the script
    copy = Path(os.environ["STAGEB_NODE"]) / f"judge-{os.getpid()}.cjs"
    copy.write_text(JUDGE.read_text())
    asked = json.dumps({"form": form, "document": document, "rows": rows})
    ran = subprocess.run(
        ["node", str(copy)], input=asked, capture_output=True, text=True, check=False
    )
    copy.unlink()
    assert ran.returncode == 0, ran.stderr
    found: list[Any] = json.loads(ran.stdout)
    return found


def judge(decisions: Decisions, rows: list[Cells]) -> list[Any]:
    document = DmnExporter().write([decisions.mission], DIALECTS["sqlite"]).files
    assert isinstance(document, str)
    names = _Feel(decisions).names
    asked = [{safe: row.get(name) for name, safe in names.items()} for row in rows]
    return [(verdict, rule or "") for verdict, rule in ask_node("table", document, asked)]


class Null:
    """The language's null: what compares or computes with it is null, which is not true."""

    def absorb(self, *others: Any) -> Null:
        return self

    __lt__ = __le__ = __gt__ = __ge__ = __call__ = absorb
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = absorb
    __truediv__ = __rtruediv__ = absorb

    def __bool__(self) -> bool:
        return False


NULL = Null()


class Number(float):
    """A number; what is divided by 0 is null."""

    def __truediv__(self, other: Any) -> Any:
        return float(self) / other if other else NULL


FUNCTIONS: Mapping[str, Any] = {
    "null": NULL,
    "true": True,
    "false": False,
    "IF": lambda when, one, other: Number(one if when else other),
    "lower_case": lambda text: NULL if text is NULL else text.lower(),
    "replace": lambda text, form, by: NULL if text is NULL else re.sub(form, by, text),
}
TEXT = r'"(?:[^"\\]|\\.)*"'
SIGNS: Mapping[str, Callable[[Any, Any], Any]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}


def compute(expression: str, row: Mapping[str, Any]) -> Any:
    """What an expression gives, of the forms that are written."""
    said = re.sub(r" then (\S+) else (\S+?)\)", r", \1, \2)", expression.replace("(if ", "IF("))
    said = said.replace("lower case(", "lower_case(")
    assert "()" not in said  # which is no expression
    # texts stay as they are, \s too
    spelled = re.sub(rf"{TEXT}|(?<![<>!])=", lambda each: "==" if each[0] == "=" else each[0], said)
    return eval(spelled.replace(r"\s", r"\\s"), {**FUNCTIONS, **row})


def meets(value: Any, tests: str, row: Mapping[str, Any]) -> bool:
    """Whether a value meets one of the tests in a cell."""
    if tests.startswith("not("):
        return not meets(value, tests[4:-1], row)
    if between := re.fullmatch(r"([(\[])(\S+)\.\.(\S+)([)\]])", tests):
        above, below = ">" + "=" * (between[1] == "["), "<" + "=" * (between[4] == "]")
        assert float(between[2]) < float(between[3])  # as engines ask of an interval
        return bool(
            SIGNS[above](value, float(between[2])) and SIGNS[below](value, float(between[3]))
        )
    for test in re.findall(rf"{TEXT}|[^, ][^,]*", tests):
        sign, _, limit = test.partition(" ")
        if sign in SIGNS and SIGNS[sign](value, float(limit)):
            return True
        if test == "-" or (sign not in SIGNS and value == compute(test, row)):
            return True
    return False


def judge_by_the_standard(decisions: Decisions, rows: list[Cells]) -> list[Any]:
    """The table by what DMN says of the forms that are written: where no engine runs."""
    document = DmnExporter().write([decisions.mission], DIALECTS["sqlite"]).files
    of = {"dmn": "https://www.omg.org/spec/DMN/20191111/MODEL/"}
    table = ElementTree.fromstring(str(document)).find(".//dmn:decisionTable", of)
    assert table is not None
    asked = [each.text or "" for each in table.iterfind("dmn:input/*/dmn:text", of)]
    listed = [
        [each.text or "" for each in row.iterfind("*/dmn:text", of)]
        for row in table.findall("dmn:rule", of)
    ]
    outputs = [each.get("name") for each in table.iterfind("dmn:output", of)]
    names = _Feel(decisions).names

    def read(cell: Any) -> Any:
        is_number = isinstance(cell, int | float) and not isinstance(cell, bool)
        return NULL if cell is None else Number(cell) if is_number else cell

    def decide(row: Cells) -> tuple[str | None, str]:
        cells = {safe: read(row.get(name)) for name, safe in names.items()}
        values = [compute(each, cells) for each in asked]
        said = next(
            dict(zip(outputs, texts[len(asked) :], strict=False))
            for texts in listed
            if all(meets(value, test, cells) for value, test in zip(values, texts, strict=False))
        )
        verdict, rule = said["verdict"], said["rule"]
        return (None, "") if verdict == "null" else (json.loads(verdict), json.loads(rule))

    return [decide(row) for row in rows]


@pytest.mark.parametrize("name", TYPED_KINDS)
def test_by_the_standard_the_table_says_what_code_says(name: str) -> None:
    assert compare(judge_by_the_standard, name, 10 * TIMES) > 500


@pytest.mark.parametrize("name", TYPED_KINDS)
def test_the_table_gives_the_verdict_and_the_rule_that_code_gives(name: str) -> None:
    assert compare(judge, name, *SIZE) > 100


WIDE = " or ".join(
    f"{one} is above {n} and {other} is below {n + 1}"
    for n in (0, 1, 3, 5)
    for one, other in ("ab", "bc", "ca")
)


@pytest.mark.parametrize("is_counted", [False, True])
@pytest.mark.parametrize(
    "rules",
    [
        "Fail if a is above 0.000000000000000001.",  # the language has no exponents
        "Fail if a is above 0.00000012345678901234 and b is below 1000000000000000000000000.",
        f"Fail if {WIDE}.",
        f"Fail unless {WIDE}.",  # in more ways than a table shows as rows
        "Fail unless a is missing or b is above 5 and c is below 3.",
        # whether any fails has more ways than are listed, and stands beside what may pass
        f"Pass if b is above 9.\nFail unless {WIDE}.\nFail if c is above 9.",
        "Fail if a is above 3.25 and a is below 0.25 or b is above 5 and c is above 5.",
        "Fail if a is below b.",
        "Fail unless a equals b.",
    ],
)
def test_limits_of_any_length_and_alternatives_of_any_number_are_said(
    rules: str, is_counted: bool
) -> None:
    values = [None, 0.0, 1e-18, 2e-18, 1.2345678901234e-07, 1.2345678901235e-07, 3.25, 9.5, 1e24]
    rows: list[Cells] = [dict(zip("abc", each, strict=True)) for each in product(values, repeat=3)]
    names = {"a": "1", "b": "1", "c": "1"}
    known = Ticket("m", "g", "pass", (("image_1", "x"),), content=Content((*names.items(),), ()))
    mission = replace(
        coded(rules.split("\n"), [known]),
        tickets=(known,),
        numeric=frozenset("abc"),
        is_counted=is_counted,
    )
    wanted = mission.coded.compile()

    def read(row: Cells) -> Reading:
        told = {name: f"{Decimal(repr(cell)):f}" for name, cell in row.items() if cell is not None}
        return Reading(told, frozenset(), is_counted=is_counted)

    said = [wanted(read(row)) for row in rows]
    found = judge_by_the_standard(decide(mission, "dmn"), rows)
    assert found == [(each.verdict, each.rule) for each in said]
    assert len({each.verdict for each in said}) >= 2


def test_a_table_has_a_row_for_each_way_in_which_a_rule_holds() -> None:
    """As an auditor reads it; - asks for nothing. Rows without a verdict are a person's."""
    texts = [
        "Pass if Grade is good unless Torque is missing.",
        "Fail if Torque is above 30 and below 39.5 or Torque is below Width.",
    ]
    cells = [("Grade", "good"), ("Torque", "41"), ("Width", "3")]
    known = Ticket("m", "g", "pass", (("image_1", "x"),), content=Content(tuple(cells), ()))
    mission = replace(
        coded(texts, [known]), tickets=(known,), numeric=frozenset({"Torque", "Width"})
    )
    document = DmnExporter().write([mission], DIALECTS["sqlite"]).files
    assert isinstance(document, str)
    table = next(
        each
        for each in ElementTree.fromstring(document).iter()
        if each.tag.endswith("decisionTable")
    )
    of = {"dmn": "https://www.omg.org/spec/DMN/20191111/MODEL/"}
    labels = [each.get("label") for each in table.findall("dmn:input", of)]
    rows = [
        " ".join(str(each.text) for each in row.iterfind("*/dmn:text", of))
        for row in table.findall("dmn:rule", of)
    ]
    assert labels == ["Grade", "Torque", "Torque < Width", "Width"]
    why = "the row does not tell whether"
    assert rows == [
        f'"good" not(null) - - "pass" "G1" {texts[0]}',
        f'null, "" (30..39.5) - - null null {why} G1',
        f'null, "" - true - null null {why} G1',
        f'- (30..39.5) - - "fail" "G2" {texts[1]}',
        f'- - true - "fail" "G2" {texts[1]}',
        f"- null - - null null {why} G2",
        f"- - - null null null {why} G2",
        '- - - - "pass" "G0" no rule speaks of it',
    ]
