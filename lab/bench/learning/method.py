"""The input and the result of every method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stageb.engines.protocol import Engine
from stageb.guidance.config import SamplerConfig
from stageb.guidance.judging import rollout
from stageb.guidance.judging.coded import Coder
from stageb.guidance.rules.prompts import WORDS, rule_lines
from stageb.guidance.words.types import Guidance, Split, Ticket

ENGLISH = WORDS["en"]
DTYPE = "float32"  # of every model's weights, on every device
BATCH = 128  # tickets that the model reads at once


class CodeFirst:
    """Verdicts by rules as code; where these decide nothing, those of ``judge``. Names and values
    are of all ``tickets``."""

    def __init__(self, judge: Judge, tickets: Sequence[Ticket]) -> None:
        self._judge = judge
        self._coder = Coder(tickets, ENGLISH)
        self.asked = 0  # verdicts of ``judge``

    def right(self, guidance: Guidance, tickets: Sequence[Ticket]) -> list[bool]:
        """Whether the verdict on each ticket, in order, is its label."""
        ruled = self._coder.rule_on(guidance, tickets)
        asked = [
            ticket for ticket, ruling in zip(tickets, ruled, strict=True) if not ruling.verdict
        ]
        self.asked += len(asked)
        answered = iter(self._judge.right(guidance, asked))
        return [
            ruling.verdict == ticket.label if ruling.verdict else next(answered)
            for ticket, ruling in zip(tickets, ruled, strict=True)
        ]


class Judge:
    """Greedy verdicts, each asked of the model once per (guidance, ticket)."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[tuple[str, str, str], bool] = {}

    def right(self, guidance: Guidance, tickets: Sequence[Ticket]) -> list[bool]:
        """Whether the verdict on each ticket, in order, is its label."""
        text = rule_lines(guidance)
        names = [(text, ticket.mission, ticket.key) for ticket in tickets]
        new = [
            ticket
            for name, ticket in dict(zip(names, tickets, strict=True)).items()
            if name not in self._known
        ]
        for group in rollout.cut_micro_batches(new, BATCH):
            batch = [new[i] for i in group]
            judged = rollout.judge_tickets(
                batch, guidance, self._engine, SamplerConfig(), ENGLISH, "answer"
            )
            for ticket, each in zip(batch, judged, strict=True):
                self._known[text, ticket.mission, ticket.key] = each.p_correct == 1
        return [self._known[name] for name in names]


@dataclass(frozen=True)
class Task:
    """One thing to learn."""

    tickets: Sequence[Ticket]  # of one mission
    parts: Mapping[Split, Sequence[Ticket]]  # test is not for methods
    first: Guidance  # where every method starts
    model: str  # folder or name of the model
    engine: Engine  # it rolls out
    reflector: Engine  # proposes edits
    judge: Judge  # over the same engine
    seed: int
    budget: int  # rollouts
    device: str  # cpu or cuda
    configs: Sequence[Path]  # of this loop, the later ones winning
    folder: Path  # for the method's own files
    # whether the reflector makes up edits that change nothing in meaning (``proposer.idle``)
    idle: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """The guidance that a method would hand back from here on."""

    rollouts: int  # spent so far
    guidance: Guidance


@dataclass(frozen=True, slots=True)
class Learnt:
    """The result of a method."""

    points: Sequence[Point]  # in order; the first is the start
    rollouts: int  # spent in all
    reflections: int  # answers asked of the reflecting model
    accepted: int  # edits that its acceptance rule let through, handed back in the end or not
    judges_by_code: bool = False  # whether it judges by rules as code wherever these decide


Method = Callable[[Task], Learnt]
