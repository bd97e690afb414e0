"""Models that think aloud: where their thoughts end, and so where the answer begins.

Such a model writes its thoughts first and closes them with a tag, ``</think>`` for most. What stands before the first such
tag is no answer. The tag is the config's (``model.thinking_ends``), or the one that the chat template speaks of. Thoughts
are *open* where the template's generation prompt has opened them already; otherwise the model opens them itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

USUAL = "</think>"
KNOWN = (USUAL, "</thinking>", "</reasoning>", "</thought>", "[/THINK]", "</seed:think>", "◁/think▷")


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
        """Thoughts and answer in what the model wrote. Thoughts that are never closed leave no answer."""
        before, tag, after = text.partition(self.closes)
        begun = self.opens != self.closes and text.lstrip().startswith(self.opens)
        if not (tag or begun or self.opened):
            return "", text
        return before.strip().removeprefix(self.opens).strip(), after.strip()


def find_closing_tag(template: str) -> str:
    """The tag that closes a model's thoughts, by its chat template; the usual one where that speaks of none."""
    return next((tag for tag in KNOWN if tag in template), USUAL)


def is_configured(closes: str | None, variables: Mapping[str, Any]) -> bool:
    """Whether a config says that its model thinks aloud: it names the tag, or asks the chat template for it."""
    return closes is not None or bool(variables.get("enable_thinking"))


def thinks(engine: object) -> bool:
    """Whether ``engine`` says of its model that it thinks aloud before it answers: an attribute that engines may have."""
    return bool(getattr(engine, "thinks", False))


def split_message(message: Mapping[str, Any], thoughts: Thoughts) -> tuple[str, str]:
    """Thoughts and answer in a server's message: some servers part them, the others leave the tags in the text.

    Raises ``KeyError`` or ``TypeError`` where there is no answer, or none that is a text.
    """
    parted = (said for name in ("reasoning_content", "reasoning") if isinstance(said := message.get(name), str))
    apart = next((said.strip() for said in parted if said.strip()), "")
    content = (message.get("content") if apart else message["content"]) or ""
    if isinstance(content, list):
        apart, content = apart or _join_parts(content, "thinking").strip(), _join_parts(content, "text")
    if not isinstance(content, str):
        raise TypeError("not a text")
    return (apart, content.strip()) if apart else thoughts.split(content)


def _join_parts(parts: Sequence[Any], kind: str) -> str:
    """The words of the parts of one kind, in a message whose content is a list. Raises ``TypeError``."""
    said: list[Any] = [part.get(kind) for part in parts if isinstance(part, Mapping) and part.get("type") == kind]
    return "".join(_join_parts(words, "text") if isinstance(words, list) else words for words in said)
