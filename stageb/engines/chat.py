"""Prompts as token ids in two parts: what all tickets of a mission share, and what is a ticket's
own.

The chat template is rendered once per system text, with a marker in place of the user's words. The
text before the marker is shared, the text after it closes the turn, and a prompt is
``encode(shared) + encode(own)``: two tickets under one guidance have the same shared ids, so a
model reads them once.

Words are data: a special token spelt out in a rule or a ticket gets a space after its first
character, so no text can close its own turn. A template that asks for today's date gets a fixed
one, since no clock may reach a prompt.

Prefilled words stand behind the model's thoughts: if the generation prompt opens thoughts, they are
closed first, empty.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import jinja2
from transformers import PreTrainedTokenizerFast

from stageb.engines.protocol import (
    Completion,
    Finish,
    Prompt,
    Thoughts,
    cut_at_stop,
    find_closing_tag,
    is_configured,
)
from stageb.errors import EngineError, shown

_MARKER = "user-words-go-here"
_EDGE = "\u2003"  # white space that no template writes: where it is gone, the template trims
# Stands in for the template function that reads the clock; the day is the one that Llama 3's
# templates fall back to.
_A_DAY = "{%- macro strftime_now(form) -%}26 Jul 2024{%- endmacro -%}"
_SYSTEMS = 256  # system texts remembered, each with its ids: a few kB
RENDER_S = 20.0  # for one chat: templates take milliseconds, and may loop for ever
RENDER_BYTES = 1 << 28  # of memory, beyond what there is before
MOST_FRAME = 1 << 20  # bytes that a template puts around the words
_TURNS = 8192  # user texts remembered, each with its ids


@dataclass(frozen=True, slots=True)
class RenderedChat:
    """A rendered chat around the user's words."""

    shared: str  # everything before them
    closing: str  # everything after them, the generation prompt included
    trims_left: bool  # the template strips white space before them
    trims_right: bool  # and after them

    def render_user(self, user: str) -> str:
        """Return the text that follows ``shared`` in a chat with the user's words ``user``."""
        user = user.lstrip() if self.trims_left else user
        return (user.rstrip() if self.trims_right else user) + self.closing


