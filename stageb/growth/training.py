"""Training a block of hosts as one batch: Adam (Kingma and Ba 2015, algorithm 1) on parameters stacked over its members.

Members share no number, so the gradient of the sum of their losses is every member's own gradient, taken through one
``vmap`` of the forward. That is half the work of a ``vmap`` over ``torch.func.grad``, where autograd runs on wrapped
tensors.

A seed that learns at alpha 0 trains *beside* its host: in a second pass with its alpha at 1 and all else held fast, the
loss of the whole network trains it alone. The host sees neither its output nor its gradient. (Letting the seed's gradient
through in the host's own pass, with its output held back, would never tell it what it already adds: it would grow without
bound.)

A *part* of a member (its host, or a slot's seed with its gate) whose gradients are not finite is not updated in that step,
and the step is counted. The host's own three in a row end the run. A seed's do not: its gradient norm is infinite in the
figures, which is for the lifecycle to answer, and it cannot reach its host meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

from stageb.errors import StagebError
from stageb.growth import bank
from stageb.growth.data import Split
from stageb.growth.hosts import HOST, Plan, forward, used
from stageb.growth.types import SLOTS

BETAS, EPSILON = (0.9, 0.999), 1e-8
BROKEN_IN_A_ROW = 3  # steps of a host that come to no finite gradient, after which its run ends
SCALE, LARGEST_SCALE = 1024.0, 65536.0  # of 16-mixed losses: at first, and at most
SHRINK, GROW, GROW_AFTER = 0.125, 2.0, 200  # three steps left out take it from 1024 to 2: then it is not to blame


Mean = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]
"""The mean over ranks of tensors by name: of every segment's gradient, zeros where it is not in use, and of the figures."""


class NonFiniteError(StagebError):
    """Hosts whose losses are no numbers any more."""

    def __init__(self, members: Sequence[int]) -> None:
        super().__init__(
            f"the gradients of {BROKEN_IN_A_ROW} steps in a row are not finite in members {', '.join(map(str, members))} of "
            "the block. Try host.precision 32-true, or a smaller host.learning_rate"
        )
        self.members = tuple(members)  # of the block, from 0


@dataclass
class Hosts:
    """A block of networks in training: all that ``epoch`` changes."""

    plan: Plan
    weights: dict[str, Tensor]  # segment -> (B, size)
    first: dict[str, Tensor]  # Adam's moments, alike
    second: dict[str, Tensor]
    counts: Tensor  # int64 (B, 4): updates of each part since it began
    skipped: Tensor  # int64 (B, 4): steps that were left out, all in all
    broken: Tensor  # int64 (B,): steps of the host left out in a row
    scale: Tensor  # (B,): of the loss, in 16-mixed; else 1
    since: Tensor  # int64 (B,): steps since it last changed
    mean: Mean | None = None  # over the ranks that train these hosts together

    @property
    def members(self) -> int:
        """B."""
        return self.counts.shape[0]

    def state(self) -> dict[str, Tensor]:
        """Everything, by name; the tensors themselves, no copies."""
        tables = {"weights": self.weights, "first": self.first, "second": self.second}
        state = {f"{table}.{name}": tensor for table, held in tables.items() for name, tensor in held.items()}
        return state | {name: getattr(self, name) for name in ("counts", "skipped", "broken", "scale", "since")}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a ``state``, whose tensors are copied."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])


@dataclass(frozen=True)
class EpochFigures:
    """What an epoch came to for each member: means over its steps, on the CPU."""

    loss: Tensor  # (B,)
    accuracy: Tensor  # (B,)
    gradient_norms: Tensor  # (B, 4): host, early, mid, late; 0 where nothing learns, infinite where a step was left out
    skipped: Tensor  # int64 (B, 4): steps left out in this epoch


