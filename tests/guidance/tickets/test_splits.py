from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from guidance.made import tickets
from hypothesis import example, given
from hypothesis import strategies as st

from stageb.guidance.commands.fit.summary import describe_splits
from stageb.guidance.config import GateConfig, LoopConfig, ReflectionConfig, SplitConfig
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.read_guidance import make_neutral
from stageb.guidance.tickets import splits as splitting
from stageb.guidance.tickets.groups import join_equal, name_content
from stageb.guidance.tickets.splits import (
    FURTHER,
    FURTHER_BY_CODE,
    SPLIT_SEED,
    SPLITS,
    bundle_size,
    describe_labels,
    find_default,
    leave_out,
    list_missions,
    note_tickets,
    rank_labels,
    sign_rules,
    split_tickets,
    weigh_labels,
)
from stageb.guidance.words.costs import EQUAL, PriceConfig
from stageb.guidance.words.types import Rule, Split, Ticket
from stageb.seeds import stream

CONFIG = LoopConfig(tickets=["t.jsonl"])
ALL_TRAIN = replace(CONFIG, split=SplitConfig(1.0, 0.0, 0.0))
WORLDS = st.builds(lambda one, other: [*one, *other], tickets("m"), tickets("n"))


def numbered(groups: int) -> list[Ticket]:
    return [Ticket("m", f"group-{n}", "pass", (("image_1", "a: b"),)) for n in range(groups)]


def split_by_key(
    world: Sequence[Ticket], config: LoopConfig = CONFIG
) -> dict[tuple[str, str], Split]:
    """The split of every ticket, by mission and key."""
    found = split_tickets(world, config)
    return {
        (mission, world[i].key): split
        for mission, own in found.items()
        for split in SPLITS
        for i in own.of(split)
    }


@given(WORLDS)
def test_splits_partition_a_missions_tickets(world: list[Ticket]) -> None:
    found = split_tickets(world, CONFIG)
    assert list(found) == list_missions(world)
    for mission, splits in found.items():
        own = [i for i, ticket in enumerate(world) if ticket.mission == mission]
        assert sorted(splits.train + splits.val + splits.test) == own
        assert sorted(splits.race_set + splits.rollout_pool) == sorted(splits.train)
        assert sorted(splits.test_order) == sorted(splits.rollout_pool)
        assert splits.by_key == {world[i].key: i for i in splits.train}


@given(WORLDS, WORLDS)
def test_further_tickets_move_none_of_the_others(world: list[Ticket], more: list[Ticket]) -> None:
    known = {(ticket.mission, ticket.key) for ticket in world}
    before = split_by_key(world)
    after = split_by_key(world + [t for t in more if (t.mission, t.key) not in known])
    assert {ticket: after[ticket] for ticket in before} == before


@given(tickets())
def test_a_resubmitted_group_stays_in_its_split(world: list[Ticket]) -> None:
    both = [replace(ticket, label=label) for ticket in world for label in ("pass", "fail")]
    found = split_by_key(list(dict.fromkeys(both)))
    assert all(
        found["m", f"{ticket.group_id}::pass"] == found["m", f"{ticket.group_id}::fail"]
        for ticket in world
    )


def test_shares_are_as_configured_and_the_seed_draws_them() -> None:
    world = numbered(4000)
    config = replace(CONFIG, split=SplitConfig(0.5, 0.2, 0.3))
    found = split_by_key(world, config)
    drawn = Counter(found.values())
    assert drawn["train"] / 4000 == pytest.approx(0.5, abs=0.03)
    assert drawn["val"] / 4000 == pytest.approx(0.2, abs=0.03)
    assert found != split_by_key(world, replace(config, seed=18))
    kept = replace(config, split=replace(config.split, seed=config.seed), seed=18)
    assert found == split_by_key(world, kept), (
        "split.seed keeps the split of a run that had another seed"
    )
    elsewhere = split_by_key([replace(ticket, mission="n") for ticket in world], config)
    assert list(elsewhere.values()) != list(found.values())
    wider = split_by_key(world, replace(config, split=SplitConfig(0.7, 0.0, 0.3)))
    assert set(wider.values()) == {"train", "test"}
    assert {wider[ticket] for ticket, split in found.items() if split == "train"} == {"train"}


