"""Images as a vision tower takes them, cut into patches of bytes: an eighth of the memory, and of the way to the device, of
the numbers that a checkpoint's processor makes of them.

Processors of the Qwen-VL kind scale an image to whole patches and give every byte a number that its channel alone decides.
Which number that is, is asked of the processor itself, once for each byte: so what comes out is bit for bit what it makes.
A processor that does something else is noticed on a drawn picture, and then asked for every image.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from stageb.untrusted import pictures

BYTES = 256
ODD = (101, 67)  # a size that is no whole number of patches


class Pixels:
    """Cuts images for ``process``, a checkpoint's image processor."""

    def __init__(self, process: Any) -> None:
        self._process = process
        self._side, self._merged = int(process.patch_size), int(process.merge_size)
        self._table = self._asked()

    @classmethod
    def of(cls, process: Any) -> Pixels | None:
        """What cuts as ``process`` does; None where that is not known."""
        if not all(hasattr(process, name) for name in ("patch_size", "merge_size", "temporal_patch_size")):
            return None
        found, drawn = cls(process), pictures.chequered().resize(ODD)
        made = process(images=[drawn], return_tensors="pt")
        _, height, width = made["image_grid_thw"][0].tolist()
        cut = found.cut(drawn, (height, width))
        same = len(cut) == len(made["pixel_values"]) and torch.equal(found.numbers(cut), made["pixel_values"])
        return found if same else None

    def cut(self, image: Any, grid: tuple[int, int]) -> Tensor:
        """``image``, a ``PIL.Image`` in RGB, as bytes (patches, 3, side * side); ``grid`` is how many patches from top to
        bottom, and from left to right."""
        size = grid[1] * self._side, grid[0] * self._side
        if image.size != size:
            image = image.resize(size, pictures.pillow().Resampling.BICUBIC)
        return self.patches(to_bytes(image)[None], grid)[0]

    def patches(self, images: Tensor, grid: tuple[int, int]) -> Tensor:
        """``images``, bytes (n, 3, height, width) of the ``grid``'s very size, as bytes (n, patches, 3, side * side)."""
        side, merged, (rows, columns) = self._side, self._merged, grid
        blocks = images.reshape(len(images), 3, rows // merged, merged, side, columns // merged, merged, side)
        return blocks.permute(0, 2, 5, 3, 6, 1, 4, 7).reshape(len(images), rows * columns, 3, side * side)

    def numbers(self, cut: Tensor) -> Tensor:
        """What the processor makes of bytes: (patches, 3, side * side) to (patches, 3 * times * side * side), float32."""
        patches, channels, area = cut.shape
        table = self._table = self._table.to(cut.device)
        lines = (table[channel].index_select(0, cut[:, channel].int().flatten()) for channel in range(channels))
        found = torch.stack([line.view(patches, area) for line in lines], 1)
        times = int(self._process.temporal_patch_size)  # an image is as many times the same
        return found[:, :, None].expand(-1, -1, times, -1).reshape(patches, channels * times * area)

    def _asked(self) -> Tensor:
        """The number of each byte in each channel: (3, 256)."""
        side, times = self._side * self._merged, int(self._process.temporal_patch_size)
        plain = [pictures.pillow().new("RGB", (side, side), (value,) * 3) for value in range(BYTES)]
        made = self._process(images=plain, return_tensors="pt")
        patches: Tensor = made["pixel_values"].view(BYTES, -1, 3, times * self._side**2)
        return patches[:, 0, :, 0].T.contiguous()


def to_bytes(image: Any) -> Tensor:
    """``image``, a ``PIL.Image`` in RGB, as uint8 (3, height, width)."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)
