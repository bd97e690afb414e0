"""Positions of image patches for a vision tower of the Qwen3-VL kind, computed once per grid.

The tower itself would compute them from the grids for every batch, on its device, and the CPU would wait for the device
several times. It accepts precomputed values as extra inputs.
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
        """The tower's inputs besides pixels, for concatenated images of ``grids`` (times, rows, columns). The grids
        themselves stay on the CPU, where they are read."""
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
        """For one image: positions (rows and columns), and indices and weights that interpolate the learnt positions."""
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
