"""Optimiser steps whose gradients are not finite: each is skipped, and three in a row end a run. Weights that are not finite
are refused where they are read: what plays or decides by them would do something all the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stageb.errors import StagebError

IN_A_ROW = 3  # skipped steps after which a run ends
REASON = f"the gradients of {IN_A_ROW} steps in a row are not finite"


class NonFiniteError(StagebError):
    """Gradients were not finite for too many steps in a row."""


class SkippedSteps:
    """Counts skipped steps in a row."""

    def __init__(self, remedy: str) -> None:
        """``remedy``: what the error message tells the user to try."""
        self.remedy = remedy
        self.in_a_row = 0

    def count(self, finite: bool, told: str = REASON) -> None:
        """Count one step, whose gradients were ``finite`` or not.

        Raises ``NonFiniteError`` with ``told`` and the remedy at the last of ``IN_A_ROW`` skipped steps.
        """
        self.in_a_row = 0 if finite else self.in_a_row + 1
        if self.in_a_row == IN_A_ROW:
            raise NonFiniteError(f"{told}; the last commit is intact. Try {self.remedy}")


def check_finite(weights: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` where one of the tensors by name holds what is no finite number."""
    for name, weight in weights.items():
        if not bool(weight.isfinite().all()):
            raise ValueError(f"{name} holds NaN or infinity")
