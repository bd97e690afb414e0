"""One step of an optimiser: taken, skipped where its gradient is not finite, recorded as a CUDA
graph; and Muon.

On a GPU it is recorded once for each size of minibatch and replayed as a CUDA graph, NCCL's
reductions included, as torch's notes on CUDA graphs have it for DistributedDataParallel. Networks
are so small that the processor would take longer to launch a step's some hundred kernels than the
GPU to run them, and where several ranks learn all would wait, at every step, for the one whose
processor was slowest.

Nothing in a step waits for the device, which itself leaves the weights unchanged if a gradient is
not finite. A loss that is not finite on one rank leaves no finite gradient on any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from stageb.config import PpoConfig
from stageb.errors import StagebError
from stageb.job import heartbeat
from stageb.job.process import collector_off
from stageb.training import ppo
from stageb.training.ppo import Batch

# Optimiser steps whose gradients are not finite: each is skipped, and three in a row end a run.

IN_A_ROW = 3  # skipped steps after which a run ends
REASON = f"the gradients of {IN_A_ROW} steps in a row are not finite"


class NonFiniteError(StagebError):
    """Gradients were not finite for too many steps in a row."""


class SkippedSteps:
    """Counts skipped steps in a row."""

    def __init__(self, remedy: str) -> None:
        """``remedy``: what the error message tells the user to try."""
        self.remedy = remedy
        self.in_a_row = 0

    def count(self, finite: bool, reason: str = REASON) -> None:
        """Count one step, whose gradients were ``finite`` or not.

        Raises ``NonFiniteError`` with ``reason`` and the remedy at the last of ``IN_A_ROW`` skipped
        steps.
        """
        self.in_a_row = 0 if finite else self.in_a_row + 1
        if self.in_a_row == IN_A_ROW:
            raise NonFiniteError(f"{reason}; the last commit is intact. Try {self.remedy}")


T = TypeVar("T")


class Recorder:
    """Records functions one after the other in the same memory pool. Once the next is recorded, an
    earlier one may be replayed only if all are, in the order of recording. A result that a later
    one reads stays valid while something holds it.

    Unlike ``torch.cuda.graph``, this does not empty the allocator's cache before each recording:
    with many recordings a second, processes on one machine were seen to block each other by that.
    """

    def __init__(self) -> None:
        self._stream: torch.cuda.Stream | None = None  # memory is held by stream
        self._newest: torch.cuda.CUDAGraph | None = None  # keeps the memory

    def record(self, act: Callable[[], T], ready: Callable[[], object]) -> Callable[[], T]:
        """Record ``act``. Returns a function that replays it and returns its tensors: the same ones
        each time, rewritten.

        ``act`` must work on tensors that stay in place and never wait for the device. ``ready`` is
        called first to warm up: it calls ``act`` a few times, so that every kernel is loaded.
        Recording itself computes nothing.
        """
        stream = self._stream = self._stream or torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            ready()
            pool = self._newest.pool() if self._newest else None
            # it could free tensors of the GPU, or another graph, in the middle of the recording
            with collector_off():
                # NCCL's own threads go on meanwhile
                graph.capture_begin(pool, capture_error_mode="thread_local")
                try:
                    left = act()
                finally:
                    graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        self._newest = graph

        def again() -> T:
            graph.replay()
            return left

        return again


WARM_UP = 3  # steps before one is recorded
WARM_UP_DDP = 11  # DDP times its first ten, and lays gradients out anew after the first


class Step:
    """An agent that learns by PPO, and its optimiser, on one device."""

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        config: PpoConfig,
        backward: Callable[[Tensor], object],
        warm_up: int = WARM_UP,
    ) -> None:
        """``model`` gives log-probabilities, entropies and values of a batch's ``inputs``, and
        ``backward`` differentiates a loss. ``optimizer`` is torch's Adam, fused, as it is or as
        ``fabric.setup`` gives it back."""
        self.model, self.optimizer, self.config = model, optimizer, config
        self._backward, self._warm_up = backward, warm_up
        self.device = next(model.parameters()).device
        self.uses_graphs = self.device.type == "cuda"
        self._rate, self._entropy_weight = (
            torch.zeros((), device=self.device),
            torch.zeros((), device=self.device),
        )
        # by size: what is read, and a step on it
        self._recorded: dict[int, tuple[Batch, Callable[[], Tensor]]] = {}
        self._loss = ppo.ppo_loss
        self._steer()

    def compile(self) -> None:
        """Have torch compile the loss; before the first step."""
        self._loss = torch.compile(ppo.ppo_loss, dynamic=False)

    def load(self, state: dict[str, Any]) -> None:
        """Load the optimiser's ``state``."""
        self.optimizer.load_state_dict(state)
        self._steer()
        self._recorded.clear()

    def set_hyperparameters(self, learning_rate: float, entropy_weight: float) -> None:
        """Set the learning rate and the weight of the entropy bonus for the steps from now on."""
        self._rate.fill_(learning_rate)
        self._entropy_weight.fill_(entropy_weight)

    def prepare(self, like: Batch) -> None:
        """Take steps without effect on batches of the size of ``like``; on a GPU, record one.

        DDP lays gradients out differently after its first reduction. Without this, a run that
        starts would round differently from one that resumes, and the two would leave different
        bytes.
        """
        if self.uses_graphs:
            self._recorded[len(like)] = self._record(like)
        else:
            for _ in range(2):
                self._take(_make_nan_batch(like))

    def take(self, batch: Batch) -> Tensor:
        """Take a step. Returns what ``ppo.note_step`` does: the losses on this rank, and the
        gradient norm that all share."""
        if not self.uses_graphs:
            return self._take(batch)
        if len(batch) not in self._recorded:
            self._recorded[len(batch)] = self._record(batch)
        held, replay = self._recorded[len(batch)]
        for into, new in zip(held.tensors(), batch.tensors(), strict=True):
            into.copy_(new)
        return replay().clone()

    def take_all(self, batches: Iterable[Batch]) -> Tensor:
        """A step for each of ``batches``: what ``take`` gives, float32 (S, 6)."""
        taken = []
        for batch in batches:
            taken.append(self.take(batch))
            heartbeat.tick()
        return torch.stack(taken)

    def _steer(self) -> None:
        """Make the optimiser read its learning rate from the tensor that recorded graphs read."""
        for group in self.optimizer.param_groups:
            group["lr"], group["capturable"] = self._rate, self.uses_graphs

    def _record(self, like: Batch) -> tuple[Batch, Callable[[], Tensor]]:
        """Record a step on a batch of the size of ``like`` as a CUDA graph."""
        # Fabric makes DDP on a stream of its own, as recording wants it; torch warns that it is not
        # the one worked on.
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
        held = _make_nan_batch(like)
        return held, Recorder().record(
            lambda: self._take(held), lambda: [self._take(held) for _ in range(self._warm_up)]
        )

    def _take(self, batch: Batch) -> Tensor:
        losses = self._loss(self.model(*batch.inputs), batch, self.config, self._entropy_weight)
        self._backward(losses.total)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_grad_norm)
        torchs = getattr(self.optimizer, "optimizer", self.optimizer)  # Fabric wraps it
        # what torch.amp.GradScaler tells fused optimisers
        torchs.found_inf = (~norm.isfinite()).float()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return ppo.note_step(losses, norm)


