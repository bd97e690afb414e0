"""The run of a loop that learns weights: what such runs share, from opening the folder to the last
words.

Every rank has its loop's ``Run``, but its methods are called on rank 0 alone (``World.lead``). A
loop defines what its rows hold, how they are shown, and what a commit holds beside the checkpoint.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from stageb.config import LearningConfig
from stageb.errors import InputError
from stageb.job import devices, lifetime
from stageb.job import world as worlds
from stageb.job.world import World
from stageb.runs import loggers
from stageb.runs.figures import Curves, draw
from stageb.runs.folder import METRICS, TIMINGS, RecordedRun, describe, find_result, is_finished
from stageb.runs.loggers import Loggers
from stageb.runs.progress import Progress, say_finished, set_log_level
from stageb.store import disk
from stageb.store.journal import Journal
from stageb.store.trust import file_of

# Keeps freed CPU memory in the process for the next allocation.
#
# glibc returns large blocks to the system as soon as they are freed, and gets new ones page by
# page, each zeroed first. A network in training allocates and frees all its activations at every
# step, so this takes much of its time.

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # M_TRIM_THRESHOLD and M_MMAP_MAX of malloc.h
NEVER, NONE = -1, 0


def keep_freed(device: str) -> None:
    """Keep freed memory from now on, so that the process stays at its peak size, if it trains on a
    CPU (``device``).

    Does nothing on other devices, or without glibc.
    """
    if not device.startswith("cpu"):
        return
    # no mallopt; on Windows, no library by that name
    with contextlib.suppress(AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(MMAP_MAX, NONE)  # large pieces, too, are parts of the heap
        mallopt(TRIM_THRESHOLD, NEVER)


def digest_tensors(tensors: Mapping[str, Tensor]) -> str:
    """The digest of tensors: their names, types, shapes and bytes."""
    pieces: list[bytes] = []
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous().reshape(-1)
        pieces += [
            f"{name} {plain.dtype} {tuple(tensor.shape)} ".encode(),
            plain.view(torch.uint8).numpy().tobytes(),
        ]
    return disk.digest(b"".join(pieces))


def load_weights(
    folder: Path, version: str, what: str, take: Callable[[dict[str, Tensor]], object]
) -> dict[str, Tensor]:
    """The weights, by name, in the file ``version`` of the run in ``folder``, once ``take`` has
    taken them; ``what`` names their network in the message.

    Raises ``InputError`` where they cannot be read or taken, or are not finite: what plays or
    decides by them would do something all the same.
    """
    path = file_of(folder, folder / version)
    try:
        weights = load_file(path)
        take(weights)
        for name, weight in weights.items():
            if not bool(weight.isfinite().all()):
                raise ValueError(f"{name} holds NaN or infinity")
    except (OSError, RuntimeError, ValueError, KeyError, SafetensorError) as error:
        raise InputError(
            f"{path}: not the weights of the {what} that config.yaml tells of: {error}"
        ) from error
    return weights


CHECKPOINT = "checkpoint.pt"
# keys that do not affect results
NOT_SHAPING = ("output.", "fabric.", "curves", "log_level", "loggers", "budget.")


def add_placement(parser: argparse.ArgumentParser, shared: str) -> None:
    """Add the options of a command that runs on ranks: their devices, and what these share."""
    parser.add_argument("--accelerator", default="auto", help="cpu, cuda or auto (default auto)")
    parser.add_argument(
        "--devices", type=int, default=1, help=f"devices that share the {shared} (default 1)"
    )


def launch(config: LearningConfig, main: Callable[[World], int]) -> int:
    """Run ``main`` on every rank; returns its exit code. Raises ``ConfigError`` before any rank
    starts."""
    set_log_level(config.log_level)
    loggers.check(config.loggers)
    return worlds.run(config.fabric, main)


def is_out_of_time(world: World, run: LearningRun) -> bool:
    """Whether an update (or step) is the last, since ``budget.seconds`` are spent; for all ranks to
    ask."""
    return run.config.budget.seconds is not None and world.lead(run.is_out_of_time)


class LearningRun(RecordedRun):
    """One run: its state, its files and its messages."""

    config: LearningConfig
    progress: Progress  # set once the run has begun, as are these
    curves: Curves  # defined by the loop, as are these
    # what it counts: "update" or "step"; the column and the key of a commit that count it
    unit: ClassVar[str]
    not_shaping: ClassVar[tuple[str, ...]] = NOT_SHAPING
    limits: ClassVar[tuple[str, ...]] = ()  # keys of numbers that may be higher when a run resumes
    packages: ClassVar[tuple[str, ...]] = ("torch", "lightning")  # whose versions run.json records

    def __init__(self, resolved_yaml: str, facts: Mapping[str, Any]) -> None:
        """``facts`` about the machine, for run.json."""
        self._yaml, self._facts = resolved_yaml, facts
        self._began = self._since = time.monotonic()  # learning, and when the last row was written
        self._is_over = False  # whether its time is

    # For loops to override

    def shaping(self) -> Mapping[str, Any]:
        """Return what results depend on besides the config."""
        return {}

    def total(self) -> int:
        """Updates (or steps) of the whole run; a finished run with fewer, under a raised limit,
        continues."""
        return 0

    def result(self, row: Mapping[str, Any]) -> str:
        """The result of a run in one line, by the ``row`` of what it offers."""
        raise NotImplementedError

    def figures(self, row: Mapping[str, Any]) -> str:
        """The figures of a row in a few words, for a line of progress and a run that resumes;
        empty: none."""
        return ""

    # Beginning and end

    def is_finished(self, fresh: bool) -> bool:
        """Whether the folder holds this run and it is finished: then its result is shown again."""
        if fresh or not is_finished(self.config.output.folder):
            return False
        done = self._open(fresh=False)
        if not self.is_out_of_time() if self._state("out_of_time", False) else done < self.total():
            self.journal.close()
            return False
        say_finished(self.config.output, self._tell_result(self.journal.rows(METRICS)))
        return True

    def is_out_of_time(self) -> bool:
        """Whether ``budget.seconds`` are spent."""
        self._is_over = time.monotonic() - self._began >= (self.config.budget.seconds or math.inf)
        return self._is_over

    def _tell_result(self, rows: Sequence[Mapping[str, Any]]) -> str:
        ended = (
            f"; budget.seconds, {self.config.budget.seconds:g}, ended it: more go on from there"
            if self._is_over
            else ""
        )
        return self.result(find_result(rows, self._state("best", None))) + ended

    def end(self) -> None:
        """Finish the run: draw the curves, commit that nothing is left to do, and print the
        result."""
        self.progress.close()
        rows = self.journal.rows(METRICS)
        if self.config.curves:
            disk.place(
                self.journal.folder / "curves.png", lambda path: draw([rows], self.curves, path)
            )
        self.loggers.close("success")
        self.journal.commit(
            {
                **self.journal.state,
                "finished": True,
                **({"out_of_time": True} if self._is_over else {}),
            }
        )
        self.progress.tells(self._tell_result(rows))

    def _open(self, fresh: bool) -> int:
        """Open the folder; returns the number of updates (or steps) done."""
        precision = self.config.fabric.precision
        shaping = {
            **asdict(self.config),
            **self.shaping(),
            "precision": precision if precision == "bf16-mixed" else "32",
        }
        place = self.config.output
        self.journal = Journal.open(
            place.root,
            place.run_name,
            shaping,
            fresh=fresh,
            ignored=self.not_shaping,
            limits=self.limits,
        )
        self._began = time.monotonic() - sum(row["seconds"] for row in self.journal.notes(TIMINGS))
        done: int = self._state(self.unit, 0)
        return done

    def _state(self, name: str, otherwise: Any) -> Any:
        """Return the value of ``name`` in the last commit; ``otherwise`` before the first."""
        return (self.journal.state or {}).get(name, otherwise)

    def _checkpoint(self) -> Any:
        """The committed checkpoint, on the CPU; None before the first commit."""
        path = self.journal.path(CHECKPOINT)
        return torch.load(path, map_location="cpu", weights_only=True) if path else None

    def _describe(self, facts: Mapping[str, Any]) -> None:
        """Write config.yaml and run.json, with ``facts`` besides those about the machine."""
        describe(self.journal, self._yaml, self.packages, {**facts, **self._facts})

    def _show(self, total: int, done: int, opening: str, also: Sequence[str] = ()) -> None:
        """Start the loggers and the display, whose first lines are ``opening``, or where the run
        resumes, and ``also``."""
        folder, rows = self.journal.folder, self.journal.rows(METRICS)
        if done:
            opening = ", ".join(
                filter(
                    None, (f"resuming after {done} of {total} {self.unit}s", self.figures(rows[-1]))
                )
            )
        self.progress = Progress(
            f"{self.config.output}: {opening}", self.unit, total, done, self.config.log_level
        )
        for line in also:
            self.progress.tells(line)
        lifetime.set_resume(commit=self.journal.commit_file)
        self.loggers = Loggers(self.config.loggers, folder, self.progress.tells)
        self._since = time.monotonic()

    # During the run

    def _lap(self) -> float:
        """Seconds since the last row."""
        since, self._since = self._since, time.monotonic()
        self._seconds = max(1e-9, self._since - since)
        return self._seconds

    def _add(
        self, row: Mapping[str, Any], times: Mapping[str, float], timing: Mapping[str, Any]
    ) -> None:
        """Append a row to the metrics and ``timing``, of the last lap, to the timings; ``times``
        (seconds and rates) go to the loggers only, and both with what the device is put to."""
        load = devices.read_load(str(self._facts["device"]))
        times = {**times, **load}
        self.journal.append(METRICS, [row])
        self.journal.note(
            TIMINGS,
            [{self.unit: row[self.unit], "seconds": round(self._seconds, 3), **timing, **load}],
        )
        self.loggers.log({**row, **times}, row[self.curves.step])

    def _commit(self, done: int, checkpoint: Any, **state: Any) -> None:
        """Commit what was written, and ``checkpoint`` if there is one, after ``done`` updates (or
        steps)."""
        if checkpoint is not None:
            self.journal.put(CHECKPOINT, lambda path: torch.save(checkpoint, path))
        self.loggers.save()
        self.journal.commit({self.unit: done, **state, "finished": False})
