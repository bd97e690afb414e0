"""The records that pass between the stages of the two-channel loop. Only the standard library is
imported.

A *bin* is a coordinate token: ``BINS`` of them along each axis of an image. A *box* is (x1, y1, x2,
y2).
"""

from __future__ import annotations

from dataclasses import dataclass

BINS = 1000  # per axis
CUT_SHORT = "cut short"  # the reason for a well-formed answer that stops before its end

Box = tuple[float, float, float, float]  # pixels, x1 < x2, y1 < y2
Bins = tuple[int, int, int, int]  # 0 to BINS - 1, x1 <= x2, y1 <= y2; of a true object, both below


@dataclass(frozen=True, slots=True)
class Object:
    """One object of an image, in pixels."""

    desc: str  # its name; not empty
    box: Box


@dataclass(frozen=True, slots=True)
class Sample:
    """One image and its objects: a line of the data."""

    key: str  # unique in its file: its path as given
    image: str  # path of the picture
    width: int
    height: int
    objects: tuple[Object, ...]
    crowds: tuple[Object, ...] = ()  # not trained on; predictions in them are ignored


@dataclass(frozen=True, slots=True)
class Detection:
    """One object in bins, as an answer holds it."""

    desc: str
    bins: Bins


@dataclass(frozen=True, slots=True)
class DetectorRollout:
    """An answer that the model wrote."""

    ids: tuple[int, ...]  # its tokens, including the end token if there is one
    ended: bool  # whether the model ended it; otherwise it reached the token limit
    version: int  # optimiser steps of the weights that wrote it


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """The longest well-formed prefix of an answer."""

    objects: tuple[Detection, ...]
    ends: tuple[int, ...]  # for each object: the number of tokens up to and including its end
    complete: bool  # whether the whole answer is well-formed
    refused: str = ""  # why the rest was not parsed

    @property
    def tokens(self) -> int:
        """The number of tokens up to and including the end of the last whole object."""
        return self.ends[-1] if self.ends else 0

    @property
    def truncated(self) -> bool:
        """Whether the answer is well-formed but stops before its end."""
        return self.refused == CUT_SHORT


@dataclass(frozen=True, slots=True)
class Match:
    """How predicted objects and true ones were paired."""

    pairs: tuple[tuple[int, int], ...]  # (predicted, true), in the order of predicted
    false_positives: tuple[int, ...]  # predicted, unpaired
    missed: tuple[int, ...]  # true, unpaired


@dataclass(frozen=True, slots=True)
class CoordinateSlot:
    """The four coordinate tokens of an object in a target, and their true values."""

    # indices of the coordinate tokens of x1, y1, x2, y2 in the answer
    positions: tuple[int, int, int, int]
    bins: Bins  # the true box


@dataclass(frozen=True, slots=True)
class Target:
    """An answer to train on: token ids, and which of them carry a loss."""

    ids: tuple[int, ...]  # the answer's tokens, including the end
    taught: tuple[bool, ...]  # per token: whether it has text cross-entropy; never for a coordinate
    slots: tuple[CoordinateSlot, ...]  # every true object exactly once, matched or appended


@dataclass(frozen=True, slots=True)
class StepTotals:
    """The totals of the true answers of a step's images, by which losses are divided; known before
    the model answers."""

    objects: int
    text: int  # text tokens, without coordinates
