"""The world: a job's ranks on Lightning Fabric, and the collectives that a loop may use.

A loop is one plain function, ``main(world)``, that every rank runs: Fabric has launched it and
placed its device. Ranks come together in a handful of collectives, all ranks in the same order:

    def main(world):
        model = load(world.device)
        for round in rounds:
            guidance = world.broadcast(guidance)  # rank 0's
            # every rank does its share; gathered on rank 0
            answers = world.map("ticket", model.answer, round)
            guidance = world.lead(decide, answers)  # rank 0 decides; all get its result

    sys.exit(run(config.fabric, main))

- ``broadcast`` is ``fabric.broadcast``. ``gather`` is ``fabric.all_gather`` of the lengths, then of
  the bytes, padded to the longest: alone it passes text through ungathered, makes ints int32, and
  dies of unequal shapes. On GPUs the bytes go by NCCL, after all that the device was given before.
  ``sum`` adds tensors up. Loops that learn weights use ``world.fabric`` beside them: ``setup``,
  ``backward``, ``all_reduce``, in the same fixed order, and within ``together``, so that a rank
  that waits there for another is not taken for the one that hangs.
- In ``lead`` rank 0 works alone while the others wait for its result; in ``alone`` the result stays
  with it. What it decides with the help of all ranks is a generator that yields questions:
  ``consult`` has every rank answer its part of each. So a decision needs no agreement on hash
  orders or last bits: there is one source of truth.
- Item i of a share is rank ``i % world_size``'s, by the items alone; the results of ``map`` pass
  through JSON even in a single process. So every world size gives the same results.
- With one process there is no process group and no message, and errors travel as usual. With
  several, an error anywhere ends every rank within seconds (``watchdog``): rank 0 prints one
  ``RankError`` as its last line, after the traceback if it was a bug, and all exit with 1. An
  ``InputError`` on rank 0 is printed as it is, and all exit with 2.

Left out on purpose: work that moves to whichever rank is free, and restarting a lost rank. A run is
resumed from its last commit by the same command, which also serves a machine that went away.
"""

from __future__ import annotations

import io
import ipaddress
import json
import os
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeAlias, TypeVar

import torch
import torch.distributed
from torch import Tensor

from stageb.config import FabricConfig
from stageb.errors import InputError, RankError, StagebError
from stageb.job import devices, heartbeat, lifetime, meeting, placement
from stageb.job.placement import Fabric
from stageb.job.watchdog import Watchdog, end_with, rank_error

T = TypeVar("T")
Question = TypeVar("Question")
Answer = TypeVar("Answer")
P = ParamSpec("P")
Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None

# for the watchdog to end this process, after a collective broke because another rank is gone
SETTLE_S = 5.0

# Fabric calls it; whoever runs a job cannot act on that.
warnings.filterwarnings(
    "ignore", r"torch\.distributed\.nn\.functional\.all_gather is deprecated", FutureWarning
)


@dataclass(frozen=True)
class Difference:
    """How a rank's values differ from rank 0's."""

    rank: int
    names: list[str]  # of what differs
    first: dict[str, str]  # what rank 0 holds, by name
    held: dict[str, str]  # and what that rank does