# What edits are raced on


@given(WORLDS, st.integers(1, 9))
def test_tickets_to_race_on_are_whole_groups_of_train_and_no_more_than_a_third_of_them(
    world: list[Ticket], race_size: int
) -> None:
    config = replace(CONFIG, gate=GateConfig(race_size=race_size))
    for splits in split_tickets(world, config).values():
        groups = {world[i].group_id for i in splits.race_set}
        assert set(splits.race_set) == {i for i in splits.train if world[i].group_id in groups}
        assert len(groups) <= min(race_size, len(splits.train) // 3)
        assert bool(groups) == (len(splits.train) >= 3)
    assert not any(
        splits.race_set for splits in split_tickets(world, replace(config, gate="none")).values()
    )


def test_a_guidance_says_what_taught_it_and_what_chose_it_whatever_it_knew_before() -> None:
    world = [
        replace(ticket, per_image=(("image_1", f"number: {n}"),))
        for n, ticket in enumerate(numbered(60))
    ]
    splits = split_tickets(world, CONFIG)["m"]
    before = replace(
        make_neutral("m", WORDS["en"]), taught_by=frozenset("a"), chosen_by=frozenset("b")
    )
    after = note_tickets(before, world, splits)
    assert after.taught_by == {"a", *(name_content(world[i]) for i in splits.train)}
    assert after.chosen_by == {"b", *(name_content(world[i]) for i in splits.val)}


def test_a_learnt_rule_says_by_which_split_it_was_learnt_and_never_another_one() -> None:
    """Later runs are refused other splits, which could test it on what taught it."""
    metadata: list[dict[str, object]] = [
        {"sources": ["a::fail"]},
        {},
        {"sources": [], SPLIT_SEED: 3},
    ]
    rules = tuple(Rule(f"G{n}", "Fail if worn.", each) for n, each in enumerate(metadata, 1))
    guidance = replace(make_neutral("m", WORDS["en"]), rules=rules)
    signed = sign_rules(guidance, 17)
    assert [rule.metadata.get(SPLIT_SEED) for rule in signed.rules] == [17, None, 3]
    assert [
        {name: each for name, each in rule.metadata.items() if name != SPLIT_SEED or n == 2}
        for n, rule in enumerate(signed.rules)
    ] == metadata
    assert sign_rules(signed, 18) == signed


def test_tickets_to_race_on_are_drawn_and_keep_no_order() -> None:
    one, other = (
        split_tickets(numbered(90), replace(ALL_TRAIN, seed=seed))["m"].race_set for seed in (1, 2)
    )
    assert list(one) != sorted(one)
    assert set(one) != set(other)


@pytest.mark.parametrize(("fewest", "is_raced"), [(20, True), (21, False)])
def test_a_joined_group_of_more_than_a_third_is_not_raced(fewest: int, is_raced: bool) -> None:
    """Two groups make all of train; the smaller one is raced where two thirds stay to test on."""
    cases = [
        replace(ticket, per_image=(("image_1", f"seal: {'worn' if n < fewest else 'good'}"),))
        for n, ticket in enumerate(numbered(60))
    ]
    splits = split_tickets(join_equal(cases), ALL_TRAIN)["m"]
    assert len(splits.race_set) == (fewest if is_raced else 0)
    assert len(splits.race_set) + len(splits.test_order) == 60


# What is drawn by price

RARE = [
    replace(ticket, label="fail" if n % 20 == 0 else "pass")
    for n, ticket in enumerate(numbered(4000))
]
DEAR = replace(ALL_TRAIN, price=PriceConfig(missed_failure=20.0))


def test_cases_that_a_ticket_joined_are_split_one_by_one_once_it_is_left_out() -> None:
    """Each third case says what the one before it and the one after it say, and is left out by its
    name: the others are of the splits, and raced in the groups, that they have without it."""
    cases = [
        Ticket("m", f"case-{n:03}", label, (("image_1", f"seal: {n + (n % 3 == 2) * step}"),))
        for n in range(300)
        for label, step in (("pass", -1), ("fail", 1))
    ]
    joints = [f"case-{n:03}" for n in range(2, 300, 3)]
    alone = join_equal([ticket for ticket in cases if ticket.group_id not in joints])
    joined = join_equal(cases)
    assert len({ticket.group for ticket in joined}) < len({ticket.group for ticket in alone}) == 200
    kept, _ = leave_out(joined, joints)
    assert split_tickets(kept, CONFIG) == split_tickets(alone, CONFIG)
    assert [ticket.group for ticket in kept] == [ticket.group_id for ticket in kept]


def test_equal_prices_leave_no_ticket_out_and_neither_does_a_dear_label_that_is_common() -> None:
    for price in (PriceConfig(), PriceConfig(7.0, 7.0), PriceConfig(false_alarm=20.0)):
        splits = split_tickets(RARE, replace(ALL_TRAIN, price=price))["m"]
        assert (splits.inclusion_prob, splits) == ({}, split_tickets(RARE, ALL_TRAIN)["m"])


def test_where_rare_failures_are_dear_all_are_drawn_and_as_many_others_as_their_price_is_worth() -> (
    None
):
    splits = split_tickets(RARE, DEAR)["m"]
    drawn = Counter(RARE[i].label for i in (*splits.race_set, *splits.test_order))
    assert drawn["fail"] >= 190  # of 200; where both run short, a few are left over
    assert drawn["pass"] / drawn["fail"] == pytest.approx(FURTHER * 3800 / (20 * 200), rel=0.25)
    [chance] = set(splits.inclusion_prob.values())
    assert chance == pytest.approx((drawn["pass"] / 3800) / (drawn["fail"] / 200), rel=0.25)
    studied = Counter(RARE[i].label for i in splits.rollout_pool)
    assert set(splits.rollout_pool) < set(splits.test_order)
    assert studied["fail"] == Counter(RARE[i].label for i in splits.test_order)["fail"]
    assert studied["pass"] / studied["fail"] == pytest.approx(3800 / (20 * 200), rel=0.25)
    assert splits.train == split_tickets(RARE, ALL_TRAIN)["m"].train
    raced = Counter(RARE[i].label for i in splits.race_set)
    assert 32 <= raced["fail"] <= 80


@pytest.mark.parametrize("unit", [0.01, 10.0])
def test_prices_in_another_currency_draw_and_weigh_the_same_tickets(unit: float) -> None:
    price = PriceConfig(missed_failure=20.0 * unit, false_alarm=unit)
    splits = split_tickets(RARE, DEAR)["m"]
    assert split_tickets(RARE, replace(DEAR, price=price))["m"] == splits
    weights = weigh_labels(splits, DEAR.price.by_label)
    assert weigh_labels(splits, price.by_label) == pytest.approx(weights)
    assert weights["fail"] == 1.0 > weights["pass"]


def test_every_draw_has_a_stream_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[tuple[str | int, ...]] = []

    def record(*names: str | int) -> int:
        named.append(names)
        return stream(*names)

    monkeypatch.setattr(splitting, "stream", record)
    split_tickets(RARE, replace(DEAR, split=SplitConfig()))
    assert any("val drawn by price" in names for names in named)
    assert [names for names, times in Counter(named).items() if times > 1] == []


@pytest.mark.parametrize(
    ("batch", "bundle"), [(1, 1), (3, 1), (FURTHER, 1), (FURTHER + 1, 2), (9 * FURTHER, 9)]
)
def test_bundles_of_tickets_drawn_by_price_are_smaller_and_never_empty(
    batch: int, bundle: int
) -> None:
    config = replace(DEAR, reflection=ReflectionConfig(batch_size=batch))
    assert bundle_size(split_tickets(RARE, config)["m"], config) == bundle
    assert bundle_size(split_tickets(RARE, ALL_TRAIN)["m"], config) == batch


def test_where_code_judges_the_gate_sees_more_of_the_others_and_epochs_do_not() -> None:
    by_model = split_tickets(RARE, DEAR)["m"]
    by_code = split_tickets(RARE, replace(DEAR, runner=replace(DEAR.runner, judge="both")))["m"]
    drawn = Counter(RARE[i].label for i in (*by_code.race_set, *by_code.test_order))
    assert drawn["pass"] / drawn["fail"] == pytest.approx(
        FURTHER_BY_CODE * 3800 / (20 * 200), rel=0.25
    )
    assert len(by_code.rollout_pool) == pytest.approx(len(by_model.rollout_pool), rel=0.25)
    raced = Counter(RARE[i].label for i in by_code.race_set)
    assert 20 <= raced["fail"] <= 40  # enough to race on, and most are left to teach and to test


@pytest.mark.slow
def test_what_is_drawn_weighs_as_the_whole_does() -> None:
    """The mean gain, each ticket at what its label weighs, is over seeds that of all tickets at
    their prices."""
    gains = {"fail": 0.6, "pass": -0.07}
    whole = (200 * 20 * gains["fail"] + 3800 * gains["pass"]) / (200 * 20 + 3800)
    weighed = []
    for seed in range(20):
        splits = split_tickets(RARE, replace(DEAR, seed=seed))["m"]
        prices = {
            i: weigh_labels(splits, DEAR.price.by_label)[RARE[i].label] for i in splits.test_order
        }
        weighed.append(sum(prices[i] * gains[RARE[i].label] for i in prices) / sum(prices.values()))
    assert sum(weighed) / len(weighed) == pytest.approx(whole, rel=0.05)


def test_val_is_judged_on_all_rare_failures_and_a_sample_that_stands_for_the_others() -> None:
    config = replace(DEAR, split=SplitConfig())
    splits = split_tickets(RARE, config)["m"]
    whole, judged = (
        Counter(RARE[i].label for i in each) for each in (splits.val, splits.val_sample)
    )
    assert whole["fail"] >= judged["fail"] >= 0.8 * whole["fail"]
    assert judged["pass"] < 0.2 * whole["pass"]
    assert {label: judged[label] * splits.scale["val"][label] for label in whole} == pytest.approx(
        whole
    )
    assert set(splits.val_sample) <= set(splits.val)
    assert split_tickets(RARE, replace(config, gate="none"))["m"].val_sample == splits.val


def test_where_train_is_not_drawn_by_price_val_is_judged_as_a_whole() -> None:
    """However rare the dear failures are among its own tickets."""
    own = [
        replace(ticket, split="val")
        if n % 2
        else replace(ticket, split="train", label="fail" if n % 4 else "pass")
        for n, ticket in enumerate(RARE[1:])
    ]
    splits = split_tickets(own, DEAR)["m"]
    assert not splits.inclusion_prob and not splits.scale
    assert splits.val_sample == splits.val and len(splits.val) > 1900


def test_a_split_is_told_by_its_failures_or_by_labels_of_its_own() -> None:
    def tell(*labels: str) -> list[str]:
        own = [
            replace(ticket, label=label, split="train")
            for ticket, label in zip(numbered(len(labels)), labels, strict=True)
        ]
        return describe_labels(own, split_tickets(own, CONFIG)["m"])

    assert tell("pass", "fail", "pass")[0] == "3 train tickets, 1 of them fail"
    told = tell("mid", "low", "mid", "high")
    assert told == [
        "4 train tickets: high (1), low (1), mid (2)",
        "0 val tickets",
        "0 test tickets",
    ]


def test_a_group_of_both_labels_is_drawn_as_a_whole_and_with_the_dear_ones() -> None:
    both = [*RARE, *(replace(ticket, label="pass") for ticket in RARE if ticket.label == "fail")]
    splits = split_tickets(both, DEAR)["m"]
    groups = Counter(both[i].group for i in (*splits.race_set, *splits.test_order))
    assert sum(count == 2 for count in groups.values()) >= 190
    assert not [i for i in splits.inclusion_prob if groups[both[i].group] == 2]


def test_a_failure_that_was_resubmitted_as_passed_is_drawn_as_the_other_failures_are() -> None:
    failures = [ticket for ticket in RARE if ticket.label == "fail"]
    both = [*RARE, *(replace(ticket, label="pass") for ticket in failures[::2])]
    splits = split_tickets(both, DEAR)["m"]
    drawn = {both[i].group for i in (*splits.race_set, *splits.test_order)}
    assert splits.inclusion_prob
    for some in (failures[::2], failures[1::2]):
        assert len(drawn & {ticket.group for ticket in some}) >= 90  # of 100


def test_where_tickets_are_drawn_by_price_equal_ones_are_drawn_raced_and_studied_together() -> None:
    rare = [replace(ticket, per_image=(("image_1", f"part {n}"),)) for n, ticket in enumerate(RARE)]
    both = join_equal(
        [*rare, *(replace(ticket, group_id=f"copy of {ticket.group_id}") for ticket in rare)]
    )
    splits = split_tickets(both, DEAR)["m"]
    assert splits.inclusion_prob
    for name in ("race_set", "rollout_pool", "test_order", "val_sample"):
        seen = Counter(both[i].group for i in getattr(splits, name))
        assert set(seen.values()) <= {2}, name
    groups = [{both[i].group for i in part} for part in (splits.race_set, splits.test_order)]
    assert not set.intersection(*groups)


def test_the_end_of_a_run_tells_of_no_split_that_it_had_not() -> None:
    assert describe_splits({"train", "val", "test"}) == (
        "Rules were learnt from train tickets. Val chose the final ones. Test was used for this "
        "table alone."
    )
    bare = describe_splits({"train"})
    assert "none are chosen" in bare and "no figure is of sealed tickets" in bare


@given(
    st.lists(
        st.tuples(st.sampled_from(["low", "mid", "high"]), st.sampled_from(SPLITS)),
        min_size=1,
        max_size=60,
    )
)
def test_labels_and_the_verdict_that_begins_are_of_train_alone(
    drawn: list[tuple[str, Split]],
) -> None:
    """Test is sealed: how many of its tickets have a label plays no part."""
    own = [
        replace(ticket, label=label, split=split)
        for ticket, (label, split) in zip(numbered(len(drawn)), drawn, strict=True)
    ]
    splits = split_tickets(own, CONFIG)["m"]
    labels = rank_labels(own, splits)
    count = Counter(label for label, split in drawn if split == "train")
    assert set(labels) == {label for label, _ in drawn}
    assert [count[label] for label in labels] == [
        max(count.values(), default=0),
        *sorted(count[label] for label in labels[1:]),
    ]
    default = find_default(own, splits, labels, EQUAL)
    assert count[default] == max(count.values(), default=0)
    # the same counts under other names, in another order
    turned = [replace(ticket, group_id=f"{n}") for n, ticket in enumerate(reversed(own))]
    again = split_tickets(turned, CONFIG)["m"]
    assert rank_labels(turned, again) == labels
    assert find_default(turned, again, labels, EQUAL) == default


@given(st.lists(st.integers(1, 7), min_size=3, max_size=30), st.integers(1, 20))
@example([2, 2, 2], 1)
@example([5, 2, 4], 1)
@example([2] * 12, 8)
def test_joined_groups_race_whole_and_no_more_of_their_tickets_than_wanted(
    copies: list[int], wanted: int
) -> None:
    """But where none would fit: then the smallest."""
    world = [
        Ticket("m", f"{n}-{copy}", "pass", (("image_1", f"seal: {'x' * (n + 1)}"),))
        for n, count in enumerate(copies)
        for copy in range(count)
    ]
    world, config = join_equal(world), replace(ALL_TRAIN, gate=GateConfig(race_size=wanted))
    race_set = split_tickets(world, config)["m"].race_set
    raced = Counter(world[i].group for i in race_set)
    assert raced == Counter(
        {
            name: count
            for name, count in Counter(each.group for each in world).items()
            if name in raced
        }
    )
    room, smallest = min(wanted, len(world) // 3), min(copies)
    assert len(race_set) <= room or list(raced.values()) == [smallest]
    left = [
        count for name, count in Counter(each.group for each in world).items() if name not in raced
    ]
    assert not [count for count in left if count <= room - len(race_set)], "another would fit"
    assert bool(raced) == (3 * smallest <= len(world))
