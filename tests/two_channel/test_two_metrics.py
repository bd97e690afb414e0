"""Figures against figures by hand and by pycocotools' definition; pictures that show what is
wrong."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from two_channel.spelt import spelling

from stageb.two_channel.boxes import drawing
from stageb.two_channel.boxes.metrics import (
    IOUS,
    Detections,
    compute_average_precision,
    compute_f1,
    compute_figures,
    count_matches,
    match,
    score_objects,
)
from stageb.two_channel.boxes.text import bins_of, list_true_objects, parse, write_answer
from stageb.two_channel.commands.evaluate import format_table
from stageb.two_channel.types import Box, Detection, Object, Sample

SIZE = 999  # a pixel is a bin


def sample(*objects: tuple[str, Box]) -> Sample:
    return Sample(str(objects), "none.png", SIZE, SIZE, tuple(Object(*each) for each in objects))


def placed(desc: str, *box: float) -> Detection:
    x1, y1, x2, y2 = box
    return Detection(desc, bins_of((x1, y1, x2, y2), SIZE, SIZE))


def told(*objects: Detection, scores: tuple[float, ...] = ()) -> Detections:
    return Detections(objects, scores or (1.0,) * len(objects))


def test_what_is_right_scores_one_and_what_is_not_told_scores_nothing() -> None:
    samples = [
        sample(("a", (0, 0, 50, 50)), ("b", (100, 100, 400, 300))),
        sample(("a", (5, 5, 600, 700))),
        sample(),
    ]
    perfect = compute_figures(samples, [told(*list_true_objects(each)) for each in samples])
    assert all(
        perfect[name] == pytest.approx(1)
        for name in ("mAP", "mAP50", "mAP75", "AP50/a", "AP50/b", "f1_50", "miou_f1")
    )
    assert (perfect["duplicates"], perfect["predicted_per_true"]) == (0, 1)
    silent = compute_figures(samples, [told()] * 3)
    assert silent["mAP"] == silent["f1_50"] == silent["recall_50"] == silent["AP50/b"] == 0
    strange = compute_average_precision(samples, [told(placed("c", 0, 0, 50, 50)), told(), told()])
    assert strange["mAP"] == 0 and set(strange) == set(perfect) - set(compute_f1([]))
    assert compute_figures([sample()], [told()])["mAP"] == 0


def test_figures_by_hand() -> None:
    true = sample(("a", (0, 0, 100, 100)), ("a", (200, 200, 300, 300)))
    # one of IoU .62, told twice; one of another desc in the right place; one in no place
    said = [
        placed("a", 0, 0, 100, 62),
        placed("a", 0, 0, 100, 60),
        placed("b", 200, 200, 300, 300),
        placed("a", 500, 0, 600, 9),
    ]
    counted = count_matches(true, said)
    assert counted.pairs == (1, 1, 1, *[0] * 7) and (
        counted.predicted,
        counted.true,
        counted.duplicates,
    ) == (4, 2, 1)
    found = compute_f1([counted, count_matches(true, list_true_objects(true))])
    assert found["f1_50"] == pytest.approx(2 * 3 / (6 + 4))
    assert found["miou_f1"] == pytest.approx(sum(2 * (2 + (iou <= 0.62)) / 10 for iou in IOUS) / 10)
    assert (found["precision_50"], found["recall_50"]) == (3 / 6, 3 / 4)
    assert found["predicted_per_true"] == 6 / 4


def test_f1_of_what_a_threshold_keeps_stands_beside_f1() -> None:
    true = sample(("a", (0, 0, 100, 100)), ("a", (200, 200, 300, 300)))
    said = [
        told(
            *list_true_objects(true),
            placed("a", 500, 0, 600, 9),
            placed("a", 0, 500, 9, 600),
            scores=(0.9, 0.5, 0.5, 0.4),
        )
    ]
    plain = format_table([true], said, None)
    place = next(
        number for number, line in enumerate(plain) if line.startswith("F1       0.667 at IoU .50")
    )
    beside = (
        "         0.800 with scores of at least 0.5, chosen on val (precision 0.667, recall 1.000)"
    )
    assert format_table([true], said, 0.5) == [*plain[: place + 1], beside, *plain[place + 1 :]]


def test_average_precision_is_by_score() -> None:
    true = sample(("a", (0, 0, 100, 100)), ("a", (200, 200, 300, 300)))
    right, wrong = placed("a", 0, 0, 100, 100), placed("a", 500, 0, 600, 90)
    first = compute_average_precision([true], [told(right, wrong, scores=(0.9, 0.1))])["mAP50"]
    last = compute_average_precision([true], [told(right, wrong, scores=(0.1, 0.9))])["mAP50"]
    # recall reaches a half, at a precision of 1 or 1/2: 51 of the 101 recall points (0, .01, ...,
    # .5)
    assert first == pytest.approx(51 / 101) and last == pytest.approx(51 / 101 / 2)


def test_sizes_and_recalls_by_hand() -> None:
    small, medium, large = (
        ("a", (0, 0, 32, 32)),
        ("a", (100, 100, 190, 190)),
        ("a", (300, 300, 500, 500)),
    )
    true = sample(("b", (0, 0, 10, 10)), medium, large)
    said = told(placed("a", 100, 100, 190, 190), placed("a", 600, 0, 610, 9), scores=(0.5, 0.9))
    found = compute_average_precision([true], [said])
    # the surest, which is wrong, is small: it counts neither for medium nor for large objects
    assert (
        found["mAP_small"] == 0
        and found["mAP_medium"] == pytest.approx(1)
        and found["mAP_large"] == 0
    )
    assert [found[f"AR_{size}"] for size in ("small", "medium", "large")] == pytest.approx(
        [0, 1, 0]
    )
    # mean of a, one of two, and b, none
    assert [found["AR1"], found["AR10"]] == pytest.approx([0, 0.25])
    assert not any(
        name.endswith("small") for name in compute_average_precision([sample(medium)], [said])
    )
    silent = compute_average_precision([sample(small)], [told()])
    # right at 32^2
    assert (
        silent["mAP_small"] == silent["mAP_medium"] == silent["AR100"] == 0
        and "mAP_large" not in silent
    )


def test_what_is_told_in_a_crowd_counts_neither_way() -> None:
    crowd = (Object("a", (400, 400, 900, 900)),)
    true = replace(sample(("a", (0, 0, 100, 100))), crowds=crowd)
    right, within, twice = (
        placed("a", 0, 0, 100, 100),
        placed("a", 500, 500, 600, 600),
        placed("a", 510, 500, 600, 600),
    )
    other, half = placed("b", 500, 500, 600, 600), placed("a", 300, 500, 500, 600)
    found = compute_figures([true], [told(right, within, twice, scores=(0.1, 0.9, 0.8))])
    assert (
        found["mAP"] == pytest.approx(1)
        and found["f1_50"] == found["precision_50"] == found["predicted_per_true"] == 1
    )
    assert found["miou_f1"] == 1
    assert count_matches(true, [right, other]).ignored == (0,) * 10
    # by the share of its own area: a half
    assert count_matches(true, [half]).ignored == (1,) + (0,) * 9
    assert compute_figures([replace(true, crowds=())], [told(right, within, scores=(0.1, 0.9))])[
        "f1_50"
    ] == pytest.approx(2 / 3)


@pytest.mark.parametrize("box_first", [False, True])
def test_an_objects_score_is_that_of_its_own_tokens(box_first: bool) -> None:
    s = spelling(box_first)
    objects = [Detection("RBC", (1, 2, 3, 4)), Detection("Platelets", (5, 6, 7, 8))]
    made = write_answer(objects, s)
    ids = made.ids
    kept = ids[: parse(ids, s).tokens]
    half = [math.log(0.5)] * len(kept)
    places = made.boxes[1]
    sure = [0.0 if place not in places else each for place, each in enumerate(half)]
    assert score_objects(kept, sure, s) == pytest.approx((1, 0.5))  # of four coordinates the mean
    sure[places[0] - 1] = math.log(0.1)
    assert score_objects(kept, sure, s) == pytest.approx((1, 0.05))
    first = parse(ids[:-9], s).tokens
    assert score_objects(kept[:first], sure, s) == pytest.approx((1,))
    unsure = [math.log(0.1) if place < first else 0.0 for place in range(len(kept))]
    assert score_objects(kept, unsure, s)[1] == 1  # what stands before it does not count


def test_pictures_show_what_was_missed_and_what_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.new("RGB", (96, 64), "white").save(path)
    shown = Sample(
        "a", str(path), 96, 64, (Object("a", (0, 0, 48, 32)), Object("b", (48, 32, 96, 64)))
    )
    true = list_true_objects(shown)
    predicted = [true[0], Detection("c", (500, 0, 999, 400))]
    made = drawing.draw_pair(shown, predicted, true, match(predicted, true, 0.5))
    assert made.size == (2 * drawing.WIDTH + drawing.GAP, round(64 * drawing.WIDTH / 96))

    def has(colour: tuple[int, int, int], left: int) -> bool:
        half = made.crop((left, 0, left + drawing.WIDTH, made.height))
        return colour in {each for _, each in half.getcolors(1 << 20)}

    right = drawing.WIDTH + drawing.GAP
    assert all(has(colour, left) for colour in (drawing.GREEN, drawing.RED) for left in (0, right))
    clean = drawing.draw_pair(shown, true, true, match(true, true, 0.5))
    assert drawing.RED not in {each for _, each in clean.getcolors(1 << 20)}
    whole = drawing.arrange([made] * 3)
    assert whole.size == (2 * made.width + 3 * drawing.GAP, 2 * made.height + 3 * drawing.GAP)
