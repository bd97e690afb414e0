"""Images cut into patches of bytes for a vision tower: an eighth of the memory and of the transfer to the device that the
floats of a checkpoint's image processor take.

Processors of the Qwen-VL kind scale an image to whole patches and map every byte to a float by a function of its channel.
The table of that function is read from the processor itself, once for each byte, so the result equals the processor's bit
for bit. A processor that does anything else is detected on a test picture, and then used for every image.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from stageb.untrusted import pictures

BYTES = 256
ODD = (101, 67)  # a size that is not a whole number of patches


class Pixels:
    """Cuts images for ``process``, a checkpoint's image processor."""

    def __init__(self, process: Any) -> None:
        self._process = process
        self._side, self._merged = int(process.patch_size), int(process.merge_size)
        self._table = self._asked()

    @classmethod
    def of(cls, process: Any) -> Pixels | None:
        """A ``Pixels`` that gives the same result as ``process``; None if there is none."""
        if not all(hasattr(process, name) for name in ("patch_size", "merge_size", "temporal_patch_size")):
            return None
        found, drawn = cls(process), pictures.chequered().resize(ODD)
        made = process(images=[drawn], return_tensors="pt")
        _, height, width = made["image_grid_thw"][0].tolist()
        cut = found.cut(drawn, (height, width))
        same = len(cut) == len(made["pixel_values"]) and torch.equal(found.numbers(cut), made["pixel_values"])
        return found if same else None

    def cut(self, image: Any, grid: tuple[int, int]) -> Tensor:
        """``image``, a ``PIL.Image`` in RGB, as bytes (patches, 3, side * side); ``grid`` is the number of patches from top
        to bottom and from left to right."""
        size = grid[1] * self._side, grid[0] * self._side
        if image.size != size:
            image = image.resize(size, pictures.pillow().Resampling.BICUBIC)
        return self.patches(to_bytes(image)[None], grid)[0]

    def patches(self, images: Tensor, grid: tuple[int, int]) -> Tensor:
        """``images``, bytes (n, 3, height, width) of exactly the size of ``grid``, as bytes (n, patches, 3, side * side)."""
        side, merged, (rows, columns) = self._side, self._merged, grid
        blocks = images.reshape(len(images), 3, rows // merged, merged, side, columns // merged, merged, side)
        return blocks.permute(0, 2, 5, 3, 6, 1, 4, 7).reshape(len(images), rows * columns, 3, side * side)

    def numbers(self, cut: Tensor) -> Tensor:
        """The processor's floats for bytes: (patches, 3, side * side) to float32 (patches, 3 * times * side * side)."""
        patches, channels, area = cut.shape
        table = self._table = self._table.to(cut.device)
        lines = (table[channel].index_select(0, cut[:, channel].int().flatten()) for channel in range(channels))
        found = torch.stack([line.view(patches, area) for line in lines], 1)
        times = int(self._process.temporal_patch_size)  # an image is repeated that many times
        return found[:, :, None].expand(-1, -1, times, -1).reshape(patches, channels * times * area)

    def _asked(self) -> Tensor:
        """The processor's float for each channel and byte: (3, 256)."""
        side, times = self._side * self._merged, int(self._process.temporal_patch_size)
        plain = [pictures.pillow().new("RGB", (side, side), (value,) * 3) for value in range(BYTES)]
        made = self._process(images=plain, return_tensors="pt")
        patches: Tensor = made["pixel_values"].view(BYTES, -1, 3, times * self._side**2)
        return patches[:, 0, :, 0].T.contiguous()


def to_bytes(image: Any) -> Tensor:
    """``image``, a ``PIL.Image`` in RGB, as uint8 (3, height, width)."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)
