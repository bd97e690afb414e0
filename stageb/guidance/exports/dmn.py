"""Rules as a DMN 1.3 decision table (omg.org/spec/DMN): a row for each way in which a rule holds; the first that fits
decides.

A condition on one column stands in its cell. What a cell cannot say, points and comparisons of columns, is a column of its
own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import chain, product
from math import prod
from xml.etree.ElementTree import Element

from stageb.guidance.exports.decisions import (
    ALWAYS,
    Compare,
    DecisionCase,
    Decisions,
    Either,
    Every,
    Formula,
    Given,
    OneOf,
    PointSum,
    Same,
    export_only,
    list_missing,
)
from stageb.guidance.exports.markup import add, free_name, write_document
from stageb.guidance.exports.missions import CodedMission
from stageb.guidance.exports.protocol import Exported
from stageb.guidance.exports.sql_dialects import Dialect
from stageb.guidance.rules.value_types import Computed

_FORM = "DMN"
_TYPES = {"number": "number", "flag": "boolean", "text": "string"}
MOST_ROWS = 12  # of one rule: with more, whether it holds is a column of its own
_WORDS = (  # of the language, and of the decision
    "and between context date days duration else every false for function if in instance list months not null of or return "
    "rule satisfies some string substring then time true verdict years"
).split()
_Tests = dict[str, str]  # what an input expression must be


class DmnExporter:
    """A decision table of one mission."""

    is_typed = True

    def write(self, missions: Sequence[CodedMission], dialect: Dialect) -> Exported:
        """The document. Raises ``InputError``, which names a rule that DMN cannot say."""
        return export_only(missions, _FORM, lambda decisions: write_document(_write_document(decisions)))


def _write_document(decisions: Decisions) -> Element:
    mission, feel = decisions.mission, _Feel(decisions)
    root = Element("definitions", {"xmlns": "https://www.omg.org/spec/DMN/20191111/MODEL/"})
    root.attrib |= {"id": "rules", "name": "Learnt rules", "namespace": "urn:stageb:rules"}
    for number, (name, safe) in enumerate(feel.names.items(), 1):
        column = add(root, "inputData", id=f"column_{number}", name=safe, label=name)
        add(column, "variable", id=f"variable_{number}", name=safe, typeRef=_TYPES[decisions.kinds[name]])
    decision = add(root, "decision", id="verdict", name="verdict")
    add(decision, "description", "\n".join([f"mission {mission.name}, step {mission.step}", *mission.notes]))
    add(decision, "variable", id="variable", name="verdict")
    for number in range(1, len(feel.names) + 1):
        required = add(decision, "informationRequirement", id=f"required_{number}")
        add(required, "requiredInput", href=f"#column_{number}")
    rows = [(case, tests) for case in decisions.cases for tests in feel.list_rows(case)]
    expressions = list(dict.fromkeys(each for _, tests in rows for each in tests)) or ["true"]  # a table has one at least
    table = add(decision, "decisionTable", id="table", hitPolicy="FIRST")
    for number, each in enumerate(expressions, 1):
        column = add(table, "input", id=f"input_{number}", label=feel.labels.get(each, each))
        add(add(column, "inputExpression", id=f"expression_{number}"), "text", each.rstrip())
    for name in ("verdict", "rule"):
        add(table, "output", id=f"output_{name}", name=name, typeRef="string")
    add(table, "annotation", name="why")
    for number, (case, tests) in enumerate(rows, 1):
        row = add(table, "rule", id=f"row_{number}")
        for place, each in enumerate(expressions, 1):
            add(add(row, "inputEntry", id=f"row_{number}_{place}"), "text", tests.get(each, "-"))
        for name, said in (("verdict", case.verdict), ("rule", case.rule or None)):
            add(add(row, "outputEntry", id=f"row_{number}_{name}"), "text", _quote(said) if said else "null")
        add(add(row, "annotationEntry"), "text", case.said)
    return root


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


class _Feel:
    """Formulas in DMN's expression language. What compares with null is null there, and so is never true."""

    def __init__(self, decisions: Decisions) -> None:
        self._decisions = decisions
        self.names: dict[str, str] = {}  # as the language can read them
        for name in decisions.kinds:
            plain = re.sub("[^A-Za-z0-9]+", "_", name).strip("_")
            plain = plain if plain[:1].isalpha() else f"column_{plain}".rstrip("_")
            self.names[name] = free_name(plain, [*self.names.values(), *_WORDS])
        self.labels: dict[str, str] = {}  # of input expressions
        self._decided: list[frozenset[Formula]] = []  # what rows ask for

    # Rows

    def list_rows(self, case: DecisionCase) -> Iterator[_Tests]:
        """What each row of a case asks for; of the cases in their order, since what earlier rows decide needs none."""
        ways = _list_ways(case.when)
        ways = ways and [way for way in ways if not self._is_idle(way)]
        if ways is None or len(ways) > MOST_ROWS:
            yield {self._label(self.write(case.when), f"{case.rule or 'a person'} decides"): "true"}
            return
        self._decided += map(frozenset, ways)
        for way in ways:
            tests: _Tests = {}
            for part in self._shorten(way):
                self._put(tests, *self._test(part))
            yield tests

    def _list_needed(self, way: tuple[Formula, ...]) -> set[str]:
        """The columns that hold something where a way's comparisons are true."""
        compared = (part for part in way if isinstance(part, Compare | OneOf | Same))
        return {name for part in compared for name in list_missing(part, self._decisions)[0]}

    def _is_idle(self, way: tuple[Formula, ...]) -> bool:
        """Whether it is never so: a column would be empty and hold something, or an earlier row decides."""
        needed = self._list_needed(way)
        if any(isinstance(part, Given) and not part.is_given and part.field in needed for part in way):
            return True
        met = {*way, *(Given(name, True) for name in needed)}
        return any(earlier <= met for earlier in self._decided)

    def _shorten(self, way: tuple[Formula, ...]) -> list[Formula]:
        """The parts of a way without those that others imply."""
        needed = self._list_needed(way)
        return [part for part in way if not (isinstance(part, Given) and part.field in needed)]

    def _label(self, expression: str, label: str) -> str:
        self.labels.setdefault(expression, label)
        return expression

    def _put(self, tests: _Tests, expression: str, test: str) -> None:
        """Add a test; of two limits one interval is made, and other tests of one expression have columns of their own."""
        label = self.labels[expression]
        while expression in tests:
            if interval := _join_limits(tests[expression], test):
                tests[expression] = interval
                return
            expression = self._label(expression + " ", label)  # the same, which differs as a key
        tests[expression] = test

    def _test(self, formula: Formula) -> tuple[str, str]:
        """An input expression, and what it must be."""
        if isinstance(formula, Compare) and isinstance(formula.right, float):
            number = _write_number(formula.right)
            tests = {"=": number, "<>": f"< {number}, > {number}"}
            return self._label(self._number(formula.left), str(formula.left)), tests.get(
                formula.sign, f"{formula.sign} {number}"
            )
        if isinstance(formula, Given):
            is_text = self._decisions.kinds[formula.field] == "text"
            none = 'null, ""' if is_text else "null"
            return self._label(self._cell(formula.field), formula.field), f"not({none})" if formula.is_given else none
        if isinstance(formula, OneOf) and self._decisions.kinds[formula.field] == "flag":
            wanted = [value for value in ("true", "false") if (value in formula.values) == formula.is_in]
            if len(wanted) == 1:
                return self._label(self.names[formula.field], formula.field), wanted[0]
        elif isinstance(formula, OneOf):
            listed = ", ".join(map(_quote, formula.values))
            return self._label(self._fold(formula.field), formula.field), listed if formula.is_in else f"not({listed}, null)"
        if isinstance(formula, PointSum):
            sign = ">=" if formula.is_reached else "<"
            return self._label(self._sum(formula), "points"), f"{sign} {formula.least}"
        return self._label(self.write(formula), self._describe(formula)), "true"

    def _describe(self, formula: Formula) -> str:
        if isinstance(formula, Compare):
            return f"{formula.left} {formula.sign} {formula.right}"
        return (
            f"{formula.one} {'=' if formula.is_same else '<>'} {formula.other}" if isinstance(formula, Same) else "condition"
        )

    # Expressions

    def write(self, formula: Formula) -> str:
        """The formula as an expression that is true where it is so."""
        if isinstance(formula, Given):
            return f"{self.names[formula.field]} {'!=' if formula.is_given else '='} null"
        if isinstance(formula, Compare):
            left = self._number(formula.left)
            right = _write_number(formula.right) if isinstance(formula.right, float) else self._number(formula.right)
            if formula.sign == "<>":
                return f"({left} < {right} or {left} > {right})"
            found = f"{left} {formula.sign} {right}"  # null = null is true
            return f"({left} != null and {found})" if formula.sign == "=" else found
        if isinstance(formula, OneOf):
            return self._write_one_of(formula)
        if isinstance(formula, Same):
            one, other = (self._cell(name) for name in (formula.one, formula.other))
            given = " and ".join(f"{self.names[name]} != null" for name in (formula.one, formula.other))
            return f"({given} and {one} {'=' if formula.is_same else '!='} {other})"
        if isinstance(formula, PointSum):
            return f"{self._sum(formula)} {'>=' if formula.is_reached else '<'} {formula.least}"
        if not formula.parts:
            return "true" if formula == ALWAYS else "false"
        return f"({(' and ' if isinstance(formula, Every) else ' or ').join(map(self.write, formula.parts))})"

    def _write_one_of(self, formula: OneOf) -> str:
        is_flag = self._decisions.kinds[formula.field] == "flag"
        values = [
            value if is_flag else _quote(value) for value in formula.values if not is_flag or value in ("true", "false")
        ]
        cell, sign, join = self._cell(formula.field), *(("=", " or ") if formula.is_in else ("!=", " and "))
        parts = [f"{cell} {sign} {value}" for value in values]
        parts = parts if formula.is_in else [f"{self.names[formula.field]} != null", *parts]
        return f"({join.join(parts)})" if parts else "false"

    def _sum(self, formula: PointSum) -> str:
        return " + ".join(f"(if {self.write(part)} then {points} else 0)" for points, part in formula.parts)

    def _number(self, of: float | str | Computed) -> str:
        if isinstance(of, str):
            name = self.names[of]
            return f"(if {name} = null then 0 else {name})" if self._decisions.is_counted else name
        assert isinstance(of, Computed)
        return f"{self._number(of.first)} {of.operator.replace('×', '*')} {self._number(of.second)}"

    def _cell(self, name: str) -> str:
        return self._fold(name) if self._decisions.kinds[name] == "text" else self.names[name]

    def _fold(self, name: str) -> str:
        """A text as values are compared: in small letters, on one line, without a full stop behind it."""
        return rf'replace(replace(lower case({self.names[name]}), "\s+", " "), "^ |[ .]+$", "")'


