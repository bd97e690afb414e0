"""Reflection rows: runs of the loop in miniature, in which an exact teacher answers every reflection.

A run draws a world, what its labels follow, and a pool of tickets; then the guidance grows by one edit of the teacher's at a
time, now and then by a careless one, and every stage on the way makes a lesson: the cases that the loop would show, and the
best edits, weighed by what they do to the whole pool. The answer's rationale is the way to the edit: what to look for, the
wrong cases that have it, and the right ones that have it too (``but``), condition by condition.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from lab.tiny.examples import Row, guidance_of, headline, numbered
from lab.tiny.rules import CANONICAL, Book, Condition, Facts, Style, WorldRule
from lab.tiny.teacher import Option, Pool, Stage, bits, edited, options
from lab.tiny.worlds import World, draw_rule, draw_world
from stageb.guidance.prompts import Case, case_name, ordered_cases, reflection_prompt
from stageb.guidance.types import Guidance, Verdict

MOST_NAMED = 3  # cases of a kind, in a rationale and as evidence
STAGES = 8  # of one run


@dataclass(frozen=True, slots=True)
class Lesson:
    """One reflection with what the teacher knows."""

    row: Row
    stage: Stage
    options: list[Option]  # best first
    cases: list[Case]  # as the prompt names them
    guidance: Guidance


def lessons(
    rng: random.Random, difficulty: float, unseen: bool = False, chinese: float = 0.12, most_characters: int = 4500
) -> Iterator[Lesson]:
    """Lessons without end, run after run."""
    while True:
        yield from run(rng, draw_world(rng, difficulty, unseen, chinese), unseen, most_characters)


def run(rng: random.Random, world: World, unseen: bool, most_characters: int) -> Iterator[Lesson]:
    """The stages of one run, up to where the teacher finds nothing more."""
    drawn = draw_pool(rng, world)
    if drawn is None:
        return
    pool, hidden = drawn
    book = Book(known_rules(world, hidden, rng) if rng.random() < 0.3 else {}, "pass")
    top = headline(world.language, "pass", rng, unseen)
    style = Style.draw(rng) if rng.random() < 0.2 else CANONICAL
    most_operations = rng.choice((1, 1, 1, 2, 3, 4))
    for _ in range(rng.randint(1, STAGES)):
        stage, cases = draw_stage(rng, pool, book, most_characters)
        found = options(stage) if stage.wrong else []
        if not found:
            return
        guidance = guidance_of(world, book, top, style)
        prompt = reflection_prompt(cases, guidance, world.language, most_operations)
        shares = preferences(found)
        answers = tuple((prompt.user, operation_json(option, stage)) for option, _ in shares)
        mean = sum(share for _, share in shares) / len(shares)
        yield Lesson(Row(prompt.system, answers, tuple(share / mean for _, share in shares)), stage, found, cases, guidance)
        chosen = rng.choices([option for option, _ in shares], [share for _, share in shares])[0]
        book = edited(book, chosen.op, chosen.key, careless(chosen.rule, rng))


def preferences(found: Sequence[Option]) -> list[tuple[Option, float]]:
    """The options worth learning, at most four, with their shares: a softmax over scores, cooler where more is at stake."""
    best = found[0].score
    temperature = max(0.7, 0.12 * best)
    weighed = [(option, math.exp((option.score - best) / temperature)) for option in found[:4]]
    return [(option, weight) for option, weight in weighed if weight > 0.1]


def careless(rule: WorldRule | None, rng: random.Random) -> WorldRule | None:
    """The rule, now and then with a condition forgotten, so that later stages have something to mend."""
    if rule is None or len(rule.conditions) < 2 or rng.random() < 0.85:
        return rule
    return replace(rule, conditions=rule.conditions[: len(rule.conditions) - 1])


# ------------------------------------------------------------------------------------------------------- what labels follow


def draw_pool(rng: random.Random, world: World) -> tuple[Pool, list[WorldRule]] | None:
    """Tickets with labels, and the rules behind these if there are any. None where nearly all labels are the same."""
    facts = [world.draw(rng) for _ in range(rng.choice((100, 200, 300)))]
    hidden: list[WorldRule] = []
    if len(world.values) >= 3 and rng.random() < 0.35:
        labels = labels_by_points(rng, world, facts)
    else:
        hidden = hidden_rules(world, rng)
        truth = Book({f"G{number}": rule for number, rule in enumerate(hidden)}, "pass")
        failed = Pool(world, facts, ["pass"] * len(facts)).fail(truth)
        labels = ["fail" if failed >> position & 1 else "pass" for position in range(len(facts))]
    noise = rng.choice((0.0, 0.0, 0.02, 0.05, 0.08))
    labels = [other(label) if rng.random() < noise else label for label in labels]
    share = labels.count("fail") / len(labels)
    return (Pool(world, facts, labels), hidden) if 0.04 < share < 0.96 else None


def other(verdict: Verdict) -> Verdict:
    """The other verdict."""
    return "pass" if verdict == "fail" else "fail"


def hidden_rules(world: World, rng: random.Random) -> list[WorldRule]:
    """The rules that labels follow: mostly fail rules; in free text sometimes one with many words."""
    single = rng.choice((0.2, 0.5, 0.8))
    drawn = [draw_rule(world, rng, "fail" if rng.random() < 0.85 else "pass", single) for _ in range(rng.randint(1, 8))]
    plain = [word for word in world.vocabulary if len(word) > 1 and word.isalpha()]
    if len(plain) > 20 and rng.random() < 0.5:
        faults = tuple(rng.sample(plain, rng.randint(4, len(plain) // 4)))
        drawn = [WorldRule("fail", (Condition("mentions", "", faults),)), *drawn[: rng.randint(0, 2)]]
    return [rule for rule in drawn if rule is not None]


def labels_by_points(rng: random.Random, world: World, facts: Sequence[Facts]) -> list[Verdict]:
    """Fail for the tickets with most points, given for the values of some attributes; a few values fail by themselves."""
    chosen = rng.sample(list(world.values), rng.randint(2, min(6, len(world.values))))
    points: dict[tuple[str, str], float] = {}
    for attribute in chosen:
        weight = rng.uniform(0.3, 1.0)
        points |= {(attribute, value): weight * rng.uniform(0.0, 1.0) for value in world.values[attribute]}
    for _ in range(rng.choice((0, 0, 1, 2))):
        attribute = rng.choice(chosen)
        points[attribute, rng.choice(world.values[attribute])] = 9.0
    totals = [sum(points.get(pair, 0.0) for pair in each.values.items()) for each in facts]
    limit = sorted(totals)[int(rng.uniform(0.25, 0.8) * len(totals))]
    return ["fail" if total >= limit else "pass" for total in totals]


def known_rules(world: World, hidden: Sequence[WorldRule], rng: random.Random) -> dict[str, WorldRule]:
    """A guidance that somebody wrote: some of the truth, some of it too broad, some junk."""
    known = [rule for rule in hidden if rng.random() < 0.6]
    known = [
        WorldRule(rule.verdict, rule.conditions[:1]) if len(rule.conditions) > 1 and rng.random() < 0.3 else rule
        for rule in known
    ]
    junk = (draw_rule(world, rng, "fail") for _ in range(rng.randint(0, 2)))
    known += [rule for rule in junk if rule is not None]
    rng.shuffle(known)
    return numbered(known, rng)


# ---------------------------------------------------------------------------------------------------------- what is shown


def draw_stage(rng: random.Random, pool: Pool, book: Book, most_characters: int) -> tuple[Stage, list[Case]]:
    """The cases that the loop would show of a bundle (``guidance.reflection.draw_cases``): errors of one kind, and rightly
    judged tickets of the other label. Verdicts slip now and then. A stage without wrong cases has nothing to teach."""
    size = min(len(pool.facts), rng.choice((32, 64, 64, 96, 160)))
    bundle = rng.sample(range(len(pool.facts)), size)
    slips, failed = rng.choice((0.0, 0.0, 0.02)), pool.fail(book)
    slipped = bits(position for position in bundle if rng.random() < slips)
    right = pool.everyone & ~(failed ^ slipped ^ pool.should_fail)
    wrong = [position for position in bundle if not right >> position & 1]
    if not wrong:
        return Stage(pool, book, (), 0, "fail"), []
    label = pool.labels[rng.choice(wrong)]
    errors = [position for position in wrong if pool.labels[position] == label]
    contrast = [position for position in bundle if right >> position & 1 and pool.labels[position] != label]
    average = sum(len(text) for position in bundle[:8] for text in _line(pool.facts[position])) / min(8, size) + 14
    most = max(2, min(rng.choice((8, 12, 16, 24, 24, 24, 32)), int(most_characters / average)))
    chosen = errors[: most // 2] + contrast[: most - min(len(errors), most // 2)]
    chosen += errors[most // 2 :][: most - len(chosen)]
    cases = {position: _case(rng, pool, book, position, bool(right >> position & 1), slipped) for position in chosen}
    ordered = ordered_cases(list(cases.values()))
    place = {id(case): position for position, case in cases.items()}
    shown = tuple(place[id(case)] for case in ordered)
    return Stage(pool, book, shown, bits(set(shown) & set(errors)), label), ordered


def _line(facts: Facts) -> Iterator[str]:
    """What a ticket's line consists of, roughly."""
    for attribute, value in facts.values.items():
        yield attribute + value + ": ; "
    for word in facts.notes:
        yield word + " "


