"""``stageb serve RUN --port 8080``: the command, its socket and its end.

One process judges: rules as code take some ten microseconds a ticket, so a core does tens of
thousands a second. SIGTERM and SIGINT end it in good order: no new connection is taken, requests in
progress are answered, and the exit code is 0.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from stageb.errors import ConfigError, shown
from stageb.guidance.commands.serve.app import Service
from stageb.guidance.commands.serve.served import GuidanceInUse
from stageb.guidance.commands.use.config import ServeConfig
from stageb.job import lifetime

KEPT_S = 5  # that a connection is kept without a request
BACKLOG = 128  # connections that wait to be taken


def main(config: ServeConfig) -> int:
    """The command; returns 0 once a signal has ended it. Raises ``InputError`` before anything is
    answered where something cannot be used."""
    in_use = GuidanceInUse(config)
    listening = _listen(config)
    for said in (*in_use.served.describe(), *_describe_reach(config)):
        _tell(said)
    host, port = listening.getsockname()[:2]
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    print(f"serving {shown(config.guidance, 200)} at {address} (Ctrl-C ends it)", flush=True)
    options = uvicorn.Config(
        Service(config, in_use, _tell).make_app(),
        http=Protocol,
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=config.max_connections,
        timeout_keep_alive=KEPT_S,
        timeout_graceful_shutdown=ceil(config.max_seconds),
    )
    Protocol.max_seconds = config.max_seconds
    Server(options).run(sockets=[listening])
    return 0


class Protocol(H11Protocol):
    """HTTP/1.1 that closes a connection on which the head of a request does not come in time; of a
    body, ``app`` sees to that."""

    max_seconds = 10.0
    _closing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A connection was taken."""
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Some bytes came."""
        super().data_received(data)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """It was closed."""
        if self._closing:
            self._closing.cancel()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        """Begin to wait where a head is due, and end it where one has come."""
        if self.conn.their_state is not h11.IDLE and self._closing:
            self._closing.cancel()
            self._closing = None
        elif self.conn.their_state is h11.IDLE and not self._closing:
            self._closing = self.loop.call_later(self.max_seconds, self.transport.close)


class Server(uvicorn.Server):
    """The server, which a signal ends in good order as a success."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """While it serves, it answers the signals."""
        with lifetime.hand_over_signals(self.handle_exit):
            yield


def _listen(config: ServeConfig) -> socket.socket:
    """A socket that listens. Raises ``ConfigError`` where there can be none."""
    try:
        found = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            "host", config.host, f"{error}; name an address of this machine: 127.0.0.1, or 0.0.0.0"
        ) from None
    family, kind, protocol, _, address = found[0]
    listening = socket.socket(
        family, kind, protocol
    )  # asyncio writes at once (TCP_NODELAY) where it is told that this is TCP
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise ConfigError(
            "port", config.port, f"{error.strerror} at {config.host}; choose another, or 0"
        ) from None
    return listening


def _describe_reach(config: ServeConfig) -> Iterator[str]:
    """Who can ask, where that is more than this machine."""
    with_name = config.host if config.host != "localhost" else "127.0.0.1"
    try:
        is_own = ipaddress.ip_address(with_name).is_loopback
    except ValueError:
        is_own = False
    if not is_own:
        yield (
            f"whoever reaches {config.host} can ask, without a login and without TLS: put a "
            f"proxy before it that has both"
        )


def _tell(said: str) -> None:
    print(shown(f"stageb serve: {' '.join(said.split())}", 2000), file=sys.stderr, flush=True)
