import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from guidance.made import tickets
from guidance.trials import World
from hypothesis import given
from hypothesis import strategies as st
from stageb.guidance.plan import SPLITS, Forecast, Step, forecast, make_plan, missions_of, set_apart, split_tickets

from stageb.guidance.config import (
    DistillConfig,
    GateConfig,
    LoopConfig,
    ReflectionConfig,
    RunnerConfig,
    SamplerConfig,
    SplitConfig,
)
from stageb.guidance.gate.decide import decide
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
    parts = split_tickets(world, config)
    return make_plan(parts, set_apart(parts, world, config), config, size)


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


def rounds_of(steps: Sequence[Step], epoch: int, mission: str, split: Split) -> list[Step]:
    wanted = (epoch, mission, split)
    return [step for step in steps if step.kind == "round" and (step.epoch, step.mission, step.split) == wanted]


@given(WORLDS, SIZES, st.integers(0, 3))
def test_rounds_partition_what_each_epoch_judges(world: list[Ticket], size: int, epochs: int) -> None:
    """Val and test before learning; train, without what edits are raced on, and val in each epoch; test once more at the
    end."""
    parts_ = split_tickets(world, CONFIG)
    raced = set_apart(parts_, world, CONFIG)
    steps = planned(world, size, replace(CONFIG, runner=RunnerConfig(epochs=epochs)))
    held_out = {(0, "val"), (0, "test"), (epochs, "test")} | {(epoch, "val") for epoch in range(epochs + 1)}
    for epoch in range(epochs + 1):
        for mission, by in parts_.items():
            for split in SPLITS:
                rounds = rounds_of(steps, epoch, mission, split)
                judged = epoch > 0 if split == "train" else (epoch, split) in held_out
                times = 2 if (epoch, split) == (0, "test") and epochs == 0 else 1
                wanted = set(by[split]) - (set(raced[mission]) if split == "train" else set())
                assert sorted(i for step in rounds for i in step.tickets) == sorted([*wanted] * times * judged)
                assert all(0 < len(step.tickets) <= size for step in rounds)
                if times == 1:
                    assert [step.number for step in rounds] == list(range(len(rounds)))
                    assert [step.last for step in rounds] == [False] * (len(rounds) - 1) + [True] * bool(rounds)
                    assert all(len(step.tickets) == size for step in rounds[:-1])


