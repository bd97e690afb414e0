"""The worth of sampled answers: read as the loop reads them, their rules executed to the letter."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lab.tiny.pool import Pool
from lab.tiny.rules import COMPARISONS, Book, Condition, Kind, WorldRule
from lab.tiny.stage import Edit, edited
from stageb.engines import Decode, Engine, Prompt, Request
from stageb.guidance.config import ReflectionConfig
from stageb.guidance.words.types import Operation
from stageb.seeds import stream

SAMPLES = 12
REFLECTION = Decode(temperature=0.9, top_p=0.95, max_new_tokens=160)
VERDICT = Decode(temperature=0, max_new_tokens=24, stop=("\n",))
RULES = ReflectionConfig(max_operations=1)


def sampled(
    engine: Engine, prompt: Prompt, names: Sequence[int], samples: int = SAMPLES
) -> list[str]:
    """Answers as the loop samples them."""
    keys = tuple(stream("answer", *names, sample) for sample in range(samples))
    return [
        completion.text for completion in engine.generate([Request(prompt, REFLECTION, keys)])[0]
    ]


def net_gain(pool: Pool, tested: int, before: Book, after: Book) -> int:
    """Tickets of a mask that are judged right under one book, less those under the other."""
    return (pool.right(after) & tested).bit_count() - (pool.right(before) & tested).bit_count()


def edit_of(operation: Operation) -> Edit | None:
    """The edit that an operation asks for; None for a text that is no canonical rule, and for edits
    of the headline."""
    keys = operation.merged_from or ((operation.key,) if operation.key else ())
    rule = read_rule(operation.text) if operation.text else None
    if "G0" in keys or (operation.op != "remove" and rule is None):
        return None
    return Edit(operation.op, keys, rule)


def executed(book: Book, operation: Operation) -> Book | None:
    """The book after an operation; None where ``edit_of`` knows none."""
    edit = edit_of(operation)
    return edited(book, edit) if edit else None


_KINDS: tuple[tuple[str, Kind], ...] = (
    (" is neither ", "none"),
    (" is not ", "not"),
    (" is above ", "above"),
    (" is below ", "below"),
    (" is at least ", "least"),
    (" is at most ", "most"),
    (" differs from ", "differs"),
    (" is ", "in"),
    (" equals ", "equals"),
)


_ACROSS: dict[Kind, Kind] = {"above": "over", "below": "under"}  # the same words, of two attributes


def read_rule(text: str) -> WorldRule | None:
    """The rule that a canonical English text states; None where it is none."""
    found = re.fullmatch(r"(Fail|Pass) (if|unless) (.+?)(?: unless (.+))?\.", text)
    if found is None:
        return None
    conditions = [read_condition(_listed(part)) for part in found[3].split(" and ")]
    exception = read_condition(_listed(found[4])) if found[4] else None
    known = tuple(condition for condition in conditions if condition is not None)
    if len(known) < len(conditions) or (found[4] and exception is None):
        return None
    return WorldRule(
        "fail" if found[1] == "Fail" else "pass", known, exception, found[2] == "unless"
    )


def _listed(text: str) -> str:
    """``a is b or a is c`` as ``a is b or c``."""
    head = re.match(r"a summary mentions |.+? is ", text)
    return text.replace(f" or {head[0]}", " or ") if head else text


def read_condition(text: str) -> Condition | None:
    """The condition that a canonical English text states."""
    for start, said in (("a summary mentions ", "mentions"), ("no summary mentions ", "silent")):
        if text.startswith(start):
            return Condition(
                "mentions" if said == "mentions" else "silent",
                "",
                _values(text.removeprefix(start)),
            )
    for middle, kind in _KINDS:
        attribute, found, rest = text.partition(middle)
        if found:
            values = _values(rest) if kind in ("in", "none") else (rest,)
            if kind in COMPARISONS and not rest[:1].isdigit():
                if kind not in _ACROSS:
                    return None
                return Condition(_ACROSS[kind], attribute, (rest,))
            return Condition("is" if kind == "in" and len(values) == 1 else kind, attribute, values)
    return None


def _values(text: str) -> tuple[str, ...]:
    return tuple(re.split(r", | or | nor ", text))
