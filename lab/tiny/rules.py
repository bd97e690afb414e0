"""Rules with an exact meaning: what is true of a ticket, conditions on it, and rules that can be
written, read and executed.

A rule is a condition that code can test and a text that a model can read. The meaning is the one
that the product's prompts state: a rule that begins with Pass wins, else any rule that fails the
ticket does, else the headline decides (pass, unless it says that a ticket fails).
"""

from __future__ import annotations

import math
import operator
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.words.types import PASS_FAIL, Verdict

Kind = Literal[
    "is",
    "not",
    "in",
    "none",
    "above",
    "below",
    "least",
    "most",
    "mentions",
    "silent",
    "equals",
    "differs",
    "over",
    "under",
]
COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "above": operator.gt,
    "below": operator.lt,
    "least": operator.ge,
    "most": operator.le,
}
COMPARISONS: tuple[Kind, ...] = ("above", "below", "least", "most")
SUFFIXES = ("", "", "", "s", "ed", "ing", "age", "er")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


@dataclass(frozen=True)
class Facts:
    """The facts about one ticket."""

    values: Mapping[str, str]  # attribute -> value
    notes: tuple[str, ...]  # words of the free text

    def value(self, name: str) -> str | None:
        """Return the value of an attribute, or the result of a calculation with two of them (``A ×
        B``); None where one is missing."""
        if name in self.values or (computed := operands(name)) is None:
            return self.values.get(name)
        one, sign, other = computed
        left, right = self.values.get(one), self.values.get(other)
        if left is None or right is None:
            return None
        return f"{OPERATORS[sign](quantity(left), quantity(right)):.12g}"

    @cached_property
    def forms(self) -> frozenset[str]:
        """The words of the notes, each also without every ending that ``mentions`` forgives."""
        return frozenset(word.removesuffix(end) for word in self.notes for end in SUFFIXES)

    def mentions(self, phrase: str) -> bool:
        """Whether the notes hold the phrase: its last word may carry an ending."""
        parts = phrase.split(" ")
        if len(parts) == 1:
            return phrase in self.forms
        for start in range(len(self.notes) - len(parts) + 1):
            span = self.notes[start : start + len(parts)]
            last = span[-1]
            if (
                list(span[:-1]) == parts[:-1]
                and last.startswith(parts[-1])
                and last[len(parts[-1]) :] in SUFFIXES
            ):
                return True
        return False


def stems(word: str) -> list[str]:
    """The word without an ending that ``Facts.mentions`` forgives: what would find its relatives
    too."""
    return [
        word.removesuffix(end)
        for end in sorted(set(SUFFIXES))
        if end and word.endswith(end) and len(word) > len(end) + 2
    ]


@lru_cache(maxsize=1 << 16)
def quantity(text: str) -> float:
    """The number that a value begins with, a unit may follow; not a number where it begins with
    none."""
    found = _NUMBER.match(text)
    return float(found[0]) if found else math.nan


BETWEEN: Mapping[str, Callable[[str, str], bool]] = {  # two attributes' values
    "equals": operator.eq,
    "differs": operator.ne,
    "over": lambda one, other: quantity(one) > quantity(other),
    "under": lambda one, other: quantity(one) < quantity(other),
}


OPERATORS: Mapping[str, Callable[[float, float], float]] = {
    "×": operator.mul,
    "+": operator.add,
    "-": operator.sub,
}
_COMPUTED = re.compile(r"(.+) ([×+-]) (.+)")


@lru_cache(maxsize=1 << 16)
def operands(name: str) -> tuple[str, str, str] | None:
    """The parts of ``A × B``; None where it is the name of an attribute."""
    found = _COMPUTED.fullmatch(name)
    return (found[1], found[2], found[3]) if found else None


def listed(values: Sequence[str], last: str) -> str:
    """``a, b or c``, where ``last`` is what stands before the last one."""
    return ", ".join(values[:-1]) + last + values[-1] if len(values) > 1 else values[0]


