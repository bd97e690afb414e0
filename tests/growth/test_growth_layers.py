"""Layers, against torch's own."""

import pytest
import torch
from torch.func import grad, vmap
from torch.nn import functional

from stageb.growth.blueprints import convolve_as_product


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("inputs", "outputs", "groups"), [(3, 4, 1), (4, 4, 4), (1, 2, 1)])
@pytest.mark.parametrize(("places", "kernel"), [((9,), 3), ((9,), 1), ((6, 7), 3)])
def test_the_form_for_gpus_is_a_convolution(
    places: tuple[int, ...], kernel: int, inputs: int, outputs: int, groups: int, stride: int
) -> None:
    """Answers and gradients, of several networks at once."""
    torch.manual_seed(0)
    axes, double = len(places), torch.float64
    x = torch.randn(3, 5, inputs, *places, dtype=double)  # of three networks
    weight = torch.randn(3, outputs, inputs // groups, *[kernel] * axes, dtype=double)
    bias = torch.randn(3, outputs, dtype=double)

    def own(w: torch.Tensor, b: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return convolve_as_product(functional.pad(x, [kernel // 2] * (2 * axes)), w, b, stride)

    def theirs(w: torch.Tensor, b: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        function = functional.conv1d if axes == 1 else functional.conv2d
        return function(x, w, b, stride, kernel // 2, groups=groups)

    torch.testing.assert_close(vmap(own)(weight, bias, x), vmap(theirs)(weight, bias, x))
    for one, other in zip(
        *(vmap(grad(lambda w, b, x, f=f: f(w, b, x).square().sum(), (0, 1, 2)))(weight, bias, x) for f in (own, theirs)),
        strict=True,
    ):
        torch.testing.assert_close(one, other)
