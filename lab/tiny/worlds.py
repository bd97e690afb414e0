"""Synthetic missions with an exact meaning: attributes, free-text notes, rules that can be written, read and executed.

A world draws tickets; a rule is a condition that code can test and a text that a model can read. The meaning is the one
that the product's prompts state: a rule that begins with Pass wins, else any rule that fails the ticket does, else the
headline decides (pass, unless it says that a ticket fails).
"""

from __future__ import annotations

import operator
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Literal

from lab.tiny import words
from stageb.guidance.prompts import WORDS
from stageb.guidance.types import Ticket, Verdict

Kind = Literal["is", "not", "in", "none", "above", "below", "least", "most", "mentions", "silent"]
COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "above": operator.gt,
    "below": operator.lt,
    "least": operator.ge,
    "most": operator.le,
}
COMPARISONS: tuple[Kind, ...] = ("above", "below", "least", "most")
SUFFIXES = ("", "", "", "s", "ed", "ing", "age", "er")
_NUMBER = re.compile(r"\d+(\.\d+)?")


@dataclass(frozen=True)
class Facts:
    """What is true of one ticket."""

    values: Mapping[str, str]  # attribute -> value
    notes: tuple[str, ...]  # words of the free text

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
            if list(span[:-1]) == parts[:-1] and last.startswith(parts[-1]) and last[len(parts[-1]) :] in SUFFIXES:
                return True
        return False


def stems(word: str) -> list[str]:
    """The word without an ending that ``Facts.mentions`` forgives: what would find its relatives too."""
    return [
        word.removesuffix(end) for end in sorted(set(SUFFIXES)) if end and word.endswith(end) and len(word) > len(end) + 2
    ]


def quantity(text: str) -> float:
    """The number that a value begins with; a unit may follow."""
    found = _NUMBER.match(text)
    if found is None:
        raise ValueError(f"no number: {text!r}")
    return float(found[0])


def listed(values: Sequence[str], last: str) -> str:
    """``a, b or c``, where ``last`` is what stands before the last one."""
    return ", ".join(values[:-1]) + last + values[-1] if len(values) > 1 else values[0]


@dataclass(frozen=True, slots=True)
class Condition:
    """One testable statement about a ticket."""

    kind: Kind
    attribute: str  # empty for mentions and silent
    values: tuple[str, ...]  # one, but for "in", "none", "mentions" and "silent"

    def holds(self, facts: Facts) -> bool:
        """Whether it is true of a ticket; a missing attribute makes it false."""
        if self.kind in ("mentions", "silent"):
            return any(facts.mentions(value) for value in self.values) == (self.kind == "mentions")
        have = facts.values.get(self.attribute)
        if have is None:
            return False
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
            }[self.kind]
        some = listed(v, " or ")
        return {
            "is": f"{style.article}{a}{style.equals}{v[0]}",
            "in": f"{style.article}{a} is {style.either.format(some)}",
            "not": f"{style.article}{a} {style.differs} {v[0]}",
            "none": f"{style.article}{a} is {style.neither} {listed(v, ' nor ' if style.neither == 'neither' else ' or ')}",
            "above": f"{style.article}{a} is {style.above} {v[0]}",
            "below": f"{style.article}{a} is {style.below} {v[0]}",
            "least": f"{style.article}{a} is {style.least} {v[0]}",
            "most": f"{style.article}{a} is {style.most} {v[0]}",
            "mentions": f"{style.mentions} {some}",
            "silent": f"{style.silent} {some}",
        }[self.kind]

    def seen(self, facts: Facts, language: str) -> str:
        """The statement as one ticket shows it, for the reason line."""
        if self.kind in ("in", "none"):
            return Condition("is", self.attribute, (facts.values[self.attribute],)).text(language, CANONICAL)
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
    opening: str = "{verdict} if "

    @staticmethod
    def draw(rng: random.Random) -> Style:
        """The canonical style half of the time, else a mixture."""
        if rng.random() < 0.5:
            return CANONICAL
        return Style(
            article=rng.choice(("", "", "", "the ")),
            equals=rng.choice((" is ", " is ", " = ", ": ", " equals ")),
            above=rng.choice(("above", "over", "greater than", "more than", ">")),
            below=rng.choice(("below", "under", "less than", "<")),
            least=rng.choice(("at least", "at least", ">=", "no less than", "not below")),
            most=rng.choice(("at most", "at most", "<=", "no more than", "not above")),
            differs=rng.choice(("is not", "is not", "isn't", "!=", "differs from", "is other than")),
            either=rng.choice(("{}", "{}", "either {}", "one of {}", "any of {}")),
            neither=rng.choice(("neither", "neither", "none of", "not")),
            mentions=rng.choice(
                ("a summary mentions", "a summary mentions", "the notes mention", "it mentions", "the text says")
            ),
            silent=rng.choice(
                ("no summary mentions", "no summary mentions", "the notes do not mention", "it does not mention")
            ),
            opening=rng.choice(("{verdict} if ", "{verdict} when ", "{verdict} a ticket if ", "{verdict} tickets where ")),
        )


