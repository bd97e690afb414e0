"""The watchdog: ends the whole job, with one message that names the rank, as soon as any rank
cannot go on. Carries no data.

Every rank but 0 holds one connection to rank 0, on which both tell each other that they live and
what they are at (``heartbeat``). A thread of its own listens, so a main thread deep inside a
collective neither delays a sign of life nor fakes one. Plain sockets (``meeting``): a process that
ends closes them at once, whatever launched it, and no collective has a part in them. What is said
on them, and how long that may be, is checked as anything that comes from outside.

What ends a job, on rank 0, which speaks for all:

- *An error*: a rank reports it and waits for the end. Bad input on another rank waits until rank 0
  has read its own, since what is wrong for all ranks is best said once, as it is.
- *A closed connection*: that process has ended.
- *Silence* for ``timeout_s``: its process is stopped, or its interpreter locked up. If that is rank
  0, rank 1 speaks, half as long again later, and on machines that rank 1 is not on the first of
  their ranks.
- *No progress* for ``timeout_s``: a rank is at work that must get on (``heartbeat.at``) and neither
  finishes nor ticks.
- *No progress* for ``load_timeout_s``: a rank is at anything else, such as loading a model, or
  deciding and writing on rank 0, and neither goes on to another thing nor ticks. Its watchdog ticks
  for it while it reads or writes a disk.
- *All wait*: every rank has been in a collective for ``timeout_s``, so none will ever come.
- *A message that cannot be read.* Half a message, and then nothing, is silence.

What it cannot tell: how long a rank takes to leave, once all have come to their end.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any, NoReturn

from stageb.errors import InputError, RankError, StagebError
from stageb.job import heartbeat, lifetime, meeting
from stageb.job.heartbeat import Heartbeat
from stageb.job.meeting import Address, Channel

LOOK_S = 0.25  # between two looks at who is silent or stuck
LAST_S = 0.5  # for other ranks to leave by themselves
SIGNALLED = 128  # exit codes of processes that a signal has ended lie above
MESSAGE_BYTES = 2_000_000  # of one message, at most
# characters of each that are sent, at most: up to 12 bytes each
LABEL, CAUSE, TRACE = 1_000, 50_000, 50_000


@dataclass
class _Activity:
    """A rank's current work, and since when it has made no progress."""

    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    since: float = field(default_factory=time.monotonic)

    def update(self, now: Heartbeat) -> None:
        """Take in its latest heartbeat."""
        if now != self.heartbeat:
            self.heartbeat, self.since = now, time.monotonic()


@dataclass
class _Peer(_Activity):
    """The other end of a connection."""

    channel: Channel = field(kw_only=True)
    process: int | None = field(kw_only=True)  # its id, where it runs on this machine
    last_heard: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)  # one sender at a time
    # Nothing more is sent: this side has said bye (a process that exits with unread input resets
    # what it sent), or the other end was too slow to take in a message.
    is_muted: bool = False

    def send(self, *message: Any) -> None:
        """Send a message. A closed connection is noticed when receiving, not here."""
        with self.lock:
            self._send(message)

    def send_last(self, *message: Any) -> None:
        """Send a message if that takes no longer than ``LAST_S``."""
        if self.lock.acquire(timeout=LAST_S):
            self.channel.connection.settimeout(LAST_S)
            self._send(message)
            self.lock.release()

    def _send(self, message: tuple[Any, ...]) -> None:
        if not self.is_muted:
            self.is_muted = message[0] == "bye"
            try:
                self.channel.send(json.dumps(message).encode())
            except OSError:
                self.is_muted = True


class _UnknownMessageError(Exception):
    """JSON that is no message of ours."""


