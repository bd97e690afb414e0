"""Reflection rows: runs of the loop in miniature, in which an exact teacher answers every
reflection.

A run draws a world, what its labels follow, and a pool of tickets in folds; then the guidance grows
by one edit of the teacher's at a time, now and then by a careless one. Every stage on the way
judges the tickets of one fold and makes lessons of them: what the product would show of it
(``learning.reflect``), and the best edits, weighed by what they do to the other folds, as the
product's gate does.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from lab.tiny.examples import Row, guidance_of, headline
from lab.tiny.fold import Fold
from lab.tiny.labels import draw_pool, known_rules
from lab.tiny.operations import operation_json
from lab.tiny.rules import CANONICAL, Book, Style, WorldRule
from lab.tiny.stage import Stage, edited
from lab.tiny.teacher import Option, options
from lab.tiny.worlds import World, draw_world
from stageb.guidance.rules.prompts import WORDS, ReflectionInput, reflection_prompt
from stageb.guidance.words.types import Guidance

STAGES = 8  # of one run
LOOKS = (2, 2, 3, 3)  # at the tickets of one stage


@dataclass(frozen=True, slots=True)
class Lesson:
    """One reflection with what the teacher knows."""

    row: Row
    stage: Stage
    options: list[Option]  # best first
    shown: ReflectionInput  # what the prompt shows
    guidance: Guidance


def lessons(
    rng: random.Random,
    difficulty: float,
    unseen: bool = False,
    chinese: float = 0.12,
    most_characters: int = 4500,
) -> Iterator[Lesson]:
    """Lessons without end, run after run."""
    while True:
        yield from run(rng, draw_world(rng, difficulty, unseen, chinese), unseen, most_characters)


def run(rng: random.Random, world: World, unseen: bool, most_characters: int) -> Iterator[Lesson]:
    """The lessons of one run, up to where the teacher finds nothing more."""
    drawn = draw_pool(rng, world)
    if drawn is None:
        return
    pool, hidden = drawn
    folds = rng.choice((2, 3, 3))
    order = rng.sample(range(len(pool.facts)), len(pool.facts))
    book = Book(known_rules(world, hidden, rng) if rng.random() < 0.5 else {}, "pass")
    top = headline(world.language, "pass", rng, unseen)
    style = Style.draw(rng) if rng.random() < 0.2 else CANONICAL
    most_operations = rng.choice((1, 1, 1, 2, 3, 4))
    for number in range(rng.randint(1, STAGES)):
        fold = Fold(
            rng, pool, book, order[number % folds :: folds], guidance_of(world, book, top, style)
        )
        shares: list[tuple[Option, float]] = []
        for _ in range(rng.choice(LOOKS)):
            stage, shown = fold.look(rng, most_characters)
            found = options(stage) if stage.wrong else []
            if found:
                shares = preferences(found)
                yield Lesson(
                    _row(stage, shown, fold.guidance, shares, most_operations),
                    stage,
                    found,
                    shown,
                    fold.guidance,
                )
        if not shares:
            return
        (chosen,) = rng.choices(
            [option.edit for option, _ in shares], [share for _, share in shares]
        )
        book = edited(book, replace(chosen, rule=careless(chosen.rule, rng)))


def _row(
    stage: Stage,
    shown: ReflectionInput,
    guidance: Guidance,
    shares: Sequence[tuple[Option, float]],
    most_operations: int,
) -> Row:
    """The prompt with its answers."""
    prompt = reflection_prompt(shown, guidance, WORDS[stage.pool.world.language], most_operations)
    answers = tuple((prompt.user, operation_json(option, stage, shown)) for option, _ in shares)
    mean = sum(share for _, share in shares) / len(shares)
    return Row(prompt.system, answers, tuple(share / mean for _, share in shares))


def preferences(found: Sequence[Option]) -> list[tuple[Option, float]]:
    """The options worth learning, at most five, with their shares: a softmax over scores, cooler
    where more is at stake."""
    best = found[0].score
    temperature = max(0.7, 0.18 * best)
    weighed = [(option, math.exp((option.score - best) / temperature)) for option in found[:5]]
    return [(option, weight) for option, weight in weighed if weight > 0.06]


def careless(rule: WorldRule | None, rng: random.Random) -> WorldRule | None:
    """The rule, now and then with a condition or an exception forgotten, so that later stages have
    something to mend."""
    if rule is None or rng.random() < 0.7:
        return rule
    if rule.exception:
        return replace(rule, exception=None)
    return replace(rule, conditions=rule.conditions[:-1]) if len(rule.conditions) > 1 else rule
