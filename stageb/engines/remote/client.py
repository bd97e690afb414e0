"""Chat completions asked of a server: what a request says, how often it is sent, and what is read
of its answer.

- **Fields.** Servers that speak OpenAI's chat completions differ most in the fields that they take.
  What they say of one that they refuse has no common form, so it is searched for the names of
  fields beside words of refusal; the server is asked without it, from then on, with a warning.
  Where it takes no system role, the user's message begins with those words.
- **Signs of life** (``stageb.job.heartbeat``): a request within its time limit, and a pause before
  the next attempt.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from stageb import seeds
from stageb.engines.config import ModelConfig
from stageb.engines.protocol import Completion, Decode, Prompt, Thoughts, cut_at_stop, split_message
from stageb.engines.remote.transport import (
    OTHER,
    ChatServer,
    RefusedError,
    TransientError,
    find_remedy,
)
from stageb.engines.remote.weighing import Tokens, read_tokens
from stageb.errors import EngineError
from stageb.job import heartbeat
from stageb.untrusted import pictures

# people know it by the engine
log = logging.getLogger(f"{__package__}.openai")

ATTEMPTS = 6
FIRST_PAUSE_S = 0.5  # doubled from one attempt to the next
LONGEST_PAUSE_S = 60.0  # of those, and of what a server may ask for
LOOK_S = 1.0  # between two looks at the requests under way
BYTES_PER_TOKEN = 3
MOST_TOKENS = 1 << 31  # that an answer may be said to have
# in other words
FINISHED = {
    "": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "max_tokens": "length",
}
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
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_REFUSES = re.compile(
    r"unsupported|not (be )?support|not allow|not permit|forbidden|unrecogni[sz]ed|unknown|"
    r"unexpected|extra|cannot both|only one|only the default|must alternate|deprecated",
    re.IGNORECASE,
)
_SYSTEM_ROLE = re.compile(
    r"\brole.*\bsystem\b|\bsystem\b.*\brole|roles must alternate", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """One answer to ask for."""

    prompt: Prompt
    decode: Decode
    key: int
    begin: str
    weighs: bool = False  # whether the most probable tokens are asked for


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """A server's answer to one request."""

    completion: Completion
    # the most probable ones that it may begin with; None where they were not given
    tokens: Tokens | None = ()


WITHHELD = ServerAnswer(Completion("", 1, "filtered"))


