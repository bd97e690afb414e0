"""Learning from the targets of a step: packs, a pass forward and back for each, and exactly one step of the optimiser.

Ranks may have unequal numbers of packs, and none: gradients are summed where they arise and reduced over ranks once, when
all packs of a step are done. So nobody need know beforehand which pack is the last, packs may be learnt from while others
are still being made, and how samples are dealt out to packs and ranks changes rounding alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from stageb import pulse
from stageb.errors import StagebError
from stageb.two_channel import channel_a, packing
from stageb.two_channel.losses import NAMES, losses
from stageb.two_channel.model import Detector
from stageb.two_channel.packing import Line, Pack
from stageb.two_channel.sections import ChannelAConfig, LossConfig, OptimizerConfig, PackingConfig
from stageb.two_channel.types import Sample, Target
from stageb.world import World

BROKEN_IN_A_ROW = 3  # steps that come to no finite gradient, after which a run ends


class NonFiniteError(StagebError):
    """Losses that are no numbers any more."""


@dataclass(frozen=True)
class LearnerConfig:
    """What a learner is told; ``steps`` is the number of steps of the whole run."""

    channel_a: ChannelAConfig
    loss: LossConfig
    optimizer: OptimizerConfig
    packing: PackingConfig
    steps: int


@dataclass(frozen=True)
class Figures:
    """What a step came to, over all ranks; times are this rank's."""

    losses: dict[str, float]  # by name: means over the samples of the step
    grad_norm: float
    learning_rate: float
    skipped: bool  # the optimiser's step was left out, since the gradient was not finite
    samples: int
    set_aside: int  # samples left out, since they were too long
    packs: int
    tokens: int  # of all packs
    fill: float  # tokens, as a share of what all packs but each rank's last have room for; 1 where there are no others
    pack_s: float  # seconds, making packs
    forward_s: float  # seconds, passes forward and back
    reduce_s: float  # seconds, waiting for the other ranks and for the device, and the optimiser's step