CANONICAL = Style()


@dataclass(frozen=True, slots=True)
class WorldRule:
    """``verdict`` if every condition holds unless the exception does; inverted: unless they all hold."""

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
        parts = [condition.text(language, style) for condition in self.conditions]
        if language == "zh":
            body, verdict = "且".join(parts), WORDS["zh"].verdicts[self.verdict]
            if self.inverted:
                return f"{verdict}：除非{body}。"
            tail = f"，除非{self.exception.text('zh', style)}" if self.exception else ""
            return f"{verdict}：{body}{tail}。"
        body, verdict = " and ".join(parts), self.verdict.capitalize()
        if self.inverted:
            return f"{verdict} unless {body}."
        tail = f" unless {self.exception.text(language, style)}" if self.exception else ""
        return f"{style.opening.format(verdict=verdict)}{body}{tail}."

    def seen(self, facts: Facts, language: str) -> str:
        """Why it fired, for the reason line."""
        if self.inverted:
            broken = next(condition for condition in self.conditions if not condition.holds(facts))
            text = broken.text(language, CANONICAL)
            if broken.kind in ("is", "in"):
                return text.replace("为", "不为", 1) if language == "zh" else text.replace(" is ", " is not ", 1)
            return f"并非{text}" if language == "zh" else f"not: {text}"
        return ("且" if language == "zh" else " and ").join(c.seen(facts, language) for c in self.conditions)


@dataclass(frozen=True, slots=True)
class Book:
    """Rules under their keys, with a headline: a guidance that code can execute."""

    rules: Mapping[str, WorldRule]
    default: Verdict  # what the headline decides where no rule speaks

    def judge(self, facts: Facts, language: str) -> tuple[Verdict, str, str]:
        """Verdict, reason line, and the key of the rule that decided (G0: none did)."""
        for verdict in ("pass", "fail"):
            for key, rule in self.rules.items():
                if rule.verdict == verdict and rule.fires(facts):
                    return rule.verdict, f"{rule.seen(facts, language)} ({key})", key
        nothing = {
            ("en", "pass"): "no rule fails it (G0)",
            ("en", "fail"): "no rule passes it (G0)",
            ("zh", "pass"): "无规则判不通过 (G0)",
            ("zh", "fail"): "无规则判通过 (G0)",
        }
        return self.default, nothing[language, self.default], "G0"


