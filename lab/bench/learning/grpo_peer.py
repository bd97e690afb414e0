"""Training-Free GRPO (Cai et al. 2025, arXiv:2510.08191), written anew for tickets.

For every ticket of a batch a group of answers is sampled; groups in which not every answer is right are told apart from
those that agree on the right one; the model compares them and proposes operations on its experiences, here the rules; all
are applied, untested; several epochs. The paper leaves out groups without a single right answer: under empty guidance the
shipped model is sure of itself, every group agrees, and nothing would ever be learnt, so such groups count here. The paper
hands back what the last step left; ``best_on_val`` hands back the best epoch on val, whose judging it pays for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lab.bench.learning.method import BATCH, ENGLISH, Learnt, Point, Task
from lab.bench.learning.proposer import propose, together
from stageb.guidance.judging import rollout
from stageb.guidance.judging.selection import select
from stageb.guidance.learning.reflect import case_of
from stageb.guidance.words.config import DecodeConfig, SamplerConfig
from stageb.guidance.words.types import Answers, Guidance, Record, Ticket
from stageb.seeds import shuffled, stream


@dataclass(frozen=True, slots=True)
class Settings:
    """What a step and an epoch are."""

    group: int = 5  # answers per ticket, as in the paper
    batch: int = 64  # tickets per step
    steps: int = 4  # per epoch, as far as there are tickets
    answers: int = 4  # reflections asked for per step; every distinct one is applied
    agreement: float = 0.8  # a group below this is unsure, whatever its majority says
    best_on_val: bool = False


def learn(task: Task, settings: Settings) -> Learnt:
    """Step until the next step would exceed the budget."""
    guidance, best = task.first, task.first
    points = [Point(0, task.first)]
    spent = reflections = accepted = epoch = 0
    best_right = -1
    val = task.parts["val"]
    while True:
        drawn = shuffled(task.parts["train"], stream(task.seed, "grpo epoch", epoch))[: settings.batch * settings.steps]
        for start in range(0, len(drawn), settings.batch):
            batch = drawn[start : start + settings.batch]
            if spent + len(batch) * settings.group > task.budget:
                return Learnt(points, spent, reflections, accepted)
            key = stream(task.seed, "grpo step", spent)
            records = [
                Record(ticket, 0, 0, 0, given, select(ticket, given, settings.agreement))
                for ticket, given in roll_out(task, batch, guidance, settings.group, key)
            ]
            spent += len(batch) * settings.group
            cases = [case_of(record) for record in records]
            proposals, asked = propose(cases, guidance, task.reflector, settings.answers, key)
            reflections += asked
            after = together(guidance, proposals)
            accepted += after != guidance
            guidance = after
            if not settings.best_on_val:
                points.append(Point(spent, guidance))
        epoch += 1
        if settings.best_on_val:
            if spent + len(val) > task.budget:
                return Learnt(points, spent, reflections, accepted)
            spent += len(val)
            right = sum(task.judge.right(guidance, val))
            if right > best_right:
                best, best_right = guidance, right
            points.append(Point(spent, best))


def roll_out(
    task: Task, batch: Sequence[Ticket], guidance: Guidance, group: int, key: int
) -> Iterator[tuple[Ticket, Answers]]:
    """Every ticket with a group of sampled answers."""
    sampler = SamplerConfig(samples_per_decode=group, grid=[DecodeConfig(max_new_tokens=40)])
    for places in rollout.micro_batches(batch, BATCH):
        tickets = [batch[i] for i in places]
        yield from zip(tickets, rollout.rollout(tickets, guidance, task.engine, sampler, ENGLISH, [key]), strict=True)
