"""The gate: an edit is accepted only if it is proven better than the present guidance, on tickets that it was not made from.

What a bundle's edits go through, each step dearer than the one before:

1. *Evidence*: an edit that turns none of the tickets that it names is dropped.
2. *Race* (``race.py``): the others are judged on train tickets set apart for races; the most careful is left, and the one of
   most gain. What other survivors add to the most careful is tried there too: edits that win on different tickets are
   joined, and tested as one.
3. *Test* (``betting.py``): chunk by chunk, until it is proven or given up, on further train tickets. An edit whose race
   promises less than half of a proof is spared it.

Cases, race and test have no group of tickets in common, since one that came twice would speak for itself. Each edit has a
pool of its own to be tested on: all but the bundle, and the cases that its answer was shown. Were every wrong ticket that
some answer may see kept from all edits, few would be left to win.

The tests share one false-acceptance budget for the run, of which each mission has an equal part. Until the first acceptance
the guarantee holds as it stands: an edit is a function of tickets that its test leaves out. Those of the bundle were drawn
without regard to how they are judged; those of earlier bundles are judged wrong, and without them an edit can only look
worse. Later edits build on guidance that earlier tests let pass, on tickets that may come again; what is left of the
guarantee then rests on acceptances being few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log
from typing import Literal

from stageb.guidance.config import GateConfig
from stageb.guidance.gate.betting import Test, Wealth, favourite, projected, spend
from stageb.guidance.gate.race import LOSS_PRICE, Form, Kind, race
from stageb.guidance.prompts import rule_lines
from stageb.guidance.types import Guidance, Judgement, Proposal, Ticket

Ask = Callable[[Sequence[tuple[Guidance, Sequence[int]]]], Sequence[Sequence[Judgement]]]
"""Guidance and positions of tickets in; for each position how it is judged."""

DOUBT = 2.0  # times more than its race says, an edit may bring: of a few per cent, a race sees a handful of tickets

Outcome = Literal["turns no evidence", "dropped", "unpromising", "futile", "unproven", "accepted"]


@dataclass(frozen=True, slots=True)
class Contender:
    """An edit that wants to be accepted."""

    proposals: tuple[Proposal, ...]  # where it comes from; several where edits were joined
    times: int  # proposals that hold it
    guidance: Guidance  # the present guidance with the edit
    evidence: tuple[int, ...] = ()  # positions of the tickets that it should turn
    traded: tuple[str, ...] = ()  # keys of rules that go to make room for it
    shown: tuple[int, ...] = ()  # positions of the tickets that it must not be tested on


Pool = Callable[[Contender], Sequence[int]]
"""A contender in; the positions of the tickets that it may be tested on, none of a group that it was shown."""

Join = Callable[[Contender, Contender], Contender | None]
"""Two contenders in; the edit that does both, or None where they cannot go together."""


class Jury:
    """Asks for judgements, each at most once, and weighs them: what an edit gains on a ticket.

    ``known`` holds merits under the ``present`` guidance, by position; ``tickets`` says what stands at a position.
    """

    def __init__(
        self, ask: Ask, tickets: Sequence[Ticket], config: GateConfig, present: Guidance, known: Mapping[int, float]
    ):
        self._ask = ask
        self._tickets = tickets
        most = max(config.fp_weight, config.fn_weight)
        self._weights = {"fail": config.fp_weight / most, "pass": config.fn_weight / most}
        self._present = present
        self._merits: dict[str, dict[int, float]] = {rule_lines(present): dict(known)}  # equal rules, judged alike
        self.judged = 0  # tickets judged
        self.tokens = 0  # that this cost

    def merits(self, asked: Sequence[tuple[Guidance, Sequence[int]]]) -> list[list[float]]:
        """For each guidance and its positions, the merits; all that is not known is asked for in one call."""
        unknown: dict[str, tuple[Guidance, dict[int, None]]] = {}
        for guidance, positions in asked:
            known = self.known(guidance)
            missing = dict.fromkeys(i for i in positions if i not in known)
            if missing:
                unknown.setdefault(rule_lines(guidance), (guidance, {}))[1].update(missing)
        questions = [(guidance, list(missing)) for guidance, missing in unknown.values()]
        for (guidance, positions), judged in zip(questions, self._ask(questions) if questions else (), strict=True):
            self.known(guidance).update((i, each.merit) for i, each in zip(positions, judged, strict=True))
            self.judged += len(judged)
            self.tokens += sum(each.tokens for each in judged)
        return [[self.known(guidance)[i] for i in positions] for guidance, positions in asked]

    def gains(self, asked: Sequence[tuple[Guidance, Sequence[int]]]) -> list[list[float]]:
        """For each edited guidance and its positions: merit gained over the present guidance, weighed, each in [-1, 1]."""
        pairs = [pair for guidance, positions in asked for pair in ((guidance, positions), (self._present, positions))]
        merits = iter(self.merits(pairs))
        return [
            [
                self._weights[self._tickets[i].label] * (new - old)
                for i, new, old in zip(positions, after, before, strict=True)
            ]
            for (_, positions), after, before in ((each, next(merits), next(merits)) for each in asked)
        ]

    def kinds(self, positions: Sequence[int]) -> list[Kind]:
        """For each its label, and whether the present guidance is more likely right than wrong."""
        (merits,) = self.merits([(self._present, positions)])
        return [(self._tickets[i].label, merit > 0.5) for i, merit in zip(positions, merits, strict=True)]

    def known(self, guidance: Guidance) -> dict[int, float]:
        """The merits known under ``guidance``, by position."""
        return self._merits.setdefault(rule_lines(guidance), {})


@dataclass(frozen=True, eq=False, slots=True)
class Trial:
    """What became of one contender. A trial equals itself alone, so that it can be looked up."""

    contender: Contender
    outcome: Outcome = "dropped"
    turned: int = 0  # tickets of its evidence
    form: Form = field(default_factory=Form)  # in the race
    test: Test | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of a bundle's contenders."""

    trials: tuple[Trial, ...]
    left: float  # of the mission's budget
    winner: Contender | None = None


