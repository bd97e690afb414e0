from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lab.bench.floor import Device, Job, Size, floor_of
from lab.bench.workloads import WORKLOADS, config_of

DEVICE = Device(bytes_per_s=4.3e12, operations_per_s=790e12)
SIZE = Size.of(config_of(WORKLOADS["4b-shared"]), torch.bfloat16)


def floor_s(some: list[Job], size: Size, device: Device) -> float:
    """In series."""
    return floor_of(some, size, device).series_s


lengths = st.integers(1, 60)
jobs = st.builds(
    Job,
    st.sampled_from("ab"),
    st.just(40),
    lengths,
    st.lists(lengths, min_size=1, max_size=3).map(tuple),
)


def test_the_4b_shape_holds_what_its_name_says() -> None:
    assert SIZE.layer_weights + SIZE.head_weights == pytest.approx(4.02e9, rel=0.005)
    # keys and values of 36 layers, 8 heads of 128, 2 bytes each
    assert SIZE.cached * SIZE.width == 2 * 36 * 8 * 128 * 2


def test_one_long_answer_costs_its_weights_once_per_token() -> None:
    alone = [Job("s", 1, 1, (101,))]
    weights_s = SIZE.width * (SIZE.layer_weights + SIZE.head_weights) / DEVICE.bytes_per_s
    assert floor_s(alone, SIZE, DEVICE) == pytest.approx(101 * weights_s, rel=0.01)


def test_a_prompt_that_computes_costs_its_arithmetic() -> None:
    reading = [Job("s", 10_000, 1, (1,))]
    attention = 4 * SIZE.attention * (10_000**2 / 2 + 10_000)
    assert floor_s(reading, SIZE, DEVICE) == pytest.approx(
        (2 * SIZE.layer_weights * 10_001 + attention) / DEVICE.operations_per_s, rel=0.01
    )


def test_bytes_of_a_step_are_weights_and_what_each_reader_needs_once() -> None:
    endless = replace(DEVICE, operations_per_s=1e30)
    shared, steps = 5000, 10
    some = [Job("s", shared, 70, (steps, steps)), Job("s", shared, 30, (steps,))]
    weights = SIZE.layer_weights + SIZE.head_weights
    read = sum(weights + SIZE.cached * (shared + 70 + 30 + 3 * step) for step in range(1, steps))
    assert floor_s(some, SIZE, endless) == pytest.approx(
        SIZE.width * (weights + read) / endless.bytes_per_s
    )


@given(st.lists(jobs, min_size=1, max_size=5))
def test_what_overlaps_takes_no_longer_and_no_less_than_half(some: list[Job]) -> None:
    floor = floor_of(some, SIZE, DEVICE)
    assert floor.series_s / 2 <= floor.overlapped_s <= floor.series_s * (1 + 1e-9)
