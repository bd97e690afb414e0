"""Texts cut to one line, compared, and what counts as copied. Pure functions on strings."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from stageb.errors import shown
from stageb.untrusted.clean_text import CJK, fold_value, is_unseen, text_fault

_TOKEN = re.compile(f"[{CJK}]|[^\\W{CJK}]+")
_COPY = 12  # half words in a row that make a copy: a CJK character is one, any other word two


def one_line(text: str, limit: int) -> str:
    """``text`` as one clean line of at most ``limit`` characters."""
    seen = "".join(" " if is_unseen(character) else character for character in text)
    return " ".join(seen.split())[:limit].rstrip()


def count_of(n: int, what: str) -> str:
    """``1 failure``, ``2,000 failures``, ``no failure``."""
    return f"{n:,} {what}{'s' * (n != 1)}" if n else f"no {what}"


ALIKE = 0.6  # texts of which one may be meant by the other, of 1 (difflib)
SHORTEST = 3  # letters of a word that may stand for a longer one
MUCH_ALIKE = 0.85  # of which one is hardly anything else than the other


def find_nearest(name: str, names: Iterable[str], cutoff: float = ALIKE) -> str:
    """The most similar of ``names``, whatever their case; empty where none is similar by
    ``cutoff``, of 1."""
    folded = {each.casefold(): each for each in names}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=cutoff)
    return folded[near[0]] if near else ""


def find_renamed(name: str, names: Iterable[str]) -> str:
    """Which of ``names`` a column may have now that was called ``name``: the most similar one, not
    by its unit in brackets alone, or else one whose words all stand in it, as TSH in "TSH (µU/ml)",
    or the reverse; empty where there is none."""
    known = [*filter(None, names)]
    alike = [each for each in known if find_nearest(_without_unit(name), [_without_unit(each)])]
    within = [each for each in known if _holds_words(each, name) or _holds_words(name, each)]
    return (
        find_nearest(name, alike, MUCH_ALIKE)
        or find_nearest(name, within, 0.0)
        or find_nearest(name, alike)
    )


def _without_unit(name: str) -> str:
    return re.sub(r"\s*[(\[][^)\]]*[)\]]\s*\Z", "", name) or name


def _holds_words(text: str, part: str) -> bool:
    """Whether the words of ``part`` stand in ``text`` one after the other, cut short at times, as
    Temp for Temperature."""
    words, wanted = (re.findall(r"\w+", each.casefold()) for each in (text, part))

    def is_same(one: str, other: str) -> bool:
        return one == other or (
            min(len(one), len(other)) >= SHORTEST
            and (one.startswith(other) or other.startswith(one))
        )

    starts = range(len(words) - len(wanted) + 1) if wanted else ()
    return any(all(map(is_same, words[start:], wanted)) for start in starts)


def find_copied(text: str, sources: Iterable[str]) -> str:
    """The first run of words that ``text`` shares with one of ``sources``, or an empty string.

    A run is six words in a row, twelve characters of Chinese, Japanese or Korean, or a mixture (a
    word weighs as much as two characters). Case and punctuation do not count.
    """
    known = _list_runs(text)
    for source in sources:
        for run in _list_runs(source):
            if run in known:
                return " ".join(run)
    return ""


def _list_runs(text: str) -> dict[tuple[str, ...], None]:
    """Every shortest run of the text's words that is long enough to be a copy, in order."""
    words = _TOKEN.findall(text.casefold())
    weights = [1 if re.match(f"[{CJK}]", word) else 2 for word in words]
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


MOST_LABELS, LONGEST_LABEL, LONGEST_NAMED = 32, 40, 4000
TAKEN = ("none", "review", "model")  # what counts of verdicts hold beside the labels


def labels_fault(labels: Any) -> str:
    """Say what is wrong with the labels of a mission; empty where nothing is. Rules begin with
    them."""
    if not isinstance(labels, list | tuple):
        return "not a list"
    if not 2 <= len(labels) <= MOST_LABELS:
        return f"{len(labels):,} of them: there may be 2 to {MOST_LABELS}"
    if strange := [label for label in labels if label_fault(label)]:
        return f"{shown(repr(strange[0]), 60)}: {label_fault(strange[0])}"
    if taken := [label for label in labels if label in TAKEN]:
        return f"{taken[0]!r} stands for something else in figures: call it otherwise"
    folded = [list(alike) for _, alike in groupby(sorted(labels, key=fold_value), fold_value)]
    twice = [alike for alike in folded if len(alike) > 1]
    named = ", ".join(" and ".join(map(repr, alike)) for alike in twice[:3])
    if any(len({label.casefold() for label in alike}) > 1 for alike in twice):
        # two of these may look the same
        return f"{named} are the same but for how they are written (letters, a full stop, or .0)"
    return f"{named} are the same but for their case" if twice else ""


def are_named(found: Any) -> bool:
    """Whether these are ``Guidance.named`` as JSON has it: clean texts, two by two, the second one
    at times empty."""

    def is_pair(each: Any) -> bool:
        texts = (
            isinstance(each, list)
            and len(each) == 2
            and all(isinstance(text, str) for text in each)
        )
        return texts and not any(
            len(text) > LONGEST_NAMED or (text and text_fault(text)) for text in each
        )

    return isinstance(found, list) and all(map(is_pair, found))


def label_fault(label: Any) -> str:
    """Say what a label must be, if it is not; empty where nothing is wrong with it."""
    is_sound = (
        isinstance(label, str)
        and 0 < len(label) <= LONGEST_LABEL
        and label == " ".join(label.split())
    )
    is_sound = is_sound and "|" not in label and not text_fault(label)
    return (
        ""
        if is_sound
        else f"a text of 1 to {LONGEST_LABEL} characters with single spaces, without |"
    )


def verdict_words_fault(words: Mapping[str, str]) -> str:
    """Say what is wrong with a user's own words for pass and fail, and what to give; empty where
    nothing is."""
    if set(words) != {"pass", "fail"}:
        return "give a word for each of pass and fail, and for nothing else: {pass: OK, fail: NG}"
    one, other = (word.lower() for word in words.values())
    if not all(
        word and word.isprintable() and word == word.strip() and len(word) <= 40
        for word in words.values()
    ):
        return "one line each, of 1 to 40 printable characters, without white space around them"
    same = one.startswith(other) or other.startswith(one)
    return (
        "neither may begin with the other: a verdict would be told by its first letters"
        if same
        else ""
    )
