"""What is taught: on channel A the truth, on channel B a rollout set right.

A rollout is kept as far as it can be read and is right, not a token of it changed, and what it missed is appended: so the
model is taught behind its own beginnings, as it will answer. Of the kept part only boxes are taught: those of matched
objects towards the truth, and those of false positives, where they are kept and it is asked for, against themselves.

False positives that are kept teach to go on: behind an answer that told as many objects as there are, some of them wrong,
the truth goes on with those it missed, and the model learns that where it would end it must not.
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
    """Channel A: the answer that lists ``true``, all of it taught, and behind it ``noise``, but for its coordinates."""
    made = write_answer((*true, *noise), spelling)
    slots = tuple(CoordinateSlot(places, each.bins) for places, each in zip(made.boxes, true, strict=False))
    return Target(made.ids, tuple(token not in spelling.bins for token in made.ids), slots)


def count_totals(truths: Iterable[Target]) -> StepTotals:
    """What ``truths``, made by ``make_true_target`` of all images of a step, hold."""
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
    """Channel B: what is kept of ``answer``, then those of ``true`` that this misses, then the closing.

    ``parsed`` is what of its tokens could be read, and ``matched`` how that was paired with ``true``, by ``match_prefix``
    for ``cut``. Text is taught from the end of the kept part on; boxes of matched objects and of appended ones. False
    positives end the kept part before the first of them (``cut``); otherwise they stay, and their coordinates are taught
    against: those of near-duplicates, of all of them, or of none.
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
    """Channel B, where false positives are ``noise``: the boxes of an answer as they were told, then those of ``true`` that
    they miss, then ``noise``.

    ``matched`` says which box is which true object, whatever either is called. Boxes of true objects are given their names
    and taught their coordinates, others are named noise and taught none; all text is taught.
    """
    pairs = dict(matched.pairs)
    names = [true[pairs[number]].desc if number in pairs else NOISE for number in range(len(parsed.objects))]
    told = [replace(each, desc=name) for each, name in zip(parsed.objects, names, strict=True)]
    missed = [true[number] for number in matched.missed]
    made = write_answer((*told, *missed, *noise), spelling)
    slots = [CoordinateSlot(made.boxes[predicted], true[number].bins) for predicted, number in pairs.items()]
    slots += [CoordinateSlot(made.boxes[len(told) + at], each.bins) for at, each in enumerate(missed)]
    return Target(made.ids, tuple(token not in spelling.bins for token in made.ids), tuple(slots))
