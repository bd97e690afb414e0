"""What a step goes by, and what its rollouts come to."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from two_channel.spelt import spelling

from stageb.two_channel.boxes.text import list_true_objects, parse, write_answer
from stageb.two_channel.config import (
    ChannelAConfig,
    ChannelBConfig,
    ScheduleConfig,
    TwoChannelConfig,
)
from stageb.two_channel.learning.schedule import DetectorSchedule
from stageb.two_channel.learning.targets import correct_rollout, summarise
from stageb.two_channel.types import DetectorRollout, Object, Sample

GATE = 0.5  # the IoU from which on a box counts as found
SAMPLE = Sample(
    "a.png", "a.png", 100, 100, (Object("cat", (10, 10, 40, 40)), Object("dog", (50, 50, 90, 90)))
)


@given(
    pattern=st.lists(st.sampled_from("AB"), min_size=1, max_size=5),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    samples=st.integers(1, 20),
)
def test_all_images_come_once_before_any_comes_again(
    pattern: list[str], sizes: tuple[int, int], samples: int
) -> None:
    config = TwoChannelConfig(
        schedule=ScheduleConfig(steps=40, pattern=pattern),  # type: ignore[arg-type]
        channel_a=ChannelAConfig(samples_per_step=sizes[0]),
        channel_b=ChannelBConfig(rollouts_per_step=sizes[1]),
    )
    schedule = DetectorSchedule(config, samples)
    shown: list[int] = []
    for step in range(40):
        assert schedule.channel(step) == pattern[step % len(pattern)]
        assert schedule.epoch(step) == len(shown) / samples
        chosen = schedule.chosen(step)
        assert len(chosen) == schedule.size(step) == sizes["AB".index(schedule.channel(step))]
        shown += chosen
    whole = len(shown) // samples * samples
    for begin in range(0, whole, samples):
        assert Counter(shown[begin : begin + samples]) == Counter(range(samples))


def test_the_learning_rate_rises_and_falls_to_its_end() -> None:
    config = TwoChannelConfig(
        schedule=ScheduleConfig(steps=50, warmup_steps=5, learning_rate=1.0, learning_rate_end=0.1)
    )
    rates = [DetectorSchedule(config, 1).learning_rate(step) for step in range(50)]
    assert rates[:5] == sorted(rates[:5])
    assert max(rates) == rates[5] == 1.0
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert rates[-1] == pytest.approx(0.1)


def test_what_rollouts_come_to() -> None:
    words = spelling()
    cat, dog = list_true_objects(SAMPLE)
    whole = write_answer([cat, dog], words).ids
    twice = write_answer([cat, cat, replace(dog, desc="cow")], words).ids
    answers = [whole, twice, whole[: len(whole) - 4], (5, 6, 7)]
    rollouts = [DetectorRollout(ids, ended=ids[-1] == words.end, version=3) for ids in answers]
    outcomes = [correct_rollout(SAMPLE, rollout, words, GATE, 1 << 20)[1] for rollout in rollouts]
    assert [(each.predicted, each.matched, each.duplicates) for each in outcomes[:2]] == [
        (2, 2, 0),
        (3, 1, 1),
    ]
    assert [each.unread for each in outcomes] == [False, False, False, True]
    kept = [
        len(whole) - len(words.tail) - 1,
        parse(twice, words).ends[0],
        parse(whole, words).ends[0],
        0,
    ]
    assert [each.kept for each in outcomes] == kept
    told = summarise(outcomes)
    assert told["rollout/kept_tokens"] == sum(kept) / 4
    assert told["stage2/raw_rollouts"] == 4
    assert told["stage2/invalid_rollout"] == 1
    assert told["rollout/end_of_answer_rate"] == 0.5
    assert told["rollout/duplicate_pairs_max"] == 1
    assert told["rollout/f1_p10"] == 0
    assert told["rollout/weight_version"] == 3


def test_a_right_box_is_kept_though_a_later_one_lies_nearer() -> None:
    """Pairs over the whole answer would leave the first box without a partner, and cut
    everything."""
    words = spelling()
    cat, dog = list_true_objects(SAMPLE)
    loose = replace(cat, bins=(cat.bins[0], cat.bins[1], cat.bins[2], cat.bins[3] - 75))
    close = replace(cat, bins=(cat.bins[0], cat.bins[1], cat.bins[2], cat.bins[3] - 15))
    answer = write_answer([loose, dog, close], words)
    target, outcome = correct_rollout(
        SAMPLE, DetectorRollout(answer.ids, True, 1), words, GATE, 1 << 20
    )
    assert outcome.kept == parse(answer.ids, words).ends[1]
    assert parse(target.ids, words).objects == (loose, dog)
    assert [slot.bins for slot in target.slots] == [cat.bins, dog.bins]


def test_answers_cut_off_and_malformed_ones_are_counted_apart() -> None:
    words = spelling()
    cat, dog = list_true_objects(SAMPLE)
    whole = write_answer([cat, dog], words).ids
    cut, closed = whole[: len(whole) - 4], (*whole[:-6], words.end)
    answers = [whole, cut, closed, (5, 6, 7), whole[:1]]
    rollouts = [DetectorRollout(ids, ended=ids[-1] == words.end, version=3) for ids in answers]
    found = summarise([correct_rollout(SAMPLE, each, words, GATE, 1 << 20)[1] for each in rollouts])
    assert found["rollout/parse_truncated_rate"] == 2 / 5
    assert found["rollout/parse_malformed_rate"] == 2 / 5


def test_an_answer_that_grows_too_long_counts_as_empty() -> None:
    words = spelling()
    cat, _ = list_true_objects(SAMPLE)
    rollout = DetectorRollout(write_answer([cat] * 30, words).ids, ended=True, version=0)
    target, outcome = correct_rollout(SAMPLE, rollout, words, GATE, room=10)
    assert outcome.overlong
    assert outcome.kept == 0
    assert parse(target.ids, words).objects == list_true_objects(SAMPLE)
    assert len(target.slots) == 2


def test_an_answer_set_right_that_is_as_long_as_the_room_fits() -> None:
    words = spelling()
    cat, _ = list_true_objects(SAMPLE)
    rollout = DetectorRollout(write_answer([cat], words).ids, True, 1)
    target, _ = correct_rollout(SAMPLE, rollout, words, GATE, 1000)
    for room, overlong in ((len(target.ids), False), (len(target.ids) - 1, True)):
        assert correct_rollout(SAMPLE, rollout, words, GATE, room)[1].overlong == overlong
