"""Score a checkpoint through the product's own engine: ``python -m lab.tiny.evaluate --model
stageb-tiny``.

Verdicts: fresh missions with unseen words, judged greedily, by the kind of rules. Reflections:
sampled as the loop samples them, at the first stage of a run, at later ones, where a rule is to be
mended, and without evidence; an answer is *usable* if the loop would take it, *admissible* if the
exact teacher knows it too, *best* if no edit that the teacher knows scores higher. Its *gain* is
what it does to the tickets that its prompt was not made from, executed to the letter, as a share of
what the teacher's best edit does; ``gain_of_12`` is that of the best of twelve, which is what a
gate would pick.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lab.tiny.answers import RULES, VERDICT, edit_of, net_gain, sampled
from lab.tiny.examples import Row, judged_row, labelled_row, rollout_row
from lab.tiny.lessons import Lesson, lessons
from lab.tiny.rules import CANONICAL, Book, Condition, Facts, WorldRule
from lab.tiny.stage import edited
from lab.tiny.worlds import World, draw_world
from stageb.engines import Engine, Prompt, Request, build
from stageb.engines.config import ModelConfig
from stageb.guidance.learning.proposals import parse_proposal
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.words.types import OpName
from stageb.seeds import stream

NUMBERS = re.compile(
    r" (above|over|greater than|more than|no less than|at least|below|under|less than|at most|>=?|<=?) |大于|小于|至少|至多"
)
BETWEEN = re.compile(
    r" (equals|differs from|is (not )?the same as|is (not )?equal to|has the same value as) |[^不]等于|不等于"
    r"| (above|over|greater than|more than|below|under|less than|>|<) (the )?[^\d-]|[大小]于\D"
)


# --------------------------------------------------------------------------------------------------------------- verdicts


def plain_row(rng: random.Random, tickets: int, chinese: float) -> Row:
    """A mission whose rules compare no numbers."""
    return next(row for row in _rows(rng, tickets, chinese) if not NUMBERS.search(row.system))


def number_row(rng: random.Random, tickets: int, chinese: float) -> Row:
    """A mission with rules that compare numbers."""
    return next(row for row in _rows(rng, tickets, chinese) if NUMBERS.search(row.system))


def _rows(rng: random.Random, tickets: int, chinese: float) -> Iterator[Row]:
    while True:
        yield rollout_row(
            rng, draw_world(rng, unseen=True, chinese=chinese), unseen=True, tickets=tickets
        )


def between_row(rng: random.Random, tickets: int, chinese: float) -> Row:
    """A mission with rules that compare two attributes."""
    return next(row for row in _rows(rng, tickets, chinese) if BETWEEN.search(row.system))


def own_labels_row(rng: random.Random, tickets: int, chinese: float) -> Row:
    """A mission with labels of its own."""
    return labelled_row(rng, draw_world(rng, unseen=True, chinese=chinese), True, tickets)


def look_alike_row(rng: random.Random, tickets: int, chinese: float) -> Row:
    """A mission in which attributes share their values, and values their pieces; rules of two and
    three conditions."""
    while True:
        world = draw_world(rng, 1.0, unseen=True, chinese=chinese)
        if (
            len(set(world.values.values())) < len(world.values)
            and not world.vocabulary
            and not world.alike
        ):
            return rollout_row(rng, world, unseen=True, tickets=tickets, single=0.1)


def few_values_row(rng: random.Random, tickets: int, chinese: float) -> Row:
    """A mission of 10 to 40 attributes that all have the same few values; rules of two and three
    conditions."""
    while True:
        world = draw_world(rng, 1.0, unseen=True, chinese=chinese)
        if world.alike and len(world.values) >= 10:
            return rollout_row(rng, world, unseen=True, tickets=tickets, single=0.1)


def lengths_row(rng: random.Random, tickets: int, chinese: float) -> Row:
    """A mission of one rule that compares a number, with tickets whose numbers are longer or
    shorter than its limit."""
    while True:
        world = draw_world(rng, 1.0, unseen=True, chinese=chinese)
        wide = [name for name, scale in world.numbers.items() if scale.high > 999]
        if wide:
            name = rng.choice(wide)
            limit = world.number(rng, name)
            condition = Condition(rng.choice(("above", "below", "least", "most")), name, (limit,))
            facts = [
                found for _ in range(tickets) if (found := _other_length(rng, world, name, limit))
            ]
            if len(facts) == tickets:
                return judged_row(
                    rng, world, Book({"G1": WorldRule("fail", (condition,))}, "pass"), facts, True
                )


def _other_length(rng: random.Random, world: World, name: str, limit: str) -> Facts | None:
    """A ticket whose number has more or fewer digits before the point than a limit; None where a
    few tries find none."""
    for _ in range(8):
        value = world.number(rng, name, limit if rng.random() < 0.5 else None)
        if len(_whole(value)) != len(_whole(limit)):
            return world.draw(rng, {name: value})
    return None


def _whole(value: str) -> str:
    return re.split(r"\D", value)[0]


def verdict_accuracy(engine: Engine, rows: Sequence[Row]) -> float:
    """Share of right verdicts."""
    right = total = 0
    for row in rows:
        requests = [Request(Prompt(row.system, user), VERDICT, (0,)) for user, _ in row.segments]
        for (completion,), (_, answer) in zip(engine.generate(requests), row.segments, strict=True):
            right += completion.text.strip() == answer.partition("\n")[0]
            total += 1
    return right / total


# ------------------------------------------------------------------------------------------------------------ reflections


def reflection_quality(engine: Engine, taught: Sequence[Lesson], seed: int) -> dict[str, float]:
    """Measure the worth of sampled answers to some English lessons; see the head of this file."""
    count: Counter[str] = Counter()
    sums = {"gain": 0.0, "gain_of_12": 0.0}
    for number, lesson in enumerate(taught):
        stage, book = lesson.stage, lesson.stage.book
        known: dict[tuple[OpName, tuple[str, ...], str], float] = {
            (
                o.edit.op,
                o.edit.keys,
                o.edit.rule.text("en", CANONICAL) if o.edit.rule else "",
            ): o.score
            for o in lesson.options
        }
        most = max(
            net_gain(stage.pool, stage.tested, book, edited(book, o.edit)) for o in lesson.options
        )
        gains = []
        for text in sampled(
            engine, Prompt(lesson.row.system, lesson.row.segments[0][0]), (seed, number)
        ):
            proposal = parse_proposal(text, lesson.shown, lesson.guidance, RULES, WORDS["en"], 0)
            gain = 0.0
            count["all"] += 1
            for operation in proposal.operations:
                keys = operation.merged_from or ((operation.key,) if operation.key else ())
                score, edit = known.get((operation.op, keys, operation.text)), edit_of(operation)
                count["usable"] += 1
                count["admissible"] += score is not None
                count["best"] += score is not None and score >= lesson.options[0].score - 0.5
                gain = (
                    net_gain(stage.pool, stage.tested, book, edited(book, edit)) / max(1, most)
                    if edit
                    else 0.0
                )
            gains.append(min(1.0, max(0.0, gain)))
        sums["gain"] += sum(gains) / len(gains)
        sums["gain_of_12"] += max(gains)
    shares = {name: count[name] / max(1, count["all"]) for name in ("usable", "admissible", "best")}
    means = {name: value / max(1, len(taught)) for name, value in sums.items()}
    return {name: round(value, 4) for name, value in (shares | means).items()}


# ------------------------------------------------------------------------------------------------------- the command line

VERDICTS: dict[str, tuple[Callable[[random.Random, int, float], Row], float]] = {
    "verdicts": (plain_row, 0.0),
    "verdicts_chinese": (plain_row, 1.0),
    "verdicts_with_number_rules": (number_row, 0.0),
    "verdicts_with_numbers_of_other_lengths": (lengths_row, 0.0),
    "verdicts_between_attributes": (between_row, 0.0),
    "verdicts_with_look_alikes": (look_alike_row, 0.0),
    "verdicts_with_few_values": (few_values_row, 0.0),
    "verdicts_of_own_labels": (own_labels_row, 0.0),
}


REFLECTIONS = (
    "reflections_first",
    "reflections_later",
    "reflections_mending",
    "reflections_without_evidence",
)


def kind_of(lesson: Lesson) -> str:
    """Under which head a lesson is counted."""
    if not lesson.shown.evidence.clues:
        return "reflections_without_evidence"
    if lesson.shown.rule:
        return "reflections_mending"
    return "reflections_later" if lesson.stage.book.rules else "reflections_first"


def scores(engine: Engine, worlds: int, seed: int) -> dict[str, Any]:
    """Everything about made-up missions."""
    rng = random.Random(stream("evaluate", seed))
    found: dict[str, Any] = {}
    for name, (draw, chinese) in VERDICTS.items():
        found[name] = round(
            verdict_accuracy(engine, [draw(rng, 10, chinese) for _ in range(worlds)]), 4
        )
        print(name, found[name], flush=True)
    taught: dict[str, list[Lesson]] = {name: [] for name in REFLECTIONS}
    for lesson in lessons(rng, 1.0, unseen=True, chinese=0.0):
        into = taught[kind_of(lesson)]
        if len(into) < worlds // 2 and (not into or into[-1].stage.pool is not lesson.stage.pool):
            into.append(lesson)
        if all(len(each) == worlds // 2 for each in taught.values()):
            break
    for name, each in taught.items():
        found[name] = reflection_quality(engine, each, seed)
        print(name, found[name], flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="stageb-tiny")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--worlds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    engine = build(ModelConfig(model_name_or_path=given.model), given.device)
    print(json.dumps(scores(engine, given.worlds, given.seed), indent=2))


if __name__ == "__main__":
    main()