class Chat:
    """Encodes prompts with ``tokenizer`` (a transformers tokenizer), ``variables`` handed to its
    chat template, and reads what the model writes; ``closes`` is the tag behind its thoughts where
    the template does not tell.

    A tokenizer without a template gets the plain text ``system``, blank line, ``user``, blank line.
    A template that refuses or drops a system message gets it at the head of the user's.
    """

    def __init__(
        self, tokenizer: Any, variables: dict[str, Any], closes: str | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self.end: int | None = tokenizer.eos_token_id  # that a turn ends with
        self._closes = closes
        self._template = _A_DAY + tokenizer.get_chat_template() if tokenizer.chat_template else ""
        self._variables = variables
        special = sorted(
            str(token) for token in tokenizer.added_tokens_decoder.values() if token.special
        )
        tags = Thoughts(closes or find_closing_tag(self._template))
        self._tags = {  # of thoughts, that a decoder would leave out
            place: str(token)
            for place, token in tokenizer.added_tokens_decoder.items()
            if token.special and str(token) in (tags.opens, tags.closes)
        }
        # Where a special token begins: the lookahead finds those that overlap as well.
        begins = "|".join(
            f"{re.escape(token[0])}(?={re.escape(token[1:])})"
            for token in special
            if len(token) > 1
        )
        self._special = re.compile(begins or "(?!)")
        # The tokenizer itself looks at every id before it does the same, which takes four times as
        # long.
        self._plain = getattr(type(tokenizer), "_decode", None) is PreTrainedTokenizerFast._decode
        self._anchor = self._find_anchor()
        self._shared = lru_cache(_SYSTEMS)(self._encode_shared)
        self._own = lru_cache(_TURNS)(self._encode_own)

    def encode(self, prompt: Prompt) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids of the shared part and of the prompt's own. Raises ``EngineError`` where there is
        no id at all."""
        frame, shared = self._shared(self._break_special_tokens(prompt.system))
        own = self._own(frame.render_user(self._break_special_tokens(prompt.user)))
        if not shared and not own:
            raise EngineError(f"an empty prompt cannot be answered: {prompt!r}; give it words")
        return (shared, own) if own else ((), shared)  # there must be a last token to go on from

    def encode_answer(self, text: str) -> tuple[int, ...]:
        """The ids of an answer that begins with ``text``, where a prompt ends; none of an empty
        one."""
        if not text:
            return ()
        closed = self._own(f"\n{self.thoughts.closes}\n\n") if self.thoughts.opened else ()
        return closed + self._own(self._break_special_tokens(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ``ids`` without special tokens, but with the tags of thoughts."""
        if self._tags.keys().isdisjoint(ids):
            return self._decode_plain(ids)
        pieces, begun = [], 0
        for place in (place for place, token in enumerate(ids) if token in self._tags):
            pieces += [self._decode_plain(ids[begun:place]), self._tags[ids[place]]]
            begun = place + 1
        return "".join([*pieces, self._decode_plain(ids[begun:])])

    def completion(
        self, ids: Sequence[int], finish: Finish, stop: Sequence[str], begun: bool
    ) -> Completion:
        """Return the model's output ``ids`` as a completion that ends before the first of ``stop``.
        ``begun`` says that the prompt already began the answer, so that no thoughts come before
        it."""
        text, stopped = cut_at_stop(self.decode(ids), stop)
        thinking, answer = ("", text) if begun else self.thoughts.split(text)
        return Completion(answer, len(ids), finish, thinking, tuple(ids) if stopped else ())

    @cached_property
    def thoughts(self) -> Thoughts:
        """How the model thinks aloud."""
        closes = self._closes or find_closing_tag(self._template)
        ends = self._render_frame("You judge.").closing.rstrip()
        return Thoughts(
            closes, opened=ends.endswith(Thoughts(closes).opens) and not ends.endswith(closes)
        )

    @property
    def thinks(self) -> bool:
        """Whether the model thinks aloud, as far as its template and the config tell."""
        return is_configured(self._closes, self._variables) or self.thoughts.opened

    def _decode_plain(self, ids: Sequence[int]) -> str:
        if self._plain:
            return str(
                self._tokenizer.backend_tokenizer.decode(list(ids), skip_special_tokens=True)
            )
        text: str = self._tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def _break_special_tokens(self, text: str) -> str:
        """``text`` with spelt-out special tokens broken up."""
        return self._special.sub(r"\g<0> ", text)

    def _encode_shared(self, system: str) -> tuple[RenderedChat, tuple[int, ...]]:
        frame = self._render_frame(system)
        return frame, tuple(self._ids(frame.shared))

    def _encode_own(self, text: str) -> tuple[int, ...]:
        anchor, anchored = self._ids(self._anchor), self._ids(self._anchor + text)
        # not where the text's first characters merged with it
        holds = anchored[: len(anchor)] == anchor
        return tuple(anchored[len(anchor) :] if holds else self._ids(text))

    def _ids(self, text: str) -> list[int]:
        if not text:
            return []
        # Not verbose: prompts are measured in order to be cut or set aside, and the tokenizer would
        # warn of long ones.
        try:
            ids: list[int] = self._tokenizer(text, add_special_tokens=False, verbose=False)[
                "input_ids"
            ]
        except Exception as error:  # one that a stranger wrote may stumble in any way
            place = shown(getattr(self._tokenizer, "name_or_path", "the checkpoint"))
            what = f"{place}: its tokenizer cannot encode a text: {shown(str(error), 200)}"
            raise EngineError(f"{what}; take the one that belongs to the model") from error
        return ids

    def _find_anchor(self) -> str:
        """Return the text that a ticket's own text is encoded behind: a line break where the
        tokenizer marks the start of a text.

        Such tokenizers (sentencepiece with a dummy prefix) would otherwise put a space before the
        ticket's first word.
        """
        line_break, both = self._ids("\n"), self._ids("\na")
        begins_alike = both[: len(line_break)] == line_break
        return "\n" if begins_alike and both[len(line_break) :] != self._ids("a") else ""

    def _render_frame(self, system: str) -> RenderedChat:
        if not self._template:
            return RenderedChat(
                self._find_opening() + (f"{system}\n\n" if system else ""),
                "\n\n",
                trims_left=False,
                trims_right=False,
            )
        refusal: Exception | None = None
        taken = [len(run) for run in re.findall(f"{_MARKER}(x*)", system)]
        marker = _MARKER + "x" * (max(taken, default=-1) + 1)  # stands nowhere in the system text
        for messages in _list_conversations(system, marker):
            try:
                text = _run_with_timeout(lambda messages=messages: self._render(messages))  # type: ignore[misc]
            except TimeoutError:
                remedy = "correct its chat_template, or remove it for plain text"
                raise EngineError(
                    f"the checkpoint's chat template is not done after {RENDER_S:g} s; {remedy}"
                ) from None
            except Exception as error:  # a template may refuse with any error: try the next form
                refusal = error
                continue
            if system.strip() in text and text.count(marker) == 1:
                return _cut(text, marker)
        raise EngineError(
            "the checkpoint's chat template can render none of: a system and a user message, a "
            "user message alone, a message of typed parts; correct its chat_template, or remove it "
            "for plain text"
        ) from refusal

    def _render(self, messages: list[dict[str, Any]]) -> str:
        if self._has_power:
            raise ValueError(
                "a power, which may take hours in one piece, so that no time limit ends it"
            )
        text: str = self._tokenizer.apply_chat_template(
            messages,
            chat_template=self._template,
            tokenize=False,
            add_generation_prompt=True,
            **self._variables,
        )
        said = sum(len(str(message["content"])) for message in messages)
        if len(text.encode()) > MOST_FRAME + 4 * said:  # and half a surrogate pair has no encoding
            raise ValueError("far more text than the words that it is around")
        return text

    @cached_property
    def _has_power(self) -> bool:
        return any(
            token[1:] == ("operator", "**") for token in jinja2.Environment().lex(self._template)
        )

    def _find_opening(self) -> str:
        """The token that opens a text, where the tokenizer would put one."""
        token = self._tokenizer.bos_token_id
        opens = token is not None and self._tokenizer("a")["input_ids"][0] == token
        return str(self._tokenizer.bos_token) if opens else ""


def _run_with_timeout(render: Callable[[], str]) -> str:
    """Call ``render`` in a thread that is stopped after ``RENDER_S``, and return its result. Raises
    what it raises, or ``TimeoutError``."""
    made: Future[str] = Future()

    def work() -> None:
        try:
            made.set_result(render())
        except BaseException as error:  # SystemExit, too, by which it is stopped
            made.set_exception(error)

    thread = threading.Thread(target=work, daemon=True, name="stageb-template")
    try:
        with _limit_memory():  # from before it starts: it may never let go of the interpreter
            thread.start()
            return made.result(RENDER_S)
    except TimeoutError:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit)
        )
        raise


