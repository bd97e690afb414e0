"""A Qwen3-VL vision tower with a convolutional stem instead of a linear map of each patch (Xiao et al. 2021, "Early
convolutions help transformers see better").

It is registered with transformers as its own architecture, ``qwen3_vl_convolution``: once this module is imported, the auto
classes load its checkpoints; programs that do not know the architecture refuse them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForImageTextToText,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLTextConfig,
    Qwen3VLVisionConfig,
    Qwen3VLVisionModel,
)
from transformers.configuration_utils import SubConfigSpec

TYPE = "qwen3_vl_convolution"


class Qwen3VLConvolutionVisionConfig(Qwen3VLVisionConfig):  # type: ignore[no-untyped-call]
    """Config of the tower; ``patch_size`` is a power of two."""

    model_type = f"{TYPE}_vision"


class Qwen3VLConvolutionConfig(Qwen3VLConfig):  # type: ignore[no-untyped-call]
    """Config of the whole model."""

    model_type = TYPE
    sub_configs_defaults: ClassVar[dict[str, SubConfigSpec]] = {
        "vision_config": SubConfigSpec(Qwen3VLConvolutionVisionConfig),
        "text_config": SubConfigSpec(Qwen3VLTextConfig),
    }


class ImageNorm(nn.GroupNorm):
    """Group normalisation with one group, over all of an image (Wu and He 2018), so that images do not depend on each other.
    torch's own kernel uses only one block of GPU threads per image."""

    def __init__(self, channels: int) -> None:
        super().__init__(1, channels)

    def forward(self, images: Tensor) -> Tensor:
        """(images, channels, rows, columns) to the same, in their precision; statistics are computed in float32."""
        numbers = images.float()
        variance, mean = torch.var_mean(numbers, (1, 2, 3), correction=0, keepdim=True)
        scale = (variance + self.eps).rsqrt() * self.weight[:, None, None]
        shift = self.bias[:, None, None] - mean * scale
        return torch.addcmul(shift, numbers, scale).to(images)


class Stem(nn.Module):
    """3 x 3 convolutions of stride 2, each twice as wide as the one before, down to one position per patch, then a 1 x 1
    convolution."""

    def __init__(self, config: Any) -> None:
        """``config`` is the tower's."""
        super().__init__()
        self._side, self._merged = config.patch_size, config.spatial_merge_size
        self._channels = config.in_channels * config.temporal_patch_size
        width, halvings = config.hidden_size, self._side.bit_length() - 1
        layers: list[nn.Module] = []
        for before, after in pairwise([self._channels, *(width >> left for left in reversed(range(halvings)))]):
            layers += [nn.Conv2d(before, after, 3, 2, 1, bias=False), ImageNorm(after), nn.GELU()]
        self.layers = nn.Sequential(*layers)
        self.proj = nn.Conv2d(width, width, 1)

    def forward(self, patches: Tensor, grids: Tensor) -> Tensor:
        """(patches, channels * side * side) to (patches, width), for concatenated images with ``grids`` (images, 3); within
        an image, patches that are merged into one token are adjacent. Images with equal grids are convolved together."""
        shapes = [tuple(grid) for grid in grids.tolist()]
        parts = torch.split(patches, [times * rows * columns for times, rows, columns in shapes])
        found: dict[int, Tensor] = {}
        for grid in dict.fromkeys(shapes):
            places = [place for place, shape in enumerate(shapes) if shape == grid]
            embedded = self._embed(torch.cat([parts[place] for place in places]), *grid[1:])
            found.update(zip(places, embedded.chunk(len(places)), strict=True))
        return torch.cat([found[place] for place in range(len(shapes))])

    def _embed(self, patches: Tensor, rows: int, columns: int) -> Tensor:
        """``forward`` for images that all have ``rows`` x ``columns`` patches."""
        side, merged = self._side, self._merged
        blocks = patches.view(-1, rows // merged, columns // merged, merged, merged, self._channels, side, side)
        images = blocks.permute(0, 5, 1, 3, 6, 2, 4, 7).reshape(-1, self._channels, rows * side, columns * side)
        seen: Tensor = self.proj(self.layers(images.contiguous(memory_format=torch.channels_last)))
        places = seen.reshape(len(images), -1, rows // merged, merged, columns // merged, merged)
        return places.permute(0, 2, 4, 3, 5, 1).flatten(0, 4)


class Qwen3VLConvolutionVisionModel(Qwen3VLVisionModel):  # type: ignore[no-untyped-call]
    """The tower; its stem computes the embeddings of patches."""

    config_class = Qwen3VLConvolutionVisionConfig

    def __init__(self, config: Any, *inputs: Any, **options: Any) -> None:
        super().__init__(config, *inputs, **options)
        self.patch_embed: Any = nn.Identity()  # its inputs are embeddings already
        self.stem = Stem(config)

    def forward(self, hidden_states: Tensor, grid_thw: Tensor, **options: Any) -> Any:
        """See ``Qwen3VLVisionModel``."""
        return super().forward(self.stem(hidden_states, grid_thw), grid_thw, **options)


class Qwen3VLConvolutionForConditionalGeneration(Qwen3VLForConditionalGeneration):  # type: ignore[no-untyped-call]
    """The whole model."""

    config_class = Qwen3VLConvolutionConfig


for each in (Qwen3VLConvolutionVisionConfig, Qwen3VLConvolutionConfig):
    AutoConfig.register(each.model_type, each)
AutoModel.register(Qwen3VLConvolutionVisionConfig, Qwen3VLConvolutionVisionModel)
AutoModelForImageTextToText.register(Qwen3VLConvolutionConfig, Qwen3VLConvolutionForConditionalGeneration)