def _write_number(number: float) -> str:
    """As the language writes numbers, which has no exponents."""
    return f"{number:.17f}".rstrip("0").rstrip(".") if "e" in repr(number) else repr(number).removesuffix(".0")


def _list_ways(formula: Formula) -> list[tuple[Formula, ...]] | None:
    """The ways in which a formula is true, each with what must be so together (disjunctive normal form); None of many."""
    if not isinstance(formula, Either | Every):
        return [(formula,)]
    each = [_list_ways(part) for part in formula.parts]
    known = [ways for ways in each if ways is not None]
    most = MOST_ROWS * MOST_ROWS  # of which some ask for more than others, and go
    total = sum(map(len, known)) if isinstance(formula, Either) else prod(map(len, known))
    if len(known) < len(each) or total > most:
        return None
    chosen = chain(*known) if isinstance(formula, Either) else (tuple(chain(*choice)) for choice in product(*known))
    found = dict.fromkeys(tuple(dict.fromkeys(way)) for way in chosen)
    return [way for way in found if not any({*other} < {*way} for other in found)]


_LIMIT = re.compile(r"(>=?|<=?) (-?[0-9.]+)")


def _join_limits(one: str, other: str) -> str:
    """An interval of two limits; empty where they make none."""
    found = sorted(
        ([each[1][0], each[1], each[2]] for text in (one, other) if (each := _LIMIT.fullmatch(text))), reverse=True
    )
    if len(found) < 2 or [sign for sign, _, _ in found] != [">", "<"]:
        return ""
    (_, above, low), (_, below, high) = found
    if float(low) >= float(high):
        return ""
    return f"{'[' if above == '>=' else '('}{low}..{high}{']' if below == '<=' else ')'}"
