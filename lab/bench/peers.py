"""Rules of ours beside those of other tools, each with so many conditions: bin/bench peers

A tool gets the same train tickets in its own form: values one-hot or as numbers, the words that three tickets have as a bag,
binarised as its documentation says. What its model holds is counted: a split, a literal, a feature with points is one
condition. RIPPER learns several labels as its paper says, from the rarest to the commonest; FasterRisk one against the rest.

Each fit is a process with a time limit and leaves a line in the results file; a further call skips what is there. Tools that
are not installed are left out (imodels, wittgenstein, fasterrisk, pystreed, interpret).
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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from importlib.util import find_spec
from multiprocessing.connection import wait
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any, NamedTuple

from lab.bench.guidance import measure, read_set
from lab.bench.rows import Row, add_sets, find_set
from stageb.errors import InputError
from stageb.guidance.rules.evidence_forms import reading
from stageb.guidance.rules.value_types import parse_number
from stageb.guidance.words.types import Ticket

SETS = (
    "car_evaluation house_votes tic_tac_toe balance_scale monk1 monk2 cylinder_bands nursery_sample steel_plates_faults "
    "maintie failure_mode sf_food_three facility_urgency hypobench_deceptive_reviews"
).split()
SIZES = (5, 10, 20, 40)
FREE = 0  # the size that stands for the tool's own
FEWEST = 3  # train tickets with a word, below which it is no column
CATEGORIES = 10  # different numbers of a column, above which they are no values
MOST_BINARY = 100  # columns of which an optimal tree is found
DEPTHS = range(3, 11)  # of optimal trees, each tried while there is time


class Fit(NamedTuple):
    """One model to learn."""

    name: str  # of the set
    seed: int
    tool: str
    size: int


class Columns(NamedTuple):
    """Train and test tickets as tables; numbers are floats, values texts, words 0 or 1."""

    train: Any  # pandas.DataFrame
    test: Any
    train_labels: Sequence[str]
    test_labels: Sequence[str]


class Learnt(NamedTuple):
    """What a tool makes of a set."""

    verdicts: Sequence[str]  # on test
    conditions: int


Learner = Callable[[Columns, int, int, float], Learnt]
"""Of a set's columns, the most conditions, a seed, and the seconds that it may take."""


def main(arguments: Sequence[str]) -> int:
    """Run what is not yet in the results file; print the table."""
    parser = argparse.ArgumentParser(prog="bin/bench peers", description=__doc__)
    add_sets(parser, SETS)
    parser.add_argument("--seeds", nargs="+", type=int, metavar="N", default=[1, 2, 3], help="of the split and the tool")
    parser.add_argument("--sizes", nargs="+", type=int, metavar="N", default=[*SIZES, FREE], help="0: the tool's own")
    parser.add_argument("--tools", nargs="+", metavar="NAME", choices=[*MODULES], default=[*MODULES], help="which of them")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the results, a line each")
    parser.add_argument("--processes", type=int, metavar="N", default=1, help="at once; 0: only print the table")
    parser.add_argument("--limit", type=float, metavar="SECONDS", default=120, help="of one fit")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw accuracy over conditions, as a PNG")
    asked = parser.parse_args(arguments)
    if asked.processes:
        tools = [tool for tool in asked.tools if find_spec(MODULES[tool].partition(".")[0])]
        fits = [
            Fit(name, seed, tool, size)
            for size in asked.sizes
            for seed in asked.seeds
            for name in asked.sets
            for tool in tools
            if size in SIZES_OF.get(tool, asked.sizes)
        ]
        known = {Fit(*(row[field] for field in Fit._fields)) for row in _read(asked.out)}
        _run_all([fit for fit in fits if fit not in known], asked.data, asked.out, asked.processes, asked.limit)
    rows = [row for row in _read(asked.out) if row["name"] in asked.sets and row["seed"] in asked.seeds]
    for line in tabulate(rows):
        print(line)
    if asked.picture:
        draw(rows, asked.picture)
    return 0


