"""Muon (Jordan et al. 2024) for many small matrices: those of one shape are made orthogonal together.

A small model has dozens of equal little matrices; ``torch.optim.Muon`` takes them one by one, and launching its kernels then
costs more than the training step. The numbers are those of ``torch.optim.Muon(adjust_lr_fn="match_rms_adamw")``; on a CPU,
which iterates in float32, they are rounded less: without AMX, CPUs multiply bfloat16 slower than float32, and those
without AVX-512 take 15 to 20 times as long.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5


def orthogonal(stack: torch.Tensor) -> torch.Tensor:
    """Nearly the closest orthogonal matrix of each of ``stack`` (n, rows, columns), rows <= columns: in bfloat16, or float32
    on a CPU."""
    a, b, c = COEFFICIENTS
    x: torch.Tensor = stack.float() if stack.device.type == "cpu" else stack.bfloat16()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


class Muon(torch.optim.Optimizer):
    """Momentum, Nesterov's step, its orthogonal part; weight decay apart from it. A filter of a convolution is a row of a
    matrix."""

    def __init__(self, matrices: Iterable[torch.Tensor], lr: float, weight_decay: float, momentum: float = 0.95) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update of every matrix that has a gradient; ``closure`` is not supported."""
        for group in self.param_groups:
            owned = [p for p in group["params"] if p.grad is not None]
            grads = [p.grad.flatten(1) for p in owned]
            speeds = [self.state[p].setdefault("momentum", torch.zeros_like(p)).view(len(p), -1) for p in owned]
            torch._foreach_lerp_(speeds, grads, 1 - group["momentum"])
            steps = torch._foreach_lerp(grads, speeds, group["momentum"])
            matrices = [p.view(len(p), -1) for p in owned]
            torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
            shapes: dict[tuple[int, int], list[int]] = {}
            for i, step in enumerate(steps):
                shapes.setdefault((min(step.shape), max(step.shape)), []).append(i)
            for (_, columns), members in shapes.items():
                wide = [steps[i] if steps[i].shape[0] <= steps[i].shape[1] else steps[i].T for i in members]
                found = orthogonal(torch.stack(wide)).float()
                parts = [f if steps[i].shape[0] <= steps[i].shape[1] else f.T for i, f in zip(members, found, strict=True)]
                torch._foreach_add_([matrices[i] for i in members], parts, alpha=-group["lr"] * 0.2 * columns**0.5)
