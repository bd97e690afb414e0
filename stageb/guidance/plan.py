"""What a run will do, as a list: which tickets every round of every epoch holds. A function of config and tickets alone.

Epoch 0 judges all splits before anything is learnt. Every later epoch learns from train tickets, round by round, then
judges val and test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from stageb.guidance.config import LoopConfig
from stageb.guidance.tickets import split_of
from stageb.guidance.types import Split, Ticket
from stageb.seeds import shuffled, stream

SPLITS: tuple[Split, ...] = ("train", "val", "test")


@dataclass(frozen=True, slots=True)
class Step:
    """One entry of the plan."""

    kind: Literal["round", "close"]  # close: what is left for reflection at an epoch's end is reflected on
    epoch: int  # from 1; 0 is before learning
    mission: str
    split: Split
    number: int  # of the round within (epoch, mission, split), from 0
    tickets: tuple[int, ...]  # positions in the run's tickets
    last: bool  # whether the split's metrics are complete after this one

    @property
    def learns(self) -> bool:
        """Whether reflection may see what this step brings."""
        return self.epoch > 0 and self.split == "train"


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


def make_plan(parts: Mapping[str, Mapping[Split, Sequence[int]]], config: LoopConfig, round_size: int) -> list[Step]:
    """Every step of the run, in order."""
    steps: list[Step] = []
    for epoch in range(config.runner.epochs + 1):
        for mission, splits in parts.items():
            for split in SPLITS:
                tickets = splits[split]
                if split == "train":
                    drawn = shuffled(tickets, stream(config.seed, "epoch", mission, max(epoch, 1)))
                    tickets = drawn[: config.runner.tickets_per_epoch]
                steps += _rounds(epoch, mission, split, tickets, round_size)
                if split == "train" and epoch > 0:
                    steps.append(Step("close", epoch, mission, split, 0, (), False))
    return steps


def _rounds(epoch: int, mission: str, split: Split, tickets: Sequence[int], size: int) -> Iterator[Step]:
    starts = range(0, len(tickets), size)
    for number, start in enumerate(starts):
        batch = tuple(tickets[start : start + size])
        yield Step("round", epoch, mission, split, number, batch, number == len(starts) - 1)


def gate_pool(train: Sequence[int], config: LoopConfig, mission: str) -> list[int]:
    """The mission's fixed pool of train tickets."""
    size = config.gate.pool_size if config.gate != "none" else 0
    return shuffled(train, stream(config.seed, "gate pool", mission))[:size]
