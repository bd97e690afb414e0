"""The world where nothing fails: the same results, in order, at every world size and under every
launcher.

Collectives run on forks (``programs/ranks.py``), whole jobs as real processes
(``programs/job.py``); how jobs end when something fails is in ``test_failures.py``.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed
from hypothesis import given
from hypothesis import strategies as st
from programs.jobs import run_job
from programs.ranks import Raised, on_ranks

from stageb.config import FabricConfig
from stageb.errors import ConfigError, EngineError, RankError, at
from stageb.job import heartbeat, lifetime
from stageb.job.world import Json, World, _find_host, decode, encode, pack, run, unpack

ONE = FabricConfig(accelerator="cpu", devices=1)
every = pytest.mark.parametrize("world_size", [1, 2, 3])
slow = pytest.mark.slow

# --- Collectives ----------------------------------------------------------------------------------


@every
def test_broadcast_brings_any_object_of_rank_0(world_size: int) -> None:
    values: list[Any] = [
        None,
        {"a": (1, "\ud800é")},
        FabricConfig(devices=3),
        b"x" * 3_000_000,
        torch.arange(3),
    ]

    def act(world: World) -> list[Any]:
        return [world.broadcast(value if world.is_global_zero else "other") for value in values]

    for found in on_ranks(world_size, act):
        assert found[:-1] == values[:-1]
        assert found[-1].tolist() == [0, 1, 2]


@every
@pytest.mark.parametrize(
    "size",
    [lambda rank: 0, lambda rank: rank, lambda rank: 5, lambda rank: 3_000_000 if rank == 1 else 0],
    ids=["nothing", "unequal", "equal", "3 MB on rank 1 alone"],
)
def test_gather_brings_every_ranks_bytes(world_size: int, size: Callable[[int], int]) -> None:
    sent = [bytes((rank + i) % 256 for i in range(size(rank))) for rank in range(world_size)]
    assert on_ranks(world_size, lambda world: world.gather(sent[world.rank])) == [sent] * world_size


def test_tensors_are_gathered_bit_by_bit() -> None:
    def act(world: World) -> list[tuple[list[float], str, int]]:
        mine = {
            "numbers": [torch.tensor([0.1, torch.inf], dtype=torch.float64) * (1 + world.rank)],
            "rank": world.rank,
        }
        found = [unpack(part) for part in world.gather(pack(mine))]
        return [
            (each["numbers"][0].tolist(), str(each["numbers"][0].dtype), each["rank"])
            for each in found
        ]

    expected = [([0.1, torch.inf], "torch.float64", 0), ([0.2, torch.inf], "torch.float64", 1)]
    assert on_ranks(2, act) == [expected] * 2


@every
def test_sum_adds_up_what_every_rank_brings(world_size: int) -> None:
    def act(world: World) -> list[float]:
        mine = torch.tensor([world.rank + 1, 0.5], dtype=torch.float64)
        return [*world.sum(mine).tolist(), *mine.tolist()]

    expected = [world_size * (world_size + 1) / 2, 0.5 * world_size]
    assert on_ranks(world_size, act) == [expected * 2] * world_size


@every
def test_ranks_that_agree_go_on(world_size: int) -> None:
    assert on_ranks(world_size, lambda world: world.agree("inputs", "same")) == [None] * world_size


def test_ranks_that_disagree_raise_the_same_everywhere() -> None:
    found = on_ranks(3, lambda world: world.agree("inputs", "other" if world.rank == 2 else "same"))
    said = (
        "inputs differs between ranks: 'same' on rank 0, 'other' on rank 2; give every rank "
        "the same inputs"
    )
    assert found == [Raised("InputError", said)] * 3


def test_a_collective_of_fabrics_own_is_a_wait_and_breaks_under_its_name() -> None:
    def main(world: World) -> int:
        with world.at("step 3"), world.together("gradients"):
            assert (heartbeat.now().label, heartbeat.now().kind) == ("gradients", "waiting")
            raise RuntimeError("Connection closed by peer")

    with pytest.raises(
        RankError, match="rank 0 failed at gradients: RuntimeError: Connection closed by peer"
    ):
        run(ONE, main)


# --- Work -----------------------------------------------------------------------------------------


@given(st.lists(st.integers()), st.integers(1, 9))
def test_dealt_is_the_inverse_of_share(items: list[int], world_size: int) -> None:
    fabrics = (
        SimpleNamespace(global_rank=r, world_size=world_size, is_global_zero=r == 0, device="cpu")
        for r in range(9)
    )
    worlds = [World(fabric) for fabric in list(fabrics)[:world_size]]  # type: ignore[arg-type]
    shares = [world.share(items) for world in worlds]
    assert worlds[0].join_shares(shares) == items
    assert max(map(len, shares)) - min(map(len, shares)) in (0, 1)


@every
@pytest.mark.parametrize("count", [0, 1, 7])
def test_map_gives_rank_0_results_in_order_and_every_rank_its_share(
    world_size: int, count: int
) -> None:
    def act(world: World) -> Any:
        done: list[int] = []
        seen: list[int] = []

        def work(item: int) -> Json:
            done.append(item)
            return (item, world.rank, "é")

        return world.map("item", work, range(count), seen.append), done, seen

    for rank, (found, done, seen) in enumerate(on_ranks(world_size, act)):
        assert found == (
            [[item, item % world_size, "é"] for item in range(count)] if rank == 0 else []
        )
        assert done == list(range(count))[rank::world_size]
        assert seen == (
            [min(n * world_size, count) for n in range(1, len(done) + 1)] if rank == 0 else []
        )


@every
def test_lead_returns_rank_0s_value_on_every_rank(world_size: int) -> None:
    def act(world: World) -> Any:
        def decide(*, base: int) -> tuple[int, int]:
            return base, world.rank

        return world.lead(decide, base=100), world.lead(lambda: None)

    assert on_ranks(world_size, act) == [((100, 0), None)] * world_size


@every
def test_what_rank_0_asks_all_ranks_answer(world_size: int) -> None:
    """However often it asks; what its generator returns stays with rank 0."""

    def act(world: World) -> Any:
        asked: list[int] = []

        def answer(count: int) -> list[Any]:
            asked.append(count)
            return world.map("item", lambda item: [item, world.rank], range(count))

        def steps(rounds: int, *, base: int) -> Generator[int, list[Any], tuple[int, list[Any]]]:
            found = []
            for count in range(rounds):
                found += yield count
            return base + world.rank, found

        return (
            world.consult(answer, steps, 4, base=100),
            world.consult(answer, steps, 0, base=7),
            asked,
        )

    found = [[item, item % world_size] for count in range(4) for item in range(count)]
    first, *others = on_ranks(world_size, act)
    assert first == ((100, found), (7, []), [0, 1, 2, 3])
    assert others == [(None, None, [0, 1, 2, 3])] * (world_size - 1)


def test_an_error_in_a_map_names_rank_and_item(monkeypatch: pytest.MonkeyPatch) -> None:
    # there is no watchdog here that would end rank 0 meanwhile
    monkeypatch.setattr("stageb.job.world.SETTLE_S", 0.0)

    def act(world: World) -> Any:
        def work(item: int) -> Json:
            if item == 3:
                raise ValueError("seven")
            return item

        return world.map("square item", work, range(4))

    first, second = on_ranks(2, act)
    assert second == Raised("RankError", "rank 1 failed at square item 3 of 4: ValueError: seven")
    assert first.kind == "RankError" and first.text.startswith("rank 0 failed at gather: ")


# --- Where rank 0 is found ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "seen", "host"),
    [
        (1, ["192.0.2.7"], "127.0.0.1"),
        (2, ["192.0.2.7", "192.0.2.7"], "192.0.2.7"),
        # as Debian has a machine look up its own name
        (2, ["127.0.1.1", "192.0.2.7"], "192.0.2.7"),
        (2, ["::1", "2001:db8::7"], "2001:db8::7"),
        (2, ["127.0.0.1", "127.0.0.1"], "127.0.0.1"),  # two nodes that are one machine
    ],
)
def test_rank_0_is_found_at_the_narrowest_address(nodes: int, seen: list[str], host: str) -> None:
    environment = SimpleNamespace(main_address=seen[0])
    fabric: Any = SimpleNamespace(
        strategy=SimpleNamespace(num_nodes=nodes, cluster_environment=environment)
    )
    world: Any = SimpleNamespace(fabric=fabric, rank=0, collect=lambda mine: [mine, *seen[1:]])
    assert _find_host(world) == host


# --- Whole jobs -----------------------------------------------------------------------------------


def result(items: int = 7, size: int = 1) -> str:
    """What ``programs/job.py`` prints, up to the number of ranks."""
    texts = "\ud800é" + "x" * size
    results = [
        {"square": item * item, "pair": [item, 0.1 * item], "text": texts} for item in range(items)
    ]
    return (
        f"result: {hashlib.sha256(json.dumps(results).encode()).hexdigest()[:16]} of {items} from"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "world_size"),
    [
        pytest.param("own", 1, marks=slow),
        pytest.param("own", 2, marks=slow),
        pytest.param("own", 3, marks=slow),
        pytest.param("torchrun", 1, marks=slow),
        ("torchrun", 2),
        pytest.param("torchrun", 3, marks=slow),
        pytest.param("fabric", 1, marks=slow),
        pytest.param("fabric", 2, marks=slow),
    ],
)
def test_results_are_the_same_everywhere(launcher: str, world_size: int) -> None:
    ended = run_job(launcher, world_size)
    assert (ended.code, ended.orphans) == (0, 0), ended.err
    assert ended.out == f"{result()} {world_size} ranks\n"
    if launcher == "own":
        assert ended.err == ""


@slow
@pytest.mark.parametrize("launcher", ["own", "torchrun"])
@pytest.mark.parametrize("mishap", ["reflect", "api"], ids=["rank 0 thinks", "work that ticks"])
def test_long_work_is_no_failure(launcher: str, mishap: str) -> None:
    """Rank 0 may think for longer than the timeout, and work may last longer that shows signs of
    life."""
    ended = run_job(launcher, 2, "--mishap", mishap, "--timeout_s", "2", "--items", "2")
    assert (ended.code, ended.orphans) == (0, 0), ended.err
    assert ended.out.startswith(result(2))


@slow
@pytest.mark.parametrize("world_size", [1, 2])
def test_every_rank_returns_the_code_of_lead(world_size: int) -> None:
    ended = run_job("own", world_size, "--mishap", "code")
    assert (ended.code, ended.orphans) == (3, 0), ended.err


@slow
def test_torchrun_wants_devices_that_agree_with_it() -> None:
    ended = run_job("torchrun", 2, "--devices", "3")
    said = (
        "config: fabric.devices: 3: 2 processes were started on this machine: set it to 2, or auto"
    )
    assert ended.code == 1 and ended.err.count(said) == 1, ended.err


# --- One process ----------------------------------------------------------------------------------


def mapping(work: Callable[[Any], Any], items: list[Any]) -> Callable[[World], int]:
    """A job that has ``work`` done on ``items``."""

    def main(world: World) -> int:
        world.map("judge item", work, items)
        return 0

    return main


@pytest.mark.parametrize(("given", "held"), [(None, ":4096:8"), (":16:8", ":16:8")])
def test_cublas_has_one_workspace_for_all_streams(
    monkeypatch: pytest.MonkeyPatch, given: str | None, held: str
) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", given or "")
    if given is None:
        monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    found: list[str | None] = []

    def main(world: World) -> int:
        found.append(os.environ.get("CUBLAS_WORKSPACE_CONFIG"))
        return 0

    run(ONE, main)
    assert found == [held]


def test_one_process_has_no_group_and_passes_values_through_json() -> None:
    def main(world: World) -> int:
        assert (world.rank, world.world_size, world.is_global_zero, world.device) == (
            0,
            1,
            True,
            "cpu",
        )
        assert not torch.distributed.is_initialized()
        world.agree("inputs", "anything")
        assert world.map("item", lambda item: ((1, 2), item), ["a", "b"]) == [
            [[1, 2], "a"],
            [[1, 2], "b"],
        ]
        return 7

    assert run(ONE, main) == 7


def test_one_process_raises_what_was_raised() -> None:
    def broken(world: World) -> int:
        raise EngineError("no such model")

    with pytest.raises(EngineError, match="no such model"):
        run(ONE, broken)


def test_an_error_names_rank_place_and_cause() -> None:
    def work(item: str) -> Json:
        with at("mission m"), at(f"ticket {item}"):
            raise KeyError("verdict")

    with pytest.raises(RankError) as caught:
        run(ONE, mapping(work, ["t1"]))
    assert str(caught.value) == "rank 0 failed at ticket t1: KeyError: 'verdict'"
    assert "Traceback" in caught.value.trace
    assert isinstance(caught.value.__cause__, KeyError)


def test_the_innermost_label_is_named_and_a_rank_error_passes_as_it_is() -> None:
    def main(world: World) -> int:
        with world.at("epoch 1"), world.at("rollout group 3"):
            sys.exit(0)

    with pytest.raises(RankError, match="rank 0 failed at rollout group 3: SystemExit: 0"):
        run(ONE, main)


def test_a_result_that_is_no_json_is_an_error_at_its_item() -> None:
    with pytest.raises(RankError) as caught:
        run(ONE, mapping(lambda item: {1, 2}, [0]))
    assert (
        str(caught.value)
        == "rank 0 failed at judge item 0 of 1: TypeError: Object of type set is not JSON "
        "serializable"
    )


def test_signals_are_given_back() -> None:
    before = [signal.getsignal(number) for number in lifetime.watch_signals.caught]
    run(ONE, lambda world: 0)
    assert [signal.getsignal(number) for number in lifetime.watch_signals.caught] == before


@pytest.mark.parametrize(
    "settings",
    [
        FabricConfig(accelerator="cpu", devices=2, strategy="ddp_spawn"),
        FabricConfig(accelerator="abacus"),
    ],
)
def test_what_fabric_refuses_is_a_config_error(settings: FabricConfig) -> None:
    """And the program that asked goes on as it was: no rank has been started that would end it."""

    def look() -> tuple[object, ...]:
        return (
            signal.getsignal(signal.SIGTERM),
            "LOCAL_RANK" in os.environ,
            threading.active_count(),
        )

    before = look()
    with pytest.raises(ConfigError, match="fabric"):
        run(settings, lambda world: 0)
    assert look() == before


documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(documents)
def test_json_bytes_come_back_equal(document: Any) -> None:
    assert decode(encode(document)) == document
    assert encode(decode(encode(document))) == encode(document)
