"""The race: finds which of a bundle's edits is worth a test. Shared tickets, losers dropped early.

Most proposed edits are hopeless, and judging tickets is what costs. So the edits see the same
tickets chunk by chunk, and after each chunk the less promising half goes. Half of every chunk are
tickets that the present guidance judges wrong, half are tickets that it judges right, most of the
latter with another label: where faults pass, a new rule against them threatens the tickets that
pass rightly, and those that fail already say nothing. What an edit did on tickets of one kind is
weighed by how many of them there are.

Reflection saw none of these tickets: words that only its cases hold look good there and nowhere
else. Even so a race proves nothing, since its winner is the best of several; the test
(``decide.py``) looks at other tickets again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stageb.guidance.judging.questions import Dialogue
from stageb.guidance.words.types import Verdict

LAPS = 6  # chunks in a race, at most
FEWEST_EDITS = 4  # edits that go on after each chunk, if so many expect a gain
LUCK = 0.5  # of a ticket, deducted from an edit's wins: the best in a race were partly lucky
LOSS_PRICE = 3.0  # how many tickets won a ticket lost outweighs, when edits are ranked
# the least share of either label among the tickets of a chunk that are judged right
LEAST_SHARE = 0.25

TicketKind = tuple[Verdict, bool]
"""A ticket's label, and whether the present guidance judges it right."""


class EditGains(NamedTuple):
    """The gains of one edit on some tickets."""

    gains: Sequence[float]  # one for each ticket
    # whether rules as code judged all of them, so that further ones are likely to cost nothing
    free: bool = False


AskGains = Callable[[Sequence[tuple[int, Sequence[int]]]], Dialogue[Sequence[EditGains]]]
"""Takes pairs of an edit's number and positions; returns what each edit gains there."""