def begin(plan: Plan, start: Tensor, device: torch.device | str, dtype: torch.dtype = torch.float32) -> Hosts:
    """Hosts at their ``start``, (B, size) of the segment ``host``, nothing grown."""
    members = len(start)
    weights, first, second = (bank.allocated(plan, members, device, dtype) for _ in range(3))
    weights[HOST].copy_(start)

    def zeros(*shape: int) -> Tensor:
        return torch.zeros((members, *shape), dtype=torch.int64, device=device)

    scale = torch.full((members,), SCALE if plan.precision == "16-mixed" else 1.0, device=device)
    return Hosts(plan, weights, first, second, zeros(4), zeros(4), zeros(), scale, zeros())


def germinate(hosts: Hosts, member: int, slot: int, blueprint: int, key: int) -> None:
    """Lay a fresh seed of ``blueprint`` (an index into the plan's) into a slot of one member; ``key`` names its stream."""
    cull(hosts, member, slot)
    name = f"{SLOTS[slot]}.{hosts.plan.blueprints[blueprint]}"
    hosts.weights[name][member].copy_(bank.drawn(hosts.plan, name, [key])[0])


def cull(hosts: Hosts, member: int, slot: int) -> None:
    """Forget whatever stands in a slot of one member, its moments and its count of updates with it."""
    for name in hosts.plan.segments:
        if bank.part(name) == slot + 1:
            for table in (hosts.weights, hosts.first, hosts.second):
                table[name][member].zero_()
    hosts.counts[member, slot + 1] = 0


def epoch(hosts: Hosts, active: Tensor, alphas: Tensor, learns: Tensor, fit: Split, batches: Tensor) -> EpochFigures:
    """Train every member for S steps.

    ``active`` int64 (B, 3), blueprints or -1; ``alphas`` floats (B, 3); ``learns`` bool (B, 3), whose seeds are updated, at
    alpha 0 beside the host; ``batches`` int64 (B, S, N), examples of ``fit``. Raises ``NonFiniteError``.
    """
    device, dtype = hosts.counts.device, hosts.weights[HOST].dtype
    names = used(hosts.plan, active.tolist())
    learns = learns.cpu() & (active.cpu() >= 0)
    beside = learns & (alphas.cpu() == 0)
    apart = bool(beside.any())
    grown = _Grown(active.to(device), alphas.to(device, dtype), beside.to(device))
    updated = torch.cat([torch.ones((hosts.members, 1), dtype=torch.bool), learns], 1).to(device)
    before, rows = hosts.skipped.clone(), []
    batches = batches.to(device)
    for step in range(batches.shape[1]):
        x, y = fit.batch(batches[:, step])
        figures, gradients = _gradients(hosts, names, grown, (x, y), apart)
        rows.append(torch.cat([figures, _update(hosts, gradients, updated)], 1))
    _raise_if_broken(hosts)
    means = torch.stack(rows).mean(0).cpu()
    return EpochFigures(means[:, 0], means[:, 1], means[:, 2:], (hosts.skipped - before).cpu())


@dataclass(frozen=True)
class _Grown:
    """What stands in the slots of a block, on its device."""

    active: Tensor
    alphas: Tensor
    beside: Tensor


def _gradients(
    hosts: Hosts, names: Sequence[str], grown: _Grown, batch: tuple[Tensor, Tensor], apart: bool
) -> tuple[Tensor, dict[str, Tensor]]:
    """Losses and accuracies of a batch, (B, 2), and the gradients of the segments ``names``, (B, size) each."""
    leaves = {name: hosts.weights[name].detach().requires_grad_() for name in names}

    def one(params: dict[str, Tensor], x: Tensor, y: Tensor, active: Tensor, alphas: Tensor, beside: Tensor) -> Tensor:
        logits = forward(hosts.plan, params, x, alphas, active)
        loss, accuracy = judged(logits, y)
        if not apart:
            return torch.stack([loss, loss.detach(), accuracy])
        logits = forward(hosts.plan, _held(params, beside), x, torch.where(beside, 1.0, alphas), active)
        own = torch.where(beside.any(), judged(logits, y)[0], 0.0)
        return torch.stack([loss + own, loss.detach(), accuracy])

    with mixed(hosts.plan, hosts.counts.device):
        x, y = batch
        found = torch.func.vmap(one)(leaves, x, y, grown.active, grown.alphas, grown.beside)
    gradients = torch.autograd.grad((found[:, 0] * hosts.scale).sum(), list(leaves.values()))
    figures, of = found[:, 1:].detach(), dict(zip(names, gradients, strict=True))
    if hosts.mean is not None:
        every = {name: of[name] if name in of else torch.zeros_like(held) for name, held in hosts.weights.items()}
        means = hosts.mean({**every, "figures": figures})
        figures, of = means["figures"], {name: means[name] for name in names}
    if hosts.plan.precision == "16-mixed":
        of = {name: gradient / hosts.scale[:, None] for name, gradient in of.items()}
    return figures, of


