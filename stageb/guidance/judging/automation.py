"""Finds which verdicts are decided alone, so that a bound on the error among them holds: learn then
test.

A *pilot*, tickets that play no part in the test, orders verdicts from sure to unsure: by how often
verdicts of the same decider with as much margin were right (``order_levels``). That gives a
sequence of sets of tickets, each within the next. Null hypothesis of a set: more than ``max_error``
of its tickets are judged wrong. Of the tickets of the test, which taught and chose nothing, n fall
into the set; given n, their errors are a binomial draw, so its exact lower tail is a p-value. The
sets are tested in their order, each at the whole level 1 - confidence, up to the first that is not
rejected. So a set that breaks the bound is taken with a probability of at most that level, whatever
the errors along the sequence (fixed-sequence testing; Angelopoulos, Bates, Candès, Jordan & Lei,
"Learn then test", 2021).

A set of few tickets cannot be rejected even without an error, and would end the sequence at once.
So the sequence begins at a set that is large enough by the pilot's shares, on which the test's
tickets have no influence.

Tickets of one group are no independent draws: one of each group is drawn, and the bound is on
groups, each counted once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, exp, fsum, inf, lgamma, log, log1p
from typing import Any, NamedTuple

from stageb.guidance.rules.predicates import Ruling, measure_margin
from stageb.guidance.rules.prompts import render_guidance
from stageb.guidance.words.automation import MODEL, Automation, Bound
from stageb.guidance.words.types import HEADLINE_KEY, Guidance, Verdict
from stageb.store import disk

ROOM = 1.1  # size of the first set, relative to the tickets that a bound takes without an error
MOST_FURTHER_TICKETS = 20_000  # nobody is told to label more further tickets than this


class Judged(NamedTuple):
    """A verdict on a labelled ticket."""

    decider: str  # who gave it: a rule's key, or ``MODEL``
    margin: float
    verdict: Verdict | None  # None: nobody decides such a ticket alone
    is_right: bool


class Level(NamedTuple):
    """One more step of a sequence: all verdicts of a decider from a margin on."""

    decider: str
    margin: float
    accuracy: float  # of these verdicts in the pilot, with one more right and one more wrong
    share: float  # of the pilot's tickets that have these verdicts


def name_guidance(guidance: Guidance) -> str:
    """Return a short name for what a guidance says, and how tickets are judged by it."""
    return disk.digest(
        f"{render_guidance(guidance)}{guidance.labels}{guidance.judge}{guidance.calibration}", 8
    )


def name_judge(by: str, guidance: Guidance) -> str:
    """Name the judge that ``by`` asks for, as ``Automation`` does: rules alone, both (rules, and a
    model where these give no verdict), the model, or both weighed."""
    learnt = {"": MODEL, "rules": "both"}.get(guidance.judge, guidance.judge)
    return learnt if by == "learnt" else by


def holds(automation: Automation, guidance: Guidance, by: str, asked: str) -> bool:
    """Whether the bounds hold for a guidance where tickets are judged by ``by``, and a model is
    asked as ``asked`` says: they were found for what the guidance says, and for such verdicts.
    Verdicts that rules alone give are the same with a model behind them."""
    if automation.guidance != name_guidance(guidance):
        return False
    judges = {automation.by, name_judge(by, guidance)}
    if MODEL in automation.deciders:
        return len(judges) == 1 and automation.asked == asked
    return len(judges) == 1 or judges == {"rules", "both"}


def find_promises(guidance: Mapping[str, Guidance], by: str, asked: str) -> dict[str, Automation]:
    """Return by mission the automations that hold where tickets are judged so, as ``holds``
    says."""
    kept = {mission: each.automation for mission, each in guidance.items()}
    return {
        mission: each
        for mission, each in kept.items()
        if each and holds(each, guidance[mission], by, asked)
    }


def describe_promises(
    guidance: Mapping[str, Guidance], promises: Mapping[str, Automation]
) -> Iterator[str]:
    """Say for each mission what is decided alone, or why what was promised is not among the
    ``promises`` that hold."""
    for mission, each in guidance.items():
        if each.automation:
            said = each.automation.describe()
            if mission not in promises:
                said = (
                    f"nothing is promised of how tickets are judged here; promised was: "
                    f"{said} (stageb automate)"
                )
            yield f"{mission}: {said}"


def find_decider(row: Mapping[str, Any]) -> tuple[str, float]:
    """Say who decided a row of predictions, and by what margin."""
    if row["by"] == MODEL:
        return MODEL, row["agreement"] if row["probability"] is None else row["probability"]
    return row["rule"], row["margin"]


def weigh_ruling(ruling: Ruling, label: Verdict) -> Judged:
    """Set a verdict of rules as code beside the right one."""
    return Judged(
        ruling.rule, measure_margin(ruling, HEADLINE_KEY), ruling.verdict, ruling.verdict == label
    )


def binomial_tail(wrong: int, tickets: int, share: float) -> float:
    """Return the probability of at most ``wrong`` errors among so many ``tickets``, each of which
    has one with probability ``share``."""
    if wrong >= tickets:
        return 1.0
    if share >= 1:
        return 0.0
    whole, ratio, none = lgamma(tickets + 1), log(share) - log1p(-share), tickets * log1p(-share)
    terms = (
        whole - lgamma(k + 1) - lgamma(tickets - k + 1) + k * ratio + none for k in range(wrong + 1)
    )
    return min(1.0, fsum(map(exp, terms)))


def count_needed(wrong: int, max_error: float, level: float) -> int:
    """Count the fewest tickets among which so many errors prove, at this level, a share of at most
    ``max_error``."""
    low, high = wrong, wrong + 1
    while binomial_tail(wrong, high, max_error) > level:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (middle, high) if binomial_tail(wrong, middle, max_error) > level else (low, middle)
        )
    return high


def order_levels(pilot: Sequence[Judged]) -> list[Level]:
    """Order the verdicts of a pilot from sure to unsure. For one decider more margin is never less
    sure: neighbouring margins whose shares of right verdicts say otherwise are one level (isotonic
    regression by pooling adjacent violators)."""
    by_decider: dict[str, dict[float, list[int]]] = {}
    for each in pilot:
        if each.verdict is not None:
            count = by_decider.setdefault(each.decider, {}).setdefault(each.margin, [0, 0])
            count[0] += each.is_right
            count[1] += 1
    found = []
    for decider, margins in by_decider.items():
        # least margin, right, tickets; in the order of rising accuracy
        pooled: list[tuple[float, int, int]] = []
        for margin, (right, tickets) in sorted(margins.items()):
            pooled.append((margin, right, tickets))
            while len(pooled) > 1 and _rate(*pooled[-1][1:]) <= _rate(*pooled[-2][1:]):
                _, more_right, more = pooled.pop()
                low, right, tickets = pooled.pop()
                pooled.append((low, right + more_right, tickets + more))
        found += [
            Level(decider, low, _rate(right, of), of / len(pilot)) for low, right, of in pooled
        ]
    return sorted(found, key=lambda level: (-level.accuracy, level.decider))


def _rate(right: int, tickets: int) -> float:
    return (right + 1) / (tickets + 2)


def make_sequence(levels: Sequence[Level], tickets: int, needed: int) -> list[Mapping[str, float]]:
    """Make the sets to test with so many tickets, of which ``needed`` without an error prove the
    bound: the least margin by decider, each set within the next. Nothing that the tickets say plays
    a part."""
    sets: list[Mapping[str, float]] = []
    least: dict[str, float] = {}
    share = 0.0
    for place, level in enumerate(levels):
        least = {**least, level.decider: min(level.margin, least.get(level.decider, inf))}
        share += level.share
        if share * tickets >= ROOM * needed or place == len(levels) - 1:
            sets.append(least)
    return sets


@dataclass(frozen=True, slots=True)
class BoundSearch:
    """The result of testing a sequence."""

    bound: Bound | None  # None: nothing can be decided alone
    decided: int  # number of tickets decided alone; in the first set, if no set was accepted
    wrong: int  # number of these that are judged wrong


def find_bounds(
    pilot: Sequence[Judged],
    tested: Sequence[Judged],
    limits: Mapping[Verdict, float],
    confidence: float,
) -> dict[Verdict, BoundSearch]:
    """Find a bound with ``find_bound`` for each verdict in ``limits`` (empty: for all together).
    All bounds hold together with this confidence."""
    level = divide_level(confidence, limits)
    return {
        verdict: find_bound(pilot, tested, verdict, limit, level)
        for verdict, limit in limits.items()
    }


def divide_level(confidence: float, limits: Mapping[Verdict, float]) -> float:
    """Return the level of each test, so that all bounds hold together; a limit of 1 is no bound."""
    return (1 - confidence) / max(1, sum(limit < 1 for limit in limits.values()))


def find_bound(
    pilot: Sequence[Judged],
    tested: Sequence[Judged],
    verdict: Verdict,
    max_error: float,
    level: float,
) -> BoundSearch:
    """Find the largest set in the pilot's sequence that tickets prove to have errors of at most
    ``max_error``, at this level. ``tested`` are independent draws; ``verdict`` is the one that the
    bound is on, empty: any."""
    pilot, tested = _keep(verdict, pilot), _keep(verdict, tested)
    count = sum(each.verdict is not None for each in tested)
    found = BoundSearch(None, 0, 0)
    needed = count_needed(0, max_error, level)
    for least in make_sequence(order_levels(pilot), len(tested), needed):
        decided, wrong = _count(least, tested)
        if max_error < 1 and binomial_tail(wrong, decided, max_error) > level:
            return found if found.bound else BoundSearch(None, decided, wrong)
        bound = Bound(verdict, max_error, least, count, decided, wrong)
        found = BoundSearch(bound, decided, wrong)
    return found


def _keep(verdict: Verdict, some: Sequence[Judged]) -> list[Judged]:
    """Return the tickets, with no other verdict than this decided alone."""
    return [each if verdict in ("", each.verdict) else each._replace(verdict=None) for each in some]


def _count(least: Mapping[str, float], tested: Iterable[Judged]) -> tuple[int, int]:
    """Count the tickets that a set decides, and those that it decides wrongly."""
    decided = [
        each
        for each in tested
        if each.verdict is not None and each.margin >= least.get(each.decider, inf)
    ]
    return len(decided), sum(not each.is_right for each in decided)


def count_more(
    pilot: Sequence[Judged],
    tested: Sequence[Judged],
    verdict: Verdict,
    max_error: float,
    level: float,
) -> int | None:
    """Return about how many tickets beside those ``tested`` would prove the first set of the
    sequence that so many make, if such tickets are decided, and decided wrongly, as often; for a
    set that decided none, as often as in the pilot. Sets behind a first one that is not proven are
    never tested. None where no number of tickets would do."""
    pilot, tested = _keep(verdict, pilot), _keep(verdict, tested)
    least, share, errors, enough = dict[str, float](), 0.0, 0.0, list[float]()
    levels, first = order_levels(pilot), ROOM * count_needed(0, max_error, level)
    if not levels:  # nothing is known yet
        enough.append(first)
    for each in levels:
        most = first / share if share else inf  # with more tickets, a smaller set is the first
        least[each.decider] = min(each.margin, least.get(each.decider, inf))
        share, errors = share + each.share, errors + each.share * (1 - each.accuracy)
        decided, wrong = _count(least, tested)
        error = wrong / decided if decided else errors / share
        of_all = min(share, decided / len(tested)) if decided else share
        if error < max_error and (
            needed := _count_enough(error, max_error, level, of_all * MOST_FURTHER_TICKETS)
        ):
            tickets = max(ROOM * needed / of_all, len(tested) + 1)
            enough += [tickets] if tickets < most else []
    more = ceil(min(enough) - len(tested)) if enough else MOST_FURTHER_TICKETS + 1
    return max(1, more) if more <= MOST_FURTHER_TICKETS else None


def _count_enough(error: float, max_error: float, level: float, most: float) -> int | None:
    """Count the fewest tickets that prove the bound with as many errors as are to be expected; None
    where ``most`` do not."""
    wrong = 0
    while (needed := count_needed(wrong, max_error, level)) <= most:
        if error * needed <= wrong:
            return needed
        # steps may be large: an estimate will do
        wrong = max(wrong + 1, int(1.1 * wrong), int(error * needed))
    return None
