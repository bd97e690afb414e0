"""A gate: of a bundle's edits, the one that gains most on other tickets, if it gains enough.

``gate.choose: own_gate:best_by_far`` takes the place of the race and the test. It is quick to
explain and easy to fool: it looks at every edit on the same tickets and takes the best, so some of
what it sees is luck, and over a long run some edits get in that are no better. The gate that ships
bounds the chance of that (``gate.alpha``); nothing bounds it here.
"""

from collections.abc import Sequence

from stageb.guidance.judging.questions import Dialogue
from stageb.guidance.learning.gate.decide import Edit, Gate

LOOKED_AT = 200  # tickets, at most
ENOUGH = 0.02  # accuracy that an edit must gain


def best_by_far(edits: Sequence[Edit], gate: Gate) -> Dialogue[Edit | None]:
    """The edit to accept, one of ``edits``, or None.

    ``gate.groups`` are tickets that no edit was made from, by group, so that nothing is judged on
    its own examples. ``yield from gate.judge.gains(...)`` asks the model, on all ranks, how much
    more often each ticket is judged rightly with the edit than without: from -1 to 1, weighed by
    ``price.missed_failure`` and ``price.false_alarm``. The same ticket under the same guidance is
    asked about once.
    """
    tickets = [ticket for group in gate.groups for ticket in group][:LOOKED_AT]
    if not tickets:
        return None
    gains = yield from gate.judge.gains([(edit.guidance, tickets) for edit in edits])
    means = [sum(each) / len(tickets) for each in gains]
    best = max(range(len(edits)), key=means.__getitem__)
    return edits[best] if means[best] >= ENOUGH else None
