"""Learning from the targets of a step: packs, a pass forward and back for each, and exactly one step of the optimiser.

Every learning rank is given all targets of a step and cuts the same packs of them; each learns from its share. Ranks may
have unequal numbers of packs, and none: gradients are summed where they arise and reduced over ranks once, when all packs of
the step are done. So nobody need know beforehand which pack is the last, packs are learnt from while answers are still
coming in, and how samples are dealt out to packs and ranks changes rounding alone. DDP's own hooks are not used: they would
want the same number of backward passes everywhere.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn
from transformers.modeling_layers import GradientCheckpointingLayer

from stageb import seeds
from stageb.config import require
from stageb.job import heartbeat
from stageb.job.world import World
from stageb.training.muon import Muon
from stageb.training.nonfinite import SkippedSteps
from stageb.two_channel import adapters, channel_a, packing, recorded
from stageb.two_channel.config import Channel, ScheduleConfig, TwoChannelConfig
from stageb.two_channel.geometry import Geometry
from stageb.two_channel.losses import NAMES, compute_losses
from stageb.two_channel.model import Detector
from stageb.two_channel.packing import Line, Pack
from stageb.two_channel.types import Sample, StepTotals, Target

BETAS = (0.9, 0.98)


@dataclass(frozen=True)
class StepFigures:
    """What a step came to, over all learning ranks; times are this rank's."""

    losses: dict[str, float]  # by name: sums over the step, in the shares of ``packing``
    grad_norm: float
    skipped: bool  # the optimiser's step was left out, since the gradient was not finite
    set_aside: int  # samples left out, since they were too long
    packs: int
    tokens: int  # of all packs
    fill: float  # tokens, as a share of what all packs but the last have room for; 1 where there is no other
    pack_s: float  # seconds, making packs and waiting for targets
    forward_s: float  # seconds, passes forward and back
    reduce_s: float  # seconds, waiting for the other ranks and for the device, and the optimiser's step


@dataclass
class _Tally:
    """A step so far: the losses of this rank's packs; the lengths of all packs."""

    sums: Tensor
    lengths: list[int] = field(default_factory=list)
    set_aside: int = 0
    pack_s: float = 0.0
    forward_s: float = 0.0


@dataclass
class PlannedStep:
    """A step: what this rank learns in it."""

    step: int
    totals: StepTotals
    tally: _Tally
    packs: Iterable[list[Line]]
    first: Pack | None = None  # where it is made already


