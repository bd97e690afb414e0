"""Matrix products with weights of fewer bits than the activations: bfloat16 beside float32, and
float8.

``y = bf16(x) W^T``, accumulated in float32: the weights lose nothing, the activations are rounded
for the product alone. Used on CPUs with AMX, which multiply such numbers several times as fast as
float32; elsewhere, CPUs with AVX-512 BF16 included, the product is the float32 one. Attention stays
in float32. Figures: ``lab/notes/engines.md``.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from stageb.config import require


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


# Products and kept prompts in float8 (``model.quantize: fp8``): faster than bfloat16, with three
# bits of mantissa.
#
# A number becomes e4m3 (Micikevicius et al. 2022, "FP8 formats for deep learning") over a float32
# scale of its own line: weights line by line of their matrix, once, when the model is loaded;
# activations token by token, at every product. So
#
#     y = (q(x) q(W)^T) * s(x) s(W)^T,    q(x) = e4m3(x / s(x)),    s(x) = max |x| / 448 over a
#     line,
#
# accumulated in float32. The linear layers of the decoder multiply so; embeddings, the head that
# makes logits, norms and attention stay as they are. Keys and values of prompts are kept so, too,
# with a scale for each token and head.

FLOAT8 = torch.float8_e4m3fn
LARGEST = torch.finfo(FLOAT8).max
CAPABILITY = (8, 9)  # of GPUs that multiply such numbers
# Names that families of models give to layers that read the same input, in the order in which they
# are asked.
TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
SIDES = 16  # both sides of a matrix must be multiples of it


class Float8Linear(nn.Linear):
    """A linear layer whose weight is float8, with ``scale`` (1, out)."""

    scale: Tensor
    joined: Joined | None = None  # where its product is part of a wider one

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # as the layer names it
        """(..., in) to (..., out)."""
        return (
            self.joined.part(self, input)
            if self.joined
            else product(input, self.weight, self.scale, self.bias)
        )


class Joined:
    """One product in place of those of ``layers``, which have no bias and are asked for the same
    input one after another, in this order."""

    def __init__(self, layers: Sequence[Float8Linear]) -> None:
        self._layers = layers
        self._weight = torch.cat([layer.weight for layer in layers])
        self._scale = torch.cat([layer.scale for layer in layers], 1)
        self._widths = [len(layer.weight) for layer in layers]
        # of the latest input, for the layers that have yet to be asked
        self._parts: list[Tensor] = []
        for layer, weight in zip(layers, torch.split(self._weight, self._widths), strict=True):
            layer.weight, layer.joined = nn.Parameter(weight, requires_grad=False), self

    def part(self, layer: Float8Linear, input: Tensor) -> Tensor:  # noqa: A002
        """(..., in) to (..., out) of ``layer``."""
        if layer is self._layers[0]:
            self._parts = list(
                torch.split(product(input, self._weight, self._scale, None), self._widths, -1)
            )
        found, *self._parts = self._parts
        return found


def product(input: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:  # noqa: A002
    """(..., in) times ``weight`` (out, in), with ``scale`` (1, out): (..., out)."""
    lines, of_lines = quantize_rows(input.flatten(0, -2))
    if input.is_cuda:
        out = torch._scaled_mm(
            lines, weight.t(), of_lines, scale, bias, out_dtype=input.dtype, use_fast_accum=True
        )
    else:  # where a CPU multiplies float8 itself, torch 2.11 knows one scale for all lines
        out = (
            (lines.float() * of_lines) @ (weight.t().float() * scale)
            + (0 if bias is None else bias)
        ).to(input.dtype)
    return out.view(*input.shape[:-1], -1)


def quantize_rows(lines: Tensor) -> tuple[Tensor, Tensor]:
    """``lines`` (..., n) in float8, and their scales, float32 (..., 1)."""
    if lines.is_cuda:  # in one reading; what torch's compiler makes of the below takes two
        from stageb.engines.native import kernels

        flat = lines.flatten(0, -2)
        kept, scales = (
            torch.empty_like(flat, dtype=FLOAT8),
            flat.new_empty(len(flat), dtype=torch.float32),
        )
        kernels.keep_in_float8(flat[None], kept[None], scales[None])
        return kept.view(lines.shape), scales.view(*lines.shape[:-1], 1)
    scale = lines.abs().amax(-1, keepdim=True).float().clamp(min=1e-12) / LARGEST
    return (lines.float() / scale).clamp(-LARGEST, LARGEST).to(FLOAT8), scale


def quantize(model: nn.Module) -> None:
    """Let the linear layers of the decoder of ``model``, which is in half precision, multiply in
    float8."""
    # transformers' models have one
    modules = list(model.get_decoder().modules())  # type: ignore[operator]
    for module in modules:
        if type(module) is nn.Linear and not (
            module.in_features % SIDES or module.out_features % SIDES
        ):
            weight, scale = quantize_rows(module.weight.detach())
            module.__class__ = Float8Linear
            module.weight = nn.Parameter(weight, requires_grad=False)
            module.register_buffer("scale", scale.t().contiguous(), persistent=False)
    for parent, names in itertools.product(modules, TOGETHER):
        layers = [
            layer
            for name in names
            if isinstance(layer := getattr(parent, name, None), Float8Linear)
        ]
        if len(layers) == len(names) and all(layer.bias is None for layer in layers):
            Joined(layers)


def check_device(device: str, asked: str) -> None:
    """Raises ``ConfigError`` where ``device`` does not multiply such numbers."""
    able = device.startswith("cuda") and torch.cuda.get_device_capability(device) >= CAPABILITY
    remedy = (
        f"null on {device}: float8 takes a GPU of compute capability "
        f"{'.'.join(map(str, CAPABILITY))} or later"
    )
    require(able, "model.quantize", asked, remedy)


def is_quantized(model: nn.Module) -> bool:
    """Whether some layer of ``model`` multiplies so."""
    return any(isinstance(module, Float8Linear) for module in model.modules())


# How far logits of the same text, computed in two ways, may lie apart, as a share of their norm ...
TOLERANCE = {torch.float32: 1e-3}
HALVED_TOLERANCE = (
    0.1  # ... in half precision, where a deep model's own noise is some hundredths ...
)
FLOAT8_TOLERANCE = 0.3  # ... and in float8, where it is more


def find_tolerance(model: Any) -> float:
    """The tolerance by the precision in which ``model`` multiplies."""
    if is_quantized(model):
        return FLOAT8_TOLERANCE
    if has_half_products(model):
        return HALVED_TOLERANCE
    return TOLERANCE.get(model.dtype, HALVED_TOLERANCE)
