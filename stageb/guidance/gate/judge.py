"""How tickets are judged under some guidance: asked of the model once, and weighed by the price of errors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from stageb.guidance.config import GateConfig
from stageb.guidance.gate.race import TicketKind
from stageb.guidance.prompts import render_guidance
from stageb.guidance.questions import Dialogue, JudgeTickets
from stageb.guidance.types import Guidance, Judgement, Ticket


def digest(guidance: Guidance) -> str:
    """16 hex digits for what verdicts under a guidance depend on: its rules and their keys, not its step or its metadata."""
    return hashlib.blake2b(render_guidance(guidance).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class Judge:
    """Asks how tickets are judged, each at most once, and weighs the answers: what an edit gains on a ticket. Its methods
    yield questions (``questions.py``): ``gains = yield from judge.gains(...)``.

    ``known`` holds merits under the ``present`` guidance, by position; ``tickets`` says what stands at a position, ``drawn``
    with what chance it came to be looked at (``Splits.drawn``).
    """

    def __init__(
        self,
        tickets: Sequence[Ticket],
        config: GateConfig,
        present: Guidance,
        known: Mapping[int, float],
        drawn: Mapping[int, float] = MappingProxyType({}),
    ):
        self.tickets = tickets
        self._drawn = drawn
        most = max(config.fp_weight, config.fn_weight)
        self._weights = {"fail": config.fp_weight / most, "pass": config.fn_weight / most}
        self._present = present
        self._merits: dict[str, dict[int, float]] = {render_guidance(present): dict(known)}  # equal rules, judged alike
        self._asked: set[str] = set()  # the rules under which the model judged a ticket
        self.judged = 0  # tickets that the model judged
        self.saved = 0  # that rules as code judged
        self.tokens = 0  # that this cost

    def merits(self, asked: Sequence[tuple[Guidance, Sequence[int]]]) -> Dialogue[list[list[float]]]:
        """For each guidance and its positions, the merits; all that is not known is asked in one question."""
        unknown: dict[str, tuple[Guidance, dict[int, None]]] = {}
        for guidance, positions in asked:
            known = self.known(guidance)
            missing = dict.fromkeys(i for i in positions if i not in known)
            if missing:
                unknown.setdefault(render_guidance(guidance), (guidance, {}))[1].update(missing)
        wanted = tuple((guidance, tuple(missing)) for guidance, missing in unknown.values())
        answers: Sequence[Sequence[Judgement]] = (yield JudgeTickets(wanted)) if wanted else ()
        for (guidance, positions), judged in zip(wanted, answers, strict=True):
            self.known(guidance).update((i, each.merit) for i, each in zip(positions, judged, strict=True))
            by_model = sum(not each.by_rules for each in judged)
            if by_model:
                self._asked.add(render_guidance(guidance))
            self.judged += by_model
            self.saved += sum(each.by_rules for each in judged)
            self.tokens += sum(each.tokens for each in judged)
        return [[self.known(guidance)[i] for i in positions] for guidance, positions in asked]

    def gains(self, asked: Sequence[tuple[Guidance, Sequence[int]]]) -> Dialogue[list[list[float]]]:
        """For each edited guidance and its positions: merit gained over the present guidance, weighed, each in [-1, 1]."""
        pairs = [pair for guidance, positions in asked for pair in ((guidance, positions), (self._present, positions))]
        merits = iter((yield from self.merits(pairs)))
        return [
            [self._weight(i) * (new - old) for i, new, old in zip(positions, after, before, strict=True)]
            for (_, positions), after, before in ((each, next(merits), next(merits)) for each in asked)
        ]

    def is_free(self, guidance: Guidance) -> bool:
        """Whether rules as code gave all verdicts so far, so that further ones are likely to cost nothing."""
        return bool(self.known(guidance)) and render_guidance(guidance) not in self._asked

    def _weight(self, position: int) -> float:
        """What a ticket counts, at most 1: its price over the chance of having been drawn."""
        return min(1.0, self._weights[self.tickets[position].label] / self._drawn.get(position, 1.0))

    def kinds(self, positions: Sequence[int]) -> Dialogue[list[TicketKind]]:
        """For each its label, and whether the present guidance is more likely right than wrong."""
        (merits,) = yield from self.merits([(self._present, positions)])
        return [(self.tickets[i].label, merit > 0.5) for i, merit in zip(positions, merits, strict=True)]

    def known(self, guidance: Guidance) -> dict[int, float]:
        """The merits known under ``guidance``, by position."""
        return self._merits.setdefault(render_guidance(guidance), {})
