"""Products and kept prompts in float8 (``model.quantize: fp8``): faster than bfloat16, with three bits of mantissa.

A number becomes e4m3 (Micikevicius et al. 2022, "FP8 formats for deep learning") over a float32 scale of its own line:
weights line by line of their matrix, once, when the model is loaded; activations token by token, at every product. So

    y = (q(x) q(W)^T) * s(x) s(W)^T,    q(x) = e4m3(x / s(x)),    s(x) = max |x| / 448 over a line,

accumulated in float32. The linear layers of the decoder multiply so; embeddings, the head that makes logits, norms and
attention stay as they are. Keys and values of prompts are kept so, too, with a scale for each token and head.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stageb.config import require

FLOAT8 = torch.float8_e4m3fn
LARGEST = 448.0  # of e4m3
CAPABILITY = (8, 9)  # of GPUs that multiply such numbers
SIDES = 16  # both sides of a matrix must be multiples of it


class Float8Linear(nn.Linear):
    """A linear layer whose weight is float8, with ``scale`` (1, out)."""

    scale: Tensor

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # as the layer names it
        """(..., in) to (..., out)."""
        lines, scale = quantized(input.flatten(0, -2))
        out = torch._scaled_mm(
            lines, self.weight.t(), scale, self.scale, self.bias, out_dtype=input.dtype, use_fast_accum=True
        )
        return out.view(*input.shape[:-1], -1)


def quantized(lines: Tensor) -> tuple[Tensor, Tensor]:
    """``lines`` (..., n) in float8, and their scales, float32 (..., 1)."""
    scale = lines.abs().amax(-1, keepdim=True).float().clamp(min=1e-12) / LARGEST
    return (lines.float() / scale).clamp(-LARGEST, LARGEST).to(FLOAT8), scale


def quantize(model: nn.Module) -> None:
    """Let the linear layers of the decoder of ``model``, which is in half precision, multiply in float8."""
    for module in model.get_decoder().modules():  # type: ignore[operator]  # as transformers' models have it
        if type(module) is nn.Linear and not (module.in_features % SIDES or module.out_features % SIDES):
            weight, scale = quantized(module.weight.detach())
            module.__class__ = Float8Linear
            module.weight = nn.Parameter(weight, requires_grad=False)
            module.register_buffer("scale", scale.t().contiguous(), persistent=False)


def check_device(device: str, asked: str) -> None:
    """Raises ``ConfigError`` where ``device`` does not multiply such numbers."""
    able = device.startswith("cuda") and torch.cuda.get_device_capability(device) >= CAPABILITY
    remedy = f"null on {device}: float8 takes a GPU of compute capability {'.'.join(map(str, CAPABILITY))} or later"
    require(able, "model.quantize", asked, remedy)


def is_quantized(model: nn.Module) -> bool:
    """Whether some layer of ``model`` multiplies so."""
    return any(isinstance(module, Float8Linear) for module in model.modules())
