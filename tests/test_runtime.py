"""The runtime where nothing fails: the same results, in order, at every world size and under every launcher.

Ranks are real processes (``programs/job.py``); how jobs end when something fails is in ``test_failures.py``.
"""

from __future__ import annotations

import hashlib
import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
from hypothesis import given
from hypothesis import strategies as st
from programs.jobs import run_job

from stageb import launching
from stageb.config import FabricConfig
from stageb.errors import ConfigError, EngineError, InputError, RankError, at
from stageb.links import decode, encode
from stageb.runtime import Runtime, _place, _Progress, _Results, _threads_are_given, rank_error, run

ONE = FabricConfig(accelerator="cpu", devices=1)


def result(items: int = 7, size: int = 1) -> str:
    """What ``programs/job.py`` prints, up to the number of ranks."""
    texts = "\ud800é" + "x" * size
    results = [{"square": item * item, "pair": [item, 0.1 * item], "text": texts} for item in range(items)]
    return f"result: {hashlib.sha256(json.dumps(results).encode()).hexdigest()[:16]} of {items} from"


# --- Several processes -----------------------------------------------------------------------------------------------

slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("launcher", "world_size"),
    [
        pytest.param("own", 1, marks=slow),
        ("own", 2),
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
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_large_payloads(world_size: int) -> None:
    ended = run_job("own", world_size, "--items", "3", "--size", "20000000")
    assert (ended.code, ended.orphans) == (0, 0), ended.err
    assert ended.out.startswith(result(3, 20_000_000))


@slow
@pytest.mark.parametrize("launcher", ["own", "torchrun"])
def test_rank_0_may_think_for_longer_than_the_timeout(launcher: str) -> None:
    ended = run_job(launcher, 2, "--mishap", "reflect", "--timeout_s", "2")
    assert (ended.code, ended.orphans) == (0, 0), ended.err
    assert ended.out.startswith(result())


@slow
@pytest.mark.parametrize("world_size", [1, 2])
def test_every_rank_returns_the_code_of_lead(world_size: int) -> None:
    ended = run_job("own", world_size, "--mishap", "code")
    assert (ended.code, ended.orphans) == (3, 0), ended.err


@slow
def test_auto_is_one_process_on_a_cpu() -> None:
    ended = run_job("own", 1, "--devices", "auto")
    assert ended.out == f"{result()} 1 ranks\n"


@slow
def test_torchrun_wants_devices_that_agree_with_it() -> None:
    ended = run_job("torchrun", 2, "--devices", "3")
    said = "config: fabric.devices: 3: 2 processes were started on this machine: say 2, or auto"
    assert ended.code == 1 and ended.err.count(said) == 1, ended.err


# --- One process -----------------------------------------------------------------------------------------------------


def test_one_process_has_no_group_and_passes_values_through_json() -> None:
    seen: list[int] = []

    def handlers(runtime: Runtime) -> dict[str, Any]:
        runtime.agree("inputs", "anything")
        return {"add": lambda common, item: (common["more"], item)}

    def lead(runtime: Runtime) -> int:
        assert (runtime.rank, runtime.world_size, runtime.is_global_zero, runtime.device) == (0, 1, True, "cpu")
        assert not torch.distributed.is_initialized()
        assert runtime.map("add", {"more": (1, 2)}, ["a", "b"], seen.append) == [[[1, 2], "a"], [[1, 2], "b"]]
        assert runtime.map("add", {"more": 1}, []) == []
        return 7

    assert run(ONE, handlers, lead) == 7
    assert seen == [1, 2]


def test_one_process_raises_what_was_raised() -> None:
    def broken(runtime: Runtime) -> dict[str, Any]:
        raise EngineError("no such model")

    with pytest.raises(EngineError, match="no such model"):
        run(ONE, broken, lambda runtime: 0)


def test_a_handler_error_names_rank_place_and_cause() -> None:
    def handler(common: Any, item: Any) -> Any:
        with at("mission m"), at(f"ticket {item}"):
            raise KeyError("verdict")

    with pytest.raises(RankError) as caught:
        run(ONE, lambda runtime: {"judge": handler}, lambda runtime: runtime.map("judge", None, ["t1"]) and 0)
    assert str(caught.value) == "rank 0 failed at ticket t1: KeyError: 'verdict'"
    assert "Traceback" in caught.value.trace
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("name", "result", "cause"),
    [("other", 1, "KeyError: 'other'"), ("judge", {1, 2}, "TypeError: Object of type set is not JSON serializable")],
)
def test_a_job_that_cannot_be_done_is_an_error_at_its_item(name: str, result: Any, cause: str) -> None:
    with pytest.raises(RankError) as caught:
        run(ONE, lambda runtime: {"judge": lambda common, item: result}, lambda runtime: runtime.map(name, None, [0]) and 0)
    assert str(caught.value) == f"rank 0 failed at {name} item 0: {cause}"


def test_signals_are_given_back() -> None:
    before = [signal.getsignal(number) for number in launching.watch_signals.caught]
    run(ONE, lambda runtime: {}, lambda runtime: 0)
    assert [signal.getsignal(number) for number in launching.watch_signals.caught] == before


