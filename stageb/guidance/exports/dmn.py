"""Rules as a DMN 1.3 decision table (omg.org/spec/DMN): a row for each way in which a rule holds;
the first that fits decides.

A condition on one column stands in its cell. What a cell cannot say, points and comparisons of
columns, is a column of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import chain, product
from math import prod
from typing import NamedTuple
from xml.etree.ElementTree import Element

from stageb.guidance.exports.decisions import (
    DecisionCase,
    DecisionExporter,
    Decisions,
    DecisionWriter,
    Number,
    Sign,
)
from stageb.guidance.exports.markup import add, free_name, write_document
from stageb.guidance.rules.conditions import Condition, Expression, Missing, negate
from stageb.guidance.rules.value_types import Computed

_TYPES = {"number": "number", "flag": "boolean", "text": "string"}
MOST_ROWS = 12  # of one rule: with more, whether it holds is a column of its own
_WORDS = (  # of the language, and of the decision
    "and between context date days duration else every false for function if in instance list "
    "months not null of or return rule satisfies some string substring then time true verdict years"
).split()
_Way = tuple[Expression, ...]  # what must be so together
_Tests = dict[str, str]  # by input expression, what it must be


class DmnExporter(DecisionExporter):
    """A decision table of one mission."""

    form = "DMN"

    def write_decisions(self, decisions: Decisions) -> str:
        return write_document(_write_document(decisions))


def _write_document(decisions: Decisions) -> Element:
    mission, feel = decisions.mission, _Feel(decisions)
    root = Element("definitions", {"xmlns": "https://www.omg.org/spec/DMN/20191111/MODEL/"})
    root.attrib |= {"id": "rules", "name": "Learnt rules", "namespace": "urn:stageb:rules"}
    for number, (name, safe) in enumerate(feel.names.items(), 1):
        column = add(root, "inputData", id=f"column_{number}", name=safe, label=name)
        add(
            column,
            "variable",
            id=f"variable_{number}",
            name=safe,
            typeRef=_TYPES[decisions.kinds[name]],
        )
    decision = add(root, "decision", id="verdict", name="verdict")
    add(
        decision,
        "description",
        "\n".join([f"mission {mission.name}, step {mission.step}", *mission.notes]),
    )
    add(decision, "variable", id="variable", name="verdict")
    for number in range(1, len(feel.names) + 1):
        required = add(decision, "informationRequirement", id=f"required_{number}")
        add(required, "requiredInput", href=f"#column_{number}")
    rows = [(case, tests) for case in decisions.cases for tests in feel.list_rows(case)]
    # a table has one at least
    expressions = list(dict.fromkeys(each for _, tests in rows for each in tests)) or ["true"]
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
            add(
                add(row, "outputEntry", id=f"row_{number}_{name}"),
                "text",
                _quote(said) if said else "null",
            )
        add(add(row, "annotationEntry"), "text", case.said)
    return root


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


class _Test(NamedTuple):
    """A test in DMN's expression language."""

    whole: str  # as an expression that is true or not
    asked: str = ""  # the input expression of a cell; empty: the whole, which must be true
    label: str = "condition"
    cell: str = "true"  # what it must be


