"""How a model's verdicts are calibrated, and weighed beside what rules say as code: by logistic regression.

A model that orders tickets well may still put nearly all of them on one side: its log-odds carry what the words "pass" and
"fail" are worth to it anywhere. A slope and an offset mend that (Platt, "Probabilistic outputs for support vector machines",
1999). Where rules can be read as code, what they say of a ticket is evidence beside the model's and gets a weight of its own
(stacking: Wolpert, "Stacked generalization", 1992), so that the verdict follows whoever is right more often. A ridge keeps a
few tickets that happen to be told apart from making every verdict certain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest

from stageb.guidance.types import UNCALIBRATED, Calibration, Verdict

FEWEST = 16  # tickets to fit on
RIDGE = 1.0  # of the slope, about 1, and of the weight of rules, about 0; a hundredth of it of the offset, about 0
LEAST_SLOPE = 0.05  # a model that is wrong more often than right is not turned round, nor are rules
STEPS = 50  # of Newton's method, each of at most 1 in any number
BINS = 10  # of probabilities, of about as many tickets each


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
    rows = [
        (each / scale, Calibration(1.0, 0.0, 1.0).given(ruling).offset, 1.0)
        for each, ruling in zip_longest(log_odds, rulings)
    ]
    slope, rules, offset = _fit_logistic(
        rows, passes, counts or [1.0] * len(rows), (1.0, 0.0, 0.0), (RIDGE, RIDGE, RIDGE / 100)
    )
    return Calibration(round(max(LEAST_SLOPE, slope / scale), 6), round(offset, 6), round(max(0.0, rules), 6))


def find_log_odds(merit: float, label_passes: bool, temperature: float) -> float:
    """The log-odds of a pass that give a ticket of that label this ``merit`` at ``temperature``."""
    share = min(1 - 1e-6, max(1e-6, merit if label_passes else 1 - merit))
    return temperature * math.log(share / (1 - share))


def measure_calibration_error(log_odds: Sequence[float], passes: Sequence[bool]) -> float:
    """The expected calibration error: how far the probability of a pass is from the share of passes, in the mean over
    ``BINS`` bins of as many tickets each, as they come by probability (Naeini et al., AAAI 2015)."""
    pairs = ((_share(each), is_pass) for each, is_pass in zip(log_odds, passes, strict=True))
    ordered = sorted(pairs, key=lambda pair: pair[0])  # by label, equal ones would lie in bins of one label each
    count, error = len(ordered), 0.0
    for place in range(BINS):
        some = ordered[place * count // BINS : (place + 1) * count // BINS]
        error += abs(sum(share - is_pass for share, is_pass in some))
    return error / max(1, count)


def _fit_logistic(
    rows: Sequence[Sequence[float]],
    labels: Sequence[bool],
    counts: Sequence[float],
    prior: Sequence[float],
    ridge: Sequence[float],
) -> list[float]:
    """The weights of a logistic regression in which each row ``counts`` so much, by Newton's method, drawn to ``prior`` by
    ``ridge``."""
    weights, size = list(prior), range(len(prior))
    for _ in range(STEPS):
        shares = [_share(sum(map(float.__mul__, row, weights))) for row in rows]
        slopes = [ridge[j] * (weights[j] - prior[j]) for j in size]
        bends = [[ridge[j] if j == k else 0.0 for k in size] for j in size]
        for row, share, label, count in zip(rows, shares, labels, counts, strict=True):
            for j in size:
                slopes[j] += count * (share - label) * row[j]
                for k in size:
                    bends[j][k] += count * share * (1 - share) * row[j] * row[k]
        steps = _solve(bends, slopes)
        weights = [weight - max(-1.0, min(1.0, step)) for weight, step in zip(weights, steps, strict=True)]
        if max(map(abs, steps)) < 1e-9:
            break
    return weights


def _solve(matrix: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """x with matrix x = values, of a positive definite matrix: Gauss's elimination."""
    rows = [[*row, value] for row, value in zip(matrix, values, strict=True)]
    for j, pivot in enumerate(rows):
        for k, row in enumerate(rows):
            if k != j:
                factor = row[j] / pivot[j]
                rows[k] = [one - factor * other for one, other in zip(row, pivot, strict=True)]
    return [row[-1] / row[j] for j, row in enumerate(rows)]


def _share(log_odds: float) -> float:
    return 1 / (1 + math.exp(-max(-40.0, min(40.0, log_odds))))
