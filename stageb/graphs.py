"""Work on a GPU that is recorded once and replayed as a CUDA graph: for networks so small that the processor takes longer to
launch their kernels than the GPU to run them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")


def recorded(act: Callable[[], T], ready: Callable[[], object]) -> Callable[[], T]:
    """What replays ``act`` and gives what it gave: the same tensors each time, written anew.

    ``act`` works on tensors that stay where they are, and never waits for the device. ``ready`` is called first, and calls
    it some times, so that every kernel is there; recording itself has no effect.
    """
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        ready()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):  # NCCL's own threads go on meanwhile
        left = act()

    def again() -> T:
        graph.replay()
        return left

    return again
