"""Answers of the current model, and those to several views of one image fused into one.

It is a copy because the engine replaces a model's attention, and is fast with half-precision
weights, while the learner keeps float32. The copy takes two bytes per weight, besides about a dozen
for learning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product

import torch
from torch import Tensor

from stageb.engines.native.api import TransformersEngine
from stageb.engines.protocol import Decode, Ids, Request
from stageb.two_channel.boxes.augmentation import ImageView, note_view
from stageb.two_channel.boxes.metrics import Detections, ious
from stageb.two_channel.boxes.text import expect
from stageb.two_channel.config import AugmentationConfig, TwoChannelConfig
from stageb.two_channel.model.model import Detector
from stageb.two_channel.model.stored import ModelMetadata
from stageb.two_channel.types import BINS, Bins, Detection, DetectorRollout, Sample


class Writer:
    """Writes answers with its own detector, whose weights the caller updates."""

    def __init__(self, detector: Detector) -> None:
        """The tokens that the detector's spelling determines are drafted, which saves forward
        passes."""
        self.version = -1  # no weights yet
        self.detector = detector
        self._draft = partial(expect, spelling=detector.spelling)
        self._engine = TransformersEngine(detector.model, detector.chat, lambda: detector.eyes)
        self._engine.open_eyes()

    @torch.no_grad()
    def take(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Load ``weights`` by name: all of the model's, tied ones once."""
        own = self.detector.model.state_dict()
        for name, weight in weights:
            own[name].copy_(weight)
        self._engine.forget()
        self.version = version

    @torch.no_grad()
    def receive(self, version: int, each: Callable[[Tensor], object]) -> None:
        """Update every weight in place with ``each``, such as a broadcast; the order is the same on
        every rank."""
        for weight in self._weights.values():
            each(weight)
        self._engine.forget()
        self.version = version

    def weights(self) -> dict[str, Tensor]:
        """The current weights by name, on the CPU; tied ones once."""
        return {name: weight.cpu() for name, weight in self._weights.items()}

    def write(
        self, samples: Sequence[Sample], keys: Sequence[int], decode: Decode
    ) -> list[DetectorRollout]:
        """An answer to each of ``samples``, drawn from the stream of its key alone."""
        requests = [
            Request(self.detector.prompt(sample.image), decode, (key,))
            for sample, key in zip(samples, keys, strict=True)
        ]
        answers = self._engine.answers(requests, self._draft)
        return [
            DetectorRollout(answer.ids, answer.finish == "stop", self.version)
            for (answer,) in answers
        ]

    def chances(self, samples: Sequence[Sample], answers: Sequence[Ids]) -> list[tuple[float, ...]]:
        """For each of ``samples``, the log-probabilities of all tokens of its answer, at
        temperature 1."""
        prompts = (self.detector.prompt(sample.image) for sample in samples)
        return self._engine.chances(list(zip(prompts, answers, strict=True)))

    @property
    def _weights(self) -> dict[str, Tensor]:
        """The model's weights by name; tied ones once."""
        first = {
            weight.data_ptr(): (name, weight)
            for name, weight in reversed(self.detector.model.state_dict().items())
        }
        return dict(reversed(first.values()))


# Test-time augmentation: detections in several views of one image, fused into one answer.
#
# A model that writes boxes names most objects once. In a mirrored or transposed view of the same
# image it makes other errors, so boxes on which views agree are more likely, and more accurate,
# than those of any single view.
#
# Boxes are fused as in Solovyev, Wang & Gabruseva 2021, "Weighted boxes fusion: ensembling boxes
# from different object detection models", section 3.

LEAST_IOU = 0.55  # with the mean of a cluster, above which a box joins it (ibid.)
LEAST_SHARE = 0.5  # of the views that must contain an object; otherwise it goes into the tail


def replace_views(
    config: TwoChannelConfig, metadata: ModelMetadata, count: int | None
) -> tuple[TwoChannelConfig, ModelMetadata]:
    """``config`` with ``count`` views, and ``metadata`` without its threshold, which was chosen for
    another number of views; both unchanged if ``count`` is None or the config's. Raises
    ``ConfigError`` for more views than augmentation allows."""
    if count in (None, config.evaluation.views):
        return config, metadata
    return replace(config, evaluation=replace(config.evaluation, views=count)), replace(
        metadata, threshold=None
    )


def list_views(config: AugmentationConfig, most: int) -> list[ImageView]:
    """The first ``most`` views: the image as it is, then all combinations of mirrored, upended and
    turned that ``config`` enables."""
    kinds = product(
        *((False, True) if may else (False,) for may in (config.turn, config.upend, config.mirror))
    )
    return [
        ImageView(mirrored=mirrored, upended=upended, turned=turned)
        for turned, upended, mirrored in kinds
    ][:most]


def show(sample: Sample, view: ImageView) -> Sample:
    """``sample`` in ``view``, which must not crop or pad; without its objects unless the view
    changes nothing."""
    if view == ImageView():
        return sample
    size = (sample.height, sample.width) if view.turned else (sample.width, sample.height)
    image = f"{sample.image}#{note_view(view)}"
    return replace(sample, image=image, width=size[0], height=size[1], objects=(), crowds=())


def restore(detections: Detections, view: ImageView) -> Detections:
    """Detections in ``view``, with their boxes moved back to the image itself."""
    objects = tuple(
        replace(each, bins=_restore_bins(each.bins, view)) for each in detections.objects
    )
    tail = tuple(
        (replace(each, bins=_restore_bins(each.bins, view)), score)
        for each, score in detections.tail
    )
    return Detections(objects, detections.scores, tail)


def fuse(answers: Sequence[Detections]) -> Detections:
    """Fuse the detections of several views into one answer, highest score first.

    Boxes with one desc form clusters around the one with the highest score, at most one box per
    view. The fused box is their mean, weighted by score; the fused score is the sum of their scores
    divided by the number of views.
    """
    scored = [[*zip(each.objects, each.scores, strict=True), *each.tail] for each in answers]
    boxes = [(score, view, one) for view, each in enumerate(scored) for one, score in each]
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
        ((sum(each.scores) / len(answers), each) for each in clusters),
        key=lambda pair: (-pair[0], pair[1].mean.bins),
    )
    kept = [
        (score, each.mean) for score, each in found if len(each.views) >= LEAST_SHARE * len(answers)
    ]
    tail = tuple(
        (each.mean, score) for score, each in found if len(each.views) < LEAST_SHARE * len(answers)
    )
    return Detections(tuple(one for _, one in kept), tuple(score for score, _ in kept), tail)


@dataclass
class _Cluster:
    """The boxes of one object in several views."""

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
        weights = (
            [score / whole for score in self.scores]
            if sum(self.scores)
            else [1 / len(self.boxes)] * len(self.boxes)
        )
        x1, y1, x2, y2 = (
            round(sum(weight * box[side] for weight, box in zip(weights, self.boxes, strict=True)))
            for side in range(4)
        )
        return Detection(self.desc, (x1, y1, x2, y2))


def _restore_bins(bins: Bins, view: ImageView) -> Bins:
    x1, y1, x2, y2 = (bins[1], bins[0], bins[3], bins[2]) if view.turned else bins
    if view.mirrored:
        x1, x2 = BINS - 1 - x2, BINS - 1 - x1
    if view.upended:
        y1, y2 = BINS - 1 - y2, BINS - 1 - y1
    return x1, y1, x2, y2
