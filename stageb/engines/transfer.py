"""From the CPU's memory to a device's."""

from __future__ import annotations

import torch
from torch import Tensor


def send(tensor: Tensor, device: torch.device | str) -> Tensor:
    """``tensor`` on ``device``. The processor goes on at once, where else it would wait until a GPU has done all that it was
    told before."""
    if torch.device(device).type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
