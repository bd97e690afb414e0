"""Where the patches of images lie, as a tower of Qwen3-VL's kind wants to know it: worked out once for each grid.

Left to itself, the tower works it out of the grids on its device, for every batch anew, and the processor waits for the
device several times. It takes what is worked out already under names of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from transformers.vision_utils import get_vision_interpolation_indices_and_weights, get_vision_position_ids

from stageb.engines.transfer import send
from stageb.engines.vision import Grid

GRIDS = 64  # that are kept


class Geometry:
    """Of the tower ``visual``."""

    def __init__(self, visual: Any) -> None:
        self._visual = visual
        self._of = lru_cache(GRIDS)(self._worked_out)

    @staticmethod
    def known(visual: Any) -> bool:
        """Whether ``visual`` is of that kind."""
        return all(hasattr(visual, name) for name in ("num_grid_per_side", "interpolation_mode"))

    def inputs(self, grids: Sequence[Grid]) -> dict[str, Any]:
        """For images of ``grids`` (times, rows, columns) behind each other: what the tower's inputs have beside pixels. The
        grids themselves stay on the CPU, where they are read."""
        positions, indices, weights = (torch.cat(parts) for parts in zip(*map(self._of, grids), strict=True))
        frames = [rows * columns for times, rows, columns in grids for _ in range(times)]
        return {
            "image_grid_thw": torch.tensor(grids),
            "image_position_ids": positions,
            "image_interp_indices": indices,
            "image_interp_weights": weights,
            "image_cu_seqlens": send(torch.tensor([0, *accumulate(frames)], dtype=torch.int32), positions.device),
            "image_max_seqlen": max(frames),
        }

    def _worked_out(self, grid: Grid) -> tuple[Tensor, Tensor, Tensor]:
        """Of an image: rows and columns, and where in the learnt positions it looks, and how much for each."""
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
