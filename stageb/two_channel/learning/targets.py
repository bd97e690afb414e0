"""Training targets: in channel A the true answer, in channel B a rollout, matched with the truth
and corrected.

A rollout is kept, token by token, as far as it can be parsed and is right, and the objects that it
missed are appended. So the model is trained on continuations of its own prefixes, as at inference.
In the kept part only boxes carry a loss: matched boxes are pulled towards the truth.

An answer is cut before its first false positive. Those that are kept teach the model to continue:
after as many objects as the image has, some of them wrong, the target continues with the missed
ones where the model would have ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stageb.two_channel.boxes.metrics import find_duplicates, match, match_prefix, prefer_first
from stageb.two_channel.boxes.text import (
    Spelling,
    find_boxes,
    list_true_objects,
    parse,
    write_answer,
)
from stageb.two_channel.types import (
    CoordinateSlot,
    Detection,
    DetectorRollout,
    Match,
    ParsedAnswer,
    Sample,
    StepTotals,
    Target,
)


def make_true_target(true: Sequence[Detection], spelling: Spelling) -> Target:
    """Channel A: the answer that lists ``true``. All of it is trained on."""
    made = write_answer(true, spelling)
    slots = tuple(
        CoordinateSlot(places, each.bins) for places, each in zip(made.boxes, true, strict=True)
    )
    return Target(made.ids, tuple(token not in spelling.bins for token in made.ids), slots)


def count_totals(truths: Iterable[Target]) -> StepTotals:
    """The totals of ``truths``, the results of ``make_true_target`` for all images of a step."""
    counts = [(len(each.slots), sum(each.taught)) for each in truths]
    return StepTotals(sum(objects for objects, _ in counts), sum(text for _, text in counts))


def make_corrected_target(
    answer: Sequence[int],
    parsed: ParsedAnswer,
    matched: Match,
    true: Sequence[Detection],
    spelling: Spelling,
) -> Target:
    """Channel B: ``answer`` up to its first false positive, then the objects of ``true`` that this
    misses, then the end.

    ``parsed`` is the parsed part of ``answer``, and ``matched`` its match with ``true``, by
    ``match_prefix``. Text after the kept part is trained on, and the boxes of matched and appended
    objects.
    """
    matched = prefer_first(matched, parsed.objects)
    count = min(matched.false_positives, default=len(parsed.objects))
    pairs = {predicted: number for predicted, number in matched.pairs if predicted < count}
    missed = [each for number, each in enumerate(true) if number not in pairs.values()]
    kept = tuple(answer[: (0, *parsed.ends)[count]])
    made = write_answer(missed, spelling, behind=kept)
    boxes = find_boxes(kept, spelling)
    slots = [
        CoordinateSlot(boxes[predicted], true[number].bins) for predicted, number in pairs.items()
    ]
    slots += [
        CoordinateSlot(places, each.bins) for places, each in zip(made.boxes, missed, strict=True)
    ]
    return Target(
        made.ids,
        tuple(
            place >= len(kept) and token not in spelling.bins
            for place, token in enumerate(made.ids)
        ),
        tuple(slots),
    )


@dataclass(frozen=True, slots=True)
class Correction:
    """The figures of one rollout."""

    tokens: int  # that the model wrote
    kept: int  # of these, how many the target begins with
    ended: bool  # the model ended its answer itself
    truncated: bool  # well-formed, but cut off before its end
    malformed: bool  # not well-formed
    unread: bool  # no object could be parsed, so it counts as empty
    overlong: bool  # its target would not fit into packing.max_length, so it counts as empty too
    predicted: int  # objects that were parsed
    true: int  # objects of the image
    matched: int  # pairs of these
    duplicates: int  # pairs of predicted objects that are duplicates
    version: int  # optimiser steps of the weights that wrote it

    @property
    def f1(self) -> float:
        """F1 at ``channel_b.min_iou``; 1 if the image has no objects and none were predicted."""
        return _ratio(2 * self.matched, self.predicted + self.true)


def correct_rollout(
    sample: Sample, rollout: DetectorRollout, spelling: Spelling, gate: float, room: int
) -> tuple[Target, Correction]:
    """Channel B: the target that ``rollout``, matched from an IoU of ``gate`` on, is corrected to,
    of at most ``room`` tokens, and its figures. If the corrected answer does not fit, the target is
    the true answer."""
    true, parsed = list_true_objects(sample), parse(rollout.ids, spelling)
    matched = match(parsed.objects, true, gate)
    target = make_corrected_target(
        rollout.ids, parsed, match_prefix(parsed.objects, true, gate), true, spelling
    )
    overlong = len(target.ids) > room
    if overlong:
        target = make_true_target(true, spelling)
    return target, Correction(
        tokens=len(rollout.ids),
        kept=0 if overlong else target.taught.index(True),
        ended=rollout.ended,
        truncated=parsed.truncated,
        malformed=not (parsed.complete or parsed.truncated),
        unread=not (parsed.objects or parsed.complete),
        overlong=overlong,
        predicted=len(parsed.objects),
        true=len(true),
        matched=len(matched.pairs),
        duplicates=len(find_duplicates(parsed.objects)),
        version=rollout.version,
    )


def summarise(outcomes: Sequence[Correction]) -> dict[str, float | None]:
    """The figures of the rollouts of a step, by their names in metrics.jsonl; rates are from 0 to
    1.

    ``precision`` (None if nothing was predicted) and ``recall`` are over all objects together;
    ``match_rate`` is the mean over images of the fraction found; ``_p10`` and ``_p90`` are the 10th
    and 90th percentile over images.
    """
    count = len(outcomes)
    predicted, true, matched = (
        sum(getattr(each, name) for each in outcomes) for name in ("predicted", "true", "matched")
    )
    lengths, scores = sorted(each.tokens for each in outcomes), sorted(each.f1 for each in outcomes)
    return {
        "stage2/raw_rollouts": count,
        "stage2/invalid_rollout": sum(each.unread for each in outcomes),
        "rollout/parse_truncated_rate": sum(each.truncated for each in outcomes) / count,
        "rollout/parse_malformed_rate": sum(each.malformed for each in outcomes) / count,
        "rollout/sample_valid_pred_rate": sum(each.predicted > 0 for each in outcomes) / count,
        "rollout/end_of_answer_rate": sum(each.ended for each in outcomes) / count,
        "rollout/overlong_rate": sum(each.overlong for each in outcomes) / count,
        "rollout/precision": matched / predicted if predicted else None,
        "rollout/recall": _ratio(matched, true),
        "rollout/f1": _ratio(2 * matched, predicted + true),
        "rollout/f1_p10": scores[count // 10],
        "rollout/match_rate": sum(_ratio(each.matched, each.true) for each in outcomes) / count,
        "rollout/predicted_per_true": predicted / max(1, true),
        "rollout/duplicate_pairs": sum(each.duplicates for each in outcomes),
        "rollout/duplicate_pairs_max": max(each.duplicates for each in outcomes),
        "rollout/tokens": sum(lengths) / count,
        "rollout/tokens_p90": lengths[min(count - 1, 9 * count // 10)],
        "rollout/tokens_max": lengths[-1],
        "rollout/kept_tokens": sum(each.kept for each in outcomes) / count,
        "rollout/weight_version": min(each.version for each in outcomes),
    }


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 1.0
