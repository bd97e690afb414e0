"""A deterministic fake: a function of the prompt answers in the model's place.

For tests, a user's own included, and for trying a config without a model.
``ScriptedEngine(respond)`` takes a function; a config names one, ``model.model_name_or_path:
my_package.my_module:respond``. A token is a word: a run of characters that are not white space,
with the white space before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from stageb.engines.config import ModelConfig
from stageb.engines.protocol import (
    USUAL,
    Completion,
    Decode,
    Engine,
    Prompt,
    Request,
    Thoughts,
    cut_at_stop,
    is_configured,
)
from stageb.settings import function_named

Respond = Callable[[Prompt, Decode, int], str]

_KEY = "model.model_name_or_path"
_TOKEN = re.compile(r"\s*\S+")


class ScriptedEngine:
    """Answers with ``respond(prompt, decode, key)``, called once per sample; it must be a function
    of its arguments.

    Greedy samples are all given the key 0, so that they are equal. ``decode.stop`` and
    ``decode.max_new_tokens`` are honoured here, whatever ``respond`` says. An answer that leaves no
    token for its own closing ends by length. What stands before the tag ``closes`` was thought
    aloud; what a request wants the answer to begin with is left to ``respond``.
    """

    def __init__(self, respond: Respond, closes: str = USUAL, thinks: bool = False) -> None:
        self.respond = respond
        self.thinks = thinks  # see ``thinking.thinks``
        self._thoughts = Thoughts(closes)

    def open_eyes(self) -> None:
        """See ``ImageEngine``: what ``respond`` makes of images is its own affair."""

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int]:
        """See ``Engine``: the words of each prompt, and one for each image."""
        return [
            _count_words(prompt.system) + _count_words(prompt.user) + len(prompt.images)
            for prompt in prompts
        ]

    def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
        """See ``Engine``."""
        return [
            tuple(self._completion(request, key) for key in request.streams) for request in requests
        ]

    def resume(
        self, requests: Sequence[Request], begun: Sequence[Sequence[tuple[int, ...]]]
    ) -> list[tuple[Completion, ...]]:
        """See ``Resumer``: what ``respond`` said to the same request begins alike."""
        return self.generate(requests)

    def _completion(self, request: Request, key: int) -> Completion:
        decode = request.decode
        text, stopped = cut_at_stop(self.respond(request.prompt, decode, key), decode.stop)
        words = list(_TOKEN.finditer(text))
        long = len(words) >= decode.max_new_tokens
        text = text[: words[decode.max_new_tokens - 1].end()] if long else text
        thinking, answer = self._thoughts.split(text)
        tokens = min(len(words) + 1, decode.max_new_tokens)
        return Completion(
            answer,
            tokens,
            "length" if long else "stop",
            thinking,
            tuple(range(tokens)) if stopped else (),
        )


def build(model: ModelConfig, device: str) -> Engine:
    """The engine whose answers come from the function that ``model.model_name_or_path`` names;
    ``device`` is not used.

    Raises ``ConfigError`` where there is no such function.
    """
    respond = function_named(_KEY, model.model_name_or_path)
    thinks = is_configured(model.thinking_ends, model.chat_template_kwargs)
    return ScriptedEngine(respond, model.thinking_ends or USUAL, thinks)


def _count_words(text: str) -> int:
    return len(text.split())
