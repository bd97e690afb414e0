"""What is measured side by side does the same work."""

from __future__ import annotations

import argparse

import pytest
import torch

from lab.bench.growth import Made, in_blocks, one_by_one
from lab.bench.growth_conv import FORMS
from lab.bench.growth_conv import grouped as own


@pytest.mark.parametrize("kind", ["mlp", "conv1d"])
@pytest.mark.parametrize("grown", [False, True])
def test_hosts_trained_one_by_one_come_to_those_trained_in_blocks(kind: str, grown: bool) -> None:
    given = argparse.Namespace(environments=4, device="cpu", set=["host.width=4", "host.batch_size=8"])
    made = Made.of(given, kind, grown)
    plain, act = one_by_one(made)
    act()
    for block in (1, 2, 4):
        blocks, act = in_blocks(made, block)
        begun = [{name: held.clone() for name, held in network.items()} for network in blocks]
        act()
        for network, other, before in zip(plain, blocks, begun, strict=True):
            assert len(network) == (4 if grown else 1)
            for name, weights in network.items():
                assert torch.allclose(weights, other[name], atol=1e-5)
                assert not torch.allclose(weights, before[name], atol=1e-3)


@pytest.mark.parametrize("shape", [(3, 7), (3, 4, 5)])
def test_convolutions_of_all_forms_are_one(shape: tuple[int, ...]) -> None:
    x, weight = torch.randn(2, *shape).double(), torch.randn(5, 3, *(3,) * (len(shape) - 1)).double()
    for form in FORMS.values():
        assert torch.allclose(form(x, weight), own(x, weight), atol=1e-12)
