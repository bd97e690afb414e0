"""Rules in SQL where all fields that they name are numbers in the table: SQL's own three answers are those of code."""

from __future__ import annotations

from stageb.guidance.exports.missions import CodedMission
from stageb.guidance.exports.sql_cells import NEVER
from stageb.guidance.exports.sql_conditions import SIGNS, RuleTest, count_true, is_one_of, name_unread
from stageb.guidance.exports.sql_dialects import Dialect
from stageb.guidance.rules.conditions import Condition, Expression, Points, Side, Teller
from stageb.guidance.rules.judge import CodedRule
from stageb.guidance.rules.parse import OutOfReach
from stageb.guidance.rules.value_types import Computed, parse_number
from stageb.guidance.words.costs import has_labels


class TypedConditions(Teller[str]):
    """Conditions on columns of numbers."""

    def __init__(self, mission: CodedMission, dialect: Dialect) -> None:
        self._mission, self._sql = mission, dialect

    def name(self, rule: CodedRule) -> RuleTest:
        """What says whether a rule holds."""
        if isinstance(rule.code, OutOfReach):
            return name_unread(rule.code)
        told = rule.code.expression
        if card := told.as_points:
            total, is_compared = self._sum(card), has_labels(self._mission.coded.labels)
            above = f"({total} - ({card.least}))" if is_compared else ""
            return RuleTest(f"{total} >= {card.least}", f"{total} < {card.least}", NEVER, NEVER, above)
        said = told.tell(self)
        return RuleTest(f"({said})", f"NOT ({said})", f"({said}) IS NULL", NEVER)

    # Expressions; what is denied, SQL denies

    def deny(self, part: Expression, truth: bool) -> str:
        return f"NOT ({part.tell(self)})"

    def compare(self, condition: Condition, truth: bool) -> str:
        return condition.put(self)

    def count(self, parts: list[str], least: int) -> str:
        parts = [f"({part})" for part in parts]
        if least in (1, len(parts)):
            return (" OR " if least == 1 else " AND ").join(parts)
        possible = " + ".join(f"CASE WHEN NOT {part} THEN 0 ELSE 1 END" for part in parts)
        return f"CASE WHEN {count_true(parts, least)} THEN 1 = 1 WHEN {possible} < {least} THEN 1 = 0 END"

    def score(self, card: Points, truth: bool) -> str:
        return f"{self._sum(card)} >= {card.least}"

    # Conditions

    def one_of(self, field: str, values: tuple[str, ...]) -> str:
        return is_one_of(self._number(field), values)

    def missing(self, field: str) -> str:
        return f"{self._number(field)} IS NULL"

    def limit(self, of: str | Computed, side: Side, limit: str) -> str:
        return f"{self._number(of)} {SIGNS[side]} {parse_number(limit)!r}"

    def order(self, of: str | Computed, side: Side, other: str | Computed) -> str:
        return f"{self._number(of)} {SIGNS[side]} {self._number(other)}"

    def same(self, one: str, other: str, is_same: bool) -> str:
        return f"{self._number(one)} {'=' if is_same else '<>'} {self._number(other)}"

    def beyond(self, what: str) -> str:
        raise AssertionError(what)  # ``limit_to_sql`` sees to it

    def _sum(self, told: Points) -> str:
        scored = (f"CASE WHEN {part.tell(self)} THEN {points} ELSE 0 END" for points, part in told.scored)
        return f"({' + '.join(scored)})"

    def _number(self, of: str | Computed) -> str:
        if isinstance(of, str):
            return f"t.{self._sql.name(of)}"
        # As doubles: of whole and of decimal numbers, databases round otherwise, or find that they are too large.
        first, other = (f"CAST({self._number(name)} AS {self._sql.double})" for name in (of.first, of.second))
        if of.operator == "/":
            return f"({first} / NULLIF({other}, 0))"
        return f"({first} {of.operator.replace('×', '*')} {other})"
