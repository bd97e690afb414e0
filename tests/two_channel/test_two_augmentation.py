"""Views: where a box is moved to, the image shows what was in it; the learner and the engine see
the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from two_channel import made

from stageb.engines.native.vision import ImageInputs
from stageb.two_channel.boxes.augmentation import (
    OVERLAP,
    ImageView,
    Paste,
    make_view,
    parse_name,
    scale_range,
)
from stageb.two_channel.config import AugmentationConfig
from stageb.two_channel.model import views
from stageb.two_channel.model.views import DecodedImage, Pixels, SizedCache, Views, show_views
from stageb.two_channel.types import Object, Sample
from stageb.untrusted.pictures import PictureError

ALL = AugmentationConfig(mirror=True, upend=True, turn=True, scale_jitter=[0.6, 2.0], light=0.3)


def seen(
    picture: Image.Image, view: ImageView, noted: tuple[int, int], size: tuple[int, int]
) -> np.ndarray[Any, Any]:
    """``picture`` in a view, (height, width, 3)."""
    (found,) = show_views([DecodedImage.of(picture)], [view], [noted], size)
    return np.asarray(found.permute(1, 2, 0))


@given(st.integers(0, 1 << 40), st.integers(0, 50), st.integers(0, 30))
def test_a_box_moves_with_what_is_in_it(key: int, x: int, y: int) -> None:
    box = x, y, x + 14, y + 10
    picture = Image.new("RGB", (64, 40), "black")
    picture.paste((255, 0, 0), box)
    sample = Sample("a", "a#b.png", 64, 40, (Object("red", box),))
    found = make_view(sample, key, ALL, 0.0)
    assert found == make_view(sample, key, ALL, 0.0)
    path, view = parse_name(found.image)
    colours = seen(
        picture, replace(view, light=(0, 0)), picture.size, (found.width, found.height)
    ).astype(int)
    assert path == "a#b.png"
    red = np.argwhere(colours[..., 0] - colours[..., 1] > 127)
    if found.objects:
        (x1, y1, x2, y2) = found.objects[0].box
        (top, left), (bottom, right) = red.min(0), red.max(0) + 1
        # a crop blurs edges
        assert max(abs(x1 - left), abs(y1 - top), abs(x2 - right), abs(y2 - bottom)) <= 2.0


@given(st.integers(0, 1 << 40), st.floats(0, 1))
def test_views_keep_the_aspect_and_their_scales_go_from_the_first_range_to_the_last(
    key: int, done: float
) -> None:
    """An object in the middle of the image shows the scale, where the view shows it whole."""
    sample = Sample("a", "a.png", 640, 480, (Object("cell", (280.0, 210.0, 360.0, 270.0)),))
    config = AugmentationConfig(scale_jitter=[2.0, 3.0], scale_jitter_end=[0.7, 1.2])
    low, high = scale_range(config, done)
    assert (low, high) == pytest.approx((2 * (0.7 / 2) ** done, 3 * (1.2 / 3) ** done))
    found = make_view(sample, key, config, done)
    for each in found.objects:
        x1, y1, x2, y2 = each.box
        if min(x1, y1, 640 - x2, 480 - y2) > 0:
            assert (x2 - x1) / 80 == pytest.approx((y2 - y1) / 60, rel=0.01)
            assert low * 0.99 <= (x2 - x1) / 80 <= high * 1.01
    assert (found.width, found.height) == (640, 480)


def test_a_view_scaled_down_shows_every_object() -> None:
    sample = Sample(
        "a",
        "a.png",
        640,
        480,
        tuple(Object("cell", (at, at, at + 9.0, at + 9.0)) for at in range(0, 470, 90)),
    )
    config = AugmentationConfig(scale_jitter=[0.5, 0.9])
    for key in range(40):
        found = make_view(sample, key, config, 0.0)
        assert len(found.objects) == len(sample.objects)
        assert "#pad=" in found.image


@given(st.integers(0, 1 << 40), st.integers(0, 300), st.integers(0, 300))
def test_a_view_of_an_image_made_smaller_is_the_view_made_smaller(key: int, x: int, y: int) -> None:
    picture = Image.new("RGB", (640, 480), "black")
    picture.paste((255, 0, 0), (x, y, x + 150, y + 130))
    view = parse_name(
        make_view(Sample("a", "a.png", 640, 480, ()), key, replace(ALL, light=0.0), 0.0).image
    )[1]
    size = (72, 96) if view.turned else (96, 72)
    small = seen(picture.resize((96, 72), Image.Resampling.BOX), view, picture.size, size)
    whole = seen(picture, view, picture.size, size)
    assert np.abs(small.astype(float) - whole)[..., 0].mean() < 8


def test_a_view_does_not_rest_on_what_is_made_beside_it() -> None:
    """Packs differ with the number of ranks."""
    frames = [
        DecodedImage.of(Image.effect_noise((100, 75), 90 + at).convert("RGB")) for at in range(9)
    ]
    config = replace(ALL, turn=False)
    sizes = [(100, 75)] * 9
    shown = [
        parse_name(make_view(Sample("a", "a.png", 100, 75, ()), key, config, 0.0).image)[1]
        for key in range(9)
    ]
    whole = show_views(frames, shown, sizes, (96, 64))
    for at in range(9):
        assert torch.equal(
            show_views(frames[at : at + 1], shown[at : at + 1], sizes[:1], (96, 64))[0], whole[at]
        )


@pytest.mark.parametrize(("times", "size"), [(1, (96, 64)), (2, (101, 67)), (2, (30, 45))])
def test_bytes_become_the_very_numbers_of_the_processor(
    tmp_path: Path, times: int, size: tuple[int, int]
) -> None:
    process = made.detector(made.folder_of(tmp_path)).eyes.process
    process.temporal_patch_size, process.image_mean, process.image_std = (
        times,
        (0.48, 0.46, 0.41),
        (0.27, 0.26, 0.28),
    )
    picture = Image.effect_noise(size, 90).convert("RGB")
    told = process(images=[picture], return_tensors="pt")
    pixels = Pixels.of(process)
    assert pixels
    assert pixels.numbers(pixels.cut(picture, told["image_grid_thw"][0, 1:].tolist())).equal(
        told["pixel_values"]
    )


def test_a_processor_of_another_kind_is_asked_for_every_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, image = made.detector(made.folder_of(tmp_path)), made.samples(tmp_path)[0].image
    kind = type(found.eyes.process)
    sharper = kind.rescale
    monkeypatch.setattr(
        kind,
        "rescale",
        lambda self, image, scale, **keys: sharper(self, np.sort(image, 2), scale, **keys),
    )
    viewing = Views(found.model, found.eyes.process, 1 << 20)
    assert Pixels.of(found.eyes.process) is None
    plain = ImageInputs(found.model, found.eyes.process, 1 << 20)
    both = [
        eyes.inputs(eyes.names_in(eyes.ids((image,))))["pixel_values"] for eyes in (viewing, plain)
    ]
    assert both[0].equal(both[1])


def test_an_image_that_is_broken_is_told_when_it_is_asked_for(tmp_path: Path) -> None:
    eyes = made.detector(made.folder_of(tmp_path)).eyes
    path = tmp_path / "whole.png"
    Image.effect_noise((64, 64), 90).convert("RGB").save(path)
    names = eyes.names_in(eyes.ids((str(path),)))
    path.write_bytes(path.read_bytes()[:900])
    eyes.prepare(names)
    with pytest.raises(PictureError, match=r"whole\.png: broken"):
        eyes.inputs(names)


def pictures(folder: Path) -> list[Sample]:
    """Three images: one with nothing in it, one with two objects, one with two that hide each
    other."""
    found = []
    for number, boxes in enumerate(
        [[], [(10, 8, 24, 18), (40, 20, 52, 36)], [(10, 8, 30, 28), (12, 10, 30, 28)]]
    ):
        picture = Image.new("RGB", (64, 40), "black")
        for box in boxes:
            picture.paste((255, 0, 0), box)
        picture.save(folder / f"{number}.png")
        objects = tuple(Object("red", box) for box in boxes)
        found.append(Sample(str(number), str(folder / f"{number}.png"), 64, 40, objects))
    return found


def test_a_pasted_object_is_where_its_box_is(tmp_path: Path) -> None:
    eyes, sources = made.detector(made.folder_of(tmp_path)).eyes, pictures(tmp_path)
    eyes.sources = [sample.image for sample in sources]
    pasted = 0
    for key in range(60):
        found = make_view(sources[0], key, replace(ALL, light=0.0, copy_paste=1), 0.0, sources)
        path, view = parse_name(found.image)
        frame = eyes._with_pasted(DecodedImage.of(Image.open(path)), path, view)
        (image,) = show_views([frame], [view], [(64, 40)], (found.width, found.height))
        red = np.argwhere(image[0].int().numpy() - image[1].int().numpy() > 127)
        if found.objects:
            (x1, y1, x2, y2), pasted = found.objects[0].box, pasted + 1
            (top, left), (bottom, right) = red.min(0), red.max(0) + 1
            assert max(abs(x1 - left), abs(y1 - top), abs(x2 - right), abs(y2 - bottom)) <= 2.0
            # of the third image each hides the other
            assert {each.source for each in view.pasted} == {1}
    assert 10 < pasted < 40


def test_what_is_pasted_fades_around_its_box_and_covers_it(tmp_path: Path) -> None:
    """Also where the images are held smaller than they are noted."""
    noted, box = Paste(0, 20, 20, 60, 60, 40, 30), (slice(30, 70), slice(40, 80))
    for part in (1, 2):
        onto = torch.zeros(3, 100 // part, 120 // part, dtype=torch.uint8)
        source = torch.full((3, 80 // part, 100 // part), 200, dtype=torch.uint8)
        views.paste_objects(onto, (120, 100), [(source, (100, 80), noted)])
        down, across = (slice(each.start // part, each.stop // part) for each in box)
        assert (onto[:, down, across] == 200).all()
        line = onto[0, 50 // part].tolist()
        assert line[: 36 // part] == [0] * (36 // part) and line[84 // part :] == [0] * (36 // part)
        rising = line[36 // part : 40 // part]
        assert (
            rising == sorted(rising)
            and 0 < rising[0] < 200
            and rising == line[80 // part : 84 // part][::-1]
        )


@given(st.integers(0, 1 << 40))
def test_pasted_objects_come_from_other_images_and_hide_nothing(key: int) -> None:
    boxes = [(x, y, x + 40.0, y + 40.0) for x in range(0, 600, 150) for y in range(0, 400, 130)]
    sources = [
        Sample(
            str(at), f"{at}.png", 640, 480, tuple(Object(f"of {at}", box) for box in boxes[at::3])
        )
        for at in range(3)
    ]
    config = AugmentationConfig(copy_paste=5)
    found = make_view(sources[0], key, config, 0.0, sources)
    assert found == make_view(sources[0], key, config, 0.0, sources)
    own = len(sources[0].objects)
    assert found.objects[:own] == sources[0].objects
    pasted = found.objects[own:]
    assert len(pasted) <= 5 and len(parse_name(found.image)[1].pasted) == len(pasted)
    assert all(
        each.desc in ("of 1", "of 2") and (each.box[2], each.box[3]) <= (640, 480)
        for each in pasted
    )
    for number, each in enumerate(pasted):
        for other in found.objects[: own + number]:
            shared = [
                min(each.box[at + 2], other.box[at + 2]) - max(each.box[at], other.box[at])
                for at in (0, 1)
            ]
            assert max(0.0, shared[0]) * max(0.0, shared[1]) <= OVERLAP * 40 * 40
    crowded = replace(sources[0], crowds=(Object("crowd", (0.0, 0.0, 640.0, 480.0)),))
    assert make_view(crowded, key, config, 0.0, sources) is crowded


def test_images_are_pasted_into_alike_whatever_is_beside_them(tmp_path: Path) -> None:
    eyes, sources = made.detector(made.folder_of(tmp_path)).eyes, pictures(tmp_path)
    eyes.sources = [sample.image for sample in sources]
    shown = [
        make_view(sources[0], key, AugmentationConfig(copy_paste=3), 0.0, sources).image
        for key in range(6, 18)
    ]
    names = [eyes.names_in(eyes.ids((image,)))[0] for image in shown]
    eyes.prepare(names)
    together = eyes.inputs(names)["pixel_values"].chunk(len(names))
    alone = [eyes.inputs([name])["pixel_values"] for name in names]
    assert all(torch.equal(*each) for each in zip(together, alone, strict=True))
    plain = eyes.inputs(eyes.names_in(eyes.ids((sources[0].image,))))["pixel_values"]
    changed = [not torch.equal(each, plain) for each in alone]
    assert changed == ["#paste=" in image for image in shown] and 3 < sum(changed) < 12


def test_no_augmentation_leaves_a_sample_as_it_is() -> None:
    sample = Sample("a", "a.png", 64, 40, ())
    assert make_view(sample, 3, AugmentationConfig(), 0.5) is sample
    assert parse_name("a#1,2.png") == ("a#1,2.png", ImageView())


def test_the_least_recent_goes_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "KEPT", 10)
    asked: list[str] = []

    def thing(name: str) -> str:
        found: str = held.get(name, lambda: asked.append(name) or name)  # type: ignore[func-returns-value]
        return found

    held = SizedCache(lambda _thing: 4)
    assert [thing(name) for name in "abacbc"] == list("abacbc")
    assert "".join(asked) == "abcb"  # a was asked for again before c came, so b went; then a


def test_views_of_long_ago_are_let_go_and_may_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "KNOWN", 4)
    found = made.detector(made.folder_of(tmp_path))
    image = made.samples(tmp_path)[0].image
    plain = found.prompt_ids(image)
    prompts = [found.prompt_ids(f"{image}#light={number}:0") for number in range(1, 40)]
    assert len(found.eyes._names) == len(found.eyes._pictures) == 5
    assert found.prompt_ids(f"{image}#light=1:0") == prompts[0]
    for prompt in (plain, *prompts[-3:], prompts[0]):
        assert len(found.eyes.inputs(found.eyes.names_in(prompt))["pixel_values"]) > 0


@pytest.mark.parametrize(
    "noted", ["", "#mirrored", "#upended,turned,light=10:-20", "#crop=0:0:40:40", "#pad=3:5:40:40"]
)
def test_learner_and_engine_see_a_view_alike(tmp_path: Path, noted: str) -> None:
    found = made.detector(made.folder_of(tmp_path))
    image = made.samples(tmp_path)[0].image
    assert isinstance(found.eyes, Views)
    (name,) = found.eyes.names_in(found.prompt_ids(image + noted))
    patches = found.eyes.inputs([name])["pixel_values"]
    plain = ImageInputs(found.model, found.eyes.process, 1 << 20)
    by_hand = tmp_path / "view.png"
    picture, view = Image.open(image).convert("RGB"), parse_name(image + noted)[1]
    size = picture.size[::-1] if view.turned else picture.size
    Image.fromarray(seen(picture, view, picture.size, size)).save(by_hand)
    (other,) = plain.names_in(plain.ids((str(by_hand),)))
    assert (patches == plain.inputs([other])["pixel_values"]).all()
    (untouched,) = plain.names_in(plain.ids((image,)))
    assert (name == untouched) == (noted == "")
