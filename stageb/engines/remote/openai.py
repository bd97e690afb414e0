"""A server that speaks OpenAI's chat completions, behind the engine Protocol: vLLM's, llama.cpp's,
a provider's.

- **Requests.** Every rank sends its share, ``model.concurrency`` at a time, one per sample, with a
  seed derived from the sample's key; whether equal requests have equal answers is up to the server.
  ``top_k`` and ``chat_template_kwargs``, which OpenAI's own API does not know, are sent if set. The
  server must disarm special tokens spelt out in a ticket.
- **Images** go as data URLs of PNG files, upright, scaled down to ``model.image_pixels``, without
  their files' metadata.
- **Fields.** A server that refuses a field of a request is asked without it, from then on, with a
  warning: servers differ most in these. Where it takes no system role, the user's message begins
  with those words.
- **Prefill.** The beginning of an answer is sent as a last message of the assistant's, with
  ``continue_final_message``, which vLLM and SGLang need; llama.cpp continues without. A server that
  begins anew repeats or ignores the beginning. ``probe`` finds out, and whether the server gives
  the probabilities of tokens: where it does, answers can be weighed (``weighing.py``).
- **What the server says** is shown and kept without the key, wherever it puts it.
- **Transport** (``transport.py``). The standard library's HTTP client in a few threads: a request
  takes seconds, so kept connections or an event loop would not show. An answer ends in bytes, and
  within ``model.timeout_s``. Redirects are not followed.
- **Signs of life** (``stageb.job.heartbeat``): a request within its time limit, and a pause before
  the next attempt.
"""

from __future__ import annotations

import base64
import http.client
import json
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from stageb import seeds
from stageb.engines.config import ModelConfig
from stageb.engines.protocol import (
    USUAL,
    Completion,
    Decode,
    Engine,
    Prompt,
    Question,
    Request,
    Thoughts,
    cut_at_stop,
    is_configured,
    split_message,
)
from stageb.engines.remote import transport, weighing
from stageb.engines.remote.transport import (
    SAID_BYTES,
    AnswerTooLongError,
    Poster,
    RefusedError,
    StatusError,
    TransientError,
    advise_on_reach,
    mend_pairs,
)
from stageb.errors import ConfigError, EngineError, shown
from stageb.job import heartbeat
from stageb.untrusted import pictures

log = logging.getLogger(__name__)

ATTEMPTS = 6
FIRST_PAUSE_S = 0.5  # doubled from one attempt to the next
LONGEST_PAUSE_S = 60.0  # of those, and of what a server may ask for
# from 520: Cloudflare's, and 529 of overload
TRANSIENT = (408, 425, 429, 500, 502, 503, 504, *range(520, 531))
BYTES_PER_TOKEN = 3
LOOK_S = 1.0  # between two looks at the requests under way
FRAME_TOKENS = 16  # of a chat template around a prompt, estimated
PIXELS_PER_TOKEN = 784  # of an image, estimated: Qwen2-VL's; most models make fewer tokens of one
PROBED = 4  # tokens of the answer that tells what a server can do
MOST_TOKENS = 1 << 31  # that an answer may be said to have
# in other words
FINISHED = {
    "": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "max_tokens": "length",
}


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
    tokens: weighing.Tokens | None = ()


WITHHELD = ServerAnswer(Completion("", 1, "filtered"))


