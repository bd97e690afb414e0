"""Matrix products of float32 activations and bfloat16 weights, for checkpoints that are bfloat16 to begin with.

``y = bf16(x) W^T``, accumulated in float32: the weights lose nothing, the activations are rounded for the product alone.
Used on CPUs with AMX, which multiply such numbers several times as fast as float32; elsewhere, CPUs with AVX-512 BF16
included, the product is the float32 one. Attention stays in float32. Figures: ``lab/notes/engines.md``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class HalfPrecisionLinear(nn.Linear):
    """A linear layer, float32 in and out, whose products may be bfloat16 ones."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # as the layer names it
        """(..., in) to (..., out)."""
        products = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]  # set up at import
        before = products.fp32_precision
        products.fp32_precision = "bf16"
        try:
            return functional.linear(input, self.weight, self.bias)
        finally:
            products.fp32_precision = before


def use_half_products(model: nn.Module) -> None:
    """Let the linear layers of ``model`` multiply so."""
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = HalfPrecisionLinear


def has_half_products(model: nn.Module) -> bool:
    """Whether some layer of ``model`` does."""
    return any(isinstance(module, HalfPrecisionLinear) for module in model.modules())
