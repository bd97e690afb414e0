"""Work on a GPU that is recorded once and replayed as a CUDA graph: for networks so small that the processor takes longer to
launch their kernels than the GPU to run them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from stageb.job.process import collector_off

T = TypeVar("T")


class Recorder:
    """Records functions one after the other in the same memory pool. Once the next is recorded, an earlier one may be
    replayed only if all are, in the order of recording. A result that a later one reads stays valid while something holds
    it.

    Unlike ``torch.cuda.graph``, this does not empty the allocator's cache before each recording: with many recordings a
    second, processes on one machine were seen to block each other by that.
    """

    def __init__(self) -> None:
        self._stream: torch.cuda.Stream | None = None  # memory is held by stream
        self._newest: torch.cuda.CUDAGraph | None = None  # keeps the memory

    def record(self, act: Callable[[], T], ready: Callable[[], object]) -> Callable[[], T]:
        """Record ``act``. Returns a function that replays it and returns its tensors: the same ones each time, rewritten.

        ``act`` must work on tensors that stay in place and never wait for the device. ``ready`` is called first to warm up:
        it calls ``act`` a few times, so that every kernel is loaded. Recording itself computes nothing.
        """
        stream = self._stream = self._stream or torch.cuda.Stream()
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
