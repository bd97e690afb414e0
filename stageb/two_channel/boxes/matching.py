"""Match predicted to true objects: one to one, within a desc, such that the sum of IoU above a gate is largest.

IoU is computed on bins, which gives the same result as on pixels, since each axis is only scaled.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from stageb.two_channel.types import Detection, Match

DUPLICATE = 0.9  # IoU at which two predicted objects with one desc count as duplicates
_NEVER = 1e6  # the cost of a pair that is not allowed
_EDGE = 1e-9  # by which a pair exactly at the gate is better than none

Matrix = NDArray[np.float64]


def match(predicted: Sequence[Detection], true: Sequence[Detection], gate: float) -> Match:
    """Pair ``predicted`` with ``true``; ``gate`` is the smallest IoU of a pair, above 0.

    This is the assignment of least cost, with 1 - IoU for a pair and 1 - gate for a predicted object that is assigned to a
    dummy, so it maximises the sum of (IoU - gate) over pairs.
    """
    n, m = len(predicted), len(true)
    cost = np.concatenate([_costs(predicted, true, gate), np.full((n, n), 1 - gate + _EDGE)], axis=1)
    rows, columns = linear_sum_assignment(cost)
    return _make_match([(int(i), int(j)) for i, j in zip(rows, columns, strict=True) if j < m], n, m)


def match_prefix(predicted: Sequence[Detection], true: Sequence[Detection], gate: float) -> Match:
    """Pair the longest prefix of ``predicted`` whose objects can all be paired, with the largest sum of IoU; the rest stays
    unpaired. So no object loses its partner to one that was predicted after it."""
    costs = _costs(predicted, true, gate)

    def pairs_of(count: int) -> list[tuple[int, int]] | None:
        """Of the first ``count`` objects; None where not all can be paired."""
        if count > len(true):
            return None
        rows, columns = linear_sum_assignment(costs[:count])
        found = [(int(i), int(j)) for i, j in zip(rows, columns, strict=True)]
        return found if all(costs[pair] < _NEVER for pair in found) else None

    pairs: list[tuple[int, int]] = []
    while len(pairs) < len(predicted) and (longer := pairs_of(len(pairs) + 1)) is not None:
        pairs = longer
    return _make_match(pairs, len(predicted), len(true))


def prefer_first(matched: Match, objects: Sequence[Detection]) -> Match:
    """``matched``, changed such that of duplicates among ``objects`` the first is paired and the later one is a false
    positive.

    The later one may be slightly nearer to the truth; but if it were the one that is kept, repeating would be rewarded.
    """
    pairs = dict(matched.pairs)
    for first, later in find_duplicates(objects):
        if later in pairs and first not in pairs:
            pairs[first] = pairs.pop(later)
    false_positives = tuple(i for i in range(len(objects)) if i not in pairs)
    return Match(tuple(sorted(pairs.items())), false_positives, matched.missed)


def find_duplicates(objects: Sequence[Detection]) -> tuple[tuple[int, int], ...]:
    """Pairs (earlier, later) of duplicates: objects with one desc and an IoU of ``DUPLICATE`` or more."""
    return _find_duplicates(tuple(objects))


@lru_cache(maxsize=1)  # metrics and targets call it again for the same objects
def _find_duplicates(objects: tuple[Detection, ...]) -> tuple[tuple[int, int], ...]:
    close = np.triu((ious(objects, objects) >= DUPLICATE) & _same(objects, objects), k=1)
    return tuple((int(i), int(j)) for i, j in np.argwhere(close))


def ious(ones: Sequence[Detection], others: Sequence[Detection]) -> Matrix:
    """Intersection over union of each of ``ones`` (rows) with each of ``others`` (columns); 0 if neither has area."""
    a = np.array([each.bins for each in ones], dtype=np.float64).reshape(-1, 1, 4)
    b = np.array([each.bins for each in others], dtype=np.float64).reshape(1, -1, 4)
    sides = np.clip(np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]), 0, None)
    both = sides[..., 0] * sides[..., 1]
    either = _area(a) + _area(b) - both
    shares: Matrix = np.divide(both, either, out=np.zeros_like(both), where=either > 0)
    return shares


def _costs(predicted: Sequence[Detection], true: Sequence[Detection], gate: float) -> Matrix:
    """1 - IoU for each allowed pair, ``_NEVER`` for any other."""
    overlap = ious(predicted, true)
    costs: Matrix = np.where(_same(predicted, true) & (overlap >= gate), 1 - overlap, _NEVER)
    return costs


def _make_match(pairs: Sequence[tuple[int, int]], predicted: int, true: int) -> Match:
    """The match that consists of ``pairs`` among so many predicted and true objects."""
    taken, found = {i for i, _ in pairs}, {j for _, j in pairs}
    false_positives = tuple(i for i in range(predicted) if i not in taken)
    return Match(tuple(pairs), false_positives, missed=tuple(j for j in range(true) if j not in found))


def _area(boxes: Matrix) -> Matrix:
    area: Matrix = (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])
    return area


def _same(ones: Sequence[Detection], others: Sequence[Detection]) -> NDArray[np.bool_]:
    same = [one.desc == other.desc for one in ones for other in others]
    return np.array(same, dtype=np.bool_).reshape(len(ones), len(others))
