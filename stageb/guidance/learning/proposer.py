"""Who proposes edits of a guidance, and has them proven: code (``at_once.py``) or a model
(``bundles.py``), behind one protocol. ``loop.py`` has tickets drawn, edits proposed and proven, and
applies them, whoever proposes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self, TypeVar

from stageb.guidance.judging.questions import Dialogue
from stageb.guidance.learning.attempts import ALL_RIGHT
from stageb.guidance.learning.gate.decide import Decision
from stageb.guidance.learning.gate.judgements import Verdicts
from stageb.guidance.learning.reflection_file import SizeEntry
from stageb.guidance.learning.state import MissionState
from stageb.guidance.rules.edits import rebase
from stageb.guidance.rules.prompts import Case, ReflectionInput
from stageb.guidance.words.types import Budget, Guidance, Proposal


@dataclass(frozen=True, slots=True)
class Bundle:
    """The tickets that teach together, as the present guidance judges them."""

    number: int  # from 0; modulo TEACHING_FOLDS, the fold that teaches
    key: int  # of its random stream
    judged: tuple[Case, ...]  # in the pool's order
    asked: int = 0  # verdicts that the model was asked for
    tokens: int = 0  # that these verdicts took
    saved: int = 0  # verdicts that rules as code gave

    @property
    def name(self) -> str:
        """R1, R2, ..."""
        return f"R{self.number + 1}"

    @property
    def why_not(self) -> str:
        """Why it cannot teach; empty where it can."""
        return why_ineligible(self.judged)

    def after(self, verdicts: Verdicts) -> Bundle:
        """Return the bundle with what it took to ask for these verdicts."""
        return replace(self, asked=verdicts.judged, tokens=verdicts.tokens, saved=verdicts.saved)


def why_ineligible(judged: Sequence[Case]) -> str:
    """Say why these tickets cannot teach; empty where they can."""
    if not judged:
        return "no ticket was judged"
    return ALL_RIGHT if all(case.right for case in judged) else ""


@dataclass(frozen=True, slots=True)
class Lesson:
    """The proposals of a bundle."""

    shown: tuple[ReflectionInput, ...] = ()  # what each answer saw
    proposals: tuple[Proposal, ...] = ()
    tokens: int = 0  # read and made
    sizes: tuple[SizeEntry, ...] = ()  # what code learns at once, in other sizes
    is_stopped: bool = False  # learning was told to stop on the way
    why_not: str = ""  # why nothing is proposed, where that is known

    def rebase(self, made_for: Guidance, present: Guidance) -> Self:
        """Return the lesson without the proposals that were made for ``made_for`` and come too late
        for ``present``."""
        return replace(self, proposals=rebase(self.proposals, made_for, present))


@dataclass(frozen=True, slots=True)
class GateResult:
    """The gate's decision on what was proposed, and what it cost."""

    decision: Decision
    left: Budget  # of the mission's part in the run's false-acceptance budget
    verdicts: Verdicts = field(default_factory=Verdicts)  # known after it, and what they took
    failed: tuple[tuple[str, int], ...] = ()  # as in ``MissionState``
    # the present guidance, prepared anew, where no edit takes its place
    prepared: Guidance | None = None
    is_stopped: bool = False  # learning was told to stop before there was a decision


L = TypeVar("L", bound=Lesson)


class Proposer(Protocol[L]):
    """Learns from train tickets of one mission. Its methods change nothing that they are given."""

    def draw(self, mission: MissionState) -> Dialogue[tuple[MissionState, tuple[Bundle, ...]]]:
        """Return the mission without the records that are used up, and the bundles that teach next:
        one or more."""
        ...

    def propose(self, bundles: Sequence[Bundle], guidance: Guidance) -> Dialogue[list[L]]:
        """Learn from each of the bundles, whose tickets ``guidance`` has judged."""
        ...

    def prove(self, mission: MissionState, bundle: Bundle, lesson: L) -> Dialogue[GateResult]:
        """Have the gate decide on what a bundle taught, under what was accepted by then."""
        ...
