"""The race: which of a bundle's edits is worth a test. Shared tickets, losers dropped early.

Most proposed edits are hopeless, and judging tickets is what costs. So the contenders see the same tickets chunk by chunk,
every chunk half of tickets that the present guidance judges wrong and half of tickets that it judges right, and after each
chunk the less promising half goes. What they did on either half is weighed by how many tickets of it there are.

The tickets are none that reflection saw: words that only its cases hold look good there and nowhere else. Even so a race
proves nothing, since its winner is the best of several; the test (``gate.py``) looks at other tickets again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

CHUNK = 16  # tickets between two cuts
LAPS = 6  # chunks at most
FEWEST = 4  # contenders that see all tickets, where so many expect a gain
LUCK = 0.5  # tickets won in a race that its best are not believed
LOSS_PRICE = 3.0  # of a ticket lost, in tickets won, when contenders are ranked

Gains = Callable[[Sequence[tuple[int, Sequence[int]]]], Sequence[Sequence[float]]]
"""(contender, positions) pairs in; for each position the contender's gain."""


@dataclass(frozen=True, slots=True)
class Stratum:
    """What one contender won and lost on tickets of one kind."""

    seen: int = 0
    won: float = 0.0
    lost: float = 0.0

    def plus(self, gains: Sequence[float]) -> Stratum:
        """The sums with further tickets."""
        won, lost = sum(gain for gain in gains if gain > 0), -sum(gain for gain in gains if gain < 0)
        return Stratum(self.seen + len(gains), self.won + won, self.lost + lost)

    def expected(self, tickets: int, price: float) -> float:
        """Won, less ``price`` times lost, of ``tickets`` tickets of this kind at the rates so far."""
        return tickets * (self.won - price * self.lost) / self.seen if self.seen else 0.0


@dataclass(frozen=True, slots=True)
class Form:
    """How one contender has done so far."""

    wrong: Stratum = field(default_factory=Stratum)  # on tickets that the present guidance judges wrong
    right: Stratum = field(default_factory=Stratum)  # on those that it judges right

    def plus(self, was_right: Sequence[bool], gains: Sequence[float]) -> Form:
        """The form with further tickets."""
        pairs = list(zip(was_right, gains, strict=True))
        return Form(
            self.wrong.plus([gain for right, gain in pairs if not right]),
            self.right.plus([gain for right, gain in pairs if right]),
        )

    def expected(self, wrong: int, right: int, price: float = 1.0) -> float:
        """Won, less ``price`` times lost, of a pool of ``wrong`` and ``right`` tickets at the rates so far."""
        return self.wrong.expected(wrong, price) + self.right.expected(right, price)

    def rates(self, wrong: int, right: int) -> tuple[float, float]:
        """Won and lost per ticket of such a pool, at the rates so far but for ``LUCK``."""
        kinds = ((self.wrong, wrong), (self.right, right))
        won = sum(tickets * max(0.0, kind.won - LUCK) / kind.seen for kind, tickets in kinds if kind.seen)
        lost = sum(tickets * kind.lost / kind.seen for kind, tickets in kinds if kind.seen)
        return won / (wrong + right), lost / (wrong + right)

    @property
    def seen(self) -> int:
        """Tickets seen."""
        return self.wrong.seen + self.right.seen

    @property
    def mean(self) -> float:
        """The mean gain; 0 before the first ticket."""
        gained = self.wrong.won + self.right.won - self.wrong.lost - self.right.lost
        return gained / self.seen if self.seen else 0.0


@dataclass(frozen=True, slots=True)
class Race:
    """How the contenders fared."""

    forms: tuple[Form, ...]  # one per contender
    ranked: tuple[int, ...]  # those that saw all tickets and expect a gain, the most careful first
    leader: int | None  # of these, the one of most gain
    positions: tuple[int, ...]  # of those tickets


def chunks(was_right: Sequence[bool], size: int) -> list[list[int]]:
    """Positions in chunks of ``size``: half judged wrong so far, half right, while there are both."""
    wrong = [i for i, right in enumerate(was_right) if not right]
    right = [i for i, right in enumerate(was_right) if right]
    cut = []
    while wrong or right:
        half = max(size // 2, size - len(right)) if len(wrong) > size // 2 else len(wrong)
        taken = wrong[:half] + right[: size - half]
        wrong, right = wrong[half:], right[size - half :]
        cut.append(sorted(taken))
    return cut


def survivors(forms: Sequence[Form], wrong: int, right: int) -> list[int]:
    """Which contenders go on after a chunk, best first: of those that expect a gain, the better half, but
    ``FEWEST`` as long as there are so many.

    Better counts a loss ``LOSS_PRICE`` times: a rule that spoils nothing leaves its place for the next one, while what a
    broad rule spoils has to be mended by further edits. The one of most gain goes on in any case, so that a broad rule is
    still had where no careful one passes. Ties keep the order given.
    """
    hopeful = [i for i, form in enumerate(forms) if form.expected(wrong, right) > 0]
    ranked = sorted(hopeful, key=lambda i: -forms[i].expected(wrong, right, price=LOSS_PRICE))
    kept = ranked[: max(FEWEST, -(-len(forms) // 2))]
    leader = max(ranked, key=lambda i: forms[i].expected(wrong, right), default=None)
    return kept if leader is None or leader in kept else [*kept[:-1], leader]


def race(was_right: Sequence[bool], contenders: int, gains: Gains) -> Race:
    """Race ``contenders`` edits over tickets that the present guidance judges as ``was_right`` says."""
    wrong, right = was_right.count(False), was_right.count(True)
    forms = [Form() for _ in range(contenders)]
    laps = chunks(was_right, CHUNK)[:LAPS]
    running = list(range(contenders)) if laps else []  # without a ticket there is nothing to expect
    for positions in laps:
        for one, seen in zip(running, gains([(one, positions) for one in running]), strict=True):
            forms[one] = forms[one].plus([was_right[i] for i in positions], seen)
        running = [running[i] for i in survivors([forms[one] for one in running], wrong, right)]
        if not running:
            break
    leader = max(running, key=lambda one: forms[one].expected(wrong, right), default=None)
    return Race(tuple(forms), tuple(running), leader, tuple(i for positions in laps for i in positions))