def decide(
    contenders: Sequence[Contender],
    jury: Jury,
    join: Join,
    race_on: Sequence[int],
    pool_of: Pool,
    left: float,
    chunk: int,
    race_chunk: int,
) -> Decision:
    """Which contender to accept, if any. ``race_on`` holds positions of tickets, without a group in common with any pool; a
    race goes over them ``race_chunk`` at a time. A test looks at the pool ``chunk`` tickets at a time, and takes its level
    from what is ``left`` of the mission's budget."""
    turned = _turned(contenders, jury)
    idle = [
        Trial(each, "turns no evidence")
        for each, count in zip(contenders, turned, strict=True)
        if each.evidence and not count
    ]
    racing = [
        Trial(each, turned=count) for each, count in zip(contenders, turned, strict=True) if count or not each.evidence
    ]
    if not racing:
        return Decision(tuple(idle), left)
    kinds = jury.kinds(race_on)
    raced = Counter(kinds)

    def gains(asked: Sequence[tuple[int, Sequence[int]]]) -> list[list[float]]:
        return jury.gains([(racing[i].contender.guidance, [race_on[k] for k in seen]) for i, seen in asked])

    outcome = race(kinds, len(racing), gains, race_chunk)
    racing = [replace(trial, form=form) for trial, form in zip(racing, outcome.forms, strict=True)]

    def form(contender: Contender) -> Form:
        (seen,) = jury.gains([(contender.guidance, [race_on[k] for k in outcome.positions])])
        return Form().plus([kinds[k] for k in outcome.positions], seen)

    def promises(won: float, lost: float, contender: Contender) -> bool:
        tickets = len(pool_of(contender))
        return min(DOUBT * projected(won, lost, tickets), projected(1.0, 0.0, tickets)) >= -log(spend(left))

    def adds(team: Form, both: Trial) -> bool:
        (won, lost), (won_before, lost_before) = both.form.rates(raced), team.rates(raced)
        return promises(won - won_before, LOSS_PRICE * max(0.0, lost - lost_before), both.contender)

    careful = _joined([racing[i] for i in outcome.ranked], join, form, adds)
    leader = [] if outcome.leader is None else [racing[outcome.leader]]
    tested: dict[Trial, Trial] = {}
    for trial in dict.fromkeys([*careful[-1:], *leader]):
        level, rates, pool = spend(left), trial.form.rates(raced), pool_of(trial.contender)
        if not promises(*rates, trial.contender):
            tested[trial] = replace(trial, outcome="unpromising")
            continue
        test = Test(level, len(pool), Wealth(favourite=favourite(*rates)))
        test = _test(test, trial.contender.guidance, jury, pool, chunk)
        tested[trial] = replace(trial, outcome=_said(test), test=test)
        if test.accepts:
            break
        left -= level
    trials = [tested.get(trial, trial) for trial in [*idle, *racing, *careful[1:]]]
    winner = next((trial.contender for trial in trials if trial.outcome == "accepted"), None)
    return Decision(tuple(trials), left, winner)


