"""Networks that do not grow, trained as one would who grows nothing: early stopping, and a schedule that was tuned.

Each epoch ends with a look at the validation set, which is paid for. In the end the weights of the epoch with the least
validation loss count. The learning rate goes by one of ``SCHEDULES``: the one with the best validation accuracy in
environments that the run's controller learnt from, at the budgets that it has there. Tuning is not charged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stageb.growth import flops, views
from stageb.growth.deciding import Decider
from stageb.growth.environment import Block, Places, Seeds, Setting, play

STOPPED = ("stopped-small", "stopped-final")  # the bare host; the network that the controller made, from the start


@dataclass(frozen=True, slots=True)
class Rate:
    """How a learning rate goes."""

    factor: float  # of the config's rates
    falls: bool  # along half a cosine to 0, over the epochs that the budget pays for; else it stays

    def at(self, epoch: int, epochs: int) -> float:
        """The factor in ``epoch``, from 0, of ``epochs``."""
        return self.factor * ((1 + math.cos(math.pi * min(1.0, epoch / max(1, epochs)))) / 2 if self.falls else 1.0)


SCHEDULES = tuple(Rate(factor, falls) for falls in (False, True) for factor in (0.3, 1.0, 3.0))
Tuned = Mapping[str, Rate]  # of each of STOPPED


@dataclass
class Best:
    """The epoch of each member with the least validation loss so far."""

    loss: list[float]
    accuracy: list[float]
    weights: dict[str, Tensor]  # segment -> (B, size)


def train(block: Block, rate: Rate, budgets: Sequence[float]) -> list[int]:
    """Train a block that has just begun as long as every member's budget, in FLOPs, pays; each has the weights of its best
    epoch then, or those that it began with, where it pays for none. How many epochs each was trained for."""
    members = range(len(block.keys))
    prices = [block.price(each) + price_of_a_look(block, each) for each in members]
    epochs = [int(budget // price) for budget, price in zip(budgets, prices, strict=True)]
    rates, weights = block.hosts.learning_rates.clone(), block.hosts.weights
    best = Best([math.inf] * len(members), [0.0] * len(members), {name: held.clone() for name, held in weights.items()})
    spent = list(block.flops)
    for epoch in range(max(epochs)):
        factors = [rate.at(epoch, total) for total in epochs]
        block.hosts.learning_rates = torch.tensor(factors, dtype=rates.dtype, device=rates.device)[:, None] * rates
        block.train()
        for member, (loss, accuracy) in enumerate(block.judge(test=False)):
            if epoch < epochs[member] and loss < best.loss[member]:
                best.loss[member], best.accuracy[member] = loss, accuracy
                for name, held in weights.items():
                    best.weights[name][member] = held[member]
        block.flops = [before + (epoch + 1) * price for before, price in zip(spent, prices, strict=True)]
        block.note(best.accuracy)
    for name, held in best.weights.items():
        weights[name].copy_(held)
    block.flops = [before + count * price for before, count, price in zip(spent, epochs, prices, strict=True)]
    return epochs


def price_of_a_look(block: Block, member: int) -> float:
    """FLOPs of judging a network as it stands on the validation set."""
    one = flops.count_evaluation(block.setting.plan, views.list_blueprints(block.slots[member]), 1)
    return float(one * len(block.lessons.sets.validation))


def tune(setting: Setting, decider: Decider, names: Sequence[str]) -> Tuned:
    """The schedule of each of ``names``, of a block of environments that the run learnt from. Equal: the first."""
    if not names:
        return {}
    places = Places(tuple(range(setting.config.growth.block)))
    block = Block(setting, places)
    ended = play(block, decider.of(block)).ended
    budgets, kept = [each.flops for each in ended], [each.kept for each in ended]
    return {name: max(SCHEDULES, key=lambda rate: _score(setting, places, name, kept, rate, budgets)) for name in names}


def choose_start(name: str, kept: Sequence[Seeds]) -> Sequence[Seeds] | None:
    """The seeds that stand in each network from the start; ``kept`` are those that the controller kept."""
    return kept if name.endswith("-final") else None


def _score(
    setting: Setting, places: Places, name: str, kept: Sequence[Seeds], rate: Rate, budgets: Sequence[float]
) -> float:
    block = Block(setting, places, choose_start(name, kept))
    train(block, rate, budgets)
    return sum(accuracy for _, accuracy in block.judge(test=False)) / len(budgets)
