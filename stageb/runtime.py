"""The runtime on Lightning Fabric: one process per device, rank 0 leads, the others work for it.

A loop is plain Python on rank 0. What should run on all devices it hands out by name: ``runtime.map("rollout", common,
items)`` runs the handler ``rollout`` on every item, spread over all ranks, and gives the results in the items' order.
Nothing here knows what a handler does, so loops that learn weights can stand on the same ground.

    def handlers(runtime):                       # on every rank: load the model on runtime.device
        model = load(runtime.device)
        return {"rollout": lambda guidance, tickets: model.answer(guidance, tickets)}

    def lead(runtime):                           # on rank 0 alone
        answers = runtime.map("rollout", guidance, micro_batches)

    sys.exit(run(config.fabric, handlers, lead))

What is promised:

- Item i runs on rank ``i % world_size``: by the items alone. A handler is a function of (common, item), and all three
  values pass through JSON even where they stay in one process, so every world size gives the same results.
- With one process there is no process group and no message, and errors travel as usual. With several, an error anywhere
  ends every rank within seconds: rank 0 prints one ``RankError`` as its last line (rank 1 does, if rank 0 was lost), after
  the traceback if it was a bug, and all exit with 1. An ``InputError`` on rank 0 is printed as it is, and all exit with 2.
- With several ranks, one that finishes no item for ``fabric.timeout_s`` seconds is taken for hung and ends the job, rank 0
  included. A rank whose process stops, or whose interpreter locks up, gives no heartbeat and ends the job as well: after
  that time, or half as long again if it is rank 0.
- What heartbeats cannot tell: between two maps, and while handlers are built, a rank that hangs with a live interpreter
  looks like one that is busy for long. A loop that wants long work on rank 0 watched makes it a map of its own.

Left out on purpose: work that moves to whichever rank is free, and restarting a lost rank. A run is resumed from its last
commit by the same command, which also serves a machine that went away.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import subprocess
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed
from lightning.fabric import Fabric
from lightning.fabric.utilities.exceptions import MisconfigurationException

from stageb import launching
from stageb.config import FabricConfig
from stageb.errors import ConfigError, InputError, RankError, StagebError
from stageb.links import Json, Kind, Link, decode, encode

Handler = Callable[[Any, Any], Json]
"""``(common, item) -> result``: a function of its arguments, which came through JSON (tuples are lists)."""
Handlers = Callable[["Runtime"], Mapping[str, Handler]]
Lead = Callable[["Runtime"], int | None]

UNWIND_S = 2.0  # how long rank 0's main thread has to raise an error by itself before a thread ends the process


class Runtime:
    """One rank's place in the world, and what it can ask of the others. Made by ``launch``."""

    def __init__(
        self, fabric: Fabric, settings: FabricConfig, children: _Children | None, signals: launching.watch_signals
    ) -> None:
        self.fabric = fabric
        self.rank: int = fabric.global_rank
        self.world_size: int = fabric.world_size
        self.is_global_zero: bool = fabric.is_global_zero
        self.device = str(fabric.device)
        self._timeout_s = settings.timeout_s
        self._children = children
        self._handlers: Mapping[str, Handler] = {}
        self._inbox: queue.SimpleQueue[tuple[int, Kind, Any]] = queue.SimpleQueue()
        self.failure: RankError | None = None  # what a thread found, for the main thread to raise
        self._progress = [_Progress() for _ in range(self.world_size)]
        self._links: dict[int, Link] = {}
        self._neighbours: dict[int, int] = {}  # process ids of linked ranks on this machine
        self._group: Any = None
        self._closed = threading.Event()
        self._signals = signals

    # --- For loops -----------------------------------------------------------------------------------------------

    def map(
        self, name: str, common: Json, items: Sequence[Json], on_result: Callable[[int], None] | None = None
    ) -> list[Any]:
        """Run the handler ``name`` on every item, over all ranks; the results in the items' order. Rank 0 only.

        ``on_result`` is called in this thread with the number of finished items, each time there are more of them.
        Raises RankError.
        """
        assert self.is_global_zero, "rank 0 leads; the other ranks serve"
        shared, encoded = encode(common), [encode(item) for item in items]
        shares = [range(rank, len(items), self.world_size) for rank in range(self.world_size)]
        for rank, share in enumerate(shares):
            self._progress[rank].begin(name, share)
            if rank and share:
                self._links[rank].post(Kind.JOB, _job(name, shared, share, encoded))
        finished = _Results(len(items), on_result)
        decoded = decode(shared)
        for index in shares[0]:
            finished.put(index, self._work(name, index, decoded, decode(encoded[index])))
            self._progress[0].finished_one()
            while not self._inbox.empty():
                finished.put(*self._next(Kind.RESULT)[1])
        while finished.missing:
            finished.put(*self._next(Kind.RESULT)[1])
        return finished.values

    def agree(self, what: str, value: str) -> None:
        """Raise the same InputError on every rank unless all of them hold an equal ``value``, say a digest of the inputs.

        All ranks must call it, in the same order; so it has its place where handlers are built.
        """
        if self.world_size == 1:
            return
        if not self.is_global_zero:
            self._links[0].post(Kind.AGREE, encode([what, value]))
            self._next(Kind.AGREE)
            return
        for rank, (theirs, held) in sorted(self._next(Kind.AGREE) for _ in self._links):
            if theirs != what:
                raise RankError(rank, f"agreeing on {what}", f"it is at {theirs}: ranks ran different code")
            if held != value:
                raise InputError(
                    f"{what} differs between ranks: {value!r} on rank 0, {held!r} on rank {rank}; "
                    "give every rank the same inputs"
                )
        for link in self._links.values():
            link.post(Kind.AGREE)

    def facts(self) -> dict[str, Json]:
        """What the ranks run on, for a record of the run: device, its name, world size, CPU threads per rank."""
        device = self.fabric.device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        threads = torch.get_num_threads()
        return {"device": self.device, "device_name": name, "world_size": self.world_size, "torch_threads": threads}

    def close(self, code: int = 0) -> None:
        """Success: part from the other ranks in good order. On rank 0 this lets them return ``code`` from ``run``."""
        if self._links:
            for link in self._links.values():
                link.post(Kind.STOP if self.is_global_zero else Kind.BYE, encode(code))
            for link in self._links.values():
                link.finish()
            torch.distributed.barrier(group=self._group)
        self._closed.set()
        launching.forget_last_acts()
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        self._signals.stop()

    # --- For run -------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Open the links and begin to watch. All ranks call it, once, after launch."""
        if self.world_size == 1:
            return
        self._group = torch.distributed.new_group(backend="gloo", timeout=timedelta(seconds=max(60.0, 2 * self._timeout_s)))
        # Rank 0 loses patience first, so that where both sides could speak it is rank 0 that does.
        patience = self._timeout_s if self.is_global_zero else 1.5 * self._timeout_s
        for peer in range(1, self.world_size) if self.is_global_zero else (0,):
            beat = min(10.0, self._timeout_s / 5)
            self._links[peer] = Link(peer, self._group, patience, beat, self._on_message, self._on_lost)
        if self.is_global_zero:
            launching.before_end(self._end_others)
        if self._children:
            self._children.linked.set()
        for link in self._links.values():
            link.post(Kind.HELLO, encode([launching.machine(), os.getpid()]))
            link.start()
        if self.is_global_zero:
            threading.Thread(target=self._watch_progress, daemon=True, name="stageb-progress").start()

    def build(self, handlers: Handlers) -> None:
        """Build this rank's handlers; rank 0 waits until all ranks have theirs, and raises if one failed."""
        try:
            self._handlers = dict(handlers(self))
        except (Exception, SystemExit) as error:
            if self.is_global_zero:
                raise
            self._report(error, "start")
        if not self.is_global_zero:
            self._links[0].post(Kind.READY)
            return
        for _ in self._links:
            self._next(Kind.READY)

    def serve(self) -> int:
        """Work for rank 0 until it says stop; returns the code it gave."""
        while True:
            _, kind, body = self._inbox.get()
            if kind is Kind.STOP:
                return int(body)
            for index, item in zip(body["indices"], body["items"], strict=True):
                try:
                    result = self._work(body["name"], index, body["common"], item)
                except RankError as error:
                    self._report(error, error.where)
                self._links[0].post(Kind.RESULT, encode([index, result]))

    # --- Inside --------------------------------------------------------------------------------------------------

    def _work(self, name: str, index: int, common: Any, item: Any) -> Any:
        """One item's result, as it looks after JSON. Raises RankError."""
        try:
            return decode(encode(self._handlers[name](common, item)))
        except (Exception, SystemExit) as error:
            raise rank_error(self.rank, error, f"{name} item {index}") from error

    def _next(self, expected: Kind) -> tuple[int, Any]:
        """The next message's sender and body; raises what made the job fail instead, if something did."""
        rank, kind, body = self._inbox.get()
        if self.failure:
            raise self.failure
        if kind is Kind.ERROR:
            raise RankError(**body)
        if kind is not expected:
            raise RankError(rank, "runtime", f"sent {kind.name} where {expected.name} was due: ranks ran different code")
        return rank, body

    def _report(self, error: BaseException, where: str) -> None:
        """On a worker: tell rank 0 of the error and wait for the end."""
        failure = error if isinstance(error, RankError) else rank_error(self.rank, error, where)
        early_input = isinstance(error, InputError)
        body: Json = {"rank": self.rank, "where": failure.where, "cause": failure.cause, "trace": failure.trace}
        self._links[0].post(Kind.ERROR, encode({"failure": body, "input": early_input}))
        threading.Event().wait()

    def _on_message(self, rank: int, kind: Kind, body: Any) -> None:
        """In a receiving thread."""
        if kind is Kind.END:
            launching.end(int(body))
        if kind is Kind.HELLO:
            there, process = body
            if there == launching.machine():
                self._neighbours[rank] = process
            return
        if kind is Kind.RESULT:
            self._progress[rank].finished_one()
        if kind is Kind.ERROR:
            # Rank 0 reads the same inputs, and says what is wrong with them in its own words: it gets the time to.
            if not body["input"]:
                self._fail(RankError(**body["failure"]))
            body = body["failure"]
        self._inbox.put((rank, kind, body))

    def _on_lost(self, peer: int, why: str) -> None:
        """In a receiving thread."""
        if self.is_global_zero:
            ended = self._children.how_ended(peer) if self._children else None
            self._fail(RankError(peer, self._progress[peer].where, ended or why))
            return
        if self.rank > 1:
            time.sleep(1.0)  # rank 1 speaks for those who are left
            launching.end(1)
        launching.before_end(lambda code: self._kill(0))  # it may be stuck rather than gone
        end_with(RankError(0, "leading", f"{why}, as rank 1 sees it"))

    def _fail(self, failure: RankError) -> None:
        """In a thread of rank 0: have the main thread raise ``failure``, and end the process if it is too busy to."""
        self.failure = self.failure or failure
        launching.foresee(failure.exit_code, last_words(failure))
        self._inbox.put((failure.rank, Kind.ERROR, None))
        deadline = threading.Timer(UNWIND_S, lambda: end_with(self.failure or failure))
        deadline.daemon = True
        deadline.start()

    def _watch_progress(self) -> None:
        """In a thread of rank 0: find the rank that finishes nothing."""
        while not self._closed.wait(min(1.0, self._timeout_s / 10)):
            for rank, progress in enumerate(self._progress):
                if progress.idle_s() > self._timeout_s:
                    cause = f"no item finished for {self._timeout_s:g} s (fabric.timeout_s): taken for hung"
                    self._fail(RankError(rank, progress.where, cause))
                    return

    def _end_others(self, code: int) -> None:
        """Rank 0's last act: every rank ends with the same code. One that does not, being stuck, is killed if it is near.

        Without that a stopped or locked-up rank would stay, or hold up torchrun's agent for half a minute.
        """
        for link in self._links.values():
            link.post(Kind.END, encode(code))
        deadline = time.monotonic() + 0.5
        for link in self._links.values():
            if not link.closed.wait(max(0.0, deadline - time.monotonic())):
                self._kill(link.peer)

    def _kill(self, rank: int) -> None:
        if rank in self._neighbours:
            with contextlib.suppress(OSError):
                os.kill(self._neighbours[rank], signal.SIGKILL)


