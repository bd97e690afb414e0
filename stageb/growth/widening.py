"""Growing by widening, as the field does it: dense hosts that get twice their features half-way through their budget.

``net2net``: Net2WiderNet (Chen et al. 2016, section 3.1). A new unit is a copy of one that was drawn, and what leaves both
is divided by the number of copies. ``gradmax``: Evci et al. 2022, section 3.2. Nothing enters a new unit, and its outgoing
weights are the left singular vectors of E[dL/dz h^T], z what it feeds and h what feeds it, by which the gradient of its
incoming weights is largest. Both leave the network's function as it is. The optimiser begins anew.

GradMax wants a slope of 1 at 0, where torch's ReLU has 0: new units have a bias of ``LIFT``, which the next biases make up
for. A layer that feeds fewer units than there are new ones has no more singular vectors than that; they are used again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from stageb import seeds
from stageb.growth import flops, hosts
from stageb.growth.blocks import open_segment
from stageb.growth.environment import Block, Places, Setting
from stageb.growth.hosts import HOST, Plan
from stageb.training.cuda_graphs import Recorder

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
