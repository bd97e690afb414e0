"""Counts of conditions: "at least two of these five", which neither a line of few conditions nor a sum from some limit says.

The conditions that are counted are found greedily (ID2-of-3: Murphy and Pazzani, "Constructive induction of M-of-N
concepts", 1991): from the best pairs on, the condition is added by which the count tells most of the label, as mutual
information has it, less the log of how many conditions there were to choose from, for each.
"""

from __future__ import annotations

from math import lgamma, log

import numpy as np
from numpy.typing import NDArray

from stageb.guidance.reflection.conditions import Condition
from stageb.guidance.reflection.terms import Masks, Term, count_held, unpack

COUNTED = ("is", "among", "above", "below", "least", "most")  # what speaks of one field
BEAM = 5
TRIED = 40  # conditions that may be counted: those that tell most by themselves
MOST_COUNTED = 8

_Sums = NDArray[np.int64]


def find_counts(masks: Masks, gaps: Masks, fails: int, passes: int) -> dict[Term, int]:
    """The terms "at least so many of these conditions", and their denials, for the conditions of which the count tells most
    whether a ticket is one of ``fails`` or of ``passes``; none where none does. What some tickets do not tell is not
    counted."""
    among = fails | passes
    plain = [term for term in masks if term.condition.kind in COUNTED and not term.is_denied and term not in gaps]
    plain = [term for term in plain if not term.condition.is_computed]
    if len(plain) < 3:
        return {}
    rows = unpack([masks[term] for term in plain], among).astype(np.float32)
    is_fail = unpack([fails], among)[0].astype(bool)
    alone = _information(np.zeros(len(is_fail), np.int64), rows, is_fail)
    tried = sorted(np.argsort(-alone, kind="stable")[:TRIED].tolist())
    rows, names = rows[tried], [plain[place].condition.name for place in tried]
    best: tuple[float, tuple[int, ...]] = (0.0, ())
    front: list[tuple[int, ...]] = [(place,) for place in range(len(tried))]
    for size in range(2, MOST_COUNTED + 1):
        scores: dict[tuple[int, ...], float] = {}
        for places in front:
            tells = _information(rows[list(places)].sum(axis=0).astype(np.int64), rows, is_fail)
            for place, told in enumerate(tells.tolist()):
                if names[place] not in {names[other] for other in places}:
                    scores[tuple(sorted((*places, place)))] = told
        price = size * log(len(plain)) - lgamma(size + 1)
        front = sorted(scores, key=lambda places: (-round(scores[places], 6), places))[:BEAM]
        if size > 2 and front and scores[front[0]] - price > best[0]:
            best = scores[front[0]] - price, front[0]
    parts = tuple(plain[tried[place]] for place in best[1])
    held = count_held([masks[term] for term in parts])
    found: dict[Term, int] = {}
    for count in range(2, len(parts)):
        condition = Condition("count", "", str(count), parts=tuple(term.condition for term in parts))
        found[Term(condition)] = held[count - 1] & among
        found[Term(condition, True)] = among & ~held[count - 1]
    return found


# Inside ------------------------------------------------------------------------------------------------------------------


def _information(sums: _Sums, rows: NDArray[np.float32], is_fail: NDArray[np.bool_]) -> NDArray[np.float64]:
    """For each row, how much the ``sums`` with its ones added tell of the label: nats, over all tickets."""
    levels = int(sums.max(initial=0)) + 1
    places = sums + levels * is_fail
    everyone = np.bincount(places, minlength=2 * levels).astype(np.float64).reshape(2, levels)
    held = (rows @ np.eye(2 * levels, dtype=np.float32)[places]).astype(np.float64).reshape(-1, 2, levels)
    counts = np.zeros((len(rows), 2, levels + 1))
    counts[:, :, :-1] += everyone - held
    counts[:, :, 1:] += held
    joint, alone = _entropy(counts.sum(axis=1)), _entropy(everyone.sum(axis=1))
    return joint + alone - _entropy(counts.reshape(len(rows), -1))


def _entropy(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of shares in the last axis, times the number of tickets."""
    total = counts.sum(axis=-1)
    each: NDArray[np.float64] = total * np.log(np.maximum(total, 1)) - (counts * np.log(np.maximum(counts, 1))).sum(axis=-1)
    return each