class OpenAIEngine:
    """An engine over the server at ``url``; ``key`` goes into the Authorization header and nowhere
    else.

    ``chat`` (see ``chat.py``) counts tokens where the model's tokenizer is at hand. Without it a
    length is an *estimate*: a token for every three bytes of UTF-8, which is more than most
    tokenizers make of English or Chinese, so that a prompt near ``sampler.max_prompt_tokens`` is
    set aside rather than cut by the server.
    """

    def __init__(
        self, url: str, model: ModelConfig, key: str | None, chat: Any | None, first_pause_s: float
    ) -> None:
        self._url = url
        self._model = model
        self._key = key
        self._chat = chat
        self._first_pause_s = first_pause_s
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        headers |= {"Authorization": f"Bearer {key}"} if key else {}
        self._poster = Poster(url, headers, model.timeout_s)
        self._thoughts = Thoughts(chat.thoughts.closes if chat else model.thinking_ends or USUAL)
        self._dropped: frozenset[str] = frozenset()  # what the server refuses (``find_refused``)
        self.continues = False  # see ``Served``

    @property
    def thinks(self) -> bool:
        """See ``thinking.thinks``."""
        return (
            self._chat.thinks
            if self._chat
            else is_configured(self._model.thinking_ends, self._model.chat_template_kwargs)
        )

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int]:
        """See ``Engine``. An estimate without a tokenizer, and for images."""
        seen = [sum(map(self._image_tokens, prompt.images)) for prompt in prompts]
        if self._chat is None:
            read = [
                FRAME_TOKENS + _estimate_tokens(prompt.system) + _estimate_tokens(prompt.user)
                for prompt in prompts
            ]
        else:
            read = [sum(map(len, self._chat.encode(prompt))) for prompt in prompts]
        return [text + images for text, images in zip(read, seen, strict=True)]

    def open_eyes(self) -> None:
        """See ``ImageEngine``. Whether the model can see, the server will tell."""
        pictures.pillow()

    def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
        """See ``Engine``. Equal rows are asked once. Raises ``EngineError`` naming the URL and what
        it last said."""
        wanted = [
            [AnswerRequest(each.prompt, each.decode, key, each.begin) for key in each.streams]
            for each in requests
        ]
        done = self._ask_all([row for group in wanted for row in group])
        return [tuple(done[row].completion for row in group) for group in wanted]

    def probe(self, question: Question) -> OpenAIEngine:
        """See ``Served``. One short answer; what the server refuses of it is no error."""
        row, before = _make_weighing_row(question, PROBED), self._dropped
        try:
            answer = self._ask_all([row])[row]
        except RefusedError as refused:
            if refused.status not in (*transport.UNFIT, transport.FAILED):
                raise
            self._dropped = before
            return self
        self.continues = weighing.goes_on(answer.completion.text, question.answers)
        if not self.continues or not answer.tokens:
            return self
        if not weighing.can_tell(question.answers, answer.tokens):
            words = " and ".join(
                answer.removeprefix(row.begin).strip() for answer in question.answers
            )
            log.warning(
                "%s: no token tells %s apart, so their probabilities are not known",
                self._url,
                words,
            )
            return self
        return OpenAIScorer(self)

    def _ask_all(self, asked: Sequence[AnswerRequest]) -> dict[AnswerRequest, ServerAnswer]:
        """An answer to each of ``asked``, equal ones once; the first error ends the wait for the
        others."""
        rows = list(dict.fromkeys(asked))
        stopped = threading.Event()
        # until when, on the monotonic clock, what each row is at may take
        limits: dict[AnswerRequest, float] = {}
        pool = ThreadPoolExecutor(
            max_workers=self._model.concurrency, thread_name_prefix="stageb-openai"
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
            limits[row] = time.monotonic() + self._model.timeout_s
            try:
                return self._read(row, self._ask(row))
            except TransientError as failure:
                cause = failure
            except RefusedError as refused:
                if transport.is_filtered(refused.said):
                    return WITHHELD
                raise
            if attempt == ATTEMPTS:
                break
            pause_s = max(cause.pause_s, cause.patience * self._pause_s(row, attempt))
            log.info("%s: %s; again in %.1f s", self._url, cause, pause_s)
            limits[row] = time.monotonic() + pause_s
            if stopped.wait(pause_s):
                break
        raise RefusedError(
            f"{self._url}: {cause} (after {attempt} attempts); {cause.remedy}", cause.status, ""
        )

    def _ask(self, row: AnswerRequest) -> bytes:
        """Ask the server and return its answer; drop the parameters that it refuses, one after the
        other."""
        dropped = self._dropped
        while True:
            body = self._build_body(row, dropped)
            try:
                return self._post(json.dumps(body).encode("utf-8"))
            except RefusedError as refused:
                if not (more := transport.find_refused(refused.status, refused.said, body)):
                    raise
            new, self._dropped = more - self._dropped, self._dropped | more
            if new:
                log.warning(
                    "%s: refuses %s; asked without from now on", self._url, ", ".join(sorted(new))
                )
            dropped |= more

    def _pause_s(self, row: AnswerRequest, attempt: int) -> float:
        """Exponential back-off with jitter, so that requests that failed together do not come back
        together."""
        longest = min(LONGEST_PAUSE_S, self._first_pause_s * float(1 << (attempt - 1)))
        return longest * (
            0.5 + 0.5 * seeds.uniform(seeds.stream("pause", row.key, row.prompt.user), attempt)
        )

    def _build_body(self, row: AnswerRequest, dropped: frozenset[str]) -> dict[str, Any]:
        """The request, without what is ``dropped``."""
        prompt, decode = row.prompt, row.decode
        system = prompt.system if transport.SYSTEM not in dropped else ""
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        messages.append(
            {
                "role": "user",
                "content": self._build_content(prompt, "" if system else prompt.system),
            }
        )
        body: dict[str, Any] = {
            "model": self._model.model_name_or_path,
            "messages": messages
            + ([{"role": "assistant", "content": row.begin}] if row.begin else []),
            "temperature": 1.0 if transport.WARMTH in dropped else decode.temperature,
            "top_p": decode.top_p,
            "max_tokens": decode.max_new_tokens,
            "seed": seeds.bits(row.key, 0) >> 33,  # 31 bits: the most that every server takes
        }
        optional: dict[str, Any] = {
            "stop": list(decode.stop),
            "top_k": decode.top_k,
            "chat_template_kwargs": self._model.chat_template_kwargs,
            # OpenAI's newer word
            "max_completion_tokens": decode.max_new_tokens if "max_tokens" in dropped else None,
        }
        body |= {name: value for name, value in optional.items() if value} | (
            transport.CONTINUE if row.begin else {}
        )
        body |= transport.ask_tokens(dropped) if row.weighs else {}
        return {name: value for name, value in body.items() if name not in dropped}

    def _build_content(self, prompt: Prompt, system: str) -> str | list[dict[str, Any]]:
        """The user's words, after those of ``system``, behind the images where there are some.
        Raises ``PictureError``."""
        words = f"{system}\n\n{prompt.user}" if system else prompt.user
        if not prompt.images:
            return words
        shown = (
            pictures.open_picture(path, pictures.read(path), self._model.image_pixels)
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

    def _image_tokens(self, path: str) -> int:
        width, height = pictures.scale_size(pictures.look(path), self._model.image_pixels)
        return -(-width * height // PIXELS_PER_TOKEN)

    def _post(self, body: bytes) -> bytes:
        """Post ``body`` and return the server's answer. Raises ``TransientError``, and
        ``EngineError`` for what will not pass."""
        try:
            return self._poster.post(body)
        except StatusError as error:
            raise self._explain_status(error) from None
        except AnswerTooLongError as error:
            raise TransientError(str(error), transport.OTHER) from None
        except TimeoutError:
            raise TransientError(
                f"no answer within {self._model.timeout_s:g} s (model.timeout_s)", transport.SLOW
            ) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                cause = f"no connection within {self._model.timeout_s:g} s (model.timeout_s)"
                raise TransientError(cause, advise_on_reach(self._url)) from None
            told = shown(self._hide_key(f"{type(reason).__name__}: {reason}"), 200)
            raise TransientError(told, advise_on_reach(self._url)) from None

    def _explain_status(self, error: StatusError) -> Exception:
        """Turn an HTTP status into an error, transient or not, with its remedy."""
        said = self._shorten(error.said)
        reason = shown(self._hide_key(error.reason), 80)
        cause = f"HTTP status {error.status} {reason}{': ' if said else ''}{said}"
        remedy = transport.find_remedy(error.status, said)
        if error.status in TRANSIENT and not transport.will_not_pass(said):
            pause_s = min(
                LONGEST_PAUSE_S, transport.parse_pause_s(error.headers.get("Retry-After"))
            )
            # limits are often of a minute
            patience = 4.0 if error.status == transport.LIMITED else 1.0
            remedy = remedy if error.status == transport.LIMITED else advise_on_reach(self._url)
            return TransientError(cause, remedy, pause_s, patience, error.status)
        if error.status in transport.REDIRECTS:
            there = shown(self._hide_key(error.headers.get("Location", "elsewhere")), 200)
            remedy = (
                f"it sends requests to {there}, where no key follows; if that is right, "
                f"give model.base_url so"
            )
        return RefusedError(f"{self._url}: {cause}; {remedy}", error.status, said)

    def _shorten(self, said: bytes) -> str:
        """The beginning of what the server says, for a message."""
        return shown(self._hide_key(said[:SAID_BYTES].decode("utf-8", "replace")), 400)

    def _hide_key(self, said: str) -> str:
        """Hide the key in the server's words."""
        return transport.hide_key(said, self._key) if self._key else said

    def _read(self, row: AnswerRequest, said: bytes) -> ServerAnswer:
        """Parse an answer's JSON. Raises ``TransientError`` where it is no completion,
        ``EngineError`` where the server refuses."""
        try:
            answer = json.loads(said)
        except (ValueError, RecursionError):  # brackets nested beyond what Python follows
            raise TransientError(
                f"the answer is not JSON: {self._shorten(said) or 'it is empty'}", transport.OTHER
            ) from None
        try:
            choice = answer["choices"][0]
            finish = str(choice.get("finish_reason") or "").lower()
            if finish == "content_filter":
                return WITHHELD
            thinking, text = (
                self._redact(mend_pairs(part))
                for part in split_message(choice["message"], self._thoughts)
            )
            usage = answer.get("usage")
            tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
            most_probable = weighing.read_tokens(choice) if row.weighs else ()
        except (LookupError, TypeError, AttributeError):
            lacks = f"the answer lacks choices[0].message.content, a text: {self._shorten(said)}"
            # LM Studio's words for a path that it does not know, with status 200
            if b"endpoint" in said:
                raise EngineError(
                    f"{self._url}: {lacks}; {transport.find_remedy(404, '')}"
                ) from None
            raise TransientError(lacks, transport.OTHER) from None
        finish = FINISHED.get(finish, finish)
        if finish not in ("stop", "length"):
            told = shown(self._hide_key(repr(choice["finish_reason"])), 80)
            remedy = "serve the model without tools, so that its answers end with stop or length"
            raise EngineError(f"{self._url}: an answer ended with finish_reason {told}; {remedy}")
        text, _ = cut_at_stop(text, row.decode.stop)
        made = min(
            row.decode.max_new_tokens, 1 + _estimate_tokens(thinking) + _estimate_tokens(text)
        )
        tokens = tokens if type(tokens) is int and 0 < tokens < MOST_TOKENS else made
        return ServerAnswer(
            Completion(text, tokens, "stop" if finish == "stop" else "length", thinking),
            most_probable,
        )

    def _redact(self, text: str) -> str:
        """Hide the key in an answer; leave a key that is a word, such as EMPTY."""
        return self._hide_key(text) if len(self._key or "") >= transport.SECRET else text


class OpenAIScorer(OpenAIEngine):
    """The engine over a server that goes on with what is begun, and gives the probabilities of
    tokens."""

    def __init__(self, probed: OpenAIEngine) -> None:
        super().__init__(
            probed._url, probed._model, probed._key, probed._chat, probed._first_pause_s
        )
        self._dropped, self.continues = probed._dropped, probed.continues

    def score(self, questions: Sequence[Question]) -> list[tuple[float, ...]]:
        """See ``Scorer``, and ``weighing.py``. Where a filter withholds what was asked, all answers
        weigh the same."""
        rows = [_make_weighing_row(question, 1) for question in questions]
        done, found = self._ask_all(rows), []
        for row, question in zip(rows, questions, strict=True):
            tokens = done[row].tokens
            if tokens is None:
                raise EngineError(
                    f"{self._url}: an answer lacks top_logprobs, which it gave at first; "
                    f"{transport.OTHER}"
                )
            found.append(weighing.weigh(question.answers, tokens))
        return found


def build(model: ModelConfig, device: str) -> Engine:
    """The engine over the server that ``model`` names; ``device`` is not used. Nothing is sent yet.

    Raises ``ConfigError`` where a value of the config is missing or at fault.
    """
    if model.base_url is None:
        raise ConfigError(
            "model.base_url", None, "the openai engine needs one, such as http://localhost:8000/v1"
        )
    if model.model_name_or_path == ModelConfig.model_name_or_path:
        raise ConfigError(
            "model.model_name_or_path",
            model.model_name_or_path,
            "give the name that the server knows it by",
        )
    url = model.base_url.rstrip("/") + "/chat/completions"
    return OpenAIEngine(
        url, model, transport.read_key(model.api_key_env), _chat(model), FIRST_PAUSE_S
    )


def _chat(model: ModelConfig) -> Any | None:
    """The chat that counts tokens, where the config names a tokenizer."""
    if model.tokenizer is None:
        return None
    from transformers import AutoTokenizer  # seconds, and torch: only for those who want it

    from stageb.engines.chat import Chat

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            model.tokenizer, trust_remote_code=model.trust_remote_code
        )
        return Chat(tokenizer, model.chat_template_kwargs, model.thinking_ends)
    # what strangers wrote makes transformers and tokenizers stumble in any way
    except Exception as error:
        why = shown(" ".join(str(error).split()), 600)
        raise ConfigError(
            "model.tokenizer", model.tokenizer, f"no tokenizer can be loaded from there: {why}"
        ) from error


def _make_weighing_row(question: Question, tokens: int) -> AnswerRequest:
    """A row that asks for so many tokens of an answer to ``question``, and for the most probable
    ones."""
    decode = Decode(temperature=0.0, max_new_tokens=tokens)
    return AnswerRequest(
        question.prompt, decode, 0, weighing.find_beginning(question.answers), weighs=True
    )


def _estimate_tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)