class _Feel(DecisionWriter[_Test]):
    """Tests of columns. What compares with null is null there, and so is never true."""

    def __init__(self, decisions: Decisions) -> None:
        super().__init__(decisions)
        self.names: dict[str, str] = {}  # as the language can read them
        for name in decisions.kinds:
            plain = re.sub("[^A-Za-z0-9]+", "_", name).strip("_")
            plain = plain if plain[:1].isalpha() else f"column_{plain}".rstrip("_")
            self.names[name] = free_name(plain, [*self.names.values(), *_WORDS])
        self.labels: dict[str, str] = {}  # of input expressions
        self._decided: list[frozenset[Expression]] = []  # what rows ask for

    # Rows

    def list_rows(self, case: DecisionCase) -> Iterator[_Tests]:
        """The tests of each row of a case; of the cases in their order, since what earlier rows
        decide needs none."""
        ways = _list_ways(case.when)
        ways = ways and [way for way in ways if not self._is_idle(way)]
        if ways is None or len(ways) > MOST_ROWS:
            yield {
                self._label(
                    case.when.accept(self).whole, f"{case.rule or 'a person'} decides"
                ): "true"
            }
            return
        self._decided += map(frozenset, ways)
        for way in ways:
            tests: _Tests = {}
            for part in way:
                if part not in self._list_given(way):  # which others imply
                    self._put(tests, part.accept(self))
            yield tests

    def _list_given(self, way: _Way) -> list[Expression]:
        """That the columns hold something which a way's comparisons need."""
        compared = (part for part in way if isinstance(part.affirmed, Condition))
        return [
            negate(Missing(name))
            for part in compared
            for name in self.decisions.list_needed(*part.needed)
        ]

    def _is_idle(self, way: _Way) -> bool:
        """Whether it is never so: a column would be empty and hold something, or an earlier row
        decides."""
        given = self._list_given(way)
        return any(negate(each) in way for each in given) or any(
            earlier <= {*way, *given} for earlier in self._decided
        )

    def _label(self, expression: str, label: str) -> str:
        self.labels.setdefault(expression, label)
        return expression

    def _put(self, tests: _Tests, test: _Test) -> None:
        """Add a test; of two limits one interval is made, and other tests of one expression have
        columns of their own."""
        expression, cell = self._label(test.asked or test.whole, test.label), test.cell
        label = self.labels[expression]
        while expression in tests:
            if interval := _join_limits(tests[expression], cell):
                tests[expression] = interval
                return
            expression = self._label(expression + " ", label)  # the same, which differs as a key
        tests[expression] = cell

    # Tests

    def write_comparison(self, left: Number, sign: Sign, right: Number | float) -> _Test:
        one, other = self._write_cell(left), self._write_cell(right)
        whole = f"{one} {sign} {other}"
        if isinstance(right, str) and self.decisions.kinds[right] != "number":
            given = " and ".join(f"{self.names[name]} != null" for name in (str(left), right))
            whole = f"({given} and {one} {sign.replace('<>', '!=')} {other})"
        elif sign == "<>":
            whole = f"({one} < {other} or {one} > {other})"
        elif sign == "=":
            whole = f"({one} != null and {whole})"  # null = null is true
        if not isinstance(right, float):
            return _Test(whole, label=f"{left} {sign} {right}")
        cells = {"=": other, "<>": f"< {other}, > {other}"}
        return _Test(whole, one, str(left), cells.get(sign, f"{sign} {other}"))

    def write_one_of(self, field: str, values: tuple[str, ...], is_in: bool) -> _Test:
        name = self.names[field]
        cell = self._write_cell(field)
        is_flag = self.decisions.kinds[field] == "flag"
        said = [value if is_flag else _quote(value) for value in values]
        parts = [f"{cell} = {value}" if is_in else f"{cell} != {value}" for value in said]
        parts = parts if is_in else [f"{name} != null", *parts]
        whole = f"({(' or ' if is_in else ' and ').join(parts)})" if parts else "false"
        if not is_flag:
            listed = ", ".join(said)
            return _Test(whole, cell, field, listed if is_in else f"not({listed}, null)")
        wanted = [value for value in ("true", "false") if (value in values) == is_in]
        return _Test(whole, name, field, wanted[0]) if len(wanted) == 1 else _Test(whole)

    def write_given(self, field: str, is_given: bool) -> _Test:
        none = 'null, ""' if self.decisions.kinds[field] == "text" else "null"
        whole = f"{self.names[field]} {'!=' if is_given else '='} null"
        return _Test(whole, self._write_cell(field), field, f"not({none})" if is_given else none)

    def write_sum(self, scored: Sequence[tuple[int, _Test]], least: int, is_reached: bool) -> _Test:
        total = " + ".join(f"(if {part.whole} then {points} else 0)" for points, part in scored)
        cell = f"{'>=' if is_reached else '<'} {least}"
        return _Test(f"{total} {cell}", total, "points", cell)

    def join(self, parts: Sequence[_Test], is_all: bool) -> _Test:
        written = (" and " if is_all else " or ").join(part.whole for part in parts)
        return _Test(f"({written})" if parts else str(is_all).lower())

    def _write_cell(self, of: Number | float) -> str:
        """A number or a flag, or a text as values are compared: in small letters, on one line, no
        full stop behind it."""
        if isinstance(of, float):  # the language has no exponents
            return f"{Decimal(repr(of)):f}".removesuffix(".0")
        if isinstance(of, Computed):
            return (
                f"{self._write_cell(of.first)} {of.operator.replace('×', '*')} "
                f"{self._write_cell(of.second)}"
            )
        name = self.names[of]
        if self.decisions.kinds[of] == "text":
            return rf'replace(replace(lower case({name}), "\s+", " "), "^ |[ .]+$", "")'
        return f"(if {name} = null then 0 else {name})" if self.decisions.has_count(of) else name


def _list_ways(expression: Expression) -> list[_Way] | None:
    """The ways in which it is true, each with what must be so together (disjunctive normal form);
    None of many."""
    parts, is_any = expression.conjuncts, False
    if parts == (expression,):
        parts, is_any = expression.disjuncts, True
    if parts == (expression,):
        return [parts]
    known = [ways for part in parts if (ways := _list_ways(part)) is not None]
    most = MOST_ROWS * MOST_ROWS  # of which some ask for more than others, and go
    if len(known) < len(parts) or (sum if is_any else prod)(map(len, known)) > most:
        return None
    chosen = chain(*known) if is_any else (tuple(chain(*choice)) for choice in product(*known))
    found = dict.fromkeys(tuple(dict.fromkeys(way)) for way in chosen)
    return [way for way in found if not any({*other} < {*way} for other in found)]


_LIMIT = re.compile(r"(>=?|<=?) (-?[0-9.]+)")


def _join_limits(one: str, other: str) -> str:
    """An interval of two limits; empty where they make none."""
    found = sorted(
        (
            [each[1][0], each[1], each[2]]
            for text in (one, other)
            if (each := _LIMIT.fullmatch(text))
        ),
        reverse=True,
    )
    if [sign for sign, _, _ in found] != [">", "<"]:
        return ""
    (_, above, low), (_, below, high) = found
    if float(low) >= float(high):
        return ""
    return f"{'[' if above == '>=' else '('}{low}..{high}{']' if below == '<=' else ')'}"