@contextlib.contextmanager
def _limit_memory() -> Iterator[None]:
    """Have what would take more than ``RENDER_BYTES`` raise ``MemoryError``, where the system can
    tell."""
    try:
        import resource

        used = int(Path("/proc/self/statm").read_bytes().split()[5]) * resource.getpagesize()
    except (ImportError, OSError):
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = used + RENDER_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (most if soft < 0 else min(soft, most), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _list_conversations(system: str, marker: str) -> Iterator[list[dict[str, Any]]]:
    """The forms in which a template may take a system text and the marker, best first."""
    user = f"{_EDGE}{marker}{_EDGE}"
    if system:
        yield [{"role": "system", "content": system}, {"role": "user", "content": user}]
    yield [{"role": "user", "content": f"{system}\n\n{user}" if system else user}]
    typed = [{"type": "text", "text": system}] if system else []
    yield [{"role": "user", "content": [*typed, {"type": "text", "text": user}]}]


def _cut(text: str, marker: str) -> RenderedChat:
    """The frame that ``text`` puts around ``marker``."""
    shared, _, closing = text.partition(marker)
    return RenderedChat(
        shared=shared.removesuffix(_EDGE),
        closing=closing.removeprefix(_EDGE),
        trims_left=not shared.endswith(_EDGE),
        trims_right=not closing.startswith(_EDGE),
    )
