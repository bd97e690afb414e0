"""Channel C: rewards and weights against brute force, and the gradient of the expected reward on a case that can be counted
out."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from programs import detectors, forks
from two_channel import made
from two_channel.spelt import spelling

from stageb.__main__ import main
from stageb.two_channel import channel_a, packing, text
from stageb.two_channel.config import ChannelCConfig, LossConfig
from stageb.two_channel.correct import reward_rollouts
from stageb.two_channel.losses import compute_losses
from stageb.two_channel.reward import compute_advantages, compute_credits, compute_reward, make_rewarded_target
from stageb.two_channel.text import bins_of, list_true_objects, parse, write_answer
from stageb.two_channel.types import Box, Detection, Object, Rollout, Sample, StepTotals, Target


def sample(*objects: tuple[str, Box]) -> Sample:
    return Sample("none.png", "none.png", 999, 999, tuple(Object(*each) for each in objects))  # a pixel is a bin


def placed(desc: str, *box: float) -> Detection:
    x1, y1, x2, y2 = box
    return Detection(desc, bins_of((x1, y1, x2, y2), 999, 999))


TRUE = sample(("a", (0, 0, 100, 100)), ("b", (200, 200, 300, 300)))
ONE, OTHER = list_true_objects(TRUE)
WRONG = placed("a", 500, 500, 600, 600)
HALF = placed("a", 0, 0, 100, 62)  # right up to an IoU of .60


def test_rewards_by_hand() -> None:
    assert compute_reward(TRUE, [ONE, OTHER], 1.0) == 1
    assert (
        compute_reward(TRUE, [], 1.0) == 0
        and compute_reward(sample(), [], 1.0) == 1
        and compute_reward(sample(), [WRONG], 1.0) == 0
    )
    assert compute_reward(TRUE, [ONE, WRONG], 1.0) == pytest.approx(2 / 4)
    assert compute_reward(TRUE, [HALF, OTHER], 1.0) == pytest.approx((3 * 4 + 7 * 2) / 4 / 10)
    assert compute_reward(TRUE, [ONE, ONE, OTHER], 0.0) == pytest.approx(4 / 5)
    assert compute_reward(TRUE, [ONE, ONE, OTHER], 1.5) == pytest.approx((4 - 1.5) / 5)
    assert compute_reward(TRUE, [ONE, ONE, ONE], 1.0) == pytest.approx((2 - 2) / 5)  # three are two that were told again


def test_an_advantage_is_over_the_other_answers() -> None:
    rewards = [0.5, 0.25, 1.0]
    assert compute_advantages(rewards) == pytest.approx([0.5 - 0.625, 0.25 - 0.75, 1.0 - 0.375])
    assert compute_advantages([0.3, 0.3]) == [0, 0]  # no deviation to divide by


def test_credits_are_what_an_answer_would_lose() -> None:
    told = [ONE, WRONG, OTHER, ONE]
    whole = compute_reward(TRUE, told, 1.0)
    lost = [whole - compute_reward(TRUE, [each for at, each in enumerate(told) if at != k], 1.0) for k in range(4)]
    assert compute_credits(TRUE, told, 1.0) == pytest.approx([each - sum(lost) / 4 for each in lost])
    assert sum(compute_credits(TRUE, told, 1.0)) == pytest.approx(0)
    assert (
        compute_credits(TRUE, told, 1.0).index(max(compute_credits(TRUE, told, 1.0))) == 2
    )  # which nothing else stands in for
    assert compute_credits(TRUE, [ONE], 1.0) == [0] and compute_credits(TRUE, [], 1.0) == []


@pytest.mark.parametrize("box_first", [False, True])
def test_a_token_weighs_what_its_answer_and_its_object_do(box_first: bool) -> None:
    s = spelling(box_first)
    ids = write_answer([ONE, OTHER], s).ids
    parsed = parse(ids, s)
    target = make_rewarded_target(Rollout(ids, True, 3), parsed, 0.5, [0.25, -0.25], s)
    first, second = parsed.ends
    begin = first + len(s.comma)
    opening, comma = [0.5] * len(s.opening), [0.5] * len(s.comma)
    expected = [*opening, *[0.75] * (first - len(s.opening)), *comma, *[0.25] * (second - begin)]
    assert list(target.weights) == [*expected, *[0.5] * (len(ids) - second)]
    assert target.ids == ids and not any(target.taught) and target.slots == target.against == ()


def test_an_answer_that_holds_an_images_token_is_taught_up_to_there() -> None:
    s = spelling()
    ids = write_answer([ONE], s).ids
    strange = replace(s, reserved=s.reserved | {9999})
    target = make_rewarded_target(Rollout((*ids[:-3], 9999, *ids[-3:]), True, 3), parse(ids[:-3], s), 0.5, [0.25], strange)
    assert target.ids == ids[:-3] and len(target.weights) == len(target.taught) == len(ids) - 3
    assert (
        make_rewarded_target(Rollout(ids, True, 3), parse(ids, s), 0.5, [0.25], s).ids == ids
    )  # the token that ends it is none


def test_answers_to_an_image_are_weighed_against_each_other() -> None:
    s = spelling()
    told = [[ONE, OTHER], [ONE, WRONG], []]
    rollouts = [Rollout(write_answer(each, s).ids, True, 3) for each in told]
    rollouts.append(Rollout(rollouts[0].ids[:-9], False, 3))  # cut short in its second object
    found = reward_rollouts(TRUE, rollouts, s, ChannelCConfig(object_credit=0.0))
    rewards = [compute_reward(TRUE, each, 1.0) for each in (*told, [ONE])]
    assert [outcome.reward for _, outcome in found] == pytest.approx(rewards)
    for (target, _), advantage in zip(found, compute_advantages(rewards), strict=True):
        assert set(target.weights) == {advantage}
    assert [outcome.matched for _, outcome in found] == [2, 1, 0, 1] and found[3][1].truncated
    credited = reward_rollouts(TRUE, rollouts, s, ChannelCConfig(object_credit=1.0))
    ends = parse(rollouts[1].ids, s).ends
    right, wrong = (credited[1][0].weights[end - 1] for end in ends)
    assert right > found[1][0].weights[0] > wrong and right + wrong == pytest.approx(2 * found[1][0].weights[0])


def test_the_expected_gradient_is_that_of_the_expected_reward() -> None:
    """Over all draws of three answers of two tokens each, by hand."""
    torch.manual_seed(0)
    logits = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)  # of each token, whatever stands before it
    answers = list(itertools.product(range(3), repeat=2))
    worth = {answer: compute_reward(TRUE, [(ONE, OTHER, WRONG)[token] for token in answer], 1.0) for answer in answers}

    def log_probability(answer: tuple[int, ...]) -> torch.Tensor:
        return torch.stack([logits[place].log_softmax(-1)[token] for place, token in enumerate(answer)]).sum()

    expected = torch.stack([log_probability(answer).exp() * worth[answer] for answer in answers]).sum()
    (wanted,) = torch.autograd.grad(expected, logits)
    found = torch.zeros_like(logits)
    for draw in itertools.product(answers, repeat=3):
        weights = compute_advantages([worth[answer] for answer in draw])
        taught = torch.stack([weight * log_probability(answer) for weight, answer in zip(weights, draw, strict=True)]).mean()
        chance = torch.stack([log_probability(answer) for answer in draw]).sum().exp().detach()
        found += chance * torch.autograd.grad(taught, logits)[0]
    torch.testing.assert_close(found, wanted)
    assert wanted.abs().max() > 0.01


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.folder_of(tmp_path_factory.mktemp("reward"))


def test_the_loss_is_the_sum_of_weighted_log_probabilities(root: Path) -> None:
    """Whatever else stands in its pack; weights of either sign."""
    detector = made.detector(root)
    s = text.find_spelling(detector.tokenizer)
    shown = made.samples(root)[:3]
    targets: list[Target] = []
    for number, each in enumerate(shown[:2]):
        ids = write_answer(list_true_objects(each), s).ids
        weights = tuple((0.5 - (at + number) % 3) / 4 for at in range(len(ids)))
        targets.append(Target(ids, (False,) * len(ids), (), weights=weights))
    targets.append(made.make_true_target(list_true_objects(shown[2]), s))
    lines = [packing.make_line(detector, *pair) for pair in zip(shown, targets, strict=True)]

    def term(*chosen: packing.Line) -> Any:
        pack = packing.pack(detector, chosen, StepTotals(4, 10))
        return compute_losses(
            channel_a.run_passes(detector.model, pack, detector.head(), 1), pack.taught, detector.head(), LossConfig()
        )

    by_hand = 0.0
    for each, target in zip(shown, targets[:2], strict=False):
        line = packing.make_line(detector, each, target)
        alone = packing.pack(detector, [line], StepTotals(4, 10))
        chances = detector.head().logits(channel_a.forward(detector.model, alone)).log_softmax(-1)
        by_hand -= sum(
            w * float(chances[at, token].detach())
            for at, (w, token) in enumerate(zip(target.weights, target.ids, strict=True))
        )
    found = term(*lines)
    assert float(found.reward) == pytest.approx(by_hand / 4, rel=1e-4)
    without = term(lines[2])
    assert float(without.reward) == 0
    assert float(found.total - found.reward) == pytest.approx(float(without.total), rel=1e-4)


def test_a_run_with_rewards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On one rank and on two, and by ranks that only answer: the same, but for rounding."""
    keys: dict[str, Any] = {"schedule__pattern": ["A", "C"], "schedule__steps": 4, "evaluation__pictures": 0}
    keys |= {"channel_c__images_per_step": 3, "channel_c__answers_per_image": 3}

    def rows(folder: Path, ranks: int, **more: Any) -> list[dict[str, Any]]:
        ended = forks.run(detectors.arguments(folder, ranks, "scribbling", **keys, **more), ranks, folder / "job")
        assert set(ended.codes) == {0}, ended.err
        return [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]

    one = rows(tmp_path / "one", 1)
    assert [row["stage2/channel_c"] for row in one] == [0, 1, 0, 1]
    assert [row.get("stage2/raw_rollouts") for row in one] == [None, 9, None, 9] and one[1]["samples"] == 3
    assert one[0]["loss/reward"] == one[1]["loss/text"] == 0 != one[1]["loss/reward"]
    assert 0 < one[1]["rollout/reward"] < 1 and one[1]["rollout/weight_version"] == 1
    for more in ({}, {"topology__learn": 1, "topology__rollout": 1}):
        two = rows(tmp_path / f"two{len(more)}", 2, **more)
        for row, other in zip(one, two, strict=True):
            assert other["loss/reward"] == pytest.approx(row["loss/reward"], rel=1e-2, abs=1e-5)
            assert other.get("rollout/reward") == row.get("rollout/reward")
    plain = detectors.arguments(tmp_path / "plain", schedule__steps=1, schedule__pattern=["A"])
    assert main(plain) == 0 and "reward" not in (tmp_path / "plain" / "run" / "metrics.jsonl").read_text()
    capsys.readouterr()
    for wrong, said in (
        ({"topology__staleness": 1, "topology__learn": 1, "topology__rollout": 1}, "topology.staleness: 1: 0 if"),
        ({"channel_c__answers_per_image": 1}, "channel_c.answers_per_image: 1: at least 2"),
        ({"answer__object_budget": 9, "answer__box_first": True}, "answer.object_budget: 9: 0 if"),
    ):
        assert main(detectors.arguments(tmp_path / "wrong", **(keys | wrong))) == 2
        assert said in capsys.readouterr().err