@dataclass(frozen=True)
class World:
    """One mission: its attributes, its vocabulary, and how its tickets are written down."""

    language: str
    mission: str
    values: Mapping[str, tuple[str, ...]]  # categorical attribute -> values
    weights: Mapping[str, tuple[float, ...]]  # how common each value is
    numbers: Mapping[str, tuple[int, int, int, str]]  # numeric attribute -> lowest, highest, decimals, unit
    vocabulary: tuple[str, ...]  # words of the notes; empty where there are none
    common: tuple[float, ...]  # how common each of them is, cumulated
    note_length: tuple[int, int]
    assign: str  # between attribute and value
    separator: str  # between attributes
    images: int  # into how many summaries a ticket is cut
    dropped: float = 0.0  # chance that an attribute is missing from a ticket
    layout: tuple[str, ...] = field(default=())  # attributes in the order in which tickets show them

    def draw(self, rng: random.Random, forced: Mapping[str, str] | None = None, planted: Sequence[str] = ()) -> Facts:
        """A ticket's facts: ``forced`` values and ``planted`` phrases, all else by chance."""
        values: dict[str, str] = {}
        forced = forced or {}
        for attribute in self.layout:
            if attribute in forced:
                values[attribute] = forced[attribute]
            elif self.dropped and rng.random() < self.dropped:
                continue
            elif attribute in self.values:
                values[attribute] = rng.choices(self.values[attribute], self.weights[attribute])[0]
            else:
                values[attribute] = self.number(rng, attribute)
        notes: list[str] = []
        if self.vocabulary:
            notes = rng.choices(self.vocabulary, cum_weights=self.common, k=rng.randint(*self.note_length))
            for phrase in planted:
                spot = rng.randint(0, len(notes))
                notes[spot:spot] = (phrase + rng.choice(SUFFIXES)).split(" ")
        return Facts(values, tuple(notes))

    def number(self, rng: random.Random, attribute: str, near: str | None = None) -> str:
        """A value of a numeric attribute; ``near`` another one, now and then equal to it."""
        low, high, decimals, unit = self.numbers[attribute]
        drawn = rng.randint(low, high)
        if near is not None:
            drawn = max(
                0, round(quantity(near) * 10**decimals) + rng.choice((-11, -10, -3, -2, -1, -1, 0, 1, 1, 2, 3, 10, 11))
            )
        return (f"{drawn / 10**decimals:.{decimals}f}" if decimals else str(drawn)) + unit

    def ticket(self, facts: Facts, rng: random.Random, label: Verdict = "pass") -> Ticket:
        """The facts written down as a ticket's summaries."""
        shown = [f"{attribute}{self.assign}{value}" for attribute, value in facts.values.items()]
        size = -(-len(shown) // self.images) if shown else 1
        summaries = [self.separator.join(shown[start : start + size]) for start in range(0, len(shown), size)]
        if facts.notes:
            text = self._punctuated(facts.notes, rng)
            summaries.insert(rng.randint(0, len(summaries)) if summaries and rng.random() < 0.2 else len(summaries), text)
        return Ticket(self.mission, "g", label, tuple((f"image_{n}", text) for n, text in enumerate(summaries, 1)))

    @staticmethod
    def _punctuated(notes: Sequence[str], rng: random.Random) -> str:
        shape = rng.random()
        if shape < 0.15:
            return " ".join((notes[0].capitalize(), *notes[1:]))
        if shape < 0.2:
            return " ".join(notes).upper()
        if shape < 0.5:
            return " ".join(notes)
        if shape < 0.7:  # brackets, often at the end
            start = rng.randrange(len(notes))
            end = len(notes) if rng.random() < 0.6 else rng.randint(start + 1, len(notes))
            opened, closed = rng.choice((("( ", " )"), ("(", ")"), ("(", ")"), ("[", "]")))
            return " ".join((*notes[:start], opened + " ".join(notes[start:end]) + closed, *notes[end:]))
        marks = ("", "", "", "", "", ",", " -", " /", ";", " <id>", ".")
        return " ".join(word + (rng.choice(marks) if rng.random() < 0.15 else "") for word in notes)


def draw_world(rng: random.Random, difficulty: float = 1.0, unseen: bool = False, chinese: float = 0.12) -> World:
    """A world; ``difficulty`` in [0, 1] grows the number of attributes, words and writing styles."""
    language = "zh" if rng.random() < chinese else "en"
    zh = language == "zh"
    style = rng.random()
    most = 2 + round(difficulty * (8 if rng.random() < 0.85 else 20))
    count = 0 if style < 0.25 else rng.randint(2, max(3, most))
    names = list(dict.fromkeys(words.name(rng, unseen, zh) for _ in range(count)))
    most_numeric = rng.choice((0.0, 0.0, 0.15, 0.5)) * difficulty
    shared = [words.value(rng, unseen, zh) for _ in range(rng.randint(2, 6))]  # values that several attributes have
    scales = [words.scale(rng, unseen, zh) for _ in range(rng.randint(1, 3))]  # sets of values that several attributes have
    values: dict[str, tuple[str, ...]] = {}
    weights: dict[str, tuple[float, ...]] = {}
    numbers: dict[str, tuple[int, int, int, str]] = {}
    sharing = rng.choice((0.0, 0.3, 0.7, 1.0))
    scaled = rng.choice((0.0, 0.3, 0.7, 1.0))
    for attribute in names:
        if rng.random() < most_numeric:
            low = rng.choice((0, 0, 1, 10, rng.randint(0, 500)))
            unit = rng.choice(("", "", "", words.unit(rng)))
            numbers[attribute] = (low, low + rng.choice((9, 20, 99, 99, 500, 2000)), rng.choice((0, 0, 0, 1, 1, 2)), unit)
            continue
        if rng.random() < scaled:
            drawn = list(rng.choice(scales))
        else:
            drawn = [
                rng.choice(shared) if rng.random() < sharing else words.value(rng, unseen, zh)
                for _ in range(rng.choice((2, 2, 3, 3, 3, 4, 4, 5, 7)))
            ]
        distinct = tuple(dict.fromkeys(drawn))
        values[attribute] = distinct if len(distinct) > 1 else (*distinct, words.made_up(rng))
        weights[attribute] = tuple(rng.uniform(0.3, 1.0) for _ in values[attribute])
    vocabulary: tuple[str, ...] = ()
    if style < 0.25 or style > 0.9:
        size = rng.randint(12, 30 + round(170 * difficulty))
        vocabulary = tuple(dict.fromkeys(_note_word(rng, unseen, zh) for _ in range(size)))
    steep = rng.choice((0.0, 0.5, 0.8))  # of Zipf's law; 0: all words are equally common
    common = tuple(accumulate((rank + 2) ** -steep for rank in range(len(vocabulary))))
    assign, separator = rng.choice(
        ((": ", "; "),) * 5
        + ((": ", ", "), (": ", ". "), ("=", "; "), ("=", ", "), (" = ", "; "), (" is ", ", "), (":", "; "))
    )
    shortest = rng.randint(3, 6)
    return World(
        language=language,
        mission=words.title(rng, unseen, zh),
        values=values,
        weights=weights,
        numbers=numbers,
        vocabulary=vocabulary,
        common=common,
        note_length=(shortest, shortest + rng.randint(2, 9)),
        assign=assign,
        separator=separator,
        images=rng.choice((1, 1, 2, 3, 3, 4)),
        dropped=rng.choice((0.0, 0.0, 0.0, 0.1)),
        layout=tuple(names),
    )


def _note_word(rng: random.Random, unseen: bool, zh: bool) -> str:
    kind = rng.random()
    if zh and kind < 0.6:
        return words.han(rng, 1, 3)
    if kind < 0.92:
        return words.plain(rng, unseen)
    if kind < 0.96:
        return str(rng.randint(0, 999))
    return rng.choice(("<id>", "-", "/", "#", "of", "the", "to", "and", "on", "no", "not"))


def draw_condition(world: World, rng: random.Random, taken: Sequence[str] = (), simple: bool = False) -> Condition | None:
    """A condition that some of the world's tickets meet, on none of the attributes in ``taken``; None where none is left."""
    free = [a for a in world.layout if a not in taken]
    if world.vocabulary and (not free or rng.random() < 0.5):
        count = 1 if simple else rng.choice((1, 1, 1, 2, 2, 3, 4, 6, 8))
        kind: Kind = "silent" if rng.random() < 0.07 else "mentions"
        return Condition(kind, "", tuple(dict.fromkeys(_phrase(world, rng) for _ in range(count))))
    if not free:
        return None
    attribute = rng.choice(free)
    if attribute in world.numbers:
        low, high, decimals, unit = world.numbers[attribute]
        spot = rng.randint(low + (high - low) // 5, high - (high - low) // 5)
        text = f"{spot / 10**decimals:.{decimals}f}" if decimals else str(spot)
        return Condition(rng.choice(COMPARISONS), attribute, (text + (unit if rng.random() < 0.7 else ""),))
    values = world.values[attribute]
    drawn = rng.random()
    if drawn < 0.17 and len(values) > 2 and not (simple and drawn > 0.08):
        several = tuple(rng.sample(values, rng.randint(2, min(3, len(values) - 1))))
        return Condition("none" if drawn < 0.03 else "in", attribute, several)
    if drawn < 0.26:
        return Condition("not", attribute, (rng.choice(values),))
    return Condition("is", attribute, (rng.choice(values),))


def _phrase(world: World, rng: random.Random) -> str:
    letters = [word for word in world.vocabulary if len(word) > 1 and word.isalpha()] or [words.made_up(rng)]
    return " ".join(rng.sample(letters, 2)) if rng.random() < 0.12 and len(letters) > 1 else rng.choice(letters)


_VERDICTS: tuple[Verdict, ...] = ("fail", "fail", "fail", "fail", "pass")


def draw_rule(world: World, rng: random.Random, verdict: Verdict | None = None, single: float = 0.5) -> WorldRule | None:
    """A rule over the world's attributes and notes, of one condition with chance ``single``; None where the world has too
    few of them."""
    if verdict is None:
        drawn: Verdict = rng.choice(_VERDICTS)
        return draw_rule(world, rng, drawn, single)
    first = draw_condition(world, rng)
    if first is None:
        return None
    if rng.random() < single:
        return WorldRule(verdict, (first,))
    shape = rng.random()
    if shape < 0.16 and verdict == "fail":
        if first.kind in ("not", "none", "silent"):
            first = (
                Condition("is", first.attribute, first.values[:1]) if first.attribute else replace(first, kind="mentions")
            )
        return WorldRule(verdict, (first,), inverted=True)
    second = draw_condition(world, rng, taken=(first.attribute,), simple=True)
    if second is None:
        return WorldRule(verdict, (first,))
    if shape < 0.36:
        return WorldRule(verdict, (first,), exception=second)
    third = draw_condition(world, rng, taken=(first.attribute, second.attribute), simple=True) if shape > 0.8 else None
    if third and shape < 0.84:
        return WorldRule(verdict, (first, second), exception=third)
    return WorldRule(verdict, (first, second, third) if third else (first, second))