def _held(params: dict[str, Tensor], beside: Tensor) -> dict[str, Tensor]:
    """``params`` of one network, of which those alone get gradients whose seed trains beside the host."""
    held = {}
    for name, tensor in params.items():
        slot = bank.part(name) - 1
        held[name] = tensor.detach() if slot < 0 else torch.where(beside[slot], tensor, tensor.detach())
    return held


def judged(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cross entropy and accuracy of logits (..., classes) for targets int64 (...), each a float32 or wider scalar."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    loss = -logits.log_softmax(-1).gather(-1, y[..., None]).mean()
    return loss, (logits.detach().argmax(-1) == y).to(loss.dtype).mean()


def mixed(plan: Plan, device: torch.device) -> AbstractContextManager[object]:
    """The autocast that the plan's precision wants."""
    dtype = torch.float16 if plan.precision == "16-mixed" else torch.bfloat16
    return torch.autocast(device.type, dtype, enabled=plan.precision != "32-true")


def _update(hosts: Hosts, gradients: Mapping[str, Tensor], updated: Tensor) -> Tensor:
    """One step of Adam where ``updated``, bool (B, 4), and gradients are finite. The parts' gradient norms, (B, 4)."""
    squares = torch.zeros(updated.shape, dtype=hosts.weights[HOST].dtype, device=updated.device)
    for name, gradient in gradients.items():
        squares[:, bank.part(name)] += gradient.square().sum(1)
    finite = squares.isfinite()
    moved = updated & finite
    hosts.counts += moved
    hosts.skipped += updated & ~finite
    in_a_row = (hosts.broken + 1) * ~finite[:, 0]
    hosts.broken.copy_(torch.where(hosts.broken >= BROKEN_IN_A_ROW, hosts.broken, in_a_row))
    counts = hosts.counts.clamp(min=1).to(squares.dtype)
    rates = hosts.plan.learning_rate * moved / -torch.expm1(counts * math.log(BETAS[0]))
    roots = (-torch.expm1(counts * math.log(BETAS[1]))).rsqrt()
    weights = [(1 - beta) * moved.to(squares.dtype) for beta in BETAS]
    for name, gradient in gradients.items():
        column = slice(bank.part(name), bank.part(name) + 1)
        gradient = torch.where(moved[:, column], gradient, 0.0)
        first, second = hosts.first[name], hosts.second[name]
        first.lerp_(gradient, weights[0][:, column])
        second.lerp_(gradient.square(), weights[1][:, column])
        hosts.weights[name].sub_(rates[:, column] * first / (second.sqrt() * roots[:, column] + EPSILON))
    if hosts.plan.precision == "16-mixed":
        _rescale(hosts, finite[:, 0])
    return torch.where(updated, torch.where(finite, squares.sqrt(), torch.inf), 0.0)


def _rescale(hosts: Hosts, finite: Tensor) -> None:
    """Losses are scaled less after a step that was left out, and more after many that were not."""
    hosts.since.copy_((hosts.since + 1) * finite)
    grows = hosts.since >= GROW_AFTER
    hosts.scale.mul_(torch.where(finite, torch.where(grows, GROW, 1.0), SHRINK)).clamp_(1.0, LARGEST_SCALE)
    hosts.since.mul_(~grows)


def _raise_if_broken(hosts: Hosts) -> None:
    broken = (hosts.broken >= BROKEN_IN_A_ROW).nonzero().flatten().tolist()
    if broken:
        raise NonFiniteError(broken)
