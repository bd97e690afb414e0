"""Texts cut to one line, compared, and what counts as copied. Pure functions on strings."""

from __future__ import annotations

import re
from collections.abc import Iterable

from stageb.untrusted.clean_text import unseen

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_TOKEN = re.compile(f"[{_CJK}]|[^\\W{_CJK}]+")
_COPY = 12  # half words in a row that make a copy: a CJK character is one, any other word two


def one_line(text: str, limit: int) -> str:
    """``text`` as one clean line of at most ``limit`` characters."""
    seen = "".join(" " if unseen(character) else character for character in text)
    return " ".join(seen.split())[:limit].rstrip()


def word_overlap(one: str, other: str) -> float:
    """How much two texts share: of all their different words, or CJK characters, the share that both have (Jaccard index).
    Case and punctuation do not count."""
    words, others = (frozenset(_TOKEN.findall(text.casefold())) for text in (one, other))
    return len(words & others) / len(words | others) if words | others else 1.0


def copied(text: str, sources: Iterable[str]) -> str:
    """The first run of words that ``text`` shares with one of ``sources``, or an empty string.

    A run is six words in a row, twelve characters of Chinese, Japanese or Korean, or a mixture (a word weighs as much as
    two characters). Case and punctuation do not count.
    """
    known = _runs(text)
    for source in sources:
        for run in _runs(source):
            if run in known:
                return " ".join(run)
    return ""


def _runs(text: str) -> dict[tuple[str, ...], None]:
    """Every shortest run of the text's words that is long enough to be a copy, in order."""
    words = _TOKEN.findall(text.casefold())
    weights = [1 if len(word) == 1 and re.match(f"[{_CJK}]", word) else 2 for word in words]
    runs: dict[tuple[str, ...], None] = {}
    end = weight = 0
    for start in range(len(words)):
        while weight < _COPY and end < len(words):
            weight += weights[end]
            end += 1
        if weight < _COPY:
            break
        runs[tuple(words[start:end])] = None
        weight -= weights[start]
    return runs
