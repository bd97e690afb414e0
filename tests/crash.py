"""Kill runs of every loop at random moments, go on by the same command, and compare with an undisturbed run.

    python tests/crash.py --kills 100 --seed 1                      # all four loops in turn, mixed signals
    python tests/crash.py --loop growth --signals INT --kills 25

Real command lines, whose ranks the command launches itself. Each run is killed one to three times and then left to finish.
Every start has a world size of its own where the loop promises equal bytes across world sizes; otherwise the run keeps one.
Who is hit (a rank, or all at once), by which signal, and when is drawn as well; one moment in ten lies in start-up.
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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from conformance import commits, content, differing
from programs import detectors, forks, growths, small, snakes
from programs.models import HASTE
from programs.processes import Job, wait_until

WORLD_SIZES = (1, 2, 3, 4)
EARLY = 0.1  # share of moments in start-up
PAUSE_S = 0.4  # a moment comes at most so long after a commit: about as long as a round of guidance takes
PYTHON_S = 0.5  # until the command stands guard: Python, while it starts, answers Ctrl-C with a traceback
STARTING_S = 5.0  # that imports take; where there are several ranks, rank 0's and then the others'
HUNG_S = 60.0


def guidance(root: Path, world_size: int) -> list[str]:
    """Rounds long enough to be hit amid."""
    keys = {"model.model_name_or_path": "programs.models:slow", "runner.epochs": 1}
    return small.arguments(small.write(root.parent / "tickets.jsonl", "valves"), root, world_size, keys)


def two_channel(root: Path, world_size: int) -> list[str]:
    """Steps are short: so many of them that a run is not over before it is hit."""
    return detectors.brief(root, world_size, schedule__steps=24)


@dataclass(frozen=True)
class Loop:
    """What is killed."""

    arguments: Callable[[Path, int], list[str]]  # (root, world size) -> what follows ``stageb``; it runs in root/run
    any_size: bool  # whether it promises equal bytes across world sizes, or at the same one alone


LOOPS = {
    "guidance": Loop(guidance, any_size=True),
    "snake": Loop(snakes.arguments, any_size=False),
    "growth": Loop(growths.arguments, any_size=True),
    "two_channel": Loop(two_channel, any_size=False),
}
SIGNALS = {name: signal.Signals[f"SIG{name}"] for name in ("KILL", "TERM", "INT")}


@dataclass(frozen=True)
class Blow:
    """What is to happen to one start."""

    world_size: int
    rank: int | None  # None: the process group
    signal: signal.Signals
    early: bool  # in start-up
    share: float  # of start-up, or of the commits that are left, that passes first
    pause_s: float  # and then so long

    def __str__(self) -> str:
        hit = "all" if self.rank is None else f"rank {self.rank}"
        return f"{self.signal.name} to {hit} of {self.world_size}"


@dataclass(frozen=True)
class Plan:
    """What is to happen to one run."""

    loop: str
    blows: tuple[Blow, ...]
    world_size: int  # of the start that finishes it

    @classmethod
    def draw(cls, loop: str, signals: Sequence[str], most: int, seed: int, number: int) -> Plan:
        """The plan of the run with this number, of at most so many blows."""
        chance = random.Random(f"{seed}/{number}/{loop}")
        sizes = WORLD_SIZES if LOOPS[loop].any_size else (chance.choice(WORLD_SIZES),)
        blows = [_blow(chance, sizes, signals) for _ in range(min(chance.randint(1, 3), most))]
        return cls(loop, tuple(blows), chance.choice(sizes))


def _blow(chance: random.Random, sizes: Sequence[int], signals: Sequence[str]) -> Blow:
    world_size = chance.choice(sizes)
    rank = chance.choice([None, *range(world_size)])
    number = SIGNALS[chance.choice(signals)]
    return Blow(world_size, rank, number, chance.random() < EARLY, chance.random(), chance.uniform(0, PAUSE_S))


@dataclass(frozen=True)
class Kill:
    """A blow that landed, and its consequences."""

    blow: Blow
    commit: int  # the last one when it happened; 0 before the first
    over: bool  # that was the run's last one: Python shuts down, and a signal ends it without a word
    hit_launcher: bool  # rank 0, which launched the others: alone, or with all
    code: int  # how the command ended, never 0
    seconds: float  # until no process was left
    left: int  # processes that were still there after ``HUNG_S``
    err: str  # standard error

    @property
    def last_line(self) -> str:
        return (self.err.strip().splitlines() or [""])[-1]

    def faults(self) -> list[str]:
        """Where this is not how a job should end."""
        number, code, said = self.blow.signal, 128 + self.blow.signal, ""
        if number == signal.SIGKILL and not self.hit_launcher:
            code, said = 1, f"rank {self.blow.rank} failed at "
        elif number != signal.SIGKILL and not self.over:
            said = f"interrupted by {number.name}"
        amiss = {
            f"{self.left} processes left": self.left > 0,
            f"exit code {self.code}, not {code}": self.code != code,
            f"the last line does not begin with {said!r}": not self.last_line.startswith(said),
            "a traceback": "Traceback" in self.err and (number, self.hit_launcher) != (signal.SIGKILL, True),
        }
        return [fault for fault, is_so in amiss.items() if is_so]


@dataclass(frozen=True)
class Run:
    """One run from its first start to its end."""

    loop: str
    kills: tuple[Kill, ...]
    finished: bool  # whether the last start ended in good order
    differing: tuple[str, ...]  # files that are not what the undisturbed run left
    err: str  # what the last start wrote to standard error

    @property
    def equal(self) -> bool:
        return self.finished and not self.differing


def campaign(folder: Path, loops: Sequence[str], signals: Sequence[str], kills: int, seed: int) -> Iterator[Run]:
    """Runs of the loops in turn, until so many kills have landed. Raises RuntimeError where an undisturbed run fails."""
    landed = 0
    for number in count():
        if landed >= kills:
            return
        run = one_run(folder, Plan.draw(loops[number % len(loops)], signals, kills - landed, seed, number), number)
        landed += len(run.kills)
        yield run


def one_run(folder: Path, plan: Plan, number: int = 0) -> Run:
    """One run: a start for each blow, if it does not end before, and one to finish it. Raises RuntimeError as above."""
    expected = undisturbed(folder / plan.loop, plan.loop, 1 if LOOPS[plan.loop].any_size else plan.world_size)
    root = folder / plan.loop / f"{number:04d}"
    kills: list[Kill] = []
    for blow in plan.blows:
        job = start(plan.loop, root, blow.world_size, len(kills))
        kill = strike(job, blow, root / "run", commits(expected))
        if kill is None:
            break
        kills.append(kill)
    else:
        job = start(plan.loop, root, plan.world_size, len(kills), HASTE)
    in_order, amiss = finished(job), differing(content(root / "run"), content(expected))
    return Run(plan.loop, tuple(kills), in_order, tuple(amiss), job.err)


def undisturbed(folder: Path, loop: str, world_size: int) -> Path:
    """The run that others are compared with; made once, by forks, which start sooner than commands and leave the same
    (``check_the_command``). Raises RuntimeError where it fails."""
    root = folder / f"whole-{world_size}"
    if not root.exists():
        ended = forks.run(LOOPS[loop].arguments(root, world_size), world_size, root / "job", environment=HASTE)
        if set(ended.codes) != {0}:
            raise RuntimeError(f"{loop}, undisturbed: {ended.err}")
    return root / "run"


def start(loop: str, root: Path, world_size: int, number: int, environment: Mapping[str, str] | None = None) -> Job:
    """Start, or go on with, the run in ``root``."""
    line = [sys.executable, "-m", "stageb", *LOOPS[loop].arguments(root, world_size)]
    return Job.start(line, root / f"start-{number}", {"PYTHONPATH": str(Path(__file__).parent), **(environment or {})})


def finished(job: Job) -> bool:
    """Whether a job that nobody disturbs comes to its end in good order."""
    job.wait(120.0)
    return (job.clear(), job.code) == (0, 0)


def strike(job: Job, blow: Blow, folder: Path, last: int) -> Kill | None:
    """Wait for the moment, send the signal, wait for the end; None where the run had come to its end before."""
    if blow.early:
        time.sleep(PYTHON_S + blow.share * STARTING_S * min(blow.world_size, 2))
    else:
        before = commits(folder)
        commit = before + 1 + int(blow.share * (last - before - 1))  # one that this start makes
        wait_until(lambda: job.parent.poll() is not None or commits(folder) >= commit, 120.0)
    time.sleep(blow.pause_s)
    commit = commits(folder)
    if job.parent.poll() is not None:
        return None
    launcher, began = job.parent.pid, time.monotonic()
    ranks = {rank: pid for pid, rank in job.processes().items()}
    target = launcher if blow.rank is None else ranks.get(blow.rank, launcher)  # a rank not there yet: who will start it
    with suppress(ProcessLookupError):  # it has just come to its end
        (os.killpg if blow.rank is None else os.kill)(target, blow.signal)
    job.wait(HUNG_S)
    seconds, left = time.monotonic() - began, job.clear()
    return Kill(blow, commit, commit >= last, target == launcher, job.code, seconds, left, job.err) if job.code else None


def table(runs: Sequence[Run]) -> Iterator[str]:
    """What was tried and how it ended, in Markdown."""
    groups: dict[tuple[str, str], list[tuple[Kill, Run]]] = defaultdict(list)
    for run in runs:
        for kill in run.kills:
            groups[run.loop, kill.blow.signal.name].append((kill, run))
    yield "| loop | signal | kills | run equal in the end | slowest until all gone | ended as they should |"
    yield "|---|---|---|---|---|---|"
    every = [each for group in groups.values() for each in group]
    for place, group in [*sorted(groups.items()), (("all", ""), every)]:
        equal, sound = sum(run.equal for _, run in group), sum(not kill.faults() for kill, _ in group)
        slowest = max(kill.seconds for kill, _ in group)
        yield "| " + " | ".join(map(str, (*place, len(group), equal, f"{slowest:.1f} s", sound))) + " |"


def main() -> int:
    """Run and tabulate; 0 where all came out equal and every kill ended as it should."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--loop", type=_among(LOOPS), action="extend", metavar="NAMES", help=f"{','.join(LOOPS)}; all by default"
    )
    parser.add_argument("--signals", type=_among(SIGNALS), metavar="NAMES", help=f"{','.join(SIGNALS)}; all by default")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    loops, signals = options.loop or list(LOOPS), options.signals or list(SIGNALS)
    runs = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="crash-") as name:
        for run in campaign(Path(name), loops, signals, options.kills, options.seed):
            runs.append(run)
            for kill in run.kills:
                gone = f"exit code {kill.code}, all gone after {kill.seconds:.1f} s: {kill.last_line}"
                print(f"{run.loop}: {kill.blow} after commit {kill.commit}: {gone}", flush=True)
                if kill.faults():
                    print(f"  FAULTS {kill.faults()} in {kill.err}", flush=True)
            print(f"  run {len(runs)}: finished: {run.finished}, differing: {list(run.differing)}", flush=True)
            if not run.equal:
                print(f"  FAULT in {run.err}", flush=True)
    print(*table(runs), sep="\n")
    minutes = (time.monotonic() - began) / 60
    early = sum(kill.commit == 0 for run in runs for kill in run.kills)
    print(f"{len(runs)} runs in {minutes:.0f} minutes, --seed {options.seed}; {early} kills before the first commit")
    return int(any(bad(run) for run in runs))


def _among(known: Collection[str]) -> Callable[[str], list[str]]:
    """How an option reads its list of names."""

    def read(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r}: choose from {','.join(known)}")
        return names

    return read


def bad(run: Run) -> bool:
    """Whether anything is not as it must be."""
    return not run.equal or any(kill.faults() for kill in run.kills)


if __name__ == "__main__":
    sys.exit(main())
