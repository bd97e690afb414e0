"""The gate: an edit is accepted only if it does better than the present guidance on a fixed pool of train tickets.

Edited and present guidance judge the same tickets; what counts are the tickets won (wrong before, right after) and lost.
The rule is a one-sided exact sign test over these (McNemar 1947 in its exact form): under "the edit changes nothing for
better or worse", wins among wins plus losses are Binomial(1/2).

Several edits are raced, since most are hopeless and tickets are what costs: they see the pool chunk by chunk, every chunk
half of tickets judged wrong so far and half of tickets judged right, and after each chunk the less promising half goes. Only
contenders that saw the whole pool can be accepted, and nothing here looks at how a chunk came out to decide what the test
sees; that the winner is the best of several is not corrected for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb

LOSS_PRICE = 3.0  # of a ticket lost, in tickets won, when contenders are ranked; the test itself counts both alike

Judge = Callable[[Sequence[tuple[int, Sequence[int]]]], Sequence[Sequence[bool]]]


@dataclass(frozen=True, slots=True)
class Tally:
    """How one edit has done so far."""

    wrong_seen: int = 0  # tickets that the present guidance judges wrong
    right_seen: int = 0  # tickets that it judges right
    wins: int = 0  # of wrong_seen, judged right by the edit
    losses: int = 0  # of right_seen, judged wrong by the edit

    def plus(self, before: Sequence[bool], after: Sequence[bool]) -> Tally:
        """The tally with further tickets: whether the present guidance, and the edit, judged each of them right."""
        pairs = list(zip(before, after, strict=True))
        return Tally(
            self.wrong_seen + sum(not old for old, _ in pairs),
            self.right_seen + sum(old for old, _ in pairs),
            self.wins + sum(new and not old for old, new in pairs),
            self.losses + sum(old and not new for old, new in pairs),
        )

    def expected(self, wrong: int, right: int, price: float = 1.0) -> float:
        """Wins, less ``price`` for each loss, of a pool of ``wrong`` and ``right`` tickets at the rates so far."""
        won = wrong * self.wins / self.wrong_seen if self.wrong_seen else 0.0
        lost = right * self.losses / self.right_seen if self.right_seen else 0.0
        return won - price * lost


def accepts(tally: Tally, alpha: float) -> bool:
    """The rule: whether wins over losses are too many for chance at level ``alpha``."""
    return sign_test(tally.wins, tally.losses) <= alpha


def sign_test(wins: int, losses: int) -> float:
    """P(at least ``wins`` of ``wins + losses`` fair coins): the one-sided exact p-value; 1 where nothing changed."""
    n = wins + losses
    return float(sum(comb(n, k) for k in range(wins, n + 1)) / 2**n)


def chunks(right_before: Sequence[bool], size: int) -> list[list[int]]:
    """Positions of the pool in chunks of ``size``: half judged wrong so far, half right, while there are both."""
    wrong = [i for i, right in enumerate(right_before) if not right]
    right = [i for i, right in enumerate(right_before) if right]
    cut = []
    while wrong or right:
        half = max(size // 2, size - len(right)) if len(wrong) > size // 2 else len(wrong)
        taken = wrong[:half] + right[: size - half]
        wrong, right = wrong[half:], right[size - half :]
        cut.append(sorted(taken))
    return cut


def survivors(tallies: Sequence[Tally], wrong: int, right: int, alpha: float) -> list[int]:
    """Which contenders go on after a chunk, best first: of those that expect a gain and can still pass, the better half.

    Better counts a loss ``LOSS_PRICE`` times: a rule that spoils nothing leaves its place for the next one, while what a
    broad rule spoils has to be mended by further edits. The one of most gain goes on in any case, so that a broad rule is
    still had where no careful one passes; two do as long as two can. Ties keep the order given.
    """
    hopeful = [
        i
        for i, tally in enumerate(tallies)
        if tally.expected(wrong, right) > 0 and sign_test(tally.wins + wrong - tally.wrong_seen, tally.losses) <= alpha
    ]
    ranked = sorted(hopeful, key=lambda i: -tallies[i].expected(wrong, right, price=LOSS_PRICE))
    kept = ranked[: max(2, -(-len(tallies) // 2))]
    leader = max(ranked, key=lambda i: tallies[i].expected(wrong, right), default=None)
    return kept if leader is None or leader in kept else [*kept[:-1], leader]


@dataclass(frozen=True, slots=True)
class Race:
    """How a bundle's contenders fared."""

    tallies: tuple[Tally, ...]  # one per contender, of the tickets that it saw
    winner: int | None  # the contender to accept, if any
    right_after: tuple[bool, ...]  # the pool under the winner; empty where there is none
    judged: int  # verdicts that it cost


def race(right_before: Sequence[bool], contenders: int, judge: Judge, alpha: float, chunk: int) -> Race:
    """Race ``contenders`` edits over a pool that the present guidance judges as ``right_before`` says.

    ``judge`` gets (contender, positions in the pool) pairs and says for each position whether the edit judges it right.
    """
    wrong, right = right_before.count(False), right_before.count(True)
    tallies = [Tally() for _ in range(contenders)]
    after: list[dict[int, bool]] = [{} for _ in range(contenders)]
    running = list(range(contenders))
    for positions in chunks(right_before, chunk):
        for contender, judged in zip(running, judge([(one, positions) for one in running]), strict=True):
            tallies[contender] = tallies[contender].plus([right_before[i] for i in positions], judged)
            after[contender].update(zip(positions, judged, strict=True))
        running = [running[i] for i in survivors([tallies[one] for one in running], wrong, right, alpha)]
        if not running:
            break
    finished = [one for one in running if accepts(tallies[one], alpha)]
    winner = finished[0] if finished else None
    right_after = () if winner is None else tuple(after[winner][i] for i in range(len(right_before)))
    return Race(tuple(tallies), winner, right_after, sum(map(len, after)))
