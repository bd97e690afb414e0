"""Training targets: in channel A the true answer, in channel B a corrected rollout.

A rollout is kept, token by token, as far as it can be parsed and is right, and the objects that it missed are appended. So
the model is trained on continuations of its own prefixes, as at inference. In the kept part only boxes carry a loss: matched
boxes are pulled towards the truth, and false positives, if they are kept, may get an unlikelihood loss.

False positives that are kept teach the model to continue: after as many objects as the image has, some of them wrong, the
target continues with the missed ones where the model would have ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from stageb.two_channel.config import FalsePositives
from stageb.two_channel.matching import prefer_first
from stageb.two_channel.noise import NOISE
from stageb.two_channel.text import Spelling, find_boxes, write_answer
from stageb.two_channel.types import CoordinateSlot, Detection, Match, ParsedAnswer, StepTotals, Target


def make_true_target(true: Sequence[Detection], spelling: Spelling, noise: Sequence[Detection] = ()) -> Target:
    """Channel A: the answer that lists ``true`` and then ``noise``. All of it is trained on except the coordinates of
    noise."""
    made = write_answer((*true, *noise), spelling)
    slots = tuple(CoordinateSlot(places, each.bins) for places, each in zip(made.boxes, true, strict=False))
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
    false_positives: FalsePositives,
) -> Target:
    """Channel B: the kept part of ``answer``, then the objects of ``true`` that it misses, then the end.

    ``parsed`` is the parsed part of ``answer``, and ``matched`` its match with ``true``, by ``match_prefix`` for ``cut``.
    Text after the kept part is trained on, and the boxes of matched and appended objects. With ``cut``, the kept part ends
    before the first false positive; otherwise false positives stay, and the coordinates of near-duplicates (``duplicates``),
    of all of them (``all``) or of none (``neutral``) get an unlikelihood loss.
    """
    matched = prefer_first(matched, parsed.objects)
    wrong = {"duplicates": matched.duplicates, "all": matched.false_positives}.get(false_positives, ())
    whole = len(parsed.objects)
    count = min(matched.false_positives, default=whole) if false_positives == "cut" else whole
    pairs = {predicted: number for predicted, number in matched.pairs if predicted < count}
    missed = [each for number, each in enumerate(true) if number not in pairs.values()]
    kept = tuple(answer[: (0, *parsed.ends)[count]])
    made = write_answer(missed, spelling, behind=kept)
    told = find_boxes(kept, spelling)
    slots = [CoordinateSlot(told[predicted], true[number].bins) for predicted, number in pairs.items()]
    slots += [CoordinateSlot(places, each.bins) for places, each in zip(made.boxes, missed, strict=True)]
    return Target(
        made.ids,
        tuple(place >= len(kept) and token not in spelling.bins for place, token in enumerate(made.ids)),
        tuple(slots),
        tuple(place for number in wrong for place in told[number]),
    )


def make_renamed_target(
    parsed: ParsedAnswer, matched: Match, true: Sequence[Detection], spelling: Spelling, noise: Sequence[Detection]
) -> Target:
    """Channel B with ``false_positives: noise``: the boxes of an answer, renamed, then the objects of ``true`` that they
    miss, then ``noise``.

    ``matched`` pairs boxes with true objects regardless of names. Matched boxes get the names of their objects, and their
    coordinates are trained on; the others are named noise, and theirs are not. All text is trained on.
    """
    pairs = dict(matched.pairs)
    names = [true[pairs[number]].desc if number in pairs else NOISE for number in range(len(parsed.objects))]
    told = [replace(each, desc=name) for each, name in zip(parsed.objects, names, strict=True)]
    missed = [true[number] for number in matched.missed]
    made = write_answer((*told, *missed, *noise), spelling)
    slots = [CoordinateSlot(made.boxes[predicted], true[number].bins) for predicted, number in pairs.items()]
    slots += [CoordinateSlot(made.boxes[len(told) + at], each.bins) for at, each in enumerate(missed)]
    return Target(made.ids, tuple(token not in spelling.bins for token in made.ids), tuple(slots))
