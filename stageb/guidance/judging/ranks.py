"""The work of every rank for the loop: hold the model or the rules as code, judge its share of a
round, answer questions.

What rank 0 decides alone goes through ``World.lead`` (``stageb/job/world.py``).

All ranks have read the same tickets, so only positions travel, with the guidance. Which rank
answers makes no difference to an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from stageb.engines.protocol import Completion, Request
from stageb.errors import at
from stageb.guidance.config import LoopConfig
from stageb.guidance.judging import rollout
from stageb.guidance.judging.answers import answers_from_plain, answers_to_plain
from stageb.guidance.judging.coded import Coder
from stageb.guidance.judging.loading import Models
from stageb.guidance.judging.questions import JudgeTickets, Question, SampleAnswers, WriteReasons
from stageb.guidance.rules.predicates import Ruling
from stageb.guidance.words.types import (
    Answers,
    Candidate,
    Guidance,
    Judgement,
    Round,
    Ticket,
    shallow,
)
from stageb.job.world import Json, World

# reflection answers that a rank samples at once, at every world size: their long prompts fill a
# device
TOGETHER = 4
# tickets for which the model writes at once, if so many may be read at once: fewer take as long
DECODED_TOGETHER = 32


Group = tuple[Guidance, Sequence[int]]
"""The guidance that the model reads first, and the tickets, by position, that it reads together."""


class GuidanceRanks:
    """The ranks of a run, as the loop sees them: ``load``, ``roll_out`` and ``answer`` are called
    on all of them."""

    def __init__(self, config: LoopConfig, tickets: Sequence[Ticket], world: World) -> None:
        self.config = config
        self.models = Models(config, world)
        self.tickets = tickets
        self.world = world
        self.round_size = config.runner.per_rank_rollout_batch_size * world.world_size
        per_rank, most = config.runner.per_rank_rollout_batch_size, config.sampler.micro_batch_size
        ways = None if config.sampler.equal_bytes else world.world_size
        self.group_size = rollout.group_size(self.round_size, per_rank, most, ways)
        self._ways = ways
        self._coder = Coder(tickets, self.models.words)

    def load(self) -> None:
        """Load the model on this rank's device."""
        self.models.load({ticket.label for ticket in self.tickets})
        begun = self.models.words.begin or "nothing"
        self.world.agree("how the gate judges", f"{self.models.judges_by}, {begun} begun")

    def roll_out(
        self, batch: Round, guidance: Guidance, on_tickets: Callable[[int], None]
    ) -> list[Answers]:
        """Return the answers to the round's tickets, in their order: all of them on rank 0, none
        elsewhere.

        Tickets to distil are answered once, at a temperature of their own, with whole answers.
        ``on_tickets`` is told on rank 0 how many tickets are answered, as far as that is known.
        """
        sampler, distills = self.config.sampler, batch.kind == "distill"
        names: list[str | int] = [self.config.seed, *batch.names]
        if distills:
            grid = [replace(sampler.grid[0], temperature=self.config.distill.temperature)]
            sampler = replace(sampler, grid=grid, samples_per_decode=1, reasons="all")
        elif not batch.learns:
            sampler = replace(
                sampler.evaluating,
                reasons="none" if sampler.reasons == "wrong" else sampler.reasons,
            )

        def answer(tickets: Sequence[Ticket], guidance: Guidance) -> list[Json]:
            tickets = self._coder.note_rulings(guidance, tickets)
            answers = rollout.rollout(
                tickets, guidance, self.models.judge, sampler, self.models.words, names
            )
            return [answers_to_plain(each) for each in answers]

        tickets = [self.tickets[i] for i in batch.tickets]
        rulings = (
            self._rule_on(guidance, batch.tickets)
            if not distills
            else [Ruling(None)] * len(tickets)
        )
        asked = [place for place, ruling in enumerate(rulings) if not ruling.verdict]
        decided = len(tickets) - len(asked)
        share = rollout.share_out(len(asked), self.group_size, DECODED_TOGETHER, self._ways)
        share = rollout.keep_limit(share, len(asked), self.group_size, self.round_size)
        groups = cut_groups(tickets, asked, guidance, share)
        rows = map_tickets(
            self.world,
            "rollout group",
            answer,
            tickets,
            groups,
            lambda answered: on_tickets(decided + answered),
        )
        return [
            self._coder.answer(guidance, i, ruling) if ruling.verdict else answers_from_plain(row)
            for row, ruling, i in zip(rows, rulings, batch.tickets, strict=False)
        ]

    def _rule_on(self, guidance: Guidance, positions: Sequence[int]) -> list[Ruling]:
        """Judge tickets by rules as code, on every rank the same; no verdict on those that the
        model is asked about."""
        by_code = self.config.runner.judge == "both"
        if not by_code and guidance.judge in ("", "model"):
            return [Ruling(None)] * len(positions)
        rulings = self._coder.rule_on(guidance, [self.tickets[i] for i in positions])
        return [
            each if by_code or guidance.is_decided(each.verdict, each.leads) else Ruling(None)
            for each in rulings
        ]

    def answer(self, question: Question) -> Sequence[Any]:
        """Answer a question of reflection or the gate, on rank 0; every rank gives its part."""
        if isinstance(question, WriteReasons):
            return self._write_reasons(question)
        return (
            self._judge(question) if isinstance(question, JudgeTickets) else self._sample(question)
        )

    def _write_reasons(self, question: WriteReasons) -> list[Candidate]:
        """Write the reasons of answers that have a verdict; on rank 0."""
        starts = {
            self.tickets[i].key: (self.tickets[i], candidate, opening)
            for i, candidate, opening in question.asked
        }
        tickets = [ticket for ticket, _, _ in starts.values()]
        names: list[str | int] = [self.config.seed, *question.names]

        def write(tickets: Sequence[Ticket], guidance: Guidance) -> list[Json]:
            some = [starts[ticket.key] for ticket in tickets]
            found = rollout.write_reasons(
                some, guidance, self.models.judge, self.config.sampler, self.models.words, names
            )
            return [shallow(candidate) for candidate in found]

        most = max(self.group_size, min(self.config.sampler.micro_batch_size, DECODED_TOGETHER))
        size = rollout.share_out(len(tickets), most, DECODED_TOGETHER, self._ways)
        groups = cut_groups(tickets, range(len(tickets)), question.guidance, size)
        return [
            Candidate(**row)
            for row in map_tickets(self.world, "reasons group", write, tickets, groups)
        ]

    def _judge(self, question: JudgeTickets) -> list[list[Judgement]]:
        """Judge the tickets, by guidance; on rank 0."""

        def judge(tickets: Sequence[Ticket], guidance: Guidance) -> list[Json]:
            sampler = self.config.sampler
            tickets = self._coder.note_rulings(guidance, tickets)
            found = rollout.judge_tickets(
                tickets,
                guidance,
                self.models.judge,
                sampler,
                self.models.words,
                self.models.judges_by,
            )
            return [[each.p_correct, each.tokens, each.by_rules, each.scores] for each in found]

        tickets: list[Ticket] = []
        groups: list[Group] = []
        rulings = [self._rule_on(guidance, positions) for guidance, positions in question.asked]
        asked = sum(not ruling.verdict for ruled in rulings for ruling in ruled)
        size = rollout.share_out(asked, self.group_size, rollout.WORTHWHILE, self._ways)
        for (guidance, positions), ruled in zip(question.asked, rulings, strict=True):
            first = len(tickets)
            tickets += [
                self.tickets[i]
                for i, ruling in zip(positions, ruled, strict=True)
                if not ruling.verdict
            ]
            groups += cut_groups(tickets, range(first, len(tickets)), guidance, size)
        rows = iter(map_tickets(self.world, "judging group", judge, tickets, groups))
        if not self.world.is_global_zero:
            return []
        return [
            [
                Judgement(float(ruling.verdict == self.tickets[i].label), 0, by_rules=True)
                if ruling.verdict
                else Judgement(*next(rows))
                for i, ruling in zip(positions, ruled, strict=True)
            ]
            for (_, positions), ruled in zip(question.asked, rulings, strict=True)
        ]

    def _sample(self, question: SampleAnswers) -> list[tuple[Completion, ...]]:
        """Sample answers of the model that reflects: if it is another one, on rank 0 alone."""
        if self.config.reflection.model is not None:
            if not self.world.is_global_zero:
                return []
            return self.models.reflector.generate(question.requests)

        def answer(requests: Sequence[Request]) -> Json:
            return [
                [asdict(completion) for completion in each]
                for each in self.models.judge.generate(requests)
            ]

        requests = question.requests
        groups = [requests[start : start + TOGETHER] for start in range(0, len(requests), TOGETHER)]
        rows = self.world.map("reflection group", answer, groups)
        return [tuple(Completion(**each) for each in row) for group in rows for row in group]


