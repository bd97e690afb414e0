"""Tickets that say the same are one group: in splits, races, folds and tests, and people are
told."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from guidance.made import VERDICT, tickets
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from programs import small

from stageb.__main__ import main
from stageb.guidance.config import GateConfig, LoopConfig, SplitConfig
from stageb.guidance.learning.gate.budget import TOLD, Pool
from stageb.guidance.tickets.groups import (
    RepeatCounter,
    find_repeats,
    join_equal,
    name_content,
    normalize_text,
    whole_groups,
)
from stageb.guidance.tickets.splits import SPLITS, leave_out, split_tickets
from stageb.guidance.tickets.tickets import read_tickets
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.types import TEACHING_FOLDS, Ticket
from stageb.store import disk

CONFIG = LoopConfig(tickets=["t.jsonl"])


def says(ticket: Ticket) -> tuple[str, ...]:
    return tuple(normalize_text(text) for _, text in ticket.per_image)


def groups_in(world: Sequence[Ticket], config: LoopConfig) -> dict[str, list[set[tuple[str, ...]]]]:
    """What the tickets of each split say, of what is raced on and what is not, and of each fold."""
    splits = split_tickets(world, config)["m"]
    pool = Pool(whole_groups(splits.test_order, world), 1000)
    parts: dict[str, list[Sequence[int]]] = {
        "splits": [splits.of(split) for split in SPLITS],
        "race": [splits.race_set, splits.rollout_pool],
        "gate": [splits.race_set, splits.test_order],
        "folds": [list(pool.fold(number)) for number in range(TEACHING_FOLDS)],
    }
    return {
        name: [{says(world[i]) for i in part} for part in parts] for name, parts in parts.items()
    }


def test_no_row_that_stands_twice_is_learnt_from_and_tested_on(tmp_path: Path) -> None:
    rows = [f"{'OK' if n % 2 else 'NG'},part {n},worn by {n * n}" for n in range(150)]
    (tmp_path / "t.csv").write_text("\n".join(["label,what,how", *rows, *rows]) + "\n")
    columns = ColumnsConfig(mission_name="m", group_id=None, passes=["OK"], fails=["NG"])
    world, bad = read_tickets([tmp_path / "t.csv"], "error", columns)
    assert len(world) == 300 and not bad
    assert len({ticket.group for ticket in world}) == 150
    for name, parts in groups_in(world, CONFIG).items():
        for number, part in enumerate(parts):
            others = set().union(*parts[:number], *parts[number + 1 :])
            assert not part & others, name


@given(tickets(min_size=1))
def test_nothing_parts_what_says_the_same(world: list[Ticket]) -> None:
    world = join_equal(world)
    for parts in groups_in(world, replace(CONFIG, gate=GateConfig(race_size=5))).values():
        for number, part in enumerate(parts):
            assert not part & set().union(*parts[:number], *parts[number + 1 :])
    of_id = {ticket.group_id: ticket.group for ticket in world}
    assert all(of_id[ticket.group_id] == ticket.group for ticket in world)
    found, again = split_tickets(world, CONFIG), split_tickets(join_equal(world[::-1]), CONFIG)
    for mission, splits in found.items():
        for name in ("train", "val", "test", "race_set", "rollout_pool", "test_order"):
            assert [world[i] for i in getattr(splits, name)] == [
                world[-1 - i] for i in getattr(again[mission], name)
            ]


KEPT = st.lists(
    st.builds(
        lambda mission, number, label, text, together: Ticket(
            mission, f"{number}", label, (("image_1", text),), together=together
        ),
        st.sampled_from("mn"),
        st.integers(1, 12),
        VERDICT,
        st.sampled_from(["a", "b", *map(str, range(20))]),
        st.sampled_from(["", "", "press 1", "press 2"]),
    ),
    max_size=24,
    unique_by=lambda ticket: (ticket.mission, ticket.key),
)


def join_by_hand(world: Sequence[Ticket], apart: bool) -> set[frozenset[str]]:
    """The group_ids of each group of one mission: of what two have in common, joined until nothing
    is in common any more."""
    groups: list[tuple[set[object], frozenset[str]]] = []
    for ticket in world:
        common: set[object] = {("id", ticket.group_id)}
        common |= {("kept", ticket.together)} if ticket.together else set()
        common |= set() if apart else {("said", says(ticket))}
        ids = {ticket.group_id}
        for other in [each for each in groups if each[0] & common]:
            groups.remove(other)
            common |= other[0]
            ids |= other[1]
        groups.append((common, frozenset(ids)))
    return {ids for _, ids in groups}


@given(KEPT, st.booleans())
def test_groups_are_of_one_mission_and_join_what_is_alike_or_kept_together_and_no_more(
    world: list[Ticket], apart: bool
) -> None:
    joined = join_equal([replace(ticket, apart=apart) for ticket in world])
    for mission in "mn":
        mine = [ticket for ticket in joined if ticket.mission == mission]
        assert mine == join_equal(mine), "whatever other missions there are"
        ids: dict[str, set[str]] = {}
        for ticket in mine:
            ids.setdefault(ticket.group, set()).add(ticket.group_id)
        assert {frozenset(each) for each in ids.values()} == join_by_hand(mine, apart)
        assert all(name in each for name, each in ids.items()), "a group has a name of its own"


@given(KEPT, st.sets(st.integers(1, 12)))
def test_tickets_left_out_join_no_others(world: list[Ticket], numbers: set[int]) -> None:
    names = sorted(map(str, numbers))
    others = [ticket for ticket in world if ticket.group_id not in names]
    if others:
        assert leave_out(join_equal(world), names)[0] == join_equal(others)


@pytest.mark.parametrize(("others", "raced"), [(3, 0), (4, 2)])
def test_a_group_is_raced_on_as_a_whole_unless_that_is_more_than_a_third_of_train(
    others: int, raced: int
) -> None:
    said = ["a"] * 2 + ["b"] * others
    world = join_equal(
        [Ticket("m", f"g{n}", "pass", (("image_1", text),)) for n, text in enumerate(said)]
    )
    assert (
        len(split_tickets(world, replace(CONFIG, split=SplitConfig(1.0, 0.0, 0.0)))["m"].race_set)
        == raced
    )


@given(tickets(), st.integers(1, 9))
def test_tickets_that_all_say_something_else_are_dealt_as_by_their_group_ids(
    world: list[Ticket], race_size: int
) -> None:
    different = [replace(t, per_image=(("image_1", f"{n}"),)) for n, t in enumerate(world)]
    config = replace(CONFIG, gate=GateConfig(race_size=race_size))
    assert join_equal(different) == different
    assert not list(find_repeats(different))
    assert split_tickets(join_equal(different), config) == split_tickets(different, config)


@pytest.mark.parametrize(("kinds", "told"), [(5, True), (20, False)])
def test_where_tickets_say_few_things_the_remedy_is_told(kinds: int, told: bool) -> None:
    alike = join_equal(
        [Ticket("m", f"{n}", "pass", (("image_1", f"{n % kinds}"),)) for n in range(40)]
    )
    said = str(next(find_repeats(alike)))
    assert ("--columns.repeats apart" in said) is told
    assert "labelled both ways" not in said


def test_what_a_ticket_says_has_the_same_name_in_every_version() -> None:
    """Guidance files hold such names of the tickets that taught and chose them."""
    says = (("image_1", "Hose:  leaking."), ("image_2", "1.2345"))
    ticket = Ticket("m", "g", "pass", says)
    assert name_content(ticket) == "0f19db7f3173"
    assert name_content(replace(ticket, group_id="h", label="fail")) == "0f19db7f3173"
    assert name_content(replace(ticket, apart=True)) == "98a1008932b2"


def test_further_rows_leave_the_name_of_a_group() -> None:
    world = [
        Ticket("m", f"row {n}", "pass", (("image_1", f"part {n % 7}"),)) for n in range(2, 200)
    ]
    before, after = join_equal(world[:40]), join_equal(world)
    assert [ticket.group for ticket in before] == [ticket.group for ticket in after[:40]]
    assert {ticket.group for ticket in after} == {f"row {n}" for n in range(2, 9)}
    assert (
        join_equal([replace(ticket, mission=ticket.group_id) for ticket in world])[0].equals == ""
    )
    assert (
        len(
            {
                each.group
                for each in join_equal([replace(t, mission=f"m{n}") for n, t in enumerate(world)])
            }
        )
        == 198
    )


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Hose leaking", "  hose   LEAKING.\n", True),
        ("top-up failed!", "Top up failed", True),
        ("ａ：１", "A: 1", False),  # no white space in one of them
        ("ａ： １", "a: 1", True),
        ("a: 1; b: 2", "a: 1, b: 2", True),
        ("a: 1", "a: 2", False),
        ("gap: 1.5", "gap: 15", False),
        ("gap: 1.5", "gap: 1.50", True),
        ("gap: 1.5", "gap: 1.5001 ", True),
        ("gap: 0.5 mm", "gap: 0.5001 mm", True),
        ("gap: -12", "gap: -12.0001", True),
        ("gap: 1.501", "gap: 1.502", False),
        ("gap: 0.000123", "gap: 0.000124", False),
        ("gap: 123456.7", "gap: 123457.7", False),
        ("made 1.2.3001", "made 1.2.3", False),
        ("ip 10.0001.1", "ip 10.1", False),
        ("gap: -5", "gap: 5", False),
        ("gap: +", "gap: -", False),
        ("seen: ?", "seen: !", False),
        ("<3", ">3", False),
        ("10:30", "1030", False),
        ("漏油。", "漏油", True),
    ],
)
def test_what_says_the_same(one: str, other: str, same: bool) -> None:
    world = [
        Ticket("m", group, "pass", (("image_1", text),))
        for group, text in (("g", one), ("h", other))
    ]
    assert ({ticket.group for ticket in join_equal(world)} == {"g"}) == same


def test_images_that_are_shown_count_by_what_they_hold(tmp_path: Path) -> None:
    for name, colour in (("a", "red"), ("b", "red"), ("c", "blue")):
        Image.new("RGB", (9, 9), colour).save(tmp_path / f"{name}.bmp")  # of one size
    rows = [
        {
            "mission": "m",
            "group_id": name,
            "label": "pass",
            "per_image": {"1": text},
            "images": [f"{name}.bmp"],
        }
        for name, text in (("a", "x"), ("b", "y"), ("c", "x"))
    ]
    path = tmp_path / "t.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    wanted: dict[Any, list[str]] = {
        False: ["a", "b", "a"],
        True: ["a", "b", "c"],
        "instead": ["a", "a", "c"],
    }
    for how, groups in wanted.items():
        assert [
            ticket.group for ticket in read_tickets([path], "error", use_images=how)[0]
        ] == groups
    (tmp_path / "b.bmp").write_bytes((tmp_path / "a.bmp").read_bytes())
    path.write_text(path.read_text().replace('"y"', '"x"'))
    assert [ticket.group for ticket in read_tickets([path], "error", use_images=True)[0]] == [
        "a",
        "a",
        "c",
    ]


def test_a_large_group_leaves_room_for_others() -> None:
    """Half of all tickets say the same."""
    world = join_equal(
        [Ticket("m", f"{n}", "pass", (("image_1", f"{n * (n % 2)}"),)) for n in range(600)]
    )
    for seed in range(8):
        splits = split_tickets(world, replace(CONFIG, seed=seed))["m"]
        assert 20 <= len(splits.race_set) <= max(64, len(splits.train) // 3)
        pool = Pool(whole_groups(splits.test_order, world), 50)
        tested = pool.groups_outside(None)
        assert 45 <= sum(map(len, tested)) <= 50 and max(map(len, tested)) <= TOLD
    alike = join_equal(
        [Ticket("m", f"{n}", "pass", (("image_1", f"{n % 5}"),)) for n in range(600)]
    )
    assert any(
        0 < len(split_tickets(alike, replace(CONFIG, seed=seed))["m"].race_set) <= 200
        for seed in range(8)
    )


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcd"), st.sampled_from("xyz"), st.sampled_from(["pass", "fail"])
        ),
        max_size=9,
    )
)
def test_groups_of_several_names_are_counted_and_of_these_those_with_both_labels(
    rows: list[tuple[str, str, str]],
) -> None:
    tickets = join_equal(
        [Ticket("m", name, label, (("image_1", said),)) for name, said, label in rows]
    )
    groups: dict[str, list[Ticket]] = {}
    for ticket in tickets:
        groups.setdefault(ticket.group, []).append(ticket)
    several = [own for own in groups.values() if len({each.group_id for each in own}) > 1]
    found = [
        (each.tickets, each.groups, each.group_ids, each.mixed) for each in find_repeats(tickets)
    ]
    mixed = sum(len({each.label for each in own}) > 1 for own in several)
    wanted = (len(rows), len(groups), len({name for name, _, _ in rows}), mixed)
    assert found == [wanted] * bool(several)


def test_people_are_told_with_places(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "in.jsonl"
    rows = [
        {"mission": "m", "group_id": f"g{n}", "label": "pass", "per_image": {"1": f"part {n}"}}
        for n in range(40)
    ]
    rows.append(
        {"mission": "m", "group_id": "again", "label": "fail", "per_image": {"1": "Part  4."}}
    )
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    wanted = (
        "the 41 group_ids of 41 tickets make 40 groups (1 of them labelled both ways), and "
        "no split parts these; "
    )
    wanted += f"for one, {path}:5 and {path}:41"
    arguments = small.arguments(path, tmp_path / "out", keys={"runner.epochs": 0})
    assert main(["validate", *arguments[1:]]) == 0
    assert wanted in capsys.readouterr().out.replace("\n", " ")
    assert main(arguments) == 0
    assert wanted in " ".join(capsys.readouterr().err.split())


@given(st.floats(0.001, 99), st.sampled_from([0.0, 0.0001, 0.001, 0.01, 0.1]))
def test_numbers_below_0_are_told_apart_as_those_above(number: float, further: float) -> None:
    one, other = (f"{each:.6f}" for each in (number, number + further))
    assert (normalize_text(f"-{one}") == normalize_text(f"-{other}")) == (
        normalize_text(one) == normalize_text(other)
    )


@pytest.mark.parametrize("texts", [30, 3_000, pytest.param(60_000, marks=pytest.mark.slow)])
def test_each_text_is_counted_however_many_others_there_are(texts: int) -> None:
    dice, counter, wanted = random.Random(4), RepeatCounter(), Counter[str]()
    for _ in range(texts):
        wanted[text := str(dice.randrange(2 * texts // 3))] += 1
        assert counter.add(disk.digest(text, 8)) == wanted[text]


@pytest.mark.slow
def test_repeats_are_counted_in_little_memory() -> None:
    few = RepeatCounter()
    tracemalloc.start()
    try:
        for number in range(50_000):
            assert few.add(disk.digest(f"row {number}", 8)) == 1
        assert tracemalloc.get_traced_memory()[0] < 25 * 50_000
    finally:
        tracemalloc.stop()


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9))
def test_tickets_can_say_few_things_where_four_in_the_mean_say_the_same(copies: list[int]) -> None:
    world = [
        Ticket("m", f"{n}-{copy}", "pass", (("image_1", f"seal: {'x' * (n + 1)}"),))
        for n, count in enumerate(copies)
        for copy in range(count)
    ]
    for found in find_repeats(join_equal(world)):
        assert found.is_coarse == (sum(copies) / len(copies) >= 4)
