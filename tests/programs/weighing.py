"""A model that weighs verdicts, as an instruct model does: it half sees that what is torn should
fail, and says pass of nearly all. ``model.engine: programs.weighing:build``."""

from __future__ import annotations

from collections.abc import Sequence

from stageb.engines.config import ModelConfig
from stageb.engines.protocol import Decode, Prompt, Question
from stageb.engines.scripted import ScriptedEngine
from stageb.seeds import stream, uniform

# log-odds of a pass: added to all; for or against by what it sees; either way by chance
BIAS, SIGN, NOISE = 3.0, 0.7, 2.0


class Weighing(ScriptedEngine):
    """Its verdicts by their log-probability; it has nothing to propose."""

    def score(self, questions: Sequence[Question]) -> list[tuple[float, ...]]:
        """See ``Scorer``: the first of two answers is a pass; of more, the last is said of nearly
        all."""
        return [
            (weigh(each.prompt), 0.0)
            if len(each.answers) == 2
            else weigh_labels(each.prompt, each.answers)
            for each in questions
        ]


def weigh(prompt: Prompt) -> float:
    """The log-odds of a pass."""
    sees = -SIGN if "torn" in prompt.user else SIGN
    return BIAS + sees + NOISE * (2 * uniform(stream("weighing", prompt.user), 0) - 1)


def weigh_labels(prompt: Prompt, answers: Sequence[str]) -> tuple[float, ...]:
    """The log-probability of each answer, where the label ``queue b`` is right if field 1 is v0,
    and so on."""
    found = []
    for answer in answers:
        sees = 2 * SIGN * (f"field {ord(answer[-1]) - ord('a')}: v0" in prompt.user)
        found.append(
            sees
            + BIAS * (answer == answers[-1])
            + NOISE * uniform(stream("weighing", prompt.user, answer), 0)
        )
    return tuple(found)


def respond(prompt: Prompt, decode: Decode, key: int) -> str:
    """What it answers where nothing is weighed."""
    return "Verdict: Pass\nReason: so it seems"


def build(model: ModelConfig, device: str) -> Weighing:
    """The engine of ``model.engine``."""
    return Weighing(respond)
