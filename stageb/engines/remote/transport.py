"""One request to a web server, whose answer ends in bytes and in time; and where there is none,
why, and what a person can do.

The time limit of a socket is one of each read: a server that sends a byte now and then, or headers,
or chunks without end, keeps within it for ever. So the connection is shut down under the reader
once the time of the whole request has passed.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import os
import re
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import suppress
from typing import Any

from stageb.errors import ConfigError, EngineError, shown

# of an answer: a hundred times what the longest ones hold, with room for what proxies pad
MOST_BYTES = 32 << 20
PIECE = 1 << 16  # bytes read at once
SECRET = 8  # characters of a key, at the least, that an answer does not hold by chance
SAID_BYTES = 2000  # of what a server says beside an error's status


class TransientError(Exception):
    """One attempt failed in a way that the next one may not."""

    def __init__(
        self, cause: str, remedy: str, pause_s: float = 0.0, patience: float = 1.0, status: int = 0
    ) -> None:
        super().__init__(cause)
        self.remedy = remedy  # should it not pass
        self.pause_s = pause_s  # what the server asked for
        self.patience = patience  # by which pauses are longer than usual
        self.status = status  # of HTTP; 0 where there was none


class RefusedError(EngineError):
    """The server will not answer a request."""

    def __init__(self, message: str, status: int, said: str) -> None:
        super().__init__(message)
        self.status = status  # of HTTP
        self.said = said  # the beginning of what the server says

    @property
    def is_filtered(self) -> bool:
        """Whether a content filter refuses what was asked."""
        return _FILTERED.search(self.said) is not None

    @property
    def is_of_fields(self) -> bool:
        """Whether the server may answer the same words in a request of other fields."""
        return self.status in UNFIT and not _TOO_LONG.search(self.said) and not self.is_filtered


def find_proxy(url: str) -> str | None:
    """The proxy that requests to ``url`` go through, by the environment, without a user and
    password; None without one."""
    asked = urllib.parse.urlsplit(url)
    proxy = urllib.request.getproxies().get(asked.scheme)
    return (
        proxy.rpartition("@")[2]
        if proxy and not urllib.request.proxy_bypass(asked.netloc)
        else None
    )


def advise_on_reach(url: str) -> str:
    """Say what to look at where the server cannot be reached."""
    proxy = find_proxy(url)
    if proxy is None:
        return UP
    server = urllib.parse.urlsplit(url)
    return (
        f"it was asked by way of the proxy {shown(proxy, 200)} ({server.scheme}_proxy): see "
        f"that both are up, or for a server that needs no proxy, add {server.hostname} to NO_PROXY"
    )


def read_key(name: str | None) -> str | None:
    """The API key that the environment variable ``name`` holds."""
    if name is None:
        return None
    key = os.environ.get(name, "").strip()
    if not key:
        raise ConfigError(
            "model.api_key_env",
            name,
            "this environment variable is not set; export it on every machine",
        )
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(
            "model.api_key_env",
            name,
            "what this environment variable holds is no key (white space, or not ASCII)",
        )
    return key


class ChatServer:
    """Takes requests at ``url``, from several threads if need be. Redirects are not followed: the
    headers, and so ``key``, would follow them. What it says is shown without the key, wherever it
    puts it."""

    def __init__(self, url: str, key: str | None, timeout_s: float) -> None:
        self.url, self._key, self._timeout_s = url, key, timeout_s
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        self._headers |= {"Authorization": f"Bearer {key}"} if key else {}
        self._opener = urllib.request.build_opener(_NoRedirects, _Http, _Https)

    def post(self, body: bytes) -> bytes:
        """Post ``body`` and return the answer's. Raises ``TransientError``, and ``RefusedError``
        for what will not pass."""
        deadline = _Deadline(self._timeout_s)
        asked = _TimedRequest(self.url, body, self._headers, deadline)
        try:
            try:
                with self._opener.open(asked, timeout=self._timeout_s) as response:
                    answer = _read(response)
            except urllib.error.HTTPError as error:
                with error:
                    raise self._explain_status(error) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            # it was cut off, whatever that looked like
            cause = TimeoutError() if deadline.has_passed else error
            raise self._explain_failure(cause) from None
        finally:
            deadline.close()
        # where nothing tells how long an answer is, one that was cut off looks whole
        if deadline.has_passed:
            raise self._explain_failure(TimeoutError())
        return answer

    def _explain_failure(self, error: Exception) -> TransientError:
        """Turn what the standard library's client raised into an error with its remedy."""
        if isinstance(error, TimeoutError):
            return TransientError(f"no answer within {self._timeout_s:g} s (model.timeout_s)", SLOW)
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            cause = f"no connection within {self._timeout_s:g} s (model.timeout_s)"
        else:
            cause = self.show(f"{type(reason).__name__}: {reason}", 200)
        is_plain = getattr(reason, "reason", "") == "WRONG_VERSION_NUMBER"  # no answer in TLS
        return TransientError(cause, PLAIN if is_plain else advise_on_reach(self.url))

    def _explain_status(self, error: urllib.error.HTTPError) -> Exception:
        """Turn an HTTP status into an error, transient or not, with its remedy."""
        try:
            said = self.show_beginning(error.read(SAID_BYTES))
        except (OSError, http.client.HTTPException):
            said = ""
        cause = (
            f"HTTP status {error.code} {self.show(error.reason, 80)}{': ' if said else ''}{said}"
        )
        remedy = find_remedy(error.code, said)
        if error.code in TRANSIENT and not _will_not_pass(said):
            # limits are often of a minute
            patience = 4.0 if error.code == LIMITED else 1.0
            remedy = remedy if error.code == LIMITED else advise_on_reach(self.url)
            pause_s = _parse_pause_s(error.headers.get("Retry-After"))
            return TransientError(cause, remedy, pause_s, patience, error.code)
        if error.code in REDIRECTS:
            there = self.show(error.headers.get("Location", "elsewhere"), 200)
            remedy = (
                f"it sends requests to {there}, where no key follows; if that is right, "
                f"give model.base_url so"
            )
        return RefusedError(f"{self.url}: {cause}; {remedy}", error.code, said)

    def show_beginning(self, said: bytes) -> str:
        """The beginning of what the server says, for a message."""
        return self.show(said[:SAID_BYTES].decode("utf-8", "replace"), 400)

    def show(self, said: str, most: int) -> str:
        """What the server says, for a message, in at most so many characters."""
        return shown(self._hide_key(said), most)

    def redact(self, text: str) -> str:
        """Hide the key in an answer; leave a key that is a word, such as EMPTY."""
        return self._hide_key(text) if len(self._key or "") >= SECRET else text

    def _hide_key(self, said: str) -> str:
        """Hide the key in the server's words: as it is, as JSON or Python write it, or the
        beginning of it where the words end."""
        key = self._key
        if not key:
            return said
        for form in {key, json.dumps(key)[1:-1], repr(key)[1:-1]}:
            said = said.replace(form, "***")
        sizes = range(len(key), SECRET - 1, -1)
        cut = next((size for size in sizes if said.endswith(key[:size])), 0)
        return f"{said[:-cut]}***" if cut else said


