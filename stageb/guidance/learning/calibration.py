"""How a model's verdicts are calibrated, and weighed beside what rules say as code: by logistic regression.

A model that orders tickets well may still put nearly all of them on one side: its log-odds carry what the words "pass" and
"fail" are worth to it anywhere. A slope and an offset mend that (Platt, "Probabilistic outputs for support vector
machines", 1999). Where rules can be read as code, what they say of a ticket is evidence beside the model's and gets a
weight of its own (stacking: Wolpert, "Stacked generalization", 1992), so that the verdict follows whoever is right more
often. A ridge keeps a few tickets that happen to be told apart from making every verdict certain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from stageb.guidance.judging.answers import sigmoid
from stageb.guidance.words.types import UNCALIBRATED, Calibration, Guidance, Verdict

FEWEST = 16  # tickets to fit on
RIDGE = 1.0  # of the slope, about 1, and of the weight of rules, about 0; a hundredth of it of the offset, about 0
LEAST_SLOPE = 0.05  # a model that is wrong more often than right is not turned round, nor are rules
STEPS = 12  # of Newton's method
LONGEST_STEP = 3  # of any weight
FITTED = 1e-5  # a step of weights that is no step
BINS = 10  # of probabilities, of about as many tickets each

Numbers = NDArray[np.float64]


def fit_calibration(
    log_odds: Sequence[float],
    passes: Sequence[bool],
    rulings: Sequence[Verdict | None] = (),
    counts: Sequence[float] = (),
) -> Calibration:
    """The calibration under which tickets of these ``log_odds``, of which the rules as code say ``rulings``, have their
    labels with the highest probability; none where they are too few, or all of one label. Each ticket ``counts`` so much,
    without that one."""
    if len(passes) < FEWEST or len(set(passes)) < 2:
        return UNCALIBRATED
    scale = max(1.0, math.sqrt(sum(each * each for each in log_odds) / len(log_odds)))
    rows = np.array(
        [
            (each / scale, Calibration(1.0, 0.0, 1.0).given(ruling).offset, 1.0)
            for each, ruling in zip_longest(log_odds, rulings)
        ]
    )
    prior, ridge = np.array([1.0, 0.0, 0.0]), np.array([RIDGE, RIDGE, RIDGE / 100])
    fitted = fit_logistic(rows, np.array(passes, float), np.array(counts or [1.0] * len(rows)), prior, ridge, prior)
    slope, rules, offset = fitted.tolist()
    return Calibration(round(max(LEAST_SLOPE, slope / scale), 6), round(offset, 6), round(max(0.0, rules), 6))


def find_log_odds(merit: float, label_passes: bool, temperature: float) -> float:
    """The log-odds of a pass that give a ticket of that label this ``merit`` at ``temperature``."""
    share = min(1 - 1e-6, max(1e-6, merit if label_passes else 1 - merit))
    return temperature * math.log(share / (1 - share))


def calibrate(
    guidance: Guidance, merits: Mapping[int, float], passes: Mapping[int, bool], temperature: float
) -> tuple[Guidance, dict[int, float]]:
    """``guidance`` calibrated by its ``merits`` on tickets, of which ``passes`` says the labels; and its merits then."""
    log_odds = {i: find_log_odds(merit, passes[i], temperature) for i, merit in merits.items()}
    further = fit_calibration(list(log_odds.values()), list(passes.values()))
    after = {i: sigmoid(further.of(odds) * (1 if passes[i] else -1), temperature) for i, odds in log_odds.items()}
    return replace(guidance, calibration=further.after(guidance.calibration)), after


def measure_calibration_error(log_odds: Sequence[float], passes: Sequence[bool]) -> float:
    """The expected calibration error: how far the probability of a pass is from the share of passes, in the mean over
    ``BINS`` bins of as many tickets each, as they come by probability (Naeini et al., AAAI 2015)."""
    chances = find_chances(np.array(log_odds, float))
    order = np.argsort(chances, kind="stable")  # by label, equal ones would lie in bins of one label each
    off, count = (chances - np.array(passes, float))[order], len(order)
    bins = (off[place * count // BINS : (place + 1) * count // BINS] for place in range(BINS))
    return sum(abs(float(each.sum())) for each in bins) / max(1, count)


def fit_logistic(
    rows: Numbers, labels: Numbers, counts: Numbers, first: Numbers, ridge: Numbers, prior: Numbers | float = 0.0
) -> Numbers:
    """The weights of a logistic regression in which each row ``counts`` so much, drawn to ``prior`` by ``ridge``: Newton's
    method, from ``first`` on. Of several regressions at once, where the arrays have one more axis before theirs."""
    fitted, turned, drawn = first.copy(), rows.swapaxes(-1, -2), np.diag(ridge)
    for _ in range(STEPS):
        chances = find_chances(_times(rows, fitted))
        slope = _times(turned, counts * (chances - labels)) + ridge * (fitted - prior)
        bend = (turned * (counts * chances * (1 - chances) + 1e-9)[..., None, :]) @ rows + drawn
        step = np.linalg.solve(bend, slope[..., None])[..., 0]
        fitted -= np.clip(step, -LONGEST_STEP, LONGEST_STEP)
        if np.abs(step).max() < FITTED:
            break
    return fitted


def find_chances(log_odds: Numbers) -> Numbers:
    """The probabilities that log-odds stand for."""
    chances: Numbers = 1 / (1 + np.exp(-np.clip(log_odds, -30, 30)))
    return chances


# Inside ------------------------------------------------------------------------------------------------------------------


def _times(rows: Numbers, weights: Numbers) -> Numbers:
    found: Numbers = (rows @ weights[..., None])[..., 0]
    return found
