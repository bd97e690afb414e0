"""The vision tower: its stem, the positions of image patches, and its attention over the images of
a pack."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, groupby, pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import (
    AttentionInterface,
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
from transformers.vision_utils import (
    get_vision_interpolation_indices_and_weights,
    get_vision_position_ids,
)

from stageb.engines.native.api import Grid, has_flash, send
from stageb.two_channel.model.taught import TaughtBlocks

# Positions of image patches for a vision tower of the Qwen3-VL kind, computed once per grid.
#
# The tower itself would compute them from the grids for every batch, on its device, and the CPU
# would wait for the device several times. It accepts precomputed values as extra inputs.

GRIDS = 64  # whose positions are cached


class Geometry:
    """Patch positions for the vision tower ``visual``."""

    def __init__(self, visual: Any) -> None:
        self._visual = visual
        self._of = lru_cache(GRIDS)(self._worked_out)

    @staticmethod
    def known(visual: Any) -> bool:
        """Whether ``visual`` is a tower of this kind."""
        return all(hasattr(visual, name) for name in ("num_grid_per_side", "interpolation_mode"))

    def inputs(self, grids: Sequence[Grid]) -> dict[str, Any]:
        """The tower's inputs besides pixels, for concatenated images of ``grids`` (times, rows,
        columns). The grids themselves stay on the CPU, where they are read."""
        positions, indices, weights = (
            torch.cat(parts) for parts in zip(*map(self._of, grids), strict=True)
        )
        frames = [rows * columns for times, rows, columns in grids for _ in range(times)]
        return {
            "image_grid_thw": torch.tensor(grids),
            "image_position_ids": positions,
            "image_interp_indices": indices,
            "image_interp_weights": weights,
            "image_cu_seqlens": send(
                torch.tensor([0, *accumulate(frames)], dtype=torch.int32), positions.device
            ),
            "image_max_seqlen": max(frames),
        }

    def _worked_out(self, grid: Grid) -> tuple[Tensor, Tensor, Tensor]:
        """For one image: positions (rows and columns), and indices and weights that interpolate the
        learnt positions."""
        visual, given = self._visual, torch.tensor([grid])
        indices, weights = get_vision_interpolation_indices_and_weights(
            given,
            visual.num_grid_per_side,
            mode=visual.interpolation_mode,
            align_corners=visual.interpolation_align_corners,
            spatial_merge_size=visual.spatial_merge_size,
        )
        positions = get_vision_position_ids(given, visual.spatial_merge_size)
        device = visual.pos_embed.weight.device
        return positions.to(device), indices.to(device), weights.to(device)


# Attention of the vision tower over the images of a pack, in as few calls as possible: transformers
# makes one per image.
#
# Its registered name has "flash" in it, which makes Qwen's towers pass all images at once, with
# their boundaries. On a GPU in half precision it is one kernel for all images; elsewhere adjacent
# images of one size form a batch.

NAME = "stageb_flash_sight"


@torch.compiler.disable  # type: ignore[untyped-decorator]  # the layers around it may be compiled
def attend_within_images(
    _module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend within each image: (1, heads, patches, dim) to (1, patches, heads, dim).
    ``options["cu_seq_lens_q"]`` holds the boundaries of images, ``options["scaling"]`` the factor
    of the scores."""
    edges: Tensor = options["cu_seq_lens_q"]
    scaling: float = options["scaling"]
    if has_flash(query):
        lines = [each[0].transpose(0, 1).contiguous() for each in (query, key, value)]
        edges, longest = edges.to(torch.int32), int(options["max_length_q"])
        found = torch.ops.aten._flash_attention_forward(
            *lines, edges, edges, longest, longest, 0.0, False, False, scale=scaling
        )
        return found[0][None], None
    runs = [(length, len(list(run))) for length, run in groupby(edges.diff().tolist())]
    parts = [
        torch.split(each, [length * images for length, images in runs], 2)
        for each in (query, key, value)
    ]
    outputs = [
        scaled_dot_product_attention(
            _to_batch(q, images), _to_batch(k, images), _to_batch(v, images), scale=scaling
        )
        .transpose(1, 2)
        .flatten(0, 1)
        for (_, images), q, k, v in zip(runs, *parts, strict=True)
    ]
    return torch.cat(outputs)[None], None


def _to_batch(states: Tensor, images: int) -> Tensor:
    """(1, heads, images * patches, dim) to (images, heads, patches, dim)."""
    heads, _, dim = states.shape[1:]
    return states[0].view(heads, images, -1, dim).transpose(0, 1)


AttentionInterface.register(NAME, attend_within_images)


# A Qwen3-VL vision tower with a convolutional stem instead of a linear map of each patch (Xiao et
# al. 2021, "Early convolutions help transformers see better").
#
# It is registered with transformers as its own architecture, ``qwen3_vl_convolution``: once this
# module is imported, the auto classes load its checkpoints; programs that do not know the
# architecture refuse them.

