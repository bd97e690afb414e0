"""Steps of an optimiser whose gradients are not finite: each is left out, and three in a row end a run."""

from __future__ import annotations

from stageb.errors import StagebError

IN_A_ROW = 3  # steps left out, after which a run ends
REASON = f"the gradients of {IN_A_ROW} steps in a row are not finite"


class NonFiniteError(StagebError):
    """Losses that are no numbers any more."""


class SkippedSteps:
    """Counts the steps that were left out since the last that was not."""

    def __init__(self, remedy: str) -> None:
        """``remedy``: what to try where they end a run."""
        self.remedy = remedy
        self.in_a_row = 0

    def count(self, finite: bool, told: str = REASON) -> None:
        """A step whose gradients were ``finite`` or not. Raises ``NonFiniteError``, which says ``told``, at the last."""
        self.in_a_row = 0 if finite else self.in_a_row + 1
        if self.in_a_row == IN_A_ROW:
            raise NonFiniteError(f"{told}; the last commit is intact. Try {self.remedy}")
