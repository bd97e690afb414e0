"""Training rows are what the product renders, and their answers are what the product accepts."""

import random

import pytest

from stageb.guidance.config import ReflectionConfig
from stageb.guidance.prompts import WORDS, parse_answer
from stageb.guidance.proposals import parse_proposal
from stageb.guidance.types import Guidance, Rule
from stageb.tiny.examples import reflection_row, rollout_row


@pytest.mark.parametrize(("chinese", "language"), [(0.0, "en"), (1.0, "zh")])
def test_rollout_answers_are_strict_two_line_answers_in_both_verdicts(chinese, language):
    rng = random.Random(1)
    verdicts = []
    for _ in range(30):
        row = rollout_row(rng, 1.0, chinese=chinese)
        assert row.system.startswith(WORDS[language].rollout.partition("{")[0])
        for user, answer in row.segments:
            assert user.startswith("image_1: ")
            parsed = parse_answer(answer, language)
            assert parsed is not None, answer
            verdicts.append(parsed[0])
    assert 0.3 < verdicts.count("pass") / len(verdicts) < 0.7


@pytest.mark.parametrize(("chinese", "language"), [(0.0, "en"), (1.0, "zh")])
def test_reflection_answers_are_operations_that_the_loop_accepts(chinese, language):
    rng = random.Random(2)
    accepted = total = 0
    for _ in range(40):
        row, options, judged = reflection_row(rng, 1.0, chinese=chinese)
        rules = [line.split(". ", 1) for line in row.segments[0][0].splitlines() if line[:1] == "G" and line[1:2].isdigit()]
        guidance = Guidance("m", 0, tuple(Rule(key, text) for key, text in rules), 99)
        cases = [j.case for j in judged]
        for _, answer in row.segments:
            proposal = parse_proposal(answer, cases, guidance, ReflectionConfig(), language, 0)
            total += 1
            accepted += len(proposal.operations)
        assert all(option.score > 0 for option in options)
    # the rest repeat a rule that is there already, or state it at more length than a rule may have
    assert accepted > 0.9 * total


def test_the_teachers_best_edit_turns_wrong_cases_and_spares_right_ones():
    rng = random.Random(3)
    for _ in range(30):
        _, options, judged = reflection_row(rng, 1.0, chinese=0.0)
        best = max((option for option in options if option.op == "add" and option.rule), key=lambda o: o.score, default=None)
        if best is None or best.rule is None:
            continue
        turned = sum(best.rule.fires(j.facts) for j in judged if not j.case.right)
        spoilt = sum(best.rule.fires(j.facts) for j in judged if j.case.right)
        assert turned > 3 * spoilt
        assert turned == best.turned.bit_count()


def test_rows_come_from_their_seed_alone():
    assert rollout_row(random.Random(7), 1.0) == rollout_row(random.Random(7), 1.0)
    assert reflection_row(random.Random(7), 1.0)[0] == reflection_row(random.Random(7), 1.0)[0]
