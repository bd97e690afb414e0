"""Detections in images: greedy answers, read as far as they can be, and fused over views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

from stageb.engines.protocol import Decode
from stageb.job.world import World
from stageb.two_channel.boxes import metrics
from stageb.two_channel.boxes.metrics import Detections
from stageb.two_channel.boxes.text import cut_before_special, parse
from stageb.two_channel.config import TwoChannelConfig
from stageb.two_channel.learning import rollout
from stageb.two_channel.learning.rollout import Writer
from stageb.two_channel.types import Detection, Sample


def detect_on_ranks(
    world: World, writer: Writer, samples: Sequence[Sample], config: TwoChannelConfig
) -> list[Detections]:
    """Detections in all ``samples``, on every rank; each rank computes its share."""
    with world.at("evaluation"):
        mine = detect(writer, world.share(samples), config)
    rows = world.join_shares(world.collect([astuple(each) for each in mine]))
    return [
        Detections(
            tuple(Detection(desc, tuple(bins)) for desc, bins in objects),
            tuple(scores),
            tuple((Detection(desc, tuple(bins)), score) for (desc, bins), score in tail),
        )
        for objects, scores, tail in rows
    ]


def detect(writer: Writer, samples: Sequence[Sample], config: TwoChannelConfig) -> list[Detections]:
    """Detections in each of ``samples``, fused over ``evaluation.views`` views."""
    answers = []
    for view in rollout.list_views(config.augmentation, config.evaluation.views):
        shown = [rollout.show(sample, view) for sample in samples]
        answers.append(
            [rollout.restore(each, view) for each in detect_in_view(writer, shown, config)]
        )
    return (
        answers[0]
        if len(answers) == 1
        else [rollout.fuse(each) for each in zip(*answers, strict=True)]
    )


def detect_in_view(
    writer: Writer, samples: Sequence[Sample], config: TwoChannelConfig
) -> list[Detections]:
    """Detections in each of ``samples`` with greedy decoding, as far as the answers can be
    parsed."""
    spelling = writer.detector.spelling
    greedy = Decode(temperature=0.0, max_new_tokens=config.channel_b.max_new_tokens)
    rollouts = writer.write(samples, [0] * len(samples), greedy)
    answers = [cut_before_special(each.ids, spelling) for each in rollouts]
    found = []
    for ids, each in zip(answers, writer.chances(samples, answers), strict=True):
        parsed = parse(ids, spelling)
        kept = ids[: parsed.tokens]
        found.append(Detections(parsed.objects, metrics.score_objects(kept, each, spelling)))
    return found
