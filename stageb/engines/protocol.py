"""The Protocol at the model boundary, and where a model's thoughts end and its answer begins.

No library is imported here, so prompts, configs and the command line can speak of requests without
loading torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, runtime_checkable

from stageb import seeds
from stageb.errors import ConfigError

Finish = Literal["stop", "length", "filtered"]
Ids = tuple[int, ...]
"""Token ids of a text, as the engine's tokenizer has them."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A chat of one turn. ``system`` holds what many prompts share (instructions, guidance),
    ``user`` what is its own.

    ``images`` are picture files that stand before the user's words, in order: none unless the
    engine is ``ImageEngine``.
    """

    system: str
    user: str
    images: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decode:
    """How to sample one answer. ``temperature`` 0 is greedy: the most probable token, the lowest id
    on a tie."""

    temperature: float = 0.7
    top_p: float = 1.0
    top_k: int = 0  # 0: no limit
    max_new_tokens: int = 96
    seed: int = 0  # goes into the stream of every sample drawn with this decode setting
    stop: tuple[str, ...] = ()  # the answer ends before the first of these strings


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and the streams of its samples: ``keys[i]`` (see ``seeds.stream``) decides every
    draw of sample ``i``."""

    prompt: Prompt
    decode: Decode
    keys: tuple[int, ...]
    # words that the answer begins with; the model continues from there if the engine supports it
    begin: str = ""

    @property
    def streams(self) -> tuple[int, ...]:
        """The stream of each sample: its key; 0 for greedy samples, which draw nothing and so are
        all equal."""
        return (0,) * len(self.keys) if self.decode.temperature == 0 else self.keys


@dataclass(frozen=True, slots=True)
class Row:
    """One answer to sample: the ids after the shared ones, how to decode, and the random stream."""

    own: Ids
    decode: Decode
    key: int


def continue_row(row: Row, ids: Ids) -> Row:
    """The row that continues the answer of ``row`` after its first tokens ``ids``: they become part
    of the prompt, and the random stream goes on where it was left."""
    decode = replace(row.decode, max_new_tokens=row.decode.max_new_tokens - len(ids))
    return Row(row.own + ids, decode, seeds.ahead(row.key, len(ids)))


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled answer, without the stop string or the end-of-turn token."""

    # without the request's ``begin``; with it from an engine that could not have the model go on
    text: str
    tokens: int  # new tokens that the model made, the closing one included
    # "stop": the model or a stop string ended it; "length": max_new_tokens did; "filtered": a
    # server's filter withheld it
    finish: Finish
    # what the model thought aloud before it; the text is empty where it never came to an end
    thinking: str = ""
    # these tokens, where a stop string ended it and a ``Resumer`` can go on from them
    ids: Ids = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt and the beginnings of an answer to weigh against each other, such as ``("Verdict:
    pass", "Verdict: fail")``.

    They are two or more, none empty, none equal to another.
    """

    prompt: Prompt
    answers: tuple[str, ...]


@runtime_checkable
class Engine(Protocol):
    """A language model that answers requests.

    The contract, which ``tests/engines/contract.py`` checks for every engine in the registry:

    - ``generate`` returns one tuple per request, in the requests' order, with one completion per
      key, in the keys' order.
    - A completion depends on (model, prompt, decode, key) alone: not on the other requests of the
      call, not on their order, not on earlier calls, not on any global random state. (On real
      hardware the numbers under it may move in their last bits with a batch's shape; callers who
      need equal bytes hand over equal batches: canonical micro-batches,
      ``stageb/guidance/judging/rollout.py``.)
    - ``count_tokens`` returns the length in tokens of each prompt as ``generate`` would feed it, in
      order.
    - An empty sequence gives an empty list. Nothing given is changed.
    - Errors travel: ``EngineError`` (or what the library beneath raised) leaves the call; nothing
      becomes ``None``, and no request is dropped.
    - An engine that cannot show a prompt's images raises ``EngineError``; it never answers without
      them.
    """

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int]:
        """Length of each prompt in tokens, template and generation prompt included."""
        ...

    def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
        """Answer every request."""
        ...


@runtime_checkable
class Scorer(Engine, Protocol):
    """An engine that can also tell how probable an answer is, without sampling it. Not every engine
    can."""

    def score(self, questions: Sequence[Question]) -> list[tuple[float, ...]]:
        """For every question, in order, the natural log-probability of each of its answers' tokens
        after the prompt.

        At temperature 1, of the answer as it stands: what may follow it does not count. What the
        answers have in common may be left out, and what is not needed to tell them apart. The same
        rules as for ``generate`` hold: a score depends on (model, prompt, answers) alone, an empty
        sequence gives an empty list, errors travel.
        """
        ...


@runtime_checkable
class Served(Engine, Protocol):
    """An engine over a server, which has to be asked what it can do. Until then it takes it for one
    that can little."""

    continues: bool  # whether it goes on from what an answer begins with

    def probe(self, question: Question) -> Served:
        """The engine to use in this one's place, after a look at what the server makes of
        ``question``: a ``Scorer`` where the server tells how probable such answers are."""
        ...


