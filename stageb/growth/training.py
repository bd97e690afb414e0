"""Training and judging a block of hosts as one batch.

Adam (Kingma and Ba 2015, algorithm 1) on parameters stacked over its members.

Members share no number, so the gradient of the sum of their losses is every member's own gradient,
taken by autograd through ``vmap``. That takes half the time of ``vmap`` over ``torch.func.grad``,
where autograd runs on wrapped tensors.

A seed that learns at alpha 0 trains *beside* its host: in a second pass with its alpha at 1 and all
else held fast, the loss of the whole network trains it alone. The host sees neither its output nor
its gradient, and nor does another seed that trains beside the same host: each has a network of its
own in that pass. (Letting the seed's gradient through in the host's own pass, with its output held
back, would never tell it what it already adds: it would grow without bound.) A host that is given
does not learn, and no gradient of its parameters is made.

A *part* of a member (its host, or a slot's seed) whose gradients are not finite is not updated in
that step, and the step is counted. The host's own three in a row end the run. A seed's do not: its
gradient norm is infinite in the figures, which is for the lifecycle to answer, and it cannot reach
its host meanwhile. Of a given host the loss says what its gradients would: whether they are finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from stageb.draws import wide
from stageb.growth import blocks
from stageb.growth.blocks import (
    SlotGroups,
    StandingSeeds,
    choose_batch_size,
    forward,
    group_members,
)
from stageb.growth.hosts import HOST, Plan, name_segment
from stageb.growth.tasks import Split
from stageb.growth.types import SLOTS
from stageb.training.step import IN_A_ROW, REASON, NonFiniteError, Recorder

BETAS, EPSILON = (0.9, 0.999), 1e-8
RECORDED_FROM = 3  # steps of an epoch: to record one takes as long as to take one plainly


class BrokenHostsError(NonFiniteError):
    """Hosts whose losses are no numbers any more."""

    def __init__(self, members: Sequence[int]) -> None:
        super().__init__(
            f"{REASON} in members {', '.join(map(str, members))} of the block. Try a smaller "
            f"host.learning_rate"
        )
        self.members = tuple(members)  # of the block, from 0


@dataclass
class Hosts:
    """A block of networks in training: all that ``train_epoch`` changes."""

    plan: Plan
    learning_rates: Tensor  # (4,): of the parts
    weights: dict[str, Tensor]  # segment -> (B, size)
    first: dict[str, Tensor]  # Adam's moments, alike
    second: dict[str, Tensor]
    counts: Tensor  # int64 (B, 4): updates of each part since it began
    skipped: Tensor  # int64 (B, 4): steps that were left out, all in all
    broken: Tensor  # int64 (B,): steps of the host left out in a row
    recorder: Recorder = field(default_factory=Recorder)  # of steps, on a GPU

    @property
    def members(self) -> int:
        """B."""
        return self.counts.shape[0]

    @property
    def device(self) -> torch.device:
        """Where all of it lies."""
        return self.counts.device

    def germinate(self, member: int, slot: int, blueprint: int, key: int) -> None:
        """Lay a fresh seed of ``blueprint`` (an index into the plan's) into a slot of one member;
        ``key`` names its stream."""
        self.cull(member, slot)
        name = name_segment(self.plan, slot, blueprint)
        self.weights[name][member].copy_(blocks.draw(self.plan, name, [key])[0])

    def cull(self, member: int, slot: int) -> None:
        """Forget whatever stands in a slot of one member, its moments and its count of updates with
        it."""
        for name in self.plan.segments:
            if blocks.find_part(name) == slot + 1:
                for table in (self.weights, self.first, self.second):
                    table[name][member].zero_()
        self.counts[member, slot + 1] = 0


@dataclass(frozen=True)
class EpochFigures:
    """The figures of an epoch for each member: means over its steps, on the CPU."""

    loss: Tensor  # (B,)
    accuracy: Tensor  # (B,)
    # (B, 4): host, early, mid, late; 0 where nothing learns, infinite where a step was left out
    gradient_norms: Tensor
    skipped: Tensor  # int64 (B, 4): steps left out in this epoch


def make_hosts(
    plan: Plan, start: Tensor, device: torch.device | str, dtype: torch.dtype = torch.float32
) -> Hosts:
    """Hosts at their ``start``, (B, size) of the segment ``host``, nothing grown."""
    members = len(start)
    weights, first, second = (
        {
            name: torch.zeros((members, size), dtype=dtype, device=device)
            for name, size in plan.sizes.items()
        }
        for _ in range(3)
    )
    weights[HOST].copy_(start)

    def zeros(*shape: int) -> Tensor:
        return torch.zeros((members, *shape), dtype=torch.int64, device=device)

    rates = torch.tensor(plan.learning_rates, dtype=dtype, device=device)
    return Hosts(
        plan=plan,
        learning_rates=rates,
        weights=weights,
        first=first,
        second=second,
        counts=zeros(4),
        skipped=zeros(4),
        broken=zeros(),
    )


def train_epoch(
    hosts: Hosts, active: Tensor, alphas: Tensor, learns: Tensor, fit: Split, batches: Tensor
) -> EpochFigures:
    """Train every member for S steps.

    ``active`` int64 (B, 3), blueprints or -1; ``alphas`` floats (B, 3); ``learns`` bool (B, 3),
    whose seeds are updated, at alpha 0 beside the host; ``batches`` int64 (B, S, N), examples of
    ``fit``. Raises ``BrokenHostsError``.
    """
    learning = learns.cpu() & (active.cpu() >= 0)
    passes = _make_passes(hosts, active.cpu(), alphas.cpu(), learning)
    updated = torch.cat([torch.ones(hosts.members, 1, dtype=torch.bool), learning], 1).to(
        hosts.device
    )
    before, chosen = hosts.skipped.clone(), batches.to(hosts.device).unbind(1)
    at_hand = chosen[0].clone()

    def step() -> Tensor:
        figures, gradients = _compute_gradients(hosts, passes, fit.batch(at_hand))
        return torch.cat([figures, _update(hosts, gradients, updated, figures[:, 0])], 1)

    rows, again = _begin_epoch(hosts, step, len(chosen))
    for examples in chosen[1:]:
        at_hand.copy_(examples)
        rows.append(again().clone())
    if broken := (hosts.broken >= IN_A_ROW).nonzero().flatten().tolist():
        raise BrokenHostsError(broken)
    means = torch.stack(rows).mean(0).cpu()
    return EpochFigures(means[:, 0], means[:, 1], means[:, 2:], (hosts.skipped - before).cpu())


def _begin_epoch(
    hosts: Hosts, step: Callable[[], Tensor], steps: int
) -> tuple[list[Tensor], Callable[[], Tensor]]:
    """Take the first ``step`` of an epoch, or record it. Returns the rows so far, and the function
    that takes each further step: on a GPU a replay, since to launch a step's many small kernels
    takes the processor longer than the GPU to run them."""
    rows: list[Tensor] = []
    if hosts.device.type != "cuda" or steps < RECORDED_FROM:
        return [step()], step
    return rows, hosts.recorder.record(step, lambda: rows.append(step()))


@dataclass(frozen=True)
class _Pass:
    """A forward and backward of networks of the block: of every member as it stands, or of seeds
    beside their hosts."""

    rows: Tensor | None  # int64: whose each network is; None: every member's
    slots: tuple[SlotGroups, ...]
    alphas: Tensor  # (networks of the pass, 1, 3)


def _make_passes(hosts: Hosts, active: Tensor, alphas: Tensor, learning: Tensor) -> list[_Pass]:
    """The hosts' own pass, in which every seed at an alpha above 0 stands; and one of a network for
    each seed that trains beside its host, in which no other such seed stands, so that none learns
    to lean on another. All are on the CPU."""
    beside = learning & (alphas == 0)
    passes = [_pass(hosts, None, active, alphas, learning & ~beside)]
    whose, which = beside.nonzero().unbind(1)
    if len(whose):
        trains = torch.nn.functional.one_hot(which, len(SLOTS)).bool()
        passes.append(
            _pass(hosts, whose, active[whose], alphas[whose].masked_fill(trains, 1.0), trains)
        )
    return passes


def _pass(
    hosts: Hosts, rows: Tensor | None, active: Tensor, alphas: Tensor, learning: Tensor
) -> _Pass:
    """A pass of networks whose every row says what it is."""
    seeds: StandingSeeds = [
        [
            (index, learns) if index >= 0 and alpha > 0 else None
            for index, alpha, learns in zip(*network, strict=True)
        ]
        for network in zip(active.tolist(), alphas.tolist(), learning.tolist(), strict=True)
    ]
    weighed = alphas.to(hosts.device, hosts.weights[HOST].dtype)[:, None]
    return _Pass(
        None if rows is None else rows.to(hosts.device),
        group_members(hosts.plan, seeds, hosts.device),
        weighed,
    )


# a segment, whose members (None: all), and their gradients, (members, size)
Gradient = tuple[str, Tensor | None, Tensor]


def _compute_gradients(
    hosts: Hosts, passes: Sequence[_Pass], batch: tuple[Tensor, Tensor]
) -> tuple[Tensor, list[Gradient]]:
    """Losses and accuracies of a batch in the hosts' own pass, (B, 2), and the gradients of all
    that learns."""
    figures, gradients = [], []
    for each in passes:
        found, its = _backward(hosts, each, batch)
        figures.append(found)
        gradients += its
    return figures[0], gradients


def _backward(
    hosts: Hosts, of: _Pass, batch: tuple[Tensor, Tensor]
) -> tuple[Tensor, list[Gradient]]:
    """Run one pass forward and backward; returns its figures and gradients. The host's parameters
    learn in their own pass alone."""
    (x, y), host = batch, hosts.weights[HOST].detach()
    if of.rows is not None:
        x, y, host = x[of.rows], y[of.rows], host[of.rows]
    leaves: list[Gradient] = []
    if of.rows is None and not hosts.plan.shape.given:
        leaves.append((HOST, None, host.requires_grad_()))
    params = {}
    for group in (group for slot in of.slots for group in slot.groups):
        rows = group.rows if of.rows is None else of.rows[group.rows]
        params[group] = hosts.weights[group.segment].detach()[rows]
        if group.learns:
            leaves.append((group.segment, rows, params[group].requires_grad_()))
    losses, accuracies = judge_logits(
        forward(hosts.plan, host, of.slots, params, x, of.alphas)[:, 0], y
    )
    gradients = torch.autograd.grad(losses.sum(), [leaf for _, _, leaf in leaves]) if leaves else ()
    figures = torch.stack([losses.detach(), accuracies], 1)
    return figures, [
        (name, rows, each) for (name, rows, _), each in zip(leaves, gradients, strict=True)
    ]


def judge_logits(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cross entropies and accuracies (B,) of logits (B, N, classes) for targets int64 (B,
    N)."""
    losses = -logits.log_softmax(-1).gather(-1, y[..., None])[..., 0]
    return losses.mean(1), (logits.detach().argmax(-1) == y).to(losses.dtype).mean(1)


def _update(hosts: Hosts, gradients: Sequence[Gradient], updated: Tensor, losses: Tensor) -> Tensor:
    """One step of Adam where gradients, which are used up, are finite. The parts' gradient norms,
    (B, 4).

    ``updated``, bool (B, 4), says which parts of which members take the step; ``losses``, (B,), are
    those of the hosts.
    """
    squares, squared = (
        torch.zeros(updated.shape, dtype=hosts.weights[HOST].dtype, device=hosts.device),
        [],
    )
    for name, rows, gradient in gradients:
        squared.append(gradient.square())
        squares[_all(rows), blocks.find_part(name)] = squared[-1].sum(1)
    finite = squares.isfinite()
    if hosts.plan.shape.given:
        finite[:, 0] = losses.isfinite()
    hosts.counts += updated & finite
    hosts.skipped += updated & ~finite
    in_a_row = (hosts.broken + 1) * ~finite[:, 0]
    hosts.broken.copy_(torch.where(hosts.broken >= IN_A_ROW, hosts.broken, in_a_row))
    counts = hosts.counts.clamp(min=1).to(squares.dtype)
    rates = hosts.learning_rates * finite / -torch.expm1(counts * math.log(BETAS[0]))
    roots = (-torch.expm1(counts * math.log(BETAS[1]))).rsqrt()
    moved = finite.to(squares.dtype)
    for (name, rows, gradient), square in zip(gradients, squared, strict=True):
        part, some = blocks.find_part(name), _all(rows)
        broken, weight = ~finite[some, part, None], moved[some, part, None]
        tables = (hosts.first[name], hosts.second[name], hosts.weights[name])
        # of all members the tables themselves
        first, second, weights = (table[some] for table in tables)
        first.lerp_(gradient.masked_fill_(broken, 0.0), weight * (1 - BETAS[0]))
        second.lerp_(square.masked_fill_(broken, 0.0), weight * (1 - BETAS[1]))
        spread = second.sqrt().mul_(roots[some, part, None]).add_(EPSILON)
        weights.sub_(torch.div(first, spread, out=spread).mul_(rates[some, part, None]))
        if rows is not None:
            for table, new in zip(tables, (first, second, weights), strict=True):
                table[rows] = new
    return torch.where(updated, torch.where(finite, squares.sqrt(), torch.inf), 0.0)


def _all(rows: Tensor | None) -> Tensor | slice:
    return slice(None) if rows is None else rows


# What each slot contributes: the network judged as it is, and with seeds turned out or in, in one
# batched forward.
#
# Nothing changes by asking: no gradient is made, no state is held, nothing is drawn. What comes
# before the first slot is the same in all settings, and is computed once.


@dataclass(frozen=True)
class SetScores:
    """How members do on a set in each setting, on the CPU."""

    loss: Tensor  # float64 (B, S): mean cross entropy
    accuracy: Tensor  # float64 (B, S)


def judge(hosts: Hosts, split: Split, active: Tensor, alphas: Tensor) -> SetScores:
    """Loss and accuracy on ``split``, whose targets are stacked over members, in S settings of
    ``alphas``, floats (B, S, 3).

    ``active`` is int64 (B, 3), as of ``training.train_epoch``.
    """
    plan, device, count = hosts.plan, hosts.device, len(split)
    seen = (alphas > 0).any(1).tolist()  # in one setting at least
    seeds: StandingSeeds = [
        [
            (index, False) if index >= 0 and any_at_all else None
            for index, any_at_all in zip(indices, its, strict=True)
        ]
        for indices, its in zip(active.tolist(), seen, strict=True)
    ]
    slots = group_members(plan, seeds, device)
    params = {
        group: hosts.weights[group.segment][group.rows] for slot in slots for group in slot.groups
    }
    alphas = alphas.to(device, hosts.weights[HOST].dtype)
    total = torch.zeros((2, *alphas.shape[:2]), dtype=wide(device), device=device)
    with torch.no_grad():
        for start in range(0, count, choose_batch_size(plan)):
            chunk = slice(start, start + choose_batch_size(plan))
            inputs, targets = split.part(chunk)
            logits = forward(plan, hosts.weights[HOST], slots, params, inputs, alphas)
            total += _sum_losses(logits, targets[:, None])
    losses, right = total.cpu().double() / count
    return SetScores(losses, right)


def _sum_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross entropies and right answers, (2, B, S), of (B, S, N, classes) for (B, 1, N), summed."""
    targets = targets.expand(logits.shape[:-1])
    log_probs = logits.log_softmax(-1)
    losses = -log_probs.gather(-1, targets[..., None])[..., 0]
    right = log_probs.argmax(-1) == targets
    return torch.stack([each.to(wide(logits.device)).sum(2) for each in (losses, right)])
