"""Prepares guidance for a model that judges all tickets: demonstrations beside its rules, and a
calibration of the model's verdicts. The shipped model needs neither, nor does code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stageb.guidance.judging.questions import Dialogue
from stageb.guidance.learning.calibrate import calibrate
from stageb.guidance.learning.gate.judgements import Judge, Verdicts, ask_once
from stageb.guidance.learning.state import MissionState
from stageb.guidance.learning.tools import Tools
from stageb.guidance.rules.demonstrations import demonstrate
from stageb.guidance.rules.prompts import Case
from stageb.guidance.tickets.splits import note_tickets
from stageb.guidance.words.calibration import CALIBRATED_ON
from stageb.guidance.words.types import Guidance


@dataclass(frozen=True, slots=True)
class Preparer:
    """Chooses demonstrations, and calibrates by tickets that are not among them."""

    tools: Tools
    judge: Judge

    def demonstrate(self, guidance: Guidance, cases: Sequence[Case]) -> Guidance:
        """Return ``guidance`` with demonstrations from these cases, if any are to be shown."""
        tools, room = self.tools, self.tools.config.prompt.demonstration_tokens
        if not room or not tools.config.needs_preparing:
            return guidance
        return demonstrate(guidance, cases, tools.vocabulary, tools.words, tools.count, room)

    def calibrate(
        self, some: Sequence[Guidance], positions: Sequence[int], verdicts: Verdicts
    ) -> Dialogue[tuple[list[Guidance], Verdicts]]:
        """Calibrate each guidance by the first of these tickets that it does not show (the model
        could copy the verdicts of those that it does), and return the verdicts known then. New
        rules shift all verdicts, which would hide what they are worth."""
        tools = self.tools
        if not tools.weighs or not tools.config.needs_preparing:
            return list(some), verdicts
        asked = [(each, self.leave_out_shown(each, positions)[:CALIBRATED_ON]) for each in some]
        judged, verdicts = yield from ask_once(self.judge.judgements(asked), verdicts)
        calibrated = []
        for (guidance, unshown), judgements in zip(asked, judged, strict=True):
            known = dict(zip(unshown, judgements, strict=True))
            guidance, p_correct = calibrate(guidance, known, tools.tickets, tools.temperature)
            calibrated.append(guidance)
            verdicts = verdicts.plus(guidance, p_correct)
        return calibrated, verdicts

    def leave_out_shown(self, guidance: Guidance, positions: Sequence[int]) -> list[int]:
        """Return the positions of tickets that are not demonstrations of this guidance."""
        shown = {each.source for each in guidance.shown}
        return [i for i in positions if self.tools.tickets[i].key not in shown]


def prepare(mission: MissionState, tools: Tools) -> Dialogue[tuple[MissionState, Verdicts]]:
    """Return the mission with its first guidance prepared, and the verdicts asked for it. The
    guidance is a step further if it has demonstrations or a calibration. All of it rests on tickets
    that edits are raced on, and that no test looks at."""
    positions = tools.splits.race_set or tools.splits.rollout_pool
    preparer = Preparer(tools, tools.make_judge(mission.guidance))
    guidance = preparer.demonstrate(
        mission.guidance, [Case(tools.tickets[i], False, None) for i in positions]
    )
    (guidance,), verdicts = yield from preparer.calibrate([guidance], positions, Verdicts())
    if guidance == mission.guidance:
        return mission, verdicts
    known = {tools.tickets[i].key: p for i, p in verdicts.of(guidance).items()}
    guidance = note_tickets(replace(guidance, step=guidance.step + 1), tools.tickets, tools.splits)
    return replace(mission, guidance=guidance, p_correct=known), verdicts
