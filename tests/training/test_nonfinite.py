"""Steps that are left out: three in a row end a run, and what it says."""

from __future__ import annotations

import pytest

from stageb.training.step import NonFiniteError, SkippedSteps


def test_three_in_a_row_end_a_run_and_a_step_between_begins_anew() -> None:
    left_out = SkippedSteps("a smaller rate")
    for finite in (False, False, True, False, False):
        left_out.count(finite)
    assert left_out.in_a_row == 2
    with pytest.raises(NonFiniteError) as caught:
        left_out.count(False)
    assert str(caught.value) == (
        "the gradients of 3 steps in a row are not finite; the last commit is intact. Try a smaller rate"
    )
