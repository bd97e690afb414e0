"""Synthetic missions with an exact meaning: attributes, free-text notes, rules that can be written, read and executed.

A world draws tickets; a rule is a condition that code can test and a text that a model can read. The meaning is the one
that the product's prompts state: a rule that begins with Pass wins, else any rule that fails the ticket does, else the
headline decides (pass, unless it says that a ticket fails).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from stageb.guidance.prompts import WORDS
from stageb.guidance.types import Ticket, Verdict
from stageb.tiny import words

Kind = Literal["is", "not", "in", "above", "below", "mentions"]
SUFFIXES = ("", "", "", "s", "ed", "ing", "age", "er")


@dataclass(frozen=True, slots=True)
class Facts:
    """What is true of one ticket."""

    values: Mapping[str, str]  # attribute -> value
    notes: tuple[str, ...]  # words of the free text

    def mentions(self, phrase: str) -> bool:
        """Whether the notes hold the phrase: its last word may carry an ending."""
        parts = phrase.split(" ")
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


@dataclass(frozen=True, slots=True)
class Condition:
    """One testable statement about a ticket."""

    kind: Kind
    attribute: str  # empty for mentions
    values: tuple[str, ...]  # one, but for "in" and "mentions"

    def holds(self, facts: Facts) -> bool:
        """Whether it is true of a ticket; a missing attribute makes it false."""
        if self.kind == "mentions":
            return any(facts.mentions(value) for value in self.values)
        have = facts.values.get(self.attribute)
        if have is None:
            return False
        if self.kind == "above":
            return float(have) > float(self.values[0])
        if self.kind == "below":
            return float(have) < float(self.values[0])
        if self.kind == "not":
            return have != self.values[0]
        return have in self.values

    def text(self, language: str, style: Style) -> str:
        """The statement in words."""
        a, v = self.attribute, self.values
        if language == "zh":
            some = "、".join(v[:-1]) + "或" + v[-1] if len(v) > 1 else v[0]
            return {
                "is": f"{a}为{v[0]}",
                "in": f"{a}为{some}",
                "not": f"{a}不为{v[0]}",
                "above": f"{a}大于{v[0]}",
                "below": f"{a}小于{v[0]}",
                "mentions": f"摘要提到{some}",
            }[self.kind]
        some = ", ".join(v[:-1]) + " or " + v[-1] if len(v) > 1 else v[0]
        return {
            "is": f"{style.article}{a}{style.equals}{v[0]}",
            "in": f"{style.article}{a} is {some}",
            "not": f"{style.article}{a} is not {v[0]}",
            "above": f"{style.article}{a} is {style.above} {v[0]}",
            "below": f"{style.article}{a} is {style.below} {v[0]}",
            "mentions": f"{style.mentions} {some}",
        }[self.kind]

    def seen(self, facts: Facts, language: str) -> str:
        """The statement as one ticket shows it, for the reason line."""
        if self.kind == "in":
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
    mentions: str = "a summary mentions"
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
            mentions=rng.choice(
                ("a summary mentions", "a summary mentions", "the notes mention", "it mentions", "the text says")
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
    numbers: Mapping[str, tuple[int, int, int]]  # numeric attribute -> lowest, highest, decimals
    vocabulary: tuple[str, ...]  # words of the notes; empty where there are none
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
            notes = [rng.choice(self.vocabulary) for _ in range(rng.randint(*self.note_length))]
            for phrase in planted:
                spot = rng.randint(0, len(notes))
                notes[spot:spot] = (phrase + rng.choice(SUFFIXES)).split(" ")
        return Facts(values, tuple(notes))

    def number(self, rng: random.Random, attribute: str) -> str:
        """A value of a numeric attribute."""
        low, high, decimals = self.numbers[attribute]
        drawn = rng.randint(low, high)
        return f"{drawn / 10**decimals:.{decimals}f}" if decimals else str(drawn)

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
        if shape < 0.6:
            return " ".join(notes)
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
    numeric = {a for a in names if rng.random() < 0.12} if rng.random() < 0.35 * difficulty else set()
    shared = [words.value(rng, unseen, zh) for _ in range(rng.randint(2, 6))]  # values that several attributes have
    values: dict[str, tuple[str, ...]] = {}
    weights: dict[str, tuple[float, ...]] = {}
    numbers: dict[str, tuple[int, int, int]] = {}
    sharing = rng.choice((0.0, 0.3, 0.7, 1.0))
    for attribute in names:
        if attribute in numeric:
            low = rng.choice((0, 0, 1, 10, rng.randint(0, 500)))
            numbers[attribute] = (low, low + rng.choice((9, 20, 99, 99, 500, 2000)), rng.choice((0, 0, 0, 0, 1)))
            continue
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
        count = 1 if simple else rng.choice((1, 1, 1, 2, 2, 3, 4, 6))
        return Condition("mentions", "", tuple(dict.fromkeys(_phrase(world, rng) for _ in range(count))))
    if not free:
        return None
    attribute = rng.choice(free)
    if attribute in world.numbers:
        low, high, decimals = world.numbers[attribute]
        spot = rng.randint(low + (high - low) // 5, high - (high - low) // 5)
        text = f"{spot / 10**decimals:.{decimals}f}" if decimals else str(spot)
        return Condition(rng.choice(("above", "below")), attribute, (text,))
    values = world.values[attribute]
    kind = rng.random()
    if kind < 0.12 and len(values) > 2 and not simple:
        return Condition("in", attribute, tuple(rng.sample(values, rng.randint(2, min(3, len(values) - 1)))))
    if kind < 0.2:
        return Condition("not", attribute, (rng.choice(values),))
    return Condition("is", attribute, (rng.choice(values),))


def _phrase(world: World, rng: random.Random) -> str:
    letters = [word for word in world.vocabulary if len(word) > 1 and word.isalpha()] or [words.made_up(rng)]
    return " ".join(rng.sample(letters, 2)) if rng.random() < 0.12 and len(letters) > 1 else rng.choice(letters)


_VERDICTS: tuple[Verdict, ...] = ("fail", "fail", "fail", "fail", "pass")


def draw_rule(world: World, rng: random.Random, verdict: Verdict | None = None) -> WorldRule | None:
    """A rule over the world's attributes and notes; None where the world has too few of them."""
    if verdict is None:
        drawn: Verdict = rng.choice(_VERDICTS)
        return draw_rule(world, rng, drawn)
    shape = rng.random()
    first = draw_condition(world, rng)
    if first is None:
        return None
    if shape < 0.5:
        return WorldRule(verdict, (first,))
    if shape < 0.58 and verdict == "fail":
        if first.kind == "not":
            first = Condition("is", first.attribute, first.values)
        return WorldRule(verdict, (first,), inverted=True)
    second = draw_condition(world, rng, taken=(first.attribute,), simple=True)
    if second is None:
        return WorldRule(verdict, (first,))
    if shape < 0.7:
        return WorldRule(verdict, (first,), exception=second)
    third = draw_condition(world, rng, taken=(first.attribute, second.attribute), simple=True) if shape > 0.93 else None
    return WorldRule(verdict, (first, second, third) if third else (first, second))
