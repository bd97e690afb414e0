"""Lists of words that speak for a verdict: free text needs many words in few lists.

A word is listed if it tells by itself: more of the wanted tickets mention it than of the others, by
``CLEAR`` standard errors of that difference. The ``most`` telling of these words are taken, and
parted in two where their log-odds lie furthest apart (Fisher, "On grouping for maximum
homogeneity", 1958): words that tell much, and words that tell a little. How many points a word of
each list has is fitted with the rest of the scorecard. So all words of a list weigh the same, and
each is weighed by itself, as in naive Bayes, which learns better from few texts than a regression
(Ng and Jordan, "On discriminative vs. generative classifiers", 2001; Wang and Manning, "Baselines
and bigrams", 2012).
"""

from __future__ import annotations

from collections.abc import Set

import numpy as np

from stageb.guidance.learning.calibrate import Numbers
from stageb.guidance.learning.terms import Contingency

LIST_LENGTHS = (10, 30, 100, 200)  # words of a verdict, at most: sizes that are tried
CLEAR = 1.0  # standard errors by which a listed word is commoner in wanted tickets
FEWEST_WORDS = 2  # words in a list, at least
SMOOTHED = 0.5  # of a ticket, added to each count


def find_lists(tally: Contingency, whole_words: Set[str], most: int) -> list[list[int]]:
    """Find at most ``most`` of the ``whole_words`` that speak for the wanted tickets against the
    others. Return their places in two lists, or in one, the surest word first."""
    places = [place for place, term in enumerate(tally.terms) if term.word in whole_words]
    count, all_wanted = tally.tickets, tally.wanted
    held, right = tally.held[places], tally.right[places]
    share, wrong = held / count, held - right
    surplus = right - all_wanted * share
    errors = surplus / np.sqrt(
        np.maximum(1e-9, all_wanted * (1 - all_wanted / count) * share * (1 - share))
    )
    odds = np.log((right + SMOOTHED) / (all_wanted + 1)) - np.log(
        (wrong + SMOOTHED) / (count - all_wanted + 1)
    )
    order = np.argsort(-errors.round(6), kind="stable")[:most]
    surest = [place for place in order.tolist() if errors[place] > CLEAR]
    ranked = sorted(surest, key=lambda place: -round(float(odds[place]), 6))
    cut = _find_cut(odds[ranked])
    return [
        [places[place] for place in surest if place in some]
        for some in (set(ranked[:cut]), set(ranked[cut:]))
        if len(some) >= FEWEST_WORDS
    ]


# Inside -------------------------------------------------------------------------------------------


def _find_cut(falling: Numbers) -> int:
    """Return where to cut the numbers so that each part differs least in itself; the end where
    there are too few for two parts."""
    sizes = range(FEWEST_WORDS, len(falling) - FEWEST_WORDS + 1)
    if not sizes:
        return len(falling)
    return min(
        sizes, key=lambda size: (round(_differ(falling[:size]) + _differ(falling[size:]), 9), size)
    )


def _differ(numbers: Numbers) -> float:
    """Return the sum of squares around the mean."""
    return float(((numbers - numbers.mean()) ** 2).sum())
