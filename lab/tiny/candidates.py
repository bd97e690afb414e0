"""Which conditions a stage suggests: what the evidence says, and a search over the cases on
show."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from lab.tiny.pool import bits
from lab.tiny.rules import Condition, Facts, Kind, quantity, stems
from lab.tiny.stage import Stage

SINGLES, PAIRS, SHORTLIST = 40, 12, 14  # how many candidates each step of the search keeps
MOST_WORDS, MOST_JOINED = 8, 5  # in one rule, and clues that become one condition
MOST_COMPARED = 8  # attributes that are compared with each other


def candidates(stage: Stage) -> list[tuple[Condition, ...]]:
    """Conditions, alone and joined by "and", that hold for wrong cases rather than right ones:
    those of the evidence, those that widen them, and the best few that the cases speak for by
    themselves."""
    best = [*stage.clues, *_joined_clues(stage)]
    return list(
        dict.fromkeys((*best, *(_ordered(stage, conditions) for conditions in _of_cases(stage))))
    )


def _joined_clues(stage: Stage) -> list[tuple[Condition, ...]]:
    """Clues of one condition that differ in their value alone, as one."""
    found: list[tuple[Condition, ...]] = []
    alone = [
        clue[0] for clue in stage.clues if len(clue) == 1 and clue[0].kind in ("is", "mentions")
    ]
    for one in dict.fromkeys((clue.kind, clue.attribute) for clue in alone):
        values = tuple(clue.values[0] for clue in alone if (clue.kind, clue.attribute) == one)
        kind: Kind = "mentions" if one[0] == "mentions" else "in"
        most = MOST_JOINED if kind == "mentions" else len(stage.pool.values(one[1])) - 1
        found += [
            (Condition(kind, one[1], values[:size]),)
            for size in range(2, min(len(values), most, MOST_JOINED) + 1)
        ]
    return found


def _of_cases(stage: Stage) -> list[tuple[Condition, ...]]:
    """The best few conditions and conjunctions, by the cases on show: a beam search."""
    meet, worth = stage.pool.meet, stage.worth
    equal, sets = _singles(stage)
    equal = sorted(equal, key=lambda c: -stage.lift(meet(c)))[:SINGLES]
    known: dict[tuple[Condition, ...], float] = {(c,): worth(meet(c)) for c in equal}
    known |= {(c,): worth(meet(c)) - 0.3 * len(c.values) for c in sets}
    pairs: dict[tuple[Condition, ...], float] = {}
    parts: dict[tuple[Condition, ...], float] = {}
    best_sets = sorted(sets, key=lambda c: -known[c,])[:PAIRS]
    for spot, one in enumerate(equal):
        mask = meet(one)
        for other in (*equal[spot + 1 :], *best_sets):
            if other.attribute != one.attribute or not other.attribute:
                both = mask & meet(other)
                if both & stage.wrong:
                    pairs[one, other] = worth(both) - 0.5 - 0.3 * (len(other.values) - 1)
                    if both & stage.right:
                        parts[one, other] = stage.lift(both)
    triples: dict[tuple[Condition, ...], float] = {}
    for pair in sorted(parts, key=lambda p: -parts[p])[
        : 2 * PAIRS if stage.pool.world.alike else PAIRS
    ]:
        mask, taken = meet(pair[0]) & meet(pair[1]), {a for c in pair for a in c.attributes}
        for third in equal:
            if third.attribute not in taken:
                triples[*pair, third] = worth(mask & meet(third)) - 1.0
    known |= pairs | triples
    return sorted((c for c in known if known[c] > 0), key=lambda c: -known[c])[:SHORTLIST]


def _ordered(stage: Stage, conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
    """Order conditions: first those of the evidence, in its order, then by how much each tells by
    itself."""
    said = max((clue for clue in stage.clues if set(clue) <= set(conditions)), key=len, default=())
    rest = sorted(
        (c for c in conditions if c not in said),
        key=lambda c: (-stage.worth(stage.pool.meet(c)), c.attribute, c.values),
    )
    return (*said, *rest)


def _singles(stage: Stage) -> tuple[list[Condition], list[Condition]]:
    """Conditions of one value that hold for a wrong case, and all others: sets, denials,
    comparisons, several words."""
    world, meet = stage.pool.world, stage.pool.meet
    wrong = [stage.pool.facts[position] for position in stage.shown if stage.wrong >> position & 1]
    have = dict.fromkeys(
        pair for each in wrong for pair in each.values.items() if pair[0] in world.values
    )
    equal = [Condition("is", attribute, (value,)) for attribute, value in have]
    sets: list[Condition] = []
    for attribute in dict.fromkeys(attribute for attribute, _ in have):
        shown = [value for a, value in have if a == attribute]
        shown.sort(key=lambda value: -stage.worth(meet(Condition("is", attribute, (value,)))))
        sets += [
            Condition("in", attribute, tuple(shown[:size]))
            for size in (2, 3)
            if size <= len(shown) and size < len(world.values[attribute])
        ]
        if len(world.values[attribute]) > 3:
            sets += [
                Condition("not", attribute, (value,))
                for value in world.values[attribute]
                if meet(Condition("is", attribute, (value,))) & stage.right
            ]
    for attribute in (*world.numbers, *(a for a in world.values if _digits(world.values[a]))):
        limits = {
            f.values[attribute]
            for p in stage.shown
            if attribute in (f := stage.pool.facts[p]).values
        }
        compared = [
            Condition(kind, attribute, (limit,))
            for limit in sorted(limits, key=quantity)
            for kind in _SIDES
        ]
        sets += sorted(compared, key=lambda c: -stage.worth(meet(c)))[
            : 4 if attribute in world.numbers else 1
        ]
    sets += _compared(stage)
    said = words_said(stage, wrong)
    equal += said[:SINGLES]
    return equal, [*sets, *_joined(stage, said)]


_SIDES: tuple[Kind, ...] = ("above", "below")
_SAME: tuple[Kind, ...] = ("equals", "differs")
_SIDE_BY_SIDE: tuple[Kind, ...] = ("over", "under", "equals", "differs")


def _digits(values: tuple[str, ...]) -> bool:
    return len(values) > 2 and all(value.isdigit() for value in values)


def _compared(stage: Stage) -> list[Condition]:
    """The best comparisons of two attributes, where these are not too many."""
    world = stage.pool.world
    if len(world.layout) > MOST_COMPARED:
        return []
    found = [
        Condition(kind, one, (other,))
        for one, other in combinations(world.layout, 2)
        if world.comparable(one, other)
        for kind in (_SIDE_BY_SIDE if one in world.numbers else _SAME)
    ]
    return sorted(found, key=lambda c: -stage.worth(stage.pool.meet(c)))[:4]


def words_said(stage: Stage, wrong: Sequence[Facts]) -> list[Condition]:
    """A condition for every word of the wrong cases, and for their stems where these find more."""
    said: dict[Condition, float] = {}
    for each in wrong:
        for word in each.notes:
            if len(word) > 1 and not any(mark in word for mark in "<>#/"):
                condition = Condition("mentions", "", (word,))
                said[condition] = stage.worth(stage.pool.meet(condition))
                for stem in stems(word):
                    shorter = Condition("mentions", "", (stem,))
                    if (stage.pool.meet(shorter) & ~stage.pool.meet(condition)) & bits(stage.shown):
                        said[shorter] = stage.worth(stage.pool.meet(shorter))
    return sorted(said, key=lambda condition: -said[condition])


def _joined(stage: Stage, said: Sequence[Condition]) -> list[Condition]:
    """The best few words in one condition, taken greedily by the wrong cases that each adds."""
    joined: tuple[str, ...] = ()
    covered, found = 0, []
    for _ in range(4):
        gains = (
            (stage.worth(stage.pool.meet(word) & ~covered), word) for word in said[: 2 * SINGLES]
        )
        gain, word = max(gains, key=lambda pair: pair[0], default=(0.0, None))
        if word is None or gain < 1:
            break
        joined, covered = (*joined, *word.values), covered | stage.pool.meet(word)
        if len(joined) > 1:
            found.append(Condition("mentions", "", joined))
    return found
