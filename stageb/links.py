"""Framed JSON messages between rank 0 and one other rank, with heartbeats, on a gloo group that carries nothing else.

Rank 0 holds a link to every rank, each other rank one link to rank 0. A link has two threads: one sends what is posted, in
order, and a heartbeat when nothing was; the other receives. So posting never blocks, a busy main thread neither delays nor
fakes a sign of life, and a peer's death is noticed at once, as a closed connection, by the receive that is always posted.

A frame is two integers (kind, length) and then the bytes of a JSON document, so a status is known before its payload
comes. JSON and not pickle: bytes from another process are data, never code, and rank 0 sees the same values whether a
result was made next door or on another machine. Gloo and not NCCL: NCCL would need the device that a rank keeps busy.

What a heartbeat says: the peer's process runs and its interpreter is not locked up. It does not say that its main
thread gets anywhere; for that, see how ``runtime`` counts finished items.
"""

from __future__ import annotations

import json
import queue
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from enum import IntEnum
from typing import Any, TypeAlias

import torch
import torch.distributed

Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None


class Kind(IntEnum):
    """What a message is. STOP, END and BYE are the last that their sender says."""

    BEAT = 0  # both ways: still here
    HELLO = 1  # both: the process and its machine, so that a stuck peer can be killed
    AGREE = 2  # worker: the value that it holds; rank 0: all hold the same
    READY = 3  # worker: its handlers are built
    JOB = 4  # rank 0: items to work on
    RESULT = 5  # worker: one item's result
    ERROR = 6  # worker: it failed; nothing follows
    STOP = 7  # rank 0: the work is done
    BYE = 8  # worker: understood
    END = 9  # rank 0: the job failed; leave


LAST = (Kind.STOP, Kind.BYE, Kind.END)


def encode(value: Json) -> bytes:
    """``value`` as JSON bytes. Escaped to ASCII, so text with lone surrogates, which models do produce, survives."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def decode(data: bytes) -> Any:
    """The value that ``encode`` was given, with tuples as lists and keys as strings."""
    return json.loads(data)


class Link:
    """Messages to and from ``peer``. ``on_message`` and ``on_lost`` are called by the receiving thread."""

    def __init__(
        self,
        peer: int,
        group: torch.distributed.ProcessGroup,
        patience_s: float,
        beat_s: float,
        on_message: Callable[[int, Kind, Any], None],
        on_lost: Callable[[int, str], None],
    ) -> None:
        self.peer = peer
        self._group = group
        self._patience_s = patience_s
        self._beat_s = beat_s
        self._on_message = on_message
        self._on_lost = on_lost
        self.closed = threading.Event()  # the peer has said its last, or has ended without
        self._outbox: queue.SimpleQueue[tuple[Kind, bytes]] = queue.SimpleQueue()
        self._sender = threading.Thread(target=self._send_all, daemon=True, name=f"stageb-to-{peer}")
        self._receiver = threading.Thread(target=self._receive_all, daemon=True, name=f"stageb-from-{peer}")

    def start(self) -> None:
        """Begin to send and to receive."""
        self._sender.start()
        self._receiver.start()

    def post(self, kind: Kind, payload: bytes = b"") -> None:
        """Send a message soon. Never blocks."""
        self._outbox.put((kind, payload))

    def finish(self) -> None:
        """Wait until both sides have said their last."""
        self._receiver.join()
        self._sender.join()

    def _send_all(self) -> None:
        kind = None
        try:
            while kind not in LAST:
                try:
                    kind, payload = self._outbox.get(timeout=self._beat_s)
                except queue.Empty:
                    kind, payload = Kind.BEAT, b""
                self._send(torch.tensor([kind, len(payload)], dtype=torch.int64))
                if payload:
                    self._send(torch.frombuffer(bytearray(payload), dtype=torch.uint8))
        except RuntimeError:
            return  # the receiving side sees the same closed connection, and says so

    def _receive_all(self) -> None:
        kind = None
        while kind not in LAST:
            began = time.monotonic()
            try:
                header = self._receive(torch.empty(2, dtype=torch.int64))
                kind, length = Kind(int(header[0])), int(header[1])
                payload = self._receive(torch.empty(length, dtype=torch.uint8)).numpy().tobytes() if length else b""
            except RuntimeError as error:
                silent = time.monotonic() - began >= self._patience_s
                if not silent:
                    self.closed.set()
                self._on_lost(
                    self.peer,
                    f"no sign of life for {self._patience_s:g} s" if silent else f"its connection closed ({_brief(error)})",
                )
                return
            if kind in LAST:
                self.closed.set()
            if kind is not Kind.BEAT:
                self._on_message(self.peer, kind, decode(payload) if payload else None)

    def _send(self, tensor: torch.Tensor) -> None:
        torch.distributed.send(tensor, dst=self.peer, group=self._group)

    def _receive(self, tensor: torch.Tensor) -> torch.Tensor:
        work = torch.distributed.irecv(tensor, src=self.peer, group=self._group)
        assert work is not None  # None means: not a member of the group
        work.wait(timedelta(seconds=self._patience_s))
        return tensor


def _brief(error: Exception) -> str:
    """Gloo's first sentence, without the place in its source that it begins with."""
    return re.sub(r"^\[[^]]*\] ", "", str(error).partition("\n")[0]).partition(". ")[0]