TYPE = "qwen3_vl_convolution"


class Qwen3VLConvolutionVisionConfig(Qwen3VLVisionConfig):
    """Config of the tower; ``patch_size`` is a power of two."""

    model_type = f"{TYPE}_vision"
    stem: str = "convolution"


class Qwen3VLConvolutionConfig(Qwen3VLConfig):
    """Config of the whole model."""

    model_type = TYPE
    sub_configs_defaults: ClassVar[dict[str, SubConfigSpec]] = {
        "vision_config": SubConfigSpec(Qwen3VLConvolutionVisionConfig),
        "text_config": SubConfigSpec(Qwen3VLTextConfig),
    }


class ImageNorm(nn.GroupNorm):
    """Group normalisation with one group, over all of an image (Wu and He 2018), so that images do
    not depend on each other. torch's own kernel uses only one block of GPU threads per image."""

    def __init__(self, channels: int) -> None:
        super().__init__(1, channels)

    def forward(self, images: Tensor) -> Tensor:
        """(images, channels, rows, columns) to the same, in their precision; statistics are
        computed in float32."""
        numbers = images.float()
        variance, mean = torch.var_mean(numbers, (1, 2, 3), correction=0, keepdim=True)
        scale = (variance + self.eps).rsqrt() * self.weight[:, None, None]
        shift = self.bias[:, None, None] - mean * scale
        return torch.addcmul(shift, numbers, scale).to(images)


class Stem(nn.Module):
    """3 x 3 convolutions of stride 2, each twice as wide as the one before, down to one position
    per patch, or blocks that were taught; then a 1 x 1 convolution."""

    def __init__(self, config: Any) -> None:
        """``config`` is the tower's."""
        super().__init__()
        self._side, self._merged = config.patch_size, config.spatial_merge_size
        self._channels = config.in_channels * config.temporal_patch_size
        width, halvings = config.hidden_size, self._side.bit_length() - 1
        if config.stem == "efficientnet_lite0":
            layers, last = [TaughtBlocks(), ImageNorm(TaughtBlocks.CHANNELS)], TaughtBlocks.CHANNELS
        else:
            layers, last = list[nn.Module](), width
            for before, after in pairwise(
                [self._channels, *(width >> left for left in reversed(range(halvings)))]
            ):
                layers += [
                    nn.Conv2d(before, after, 3, 2, 1, bias=False),
                    ImageNorm(after),
                    nn.GELU(),
                ]
        self.layers = nn.Sequential(*layers)
        self.proj = nn.Conv2d(last, width, 1)

    def forward(self, patches: Tensor, grids: Tensor) -> Tensor:
        """(patches, channels * side * side) to (patches, width), for concatenated images with
        ``grids`` (images, 3); within an image, patches that are merged into one token are adjacent.
        Images with equal grids are convolved together."""
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
        blocks = patches.view(
            -1, rows // merged, columns // merged, merged, merged, self._channels, side, side
        )
        images = blocks.permute(0, 5, 1, 3, 6, 2, 4, 7).reshape(
            -1, self._channels, rows * side, columns * side
        )
        seen: Tensor = self.proj(self.layers(images.contiguous(memory_format=torch.channels_last)))
        places = seen.reshape(len(images), -1, rows // merged, merged, columns // merged, merged)
        return places.permute(0, 2, 4, 3, 5, 1).flatten(0, 4)


class Qwen3VLConvolutionVisionModel(Qwen3VLVisionModel):
    """The tower; its stem computes the embeddings of patches."""

    config_class = Qwen3VLConvolutionVisionConfig

    def __init__(self, config: Any, *inputs: Any, **options: Any) -> None:
        super().__init__(config, *inputs, **options)
        self.patch_embed: Any = nn.Identity()  # its inputs are embeddings already
        self.stem = Stem(config)

    def forward(self, hidden_states: Tensor, grid_thw: Tensor, **options: Any) -> Any:
        """See ``Qwen3VLVisionModel``."""
        return super().forward(self.stem(hidden_states, grid_thw), grid_thw, **options)


class Qwen3VLConvolutionForConditionalGeneration(Qwen3VLForConditionalGeneration):
    """The whole model."""

    config_class = Qwen3VLConvolutionConfig


for each in (Qwen3VLConvolutionVisionConfig, Qwen3VLConvolutionConfig):
    AutoConfig.register(each.model_type, each)
AutoModel.register(Qwen3VLConvolutionVisionConfig, Qwen3VLConvolutionVisionModel)
AutoModelForImageTextToText.register(
    Qwen3VLConvolutionConfig, Qwen3VLConvolutionForConditionalGeneration
)
