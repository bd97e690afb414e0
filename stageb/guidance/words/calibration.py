"""Calibration of the probabilities that a model gives verdicts, by labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stageb.guidance.words.labels import PASS_FAIL, Verdict

LARGEST_NUMBER = 1e6  # of any number, whatever its sign
CALIBRATED_ON = 192  # race tickets by which guidance is calibrated, at most

Leads = tuple[tuple[Verdict, int], ...]
"""By label, how many points more a ticket has than the rule with points asks for."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A map from the log-odds of a pass that a model gives under one guidance to those that labels
    bear out; for a mission with labels of its own, from the log-probability of each."""

    slope: float = 1.0
    offset: float = 0.0
    # added where the rules as code pass a ticket, taken off where they fail it: evidence of its
    # own; of labels of its own, added to the one that they give
    rules: float = 0.0
    points: float = 0.0  # added to a label for each point by which a ticket leads
    # of each of these, in their order
    offsets: tuple[tuple[Verdict, float], ...] = field(default=(), repr=False)
    # the log-odds beyond which a lead by code is sure and decides without a model; 0: none is
    reach: float = 0.0

    @classmethod
    def of_labels(
        cls,
        labels: tuple[Verdict, ...],
        slope: float,
        offsets: Sequence[float],
        rules: float = 0.0,
        points: float = 0.0,
    ) -> Calibration:
        """Return a calibration that multiplies all log-probabilities by ``slope``, and adds its
        offset to that of each label."""
        if labels == PASS_FAIL:
            return cls(slope, offsets[0] - offsets[1], rules, points)
        return cls(slope, 0.0, rules, points, tuple(zip(labels, offsets, strict=True)))

    @classmethod
    def parse(cls, plain: Any, labels: Sequence[Verdict]) -> Calibration | None:
        """Read what ``to_plain`` wrote for a mission of these ``labels``; None for anything
        else."""
        if not isinstance(plain, dict) or not plain.keys() <= set(cls.__slots__):
            return None
        numbers, offsets = dict(plain), plain.get("offsets", {})
        numbers.pop("offsets", None)
        wanted = set(labels) if plain and tuple(labels) != PASS_FAIL else set[Verdict]()
        if not isinstance(offsets, dict) or offsets.keys() != wanted:
            return None
        given = (*numbers.values(), *offsets.values())
        if not all(type(each) in (int, float) and abs(each) < LARGEST_NUMBER for each in given):
            return None
        return cls(
            **numbers,
            offsets=tuple((label, offsets[label]) for label in labels if label in offsets),
        )

    def to_plain(self) -> dict[str, Any]:
        """It as JSON data."""
        moved = {"offsets": dict(self.offsets)} if self.offsets else {"offset": self.offset}
        reach = {"reach": self.reach} if self.reach else {}
        return {"slope": self.slope, **moved, "rules": self.rules, "points": self.points, **reach}

    @property
    def rounded(self) -> Calibration:
        """It, to six places."""
        offsets = tuple((label, round(offset, 6)) for label, offset in self.offsets)
        slope, offset, rules, points = (
            round(each, 6) for each in (self.slope, self.offset, self.rules, self.points)
        )
        return Calibration(slope, offset, rules, points, offsets, round(self.reach, 6))

    def of(self, log_odds: float) -> float:
        """The calibrated log-odds of a ticket of which the rules say nothing as code."""
        return self.slope * log_odds + self.offset

    def weigh(self, scores: Sequence[float]) -> tuple[float, ...]:
        """The calibrated log-probabilities of labels of its own; those of pass and fail are their
        log-odds, and 0."""
        if self.offsets:
            return tuple(
                self.slope * each + offset
                for each, (_, offset) in zip(scores, self.offsets, strict=True)
            )
        return (self.of(scores[0] - scores[1]), 0.0) if len(scores) == 2 else tuple(scores)

    @property
    def weighs_rules(self) -> bool:
        """Whether what the rules as code say of a ticket counts."""
        return bool(self.rules or self.points)

    def is_sure(self, ruling: Verdict | None, leads: Leads, labels: Sequence[Verdict]) -> bool:
        """Whether the rules as code set a ticket's verdict so far ahead of other labels that the
        model need not be asked."""
        return 0 < self.reach < self.measure_lead(ruling, dict(leads), labels)

    def measure_lead(
        self, ruling: Verdict | None, leads: Mapping[Verdict, float], labels: Sequence[Verdict]
    ) -> float:
        """How far ahead of every other label the rules as code set the ``ruling``, in log-odds: 0
        where they give none. ``leads`` are in points, by label."""
        others = [leads.get(each, 0) for each in labels if each != ruling]
        if ruling is None or not others:
            return 0.0
        return self.rules + self.points * (leads.get(ruling, 0) - max(others))

    def given(self, ruling: Verdict | None, leads: Leads = ()) -> Calibration:
        """The calibration of a ticket of which the rules as code say this."""
        added = {label: self.points * lead for label, lead in leads}
        offsets = tuple(
            (label, offset + (label == ruling) * self.rules + added.get(label, 0.0))
            for label, offset in self.offsets
        )
        sign = {"pass": 1, "fail": -1}.get(ruling or "", 0)
        further = sign * self.rules + added.get("pass", 0.0) - added.get("fail", 0.0)
        return Calibration(self.slope, self.offset + further, offsets=offsets)

    def after(self, first: Calibration) -> Calibration:
        """Both in turn: ``first``, then this one; of which only one has a part for rules."""
        offsets = {label: self.slope * offset for label, offset in first.offsets}
        offsets |= {label: offsets.get(label, 0.0) + offset for label, offset in self.offsets}
        rules = self.rules + self.slope * first.rules
        points = self.points + self.slope * first.points
        moves = [self.offset, *(offset for _, offset in self.offsets)]
        reach = (
            self.slope * first.reach + max(0.0, *moves) - min(0.0, *moves)
            if first.reach
            else self.reach
        )
        return Calibration(
            self.slope * first.slope,
            self.of(first.offset),
            rules,
            points,
            tuple(offsets.items()),
            reach,
        )


UNCALIBRATED = Calibration()


def find_shares(scores: Sequence[float], temperature: float) -> list[float]:
    """How probable each verdict is at ``temperature``, by ``score_verdicts``, rounded to six
    places."""
    if len(scores) == 2:
        return [
            sigmoid(scores[0] - scores[1], temperature),
            sigmoid(scores[1] - scores[0], temperature),
        ]
    best = max(scores)
    if temperature == 0:
        return [float(place == scores.index(best)) for place in range(len(scores))]
    weights = [math.exp(max(-700.0, (each - best) / temperature)) for each in scores]
    return [round(weight / sum(weights), 6) for weight in weights]


def sigmoid(log_odds: float, temperature: float) -> float:
    """The probability at ``temperature`` of the outcome that ``log_odds`` speak for, rounded to six
    places."""
    if temperature == 0:
        return float(log_odds > 0)
    scaled = max(-700.0, min(700.0, log_odds / temperature))
    return round(1 / (1 + math.exp(-scaled)), 6)
