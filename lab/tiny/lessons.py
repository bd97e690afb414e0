"""Reflection rows: runs of the loop in miniature, in which an exact teacher answers every
reflection.

A run draws a world, what its labels follow, and a pool of tickets in folds; then the guidance grows
by one edit of the teacher's at a time, now and then by a careless one. Every stage on the way
judges the tickets of one fold and makes lessons of them: what the product would show of it
(``learning.reflect``), and the best edits, weighed by what they do to the other folds, as the
product's gate does. The answer's rationale is the way to the edit: the lines of the evidence that
it takes, then what to look for besides, the wrong cases that have it, and the right ones that have
it too (``but``), condition by condition.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from lab.tiny.examples import Row, guidance_of, headline
from lab.tiny.labels import draw_pool, known_rules
from lab.tiny.pool import Pool, bits
from lab.tiny.rules import CANONICAL, Book, Condition, Kind, Style, WorldRule
from lab.tiny.stage import Stage, edited
from lab.tiny.teacher import Option, options
from lab.tiny.worlds import World, draw_world
from stageb.guidance.learning.reflect import choose_cases, of_kind
from stageb.guidance.rules.conditions import Expression
from stageb.guidance.rules.evidence import NOTHING, Evidence, find_evidence
from stageb.guidance.rules.prompts import (
    WORDS,
    Case,
    ReflectionInput,
    case_name,
    case_text,
    evidence_lines,
    reflection_prompt,
)
from stageb.guidance.words.types import Guidance, Verdict

MOST_NAMED = 3  # cases of a kind, in a rationale and as evidence
STAGES = 8  # of one run
LOOKS = (2, 2, 3, 3)  # at the tickets of one stage
LINES = (0, 0, 0, 6, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 16, 20)  # of evidence


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


# ---------------------------------------------------------------------------------------------------------- what is shown


class Fold:
    """The tickets that one stage's reflections may see, judged under its guidance. Verdicts slip
    now and then."""

    def __init__(
        self,
        rng: random.Random,
        pool: Pool,
        book: Book,
        positions: Sequence[int],
        guidance: Guidance,
    ) -> None:
        self.pool, self.book, self.guidance = pool, book, guidance
        self.lines = rng.choice(LINES)
        self.by_chance = rng.random() < 0.04  # the evidence tells nothing
        slips, asked = rng.choice((0.0, 0.0, 0.02)), rng.choice((1.0, 1.0, 0.7, 0.4))
        slipped = bits(position for position in positions if rng.random() < slips)
        right = pool.everyone & ~(pool.fail(book) ^ slipped ^ pool.should_fail)
        self.tested = pool.everyone & ~bits(positions)
        self.judged: list[Case] = []
        self._places: dict[int, int] = {}
        self._known: dict[tuple[Verdict, str], Evidence] = {}
        for position in positions:
            facts = pool.facts[
                rng.randrange(len(pool.facts)) if slipped >> position & 1 else position
            ]
            reason = book.judge(facts, pool.world.language)[1] if rng.random() < asked else None
            case = Case(pool.ticket(position, rng), bool(right >> position & 1), reason)
            self.judged.append(case)
            self._places[id(case)] = position

    def look(self, rng: random.Random, most_characters: int) -> tuple[Stage, ReflectionInput]:
        """Draw the input of one answer: the product's own choice of cases, as many as there is room
        for, and its evidence. A stage without wrong cases has nothing to teach."""
        for _ in range(rng.choice((1, 5))):  # a rule to mend comes up more often than in the loop
            key = rng.getrandbits(60)
            kind, cases = choose_cases(self.judged, self.guidance, 2, key)
            if kind[1]:
                break
        counted = self._counted(kind, rng)
        language = self.pool.world.language
        taken = sum(
            len(line)
            for line in evidence_lines(
                ReflectionInput(tuple(cases), counted, kind[1]), WORDS[language]
            )
        )
        taken += sum(len(rule.text) + 5 for rule in self.guidance.rules)
        sample = self.judged[:6]
        average = sum(len(case_text(case, WORDS[language])) for case in sample) / len(sample) + 5
        most = min(
            rng.choice((8, 12, 16, 24, 24, 24, 24, 32)),
            max(2, int((most_characters - taken) / average)),
        )
        kind, cases = choose_cases(self.judged, self.guidance, most, key)
        shown = ReflectionInput(tuple(cases), counted, kind[1])
        positions = tuple(self._places[id(case)] for case in cases)
        wrong = bits(
            position for position, case in zip(positions, cases, strict=True) if not case.right
        )
        clues = tuple(clue for each in counted.clues if (clue := self._known_here(each.conditions)))
        return Stage(
            self.pool, self.book, positions, wrong, kind[0], self.tested, kind[1], clues
        ), shown

    def _counted(self, kind: tuple[Verdict, str], rng: random.Random) -> Evidence:
        """The product's evidence; some of it by chance."""
        if not self.lines:
            return NOTHING
        if kind not in self._known:
            errors, contrast = of_kind(self.judged, kind, self.guidance)
            if self.by_chance:
                both = errors + contrast
                rng.shuffle(both)
                errors, contrast = both[: len(errors)], both[len(errors) :]
            self._known[kind] = find_evidence(
                [case.ticket for case in errors], [case.ticket for case in contrast], self.lines
            )
        return self._known[kind]

    def _known_here(self, conditions: Sequence[Expression]) -> tuple[Condition, ...]:
        """A clue in the world's own conditions; none where it speaks of what the world does not
        know, such as half a name."""
        known = self.pool.world.layout
        found = tuple(map(condition_of, conditions))
        return found if all(not a or a in known for each in found for a in each.attributes) else ()


