"""The power of the gate's test: bin/bench power

First missions of several sizes, each with one edit that mends and breaks some of all tickets: how
often the gate, from race to proof, accepts it as the first of a run, and after four others whose
races were as strong were tested in vain; and how often learning at once, where code judges, is
proven by it.

Then whole runs of the gate (``simulated.py``): how often one accepts a worthless edit, from the
start and after a good one; and how often one of several does that go on from each other's guidance,
on the same tickets.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from lab.bench.learning import simulated
from lab.bench.learning.figures import between, percent, table
from stageb.guidance.learning.gate.decide import STRONG
from stageb.guidance.words.types import TEACHING_FOLDS
from stageb.runs.figures import wilson
from stageb.seeds import stream

BUDGET = simulated.BUDGET.edits[0]  # for edits that one fold teaches
MISSIONS = (150, 300, 600, 1200)  # tickets
# of all tickets: mended, broken
TURNS = ((0.05, 0.0), (0.05, 0.01), (0.1, 0.0), (0.1, 0.02), (0.2, 0.0), (0.2, 0.05))
FAILED = 4  # tests before the later one, of edits that the folds taught in turn
TRAIN = (180, 360, 768, 1536)  # tickets of a simulated run
BUNDLES = 24  # of worthless edits
CHAIN = (1, 2, 4, 8)  # runs that go on from each other


def of_missions(runs: int) -> list[dict[str, Any]]:
    """A row for each size of a mission and each edit."""
    rows = []
    for tickets, (mended, broken) in product(MISSIONS, TURNS):
        row = {"tickets": tickets, "mended": mended, "broken": broken, "runs": runs}
        for when, left in (
            ("first", BUDGET),
            ("later", BUDGET * (1 - STRONG) ** (FAILED // TEACHING_FOLDS)),
        ):
            keys = (
                stream("mission", tickets, str(mended), str(broken), run) for run in range(runs)
            )
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


def of_noise(runs: int) -> list[dict[str, Any]]:
    """A row for each number of train tickets: runs that are offered worthless edits, from the start
    and after a good one."""
    rows = []
    for train in TRAIN:
        nothing = [
            simulated.with_nothing_to_learn(stream("nothing", train, run), train, BUNDLES)
            for run in range(runs)
        ]
        ran = [
            simulated.after_a_first_acceptance(stream("after", train, run), train, BUNDLES)
            for run in range(runs)
        ]
        for after, accepted, tested in (
            (
                "nothing",
                [worthless for worthless, _ in nothing],
                sum(tested for _, tested in nothing),
            ),
            (
                "a good edit",
                [worthless for good, worthless, _ in ran if good],
                sum(tested for _, _, tested in ran),
            ),
        ):
            row = {
                "train": train,
                "after": after,
                "runs": len(accepted),
                "worthless_accepted": sum(accepted),
            }
            rows.append({**row, "worthless_tested": tested})
    return rows


def noise_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows of ``of_noise``, as Markdown."""
    head = [
        "train tickets",
        "accepted before",
        "runs",
        "of these, accepted a worthless edit",
        "95 % interval, %",
    ]
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
    """A row for each number of train tickets and length of a chain: runs in which there is nothing
    to learn."""
    rows = []
    for train in TRAIN[:2]:
        first = {
            how: [
                simulated.chained(
                    stream("chain", train, run), train, CHAIN[-1], BUNDLES, how == "on"
                )
                for run in range(runs)
            ]
            for how in ("on", "anew")
        }
        for length in CHAIN:
            accepted = {
                how: sum(at is not None and at < length for at in found)
                for how, found in first.items()
            }
            rows.append({"train": train, "length": length, "runs": runs, **accepted})
    return rows


def chains_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows of ``of_chains``, as Markdown."""
    head = ["train tickets", "runs in a chain", "chains"]
    ways = {
        "on": "accepted a worthless edit, the budget going on",
        "anew": "each run with a budget of its own",
    }
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
        prog="bin/bench power",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--worlds", type=int, default=100, help="simulated runs per row (default 100)"
    )
    parser.add_argument("--out", type=Path, help="write results.json and table.md into this folder")
    given = parser.parse_args(arguments)
    results = {
        "missions": of_missions(given.worlds),
        "noise": of_noise(given.worlds),
        "chains": of_chains(given.worlds),
    }
    text = "\n".join(
        [
            missions_table(results["missions"]),
            f"{BUNDLES} bundles of {simulated.EDITS} worthless edits each, with and without a "
            f"good one first:\n",
            noise_table(results["noise"]),
            f"Runs that go on from each other's guidance on the same tickets, {BUNDLES} such "
            f"bundles each:\n",
            chains_table(results["chains"]),
        ]
    )
    print(text)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "results.json").write_text(
            json.dumps(results, indent=1) + "\n", encoding="utf-8"
        )
        (given.out / "table.md").write_text(text, encoding="utf-8")
    return 0
