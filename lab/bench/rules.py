"""Tickets judged by rules as code: the judging itself, and the whole of ``stageb predict --by
rules``.

``bin/bench rules --tickets 200000``: made-up machines with six fields and six rules (limits, two
fields compared, an exception). First what judging takes on one core, reading a ticket's text into
fields included, and the verdicts alone; then the command, as a process of its own, from a file on
the disk to rows on the disk.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from stageb.config import require
from stageb.guidance.judging.coded import CodeJudge, code_rules
from stageb.guidance.rules.conditions import OutOfReach
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.value_types import read_summaries
from stageb.guidance.words.types import Guidance, Rule, Ticket
from stageb.job.process import count_cores
from stageb.seeds import stream, uniform

MISSION = "milling"
RULES = (
    "Fail if Torque Nm is above 60 and Speed rpm is below 1400.",
    "Fail if Wear min is above 200 and Type is L or M.",
    "Fail if Air K is above Process K.",
    "Pass if Type is H and Wear min is below 50.",
    "Fail if Torque Nm is above 65 unless Type is H.",
    "Fail if Torque Nm is below 10.",
)
RANGES = {
    "Air K": (295, 305),
    "Process K": (300, 315),
    "Speed rpm": (1100, 2900),
    "Torque Nm": (3, 77),
    "Wear min": (0, 250),
}


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bin/bench rules", description=__doc__)
    parser.add_argument("--tickets", type=int, default=100_000, help="tickets (default 100000)")
    given = parser.parse_args(arguments)
    require(given.tickets >= 1, "--tickets", given.tickets, "at least 1")
    tickets = [make_ticket(n) for n in range(given.tickets)]
    print(f"{given.tickets:,} tickets, {len(RULES)} rules, {count_cores()} cores")
    measure_judging(tickets)
    with tempfile.TemporaryDirectory() as folder:
        measure_command(Path(folder), tickets)
    return 0


def make_ticket(number: int) -> Ticket:
    """A made-up machine."""
    key = stream(0, "ticket", number)
    fields = {"Type": "HLM"[int(3 * uniform(key, 0))]}
    for place, (name, (low, high)) in enumerate(RANGES.items(), 1):
        fields[name] = f"{low + (high - low) * uniform(key, place):.1f}"
    return Ticket(
        MISSION,
        f"g-{number}",
        "pass",
        (("image_1", "; ".join(f"{k}: {v}" for k, v in fields.items())),),
    )


def measure_judging(tickets: Sequence[Ticket]) -> None:
    """On one core, in this process; nothing was read before."""
    texts = [WORDS["en"].neutral_headline, *RULES]
    guidance = Guidance(
        MISSION, 0, tuple(Rule(f"G{n}", text) for n, text in enumerate(texts)), len(texts)
    )
    rules = code_rules({MISSION: guidance}, tickets[:1000], WORDS["en"])
    assert not any(isinstance(rule.code, OutOfReach) for rule in rules[MISSION].each)
    judge = CodeJudge(rules)
    began = time.perf_counter()
    rulings = [judge.judge(ticket) for ticket in tickets]
    whole = time.perf_counter() - began
    readings = [read_summaries((ticket.per_image[0][1],)) for ticket in tickets]
    began = time.perf_counter()
    again = [judge.judges[MISSION](reading) for reading in readings]
    verdicts = time.perf_counter() - began
    assert again == rulings
    fails = sum(ruling.verdict == "fail" for ruling in rulings)
    print(
        f"  judged, their texts read into fields: {len(tickets) / whole:,.0f} tickets/s on one "
        f"core ({fails:,} fail)"
    )
    print(f"  verdicts alone: {len(tickets) / verdicts:,.0f} tickets/s on one core")


def measure_command(folder: Path, tickets: Sequence[Ticket]) -> None:
    """From start to exit, the check of every line before anything starts included."""
    with (folder / "tickets.jsonl").open("w") as opened:
        for ticket in tickets:
            row = {
                "mission": MISSION,
                "group_id": ticket.group_id,
                "per_image": dict(ticket.per_image),
            }
            opened.write(json.dumps(row) + "\n")
    texts = {f"G{n}": text for n, text in enumerate((WORDS["en"].neutral_headline, *RULES))}
    (folder / "guidance.json").write_text(json.dumps({MISSION: {"experiences": texts}}))
    places = {"guidance": "guidance.json", "tickets": "tickets.jsonl", "output": "out.jsonl"}
    options = [f"--{key}={folder / name}" for key, name in places.items()]
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "stageb", "predict", "--by=rules", *options],
        check=True,
        capture_output=True,
    )
    seconds = time.perf_counter() - began
    print(f"  stageb predict --by rules: {seconds:.1f} s, {len(tickets) / seconds:,.0f} tickets/s")
