"""From rollouts to training targets: parse, match with the truth, correct; and figures of rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stageb.two_channel.config import TwoChannelConfig
from stageb.two_channel.matching import find_duplicates, match, match_prefix, prefer_first
from stageb.two_channel.noise import draw_noise, drop_noise
from stageb.two_channel.targets import make_corrected_target, make_renamed_target, make_true_target
from stageb.two_channel.text import Spelling, list_true_objects, parse
from stageb.two_channel.types import Detection, ParsedAnswer, Rollout, Sample, Target


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
    sample: Sample, rollout: Rollout, spelling: Spelling, config: TwoChannelConfig, room: int, key: int
) -> tuple[Target, Correction]:
    """Channel B: the target that ``rollout`` is corrected to, of at most ``room`` tokens, and its figures. Noise is drawn
    from the stream ``key``. If the corrected answer does not fit, the target is the true answer."""
    true, parsed, gate = list_true_objects(sample), parse(rollout.ids, spelling), config.channel_b.min_iou
    predicted = drop_noise(parsed.objects) if config.answer.object_budget else parsed.objects
    matched = match(predicted, true, gate)
    target = _make_target(rollout.ids, parsed, true, spelling, config, key)
    overlong = len(target.ids) > room
    if overlong:
        target = make_true_target(true, spelling, draw_noise(true, config.answer.object_budget - len(true), key))
    kept = 0 if overlong else parsed.tokens if config.channel_b.false_positives == "noise" else target.taught.index(True)
    return target, Correction(
        tokens=len(rollout.ids),
        kept=kept,
        ended=rollout.ended,
        truncated=parsed.truncated,
        malformed=not (parsed.complete or parsed.truncated),
        unread=not (parsed.objects or parsed.complete),
        overlong=overlong,
        predicted=len(predicted),
        true=len(true),
        matched=len(matched.pairs),
        duplicates=len(find_duplicates(predicted)),
        version=rollout.version,
    )


def _make_target(
    answer: Sequence[int],
    parsed: ParsedAnswer,
    true: Sequence[Detection],
    spelling: Spelling,
    config: TwoChannelConfig,
    key: int,
) -> Target:
    """The target for ``answer``, whose parsed part is ``parsed``, by ``channel_b.false_positives``."""
    treated, gate = config.channel_b.false_positives, config.channel_b.min_iou
    if treated == "noise":
        boxes = [replace(each, desc="") for each in parsed.objects]
        matched = prefer_first(match(boxes, [replace(each, desc="") for each in true], gate), boxes)
        missing = config.answer.object_budget - len(boxes) - len(matched.missed)
        return make_renamed_target(parsed, matched, true, spelling, draw_noise(true, missing, key))
    matched = (match_prefix if treated == "cut" else match)(parsed.objects, true, gate)
    return make_corrected_target(answer, parsed, matched, true, spelling, treated)


def summarise(outcomes: Sequence[Correction]) -> dict[str, float | None]:
    """The figures of the rollouts of a step, by their names in metrics.jsonl; rates are from 0 to 1.

    ``precision`` (None if nothing was predicted) and ``recall`` are over all objects together; ``match_rate`` is the mean
    over images of the fraction found; ``_p10`` and ``_p90`` are the 10th and 90th percentile over images.
    """
    count = len(outcomes)
    predicted, true, matched = (sum(getattr(each, name) for each in outcomes) for name in ("predicted", "true", "matched"))
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