@dataclass(frozen=True, slots=True)
class Condition:
    """One testable statement about a ticket."""

    kind: Kind
    attribute: str  # empty for mentions and silent
    # one, but for "in", "none", "mentions" and "silent"; between two attributes: the other's name
    values: tuple[str, ...]

    @property
    def attributes(self) -> tuple[str, ...]:
        """Whose values it looks at: an empty name stands for the notes."""
        sides = (self.attribute, *self.values) if self.kind in BETWEEN else (self.attribute,)
        return tuple(name for side in sides for name in (operands(side) or (side,))[::2])

    def holds(self, facts: Facts) -> bool:
        """Whether it is true of a ticket; a missing attribute makes it false."""
        if self.kind in ("mentions", "silent"):
            return any(facts.mentions(value) for value in self.values) == (self.kind == "mentions")
        have = facts.value(self.attribute)
        if have is None:
            return False
        if self.kind in BETWEEN:
            other = facts.value(self.values[0])
            return other is not None and BETWEEN[self.kind](have, other)
        if self.kind in COMPARISONS:
            return COMPARE[self.kind](quantity(have), quantity(self.values[0]))
        return (have in self.values) == (self.kind in ("is", "in"))

    def text(self, language: str, style: Style) -> str:
        """The statement in words."""
        a, v = self.attribute, self.values
        if language == "zh":
            some = "、".join(v[:-1]) + "或" + v[-1] if len(v) > 1 else v[0]
            return {
                "is": f"{a}为{v[0]}",
                "in": f"{a}为{some}",
                "not": f"{a}不为{v[0]}",
                "none": f"{a}不为{some}",
                "above": f"{a}大于{v[0]}",
                "below": f"{a}小于{v[0]}",
                "least": f"{a}至少{v[0]}",
                "most": f"{a}至多{v[0]}",
                "mentions": f"摘要提到{some}",
                "silent": f"摘要未提到{some}",
                "equals": f"{a}等于{v[0]}",
                "differs": f"{a}不等于{v[0]}",
                "over": f"{a}大于{v[0]}",
                "under": f"{a}小于{v[0]}",
            }[self.kind]
        some = listed(v, " or ")
        return {
            "is": f"{style.article}{a}{style.equals}{v[0]}",
            "in": f"{style.article}{a} is {style.either.format(some)}",
            "not": f"{style.article}{a} {style.differs} {v[0]}",
            "none": f"{style.article}{a} is {style.neither} "
            f"{listed(v, ' nor ' if style.neither == 'neither' else ' or ')}",
            "above": f"{style.article}{a} is {style.above} {v[0]}",
            "below": f"{style.article}{a} is {style.below} {v[0]}",
            "least": f"{style.article}{a} is {style.least} {v[0]}",
            "most": f"{style.article}{a} is {style.most} {v[0]}",
            "mentions": f"{style.mentions} {some}",
            "silent": f"{style.silent} {some}",
            "equals": f"{style.article}{a} {style.same} {style.article}{v[0]}",
            "differs": f"{style.article}{a} {style.unlike} {style.article}{v[0]}",
            "over": f"{style.article}{a} is {style.above} {style.article}{v[0]}",
            "under": f"{style.article}{a} is {style.below} {style.article}{v[0]}",
        }[self.kind]

    def seen(self, facts: Facts, language: str) -> str:
        """The statement as one ticket shows it, for the reason line."""
        if self.kind in ("in", "none"):
            return Condition("is", self.attribute, (facts.values[self.attribute],)).text(
                language, CANONICAL
            )
        if self.kind == "mentions":
            first = next(value for value in self.values if facts.mentions(value))
            return Condition("mentions", "", (first,)).text(language, CANONICAL)
        return self.text(language, CANONICAL)


@dataclass(frozen=True, slots=True)
class Style:
    """How a person writes rules; CANONICAL is how the model is taught to."""

    article: str = ""
    equals: str = " is "
    above: str = "above"
    below: str = "below"
    least: str = "at least"
    most: str = "at most"
    differs: str = "is not"
    either: str = "{}"
    neither: str = "neither"
    mentions: str = "a summary mentions"
    silent: str = "no summary mentions"
    same: str = "equals"
    unlike: str = "differs from"
    opening: str = "{verdict} if "

    @staticmethod
    def draw(rng: random.Random) -> Style:
        """The canonical style half of the time, else a mixture."""
        if rng.random() < 0.5:
            return CANONICAL
        return Style(
            article=rng.choice(("", "", "", "the ")),
            equals=rng.choice((" is ", " is ", " = ", ": ")),
            above=rng.choice(("above", "over", "greater than", "more than", ">")),
            below=rng.choice(("below", "under", "less than", "<")),
            least=rng.choice(("at least", "at least", ">=", "no less than", "not below")),
            most=rng.choice(("at most", "at most", "<=", "no more than", "not above")),
            differs=rng.choice(("is not", "is not", "isn't", "!=", "is other than")),
            either=rng.choice(("{}", "{}", "either {}", "one of {}", "any of {}")),
            neither=rng.choice(("neither", "neither", "none of", "not")),
            mentions=rng.choice(
                (
                    "a summary mentions",
                    "a summary mentions",
                    "the notes mention",
                    "it mentions",
                    "the text says",
                )
            ),
            silent=rng.choice(
                (
                    "no summary mentions",
                    "no summary mentions",
                    "the notes do not mention",
                    "it does not mention",
                )
            ),
            same=rng.choice(
                ("equals", "equals", "is the same as", "is equal to", "has the same value as")
            ),
            unlike=rng.choice(
                ("differs from", "differs from", "is not the same as", "is not equal to")
            ),
            opening=rng.choice(
                (
                    "{verdict} if ",
                    "{verdict} when ",
                    "{verdict} a ticket if ",
                    "{verdict} tickets where ",
                )
            ),
        )


