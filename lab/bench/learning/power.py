"""What the gate's test can see: bin/bench power

First missions of several sizes, each with one edit that mends and breaks some of all tickets: how often the gate, from race
to proof, accepts it as the first of a run, and after four others whose races were as strong were tested in vain; and how
often learning at once, where code judges, is proven by it.

Then the test alone. Simulated tickets, of which the present guidance judges a share wrong; an edit mends some of these and
breaks some of the others. Shown: the share of edits that the sequential test accepts and the tickets that it looked at on
the way; the share that a test of fixed size, McNemar's in its exact form at the same level, accepts on all tickets; and how
many tickets that one needs, fixed in advance, to accept 90 % of such edits. Rows without gain count false acceptances.

Then whole runs of the gate (``simulated.py``): how often one accepts a worthless edit, from the start and after a good one;
and how often one of several does that go on from each other's guidance, on the same tickets.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import product
from math import exp
from pathlib import Path
from statistics import fmean
from typing import Any

from lab.bench.learning import simulated
from lab.bench.learning.figures import between, percent, table
from lab.bench.learning.statistics import log_binomial
from stageb.guidance.commands.fit.run import LOOK
from stageb.guidance.learning.gate.decide import STRONG, WEAK
from stageb.guidance.learning.gate.exact import ExactTest
from stageb.guidance.learning.gate.sequential import next_level
from stageb.guidance.words.types import FOLDS
from stageb.runs.figures import wilson
from stageb.seeds import stream, uniform

ERROR = 0.3  # of the present guidance
MENDED = 0.15  # of its errors, by an edit
BROKEN = (0.0, 0.01, 0.02)  # of its right verdicts
BUDGET = simulated.BUDGET.edits[0]  # for edits that one fold teaches
MOST = 5000  # tickets that are tried for a test of fixed size
WANTED = 0.9  # power that it should have
MISSIONS = (150, 300, 600, 1200)  # tickets
TURNS = ((0.05, 0.0), (0.05, 0.01), (0.1, 0.0), (0.1, 0.02), (0.2, 0.0), (0.2, 0.05))  # of all tickets: mended, broken
FAILED = 4  # tests before the later one, of edits that the folds taught in turn
TRAIN = (180, 360, 768, 1536)  # tickets of a simulated run
BUNDLES = 24  # of worthless edits
CHAIN = (1, 2, 4, 8)  # runs that go on from each other


@dataclass(frozen=True, slots=True)
class Edit:
    """What an edit does to a ticket, by chance."""

    won: float  # chance that a ticket turns right
    lost: float  # chance that it turns wrong

    def gains(self, key: int, tickets: int) -> list[int]:
        """1, 0 or -1 for each ticket of one simulated pool."""
        draws = (uniform(key, position) for position in range(tickets))
        return [1 if u < self.won else -1 if u < self.won + self.lost else 0 for u in draws]


def of_missions(runs: int) -> list[dict[str, Any]]:
    """A row for each size of a mission and each edit."""
    rows = []
    for tickets, (mended, broken) in product(MISSIONS, TURNS):
        row = {"tickets": tickets, "mended": mended, "broken": broken, "runs": runs}
        for when, left in (("first", BUDGET), ("later", BUDGET * (1 - STRONG) ** (FAILED // FOLDS))):
            keys = (stream("mission", tickets, str(mended), str(broken), run) for run in range(runs))
            row[when] = sum(simulated.one_edit(key, tickets, mended, broken, left) for key in keys)
        level = sum(simulated.BUDGET.edits)
        keys = (stream("mission", tickets, str(mended), str(broken), run) for run in range(runs))
        row["at_once"] = sum(simulated.at_once(key, tickets, mended, broken, level) for key in keys)
        rows.append(row)
    return rows


def missions_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows of ``of_missions``, as Markdown."""
    head = ["tickets", "of all tickets the edit mends, %", "breaks, %"]
    return table(
        [
            *head,
            "accepted as first, %",
            "95 % interval",
            f"after {FAILED} tests in vain, %",
            "95 % interval",
            "at once, %",
            "95 % interval",
        ],
        [
            [str(r["tickets"]), f"{100 * r['mended']:g}", f"{100 * r['broken']:g}"]
            + [
                cell
                for when in ("first", "later", "at_once")
                for cell in (percent(r[when] / r["runs"]), between(*wilson(r[when], r["runs"])))
            ]
            for r in rows
        ],
    )


def sequential(edit: Edit, level: float, tickets: int, key: int) -> tuple[bool, int]:
    """Whether the gate's test accepts, and how many tickets it looked at, chunk by chunk."""
    gains, test = edit.gains(key, tickets), ExactTest(level, tickets)
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


