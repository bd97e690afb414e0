"""Every loop, put to the checks of ``conformance.py``."""

from __future__ import annotations

from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM, Signals

import conformance
import pytest
from conformance import Bench, Loop
from programs import detectors, growths, small, snakes


def guidance(root: Path, world_size: int, **keys: object) -> list[str]:
    return small.arguments(
        small.write(root / "tickets.jsonl", "valves"), root, world_size, {"distill.size": 5, **keys}
    )


def regression(root: Path, world_size: int, raises_on: int = -1) -> list[str]:
    place = [f"--output.root={root}", "--fabric.accelerator=cpu", f"--fabric.devices={world_size}"]
    return ["fit", "--loop=regression", f"--raises_on={raises_on}", *place]


LOOPS = [
    Loop(
        name="guidance",
        module="stageb",
        arguments=guidance,
        raising=lambda root, world_size, rank: guidance(
            root, world_size, **{"model.model_name_or_path": f"programs.models:raising_on_{rank}"}
        ),
        says=r"rank {rank} failed at ticket g-\d+::(pass|fail) of mission valves: ValueError: the lamp went out",
        another="--gate.alpha=0.2",
        refused="gate.alpha: 0.05 there, 0.2 now",
        learns_weights=False,
        starts_slowly=True,
    ),
    Loop(
        name="regression",
        module="programs.regression",
        arguments=regression,
        raising=lambda root, world_size, rank: regression(root, world_size, raises_on=rank),
        says="rank {rank} failed at step 3: ValueError: the slope is gone",
        another="--seed=18",
        refused="seed: 0 there, 18 now",
        learns_weights=False,
        tolerance=1e-5,
        starts_slowly=True,
    ),
    Loop(
        name="snake",
        module="stageb",
        arguments=snakes.brief,
        raising=lambda root, world_size, rank: snakes.brief(
            root, world_size, "falling", raises_on=rank
        ),
        says="rank {rank} failed at rollout of update 3: ValueError: the snake is gone",
        another="--ppo.gamma=0.5",
        refused="ppo.gamma: 0.99 there, 0.5 now",
        tolerance=1e-4,
    ),
    Loop(
        name="growth",
        module="stageb",
        arguments=growths.arguments,
        raising=lambda root, world_size, rank: growths.arguments(
            root, world_size, "withering", raises_on=rank, growth__block=1
        ),
        says=r"rank {rank} failed at update 4, environment \d+: ValueError: the seed is gone",
        another="--gates.embargo_epochs=2",
        refused="gates.embargo_epochs: 1 there, 2 now",
        stride=2,
        starts_slowly=True,
    ),
    Loop(
        name="two_channel",
        module="stageb",
        arguments=detectors.brief,
        raising=lambda root, world_size, rank: detectors.brief(
            root, world_size, "scribbling", raises_on=rank
        ),
        says="rank {rank} failed at rollout of step 3: ValueError: the lamp went out",
        another="--data.prompt=Find each thing.",
        refused="data.prompt: ",
        tolerance=1e-4,
        stride=4,
        starts_slowly=True,
    ),
]

slow = pytest.mark.slow
every = pytest.mark.parametrize(
    "world_size", [1, 2, 3, pytest.param(4, marks=slow), pytest.param(8, marks=slow)]
)
pytestmark = pytest.mark.timeout(1800)


# loop -> package; what all loops share is put to the test by guidance and the smallest one each time
PACKAGES = {
    "guidance": "guidance",
    "snake": "ppo",
    "growth": "growth",
    "two_channel": "two_channel",
}
CASES = [
    pytest.param(
        loop,
        id=loop.name,
        marks=[
            *([pytest.mark.loop(PACKAGES[loop.name])] if loop.name in PACKAGES else []),
            *([] if loop.name in ("guidance", "regression") else [slow]),
        ],
    )
    for loop in LOOPS
]


@pytest.fixture(scope="module", params=CASES)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(request.param, tmp_path_factory.mktemp("conformance"))


@every
def test_equal_bytes_at_every_world_size(bench: Bench, world_size: int) -> None:
    conformance.check_world_size(bench, world_size)


@every
def test_collectives_come_in_one_order(bench: Bench, world_size: int) -> None:
    conformance.check_collectives(bench, world_size)


@every
def test_only_rank_0_writes(bench: Bench, world_size: int) -> None:
    conformance.check_only_rank_0_writes(bench, world_size)


@pytest.mark.parametrize(
    ("world_size", "rank"), [(1, 0), (2, 0), pytest.param(2, 1, marks=slow), (3, 2)]
)
def test_a_raise_ends_every_rank(bench: Bench, world_size: int, rank: int) -> None:
    conformance.check_a_raise(bench, world_size, rank)


def test_a_finished_run_is_shown_again_and_another_config_refused(bench: Bench) -> None:
    conformance.check_another_call(bench)


@pytest.mark.parametrize("world_size", [pytest.param(1, marks=slow), 2])
def test_a_run_whose_time_is_up_goes_on_with_more(bench: Bench, world_size: int) -> None:
    if not bench.loop.learns_weights:
        pytest.skip("what ends its learning, it tests itself")
    conformance.check_out_of_time(bench, world_size)


@pytest.mark.parametrize(
    "step", [pytest.param(61, id="some"), pytest.param(1, id="all", marks=slow)]
)
def test_killed_before_any_file_operation_and_resumed(bench: Bench, step: int) -> None:
    for number in range(0, len(bench.whole().operations[0]), step * bench.loop.stride):
        conformance.check_killed_before_an_operation(bench, number, 1, 1)


@pytest.mark.parametrize(
    "step", [pytest.param(149, id="some"), pytest.param(7, id="many", marks=slow)]
)
def test_killed_and_resumed_at_another_world_size(bench: Bench, step: int) -> None:
    """Each world size is killed, and takes over, somewhere."""
    step *= bench.loop.stride
    for turn, number in enumerate(range(step // 2, len(bench.whole().operations[0]), step)):
        world_size, resumed_at = 1 + turn % 3, 1 + (turn + 1 + turn // 3) % 3
        conformance.check_killed_before_an_operation(bench, number, world_size, resumed_at)


@pytest.mark.parametrize(
    ("number", "commit", "world_size", "victim", "resumed_at"),
    [
        (SIGTERM, 3, 2, 1, 2),
        (SIGKILL, 12, 3, 2, 1),
        pytest.param(SIGINT, 1, 2, 0, 2, marks=slow),
        pytest.param(SIGKILL, 3, 2, 1, 2, marks=slow),
        pytest.param(SIGKILL, 20, 2, 1, 3, marks=slow),
        pytest.param(SIGTERM, 7, 3, 1, 2, marks=slow),
        pytest.param(SIGKILL, 15, 4, 3, 2, marks=slow),
    ],
)
def test_ended_after_a_commit_and_resumed(
    bench: Bench, number: Signals, commit: int, world_size: int, victim: int, resumed_at: int
) -> None:
    conformance.check_ended_after_a_commit(bench, number, commit, world_size, victim, resumed_at)


@pytest.mark.parametrize(
    "world_size", [2, pytest.param(1, marks=slow), pytest.param(3, marks=slow)]
)
def test_the_real_command(bench: Bench, world_size: int) -> None:
    if bench.loop.starts_slowly and world_size == 2:
        pytest.skip("its imports take long; the slow tests start it at other world sizes")
    conformance.check_the_command(bench, world_size)
