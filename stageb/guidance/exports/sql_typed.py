"""Rules in SQL where all fields that they name are numbers in the table: SQL's own three answers are those of code."""

from __future__ import annotations

from stageb.guidance.exports.missions import CodedMission
from stageb.guidance.exports.sql_cells import NEVER
from stageb.guidance.exports.sql_conditions import SIGNS, RuleTest, count_true, is_one_of, name_unread
from stageb.guidance.exports.sql_dialects import Dialect
from stageb.guidance.rules.expression import All, Arithmetic, AtLeast, Atom, Expression, Not, Points
from stageb.guidance.rules.judge import CodedRule
from stageb.guidance.rules.parse import OutOfReach
from stageb.guidance.rules.value_types import Computed, parse_number
from stageb.guidance.words.costs import has_labels


class TypedConditions:
    """Conditions on columns of numbers."""

    def __init__(self, mission: CodedMission, dialect: Dialect) -> None:
        self._mission, self._sql = mission, dialect

    def name(self, rule: CodedRule) -> RuleTest:
        """What says whether a rule holds."""
        if isinstance(rule.code, OutOfReach):
            return name_unread(rule.code)
        told = rule.code.expression
        if isinstance(told, Points):
            total, is_compared = self._sum(told), has_labels(self._mission.coded.labels)
            above = f"({total} - ({told.least}))" if is_compared else ""
            return RuleTest(f"{total} >= {told.least}", f"{total} < {told.least}", NEVER, NEVER, above)
        said = self._write(told)
        return RuleTest(f"({said})", f"NOT ({said})", f"({said}) IS NULL", NEVER)

    def _write(self, expression: Expression) -> str:
        if isinstance(expression, Not):
            return f"NOT ({self._write(expression.part)})"
        if isinstance(expression, Arithmetic):
            right = expression.right
            other = self._compute(right) if isinstance(right, Computed) else repr(parse_number(right))
            return f"{self._compute(expression.left)} {SIGNS[expression.relation]} {other}"
        if isinstance(expression, Atom):
            return self._compare(expression)
        if isinstance(expression, Points):
            return f"{self._sum(expression)} >= {expression.least}"
        parts = [f"({self._write(part)})" for part in expression.parts]
        if not isinstance(expression, AtLeast):
            return (" AND " if isinstance(expression, All) else " OR ").join(parts)
        true = count_true(parts, expression.count)
        possible = " + ".join(f"CASE WHEN NOT {part} THEN 0 ELSE 1 END" for part in parts)
        return f"CASE WHEN {true} THEN 1 = 1 WHEN {possible} < {expression.count} THEN 1 = 0 END"

    def _compare(self, atom: Atom) -> str:
        column = f"t.{self._sql.name(atom.name)}"
        if atom.relation == "missing":
            return f"{column} IS NULL"
        if atom.relation == "is":
            return is_one_of(column, atom.values)
        value = atom.values[0]
        if atom.relation in ("above", "below"):
            return f"{column} {SIGNS[atom.relation]} {parse_number(value)!r}"
        sign = {"equals": "=", "differs": "<>"}.get(atom.relation) or SIGNS[atom.relation]
        return f"{column} {sign} t.{self._sql.name(value)}"

    def _sum(self, told: Points) -> str:
        scored = (f"CASE WHEN {self._write(part)} THEN {points} ELSE 0 END" for points, part in told.parts)
        return f"({' + '.join(scored)})"

    def _compute(self, computed: Computed) -> str:
        # As doubles: of whole and of decimal numbers, databases round otherwise, or find that they are too large.
        first, other = (
            f"CAST(t.{self._sql.name(name)} AS {self._sql.double})" for name in (computed.first, computed.second)
        )
        if computed.operator == "/":
            return f"({first} / NULLIF({other}, 0))"
        return f"({first} {computed.operator.replace('×', '*')} {other})"
