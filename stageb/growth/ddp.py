"""``growth.ddp: true``: every host is trained by all ranks together, its minibatches shared out, step by step.

Every rank holds the whole block and does all that one rank alone would do, in the same order. Four things make it one
training:

- each rank takes its part of every minibatch, and of every set that hosts are judged on;
- one flat all-reduce a step brings gradients to their mean, in the order host, early, mid, late, zeros where nothing is in
  use, and the step's loss and accuracy behind them. It has one length for the whole run, whatever grows;
- rank 0 alone decides; what reaches the others is (step, actions). New seeds are drawn from named streams, so no weights
  travel;
- after every epoch each rank tells a digest of its lifecycle and of its parameters, part by part; where two differ the run
  ends, and the error says who parted, and in what.

Reduced numbers are the same bytes on every rank, and what every rank computes of them is the same arithmetic: replicas are
equal to the bit, and no tolerance hides a fault. Against one rank a sum rounds in another order, as everywhere where
gradients are reduced: equal bytes are promised at one world size.

Why torch's DistributedDataParallel is not what does it: lab/notes/growth-ddp.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import torch
from torch import Tensor

from stageb.config import require
from stageb.growth import bank, counterfactual, training
from stageb.growth.bank import PARTS
from stageb.growth.config import GrowthConfig
from stageb.growth.controllers import Controller
from stageb.growth.counterfactual import Evaluation
from stageb.growth.data import Split
from stageb.growth.training import EpochFigures, Hosts
from stageb.growth.types import Action, Op, View
from stageb.job.world import World, encode
from stageb.training import replicas
from stageb.training.replicas import DivergedError, digest, digest_of


def check(config: GrowthConfig, world_size: int) -> None:
    """Raise ConfigError unless a minibatch can be shared out evenly: a mean over ranks is the minibatch's only then."""
    size = config.host.batch_size
    remedy = f"a multiple of the number of ranks, {world_size}, where growth.ddp is true"
    require(not config.growth.ddp or size % world_size == 0, "host.batch_size", size, remedy)


class AllRanks:
    """All ranks as the trainer of one block. Every method is for all of them, in the same order."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.step = 0  # epochs of the block so far

    def epoch(
        self, hosts: Hosts, active: Tensor, alphas: Tensor, learns: Tensor, fit: Split, batches: Tensor
    ) -> EpochFigures:
        """``training.epoch``, each rank on its part of every minibatch. Raises DivergedError, and what that raises."""
        self.step += 1
        hosts.mean = self.mean
        figures = training.epoch(hosts, active, alphas, learns, fit, self._part(batches))
        lifecycle = [active.tolist(), alphas.tolist(), learns.tolist()]
        self.agree({"lifecycle": digest(encode(lifecycle)), **digests(hosts.state())})
        return figures

    def judge(self, hosts: Hosts, split: Split, active: Tensor, alphas: Tensor) -> Evaluation:
        """``counterfactual.judge``, each rank on its part of ``split``."""
        part = slice(self.world.rank, None, self.world.world_size)
        mine = split.thinned(part)
        found = counterfactual.judge(hosts, mine, active, alphas)
        share = len(mine) * self.world.world_size / len(split)
        means = self.mean({"loss": found.loss * share, "accuracy": found.accuracy * share})
        return Evaluation(means["loss"].cpu(), means["accuracy"].cpu())

    def led(self, controller: Controller) -> Controller:
        """``controller``, as rank 0 alone asks it."""
        return _RootController(controller, self)

    def mean(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The mean over ranks of each of ``tensors``, of equal names and shapes on all, in one all-reduce in their order."""
        if self.world.world_size == 1:
            return dict(tensors)
        total = torch.cat([tensor.reshape(-1) for tensor in tensors.values()]).to(self.world.device)
        means = self.world.sum(total, "gradients of the hosts") / self.world.world_size
        pieces = torch.split(means, [tensor.numel() for tensor in tensors.values()])
        return {name: piece.view(tensor.shape) for (name, tensor), piece in zip(tensors.items(), pieces, strict=True)}

    def decide(self, actions: Sequence[Action]) -> list[Action]:
        """Rank 0's ``actions``, on every rank. Raises DivergedError where this rank is not at rank 0's step."""
        plain = [(action.op.value, action.slot, action.blueprint) for action in actions]
        step, told = self.world.broadcast((self.step, plain))
        if step != self.step:
            raise DivergedError(f"rank {self.world.rank} has trained its hosts for {self.step} epochs, rank 0 for {step}")
        return [Action(Op(op), slot, blueprint) for op, slot, blueprint in told]

    def agree(self, mine: Mapping[str, str]) -> None:
        """Raise DivergedError, the same on every rank, unless all hold equal digests."""
        replicas.agree(self.world, f"epoch {self.step}", mine)

    def _part(self, batches: Tensor) -> Tensor:
        """This rank's examples of every minibatch: (B, S, N) to (B, S, N / ranks)."""
        return batches[..., self.world.rank :: self.world.world_size]


class _RootController:
    """A controller whose answers are rank 0's on every rank, given to equal views."""

    def __init__(self, controller: Controller, together: AllRanks) -> None:
        self._controller, self._together = controller, together

    def begin(self, count: int) -> None:
        """As many episodes begin."""
        self._controller.begin(count)

    def act(self, views: Sequence[View], observations: Tensor, legal: Tensor, keys: Sequence[int]) -> list[Action]:
        """One action for each view. Raises DivergedError."""
        self._together.agree({"views": digest(encode([asdict(view) for view in views]))})
        leads = self._together.world.is_global_zero
        return self._together.decide(self._controller.act(views, observations, legal, keys) if leads else [])


def digests(state: Mapping[str, Tensor]) -> dict[str, str]:
    """Digests of a ``Hosts.state()``, one for each part and one for the counts: of names, shapes and bytes."""
    held: dict[str, dict[str, Tensor]] = {part: {} for part in (*PARTS, "counts")}
    for name, tensor in state.items():
        _, _, segment = name.partition(".")
        held[PARTS[bank.part(segment)] if segment else "counts"][name] = tensor
    return {part: digest_of(tensors) for part, tensors in held.items()}
