"""A training step: packs, a forward and a backward pass for each, and exactly one step of the
optimiser.

Every learning rank gets all targets of a step and forms the same packs; each rank trains on its
share of them. Ranks may have different numbers of packs, or none: gradients accumulate locally and
are reduced over ranks once, after all packs of the step. So no rank needs to know in advance which
pack is the last, packs are trained on while answers are still arriving, and the assignment of
samples to packs and ranks affects rounding only. DDP's hooks are not used: they need the same
number of backward passes on every rank.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from stageb.config import require
from stageb.job import heartbeat
from stageb.job.world import World
from stageb.training.step import Muon, SkippedSteps
from stageb.two_channel.config import ScheduleConfig, TwoChannelConfig
from stageb.two_channel.learning import packing, recorded
from stageb.two_channel.learning.losses import NAMES, compute_losses
from stageb.two_channel.learning.packing import Line, Pack
from stageb.two_channel.model.adapters import find_token_embeddings
from stageb.two_channel.model.model import Detector
from stageb.two_channel.model.taught import TaughtBlocks
from stageb.two_channel.model.tower import Geometry
from stageb.two_channel.types import Sample, StepTotals, Target

BETAS = (0.9, 0.98)


@dataclass(frozen=True)
class StepFigures:
    """The figures of a step over all ranks; times are this rank's."""

    losses: dict[str, float]  # by name: means over the step (see ``losses.py``)
    grad_norm: float
    skipped: bool  # the optimiser's step was skipped because the gradient was not finite
    set_aside: int  # samples that were left out because they were too long
    packs: int
    tokens: int  # of all packs
    # used fraction of the tokens that all packs but the last have room for; 1 for a single pack
    fill: float
    pack_s: float  # seconds of making packs and waiting for targets
    forward_s: float  # seconds of forward and backward passes
    # seconds of waiting for other ranks and the device, and of the optimiser's step
    reduce_s: float


@dataclass
class _StepSums:
    """Running sums of a step: the losses of this rank's packs, the lengths of all packs."""

    sums: Tensor
    lengths: list[int] = field(default_factory=list)
    set_aside: int = 0
    pack_s: float = 0.0
    forward_s: float = 0.0


@dataclass
class PlannedStep:
    """A step and this rank's packs of it."""

    step: int
    totals: StepTotals
    tally: _StepSums
    packs: Iterable[list[Line]]
    first: Pack | None = None  # the first pack, if it is made already