def _joined(
    ranked: Sequence[Trial], join: Join, form: Callable[[Contender], Form], adds: Callable[[Form, Trial], bool]
) -> list[Trial]:
    """The best contender, and what becomes of it as others join, in their order: those of which the race says that what they
    add promises a test of its own, at the price of losses that ranks them. So no idle edit gets in behind a good one."""
    joined = list(ranked[:1])
    for other in ranked[1:]:
        both = join(joined[-1].contender, other.contender)
        if both is None:
            continue
        trial = Trial(both, form=form(both))
        if adds(joined[-1].form, trial):
            joined.append(trial)
    return joined


def _turned(contenders: Sequence[Contender], jury: Jury) -> list[int]:
    """How many tickets of its evidence each contender turns: judged right now, and more surely than before."""
    asked = [(each.guidance, each.evidence) for each in contenders]
    counts = []
    for gains, merits in zip(jury.gains(asked), jury.merits(asked), strict=True):
        counts.append(sum(gain > 0 and merit > 0.5 for gain, merit in zip(gains, merits, strict=True)))
    return counts


def _test(test: Test, guidance: Guidance, jury: Jury, pool: Sequence[int], chunk: int) -> Test:
    """``test`` of ``guidance``, gone on with until it is decided."""
    for start in range(0, len(pool), chunk):
        (gains,) = jury.gains([(guidance, pool[start : start + chunk])])
        test = test.plus(gains)
        if test.accepts or test.futile:
            break
    return test


def _said(test: Test) -> Outcome:
    if test.accepts:
        return "accepted"
    return "futile" if test.futile else "unproven"


def prune(
    contenders: Sequence[Contender],
    jury: Jury,
    race_on: Sequence[int],
    pool: Sequence[int],
    margin: float,
    left: float,
    chunk: int,
) -> Decision:
    """Which rule can go, if any: the one that is missed least, where it is proven that its loss costs less than ``margin``.

    Each contender goes without one rule, or with two made one; what it gains on ``race_on`` is, negated, what that rule
    earns: its causal credit.
    """
    kinds = jury.kinds(race_on)
    gained = jury.gains([(each.guidance, race_on) for each in contenders])
    trials = [Trial(each, form=Form().plus(kinds, gains)) for each, gains in zip(contenders, gained, strict=True)]
    best = max(trials, key=lambda trial: trial.form.mean, default=None)
    if best is None or best.form.mean <= -margin:
        return Decision(tuple(trials), left)
    level = spend(left)
    (seen,) = jury.gains([(best.contender.guidance, race_on)])
    if Wealth(-margin).plus(seen).grown(len(pool)) < -log(level):
        trials[trials.index(best)] = replace(best, outcome="unpromising")
        return Decision(tuple(trials), left)
    test = _test(Test(level, len(pool), Wealth(-margin)), best.contender.guidance, jury, pool, chunk)
    trials[trials.index(best)] = replace(best, outcome=_said(test), test=test)
    if test.accepts:
        return Decision(tuple(trials), left, best.contender)
    return Decision(tuple(trials), left - level)


def unseen(pool: Sequence[int], shown: Sequence[int], tickets: Sequence[Ticket]) -> list[int]:
    """The positions of ``pool`` whose groups have no ticket in ``shown``."""
    groups = {tickets[i].group_id for i in shown}
    return [i for i in pool if tickets[i].group_id not in groups]