@given(WORLDS, st.integers(1, 9))
def test_tickets_to_race_on_are_whole_groups_of_train_and_no_more_than_a_third_of_them(
    world: list[Ticket], race_size: int
) -> None:
    config = replace(CONFIG, gate=GateConfig(race_size=race_size))
    parts = split_tickets(world, config)
    raced = set_apart(parts, world, config)
    for mission, by in parts.items():
        groups = {world[i].group_id for i in raced[mission]}
        assert set(raced[mission]) == {i for i in by["train"] if world[i].group_id in groups}
        assert len(groups) <= min(race_size, len(by["train"]) // 3)
        assert bool(groups) == (len(by["train"]) >= 3)
    assert not any(set_apart(parts, world, replace(config, gate="none")).values())


def test_tickets_to_race_on_are_drawn_and_keep_no_order() -> None:
    one, other = (set_apart({"m": {"train": range(90)}}, numbered(90), replace(CONFIG, seed=seed))["m"] for seed in (1, 2))
    assert one != sorted(one)
    assert set(one) != set(other)


@given(WORLDS, SIZES)
def test_every_epoch_learns_closes_and_judges_and_the_final_guidance_is_chosen_before_test(
    world: list[Ticket], size: int
) -> None:
    config = replace(CONFIG, distill=DistillConfig(size=1))
    steps, missions = planned(world, size, config), missions_of(world)
    letters = {("val", "round"): "v", ("test", "round"): "t", ("train", "round"): "r"}
    letters |= {("train", "close"): "c", ("val", "choose"): "o", ("train", "distill"): "d"}
    for mission in missions:
        written = "".join(letters[step.split, step.kind] for step in steps if step.mission == mission)
        assert re.fullmatch("v*t*(r*cv*){2}ot*d*", written)
    for step in steps:
        assert step.learns == (step.epoch > 0 and step.split == "train" and step.kind != "distill")
        assert step.counts == (step.kind in ("round", "distill")) == bool(step.tickets)
    for kind, epochs in (("close", [1, 2]), ("choose", [2])):
        marks = [(step.epoch, step.mission) for step in steps if step.kind == kind]
        assert marks == [(epoch, mission) for epoch in epochs for mission in missions]
    train = {mission: sorted(by["train"]) for mission, by in split_tickets(world, config).items()}
    for mission in missions:
        drawn = [i for step in steps if (step.mission, step.kind) == (mission, "distill") for i in step.tickets]
        assert sorted(drawn) == train[mission]


@given(WORLDS, SIZES)
def test_an_audit_judges_every_ticket_once_and_learns_nothing(world: list[Ticket], size: int) -> None:
    steps = planned(world, size, replace(CONFIG, jump_reflection=True, distill=DistillConfig(size=9)))
    assert sorted(i for step in steps for i in step.tickets) == list(range(len(world)))
    assert {(step.kind, step.epoch, step.learns) for step in steps} <= {("round", 0, False)}


def test_epochs_draw_orders_of_their_own() -> None:
    steps = [step for step in planned(numbered(60), 60) if step.split == "train" and step.kind == "round"]
    first, second = (step.tickets for step in steps)
    assert first != second
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


# The forecast


def test_a_forecast_counts_the_plan() -> None:
    config = replace(CONFIG, sampler=SamplerConfig(samples_per_decode=3), distill=DistillConfig(size=1), gate="none")
    config = replace(config, reflection=ReflectionConfig(batch_size=20, num_proposals=5))
    world = numbered(100)
    sizes = {split: len(positions) for split, positions in split_tickets(world, config)["m"].items()}
    judged = 2 * sizes["train"] + 3 * sizes["val"] + 2 * sizes["test"]
    bundles = 2 * -(-sizes["train"] // 20)
    cost = forecast(planned(world, 12, config), config, {"m": sizes["train"]})
    assert cost == Forecast(3 * judged + sizes["train"], bundles, 5 * bundles, 0)
    audit = replace(config, jump_reflection=True)
    assert forecast(planned(world, 12, audit), audit, {"m": sizes["train"]}) == Forecast(300, 0, 0, 0)


@given(st.data(), st.integers(1, 13), st.integers(1, 30), st.integers(1, 90), st.integers(1, 120))
def test_no_bundle_costs_the_gate_more_than_was_forecast(
    data: st.DataObject, proposals: int, batch_size: int, race_size: int, pool_size: int
) -> None:
    """Each edit mends tickets of its own, so that all look good and join."""
    train = data.draw(st.integers(batch_size, 160))
    gate = GateConfig(race_size=race_size, race_chunk=data.draw(st.integers(1, 24)), pool_size=pool_size)
    reflection = ReflectionConfig(batch_size=batch_size, num_proposals=proposals, max_cases=6)
    config = replace(CONFIG, gate=gate, reflection=reflection)
    world = World(numbered(train), [0.0] * train)
    (race_on,) = set_apart({"m": {"train": range(train)}}, world.tickets, config).values()
    pool = [i for i in range(train) if i not in race_on][:pool_size]
    better = [[float(i % proposals == n) for i in range(train)] for n in range(proposals)]
    edits = [world.edit(f"{n}", merits, range(min(6, batch_size))[n % 2 :]) for n, merits in enumerate(better)]
    tried_with = world.gate(race_on, pool, gate, data.draw(st.sampled_from([1, 32, 999])), gate.race_chunk)
    decide(edits, tried_with, world.join, 0.5)
    steps = [Step("round", 1, "m", "train", 0, tuple(range(batch_size)), True), Step("close", 1, "m", "train", 0, (), False)]
    assert tried_with.judge.judged <= forecast(steps, config, {"m": train}).judged
