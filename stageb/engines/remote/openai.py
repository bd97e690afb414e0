"""A server that speaks OpenAI's chat completions, behind the engine Protocol: vLLM's, llama.cpp's,
a provider's.

- **Requests.** Every rank sends its share, ``model.concurrency`` at a time, one per sample, with a
  seed derived from the sample's key; whether equal requests have equal answers is up to the server.
  ``top_k`` and ``chat_template_kwargs``, which OpenAI's own API does not know, are sent if set. The
  server must disarm special tokens spelt out in a ticket.
- **Images** go as data URLs of PNG files, upright, scaled down to ``model.image_pixels``, without
  their files' metadata.
- **Fields** (``client.py``). A server that refuses one is asked without it, from then on.
- **Prefill.** The beginning of an answer is sent as a last message of the assistant's, with
  ``continue_final_message``, which vLLM and SGLang need; llama.cpp continues without. A server that
  begins anew repeats or ignores the beginning. ``probe`` finds out, and whether the server gives
  the probabilities of tokens: where it does, answers can be weighed (``weighing.py``).
- **What the server says** is shown and kept without the key, wherever it puts it.
- **Transport** (``transport.py``). The standard library's HTTP client in a few threads: a request
  takes seconds, so kept connections or an event loop would not show. An answer ends in bytes, and
  within ``model.timeout_s``. Redirects are not followed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from stageb.engines.config import ModelConfig
from stageb.engines.protocol import (
    USUAL,
    Completion,
    Decode,
    Engine,
    Prompt,
    Question,
    Request,
    is_configured,
)
from stageb.engines.remote import weighing
from stageb.engines.remote.client import AnswerRequest, Client, estimate_tokens
from stageb.engines.remote.transport import FAILED, OTHER, UNFIT, ChatServer, RefusedError, read_key
from stageb.errors import ConfigError, EngineError, shown
from stageb.untrusted import pictures

log = logging.getLogger(__name__)

FRAME_TOKENS = 16  # of a chat template around a prompt, estimated
PIXELS_PER_TOKEN = 784  # of an image, estimated: Qwen2-VL's; most models make fewer tokens of one
PROBED = 4  # tokens of the answer that tells what a server can do


class OpenAIEngine:
    """An engine over the server that ``client`` asks.

    ``chat`` (see ``chat.py``) counts tokens where the model's tokenizer is at hand. Without it a
    length is an *estimate*: a token for every three bytes of UTF-8, which is more than most
    tokenizers make of English or Chinese, so that a prompt near ``sampler.max_prompt_tokens`` is
    set aside rather than cut by the server.
    """

    continues = False  # see ``Served``

    def __init__(self, client: Client, chat: Any | None) -> None:
        self._client, self._model, self._chat = client, client.model, chat

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
                FRAME_TOKENS + estimate_tokens(prompt.system) + estimate_tokens(prompt.user)
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
        done = self._client.ask_all([row for group in wanted for row in group])
        return [tuple(done[row].completion for row in group) for group in wanted]

    def probe(self, question: Question) -> OpenAIEngine:
        """See ``Served``. One short answer; what the server refuses of it is no error."""
        row, before = _make_weighing_row(question, PROBED), self._client.dropped
        try:
            answer = self._client.ask_all([row])[row]
        except RefusedError as refused:
            if refused.status not in (*UNFIT, FAILED):
                raise
            self._client.dropped = before
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
                self._client.server.url,
                words,
            )
            return self
        return OpenAIScorer(self._client, self._chat)

    def _image_tokens(self, path: str) -> int:
        width, height = pictures.scale_size(pictures.look(path), self._model.image_pixels)
        return -(-width * height // PIXELS_PER_TOKEN)


class OpenAIScorer(OpenAIEngine):
    """The engine over a server that goes on with what is begun, and gives the probabilities of
    tokens."""

    continues = True

    def score(self, questions: Sequence[Question]) -> list[tuple[float, ...]]:
        """See ``Scorer``, and ``weighing.py``. Where a filter withholds what was asked, all answers
        weigh the same."""
        rows = [_make_weighing_row(question, 1) for question in questions]
        done, found = self._client.ask_all(rows), []
        for row, question in zip(rows, questions, strict=True):
            tokens = done[row].tokens
            if tokens is None:
                raise EngineError(
                    f"{self._client.server.url}: an answer lacks top_logprobs, which it gave at "
                    f"first; {OTHER}"
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
    server, chat = ChatServer(url, read_key(model.api_key_env), model.timeout_s), _chat(model)
    closes = chat.thoughts.closes if chat else model.thinking_ends or USUAL
    return OpenAIEngine(Client(server, model, closes), chat)


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
