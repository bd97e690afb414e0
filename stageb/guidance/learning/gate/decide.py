"""The gate: an edit is accepted only if it is proven better than the present guidance, on tickets
that it was not made from.

The steps that a bundle's edits go through, each more costly than the one before:

1. *Evidence*: an edit that turns none of the tickets that it names is dropped.
2. *Race* (``race.py``): the others are judged on train tickets set apart for races; two are left,
   the most careful one and the one that gains most. What other survivors add to the most careful
   is tried there too: edits that win on different tickets are joined, and tested as one.
3. *Test* (``sequential.py``: an exact one, or by betting where the race gained a little on many
   tickets): chunk by chunk, until it is proven or given up, on further train tickets. An edit whose
   race promises less than half of a proof is spared it.

What an edit was made from, race and test have no group of tickets in common, since one that came
twice would speak for itself: cases and evidence are from one fold, the test is on the others
(``budget.py``).

``budget.py`` says what the tests may spend, and what that promises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from stageb.errors import StagebError, shown
from stageb.guidance.judging.questions import Dialogue
from stageb.guidance.learning.gate.budget import cut_interims
from stageb.guidance.learning.gate.judgements import Judge, digest
from stageb.guidance.learning.gate.race import LOSS_PRICE, EditGains, Score, TicketKind, race
from stageb.guidance.learning.gate.sequential import (
    BettingTest,
    ExactTest,
    Test,
    Wealth,
    is_promising,
    kelly_stake,
    mcnemar_p,
    mean,
    next_level,
)
from stageb.guidance.tickets.groups import Group, whole_groups
from stageb.guidance.words.types import Estimate, Guidance, JudgeName, Proposal
from stageb.seeds import stream

# share of what is left of a part of the budget, for an edit with a strong or a weak race
STRONG, WEAK = 1 / 2, 1 / 8
LUCKY = 1 / 16  # one-sided p of a race (McNemar) at or below which it is strong
WHOLE = 0.75  # share of the information in gains that drawing them as won or lost must leave

Outcome = Literal[
    "turns no evidence", "dropped", "unpromising", "futile", "unlikely", "unproven", "over a limit",
    "provisional", "accepted",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit that could be accepted."""

    proposals: tuple[Proposal, ...]  # that it comes from; several where edits were joined
    times: int  # number of proposals that hold it
    guidance: Guidance  # the present guidance with the edit
    evidence: tuple[int, ...] = ()  # positions of the tickets that it should turn


Choose = Callable[[Sequence[Edit], "Gate"], Dialogue[Edit | None]]
"""A gate of a user's own: takes a bundle's edits, one or more, and what they can be judged with;
returns the one to accept."""

Join = Callable[[Edit, Edit], Edit | None]
"""Takes two edits; returns the edit that does both, or None where they cannot go together."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The judge and the tickets that edits of one mission are tried with."""

    judge: Judge
    race_on: Sequence[int]  # positions of the race's tickets, from groups that no test looks at
    race_chunk: int  # tickets between two cuts of a race
    groups: Sequence[Group]  # of the test's tickets
    interim: int  # tickets between two interim analyses of a test, at least


