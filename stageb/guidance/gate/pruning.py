"""Rules that no longer earn their place: what each rule is worth, what guidance would be without it, and room for new ones.

A rule's *credit* is causal: what the guidance loses in merit when that rule alone is left out. How often a rule is quoted in
reasons says nothing of the kind, since two rules may do the same work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from stageb.guidance.gate.decide import Contender, Jury
from stageb.guidance.reflection.edits import apply, named
from stageb.guidance.texts import alike
from stageb.guidance.types import HEADLINE_KEY, Guidance, Operation, Proposal, Rule

NEARLY_THE_SAME = 0.8  # share of common words above which two rules are proposed for merging


def lighter(guidance: Guidance, reflection_id: str) -> list[Contender]:
    """``guidance`` without one rule, for each rule but the headline, and with two that are nearly the same made one."""
    operations = [Operation("remove", rule.key, (), "", "it earns nothing", ()) for rule in _rules(guidance)]
    operations += [
        Operation("merge", None, (one.key, other.key), one.text, "they say nearly the same", ())
        for place, one in enumerate(_rules(guidance))
        for other in _rules(guidance)[place + 1 :]
        if alike(one.text, other.text) > NEARLY_THE_SAME
    ]
    return [
        Contender((Proposal(index, "", (operation,), ()),), 1, apply(guidance, [operation], reflection_id))
        for index, operation in enumerate(operations)
    ]


def earned(guidance: Guidance, jury: Jury, positions: Sequence[int]) -> dict[str, float]:
    """What each rule but the headline earns: the mean weighed merit that leaving it out would cost on ``positions``."""
    without = [(apply(guidance, [Operation("remove", rule.key, (), "", "", ())]), positions) for rule in _rules(guidance)]
    gains = jury.gains(without)
    return {
        rule.key: round(0.0 - sum(each) / len(positions), 6) if positions else 0.0  # and not -0.0
        for rule, each in zip(_rules(guidance), gains, strict=True)
    }


def traded(
    guidance: Guidance,
    operations: Sequence[Operation],
    fits: Callable[[Guidance], bool],
    earns: Mapping[str, float],
) -> tuple[Operation, ...] | None:
    """``operations``, with removals of the rules that earn least for as long as the edited guidance does not fit; None where
    it never would."""
    touched = {key for operation in operations for key in named(operation)}
    spare = sorted((rule.key for rule in _rules(guidance) if rule.key not in touched), key=lambda key: earns.get(key, 0.0))
    taken = tuple(operations)
    while not fits(apply(guidance, taken)):
        if not spare:
            return None
        taken = (*taken, Operation("remove", spare.pop(0), (), "", "it earns least, and room was needed", ()))
    return taken


def _rules(guidance: Guidance) -> list[Rule]:
    return [rule for rule in guidance.rules if rule.key != HEADLINE_KEY]
