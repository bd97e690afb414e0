"""Intervals beside the figures that runs show."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stageb.runs.figures import wilson


def test_wilsons_interval_is_that_of_the_literature() -> None:
    low, high = wilson(81, 263)  # Newcombe, Statistics in Medicine 1998, table I
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)
    assert wilson(0, 0) == (0, 1)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilsons_interval_holds_the_share_and_stays_in_range(drawn: tuple[int, int]) -> None:
    low, high = wilson(*drawn)
    assert 0 <= low <= drawn[0] / drawn[1] + 1e-12
    assert drawn[0] / drawn[1] - 1e-12 <= high <= 1
