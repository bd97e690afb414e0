"""The exact teacher of reflection: every short edit that evidence and cases suggest, weighed on a
whole pool of tickets.

A *pool* stands for the tickets of a mission; a *stage* is what one reflection sees of it: a
guidance, what was counted, and some cases that are judged wrong beside some that are judged right.
Edits are found in what the stage shows and scored by what they would do to the pool, because that
is what the gate asks of them: an edit that fits what is shown by chance teaches nothing.
``candidates`` finds the conditions, ``edits`` what to do with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.tiny.candidates import candidates
from lab.tiny.edits import edits
from lab.tiny.rules import WorldRule
from lab.tiny.stage import LOSS_PRICE, Edit, Stage, edited
from stageb.guidance.words.types import OpName

LEAST_GAIN = 1.5  # of an edit worth teaching
# share of what an edit turns that a better one has to leave, for both to be worth teaching
OWN = 0.2


@dataclass(frozen=True, slots=True)
class Option:
    """An edit that the stage speaks for."""

    # tickets turned, less ``LOSS_PRICE`` times those spoilt, of those that the stage does not see
    score: float
    edit: Edit
    won: int  # mask of the former
    turned: tuple[int, ...]  # the wrong cases on show that it turns, by their places


def options(stage: Stage) -> list[Option]:
    """Every edit that turns more of the cases on show than it spoils, and more of the tickets that
    the stage does not see; best first."""
    before = stage.pool.right(stage.book)
    found: dict[tuple[OpName, tuple[str, ...], WorldRule | None], Option] = {}
    for edit in edits(stage, candidates(stage)):
        after = stage.pool.right(edited(stage.book, edit))
        won, lost = after & ~before, before & ~after
        turned = won & stage.wrong
        if turned.bit_count() <= LOSS_PRICE * (lost & stage.right).bit_count():
            continue
        won &= stage.tested
        score = (
            won.bit_count() - LOSS_PRICE * (lost & stage.tested).bit_count() - _price(stage, edit)
        )
        if score >= LEAST_GAIN:
            found.setdefault(
                (edit.op, edit.keys, edit.rule), Option(score, edit, won, stage.places(turned))
            )
    return different(sorted(found.values(), key=lambda option: -option.score))


def different(found: Sequence[Option]) -> list[Option]:
    """Without those that do on the same rules little that a better one does not do: the limit next
    to the best one, or the best conditions and one more."""
    kept: list[Option] = []
    for option in found:
        same = (
            other
            for other in kept
            if (other.edit.op, other.edit.keys) == (option.edit.op, option.edit.keys)
        )
        if all(
            (option.won & ~other.won).bit_count() > OWN * option.won.bit_count() for other in same
        ):
            kept.append(option)
    return kept


def _price(stage: Stage, edit: Edit) -> float:
    """Of a rule's length, and of what was not counted though much was."""
    counted = {condition for clue in stage.clues for condition in clue}
    unknown = (
        sum(condition.kind != "in" and condition not in counted for condition in edit.grounds)
        if counted
        else 0
    )
    return 0.2 * len(edit.grounds) + 1.5 * unknown
