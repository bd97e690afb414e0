"""What differs between two guidances of a mission, rule by rule and word by word. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from stageb.guidance.types import Guidance

_WORD = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]|[^\\W\u3040-\u9fff\uac00-\ud7af]+|\\s+|."
)

Piece = tuple[Literal["same", "gone", "new"], str]
"""A stretch of a text, and whether the change kept it, took it out or put it in."""


@dataclass(frozen=True, slots=True)
class RuleChange:
    """What became of the rule with one key."""

    key: str
    before: str  # its text; empty where there was none
    after: str  # its text; empty where there is none any more

    @property
    def pieces(self) -> list[Piece]:
        """The change word by word (CJK: character by character)."""
        return compare_words(self.before, self.after)


def compare_rules(old: Guidance | None, new: Guidance | None) -> tuple[RuleChange, ...]:
    """What turns ``old`` into ``new``, in the order of keys."""
    before, after = ({rule.key: rule.text for rule in each.rules} if each else {} for each in (old, new))
    keys = sorted(before.keys() | after.keys(), key=lambda key: int(key[1:]))
    return tuple(
        RuleChange(key, before.get(key, ""), after.get(key, "")) for key in keys if before.get(key) != after.get(key)
    )


def find_moves(changes: Sequence[RuleChange]) -> dict[str, str]:
    """Rules whose text only went to another key: the new key -> the old one, each named once."""
    moves = dict[str, str]()
    for change in filter(lambda change: change.after, changes):
        gone = (each.key for each in changes if each.before == change.after and each.key not in moves.values())
        if (old := next(gone, None)) is not None:
            moves[change.key] = old
    return moves


def compare_words(old: str, new: str) -> list[Piece]:
    """``new`` against ``old``, in stretches."""
    before, after = _WORD.findall(old), _WORD.findall(new)
    pieces: list[Piece] = []
    for what, start, end, begins, ends in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if what == "equal":
            pieces.append(("same", "".join(before[start:end])))
            continue
        if end > start:
            pieces.append(("gone", "".join(before[start:end])))
        if ends > begins:
            pieces.append(("new", "".join(after[begins:ends])))
    return pieces
