"""Steps of an optimiser whose gradients are not finite: each is left out, and three in a row end a run. Weights that are
not finite are refused where they are read: what plays or decides by them does something all the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def check_finite(weights: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` where one of the tensors by name holds what is no finite number."""
    for name, weight in weights.items():
        if not bool(weight.isfinite().all()):
            raise ValueError(f"{name} holds NaN or infinity")
