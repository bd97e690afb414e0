"""The numbers of a field in order, and the limit on them that separates tickets best.

Rules begin with limits from a grid. Then each limit is moved: of all gaps between neighbouring
numbers of the tickets whose verdict hangs on it, the best one is taken, as in a decision tree
(Breiman et al., "Classification and regression trees", 1984, section 2.4), and in that gap the
number of fewest digits nearest to the middle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stageb.guidance.rules.limits import Side, count_digits, write_limit

TIED = 64  # gaps that are equally good, at most, among which the fewest digits decide

Numbers = NDArray[np.float64]
Score = Callable[[Numbers, Numbers], Numbers]
"""Scores limits by how many wanted tickets and how many negatives lie beyond each."""


@dataclass(frozen=True, eq=False, slots=True)
class Scale:
    """The numbers that tickets have in one field, or that two of their fields give."""

    places: NDArray[np.int64]  # of the tickets that have a number, in the order of ``numbers``
    numbers: Numbers  # ascending
    sample: str  # one of them as a ticket writes it

    @classmethod
    def of(cls, numbers: Mapping[int, float], sample: str) -> Scale:
        """Make the scale of numbers by ticket."""
        places = np.fromiter(numbers, np.int64, len(numbers))
        found = np.fromiter(numbers.values(), np.float64, len(numbers))
        order = np.lexsort((places, found))
        return cls(places[order], found[order], sample)

    def find_beyond(self, side: Side, limit: float) -> int:
        """Return the tickets above or below a limit, as bits."""
        cut = int(np.searchsorted(self.numbers, limit, "right" if side == "above" else "left"))
        places = self.places[cut:] if side == "above" else self.places[:cut]
        if not len(places):
            return 0
        flags = np.zeros(int(places.max()) + 1, np.uint8)
        flags[places] = 1
        return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")

    def turn(self, side: Side, limit: float) -> str:
        """Write the limit on the other side beyond which all other numbers lie. Empty where there
        are none, or where it cannot be written."""
        cut = int(np.searchsorted(self.numbers, limit, "right" if side == "above" else "left"))
        if not 0 < cut < len(self.numbers):
            return ""
        under, over = self.numbers[cut - 1 : cut + 1].tolist()
        return write_limit("below" if side == "above" else "above", under, over, self.sample)

    def find_limit(self, side: Side, wanted: int, negatives: int, score: Score) -> str:
        """Find the limit, as a ticket would write it, beyond which the ``wanted`` and the
        ``negatives`` score best. Empty where they score better without one, where all have one
        number, or where no limit in the best gap can be written."""
        is_wanted, is_negative = (_flags(mask, self.places) for mask in (wanted, negatives))
        kept = is_wanted | is_negative
        numbers, is_wanted, is_negative = self.numbers[kept], is_wanted[kept], is_negative[kept]
        gaps = np.flatnonzero(numbers[1:] > numbers[:-1])
        if not len(gaps):
            return ""
        sides = []
        for flags in (is_wanted, is_negative):
            below, total = np.cumsum(flags)[gaps], flags.sum()
            beyond = total - below if side == "above" else below
            sides.append(np.append(beyond, total).astype(np.float64))  # the last is without a limit
        *scores, without = score(*sides).round(9).tolist()
        if without > max(scores):
            return ""
        best = gaps[np.array(scores) == max(scores)][:TIED]
        ends = zip(numbers[best].tolist(), numbers[best + 1].tolist(), strict=True)
        limits = [write_limit(side, under, over, self.sample) for under, over in ends]
        return min(filter(None, limits), key=count_digits, default="")


def _flags(mask: int, places: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each of the tickets is in the mask."""
    size = int(places.max()) // 8 + 1
    bits = (mask & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    flags: NDArray[np.bool_] = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")[
        places
    ].astype(bool)
    return flags
