"""Networks that do not grow, stopped early: brute force over the epochs, on a host of two features."""

from __future__ import annotations

import pytest

from stageb.growth import baselines
from stageb.growth.baselines import SCHEDULES, Rate
from stageb.growth.config import GatesConfig, GrowthConfig, GrowthSection, HostConfig, TaskConfig
from stageb.growth.deciding import Decider
from stageb.growth.environment import Block, Places, Seeds, Setting, play
from stageb.job import heartbeat

CONFIG = GrowthConfig(
    task=TaskConfig("digits", fit_examples=60, validation_examples=100),
    host=HostConfig(width=2, blueprints=["norm"], epochs=6, steps_per_epoch=6, batch_size=20, learning_rate=0.1),
    gates=GatesConfig(training_epochs=1, blending_epochs=1, least_contribution=-1.0),
    growth=GrowthSection(environments=2, block=2),
)
PLACES = Places((3, 4), held_out=True)


def trained(setting: Setting, rate: Rate, epochs: int, of: int) -> list[tuple[float, float]]:
    """Loss and accuracy on the validation set after ``epochs`` of a schedule of ``of``."""
    block = Block(setting, PLACES)
    rates = block.hosts.learning_rates.clone()
    for epoch in range(epochs):
        block.hosts.learning_rates = rates * rate.at(epoch, of)
        block.train()
    return block.judge(test=False)


@pytest.mark.parametrize("rate", [Rate(1.0, falls=False), Rate(3.0, falls=True)])
def test_the_best_of_all_epochs_that_the_budget_pays_for_is_kept(rate: Rate) -> None:
    setting = Setting.of(CONFIG, "cpu")
    block = Block(setting, PLACES)
    price = block.price(0) + baselines.price_of_a_look(block, 0)
    assert baselines.train(block, rate, [9.9 * price, 4.1 * price]) == [9, 4]
    found = block.judge(test=False)
    for member, of in enumerate((9, 4)):
        every = [trained(setting, rate, epochs, of)[member] for epochs in range(1, of + 1)]
        assert found[member][0] == pytest.approx(min(loss for loss, _ in every), rel=1e-5)
    assert block.flops == pytest.approx([9 * price, 4 * price])
    course = block.course(1, found[1][1])
    assert [flops for flops, _ in course] == pytest.approx([price, 2 * price, 3 * price, 4 * price, 4 * price])
    assert course[-2][1] == course[-1][1]  # the best so far
    assert len({min(range(1, 10), key=lambda at: trained(setting, rate, at, 9)[member][0]) for member in (0, 1)} - {9}) > 0


def test_of_epochs_with_equal_losses_the_first_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """And none beyond a member's budget, though others go on."""
    setting, rate = Setting.of(CONFIG, "cpu"), Rate(1.0, falls=False)
    block, once = Block(setting, PLACES), Block(setting, PLACES)
    price = block.price(0) + baselines.price_of_a_look(block, 0)
    judged = iter([[(1.0, 0.5), (2.0, 0.5)], [(1.0, 0.6), (2.0, 0.6)], [(1.0, 0.7), (0.5, 0.7)]])
    monkeypatch.setattr(block, "judge", lambda test: next(judged))
    assert baselines.train(block, rate, [3.1 * price, 2.1 * price]) == [3, 2]
    once.train()
    assert all(bool((held == once.hosts.weights[name]).all()) for name, held in block.hosts.weights.items())


def test_an_epoch_is_a_sign_of_life() -> None:
    block = Block(Setting.of(CONFIG, "cpu"), PLACES)
    price = block.price(0) + baselines.price_of_a_look(block, 0)
    before = heartbeat.now().count
    assert baselines.train(block, SCHEDULES[0], [4 * price, 4 * price]) != [0, 0]
    assert heartbeat.now().count - before == block.epochs


def test_a_budget_that_pays_for_nothing_trains_nothing() -> None:
    block = Block(Setting.of(CONFIG, "cpu"), PLACES)
    begun = block.hosts.weights["host"].clone()
    assert baselines.train(block, SCHEDULES[0], [0.0, 1.0]) == [0, 0]
    assert bool((block.hosts.weights["host"] == begun).all())


def test_the_schedule_is_tuned_where_the_controller_learnt() -> None:
    setting = Setting.of(CONFIG, "cpu")
    decider, places = Decider("heuristic", {}), Places((0, 1))
    ended = play(block := Block(setting, places), decider.of(block)).ended
    assert any(each.kept for each in ended)

    def score(begins: list[Seeds] | None, rate: Rate) -> float:
        block = Block(setting, places, begins)
        baselines.train(block, rate, [each.flops for each in ended])
        return sum(accuracy for _, accuracy in block.judge(test=False))

    tuned = baselines.tune(setting, decider, baselines.STOPPED)
    assert tuned.keys() == set(baselines.STOPPED)
    for name, begins in (("stopped-small", None), ("stopped-final", [each.kept for each in ended])):
        scores = {rate: score(begins, rate) for rate in SCHEDULES}
        assert scores[tuned[name]] == max(scores.values()) > min(scores.values())
    assert baselines.tune(setting, Decider("heuristic", {}), []) == {}
    assert Rate(2.0, falls=True).at(0, 10) == 2.0 and Rate(2.0, falls=True).at(5, 10) == pytest.approx(1.0)
