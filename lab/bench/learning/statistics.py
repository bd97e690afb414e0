"""Intervals for the tables, from the standard library."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import atan, cos, exp, inf, lgamma, log, pi, sqrt
from statistics import fmean, stdev

Interval = tuple[float, float]


def mean_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Student's interval for a mean; without bounds where there are fewer than two values."""
    if len(values) < 2:
        return -inf, inf
    reach = t_quantile((1 + level) / 2, len(values) - 1) * stdev(values) / sqrt(len(values))
    return fmean(values) - reach, fmean(values) + reach


@cache
def t_quantile(share: float, freedom: int) -> float:
    """The value that Student's t with ``freedom`` degrees of freedom stays below with probability ``share``, above 1/2."""
    low, high = 0.0, 1e4
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if t_below(middle, freedom) < share else (low, middle)
    return (low + high) / 2


def t_below(value: float, freedom: int) -> float:
    """P(t < ``value``) for ``value`` >= 0.

    With t = sqrt(freedom) * tan(a), the density in the angle a is proportional to cos(a) ** (freedom - 1): a smooth
    integrand on a bounded range, summed by Simpson's rule.
    """
    end, steps = atan(value / sqrt(freedom)), 200
    width = end / steps
    weights = [1 if i in (0, steps) else 4 if i % 2 else 2 for i in range(steps + 1)]
    area = sum(w * cos(i * width) ** (freedom - 1) for i, w in enumerate(weights)) * width / 3
    scale = exp(lgamma((freedom + 1) / 2) - lgamma(freedom / 2)) / sqrt(pi)
    return 0.5 + scale * area


def log_binomial(n: int, k: int, share: float) -> float:
    """Natural log of P(Binomial(n, share) = k), for 0 < share < 1."""
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) + k * log(share) + (n - k) * log(1 - share)
