"""How ``gate.alpha``, the run's false-acceptance budget, is dealt out, and what holds of it.

Each mission has an equal part. Of that a twentieth is for rules that go; the rest is cut in three, one part for the edits
that each fold of train has taught. A test spends half of what its part has left, or an eighth (``decide.py``), and an edit
that is proven gives its level back.

*What is proven.* The first change that a run makes to its guidance is for the worse (an accepted edit that is no better, a
rule that goes and costs more than its bound) with a chance of at most ``gate.alpha``. For until then the guidance is fixed,
and an edit and its level are functions of the fold that taught it and of the race tickets: which tickets a bundle reads,
which edits it does not try again, and what its part has left depend on no ticket that its test looks at. So, given that
fold and those race tickets, a test of an edit that is no better accepts it with a chance of at most its level; levels that
accept nothing add up to no more than the fold's part, and the parts to ``gate.alpha`` (a fallback procedure within each
part, a union bound over them: Tian & Ramdas, "Online control of the familywise error rate", 2021, section 4). A run that
goes on from learnt guidance spends only what the runs before left, ``Guidance.spent``, fold by fold. Bundles of one round
that are reflected on together (``reflection.scope: round``) have a fold each and are tested in turn: until one of them is
accepted, this is no different.

*What is learnt at once* (``at_once.py``) where code judges has one test, at all that the folds' parts have left. Where a
model judges, it has half of them, and bundles are tested with the rest. Its test bets on no race ticket: those have chosen
the demonstrations and fitted the calibration of the guidance that it is compared with. Of the others, each block is judged
under what the tickets before it have taught, with demonstrations and a calibration from these, so that given them the null
hypothesis holds of it as of any edit; and learnt at once comes before any bundle, so that it is the first change. Where it
is let go, nothing of it stays but half of the budget, and bundles find what they would have found. Where it is kept without
a proof (``gate.provisional``), the guidance that bundles are compared with has seen all train tickets, and of their edits
holds what holds of later ones. Demonstrations and calibration themselves are fitted and not tested.

*What is not.* Later edits build on guidance that earlier tests let pass, on tickets that come again. On fresh tickets for
every test the same bound would hold for them too: a level may come back after an acceptance, since either the edit was
better, or the error was made already. On the same tickets nothing bounds it but counting (``bin/bench power``). A procedure
that a union bound covers to the end would have to share its levels among all histories of acceptances that might have been,
which costs several groups more to win for each edit accepted before; and if every test had fresh tickets, a mission of 600
would have enough for one or two.
"""

from __future__ import annotations

from collections.abc import Iterable

from stageb.guidance.config import GateConfig
from stageb.guidance.types import FOLDS, NOTHING, Budget, Guidance

FOR_REMOVALS = 1 / 20  # of a mission's part: a larger one costs edits a group to win where tickets are few


def budget_per_mission(gate: GateConfig, missions: int) -> Budget:
    """What each of so many missions may spend."""
    part = gate.alpha / missions
    return Budget((part * (1 - FOR_REMOVALS) / FOLDS,) * FOLDS, part * FOR_REMOVALS, gate.removal_margin)


def spent_on(guidance: Guidance, contents: Iterable[str]) -> Budget:
    """What was spent on tickets of these ``contents`` before a run starts from ``guidance``: all that its file tells, but
    nothing where it says what taught it and none of that is among them."""
    taught = guidance.taught_by
    return guidance.spent if not taught or not taught.isdisjoint(contents) else NOTHING
