"""Work on a GPU that is recorded once and replayed as a CUDA graph: for networks so small that the processor takes longer to
launch their kernels than the GPU to run them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from stageb.job.collector import collector_off

T = TypeVar("T")


class Recorder:
    """Records works in the same memory, one after the other. Once the next is recorded, none before it may be replayed,
    unless all are, in the order in which they were recorded. What one leaves for a later one stays while something holds it.

    ``torch.cuda.graph`` has the device give back all memory that is not in use before it records, which is then asked for
    again. Where works are recorded many times a second, processes on one machine were seen to hold each other up by that.
    """

    def __init__(self) -> None:
        self._stream: torch.cuda.Stream | None = None  # memory is held by stream
        self._newest: torch.cuda.CUDAGraph | None = None  # keeps the memory

    def record(self, act: Callable[[], T], ready: Callable[[], object]) -> Callable[[], T]:
        """What replays ``act`` and gives what it gave: the same tensors each time, written anew.

        ``act`` works on tensors that stay where they are, and never waits for the device. ``ready`` is called first, and
        calls it some times, so that every kernel is there; recording itself has no effect.
        """
        stream = self._stream = self._stream or torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            ready()
            pool = self._newest.pool() if self._newest else None
            with collector_off():  # it could free tensors of the GPU, or another graph, in the middle of the recording
                graph.capture_begin(pool, capture_error_mode="thread_local")  # NCCL's own threads go on meanwhile
                try:
                    left = act()
                finally:
                    graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        self._newest = graph

        def again() -> T:
            graph.replay()
            return left

        return again


def recorded(act: Callable[[], T], ready: Callable[[], object]) -> Callable[[], T]:
    """``Recorder.record`` in memory of its own."""
    return Recorder().record(act, ready)
