"""Blocks in training: each member as if it were alone, each fault its own, nothing moved by a
question."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from growth import one_host
from growth.grown_hosts import (
    KEYS,
    NAMES,
    bare,
    copied,
    examples,
    grown,
    load,
    plan_of,
    same,
    state,
    turned_out,
)
from torch.nn import functional

from stageb import seeds
from stageb.growth import hosts, tasks, training
from stageb.growth.tasks import Split

BATCHES = tasks.draw_batches(KEYS, 0, 4, 8, 30)


@pytest.mark.parametrize("name", NAMES)
def test_a_block_trains_and_judges_each_member_as_if_it_were_alone(name: str) -> None:
    plan = plan_of(name)
    fit = examples(plan.shape, 30, len(KEYS))
    together, (active, alphas, learns) = grown(plan, KEYS)
    figures = training.train_epoch(together, active, alphas, learns, fit, BATCHES)
    judged = training.judge(together, fit, active, turned_out(alphas))
    for member, key in enumerate(KEYS):
        one = slice(member, member + 1)
        own = Split(fit.inputs, fit.targets[one])
        alone, its = grown(plan, [key])
        found = training.train_epoch(alone, *its, own, BATCHES[one])
        for here, there in zip(state(together).values(), state(alone).values(), strict=True):
            torch.testing.assert_close(here[one], there, rtol=0, atol=1e-10)
        torch.testing.assert_close(figures.loss[one], found.loss, rtol=0, atol=1e-10)
        torch.testing.assert_close(
            figures.gradient_norms[one], found.gradient_norms, rtol=0, atol=1e-9
        )
        params = {segment: flat[member] for segment, flat in together.weights.items()}
        for setting, weights in enumerate(turned_out(alphas)[member].tolist()):
            logits = one_host.forward(plan, params, fit.inputs, weights, active[member].tolist())
            loss = functional.cross_entropy(logits.flatten(0, -2), own.targets[0].flatten())
            torch.testing.assert_close(judged.loss[member, setting], loss, rtol=0, atol=1e-10)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_trains_a_block_as_a_cpu_does(name: str) -> None:
    """Where steps are recorded: as members stand, and when some have lost a seed."""
    plan = plan_of(name)
    fit = examples(plan.shape, 30, len(KEYS))
    here, (active, alphas, learns) = grown(plan, KEYS)
    there = training.make_hosts(plan, here.weights["host"], "cuda", torch.float64)
    load(there, state(here))
    for epoch in range(2):
        batches = tasks.draw_batches(KEYS, epoch, 4, 8, 30)
        wanted = training.train_epoch(here, active, alphas, learns, fit, batches)
        found = training.train_epoch(
            there, active, alphas, learns, Split(fit.inputs.cuda(), fit.targets.cuda()), batches
        )
        torch.testing.assert_close(found.loss, wanted.loss, rtol=0, atol=1e-8)
        torch.testing.assert_close(found.gradient_norms, wanted.gradient_norms, rtol=0, atol=1e-7)
        for block in (here, there):
            block.cull(1, 1)
        active[1, 1], learns[1, 1] = -1, False
    for (part, found_there), held in zip(state(there).items(), state(here).values(), strict=True):
        torch.testing.assert_close(found_there.cpu(), held, rtol=0, atol=1e-8, msg=part)


def test_a_step_is_one_of_torchs_adam_and_a_seeds_steps_are_counted_from_its_own_start() -> None:
    plan = replace(plan_of("mlp"), learning_rates=(0.01, 0.02, 0.02, 0.02))
    fit = examples(plan.shape, 30, 1)
    block, (active, alphas, learns) = bare(plan, KEYS[:1])
    host = block.weights["host"][0].clone().requires_grad_()
    optimizer = torch.optim.Adam([host], 0.01)
    seed = None
    for epoch in range(2):
        if epoch:
            block.germinate(0, 1, 1, 99)
            active[0, 1], alphas[0, 1], learns[0, 1] = 1, 0.5, True
            seed = block.weights["mid.mlp"][0].clone().requires_grad_()
            optimizer.add_param_group({"params": [seed], "lr": 0.02})
        batches = tasks.draw_batches(KEYS[:1], epoch, 5, 8, 30)
        training.train_epoch(block, active, alphas, learns, fit, batches)
        for chosen in batches[0]:
            params = {"host": host} if seed is None else {"host": host, "mid.mlp": seed}
            logits = one_host.forward(
                plan, params, fit.inputs[chosen], alphas[0].tolist(), active[0].tolist()
            )
            optimizer.zero_grad()
            functional.cross_entropy(logits, fit.targets[0, chosen]).backward()
            optimizer.step()
    assert seed is not None
    torch.testing.assert_close(block.weights["host"][0], host.detach(), rtol=0, atol=1e-10)
    torch.testing.assert_close(block.weights["mid.mlp"][0], seed.detach(), rtol=0, atol=1e-10)
    assert block.counts.tolist() == [[10, 0, 5, 0]]


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_beside_its_host_learns_and_the_host_does_not_notice(name: str) -> None:
    plan = replace(plan_of(name), learning_rates=(1e-4, 0.01, 0.01, 0.01))
    count = len(plan.blueprints)
    keys = [KEYS[0]] * count  # one host many times, another blueprint beside each
    fit = examples(plan.shape, 30, 1)
    fit = Split(fit.inputs, fit.targets.expand(count, *fit.targets.shape[1:]))
    batches = tasks.draw_batches([KEYS[0]], 0, 30, 15, 30).expand(count, -1, -1)
    alone, nothing = bare(plan, keys)
    training.train_epoch(alone, *nothing, fit, batches)
    block, (active, alphas, learns) = bare(plan, keys)
    for member in range(count):
        block.germinate(member, member % 3, member, KEYS[1])
        active[member, member % 3], learns[member, member % 3] = member, True
    training.train_epoch(block, active, alphas, learns, fit, batches)
    assert torch.equal(block.weights["host"], alone.weights["host"])
    settings = torch.stack([alphas, (active >= 0).double()], 1)
    out, within = training.judge(block, fit, active, settings).loss.T
    assert (within < out - 1e-3).all(), dict(
        zip(plan.blueprints, (within - out).tolist(), strict=True)
    )


@pytest.mark.parametrize("name", NAMES)
def test_seeds_that_train_beside_one_host_learn_as_if_each_were_the_only_one(name: str) -> None:
    plan = plan_of(name)
    blueprint = len(plan.blueprints) - 1
    # of the same host: one seed, another, a third, and all of them
    places = [(0,), (1,), (2,), (0, 1, 2)]
    keys = [KEYS[0]] * len(places)
    block, (active, alphas, learns) = bare(plan, keys)
    for member, slots in enumerate(places):
        for slot in slots:
            block.germinate(member, slot, blueprint, KEYS[1])
            active[member, slot], learns[member, slot] = blueprint, True
    fit = examples(plan.shape, 30, 1)
    fit = Split(fit.inputs, fit.targets.expand(len(keys), *fit.targets.shape[1:]))
    figures = training.train_epoch(
        block, active, alphas, learns, fit, BATCHES[:1].expand(len(keys), -1, -1)
    )
    for slot in range(3):
        held = block.weights[hosts.name_segment(plan, slot, blueprint)]
        torch.testing.assert_close(held[3], held[slot], rtol=0, atol=1e-10)
        assert not torch.equal(held[3], held[(slot + 1) % 3])
        torch.testing.assert_close(
            figures.gradient_norms[3, slot + 1], figures.gradient_norms[slot, slot + 1]
        )


def test_a_seed_that_blew_up_is_told_of_and_harms_nobody() -> None:
    plan = plan_of("conv1d")
    fit = examples(plan.shape, 30, len(KEYS))
    block, (active, alphas, learns) = grown(plan, KEYS)
    whole, _ = grown(plan, KEYS)
    member = int(((alphas[:, 1] > 0) & learns[:, 1]).nonzero()[0])
    block.weights[hosts.name_segment(plan, 1, int(active[member, 1]))][member] = torch.inf
    figures = training.train_epoch(block, active, alphas, learns, fit, BATCHES)
    assert figures.gradient_norms[member, 2] == torch.inf and figures.skipped.tolist()[member] == [
        0,
        0,
        4,
        0,
    ]
    turned = active.clone()
    turned[member, 1] = -1
    training.train_epoch(whole, turned, alphas, learns & (turned >= 0), fit, BATCHES)
    torch.testing.assert_close(block.weights["host"], whole.weights["host"], rtol=0, atol=1e-10)
    assert torch.isfinite(training.judge(block, fit, active, turned_out(alphas)).loss).all()
    block.cull(member, 1)
    assert (
        all(table[member].isfinite().all() for table in block.weights.values())
        and block.counts[member, 2] == 0
    )


@pytest.mark.parametrize("name", ["mlp", "conv1d"])
def test_what_others_have_grown_moves_no_bit_of_a_host(name: str) -> None:
    plan = plan_of(name)
    fit = examples(plan.shape, 30, len(KEYS))
    alone, nothing = bare(plan, KEYS)
    training.train_epoch(alone, *nothing, fit, BATCHES)
    block, (active, alphas, learns) = grown(plan, KEYS)
    for slot in range(3):
        block.cull(0, slot)
    active[0], learns[0] = -1, False
    training.train_epoch(block, active, alphas, learns, fit, BATCHES)
    assert same(
        {n: held[:1] for n, held in state(alone).items()},
        {n: held[:1] for n, held in state(block).items()},
    )
    assert not torch.equal(alone.weights["host"][1:], block.weights["host"][1:])


def test_a_step_that_is_not_finite_is_left_out_and_three_in_a_row_name_their_member() -> None:
    plan = plan_of("mlp")
    fit = examples(plan.shape, 30, len(KEYS))
    fit.inputs[7] = torch.nan
    # 4 steps of 8 of 30 examples: each member reads it once, or twice
    assert ((BATCHES == 7).any(2).sum(1) == 1).all()
    block, nothing = bare(plan, KEYS)
    figures = training.train_epoch(block, *nothing, fit, BATCHES)
    again = training.train_epoch(block, *nothing, fit, BATCHES)
    # of an epoch each
    assert figures.skipped[:, 0].tolist() == again.skipped[:, 0].tolist() == [1] * len(KEYS)
    assert block.counts[:, 0].tolist() == [6] * len(KEYS)
    assert all(table.isfinite().all() for table in block.weights.values())
    always = BATCHES.clone()
    always[3, :, 0] = 7
    with pytest.raises(
        training.BrokenHostsError, match=r"3 steps in a row.* members 3 of"
    ) as caught:
        training.train_epoch(block, *nothing, fit, always)
    assert caught.value.members == (3,)


@pytest.mark.parametrize("name", NAMES)
def test_a_given_host_is_not_differentiated_and_its_seeds_learn_as_in_one_that_is_held(
    name: str,
) -> None:
    held = replace(plan_of(name), learning_rates=(0.0, 0.01, 0.01, 0.01))
    given = replace(held, shape=replace(held.shape, given=True))
    fit = examples(held.shape, 30, len(KEYS))
    fit.inputs[7] = torch.nan
    states, figures = [], []
    for plan in (held, given):
        block, its = grown(plan, KEYS)
        figures.append(training.train_epoch(block, *its, fit, BATCHES))
        states.append(state(block))
    moments = ("first.host", "second.host")
    assert all(states[0][each].any() and not states[1][each].any() for each in moments)
    assert same(
        *({name: held for name, held in each.items() if name not in moments} for each in states)
    )
    assert torch.equal(figures[0].skipped, figures[1].skipped) and figures[1].skipped[
        :, 0
    ].tolist() == [1] * len(KEYS)
    assert torch.equal(figures[0].gradient_norms[:, 1:], figures[1].gradient_norms[:, 1:])
    bare_block, nothing = bare(given, KEYS)
    always = BATCHES.clone()
    always[3, :, 0] = 7
    with pytest.raises(training.BrokenHostsError) as caught:
        training.train_epoch(bare_block, *nothing, fit, always)
    assert caught.value.members == (3,)


def test_asking_what_slots_contribute_changes_nothing() -> None:
    plan = plan_of("conv2d")
    fit = examples(plan.shape, 30, len(KEYS))
    block, (active, alphas, learns) = grown(plan, KEYS)
    training.train_epoch(block, active, alphas, learns, fit, BATCHES)
    before, stream = copied(block), torch.random.get_rng_state()
    judged = training.judge(block, fit, active, turned_out(alphas))
    assert same(before, state(block)) and torch.equal(stream, torch.random.get_rng_state())
    assert not any(tensor.requires_grad for tensor in state(block).values())
    assert turned_out(torch.ones(1, 3)).tolist() == [[[1, 1, 1], [0, 1, 1], [1, 0, 1], [1, 1, 0]]]
    empty = active < 0
    assert torch.equal(judged.loss[:, 1:][empty], judged.loss[:, :1].expand(-1, 3)[empty])
    assert (judged.loss[:, 1:] != judged.loss[:, :1])[learns & (alphas > 0)].all()


def test_a_block_goes_on_from_its_state_and_forgets_what_was_culled() -> None:
    plan = plan_of("mlp")
    fit = examples(plan.shape, 30, len(KEYS))
    block, its = grown(plan, KEYS)
    training.train_epoch(block, *its, fit, BATCHES)
    resumed, _ = bare(plan, KEYS)
    load(resumed, copied(block))
    for each in (block, resumed):
        training.train_epoch(each, *its, fit, tasks.draw_batches(KEYS, 1, 4, 8, 30))
    assert same(state(block), state(resumed))
    for member, key in enumerate(KEYS):
        for slot in range(3):
            block.cull(member, slot)
            block.germinate(member, slot, 1, seeds.stream(key, slot))
    fresh, _ = bare(plan, KEYS)
    for member, key in reversed(list(enumerate(KEYS))):
        for slot in range(3):
            fresh.germinate(member, slot, 1, seeds.stream(key, slot))
    kept = {
        name: held
        for name, held in state(block).items()
        if name.startswith(("weights.", "first.", "second."))
    }
    assert same({name: held for name, held in kept.items() if "host" not in name}, state(fresh))
    assert block.counts[:, 1:].sum() == 0