def _make_nan_batch(like: Batch) -> Batch:
    """A batch of the size of ``like``, in its own memory, whose gradients are NaN: a step on it
    changes no weight."""
    nothing = {
        name: torch.full_like(like.log_probs, torch.nan)
        for name in ("log_probs", "advantages", "returns")
    }
    return replace(like, inputs=tuple(each.clone() for each in like.inputs), **nothing)


# Muon (Jordan et al. 2024) for many small matrices: those of one shape are made orthogonal
# together.
#
# A small model has dozens of equal little matrices; ``torch.optim.Muon`` takes them one by one, and
# launching its kernels costs more than the training step. The numbers are those of
# ``torch.optim.Muon(adjust_lr_fn="match_rms_adamw")``; on a CPU, which iterates in float32, they
# are rounded less: without AMX, CPUs multiply bfloat16 slower than float32, and those without
# AVX-512 take 15 to 20 times as long.

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5

# For each shape: its longer side, the indices of its matrices, and their steps.
Steps = list[tuple[int, list[int], list[torch.Tensor]]]


def orthogonalize(stack: torch.Tensor) -> torch.Tensor:
    """Approximately the nearest orthogonal matrix for each one in ``stack``, (n, rows, columns)
    with rows <= columns; in bfloat16, or float32 on a CPU. Newton-Schulz iteration."""
    a, b, c = COEFFICIENTS
    x: torch.Tensor = stack.float() if stack.device.type == "cpu" else stack.bfloat16()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