def cut_groups(
    tickets: Sequence[Ticket], positions: Sequence[int], guidance: Guidance, size: int
) -> list[Group]:
    """Cut ``positions`` in ``tickets``, all to be judged under ``guidance``, into canonical
    micro-batches."""
    cut = rollout.cut_micro_batches([tickets[i] for i in positions], size)
    return [(guidance, [positions[i] for i in group]) for group in cut]


def map_tickets(
    world: World,
    what: str,
    work: Callable[[Sequence[Ticket], Guidance], list[Json]],
    tickets: Sequence[Ticket],
    groups: Sequence[Group],
    on_tickets: Callable[[int], None] | None = None,
) -> list[Any]:
    """Call ``work`` on the ``groups`` that ``tickets`` are cut into, each rank on its share. Return
    on rank 0 a result for each of ``tickets``, and an empty list elsewhere.

    ``on_tickets`` gets on rank 0 an estimate of how many tickets are done. Errors of ``work`` name
    the ticket.
    """

    def on_groups(done: int) -> None:
        if on_tickets:
            on_tickets(sum(len(positions) for _, positions in groups[:done]))

    def of_group(group: Group) -> list[Json]:
        guidance, positions = group
        return name_failed_ticket(
            [tickets[i] for i in positions], lambda some: work(some, guidance)
        )

    results: list[Any] = [None] * len(tickets)
    for (_, positions), found in zip(
        groups, world.map(what, of_group, groups, on_groups), strict=False
    ):
        for position, result in zip(positions, found, strict=True):
            results[position] = result
    return results if world.is_global_zero else []


def name_failed_ticket(
    tickets: Sequence[Ticket], answer: Callable[[Sequence[Ticket]], list[Any]]
) -> list[Any]:
    """``answer(tickets)``; an error gets a note that names the ticket (see ``errors.at``).

    A model reads many tickets at once and does not say at which one it failed, so after an error
    each is tried alone.
    """
    try:
        return answer(tickets)
    except Exception as error:
        for ticket in tickets:
            with at(f"ticket {ticket.key} of mission {ticket.mission}"):
                answer([ticket])
        error.add_note(
            f"tickets {tickets[0].key} to {tickets[-1].key} of mission {tickets[0].mission}, "
            f"read together"
        )
        raise