class DetectorLearner:
    """Trains ``detector``, which is the same on all ranks."""

    def __init__(self, world: World, detector: Detector, config: TwoChannelConfig) -> None:
        self.world, self.detector, self.config = world, detector, config
        if config.model.gradient_checkpointing:
            detector.model.gradient_checkpointing_enable({"use_reentrant": False})
        if config.model.compile:
            compile_layers(detector.model)
            if can_record(config, world, detector):
                recorded.record_layers(
                    detector.model, partial(deterministic, torch.device(world.device))
                )
        for each in find_taught(detector.model):
            each.requires_grad_(False)
        self.optimizers = make_optimizers(detector.model, config.schedule)
        self._weights = [each for group in self._groups for each in group["params"]]
        self._device = self._weights[0].device
        detector.model.train()
        self._head = detector.head(world.fabric.autocast)
        self._next: PlannedStep | None = None
        self._skipped_steps = SkippedSteps(
            "fabric.precision 32-true, or a smaller schedule.learning_rate"
        )

    def plan(
        self, step: int, targets: Iterable[tuple[Sample, Target]], totals: StepTotals
    ) -> PlannedStep:
        """Plan a later step; its images are not decoded yet. Raises as ``teach`` does."""
        tally = self._tally()
        return PlannedStep(step, totals, tally, list(self._mine(targets, tally)))

    def images(self, plan: PlannedStep) -> list[int]:
        """The names of the images in this rank's packs of a step."""
        return [
            name
            for lines in plan.packs
            for line in lines
            for name in self.detector.eyes.names_in(line.prompt)
        ]

    def prepare(self, plan: PlannedStep) -> None:
        """Make the first pack of the next step, while a GPU still computes the packs of the current
        one. Raises ``PictureError``."""
        mark = time.perf_counter()
        plan.first = next(
            (packing.pack(self.detector, lines, plan.totals) for lines in plan.packs), None
        )
        plan.tally.pack_s += time.perf_counter() - mark
        self._next = plan

    def teach(
        self, step: int, targets: Iterable[tuple[Sample, Target]], totals: StepTotals
    ) -> None:
        """Forward and backward passes over the packs of a step, whose ``targets`` are the same on
        all ranks; ``totals`` are those of their images. ``finish`` must follow. Raises
        ``InputError`` for an overlong sample, ``PictureError``."""
        plan, self._next = self._next, None
        if plan is None or plan.step != step:
            tally = self._tally()
            plan = PlannedStep(step, totals, tally, self._mine(targets, tally))
        self._taught = plan.tally
        mark = time.perf_counter()
        for lines in plan.packs:
            pack, plan.first = plan.first or packing.pack(self.detector, lines, totals), None
            self._taught.pack_s += time.perf_counter() - mark
            self._learn(pack, self._taught)
            mark = time.perf_counter()

    def finish(self, learning_rate: float) -> StepFigures:
        """Reduce the gradients over ranks and take the optimiser's step. Raises ``NonFiniteError``,
        on all ranks."""
        for group in self._groups:
            group["lr"] = learning_rate
        tally, begun = self._taught, time.perf_counter()
        sums = self._reduced(tally.sums)
        total_norm = torch.nn.utils.clip_grad_norm_(
            self._weights, self.config.schedule.max_grad_norm
        )
        *found, norm = torch.cat([sums, total_norm.double()[None]]).tolist()
        for optimizer in self.optimizers:
            if math.isfinite(norm):
                optimizer.step()
            optimizer.zero_grad(set_to_none=False)  # recordings add to gradients where these stand
        self._skipped_steps.count(math.isfinite(norm))
        full = self.config.packing.global_max_length * (len(tally.lengths) - 1)
        return StepFigures(
            losses=dict(zip(NAMES, found, strict=True)),
            grad_norm=norm,
            skipped=not math.isfinite(norm),
            set_aside=tally.set_aside,
            packs=len(tally.lengths),
            tokens=sum(tally.lengths),
            fill=sum(tally.lengths[:-1]) / full if full > 0 else 1.0,
            pack_s=tally.pack_s,
            forward_s=tally.forward_s,
            reduce_s=time.perf_counter() - begun,
        )

    def state(self) -> dict[str, Any]:
        """The state to resume from: the trained weights by name, and the optimisers' states."""
        trained = {name: each.detach() for name, each in self._trained()}
        states = [optimizer.state_dict() for optimizer in self.optimizers]
        broken = self._skipped_steps.in_a_row
        return {"weights": trained, "optimizers": states, "broken": broken}

    def take_up(self, state: dict[str, Any]) -> None:
        """Resume from the result of ``state``."""
        with torch.no_grad():
            for name, weight in self._trained():
                weight.copy_(state["weights"][name])
        for optimizer, kept in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        self._skipped_steps.in_a_row = state["broken"]

    @property
    def _groups(self) -> list[dict[str, Any]]:
        """The parameter groups of all optimisers. Not cached: loading a checkpoint replaces
        them."""
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def _trained(self) -> Iterator[tuple[str, nn.Parameter]]:
        return (
            (name, each)
            for name, each in self.detector.model.named_parameters()
            if each.requires_grad
        )

    def _tally(self) -> _StepSums:
        """Empty sums for a new step."""
        return _StepSums(torch.zeros(len(NAMES), dtype=torch.float64, device=self._device))

    def _mine(
        self, targets: Iterable[tuple[Sample, Target]], tally: _StepSums
    ) -> Iterator[list[Line]]:
        """This rank's packs of a step."""
        return islice(self._packs(targets, tally), self.world.rank, None, self.world.world_size)

    def _packs(
        self, targets: Iterable[tuple[Sample, Target]], tally: _StepSums
    ) -> Iterator[list[Line]]:
        """All packs of a step, in order."""
        config = self.config.packing

        def fitting() -> Iterator[Line]:
            for sample, target in targets:
                line = packing.make_line(self.detector, sample, target)
                if packing.fits(line, config.max_length, config.overlong == "set_aside"):
                    yield line
                else:
                    tally.set_aside += 1

        for lines in packing.make_packs(fitting(), config.global_max_length):
            tally.lengths.append(sum(map(len, lines)))
            yield lines

    def _learn(self, pack: Pack, tally: _StepSums) -> None:
        """Accumulate the gradient of a pack."""
        begun = time.perf_counter()
        with self.world.fabric.autocast():
            states = packing.forward(self.detector.model, pack)
        found = compute_losses(states, pack.taught, self._head, self.config.losses)
        with deterministic(self._device):
            self.world.fabric.backward(found.total)
        tally.sums += torch.stack([getattr(found, name).detach() for name in NAMES])
        tally.forward_s += time.perf_counter() - begun
        heartbeat.tick()

    def _reduced(self, sums: Tensor) -> Tensor:
        """Sum gradients over ranks, in place, and ``sums`` too."""
        if self.world.world_size == 1:
            return sums
        for each in self._weights:
            each.grad = torch.zeros_like(each) if each.grad is None else each.grad
        gradients = [each.grad for each in self._weights]
        # on a GPU, waiting for other ranks shows as waiting for the device
        with self.world.together("gradients"):
            total = self.world.sum(
                torch.cat([each.flatten() for each in gradients]), what="gradients"
            )
            found = self.world.sum(sums, what="gradients")
        parts = torch.split(total, [each.numel() for each in gradients])
        torch._foreach_copy_(
            gradients, [part.view_as(each) for part, each in zip(parts, gradients, strict=True)]
        )
        return found