class Asking:
    """Base of what stands on every rank and, on rank 0, asks the others."""

    _runtime: Runtime | None = None

    def lead(self, runtime: Runtime) -> None:
        """Make this the rank that asks."""
        self._runtime = runtime

    @property
    def runtime(self) -> Runtime:
        """The ranks."""
        assert self._runtime is not None, "only rank 0 leads"
        return self._runtime


def launch(settings: FabricConfig) -> Runtime:
    """Make Fabric and launch: by its own launcher, or within ``fabric run``, torchrun or SLURM.

    Fabric's own launcher runs this same command line again for every further rank, so nothing may be written before this.
    Raises ConfigError, the same on every rank; RankError where the ranks do not find together.
    """
    launching.die_with_launcher()
    signals = launching.watch_signals()
    try:
        threads_given, place = _threads_are_given(), _place(settings)
        fabric = _make(settings, place)
        children = None if "LT_CLI_USED" in os.environ else _start(fabric, settings)  # under ``fabric run`` it has launched
        if place.world_size not in (None, fabric.world_size):
            amiss = f"{place.world_size} processes were started, Fabric made {fabric.world_size} of them"
            raise ConfigError("fabric", settings, amiss)
    except InputError:
        signals.stop()
        raise
    if not threads_given and fabric.device.type == "cpu":
        torch.set_num_threads(max(1, _cores() // (place.local_world_size or fabric.world_size // settings.num_nodes)))
    return Runtime(fabric, settings, children, signals)


def _make(settings: FabricConfig, place: _Place) -> Fabric:
    """Fabric, as the config and the launcher at hand want it."""
    for library in ("lightning.fabric", "lightning.pytorch"):  # Fabric greets through either; warnings still come through
        logging.getLogger(library).setLevel(logging.WARNING)
    try:
        return Fabric(precision=settings.precision, **place.arguments)  # type: ignore[arg-type]
    except torch.distributed.DistError as error:
        raise rank_error(_rank_to_be(), error, "launch") from error
    except (ValueError, TypeError, RuntimeError, MisconfigurationException) as error:
        raise ConfigError("fabric", settings, str(error)) from error


def _start(fabric: Fabric, settings: FabricConfig) -> _Children | None:
    """Have Fabric start, or join, the other ranks; returns those that it started, None where there is one process alone."""
    children = _Children(fabric) if fabric.strategy.launcher else None
    os.environ[launching.PARENT] = str(os.getpid())
    try:
        fabric.launch()
    except (ValueError, TypeError) as error:
        raise ConfigError("fabric", settings, str(error)) from error
    except RuntimeError as error:
        raise rank_error(_rank_to_be(), error, "launch") from error
    finally:
        del os.environ[launching.PARENT]
    return children


def _rank_to_be() -> int:
    """This process's rank by its environment, for an error before Fabric knows."""
    return int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", os.environ.get("LOCAL_RANK", "0"))))


def run(settings: FabricConfig, handlers: Handlers, lead: Lead) -> int:
    """Launch; build handlers on every rank; ``lead`` on rank 0 while the others serve. Returns lead's code on every rank.

    With one process, what ``handlers`` and ``lead`` raise comes out as it is. With several, an error ends this process
    here, with the message on rank 0 alone (``launching.end`` says why), and the caller never sees it.
    """
    try:
        runtime = launch(settings)
    except InputError:  # wrong on all ranks alike, and nothing is connected yet
        if launching.leads():
            raise
        launching.end(InputError.exit_code)
    except RankError as error:
        end_with(error)
    if runtime.world_size == 1:
        try:
            return _lead(runtime, handlers, lead)
        finally:
            runtime.close()
    try:
        runtime.connect()
        code = _lead(runtime, handlers, lead)
        runtime.close(code)
        return code
    except (Exception, SystemExit) as error:
        end_with(runtime.failure or as_stageb_error(runtime.rank, error))


def _lead(runtime: Runtime, handlers: Handlers, lead: Lead) -> int:
    runtime.build(handlers)
    return (lead(runtime) or 0) if runtime.is_global_zero else runtime.serve()


def end_with(error: StagebError) -> NoReturn:
    """End this process and the job with ``error`` as the last thing printed, after the traceback if it was a bug."""
    launching.end(error.exit_code, last_words(error))


def last_words(error: StagebError) -> str:
    """What is printed of ``error``."""
    return getattr(error, "trace", "") + str(error)


def as_stageb_error(rank: int, error: BaseException, where: str = "the loop") -> StagebError:
    """``error`` itself if stageb raised it on purpose; otherwise a RankError with its traceback.

    The place is the innermost note (``errors.at``), or else ``where``.
    """
    return error if isinstance(error, StagebError) else rank_error(rank, error, where)


def rank_error(rank: int, error: BaseException, where: str) -> RankError:
    """The RankError for an ``error`` on ``rank``. The place is the innermost note (``errors.at``), or else ``where``."""
    place = getattr(error, "__notes__", [where])[0]
    if isinstance(error, StagebError):
        return RankError(rank, place, str(error))
    trace = "".join(traceback.format_exception(error))
    return RankError(rank, place, f"{type(error).__name__}: {error}", trace)


# --- Where this process stands -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Place:
    """What to tell Fabric, and what must come of it."""

    arguments: dict[str, Any]  # accelerator, devices, num_nodes, strategy: those that are ours to say
    world_size: int | None = None  # processes that were started for the job; None: Fabric starts them
    local_world_size: int | None = None  # of those, on this machine


def _place(settings: FabricConfig) -> _Place:
    """Fabric's arguments under the launcher at hand.

    Where processes exist already, devices and strategy must be said outright: with "auto" on CPU each of them would
    silently become a rank 0 of its own.
    """
    env = os.environ
    ours = {"accelerator": settings.accelerator, "strategy": settings.strategy}
    if launching.under_torchrun():
        world, local = int(env["WORLD_SIZE"]), int(env["LOCAL_WORLD_SIZE"])
    elif launching.under_slurm():
        world, nodes = int(env["SLURM_NTASKS"]), int(env.get("SLURM_NNODES", "1"))
        local = world // nodes
    else:
        return _Place({**ours, "devices": settings.devices, "num_nodes": settings.num_nodes})
    if "LT_CLI_USED" in env:  # ``fabric run`` hands devices over by environment, and the rest if it was given any
        return _Place({key: value for key, value in ours.items() if f"LT_{key.upper()}" not in env}, world, local)
    devices = local if settings.devices == "auto" else settings.devices
    if isinstance(devices, int) and devices != local:
        raise ConfigError("fabric.devices", devices, f"{local} processes were started on this machine: say {local}, or auto")
    strategy = "ddp" if settings.strategy == "auto" and world > 1 else settings.strategy
    return _Place({**ours, "strategy": strategy, "devices": devices, "num_nodes": world // local}, world, local)


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _threads_are_given() -> bool:
    """Whether the user, or torchrun, has set the number of threads. ``fabric run`` sets all cores for every rank."""
    given = os.environ.get("OMP_NUM_THREADS")
    return given is not None and not ("LT_CLI_USED" in os.environ and given == str(_cores()))


class _Children:
    """The ranks that Fabric's own launcher started from this process; none under any other launcher.

    Fabric watches them too, every five seconds, and answers a death by killing rank 0 before it can say which rank was
    lost. So that observer is sent home and the watch kept here: by this thread until the links stand, by the links then.
    """

    def __init__(self, fabric: Fabric) -> None:
        self._launcher = fabric.strategy.launcher
        self._fabric = fabric
        self.linked = threading.Event()
        launching.before_end(self._kill)
        threading.Thread(target=self._watch, daemon=True, name="stageb-children").start()

    @property
    def _processes(self) -> dict[int, subprocess.Popen[bytes]]:
        """By global rank."""
        return dict(enumerate(getattr(self._launcher, "procs", ()), start=self._fabric.global_rank + 1))

    def how_ended(self, rank: int) -> str | None:
        """How the process of ``rank`` ended; None if it is not a child, or lives."""
        process = self._processes.get(rank)
        if process is None:
            return None
        try:
            code = process.wait(timeout=1.0)  # its connection closes a moment before it can be reaped
        except subprocess.TimeoutExpired:
            return None
        if code < 0:
            return f"its process was killed by {signal.Signals(-code).name}"
        return f"its process exited with code {code} before the job was done"

    def _watch(self) -> None:
        while not self.linked.wait(0.2):
            for thread in threading.enumerate():
                if thread.name == "child-process-observer":
                    thread._child_processes = []  # type: ignore[attr-defined]  # it returns when all (none) have ended
            for rank, process in self._processes.items():
                if process.poll() is not None:
                    end_with(RankError(rank, "launch", str(self.how_ended(rank))))

    def _kill(self, code: int) -> None:
        """The last act: children that have not gone by themselves are made to, stopped ones too."""
        deadline = time.monotonic() + 0.5
        for process in self._processes.values():
            try:
                process.wait(timeout=max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()


class _Progress:
    """One rank's unfinished items of the current map, and since when it has finished none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._name = ""
        self._waiting: deque[int] = deque()
        self._since = 0.0

    def begin(self, name: str, share: Sequence[int]) -> None:
        """``share`` was handed out."""
        with self._lock:
            self._name, self._waiting, self._since = name, deque(share), time.monotonic()

    def finished_one(self) -> None:
        """The first unfinished item is finished; a rank takes its share in order."""
        with self._lock:
            self._waiting.popleft()
            self._since = time.monotonic()

    def idle_s(self) -> float:
        """Seconds since the last finished item; 0 where nothing is to be finished."""
        with self._lock:
            return time.monotonic() - self._since if self._waiting else 0.0

    @property
    def where(self) -> str:
        """The item that this rank is at."""
        with self._lock:
            return f"{self._name} item {self._waiting[0]}" if self._waiting else "waiting for work"


class _Results:
    """Results as they come in, in their places."""

    def __init__(self, count: int, on_result: Callable[[int], None] | None) -> None:
        self.values: list[Any] = [None] * count
        self.missing = count
        self._on_result = on_result

    def put(self, index: int, value: Any) -> None:
        """Take one result in."""
        self.values[index] = value
        self.missing -= 1
        if self._on_result:
            self._on_result(len(self.values) - self.missing)


def _job(name: str, common: bytes, share: Sequence[int], items: Sequence[bytes]) -> bytes:
    """A JOB message, put together from parts that are encoded once for all ranks."""
    own = b",".join(items[index] for index in share)
    indices = encode(list(share))
    return b'{"name":%b,"common":%b,"indices":%b,"items":[%b]}' % (encode(name), common, indices, own)
