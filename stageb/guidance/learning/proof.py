"""Decides whether what train tickets teach by code may stay: the test of learning, and what follows
from it.

Where the proof is missing, rules that seem better on tickets which did not teach them are kept as
provisional (``gate.provisional``), unless they would take the place of present ones. Where a model
judges, the present guidance may be worse than one verdict for all tickets, so rules must beat the
best of these, too. Where no gain is shown, rules that are likely to be better than that verdict
stay as provisional unless the model is better without them: what they say is weighed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from stageb.guidance.judging.questions import Dialogue
from stageb.guidance.learning.gate.decide import Edit, Outcome, Trial
from stageb.guidance.learning.gate.judgements import Judge
from stageb.guidance.learning.gate.prequential import Bet, block_ends, prove_learning
from stageb.guidance.learning.gate.sequential import BettingTest
from stageb.guidance.learning.material import MeasuredRuleSet
from stageb.guidance.learning.stacking import Stacker
from stageb.guidance.learning.state import NoRoom
from stageb.guidance.learning.teacher import Learnt, Teacher
from stageb.guidance.rules.conditions import OutOfReach
from stageb.guidance.rules.edits import mark_provisional
from stageb.guidance.rules.judge import read_rules, speaking_rules
from stageb.guidance.tickets.groups import Group, whole_groups
from stageb.guidance.tickets.splits import find_default

# standard errors by which provisional rules seem better: chance lets one in twenty that are not
# better seem so
LIKELY = 1.64
REFERENCE = 96  # tickets by which prompts are made comparable, race tickets first
KEPT = ("accepted", "provisional")  # outcomes of edits that stay


class Preparers(NamedTuple):
    """Preparers for a model that judges: one of guidances with what is learnt, and one of the
    present guidance."""

    edited: Stacker
    present: Stacker


@dataclass(frozen=True, slots=True)
class Proof:
    """Proves what a teacher learns from all of its groups. Where they teach nothing, blocks teach
    nothing either: they prepare the present guidance alone."""

    teacher: Teacher
    learnt: Learnt | None
    judge: Judge

    def prove(self, level: float) -> Dialogue[tuple[BettingTest, Preparers | None, bool]]:
        """Test what all groups teach. Where a model judges, race tickets come first. See
        ``prove_learning``, and ``budget.py`` for why."""
        tools, groups = self.teacher.tools, self.teacher.groups
        ends, preparers = block_ends(len(groups)), self._make_preparers()
        if preparers and (raced := whole_groups(tools.splits.race_set, tools.tickets)):
            groups = [*raced, *tools.pool.groups_outside(None)]
            ends = [len(raced) * 2 // 3, *block_ends(len(groups), len(raced))]
        return (yield from prove_learning(self._bet, groups, level, ends, preparers))

    def conclude(
        self, learnt: Learnt, test: BettingTest, preparers: Preparers | None
    ) -> Dialogue[Trial]:
        """Conclude on what all groups teach, after its test."""
        config, positions, (rule_set, edit, _) = (
            self.teacher.tools.config,
            [*self.teacher.places],
            learnt,
        )
        is_likely = rule_set.z_score > LIKELY  # better than the best constant verdict
        if preparers:
            by_folds = self.teacher.map_correctness(rule_set)
            guidance, _ = yield from preparers.edited.prepare(
                edit.guidance, positions, by_folds=by_folds
            )
            edit = replace(edit, guidance=guidance or edit.guidance)
            if test.z_score > LIKELY:
                is_likely = True
            elif is_likely:
                kept = self._keep_beside(rule_set, edit, preparers)
                edit, is_likely = kept or edit, kept is not None
        elif config.runner.judge == "both":
            edit = replace(edit, guidance=replace(edit.guidance, judge="rules"))
        estimate = self.teacher.estimate(rule_set)
        outcome: Outcome = (
            "accepted" if test.is_accepted else "unproven" if is_likely else "unlikely"
        )
        has_rules = speaking_rules(self.teacher.present.rules, self.teacher.tools.words)
        excess = yield from self.judge.exceeds_limits(edit.guidance, positions)
        if (
            outcome == "unproven"
            and config.gating.provisional == "keep"
            and not (rule_set.replaces and has_rules)
        ):
            marked = mark_provisional(edit.guidance, self.teacher.bundle.name, estimate)
            edit, outcome = replace(edit, guidance=marked), "provisional"
        outcome = "over a limit" if excess and outcome in KEPT else outcome
        trial = Trial(edit, outcome, test=test, estimate=estimate)
        if preparers is None:
            return trial
        return replace(
            trial,
            calibration_errors=preparers.edited.calibration_errors,
            judges=preparers.edited.measure_judges(),
        )

    def _make_preparers(self) -> Preparers | None:
        if not self.teacher.tools.config.needs_preparing:
            return None
        stacker = Stacker(
            self.teacher.tools, self.judge, [*chain(*self.teacher.groups)][:REFERENCE]
        )
        return Preparers(stacker, stacker)

    def _bet(
        self, groups: Sequence[Group], block: Sequence[Group], preparers: Preparers | None
    ) -> Dialogue[tuple[Bet | None, Preparers | None]]:
        """Bet with what ``groups`` teach on the ``block``. Where a model judges, ``preparers``
        prepare that and the present guidance, and have the block judged under both."""
        try:
            learnt = self.teacher.learn(groups) if self.learnt else None
        except NoRoom:
            learnt = None
        judged = [*chain(*block)]
        if preparers is None:
            if learnt is None:
                return None, None
            (gains,) = yield from self.judge.gains([(learnt.edit.guidance, judged)])
            return Bet(learnt.rule_set.won, learnt.rule_set.lost, {"present": gains}), None
        taught, (edited, present) = [*chain(*groups)], preparers
        _, present = yield from present.prepare(self.teacher.present, taught, judged)
        if learnt is None:
            return None, Preparers(edited, present)
        guidance, edited = yield from edited.prepare(learnt.edit.guidance, taught, judged)
        rights, before = edited.map_correctness(judged), present.map_correctness(judged)
        if guidance is None or not before:  # too little is known yet to calibrate either
            return None, Preparers(edited, present)
        # code starts from the best constant verdict, but a model may be worse than that
        tools = self.teacher.tools
        constant = find_default(
            tools.tickets, tools.splits, self.teacher.present.labels, tools.prices
        )
        nulls = {
            "present": before,
            "constant": {i: tools.tickets[i].label == constant for i in rights},
        }
        gained = {name: self.judge.compare(rights, others) for name, others in nulls.items()}
        return Bet(learnt.rule_set.won, learnt.rule_set.lost, gained), Preparers(edited, present)

    def _keep_beside(
        self, rule_set: MeasuredRuleSet, edit: Edit, preparers: Preparers
    ) -> Edit | None:
        """Return the edit if it may take the place of the present guidance though no test shows
        that it is better; else None. Its rules are likely to be better than the best constant
        verdict, and what they say is weighed beside what the model says. So it is kept unless the
        model without them is ahead by more than a standard error. Where too little is known to
        weigh by, its rules as code judge, if they are ahead by as much."""
        tools, positions = self.teacher.tools, [*self.teacher.places]
        before, after, needed = (
            preparers.present.map_correctness(positions),
            preparers.edited.map_correctness(positions),
            -1.0,
        )
        if not after:
            rules = read_rules(edit.guidance, tools.vocabulary, tools.words).each
            if not tools.weighs or any(isinstance(rule.code, OutOfReach) for rule in rules):
                return None
            after = self.teacher.map_correctness(rule_set)
            edit, needed = replace(edit, guidance=replace(edit.guidance, judge="rules")), 1.0
        gains = self.judge.compare({i: after[i] for i in before if i in after}, before)
        return (
            edit if sum(gains) >= needed * math.sqrt(sum(gain * gain for gain in gains)) else None
        )