class Watchdog:
    """One rank's watch. ``how_ended`` tells how another rank's process ended, where this process
    can know."""

    def __init__(
        self,
        rank: int,
        world_size: int,
        timeout_s: float,
        load_timeout_s: float,
        how_ended: Callable[[int], str | None] = lambda rank: None,
    ) -> None:
        self._rank = rank
        self._world_size = world_size
        self._patience = timeout_s if rank == 0 else 1.5 * timeout_s
        self._limits = {"working": timeout_s, "waiting": timeout_s, "quiet": load_timeout_s}
        self._beat_s = min(10.0, timeout_s / 5)
        self._how_ended = how_ended
        self._peers: dict[int, _Peer] = {}
        self._own = _Activity()
        self._rank_0_lost = False
        # bad input on another rank, while rank 0 still reads its own
        self._early: RankError | None = None
        self._closing = False
        self._server: socket.socket | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True, name="stageb-watchdog")

    def listen(self, host: str) -> Address:
        """On rank 0: listen for the other ranks at ``host``; returns the address to call. Raises
        ``RankError``."""
        try:
            self._server = meeting.listen(host)
        except OSError as error:
            raise RankError(
                self._rank, "launch", f"no port can be opened at {host}: {error}"
            ) from error
        return host, self._server.getsockname()[1], secrets.token_hex(16)

    def meet(self, address: Address) -> None:
        """Connect every rank with rank 0 and begin to watch. Raises ``RankError`` where that
        fails."""
        try:
            if self._server:
                with self._server:
                    ranks = meeting.welcome(
                        self._server, address[2], self._world_size, self._patience
                    )
            else:
                ranks = {0: meeting.call(address, self._rank, self._patience)}
        except OSError as error:
            raise RankError(
                self._rank, "launch", f"the ranks could not connect: {error}"
            ) from error
        self._peers = {
            rank: _Peer(channel=met.channel, process=met.process) for rank, met in ranks.items()
        }
        self._everyone = list(self._peers.values())
        lifetime.before_end(self._end_others)
        if self._rank:
            heartbeat.listen(lambda now: self._peers[0].send(*_encode_heartbeat(now)))
        self._thread.start()

    def fail(self, error: StagebError) -> NoReturn:
        """End the job with ``error`` of this rank."""
        if self._rank == 0:
            end_with(error)
        failure = (
            error
            if isinstance(error, RankError)
            else rank_error(self._rank, error, heartbeat.now().label)
        )
        where, cause, trace = failure.where[:LABEL], failure.cause[:CAUSE], failure.trace[-TRACE:]
        self._peers[0].send("error", self._rank, where, cause, trace, isinstance(error, InputError))
        threading.Event().wait()  # until rank 0, or its silence, ends this process
        raise AssertionError

    def close(self) -> None:
        """Shut down in good order: from now on other ranks may end. Returns when all ranks have
        called this. Rank 0 leaves last; until then it sends heartbeats and watches those that still
        work."""
        heartbeat.listen(None)
        self._closing = True
        if self._rank:
            self._everyone[0].send("bye")
        self._thread.join()
        lifetime.before_end(None)
        for peer in self._everyone:
            peer.send("bye")

    def _end_others(self, code: int) -> None:
        """The last act of ``lifetime.end``: rank 0 ends the others with the same code; another rank
        that got a signal asks rank 0 to. Then the rank that prints the message kills those on its
        machine that do not end: a stopped or locked-up rank would stay, or hold up torchrun's agent
        for half a minute."""
        for peer in self._everyone:
            if self._rank == 0 or code > SIGNALLED:
                peer.send_last("end", code)
        deadline = time.monotonic() + LAST_S
        speaks = self._rank == 0 or self._rank_0_lost
        near = (
            [peer.process for peer in self._everyone if peer.process is not None] if speaks else []
        )
        while near and time.monotonic() < deadline:
            time.sleep(0.02)
            near = [process for process in near if _send_signal(process)]
        for process in near:
            _send_signal(process, signal.SIGKILL)

    def _watch(self) -> None:
        beat, traffic = 0.0, heartbeat.disk_traffic()
        while self._peers or not self._closing:
            ready = wait(
                [peer.channel.connection for peer in self._peers.values()],
                min(LOOK_S, self._beat_s),
            )
            for rank, peer in list(self._peers.items()):
                self._receive(rank, peer, peer.channel.connection in ready)
            before, traffic = traffic, heartbeat.disk_traffic()
            if traffic != before and heartbeat.now().kind == "quiet":
                heartbeat.tick()
            now = time.monotonic()
            if now - beat >= self._beat_s:
                beat = now
                for peer in self._everyone:
                    peer.send(*_encode_heartbeat(heartbeat.now()))
            self._check_ranks(now)

    def _receive(self, rank: int, peer: _Peer, more: bool) -> None:
        """Handle the messages of a rank; ``more``: whether there is input to read."""
        try:
            if more:
                peer.channel.read(MESSAGE_BYTES)
            while peer.channel.lines:
                line = peer.channel.lines.popleft()
                peer.last_heard = time.monotonic()
                self._handle(rank, peer, json.loads(line))
        except (OSError, EOFError):
            self._report_lost(rank, "its connection closed")
        except _UnknownMessageError:
            self._report_lost(rank, f"it sent a message that cannot be read: {line[:100]!r}")
        except (ValueError, RecursionError) as error:  # no JSON, too deeply nested, too long
            self._report_lost(rank, f"it sent a message that cannot be read: {error}")

    def _handle(self, rank: int, peer: _Peer, message: Any) -> None:
        match message:
            case ["heartbeat", str(label), ("working" | "waiting" | "quiet") as kind, int(count)]:
                peer.update(Heartbeat(label, kind, count))
            case ["error", int(which), str(where), str(cause), str(trace), bool(early_input)]:
                failure = RankError(which, where, cause, trace)
                if not early_input:
                    end_with(failure)
                self._early = self._early or failure
            case ["end", int(code)] if self._rank or code > SIGNALLED:
                lifetime.end(code, "" if self._rank else lifetime.interrupted(code - SIGNALLED))
            case ["bye"]:
                del self._peers[rank]
            case _:
                raise _UnknownMessageError

    def _check_ranks(self, now: float) -> None:
        """End the job if a rank is silent or stuck."""
        for rank, peer in self._peers.items():
            if now - peer.last_heard >= self._patience:
                silent = f"no sign of life for {self._patience:g} s"
                if peer.process is not None:
                    self._report_lost(rank, silent)
                remedy = (
                    "; check that machine and the network to it, then run the same command "
                    "to resume"
                )
                self._report_lost(rank, f"{silent} from {peer.channel.address}", remedy)
        if self._rank:
            return
        self._own.update(heartbeat.now())
        if self._early and self._own.heartbeat.kind == "waiting":
            end_with(self._early)
        ranks: dict[int, _Activity] = {**({} if self._closing else {0: self._own}), **self._peers}
        late = (
            (rank, seen)
            for rank, seen in ranks.items()
            if now - seen.since > self._limits[seen.heartbeat.kind]
        )
        stuck = {rank: seen.heartbeat for rank, seen in late}
        for rank, at in stuck.items():
            if at.kind != "waiting":
                place = at.kind, at.label
                same = [
                    other
                    for other, seen in ranks.items()
                    if (seen.heartbeat.kind, seen.heartbeat.label) == place
                ]
                also = "".join(f"; rank {other} is there too" for other in same if other != rank)
                quiet = at.kind == "quiet"
                what, key = (
                    ("sign of life and no disk traffic", "load_timeout_s")
                    if quiet
                    else ("progress", "timeout_s")
                )
                cause = (
                    f"no {what} for {self._limits[at.kind]:g} s (fabric.{key}): considered "
                    f"hung{also}"
                )
                end_with(RankError(rank, at.label, cause))
        if len(stuck) == self._world_size and all(at.kind == "waiting" for at in stuck.values()):
            others = "; ".join(
                f"rank {rank} at {stuck[rank].label}" for rank in sorted(stuck) if rank
            )
            end_with(
                RankError(
                    0,
                    stuck[0].label,
                    f"every rank waits for the others: {others}; they ran different code",
                )
            )

    def _report_lost(self, rank: int, why: str, remedy: str = "") -> NoReturn:
        if self._rank == 0:
            end_with(
                RankError(
                    rank, self._peers[rank].heartbeat.label, (self._how_ended(rank) or why) + remedy
                )
            )
        if self._rank > 1 and (self._peers[0].process is not None or not lifetime.leads_machine()):
            # rank 1 speaks for those on rank 0's machine, and on any other the first of its ranks
            time.sleep(1.0)
            lifetime.end(1)
        self._rank_0_lost = True
        end_with(RankError(0, "leading", f"{why}, as rank {self._rank} sees it{remedy}"))


def _send_signal(process: int, number: int = 0) -> bool:
    """Send a signal to a process (0: none); whether there is such a process."""
    with contextlib.suppress(OSError):
        os.kill(process, number)
        return True
    return False


def _encode_heartbeat(now: Heartbeat) -> tuple[str, str, str, int]:
    """The message for the heartbeat ``now``."""
    return "heartbeat", now.label[:LABEL], now.kind, now.count


def end_with(error: StagebError) -> NoReturn:
    """End this process and the job. ``error`` is printed last, after the traceback if it was a
    bug."""
    lifetime.end(error.exit_code, getattr(error, "trace", "") + str(error))


def rank_error(rank: int, error: BaseException, where: str) -> RankError:
    """The RankError for an ``error`` on ``rank``, with its traceback where stageb did not raise it
    on purpose. The place is the innermost note (``errors.at``), or else ``where``."""
    place = getattr(error, "__notes__", [where])[0]
    if isinstance(error, StagebError):
        return RankError(rank, place, str(error))
    trace = "".join(traceback.format_exception(error))
    return RankError(rank, place, f"{type(error).__name__}: {error}", trace)
