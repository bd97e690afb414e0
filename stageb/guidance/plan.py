"""What a run will do, as a list: which tickets every round of every epoch holds. A function of config and tickets alone.

Epoch 0 judges val and test before anything is learnt. Every later epoch learns from train tickets, but for those on which
edits are raced, round by round, and judges val. At the end the final guidance is chosen, by val alone, and judged on test.
An audit is an epoch 0 of all splits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from stageb.guidance.config import LoopConfig
from stageb.guidance.files.tickets import split_of
from stageb.guidance.gate.race import FEWEST, LAPS
from stageb.guidance.types import Split, Ticket
from stageb.seeds import shuffled, stream

SPLITS: tuple[Split, ...] = ("train", "val", "test")


@dataclass(frozen=True, slots=True)
class Step:
    """One entry of the plan."""

    kind: Literal["round", "close", "choose", "distill"]
    """round: tickets are rolled out and recorded. close: an epoch ends; what is left for reflection is reflected on, rules
    that earn nothing are sought. choose: the final guidance is. distill: tickets are rolled out for training data."""
    epoch: int  # from 1; 0 is before learning
    mission: str
    split: Split
    number: int  # of the round within (epoch, mission, split), from 0
    tickets: tuple[int, ...]  # positions in the run's tickets
    last: bool  # whether the split's metrics are complete after this one

    @property
    def learns(self) -> bool:
        """Whether this step is for learning: what it brings may be reflected on."""
        return self.epoch > 0 and self.split == "train" and self.kind in ("round", "close")

    @property
    def counts(self) -> bool:
        """Whether this step has tickets to roll out."""
        return self.kind in ("round", "distill")


def missions_of(tickets: Sequence[Ticket]) -> list[str]:
    """The missions, in order of first appearance."""
    return list(dict.fromkeys(ticket.mission for ticket in tickets))


def split_tickets(tickets: Sequence[Ticket], config: LoopConfig) -> dict[str, dict[Split, list[int]]]:
    """For every mission and split the positions of its tickets, ordered by ticket_key: file order changes nothing."""
    parts: dict[str, dict[Split, list[int]]] = {m: {split: [] for split in SPLITS} for m in missions_of(tickets)}
    for i in sorted(range(len(tickets)), key=lambda i: tickets[i].key):
        ticket = tickets[i]
        parts[ticket.mission][split_of(config.seed, ticket.mission, ticket.group_id, config.split)].append(i)
    return parts


def set_apart(
    parts: Mapping[str, Mapping[Split, Sequence[int]]], tickets: Sequence[Ticket], config: LoopConfig
) -> dict[str, list[int]]:
    """For every mission the train tickets that edits are raced on, in an order of their own: whole groups, ``race_size`` of
    them and a third of ``train`` at most. Reflection never sees them. None where there is no gate."""
    raced: dict[str, list[int]] = {mission: [] for mission in parts}
    if config.gate == "none":
        return raced
    for mission, splits in parts.items():
        order = shuffled(splits["train"], stream(config.seed, "gate", mission))
        groups = {tickets[i].group_id for i in order[: min(config.gate.race_size, len(order) // 3)]}
        raced[mission] = [i for i in order if tickets[i].group_id in groups]
    return raced


def make_plan(
    parts: Mapping[str, Mapping[Split, Sequence[int]]],
    raced: Mapping[str, Sequence[int]],
    config: LoopConfig,
    round_size: int,
) -> list[Step]:
    """Every step of the run, in order. Nothing is learnt from what ``raced`` sets apart."""
    if config.jump_reflection:
        return [
            s for mission in parts for split in SPLITS for s in _rounds(0, mission, split, parts[mission][split], round_size)
        ]
    last = config.runner.epochs
    steps: list[Step] = []
    for mission, splits in parts.items():
        steps += _rounds(0, mission, "val", splits["val"], round_size)
        steps += _rounds(0, mission, "test", splits["test"], round_size)
    for epoch in range(1, last + 1):
        for mission, splits in parts.items():
            apart = set(raced[mission])
            studied = [i for i in splits["train"] if i not in apart]
            drawn = shuffled(studied, stream(config.seed, "epoch", mission, epoch))[: config.runner.tickets_per_epoch]
            steps += _rounds(epoch, mission, "train", drawn, round_size)
            steps.append(Step("close", epoch, mission, "train", 0, (), False))
            steps += _rounds(epoch, mission, "val", splits["val"], round_size)
    for mission, splits in parts.items():
        steps.append(Step("choose", last, mission, "val", 0, (), False))
        steps += _rounds(last, mission, "test", splits["test"], round_size)
        if config.distill.size:
            drawn = shuffled(splits["train"], stream(config.seed, "distill", mission))
            steps += _rounds(last, mission, "train", drawn, round_size, "distill")
    return steps


def _rounds(
    epoch: int,
    mission: str,
    split: Split,
    tickets: Sequence[int],
    size: int,
    kind: Literal["round", "distill"] = "round",
) -> Iterator[Step]:
    starts = range(0, len(tickets), size)
    for number, start in enumerate(starts):
        batch = tuple(tickets[start : start + size])
        yield Step(kind, epoch, mission, split, number, batch, number == len(starts) - 1)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run may cost, at most."""

    rollouts: int  # answers sampled
    bundles: int  # reflected on
    reflections: int  # reflection answers sampled
    judged: int  # verdicts for the gate


def forecast(plan: Sequence[Step], config: LoopConfig, train: Mapping[str, int]) -> Forecast:
    """The most that ``plan`` can cost: as if nothing ended early, every answer proposed another edit that does some good,
    and every test saw its whole pool. ``train`` holds the number of each mission's train tickets. Not counted is what nobody
    knows yet: that an accepted edit's bundle is reflected on once more, and rules that can go, or make room, are sought."""
    samples = config.sampler.samples_per_decode * len(config.sampler.grid)
    rollouts = sum(len(step.tickets) * (1 if step.kind == "distill" else samples) for step in plan)
    bundles, judged, gathered = 0, 0, 0
    for step in plan:
        gathered += len(step.tickets) if step.learns else 0
        full, gathered = divmod(gathered, config.reflection.batch_size)
        if step.kind == "close" and gathered:
            full, gathered = full + 1, 0
        bundles += full
        judged += full * _gate_cost(config, train[step.mission])
    return Forecast(rollouts, bundles, bundles * config.reflection.num_proposals, judged)


def _gate_cost(config: LoopConfig, train: int) -> int:
    """Verdicts that one bundle can cost at most: evidence, race, edits joined, two tests; and each train ticket under the
    present guidance."""
    gate, proposals = config.gate, config.reflection.num_proposals
    if gate == "none":
        return 0
    running, cost = proposals, proposals * config.reflection.max_cases
    for _ in range(LAPS):
        cost += running * gate.race_chunk
        running = min(running, max(FEWEST, -(-running // 2)))
    cost += (running - 1) * LAPS * gate.race_chunk + 2 * min(train, gate.pool_size)
    return cost + train + 2 * config.reflection.batch_size  # all cases, after an edit is accepted
