"""Counts what sets the errors of one kind apart, over all tickets that a reflection may see.

A model that looks at two dozen cases cannot tell what is frequent from what is there by chance, and
no model counts well. So the counting is done here: for every condition that tickets suggest
(``conditions/``), and every two or three of them together, in how many of the wrong tickets it
holds, and in how many of the rightly judged ones that must not break.

The measure is the one by which a rule stands or falls: of the tickets that it speaks of, is the
share of wrong ones larger than ``PURE`` (at unequal prices, than what makes a rule worth its
price), and larger than it would be by chance? With ``a`` wrong among ``n`` tickets, n * KL(a / n ||
share) is the exponent of Chernoff's bound on the chance of so many (Hoeffding 1963, theorem 1): an
exact test in all but its last digit. As the best of many is taken, a condition costs the log of how
many of its kind there are (Bonferroni), one of the rarer kinds a little more (``ODDS``); one that
people's reasons name costs the log of how many these name. So conditions are joined only where
together they tell more than each, and more than they could by luck.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import reduce
from itertools import combinations, islice
from math import inf, lgamma, log
from operator import and_, or_

from stageb.guidance.rules.candidates import PLAIN, SearchSpace, find_conditions, reading
from stageb.guidance.rules.conditions import Expression
from stageb.guidance.rules.conditions.base import Family
from stageb.guidance.rules.value_types import find_words, split_words
from stageb.guidance.words.types import Ticket
from stageb.untrusted.clean_text import fold_text

PURE = 0.5  # share of wrong tickets above which a rule is worth having
SINGLES = 64  # conditions that are joined
ALIKE_SINGLES = 12  # computed conditions that are joined: many of them say much the same
BEAM = 24  # pairs that are joined with a third condition
ODDS: Mapping[Family, float] = {
    "plain": 1.0,
    "joined": 1 / 8,
    "limit": 1 / 2,
    "compared": 1 / 8,
    "computed": 1 / 8,
}
"""How often rules are about each family of conditions, relative to plain ones."""
# the log of the number of orders that so many conditions can have
LOG_WAYS = tuple(lgamma(count + 1) for count in range(4))
FEWEST_WRONG = 2  # wrong tickets that a clue must hold for, at least
SAME = 0.8  # share of common tickets above which one of two clues is enough


@dataclass(frozen=True, slots=True)
class Clue:
    """Conditions that hold together, and for how many tickets."""

    conditions: tuple[Expression, ...]  # the most telling first
    wrong: int  # number of wrong tickets for which they hold
    right: int  # number of rightly judged ones


@dataclass(frozen=True, slots=True)
class Evidence:
    """The counts of one kind of error."""

    wrong: int  # number of wrong tickets in all
    right: int  # number of rightly judged ones in all, of other labels
    clues: tuple[Clue, ...]  # the most telling first


NOTHING = Evidence(0, 0, ())

_Joined = tuple[Expression, ...]


def find_evidence(
    wrong: Sequence[Ticket],
    right: Sequence[Ticket],
    most: int,
    pure: float = PURE,
    space: SearchSpace = PLAIN,
) -> Evidence:
    """Find the ``most`` telling clues that set ``wrong`` tickets apart from ``right`` ones; fewer
    where fewer tell anything: among the tickets for which a clue holds, the share of wrong ones is
    above ``pure``."""
    if not most or not wrong:
        return NOTHING
    sides = _Sides(len(wrong), len(right), pure)
    tickets = (*wrong, *right)
    masks = find_conditions([reading(ticket) for ticket in tickets], space, len(wrong))
    found = _search(masks, sides, find_named(masks, [ticket.reason for ticket in tickets]))
    clues: list[Clue] = []
    seen: list[tuple[int, bool]] = []
    for joined, mask in _rank(found, sides):
        plain = _is_plain(joined)
        # A clue that compares two names hides no plain one: not every model can follow it.
        before = [other for other, simple in seen if simple or not plain]
        if len(clues) < most and not any(
            _alike(mask, other) > SAME or sides.covers(other, mask) for other in before
        ):
            seen.append((mask, plain))
            clues.append(Clue(joined, *sides.counts(mask)))
    return Evidence(len(wrong), len(right), tuple(clues))


def find_named(masks: Mapping[Expression, int], reasons: Sequence[str]) -> frozenset[Expression]:
    """Find the conditions that people's reasons name: by all words of their value or of their
    field's name, with any ending, and comparisons by both names. The reasons of at least
    ``FEWEST_WRONG`` of the tickets for which a condition holds must name it."""
    said: dict[str, int] = {}
    for place, reason in enumerate(reasons):
        for word in find_words(fold_text(reason)):
            said[word] = said.get(word, 0) | 1 << place

    def named_for(text: str) -> int:
        words = [forms for forms in split_words(text) if len(forms[0] if forms else "") > 1]
        words = words or [(word,) for word in find_words(text)]  # of a script without spaces
        return (
            reduce(and_, (reduce(or_, (said.get(form, 0) for form in forms)) for forms in words))
            if words
            else 0
        )

    def count(condition: Expression, mask: int) -> int:
        name, value = map(named_for, condition.key[1:3])
        return (
            mask & (name & value if condition.family == "compared" else name | value)
        ).bit_count()

    return frozenset(
        each for each, mask in (masks.items() if said else ()) if count(each, mask) >= FEWEST_WRONG
    )


def _rank(found: Mapping[_Joined, tuple[int, float]], sides: _Sides) -> list[tuple[_Joined, int]]:
    """List the clues that tell something, with their masks, the most telling first. A comparison of
    two names stands behind clues on one name at a time that have the same counts, however few
    comparisons there are to choose from."""
    plain: dict[tuple[int, int], float] = {}
    for joined, (mask, tells) in found.items():
        if _is_plain(joined):
            counts = sides.counts(mask)
            plain[counts] = max(plain.get(counts, -inf), tells)

    def rank(item: tuple[_Joined, tuple[int, float]]) -> tuple[float, bool, str]:
        joined, (mask, tells) = item
        if _is_plain(joined):
            return -tells, False, _written(joined)
        return -min(tells, plain.get(sides.counts(mask), inf)), True, _written(joined)

    return [(joined, mask) for joined, (mask, _) in sorted(found.items(), key=rank)]


def _is_plain(joined: _Joined) -> bool:
    """Whether no condition compares two names."""
    return not any(condition.is_compared for condition in joined)


class _Sides:
    """Measures how much a mask tells; the first bits are the wrong tickets."""

    def __init__(self, wrong: int, right: int, pure: float) -> None:
        self._wrong = (1 << wrong) - 1
        self._share = max(pure, wrong / (wrong + right)) if right else pure
        # the weight of a right ticket relative to a wrong one, so that both sides weigh the same
        self.ratio = wrong / right if right else 0.0

    def counts(self, mask: int) -> tuple[int, int]:
        """Count the wrong and the right tickets in a mask."""
        a = (mask & self._wrong).bit_count()
        return a, mask.bit_count() - a

    def covers(self, mask: int, other: int) -> bool:
        """Whether a mask holds all wrong tickets of the other, and no more right ones."""
        return not other & self._wrong & ~mask and self.counts(mask)[1] <= self.counts(other)[1]

    def tells(self, mask: int) -> float:
        """Return Chernoff's exponent; minus infinity for a mask that tells nothing."""
        a, c = self.counts(mask)
        n, q = a + c, self._share
        if a < FEWEST_WRONG or a <= q * n:
            return -inf
        return a * log(a / (n * q)) + (c * log(c / (n * (1 - q))) if c else 0.0)