@dataclass(frozen=True, slots=True)
class KindScore:
    """The sums of what one edit won and lost on tickets of one kind, once it has seen any."""

    seen: int = 0
    won: float = 0.0
    lost: float = 0.0

    def plus(self, gains: Sequence[float]) -> KindScore:
        """Return the sums with further tickets."""
        won, lost = (
            sum(gain for gain in gains if gain > 0),
            -sum(gain for gain in gains if gain < 0),
        )
        return KindScore(self.seen + len(gains), self.won + won, self.lost + lost)

    def expected(self, tickets: int, price: float) -> float:
        """Return what is expected on ``tickets`` tickets of this kind at the rates so far: won,
        less ``price`` times lost."""
        return tickets * (self.won - price * self.lost) / self.seen


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one edit so far."""

    by_kind: Mapping[TicketKind, KindScore] = field(default_factory=dict)

    def plus(self, kinds: Sequence[TicketKind], gains: Sequence[float]) -> Score:
        """Return the score with further tickets."""
        new: dict[TicketKind, list[float]] = {}
        for kind, gain in zip(kinds, gains, strict=True):
            new.setdefault(kind, []).append(gain)
        return Score(
            {
                **self.by_kind,
                **{
                    kind: self.by_kind.get(kind, KindScore()).plus(seen)
                    for kind, seen in new.items()
                },
            }
        )

    def expected(self, pool: Mapping[TicketKind, int], price: float = 1.0) -> float:
        """Return what is expected on a pool with so many tickets of each kind at the rates so far:
        won, less ``price`` times lost."""
        return sum(each.expected(pool[kind], price) for kind, each in self.by_kind.items())

    def one_more(self, pool: Mapping[TicketKind, int]) -> float:
        """Return how much more would be expected on such a pool if one more of the tickets judged
        wrong had been won."""
        return max(
            (pool[kind] / each.seen for kind, each in self.by_kind.items() if not kind[1]),
            default=0.0,
        )

    def rates(self, pool: Mapping[TicketKind, int]) -> tuple[float, float]:
        """Return what is won and lost per ticket of such a pool at the rates so far, with ``LUCK``
        taken off the wins."""
        kinds = [
            (each, pool[kind] / each.seen / sum(pool.values()))
            for kind, each in self.by_kind.items()
        ]
        won = sum(share * max(0.0, each.won - LUCK) for each, share in kinds)
        return won, sum(share * each.lost for each, share in kinds)

    @property
    def won(self) -> float:
        """The sum of all wins."""
        return sum(each.won for each in self.by_kind.values())

    @property
    def lost(self) -> float:
        """The sum of all losses."""
        return sum(each.lost for each in self.by_kind.values())

    @property
    def seen(self) -> int:
        """The number of tickets seen."""
        return sum(each.seen for each in self.by_kind.values())


@dataclass(frozen=True, slots=True)
class Race:
    """The result of a race."""

    scores: tuple[Score, ...]  # one per edit
    ranked: tuple[int, ...]  # edits that saw all tickets and expect a gain, the most careful first
    leader: int | None  # the one of these with the largest gain
    positions: tuple[int, ...]  # of all these tickets


def cut_chunks(kinds: Sequence[TicketKind], size: int) -> list[list[int]]:
    """Cut positions into chunks of ``size``: half judged wrong, half right, while there are both.

    Among those judged right, a label has the share that the other labels have among those judged
    wrong, but at least ``LEAST_SHARE`` if there are two labels.
    """
    labels = sorted({label for label, _ in kinds}, reverse=True)
    count = Counter(label for label, is_right in kinds if not is_right)
    shares = _share_right([count[label] for label in labels]) if labels else []
    wrong = [place for place, (_, is_right) in enumerate(kinds) if not is_right]
    right = [
        [place for place, kind in enumerate(kinds) if kind == (label, True)] for label in labels
    ]
    cut = []
    while wrong or any(right):
        rest = sum(map(len, right))
        half = min(len(wrong), max(size // 2, size - rest))
        chunk, wrong = wrong[:half], wrong[half:]
        whole = room = min(size - half, rest)
        for place, share in enumerate(shares):
            rest -= len(right[place])
            taken = min(len(right[place]), max(min(round(share * whole), room), room - rest))
            chunk, right[place], room = (
                chunk + right[place][:taken],
                right[place][taken:],
                room - taken,
            )
        cut.append(sorted(chunk))
    return cut


def _share_right(wrong: Sequence[int]) -> list[float]:
    """Return the shares of labels among tickets judged right, by how many of each are judged
    wrong."""
    weights = [sum(wrong) - count for count in wrong]
    weights = weights if any(weights) else [1] * len(wrong)
    least = LEAST_SHARE * 2 / len(wrong)
    are_few = [weight < least * sum(weights) for weight in weights]
    left = 1 - least * sum(are_few)
    total = sum(weight for weight, is_few in zip(weights, are_few, strict=True) if not is_few)
    return [
        least if is_few else left * (weight / total)
        for weight, is_few in zip(weights, are_few, strict=True)
    ]


def select_survivors(
    scores: Sequence[Score], pool: Mapping[TicketKind, int], early: bool = False
) -> list[int]:
    """Return the edits that go on after a chunk, best first: the better half, but at least
    ``FEWEST_EDITS``, of those that expect a gain. If ``early``, free places go to edits that would
    expect one with one more ticket won.

    "Better" counts a loss ``LOSS_PRICE`` times: a rule that spoils nothing leaves its place for the
    next one, while what a broad rule spoils has to be mended by further edits. The edit with the
    largest gain goes on in any case, so that there is a broad rule where no careful one passes.
    Ties keep the order given.
    """
    ranked = sorted(range(len(scores)), key=lambda i: -scores[i].expected(pool, LOSS_PRICE))
    hopeful = [i for i in ranked if scores[i].expected(pool) > 0]
    kept = hopeful[: max(FEWEST_EDITS, -(-len(scores) // 2))]
    leader = max(hopeful, key=lambda i: scores[i].expected(pool), default=None)
    if leader is not None and leader not in kept:
        kept[-1] = leader
    unlucky = [
        i
        for i in ranked
        if scores[i].expected(pool) <= 0 < scores[i].expected(pool) + scores[i].one_more(pool)
    ]
    return [*kept, *unlucky[: max(0, FEWEST_EDITS - len(kept))]] if early else kept


def race(kinds: Sequence[TicketKind], edits: int, gains: AskGains, chunk: int) -> Dialogue[Race]:
    """Race so many ``edits`` over tickets of these ``kinds``, ``chunk`` of them between two cuts.

    Edits that cost nothing to judge stay to the end, whatever the cuts say; if only these are left,
    they go on to the last ticket.
    """
    pool = Counter(kinds)
    scores = [Score() for _ in range(edits)]
    laps = cut_chunks(kinds, chunk)
    running = list(range(edits))
    free = [True] * edits
    ranked: list[int] = []
    seen: list[int] = []
    for lap, further in enumerate(laps):
        if not running or (lap >= LAPS and not all(free[one] for one in running)):
            break
        gained = yield from gains([(one, further) for one in running])
        for one, new in zip(running, gained, strict=True):
            scores[one] = scores[one].plus([kinds[i] for i in further], new.gains)
            free[one] &= new.free
        # a rule that mends one in six wrong tickets often mends none of the first 8
        early = lap == 0 and len(laps) > 1
        ranked = [
            running[i] for i in select_survivors([scores[one] for one in running], pool, early)
        ]
        running = [*ranked, *(one for one in running if one not in ranked and free[one])]
        seen += further
    leader = max(ranked, key=lambda one: scores[one].expected(pool), default=None)
    return Race(tuple(scores), tuple(ranked), leader, tuple(seen))
