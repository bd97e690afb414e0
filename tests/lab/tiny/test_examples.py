"""Rollout rows are what the product renders, and their answers are what the product accepts."""

import random

import pytest

from lab.tiny.examples import meet, miss, rollout_row
from lab.tiny.rules import BETWEEN, COMPARISONS, Facts
from lab.tiny.worlds import draw_condition, draw_world
from stageb.guidance.judging.answers import parse_answer
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.words.config import Language


@pytest.mark.parametrize(("chinese", "language"), [(0.0, "en"), (1.0, "zh")])
def test_rollout_answers_are_strict_two_line_answers_in_both_verdicts(chinese: float, language: Language) -> None:
    rng = random.Random(1)
    verdicts = []
    for _ in range(30):
        row = rollout_row(rng, draw_world(rng, chinese=chinese))
        assert row.system.startswith(WORDS[language].rollout.partition("{")[0])
        for user, answer in row.segments:
            assert user.startswith("image_1: ")
            parsed = parse_answer(answer, WORDS[language])
            assert parsed is not None, answer
            verdicts.append(parsed[0])
    assert 0.3 < verdicts.count("pass") / len(verdicts) < 0.7


def test_tickets_are_drawn_on_both_sides_of_a_condition() -> None:
    rng = random.Random(4)
    met = missed = compared = between = 0
    for _ in range(400):
        world = draw_world(rng, chinese=0.0)
        condition = draw_condition(world, rng)
        if condition is None or not condition.attribute:
            continue
        forced: dict[str, str] = {}
        meet(world, condition, rng, forced, [])
        if forced:  # a comparison may find no number that meets it in a few tries
            assert condition.holds(Facts(forced, ()))
            met += 1
        forced = {}
        miss(world, condition, rng, forced)
        if forced:
            assert not condition.holds(Facts(forced, ()))
            missed += 1
            compared += condition.kind in COMPARISONS
            between += condition.kind in BETWEEN
    assert met > 150
    assert missed > 150
    assert compared > 10
    assert between > 10