def _case(rng: random.Random, pool: Pool, book: Book, position: int, right: bool, slipped: int) -> Case:
    """A ticket of the pool with the reason that was given for its verdict; a slip has the reason of another ticket."""
    facts = pool.facts[rng.randrange(len(pool.facts))] if slipped >> position & 1 else pool.facts[position]
    reason = book.judge(facts, pool.world.language)[1]
    return Case(pool.ticket(position, rng), right, reason)


# ------------------------------------------------------------------------------------------------------------- the answer


def operation_json(option: Option, stage: Stage) -> str:
    """The answer that proposes an option."""
    language = stage.pool.world.language
    operation: dict[str, object] = {"rationale": rationale(option, stage), "op": option.op}
    if option.key is not None:
        operation["key"] = option.key
    if option.rule is not None:
        operation["text"] = option.rule.text(language, CANONICAL)
    operation["evidence"] = [case_name(place) for place in option.turned[:MOST_NAMED]]
    return json.dumps({"operations": [operation]}, ensure_ascii=False)


def rationale(option: Option, stage: Stage) -> str:
    """``A is x: T7 T9 but T2; B is y: T7``: what to look for, with the wrong and (``but``) the right cases that have it."""
    steps, left = [], stage.pool.everyone
    if stage.label == "pass" and option.key is not None:
        left = stage.decided(option.key)
        steps.append(_step(option.key, left, stage))
    for condition in option.grounds:
        left &= stage.pool.meet(condition)
        steps.append(_step(condition.text(stage.pool.world.language, CANONICAL), left, stage))
    return "; ".join(steps)


def _step(what: str, mask: int, stage: Stage) -> str:
    wrong, right = (
        " ".join(case_name(place) for place in stage.places(mask & kind)[:MOST_NAMED]) for kind in (stage.wrong, stage.right)
    )
    return f"{what}: {wrong}" + (f" but {right}" if right else "")
