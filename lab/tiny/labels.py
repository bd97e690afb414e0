"""The labels of a synthetic mission: by rules, points, a comparison of numbers, or a class that
sways values."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from lab.tiny.examples import numbered
from lab.tiny.pool import Pool
from lab.tiny.rules import Book, Condition, Facts, WorldRule, quantity
from lab.tiny.worlds import Scale, World, draw_condition, draw_rule
from stageb.guidance.words.types import Verdict


def draw_pool(rng: random.Random, world: World) -> tuple[Pool, list[WorldRule]] | None:
    """Tickets with labels, and the rules behind these if there are any. None where nearly all
    labels are the same."""
    size, kind = rng.choice((100, 200, 300, 450, 600)), rng.random()
    if kind < 0.1 and len(world.values) >= 3:
        facts, labels = labels_by_class(rng, world, size)
        return pool_of(rng, world, facts, labels), []
    facts = [world.draw(rng) for _ in range(size)]
    hidden: list[WorldRule] = []
    numeric = [
        name
        for name in world.layout
        if all(quantity(value) >= 0 for value in _some_values(world, name))
    ]
    if kind < 0.25 and len(numeric) >= 2:
        labels = labels_by_numbers(rng, numeric, facts)
    elif kind < 0.42 and len(world.values) >= 3:
        labels = labels_by_points(rng, world, facts)
    else:
        hidden = hidden_rules(world, rng)
        truth = Book({f"G{number}": rule for number, rule in enumerate(hidden)}, "pass")
        failed = Pool(world, facts, ["pass"] * len(facts)).fail(truth)
        labels = ["fail" if failed >> position & 1 else "pass" for position in range(len(facts))]
    share = labels.count("fail") / len(labels)
    return (pool_of(rng, world, facts, labels), hidden) if 0.03 < share < 0.97 else None


def pool_of(
    rng: random.Random, world: World, facts: Sequence[Facts], labels: Sequence[Verdict]
) -> Pool:
    """The tickets, some of them labelled wrong."""
    noise = rng.choice((0.0, 0.0, 0.02, 0.05, 0.08))
    return Pool(world, facts, [other(label) if rng.random() < noise else label for label in labels])


def _some_values(world: World, attribute: str) -> tuple[str, ...]:
    return world.values.get(attribute, ("0",))


def other(verdict: Verdict) -> Verdict:
    """The other verdict."""
    return "pass" if verdict == "fail" else "fail"


def hidden_rules(world: World, rng: random.Random) -> list[WorldRule]:
    """The rules that labels follow: mostly fail rules; in free text sometimes one with many
    words."""
    single = rng.choice((0.1, 0.3, 0.6) if world.alike else (0.2, 0.5, 0.8))
    if world.alike and world.values and rng.random() < 0.4:
        return lines(world, rng)
    drawn = [
        draw_rule(world, rng, "fail" if rng.random() < 0.85 else "pass", single)
        for _ in range(rng.randint(1, 8))
    ]
    plain = [word for word in world.vocabulary if len(word) > 1 and word.isalpha()]
    if len(plain) > 20 and rng.random() < 0.5:
        faults = tuple(rng.sample(plain, rng.randint(4, len(plain) // 4)))
        drawn = [
            WorldRule("fail", (Condition("mentions", "", faults),)),
            *drawn[: rng.randint(0, 2)],
        ]
    return [rule for rule in drawn if rule is not None]


def lines(world: World, rng: random.Random) -> list[WorldRule]:
    """Rules that each ask for one value in two or three places, like the lines of a board."""
    size = min(rng.choice((2, 3, 3)), len(world.values))
    value = rng.choice(next(iter(world.values.values())))
    having = [name for name, values in world.values.items() if value in values]
    if len(having) < size:
        return []
    places = [rng.sample(having, size) for _ in range(rng.randint(2, 8))]
    return [
        WorldRule("fail", tuple(Condition("is", place, (value,)) for place in each))
        for each in places
    ]


def labels_by_points(rng: random.Random, world: World, facts: Sequence[Facts]) -> list[Verdict]:
    """Fail for the tickets with most points, given for the values of some attributes; a few values
    fail by themselves."""
    chosen = rng.sample(list(world.values), rng.randint(2, min(6, len(world.values))))
    points: dict[tuple[str, str], float] = {}
    for attribute in chosen:
        weight = rng.uniform(0.3, 1.0)
        points |= {
            (attribute, value): weight * rng.uniform(0.0, 1.0) for value in world.values[attribute]
        }
    for _ in range(rng.choice((0, 0, 1, 2))):
        attribute = rng.choice(chosen)
        points[attribute, rng.choice(world.values[attribute])] = 9.0
    totals = [sum(points.get(pair, 0.0) for pair in each.values.items()) for each in facts]
    limit = sorted(totals)[int(rng.uniform(0.25, 0.8) * len(totals))]
    return ["fail" if total >= limit else "pass" for total in totals]


def labels_by_numbers(
    rng: random.Random, numeric: Sequence[str], facts: Sequence[Facts]
) -> list[Verdict]:
    """Fail for the tickets on one side of a limit: of a weighted sum of numbers, or of products
    against each other."""
    chosen = rng.sample(list(numeric), min(len(numeric), rng.choice((2, 2, 3, 4, 4))))
    columns = [[quantity(each.values.get(name, "0")) for each in facts] for name in chosen]
    columns = [[number / (max(column) or 1.0) for number in column] for column in columns]
    if len(columns) == 4 and rng.random() < 0.6:
        totals = [a * b - c * d for a, b, c, d in zip(*columns, strict=True)]
    else:
        weights = [
            (1 if spot % 2 else -1) * rng.choice((1.0, 1.0, 0.5)) for spot in range(len(columns))
        ]
        totals = [
            sum(w * x for w, x in zip(weights, row, strict=True))
            for row in zip(*columns, strict=True)
        ]
    limit = 0.0 if rng.random() < 0.6 else sorted(totals)[int(rng.uniform(0.3, 0.8) * len(totals))]
    return ["fail" if total > limit else "pass" for total in totals]


def labels_by_class(
    rng: random.Random, world: World, size: int
) -> tuple[list[Facts], list[Verdict]]:
    """Tickets of two classes, in which some attributes have other values more often: all of them
    tell something."""
    swayed = {name for name in world.layout if rng.random() < rng.choice((0.3, 0.8))}
    strength = rng.choice((0.3, 1.0, 3.0))
    weights = {
        name: tuple(weight * (rng.random() ** strength + 0.02) for weight in each)
        if name in swayed
        else each
        for name, each in world.weights.items()
    }
    numbers = {
        name: _half(rng, scale) if name in swayed else scale
        for name, scale in world.numbers.items()
    }
    across, share = replace(world, weights=weights, numbers=numbers), rng.uniform(0.25, 0.6)
    labels: list[Verdict] = ["fail" if rng.random() < share else "pass" for _ in range(size)]
    return [(across if label == "fail" else world).draw(rng) for label in labels], labels


def _half(rng: random.Random, scale: Scale) -> Scale:
    middle = (scale.low + scale.high) // 2
    return replace(scale, low=middle) if rng.random() < 0.5 else replace(scale, high=middle)


def known_rules(
    world: World, hidden: Sequence[WorldRule], rng: random.Random
) -> dict[str, WorldRule]:
    """A guidance that somebody wrote: some of the truth, some of it too broad, some in two halves,
    some junk."""
    known: list[WorldRule] = []
    for rule in hidden:
        if rng.random() < 0.6:
            known += _inexact(world, rule, rng)
    junk = (
        draw_rule(world, rng, "pass" if rng.random() < 0.25 else "fail")
        for _ in range(rng.choice((0, 1, 1, 2)))
    )
    known += [rule for rule in junk if rule is not None]
    rng.shuffle(known)
    return numbered(known, rng)


def _inexact(world: World, rule: WorldRule, rng: random.Random) -> list[WorldRule]:
    """A rule as it is, without its last condition, without its exception, or twice, each time with
    one condition more."""
    kind = rng.random()
    if kind < 0.5 and len(rule.conditions) > 1:
        return [replace(rule, conditions=rule.conditions[:-1])]
    if kind < 0.7 and rule.exception:
        return [replace(rule, exception=None)]
    if kind > 0.75 and len(rule.conditions) < 3 and not rule.inverted:
        further = [
            draw_condition(world, rng, [a for c in rule.conditions for a in c.attributes], True)
            for _ in range(2)
        ]
        return [
            replace(rule, conditions=(*rule.conditions, condition))
            for condition in further
            if condition
        ]
    return [rule]
