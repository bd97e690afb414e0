"""The words of the two-channel loop and its records, as they pass between its stages. Standard library alone.

A *bin* is a coordinate token: ``BINS`` of them along each axis of an image. A *box* is (x1, y1, x2, y2).
"""

from __future__ import annotations

from dataclasses import dataclass

BINS = 1000  # per axis
CUT_SHORT = "cut short"  # why the rest of a well-formed answer that stops before its end is not read

Box = tuple[float, float, float, float]  # pixels, x1 < x2, y1 < y2
Bins = tuple[int, int, int, int]  # 0 to BINS - 1, x1 <= x2, y1 <= y2; of a true object, both below


@dataclass(frozen=True, slots=True)
class Object:
    """One object of an image, in pixels."""

    desc: str  # what it is; not empty
    box: Box


@dataclass(frozen=True, slots=True)
class Sample:
    """One image and its objects: a line of the data."""

    key: str  # unique in its file: its path as given
    image: str  # path of the picture
    width: int
    height: int
    objects: tuple[Object, ...]
    crowds: tuple[Object, ...] = ()  # of which nothing is taught; what is told there counts neither way


@dataclass(frozen=True, slots=True)
class Detection:
    """One object as text has it."""

    desc: str
    bins: Bins


@dataclass(frozen=True, slots=True)
class Rollout:
    """An answer that the model wrote."""

    ids: tuple[int, ...]  # its tokens, the closing one included where it came
    ended: bool  # the model closed it; otherwise it grew too long
    version: int  # steps of the optimiser behind the weights that wrote it


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """What of an answer can be read: the longest well-formed prefix."""

    objects: tuple[Detection, ...]
    ends: tuple[int, ...]  # of each object: tokens of the answer up to and with its end
    complete: bool  # it closed as it must
    refused: str = ""  # why the rest was not read

    @property
    def tokens(self) -> int:
        """Of the answer, up to and with the end of the last whole object."""
        return self.ends[-1] if self.ends else 0

    @property
    def truncated(self) -> bool:
        """It is well-formed up to where it stops, before its end."""
        return self.refused == CUT_SHORT


@dataclass(frozen=True, slots=True)
class Match:
    """How predicted objects and true ones were paired."""

    pairs: tuple[tuple[int, int], ...]  # (predicted, true), in the order of predicted
    false_positives: tuple[int, ...]  # predicted, unpaired
    missed: tuple[int, ...]  # true, unpaired
    duplicates: tuple[int, ...]  # of false_positives: IoU >= .9 with an earlier predicted object of the same desc


@dataclass(frozen=True, slots=True)
class CoordinateSlot:
    """Where in a target four coordinate tokens stand, and what they should be."""

    positions: tuple[int, int, int, int]  # of the coordinate tokens of x1, y1, x2, y2, in the answer's tokens
    bins: Bins  # the truth


@dataclass(frozen=True, slots=True)
class Target:
    """An answer to be taught: token ids, and which of them carry a loss."""

    ids: tuple[int, ...]  # the answer's tokens, the closing ones included
    taught: tuple[bool, ...]  # per token: whether text cross-entropy is taken on it; never on a coordinate
    slots: tuple[CoordinateSlot, ...]  # every true object exactly once, matched or appended
    against: tuple[int, ...] = ()  # positions whose token is taught against: coordinates of false positives
    weights: tuple[float, ...] = ()  # per token: what its log-probability is weighed by, of either sign; none: 0


@dataclass(frozen=True, slots=True)
class StepTotals:
    """What the true answers of a step's images hold, and losses are divided by: known before anything is answered."""

    objects: int
    text: int  # their tokens, but for coordinates
