"""What turns rules that code has learnt into guidance for a model that judges: demonstrations, and a calibration that weighs
the model's verdicts beside those of the rules as code.

Rules fit the tickets that taught them better than others, so how far to trust them is learnt from others: block by block,
in step with the test (``learning/gate/prequential.py``), tickets are judged under what earlier ones have taught, first by
the test and then as material for the calibration of what follows. Each prompt shifts the model's log-odds by its rules and
demonstrations, and each card has a scale of its own. What comes from different ones is made comparable by the middle and the
spread of each prompt's scores on the same reference tickets, whose labels play no part in that, and by the spread of their
points. Rules that more tickets taught are right more often: a ticket counts in proportion to those that taught the rules it
was judged under.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log

from stageb.guidance.judging.answers import find_shares
from stageb.guidance.judging.questions import Dialogue
from stageb.guidance.learning.calibration import centre, find_scores, find_spread, fit_calibration, measure_calibration_error
from stageb.guidance.learning.gate.judge import Judge
from stageb.guidance.learning.steps import Tools, choose_demonstrations, rule_on
from stageb.guidance.rules.prompts import Case
from stageb.guidance.words.types import UNCALIBRATED, Calibration, Guidance, Verdict

HARDLY = 0.01  # slope of a model's log-odds where rules decide: too small to outweigh a rule, enough to break a tie


@dataclass(frozen=True, slots=True)
class Weighed:
    """How the model and the rules as code judge a ticket that taught neither."""

    said: tuple[float, ...]  # of each label by the model, its log-probability but for a constant
    scores: tuple[float, ...]  # the same, in spreads of its prompt, from their middle
    ruling: Verdict | None  # of the rules
    leads: tuple[float, ...]  # of each label by points, in spreads of those
    label: Verdict
    calibrated: tuple[float, ...] | None  # the same, by tickets before it; None where these were too few
    taught: int  # tickets that taught the rules


@dataclass(frozen=True, slots=True)
class Stacker:
    """Prepares one guidance after the other, each with what the blocks before tell of calibration."""

    tools: Tools
    judge: Judge
    reference: Sequence[int]  # positions of the tickets by which prompts are made comparable
    weighed: Mapping[int, Weighed] = field(default_factory=dict)  # position -> what is known of it

    def prepare(
        self, guidance: Guidance, taught: Sequence[int], block: Sequence[int] = ()
    ) -> Dialogue[tuple[Guidance | None, Stacker]]:
        """``guidance`` with demonstrations from the tickets that ``taught`` it, calibrated by the blocks before; and what
        prepares the next one, which knows the ``block``, judged under it. None as long as too few tickets are known to
        calibrate by; where the engine gives no probabilities, nothing is calibrated."""
        cases = [Case(self.tools.tickets[i], self._is_right(i), None) for i in taught]
        guidance = choose_demonstrations(replace(guidance, demonstrations=(), calibration=UNCALIBRATED), cases, self.tools)
        if not self.tools.weighs:
            return guidance, self
        shown = {each.source for each in guidance.shown}
        reference = [i for i in self.reference if self.tools.tickets[i].key not in shown]
        (judged,) = yield from self.judge.judgements([(guidance, [*reference, *block])])
        labels = guidance.labels
        said = [find_scores(each, labels) for each in judged]
        rulings = rule_on(guidance, [self.tools.tickets[i] for i in (*reference, *block)], self.tools)
        leads = [tuple(float(dict(each.leads).get(label, 0)) for label in labels) for each in rulings]
        nothing = [(0.0,) * len(labels)]
        of_model, of_points = (centre(some[: len(reference)] or nothing) for some in (said, leads))
        middle = of_model.mean(axis=0)  # points have a zero of their own
        scale, spread = (find_spread(each) or 1.0 for each in (of_model - middle, of_points))
        to_middle = Calibration.of_labels(labels, 1 / scale, (-middle / scale).tolist())
        fitted = self._fit()
        is_known = fitted != UNCALIBRATED
        calibration = replace(fitted.after(to_middle), points=fitted.points / spread).rounded
        rows = zip(block, *(some[len(reference) :] for some in (said, rulings, leads)), strict=True)
        weighed = {
            i: Weighed(
                each,
                to_middle.weigh(each),
                ruling.verdict,
                tuple(lead / spread for lead in led),
                self.tools.tickets[i].label,
                calibration.given(ruling.verdict, ruling.leads).weigh(each) if is_known else None,
                len(taught),
            )
            for i, each, ruling, led in rows
        }
        after = replace(self, weighed={**self.weighed, **weighed})
        return replace(guidance, calibration=calibration) if is_known else None, after

    def merits(self, positions: Iterable[int]) -> dict[int, float]:
        """How the guidance that they were last judged under, calibrated, judges those of the tickets that are known."""
        known = {i: self.weighed[i] for i in positions if i in self.weighed}
        return {
            i: find_shares(each.calibrated, self.tools.temperature)[self.tools.labels.index(each.label)]
            for i, each in known.items()
            if each.calibrated is not None
        }

    @property
    def calibration_errors(self) -> tuple[float, float] | None:
        """The expected calibration error before and after calibration, of tickets that played no part in it; None where
        there is none."""
        known = [(each.said, each.calibrated, each.label) for each in self.weighed.values() if each.calibrated is not None]
        if not known:
            return None
        before, after, labelled = zip(*known, strict=True)
        errors = (measure_calibration_error(scores, labelled, self.tools.labels) for scores in (before, after))
        return round(next(errors), 4), round(next(errors), 4)

    def _is_right(self, position: int) -> bool:
        """Whether the model alone judged it right; a ticket that it has not judged counts as right."""
        known = self.weighed.get(position)
        if known is None:
            return True
        _, verdict = min((-score, label) for score, label in zip(known.scores, self.tools.labels, strict=True))
        return verdict == known.label

    def _fit(self) -> Calibration:
        """The calibration of scores; none where too few are known."""
        known = self.weighed.values()
        most = max((each.taught for each in known), default=1)
        return fit_calibration(
            [each.scores for each in known],
            [each.label for each in known],
            self.tools.labels,
            [each.ruling for each in known],
            [each.leads for each in known],
            [each.taught / most for each in known],
        )


def follow_rules(guidance: Guidance, right: float, tickets: int) -> Guidance:
    """``guidance`` whose verdicts are those of its rules as code, which are ``right`` for that share of as many ``tickets``
    that did not teach them; the model decides only where they say nothing."""
    share, labels = (right * tickets + 1) / (tickets + 2), guidance.labels  # Laplace
    weight = max(0.0, log(share * (len(labels) - 1) / (1 - share)))
    return replace(guidance, calibration=Calibration.of_labels(labels, HARDLY, [0.0] * len(labels), weight).rounded)