def of_the_test(runs: int, tickets: int) -> list[dict[str, Any]]:
    """A row for each level and edit."""
    won = ERROR * MENDED
    edits = [(f"mends {MENDED:.0%}, breaks {broken:.0%}", Edit(won, (1 - ERROR) * broken)) for broken in BROKEN]
    edits.append(("mends as many as it breaks", Edit(won, won)))
    rows = []
    for level in (next_level(BUDGET, STRONG), next_level(BUDGET, WEAK)):
        for what, edit in edits:
            ran = [sequential(edit, level, tickets, stream("power", what, run)) for run in range(runs)]
            rows.append(
                {
                    "level": level,
                    "edit": what,
                    **asdict(edit),
                    "accepted": sum(accepted for accepted, _ in ran),
                    "runs": runs,
                    "tickets": fmean(seen for _, seen in ran),
                    "fixed_accepted": fixed_power(edit, level, tickets),
                    "fixed_size": fixed_size(edit, level) if edit.won > edit.lost else None,
                }
            )
    return rows


def power_table(rows: Sequence[Mapping[str, Any]], tickets: int) -> str:
    """The rows of ``of_the_test``, as Markdown."""
    head = ["level", "edit", "accepted, %", "95 % interval", "tickets seen"]
    return table(
        [*head, f"fixed test on {tickets}, %", f"tickets for {WANTED:.0%} by the fixed test"],
        [
            [
                f"{r['level']:g}",
                str(r["edit"]),
                percent(r["accepted"] / r["runs"]),
                between(*wilson(r["accepted"], r["runs"])),
                f"{r['tickets']:.0f} of {tickets}",
                percent(r["fixed_accepted"]),
                str(r["fixed_size"] or "-"),
            ]
            for r in rows
        ],
    )


def of_noise(runs: int) -> list[dict[str, Any]]:
    """A row for each number of train tickets: runs that are offered worthless edits, from the start and after a good one."""
    rows = []
    for train in TRAIN:
        nothing = [simulated.with_nothing_to_learn(stream("nothing", train, run), train, BUNDLES) for run in range(runs)]
        ran = [simulated.after_a_first_acceptance(stream("after", train, run), train, BUNDLES) for run in range(runs)]
        for after, accepted, tested in (
            ("nothing", [worthless for worthless, _ in nothing], sum(tested for _, tested in nothing)),
            ("a good edit", [worthless for good, worthless, _ in ran if good], sum(tested for _, _, tested in ran)),
        ):
            row = {"train": train, "after": after, "runs": len(accepted), "worthless_accepted": sum(accepted)}
            rows.append({**row, "worthless_tested": tested})
    return rows


def noise_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows of ``of_noise``, as Markdown."""
    head = ["train tickets", "accepted before", "runs", "of these, accepted a worthless edit", "95 % interval, %"]
    return table(
        [*head, "worthless edits tested, a run"],
        [
            [
                str(r["train"]),
                str(r["after"]),
                str(r["runs"]),
                str(r["worthless_accepted"]),
                between(*wilson(r["worthless_accepted"], r["runs"])),
                f"{r['worthless_tested'] / max(1, r['runs']):.1f}",
            ]
            for r in rows
        ],
    )


def of_chains(runs: int) -> list[dict[str, Any]]:
    """A row for each number of train tickets and length of a chain: runs in which there is nothing to learn."""
    rows = []
    for train in TRAIN[:2]:
        first = {
            how: [
                simulated.chained(stream("chain", train, run), train, CHAIN[-1], BUNDLES, how == "on") for run in range(runs)
            ]
            for how in ("on", "anew")
        }
        for length in CHAIN:
            accepted = {how: sum(at is not None and at < length for at in found) for how, found in first.items()}
            rows.append({"train": train, "length": length, "runs": runs, **accepted})
    return rows


def chains_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows of ``of_chains``, as Markdown."""
    head = ["train tickets", "runs in a chain", "chains"]
    ways = {"on": "accepted a worthless edit, the budget going on", "anew": "each run with a budget of its own"}
    return table(
        [*head, *(cell for way in ways.values() for cell in (way, "95 % interval, %"))],
        [
            [str(r["train"]), str(r["length"]), str(r["runs"])]
            + [cell for way in ways for cell in (str(r[way]), between(*wilson(r[way], r["runs"])))]
            for r in rows
        ],
    )


def main(arguments: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="bin/bench power", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tickets", type=int, default=512, help="of a pool (default 512)")
    parser.add_argument("--runs", type=int, default=2000, help="simulated pools per row (default 2000)")
    parser.add_argument("--worlds", type=int, default=100, help="simulated runs per row of the other tables (default 100)")
    parser.add_argument("--out", type=Path, help="write results.json and table.md into this folder")
    given = parser.parse_args(arguments)
    results = {
        "missions": of_missions(given.worlds),
        "test": of_the_test(given.runs, given.tickets),
        "noise": of_noise(given.worlds),
        "chains": of_chains(given.worlds),
    }
    text = "\n".join(
        [
            missions_table(results["missions"]),
            f"The test alone, a pool of {given.tickets} tickets:\n",
            power_table(results["test"], given.tickets),
            f"{BUNDLES} bundles of {simulated.EDITS} worthless edits each, with and without a good one first:\n",
            noise_table(results["noise"]),
            f"Runs that go on from each other's guidance on the same tickets, {BUNDLES} such bundles each:\n",
            chains_table(results["chains"]),
        ]
    )
    print(text)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        (given.out / "table.md").write_text(text, encoding="utf-8")
    return 0
