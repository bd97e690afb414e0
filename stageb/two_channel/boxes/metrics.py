"""Predicted objects held against true ones: paired one to one, and measured.

COCO's mAP and AR, F1 at one IoU and over many, duplicates.

- **mAP** is COCO's (IoU .50 to .95, at most 100 objects an image), by faster-coco-eval. A language
  model has no score for a box, so the score of an object is the probability of its own tokens
  (``score_objects``). A desc that no true object has is left out, as in COCO.
- **By size** and **AR** are COCO's, too (pycocotools, ``cocoeval.Params.setDetParams``): small
  objects have an area of up to 32^2 pixels, medium ones up to 96^2, large ones more, where an area
  is the box's; AR is recall at 1, 10 or 100 objects an image, mean over the same IoUs and over
  descs.
- **F1** at an IoU needs no scores: every predicted object counts, matched as in training
  (``match``), over all images and descs together. **mIoU-F1** is its mean over the IoUs .50, .55,
  ..., .95.
- **Crowds** are ignored: unmatched predictions that lie in one, by the fraction of their own area,
  are left out (pycocotools, ``iscrowd``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from stageb.two_channel.boxes.text import (
    Spelling,
    bins_of,
    box_of,
    find_boxes,
    list_true_objects,
    parse,
)
from stageb.two_channel.types import Detection, Match, Sample

# Match predicted to true objects: one to one, within a desc, such that the sum of IoU above a gate
# is largest.
#
# IoU is computed on bins, which gives the same result as on pixels, since each axis is only scaled.

DUPLICATE = 0.9  # IoU at which two predicted objects with one desc count as duplicates
_NEVER = 1e6  # the cost of a pair that is not allowed
_EDGE = 1e-9  # by which a pair exactly at the gate is better than none

Matrix = NDArray[np.float64]


def match(predicted: Sequence[Detection], true: Sequence[Detection], gate: float) -> Match:
    """Pair ``predicted`` with ``true``; ``gate`` is the smallest IoU of a pair, above 0.

    This is the assignment of least cost, with 1 - IoU for a pair and 1 - gate for a predicted
    object that is assigned to a dummy, so it maximises the sum of (IoU - gate) over pairs.
    """
    n, m = len(predicted), len(true)
    cost = np.concatenate(
        [_costs(predicted, true, gate), np.full((n, n), 1 - gate + _EDGE)], axis=1
    )
    rows, columns = linear_sum_assignment(cost)
    return _make_match(
        [(int(i), int(j)) for i, j in zip(rows, columns, strict=True) if j < m], n, m
    )


def match_prefix(predicted: Sequence[Detection], true: Sequence[Detection], gate: float) -> Match:
    """Pair the longest prefix of ``predicted`` whose objects can all be paired, with the largest
    sum of IoU; the rest stays unpaired. So no object loses its partner to one that was predicted
    after it."""
    costs = _costs(predicted, true, gate)

    def pairs_of(count: int) -> list[tuple[int, int]] | None:
        """Of the first ``count`` objects; None where not all can be paired."""
        if count > len(true):
            return None
        rows, columns = linear_sum_assignment(costs[:count])
        found = [(int(i), int(j)) for i, j in zip(rows, columns, strict=True)]
        return found if all(costs[pair] < _NEVER for pair in found) else None

    pairs: list[tuple[int, int]] = []
    while len(pairs) < len(predicted) and (longer := pairs_of(len(pairs) + 1)) is not None:
        pairs = longer
    return _make_match(pairs, len(predicted), len(true))


def prefer_first(matched: Match, objects: Sequence[Detection]) -> Match:
    """``matched``, changed such that of duplicates among ``objects`` the first is paired and the
    later one is a false positive.

    The later one may be slightly nearer to the truth; but if it were the one that is kept,
    repeating would be rewarded.
    """
    pairs = dict(matched.pairs)
    for first, later in find_duplicates(tuple(objects)):
        if later in pairs and first not in pairs:
            pairs[first] = pairs.pop(later)
    false_positives = tuple(i for i in range(len(objects)) if i not in pairs)
    return Match(tuple(sorted(pairs.items())), false_positives, matched.missed)


@lru_cache(maxsize=1)  # metrics and targets call it again for the same objects
def find_duplicates(objects: tuple[Detection, ...]) -> tuple[tuple[int, int], ...]:
    """Pairs (earlier, later) of duplicates: objects with one desc and an IoU of ``DUPLICATE`` or
    more."""
    close = np.triu((ious(objects, objects) >= DUPLICATE) & _same(objects, objects), k=1)
    return tuple((int(i), int(j)) for i, j in np.argwhere(close))


def ious(ones: Sequence[Detection], others: Sequence[Detection]) -> Matrix:
    """Intersection over union of each of ``ones`` (rows) with each of ``others`` (columns); 0 if
    neither has area."""
    a = np.array([each.bins for each in ones], dtype=np.float64).reshape(-1, 1, 4)
    b = np.array([each.bins for each in others], dtype=np.float64).reshape(1, -1, 4)
    sides = np.clip(
        np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]), 0, None
    )
    both = sides[..., 0] * sides[..., 1]
    either = _area(a) + _area(b) - both
    shares: Matrix = np.divide(both, either, out=np.zeros_like(both), where=either > 0)
    return shares


def _costs(predicted: Sequence[Detection], true: Sequence[Detection], gate: float) -> Matrix:
    """1 - IoU for each allowed pair, ``_NEVER`` for any other."""
    overlap = ious(predicted, true)
    costs: Matrix = np.where(_same(predicted, true) & (overlap >= gate), 1 - overlap, _NEVER)
    return costs


def _make_match(pairs: Sequence[tuple[int, int]], predicted: int, true: int) -> Match:
    """The match that consists of ``pairs`` among so many predicted and true objects."""
    taken, found = {i for i, _ in pairs}, {j for _, j in pairs}
    false_positives = tuple(i for i in range(predicted) if i not in taken)
    return Match(
        tuple(pairs), false_positives, missed=tuple(j for j in range(true) if j not in found)
    )


def _area(boxes: Matrix) -> Matrix:
    area: Matrix = (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])
    return area


def _same(ones: Sequence[Detection], others: Sequence[Detection]) -> NDArray[np.bool_]:
    same = [one.desc == other.desc for one in ones for other in others]
    return np.array(same, dtype=np.bool_).reshape(len(ones), len(others))


SIZES = ("small", "medium", "large")
MOST_OBJECTS = (1, 10, 100)  # objects of an image, the surest, that AR looks at
IOUS = tuple((50 + 5 * step) / 100 for step in range(10))


@dataclass(frozen=True, slots=True)
class Detections:
    """The objects that a detector found in one image."""

    objects: tuple[Detection, ...]
    scores: tuple[float, ...]  # one per object; higher is more confident
    tail: tuple[tuple[Detection, float], ...] = ()  # boxes that few views tell of; for mAP only


@dataclass(frozen=True, slots=True)
class Count:
    """The counts of one image from which F1 is computed; counts of several images add up."""

    pairs: tuple[int, ...]  # at each of ``IOUS``
    ignored: tuple[int, ...]  # at each of ``IOUS``, unmatched predicted objects that lie in a crowd
    predicted: int
    true: int
    duplicates: int  # pairs of duplicates (``find_duplicates``)


def score_objects(
    ids: Sequence[int], chances: Sequence[float], spelling: Spelling
) -> tuple[float, ...]:
    """The score of each object in ``ids``, the parsed prefix of an answer.

    ``chances`` are the log-probabilities of the tokens. The score is the probability of the
    object's words (that it exists, and its name) times the geometric mean of the probabilities of
    its four coordinates.
    """
    found, begin = [], len(spelling.opening)
    for places, end in zip(find_boxes(ids, spelling), parse(ids, spelling).ends, strict=True):
        words = sum(
            chances[place]
            for place in range(begin, end - len(spelling.tail))
            if place not in places
        )
        found.append(math.exp(words + sum(chances[place] for place in places) / len(places)))
        begin = end
    return tuple(found)


def compute_figures(
    samples: Sequence[Sample], detections: Sequence[Detections]
) -> dict[str, float]:
    """All metrics of ``detections``, one for each of ``samples``, by name; first that by which
    checkpoints are chosen."""
    return {
        **measure_f1(samples, [each.objects for each in detections]),
        **compute_average_precision(samples, detections),
    }


def measure_f1(samples: Sequence[Sample], told: Sequence[Sequence[Detection]]) -> dict[str, float]:
    """``compute_f1`` of the objects ``told`` in each of ``samples``."""
    return compute_f1([count_matches(*pair) for pair in zip(samples, told, strict=True)])


def count_matches(sample: Sample, objects: Sequence[Detection]) -> Count:
    """The counts for F1 of the predicted ``objects`` of one image."""
    true = list_true_objects(sample)
    matches = [match(objects, true, gate) for gate in IOUS]
    within = _compute_shares_in_crowds(sample, objects)
    ignored = [
        sum(within[number] >= gate for number in each.false_positives)
        for gate, each in zip(IOUS, matches, strict=True)
    ]
    pairs = tuple(len(each.pairs) for each in matches)
    return Count(
        pairs, tuple(ignored), len(objects), len(true), len(find_duplicates(tuple(objects)))
    )


def compute_f1(counts: Sequence[Count]) -> dict[str, float]:
    """F1, precision, recall and duplicates over all images of ``counts``, by name."""
    true = sum(each.true for each in counts)
    predictions = [
        sum(each.predicted - each.ignored[at] for each in counts) for at in range(len(IOUS))
    ]
    right = [sum(each.pairs[at] for each in counts) for at in range(len(IOUS))]
    means = [
        2 * pairs / max(1, predicted + true)
        for pairs, predicted in zip(right, predictions, strict=True)
    ]
    return {
        "f1_50": means[0],
        "miou_f1": sum(means) / len(means),
        "precision_50": right[0] / max(1, predictions[0]),
        "recall_50": right[0] / max(1, true),
        "duplicates": sum(each.duplicates for each in counts),
        "predicted_per_true": predictions[0] / max(1, true),
    }


def choose_threshold(samples: Sequence[Sample], detections: Sequence[Detections]) -> float:
    """The score threshold with the largest F1 at IoU .50, half-way to the next lower score; the
    lowest on ties, 0 if it is best to keep all objects."""
    # for each object: its score, and the pairs it adds to those of higher scores
    gains: list[tuple[float, int]] = []
    for sample, each in zip(samples, detections, strict=True):
        scored = sorted(zip(each.scores, each.objects, strict=True), key=lambda pair: -pair[0])
        true, before = list_true_objects(sample), 0
        for number, (score, _) in enumerate(scored, 1):
            pairs = len(match([one for _, one in scored[:number]], true, IOUS[0]).pairs)
            gains.append((score, pairs - before))
            before = pairs
    gains.sort(key=lambda gain: -gain[0])
    whole, pairs = sum(len(sample.objects) for sample in samples), 0
    best, threshold = 0.0, 0.0
    for kept, (score, gain) in enumerate(gains, 1):
        pairs += gain
        following = gains[kept][0] if kept < len(gains) else 0.0
        found = 2 * pairs / max(1, kept + whole)
        if following < score and found >= best:
            best, threshold = found, (score + following) / 2 if kept < len(gains) else 0.0
    return float(f"{threshold:.6g}")


def compute_average_precision(
    samples: Sequence[Sample], detections: Sequence[Detections]
) -> dict[str, float]:
    """COCO's mAP, mAP at IoU .50 and .75, AP at .50 of each desc, AR, and mAP and AR by size, by
    name. All are 0 without true or without predicted objects; a size without true objects is left
    out."""
    from faster_coco_eval import COCO, COCOeval_faster

    descs = sorted({each.desc for sample in samples for each in sample.objects})
    numbers = {desc: number for number, desc in enumerate(descs, 1)}
    answers = _format_answers(samples, detections, numbers)
    if not descs or not answers:
        names = [
            "mAP",
            "mAP50",
            "mAP75",
            *(f"AP50/{desc}" for desc in descs),
            *(f"AR{most}" for most in MOST_OBJECTS),
        ]
        sizes = [f"{name}_{size}" for name in ("mAP", "AR") for size in _list_sizes(samples)]
        return dict.fromkeys([*names, *sizes], 0.0)
    true = COCO(_format_truth(samples, numbers))
    run = COCOeval_faster(
        true, true.loadRes(answers), iouType="bbox", print_function=lambda *_: None
    )
    run.evaluate()
    run.accumulate()
    # IoUs, recalls, descs, areas; at most 100 objects an image
    precision = run.eval["precision"][..., -1]
    recall = run.eval["recall"]  # IoUs, descs, areas, numbers of objects an image
    of_desc = precision[..., 0].mean(axis=1)  # each desc has a true object
    means = {"mAP": of_desc.mean(), "mAP50": of_desc[0].mean(), "mAP75": of_desc[5].mean()}
    means |= {f"AP50/{desc}": of_desc[0, number - 1] for desc, number in numbers.items()}
    means |= {f"AR{most}": recall[:, :, 0, at].mean() for at, most in enumerate(MOST_OBJECTS)}
    places = {size: 1 + SIZES.index(size) for size in _list_sizes(samples)}
    means |= {f"mAP_{size}": _mean(precision[..., at]) for size, at in places.items()}
    means |= {f"AR_{size}": _mean(recall[:, :, at, -1]) for size, at in places.items()}
    return {name: float(value) for name, value in means.items()}


def _mean(values: Any) -> float:
    """The mean without -1, which stands for a desc without objects of a size."""
    return float(values[values > -1].mean())


def _list_sizes(samples: Sequence[Sample]) -> list[str]:
    """The sizes of true objects, small first. An object exactly at a border has both sizes, as in
    COCO."""
    areas = [
        (x2 - x1) * (y2 - y1)
        for sample in samples
        for x1, y1, x2, y2 in (each.box for each in sample.objects)
    ]
    borders = (0, 32**2, 96**2, math.inf)
    return [
        size
        for size, low, high in zip(SIZES, borders, borders[1:], strict=False)
        if any(low <= each <= high for each in areas)
    ]


def _compute_shares_in_crowds(sample: Sample, objects: Sequence[Detection]) -> list[float]:
    """For each of ``objects``, the largest fraction of its area that lies in a crowd of its
    desc."""
    crowds = [(each.desc, bins_of(each.box, sample.width, sample.height)) for each in sample.crowds]

    def share(one: Detection, other: tuple[int, int, int, int]) -> float:
        (x1, y1, x2, y2), (left, top, right, bottom) = one.bins, other
        area = (x2 - x1) * (y2 - y1)
        shared = max(0, min(x2, right) - max(x1, left)) * max(0, min(y2, bottom) - max(y1, top))
        return shared / area if area else 0.0

    return [
        max((share(one, box) for desc, box in crowds if desc == one.desc), default=0.0)
        for one in objects
    ]


def _format_truth(samples: Sequence[Sample], numbers: dict[str, int]) -> dict[str, Any]:
    images = [
        {"id": at, "width": sample.width, "height": sample.height}
        for at, sample in enumerate(samples, 1)
    ]
    objects = [
        {
            "image_id": at,
            "category_id": numbers[each.desc],
            "iscrowd": iscrowd,
            **_format_box(each.box),
        }
        for at, sample in enumerate(samples, 1)
        for iscrowd, part in enumerate((sample.objects, sample.crowds))
        for each in part
        if each.desc in numbers
    ]
    return {
        "images": images,
        "annotations": [{"id": at, **each} for at, each in enumerate(objects, 1)],
        "categories": [{"id": number, "name": desc} for desc, number in numbers.items()],
    }


def _format_answers(
    samples: Sequence[Sample], detections: Sequence[Detections], numbers: dict[str, int]
) -> list[dict[str, Any]]:
    return [
        {"image_id": at, "category_id": numbers[each.desc], "score": score}
        | _format_box(box_of(each.bins, sample.width, sample.height))
        for at, (sample, said) in enumerate(zip(samples, detections, strict=True), 1)
        for each, score in (*zip(said.objects, said.scores, strict=True), *said.tail)
        if each.desc in numbers
    ]


def _format_box(box: tuple[float, float, float, float]) -> dict[str, Any]:
    x1, y1, x2, y2 = box
    return {"bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1)}
