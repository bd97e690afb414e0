"""Rules of ours beside those of other tools, each with so many conditions: bin/bench peers

Ours has the shipped configs, ``reflection.size`` and code alone; the others: ``rivals.py``. All
learn from the same tickets. Each fit is a process with a time limit and leaves a line in the
results file; a further call skips what is there. Tools that are not installed are left out
(imodels, wittgenstein, fasterrisk, pystreed, interpret).
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from importlib.util import find_spec
from multiprocessing.connection import wait
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any, NamedTuple

from lab.bench.guidance import measure, read_set
from lab.bench.rivals import FREE, LEARNERS, MODULES, SIZES, SIZES_OF, find_columns
from lab.bench.rows import Row, add_sets, find_set
from stageb.errors import InputError

SETS = (
    "car_evaluation house_votes tic_tac_toe balance_scale monk1 monk2 cylinder_bands "
    "nursery_sample steel_plates_faults maintie failure_mode sf_food_three facility_urgency "
    "hypobench_deceptive_reviews"
).split()


TOOLS = {"stageb": "stageb", **MODULES}
"""Tool -> its module."""


class Fit(NamedTuple):
    """One model to learn."""

    name: str  # of the set
    seed: int
    tool: str
    size: int


def main(arguments: Sequence[str]) -> int:
    """Run what is not yet in the results file; print the table."""
    parser = argparse.ArgumentParser(prog="bin/bench peers", description=__doc__)
    add_sets(parser, SETS)
    parser.add_argument(
        "--seeds",
        nargs="+",
        type=int,
        metavar="N",
        default=[1, 2, 3],
        help="of the split and the tool",
    )
    parser.add_argument(
        "--sizes",
        nargs="+",
        type=int,
        metavar="N",
        default=[*SIZES, FREE],
        help="0: the tool's own",
    )
    parser.add_argument(
        "--tools",
        nargs="+",
        metavar="NAME",
        choices=[*TOOLS],
        default=[*TOOLS],
        help="which of them",
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="the results, a line each"
    )
    parser.add_argument(
        "--processes", type=int, metavar="N", default=1, help="at once; 0: only print the table"
    )
    parser.add_argument("--limit", type=float, metavar="SECONDS", default=120, help="of one fit")
    parser.add_argument(
        "--picture", type=Path, metavar="FILE", help="draw accuracy over conditions, as a PNG"
    )
    asked = parser.parse_args(arguments)
    if asked.processes:
        tools = [tool for tool in asked.tools if find_spec(TOOLS[tool].partition(".")[0])]
        fits = [
            Fit(name, seed, tool, size)
            for size in asked.sizes
            for seed in asked.seeds
            for name in asked.sets
            for tool in tools
            if size in SIZES_OF.get(tool, asked.sizes)
        ]
        known = {Fit(*(row[field] for field in Fit._fields)) for row in _read(asked.out)}
        _run_all(
            [fit for fit in fits if fit not in known],
            asked.data,
            asked.out,
            asked.processes,
            asked.limit,
        )
    rows = [
        row for row in _read(asked.out) if row["name"] in asked.sets and row["seed"] in asked.seeds
    ]
    for line in tabulate(rows):
        print(line)
    if asked.picture:
        draw(rows, asked.picture)
    return 0


def tabulate(rows: Iterable[Row]) -> Iterator[str]:
    """For each size and tool its accuracy and ours in the mean of the sets that both have, and how
    far we are ahead, with the standard error over sets; last beside the best of its sizes up to
    this one, which the test itself has chosen."""
    rows = list(rows)
    yield "size  tool        accuracy  stageb  ahead            of its best  sets  not in time"
    for size in sorted({row["size"] for row in rows}, key=lambda size: size or 1000):
        ours = find_means(rows, "stageb", size)
        for tool in MODULES:
            theirs = find_means(rows, tool, size)
            both = [key for key in theirs if key in ours]
            names = sorted({name for name, _ in both})
            if not both:
                continue
            ahead, of_best, accuracies = [], [], []
            for name in names:
                seeds = [key for key in both if key[0] == name]
                here, there = (mean(some[key] for key in seeds) for some in (ours, theirs))
                sizes = [find_means(rows, tool, one) for one in SIZES if one <= size] or [theirs]
                best = max(
                    mean(some[key] for key in seeds)
                    for some in sizes
                    if all(key in some for key in seeds)
                )
                ahead.append(100 * (here - there))
                of_best.append(100 * (here - best))
                accuracies.append((100 * there, 100 * here))
            error = stdev(ahead) / len(ahead) ** 0.5 if len(ahead) > 1 else float("nan")
            there, here = (mean(pair[side] for pair in accuracies) for side in (0, 1))
            late = sum(
                row["tool"] == tool and row["size"] == size and "failed" in row for row in rows
            )
            figures = (
                f"{there:8.1f}  {here:6.1f}  {mean(ahead):+5.1f} (+-{error:4.1f})  "
                f"{mean(of_best):+11.1f}"
            )
            yield f"{size or 'own':>4}  {tool:10}  {figures}  {len(names):4}  {late:11}"
    for size in sorted({row["size"] for row in rows}):
        own = [
            row
            for row in rows
            if row["tool"] == "stageb" and row["size"] == size and "accuracy" in row
        ]
        if own:
            held, apart = (median(row[field] for row in own) for field in ("conditions", "apart"))
            yield (
                f"stageb {size or 'own'}: {held} conditions, {apart} with each listed word "
                f"and value (medians)"
            )


def find_means(rows: Iterable[Row], tool: str, size: int) -> dict[tuple[str, int], float]:
    """(set, seed) -> accuracy."""
    of_tool = (
        row for row in rows if row["tool"] == tool and row["size"] == size and "accuracy" in row
    )
    return {(row["name"], row["seed"]): row["accuracy"] for row in of_tool}


def draw(rows: Sequence[Row], path: Path) -> None:
    """Accuracy over conditions, in the mean of the sets and seeds that all tools have, in the sizes
    that all have."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    tools = [tool for tool in TOOLS if tool != "ebm"]
    curves = {tool: {size: find_means(rows, tool, size) for size in SIZES} for tool in tools}
    sizes = [size for size in SIZES if all(curve[size] for curve in curves.values())]
    free = find_means(rows, "ebm", FREE)
    shared = set.intersection(
        *(set(curve[size]) for curve in curves.values() for size in sizes or SIZES)
    )
    shared &= set(free or shared)
    if not shared:
        raise InputError("there is no set that all tools have in all sizes")
    figure, axes = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
    for tool, curve in curves.items():
        heights = [100 * mean(curve[size][key] for key in shared) for size in sizes]
        axes.plot(
            sizes, heights, marker="o", label=tool, linewidth=2.5 if tool == "stageb" else 1.2
        )
    if free:
        axes.axhline(
            100 * mean(free[key] for key in shared),
            linestyle="--",
            color="grey",
            label="ebm, of any size",
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_xlabel("conditions, at most")
    axes.set_ylabel(f"accuracy on test, %, of {len({name for name, _ in shared})} sets")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


def _learn(fit: Fit, path: Path, limit: float) -> Row:
    """The figures of one fit."""
    if fit.tool == "stageb":
        own = measure(fit.name, path, fit.seed, fit.size or None)
        texts = [rule.text for rule in own.guidance.rules]
        return {
            "accuracy": own.accuracy,
            "conditions": own.conditions,
            "apart": own.apart,
            "rules": texts,
        }
    _, (train, test) = read_set(fit.name, path, fit.seed)
    columns = find_columns(train, test)
    warnings.simplefilter("ignore")
    with redirect_stdout(sys.stderr):  # FasterRisk prints
        found = LEARNERS[fit.tool](columns, fit.size, fit.seed, limit)
    right = [
        str(verdict) == label
        for verdict, label in zip(found.verdicts, columns.test_labels, strict=True)
    ]
    return {"accuracy": mean(right), "conditions": found.conditions}


# Many fits ----------------------------------------------------------------------------------------


def _run_all(fits: Sequence[Fit], data: Path, out: Path, processes: int, limit: float) -> None:
    """Each fit in a process of one thread, so many at once; a line in ``out`` for each that ends or
    is ended."""
    os.environ.update(
        dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    )
    for tool in dict.fromkeys(fit.tool for fit in fits):
        importlib.import_module(TOOLS[tool])  # once, for all that are forked
    context = multiprocessing.get_context("fork")
    paths = {name: find_set(data, name) for name in dict.fromkeys(fit.name for fit in fits)}
    waiting, running = [*reversed(fits)], dict[Any, tuple[Fit, Any, float]]()
    with out.open("a", encoding="utf-8") as file:
        while waiting or running:
            while waiting and len(running) < processes:
                fit = waiting.pop()
                theirs, mine = context.Pipe(duplex=False)[::-1]
                process = context.Process(
                    target=_send, args=(theirs, fit, paths[fit.name], limit), daemon=True
                )
                process.start()
                theirs.close()
                running[mine] = fit, process, time.monotonic()
            ended = wait(list(running), timeout=0.2)
            for mine, (fit, process, since) in list(running.items()):
                seconds = time.monotonic() - since
                if mine not in ended and seconds < limit:
                    continue
                try:
                    figures = (
                        mine.recv() if mine in ended else {"failed": f"not done in {limit:.0f} s"}
                    )
                except EOFError:
                    figures = {"failed": "its process ended"}
                process.kill()
                process.join()
                del running[mine]
                row = {**fit._asdict(), **figures, "seconds": round(seconds, 1)}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                file.flush()


def _send(to: Any, fit: Fit, path: Path, limit: float) -> None:
    try:
        to.send(_learn(fit, path, limit))
    except Exception as error:  # of a tool, of any kind: the others go on
        to.send({"failed": f"{type(error).__name__}: {str(error)[:200]}"})


def _read(path: Path) -> list[Row]:
    return (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if path.is_file()
        else []
    )
