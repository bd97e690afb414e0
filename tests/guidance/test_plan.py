from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import tickets

from stageb.guidance.config import GateConfig, LoopConfig, RunnerConfig, SplitConfig
from stageb.guidance.plan import SPLITS, Step, gate_pool, make_plan, missions_of, split_tickets
from stageb.guidance.types import Split, Ticket

CONFIG = LoopConfig(stage_a_paths=["t.jsonl"], runner=RunnerConfig(epochs=2))
WORLDS = st.builds(lambda one, other: [*one, *other], tickets("m"), tickets("n"))
SIZES = st.integers(1, 12)


def numbered(groups: int, mission: str = "m") -> list[Ticket]:
    return [Ticket(mission, f"group-{n}", "pass", (("image_1", "a: b"),)) for n in range(groups)]


def splits(world: Sequence[Ticket], config: LoopConfig = CONFIG) -> dict[tuple[str, str], Split]:
    """The split of every ticket, by mission and key."""
    parts = split_tickets(world, config)
    return {(mission, world[i].key): split for mission, by in parts.items() for split in SPLITS for i in by[split]}


def planned(world: Sequence[Ticket], size: int, config: LoopConfig = CONFIG) -> list[Step]:
    return make_plan(split_tickets(world, config), config, size)


# Splits


@given(WORLDS)
def test_splits_partition_a_missions_tickets(world: list[Ticket]) -> None:
    parts = split_tickets(world, CONFIG)
    assert list(parts) == missions_of(world)
    for mission, by in parts.items():
        own = [i for i, ticket in enumerate(world) if ticket.mission == mission]
        assert sorted(i for split in SPLITS for i in by[split]) == own


@given(WORLDS, WORLDS)
def test_further_tickets_move_none_of_the_others(world: list[Ticket], more: list[Ticket]) -> None:
    known = {(ticket.mission, ticket.key) for ticket in world}
    before, after = splits(world), splits(world + [t for t in more if (t.mission, t.key) not in known])
    assert {ticket: after[ticket] for ticket in before} == before


@given(tickets())
def test_a_resubmitted_group_stays_in_its_split(world: list[Ticket]) -> None:
    both = [replace(ticket, label=label) for ticket in world for label in ("pass", "fail")]
    found = splits(list(dict.fromkeys(both)))
    assert all(found["m", f"{ticket.group_id}::pass"] == found["m", f"{ticket.group_id}::fail"] for ticket in world)


@given(tickets(), st.data())
def test_the_order_of_lines_makes_no_difference(world: list[Ticket], data: st.DataObject) -> None:
    other = data.draw(st.permutations(world))
    steps, others = planned(world, 5), planned(other, 5)
    assert [replace(step, tickets=()) for step in steps] == [replace(step, tickets=()) for step in others]
    for step, same in zip(steps, others, strict=True):
        assert [world[i] for i in step.tickets] == [other[i] for i in same.tickets]


def test_shares_are_as_configured_and_the_seed_draws_them() -> None:
    world = numbered(4000)
    config = replace(CONFIG, split=SplitConfig(0.5, 0.2, 0.3))
    drawn = Counter(splits(world, config).values())
    assert drawn["train"] / 4000 == pytest.approx(0.5, abs=0.03)
    assert drawn["val"] / 4000 == pytest.approx(0.2, abs=0.03)
    assert splits(world, config) != splits(world, replace(config, seed=18))


# The plan


@given(WORLDS, SIZES)
def test_rounds_partition_each_epochs_tickets(world: list[Ticket], size: int) -> None:
    parts = split_tickets(world, CONFIG)
    steps = [step for step in planned(world, size) if step.kind == "round"]
    for epoch in range(CONFIG.runner.epochs + 1):
        for mission, by in parts.items():
            for split in SPLITS:
                rounds = [step for step in steps if (step.epoch, step.mission, step.split) == (epoch, mission, split)]
                assert sorted(i for step in rounds for i in step.tickets) == sorted(by[split])
                assert [step.number for step in rounds] == list(range(len(rounds)))
                assert [step.last for step in rounds] == [False] * (len(rounds) - 1) + [True] * bool(rounds)
                assert all(len(step.tickets) == size for step in rounds[:-1])
                assert all(0 < len(step.tickets) <= size for step in rounds)


@given(WORLDS, SIZES)
def test_every_epoch_learns_first_and_judges_then(world: list[Ticket], size: int) -> None:
    steps = planned(world, size)
    order = [(step.epoch, missions_of(world).index(step.mission), SPLITS.index(step.split)) for step in steps]
    assert order == sorted(order)
    assert all(step.learns == (step.epoch > 0 and step.split == "train") for step in steps)
    latest = {(step.epoch, step.mission, step.split): step for step in steps}
    for step in steps:
        closes = step.learns and step is latest[step.epoch, step.mission, step.split]
        assert (step.kind == "close") == closes
    closings = [(step.epoch, step.mission) for step in steps if step.kind == "close"]
    assert closings == [(epoch, mission) for epoch in (1, 2) for mission in missions_of(world)]


def test_epochs_draw_orders_of_their_own_and_the_first_is_judged_beforehand() -> None:
    steps = [step for step in planned(numbered(60), 60) if step.split == "train" and step.kind == "round"]
    before, first, second = (step.tickets for step in steps)
    assert before == first != second
    assert sorted(first) == sorted(second)


@given(tickets(min_size=1), SIZES, st.integers(1, 9))
def test_a_draw_of_train_tickets_leaves_val_and_test_whole(world: list[Ticket], size: int, drawn: int) -> None:
    config = replace(CONFIG, runner=RunnerConfig(epochs=2, tickets_per_epoch=drawn))
    whole, some = (Counter[tuple[int, str]](), Counter[tuple[int, str]]())
    for counter, steps in ((whole, planned(world, size)), (some, planned(world, size, config))):
        for step in steps:
            counter[step.epoch, step.split] += len(step.tickets)
            assert len(set(step.tickets)) == len(step.tickets)
    for (epoch, split), count in whole.items():
        assert some[epoch, split] == (min(count, drawn) if split == "train" else count)


@given(WORLDS, st.sampled_from([(1, 12), (2, 6), (3, 4), (4, 3)]))
def test_the_plan_knows_the_round_and_not_the_ranks(world: list[Ticket], shape: tuple[int, int]) -> None:
    world_size, per_rank = shape
    config = replace(CONFIG, runner=RunnerConfig(epochs=2, per_rank_rollout_batch_size=per_rank))
    assert planned(world, world_size * per_rank, config) == planned(world, 12)


# The gate's pool


@given(st.lists(st.integers(0, 999), unique=True, max_size=40), st.integers(1, 50))
def test_the_pool_is_a_fixed_draw_from_train(train: list[int], size: int) -> None:
    config = replace(CONFIG, gate=GateConfig(pool_size=size))
    pool = gate_pool(train, config, "m")
    assert len(pool) == min(size, len(train)) == len(set(pool))
    assert set(pool) <= set(train)
    assert gate_pool(train, config, "m") == pool
    assert gate_pool(train, replace(config, gate=GateConfig(pool_size=999)), "m")[: len(pool)] == pool


def test_missions_and_seeds_draw_pools_of_their_own() -> None:
    train = list(range(200))
    config = replace(CONFIG, gate=GateConfig(pool_size=20))
    pools = {tuple(gate_pool(train, each, mission)) for each in (config, replace(config, seed=18)) for mission in "mn"}
    assert len(pools) == 4
