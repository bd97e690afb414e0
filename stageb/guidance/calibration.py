"""How a model's verdicts are calibrated: log-odds in, a slope and an offset out, fitted on labelled tickets.

A model that orders tickets well may still put nearly all of them on one side: its log-odds carry what the words "pass" and
"fail" are worth to it anywhere. Two numbers mend that (Platt, "Probabilistic outputs for support vector machines", 1999),
here with a ridge, so that a few tickets that happen to be told apart do not make every verdict certain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from stageb.guidance.types import UNCALIBRATED, Calibration

FEWEST = 16  # tickets to fit on
RIDGE = 1.0  # of the slope, about 1, and a hundredth of it of the offset, about 0
LEAST_SLOPE = 0.05  # a model that is wrong more often than right is not turned round
STEPS = 50  # of Newton's method, each of at most 1 in either number


def fit_calibration(log_odds: Sequence[float], passes: Sequence[bool]) -> Calibration:
    """The slope and the offset under which tickets of these ``log_odds`` have their labels with the highest probability;
    none where they are too few, or all of one label."""
    if len(passes) < FEWEST or len(set(passes)) < 2:
        return UNCALIBRATED
    scale = max(1.0, math.sqrt(sum(each * each for each in log_odds) / len(log_odds)))
    scaled = [each / scale for each in log_odds]
    slope, offset = 1.0, 0.0
    for _ in range(STEPS):
        misses = [_share(slope * each + offset) - label for each, label in zip(scaled, passes, strict=True)]
        weights = [share * (1 - share) for share in (miss + label for miss, label in zip(misses, passes, strict=True))]
        pull = sum(map(float.__mul__, misses, scaled)) + RIDGE * (slope - 1)
        push = sum(misses) + RIDGE / 100 * offset
        curve = sum(weight * each * each for weight, each in zip(weights, scaled, strict=True)) + RIDGE
        cross, mass = sum(map(float.__mul__, weights, scaled)), sum(weights) + RIDGE / 100
        whole = curve * mass - cross * cross
        steps = (mass * pull - cross * push) / whole, (curve * push - cross * pull) / whole
        slope, offset = (value - max(-1.0, min(1.0, step)) for value, step in zip((slope, offset), steps, strict=True))
        if max(map(abs, steps)) < 1e-9:
            break
    return Calibration(round(max(LEAST_SLOPE, slope / scale), 6), round(offset, 6))


def find_log_odds(merit: float, label_passes: bool, temperature: float) -> float:
    """The log-odds of a pass that give a ticket of that label this ``merit`` at ``temperature``."""
    share = min(1 - 1e-6, max(1e-6, merit if label_passes else 1 - merit))
    return temperature * math.log(share / (1 - share))


def _share(log_odds: float) -> float:
    return 1 / (1 + math.exp(-max(-40.0, min(40.0, log_odds))))
