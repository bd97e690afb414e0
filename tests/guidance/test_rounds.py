"""``reflection.scope: round``, and other ways to judge and to learn, as whole runs of real
processes: equal bytes on any number of ranks, killed or not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import conformance
import pytest
from conformance import Bench, Loop
from programs import small

ROUND = 48  # more than a bundle: with scope bundle, two would come of it
TRAIN = 200
# (state, part) of those that fail; None: any
FAILS = (("torn", None), ("worn", "hose"), ("new", "seal"))


def arguments(root: Path, world_size: int) -> list[str]:
    path = tickets(root / "tickets.jsonl")
    # most tickets fail; from a start that fails all there would be less to learn
    start = root / "start.txt"
    start.write_text("[valves]\nG0. A ticket passes unless a rule fails it.\n", encoding="utf-8")
    keys = {
        "runner.per_rank_rollout_batch_size": ROUND // world_size,
        "reflection.scope": "round",
        "guidance.path": str(start),
    }
    return small.arguments(path, root, world_size, keys)


def tickets(path: Path) -> Path:
    """Tickets with several hidden rules."""
    rows = []
    for row in small.rows(groups=3 * TRAIN):
        first, second = (row["per_image"][name] for name in ("image_1", "image_2"))
        fails = any(
            f"state: {state};" in second and (part is None or f"part: {part};" in first)
            for state, part in FAILS
        )
        rows.append({**row, "label": "fail" if fails else "pass"})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    loop = Loop(
        "rounds",
        "stageb",
        arguments,
        raising=lambda root, world_size, rank: [],
        says="",
        another="",
        refused="",
    )
    return Bench(loop, tmp_path_factory.mktemp("rounds"))


def reflections(bench: Bench) -> list[dict[str, Any]]:
    """What the run reflected on."""
    bench.whole()
    lines = (bench.root(1) / "run" / "valves" / "reflection.jsonl").read_text("utf-8").splitlines()
    return list(map(json.loads, lines))


def at_once(bench: Bench) -> Iterator[list[dict[str, Any]]]:
    """The same, by what was sampled at once."""
    for _, rows in groupby(enumerate(reflections(bench)), key=lambda pair: pair[0] // 3):
        yield [row for _, row in rows]


@pytest.mark.slow
def test_it_learns_and_an_edit_that_comes_too_late_is_refused(bench: Bench) -> None:
    waves = list(at_once(bench))
    assert all(len(rows) == 3 for rows in waves)
    assert [row["reflection_id"] for rows in waves for row in rows] == [
        f"R{n + 1}" for n in range(3 * len(waves))
    ]
    # tested under what was accepted by then
    assert any(sum(row["applied"] for row in rows) > 1 for rows in waves)
    refused = [
        each["reason"]
        for rows in waves
        for row in rows
        for one in row["proposals"]
        for each in one["refused"]
    ]
    assert any(reason.startswith("too late") for reason in refused)
    after = [row["guidance_step_after"] for rows in waves for row in rows]
    assert [row["guidance_step_before"] for rows in waves for row in rows] == [0, *after[:-1]]
    metrics = (bench.root(1) / "run" / "valves" / "metrics.jsonl").read_text("utf-8").splitlines()
    accuracies = [row["acc"] for row in map(json.loads, metrics) if row["split"] == "test"]
    assert accuracies[0] < 0.6 < 0.95 < accuracies[-1]


def test_what_it_spent_is_what_its_files_hold(bench: Bench) -> None:
    rows = reflections(bench)
    spent = json.loads((bench.root(1) / "run" / "commit.json").read_text("utf-8"))["state"]["spent"]
    assert spent["judged"] == sum(row["gate"]["judged"] + row["judged"] for row in rows)
    assert spent["reflections"] == sum(len(row["proposals"]) for row in rows)


@pytest.mark.parametrize(
    "world_size",
    [2, 3, pytest.param(4, marks=pytest.mark.slow), pytest.param(8, marks=pytest.mark.slow)],
)
def test_equal_bytes_on_any_number_of_ranks(bench: Bench, world_size: int) -> None:
    conformance.check_world_size(bench, world_size)
    conformance.check_collectives(bench, world_size)


@pytest.mark.slow
def test_killed_amid_a_round_and_resumed_on_other_ranks(bench: Bench) -> None:
    """In the midst of what was sampled at once, too: its rows are written, and no commit stands
    behind them yet."""
    operations = bench.whole().operations[0]
    written = [number for number, line in enumerate(operations) if "reflection.jsonl" in line]
    assert len(written) > 6  # three of each time
    for turn, number in enumerate([*written[:3], written[-1]]):
        conformance.check_killed_before_an_operation(
            bench, number + 1, 1 + turn % 3, 1 + (turn + 1) % 3
        )


@pytest.mark.slow
def test_killed_before_any_file_operation_and_resumed(bench: Bench) -> None:
    for number in range(len(bench.whole().operations[0])):
        conformance.check_killed_before_an_operation(bench, number, 1, 1)


WAYS: dict[str, dict[str, Any]] = {
    # half each
    "code and model": {"runner.judge": "both", "guidance.path": "rules.txt", "runner.epochs": 1},
    "all at once": {"runner.judge": "both", "reflection.scope": "all", "runner.epochs": 1},
    "reasons of errors": {"sampler.reasons": "wrong", "runner.epochs": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_each_way_leaves_the_same_bytes(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rules.txt").write_text("[valves]\nFail if the part looks odd.\nPass if colour is red.\n")
    given = small.write(tmp_path / "tickets.jsonl", "valves")

    def line(name: str, world_size: int) -> list[str]:
        return small.arguments(given, tmp_path / name, world_size, WAYS[way])

    conformance.check_equal_bytes(
        tmp_path, line, lambda name: conformance.content(tmp_path / name / "run"), (1, 3)
    )
