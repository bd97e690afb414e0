"""Many tickets through ``stageb predict`` with the scripted engine: its memory, its rate, and what kills do to its rows.

``bin/bench predict --tickets 100000 --kills 5``: the demo's tickets, over and over under names of their own, are judged once
without disturbance, with a look at the process's memory every tenth of a second; then again, with SIGKILL at random, a
moment after a share of the rows, drawn for each kill, was written. The same command goes on until it is done. Both outputs
must be equal, byte for byte, and hold a row per ticket in their order.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stageb.config import require
from stageb.demo import TICKETS
from stageb.errors import EngineError
from stageb.seeds import stream, uniform

LOOK_S = 0.1
LATER_S = 1.0  # as long as a round takes
SETTINGS = ["--model.engine=scripted", "--sampler.samples_per_decode=1", "--fabric.accelerator=cpu"]
GUIDANCE = {
    "rack cabling": ["A ticket passes unless a rule fails it.", "Fail if label is missing.", "Fail if connector is loose."],
    "site photos": ["A ticket passes unless a rule fails it.", "Fail if fence is open."],
}


@dataclass(frozen=True, slots=True)
class Watched:
    """One call of the command."""

    seconds: float
    memory: list[tuple[int, int]]  # (bytes written, bytes resident), at each look


def main(arguments: Sequence[str]) -> int:
    """The command line. Returns 1 where rows were lost, repeated or out of order."""
    parser = argparse.ArgumentParser(prog="bin/bench predict", description=__doc__)
    parser.add_argument("--tickets", type=int, default=20_000, help="tickets (default 20000)")
    parser.add_argument("--kills", type=int, default=5, help="kills (default 5)")
    parser.add_argument("--seed", type=int, default=0, help="names the moments of the kills (default 0)")
    given = parser.parse_args(arguments)
    require(given.tickets >= 1, "--tickets", given.tickets, "at least 1")
    with tempfile.TemporaryDirectory() as folder:
        return measure(Path(folder), given.tickets, given.kills, given.seed)


def measure(folder: Path, tickets: int, kills: int, seed: int) -> int:
    """Write the tickets, judge them without and with kills, print what came of it."""
    write_tickets(folder / "tickets.jsonl", tickets)
    rules = {mission: {f"G{n}": text for n, text in enumerate(texts)} for mission, texts in GUIDANCE.items()}
    content = {mission: {"experiences": experiences} for mission, experiences in rules.items()}
    (folder / "guidance.json").write_text(json.dumps(content))
    whole = watch(folder, "whole.jsonl")
    print(f"{tickets:,} tickets in {whole.seconds:.1f} s, {tickets / whole.seconds:,.0f} tickets/s, the start included")
    size = (folder / "whole.jsonl").stat().st_size
    for share in (0.1, 0.5, 1.0):
        most = max(resident for written, resident in whole.memory if written <= share * size)
        print(f"  most memory until {share:.0%} of the rows were written: {most / 2**20:,.0f} MiB")
    shares = sorted(uniform(stream(seed, "kill", number), 0) for number in range(kills))
    for number, share in enumerate(shares):
        kill(folder, "killed.jsonl", share * size, LATER_S * uniform(stream(seed, "later", number), 0))
        done = json.loads((folder / "killed.jsonl.commit.json").read_text())["done"]
        written = (folder / "killed.jsonl").read_bytes().count(b"\n")
        print(f"  killed: {done:,} tickets committed, {written:,} rows written")
    watch(folder, "killed.jsonl")
    same = (folder / "whole.jsonl").read_bytes() == (folder / "killed.jsonl").read_bytes()
    with (folder / "killed.jsonl").open() as rows:
        ordered = [json.loads(row)["line"] for row in rows] == list(range(1, tickets + 1))
    print(f"after {kills} kills: a row per ticket in their order: {ordered}; the same bytes: {same}")
    return 0 if same and ordered else 1


def write_tickets(path: Path, count: int) -> None:
    """The demo's tickets, over and over, without labels."""
    known = [json.loads(line) for line in TICKETS.read_text(encoding="utf-8").splitlines()]
    with path.open("w", encoding="utf-8") as opened:
        for n in range(count):
            ticket = {name: value for name, value in known[n % len(known)].items() if name != "label"}
            opened.write(json.dumps(ticket | {"group_id": f"g-{n}"}) + "\n")


def command(folder: Path, output: str) -> list[str]:
    """The command line."""
    keys = {"guidance": "guidance.json", "tickets": "tickets.jsonl", "output": output}
    places = [f"--{key}={folder / name}" for key, name in keys.items()]
    return [sys.executable, "-m", "stageb", "predict", *places, *SETTINGS]


def watch(folder: Path, output: str) -> Watched:
    """One call, to its end. Raises ``EngineError`` where it fails."""
    began, memory = time.monotonic(), []
    with subprocess.Popen(command(folder, output), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            path = folder / output
            memory.append((path.stat().st_size if path.exists() else 0, resident(process.pid)))
            time.sleep(LOOK_S)
        said = process.stderr.read() if process.stderr else ""
    if process.returncode:
        raise EngineError(f"stageb predict ended with {process.returncode}: {said.strip()}")
    return Watched(time.monotonic() - began, memory)


def resident(pid: int) -> int:
    """Bytes of memory that a process holds; 0 of one that has just ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:")), 0)


def kill(folder: Path, output: str, size: float, later: float) -> None:
    """One call, killed so many seconds after its output has so many bytes, unless it ends before."""
    path = folder / output
    with subprocess.Popen(command(folder, output), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not (path.exists() and path.stat().st_size >= size):
            time.sleep(0.001)
        time.sleep(later)
        process.kill()