class World:
    """One rank's place among the ranks of a job. Made on every rank, of a Fabric that has
    launched."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.rank: int = fabric.global_rank
        self.world_size: int = fabric.world_size
        self.is_global_zero: bool = fabric.is_global_zero
        self.device = str(fabric.device)

    def broadcast(self, value: T) -> T:
        """Rank 0's ``value``, on every rank."""
        if self.world_size == 1:
            return value
        with self.together("broadcast"):
            return self.fabric.broadcast(value)

    def gather(self, data: bytes) -> list[bytes]:
        """The ``data`` of every rank, by rank, on every rank."""
        if self.world_size == 1:
            return [data]
        with self.together("gather"):
            lengths = self._gather_rows(torch.tensor(len(data))).tolist()
            padded = bytearray(data.ljust(max(1, *lengths), b"\0"))
            rows = self._gather_rows(torch.frombuffer(padded, dtype=torch.uint8)).cpu()
        return [row[:length].numpy().tobytes() for row, length in zip(rows, lengths, strict=True)]

    def collect(self, value: Json) -> list[Any]:
        """The ``value`` of every rank, by rank, on every rank, as JSON leaves it."""
        return [decode(each) for each in self.gather(encode(value))]

    def _gather_rows(self, mine: Tensor) -> Tensor:
        """The tensor of every rank, of one shape and type on all, by rank."""
        rows = self.fabric.all_gather(mine)
        assert isinstance(rows, Tensor)
        return rows

    def sum(self, mine: Tensor, what: str = "sum") -> Tensor:
        """The sum over ranks, in the place of ``mine``: of one shape on all, and on the rank's
        device.

        Nothing waits for the device, where Fabric's ``all_reduce`` would have every rank wait for
        its own first. ``what`` names the sum, for errors and the watchdog.
        """
        if self.world_size > 1:
            with self.together(what):
                torch.distributed.all_reduce(mine)
        return mine

    @contextmanager
    def together(self, what: str) -> Iterator[None]:
        """In collectives of Fabric's own, such as ``fabric.backward``: a wait for the other ranks,
        not work of this one.

        They break where a rank is gone; the watchdog knows which, and ends this process. Raises
        RankError.
        """
        try:
            with heartbeat.at(what, "waiting"):
                yield
        except RuntimeError as error:
            if self.world_size > 1:
                time.sleep(SETTLE_S)
            raise rank_error(self.rank, error, what) from error

    def find_differing(self, mine: Mapping[str, str]) -> Difference | None:
        """The first rank whose ``mine`` (values by name) differ from rank 0's, the same on every
        rank; None if all agree."""
        first, *others = self.collect(mine)
        for rank, held in enumerate(others, start=1):
            if names := [name for name in first if held.get(name) != first[name]]:
                return Difference(rank, names, first, held)
        return None

    def agree(self, what: str, value: str) -> None:
        """Raise the same InputError on every rank unless all of them hold an equal ``value``, say a
        digest of the inputs."""
        if found := self.find_differing({what: value}):
            raise InputError(
                f"{what} differs between ranks: {found.first[what]!r} on rank 0, "
                f"{found.held[what]!r} on rank {found.rank}; give every rank the same inputs"
            )

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """This rank's part of ``items``."""
        return items[self.rank :: self.world_size]

    def join_shares(self, parts: Sequence[Sequence[T]]) -> list[T]:
        """The inverse of ``share``: all items in order, from every rank's part of them."""
        count = sum(map(len, parts))
        return [parts[index % self.world_size][index // self.world_size] for index in range(count)]

    @contextmanager
    def at(self, label: str) -> Iterator[None]:
        """Work of this rank that must make progress; ``label`` names it for the watchdog and in
        errors. Raises RankError."""
        try:
            with heartbeat.at(label):
                yield
        except RankError:
            raise
        except (Exception, SystemExit) as error:
            raise rank_error(self.rank, error, label) from error

    def map(
        self,
        what: str,
        work: Callable[[T], Json],
        items: Sequence[T],
        on_items: Callable[[int], None] | None = None,
    ) -> list[Any]:
        """Call ``work`` on every item, each rank on its share. Returns on rank 0 the results, as
        JSON leaves them, in the items' order, and an empty list elsewhere. All ranks call it with
        the same items.

        ``what`` names an item, for errors and the watchdog. ``on_items`` gets on rank 0 an estimate
        of how many items are done. Raises RankError.
        """
        mine = []
        for done, item in enumerate(self.share(items)):
            with self.at(f"{what} {self.rank + done * self.world_size} of {len(items)}"):
                mine.append(encode(work(item)))
            if on_items and self.is_global_zero:
                on_items(min((done + 1) * self.world_size, len(items)))
        parts = self.gather(b"[%b]" % b",".join(mine))
        return self.join_shares([decode(part) for part in parts]) if self.is_global_zero else []

    def lead(self, act: Callable[P, T], *args: P.args, **keywords: P.kwargs) -> T:
        """Call ``act(*args)`` on rank 0 while the other ranks wait; returns its result on every
        rank."""
        return self.broadcast(self.alone(act, *args, **keywords))

    def alone(self, act: Callable[P, T], *args: P.args, **keywords: P.kwargs) -> T:
        """Call ``act(*args)`` on rank 0, whose result stays there; elsewhere it is nothing, which
        can only be handed on. The others wait at their next collective."""
        if not self.is_global_zero:
            nothing: Any = None
            value: T = nothing
            return value
        heartbeat.name("leading")
        return act(*args, **keywords)

    def consult(
        self,
        answer: Callable[[Question], Answer],
        act: Callable[P, Generator[Question, Answer, T]],
        *args: P.args,
        **keywords: P.kwargs,
    ) -> T:
        """Run ``act(*args)`` on rank 0, a generator that yields questions; its result stays there,
        as in ``alone``.

        Each question is broadcast, and every rank calls ``answer`` with it: a collective, such as a
        ``map``, whose result on rank 0 is sent to the generator.
        """
        steps, answered, nothing = self.alone(act, *args, **keywords), None, (None, None)
        while True:
            question, value = self.alone(_advance, steps, answered) or nothing
            question = self.broadcast(question)
            if question is None:
                result: T = value
                return result
            answered = answer(question)

    def facts(self) -> dict[str, Json]:
        """Return facts about the machine for run.json: this rank's device and its name, world size,
        CPU threads per rank."""
        device = self.fabric.device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        threads = torch.get_num_threads()
        return {
            "device": self.device,
            "device_name": name,
            "world_size": self.world_size,
            "torch_threads": threads,
        }


def _advance(steps: Any, answer: Any) -> tuple[Any, Any]:
    """The next question of a generator and None, or None and what it returned."""
    try:
        return steps.send(answer), None
    except StopIteration as end:
        return None, end.value


def encode(value: Json) -> bytes:
    """``value`` as JSON bytes. Escaped to ASCII, so text with lone surrogates, which models do
    produce, survives."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def decode(data: bytes) -> Any:
    """The value that ``encode`` was given, with tuples as lists and keys as strings."""
    return json.loads(data)


def pack(value: Any) -> bytes:
    """``value`` as bytes for ``gather``: tensors, in dicts and lists with what JSON can hold."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def unpack(data: bytes) -> Any:
    """The value that ``pack`` was given, its tensors on the devices that they came from."""
    return torch.load(io.BytesIO(data), weights_only=True)


def run(settings: FabricConfig, main: Callable[[World], int]) -> int:
    """Launch, and run ``main`` on every rank; returns what it returns.

    With one process, what ``main`` raises comes out as it is, a KeyboardInterrupt too, and signals
    stay the caller's. With several, an error or a signal ends this process here, with the message
    on rank 0 alone (``lifetime.end`` says why), and the caller never sees it.
    """
    # cuBLAS may otherwise choose another workspace for each stream, and other bits ("Results
    # reproducibility" in its docs).
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    lifetime.die_with_launcher()
    lifetime.set_resume(None)
    signals = lifetime.watch_signals()
    try:
        devices.check(settings)
        fabric, children = placement.launch(settings, signals.start)
        devices.check_precision(fabric.device, settings.precision)
    except InputError:  # wrong on all ranks alike, and nothing is connected yet
        signals.stop()
        if lifetime.leads():
            raise
        lifetime.end(InputError.exit_code)
    except RankError as error:
        if signals.started:
            end_with(error)
        raise
    world, threads = World(fabric), torch.get_num_threads()
    # Not what the cores, a launcher or OMP_NUM_THREADS would have: sums on another number of
    # threads round otherwise.
    torch.set_num_threads(settings.threads)
    try:
        return (
            main(world) if world.world_size == 1 else _run_watched(world, settings, children, main)
        )
    finally:
        children.watched.set()
        lifetime.before_end(None)
        signals.stop()
        torch.set_num_threads(threads)


def _run_watched(
    world: World, settings: FabricConfig, children: placement.Children, main: Callable[[World], int]
) -> int:
    """``main`` under the watchdog, from the first collective to the last."""
    watchdog = Watchdog(
        world.rank,
        world.world_size,
        settings.timeout_s,
        settings.load_timeout_s,
        children.how_ended,
    )
    try:
        host = _find_host(world)
        watchdog.meet(
            world.broadcast(watchdog.listen(host) if world.is_global_zero else ("", 0, ""))
        )
    except RankError as error:
        end_with(error)
    children.watched.set()
    try:
        code = main(world)
        with world.together("the end"):
            world.fabric.barrier()
        with heartbeat.at("parting"):
            torch.distributed.destroy_process_group()
    except (Exception, SystemExit) as error:
        if lifetime.has_lost_reader(error):
            lifetime.end(lifetime.fall_silent())
        watchdog.fail(
            error
            if isinstance(error, StagebError)
            else rank_error(world.rank, error, heartbeat.now().label)
        )
    watchdog.close()
    return code


def _find_host(world: World) -> str:
    """The address at which ranks find rank 0: 127.0.0.1 where all are on one machine. Otherwise the
    launcher's main address, as the first rank sees it that does not take it for its own machine, as
    rank 0 may by a line in /etc/hosts. Raises RankError."""
    strategy = world.fabric.strategy
    environment = getattr(strategy, "cluster_environment", None)
    if getattr(strategy, "num_nodes", 1) == 1 or environment is None:
        return "127.0.0.1"
    try:
        mine = meeting.resolve(str(environment.main_address))
    except OSError as error:
        raise rank_error(world.rank, error, f"looking up {environment.main_address}") from error
    seen: list[str] = world.collect(mine)
    return next(
        (each for each in seen if not ipaddress.ip_address(each.partition("%")[0]).is_loopback),
        mine,
    )
