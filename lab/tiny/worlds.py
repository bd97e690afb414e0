"""Synthetic missions: attributes and free-text notes, tickets drawn from them, and rules about
them.

What the rules mean is exact (``rules.py``), and so is every label.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from lab.tiny import words
from lab.tiny.rules import COMPARISONS, SUFFIXES, Condition, Facts, Kind, WorldRule, quantity
from stageb.guidance.words.types import Ticket, Verdict


@dataclass(frozen=True)
class Scale:
    """Numbers that an attribute has."""

    low: int
    high: int
    decimals: int  # both are divided by ten to this power
    unit: str  # behind each number

    def written(self, drawn: int) -> str:
        """A number with its decimals, without its unit."""
        return f"{drawn / 10**self.decimals:.{self.decimals}f}" if self.decimals else str(drawn)

    def draw(self, rng: random.Random) -> int:
        """Any number; now and then all lengths are equally common."""
        if self.high > 99 and rng.random() < 0.3:
            return round(math.exp(rng.uniform(math.log(self.low + 1), math.log(self.high + 1)))) - 1
        return rng.randint(self.low, self.high)

    def near(self, rng: random.Random, text: str) -> int:
        """A number easily confused with another: beside it, longer, shorter, or of the same digits
        in another order."""
        other, kind = round(quantity(text) * float(10**self.decimals)), rng.random()
        if kind < 0.6:
            return max(0, other + rng.choice((-11, -10, -3, -2, -1, -1, 0, 1, 1, 2, 3, 10, 11)))
        if kind < 0.75:
            return other * 10 + rng.randint(0, 9)
        if kind < 0.9:
            return (
                other // 10
                if rng.random() < 0.5
                else rng.randint(0, max(0, 10 ** (len(str(other)) - 1) - 1))
            )
        return int("".join(rng.sample(str(other), len(str(other)))))


@dataclass(frozen=True)
class World:
    """One mission: its attributes, its vocabulary, and how its tickets are written down."""

    language: str
    mission: str
    values: Mapping[str, tuple[str, ...]]  # categorical attribute -> values
    weights: Mapping[str, tuple[float, ...]]  # how common each value is
    numbers: Mapping[str, Scale]  # numeric attribute -> which numbers
    vocabulary: tuple[str, ...]  # words of the notes; empty where there are none
    common: tuple[float, ...]  # how common each of them is, cumulated
    note_length: tuple[int, int]
    assign: str  # between attribute and value
    separator: str  # between attributes
    images: int  # into how many summaries a ticket is cut
    dropped: float = 0.0  # chance that an attribute is missing from a ticket
    layout: tuple[str, ...] = ()  # attributes in the order in which tickets show them
    # whether all attributes have the same few values, so that rules need several conditions
    alike: bool = False

    def draw(
        self,
        rng: random.Random,
        forced: Mapping[str, str] | None = None,
        planted: Sequence[str] = (),
    ) -> Facts:
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
            notes = rng.choices(
                self.vocabulary, cum_weights=self.common, k=rng.randint(*self.note_length)
            )
            for phrase in planted:
                spot = rng.randint(0, len(notes))
                notes[spot:spot] = (phrase + rng.choice(SUFFIXES)).split(" ")
        return Facts(values, tuple(notes))

    def number(self, rng: random.Random, attribute: str, near: str | None = None) -> str:
        """A value of a numeric attribute; ``near`` another one, now and then equal to it."""
        scale = self.numbers[attribute]
        text = scale.written(scale.draw(rng) if near is None else scale.near(rng, near))
        if scale.decimals and rng.random() < 0.1:  # not all write the same decimals
            text = text.rstrip("0").rstrip(".")
        return text + scale.unit

    def comparable(self, one: str, other: str) -> bool:
        """Whether two attributes have numbers of one scale, or values in common."""
        if one in self.numbers or other in self.numbers:
            return self.numbers.get(one) == self.numbers.get(other)
        return one != other and len({*self.values[one]} & {*self.values[other]}) > 1

    def ticket(self, facts: Facts, rng: random.Random, label: Verdict = "pass") -> Ticket:
        """The facts written down as a ticket's summaries."""
        shown = [f"{attribute}{self.assign}{value}" for attribute, value in facts.values.items()]
        size = -(-len(shown) // self.images) if shown else 1
        summaries = [
            self.separator.join(shown[start : start + size]) for start in range(0, len(shown), size)
        ]
        if facts.notes:
            text = self._punctuated(facts.notes, rng)
            summaries.insert(
                rng.randint(0, len(summaries))
                if summaries and rng.random() < 0.2
                else len(summaries),
                text,
            )
        return Ticket(
            self.mission,
            "g",
            label,
            tuple((f"image_{n}", text) for n, text in enumerate(summaries, 1)),
        )

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
            return " ".join(
                (*notes[:start], opened + " ".join(notes[start:end]) + closed, *notes[end:])
            )
        marks = ("", "", "", "", "", ",", " -", " /", ";", " <id>", ".")
        return " ".join(word + (rng.choice(marks) if rng.random() < 0.15 else "") for word in notes)


def draw_world(
    rng: random.Random,
    difficulty: float = 1.0,
    unseen: bool = False,
    chinese: float = 0.12,
    board: bool = False,
) -> World:
    """A world; ``difficulty`` in [0, 1] grows the number of attributes, words and writing styles.
    ``board``: one whose attributes are all alike."""
    language = "zh" if rng.random() < chinese else "en"
    zh = language == "zh"
    style = rng.uniform(0.22, 0.52) if board else rng.random()
    alike = 0.22 <= style < 0.52
    draw = no_attributes if style < 0.22 else alike_attributes if alike else sundry_attributes
    attributes = draw(rng, difficulty, unseen, zh)
    vocabulary: tuple[str, ...] = ()
    if style < 0.22 or style > 0.86:
        size = rng.randint(12, 30 + round(170 * difficulty))
        vocabulary = tuple(dict.fromkeys(_note_word(rng, unseen, zh) for _ in range(size)))
    steep = rng.choice((0.0, 0.5, 0.8))  # of Zipf's law; 0: all words are equally common
    common = tuple(accumulate((rank + 2) ** -steep for rank in range(len(vocabulary))))
    assign, separator = rng.choice(
        ((": ", "; "),) * 5
        + (
            (": ", ", "),
            (": ", ". "),
            ("=", "; "),
            ("=", ", "),
            (" = ", "; "),
            (" is ", ", "),
            (":", "; "),
        )
    )
    shortest = rng.randint(3, 6)
    return World(
        language=language,
        mission=words.title(rng, unseen, zh),
        values=attributes.values,
        weights={
            name: tuple(rng.uniform(0.3, 1.0) for _ in values)  # how common each value is
            for name, values in attributes.values.items()
        },
        numbers=attributes.numbers,
        vocabulary=vocabulary,
        common=common,
        note_length=(shortest, shortest + rng.randint(2, 9)),
        assign=assign,
        separator=separator,
        images=rng.choice((1, 1, 2, 3, 3, 4)),
        dropped=rng.choice((0.0, 0.0, 0.0, 0.1)),
        layout=attributes.names,
        alike=alike,
    )


@dataclass(frozen=True)
class Attributes:
    """The named attributes of a world's tickets."""

    names: tuple[str, ...] = ()
    values: dict[str, tuple[str, ...]] = field(default_factory=dict)
    numbers: dict[str, Scale] = field(default_factory=dict)


def no_attributes(rng: random.Random, difficulty: float, unseen: bool, zh: bool) -> Attributes:
    """None: a world of notes alone."""
    return Attributes()


def alike_attributes(rng: random.Random, difficulty: float, unseen: bool, zh: bool) -> Attributes:
    """Up to 40 attributes of related names and of the same few values, or numbers on one scale."""
    count = rng.randint(3, 3 + round(difficulty * rng.choice((6, 6, 9, 15, 22, 37))))
    if rng.random() < 0.2 or (zh and rng.random() < 0.6):
        names = tuple(dict.fromkeys(words.name(rng, unseen, zh) for _ in range(count)))
    else:
        names = words.family(rng, count, unseen)
    attributes = Attributes(names)
    few = words.few(rng, unseen, zh)
    few = few if len(few) > 1 else (*few, words.made_up(rng))
    shortened = rng.random() < 0.3  # some have the first of the values only
    numeric = rng.choice((0.0, 0.0, 0.0, 0.5, 1.0, 1.0))
    scale = draw_scale(rng, small=rng.random() < 0.6)
    for name in names:
        if rng.random() < numeric:
            attributes.numbers[name] = scale
        else:
            attributes.values[name] = few[: rng.randint(2, len(few))] if shortened else few
    return attributes


def sundry_attributes(rng: random.Random, difficulty: float, unseen: bool, zh: bool) -> Attributes:
    """Attributes of all kinds, each with values of its own or with some that others have too."""
    most = 2 + round(difficulty * (8 if rng.random() < 0.85 else 20))
    table = not zh and rng.random() < 0.25  # all names as one table writes them
    names = (
        words.column(rng, unseen) if table else words.name(rng, unseen, zh)
        for _ in range(rng.randint(2, max(3, most)))
    )
    attributes = Attributes(tuple(dict.fromkeys(names)))
    most_numeric = rng.choice((0.0, 0.0, 0.2, 0.5, 0.9)) * difficulty
    # values that several attributes have
    shared = [words.value(rng, unseen, zh) for _ in range(rng.randint(2, 6))]
    # sets of values that several attributes have
    scales = [words.scale(rng, unseen, zh) for _ in range(rng.randint(1, 3))]
    sharing, scaled = rng.choice((0.0, 0.3, 0.7, 1.0)), rng.choice((0.0, 0.3, 0.7, 1.0))
    for attribute in attributes.names:
        if rng.random() < most_numeric:
            attributes.numbers[attribute] = draw_scale(rng, small=False)
            continue
        if rng.random() < scaled:
            drawn = list(rng.choice(scales))
        else:
            drawn = [
                rng.choice(shared) if rng.random() < sharing else words.value(rng, unseen, zh)
                for _ in range(rng.choice((2, 2, 3, 3, 3, 4, 4, 5, 7)))
            ]
        distinct = tuple(dict.fromkeys(drawn))
        attributes.values[attribute] = (
            distinct if len(distinct) > 1 else (*distinct, words.made_up(rng))
        )
    return attributes


def draw_scale(rng: random.Random, small: bool) -> Scale:
    """Draw the scale of an attribute's numbers: small ones that may be taken for names of values,
    or any."""
    if small:
        return Scale(*rng.choice(((1, 5), (0, 9), (1, 10), (1, 4), (0, 20), (1, 8))), 0, "")
    low = rng.choice((0, 0, 1, 10, rng.randint(0, 500)))
    span = rng.choice((9, 20, 99, 99, 500, 2000, 9999, 60000))
    return Scale(
        low, low + span, rng.choice((0, 0, 0, 1, 1, 2)), rng.choice(("", "", "", words.unit(rng)))
    )


def _note_word(rng: random.Random, unseen: bool, zh: bool) -> str:
    kind = rng.random()
    if zh and kind < 0.6:
        return words.han(rng, 1, 3)
    if kind < 0.92:
        return words.plain(rng, unseen)
    if kind < 0.96:
        return str(rng.randint(0, 999))
    return rng.choice(("<id>", "-", "/", "#", "of", "the", "to", "by", "on", "no", "not"))


def draw_condition(
    world: World, rng: random.Random, taken: Sequence[str] = (), simple: bool = False
) -> Condition | None:
    """A condition that some of the world's tickets meet, on none of the attributes in ``taken``;
    None where none is left."""
    free = [a for a in world.layout if a not in taken]
    if world.vocabulary and (not free or rng.random() < 0.5):
        count = 1 if simple else rng.choice((1, 1, 1, 2, 2, 3, 4, 6, 8))
        kind: Kind = "silent" if rng.random() < 0.07 else "mentions"
        return Condition(kind, "", tuple(dict.fromkeys(_phrase(world, rng) for _ in range(count))))
    if not free:
        return None
    attribute = rng.choice(free)
    other = rng.choice(free)
    if rng.random() < 0.25 and other != attribute and world.comparable(attribute, other):
        return draw_between(world, rng, attribute, other)
    if attribute in world.numbers:
        return draw_limit(world, rng, attribute)
    values = world.values[attribute]
    drawn = rng.random()
    if drawn < 0.17 and len(values) > 2 and not (simple and drawn > 0.08):
        several = tuple(rng.sample(values, rng.randint(2, min(3, len(values) - 1))))
        return Condition("none" if drawn < 0.03 else "in", attribute, several)
    if drawn < 0.26:
        return Condition("not", attribute, (rng.choice(values),))
    if drawn < 0.32 and len(values) > 2 and all(value.isdigit() for value in values):
        return Condition(
            rng.choice(COMPARISONS), attribute, (rng.choice(sorted(values, key=int)[1:-1]),)
        )
    return Condition("is", attribute, (rng.choice(values),))


def draw_between(world: World, rng: random.Random, one: str, other: str) -> Condition:
    """How two attributes compare."""
    many = one in world.numbers and world.numbers[one].high - world.numbers[one].low > 20
    kinds: tuple[Kind, ...] = ("over", "under") if many else ("equals", "equals", "differs")
    if one in world.numbers and not many:
        kinds = ("equals", "differs", "over", "over", "under", "under")
    return Condition(rng.choice(kinds), one, (other,))


def draw_limit(world: World, rng: random.Random, attribute: str) -> Condition:
    """A number above or below some limit that tickets have on both sides."""
    scale = world.numbers[attribute]
    margin = (scale.high - scale.low) // 5
    spot = (
        rng.randint(scale.low + margin, scale.high - margin)
        if rng.random() < 0.7
        else max(1, scale.draw(rng))
    )
    text = scale.written(spot)
    if scale.decimals and rng.random() < 0.2:
        text = text.rstrip("0").rstrip(".")
    return Condition(
        rng.choice(COMPARISONS), attribute, (text + (scale.unit if rng.random() < 0.7 else ""),)
    )


def _phrase(world: World, rng: random.Random) -> str:
    letters = [word for word in world.vocabulary if len(word) > 1 and word.isalpha()] or [
        words.made_up(rng)
    ]
    return (
        " ".join(rng.sample(letters, 2))
        if rng.random() < 0.12 and len(letters) > 1
        else rng.choice(letters)
    )


_VERDICTS: tuple[Verdict, ...] = ("fail", "fail", "fail", "fail", "pass")


def draw_rule(
    world: World, rng: random.Random, verdict: Verdict | None = None, single: float = 0.5
) -> WorldRule | None:
    """A rule over the world's attributes and notes, of one condition with chance ``single``; None
    where the world has too few of them."""
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
                Condition("is", first.attribute, first.values[:1])
                if first.attribute
                else replace(first, kind="mentions")
            )
        return WorldRule(verdict, (first,), inverted=True)
    second = draw_condition(world, rng, taken=first.attributes, simple=True)
    if second is None:
        return WorldRule(verdict, (first,))
    if shape < 0.36:
        return WorldRule(verdict, (first,), exception=second)
    taken = (*first.attributes, *second.attributes)
    third = (
        draw_condition(world, rng, taken, simple=True)
        if shape > (0.5 if world.alike else 0.8)
        else None
    )
    if third and 0.8 < shape < 0.84:
        return WorldRule(verdict, (first, second), exception=third)
    return WorldRule(verdict, (first, second, third) if third else (first, second))
