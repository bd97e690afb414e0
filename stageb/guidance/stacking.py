"""What turns rules that code has learnt into guidance for a model that judges: demonstrations, and a calibration that weighs
the model's verdicts beside those of the rules as code.

Rules fit the tickets that taught them better than others, so how far to trust them is learnt from others: block by block,
in step with the test (``gate/prequential.py``), tickets are judged under what earlier ones have taught, first by the test
and then as material for the calibration of what follows. Each prompt shifts the model's log-odds by its rules and
demonstrations. What comes from different prompts is made comparable by the middle and the spread of each prompt's log-odds
on the same reference tickets, whose labels play no part in that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from stageb.guidance.calibration import find_log_odds, fit_calibration, measure_calibration_error
from stageb.guidance.gate.judge import Judge
from stageb.guidance.learning import Tools, choose_demonstrations
from stageb.guidance.prompts import Case
from stageb.guidance.questions import Dialogue
from stageb.guidance.reflection.conditions import reading
from stageb.guidance.rules.judge import compile_rules, read_rules
from stageb.guidance.sampling import sigmoid
from stageb.guidance.types import UNCALIBRATED, Calibration, Guidance, Verdict


@dataclass
class Stacker:
    """Prepares one guidance after the other, each with what the blocks of those before tell of calibration."""

    tools: Tools
    judge: Judge
    reference: Sequence[int]  # positions of the tickets by which prompts are made comparable
    _scores: list[float] = field(default_factory=list)  # of the tickets judged: the model's log-odds in its prompt's spreads
    _rulings: list[Verdict | None] = field(default_factory=list)  # what the rules said of them as code
    _passes: list[bool] = field(default_factory=list)  # their labels
    _before: list[float] = field(default_factory=list)  # of those that were calibrated by others: the model's log-odds
    _after: list[float] = field(default_factory=list)  # calibrated
    _labels: list[bool] = field(default_factory=list)
    _right: dict[int, bool] = field(default_factory=dict)  # position -> whether the model alone judged it right

    def prepare(self, guidance: Guidance, taught: Sequence[int], block: Sequence[int] = ()) -> Dialogue[Guidance | None]:
        """``guidance`` with demonstrations from the tickets that ``taught`` it, calibrated by the blocks before. The tickets
        of ``block`` are judged under it: they calibrate the next. None as long as too few are known to calibrate by; where
        the engine gives no probabilities, nothing is calibrated."""
        cases = [Case(self.tools.tickets[i], self._right.get(i, True), None) for i in taught]
        guidance = replace(guidance, demonstrations=(), calibration=UNCALIBRATED)
        guidance = choose_demonstrations(guidance, cases, self.tools)
        if not self.tools.weighs:
            return guidance
        shown = {each.source for each in guidance.shown}
        reference = [i for i in self.reference if self.tools.tickets[i].key not in shown]
        yield from self.judge.merits([(guidance, [*reference, *block])])
        middle, spread = _describe(self._find_log_odds(guidance, reference))
        odds = self._find_log_odds(guidance, block)
        rulings, passes = self._find_rulings(guidance, block), [self._passes_label(i) for i in block]
        found = fit_calibration(self._scores, self._passes, self._rulings)
        calibration = Calibration(
            round(found.slope / spread, 6), round(found.offset - found.slope * middle / spread, 6), found.rules
        )
        self._scores += [(each - middle) / spread for each in odds]
        self._rulings += rulings
        self._passes += passes
        self._right.update((i, (each > middle) == label) for i, each, label in zip(block, odds, passes, strict=True))
        if found == UNCALIBRATED:
            return None
        after = [calibration.given(ruling).of(each) for ruling, each in zip(rulings, odds, strict=True)]
        self._before, self._after, self._labels = self._before + odds, self._after + after, self._labels + passes
        calibrated = replace(guidance, calibration=calibration)
        merits = (sigmoid(each if label else -each, self._temperature) for each, label in zip(after, passes, strict=True))
        self.judge.known(calibrated).update(zip(block, merits, strict=True))
        return calibrated

    @property
    def calibration_errors(self) -> tuple[float, float] | None:
        """The expected calibration error before and after calibration, of tickets that played no part in it; None where
        there is none."""
        if not self._labels:
            return None
        before, after = (measure_calibration_error(each, self._labels) for each in (self._before, self._after))
        return round(before, 4), round(after, 4)

    @property
    def _temperature(self) -> float:
        return self.tools.config.sampler.grid[0].temperature

    def _passes_label(self, position: int) -> bool:
        return self.tools.tickets[position].label == "pass"

    def _find_log_odds(self, guidance: Guidance, positions: Sequence[int]) -> list[float]:
        known = self.judge.known(guidance)
        return [find_log_odds(known[i], self._passes_label(i), self._temperature) for i in positions]

    def _find_rulings(self, guidance: Guidance, positions: Sequence[int]) -> list[Verdict | None]:
        judge = compile_rules(read_rules(guidance, self.tools.vocabulary, self.tools.words))
        return [judge(reading(self.tools.tickets[i])).verdict for i in positions]


def _describe(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation, the latter large enough to divide by."""
    middle = sum(values) / max(1, len(values))
    return middle, math.sqrt(sum((each - middle) ** 2 for each in values) / max(1, len(values))) or 1.0
