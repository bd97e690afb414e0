"""Judges tickets under some guidance: weighs verdicts by the price of errors, and asks the model
only once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from stageb.guidance.config import GateConfig
from stageb.guidance.judging.questions import Dialogue, JudgeTickets
from stageb.guidance.learning.gate.race import TicketKind
from stageb.guidance.rules.prompts import render_guidance
from stageb.guidance.words.costs import EQUAL, Prices
from stageb.guidance.words.types import Guidance, Judgement, Ticket
from stageb.store import disk

T = TypeVar("T")


def digest(guidance: Guidance) -> str:
    """Return 16 hex digits for all that verdicts under a guidance depend on: its rules and their
    keys, not its step or its metadata."""
    return disk.digest(render_guidance(guidance), 8)


@dataclass(frozen=True, slots=True)
class Judge:
    """Asks how tickets are judged, and weighs the answers: an edit's gain on a ticket. Its methods
    yield questions (``questions.py``): ``gains = yield from judge.gains(...)``."""

    tickets: Sequence[Ticket]  # positions point into these
    config: GateConfig
    present: Guidance
    # by position, as ``Splits`` has it
    inclusion_prob: Mapping[int, float] = field(default_factory=dict)
    prices: Prices = field(default_factory=lambda: EQUAL)

    def judgements(
        self, asked: Sequence[tuple[Guidance, Sequence[int]]]
    ) -> Dialogue[list[list[Judgement]]]:
        """For each guidance and its positions, ask how it judges them; all of it is one
        question."""
        wanted = tuple((guidance, tuple(positions)) for guidance, positions in asked if positions)
        answers = iter((yield JudgeTickets(wanted)) if wanted else ())
        return [list(next(answers)) if positions else [] for _, positions in asked]

    def p_correct(
        self, asked: Sequence[tuple[Guidance, Sequence[int]]]
    ) -> Dialogue[list[list[float]]]:
        """For each guidance and its positions, ask for the probabilities of the right label."""
        judged = yield from self.judgements(asked)
        return [[each.p_correct for each in judgements] for judgements in judged]

    def gains(self, asked: Sequence[tuple[Guidance, Sequence[int]]]) -> Dialogue[list[list[float]]]:
        """For each edited guidance and its positions, return how much more probable the right label
        is than under the present one, weighed, each in [-1, 1]."""
        p_correct = yield from self.p_correct(
            [*asked, *((self.present, positions) for _, positions in asked)]
        )
        after, before = p_correct[: len(asked)], p_correct[len(asked) :]
        return [
            [self.weigh(i) * (new - old) for i, new, old in zip(positions, *both, strict=True)]
            for (_, positions), *both in zip(asked, after, before, strict=True)
        ]

    def compare(self, rights: Mapping[int, bool], before: Mapping[int, bool]) -> list[float]:
        """Return the gains on tickets, in their order: of verdicts of which ``rights`` says whether
        they are right, over those of ``before``, however sure either are."""
        return [self.weigh(i) * (is_right - before[i]) for i, is_right in rights.items()]

    def kinds(self, positions: Sequence[int]) -> Dialogue[list[TicketKind]]:
        """Return each ticket's label, and whether the present guidance is more likely right than
        wrong."""
        (p_correct,) = yield from self.p_correct([(self.present, positions)])
        return [(self.tickets[i].label, p > 0.5) for i, p in zip(positions, p_correct, strict=True)]

    def exceeds_limits(self, edited: Guidance, positions: Sequence[int]) -> Dialogue[bool]:
        """Whether an edited guidance makes more wrong passes on these tickets, or changes the
        verdict on more of them, than the limits beside the gate allow."""
        most_passes, most_changed = self.config.max_false_passes, self.config.max_changed_verdicts
        if most_passes == most_changed == 1:
            return False
        before, after = yield from self.p_correct([(self.present, positions), (edited, positions)])
        lost = {
            i: (old > 0.5) - (new > 0.5)
            for i, old, new in zip(positions, before, after, strict=True)
        }
        passes = sum(lost[i] for i in positions if self.tickets[i].label == "fail")
        return passes > most_passes * len(positions) or sum(
            map(abs, lost.values())
        ) > most_changed * len(positions)

    def weigh(self, position: int) -> float:
        """Return a ticket's weight, at most 1: its price over the chance of having been drawn."""
        share = self.prices.get(self.tickets[position].label, 1.0) / max(self.prices.values())
        return min(1.0, share / self.inclusion_prob.get(position, 1.0))


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The known judgements of tickets under some guidances, and what it took to ask for them."""

    # rules as rendered -> position
    known: Mapping[str, Mapping[int, Judgement]] = field(default_factory=dict)
    judged: int = 0  # number of tickets that the model judged
    saved: int = 0  # number of tickets that rules as code judged
    tokens: int = 0  # read and written for them

    def of(self, guidance: Guidance) -> dict[int, float]:
        """Return the known probabilities of the right label under ``guidance``, by position: equal
        rules judge alike."""
        return {
            i: judgement.p_correct
            for i, judgement in self.known.get(render_guidance(guidance), {}).items()
        }

    def plus(self, guidance: Guidance, p_correct: Mapping[int, float]) -> Verdicts:
        """Add probabilities of the right label that are known without asking."""
        return self._with(guidance, {i: Judgement(p, 0) for i, p in p_correct.items()})

    def answered(self, guidance: Guidance, judgements: Mapping[int, Judgement]) -> Verdicts:
        """Add what the model or rules as code have answered."""
        saved = sum(each.by_rules for each in judgements.values())
        tokens = sum(each.tokens for each in judgements.values())
        counted = replace(
            self,
            judged=self.judged + len(judgements) - saved,
            saved=self.saved + saved,
            tokens=self.tokens + tokens,
        )
        return counted._with(guidance, judgements)

    def missing(self, question: JudgeTickets) -> JudgeTickets:
        """Return the part of a question that is not known, each ticket once."""
        unknown: dict[str, tuple[Guidance, dict[int, None]]] = {}
        for guidance, positions in question.asked:
            text = render_guidance(guidance)
            known = self.known.get(text, {})
            if missing := dict.fromkeys(i for i in positions if i not in known):
                unknown.setdefault(text, (guidance, {}))[1].update(missing)
        return JudgeTickets(
            tuple((guidance, tuple(missing)) for guidance, missing in unknown.values())
        )

    def answer(self, question: JudgeTickets) -> list[list[Judgement]]:
        """Answer a question, all of which is known."""
        known = [
            (self.known.get(render_guidance(guidance), {}), positions)
            for guidance, positions in question.asked
        ]
        return [[judgements[i] for i in positions] for judgements, positions in known]

    def _with(self, guidance: Guidance, judgements: Mapping[int, Judgement]) -> Verdicts:
        text = render_guidance(guidance)
        return replace(self, known={**self.known, text: {**self.known.get(text, {}), **judgements}})


def ask_once(steps: Dialogue[T], verdicts: Verdicts) -> Dialogue[tuple[T, Verdicts]]:
    """Run ``steps`` without asking again for what ``verdicts`` know; return their result, and the
    verdicts known then."""
    answer = None
    while True:
        try:
            question = steps.send(answer)
        except StopIteration as end:
            return end.value, verdicts
        if not isinstance(question, JudgeTickets):
            answer = yield question
            continue
        missing = verdicts.missing(question)
        judged = (yield missing) if missing.asked else ()
        for (guidance, positions), judgements in zip(missing.asked, judged, strict=True):
            verdicts = verdicts.answered(guidance, dict(zip(positions, judgements, strict=True)))
        answer = verdicts.answer(question)
