"""A function of a ``World`` on some ranks that are forks of this process: tenths of a second, for
what collectives do.

How jobs are launched, watched and ended is tested with real commands (``jobs.py``).
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from stageb.job.placement import Fabric
from stageb.job.world import World


@dataclass(frozen=True)
class Raised:
    """In the place of a result: what a rank raised."""

    kind: str
    text: str


def on_ranks(world_size: int, act: Callable[[World], Any]) -> list[Any]:
    """What ``act`` returns on each rank; ``Raised`` where it raises."""
    torch.set_num_threads(1)  # a fork of a process with OpenMP's threads may hang
    if world_size == 1:
        return [_result(act, Fabric(accelerator="cpu", devices=1))]
    before = dict(os.environ)  # Fabric notes its port there
    with tempfile.TemporaryDirectory() as folder:

        def on_rank(fabric: Fabric) -> None:
            fabric.barrier()  # all are there before the first may go
            Path(folder, str(fabric.global_rank)).write_bytes(pickle.dumps(_result(act, fabric)))

        try:
            Fabric(accelerator="cpu", devices=world_size, strategy="ddp_fork").launch(on_rank)
        finally:
            os.environ.clear()
            os.environ.update(before)
        return [pickle.loads(Path(folder, str(rank)).read_bytes()) for rank in range(world_size)]


def _result(act: Callable[[World], Any], fabric: Fabric) -> Any:
    try:
        return act(World(fabric))
    except Exception as error:
        return Raised(type(error).__name__, str(error))
