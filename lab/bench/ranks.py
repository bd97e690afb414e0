"""The work of every rank in a benchmark: hold one contestant at a time, and answer for the tickets
that it is handed.

Work goes through ``stageb.job.world`` in the two ways that loops have, so what is timed includes
handing out and gathering: ``round`` is what a loop does with a round of tickets, on every rank;
``pass_over`` what rank 0 asks for while it leads.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import platform
import resource
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch

from lab.bench.contestants import CONTESTANTS, Answers, forget
from lab.bench.floor import Device, Floor, Job, Size, floor_of, measured
from lab.bench.workloads import (
    CHAT_VARIABLES,
    WORKLOADS,
    Workload,
    batches_of,
    config_of,
    dtype_of,
    prompts_of,
    requests_of,
    tokenizer_of,
)
from stageb.config import FabricConfig, require
from stageb.engines.chat import Chat
from stageb.engines.protocol import Engine
from stageb.errors import InputError
from stageb.job.world import World

T = TypeVar("T")
P = ParamSpec("P")

Row = tuple[str, int, str]  # an answer: text, tokens, finish


class Ranks:
    """The ranks of a benchmark. ``bind``, ``lead`` and ``round`` are for all of them; the rest is
    for rank 0 in ``lead``."""

    world: World  # from ``bind`` on

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.prompts = prompts_of(workload)
        self._held: Answers | None = None

    # On every rank

    def bind(self, world: World) -> None:
        """Be ready to be asked."""
        self.world = world
        self._works: dict[str, Callable[[Any, Any], Any]] = {
            "measure": self._measure,
            "load": self._load,
            "drop": self._drop,
            "answer": self._answer,
            "count": self._count,
            "peak": lambda common, item: peak_bytes(self._device),
        }

    def lead(self, act: Callable[P, T], *args: P.args, **keywords: P.kwargs) -> T:
        """Have rank 0 do ``act(*args)``, and every rank its share of what that asks for; what it
        returns, on every rank."""
        if self.world.is_global_zero:
            value = act(*args, **keywords)
            self.world.broadcast((None, value))
            return value
        nothing: Any = None, None
        while True:
            asked, value = self.world.broadcast(nothing)
            if asked is None:
                return value
            self._together(*asked)

    def _ask(self, name: str, common: Any, items: Sequence[Any]) -> list[Any]:
        """The results of a work on every item, over all ranks."""
        self.world.broadcast(((name, common, items), None))
        return self._together(name, common, items)

    def _together(self, name: str, common: Any, items: Sequence[Any]) -> list[Any]:
        return self.world.map(name, partial(self._works[name], common), items)

    def round(self, batches: Sequence[Sequence[int]]) -> Pass | None:
        """Have the tickets in ``batches`` answered as a loop does it: rank 0 hands out, each rank
        takes its share, and answers are gathered on rank 0, which alone returns the pass. Raises
        ``FailedError`` there."""
        begun = time.perf_counter()
        common = self.world.broadcast({"greedy": False})
        results = self.world.map("batch", partial(self._answer, common), batches)
        if not self.world.is_global_zero:
            return None
        return self._passed(batches, results, time.perf_counter() - begun)

    @property
    def _device(self) -> str:
        return self.world.device

    def _measure(self, common: Any, item: Any) -> Any:
        return asdict(measured(self._device, dtype_of(self.workload, self._device), self._size()))

    def _load(self, name: Any, item: Any) -> Any:
        """Seconds that it took; or what went wrong, since one that cannot be had must not end the
        others' run."""
        forget_peak(self._device)
        begun = time.perf_counter()
        try:
            self._held = CONTESTANTS[name].load(self.workload, self._device)
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
        return {"seconds": time.perf_counter() - begun}

    def _drop(self, common: Any, item: Any) -> Any:
        close = getattr(self._held, "close", None)
        if close:
            close()
        self._held = None
        gc.collect()
        if self._device.startswith("cuda"):
            torch.cuda.empty_cache()

    def _answer(self, common: Any, positions: Any) -> Any:
        """The answers to the tickets at ``positions``, and the seconds that the contestant took."""
        asked = requests_of(self.workload, self.prompts, positions, common["greedy"])
        forget(self._contestant)
        begun, begun_cpu = time.perf_counter(), time.process_time()
        try:
            given = self._contestant.generate(asked) if asked else []
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
        return {
            "seconds": time.perf_counter() - begun,
            "cpu_s": time.process_time() - begun_cpu,
            "answers": [[[one.text, one.tokens, one.finish] for one in group] for group in given],
        }

    def _count(self, common: Any, item: Any) -> Any:
        """The contestant's own count of every prompt's tokens, or null where it has none."""
        return (
            self._contestant.count_tokens(self.prompts)
            if isinstance(self._contestant, Engine)
            else None
        )

    @property
    def _contestant(self) -> Answers:
        assert self._held is not None, "load first"
        return self._held

    # On rank 0

    def on_each(self, name: str, common: Any = None) -> list[Any]:
        """One item for every rank; their results by rank."""
        return self._ask(name, common, range(self.world.world_size))

    def load(self, name: str) -> float:
        """Have every rank hold the contestant ``name``; returns the slowest rank's seconds. Raises
        ``FailedError``."""
        seconds: list[float] = [
            result["seconds"] for result in without_errors(name, self.on_each("load", name))
        ]
        return max(seconds)

    def measured(self) -> Device:
        """The slowest rank's device."""
        found = [Device(**result) for result in self.on_each("measure")]
        return Device(
            min(one.bytes_per_s for one in found), min(one.operations_per_s for one in found)
        )

    def pass_over(self, batches: Sequence[Sequence[int]], greedy: bool = False) -> Pass:
        """Have the tickets in ``batches`` answered over all ranks, as rank 0 asks them. Raises
        ``FailedError``."""
        begun = time.perf_counter()
        results = self._ask("answer", {"greedy": greedy}, batches)
        return self._passed(batches, results, time.perf_counter() - begun)

    def _passed(self, batches: Sequence[Sequence[int]], results: list[Any], seconds: float) -> Pass:
        """Build a pass from the ranks' ``results``."""
        without_errors("answering", results)
        world = self.world.world_size
        engine_s = max(
            sum(result["seconds"] for result in results[rank::world]) for rank in range(world)
        )
        cpu_s = sum(result["cpu_s"] for result in results)
        rows = [
            (i, [(text, tokens, finish) for text, tokens, finish in group])
            for batch, result in zip(batches, results, strict=True)
            for i, group in zip(batch, result["answers"], strict=True)
        ]
        return Pass(seconds, engine_s, cpu_s, dict(rows))

    def batches(self, name: str, count: int) -> list[list[int]]:
        """The first ``count`` tickets, cut for the contestant ``name`` so that every rank gets
        work."""
        return self.batches_among(name, range(count), -(-count // self.world.world_size))

    def batches_among(self, name: str, positions: Sequence[int], share: int) -> list[list[int]]:
        """The tickets at ``positions``, cut for the contestant ``name``, of which a rank takes
        ``share``."""
        size = min(self.workload.batch, share) if CONTESTANTS[name].in_batches else share
        return batches_of(self.prompts, positions, size)

    def floor_of(self, batches: Sequence[Sequence[int]], answered: Pass, device: Device) -> Floor:
        """The floor of a pass: that of the rank with most to do."""
        world = self.world.world_size
        shares = [[i for batch in batches[rank::world] for i in batch] for rank in range(world)]
        floors = [
            floor_of([self._job(i, answered) for i in share], self._size(), device)
            for share in shares
        ]
        return Floor(
            max(each.series_s for each in floors), max(each.overlapped_s for each in floors)
        )

    def _size(self) -> Size:
        return Size.of(config_of(self.workload), dtype_of(self.workload, self.world.device))

    def prompt_tokens(self) -> list[int]:
        """Each prompt's length in tokens, as every contestant reads it."""
        return [sum(map(len, self._chat.encode(prompt))) for prompt in self.prompts]

    def require_counts(self, name: str) -> None:
        """Raise ``FailedError`` where the held contestant counts other lengths: it would be given
        another workload."""
        for counted in self.on_each("count"):
            if counted not in (None, self.prompt_tokens()):
                raise FailedError(
                    f"{name} reads prompts of other lengths than the workload says", ""
                )

    def tokens_of(self, text: str) -> list[int]:
        """The ids of an answer's text."""
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    @cached_property
    def _tokenizer(self) -> Any:
        return tokenizer_of(self.workload)

    @cached_property
    def _chat(self) -> Chat:
        return Chat(self._tokenizer, CHAT_VARIABLES)

    def _job(self, i: int, answered: Pass) -> Job:
        shared, own = self._chat.encode(self.prompts[i])
        return Job(
            self.prompts[i].system,
            len(shared),
            len(own),
            tuple(tokens for _, tokens, _ in answered.answers[i]),
        )


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over the tickets."""

    seconds: float  # until rank 0 had all answers
    engine_s: float  # of these, in the contestant, on the rank where that took longest
    # processor time in the contestant, all ranks and threads together; not that of processes of its
    # own
    cpu_s: float
    answers: dict[int, list[Row]]  # by ticket

    @property
    def rollouts(self) -> int:
        """Answers."""
        return sum(map(len, self.answers.values()))

    @property
    def tokens(self) -> int:
        """New tokens."""
        return sum(tokens for group in self.answers.values() for _, tokens, _ in group)


class FailedError(Exception):
    """A contestant could not be loaded or could not answer: the cause, and the traceback of the
    rank that met it."""

    def __init__(self, cause: str, trace: str) -> None:
        super().__init__(cause)
        self.trace = trace


def without_errors(what: str, results: list[Any]) -> list[Any]:
    """``results``, none of which tells of an error. Raises ``FailedError``."""
    for result in results:
        if "error" in result:
            raise FailedError(f"{what}: {result['error']}", result["trace"])
    return results


# Memory -------------------------------------------------------------------------------------------


def forget_peak(device: str) -> None:
    """Begin to watch memory anew."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(device)
    with contextlib.suppress(OSError):  # Linux: the process's own high-water mark
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes(device: str) -> int:
    """The most that was held since: of the GPU's memory, as torch reserved it, or as all processes
    hold it now, since an engine may live in one of its own; resident memory of this process on a
    CPU."""
    if device.startswith("cuda"):
        free, total = torch.cuda.mem_get_info(device)
        return max(torch.cuda.max_memory_reserved(device), total - free)
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


# The command line ---------------------------------------------------------------------------------


def parser_of(name: str, summary: str | None) -> argparse.ArgumentParser:
    """The options that all of these benchmarks take: the workload's fields, where to run, where to
    write."""
    parser = argparse.ArgumentParser(
        prog=f"bin/bench {name}",
        description=summary,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--workload", default="demo-cpu", choices=sorted(WORKLOADS), help="default: demo-cpu"
    )
    for field in fields(Workload):
        if field.name != "prompts":
            kind = {"int": int, "float": float}.get(str(field.type), str)
            parser.add_argument(
                f"--{field.name.replace('_', '-')}", type=kind, help="in place of the workload's"
            )
    parser.add_argument("--accelerator", default="auto", help="cpu, cuda or auto")
    parser.add_argument(
        "--devices", type=int, default=1, help="ranks, each with a device of its own (default 1)"
    )
    parser.add_argument(
        "--threads", type=int, default=1, help="of each rank on the CPU (default 1)"
    )
    parser.add_argument(
        "--warmup", type=int, default=1, help="passes that do not count (default 1)"
    )
    parser.add_argument("--repeats", type=int, default=3, help="passes that do (default 3)")
    parser.add_argument("--json", metavar="FILE", help="write what was measured, as JSON")
    return parser


def workload_of(given: argparse.Namespace) -> Workload:
    """The workload that a command line asks for. Raises ``InputError``."""
    require(given.repeats >= 1, "--repeats", given.repeats, "at least 1")
    require(given.warmup >= 0, "--warmup", given.warmup, "0 or more")
    changes = {
        field.name: value
        for field in fields(Workload)
        if (value := getattr(given, field.name, None)) is not None
    }
    base = WORKLOADS[given.workload]
    if base.prompts == "demo" and {"shared_tokens", "own_tokens"} & set(changes):
        raise InputError(
            f"the prompts of {given.workload} are tickets; --shared-tokens and --own-tokens are "
            f"for made ones"
        )
    return replace(base, **changes)


def fabric_of(given: argparse.Namespace) -> FabricConfig:
    """How to launch. An item may be a rank's whole share, so patience is long."""
    strategy = "ddp" if given.devices > 1 else "auto"
    where = {"accelerator": given.accelerator, "devices": given.devices, "strategy": strategy}
    return FabricConfig(**where, threads=given.threads, timeout_s=7200.0)


def facts(world: World) -> dict[str, Any]:
    """The machine, for the record: what is needed to read a figure later."""
    packages = {}
    for name in ("torch", "transformers", "vllm"):
        with contextlib.suppress(PackageNotFoundError):
            packages[name] = version(name)
    return {
        **world.facts(),
        "python": platform.python_version(),
        "packages": packages,
        "cpu_cores": os.cpu_count(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }
