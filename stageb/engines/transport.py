"""One request to a web server, whose answer ends in bytes and in time, whatever the server does.

The time limit of a socket is one of each read: a server that sends a byte now and then, or headers, or chunks without end,
keeps within it for ever. So the connection is shut down under the reader once the time of the whole request has passed.
"""

from __future__ import annotations

import http.client
import os
import socket
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

MOST_BYTES = 32 << 20  # of an answer: a hundred times what the longest ones hold, with room for what proxies pad
PIECE = 1 << 16  # bytes read at once
SAID_BYTES = 2000  # of what a server says beside an error's status


class StatusError(Exception):
    """The server answered with an error's HTTP status."""

    def __init__(self, error: urllib.error.HTTPError) -> None:
        super().__init__(f"HTTP status {error.code}")
        self.status, self.reason, self.headers = error.code, error.reason, error.headers
        try:
            self.said = error.read(SAID_BYTES)
        except (OSError, http.client.HTTPException):
            self.said = b""


class AnswerTooLongError(Exception):
    """The answer goes on beyond what any should have."""


def find_proxy(url: str) -> str | None:
    """The proxy that requests to ``url`` go through, by the environment, without a user and password; None without one."""
    asked = urllib.parse.urlsplit(url)
    proxy = urllib.request.getproxies().get(asked.scheme)
    return proxy.rpartition("@")[2] if proxy and not urllib.request.proxy_bypass(asked.netloc) else None


class Poster:
    """Sends requests to ``url``, from several threads if need be. Redirects are not followed: the headers, and so a key,
    would follow them."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout_s: float) -> None:
        self._url, self._headers, self._timeout_s = url, dict(headers), timeout_s
        self._opener = urllib.request.build_opener(_NoRedirects, _Http, _Https)

    def post(self, body: bytes) -> bytes:
        """The answer's body.

        Raises ``StatusError``, ``AnswerTooLongError``, ``TimeoutError`` where the whole has not come in time, and what the
        standard library's client raises.
        """
        deadline = _Deadline(self._timeout_s)
        asked = _Request(self._url, body, self._headers, deadline)
        try:
            with self._opener.open(asked, timeout=self._timeout_s) as response:
                answer = _read(response)
        except urllib.error.HTTPError as error:
            with error:
                raise StatusError(error) from None
        except (OSError, http.client.HTTPException, ValueError):
            if deadline.has_passed:  # it was cut off, whatever that looked like
                raise TimeoutError from None
            raise
        finally:
            deadline.close()
        if deadline.has_passed:  # where nothing tells how long an answer is, one that was cut off looks whole
            raise TimeoutError
        return answer


def _read(response: http.client.HTTPResponse) -> bytes:
    answer = bytearray()
    while piece := response.read1(PIECE):  # ``read`` would take a chunk that is said to have -1 bytes to its end at once
        answer += piece
        if len(answer) > MOST_BYTES:
            raise AnswerTooLongError(f"the answer has more than {MOST_BYTES} bytes")
    if response.length:
        raise http.client.IncompleteRead(bytes(answer[:PIECE]), response.length)
    return bytes(answer)


class _Deadline:
    """Shuts down the connections that it watches once the time of a request has passed."""

    def __init__(self, seconds: float) -> None:
        self.has_passed = False
        self._lock, self._watched = threading.Lock(), list[socket.socket]()
        self._timer = threading.Timer(seconds, self._pass)
        self._timer.daemon = True
        self._timer.start()

    def watch(self, connection: http.client.HTTPConnection) -> http.client.HTTPConnection:
        """The connection, watched as soon as it stands; the making has a time limit of its own."""
        connect = connection.connect

        def connect_watched() -> None:
            connect()
            # A descriptor of our own: the reader's may be closed, and its number be another's, by the time that it is shut.
            with self._lock:
                self._watched.append(socket.socket(fileno=os.dup(connection.sock.fileno())))
            if self.has_passed:
                self._shut()

        setattr(connection, "connect", connect_watched)  # noqa: B010 - a method, to mypy
        return connection

    def close(self) -> None:
        """Watch no longer."""
        self._timer.cancel()
        with self._lock:
            while self._watched:
                self._watched.pop().close()

    def _pass(self) -> None:
        self.has_passed = True
        self._shut()

    def _shut(self) -> None:
        with self._lock:
            for each in self._watched:
                with suppress(OSError):  # the server may have closed it
                    each.shutdown(socket.SHUT_RDWR)


class _Request(urllib.request.Request):
    """A request that knows when its time has passed."""

    def __init__(self, url: str, body: bytes, headers: dict[str, str], deadline: _Deadline) -> None:
        super().__init__(url, body, headers, method="POST")
        self.deadline = deadline


class _Watching(urllib.request.AbstractHTTPHandler):
    """Has the connection of a request watched."""

    def do_open(self, http_class: Any, req: Any, **options: Any) -> http.client.HTTPResponse:
        """See there."""
        return super().do_open(lambda *where, **how: req.deadline.watch(http_class(*where, **how)), req, **options)


class _Http(_Watching, urllib.request.HTTPHandler):
    """For http."""


class _Https(_Watching, urllib.request.HTTPSHandler):
    """For https."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer like any other."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """None: it is not followed."""
        return
