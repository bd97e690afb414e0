"""Fits of an instruct model, and GEPA with the same one: python -m lab.models.table MODEL DATA OUT
--sets maintie,monk1

DATA has ``NAME/tickets.jsonl`` for each set. Each GPU runs ``--slots`` at a time, the next as one
ends: the fits as in `docs/guides/models.md`, and with ``--gepa`` GEPA's runs beside them, which
take longest and so begin. What ended is not run again. Many processes share a card well under CUDA
MPS, with a daemon for each, whose pipes ``--pipes`` names (``/tmp/mps`` for ``/tmp/mps/0``, ...).
It prints test accuracy before and after, a figure a seed, as rows of a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

LAST_S = 90.0  # that GEPA needs to judge test once it has ended


@dataclass(frozen=True, slots=True)
class Job:
    """One run."""

    data: str  # the set's name
    seed: int
    method: str  # fit or gepa

    @property
    def name(self) -> str:
        """Of its files."""
        return f"{self.method}.{self.data}.{self.seed}"


def command(job: Job, given: argparse.Namespace, seconds: float) -> list[str]:
    """The command line of a run that has so many seconds."""
    tickets, seed = str(given.folder / job.data / "tickets.jsonl"), ["--seed", str(job.seed)]
    budget, has_split = ["--budget", str(given.budget)], job.data in given.split
    if job.method == "gepa":
        column = ["--column", "split"] if has_split else []
        limits = ["--seconds", str(seconds - LAST_S)] if seconds < inf else []
        return [
            "-m",
            "lab.bench.learning.gepa_prompt",
            given.model,
            tickets,
            *seed,
            *budget,
            *column,
            *limits,
        ]
    column = ["--columns.split", "split"] if has_split else []
    model = [
        "--model.model_name_or_path",
        given.model,
        "--sampler.reasons",
        "none",
        "--budget.rollouts",
        str(given.budget),
    ]
    place = ["--output.root", str(given.out / "runs"), "--output.run_name", job.name, "--fresh"]
    config = ["--config", "configs/guidance/one-gpu.yaml", "--tickets", tickets]
    return ["-m", "stageb", "fit", *config, *model, *place, *seed, *column, *given.more]


def run_all(jobs: Sequence[Job], given: argparse.Namespace) -> None:
    """Run those that have not ended, until ``--seconds`` are over: then what still runs is
    killed."""
    end = time.monotonic() + given.seconds
    queue = [job for job in jobs if not (given.out / f"{job.name}.txt").exists()]
    running: dict[tuple[int, int], tuple[Job, subprocess.Popen[bytes]]] = {}
    places = [(gpu, slot) for slot in range(given.slots) for gpu in range(given.gpus)]
    while (queue or running) and time.monotonic() < end:
        for place, (job, process) in list(running.items()):
            if process.poll() is not None:
                del running[place]
                output = given.out / f"{job.name}.part"
                output.rename(output.with_suffix(".txt" if process.returncode == 0 else ".failed"))
        for place in places:
            if queue and place not in running:
                job = queue.pop(0)
                gpu = {"CUDA_VISIBLE_DEVICES": str(place[0])}
                if given.pipes:  # a daemon shows its card alone
                    gpu = {
                        "CUDA_VISIBLE_DEVICES": "0",
                        "CUDA_MPS_PIPE_DIRECTORY": f"{given.pipes}/{place[0]}",
                    }
                environment = {**os.environ, "OMP_NUM_THREADS": "2", **gpu}
                arguments = [sys.executable, *command(job, given, end - time.monotonic())]
                with (
                    (given.out / f"{job.name}.part").open("wb") as out,
                    (given.out / f"{job.name}.err").open("wb") as err,
                ):
                    running[place] = (
                        job,
                        subprocess.Popen(arguments, env=environment, stdout=out, stderr=err),
                    )
        time.sleep(1)
    for _, process in running.values():
        process.kill()


def read(job: Job, out: Path) -> str:
    """Accuracy on test before and after, rounded; a dash where the run did not end."""
    if not (out / f"{job.name}.txt").exists():
        return "–"
    if job.method == "gepa":
        row = json.loads((out / f"{job.name}.txt").read_text(encoding="utf-8").splitlines()[-1])
        return f"{row['before']:.0f} → {row['after']:.0f}"
    figures = []
    for path in sorted((out / "runs" / job.name).glob("*/metrics.jsonl")):
        rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        test = [100 * row["acc"] for row in rows if row["split"] == "test"]
        figures.append(f"{test[0]:.0f} → {test[-1]:.0f}")
    return "; ".join(figures)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="a folder or a hub name")
    parser.add_argument("folder", type=Path, help="holds the sets")
    parser.add_argument("out", type=Path, help="what was run")
    parser.add_argument("--sets", required=True, help="names, with commas between them")
    parser.add_argument(
        "--split", default="agnews_gepa", help="those whose column split parts train and test"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--gepa", action="store_true", help="run GEPA, too")
    parser.add_argument("--budget", type=int, default=5000, help="rollouts of a run")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--slots", type=int, default=8, help="runs at a time on a GPU")
    parser.add_argument("--pipes", help="folder of the MPS daemons' pipes")
    parser.add_argument("--seconds", type=float, default=inf, help="after which it ends")
    given, more = parser.parse_known_args()
    given.more = more  # of stageb fit
    given.out.mkdir(parents=True, exist_ok=True)
    sets, methods = given.sets.split(","), ["gepa", "fit"] if given.gepa else ["fit"]
    given.split = given.split.split(",")
    seeds = range(1, given.seeds + 1)
    run_all(
        [Job(name, seed, method) for method in methods for seed in seeds for name in sets], given
    )
    print("| tickets |", " | ".join(methods), "|\n|---" + "|---" * len(methods) + "|")
    for name in sets:
        cells = (
            ", ".join(read(Job(name, seed, method), given.out) for seed in seeds)
            for method in methods
        )
        print(f"| {name} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
