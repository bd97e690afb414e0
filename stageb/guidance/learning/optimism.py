"""How much better the best of several guidances seems than it is: the tickets that it was chosen by
measure it, too.

Bootstrap bias-corrected cross-validation (Tsamardinos, Greasidou & Borboudakis, "Bootstrapping the
out-of-sample predictions for efficient and accurate cross-validation", Machine Learning 2018).
Tickets are drawn anew, with replacement; of what each guidance judges wrong out of fold, that which
costs least on these is measured on the tickets that were not drawn. Nothing is learnt again. So
that few draws will do, it is compared there with what costs least of all tickets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stageb.guidance.learning.material import Material
from stageb.guidance.learning.terms import unpack

DRAWS = 100
SEED = 2018

_Numbers = NDArray[np.float64]


class Optimism(NamedTuple):
    """By how much the guidance that costs least seems better, of a ticket."""

    cost: float
    wrong: float  # share that is judged wrong


def find_optimism(tried: Sequence[int], material: Material, among: int) -> Optimism:
    """The optimism of the best of guidances, each given by the tickets ``among`` these that it
    judges wrong out of fold. Tickets of a group are drawn together."""
    wrong = unpack([*dict.fromkeys(tried)], among).astype(np.float64)
    prices = np.zeros(wrong.shape[1])
    for label, mask in material.labelled.items():
        prices += material.price(label) * unpack([mask], among)[0]
    units = _number_units(material.groups, among)
    shares, costs = _add_up(wrong, units), _add_up(wrong * prices, units)
    sizes = np.bincount(units).astype(np.float64)
    draws = np.random.default_rng(SEED).integers(len(sizes), size=(DRAWS, len(sizes)))
    drawn = np.zeros(draws.shape)
    np.add.at(drawn, (np.arange(DRAWS)[:, None], draws), 1)
    drawn = drawn[(drawn == 0).any(axis=1)]  # of few tickets, all may be drawn
    if not len(drawn):
        return Optimism(0.0, 0.0)
    best, least = (drawn @ costs.T).argmin(axis=1), costs.sum(axis=1).argmin()
    others = (drawn == 0).astype(np.float64)
    tickets = others @ sizes

    def measure(figures: _Numbers) -> float:
        there = others @ figures.T
        gaps = (there[np.arange(len(best)), best] - there[:, least]) / tickets
        return max(0.0, float(gaps.mean()))

    return Optimism(measure(costs), measure(shares))


def _number_units(groups: Sequence[int], among: int) -> NDArray[np.int64]:
    """Which unit each ticket ``among`` these is drawn with, from 0 on."""
    owners = np.arange(among.bit_length())
    for group in groups:
        rest, first = group & among, (group & among).bit_length() - 1
        while rest:
            last = rest.bit_length() - 1
            owners[last] = first
            rest ^= 1 << last
    flags = unpack([among], (1 << among.bit_length()) - 1)[0]
    _, units = np.unique(owners[flags == 1], return_inverse=True)
    return np.asarray(units, np.int64)


def _add_up(figures: _Numbers, units: NDArray[np.int64]) -> _Numbers:
    """The sums of each row, by unit."""
    order = np.argsort(units, kind="stable")
    starts = np.flatnonzero(np.diff(units[order], prepend=-1))
    return np.asarray(np.add.reduceat(figures[:, order], starts, axis=1))