class Muon(torch.optim.Optimizer):
    """Nesterov momentum whose steps are orthogonalised, with decoupled weight decay. A
    convolution's filter is a row of its matrix. On a GPU, the way from gradients to steps is
    recorded as a CUDA graph while gradients stay in place."""

    def __init__(
        self,
        matrices: Iterable[torch.Tensor],
        lr: float,
        weight_decay: float,
        momentum: float = 0.95,
    ) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})
        self._held: dict[int, _RecordedUpdate] = {}  # by group

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update of every matrix that has a gradient; ``closure`` is not supported."""
        for number, group in enumerate(self.param_groups):
            owned = [p for p in group["params"] if p.grad is not None]
            steps = self._compute_steps(number, owned, group["momentum"])
            matrices = [p.view(len(p), -1) for p in owned]
            torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
            for columns, members, parts in steps:
                torch._foreach_add_(
                    [matrices[i] for i in members], parts, alpha=-group["lr"] * 0.2 * columns**0.5
                )

    def _compute_steps(self, number: int, owned: list[torch.Tensor], momentum: float) -> Steps:
        """``_orthogonalize_gradients``, replayed from a recording on a GPU."""
        momenta = [
            self.state[p].setdefault("momentum", torch.zeros_like(p)).view(len(p), -1)
            for p in owned
        ]
        grads = [p.grad for p in owned if p.grad is not None]
        act = partial(_orthogonalize_gradients, grads, momenta, momentum)
        addresses = [each.data_ptr() for each in (*grads, *momenta)]
        held = self._held.get(number)
        if not owned or not owned[0].is_cuda or held is None or held.addresses != addresses:
            self._held[number] = _RecordedUpdate(addresses)
            return act()
        if held.replay is None:
            kept = [each.clone() for each in momenta]

            def ready() -> None:
                act()
                torch._foreach_copy_(momenta, kept)

            held.replay = Recorder().record(act, ready)
        return held.replay()


@dataclass(slots=True)
class _RecordedUpdate:
    """The addresses that a group's last step read, and its recording if they stayed the same
    since."""

    addresses: list[int]
    replay: Callable[[], Steps] | None = None


def _orthogonalize_gradients(
    grads: list[torch.Tensor], momenta: list[torch.Tensor], momentum: float
) -> Steps:
    """The orthogonal steps of matrices, those of one shape together; updates ``momenta`` in
    place."""
    grads = [each.flatten(1) for each in grads]
    torch._foreach_lerp_(momenta, grads, 1 - momentum)
    steps = torch._foreach_lerp(grads, momenta, momentum)
    shapes: dict[tuple[int, int], list[int]] = {}
    for i, step in enumerate(steps):
        shapes.setdefault((min(step.shape), max(step.shape)), []).append(i)
    found = []
    for (_, columns), members in shapes.items():
        wide = [steps[i] if steps[i].shape[0] <= steps[i].shape[1] else steps[i].T for i in members]
        made = orthogonalize(torch.stack(wide)).float()
        parts = [
            f if steps[i].shape[0] <= steps[i].shape[1] else f.T
            for i, f in zip(members, made, strict=True)
        ]
        found.append((columns, members, parts))
    return found
