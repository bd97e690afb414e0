"""How ranks find each other: by which address, and how each end of a call proves that it belongs to
the job.

Anybody who reaches the port may call while rank 0 listens, so nothing rests on what a stranger says
or leaves unsaid. A call is a handful of lines: each end says who it is and names a number that it
has just drawn; each proves, by an HMAC of both lines, that it knows the job's word, which rank 0
drew and ranks share through their process group. The word itself is not sent here, no proof serves
twice, and what one end proves is no proof from the other. The calling rank proves first; rank 0
answers all at once when every rank is there, so nobody begins to watch before. Until then nobody
waits for a stranger: rank 0 reads whatever has come from whomever, at most ``HELLO_BYTES`` a line,
and hangs up after ``HELLO_S``, or on the oldest where too many hold on. A rank that was taken for
one of many strangers calls again.

Left out: later messages are not signed or encrypted. Who can alter what travels between the hosts
of a job can alter its collectives too.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import ipaddress
import json
import os
import secrets
import socket
import time
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from stageb.job import lifetime

ROUTES = Path("/proc/net/route")
IS_UP = 1  # RTF_UP of linux/route.h


def resolve(host: str) -> str:
    """The address that ``host`` resolves to on this machine, preferably IPv4. Raises OSError,
    UnicodeError."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return str(min(found, key=lambda each: each[0] != socket.AF_INET)[4][0])


def interface_to(address: ipaddress.IPv4Address) -> str | None:
    """The interface of the most specific route to ``address``; None without a route, or if routes
    are unknown (not Linux).

    This machine's own address counts as one of the network that it is in, and loopback as any
    remote address.
    """
    try:
        rows = [line.split() for line in ROUTES.read_text().splitlines()[1:]]
    except OSError:  # not Linux
        return None
    found = []
    for name, destination, _, flags, _, _, metric, mask, *_ in rows:
        network, bits = (
            int.from_bytes(bytes.fromhex(text)[::-1], "big") for text in (destination, mask)
        )
        if int(address) & bits == network and int(flags, 16) & IS_UP:
            found.append((-bits, int(metric), name))
    return min(found)[2] if found else None


MEET_S = 60.0  # for all ranks to find rank 0, once they have met in the process group
HELLO_S = 5.0  # for whoever calls to prove that it is a rank, and for rank 0 to pick up
AGAIN_S = 0.1  # from a call that came to nothing to the next
STRANGERS = 256  # held at a time, at most
ACCEPTED = 16  # taken in between two looks at what was said, at most
HELLO_BYTES = 1_000  # of a line from somebody who has proved nothing
CHUNK_BYTES = 65_536  # read at once

Address = tuple[str, int, str]  # host, port, and the word that only ranks of this job know


class Channel:
    """A connection that carries lines. Any thread may send, one at a time; one reads, and no more
    than has come."""

    def __init__(self, connection: socket.socket, patience: float) -> None:
        """``patience`` is how long the other end may take to take a line in."""
        connection.settimeout(patience)
        self.connection = connection
        self.lines = deque[bytes]()  # that have come
        self._rest = b""  # of a line that has begun to come

    def send(self, line: bytes) -> None:
        """Raises OSError, after which nothing that is sent can be read."""
        self.connection.sendall(line + b"\n")

    def read(self, limit: int) -> None:
        """Receive what has arrived, at least one byte. Raises EOFError if the other end hung up,
        ValueError if a line is longer than ``limit`` bytes, OSError."""
        data = self.connection.recv(CHUNK_BYTES)
        if not data:
            raise EOFError("its connection closed")
        *lines, self._rest = (self._rest + data).split(b"\n")
        if max(map(len, [*lines, self._rest])) > limit:
            raise ValueError(f"a message longer than {limit} bytes")
        self.lines.extend(lines)

    def read_line(self, deadline: float) -> bytes:
        """The next line, of at most ``HELLO_BYTES``. Raises TimeoutError, and what ``read``
        raises."""
        while not self.lines:
            if not wait([self.connection], max(0.0, deadline - time.monotonic())):
                raise TimeoutError("rank 0 does not answer")
            self.read(HELLO_BYTES)
        return self.lines.popleft()

    @property
    def address(self) -> str:
        """The other end's machine, as this one knows it."""
        try:
            return str(self.connection.getpeername()[0])
        except OSError:
            return "a machine that is gone"

    def close(self) -> None:
        """Hang up."""
        self.connection.close()


@dataclass(frozen=True)
class Rank:
    """A rank that has proved to be one."""

    rank: int
    process: int | None  # its id, where it runs on this machine
    channel: Channel


@dataclass(eq=False)
class _Caller:
    """Somebody who calls rank 0."""

    channel: Channel
    greeting: bytes  # the hello that rank 0 sent it
    since: float = field(default_factory=time.monotonic)
    rank: Rank | None = None  # once it has proved to be one, as these
    hello: bytes = b""

    def fileno(self) -> int:
        """For whoever waits for something to come."""
        return self.channel.connection.fileno()