class Client:
    """Asks ``server`` for completions, with the fields that it takes."""

    def __init__(self, server: ChatServer, model: ModelConfig, closes: str) -> None:
        """``closes`` is the tag behind the model's thoughts."""
        self.dropped: frozenset[str] = frozenset()  # what the server refuses (``find_refused``)
        self.server, self.model, self._thoughts = server, model, Thoughts(closes)

    def ask_all(self, asked: Sequence[AnswerRequest]) -> dict[AnswerRequest, ServerAnswer]:
        """Return an answer to each of ``asked``, equal ones once. The first error ends the wait for
        the others: ``EngineError`` names the URL and what it last said."""
        rows = list(dict.fromkeys(asked))
        stopped = threading.Event()
        # until when, on the monotonic clock, what each row is at may take
        limits: dict[AnswerRequest, float] = {}
        pool = ThreadPoolExecutor(
            max_workers=self.model.concurrency, thread_name_prefix="stageb-openai"
        )
        try:
            row_of = {pool.submit(self._answer, row, stopped, limits): row for row in rows}
            pending = set(row_of)
            while pending:
                finished, pending = wait(pending, LOOK_S, FIRST_COMPLETED)
                for future in finished:
                    future.result()
                if finished or any(
                    limits.get(row_of[future], 0.0) > time.monotonic() for future in pending
                ):
                    heartbeat.tick()
            return {row: future.result() for future, row in row_of.items()}
        finally:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def _answer(
        self, row: AnswerRequest, stopped: threading.Event, limits: dict[AnswerRequest, float]
    ) -> ServerAnswer:
        for attempt in range(1, ATTEMPTS + 1):
            limits[row] = time.monotonic() + self.model.timeout_s
            try:
                return self._read(row, self._ask(row))
            except TransientError as failure:
                cause = failure
            except RefusedError as refused:
                if refused.is_filtered:
                    return WITHHELD
                raise
            if attempt == ATTEMPTS:
                break
            pause_s = max(
                min(LONGEST_PAUSE_S, cause.pause_s), cause.patience * _draw_pause_s(row, attempt)
            )
            log.info("%s: %s; again in %.1f s", self.server.url, cause, pause_s)
            limits[row] = time.monotonic() + pause_s
            if stopped.wait(pause_s):
                break
        raise RefusedError(
            f"{self.server.url}: {cause} (after {attempt} attempts); {cause.remedy}",
            cause.status,
            "",
        )

    def _ask(self, row: AnswerRequest) -> bytes:
        """Ask the server and return its answer; drop the parameters that it refuses, one after the
        other."""
        dropped = self.dropped
        while True:
            body = self._build_body(row, dropped)
            try:
                return self.server.post(json.dumps(body).encode("utf-8"))
            except RefusedError as refused:
                if not (more := find_refused(refused, body)):
                    raise
            new, self.dropped = more - self.dropped, self.dropped | more
            if new:
                log.warning(
                    "%s: refuses %s; asked without from now on",
                    self.server.url,
                    ", ".join(sorted(new)),
                )
            dropped |= more

    def _build_body(self, row: AnswerRequest, dropped: frozenset[str]) -> dict[str, Any]:
        """The request, without what is ``dropped``."""
        prompt, decode = row.prompt, row.decode
        system = prompt.system if SYSTEM not in dropped else ""
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        messages.append(
            {
                "role": "user",
                "content": self._build_content(prompt, "" if system else prompt.system),
            }
        )
        body: dict[str, Any] = {
            "model": self.model.model_name_or_path,
            "messages": messages
            + ([{"role": "assistant", "content": row.begin}] if row.begin else []),
            "temperature": 1.0 if WARMTH in dropped else decode.temperature,
            "top_p": decode.top_p,
            "max_tokens": decode.max_new_tokens,
            "seed": seeds.bits(row.key, 0) >> 33,  # 31 bits: the most that every server takes
        }
        optional: dict[str, Any] = {
            "stop": list(decode.stop),
            "top_k": decode.top_k,
            "chat_template_kwargs": self.model.chat_template_kwargs,
            # OpenAI's newer word
            "max_completion_tokens": decode.max_new_tokens if "max_tokens" in dropped else None,
        }
        body |= {name: value for name, value in optional.items() if value} | (
            CONTINUE if row.begin else {}
        )
        if row.weighs:
            body |= {"logprobs": True, "top_logprobs": FEWER if MANY in dropped else TOP}
        return {name: value for name, value in body.items() if name not in dropped}

    def _build_content(self, prompt: Prompt, system: str) -> str | list[dict[str, Any]]:
        """The user's words, after those of ``system``, behind the images where there are some.
        Raises ``PictureError``."""
        words = f"{system}\n\n{prompt.user}" if system else prompt.user
        if not prompt.images:
            return words
        shown = (
            pictures.open_picture(path, pictures.read(path), self.model.image_pixels)
            for path in prompt.images
        )
        urls = [
            f"data:image/png;base64,{base64.b64encode(pictures.encode_png(image)).decode()}"
            for image in shown
        ]
        return [
            *({"type": "image_url", "image_url": {"url": url}} for url in urls),
            {"type": "text", "text": words},
        ]

    def _read(self, row: AnswerRequest, said: bytes) -> ServerAnswer:
        """Parse an answer's JSON. Raises ``TransientError`` where it is no completion,
        ``EngineError`` where the server refuses."""
        try:
            answer = json.loads(said)
        except (ValueError, RecursionError):  # brackets nested beyond what Python follows
            raise TransientError(
                f"the answer is not JSON: {self.server.show_beginning(said) or 'it is empty'}",
                OTHER,
            ) from None
        try:
            choice = answer["choices"][0]
            finish = str(choice.get("finish_reason") or "").lower()
            if finish == "content_filter":
                return WITHHELD
            thinking, text = (
                self.server.redact(mend_pairs(part))
                for part in split_message(choice["message"], self._thoughts)
            )
            usage = answer.get("usage")
            tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
            most_probable = read_tokens(choice) if row.weighs else ()
        except (LookupError, TypeError, AttributeError):
            begins = self.server.show_beginning(said)
            lacks = f"the answer lacks choices[0].message.content, a text: {begins}"
            # LM Studio's words for a path that it does not know, with status 200
            if b"endpoint" in said:
                raise EngineError(f"{self.server.url}: {lacks}; {find_remedy(404, '')}") from None
            raise TransientError(lacks, OTHER) from None
        finish = FINISHED.get(finish, finish)
        if finish not in ("stop", "length"):
            told = self.server.show(repr(choice["finish_reason"]), 80)
            remedy = "serve the model without tools, so that its answers end with stop or length"
            raise EngineError(
                f"{self.server.url}: an answer ended with finish_reason {told}; {remedy}"
            )
        text, _ = cut_at_stop(text, row.decode.stop)
        made = min(row.decode.max_new_tokens, 1 + estimate_tokens(thinking) + estimate_tokens(text))
        tokens = tokens if type(tokens) is int and 0 < tokens < MOST_TOKENS else made
        return ServerAnswer(
            Completion(text, tokens, "stop" if finish == "stop" else "length", thinking),
            most_probable,
        )


def _draw_pause_s(row: AnswerRequest, attempt: int) -> float:
    """Exponential back-off with jitter, so that requests that failed together do not come back
    together."""
    longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * float(1 << (attempt - 1)))
    return longest * (
        0.5 + 0.5 * seeds.uniform(seeds.stream("pause", row.key, row.prompt.user), attempt)
    )


def find_refused(refused: RefusedError, body: Mapping[str, Any]) -> frozenset[str]:
    """Find the part of ``body`` that the server, by its words, can be asked without; where they
    name nothing, the request to go on from a beginning. Empty where there is nothing to leave
    out."""
    said = refused.said
    if "logprobs" in said and "top_logprobs" in body:
        return LOGPROBS if body["top_logprobs"] <= FEWER else frozenset({MANY})
    if not refused.is_of_fields:
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


def mend_pairs(text: str) -> str:
    """``text`` with a mark in place of each half of a surrogate pair, as a server's JSON may hold
    where it cuts an answer amid a character: no file in UTF-8 can hold one."""
    return _HALF_PAIR.sub("\N{REPLACEMENT CHARACTER}", text)


def estimate_tokens(text: str) -> int:
    """The tokens of a text, by the bytes of it."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)