@runtime_checkable
class Resumer(Engine, Protocol):
    """An engine that can go on with an answer from its very tokens. Not every engine can."""

    def resume(
        self, requests: Sequence[Request], begun: Sequence[Sequence[Ids]]
    ) -> list[tuple[Completion, ...]]:
        """Whole answers to ``requests``, in order, whose first tokens are drawn already: ``begun``
        has some for each key.

        They are ``Completion.ids`` of the same requests with further stop strings, and fewer than
        ``max_new_tokens``. Where draws are functions of key and position, the answers are those
        that ``generate`` gives without these stop strings.
        """
        ...


@runtime_checkable
class ImageEngine(Engine, Protocol):
    """An engine whose prompts may show images. Not every engine can, and not with every model."""

    def open_eyes(self) -> None:
        """Be ready for images. Raises ``ConfigError`` where the model cannot see; called before any
        work starts."""
        ...


def enable_images(engine: Engine, name: str) -> None:
    """Have ``engine``, which a config calls ``name``, be ready for images. Raises ``ConfigError``
    where it cannot."""
    if not isinstance(engine, ImageEngine):
        remedy = (
            "transformers can with a vision-language checkpoint, openai with a server that has one"
        )
        raise ConfigError("model.engine", name, f"it cannot show images; {remedy}")
    engine.open_eyes()


def cut_at_stop(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """``text`` up to the first of the strings ``stop``, and whether there is one in it."""
    ends = [end for end in map(text.find, stop) if end >= 0]
    return (text[: min(ends)], True) if ends else (text, False)


# Models that think aloud: where their thoughts end, and so where the answer begins.
#
# Such a model writes its thoughts first and closes them with a tag, ``</think>`` for most. What
# stands before the first such tag is no answer. The tag is the config's (``model.thinking_ends``),
# or the one that the chat template speaks of. Thoughts are *open* where the template's generation
# prompt has opened them already; otherwise the model opens them itself.

USUAL = "</think>"
KNOWN = (
    USUAL,
    "</thinking>",
    "</reasoning>",
    "</thought>",
    "[/THINK]",
    "</seed:think>",
    "◁/think▷",
)


@dataclass(frozen=True, slots=True)
class Thoughts:
    """How one model thinks aloud."""

    closes: str = USUAL  # the tag behind its thoughts
    opened: bool = False  # by the generation prompt, so that an answer begins inside of them

    @property
    def opens(self) -> str:
        """The tag before them: the closing one without its slash."""
        return self.closes.replace("/", "", 1)

    def split(self, text: str) -> tuple[str, str]:
        """Thoughts and answer in what the model wrote. Thoughts that are never closed leave no
        answer."""
        before, tag, after = text.partition(self.closes)
        begun = self.opens != self.closes and text.lstrip().startswith(self.opens)
        if not (tag or begun or self.opened):
            return "", text
        return before.strip().removeprefix(self.opens).strip(), after.strip()


def find_closing_tag(template: str) -> str:
    """The tag that closes a model's thoughts, by its chat template; the usual one where that speaks
    of none."""
    return next((tag for tag in KNOWN if tag in template), USUAL)


def is_configured(closes: str | None, variables: Mapping[str, Any]) -> bool:
    """Whether a config says that its model thinks aloud: it names the tag, or asks the chat
    template for it."""
    return closes is not None or bool(variables.get("enable_thinking"))


def thinks(engine: object) -> bool:
    """Whether ``engine`` says of its model that it thinks aloud before it answers: an attribute
    that engines may have."""
    return bool(getattr(engine, "thinks", False))


def split_message(message: Mapping[str, Any], thoughts: Thoughts) -> tuple[str, str]:
    """Thoughts and answer in a server's message: some servers part them, the others leave the tags
    in the text.

    Raises ``KeyError`` or ``TypeError`` where there is no answer, or none that is a text.
    """
    parted = (
        said
        for name in ("reasoning_content", "reasoning")
        if isinstance(said := message.get(name), str)
    )
    apart = next((said.strip() for said in parted if said.strip()), "")
    content = (message.get("content") if apart else message["content"]) or ""
    if isinstance(content, list):
        apart, content = (
            apart or _join_parts(content, "thinking").strip(),
            _join_parts(content, "text"),
        )
    if not isinstance(content, str):
        raise TypeError("not a text")
    return (apart, content.strip()) if apart else thoughts.split(content)


def _join_parts(parts: Sequence[Any], kind: str) -> str:
    """The words of the parts of one kind, in a message whose content is a list. Raises
    ``TypeError``."""
    said: list[Any] = [
        part.get(kind) for part in parts if isinstance(part, Mapping) and part.get("type") == kind
    ]
    return "".join(
        _join_parts(words, "text") if isinstance(words, list) else words for words in said
    )
