"""Hosts, their layers and seeds, one network at a time and many at once."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from growth import one_host
from growth.grown_hosts import KEYS, NAMES, SHAPES, examples, plan_of
from torch.func import grad, vmap
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from stageb.errors import ConfigError
from stageb.growth import blocks, hosts, lifecycle
from stageb.growth.blueprints import convolve_as_product
from stageb.growth.config import HostConfig
from stageb.growth.types import SLOTS


def params_of(plan: hosts.Plan, key: int, teaching: bool = False) -> dict[str, torch.Tensor]:
    """All segments of one network, freshly drawn."""
    return {name: blocks.draw(plan, name, [key], teaching)[0] for name in plan.segments}


@pytest.mark.parametrize("name", NAMES)
def test_every_seed_changes_nothing_at_first_and_something_once_it_has_learnt(name: str) -> None:
    plan = plan_of(name)
    x = examples(plan.shape, 6, 1).inputs
    fresh, learnt = params_of(plan, KEYS[0]), params_of(plan, KEYS[0], teaching=True)
    alone = one_host.forward(plan, fresh, x, [0, 0, 0], [-1, -1, -1])
    for slot in range(len(SLOTS)):
        for index, blueprint in enumerate(plan.blueprints):
            active = [index if each == slot else -1 for each in range(3)]
            assert torch.equal(one_host.forward(plan, fresh, x, [1, 1, 1], active), alone), (
                blueprint
            )
            assert not torch.allclose(
                one_host.forward(plan, learnt, x, [1, 1, 1], active), alone
            ), blueprint
            seed = fresh[hosts.name_segment(plan, slot, index)].clone().requires_grad_()
            given = {**fresh, hosts.name_segment(plan, slot, index): seed}
            loss = one_host.forward(plan, given, x, [1, 1, 1], active).square().sum()
            assert torch.autograd.grad(loss, seed)[0].abs().sum() > 0, (
                f"{blueprint} could not learn"
            )


@pytest.mark.parametrize("value", [torch.inf, torch.nan, 1e308])
@pytest.mark.parametrize("name", NAMES)
def test_a_seed_that_blew_up_reaches_neither_output_nor_gradients(name: str, value: float) -> None:
    plan = plan_of(name)
    x = examples(plan.shape, 6, 1).inputs
    params = {segment: flat.requires_grad_() for segment, flat in params_of(plan, KEYS[0]).items()}
    alone = one_host.forward(plan, params, x, [0, 0, 0], [-1, -1, -1])
    gradient = torch.autograd.grad(alone.square().sum(), params["host"])[0]
    for slot in range(len(SLOTS)):
        for index, blueprint in enumerate(plan.blueprints):
            active = [index if each == slot else -1 for each in range(3)]
            broken = {
                **params,
                hosts.name_segment(plan, slot, index): torch.full_like(
                    params[hosts.name_segment(plan, slot, index)], value
                ),
            }
            for alpha in (0.0, 1.0):
                logits = one_host.forward(plan, broken, x, [alpha] * 3, active)
                assert torch.equal(logits, alone), (blueprint, alpha)
                found = torch.autograd.grad(logits.square().sum(), params["host"])[0]
                assert torch.equal(found, gradient), (blueprint, alpha)


def test_parameters_are_those_of_the_active_seeds() -> None:
    plan = plan_of("mlp")  # 5 inputs, 6 features, 3 classes; norm, mlp, low_rank
    host = (5 * 6 + 6) + 2 * (6 * 6 + 6) + (6 * 3 + 3)
    norm, mlp, low_rank = 12, 2 * (6 * 6 + 6), 2 * 6
    assert plan.count_parameters([-1, -1, -1]) == (host, 0)
    assert plan.count_parameters([0, 1, 2]) == (host, norm + mlp + low_rank)
    assert plan.count_parameters([1, 1, -1]) == (host, 2 * mlp)
    for name in NAMES:
        plan = plan_of(name)
        for index in range(len(plan.blueprints)):
            params = params_of(plan, KEYS[0])
            seed = blocks.open_segment(
                plan, hosts.name_segment(plan, 1, index), params[hosts.name_segment(plan, 1, index)]
            )
            assert plan.count_parameters([-1, index, -1])[1] == sum(
                tensor.numel() for tensor in seed.values()
            )


@pytest.mark.parametrize("name", NAMES)
def test_flops_are_those_that_torch_counts(name: str) -> None:
    plan = plan_of(name)
    params, x = params_of(plan, KEYS[0]), examples(plan.shape, 4, 1).inputs
    for index in range(-1, len(plan.blueprints)):
        active = [index, -1, index]
        with FlopCounterMode(display=False) as counter:
            one_host.forward(plan, params, x, [1, 1, 1], active)
        assert counter.get_total_flops() == 4 * plan.count_forward(active), plan.blueprints[index]
    stem = 2 * plan.count_evaluation(active, 1) - plan.count_evaluation(active, 2)
    assert plan.count_evaluation(active, 1) == plan.count_forward(active)
    assert stem > 0
    assert plan.count_training(active, [False] * 3) == 3 * plan.count_forward(active)
    without = plan.count_forward([index, -1, -1])
    assert plan.count_training(active, [False, False, True]) == 3 * (
        without + plan.count_forward(active)
    )
    bare, alone = plan.count_forward([-1, -1, -1]), [[index, -1, -1], [-1, -1, index]]
    each = sum(plan.count_forward(network) for network in alone)
    assert plan.count_training(active, [True, False, True]) == 3 * (bare + each)


def test_what_a_host_cannot_hold_is_refused_by_its_key() -> None:
    with pytest.raises(
        ConfigError, match=r"host.blueprints: 'conv_light'.*can hold: norm, mlp, low_rank"
    ):
        hosts.make_plan(HostConfig(kind="mlp", blueprints=["mlp", "conv_light"]), SHAPES["mlp"])
    wrong: dict[str, Any] = {
        "width": 7,
        "blueprints": ["mlp", "mlp"],
        "epochs": 0,
        "learning_rate": 0.0,
    }
    for key, value in wrong.items():
        with pytest.raises(ConfigError, match=rf"host\.{key}"):
            HostConfig(**{key: value})


def test_a_blend_rises_from_0_to_1() -> None:
    for epochs in (1, 2, 5, 10):
        weights = [lifecycle.compute_alpha(done, epochs) for done in range(epochs + 3)]
        assert weights[0] == 0 and weights[epochs:] == [1, 1, 1]
        assert all(low < high for low, high in pairwise(weights[: epochs + 1]))
    assert (
        lifecycle.compute_alpha(5, 10) == pytest.approx(0.5)
        and lifecycle.compute_alpha(2, 10) < 0.15
    )


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
        *(
            vmap(grad(lambda w, b, x, f=f: f(w, b, x).square().sum(), (0, 1, 2)))(weight, bias, x)
            for f in (own, theirs)
        ),
        strict=True,
    ):
        torch.testing.assert_close(one, other)
