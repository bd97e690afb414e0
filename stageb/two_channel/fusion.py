"""What a detector says of one image in several views, fused into one answer.

A model that writes boxes names most objects once and is sure of each by its own words alone. Shown the same image mirrored,
upended and turned it errs elsewhere: boxes that views agree on are likelier, and nearer to the truth, than any one of them.

Fusion is that of weighted boxes (Solovyev, Wang & Gabruseva 2021, "Weighted boxes fusion: ensembling boxes from different
object detection models", section 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from stageb.two_channel.augmentation import View, note_view
from stageb.two_channel.config import AugmentationConfig, TwoChannelConfig
from stageb.two_channel.matching import ious
from stageb.two_channel.metrics import Detections
from stageb.two_channel.stored import Learnt
from stageb.two_channel.types import BINS, Bins, Detection, Sample

LEAST_IOU = 0.55  # from which a box is one of a cluster (ibid.)
LEAST_SHARE = 0.5  # of the views that tell of an object which counts; of fewer it stands in the tail


def replace_views(config: TwoChannelConfig, learnt: Learnt, count: int | None) -> tuple[TwoChannelConfig, Learnt]:
    """``config`` with ``count`` views, where that is given; ``learnt`` without its threshold, where that is of another
    number of views. Raises ``ConfigError`` for more views than augmentation makes."""
    if count in (None, config.evaluation.views):
        return config, learnt
    return replace(config, evaluation=replace(config.evaluation, views=count)), replace(learnt, threshold=None)


def list_views(config: AugmentationConfig, most: int) -> list[View]:
    """The image as it is first, then what ``config`` lets training images be: mirrored, upended, turned and all of these
    together; ``most`` of them at most."""
    kinds = product(*((False, True) if may else (False,) for may in (config.turn, config.upend, config.mirror)))
    return [View(mirrored=mirrored, upended=upended, turned=turned) for turned, upended, mirrored in kinds][:most]


def show(sample: Sample, view: View) -> Sample:
    """``sample`` as ``view`` shows it, which crops and pads nothing, and without its objects where that is not as it is."""
    if view == View():
        return sample
    size = (sample.height, sample.width) if view.turned else (sample.width, sample.height)
    image = f"{sample.image}#{note_view(view)}"
    return replace(sample, image=image, width=size[0], height=size[1], objects=(), crowds=())


def restore(told: Detections, view: View) -> Detections:
    """What was ``told`` of a view, where the image itself has it."""
    objects = tuple(replace(each, bins=_restore_bins(each.bins, view)) for each in told.objects)
    tail = tuple((replace(each, bins=_restore_bins(each.bins, view)), score) for each, score in told.tail)
    return Detections(objects, told.scores, tail)


def fuse(answers: Sequence[Detections]) -> Detections:
    """One answer from those of several views, the surest object first.

    Boxes of one desc gather about the surest of them, at most one of a view. An object's box is their mean, weighted by
    scores; its score is the sum of theirs over the number of views.
    """
    boxes = [(score, view, one) for view, each in enumerate(answers) for one, score in _list_scored(each)]
    clusters: list[_Cluster] = []
    for score, view, one in sorted(boxes, key=lambda box: (-box[0], box[1], box[2].bins)):
        open_to = [each for each in clusters if each.desc == one.desc and view not in each.views]
        overlaps = ious([one], [each.mean for each in open_to])[0] if open_to else []
        nearest = max(range(len(open_to)), key=overlaps.__getitem__, default=None)
        if nearest is None or overlaps[nearest] <= LEAST_IOU:
            open_to, nearest = [_Cluster(one.desc)], 0
            clusters.append(open_to[0])
        open_to[nearest].add(score, view, one.bins)
    found = sorted(
        ((sum(each.scores) / len(answers), each) for each in clusters), key=lambda pair: (-pair[0], pair[1].mean.bins)
    )
    kept = [(score, each.mean) for score, each in found if len(each.views) >= LEAST_SHARE * len(answers)]
    tail = tuple((each.mean, score) for score, each in found if len(each.views) < LEAST_SHARE * len(answers))
    return Detections(tuple(one for _, one in kept), tuple(score for score, _ in kept), tail)


@dataclass
class _Cluster:
    """Boxes that views have of one object."""

    desc: str
    scores: list[float] = field(default_factory=list)
    views: set[int] = field(default_factory=set)
    boxes: list[Bins] = field(default_factory=list)

    def add(self, score: float, view: int, box: Bins) -> None:
        self.scores.append(score)
        self.views.add(view)
        self.boxes.append(box)

    @property
    def mean(self) -> Detection:
        whole = sum(self.scores) or 1.0
        weights = [score / whole for score in self.scores] if sum(self.scores) else [1 / len(self.boxes)] * len(self.boxes)
        x1, y1, x2, y2 = (
            round(sum(weight * box[side] for weight, box in zip(weights, self.boxes, strict=True))) for side in range(4)
        )
        return Detection(self.desc, (x1, y1, x2, y2))


def _list_scored(told: Detections) -> list[tuple[Detection, float]]:
    """The objects that were told, and what was named noise, by the likeliest other name."""
    return [*zip(told.objects, told.scores, strict=True), *told.tail]


def _restore_bins(bins: Bins, view: View) -> Bins:
    x1, y1, x2, y2 = (bins[1], bins[0], bins[3], bins[2]) if view.turned else bins
    if view.mirrored:
        x1, x2 = BINS - 1 - x2, BINS - 1 - x1
    if view.upended:
        y1, y2 = BINS - 1 - y2, BINS - 1 - y1
    return x1, y1, x2, y2