class Learner:
    """Teaches ``detector``, which is the same on all learning ranks: the first ``ranks`` of the world, or all of it.

    ``summed`` gives the sum of a tensor over them; where they are not the whole world it must be given.
    """

    def __init__(
        self,
        world: World,
        detector: Detector,
        config: TwoChannelConfig,
        ranks: int | None = None,
        summed: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.world, self.detector, self.config = world, detector, config
        self.ranks = world.world_size if ranks is None else ranks
        self._summed = summed or partial(world.sum, what="gradients")
        if config.model.gradient_checkpointing:
            detector.model.gradient_checkpointing_enable({"use_reentrant": False})
        if config.model.compile:
            compile_layers(detector.model)
            if can_record(config, world, detector):
                recorded.record_layers(detector.model, partial(deterministic, torch.device(world.device)))
        self.optimizers = make_optimizers(detector.model, config.schedule)
        self._weights = [each for group in self._groups for each in group["params"]]
        self._average = [each.detach().clone() for each in self._weights] if config.schedule.average_weights else []
        self._device = self._weights[0].device
        detector.model.train()
        self._head = detector.head(world.fabric.autocast)
        self._next: PlannedStep | None = None
        self._skipped_steps = SkippedSteps("fabric.precision 32-true, or a smaller schedule.learning_rate")

    def step(
        self,
        step: int,
        targets: Iterable[tuple[Sample, Target]],
        channel: Channel,
        totals: StepTotals,
        learning_rate: float,
    ) -> StepFigures:
        """A step on ``targets``, the same on all learning ranks; ``totals`` are of their images.

        Raises ``NonFiniteError`` on all ranks alike, ``InputError`` for an overlong sample, ``PictureError``.
        """
        self.teach(step, targets, channel, totals)
        return self.finish(step, learning_rate)

    def plan(self, step: int, targets: Iterable[tuple[Sample, Target]], totals: StepTotals) -> PlannedStep:
        """A step to come, its images not yet looked at. Raises as ``step`` does."""
        tally = self._tally()
        return PlannedStep(step, totals, tally, list(self._mine(targets, tally)))

    def images(self, plan: PlannedStep) -> list[int]:
        """The names of the images that this rank will be shown in a step."""
        return [name for lines in plan.packs for line in lines for name in self.detector.eyes.names_in(line.prompt)]

    def prepare(self, plan: PlannedStep) -> None:
        """Make the first pack of a step that comes next: while a GPU still learns the packs of the step before, which it is
        told of and not waited for. Raises ``PictureError``."""
        mark = time.perf_counter()
        plan.first = next((packing.pack(self.detector, lines, plan.totals) for lines in plan.packs), None)
        plan.tally.pack_s += time.perf_counter() - mark
        self._next = plan

    def teach(self, step: int, targets: Iterable[tuple[Sample, Target]], channel: Channel, totals: StepTotals) -> None:
        """The packs of a step, forward and back; raises as ``step`` does. ``finish`` is to follow."""
        if self.config.tuner.dropout:  # drawn from torch's own stream, which a run that goes on would find elsewhere
            torch.manual_seed(seeds.stream(self.config.seed, "two_channel", "dropout", step, self.world.rank) >> 1)
        plan, self._next = self._next, None
        if plan is None or plan.step != step:
            tally = self._tally()
            plan = PlannedStep(step, totals, tally, self._mine(targets, tally))
        self._taught = plan.tally
        mark = time.perf_counter()
        for lines in plan.packs:
            pack, plan.first = plan.first or packing.pack(self.detector, lines, totals), None
            self._taught.pack_s += time.perf_counter() - mark
            self._learn(pack, channel, self._taught)
            mark = time.perf_counter()

    def finish(self, step: int, learning_rate: float) -> StepFigures:
        """Reduce the gradients of what was taught over ranks, and take the optimiser's step. Raises ``NonFiniteError``."""
        for group in self._groups:
            group["lr"] = learning_rate
        figures = self._finish(self._taught)
        if self._average:
            update = get_ema_multi_avg_fn(average_decay(self.config.schedule, step))  # type: ignore[no-untyped-call]
            update(self._average, self._weights, step)
        return figures

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Within, the model holds the average of its weights, where one is kept."""
        raw = [each.data for each in self._weights]
        for weight, average in zip(self._weights, self._average, strict=False):
            weight.data = average
        try:
            yield
        finally:
            for weight, kept in zip(self._weights, raw, strict=True):
                weight.data = kept

    def state(self) -> dict[str, Any]:
        """All that a learner goes on from: weights that are trained, by name, their average, and the optimisers'."""
        trained = {name: each.detach() for name, each in self._trained()}
        states = [optimizer.state_dict() for optimizer in self.optimizers]
        broken = self._skipped_steps.in_a_row
        return {"weights": trained, "average": self._average, "optimizers": states, "broken": broken}

    def take_up(self, state: dict[str, Any]) -> None:
        """Go on from what ``state`` gave."""
        with torch.no_grad():
            for name, weight in self._trained():
                weight.copy_(state["weights"][name])
            for average, held in zip(self._average, state["average"], strict=True):
                average.copy_(held)
        for optimizer, kept in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        self._skipped_steps.in_a_row = state["broken"]

    @property
    def _groups(self) -> list[dict[str, Any]]:
        """Made anew by a checkpoint that is taken up."""
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def _trained(self) -> Iterator[tuple[str, nn.Parameter]]:
        return ((name, each) for name, each in self.detector.model.named_parameters() if each.requires_grad)

    def _tally(self) -> _Tally:
        """Of a step that begins."""
        return _Tally(torch.zeros(len(NAMES), dtype=torch.float64, device=self._device))

    def _mine(self, targets: Iterable[tuple[Sample, Target]], tally: _Tally) -> Iterator[list[Line]]:
        """The packs of a step that this rank learns from."""
        return islice(self._packs(targets, tally), self.world.rank, None, self.ranks)

    def _packs(self, targets: Iterable[tuple[Sample, Target]], tally: _Tally) -> Iterator[list[Line]]:
        """The packs of a step, in their order."""
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

    def _learn(self, pack: Pack, channel: Channel, tally: _Tally) -> None:
        """Add a pack's gradient to what there is."""
        begun = time.perf_counter()
        iterations = self.config.channel_a.n_softctx_iter if channel == "A" else 1
        with self.world.fabric.autocast():
            passes = channel_a.run_passes(self.detector.model, pack, self._head, iterations)
        found = compute_losses(passes, pack.taught, self._head, self.config.losses)
        with deterministic(self._device):
            self.world.fabric.backward(found.total)
        tally.sums += torch.stack([getattr(found, name).detach() for name in NAMES])
        tally.forward_s += time.perf_counter() - begun
        heartbeat.tick()

    def _finish(self, tally: _Tally) -> StepFigures:
        """Reduce gradients, and step."""
        begun = time.perf_counter()
        sums = self._reduced(tally.sums)
        total_norm = torch.nn.utils.clip_grad_norm_(self._weights, self.config.schedule.max_grad_norm)
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

    def _reduced(self, sums: Tensor) -> Tensor:
        """Sum gradients over ranks, in place, and ``sums`` too."""
        if self.ranks == 1:
            return sums
        for each in self._weights:
            each.grad = torch.zeros_like(each) if each.grad is None else each.grad
        gradients = [each.grad for each in self._weights]
        with self.world.together("gradients"):  # on a GPU the wait for the other ranks is that for the device
            total = self._summed(torch.cat([each.flatten() for each in gradients]))
            found = self._summed(sums)
        parts = torch.split(total, [each.numel() for each in gradients])
        torch._foreach_copy_(gradients, [part.view_as(each) for part, each in zip(parts, gradients, strict=True)])
        return found


@contextmanager
def deterministic(device: torch.device) -> Iterator[None]:
    """Within, equal passes back on a GPU leave equal bytes: attention would else sum the gradients of a text of more than a
    block in any order. Where torch only warned of operations without such a form, attention would keep to that order."""
    if device.type != "cuda":
        yield
        return
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # which nothing here reads
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def can_record(config: TwoChannelConfig, world: World, detector: Detector) -> bool:
    """Whether layers can be recorded: where attention is one kernel, layers of a tower are told the same of sequences, all
    weights learn, and one pass goes forward and back at a time."""
    return (
        torch.device(world.device).type == "cuda"
        and Geometry.known(detector.model.model.visual)
        and config.fabric.precision == "bf16-mixed"
        and config.tuner.kind != "lora"
        and not config.model.gradient_checkpointing
        and config.channel_a.n_softctx_iter == 1
    )


def compile_layers(model: nn.Module) -> None:
    """Have torch compile each layer of ``model``, once for all lengths; names of weights stay as they are. Raises
    ``ConfigError`` where there is no compiler.

    On a GPU a compiled pass back runs only in the order of sums that its pass forward was compiled in.
    """
    device = next(model.parameters()).device
    variable, usual = ("CXX", ["g++"]) if device.type == "cpu" else ("CC", ["gcc", "clang"])
    compilers = [os.environ[variable]] if variable in os.environ else usual
    remedy = f"give false, or install {usual[0]}: torch finds no compiler (the variable {variable} names another)"
    require(any(map(shutil.which, compilers)), "model.compile", True, remedy)
    for layer in model.modules():
        if isinstance(layer, GradientCheckpointingLayer):
            layer.forward = deterministic(device)(torch.compile(layer.forward, dynamic=True))


def average_decay(config: ScheduleConfig, step: int) -> float:
    """How much of the average of weights stays at ``step``: less at first, or it would hold on to where the run began."""
    return min(config.average_weights, (1 + step) / (10 + step))


def make_optimizers(model: nn.Module, config: ScheduleConfig) -> list[torch.optim.Optimizer]:
    """What takes the steps of the weights of ``model`` that are trained: matrices decay; vectors and embeddings do not, and
    are never Muon's, nor are the embeddings that are trained beside adapters."""
    embeddings = {id(each.weight) for each in model.modules() if isinstance(each, nn.Embedding)}
    embeddings |= set(map(id, adapters.find_token_embeddings(model)))
    trained = [each for each in model.parameters() if each.requires_grad]
    decaying = [each for each in trained if each.ndim > 1 and id(each) not in embeddings]
    others = [each for each in trained if each.ndim <= 1 or id(each) in embeddings]
    muons = [each for each in decaying if config.optimizer == "muon" and each.ndim in (2, 4)]  # 4: a stem's filters
    rest = [each for each in decaying if config.optimizer != "muon" or each.ndim not in (2, 4)]
    groups = [{"params": rest, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=config.learning_rate, betas=BETAS, fused=True)
    return [adamw, Muon(muons, config.learning_rate, config.weight_decay)] if muons else [adamw]
