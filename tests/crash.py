"""Kill runs at random moments, go on by the same command, and compare what is left with an undisturbed run.

    python tests/crash.py --kills 100 --seed 1

Real command lines, whose ranks the command launches itself. Each run is killed one to three times and then let finish, at
a world size drawn anew for every start: the round's size is the same, so the bytes must be too. Who is hit (a rank, or all
at once), with which signal, and when is drawn as well; one moment in ten lies in the seconds of start-up.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance import commits, content, differing
from programs import small
from programs.processes import Job, wait_until

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
WORLD_SIZES = (1, 2, 3, 4)
EARLY = 0.1  # share of moments in start-up
PAUSE_S = 0.4  # a moment comes at most so long after a commit: about as long as a round takes
STARTING_S = 5.0
HUNG_S = 60.0
KEYS = {"model.model_name_or_path": "programs.models:slow", "runner.epochs": 1}


@dataclass(frozen=True)
class Blow:
    """What is to happen to one start."""

    world_size: int
    target: str  # "rank 0", "rank 1", ..., or "all": the process group
    signal: signal.Signals
    early: bool  # in start-up
    share: float  # of start-up, or of the commits that are left, that passes first
    pause_s: float  # and then so long

    @classmethod
    def drawn(cls, *names: int) -> Blow:
        """The blow that ``names`` name."""
        chance = random.Random("/".join(map(str, names)))
        world_size = chance.choice(WORLD_SIZES)
        target = chance.choice([*(f"rank {rank}" for rank in range(world_size)), "all"])
        early, share = chance.random() < EARLY, chance.random()
        return cls(world_size, target, chance.choice(SIGNALS), early, share, chance.uniform(0, PAUSE_S))


@dataclass(frozen=True)
class Kill:
    """A blow that landed, and what came of it."""

    blow: Blow
    commit: int  # the last one when it happened; 0 before the first
    code: int  # how the command ended, never 0
    seconds: float  # until no process was left
    left: int  # processes that were still there after ``HUNG_S``
    said: str  # last line on standard error


@dataclass(frozen=True)
class Run:
    """One run from its first start to its end."""

    kills: tuple[Kill, ...]
    finished: bool  # whether the last start ended in good order
    differing: tuple[str, ...]  # files that are not what the undisturbed run left


def campaign(folder: Path, kills: int, seed: int) -> Iterator[Run]:
    """Runs, until so many kills have landed."""
    small.write(folder / "tickets.jsonl", "valves")
    whole = start(folder / "whole", 1, 0)
    assert finished(whole), whole.err
    expected, last = content(folder / "whole" / "run"), commits(folder / "whole" / "run")
    landed = number = 0
    while landed < kills:
        number += 1
        blows = [Blow.drawn(seed, number, turn) for turn in range(min(1 + number % 3, kills - landed))]
        run = one_run(folder / f"{number:04d}", blows, WORLD_SIZES[number % 3], expected, last)
        landed += len(run.kills)
        yield run


def one_run(root: Path, blows: Sequence[Blow], world_size: int, expected: dict[str, bytes], last: int) -> Run:
    """One run: a start for each blow, if it does not end before, and one at ``world_size`` to finish it."""
    kills: list[Kill] = []
    for blow in blows:
        job = start(root, blow.world_size, len(kills))
        kill = strike(job, blow, root / "run", last)
        if kill is None:
            break
        kills.append(kill)
    else:
        job = start(root, world_size, len(kills))
    return Run(tuple(kills), finished(job), tuple(differing(content(root / "run"), expected)))


def start(root: Path, world_size: int, number: int) -> Job:
    """Start, or go on with, the run in ``root``."""
    arguments = small.arguments(root.parent / "tickets.jsonl", root, world_size, KEYS)
    line = [sys.executable, "-m", "stageb", *arguments]
    return Job.start(line, root / f"start-{number}", {"PYTHONPATH": str(Path(__file__).parent)})


def finished(job: Job) -> bool:
    """Whether a job that nobody disturbs comes to its end in good order."""
    job.wait(120.0)
    return (job.clear(), job.code) == (0, 0)


def strike(job: Job, blow: Blow, folder: Path, last: int) -> Kill | None:
    """Wait for the moment, send the signal, wait for the end; None where the run had come to its end before."""
    if blow.early:
        time.sleep(blow.share * STARTING_S)
    else:
        before = commits(folder)
        commit = before + 1 + int(blow.share * (last - before - 1))  # one that this start makes
        wait_until(lambda: job.parent.poll() is not None or commits(folder) >= commit, 120.0)
    time.sleep(blow.pause_s)
    commit = commits(folder)
    if job.parent.poll() is not None:
        return None
    began = time.monotonic()
    if blow.target == "all":
        os.killpg(job.parent.pid, blow.signal)
    else:  # where that rank is not there yet, the one that will start it
        ranks = {f"rank {rank}": pid for pid, rank in job.processes().items()}
        os.kill(ranks.get(blow.target, job.parent.pid), blow.signal)
    job.wait(HUNG_S)
    seconds, left = time.monotonic() - began, job.clear()
    said = (job.err.strip().splitlines() or [""])[-1]
    return Kill(blow, commit, job.code, seconds, left, said) if job.code else None


def table(runs: Sequence[Run]) -> Iterator[str]:
    """What was tried and what came of it, in Markdown."""
    groups: dict[tuple[int, str, str], list[tuple[Kill, Run]]] = defaultdict(list)
    for run in runs:
        for kill in run.kills:
            blow = kill.blow
            groups[blow.world_size, blow.target, blow.signal.name].append((kill, run))
    yield "| ranks | hit | signal | kills | run equal in the end | slowest until all gone | hung processes |"
    yield "|---|---|---|---|---|---|---|"
    every = [each for group in groups.values() for each in group]
    for place, group in [*sorted(groups.items()), (("all", "", ""), every)]:
        equal = sum(run.finished and not run.differing for _, run in group)
        slowest, left = max(kill.seconds for kill, _ in group), sum(kill.left for kill, _ in group)
        yield "| " + " | ".join(map(str, (*place, len(group), equal, f"{slowest:.1f} s", left))) + " |"


def main() -> int:
    """Run and tabulate; 0 where all came out equal and nothing was left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    runs = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="crash-") as name:
        for run in campaign(Path(name), options.kills, options.seed):
            runs.append(run)
            for kill in run.kills:
                what = f"{kill.blow.signal.name} to {kill.blow.target} of {kill.blow.world_size} after commit {kill.commit}"
                print(f"{what}: exit code {kill.code}, all gone after {kill.seconds:.1f} s: {kill.said}", flush=True)
            print(f"  run {len(runs)}: finished: {run.finished}, differing: {list(run.differing)}", flush=True)
    print(*table(runs), sep="\n")
    minutes = (time.monotonic() - began) / 60
    early = sum(kill.commit == 0 for run in runs for kill in run.kills)
    print(f"{len(runs)} runs in {minutes:.0f} minutes, --seed {options.seed}; {early} kills before the first commit")
    return int(any(bad(run) for run in runs))


def bad(run: Run) -> bool:
    """Whether anything is not as it must be."""
    return bool(run.differing) or not run.finished or any(kill.left for kill in run.kills)


if __name__ == "__main__":
    sys.exit(main())
