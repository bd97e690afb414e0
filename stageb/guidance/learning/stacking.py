"""What turns rules that code has learnt into guidance for a model that judges: demonstrations, and a calibration that weighs
the model's verdicts beside those of the rules as code.

Rules fit the tickets that taught them better than others, so how far to trust them is learnt from others: block by block,
in step with the test (``learning/gate/prequential.py``), tickets are judged under what earlier ones have taught, first by
the test and then as material for the calibration of what follows. Each prompt shifts the model's log-odds by its rules and
demonstrations. What comes from different prompts is made comparable by the middle and the spread of each prompt's log-odds
on the same reference tickets, whose labels play no part in that. Rules that more tickets taught are right more often: a
ticket counts in proportion to those that taught the rules it was judged under.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stageb.guidance.judging.answers import sigmoid
from stageb.guidance.judging.questions import Dialogue
from stageb.guidance.learning.calibration import find_log_odds, fit_calibration, measure_calibration_error
from stageb.guidance.learning.gate.judge import Judge
from stageb.guidance.learning.steps import Tools, choose_demonstrations
from stageb.guidance.rules.conditions import reading
from stageb.guidance.rules.judge import read_rules
from stageb.guidance.rules.prompts import Case
from stageb.guidance.words.types import UNCALIBRATED, Calibration, Guidance, Verdict


@dataclass(frozen=True, slots=True)
class Weighed:
    """How the model and the rules as code judge a ticket that taught neither."""

    log_odds: float  # of the model, as they are
    score: float  # in spreads of its prompt, from their middle
    ruling: Verdict | None  # of the rules
    passes: bool  # its label
    calibrated: float | None  # log-odds, by tickets before it; None where these were too few
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
        (merits,) = yield from self.judge.merits([(guidance, [*reference, *block])])
        log_odds = [
            find_log_odds(merit, self._passes(i), self._temperature)
            for i, merit in zip([*reference, *block], merits, strict=True)
        ]
        middle, spread = _describe(log_odds[: len(reference)])
        fitted = _fit(list(self.weighed.values()))
        is_known = fitted != UNCALIBRATED
        slope = fitted.slope / spread
        calibration = Calibration(round(slope, 6), round(fitted.offset - slope * middle, 6), fitted.rules)
        weighed = {
            i: Weighed(
                odds,
                (odds - middle) / spread,
                ruling,
                self._passes(i),
                calibration.given(ruling).of(odds) if is_known else None,
                len(taught),
            )
            for i, odds, ruling in zip(block, log_odds[len(reference) :], self._rule_on(guidance, block), strict=True)
        }
        after = replace(self, weighed={**self.weighed, **weighed})
        return replace(guidance, calibration=calibration) if is_known else None, after

    def merits(self, positions: Iterable[int]) -> dict[int, float]:
        """How the guidance that they were last judged under, calibrated, judges those of the tickets that are known."""
        known = {i: self.weighed[i] for i in positions if i in self.weighed}
        return {
            i: sigmoid(each.calibrated if each.passes else -each.calibrated, self._temperature)
            for i, each in known.items()
            if each.calibrated is not None
        }

    @property
    def calibration_errors(self) -> tuple[float, float] | None:
        """The expected calibration error before and after calibration, of tickets that played no part in it; None where
        there is none."""
        known = [(each.log_odds, each.calibrated, each.passes) for each in self.weighed.values()]
        odds = [(before, after, passes) for before, after, passes in known if after is not None]
        if not odds:
            return None
        before, after, passes = zip(*odds, strict=True)
        return round(measure_calibration_error(before, passes), 4), round(measure_calibration_error(after, passes), 4)

    @property
    def _temperature(self) -> float:
        return self.tools.config.sampler.grid[0].temperature

    def _passes(self, position: int) -> bool:
        return self.tools.tickets[position].label == "pass"

    def _is_right(self, position: int) -> bool:
        """Whether the model alone judged it right; a ticket that it has not judged counts as right."""
        known = self.weighed.get(position)
        return known is None or (known.score > 0) == known.passes

    def _rule_on(self, guidance: Guidance, positions: Sequence[int]) -> list[Verdict | None]:
        judge = read_rules(guidance, self.tools.vocabulary, self.tools.words).compile()
        return [judge(reading(self.tools.tickets[i])).verdict for i in positions]


def _fit(known: Sequence[Weighed]) -> Calibration:
    """The calibration of scores; none where too few are known."""
    most = max((each.taught for each in known), default=1)
    return fit_calibration(
        [each.score for each in known],
        [each.passes for each in known],
        [each.ruling for each in known],
        [each.taught / most for each in known],
    )


def _describe(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation, the latter large enough to divide by."""
    middle = sum(values) / max(1, len(values))
    return middle, math.sqrt(sum((each - middle) ** 2 for each in values) / max(1, len(values))) or 1.0
