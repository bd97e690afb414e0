"""Net2Net and GradMax: what they leave as it is, and what brute force says of the directions that they choose."""

from __future__ import annotations

import pytest
import torch
from growth.grown_hosts import KEYS
from torch import Tensor
from torch.nn import functional

from stageb.growth import baselines, blocks, hosts
from stageb.growth.blocks import open_segment
from stageb.growth.compare import compare
from stageb.growth.config import GrowthConfig, GrowthSection, HostConfig, TaskConfig
from stageb.growth.deciding import Decider
from stageb.growth.environment import Places, Setting
from stageb.growth.kinds import Form

FORM, WIDTH = Form((5,), 3), 2


def host(width: int = WIDTH) -> dict[str, Tensor]:
    plan = hosts.make_plan(HostConfig(width=width, blueprints=["norm"]), FORM)
    drawn = blocks.draw(plan, "host", [KEYS[0]])[0]
    return {name: each + 0.1 for name, each in open_segment(plan, "host", drawn).items()}


def examples() -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(3)
    return torch.randn(40, 5, generator=stream, dtype=torch.float64), torch.randint(3, (40,), generator=stream)


def logits(params: dict[str, Tensor], x: Tensor) -> Tensor:
    for name in baselines.LAYERS[:-1]:
        x = functional.relu(functional.linear(x, params[name], params[f"{name}_bias"]))
    return functional.linear(x, params["head"], params["head_bias"])


def widened(name: str, width: int) -> dict[str, Tensor]:
    x, y = examples()
    generator = torch.Generator().manual_seed(1)
    return baselines.copy_units(host(), width, generator) if name == "net2net" else baselines.add_units(host(), width, x, y)


@pytest.mark.parametrize("name", baselines.WIDENED)
def test_widening_leaves_the_function_as_it_is(name: str) -> None:
    x, _ = examples()
    for width in (4, 8):
        new = widened(name, width)
        assert {key: each.shape for key, each in new.items()} == {key: each.shape for key, each in host(width).items()}
        torch.testing.assert_close(logits(new, x), logits(host(), x), atol=1e-9, rtol=1e-9)


def test_net2net_copies_units_and_shares_out_what_leaves_them() -> None:
    """Brute force: each new unit is one of the two that were drawn, in what enters it and in what leaves it."""
    old = {
        name: each + 0.01 * torch.arange(each.numel()).view(each.shape) for name, each in host().items()
    }  # no equal biases
    new = baselines.copy_units(old, 5, torch.Generator().manual_seed(1))
    columns: list[int] | None = None  # which of the old units each new one is, in the layer before
    for name in baselines.LAYERS:
        whose = [next(unit for unit, bias in enumerate(old[f"{name}_bias"]) if bias == each) for each in new[f"{name}_bias"]]
        for row, unit in enumerate(whose):
            expected = old[name][unit]
            if columns is not None:
                expected = torch.stack([expected[each] / columns.count(each) for each in columns])
            torch.testing.assert_close(new[name][row], expected)
        columns = whose
    assert columns == [0, 1, 2]  # classes


def test_no_other_outgoing_weights_of_that_length_make_the_gradient_larger() -> None:
    x, y = examples()
    new, stream = widened("gradmax", 4), torch.Generator().manual_seed(5)

    def gradient(params: dict[str, Tensor], layer: str) -> float:
        leaf = params[layer].clone().requires_grad_()
        loss = functional.cross_entropy(logits({**params, layer: leaf}, x), y)
        return float(torch.autograd.grad(loss, leaf)[0][WIDTH:].norm())

    for layer, following in zip(baselines.LAYERS, baselines.LAYERS[1:], strict=False):
        best = gradient(new, layer)
        for _ in range(200):
            columns = new[following].clone()
            old = columns[: len(host()[f"{following}_bias"]), WIDTH:].clone()
            other = torch.linalg.qr(torch.randn(old.shape, generator=stream, dtype=torch.float64))[0] * old.norm(dim=0)
            columns[: len(other), WIDTH:] = other
            bias = new[f"{following}_bias"].clone()
            bias[: len(other)] += baselines.LIFT * (old - other).sum(1)
            assert gradient({**new, following: columns, f"{following}_bias": bias}, layer) <= best * (1 + 1e-6), layer


def test_hosts_are_widened_half_way_and_pay_for_it() -> None:
    config = GrowthConfig(
        task=TaskConfig("digits", fit_examples=300, validation_examples=50),
        host=HostConfig(width=4, blueprints=["norm"], epochs=6, steps_per_epoch=4, batch_size=20),
        growth=GrowthSection(environments=2, block=2),
    )
    setting, places = Setting.of(config, "cpu"), Places((1, 2), held_out=True)
    for name in baselines.WIDENED:
        wide = baselines.grow(setting, places, name, [3e6, 4e6])
        assert wide.setting.plan.width == 8 and wide.epochs > 1
        assert all(1e6 < spent < 2e6 for spent in wide.flops)  # gradmax looks at a batch
    [outcomes] = compare(setting, places, [(Decider("heuristic", {}), {})], ["static-small", *baselines.WIDENED])
    budgets = {each.environment: each.flops for each in outcomes if each.controller == "heuristic"}
    for each in outcomes:
        assert each.flops <= budgets[each.environment] and (each.extra > 0.5) == (each.controller in baselines.WIDENED)
    for task, told in (("teacher", "mlp that learn from data"), ("digits", "")):
        assert GrowthConfig(task=TaskConfig(task)).obstacle("net2net").endswith(told)
