"""The tickets of one stage of a run in miniature, and what an answer is shown of them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from lab.tiny.operations import condition_of
from lab.tiny.pool import Pool, bits
from lab.tiny.rules import Book, Condition
from lab.tiny.stage import Stage
from stageb.guidance.learning.reflect import choose_cases, of_kind
from stageb.guidance.rules.conditions import Expression
from stageb.guidance.rules.evidence import NOTHING, Evidence, find_evidence
from stageb.guidance.rules.prompts import WORDS, Case, ReflectionInput, case_text, evidence_lines
from stageb.guidance.words.types import Guidance, Verdict

LINES = (0, 0, 0, 6, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 16, 20)  # of evidence


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