@pytest.mark.parametrize(
    "settings", [FabricConfig(accelerator="cpu", devices=2, strategy="ddp_spawn"), FabricConfig(accelerator="abacus")]
)
def test_what_fabric_refuses_is_a_config_error(settings: FabricConfig) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ConfigError, match="fabric"):
        run(settings, lambda runtime: {}, lambda runtime: 0)
    assert signal.getsignal(signal.SIGTERM) == before


# --- Parts -----------------------------------------------------------------------------------------------------------

documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(documents)
def test_json_bytes_come_back_equal(document: Any) -> None:
    assert decode(encode(document)) == document
    assert encode(decode(encode(document))) == encode(document)


def test_the_innermost_place_is_named_and_stageb_errors_bring_no_traceback() -> None:
    try:
        with at("outer"), at("inner"):
            raise EngineError("out of memory")
    except EngineError as error:
        named = rank_error(3, error, "elsewhere")
    assert (str(named), named.trace) == ("rank 3 failed at inner: out of memory", "")
    assert rank_error(3, InputError("bad"), "elsewhere").where == "elsewhere"


def test_progress_counts_from_the_last_finished_item(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10.0]
    monkeypatch.setattr("stageb.runtime.time.monotonic", lambda: now[0])
    progress = _Progress()
    assert (progress.idle_s(), progress.where) == (0.0, "waiting for work")
    progress.begin("rollout", range(1, 7, 3))
    now[0] = 14.0
    assert (progress.idle_s(), progress.where) == (4.0, "rollout item 1")
    progress.finished_one()
    now[0] = 15.0
    assert (progress.idle_s(), progress.where) == (1.0, "rollout item 4")
    progress.finished_one()
    now[0] = 99.0
    assert (progress.idle_s(), progress.where) == (0.0, "waiting for work")


def test_results_find_their_places_whatever_the_order() -> None:
    seen: list[int] = []
    results = _Results(3, seen.append)
    for index in (2, 0, 1):
        results.put(index, str(index))
    assert (results.values, results.missing, seen) == (["0", "1", "2"], 0, [1, 2, 3])


LAUNCHERS: dict[str, dict[str, str]] = {
    "own": {},
    "torchrun": {"TORCHELASTIC_RUN_ID": "none", "RANK": "2", "LOCAL_RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"},
    "slurm": {"SLURM_NTASKS": "4", "SLURM_NNODES": "2", "SLURM_PROCID": "0", "SLURM_JOB_NAME": "fit"},
    "salloc": {"SLURM_NTASKS": "4", "SLURM_NNODES": "2", "SLURM_PROCID": "0", "SLURM_JOB_NAME": "interactive"},
}
LAUNCHERS["fabric"] = {**LAUNCHERS["torchrun"], "LT_CLI_USED": "1", "LT_DEVICES": "2", "LT_ACCELERATOR": "cpu"}


@pytest.fixture
def under(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set the environment of a launcher."""

    def choose(name: str) -> None:
        for key in {key for environment in LAUNCHERS.values() for key in environment} | {"OMP_NUM_THREADS"}:
            monkeypatch.delenv(key, raising=False)
        for key, value in LAUNCHERS[name].items():
            monkeypatch.setenv(key, value)

    return choose


@pytest.mark.parametrize(
    ("launcher", "world_size", "arguments"),
    [
        ("own", None, {"accelerator": "auto", "strategy": "auto", "devices": "auto", "num_nodes": 1}),
        ("salloc", None, {"accelerator": "auto", "strategy": "auto", "devices": "auto", "num_nodes": 1}),
        ("torchrun", 4, {"accelerator": "auto", "strategy": "ddp", "devices": 2, "num_nodes": 2}),
        ("slurm", 4, {"accelerator": "auto", "strategy": "ddp", "devices": 2, "num_nodes": 2}),
        ("fabric", 4, {"strategy": "auto"}),
    ],
)
def test_what_fabric_is_told(under: Any, launcher: str, world_size: int | None, arguments: dict[str, object]) -> None:
    under(launcher)
    place = _place(FabricConfig())
    assert (place.world_size, place.arguments) == (world_size, arguments)
    assert launching.leads() == (launcher in ("own", "salloc", "slurm"))


def test_devices_must_fit_the_processes_that_exist(under: Any) -> None:
    under("slurm")
    assert _place(FabricConfig(devices=[4, 5])).arguments["devices"] == [4, 5]
    with pytest.raises(ConfigError, match="say 2, or auto"):
        _place(FabricConfig(devices=3))


def test_threads_that_were_given_are_left_alone(under: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stageb.runtime._cores", lambda: 8)
    under("own")
    assert not _threads_are_given()
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert _threads_are_given()
    under("fabric")
    monkeypatch.setenv("OMP_NUM_THREADS", "8")  # what `fabric run` gives every rank
    assert not _threads_are_given()
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert _threads_are_given()


def test_a_process_that_was_not_launched_may_outlive_its_parent(under: Any) -> None:
    under("own")
    launching.die_with_launcher()
    assert launching._launcher is None
    assert Path("/proc/self").exists() == ("/" in launching.machine())
