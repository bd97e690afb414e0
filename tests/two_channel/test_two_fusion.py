"""Answers in several views come back to where the image has them, and are fused as by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from two_channel import made

from stageb.errors import ConfigError
from stageb.two_channel.boxes import augmentation
from stageb.two_channel.boxes.augmentation import ImageView
from stageb.two_channel.boxes.metrics import Detections
from stageb.two_channel.boxes.text import bins_of, list_true_objects
from stageb.two_channel.config import AugmentationConfig, DetectorEvaluationConfig
from stageb.two_channel.learning import rollout
from stageb.two_channel.model.stored import ModelMetadata
from stageb.two_channel.types import BINS, Bins, Detection, Object, Sample

EVERY = AugmentationConfig(mirror=True, upend=True, turn=True)
spans = (
    st.tuples(st.integers(0, BINS - 2), st.integers(0, BINS - 2))
    .map(sorted)
    .filter(lambda span: span[0] < span[1])
)
boxes = st.tuples(spans, spans).map(lambda pair: (pair[0][0], pair[1][0], pair[0][1], pair[1][1]))


def told(*objects: tuple[str, Bins, float]) -> Detections:
    return Detections(
        tuple(Detection(desc, box) for desc, box, _ in objects),
        tuple(score for *_, score in objects),
    )


def test_views_are_what_augmentation_makes() -> None:
    assert rollout.list_views(EVERY, 1) == [ImageView()]
    assert rollout.list_views(EVERY, 3) == [
        ImageView(),
        ImageView(mirrored=True),
        ImageView(upended=True),
    ]
    assert len(set(rollout.list_views(EVERY, 99))) == 8
    assert rollout.list_views(AugmentationConfig(mirror=True), 99) == [
        ImageView(),
        ImageView(mirrored=True),
    ]
    assert rollout.list_views(AugmentationConfig(scale_jitter=[1.0, 2.0]), 99) == [ImageView()]


@given(st.lists(boxes, max_size=4), st.sampled_from(rollout.list_views(EVERY, 8)))
def test_what_a_view_shows_comes_back_to_where_the_image_has_it(
    found: list[Bins], view: ImageView
) -> None:
    size = (BINS - 1, BINS - 1)  # a pixel is a bin
    objects = tuple(Object("a", tuple(map(float, box))) for box in found)  # type: ignore[arg-type]
    sample = Sample("x", "x.png", *size, objects)
    moved = tuple(each for one in sample.objects if (each := augmentation._move(one, view, size)))
    seen = [Detection("a", bins_of(each.box, *size)) for each in moved]
    back = rollout.restore(Detections(tuple(seen), (1.0,) * len(seen)), view)
    assert sorted(each.bins for each in back.objects) == sorted(
        each.bins for each in list_true_objects(sample)
    )


def test_fusion_by_hand() -> None:
    one = told(("a", (0, 0, 100, 100), 0.6), ("b", (500, 500, 600, 600), 0.9))
    other = told(("a", (10, 0, 110, 100), 0.3), ("a", (700, 700, 800, 800), 0.2))
    third = told(("b", (500, 500, 600, 600), 0.6), ("a", (0, 0, 100, 101), 0.3))
    found = rollout.fuse([one, other, third])
    assert [each.desc for each in found.objects] == ["b", "a"]
    assert found.scores == pytest.approx((1.5 / 3, 1.2 / 3))
    assert found.objects[1].bins == (2, 0, 102, 100)  # .6, .3 and .3 of 1.2: 2.5 rounds to even
    assert [(each.bins, round(score, 4)) for each, score in found.tail] == [
        ((700, 700, 800, 800), 0.0667)
    ]


def test_two_objects_of_one_view_stay_two() -> None:
    beside = told(("a", (0, 0, 100, 100), 0.9), ("a", (0, 0, 100, 90), 0.8))
    assert len(rollout.fuse([beside, beside]).objects) == 2


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("ab"), boxes, st.floats(0.01, 1)), max_size=4),
        min_size=1,
        max_size=4,
    )
)
def test_nothing_that_was_told_is_lost(answers: list[list[tuple[str, Bins, float]]]) -> None:
    found = rollout.fuse([told(*each) for each in answers])
    score = sum(found.scores) + sum(score for _, score in found.tail)
    assert score == pytest.approx(
        sum(score for each in answers for *_, score in each) / len(answers)
    )
    assert list(found.scores) == sorted(found.scores, reverse=True)


def test_an_answer_by_itself_stays_as_it_is_but_for_its_order() -> None:
    answer = told(("a", (0, 0, 100, 100), 0.2), ("a", (400, 400, 500, 500), 0.7))
    found = rollout.fuse([answer])
    assert sorted(zip(found.scores, found.objects, strict=True)) == sorted(
        zip(answer.scores, answer.objects, strict=True)
    )


def test_more_views_than_augmentation_makes_are_refused() -> None:
    config = made.config(
        augmentation=AugmentationConfig(mirror=True), evaluation=DetectorEvaluationConfig(views=2)
    )
    with pytest.raises(ConfigError, match=r"evaluation\.views.*1 to 2"):
        replace(config, evaluation=DetectorEvaluationConfig(views=3))
    with pytest.raises(ConfigError, match=r"evaluation\.views.*1 or more"):
        rollout.replace_views(config, ModelMetadata((), 0.2), 0)


def test_a_threshold_is_of_the_views_that_it_was_chosen_with() -> None:
    config = made.config(
        augmentation=AugmentationConfig(mirror=True), evaluation=DetectorEvaluationConfig(views=2)
    )
    metadata = ModelMetadata(("a",), 0.2)
    assert (
        rollout.replace_views(config, metadata, None)
        == rollout.replace_views(config, metadata, 2)
        == (config, metadata)
    )
    changed, without = rollout.replace_views(config, metadata, 1)
    assert (changed.evaluation.views, without) == (1, ModelMetadata(("a",), None))
