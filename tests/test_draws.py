"""Draws on a device are those of ``seeds``. How engines sample with them is in
``engines/test_sampling.py``."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from stageb import draws, seeds

KEYS = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=5)
POSITIONS = st.integers(0, 2**40)


@given(KEYS, POSITIONS)
def test_bits_and_uniforms_are_those_of_seeds(keys: list[int], position: int) -> None:
    held = torch.tensor([draws.signed(key) for key in keys])
    everywhere = torch.full_like(held, position)
    for place in (position, torch.tensor([position]), everywhere):
        assert [bits % 2**64 for bits in draws.bits(held, place).tolist()] == [
            seeds.bits(key, position) for key in keys
        ]
        assert draws.uniforms(held, place).tolist() == [
            seeds.uniform(key, position) for key in keys
        ]


@given(KEYS, POSITIONS, st.integers(1, 2**31 - 1))
def test_integers_below_a_limit_are_the_uniform_in_its_scale(
    keys: list[int], position: int, limit: int
) -> None:
    held = torch.tensor([draws.signed(key) for key in keys])
    found = draws.below(held, position, torch.full_like(held, limit)).tolist()
    assert found == [((seeds.bits(key, position) >> 33) * limit) >> 31 for key in keys]
    assert all(0 <= each < limit for each in found)


@given(KEYS, st.integers(0, 2**30), POSITIONS)
def test_a_stream_goes_on_from_any_position(keys: list[int], start: int, position: int) -> None:
    assert [seeds.bits(seeds.ahead(key, start), position) for key in keys] == [
        seeds.bits(key, start + position) for key in keys
    ]
    assert all(0 <= seeds.ahead(key, start) < 2**64 for key in keys)
