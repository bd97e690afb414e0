"""The resources that the gate deals out: the run's false-acceptance budget, and the train tickets
that edits are tested on.

Each mission has an equal part, cut in three: one part for the edits that each fold of train has
taught. A test spends half of what its part has left, or an eighth (``decide.py``), and an edit that
is proven gives its level back.

*What is proven.* The first change that a run makes to its guidance is no better with a probability
of at most ``gate.alpha``. For until then the guidance is fixed, and an edit and its level are
functions of the fold that taught it and of the race tickets: which tickets a bundle reads, which
edits it does not try again, and what its part has left depend on no ticket that its test looks at.
So, given that fold and those race tickets, a test accepts an edit that is no better with a
probability of at most its level; levels that accept nothing add up to no more than the fold's part,
and the parts to ``gate.alpha`` (a fallback procedure within each part, a union bound over them:
Tian & Ramdas, "Online control of the familywise error rate", 2021, section 4). A run that goes on
from learnt guidance spends only what earlier runs left, ``Guidance.spent``, fold by fold. Bundles
of one round that are reflected on together (``reflection.scope: round``) have a fold each and are
tested in turn: until one of them is accepted, the same holds.

*What is learnt at once* (``at_once.py``) has one test where code judges, with all that the folds'
parts have left. Where a model judges, it has half of that, and bundles are tested with the rest.
Race tickets come first in its test: two thirds of them only teach, and where the engine gives
probabilities, the others fit the first calibration and are not bet on either. Each block behind
them is judged under what the tickets before it have taught, with demonstrations and a calibration
from these, as is the guidance that it is compared with, so that given them the null hypothesis
holds for the block as for any edit; and learning at once comes before any bundle, so that its edit
is the first change. If it is dropped, nothing of it remains except that
half of the budget is spent, and bundles find what they would have found. If it is kept without a
proof (``gate.provisional``), the guidance that bundles are compared with has seen all train
tickets, and what holds for later edits holds for theirs. Demonstrations and calibration themselves
are fitted and not tested.

*What is not proven.* Later edits build on guidance that earlier tests let pass, on tickets that
come again. With fresh tickets for every test the same bound would hold for them too: a level may
come back after an acceptance, since either the edit was better, or the error was made already. On
the same tickets nothing bounds the error but counting (``bin/bench power``). A procedure that a
union bound covers to the end would have to share its levels among all histories of acceptances that
might have been, which costs several more groups to win for each edit accepted before; and if every
test had fresh tickets, a mission of 600 would have enough for one or two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from stageb.guidance.config import GateConfig
from stageb.guidance.tickets.groups import Group
from stageb.guidance.words.types import NOTHING, TEACHING_FOLDS, Budget, Guidance


def divide_budget(gate: GateConfig, missions: int) -> Budget:
    """Return the budget of each of so many missions."""
    return Budget((gate.alpha / missions / TEACHING_FOLDS,) * TEACHING_FOLDS)


def compute_spending(guidance: Guidance, contents: Iterable[str]) -> Budget:
    """Return the budget spent on tickets of these ``contents`` before a run starts from
    ``guidance``: all that its file says was spent; nothing if it says what taught it and none of
    that is among them."""
    taught = guidance.taught_by
    return guidance.spent if not taught or not taught.isdisjoint(contents) else NOTHING


# The train tickets that edits are tested on: whole groups, cut into folds that teach in turn.
#
# A bundle's edits are made from tickets of one fold, its cases and its evidence alike, and tested
# on the others: so no edit is tested on what speaks for itself, and every ticket serves both ends
# (cross-fitting). A group may come twice, once as ``pass`` and once as ``fail``, and is joined by
# tickets that say the same (``guidance/tickets/groups.py``). Its tickets tell much the same, so
# nothing may cut it in two: neither a fold, nor the end of a pool, nor the look of a test. A few
# tickets of a large group tell as much as all.

TOLD = 8  # tickets of one group that an edit is tested on, at most


@dataclass(frozen=True)
class Pool:
    """The tickets that the edits of one mission may be made from and tested on."""

    # in the order in which tests see them; every ``TEACHING_FOLDS``-th is in the same fold
    groups: Sequence[Group]
    size: int  # tickets that one edit is tested on, at most

    def fold(self, number: int) -> Iterator[int]:
        """Yield the tickets of a fold, in order."""
        return (
            position
            for group in islice(self.groups, number % TEACHING_FOLDS, None, TEACHING_FOLDS)
            for position in group
        )

    def of_fold(self, number: int, positions: Iterable[int]) -> list[int]:
        """List those of ``positions`` that are tickets of a fold, in order; other tickets are not
        looked at, however many there are."""
        placed = (
            (self._places[position], position) for position in positions if position in self._places
        )
        return [
            position
            for (place, _), position in sorted(placed)
            if place % TEACHING_FOLDS == number % TEACHING_FOLDS
        ]

    @cached_property
    def _places(self) -> dict[int, tuple[int, int]]:
        """Position -> number of its group, and of the ticket in it."""
        return {
            i: (place, spot)
            for place, group in enumerate(self.groups)
            for spot, i in enumerate(group)
        }

    def groups_outside(self, number: int | None) -> list[Group]:
        """List the first groups outside a fold (None: all groups), at most ``TOLD`` tickets of each
        and ``size`` tickets in all. Groups further on are not looked at, however many there are."""
        kept: list[Group] = []
        room = self.size
        for place, group in enumerate(self.groups):
            if number is not None and place % TEACHING_FOLDS == number % TEACHING_FOLDS:
                continue
            some = group[:TOLD]
            if len(some) > room:
                break
            kept.append(some)
            room -= len(some)
        return kept


def cut_interims(groups: Sequence[Group], least: int) -> Iterator[list[Group]]:
    """Cut ``groups`` into chunks of ``least`` tickets or a few more; the last may be smaller."""
    chunk: list[Group] = []
    tickets = 0
    for group in groups:
        chunk.append(group)
        tickets += len(group)
        if tickets >= least:
            yield chunk
            chunk, tickets = [], 0
    if chunk:
        yield chunk
