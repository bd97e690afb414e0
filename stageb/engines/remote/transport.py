"""One request to a web server, whose answer ends in bytes and in time, and what its refusals say to
leave out of the next.

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
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from stageb.errors import ConfigError, EngineError, shown

# of an answer: a hundred times what the longest ones hold, with room for what proxies pad
MOST_BYTES = 32 << 20
PIECE = 1 << 16  # bytes read at once
SECRET = 8  # characters of a key, at the least, that an answer does not hold by chance
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


class Poster:
    """Sends requests to ``url``, from several threads if need be. Redirects are not followed: the
    headers, and so a key, would follow them."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout_s: float) -> None:
        self._url, self._headers, self._timeout_s = url, dict(headers), timeout_s
        self._opener = urllib.request.build_opener(_NoRedirects, _Http, _Https)

    def post(self, body: bytes) -> bytes:
        """The answer's body.

        Raises ``StatusError``, ``AnswerTooLongError``, ``TimeoutError`` where the whole has not
        come in time, and what the standard library's client raises.
        """
        deadline = _Deadline(self._timeout_s)
        asked = _TimedRequest(self._url, body, self._headers, deadline)
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
        # where nothing tells how long an answer is, one that was cut off looks whole
        if deadline.has_passed:
            raise TimeoutError
        return answer


def _read(response: http.client.HTTPResponse) -> bytes:
    answer = bytearray()
    # ``read`` would take a chunk that is said to have -1 bytes to its end at once
    while piece := response.read1(PIECE):
        answer += piece
        if len(answer) > MOST_BYTES:
            raise AnswerTooLongError(f"the answer has more than {MOST_BYTES} bytes")
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


# A server's words about a request that it will not answer: what to leave out of the next one, and
# what a person can do.
#
# Servers that speak OpenAI's chat completions differ most in the fields that they take. What they
# say has no common form, so it is searched for the names of fields beside words of refusal.

# vLLM's words, and SGLang's
CONTINUE = {"add_generation_prompt": False, "continue_final_message": True}
SYSTEM = "system"  # no field, but a role that some servers do not take
WARMTH = "a temperature other than 1"
LOGPROBS = frozenset({"logprobs", "top_logprobs"})
MANY = "more than five top_logprobs"
# that are asked for: the most that OpenAI and vLLM give, and that many others do
TOP, FEWER = 20, 5
DROPPABLE = (  # of two that a server names it can do without the first
    "continue_final_message add_generation_prompt chat_template_kwargs top_k top_p temperature "
    "seed stop max_tokens max_completion_tokens"
).split()
REDIRECTS = (301, 302, 303, 307, 308)
LIMITED = 429
UNFIT = (400, 422)  # the server does not take the request as it is
FAILED = 500  # of some servers for the same, as where a chat template takes no begun answer
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_REFUSES = re.compile(
    r"unsupported|not (be )?support|not allow|not permit|forbidden|unrecogni[sz]ed|unknown|"
    r"unexpected|extra|cannot both|only one|only the default|must alternate|deprecated",
    re.IGNORECASE,
)
_SYSTEM_ROLE = re.compile(
    r"\brole.*\bsystem\b|\bsystem\b.*\brole|roles must alternate", re.IGNORECASE | re.DOTALL
)
_FILTERED = re.compile(
    "content_filter|content management policy|content_policy|data_inspection_failed", re.IGNORECASE
)
_TOO_LONG = re.compile(
    "context (length|window|size)|maximum context|prompt is too long", re.IGNORECASE
)
_NO_QUOTA = re.compile("insufficient_quota|exceeded your current quota", re.IGNORECASE)

UP = "see that the server is up, and not overloaded"
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


def hide_key(said: str, key: str) -> str:
    """Hide the key in a server's words: as it is, as JSON or Python write it, or the beginning of
    it where the words end."""
    for form in {key, json.dumps(key)[1:-1], repr(key)[1:-1]}:
        said = said.replace(form, "***")
    cut = next((size for size in range(len(key), SECRET - 1, -1) if said.endswith(key[:size])), 0)
    return f"{said[:-cut]}***" if cut else said


def find_refused(status: int, said: str, body: Mapping[str, Any]) -> frozenset[str]:
    """Find the part of ``body`` that the server, by its words, can be asked without; where they
    name nothing, the request to go on from a beginning. Empty where there is nothing to leave
    out."""
    if "logprobs" in said and "top_logprobs" in body:
        return LOGPROBS if body["top_logprobs"] <= FEWER else frozenset({MANY})
    if status not in UNFIT or _TOO_LONG.search(said) or is_filtered(said):
        return frozenset()
    named = [
        name for name in DROPPABLE if name in body and re.search(rf"(?<!\w){name}(?!\w)", said)
    ]
    if _REFUSES.search(said) and named and named[0] not in CONTINUE:
        may_be_1 = named[0] == "temperature" and body["temperature"] != 1 and "default (1)" in said
        return frozenset({WARMTH} if may_be_1 else named[:1])
    if (
        _REFUSES.search(said)
        and body["messages"][0]["role"] == "system"
        and _SYSTEM_ROLE.search(said)
    ):
        return frozenset({SYSTEM})
    return frozenset(CONTINUE) & body.keys()


def ask_tokens(dropped: frozenset[str]) -> dict[str, Any]:
    """The fields that ask for the most probable tokens of an answer, as many as the server
    gives."""
    return {"logprobs": True, "top_logprobs": FEWER if MANY in dropped else TOP}


def parse_pause_s(header: str | None) -> float:
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


def mend_pairs(text: str) -> str:
    """``text`` with a mark in place of each half of a surrogate pair, as a server's JSON may hold
    where it cuts an answer amid a character: no file in UTF-8 can hold one."""
    return _HALF_PAIR.sub("\N{REPLACEMENT CHARACTER}", text)


def is_filtered(said: str) -> bool:
    """Whether a content filter refuses what was asked."""
    return _FILTERED.search(said) is not None


def find_remedy(status: int, said: str) -> str:
    """Say what to do about an HTTP status that comes with the words ``said``."""
    if status == LIMITED and has_no_quota(said):
        return "the quota of the key's account is used up: see to that with the provider"
    if status in UNFIT and _TOO_LONG.search(said):
        return (
            "lower sampler.max_prompt_tokens or the max_new_tokens asked for, or serve the "
            "model with more context"
        )
    return _REMEDIES.get(status, "look at what the server says")


def will_not_pass(said: str) -> bool:
    """Whether what a server says beside a status that usually passes does not: llama-cpp-python
    gives 500 where it was started without the probabilities of tokens."""
    return has_no_quota(said) or "logprobs" in said


def has_no_quota(said: str) -> bool:
    """Whether an account is used up, which no pause mends."""
    return _NO_QUOTA.search(said) is not None