@contextmanager
def deterministic(device: torch.device) -> Iterator[None]:
    """Context in which equal backward passes on a GPU give equal bytes: otherwise attention sums
    the gradients of texts longer than a block in any order. (With ``warn_only``, attention would
    keep its nondeterministic form.)"""
    if device.type != "cuda":
        yield
        return
    torch.use_deterministic_algorithms(True)
    # nothing here reads what it would fill
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def can_record(config: TwoChannelConfig, world: World, detector: Detector) -> bool:
    """Whether layers can be recorded as CUDA graphs: attention must be one kernel, all layers of a
    tower must get the same sequence lengths, and one forward and backward pass must run at a
    time."""
    return (
        torch.device(world.device).type == "cuda"
        and Geometry.known(detector.model.model.visual)
        and config.fabric.precision == "bf16-mixed"
        and not config.model.gradient_checkpointing
    )


def compile_layers(model: nn.Module) -> None:
    """Compile each layer of ``model`` with torch.compile, once for all lengths; weights keep their
    names. Raises ``ConfigError`` if there is no compiler.

    On a GPU, the forward pass is compiled within ``deterministic`` too: the compiled backward pass
    checks for that setting.
    """
    device = next(model.parameters()).device
    variable, usual = ("CXX", ["g++"]) if device.type == "cpu" else ("CC", ["gcc", "clang"])
    compilers = [os.environ[variable]] if variable in os.environ else usual
    remedy = (
        f"give false, or install {usual[0]}: torch finds no compiler (the variable "
        f"{variable} names another)"
    )
    require(any(map(shutil.which, compilers)), "model.compile", True, remedy)
    for layer in model.modules():
        if isinstance(layer, GradientCheckpointingLayer):
            layer.forward = deterministic(device)(torch.compile(layer.forward, dynamic=True))


def find_taught(model: nn.Module) -> list[nn.Parameter]:
    """The weights of a stem that was taught before."""
    return [
        each
        for part in model.modules()
        if isinstance(part, TaughtBlocks)
        for each in part.parameters()
    ]


def make_optimizers(model: nn.Module, config: ScheduleConfig) -> list[torch.optim.Optimizer]:
    """The optimisers of the trained weights of ``model``. Matrices have weight decay and, if
    ``config`` asks for it, Muon; vectors and embeddings, those beside adapters included, have
    neither."""
    embeddings = {id(each.weight) for each in model.modules() if isinstance(each, nn.Embedding)}
    embeddings |= set(map(id, find_token_embeddings(model)))
    trained = [each for each in model.parameters() if each.requires_grad]
    decaying = [each for each in trained if each.ndim > 1 and id(each) not in embeddings]
    others = [each for each in trained if each.ndim <= 1 or id(each) in embeddings]
    # 4: a stem's filters
    muons = [each for each in decaying if config.optimizer == "muon" and each.ndim in (2, 4)]
    rest = [each for each in decaying if config.optimizer != "muon" or each.ndim not in (2, 4)]
    groups = [
        {"params": rest, "weight_decay": config.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=config.learning_rate, betas=BETAS, fused=True)
    return [adamw, Muon(muons, config.learning_rate, config.weight_decay)] if muons else [adamw]
