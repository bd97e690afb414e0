"""What a step of Muon costs and is, beside the comparison with torch's own (``tests/lab/tiny``)."""

from __future__ import annotations

import torch

from stageb.training.muon import COEFFICIENTS, STEPS, orthogonal


def test_a_cpu_iterates_in_float32_which_every_one_multiplies_by_itself() -> None:
    stack = torch.randn(3, 8, 24, generator=torch.Generator().manual_seed(0))
    a, b, c = COEFFICIENTS
    exact = stack.double()
    exact = exact / exact.norm(dim=(1, 2), keepdim=True)
    for _ in range(STEPS):
        gram = exact @ exact.mT
        exact = a * exact + (b * gram + c * gram @ gram) @ exact
    found = orthogonal(stack)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=1e-4)