CANONICAL = Style()


@dataclass(frozen=True, slots=True)
class WorldRule:
    """``verdict`` if every condition holds unless the exception does; inverted: unless they all
    hold."""

    verdict: Verdict
    conditions: tuple[Condition, ...]
    exception: Condition | None = None
    inverted: bool = False

    def fires(self, facts: Facts) -> bool:
        """Whether the rule speaks of a ticket."""
        holds = all(condition.holds(facts) for condition in self.conditions)
        if self.inverted:
            return not holds
        return holds and not (self.exception is not None and self.exception.holds(facts))

    def text(self, language: str, style: Style) -> str:
        """The rule in words."""
        exception = self.exception.text(language, style) if self.exception else ""
        return self.written(
            [condition.text(language, style) for condition in self.conditions],
            exception,
            language,
            style,
        )

    def written(
        self, conditions: Sequence[str], exception: str, language: str, style: Style
    ) -> str:
        """The rule around its conditions and its exception, which are in words already."""
        if language == "zh":
            body, verdict = (
                "且".join(conditions),
                WORDS["zh"].verdicts.get(self.verdict, self.verdict),
            )
            if self.inverted:
                return f"{verdict}：除非{body}。"
            return f"{verdict}：{body}{f'，除非{exception}' if exception else ''}。"
        body, verdict = " and ".join(conditions), self.verdict[:1].upper() + self.verdict[1:]
        if self.inverted:
            return f"{verdict} unless {body}."
        return f"{style.opening.format(verdict=verdict)}{body}{f' unless {exception}' if exception else ''}."

    def seen(self, facts: Facts, language: str) -> str:
        """Why it fired, for the reason line."""
        if self.inverted:
            broken = next(condition for condition in self.conditions if not condition.holds(facts))
            text = broken.text(language, CANONICAL)
            if broken.kind in ("is", "in"):
                return (
                    text.replace("为", "不为", 1)
                    if language == "zh"
                    else text.replace(" is ", " is not ", 1)
                )
            return f"并非{text}" if language == "zh" else f"not: {text}"
        return ("且" if language == "zh" else " and ").join(
            c.seen(facts, language) for c in self.conditions
        )


@dataclass(frozen=True, slots=True)
class Book:
    """Rules under their keys, with a headline: a guidance that code can execute."""

    rules: Mapping[str, WorldRule]
    default: Verdict  # what the headline decides where no rule speaks
    # of others the first rule that speaks decides, and the first is the default
    labels: tuple[Verdict, ...] = PASS_FAIL

    def judge(self, facts: Facts, language: str) -> tuple[Verdict, str, str]:
        """Verdict, reason line, and the key of the rule that decided (G0: none did)."""
        for verdict in PASS_FAIL if self.labels == PASS_FAIL else (None,):
            for key, rule in self.rules.items():
                if verdict in (None, rule.verdict) and rule.fires(facts):
                    return rule.verdict, f"{rule.seen(facts, language)} ({key})", key
        if self.labels != PASS_FAIL:
            return (
                self.default,
                {"en": "no rule speaks of it (G0)", "zh": "无规则适用 (G0)"}[language],
                "G0",
            )
        nothing = {
            ("en", "pass"): "no rule fails it (G0)",
            ("en", "fail"): "no rule passes it (G0)",
            ("zh", "pass"): "无规则判不通过 (G0)",
            ("zh", "fail"): "无规则判通过 (G0)",
        }
        return self.default, nothing[language, self.default], "G0"
