"""A kind of condition is one class, and a place in a table: here the shape of a code, which tickets
suggest, and which is written, read, judged and exported without a change anywhere else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from guidance.rules.made_rules import judge_by_python, ticket

from stageb.guidance.exports.protocol import CodedMission
from stageb.guidance.exports.sql import limit_to_sql
from stageb.guidance.rules.candidates import Table, find_conditions, reading
from stageb.guidance.rules.conditions import (
    FINDERS,
    KINDS,
    ColumnForm,
    Condition,
    Expression,
    OutOfReach,
    negate,
)
from stageb.guidance.rules.conditions.base import Call, Marks, Read, T, find_mark
from stageb.guidance.rules.judge import CodedRule, CodedRules, write_rule
from stageb.guidance.rules.parse import RuleCode, RuleReader, parse_rule
from stageb.guidance.rules.predicates import Predicate
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.value_types import Reading
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.rules.wordings import Grammar


def has_shape(name: str, shape: str) -> Predicate:
    def holds(ticket: Reading) -> bool | None:
        mine = ticket.pairs.get(name)
        return None if mine is None else re.sub("[0-9]", "9", re.sub("[A-Z]", "A", mine)) == shape

    return holds


@dataclass(frozen=True, slots=True)
class Shape(Condition):
    """A value has letters where the shape has an A, and digits where it has a 9."""

    field: str
    shape: str

    marks: ClassVar[Marks] = {
        "en": {" looks like ": False, " does not look like ": True},
        "zh": {"形如": False, "不形如": True},
    }

    @property
    def call(self) -> Call:
        return has_shape, (self.field, self.shape)

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.field,)

    def write(self, grammar: Grammar, is_denied: bool = False) -> str:
        return f"{self.field}{find_mark(self.marks, grammar, is_denied)}{self.shape}"

    @classmethod
    def read(cls, name: str, meaning: Any, value: str, reader: RuleReader) -> Read:
        field = reader.find_field(name)
        if isinstance(field, OutOfReach):
            return field
        return negate(cls(field, value)) if meaning else cls(field, value)

    def to_plain(self) -> Mapping[str, Any]:
        return {"field": self.field, "shape": self.shape}

    def put(self, columns: ColumnForm[T]) -> T:
        return columns.beyond("letters and digits of a value")


def find_shapes(table: Table, found: dict[Expression, int]) -> dict[Expression, int]:
    masks: dict[Expression, int] = {}
    for name, column in table.columns.items():
        for place, value in column.items():
            shape = Shape(name, re.sub("[0-9]", "9", re.sub("[A-Z]", "A", value)))
            masks[shape] = masks.get(shape, 0) | 1 << place
    return masks


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_kind_of_ones_own_needs_no_other_file(
    language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stageb.guidance.rules.parse.KINDS", (*KINDS, Shape))
    monkeypatch.setattr("stageb.guidance.rules.candidates.FINDERS", (*FINDERS, find_shapes))
    codes = ["AB-123", "XY-007", "12-ABC", "AB123"]
    tickets = [ticket({"Code": code}) for code in codes]
    shape = Shape("Code", "AA-999")
    assert find_conditions([reading(each) for each in tickets])[shape] == 0b11
    for told in (shape, negate(shape)):
        code = RuleCode("fail", told)
        text = write_rule(code, WORDS[language])
        assert parse_rule(text, Vocabulary.of(tickets), WORDS[language]) == code, text
        mission = CodedMission("m", 0, CodedRules([CodedRule("G1", text, code)]))
        judge, exported = mission.coded.compile(), judge_by_python([mission])
        fails = [judge(reading(each)).verdict == "fail" for each in tickets]
        assert fails == [exported({"Code": code}).verdict == "fail" for code in codes]
        assert fails == [is_shaped is (told == shape) for is_shaped in (True, True, False, False)]
        assert limit_to_sql(mission).unreadable == {
            "G1": "SQL sees columns, and no letters and digits of a value"
        }
