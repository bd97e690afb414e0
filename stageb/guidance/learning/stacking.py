"""Turns rules that code has learnt into guidance for a model that judges: adds demonstrations, and
a calibration that weighs the model's verdicts beside those of the rules as code.

Rules fit the tickets that taught them better than others, so how far to trust them is learnt from
other tickets: block by block, in step with the test (``learning/gate/prequential.py``), tickets are
judged under what earlier ones have taught, first for the test and then as material to calibrate
what follows. Each prompt shifts the model's log-odds by its rules and demonstrations, and each card
has a scale of its own. Scores under different prompts are made comparable by the middle and the
spread of each prompt's scores on the same reference tickets, and by the spread of their points; the
labels of those tickets play no part in that. Rules that more tickets taught are right more often: a
ticket counts in proportion to the number of tickets that taught the rules it was judged under.

The same tickets tell who judges best: code alone, the model alone, or both weighed
(``Stacker.choose_judge``). Each block is judged, and bet on, by the one that was best on the blocks
before. On a tie, code judges, which costs nothing.

And they tell how far ahead rules must set a verdict for code to decide it alone, without a call of
the model: so far that this is proven to cost at most ``MOST_LOST`` of all tickets. Leads are tested
from the longest down, each at the same level, until one is not proven (fixed-sequence testing,
which keeps the level for all: Angelopoulos et al., "Learn then test", 2021, section 3).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from stageb.guidance.judging.questions import Dialogue
from stageb.guidance.learning.calibrate import (
    FEWEST_TO_FIT,
    centre,
    find_scores,
    find_spread,
    fit_calibration,
    measure_calibration_error,
)
from stageb.guidance.learning.gate.sequential import BettingTest, Wealth
from stageb.guidance.learning.preparing import Preparer
from stageb.guidance.rules.judge import speaking_rules
from stageb.guidance.rules.predicates import Ruling
from stageb.guidance.rules.prompts import Case
from stageb.guidance.tickets.groups import whole_groups
from stageb.guidance.words.types import UNCALIBRATED, Calibration, Guidance, JudgeName, Verdict

# how much less accurate a judge may be than code, as measured on folds of all tickets
MOST_BEHIND = 0.01
SURE = 0.99  # share of the known tickets on which the model's lead is within its reach
# share of tickets that may be lost where code decides instead of both weighed
MOST_LOST = 0.01
LEVEL = 0.05  # at which it is proven that no more are lost
FEW_LOST = 0.9  # the stake with which wealth grows fastest if hardly a ticket is lost
LEADS = 20  # that are tested, with about as many tickets between neighbours


@dataclass(frozen=True, slots=True)
class JudgedTicket:
    """A ticket, and its judgement by the model and by the rules as code, neither of which it
    taught."""

    said: tuple[float, ...]  # by the model: each label's log-probability, but for a constant
    scores: tuple[float, ...]  # the same, from the middle of its prompt's, in spreads of these
    ruling: Verdict | None  # the verdict of the rules
    leads: tuple[float, ...]  # each label's lead by points, in spreads of these
    label: Verdict
    # both weighed, calibrated by the tickets before it; None where these were too few
    calibrated: tuple[float, ...] | None
    taught: int  # number of tickets that taught the rules
    is_right: Mapping[JudgeName, bool]  # whether each judge known by then is right
    judge: JudgeName  # the best of them on the tickets before it


class _Scored(NamedTuple):
    """What the model and the rules say of a block under one prompt, ticket by ticket, and how to
    compare that with what they say under others."""

    scores: Sequence[tuple[float, ...]]  # by the model: each label's log-probability
    rulings: Sequence[Ruling]
    leads: Sequence[tuple[float, ...]]  # each label's lead by points
    to_middle: (
        Calibration  # moves the model's scores on reference tickets to 0, and their spread to 1
    )
    spread: float  # of the leads on reference tickets


@dataclass(frozen=True, slots=True)
class Stacker(Preparer):
    """Prepares one guidance after the other, each by what the blocks before tell for
    calibration."""

    reference: Sequence[int]  # positions of the tickets by which prompts are made comparable
    weighed: Mapping[int, JudgedTicket] = field(
        default_factory=dict
    )  # position -> how it was judged

    def prepare(
        self,
        guidance: Guidance,
        taught: Sequence[int],
        block: Sequence[int] = (),
        by_folds: Mapping[int, bool] = MappingProxyType({}),
    ) -> Dialogue[tuple[Guidance | None, Stacker]]:
        """Return ``guidance`` with demonstrations from the tickets that ``taught`` it, calibrated
        by the blocks before, and with the best judge; None as long as too few tickets are known to
        calibrate by. Where the engine gives no probabilities, nothing is calibrated. Also returns
        the stacker for the next block, which has the judgements of this ``block`` under the
        guidance. ``by_folds`` is as ``choose_judge`` takes it."""
        cases = [Case(self.tools.tickets[i], self._is_right(i), None) for i in taught]
        guidance = self.demonstrate(
            replace(guidance, demonstrations=(), calibration=UNCALIBRATED, judge=""), cases
        )
        judge: JudgeName = self.choose_judge(by_folds) if self._has_rules(guidance) else "model"
        if not self.tools.weighs:
            return (yield from self._prepare_unweighed(guidance, judge, len(taught), block))
        scored = yield from self._score(guidance, block)
        fitted, model_only = self._fit(), self._fit(is_alone=True).after(scored.to_middle).rounded
        with_rules = replace(
            fitted.after(scored.to_middle),
            points=fitted.points / scored.spread,
            reach=self._find_reach(fitted),
        ).rounded
        is_known = fitted != UNCALIBRATED
        judges = (with_rules, model_only) if is_known else None
        judged = self._weigh_block(block, scored, judges, len(taught), judge)
        calibration = model_only if judge == "model" else with_rules
        prepared = replace(guidance, calibration=calibration, judge=judge) if is_known else None
        return prepared, self._plus(judged)

    def choose_judge(self, by_folds: Mapping[int, bool] = MappingProxyType({})) -> JudgeName:
        """Return the judge with the highest price-weighted accuracy on the known tickets; on a tie,
        code. ``by_folds`` says whether code judges each ticket right when it is learnt from all
        folds but the ticket's own. Any other judge may be at most ``MOST_BEHIND`` less accurate
        than that; else code judges."""
        shares = self.measure_judges()
        if not shares:
            return "weighed" if self.tools.weighs else "model"
        best = max(shares, key=lambda name: shares[name])  # in the order of what they cost
        code_is_right = {
            i: by_folds[i] for i, each in self.weighed.items() if each.is_right and i in by_folds
        }
        code_accuracy = self._weigh({i: float(is_right) for i, is_right in code_is_right.items()})
        return "rules" if shares[best] < code_accuracy - MOST_BEHIND else best

    def measure_judges(self) -> dict[JudgeName, float]:
        """Return the price-weighted share of the known tickets that each judge judges right;
        nothing where too few are known."""
        known = {i: each.is_right for i, each in self.weighed.items() if each.is_right}
        if len(known) < FEWEST_TO_FIT:
            return {}
        names: tuple[JudgeName, ...] = ("rules", "weighed", "model")
        judges_known = [
            name for name in names if all(name in is_right for is_right in known.values())
        ]
        return {
            name: round(self._weigh({i: is_right[name] for i, is_right in known.items()}), 6)
            for name in judges_known
        }

    def map_correctness(self, positions: Iterable[int]) -> dict[int, bool]:
        """For each known ticket, whether the chosen judge was right when the ticket was last
        judged."""
        known = {i: self.weighed[i] for i in positions if i in self.weighed}
        return {
            i: each.is_right[each.judge] for i, each in known.items() if each.judge in each.is_right
        }

    @property
    def calibration_errors(self) -> tuple[float, float] | None:
        """The expected calibration error before and after calibration, on tickets that played no
        part in it; None where there are none."""
        known = [
            (each.said, each.calibrated, each.label)
            for each in self.weighed.values()
            if each.calibrated is not None
        ]
        if not known:
            return None
        before, after, labelled = zip(*known, strict=True)
        errors = (
            measure_calibration_error(scores, labelled, self.tools.labels)
            for scores in (before, after)
        )
        return round(next(errors), 4), round(next(errors), 4)

    def _score(self, guidance: Guidance, block: Sequence[int]) -> Dialogue[_Scored]:
        """Have the model and the rules judge a block and the reference tickets under one prompt."""
        labels, reference = guidance.labels, self.leave_out_shown(guidance, self.reference)
        (judged,) = yield from self.judge.judgements([(guidance, [*reference, *block])])
        scores = [find_scores(each, labels) for each in judged]
        rulings = self._rule_on(guidance, [*reference, *block])
        leads = [
            tuple(float(dict(each.leads).get(label, 0)) for label in labels) for each in rulings
        ]
        first = len(reference)
        to_middle, spread = _scale_scores(labels, scores[:first], leads[:first])
        return _Scored(scores[first:], rulings[first:], leads[first:], to_middle, spread)

    def _weigh_block(
        self,
        block: Sequence[int],
        scored: _Scored,
        calibrations: tuple[Calibration, Calibration] | None,
        taught: int,
        judge: JudgeName,
    ) -> dict[int, JudgedTicket]:
        """Note how each ticket of a block was judged: by the model, by the rules that so many
        tickets ``taught``, and by both where there are ``calibrations`` with and without rules."""
        labels, weighed = self.tools.labels, dict[int, JudgedTicket]()
        rows = zip(block, scored.scores, scored.rulings, scored.leads, strict=True)
        for i, scores, ruling, leads in rows:
            label, is_right = self.tools.tickets[i].label, dict[JudgeName, bool]()
            calibrated = None
            if calibrations:
                with_rules, model_only = calibrations
                calibrated = with_rules.given(ruling.verdict, ruling.leads).weigh(scores)
                by_model = model_only.weigh(scores)
                is_right = _compare_judges(label, labels, calibrated, by_model, ruling.verdict)
            weighed[i] = JudgedTicket(
                said=scores,
                scores=scored.to_middle.weigh(scores),
                ruling=ruling.verdict,
                leads=tuple(lead / scored.spread for lead in leads),
                label=label,
                calibrated=calibrated,
                taught=taught,
                is_right=is_right,
                judge=judge,
            )
        return weighed

    def _rule_on(self, guidance: Guidance, positions: Sequence[int]) -> list[Ruling]:
        """Judge tickets by the rules as code. A headline alone gives no verdict here: it is no
        judge beside the model."""
        rulings = self.tools.rule_on(guidance, positions)
        return (
            rulings
            if self._has_rules(guidance)
            else [ruling._replace(verdict=None) for ruling in rulings]
        )

    def _has_rules(self, guidance: Guidance) -> bool:
        return bool(speaking_rules(guidance.rules, self.tools.words))

    def _is_right(self, position: int) -> bool:
        """Whether the model alone judged the ticket right; a ticket that it has not judged counts
        as right."""
        known = self.weighed.get(position)
        if known is None or not known.scores:
            return known is None or known.is_right["model"]
        _, verdict = min(
            (-score, label) for score, label in zip(known.scores, self.tools.labels, strict=True)
        )
        return verdict == known.label

    def _fit(self, is_alone: bool = False) -> Calibration:
        """Fit the calibration of scores: those of the model alone if ``is_alone``, else beside what
        the rules say. Nothing is calibrated where too few tickets are known."""
        known = self.weighed.values()
        most = max((each.taught for each in known), default=1)
        return fit_calibration(
            [each.scores for each in known],
            [each.label for each in known],
            self.tools.labels,
            [] if is_alone else [each.ruling for each in known],
            [] if is_alone else [each.leads for each in known],
            [each.taught / most for each in known],
        )

    def _find_reach(self, fitted: Calibration) -> float:
        """Return how far ahead the rules as code must set a verdict for the model not to be asked:
        so far that this is proven to cost at most ``MOST_LOST``, or else farther than the model's
        own part, so calibrated, sets any two labels apart, save on the share of the known tickets
        beyond ``SURE``."""
        apart = sorted(
            max(scores) - min(scores)
            for scores in (fitted.weigh(each.scores) for each in self.weighed.values())
        )
        return min(
            apart[int(SURE * (len(apart) - 1))] if apart else 0.0, self._find_proven_lead(fitted)
        )

    def _find_proven_lead(self, fitted: Calibration) -> float:
        """Return the shortest lead of code, so calibrated, beyond which its verdicts are proven to
        cost at most ``MOST_LOST`` of all tickets; infinite where none is."""
        known = {i: each for i, each in self.weighed.items() if each.is_right}
        labels, proven = self.tools.labels, math.inf
        leads = {
            i: fitted.measure_lead(each.ruling, dict(zip(labels, each.leads, strict=True)), labels)
            for i, each in known.items()
        }
        gains = {
            i: self.judge.weigh(i) * (each.is_right["rules"] - each.is_right["weighed"])
            for i, each in known.items()
        }
        groups = whole_groups(known, self.tools.tickets)
        for least in _list_leads([lead for lead in leads.values() if lead > 0]):
            decided = [
                [(gains[i] * (leads[i] > least) + MOST_LOST) / (1 + MOST_LOST) for i in group]
                for group in groups
            ]
            test = BettingTest(LEVEL, len(groups), wealth=Wealth(FEW_LOST)).plus(decided)
            if not test.is_accepted:
                break
            proven = least
        return proven

    def _weigh(self, shares: Mapping[int, float]) -> float:
        """Return the mean of the tickets' values, each weighted by the ticket's price and by the
        number of tickets that taught the rules it was judged by."""
        counts = {i: self.judge.weigh(i) * self.weighed[i].taught for i in shares}
        return sum(counts[i] * share for i, share in shares.items()) / (sum(counts.values()) or 1.0)

    def _prepare_unweighed(
        self, guidance: Guidance, judge: JudgeName, taught: int, block: Sequence[int]
    ) -> Dialogue[tuple[Guidance, Stacker]]:
        """Prepare as ``prepare`` does, for an engine that gives verdicts alone."""
        (judged,) = yield from self.judge.judgements([(guidance, block)])
        weighed = {}
        for i, each, ruling in zip(block, judged, self._rule_on(guidance, block), strict=True):
            label, model_is_right = self.tools.tickets[i].label, each.p_correct > 0.5
            is_right: dict[JudgeName, bool] = {"model": model_is_right}
            is_right["rules"] = (
                model_is_right if ruling.verdict is None else ruling.verdict == label
            )
            weighed[i] = JudgedTicket(
                (), (), ruling.verdict, (), label, None, taught, is_right, judge
            )
        return replace(guidance, judge=judge), self._plus(weighed)

    def _plus(self, weighed: Mapping[int, JudgedTicket]) -> Stacker:
        return replace(self, weighed={**self.weighed, **weighed})


# Inside -------------------------------------------------------------------------------------------


def _scale_scores(
    labels: tuple[Verdict, ...],
    scores: Sequence[tuple[float, ...]],
    leads: Sequence[tuple[float, ...]],
) -> tuple[Calibration, float]:
    """Return the calibration that moves the middle of a prompt's scores to 0 and their spread to 1,
    and the spread of the leads in points, 1 where there is none: both on the reference tickets."""
    nothing = [(0.0,) * len(labels)]
    model_scores, rule_points = centre(scores or nothing), centre(leads or nothing)
    middle = model_scores.mean(axis=0)  # points have a zero of their own
    scale, spread = (find_spread(each) or 1.0 for each in (model_scores - middle, rule_points))
    return Calibration.of_labels(labels, 1 / scale, (-middle / scale).tolist()), spread


def _compare_judges(
    label: Verdict,
    labels: Sequence[Verdict],
    weighed: Sequence[float],
    by_model: Sequence[float],
    ruling: Verdict | None,
) -> dict[JudgeName, bool]:
    """Whether each judge is right about a ticket of this ``label``, by its scores; where the rules
    give no verdict, both weighed judge in their place."""
    place = labels.index(label)
    is_right: dict[JudgeName, bool] = {
        "weighed": weighed[place] >= max(weighed),
        "model": by_model[place] >= max(by_model),
    }
    return {**is_right, "rules": is_right["weighed"] if ruling is None else ruling == label}


def _list_leads(leads: Sequence[float]) -> list[float]:
    """List the leads to test, the longest first, with about as many of ``leads``, all above 0,
    between neighbours; all of them lie beyond the last."""
    longest_first = [*sorted(leads, reverse=True), 0.0]
    middles = {
        shorter: (longer + shorter) / 2
        for longer, shorter in pairwise(longest_first)
        if longer > shorter
    }
    cuts = (longest_first[place * len(leads) // LEADS] for place in range(1, LEADS + 1))
    return [*dict.fromkeys(middles[cut] for cut in cuts if cut in middles)]
