"""What a step of Muon costs and is, beside the comparison with torch's own (``tests/lab/tiny``)."""

from __future__ import annotations

import torch

from stageb.training.step import COEFFICIENTS, STEPS, Muon, orthogonalize


def test_a_cpu_iterates_in_float32_which_every_one_multiplies_by_itself() -> None:
    stack = torch.randn(3, 8, 24, generator=torch.Generator().manual_seed(0))
    a, b, c = COEFFICIENTS
    exact = stack.double()
    exact = exact / exact.norm(dim=(1, 2), keepdim=True)
    for _ in range(STEPS):
        gram = exact @ exact.mT
        exact = a * exact + (b * gram + c * gram @ gram) @ exact
    found = orthogonalize(stack)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=1e-4)


def test_a_filter_of_a_convolution_is_a_row_of_a_matrix() -> None:
    """Also behind the first step, with momentum."""
    generator = torch.Generator().manual_seed(1)
    filters = torch.nn.Parameter(torch.randn(8, 4, 3, 3, generator=generator))
    matrix = torch.nn.Parameter(filters.detach().flatten(1).clone())
    before, optimizers = (
        filters.detach().clone(),
        [Muon([each], 0.02, weight_decay=0.05) for each in (filters, matrix)],
    )
    for gradient in torch.randn(2, 8, 4, 3, 3, generator=generator):
        # as a convolution may leave it
        filters.grad = gradient.contiguous(memory_format=torch.channels_last)
        matrix.grad = gradient.flatten(1)
        for optimizer in optimizers:
            optimizer.step()
    assert torch.equal(filters.flatten(1), matrix) and not torch.equal(filters, before)
