"""How a job ends when something goes wrong: fast, with a message that names the rank, non-zero, and
with no process left.

In the environment ``JOB_WORLD_SIZE`` is the ranks of a job (2; some cases have a number of their
own), ``JOB_WITHIN_S`` the seconds in which it must be gone (10; many ranks on few cores take
longer), and ``JOB_ACCELERATOR`` what they run on (cpu).
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any

import pytest
from programs.jobs import Ended, run_job

CPU = os.environ.get("JOB_ACCELERATOR", "cpu") == "cpu"
RANKS = int(os.environ.get("JOB_WORLD_SIZE", "2"))
ITEMS = 3 * RANKS + 1  # three for every rank, and one more for rank 0
WITHIN_S = float(os.environ.get("JOB_WITHIN_S", "10"))


@dataclass(frozen=True)
class Case:
    """One mishap and what must come of it."""

    name: str
    launcher: str
    mishap: str = "busy"  # job.py's word; busy: every rank is deep in its second item
    on: int = -1
    send: signal.Signals | None = None
    to: str = ""
    says: str | None = None  # a line of stderr, once; None: nobody is left who could say it
    codes: tuple[int, ...] = (1,)
    timeout_s: float = 60.0
    load_timeout_s: float = 1800.0
    within_s: float = WITHIN_S
    world_size: int = RANKS
    traceback: bool = False  # whether a traceback is wanted: for bugs, and for nothing else
    quick: bool = False  # part of the short form

    def run(self) -> Ended:
        """Run it."""
        arguments = [
            "--mishap",
            self.mishap,
            "--on",
            str(self.on),
            "--timeout_s",
            str(self.timeout_s),
        ]
        arguments += [
            "--load_timeout_s",
            str(self.load_timeout_s),
            "--items",
            str(3 * self.world_size + 1),
        ]
        limit = self.within_s + 30.0
        return run_job(
            self.launcher, self.world_size, *arguments, send=self.send, to=self.to, limit_s=limit
        )

    def faults(self, ended: Ended) -> list[str]:
        """What is not as it must be."""
        own = self.launcher == "own"
        lines = ended.err.strip().splitlines()
        found = []
        if ended.orphans:
            found.append(f"{ended.orphans} processes left")
        if ended.seconds > self.within_s:
            found.append(f"took {ended.seconds:.1f} s")
        # an agent has an exit code of its own
        if ended.code not in (self.codes if own else (*self.codes, 1)):
            found.append(f"exit code {ended.code}")
        if self.says is not None and sum(self.says in line for line in lines) != 1:
            found.append(f"said {sum(self.says in line for line in lines)} times: {self.says}")
        # an agent adds its own summary
        if own and self.says is not None and self.says not in ended.last:
            found.append(f"last line: {ended.last}")
        if own and ("Traceback" in ended.err) != self.traceback:
            found.append("traceback" if not self.traceback else "no traceback")
        if self.says is None and own and lines:
            found.append(f"noise: {lines[-1]}")
        return found


BUG = "ValueError: seven is not a verdict"
CONFIG = "config: model.model_name_or_path: 'nowhere': name a folder that exists"
HUNG = "no progress for 3 s (fabric.timeout_s): considered hung"
QUIET = "no sign of life and no disk traffic for 4 s (fabric.load_timeout_s): considered hung"
ELSEWHERE = "".join(f"; rank {rank} at broadcast" for rank in range(2, RANKS))
INT, TERM, KILL = signal.SIGINT, signal.SIGTERM, signal.SIGKILL


def cases() -> list[Case]:
    """The matrix."""
    found: list[Case] = []
    for launcher in ("own", "torchrun", "fabric"):
        own = launcher == "own"

        def add(
            name: str, mishap: str = "busy", on: int = -1, launcher: str = launcher, **more: Any
        ) -> None:
            found.append(Case(name, launcher, mishap, on, **more))

        slow_life: dict[str, Any] = {"timeout_s": 3, "load_timeout_s": 4}
        slow_life["within_s"] = WITHIN_S + 10  # whatever else moves pages counts as life
        for rank in (0, 1):
            of, item = f"rank {rank} failed at", f"square item {rank} of {ITEMS}"
            add(
                f"raise in a handler, rank {rank}",
                "raise",
                rank,
                says=f"{of} ticket group-{rank}: {BUG}",
                traceback=True,
            )
            what = f"raise while handlers are built, rank {rank}"
            add(what, "raise_at_start", rank, says=f"{of} ticket at start: {BUG}", traceback=True)
            add(
                f"sys.exit(0) in a handler, rank {rank}",
                "exit",
                rank,
                says=f"{of} {item}: SystemExit: 0",
                traceback=True,
            )
            add(f"hung, rank {rank}", "hang", rank, timeout_s=3, says=f"{of} {item}: {HUNG}")
            add(
                f"hung in loading, rank {rank}",
                "hang_in_loading",
                rank,
                says=f"{of} loading the model: {QUIET}",
                **slow_life,
            )
            # NCCL's teardown waits for all ranks
            says = f"rank {rank if CPU else 0} failed at parting: {HUNG}"
            add(
                f"stuck in torch's teardown, rank {rank}",
                "at_the_end",
                rank,
                timeout_s=3,
                says=says,
            )
        add(
            "raise in lead, rank 0",
            "raise_in_lead",
            0,
            says=f"rank 0 failed at ticket reflection: {BUG}",
            traceback=True,
        )
        add(
            "hung in lead, rank 0",
            "hang_in_lead",
            0,
            says=f"rank 0 failed at leading: {QUIET}",
            **slow_life,
        )
        add("bad input on all ranks", "config_everywhere", says=CONFIG, codes=(2,))
        add("bad input on rank 0", "config", 0, says=CONFIG, codes=(2,))
        add("bad input on rank 1", "config", 1, says=f"rank 1 failed at start: {CONFIG}")
        says = "inputs differs between ranks: 'same' on rank 0, 'other' on rank 1"
        add("inputs differ", "disagree", 1, codes=(2,), says=says)
        says = (
            f"every rank waits for the others: rank 1 at gather{ELSEWHERE}; they ran different code"
        )
        add("ranks that part ways", "parted", 1, timeout_s=3, says=says)
        first, silent = (
            f"rank 1 failed at square item 1 of {ITEMS}:",
            "rank 0 failed at leading: no sign of life for 4.5 s",
        )
        add("os._exit(0), rank 1", "vanish", 1, says=f"{first} its")
        add("os._exit(0), rank 0", "vanish", 0, says="rank 0 failed at leading: its", codes=(0,))
        says = f"rank 1 failed at square item {1 + RANKS} of {ITEMS}: its"
        add("SIGKILL of rank 1", send=KILL, to="1", says=says, quick=own)
        add(
            "SIGKILL of rank 0",
            send=KILL,
            to="0",
            says="rank 0 failed at leading: its",
            codes=(137,),
        )
        add("SIGSTOP of rank 1", "stop", 1, timeout_s=3, says=f"{first} no")
        add("SIGSTOP of rank 0", "stop", 0, timeout_s=3, codes=(137,), says=silent)
        add("interpreter locked up, rank 1", "lock", 1, timeout_s=3, says=f"{first} no")
        add("interpreter locked up, rank 0", "lock", 0, timeout_s=3, codes=(137,), says=silent)
        interrupted: dict[str, Any] = {
            "send": INT,
            "says": "interrupted by SIGINT",
            "codes": (130,),
        }
        ended: dict[str, Any] = {"send": TERM, "says": "interrupted by SIGTERM", "codes": (143,)}
        add("SIGINT to the parent", to="parent", **interrupted)
        add("SIGINT to rank 1", to="1", **interrupted)
        add("SIGTERM to rank 1", to="1", **ended)
        add("SIGTERM to the parent", to="parent", **ended, quick=own)
        add("SIGTERM to the parent, rank 0 between maps", "reflect_forever", to="parent", **ended)
        if not own:
            killed: dict[str, Any] = {
                "send": KILL,
                "to": "parent",
                "codes": (137,),
                "quick": launcher == "torchrun",
            }
            add(
                "SIGKILL of the agent",
                says="the launcher of this job ended, and the job with it",
                **killed,
            )
    three: dict[str, Any] = {"launcher": "own", "world_size": 3}
    add(
        "raise in a handler, last of 3 ranks",
        "raise",
        2,
        says="rank 2 failed at",
        traceback=True,
        **three,
    )
    add(
        "SIGKILL of rank 2 of 3",
        send=KILL,
        to="2",
        says="rank 2 failed at square item 5 of 10: its",
        **three,
    )
    add("SIGKILL of rank 0 of 3", send=KILL, to="0", says="rank 0 failed at", codes=(137,), **three)
    add(
        "SIGTERM to the parent of 3",
        send=TERM,
        to="parent",
        says="interrupted by",
        codes=(143,),
        **three,
    )
    says = "rank 1 failed at launch: its process exited with code 5 before the job was done"
    add("a child that dies before the ranks have met", "early", 1, "own", says=says)
    met = "before the ranks have met"
    add(f"SIGINT {met}", "late", 1, "own", send=INT, to="parent", says="interrupted", codes=(130,))
    add(f"SIGTERM to a child {met}", "late", 1, "own", to="1", **ended)
    # Of more than two, the others would tell in many lines of torch's that rank 0 is gone.
    add(
        f"SIGKILL of the parent {met}",
        "late",
        1,
        "own",
        send=KILL,
        to="parent",
        world_size=2,
        codes=(137,),
    )
    return found


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case, id=f"{case.launcher}: {case.name}", marks=() if case.quick else pytest.mark.slow
        )
        for case in cases()
    ],
)
def test_job_ends_as_it_should(case: Case) -> None:
    ended = case.run()
    assert not case.faults(ended), (
        f"{case.faults(ended)}\n--- stderr\n{ended.err}\n--- stdout\n{ended.out}"
    )
