"""Attention of the vision tower over the images of a pack, in as few calls as possible: transformers makes one per image.

Its registered name has "flash" in it, which makes Qwen's towers pass all images at once, with their boundaries. On a GPU in
half precision it is one kernel for all images; elsewhere adjacent images of one size form a batch.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from stageb.engines.cascade import has_flash

NAME = "stageb_flash_sight"


@torch.compiler.disable  # type: ignore[untyped-decorator]  # the layers around it may be compiled
def attend_within_images(
    _module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Attend within each image: (1, heads, patches, dim) to (1, patches, heads, dim). ``options["cu_seq_lens_q"]`` holds the
    boundaries of images, ``options["scaling"]`` the factor of the scores."""
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
    parts = [torch.split(each, [length * images for length, images in runs], 2) for each in (query, key, value)]
    outputs = [
        scaled_dot_product_attention(_to_batch(q, images), _to_batch(k, images), _to_batch(v, images), scale=scaling)
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
