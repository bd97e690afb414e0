"""Synthetic missions: attributes and free-text notes, tickets drawn from them, and rules about them.

What the rules mean is exact (``rules.py``), and so is every label.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from lab.tiny import words
from lab.tiny.rules import COMPARISONS, SUFFIXES, Condition, Facts, Kind, WorldRule, quantity
from stageb.guidance.types import Ticket, Verdict


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