def _search(
    masks: Mapping[Expression, int], sides: _Sides, named: Set[Expression]
) -> dict[_Joined, tuple[int, float]]:
    """Find single conditions, pairs and triples that tell something, each more than its parts:
    their masks, and how much they tell."""
    families = Counter(condition.family for condition in masks)
    of_family = {family: log(count / ODDS[family]) for family, count in families.items()}
    cost = {
        each: min(of_family[each.family], log(len(named)) if each in named else inf)
        for each in masks
    }
    held = {
        condition: mask
        for condition, mask in masks.items()
        if sides.counts(mask)[0] >= FEWEST_WRONG
    }
    found: dict[_Joined, tuple[int, float]] = {}

    def tell(joined: _Joined, mask: int) -> None:
        tells = sides.tells(mask)
        if tells == -inf or _repeats(joined):
            return
        tells += LOG_WAYS[len(joined)] - sum(cost[condition] for condition in joined)
        parts = [part for size in range(1, len(joined)) for part in combinations(joined, size)]
        if tells > max((found[part][1] for part in parts if part in found), default=-inf):
            found[joined] = mask, tells

    ordered = sorted(held, key=lambda c: (-_lift(held[c], sides), c.key))
    for condition in ordered:
        tell((condition,), held[condition])
    plain = [condition for condition in ordered if condition.family != "computed"]
    alike = list(
        islice(
            (condition for condition in ordered if condition.family == "computed"), ALIKE_SINGLES
        )
    )
    singles, partners = plain[:SINGLES] + alike, plain + alike
    # where errors have several causes, the other part may promise nothing by itself
    for one in singles:
        for other in partners[partners.index(one) + 1 :]:
            tell((one, other), held[one] & held[other])
    pairs = [joined for joined in found if len(joined) == 2]
    place = {condition: spot for spot, condition in enumerate(ordered)}
    for pair in sorted(pairs, key=lambda pair: -found[pair][1])[:BEAM]:
        for third in singles:
            joined = tuple(sorted({*pair, third}, key=lambda condition: place[condition]))
            if len(joined) == 3 and joined not in found:
                tell(joined, found[pair][0] & held[third])
    return found


def _repeats(joined: _Joined) -> bool:
    """Whether two of the conditions say which values one name may have: a single one says what both
    do."""
    named = [each.needed for each in joined if each.needed and each.family in ("plain", "joined")]
    return len({*named}) < len(named)


def _lift(mask: int, sides: _Sides) -> float:
    """Return how promising a condition is as a part: the wrong tickets that it holds for beyond its
    share of the right ones."""
    a, c = sides.counts(mask)
    return a - c * sides.ratio


def _alike(one: int, other: int) -> float:
    """Return the share of tickets that two masks have in common (Jaccard index)."""
    return (one & other).bit_count() / (one | other).bit_count()


def _written(joined: _Joined) -> str:
    """Settle ties: the longer text first, which hides less."""
    text = " ".join(" ".join(condition.key) for condition in joined)
    return f"{1_000_000 - len(text)} {text}"
