"""Limits on a field's numbers: chooses which are tried, finds the tickets beyond them, and writes
the one in a gap."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Literal

from stageb.guidance.rules.value_types import NUMBER, parse_quantity

LIMITS = 8  # on the numbers of one field
# the same where they are fine; with many tickets, one for each ``TICKETS_EACH`` of them, at most
# ``MOST_LIMITS``
FINE_LIMITS = 32
TICKETS_EACH, MOST_LIMITS = 128, 256
TAIL = 1.8  # how much denser fine limits lie at both ends; 1: no denser
LIMITS_OF_WRONG = 16  # further limits, each way, where it is known which tickets are wrong
DIGITS = 4  # significant digits of a computed limit

Side = Literal["above", "below"]


def write_limit(side: Side, under: float, over: float, sample: str) -> str:
    """Write the limit that separates numbers up to ``under`` from those from ``over`` on, in the
    form of ``sample``, which a ticket has: the number of fewest digits, of these the nearest to the
    middle. Empty where it cannot be written so."""
    short = _shorten(side, under, over)
    moved = re.sub(NUMBER, short, sample, count=1) if short else ""
    quantity, meant = parse_quantity(moved), parse_quantity(sample)
    return moved if quantity and meant and quantity == (float(short), meant.unit) else ""


def spread_limits(
    ordered: Sequence[float], numbers: Mapping[int, float], wrong: int, fine: bool, tickets: int = 0
) -> list[tuple[Side, float]]:
    """Choose some of the ``ordered`` numbers, evenly spread or, if fine, denser at both ends, and
    more of them for many ``tickets``; and those just outside ``LIMITS_OF_WRONG`` wrong ones: where
    wrong tickets are rare, they lie beyond the last of the others."""
    most = max(FINE_LIMITS, min(MOST_LIMITS, tickets // TICKETS_EACH)) if fine else LIMITS
    evenly = (
        ordered
        if len(ordered) <= most
        else _spread_to_ends(ordered, most)
        if fine
        else _spread(ordered, most)
    )
    limits: list[tuple[Side, float]] = [
        (kind, limit) for limit in evenly for kind in ("above", "below")
    ]
    of_wrong = sorted(number for position, number in numbers.items() if position < wrong)
    lower = (bisect_left(ordered, number) - 1 for number in _spread(of_wrong, LIMITS_OF_WRONG))
    higher = (bisect_right(ordered, number) for number in _spread(of_wrong[::-1], LIMITS_OF_WRONG))
    limits += [("above", ordered[place]) for place in lower if place >= 0]
    limits += [("below", ordered[place]) for place in higher if place < len(ordered)]
    return limits


def find_beyond(limits: Sequence[tuple[Side, float]], numbers: Mapping[int, float]) -> list[int]:
    """Find the tickets above or below each of the limits, in one pass over the numbers."""
    ordered = sorted((value, position) for position, value in numbers.items())
    bits, place = bytearray(max(numbers, default=0) // 8 + 1), 0
    masks = [0] * len(limits)
    # The tickets below a limit are set before the numbers that equal it; those not above it, after.
    for number in sorted(
        range(len(limits)), key=lambda number: (limits[number][1], limits[number][0] == "above")
    ):
        kind, limit = limits[number]
        while place < len(ordered) and (
            ordered[place][0] < limit or (kind == "above" and ordered[place][0] == limit)
        ):
            bits[ordered[place][1] >> 3] |= 1 << (ordered[place][1] & 7)
            place += 1
        masks[number] = int.from_bytes(bits, "little")
    everything = to_mask(numbers)
    return [
        everything ^ mask if kind == "above" else mask
        for (kind, _), mask in zip(limits, masks, strict=True)
    ]


def to_mask(positions: Iterable[int]) -> int:
    """Return the tickets at these positions as the bits of one integer."""
    bits = bytearray()
    for position in positions:
        if position >> 3 >= len(bits):
            bits.extend(bytes((position >> 3) + 1 - len(bits)))
        bits[position >> 3] |= 1 << (position & 7)
    return int.from_bytes(bits, "little")


def write_computed(number: float) -> str:
    """Write a number in ``DIGITS`` significant digits, without powers of ten."""
    return _plain(f"{float(f'{number:.{DIGITS}g}'):.12f}")


def count_digits(limit: str) -> tuple[int, int]:
    """Count the significant digits of a limit, and its characters: 90 is rounder than 92."""
    return len("".join(filter(str.isdigit, limit)).strip("0")), len(limit)


# Inside -------------------------------------------------------------------------------------------


def _spread(numbers: Sequence[float], count: int) -> list[float]:
    """Choose ``count`` of the numbers at equal distances, from the first on; some of them twice
    where there are fewer."""
    return [numbers[len(numbers) * k // count] for k in range(count)] if numbers else []


def _spread_to_ends(numbers: Sequence[float], count: int) -> list[float]:
    """Choose ``count`` of the numbers, denser towards both ends: rare ones lie there."""
    half = [((2 * k + 1) / count) ** TAIL / 2 for k in range(count // 2)]
    shares = [*half, *(1 - share for share in reversed(half))]
    return [numbers[min(len(numbers) - 1, int(len(numbers) * share))] for share in shares]


def _shorten(side: Side, under: float, over: float) -> str:
    """Find the number of fewest digits in a gap, the nearest to its middle; where numbers as fine
    as these could lie in between, it lies in the middle half of the gap. Empty where it needs more
    than twelve decimals."""
    middle, step = (under + over) / 2, 10.0 ** -max(map(_count_decimals, (under, over)))
    # which sums of decimals miss by a little
    reach = (over - under) / 4 * (1 + 1e-9) if over - under > 1.5 * step else math.inf
    for digits in range(-6, 13):
        nearest = round(middle, digits)
        for number in (
            nearest,
            round(nearest - 10.0**-digits, digits),
            round(nearest + 10.0**-digits, digits),
        ):
            is_apart = under <= number < over if side == "above" else under < number <= over
            if is_apart and abs(number - middle) <= reach:
                return _plain(f"{number:.{max(0, digits)}f}")
    return ""


def _count_decimals(number: float) -> int:
    exponent = Decimal(repr(number)).normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _plain(text: str) -> str:
    """Return a decimal number without zeros at its end."""
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text
