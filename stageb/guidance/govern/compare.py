"""Two guidances of a mission, rule by rule; and what changed in a rule, word by word. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from stageb.guidance.types import Guidance

_WORD = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]|[^\\W\u3040-\u9fff\uac00-\ud7af]+|\\s+|."
)


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one rule."""

    kind: Literal["added", "removed", "changed", "renumbered"]
    key: str  # of the rule; where it is renumbered, the new one
    before: str = ""  # its text; where it is renumbered, the old key
    after: str = ""


def changes(old: Guidance | None, new: Guidance | None) -> list[Change]:
    """What turns ``old`` into ``new``, in the order of keys: by key, but for a rule whose text went to another one."""
    before = {rule.key: rule.text for rule in old.rules} if old else {}
    after = {rule.key: rule.text for rule in new.rules} if new else {}
    gone = {key: text for key, text in before.items() if after.get(key) != text}
    come = {key: text for key, text in after.items() if before.get(key) != text}
    moved = dict[str, str]()  # new key -> old key
    for key, text in come.items():
        was = next((other for other, said in gone.items() if said == text and other not in moved.values()), None)
        if was is not None:
            moved[key] = was
    found = [Change("renumbered", key, was, after[key]) for key, was in moved.items()]
    gone = {key: text for key, text in gone.items() if key not in moved.values()}
    come = {key: text for key, text in come.items() if key not in moved}
    for key in gone.keys() | come.keys():
        if key in gone and key in come:
            found.append(Change("changed", key, gone[key], come[key]))
        elif key in gone:
            found.append(Change("removed", key, gone[key]))
        else:
            found.append(Change("added", key, "", come[key]))
    return sorted(found, key=lambda change: (int(change.key[1:]), change.kind))


def lines(found: list[Change]) -> Iterator[str]:
    """The changes as a person reads them: + added, - removed, ~ changed with the words marked, > renumbered."""
    for change in found:
        if change.kind == "added":
            yield f"  + {change.key}. {change.after}"
        elif change.kind == "removed":
            yield f"  - {change.key}. {change.before}"
        elif change.kind == "changed":
            yield f"  ~ {change.key}. {words(change.before, change.after)}"
        else:
            yield f"  > {change.before} -> {change.key}. {change.after}"


def words(old: str, new: str) -> str:
    """``new`` with what it has in place of ``old``'s words marked, as git's word diff does: ``[-gone-]{+come+}``."""
    before, after = _WORD.findall(old), _WORD.findall(new)
    made = ""
    for kind, start, end, begins, ends in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        gone, come = "".join(before[start:end]), "".join(after[begins:ends])
        if kind == "equal":
            made += come
        else:
            made += (f"[-{gone}-]" if gone else "") + (f"{{+{come}+}}" if come else "")
    return made
