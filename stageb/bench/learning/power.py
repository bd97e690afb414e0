"""What the gate's test can see: bin/bench power

Simulated tickets, of which the present guidance judges a share wrong; an edit mends some of these and breaks some of the
others. Shown: the share of edits that the sequential test accepts and the tickets that it looked at on the way; the share
that a test of fixed size, McNemar's in its exact form at the same level, accepts on all tickets; and how many tickets that
one needs, fixed in advance, to accept 90 % of such edits. Rows without gain count false acceptances.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from math import exp
from pathlib import Path
from statistics import fmean

from stageb.bench.learning.figures import between, percent, table
from stageb.bench.learning.statistics import log_binomial, wilson
from stageb.guidance.gate.betting import Test, next_level
from stageb.guidance.learning import LOOK
from stageb.seeds import stream, uniform

ERROR = 0.3  # of the present guidance
MENDED = 0.15  # of its errors, by an edit
BROKEN = (0.0, 0.01, 0.02)  # of its right verdicts
BUDGET = 0.05  # chance that a run ever accepts an edit that is no better
MOST = 5000  # tickets that are tried for a test of fixed size
WANTED = 0.9  # power that it should have


@dataclass(frozen=True, slots=True)
class Edit:
    """What an edit does to a ticket, by chance."""

    won: float  # chance that a ticket turns right
    lost: float  # chance that it turns wrong

    def gains(self, key: int, tickets: int) -> list[int]:
        """1, 0 or -1 for each ticket of one simulated pool."""
        draws = (uniform(key, position) for position in range(tickets))
        return [1 if u < self.won else -1 if u < self.won + self.lost else 0 for u in draws]


def sequential(edit: Edit, level: float, tickets: int, key: int) -> tuple[bool, int]:
    """Whether the gate's test accepts, and how many tickets it looked at, chunk by chunk."""
    gains, test = edit.gains(key, tickets), Test(level, tickets)
    for start in range(0, tickets, LOOK):
        test = test.plus([[gain] for gain in gains[start : start + LOOK]])
        if test.decided:
            break
    return test.accepts, test.tickets


def fixed_power(edit: Edit, level: float, tickets: int) -> float:
    """The chance that McNemar's exact one-sided test accepts on so many tickets: summed over what may turn, and how."""
    turned = edit.won + edit.lost
    total = 0.0
    for n in range(tickets + 1):
        weight = exp(log_binomial(tickets, n, turned))
        if weight > 1e-12:
            total += weight * wins_at_least(needed(n, level), n, edit.won / turned)
    return total


@cache
def needed(n: int, level: float) -> int:
    """The fewest wins among ``n`` turned tickets that fair coins reach with a chance of at most ``level``; n + 1: none."""
    tail, wins = 0.0, n + 1
    while wins and (tail := tail + exp(log_binomial(n, wins - 1, 0.5))) <= level:
        wins -= 1
    return wins


def wins_at_least(wins: int, n: int, share: float) -> float:
    """P(Binomial(n, share) >= wins)."""
    if share == 1:
        return float(wins <= n)
    return sum(exp(log_binomial(n, k, share)) for k in range(wins, n + 1))


def fixed_size(edit: Edit, level: float) -> int | None:
    """The fewest tickets, in steps of 8, with which the test of fixed size has the power that is wanted; None: too many."""
    return next((n for n in range(8, MOST + 1, 8) if fixed_power(edit, level, n) >= WANTED), None)


def main(arguments: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="bin/bench power", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tickets", type=int, default=512, help="of a pool (default 512)")
    parser.add_argument("--runs", type=int, default=2000, help="simulated pools per row (default 2000)")
    parser.add_argument("--out", type=Path, help="write results.json and table.md into this folder")
    given = parser.parse_args(arguments)
    won = ERROR * MENDED
    edits = [(f"mends {MENDED:.0%}, breaks {broken:.0%}", Edit(won, (1 - ERROR) * broken)) for broken in BROKEN]
    edits.append(("mends as many as it breaks", Edit(won, won)))
    results = []
    for level in (BUDGET, next_level(BUDGET)):
        for what, edit in edits:
            ran = [sequential(edit, level, given.tickets, stream("power", what, run)) for run in range(given.runs)]
            results.append(
                {
                    "level": level,
                    "edit": what,
                    **asdict(edit),
                    "accepted": sum(accepted for accepted, _ in ran),
                    "runs": given.runs,
                    "tickets": fmean(tickets for _, tickets in ran),
                    "fixed_accepted": fixed_power(edit, level, given.tickets),
                    "fixed_size": fixed_size(edit, level) if edit.won > edit.lost else None,
                }
            )
    head = ["level", "edit", "accepted, %", "95 % interval", "tickets seen"]
    text = table(
        [*head, f"fixed test on {given.tickets}, %", f"tickets for {WANTED:.0%} by the fixed test"],
        [
            [
                f"{r['level']:g}",
                str(r["edit"]),
                percent(r["accepted"] / r["runs"]),
                between(*wilson(r["accepted"], r["runs"])),
                f"{r['tickets']:.0f} of {given.tickets}",
                percent(r["fixed_accepted"]),
                str(r["fixed_size"] or "-"),
            ]
            for r in results
        ],
    )
    print(text)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        (given.out / "table.md").write_text(text, encoding="utf-8")
    return 0
