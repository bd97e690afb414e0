"""What growth is compared with: networks that do not grow and stop early, and networks that are widened."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from stageb import seeds
from stageb.growth import flops, hosts, views
from stageb.growth.blocks import open_segment
from stageb.growth.deciding import Decider
from stageb.growth.environment import Block, Places, Seeds, Setting, play
from stageb.growth.hosts import HOST, Plan
from stageb.training.cuda_graphs import Recorder

# Networks that do not grow, trained as one would who grows nothing: early stopping, and a schedule that was tuned.
#
# Each epoch ends with a look at the validation set, which is paid for. In the end the weights of the epoch with the least
# validation loss count. The learning rate goes by one of ``SCHEDULES``: the one with the best validation accuracy in
# environments that the run's controller learnt from, at the budgets that it has there. Tuning is not charged.


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


# Growing by widening, as the field does it: dense hosts that get twice their features half-way through their budget.
#
# ``net2net``: Net2WiderNet (Chen et al. 2016, section 3.1). A new unit is a copy of one that was drawn, and what leaves both
# is divided by the number of copies. ``gradmax``: Evci et al. 2022, section 3.2. Nothing enters a new unit, and its outgoing
# weights are the left singular vectors of E[dL/dz h^T], z what it feeds and h what feeds it, by which the gradient of its
# incoming weights is largest. Both leave the network's function as it is. The optimiser begins anew.
#
# GradMax wants a slope of 1 at 0, where torch's ReLU has 0: new units have a bias of ``LIFT``, which the next biases make up
# for. A layer that feeds fewer units than there are new ones has no more singular vectors than that; they are used again.


WIDENED = ("net2net", "gradmax")
LAYERS = ("stem", "body1", "body2", "head")
EXAMPLES = 256  # of the fit set, by which gradmax chooses
LIFT = 1e-3
Params = Mapping[str, Tensor]


def grow(setting: Setting, places: Places, name: str, budgets: Sequence[float]) -> Block:
    """Bare hosts after half of the least budget, widened by ``name``, with what they have spent."""
    block = Block(setting, places)
    for _ in range(int(min(budgets) / 2 // block.price(0))):
        block.train()
        block.note([accuracy for _, accuracy in block.judge(test=False)])
    host = replace(setting.config.host, width=2 * setting.config.host.width)
    plan = hosts.make_plan(host, setting.plan.form)
    wide = Block(replace(setting, config=replace(setting.config, host=host), plan=plan, recorder=Recorder()), places)
    count = min(EXAMPLES, len(block.lessons.sets.fit))
    x, y = block.lessons.sets.fit.batch(torch.arange(count, device=block.hosts.device).expand(len(block.keys), -1))
    for member, key in enumerate(block.keys):
        params = open_segment(replace(setting.plan, precision="32-true"), HOST, block.hosts.weights[HOST][member])
        drawn = torch.Generator().manual_seed(seeds.stream(key, "widening") >> 1)
        new = (
            copy_units(params, host.width, drawn)
            if name == "net2net"
            else add_units(params, host.width, x[member], y[member])
        )
        wide.hosts.weights[HOST][member] = flatten(plan, new)
    price = 3.0 * count * flops.count_forward(setting.plan, [-1] * 3) if name == "gradmax" else 0.0
    wide.noted, wide.epochs = block.noted, block.epochs
    wide.flops = [spent + price for spent in block.flops]
    return wide


def copy_units(params: Params, width: int, drawn: torch.Generator) -> dict[str, Tensor]:
    """Net2WiderNet, in every layer but the head."""
    new, before = dict[str, Tensor](), None
    for name in LAYERS:
        weight, bias = params[name], params[f"{name}_bias"]
        if before is not None:
            copies = before.bincount(minlength=weight.shape[1])
            weight = (weight / copies)[:, before]
        if name != "head":
            more = torch.randint(len(bias), (width - len(bias),), generator=drawn).to(bias.device)
            before = torch.cat([torch.arange(len(bias), device=bias.device), more])
            weight, bias = weight[before], bias[before]
        new |= {name: weight, f"{name}_bias": bias}
    return new


def add_units(params: Params, width: int, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """GradMax, in every layer but the head, by the loss of examples (N, *shape) and their answers int64 (N,)."""
    new, more = dict(params), width - len(params["stem_bias"])
    fed, gradients = compute_gradients(params, x, y)
    for number, name in enumerate(LAYERS[:-1]):
        following = LAYERS[number + 1]
        leaving = find_directions(gradients[number + 1].T @ fed[number], more) * params[following].norm(dim=0).mean()
        new[following] = torch.cat([new[following], leaving], 1)
        new[f"{following}_bias"] = new[f"{following}_bias"] - LIFT * leaving.sum(1)
        new[name] = functional.pad(new[name], (0, 0, 0, more))
        new[f"{name}_bias"] = functional.pad(new[f"{name}_bias"], (0, more), value=LIFT)
    return new


def find_directions(matrix: Tensor, count: int) -> Tensor:
    """The left singular vectors of ``matrix``, (O, I), the largest first, as ``count`` columns: (O, count)."""
    left: Tensor = torch.linalg.svd(matrix, full_matrices=False)[0]
    return left[:, torch.arange(count, device=left.device) % left.shape[1]]


def compute_gradients(params: Params, x: Tensor, y: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """What feeds each layer, (N, I), and the gradient of the mean loss by what it makes of it before ReLU, (N, O)."""
    fed, made = [x.flatten(1)], list[Tensor]()
    with torch.enable_grad():
        for name in LAYERS:
            z = functional.linear(fed[-1], params[name], params[f"{name}_bias"]).requires_grad_()
            made.append(z)
            fed.append(functional.relu(z))
        loss = functional.cross_entropy(made[-1], y)
        gradients = torch.autograd.grad(loss, made)
    return [each.detach() for each in fed[:-1]], list(gradients)


def flatten(plan: Plan, params: Params) -> Tensor:
    """The segment of a host, (size,)."""
    return torch.cat([params[spec.name].flatten() for spec in plan.segments[HOST]])
