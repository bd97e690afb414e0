"""Channel C: policy gradients from the rewards of several answers to an image (REINFORCE, Williams 1992; for detectors Pinto
et al. 2023, "Tuning computer vision models with task rewards").

- The *reward* of an answer is F1, averaged over the IoUs .50, .55, ..., .95, less a price for each repeated object.
- Its *advantage* is its reward less the mean of the other answers to the image (leave-one-out, Kool et al. 2019). It is not
  divided by the standard deviation, which would amplify images whose answers are nearly equal.
- The *credit* of an object is what its answer would lose without it (difference reward, Wolpert & Tumer 2002), less the mean
  over the answer's objects: credits shift weight between objects and keep their mean at the answer's advantage.

Every token is weighed by the advantage of its answer, and the tokens of an object also by its credit. The loss is minus the
weighted sum of log-probabilities, which the learner recomputes; without credits, its gradient is minus that of the expected
reward.
"""

from __future__ import annotations

from collections.abc import Sequence

from stageb.two_channel import metrics
from stageb.two_channel.matching import find_duplicates
from stageb.two_channel.text import Spelling, cut_before_special
from stageb.two_channel.types import Detection, ParsedAnswer, Rollout, Sample, Target


def compute_reward(sample: Sample, objects: Sequence[Detection], duplicate_price: float) -> float:
    """The reward of an answer that lists ``objects``: F1 less the price of repeats, at most 1; 1 if the image has no
    objects and none are listed.

    At each IoU it is (2 x pairs - ``duplicate_price`` x repeated) / (predicted + true), where an object is repeated if
    ``matching.find_duplicates`` pairs it with an earlier one.
    """
    counted = metrics.count_matches(sample, objects)
    repeated = len({later for _, later in find_duplicates(objects)})
    scores = []
    for pairs, ignored in zip(counted.pairs, counted.ignored, strict=True):
        whole = counted.predicted - ignored + counted.true
        scores.append((2 * pairs - duplicate_price * repeated) / whole if whole else 1.0)
    return sum(scores) / len(scores)


def compute_advantages(rewards: Sequence[float]) -> list[float]:
    """For each answer to an image, its reward less the mean reward of the others (at least two answers)."""
    total, others = sum(rewards), len(rewards) - 1
    return [each - (total - each) / others for each in rewards]


def compute_credits(sample: Sample, objects: Sequence[Detection], duplicate_price: float) -> list[float]:
    """For each of ``objects``, the reward that the answer would lose without it, less the mean of these losses."""
    whole = compute_reward(sample, objects, duplicate_price)
    rests = [(*objects[:at], *objects[at + 1 :]) for at in range(len(objects))]
    losses = [whole - compute_reward(sample, rest, duplicate_price) for rest in rests]
    return [each - sum(losses) / len(losses) for each in losses]


def make_rewarded_target(
    rollout: Rollout, parsed: ParsedAnswer, advantage: float, object_credits: Sequence[float], spelling: Spelling
) -> Target:
    """The target of an answer as it was written: each token is weighed by the ``advantage``, the tokens of an object also by
    its credit. It ends before tokens that the model cannot be fed (``text.cut_before_special``)."""
    ids = cut_before_special(rollout.ids, spelling)
    weights = [advantage] * len(ids)
    begin = len(spelling.opening)
    for credit, end in zip(object_credits, parsed.ends, strict=True):
        for place in range(begin, end):
            weights[place] += credit
        begin = end + len(spelling.comma)
    return Target(ids, (False,) * len(ids), (), weights=tuple(weights))
