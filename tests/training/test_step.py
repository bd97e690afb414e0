"""Steps that are skipped, and steps that are recorded."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from stageb.engines.native.packed import Packed
from stageb.training.step import NonFiniteError, Recorder, SkippedSteps


def test_three_in_a_row_end_a_run_and_a_step_between_begins_anew() -> None:
    left_out = SkippedSteps("a smaller rate")
    for finite in (False, False, True, False, False):
        left_out.count(finite)
    assert left_out.in_a_row == 2
    with pytest.raises(NonFiniteError) as caught:
        left_out.count(False)
    assert str(caught.value) == (
        "the gradients of 3 steps in a row are not finite; the last commit is intact. Try a "
        "smaller rate"
    )


SPOILT = RuntimeError("operation not permitted when stream is capturing")


class Graph:
    """A graph that records and replays nothing."""

    def pool(self) -> None: ...
    def capture_begin(self, pool: object, capture_error_mode: str) -> None: ...
    def capture_end(self) -> None: ...
    def replay(self) -> None: ...


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    stream = SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: nullcontext())
    yield
    gc.enable()


def record_work(act: Callable[[], None]) -> None:
    """As the loops that learn weights record."""
    Recorder().record(act, lambda: None)


def record_step(act: Callable[[], None]) -> None:
    """As the engine records the step of a batch."""
    engine: Any = SimpleNamespace(_device=torch.device("cuda"), _step=lambda batch, view: act())
    batch: Any = SimpleNamespace(graph=None, fresh=False)
    Packed._advance(engine, batch, view=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("record", [record_work, record_step])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("fails", [False, True])
def test_no_garbage_is_collected_while_recording(
    record: Callable[..., None], before: bool, fails: bool
) -> None:
    """It could free tensors of the GPU then, which spoils the recording."""
    found = []

    def act() -> None:
        found.append(gc.isenabled())
        if fails:
            raise SPOILT

    if not before:
        gc.disable()
    with pytest.raises(RuntimeError, match="capturing") if fails else nullcontext():
        record(act)
    assert found == [False]
    assert gc.isenabled() is before
