"""The table of benchmarks: ``python -m lab.bench NAME [options]``.

A benchmark is a function of its arguments (a list of words) that returns an exit code; its module
is imported when it is asked for. Fabric's own launcher runs this same command line once per further
rank.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from stageb.errors import InputError, StagebError, shown
from stageb.job import lifetime


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One line of the table."""

    summary: str  # what --help says
    entry: str  # "module:function", called with the arguments after the name; returns the exit code


BENCHMARKS = {
    "rollout": Benchmark(
        "Rollouts per second of several engines on one workload.", "lab.bench.rollout:main"
    ),
    "scale": Benchmark("The same batch per rank on 1, 2, ... ranks.", "lab.bench.scale:main"),
    "precision": Benchmark(
        "How far bfloat16 parts from float32, on a checkpoint.", "lab.bench.precision:main"
    ),
    "rules": Benchmark(
        "Tickets per second judged by rules as code, without a model.", "lab.bench.rules:main"
    ),
    "serve": Benchmark("Tickets per second of stageb serve, over HTTP.", "lab.bench.serve:main"),
    "lake": Benchmark(
        "Rows per second judged by rules as SQL, in DuckDB over Parquet.", "lab.bench.lake:main"
    ),
    "snake": Benchmark(
        "Steps of Snake per second, played and learnt from.", "lab.bench.snake:main"
    ),
    "games": Benchmark(
        "Six environments learnt by ppo and by Stable-Baselines3, with their defaults.",
        "lab.bench.games:main",
    ),
    "learn": Benchmark(
        "Test accuracy of several methods of learning, over rollouts.",
        "lab.bench.learning.learn:main",
    ),
    "noise": Benchmark(
        "How often a method learns where there is nothing to learn.",
        "lab.bench.learning.noise:main",
    ),
    "guidance": Benchmark(
        "Guidance that code learns: accuracy, size, hidden rules.", "lab.bench.guidance:main"
    ),
    "peers": Benchmark(
        "Guidance beside other tools' rules and trees of as many conditions.",
        "lab.bench.peers:main",
    ),
    "labels": Benchmark(
        "Known rules of 3, 5 and 12 labels: found and proven by code.", "lab.bench.labels:main"
    ),
    "doubts": Benchmark(
        "Failures that tickets do not explain, planted and listed.", "lab.bench.doubts:main"
    ),
    "automate": Benchmark(
        "How often bounds on tickets decided alone are broken.", "lab.bench.automate:main"
    ),
    "audit": Benchmark(
        "False alarms of an audit in a year, and how long it takes to see twice the errors.",
        "lab.bench.audit:main",
    ),
    "power": Benchmark(
        "What the gate's test can see, on simulated tickets.", "lab.bench.learning.power:main"
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one benchmark and return its exit code: 0 done, 1 something broke, 2 bad input."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if given and given[0] in BENCHMARKS:
            module, _, function = BENCHMARKS[given[0]].entry.partition(":")
            code: int = getattr(importlib.import_module(module), function)(given[1:])
            return code
        if given and given[0] in ("-h", "--help"):
            print(usage())
            return 0
        what = f"there is no benchmark {shown(given[0], 60)}" if given else "no benchmark was named"
        raise InputError(f"{what}\n{usage()}")
    except StagebError as error:
        if lifetime.leads():
            print(f"lab.bench: {error}", file=sys.stderr)
        return error.exit_code


def usage() -> str:
    """The table as text."""
    lines = [f"  {name:<10}{benchmark.summary}" for name, benchmark in BENCHMARKS.items()]
    return "\n".join(
        ["usage: bin/bench NAME [options]; bin/bench NAME --help lists them", "", *lines]
    )


if __name__ == "__main__":
    sys.exit(main())
