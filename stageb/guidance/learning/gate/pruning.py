"""Rules that no longer earn their place: what each rule is worth, and what guidance would be without it.

A rule's *credit* is causal: what the guidance loses in merit when that rule alone is left out. How often a rule is quoted in
reasons says nothing of the kind, since two rules may do the same work.

Nothing proves that an idle rule costs nothing, only that letting go of it costs little. So removals are no edits that must
be better, and have a part of the budget of their own (``budget.py``): all removals of a mission together cost no more than
``gate.removal_margin`` of its accuracy, but for the chance that this part holds. Each removal is tested on further tickets,
and what these cannot rule out that it costs, at the test's level (``betting.RemovalTest.bound``), is taken from the margin;
one that could cost more than what is left of it is not made. The levels of all such tests, passed or not, add up to no more
than that part, since a bound may be wrong where the test passes rightly; so with that confidence every removal costs at most
its bound, and the bounds add up to no more than the margin. What a removal costs is meant against the guidance of its time,
in what the gate weighs: merit, by ``gate.fp_weight`` and ``gate.fn_weight``, each group of tickets once.

Tickets come again here too. Those that let a rule in are asked whether it may go, and are likelier than others to miss it;
those that let one rule go are asked about the next, and there the guarantee rests on removals being few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log

from stageb.guidance.judging.questions import Dialogue
from stageb.guidance.learning.gate.betting import STAKES, RemovalTest, Wealth
from stageb.guidance.learning.gate.decide import Edit, Gate, Trial, outcome_of, run_test
from stageb.guidance.learning.gate.judge import Judge
from stageb.guidance.learning.gate.race import Score
from stageb.guidance.learning.gate.sequential import next_level
from stageb.guidance.rules.edits import apply
from stageb.guidance.words.types import HEADLINE_KEY, Budget, Guidance, Operation, Proposal, Rule

SHARE = 1 / 2  # of what the part of the budget has left, for the next test


@dataclass(frozen=True, slots=True)
class Removal:
    """What became of one search for a rule that can go."""

    tried: tuple[Trial, ...]
    credits: Mapping[str, float]  # rule -> what it earns
    left: Budget
    winner: Edit | None = None


def prune(guidance: Guidance, reflection_id: str, gate: Gate, left: Budget) -> Dialogue[Removal]:
    """Which rule of the present ``guidance`` can go, if any: the one that is missed least on the race tickets, where what it
    may cost at most is proven to be within the margin that is ``left``."""
    edits = removal_edits(guidance, reflection_id)
    kinds = yield from gate.judge.kinds(gate.race_on)
    gained = yield from gate.judge.gains([(each.guidance, gate.race_on) for each in edits])
    tried = [Trial(each, score=Score().plus(kinds, gains)) for each, gains in zip(edits, gained, strict=True)]
    earns = yield from credit_rules(guidance, gate.judge, gate.race_on)
    best = max(range(len(tried)), key=lambda i: tried[i].score.mean, default=None)
    if best is None or tried[best].score.mean <= -left.margin:
        return Removal(tuple(tried), earns, left)
    level, groups = next_level(left.removals, SHARE), gate.groups
    wealth = Wealth(-left.margin, STAKES[-1])  # an idle rule loses nothing, so all on that
    if not level or wealth.plus(gained[best]).projected_log(len(groups)) < -log(level):
        tried[best] = replace(tried[best], outcome="unpromising")
        return Removal(tuple(tried), earns, left)
    edit = tried[best].edit
    test = yield from run_test(RemovalTest(level, len(groups), wealth=wealth), edit.guidance, gate, groups)
    tried[best] = replace(tried[best], outcome=outcome_of(test), test=test)
    left = left.less(Budget(removals=level, margin=test.bound if test.accepts else 0.0))
    return Removal(tuple(tried), earns, left, edit if test.accepts else None)


def removal_edits(guidance: Guidance, reflection_id: str) -> list[Edit]:
    """``guidance`` without one rule, for each that may go."""
    operations = [Operation("remove", rule.key, (), "", "it earns nothing", ()) for rule in _rules(guidance)]
    return [
        Edit((Proposal(index, "", (operation,), ()),), 1, apply(guidance, [operation], reflection_id))
        for index, operation in enumerate(operations)
    ]


def credit_rules(guidance: Guidance, judge: Judge, positions: Sequence[int]) -> Dialogue[dict[str, float]]:
    """What each rule that may go earns: the mean weighed merit that leaving it out would cost on ``positions``."""
    without = [(apply(guidance, [Operation("remove", rule.key, (), "", "", ())]), positions) for rule in _rules(guidance)]
    gains = yield from judge.gains(without)
    return {
        rule.key: round(0.0 - sum(each) / len(positions), 6) if positions else 0.0  # and not -0.0
        for rule, each in zip(_rules(guidance), gains, strict=True)
    }


def _rules(guidance: Guidance) -> list[Rule]:
    """Those that may go."""
    return [rule for rule in guidance.rules if rule.key != HEADLINE_KEY and not rule.is_fixed]
