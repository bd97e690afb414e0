"""Answers with the most probable tokens for images that were not learnt from, and how good they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from stageb.engines.protocol import Decode
from stageb.two_channel.config import TwoChannelConfig
from stageb.two_channel.rollout import Writer
from stageb.two_channel.text import Spelling, boxes_in, parse, seen
from stageb.two_channel.types import Sample

Ids = tuple[int, ...]
Rows = list[list[Any]]  # of an image's objects: desc, x1, y1, x2, y2, score


def answered(writer: Writer, samples: Sequence[Sample], spelling: Spelling, config: TwoChannelConfig) -> list[Rows]:
    """The objects that the model finds in each of ``samples``, in pixels, each with its score."""
    greedy = Decode(temperature=0.0, max_new_tokens=config.channel_b.max_new_tokens)
    written = writer.write(samples, [0] * len(samples), greedy)
    chances = writer.chances(samples, [each.ids for each in written])
    found = []
    for sample, answer, each in zip(samples, written, chances, strict=True):
        parsed = parse(answer.ids, spelling)
        objects = seen(parsed.objects, sample.width, sample.height)
        scores = scores_of(answer.ids[: parsed.tokens], each, spelling)
        found.append([[one.desc, *one.box, score] for one, score in zip(objects, scores, strict=True)])
    return found


def scores_of(ids: Ids, chances: Sequence[float], spelling: Spelling) -> list[float]:
    """How sure the model was of each object in ``ids``, a beginning that can be read, whose tokens have log-probabilities
    ``chances``: the probability of its words, times the geometric mean of those of its four coordinates."""
    scores, begin = [], 0
    for places in boxes_in(ids, spelling):
        words = sum(chances[place] for place in range(begin, places[-1]) if place not in places)
        scores.append(math.exp(words + sum(chances[place] for place in places) / 4))
        begin = places[-1] + 1
    return scores


def figures(samples: Sequence[Sample], found: Sequence[Rows]) -> dict[str, float]:
    return {}
