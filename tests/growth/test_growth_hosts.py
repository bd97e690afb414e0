"""Hosts and seeds: what reaches the output, what counts, and that a block trains each member as if it were alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from stageb import seeds
from stageb.errors import ConfigError
from stageb.growth import bank, counterfactual, hosts, tasks, training
from stageb.growth.blueprints import holds
from stageb.growth.config import HostConfig
from stageb.growth.data import Split
from stageb.growth.kinds import KINDS, Form

FORMS = {
    "mlp": Form((5,), 3),
    "conv1d": Form((9, 2), 3),
    "conv2d": Form((5, 6, 2), 3),
    "transformer": Form((7, 3), 3),
    "tokens": Form((7,), 11, vocabulary=11, kinds=("transformer",)),
}
KEYS = [seeds.stream("test", member) for member in range(7)]


def plan_of(name: str, blend: str = "gated", **more: object) -> hosts.Plan:
    """A small host of that kind which holds all that it can."""
    kind = "transformer" if name == "tokens" else name
    axes = len(KINDS[kind].places(FORMS[name], 0))
    return hosts.plan(HostConfig(kind=kind, width=6, blueprints=holds(axes), blend=blend, **more), FORMS[name])


def examples(form: Form, count: int, members: int) -> Split:
    """Random examples and answers, own ones for each member."""
    stream = torch.Generator().manual_seed(5)
    if form.vocabulary:
        inputs = torch.randint(form.vocabulary, (count, *form.shape), generator=stream)
        return Split(inputs, torch.randint(form.classes, (members, count, *form.shape), generator=stream))
    inputs = torch.randn((count, *form.shape), generator=stream, dtype=torch.float64)
    return Split(inputs, torch.randint(form.classes, (members, count), generator=stream))


def grown(plan: hosts.Plan, keys: list[int]) -> tuple[training.Hosts, Tensor, Tensor, Tensor]:
    """A block in which each member has other seeds: blending, beside the host, finished; and its active, alphas, learns."""
    block = training.begin(plan, bank.drawn(plan, "host", keys), "cpu", torch.float64)
    active = torch.full((len(keys), 3), -1)
    alphas, learns = torch.zeros((len(keys), 3), dtype=torch.float64), torch.zeros((len(keys), 3), dtype=torch.bool)
    for member, key in enumerate(keys):
        number = KEYS.index(key)
        for slot in range(3):
            index = (number + 2 * slot) % (len(plan.blueprints) + 1) - 1
            if index >= 0:
                training.germinate(block, member, slot, index, seeds.stream(key, "seed", slot))
                active[member, slot], alphas[member, slot] = index, (0.0, 0.4, 1.0)[(number + slot) % 3]
                learns[member, slot] = (number + slot) % 4 != 3
    return block, active, alphas, learns


@pytest.mark.parametrize("name", FORMS)
def test_a_block_trains_each_member_as_if_it_were_alone(name: str) -> None:
    plan = plan_of(name)
    fit = examples(plan.form, 30, len(KEYS))
    batches = tasks.batches(KEYS, 0, 4, 8, 30)
    together, active, alphas, learns = grown(plan, KEYS)
    figures = training.epoch(together, active, alphas, learns, fit, batches)
    settings = counterfactual.turned_out(alphas)
    judged = counterfactual.judge(together, fit, active, settings)
    for member, key in enumerate(KEYS):
        one = slice(member, member + 1)
        alone, *its = grown(plan, [key])
        own = training.epoch(alone, *its, Split(fit.inputs, fit.targets[one]), batches[one])
        for held, found in zip(together.state().values(), alone.state().values(), strict=True):
            torch.testing.assert_close(held[one], found, rtol=0, atol=1e-10)
        torch.testing.assert_close(figures.loss[one], own.loss, rtol=0, atol=1e-10)
        torch.testing.assert_close(figures.gradient_norms[one], own.gradient_norms, rtol=0, atol=1e-9)
        found = counterfactual.judge(alone, Split(fit.inputs, fit.targets[one]), its[0], settings[one])
        torch.testing.assert_close(judged.loss[one], found.loss, rtol=0, atol=1e-10)


def test_a_host_that_cannot_hold_a_blueprint_says_what_it_can() -> None:
    with pytest.raises(ConfigError, match=r"conv_light.*can hold: norm, mlp, low_rank"):
        hosts.plan(HostConfig(kind="mlp", blueprints=["mlp", "conv_light"]), FORMS["mlp"])