def _read(response: http.client.HTTPResponse) -> bytes:
    answer = bytearray()
    # ``read`` would take a chunk that is said to have -1 bytes to its end at once
    while piece := response.read1(PIECE):
        answer += piece
        if len(answer) > MOST_BYTES:
            raise TransientError(f"the answer has more than {MOST_BYTES} bytes", OTHER)
    return bytes(answer)  # of one that is cut off the JSON does not end


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
            # A descriptor of our own: the reader's may be closed, and its number be another's, by
            # the time that it is shut.
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


class _TimedRequest(urllib.request.Request):
    """A request that knows when its time has passed."""

    def __init__(self, url: str, body: bytes, headers: dict[str, str], deadline: _Deadline) -> None:
        super().__init__(url, body, headers, method="POST")
        self.deadline = deadline


class _Watching(urllib.request.AbstractHTTPHandler):
    """Has the connection of a request watched."""

    def do_open(self, http_class: Any, req: Any, **options: Any) -> http.client.HTTPResponse:
        """See there."""
        return super().do_open(
            lambda *where, **how: req.deadline.watch(http_class(*where, **how)), req, **options
        )


class _Http(_Watching, urllib.request.HTTPHandler):
    """For http."""


class _Https(_Watching, urllib.request.HTTPSHandler):
    """For https."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer like any other."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """None: it is not followed."""
        return


# What a server's statuses and words mean, which have no common form.

# from 520: Cloudflare's, and 529 of overload
TRANSIENT = (408, 425, 429, 500, 502, 503, 504, *range(520, 531))
REDIRECTS = (301, 302, 303, 307, 308)
LIMITED = 429
UNFIT = (400, 422)  # the server does not take the request as it is
FAILED = 500  # of some servers for the same, as where a chat template takes no begun answer
_FILTERED = re.compile(
    "content_filter|content management policy|content_policy|data_inspection_failed", re.IGNORECASE
)
_TOO_LONG = re.compile(
    "context (length|window|size)|maximum context|prompt is too long", re.IGNORECASE
)
_NO_QUOTA = re.compile("insufficient_quota|exceeded your current quota", re.IGNORECASE)

UP = "see that the server is up, and not overloaded"
PLAIN = "what answers speaks no https: where the server has none, write http:// in model.base_url"
SLOW = "raise model.timeout_s, or lower model.concurrency"
OTHER = (
    "see that the server is up, and speaks OpenAI's chat completions at model.base_url, "
    "which usually ends in /v1"
)
_REMEDIES = {
    400: "take out of the config what this server does not know (model.chat_template_kwargs: {} "
    "is one to try)",
    401: "name the environment variable that holds the right key in model.api_key_env",
    403: "name the environment variable that holds the right key in model.api_key_env",
    404: "look at model.base_url, which usually ends in /v1, and at model.model_name_or_path",
    LIMITED: "lower model.concurrency, or have the limit raised",
}


def _parse_pause_s(header: str | None) -> float:
    """The seconds that a Retry-After header asks for; 0 where there is none that can be read."""
    if header is None:
        return 0.0
    try:
        return max(0.0, float(header))
    except ValueError:
        try:
            return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - time.time())
        except (ValueError, OverflowError):  # the year 10^20
            return 0.0


def find_remedy(status: int, said: str) -> str:
    """Say what to do about an HTTP status that comes with the words ``said``."""
    if status == LIMITED and _has_no_quota(said):
        return "the quota of the key's account is used up: see to that with the provider"
    if status in UNFIT and _TOO_LONG.search(said):
        return (
            "lower sampler.max_prompt_tokens or the max_new_tokens asked for, or serve the "
            "model with more context"
        )
    return _REMEDIES.get(status, "look at what the server says")


def _will_not_pass(said: str) -> bool:
    """Whether what a server says beside a status that usually passes does not: llama-cpp-python
    gives 500 where it was started without the probabilities of tokens."""
    return _has_no_quota(said) or "logprobs" in said


def _has_no_quota(said: str) -> bool:
    """Whether an account is used up, which no pause mends."""
    return _NO_QUOTA.search(said) is not None