def listen(host: str) -> socket.socket:
    """A server socket for the other ranks at ``host``, the name by which they know this machine. If
    that is the address of a router, the socket is bound to this machine's own address on the way
    there. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, 0), family=family, backlog=1024)
    except OSError:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:  # sends nothing
            probe.connect((host, 9))
            return socket.create_server((probe.getsockname()[0], 0), family=family, backlog=1024)


def welcome(server: socket.socket, word: str, world_size: int, patience: float) -> dict[int, Rank]:
    """On rank 0: the other ranks, once all have called. Raises TimeoutError, which says who has
    not."""
    server.setblocking(False)
    deadline = time.monotonic() + MEET_S
    callers: list[_Caller] = []  # in the order in which they called
    while missing := set(range(1, world_size)) - {each.rank.rank for each in callers if each.rank}:
        left = deadline - time.monotonic()
        if left <= 0:
            _hang_up(callers)
            raise TimeoutError(
                f"{', '.join(f'rank {rank}' for rank in sorted(missing))} did not connect "
                f"within {MEET_S:g} s"
            )
        everybody: list[Any] = [server, *callers]
        for ready in wait(everybody, min(left, HELLO_S)):
            if isinstance(ready, _Caller) and not _listen_to(ready, word, missing):
                ready.channel.close()
                callers.remove(ready)
            elif ready is server:
                callers += _accept_callers(server, patience)
        strangers = [each for each in callers if each.rank is None]
        over = max(0, len(strangers) - STRANGERS)
        late = [
            each
            for n, each in enumerate(strangers)
            if n < over or time.monotonic() - each.since > HELLO_S
        ]
        _hang_up(late)
        callers = [each for each in callers if each not in late]
    _hang_up([each for each in callers if each.rank is None])
    for each in callers:
        with contextlib.suppress(OSError):  # who is gone again is noticed by whoever watches
            each.channel.send(_compute_proof(word, "rank 0", each.hello, each.greeting))
    return {each.rank.rank: each.rank for each in callers if each.rank}


def call(address: Address, rank: int, patience: float) -> Rank:
    """Rank 0, once it has taken in every rank. Raises TimeoutError, which says what the last call
    came to."""
    deadline = time.monotonic() + MEET_S
    while True:
        try:
            return _call(address, rank, patience, deadline)
        except (OSError, EOFError, ValueError) as error:
            if time.monotonic() + AGAIN_S > deadline:
                raise TimeoutError(
                    f"no rank 0 at {address[0]} port {address[1]} within {MEET_S:g} s: {error}"
                ) from error
            time.sleep(AGAIN_S)


def _call(address: Address, rank: int, patience: float, deadline: float) -> Rank:
    host, port, word = address
    soon = min(deadline, time.monotonic() + HELLO_S)
    connection = socket.create_connection((host, port), max(0.01, soon - time.monotonic()))
    with contextlib.ExitStack() as unless_met:
        channel = Channel(connection, patience)
        unless_met.callback(channel.close)
        mine = _make_hello(rank)
        channel.send(mine)
        its = channel.read_line(soon)
        channel.send(_compute_proof(word, "caller", mine, its))
        if not hmac.compare_digest(
            channel.read_line(deadline), _compute_proof(word, "rank 0", mine, its)
        ):
            raise ValueError("the listener there does not belong to this job")
        unless_met.pop_all()
    return Rank(0, _parse_hello(its)[1], channel)


def _accept_callers(server: socket.socket, patience: float) -> list[_Caller]:
    """Some of the new callers, each sent rank 0's hello."""
    new: list[_Caller] = []
    # nobody else has; or there are no more file descriptors, and some leave soon
    with contextlib.suppress(OSError):
        while len(new) < ACCEPTED:
            connection, _ = server.accept()
            new.append(_Caller(Channel(connection, patience), _make_hello(0)))
            with contextlib.suppress(OSError):
                new[-1].channel.send(new[-1].greeting)
    return new


def _listen_to(caller: _Caller, word: str, missing: set[int]) -> bool:
    """Read from ``caller``, which may prove that it is a rank; whether to keep the connection."""
    try:
        caller.channel.read(HELLO_BYTES)
        lines = caller.channel.lines
        if len(lines) < 2 and caller.rank is None:
            return True
        hello, proof = lines  # one more, or anything after a proof, is not as ranks speak
        if not hmac.compare_digest(proof, _compute_proof(word, "caller", hello, caller.greeting)):
            return False
        rank, process = _parse_hello(hello)
        if rank not in missing:
            return False
        caller.rank, caller.hello = Rank(rank, process, caller.channel), hello
        lines.clear()
        missing.remove(rank)
        return True
    except (OSError, EOFError, ValueError):
        return False


def _hang_up(callers: list[_Caller]) -> None:
    for each in callers:
        each.channel.close()


def _make_hello(rank: int) -> bytes:
    """Who this is, and a number drawn for this call."""
    return json.dumps([rank, lifetime.machine(), os.getpid(), secrets.token_hex(16)]).encode()


def _parse_hello(hello: bytes) -> tuple[int, int | None]:
    """The rank that sent ``hello``, and its process id if it runs on this machine. Only for a rank
    that has proved to be one."""
    rank, machine, process, _ = json.loads(hello)
    return int(rank), int(process) if machine == lifetime.machine() else None


def _compute_proof(word: str, role: str, caller: bytes, rank_0: bytes) -> bytes:
    """The proof that the end of a call with this ``role`` knows the ``word``: an HMAC of both
    hellos."""
    return (
        hmac.new(word.encode(), b"\n".join([role.encode(), caller, rank_0]), hashlib.sha256)
        .hexdigest()
        .encode()
    )
