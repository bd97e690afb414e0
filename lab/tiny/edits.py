"""Edits of a guidance by a stage's conditions: a new rule, a wider one, two in one, a narrower one,
one less."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from lab.tiny.candidates import MOST_WORDS, SHORTLIST, SINGLES, words_said
from lab.tiny.rules import Condition, Kind, WorldRule
from lab.tiny.stage import Edit, Stage

_OPPOSITE: dict[Kind, Kind] = {"equals": "differs", "differs": "equals"}

Conditions = tuple[Condition, ...]


def edits(stage: Stage, candidates: Sequence[Conditions]) -> Iterator[Edit]:
    """Edits worth weighing."""
    for conditions in candidates:
        yield Edit("add", (), WorldRule(stage.label, conditions), conditions)
        yield from _widened(stage, conditions)
        yield from _merged_with(stage, conditions)
    yield from _loosened(stage)
    for key, rule in stage.book.rules.items():
        if (
            rule.verdict != stage.label
            and key == (stage.rule or key)
            and stage.decided(key) & stage.wrong
        ):
            yield Edit("remove", (key,), None)
            yield from _narrowed(stage, key, rule, candidates)


# ---------------------------------------------------------------------------------------------------------- wider rules


def _plain(stage: Stage) -> list[tuple[str, WorldRule]]:
    """The rules that give what the cases should get, and consist of conditions alone."""
    return [
        (key, rule)
        for key, rule in stage.book.rules.items()
        if rule.verdict == stage.label and not rule.inverted and not rule.exception
    ]


def joined(stage: Stage, old: Condition, new: Condition) -> Condition | None:
    """A condition that holds where either of two does, if it is of one attribute or of words; None
    where there is none, or the old one says as much."""
    if old.attribute != new.attribute:
        return None
    values = tuple(dict.fromkeys((*old.values, *new.values)))
    if len(values) == len(old.values):
        return None
    kinds = {old.kind, new.kind}
    if kinds == {"mentions"} and len(values) <= MOST_WORDS:
        return replace(old, values=values)
    if kinds <= {"is", "in"} and len(values) < len(stage.pool.values(old.attribute)):
        return Condition("in", old.attribute, values)
    if kinds in ({"above"}, {"below"}):
        wider = stage.pool.meet(new) & ~stage.pool.meet(old)
        return new if wider else None
    return None


def _widened(stage: Stage, conditions: Conditions) -> Iterator[Edit]:
    """Rules that differ from the conditions in one condition, and could take them in."""
    for key, rule in _plain(stage):
        others = [new for new in conditions if new not in rule.conditions]
        old = [condition for condition in rule.conditions if condition not in conditions]
        if len(rule.conditions) == len(conditions) and len(others) == len(old) == 1:
            wider = joined(stage, old[0], others[0])
            if wider:
                changed = tuple(
                    wider if condition == old[0] else condition for condition in rule.conditions
                )
                yield Edit("update", (key,), replace(rule, conditions=changed), conditions)


def _loosened(stage: Stage) -> Iterator[Edit]:
    """Rules with a condition less, and two rules as what they have in common."""
    plain = _plain(stage)
    for key, rule in plain:
        if len(rule.conditions) > 1:
            for condition in rule.conditions:
                fewer = tuple(other for other in rule.conditions if other != condition)
                yield Edit("update", (key,), replace(rule, conditions=fewer), fewer)
    for (key, rule), (other_key, other) in combinations(plain, 2):
        common = tuple(condition for condition in rule.conditions if condition in other.conditions)
        if common:
            yield Edit("merge", (key, other_key), replace(rule, conditions=common), common)


def _merged_with(stage: Stage, conditions: Conditions) -> Iterator[Edit]:
    """Two rules of one condition, joined with a further one."""
    if len(conditions) > 1:
        return
    alone = [(key, rule) for key, rule in _plain(stage) if len(rule.conditions) == 1]
    for (key, rule), (other_key, other) in combinations(alone, 2):
        both = joined(stage, rule.conditions[0], other.conditions[0])
        wider = (
            joined(stage, both, conditions[0]) if both and both.kind in ("in", "mentions") else None
        )
        if wider:
            yield Edit("merge", (key, other_key), replace(rule, conditions=(wider,)), conditions)


# -------------------------------------------------------------------------------------------------------- narrower rules


def _narrowed(
    stage: Stage, key: str, rule: WorldRule, candidates: Sequence[Conditions]
) -> list[Edit]:
    """The rule with an exception, with one more condition, or with a value less: what lets wrong
    cases go."""
    decided, meet = stage.decided(key), stage.pool.meet
    found: list[tuple[float, Edit]] = []
    if not rule.inverted:
        for condition in _exceptions(stage, rule, candidates):
            exception = joined(stage, rule.exception, condition) if rule.exception else condition
            if exception:
                spared = Edit("update", (key,), replace(rule, exception=exception), (condition,))
                found.append((stage.worth(decided & meet(condition)), spared))
        if not rule.exception and len(rule.conditions) < 3:
            for condition in _further(stage, rule):
                tight = Edit(
                    "update",
                    (key,),
                    replace(rule, conditions=(*rule.conditions, condition)),
                    (condition,),
                )
                found.append((stage.worth(decided & ~meet(condition)), tight))
    for fewer, gone in _less(rule):
        left = meet(gone) & ~stage.pool.fire(fewer)
        found.append((stage.worth(decided & left), Edit("update", (key,), fewer, (gone,))))
    return [edit for _, edit in sorted(found, key=lambda pair: -pair[0])[:SHORTLIST]]


def _exceptions(stage: Stage, rule: WorldRule, candidates: Sequence[Conditions]) -> list[Condition]:
    """List the conditions that may spare tickets of a rule."""
    found = dict.fromkeys(conditions[0] for conditions in candidates if len(conditions) == 1)
    for condition in _of_cases(stage, rule):
        found[condition] = None
    return [condition for condition in found if condition not in rule.conditions]


def _further(stage: Stage, rule: WorldRule) -> list[Condition]:
    """List further conditions that tickets of a rule may have to meet."""
    found = [condition for condition in _of_cases(stage, rule) if condition.attribute]
    alone = [clue[0] for clue in stage.clues if len(clue) == 1]
    return found + [
        replace(clue, kind=_OPPOSITE[clue.kind]) for clue in alone if clue.kind in _OPPOSITE
    ]


def _of_cases(stage: Stage, rule: WorldRule) -> list[Condition]:
    """Values and words of the cases on show, of attributes that a rule does not look at."""
    own = {attribute for condition in rule.conditions for attribute in condition.attributes}
    shown = [stage.pool.facts[position] for position in stage.shown]
    pairs = dict.fromkeys(
        pair for each in shown for pair in each.values.items() if pair[0] in stage.pool.world.values
    )
    single = [
        Condition("is", attribute, (value,)) for attribute, value in pairs if attribute not in own
    ]
    return single + [
        word for word in words_said(stage, shown)[:SINGLES] if word not in rule.conditions
    ]


def _less(rule: WorldRule) -> Iterator[tuple[WorldRule, Condition]]:
    """The rule with a value or a word less, and that one."""
    for spot, condition in enumerate(rule.conditions):
        if condition.kind in ("in", "mentions") and len(condition.values) > 1:
            for value in condition.values:
                rest = tuple(v for v in condition.values if v != value)
                kind: Kind = "is" if condition.kind == "in" and len(rest) == 1 else condition.kind
                fewer = Condition(kind, condition.attribute, rest)
                gone = Condition(
                    "mentions" if condition.kind == "mentions" else "is",
                    condition.attribute,
                    (value,),
                )
                yield (
                    replace(
                        rule,
                        conditions=(*rule.conditions[:spot], fewer, *rule.conditions[spot + 1 :]),
                    ),
                    gone,
                )
