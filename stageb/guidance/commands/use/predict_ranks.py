"""Ranks of ``predict`` and ``evaluate``: each holds the model, and judges its share of a round.

Groups are cut by the round alone, as ``guidance/judging/rollout.py`` says, and of one mission each:
the tickets of a group share their guidance, which the model reads once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from stageb.engines.outline import rank_bytes
from stageb.engines.protocol import Engine, Scorer
from stageb.guidance.commands.use.config import UseConfig, tickets_per_round
from stageb.guidance.commands.use.rounds import Waves
from stageb.guidance.judging import rollout
from stageb.guidance.judging.answers import (
    answers_from_plain,
    answers_to_plain,
    calibrations_of,
    score_verdicts,
)
from stageb.guidance.judging.loading import load_judge
from stageb.guidance.judging.ranks import Group, cut_groups, map_tickets
from stageb.guidance.rules.prompts import Words, name_labels, rollout_prompt, words_of
from stageb.guidance.tickets.stream import TicketLine
from stageb.guidance.words.calibration import find_shares
from stageb.guidance.words.types import Answers, Guidance, Ticket, Verdict
from stageb.job import world as worlds
from stageb.job.devices import spread_over_cores
from stageb.job.world import Json, World

TicketAnswers = tuple[Answers, Mapping[Verdict, float] | None]
"""A ticket's answers, and how probable each label is."""


def launch(config: UseConfig, tickets: int, on_rank: Callable[[World], int]) -> int:
    """Have every rank call ``on_rank``; no more of them than so many ``tickets``, or a round, have
    groups for."""
    groups = math.ceil(min(tickets, tickets_per_round(config)) / _group_size(config))
    return worlds.run(spread_over_cores(config.fabric, groups, rank_bytes(config.model)), on_rank)


def _group_size(config: UseConfig) -> int:
    """Tickets that the model reads together."""
    size = tickets_per_round(config)
    return rollout.group_size(size, size, config.sampler.micro_batch_size)


class JudgingRanks:
    """The ranks of a job that judges tickets."""

    def __init__(self, config: UseConfig, world: World) -> None:
        self.config = config
        self._world = world
        self._engine: Engine | None = None
        self._group_size = _group_size(config)

    def judge(
        self, lines: Sequence[TicketLine], guidance: Mapping[str, Guidance], waves: Waves
    ) -> list[TicketAnswers]:
        """The answers to each line's ticket, in order: all of them on rank 0, none elsewhere. The
        model is loaded first if it was not needed before. ``waves`` is that of rank 0."""
        if self._engine is None:
            config = self.config
            labels = {label for each in guidance.values() for label in each.labels}
            self._engine, prompt = load_judge(
                config.model, config.prompt, config.sampler, self._world, labels
            )
            self.config = replace(config, prompt=prompt)
        tickets, groups = [line.ticket for line in lines], self._make_groups(lines, guidance)
        leads, ranks = self._world.is_global_zero, self._world.world_size
        self._world.lead(waves.begin)
        while (wave := self._world.lead(waves.plan, len(groups), ranks))[0] < len(groups):
            mine = groups[slice(*wave)]
            rows = map_tickets(self._world, "group", self._judge_group, tickets, mine, waves.show)
            if leads:
                waves.add(
                    [[rows[i] for i in positions] for _, positions in mine],
                    is_last=wave[1] == len(groups),
                )
        if not leads:
            return []
        order = [i for _, positions in groups for i in positions]
        found = dict(zip(order, waves.answers, strict=True))
        return [
            (answers_from_plain(answers), shares)
            for answers, shares in map(found.__getitem__, range(len(lines)))
        ]

    def _make_groups(
        self, lines: Sequence[TicketLine], guidance: Mapping[str, Guidance]
    ) -> list[Group]:
        """Positions in ``lines`` that are judged together, each under the guidance of its
        mission."""
        tickets = [line.ticket for line in lines]
        by_mission: dict[str, list[int]] = {}
        for position, ticket in enumerate(tickets):
            by_mission.setdefault(ticket.mission, []).append(position)
        return [
            group
            for mission, positions in by_mission.items()
            for group in cut_groups(tickets, positions, guidance[mission], self._group_size)
        ]

    def _judge_group(self, tickets: Sequence[Ticket], guidance: Guidance) -> list[Json]:
        assert self._engine is not None  # ``judge`` has loaded it
        config, words = self.config, words_of(self.config.prompt, self.config.model)
        sampler = config.sampler.evaluating
        answers = rollout.rollout(
            tickets, guidance, self._engine, sampler, words, [config.seed, "predict"]
        )
        weighed: list[dict[Verdict, float] | None] = [None] * len(tickets)
        if config.probability and isinstance(self._engine, Scorer):
            weighed = weigh_verdicts(tickets, answers, guidance, self._engine, words)
        return [
            [answers_to_plain(each), shares] for each, shares in zip(answers, weighed, strict=True)
        ]


def weigh_verdicts(
    tickets: Sequence[Ticket],
    answers: Sequence[Answers],
    guidance: Guidance,
    engine: Scorer,
    words: Words,
) -> list[dict[Verdict, float] | None]:
    """How probable each label is for each ticket, at temperature 1; None of one that was set
    aside."""
    asked = [i for i, given in enumerate(answers) if given.candidates]
    words = name_labels(words, guidance.labels)
    prompts = [rollout_prompt(tickets[i], guidance, words) for i in asked]
    calibrations = calibrations_of(guidance, [tickets[i] for i in asked])
    found: list[dict[Verdict, float] | None] = [None] * len(tickets)
    for i, scores in zip(asked, score_verdicts(prompts, engine, words, calibrations), strict=True):
        found[i] = dict(zip(guidance.labels, find_shares(scores, 1.0), strict=True))
    return found