def tabulate(rows: Iterable[Row]) -> Iterator[str]:
    """For each size and tool its accuracy and ours in the mean of the sets that both have, and how far we are ahead, with
    the standard error over sets; last beside the best of its sizes up to this one, which the test itself has chosen."""
    rows = list(rows)
    yield "size  tool        accuracy  stageb  ahead            of its best  sets  not in time"
    for size in sorted({row["size"] for row in rows}, key=lambda size: size or 1000):
        ours = find_means(rows, "stageb", size)
        for tool in MODULES:
            theirs = find_means(rows, tool, size)
            both = [key for key in theirs if key in ours]
            names = sorted({name for name, _ in both})
            if tool == "stageb" or not both:
                continue
            ahead, of_best, accuracies = [], [], []
            for name in names:
                seeds = [key for key in both if key[0] == name]
                here, there = (mean(some[key] for key in seeds) for some in (ours, theirs))
                sizes = [find_means(rows, tool, one) for one in SIZES if one <= size] or [theirs]
                best = max(mean(some[key] for key in seeds) for some in sizes if all(key in some for key in seeds))
                ahead.append(100 * (here - there))
                of_best.append(100 * (here - best))
                accuracies.append((100 * there, 100 * here))
            error = stdev(ahead) / len(ahead) ** 0.5 if len(ahead) > 1 else float("nan")
            there, here = (mean(pair[side] for pair in accuracies) for side in (0, 1))
            late = sum(row["tool"] == tool and row["size"] == size and "failed" in row for row in rows)
            figures = f"{there:8.1f}  {here:6.1f}  {mean(ahead):+5.1f} (+-{error:4.1f})  {mean(of_best):+11.1f}"
            yield f"{size or 'own':>4}  {tool:10}  {figures}  {len(names):4}  {late:11}"
    for size in sorted({row["size"] for row in rows}):
        own = [row for row in rows if row["tool"] == "stageb" and row["size"] == size and "accuracy" in row]
        if own:
            held, apart = (median(row[field] for row in own) for field in ("conditions", "apart"))
            yield f"stageb {size or 'own'}: {held} conditions, {apart} with each listed word and value (medians)"


def find_means(rows: Iterable[Row], tool: str, size: int) -> dict[tuple[str, int], float]:
    """(set, seed) -> accuracy."""
    of_tool = (row for row in rows if row["tool"] == tool and row["size"] == size and "accuracy" in row)
    return {(row["name"], row["seed"]): row["accuracy"] for row in of_tool}


