"""What a person should know as a run begins: of its inputs, and of what it may take."""

from __future__ import annotations

from collections.abc import Iterator

from stageb.config import Level
from stageb.guidance.commands.fit.cautions import warn_of_few, warn_of_language, warn_of_tickets
from stageb.guidance.commands.fit.inputs import Inputs
from stageb.guidance.commands.fit.resume import BAD_RECORDS
from stageb.guidance.config import LoopConfig
from stageb.guidance.learning.gate.budget import divide_budget
from stageb.guidance.learning.schedule import GuidanceSchedule, describe_learning
from stageb.guidance.tickets.groups import find_repeats
from stageb.guidance.tickets.splits import SPLITS, describe_labels
from stageb.guidance.tickets.tickets import describe_left_out

Line = tuple[str, Level]
"""What is said, and how much it matters."""

LITTLE_ALPHA = 0.1  # of a mission's part of gate.alpha
JUDGED_BY = {
    "probability": "by the probability of its verdict, nothing decoded",
    "answer": "by its greedy verdict, a few tokens decoded",
    "answer after thinking": "by its greedy answer, the thoughts before it decoded too",
}


def describe_inputs(inputs: Inputs, config: LoopConfig) -> Iterator[Line]:
    """What is unlike what a person may take for granted of tickets and first guidance."""
    for line in describe_left_out(inputs.set_aside):
        yield line, "warning"
    if unusable := sum(not record.left_out for record in inputs.set_aside):
        yield f"{unusable} unusable ticket lines were set aside in {BAD_RECORDS}", "warning"
    if inputs.left_out:
        yield inputs.left_out, "info"
    neutral = [name for name, guidance in inputs.guidance.items() if len(guidance.rules) == 1]
    if config.guidance.path is not None and neutral:
        yield f"guidance.path has no rules for: {', '.join(neutral)}", "warning"
    for unknown in inputs.unknown:
        yield f"{unknown}; a rule that can never hold may need correcting", "warning"
    for found in find_repeats(inputs.tickets):
        yield str(found), "warning"


def forecast(
    inputs: Inputs, config: LoopConfig, schedule: GuidanceSchedule, judges_by: str
) -> Iterator[Line]:
    """What lies ahead of a new run, at most, and what of its tickets may stand in its way."""
    yield from _describe_spent(inputs, config)
    ahead, *warnings = _forecast(inputs, config, schedule, judges_by)
    yield ahead, "info"
    for name, splits in inputs.splits.items():
        yield f"{name}: {'; '.join(describe_labels(inputs.tickets, splits))}", "info"
        own_tickets = [inputs.tickets[i] for split in SPLITS for i in splits.of(split)]
        for line in warn_of_tickets(own_tickets, config):
            yield f"{name}: {line}", "warning"
    for line in (*warn_of_language(inputs.tickets, config.prompt.language), *warnings):
        yield line, "warning"


def _describe_spent(inputs: Inputs, config: LoopConfig) -> Iterator[Line]:
    """How much of ``gate.alpha`` is left where guidance has spent some of it on these tickets."""
    whole = divide_budget(config.gating, len(inputs.guidance))
    for name, left in inputs.budget.items():
        if left != whole:
            share = left.chance / whole.chance
            said = (
                f"{name}: the runs that led to its guidance left {share:.0%} of its part "
                f"of gate.alpha on these tickets"
            )
            if share < LITTLE_ALPHA:
                more = "give tickets that it was not learnt from to get all of it back"
                yield f"{said}; {more}", "warning"
            else:
                yield said, "info"


def _forecast(
    inputs: Inputs, config: LoopConfig, schedule: GuidanceSchedule, judges_by: str
) -> list[str]:
    """A line on what is ahead, at most, and the warnings that go with it."""
    cost = schedule.forecast()
    lines = [f"{describe_learning(config)} At most {cost.rollouts:,} answers on tickets (rollouts)"]
    if not cost.reflections and cost.judged:
        lines[0] += (
            f" and {cost.judged:,} verdicts that calibrate the model and test rules (for the gate)"
        )
    if not cost.reflections:
        return [*lines, *(warn_of_few(inputs, config) if cost.judged else ())]
    lines[0] += (
        f", {cost.reflections:,} that propose rules (reflections, on {cost.bundles:,} "
        f"bundles of tickets)"
    )
    if config.gating.choose:
        lines[0] += f"; {config.gating.choose} decides what is accepted, without a guarantee"
    elif cost.judged:
        lines[0] += (
            f" and {cost.judged:,} verdicts that test these (for the gate), each ticket judged "
        )
        lines[0] += f"{JUDGED_BY[judges_by]}; what every accepted rule calls for comes on top"
        lines += warn_of_few(inputs, config)
    return lines
