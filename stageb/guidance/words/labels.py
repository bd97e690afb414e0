"""The labels of a mission: what sets pass and fail apart from others, which are ranked by the order
of their rules alone."""

from __future__ import annotations

from collections.abc import Iterable

Verdict = str  # one of the labels of a mission

# the labels of a mission, unless its tickets have others
PASS_FAIL: tuple[Verdict, ...] = ("pass", "fail")


def has_labels(labels: Iterable[Verdict]) -> bool:
    """Whether these are others than pass and fail, so that the order of rules decides between
    them."""
    return not set(labels) <= set(PASS_FAIL)


def rank(verdict: Verdict) -> int:
    """The place of a verdict where pass and fail disagree: of rules the first wins, which makes the
    others its exceptions, of votes that tie the last, since a missed fault costs more than a look.
    All other labels have the same place."""
    return PASS_FAIL.index(verdict) if verdict in PASS_FAIL else 0


def list_labels(labels: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """Pass and fail where there are no others; else these in order."""
    return tuple(sorted({*labels})) if has_labels(labels := {*labels}) else PASS_FAIL