def draw(rows: Sequence[Row], path: Path) -> None:
    """Accuracy over conditions, in the mean of the sets and seeds that all tools have in all sizes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    tools = [tool for tool in MODULES if tool != "ebm"]
    curves = {tool: {size: find_means(rows, tool, size) for size in SIZES} for tool in tools}
    free = find_means(rows, "ebm", FREE)
    shared = set.intersection(*(set(some) for curve in curves.values() for some in curve.values()), set(free))
    if not shared:
        raise InputError("there is no set that all tools have in all sizes")
    figure, axes = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
    for tool, curve in curves.items():
        heights = [100 * mean(curve[size][key] for key in shared) for size in SIZES]
        axes.plot(SIZES, heights, marker="o", label=tool, linewidth=2.5 if tool == "stageb" else 1.2)
    axes.axhline(100 * mean(free[key] for key in shared), linestyle="--", color="grey", label="ebm, of any size")
    axes.set_xscale("log", base=2)
    axes.set_xticks(SIZES, [str(size) for size in SIZES])
    axes.set_xlabel("conditions, at most")
    axes.set_ylabel(f"accuracy on test, %, of {len({name for name, _ in shared})} sets")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


# One fit -----------------------------------------------------------------------------------------------------------------


def learn_figs(columns: Columns, size: int, seed: int, limit: float) -> Learnt:
    """A sum of trees, of so many splits (Tan and others 2022)."""
    from imodels.tree.figs import FIGSClassifier

    train, test = _make_binary(columns)
    model = FIGSClassifier(max_rules=size, random_state=seed)
    model.fit(train.to_numpy(float), columns.train_labels)
    return Learnt(model.predict(test.to_numpy(float)), sum(map(_count_splits, model.trees_)))


def learn_ripper(columns: Columns, size: int, seed: int, limit: float) -> Learnt:
    """Rules for the rarest label, then for the next one of those left; the commonest has the others (Cohen 1995)."""
    from wittgenstein import RIPPER

    *rare, common = sorted(Counter(columns.train_labels).items(), key=lambda each: each[1])
    train, labels, verdicts = columns.train, list(columns.train_labels), [common[0]] * len(columns.test)
    is_open, left, conditions = [True] * len(columns.test), size, 0
    for place, (label, _) in enumerate(rare):
        model = RIPPER(max_total_conds=left // (len(rare) - place), random_state=seed)
        if left // (len(rare) - place) and label in labels:
            model.fit(train.reset_index(drop=True), y=[each == label for each in labels], pos_class=True)
            count = sum(len(rule.conds) for rule in model.ruleset_.rules)
            left, conditions = left - count, conditions + count
            for n, is_label in enumerate(model.predict(columns.test)):
                if is_label and is_open[n]:
                    verdicts[n], is_open[n] = label, False
            spared = [not each for each in model.predict(train)]
            train, labels = train[spared], [each for each, kept in zip(labels, spared, strict=True) if kept]
    return Learnt(verdicts, conditions)


def learn_fasterrisk(columns: Columns, size: int, seed: int, limit: float) -> Learnt:
    """Points of so many features, -5 to 5; of several labels a card each, the likeliest (Liu and others 2022)."""
    import numpy as np
    from fasterrisk.binarization_util import BinBinarizer
    from fasterrisk.fasterrisk import RiskScoreClassifier, RiskScoreOptimizer

    train, test = _make_binary(columns)
    numbers = [name for name in train if train[name].nunique() > 2]
    if numbers:
        cutter = BinBinarizer(sampling_seed=seed)
        cut, _ = cutter.fit_transform(train[numbers])
        train = train.drop(columns=numbers).join(cut)
        test = test.drop(columns=numbers).join(cutter.transform(test[numbers])[0])
    rows, judged = train.to_numpy(float), test.to_numpy(float)
    counts = Counter(columns.train_labels).most_common()
    named = [label for label, _ in (counts[1:] if len(counts) == 2 else counts)]
    found, conditions = {}, 0
    for place, label in enumerate(named):
        share = (size - conditions) // (len(named) - place)
        wanted = np.array([1.0 if each == label else -1.0 for each in columns.train_labels])
        if not share:
            found[label] = np.full(len(judged), (wanted > 0).mean())
            continue
        optimizer = RiskScoreOptimizer(X=rows, y=wanted, k=min(share, rows.shape[1]))
        optimizer.optimize()
        multiplier, intercept, points = optimizer.get_models(model_index=0)
        found[label] = RiskScoreClassifier(multiplier, intercept, points).predict_prob(judged)
        conditions += int((points != 0).sum())
    if len(counts) == 2:
        found[counts[0][0]] = 1 - found[named[0]]
    return Learnt([max(found, key=lambda label: found[label][n]) for n in range(len(judged))], conditions)


def learn_optimal_tree(columns: Columns, size: int, seed: int, limit: float) -> Learnt:
    """The tree of so many splits that is right most often on train, the deepest of ``DEPTHS`` that is proven in time
    (van der Linden and others 2023)."""
    import numpy as np
    from pystreed import STreeDClassifier

    train, test = _make_binary(columns)
    labels = sorted(set(columns.train_labels))
    wanted = np.array([labels.index(label) for label in columns.train_labels])
    until, learnt = time.monotonic() + 0.7 * limit, None
    for depth in DEPTHS:
        left = until - time.monotonic()
        if left < 0.1 * limit or depth > size:
            break
        model = STreeDClassifier(
            max_depth=depth, max_num_nodes=min(size, 2**depth - 1), time_limit=left, random_seed=seed,
            max_num_binary_features=MOST_BINARY,
        )  # fmt: skip
        model.fit(train, wanted)
        if not model.is_fitted() or (learnt and not model.fit_result.is_optimal()):
            break
        learnt = Learnt([labels[each] for each in model.predict(test)], model.fit_result.tree_nodes())
    if learnt is None:
        raise TimeoutError(f"no tree in {limit:.0f} s")
    return learnt


def learn_ebm(columns: Columns, size: int, seed: int, limit: float) -> Learnt:
    """A sum of boosted curves, of one column and of two, which nobody counts (Nori and others 2019)."""
    from interpret.glassbox import ExplainableBoostingClassifier

    is_wide = columns.train.shape[1] > MOST_BINARY
    model = ExplainableBoostingClassifier(random_state=seed, n_jobs=1, **({"interactions": 0} if is_wide else {}))
    model.fit(columns.train, list(columns.train_labels))
    return Learnt(model.predict(columns.test), 0)


LEARNERS: Mapping[str, Learner] = {
    "figs": learn_figs,
    "ripper": learn_ripper,
    "fasterrisk": learn_fasterrisk,
    "streed": learn_optimal_tree,
    "ebm": learn_ebm,
}
MODULES = {
    "stageb": "stageb",
    "figs": "imodels.tree.figs",
    "ripper": "wittgenstein",
    "fasterrisk": "fasterrisk.fasterrisk",
    "streed": "pystreed",
    "ebm": "interpret.glassbox",
}
SIZES_OF = {**dict.fromkeys(("figs", "ripper", "fasterrisk", "streed"), SIZES), "ebm": (FREE,)}


def find_columns(train: Sequence[Ticket], test: Sequence[Ticket]) -> Columns:
    """The tickets as tables. A column of numbers holds the median where a train ticket has none; few different numbers are
    values, too."""
    import pandas as pd

    taught, judged = ([reading(ticket) for ticket in some] for some in (train, test))
    tables: list[dict[str, list[Any]]] = [{}, {}]
    for name in dict.fromkeys(name for read in taught for name in read.pairs):
        values = [read.pairs[name] for read in taught if name in read.pairs]
        told = [number for number in map(parse_number, values) if number is not None]
        is_number = len(told) == len(values)
        has_values = not is_number or len(set(told)) <= CATEGORIES
        for table, reads in zip(tables, (taught, judged), strict=True):
            if is_number:
                found = [parse_number(read.pairs.get(name, "")) for read in reads]
                table[f"{name} as a number"] = [median(told) if number is None else float(number) for number in found]
            if has_values:
                table[name] = [read.pairs.get(name, "none") for read in reads]
            elif len(told) < len(taught):
                table[f"{name} is there"] = [int(name in read.pairs) for read in reads]
    counts = Counter(word for read in taught for word in read.words)
    for word in sorted(word for word in counts if counts[word] >= FEWEST):
        for table, reads in zip(tables, (taught, judged), strict=True):
            table[f"mentions {word}"] = [int(word in read.words) for read in reads]
    frames = [pd.DataFrame(table) for table in tables]
    return Columns(frames[0], frames[1], [ticket.label for ticket in train], [ticket.label for ticket in test])


def _make_binary(columns: Columns) -> tuple[Any, Any]:
    """Train and test with a column of 0 and 1 for each value that a train ticket has."""
    import pandas as pd

    train, test = (pd.get_dummies(table, prefix_sep=" is ", dtype=int) for table in (columns.train, columns.test))
    return train, test.reindex(columns=train.columns, fill_value=0)


def _count_splits(node: Any) -> int:
    return 0 if node.left is None else 1 + _count_splits(node.left) + _count_splits(node.right)


def _learn(fit: Fit, path: Path, limit: float) -> Row:
    """The figures of one fit."""
    if fit.tool == "stageb":
        own = measure(fit.name, path, fit.seed, fit.size or None)
        texts = [rule.text for rule in own.guidance.rules]
        return {"accuracy": own.accuracy, "conditions": own.conditions, "apart": own.apart, "rules": texts}
    _, (train, test) = read_set(fit.name, path, fit.seed)
    columns = find_columns(train, test)
    warnings.simplefilter("ignore")
    with redirect_stdout(sys.stderr):  # FasterRisk prints
        found = LEARNERS[fit.tool](columns, fit.size, fit.seed, limit)
    right = [str(verdict) == label for verdict, label in zip(found.verdicts, columns.test_labels, strict=True)]
    return {"accuracy": mean(right), "conditions": found.conditions}


# Many fits ---------------------------------------------------------------------------------------------------------------


def _run_all(fits: Sequence[Fit], data: Path, out: Path, processes: int, limit: float) -> None:
    """Each fit in a process of one thread, so many at once; a line in ``out`` for each that ends or is ended."""
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    for tool in dict.fromkeys(fit.tool for fit in fits):
        importlib.import_module(MODULES[tool])  # once, for all that are forked
    context = multiprocessing.get_context("fork")
    paths = {name: find_set(data, name) for name in dict.fromkeys(fit.name for fit in fits)}
    waiting, running = [*reversed(fits)], dict[Any, tuple[Fit, Any, float]]()
    with out.open("a", encoding="utf-8") as file:
        while waiting or running:
            while waiting and len(running) < processes:
                fit = waiting.pop()
                theirs, mine = context.Pipe(duplex=False)[::-1]
                process = context.Process(target=_send, args=(theirs, fit, paths[fit.name], limit), daemon=True)
                process.start()
                theirs.close()
                running[mine] = fit, process, time.monotonic()
            ended = wait(list(running), timeout=0.2)
            for mine, (fit, process, since) in list(running.items()):
                seconds = time.monotonic() - since
                if mine not in ended and seconds < limit:
                    continue
                try:
                    figures = mine.recv() if mine in ended else {"failed": f"not done in {limit:.0f} s"}
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
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []
