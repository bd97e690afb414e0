"""A test of a bound as people's answers come: it may look at any time, and end at any time.

Null hypothesis: given all answers before, a ticket that is decided alone is judged wrong with a
probability of at most ``max_error``. Bets on errors (``learning/gate/sequential.py``) then make a
wealth that ever reaches 1 / ``LEVEL`` with a probability of at most ``LEVEL`` (Ville 1939).

Errors may begin late, when a bettor of the first day has lost what it had. So another one begins
after every ``AFRESH`` answers, the k-th with 1 / (k (k + 1)) of the whole, which waits until then:
the sum is a supermartingale as each of them is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import erfc, exp, log, sqrt
from statistics import quantiles
from typing import Any

from stageb.guidance.commands.audit.files import Drawn, Edges
from stageb.guidance.judging.automation import binomial_tail
from stageb.guidance.learning.gate.sequential import Wealth
from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.value_types import parse_quantity
from stageb.guidance.words.automation import write_share
from stageb.guidance.words.types import Ticket

LEVEL = 0.05  # the probability of a false alarm, however long one watches
AFRESH = 100
DOUBLED = 0.1  # the favourite stake: that of errors twice as many as allowed
SCALE = 10.0  # what a stake of 1 bets, where errors are rare
TELLING = 0.001  # how improbable a shift of shares is by chance, that is told
KINDS = 32  # values of a field, at most, whose shares are compared; more numbers by ...
INTERVALS = 8
FEWEST_TICKETS = 30  # tickets on either side, below which shares tell nothing


def trace_wealth(errors: Sequence[bool], max_error: float) -> Iterator[float]:
    """The natural log of the wealth after each answer; ``errors``: whether it says that the verdict
    is wrong."""
    bettors: list[tuple[float, Wealth]] = []
    scale = min(SCALE, 1 / max_error)  # so that nobody can lose more than there is
    for place, is_wrong in enumerate(errors):
        if place % AFRESH == 0:
            k = len(bettors) + 1
            bettors.append((1 / (k * (k + 1)), Wealth(favourite=DOUBLED)))
        gain = [scale * (is_wrong - max_error)]
        bettors = [(weight, wealth.plus(gain)) for weight, wealth in bettors]
        waiting = 1 / (len(bettors) + 1)
        yield log(waiting + sum(weight * exp(min(700.0, wealth.log)) for weight, wealth in bettors))


def is_alarm(log_wealth: float) -> bool:
    """Whether so much wealth shows that the bound is broken."""
    return log_wealth >= -log(LEVEL)


@dataclass(frozen=True, slots=True)
class RuleErrors:
    """Answers of people on the verdicts of a rule."""

    rule: str
    answered: int
    wrong: int
    p: float  # of so many errors or more, if no more than are allowed were to be expected


def rank_rules(answers: Sequence[tuple[str, bool]], max_error: float) -> list[RuleErrors]:
    """Rules by how much their errors, each an answer's rule and whether it was wrong, are beyond
    what is allowed."""
    counts = Counter(rule for rule, _ in answers)
    wrong = Counter(rule for rule, is_wrong in answers if is_wrong)
    found = [
        RuleErrors(rule, count, wrong[rule], 1 - binomial_tail(wrong[rule] - 1, count, max_error))
        for rule, count in counts.items()
    ]
    return sorted(found, key=lambda each: (each.p, -each.wrong, each.rule))


def find_fault(ranked: Sequence[RuleErrors]) -> RuleErrors | None:
    """The rule whose errors stand out from chance, at the level shared among all; None where none
    does."""
    return next((each for each in ranked if each.p <= LEVEL / len(ranked)), None)


def has_shifted(before: Mapping[str, int], now: Mapping[str, int]) -> bool:
    """Whether shares are others than before, by more than chance: the G-test of two samples, with
    the chi-squared tail of Wilson & Hilferty (1931)."""
    first, second = sum(before.values()), sum(now.values())
    names = before.keys() | now.keys()
    if min(first, second) < FEWEST_TICKETS or len(names) < 2:
        return False
    g, freedom = 0.0, len(names) - 1
    for name in names:
        share = (before.get(name, 0) + now.get(name, 0)) / (first + second)
        for count, total in ((before.get(name, 0), first), (now.get(name, 0), second)):
            g += 2 * count * log(count / (share * total)) if count else 0.0
    normal = ((g / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / sqrt(2 / (9 * freedom))
    return erfc(normal / sqrt(2)) / 2 < TELLING


def describe_drift(drawn: Sequence[Drawn]) -> Iterator[str]:
    """Shares that are others in the newest predictions than in all before; columns that came or
    went."""
    if len(drawn) < 2:
        return
    *earlier, newest = drawn
    for mission, shares in newest.shares.items():
        before: dict[str, Counter[str]] = {}
        for of in earlier:
            for what, counts in of.shares.get(mission, {}).items():
                before.setdefault(what, Counter()).update(counts)
        for what in (each for each in before if each not in shares):
            yield f"{mission}: no {what} as before in {newest.file}"
        for what, counts in shares.items():
            if what not in before:
                if before:
                    yield f"{mission}: {what} is new in {newest.file}"
            elif has_shifted(before[what], counts):
                yield f"{mission}: {what} in {newest.file}: {_describe_shift(before[what], counts)}"


def count_shares(
    rows: Sequence[Mapping[str, Any]],
    tickets: Mapping[tuple[str, int], Ticket],
    before: Sequence[Drawn],
) -> tuple[dict[str, dict[str, dict[str, int]]], Edges]:
    """By mission, how many tickets had each verdict, each rule that decided, and each value of a
    field that has few, or numbers in each interval; with the edges of these, which are those of
    ``before`` where there are any."""
    shares = dict[str, dict[str, dict[str, int]]]()
    edges = dict[str, Mapping[str, Sequence[float]]]()
    known = _find_edges(before)
    for mission in dict.fromkeys(row["mission"] for row in rows):
        mine = [row for row in rows if row["mission"] == mission]
        shares[mission], edges[mission] = _count_of_mission(mine, tickets, known.get(mission, {}))
    return shares, edges


# Inside -------------------------------------------------------------------------------------------


def _describe_shift(before: Mapping[str, int], now: Mapping[str, int]) -> str:
    """The value whose share has moved most."""
    first, second = sum(before.values()), sum(now.values())
    shares = {
        name: (before.get(name, 0) / first, now.get(name, 0) / second)
        for name in before.keys() | now.keys()
    }
    name = max(sorted(shares), key=lambda each: abs(shares[each][0] - shares[each][1]))
    was, became = shares[name]
    return (
        f"{name or 'nothing'!r} in {write_share(became)} of the tickets, {write_share(was)} before"
    )


def _find_edges(drawn: Sequence[Drawn]) -> Edges:
    """Those by which numbers were counted first."""
    found: dict[str, dict[str, Sequence[float]]] = {}
    for each in reversed(drawn):
        for mission, of in each.edges.items():
            found.setdefault(mission, {}).update(of)
    return found


def _count_of_mission(
    rows: Sequence[Mapping[str, Any]],
    tickets: Mapping[tuple[str, int], Ticket],
    known: Mapping[str, Sequence[float]],
) -> tuple[dict[str, dict[str, int]], dict[str, Sequence[float]]]:
    """How many tickets of a mission had each verdict, each rule that decided, and each value of a
    field that has few, or numbers in each interval; with the edges of these, ``known`` or new."""
    columns: dict[str, list[str]] = {}
    for row in rows:
        for field, value in reading(tickets[row["file"], row["line"]]).pairs.items():
            columns.setdefault(field, []).append(value)
    edges = {
        field: known[field] if field in known else _find_octiles(values)
        for field, values in columns.items()
    }
    counts = {
        "verdicts": Counter(row["verdict"] or "none" for row in rows),
        "rules": Counter(row["rule"] or "none" for row in rows),
    }
    for field, values in columns.items():
        if edges[field]:
            values = [_name_interval(value, edges[field]) for value in values]
        if len({*values}) <= KINDS:
            lacking = {"": len(rows) - len(values)} if len(values) < len(rows) else {}
            counts[f"field {field}"] = Counter(values) + Counter(lacking)
    return {what: dict(of) for what, of in counts.items()}, edges


def _find_octiles(values: Sequence[str]) -> list[float]:
    """What parts the numbers of a field in ``INTERVALS`` that are as frequent; empty where it has
    few values, or others than numbers."""
    found = [parse_quantity(value) for value in values] if len({*values}) > KINDS else []
    numbers = [each.number for each in found if each]
    if not numbers or len(numbers) < len(found):
        return []
    return sorted({float(f"{each:.4g}") for each in quantiles(numbers, n=INTERVALS)})


def _name_interval(value: str, edges: Sequence[float]) -> str:
    """The interval that a number lies in."""
    found = parse_quantity(value)
    if found is None:
        return "no number"
    place = bisect_left(edges, found.number)
    return f"up to {edges[place]:g}" if place < len(edges) else f"above {edges[-1]:g}"