@dataclass(frozen=True, eq=False, slots=True)
class Trial:
    """The trial of one edit, with its outcome. It equals only itself, so that it can be looked
    up."""

    edit: Edit
    outcome: Outcome = "dropped"
    turned: int = 0  # number of tickets of its evidence that it turned
    score: Score = field(default_factory=Score)  # in the race
    test: Test | None = None
    estimate: Estimate | None = None  # of what is learnt at once
    # the expected one, before and after calibration; None: not measured
    calibration_errors: tuple[float, float] | None = None
    # share of verdicts that each judge has right
    judges: Mapping[JudgeName, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on a bundle's edits."""

    tried: tuple[Trial, ...]
    left: float  # what is left of the part of the budget that its tests were given
    winner: Edit | None = None


@dataclass(frozen=True, slots=True)
class _RaceTickets:
    """The tickets of a race."""

    among: Mapping[TicketKind, int]  # number of tickets by kind
    positions: Sequence[int]  # of the tickets seen by the edits that came to the end
    kinds: Sequence[TicketKind]  # of these tickets


def decide(edits: Sequence[Edit], gate: Gate, join: Join, left: float) -> Dialogue[Decision]:
    """Decide which of a bundle's ``edits`` to accept, if any; tests take their levels from what is
    ``left`` of the fold's part of the budget."""
    idle, racing = yield from _screen_by_evidence(edits, gate.judge)
    if not racing:
        return Decision(tuple(idle), left)
    kinds = yield from gate.judge.kinds(gate.race_on)
    outcome = yield from race(
        kinds, len(racing), partial(_race_gains, gate, racing), gate.race_chunk
    )
    racing = [
        replace(tried, score=score) for tried, score in zip(racing, outcome.scores, strict=True)
    ]
    raced = _RaceTickets(
        Counter(kinds),
        [gate.race_on[k] for k in outcome.positions],
        [kinds[k] for k in outcome.positions],
    )
    ranked = [racing[i] for i in outcome.ranked]
    joined = yield from _join_survivors(ranked, gate, join, raced, next_level(left, STRONG))
    careful = [*ranked[:1], *joined][-1:]
    leader = [] if outcome.leader is None else [racing[outcome.leader]]
    tested, left = yield from _test_in_turn(
        list(dict.fromkeys([*careful, *leader])), gate, raced, left
    )
    tried = tuple(tested.get(each, each) for each in [*idle, *racing, *joined])
    winner = next((each.edit for each in tried if each.outcome == "accepted"), None)
    return Decision(tried, left, winner)


def decide_by(choose: Choose, edits: Sequence[Edit], gate: Gate, left: float) -> Dialogue[Decision]:
    """Accept what ``choose`` returns. The budget plays no part: nothing bounds the probability that
    the edit is no better."""
    winner = (yield from choose(edits, gate)) if edits else None
    if winner is not None and winner not in edits:
        raise StagebError(
            f"gate.choose returned {shown(repr(winner), 60)}; return one of the edits given, or "
            f"None"
        )
    return Decision(
        tuple(Trial(edit, "accepted" if edit == winner else "dropped") for edit in edits),
        left,
        winner,
    )


def _screen_by_evidence(
    edits: Sequence[Edit], judge: Judge
) -> Dialogue[tuple[list[Trial], list[Trial]]]:
    """Return the edits that turn none of the tickets that they name, and the others. A ticket is
    turned if it is judged right now, and more surely than before."""
    asked = [(each.guidance, each.evidence) for each in edits]
    gained = yield from judge.gains(asked)
    reached = yield from judge.p_correct(asked)
    idle, others = [], []
    for edit, gains, p_correct in zip(edits, gained, reached, strict=True):
        turned = sum(gain > 0 and p > 0.5 for gain, p in zip(gains, p_correct, strict=True))
        if turned or not edit.evidence:
            others.append(Trial(edit, turned=turned))
        else:
            idle.append(Trial(edit, "turns no evidence"))
    return idle, others


def _race_gains(
    gate: Gate, racing: Sequence[Trial], asked: Sequence[tuple[int, Sequence[int]]]
) -> Dialogue[list[EditGains]]:
    """Ask for the gains that the race wants: for each edit, by its number, and each of its race
    tickets, by its place."""
    wanted = [(racing[i].edit.guidance, [gate.race_on[k] for k in places]) for i, places in asked]
    gained = yield from gate.judge.gains(wanted)
    judged = yield from gate.judge.judgements(wanted)
    return [
        EditGains(gains, all(each.by_rules for each in judgements))
        for gains, judgements in zip(gained, judged, strict=True)
    ]


def _join_survivors(
    ranked: Sequence[Trial], gate: Gate, join: Join, raced: _RaceTickets, level: float
) -> Dialogue[list[Trial]]:
    """Join others to the first edit, in their order, as long as the race says that what they add
    promises a test of its own, with losses at the price that ranks edits. So no idle edit gets in
    behind a good one."""
    joined: list[Trial] = []
    for other in ranked[1:]:
        team = joined[-1] if joined else ranked[0]
        both = join(team.edit, other.edit)
        if both is None:
            continue
        (gains,) = yield from gate.judge.gains([(both.guidance, raced.positions)])
        score = Score().plus(raced.kinds, gains)
        (won, lost), (won_before, lost_before) = (
            score.rates(raced.among),
            team.score.rates(raced.among),
        )
        more_lost = LOSS_PRICE * max(0.0, lost - lost_before)
        if is_promising(won - won_before, more_lost, len(gate.groups), level):
            joined.append(Trial(both, score=score))
    return joined


def _test_in_turn(
    candidates: Sequence[Trial], gate: Gate, raced: _RaceTickets, left: float
) -> Dialogue[tuple[dict[Trial, Trial], float]]:
    """Test candidates in turn, until one is accepted; return the outcome of each, and what is left
    of the budget."""
    tested: dict[Trial, Trial] = {}
    for tried in candidates:
        won, lost = tried.score.rates(raced.among)
        level, groups = next_level(left, _share(won, lost, len(raced.positions))), gate.groups
        if not is_promising(won, lost, len(groups), level):
            tested[tried] = replace(tried, outcome="unpromising")
            continue
        test = yield from _test(tried, gate, raced, level)
        outcome: Outcome = (
            "accepted" if test.is_accepted else "futile" if test.is_futile else "unproven"
        )
        seen = [i for group in groups[: test.seen] for i in group]
        if test.is_accepted and (yield from gate.judge.exceeds_limits(tried.edit.guidance, seen)):
            outcome = "over a limit"
        tested[tried] = replace(tried, outcome=outcome, test=test)
        if outcome == "accepted":
            break
        left -= level
    return tested, left


def _share(won: float, lost: float, raced: int) -> float:
    """Return the share of what is left of the part of the budget for the test of an edit that won
    and lost at these rates on so many tickets. A proven edit gives its level back, and one with a
    strong race is more likely to be proven."""
    return STRONG if mcnemar_p(round(won * raced), round(lost * raced)) <= LUCKY else WEAK


def _test(tried: Trial, gate: Gate, raced: _RaceTickets, level: float) -> Dialogue[Test]:
    """Run the test that suits what the edit did in its race, and return it at its end. Drawing a
    gain g as won outright with a chance of g leaves g of its information, since its variance grows
    from g squared to g."""
    edited, groups = tried.edit.guidance, gate.groups
    by_group = yield from _gain_by_group(
        edited, gate.judge, whole_groups(raced.positions, gate.judge.tickets)
    )
    gains = [mean(each) for each in by_group]
    if sum(gain * gain for gain in gains) >= WHOLE * sum(map(abs, gains)):
        test: Test = ExactTest(level, len(groups), key=stream("turned", digest(edited)))
    else:
        test = BettingTest(
            level,
            len(groups),
            wealth=Wealth(favourite=kelly_stake(*tried.score.rates(raced.among))),
        )
    for chunk in cut_interims(groups, gate.interim):
        test = test.plus((yield from _gain_by_group(edited, gate.judge, chunk)))
        if test.is_decided:
            break
    return test


def _gain_by_group(
    guidance: Guidance, judge: Judge, groups: Sequence[Group]
) -> Dialogue[list[list[float]]]:
    """Ask for the gain on each ticket, by group."""
    (gains,) = yield from judge.gains([(guidance, [i for group in groups for i in group])])
    each = iter(gains)
    return [[next(each) for _ in group] for group in groups]
