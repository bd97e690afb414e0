"""Noise behind the truth: boxes that are there, and are taught to be none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from two_channel.spelt import placed, spelling

from stageb.two_channel.boxes.augmentation import NOISE, draw_noise, drop_noise
from stageb.two_channel.boxes.metrics import ious
from stageb.two_channel.boxes.text import parse
from stageb.two_channel.learning.targets import make_true_target
from stageb.two_channel.types import BINS, Detection


@given(st.lists(placed(), max_size=4), st.integers(0, 1 << 60))
def test_noise_has_area_within_the_image_and_is_drawn_by_its_key(true: list[Detection], key: int) -> None:
    found = draw_noise(true, 20, key)
    assert found == draw_noise(true, 20, key) != draw_noise(true, 20, key + 1)
    assert found[:7] == draw_noise(true, 7, key) and draw_noise(true, -3, key) == ()
    for each in found:
        x1, y1, x2, y2 = each.bins
        assert 0 <= x1 < x2 < BINS and 0 <= y1 < y2 < BINS and each.desc == NOISE


def test_a_third_of_it_tells_objects_twice() -> None:
    true = [Detection("a", (400, 400, 600, 600))]
    found = draw_noise(true, 600, 3)
    twice = (ious(found, true) > 0.6).any(1).mean()
    as_large = sum(abs((x2 - x1) - 200) <= 22 for x1, _, x2, _ in (each.bins for each in found)) / 600
    assert 0.25 < twice < 0.45 and as_large > 0.45


@given(st.lists(placed(("a", "b")), max_size=4), st.integers(0, 1 << 60))
def test_the_truth_is_taught_and_of_noise_the_name_alone(true: list[Detection], key: int) -> None:
    s = spelling(box_first=True)
    noise = draw_noise(true, 6 - len(true), key)
    target = make_true_target(true, s, noise)
    parsed = parse(target.ids, s)
    assert parsed.complete and parsed.objects == (*true, *noise) and drop_noise(parsed.objects) == tuple(true)
    assert [slot.bins for slot in target.slots] == [each.bins for each in true]
    assert all(each != (token in s.bins) for each, token in zip(target.taught, target.ids, strict=True))