def condition_of(counted: Expression) -> Condition:
    """A condition that was counted, as rules have it."""
    kind, name, value, other = counted.key
    assert kind not in ("", "within", "missing")  # lessons are counted without
    return (
        Condition("in", name, (value, other))
        if kind == "among"
        else Condition(cast(Kind, kind), name, (value,))
    )


# ------------------------------------------------------------------------------------------------------------- the answer


def operation_json(option: Option, stage: Stage, shown: ReflectionInput) -> str:
    """The answer that proposes an option."""
    edit, language = option.edit, stage.pool.world.language
    operation: dict[str, object] = {"rationale": rationale(option, stage, shown), "op": edit.op}
    if edit.op == "merge":
        operation["merged_from"] = list(edit.keys)
    elif edit.keys:
        operation["key"] = edit.keys[0]
    if edit.rule is not None:
        operation["text"] = with_lines(edit.rule, shown, language)
    operation["evidence"] = [case_name(place) for place in option.turned[:MOST_NAMED]]
    return json.dumps({"operations": [operation]}, ensure_ascii=False)


def with_lines(rule: WorldRule, shown: ReflectionInput, language: str) -> str:
    """The rule in words, with the numbers of counted lines in place of what these say."""
    lines = _lines(shown)
    left, parts = list(rule.conditions), []
    if len(left) == 1:
        parts, left = [_either(left[0], lines, language)], []
    while left:
        said = [
            (place, set(line))
            for place, line in lines.items()
            if left[0] in line and set(line) <= set(left)
        ]
        if said:
            place, line = max(said, key=lambda found: len(found[1]))
            left = [condition for condition in left if condition not in line]
            parts.append(f"[{place}]")
        else:
            parts.append(left.pop(0).text(language, CANONICAL))
    exception = _either(rule.exception, lines, language) if rule.exception else ""
    return rule.written(parts, exception, language, CANONICAL)


def _lines(shown: ReflectionInput) -> dict[int, tuple[Condition, ...]]:
    """The counted lines by their numbers, in the world's own conditions."""
    return {
        place: tuple(map(condition_of, clue.conditions))
        for place, clue in enumerate(shown.evidence.clues, 1)
    }


def _either(condition: Condition, lines: Mapping[int, tuple[Condition, ...]], language: str) -> str:
    """A condition that stands alone, its values each by the number of the line that says it, where
    one does."""
    for place, line in lines.items():
        if line == (condition,):
            return f"[{place}]"
    if condition.kind not in ("in", "mentions"):
        return condition.text(language, CANONICAL)
    apart = {
        replace(condition, kind="is" if condition.kind == "in" else "mentions", values=(v,)): v
        for v in condition.values
    }
    places = {
        apart[line[0]]: place
        for place, line in lines.items()
        if len(line) == 1 and line[0] in apart
    }
    rest = tuple(value for value in condition.values if value not in places)
    kind: Kind = "is" if condition.kind == "in" and len(rest) == 1 else condition.kind
    first = [replace(condition, kind=kind, values=rest).text(language, CANONICAL)] if rest else []
    return (" or " if language == "en" else "或").join(
        [*first, *(f"[{place}]" for place in places.values())]
    )


def rationale(option: Option, stage: Stage, shown: ReflectionInput) -> str:
    """``[2]; B is y: T7 T9 but T2``: the lines of the evidence that the edit takes, then what to
    look for besides, with the wrong and (``but``) the right cases that have it."""
    steps, left, language = [], stage.pool.everyone, stage.pool.world.language
    changed = [key for key in option.edit.keys if stage.book.rules[key].verdict != stage.label]
    if changed:
        left = stage.decided(changed[0])
        steps.append(changed[0] if stage.rule else _step(changed[0], left, stage))
    places, rest = cited(option.edit.grounds, shown)
    steps += [f"[{place}]" for place in places]
    for condition in option.edit.grounds:
        left &= stage.pool.meet(condition)
        if condition in rest:
            steps.append(_step(condition.text(language, CANONICAL), left, stage))
    return "; ".join(steps)


def cited(
    grounds: Sequence[Condition], shown: ReflectionInput
) -> tuple[list[int], list[Condition]]:
    """The lines of the evidence that say most of some conditions, and the conditions of which they
    say nothing."""
    lines = _lines(shown)
    said_of = {part for line in lines.values() for condition in line for part in _parts(condition)}
    left = {part for each in grounds if said_of.issuperset(_parts(each)) for part in _parts(each)}
    unsaid = [condition for condition in grounds if not said_of.issuperset(_parts(condition))]
    places: list[int] = []
    for place, line in sorted(
        lines.items(), key=lambda pair: (not set(pair[1]) <= set(grounds), -len(pair[1]))
    ):
        said = {part for condition in line for part in _parts(condition)}
        if said <= left:
            left -= said
            places.append(place)
    return places, [
        condition for condition in grounds if condition in unsaid or left & set(_parts(condition))
    ]


def _parts(condition: Condition) -> list[tuple[Kind, str, str]]:
    """Each value apart."""
    kind: Kind = "is" if condition.kind == "in" else condition.kind
    return [(kind, condition.attribute, value) for value in condition.values]


def _step(what: str, mask: int, stage: Stage) -> str:
    wrong, right = (
        " ".join(case_name(place) for place in stage.places(mask & kind)[:MOST_NAMED])
        for kind in (stage.wrong, stage.right)
    )
    return f"{what}: {wrong}" + (f" but {right}" if right else "")
