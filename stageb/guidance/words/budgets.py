"""Error budgets: how likely a run may accept edits that are no better."""

from __future__ import annotations

from dataclasses import dataclass

FOLDS = 3  # parts of the train tickets: edits are learnt from one and tested on the others, in turn


@dataclass(frozen=True, slots=True)
class Budget:
    """An error budget of one mission, left or spent: probabilities of accepting an edit that is no better."""

    edits: tuple[float, ...] = (0.0,) * FOLDS  # by the fold that taught the edits

    @property
    def chance(self) -> float:
        """All probabilities together."""
        return sum(self.edits)

    def plus(self, other: Budget) -> Budget:
        """The sum of both, fold by fold."""
        return Budget(tuple(map(float.__add__, self.edits, other.edits)))

    def less(self, spent: Budget) -> Budget:
        """Return the budget that is left after ``spent``, fold by fold, never below 0."""
        return Budget(tuple(max(0.0, mine - its) for mine, its in zip(self.edits, spent.edits, strict=True)))

    def most(self, other: Budget) -> Budget:
        """The larger of both, fold by fold."""
        return Budget(tuple(map(max, self.edits, other.edits)))


NOTHING = Budget()
