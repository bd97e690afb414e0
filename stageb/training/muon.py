"""Muon (Jordan et al. 2024) for many small matrices: those of one shape are made orthogonal together.

A small model has dozens of equal little matrices; ``torch.optim.Muon`` takes them one by one, and launching its kernels then
costs more than the training step. The numbers are those of ``torch.optim.Muon(adjust_lr_fn="match_rms_adamw")``; on a CPU,
which iterates in float32, they are rounded less: without AMX, CPUs multiply bfloat16 slower than float32, and those
without AVX-512 take 15 to 20 times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from stageb.training.step import recorded

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5

# For each shape: its longer side, the indices of its matrices, and their steps.
Steps = list[tuple[int, list[int], list[torch.Tensor]]]


def orthogonalize(stack: torch.Tensor) -> torch.Tensor:
    """Approximately the nearest orthogonal matrix for each one in ``stack``, (n, rows, columns) with rows <= columns; in
    bfloat16, or float32 on a CPU. Newton-Schulz iteration."""
    a, b, c = COEFFICIENTS
    x: torch.Tensor = stack.float() if stack.device.type == "cpu" else stack.bfloat16()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


class Muon(torch.optim.Optimizer):
    """Nesterov momentum whose steps are orthogonalised, with decoupled weight decay. A convolution's filter is a row of its
    matrix. On a GPU, the way from gradients to steps is recorded as a CUDA graph while gradients stay in place."""

    def __init__(self, matrices: Iterable[torch.Tensor], lr: float, weight_decay: float, momentum: float = 0.95) -> None:
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
                torch._foreach_add_([matrices[i] for i in members], parts, alpha=-group["lr"] * 0.2 * columns**0.5)

    def _compute_steps(self, number: int, owned: list[torch.Tensor], momentum: float) -> Steps:
        """``_orthogonalize_gradients``, replayed from a recording on a GPU."""
        momenta = [self.state[p].setdefault("momentum", torch.zeros_like(p)).view(len(p), -1) for p in owned]
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

            held.replay = recorded(act, ready)
        return held.replay()


@dataclass(slots=True)
class _RecordedUpdate:
    """The addresses that a group's last step read, and its recording if they stayed the same since."""

    addresses: list[int]
    replay: Callable[[], Steps] | None = None


def _orthogonalize_gradients(grads: list[torch.Tensor], momenta: list[torch.Tensor], momentum: float) -> Steps:
    """The orthogonal steps of matrices, those of one shape together; updates ``momenta`` in place."""
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
        parts = [f if steps[i].shape[0] <= steps[i].shape[1] else f.T for i, f in zip(members, made, strict=True)]
        found.append((columns, members, parts))
    return found
