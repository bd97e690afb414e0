"""Numbers as records hold them and as people read them."""

from __future__ import annotations

import math
from collections.abc import Sequence

Z = 1.959964  # 97.5 % of a standard normal distribution lie below


def rounded(value: float | None) -> float | None:
    """Six significant digits are enough for a record, and what is no number is none."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def short(number: float) -> str:
    """Three digits and a unit: 1.23 M."""
    for limit, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.3g} {unit}"
    return f"{number:.3g}"


def clock(seconds: float) -> str:
    """Hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"


def wilson(successes: float, trials: float) -> tuple[float, float]:
    """Wilson's 95 % interval for a share; all of it where nothing was tried.

    E. B. Wilson 1927, "Probable inference, the law of succession, and statistical inference".
    """
    if not trials:
        return 0.0, 1.0
    share, scale = successes / trials, 1 + Z**2 / trials
    middle = (share + Z**2 / (2 * trials)) / scale
    half = Z * math.sqrt(share * (1 - share) / trials + Z**2 / (4 * trials**2)) / scale
    return max(0.0, middle - half), min(1.0, middle + half)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean of independent values, and half the width of its 95 % interval by Student's distribution.

    Its quantile by the expansion of Abramowitz & Stegun 1964, 26.7.5: good to 0.3 % from five values on. One value says
    nothing of it: infinite.
    """
    count = len(values)
    mean = sum(values) / count
    if count < 2:
        return mean, math.inf
    freedom = count - 1
    quantile = Z + (Z**3 + Z) / (4 * freedom) + (5 * Z**5 + 16 * Z**3 + 3 * Z) / (96 * freedom**2)
    quantile += (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / (384 * freedom**3)
    variance = sum((value - mean) ** 2 for value in values) / freedom
    return mean, quantile * math.sqrt(variance / count)