class Learner:
    """Teaches ``detector``, which is the same on all learning ranks; ``summed`` gives the sum of a tensor over them."""

    def __init__(
        self, world: World, detector: Detector, config: LearnerConfig, summed: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        self.world, self.detector, self.config = world, detector, config
        self._summed = summed or self._over_ranks
        self.optimizer = optimizer_of(detector.model, config.optimizer)
        self._weights = [each for group in self.optimizer.param_groups for each in group["params"]]
        self._broken = 0  # steps in a row
        self._device = self._weights[0].device

    def step(self, targets: Sequence[tuple[Sample, Target]], channel: str, step: int, samples: int) -> Figures:
        """One step on this rank's ``targets``; the ranks together have ``samples``. ``channel`` is A or B.

        Raises ``NonFiniteError`` on all ranks alike, ``InputError`` for an overlong sample, ``PictureError``.
        """
        begun = time.perf_counter()
        lines = [packing.line_of(self.detector, sample, target) for sample, target in targets]
        config = self.config.packing
        fit = packing.fitting(lines, config.max_length, config.overlong == "set_aside")
        packs = packing.packed([len(line) for line in fit], config.global_max_length)
        seconds = time.perf_counter() - begun
        tally = _Tally(self._device, set_aside=len(lines) - len(fit), pack_s=seconds)
        self.detector.model.train()
        for places in packs:
            self._learn([fit[place] for place in places], channel, samples, tally)
        return self.finish(step, samples, tally)

    def _learn(self, lines: Sequence[Line], channel: str, samples: int, tally: _Tally) -> None:
        """Add a pack's gradient to what there is."""
        begun = time.perf_counter()
        pack = packing.pack(self.detector, lines, samples)
        packed = time.perf_counter()
        iterations = self.config.channel_a.n_softctx_iter if channel == "A" else 1
        with self.world.fabric.autocast():
            passes = channel_a.passes(self.detector.model, pack, self.detector.first, iterations)
        found = losses(passes, pack.taught, self.detector.first, self.config.loss)
        self.world.fabric.backward(found.total)
        tally.add(pack, torch.stack([getattr(found, name).detach() for name in NAMES]))
        tally.pack_s += packed - begun
        tally.forward_s += time.perf_counter() - packed
        pulse.tick()

    def finish(self, step: int, samples: int, tally: _Tally) -> Figures:
        """Reduce gradients, and step: the end of a step, on all ranks."""
        begun = time.perf_counter()
        rate = learning_rate(self.config.optimizer, step, self.config.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["factor"]
        sums, counts = self._reduced(tally)
        norm = float(torch.nn.utils.clip_grad_norm_(self._weights, self.config.optimizer.max_grad_norm))
        if math.isfinite(norm):
            self.optimizer.step()
        self.optimizer.zero_grad()
        self.detector.model.eval()
        self._count_broken(norm, step)
        room = self.config.packing.global_max_length * counts["full"]
        return Figures(
            losses=dict(zip(NAMES, sums, strict=True)),
            grad_norm=norm,
            learning_rate=rate,
            skipped=not math.isfinite(norm),
            samples=samples,
            set_aside=counts["set_aside"],
            packs=counts["packs"],
            tokens=counts["tokens"],
            fill=counts["filled"] / room if room else 1.0,
            pack_s=tally.pack_s,
            forward_s=tally.forward_s,
            reduce_s=time.perf_counter() - begun,
        )

    def state(self) -> dict[str, Any]:
        """All that a learner goes on from, beside the model's weights: tensors and numbers by name."""
        return {"optimizer": self.optimizer.state_dict(), "broken": self._broken}

    def take_up(self, state: dict[str, Any]) -> None:
        """Go on from what ``state`` gave."""
        self.optimizer.load_state_dict(state["optimizer"])
        self._broken = state["broken"]

    def _reduced(self, tally: _Tally) -> tuple[list[float], dict[str, int]]:
        """Bring together what ranks found: gradients in place, and the sums of losses and counts."""
        counts = {"packs": tally.packs, "tokens": tally.tokens, "set_aside": tally.set_aside}
        counts |= {"full": tally.packs - bool(tally.packs), "filled": tally.tokens - tally.last}
        told = torch.cat([tally.sums, torch.tensor(list(counts.values()), dtype=torch.float64, device=self._device)])
        with self.world.together("gradients"):
            told = self._summed(told)
            if self.world.world_size > 1:
                gradients = [each.grad if each.grad is not None else torch.zeros_like(each) for each in self._weights]
                flat = self._summed(torch.cat([each.flatten() for each in gradients]))
                for weight, part in zip(self._weights, flat.split([each.numel() for each in gradients]), strict=True):
                    weight.grad = part.view_as(weight)
        numbers = told.tolist()
        return numbers[: len(NAMES)], dict(zip(counts, map(int, numbers[len(NAMES) :]), strict=True))

    def _over_ranks(self, tensor: Tensor) -> Tensor:
        if self.world.world_size == 1:
            return tensor
        return torch.as_tensor(self.world.fabric.all_reduce(tensor, reduce_op="sum"))

    def _count_broken(self, norm: float, step: int) -> None:
        self._broken = 0 if math.isfinite(norm) else self._broken + 1
        if self._broken == BROKEN_IN_A_ROW:
            raise NonFiniteError(
                f"step {step}: the gradients of {BROKEN_IN_A_ROW} steps in a row are not finite; the last commit is intact. "
                "Try fabric.precision 32-true, or a smaller optimizer.learning_rate"
            )


class _Tally:
    """What has been learnt of a step so far, on this rank."""

    def __init__(self, device: torch.device, set_aside: int, pack_s: float) -> None:
        self.sums = torch.zeros(len(NAMES), dtype=torch.float64, device=device)
        self.set_aside, self.pack_s, self.forward_s = set_aside, pack_s, 0.0
        self.packs = self.tokens = self.last = 0

    def add(self, pack: Pack, found: Tensor) -> None:
        """A pack is done."""
        self.sums += found
        self.packs += 1
        self.tokens += pack.tokens
        self.last = pack.tokens


def learning_rate(config: OptimizerConfig, step: int, steps: int) -> float:
    """Of ``step`` of ``steps``, both counted from 0."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    along = (step - config.warmup_steps) / max(1, steps - 1 - config.warmup_steps)
    high, low = config.learning_rate, config.learning_rate_end
    return low + (high - low) * 0.5 * (1 + math.cos(math.pi * min(1.0, along)))


def optimizer_of(model: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW over the weights of ``model`` that are trained: matrices decay; vectors and embeddings do not."""
    embeddings = {id(each.weight) for each in model.modules() if isinstance(each, nn.Embedding)}
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            decays = weight.ndim > 1 and id(weight) not in embeddings
            groups.setdefault((decays, ".visual." in f".{name}"), []).append(weight)
    made = [
        {
            "params": weights,
            "weight_decay": config.weight_decay if decays else 0.0,
            "factor": config.vision_factor if sees else 1.0,
        }
        for (decays, sees), weights in groups.items()
    ]
    return torch.optim.AdamW(made, lr=config.learning_rate, betas=(0.9, config.beta2), fused=True)
