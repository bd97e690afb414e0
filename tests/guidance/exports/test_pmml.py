"""Rules as PMML: by the words of the standard, and where ``STAGEB_PMML`` is set by pypmml, which
needs Java and JPype1."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from guidance.exports.databases import import_engine
from guidance.exports.kinds import Cells
from guidance.exports.typed import TYPED_KINDS, Judge, compare
from times import TIMES

from stageb.guidance.exports.decisions import Decisions
from stageb.guidance.exports.pmml import PmmlExporter
from stageb.guidance.exports.sql_dialects import DIALECTS


def judge(decisions: Decisions, rows: list[Cells]) -> list[Any]:
    model = import_engine("pypmml", "STAGEB_PMML").Model.fromString(
        PmmlExporter().write([decisions.mission], DIALECTS["sqlite"]).files
    )
    names = list(decisions.kinds)
    cells = [[row.get(name) for name in names] for row in rows]
    texts = [
        [str(cell).lower() if isinstance(cell, bool) else cell for cell in row] for row in cells
    ]
    asked = {"columns": names, "data": texts}
    found = json.loads(model.predict(json.dumps(asked)))
    at, rule = found["columns"].index("predicted"), found["columns"].index("rule")
    return [
        (None, "")
        if each[at] == "person" and each[rule].startswith("person ")
        else (each[at], each[rule])
        for each in found["data"]
    ]


PMML = "{http://www.dmg.org/PMML-4_4}"
COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "greaterThan": operator.gt,
    "lessThan": operator.lt,
    "greaterOrEqual": operator.ge,
    "lessOrEqual": operator.le,
    "equal": operator.eq,
    "notEqual": operator.ne,
}


ASKED = {  # attributes that the standard's schema asks for
    "DataField": ("name", "optype", "dataType"),
    "Value": ("value",),
    "RuleSetModel": ("functionName",),
    "MiningField": ("name",),
    "OutputField": ("name", "feature"),
    "DerivedField": ("name", "optype", "dataType"),
    "RuleSelectionMethod": ("criterion",),
    "SimpleRule": ("score",),
    "SimplePredicate": ("field", "operator", "value"),
    "Apply": ("function",),
    "FieldRef": ("field",),
}


def check_document(root: Element, decisions: Decisions) -> None:
    """That the document is one of the standard, and says of each column what it may hold."""
    for element in root.iter():
        wanted = ASKED.get(element.tag.removeprefix(PMML), ())
        assert {*wanted} <= {*element.keys()}, element.attrib
    (method,) = root.iter(f"{PMML}RuleSelectionMethod")
    assert method.get("criterion") == "firstHit"
    fields = {each.get("name", ""): each for each in root.iter(f"{PMML}DataField")}
    for name, kind in decisions.kinds.items():
        values = [(each.get("value"), each.get("property")) for each in fields[name]]
        flags = [("true", None), ("false", None)] if kind == "flag" else []
        assert values[: len(flags)] == flags
        assert values[len(flags) :] in ([("", "missing")], [] if kind == "number" else None)
    (target,) = (
        each.get("name", "")
        for each in root.iter(f"{PMML}MiningField")
        if each.get("usageType") == "target"
    )
    assert [each.get("value") for each in fields[target]] == [
        *decisions.mission.coded.labels,
        "person",
    ]


def compute(element: Element, known: Mapping[str, Any], folded: str | None = None) -> Any:
    """What an expression gives; None where it is missing. ``folded`` is what functions of a text
    make of a missing one: by the standard's words nothing, in some engines an empty one."""
    tag, name = element.tag.removeprefix(PMML), element.get("function", "")
    if tag == "FieldRef":
        return known.get(element.get("field", ""))
    if tag == "Constant":
        text = element.text or ""
        readers: Mapping[str, Callable[[str], Any]] = {
            "double": float,
            "boolean": "true".__eq__,
            "string": str,
        }
        return readers[element.get("dataType", "")](text)
    given = [compute(each, known, folded) for each in element]
    if name in ("isMissing", "isNotMissing"):
        return (given[0] is None) == (name == "isMissing")
    if name == "if":
        return given[1] if given[0] else given[2]
    if None in given and name in ("lowercase", "replace"):
        return folded
    if None in given:
        return False if element.get("mapMissingTo") == "false" else None
    if name in COMPARED:
        return COMPARED[name](*given)
    if name == "replace":
        return re.sub(given[1], given[2].replace("$", "\\"), given[0])
    if name == "/":
        return given[0] / given[1] if given[1] else float("inf")
    functions: Mapping[str, Callable[[], Any]] = {
        "and": lambda: all(given),
        "or": lambda: any(given),
        "sum": lambda: sum(given),
        "lowercase": lambda: given[0].lower(),
        "+": lambda: given[0] + given[1],
        "-": lambda: given[0] - given[1],
        "*": lambda: given[0] * given[1],
    }
    return functions[name]()


def judge_by_the_standard(
    decisions: Decisions, rows: list[Cells], folded: str | None = None
) -> list[Any]:
    """A document evaluated by the words of the standard: what is written, where no engine runs."""
    root = ElementTree.fromstring(
        str(PmmlExporter().write([decisions.mission], DIALECTS["sqlite"]).files)
    )
    check_document(root, decisions)
    zero = {
        each.get("name", "")
        for each in root.iter(f"{PMML}MiningField")
        if each.get("missingValueReplacement") == "0"
    }

    def decide(row: Cells) -> tuple[str | None, str]:
        known = {
            name: str(cell).lower() if isinstance(cell, bool) else cell
            for name, cell in row.items()
        }
        known |= {name: 0.0 for name in zero if known.get(name) is None}
        for field in root.iter(f"{PMML}DerivedField"):
            known[field.get("name", "")] = compute([*field][-1], known, folded)
        asked = root.iter(f"{PMML}SimplePredicate")
        holds = (
            COMPARED[each.get("operator", "")](
                str(known[each.get("field", "")]).lower(), each.get("value")
            )
            for each in asked
        )
        rule = next(
            rule
            for rule, is_so in zip(root.iter(f"{PMML}SimpleRule"), holds, strict=False)
            if is_so
        )
        said: dict[str | None, Any] = {
            each.get("name"): rule.get("score")
            if each.get("feature") == "predictedValue"
            else compute(each[0], known)
            for each in root.iter(f"{PMML}OutputField")
        }
        assert said["rule"] == rule.get("id")
        return (None, "") if said["predicted"] == "person" else (said["predicted"], said["rule"])

    return [decide(row) for row in rows]


def judge_with_empty_texts(decisions: Decisions, rows: list[Cells]) -> list[Any]:
    return judge_by_the_standard(decisions, rows, "")


@pytest.mark.parametrize("by", [judge, judge_by_the_standard, judge_with_empty_texts])
@pytest.mark.parametrize("name", TYPED_KINDS)
def test_pmml_gives_the_verdict_and_the_rule_that_code_gives(name: str, by: Judge) -> None:
    assert compare(by, name, 10 * TIMES) > 500
