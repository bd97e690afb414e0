"""Other tools' learning from tickets, with so many conditions at most: a split, a literal, a
feature with points is one.

A tool gets the train tickets in its own form: values one-hot or as numbers, the words that three
tickets have as a bag, binarised as its documentation says. But for the size its settings are its
own. RIPPER learns several labels as its paper says, from the rarest to the commonest; FasterRisk
one against the rest.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import eq
from statistics import median
from typing import Any, NamedTuple

from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.value_types import parse_number
from stageb.guidance.words.types import Ticket

SIZES = (5, 10, 20, 40)
FREE = 0  # the size that stands for the tool's own
FEWEST = 3  # train tickets with a word, below which it is no column
CATEGORIES = 10  # different numbers of a column, above which they are no values
MOST_BINARY = 100  # columns of which an optimal tree is found
DEPTHS = range(3, 11)  # of optimal trees, each tried while there is time


class Columns(NamedTuple):
    """Train and test tickets as tables; numbers are floats, values texts, words 0 or 1."""

    train: Any  # pandas.DataFrame
    test: Any
    train_labels: Sequence[str]
    test_labels: Sequence[str]


class Learnt(NamedTuple):
    """A tool's result on a set."""

    verdicts: Sequence[str]  # on test
    conditions: int


Learner = Callable[[Columns, int, int, float], Learnt]
"""Of a set's columns, the most conditions, a seed, and the seconds that it may take."""


def learn_figs(columns: Columns, size: int, seed: int, limit: float) -> Learnt:
    """A sum of trees, of so many splits (Tan and others 2022)."""
    from imodels.tree.figs import FIGSClassifier

    train, test = _make_binary(columns)
    model = FIGSClassifier(max_rules=size, random_state=seed)
    model.fit(train.to_numpy(float), columns.train_labels)
    return Learnt(model.predict(test.to_numpy(float)), sum(map(_count_splits, model.trees_)))


def learn_ripper(columns: Columns, size: int, seed: int, limit: float) -> Learnt:
    """Rules for the rarest label, then for the next one of those left; the commonest has the others
    (Cohen 1995). Of two labels, rules for that one which is right more often on train."""
    import pandas as pd

    counts = sorted(Counter(columns.train_labels), key=Counter(columns.train_labels).__getitem__)
    orders = [counts, counts[::-1]] if len(counts) == 2 else [counts]
    both = columns._replace(test=pd.concat([columns.train, columns.test], ignore_index=True))
    taught = len(columns.train)
    found = [_learn_in_order(both, order, size, seed) for order in orders]
    best = max(found, key=lambda each: sum(map(eq, each.verdicts, columns.train_labels)))
    return best._replace(verdicts=best.verdicts[taught:])


def _learn_in_order(columns: Columns, order: Sequence[str], size: int, seed: int) -> Learnt:
    """RIPPER's rules for each label but the last, of which each may have its share of the
    conditions that are left."""
    from wittgenstein import RIPPER

    train, labels, verdicts = (
        columns.train,
        list(columns.train_labels),
        [order[-1]] * len(columns.test),
    )
    left = size
    for place, label in enumerate(order[:-1]):
        share = left // (len(order) - 1 - place)
        if share and label in labels:
            model = RIPPER(max_total_conds=share, random_state=seed)
            model.fit(
                train.reset_index(drop=True), y=[each == label for each in labels], pos_class=True
            )
            left -= sum(len(rule.conds) for rule in model.ruleset_.rules)
            for n, is_label in enumerate(model.predict(columns.test)):
                if is_label and verdicts[n] == order[-1]:
                    verdicts[n] = label
            spared = [not each for each in model.predict(train)]
            train, labels = (
                train[spared],
                [each for each, kept in zip(labels, spared, strict=True) if kept],
            )
    return Learnt(verdicts, size - left)


def learn_fasterrisk(columns: Columns, size: int, seed: int, limit: float) -> Learnt:
    """Points of so many features, -5 to 5; of several labels a card each, the likeliest (Liu and
    others 2022)."""
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
    return Learnt(
        [max(found, key=lambda label: found[label][n]) for n in range(len(judged))], conditions
    )


def learn_optimal_tree(columns: Columns, size: int, seed: int, limit: float) -> Learnt:
    """The tree of so many splits that is right most often on train, the deepest of ``DEPTHS`` that
    is proven in time (van der Linden and others 2023)."""
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
        learnt = Learnt(
            [labels[each] for each in model.predict(test)], model.fit_result.tree_nodes()
        )
    if learnt is None:
        raise TimeoutError(f"no tree in {limit:.0f} s")
    return learnt


def learn_ebm(columns: Columns, size: int, seed: int, limit: float) -> Learnt:
    """A sum of boosted curves, of one column and of two, which nobody counts (Nori and others
    2019)."""
    from interpret.glassbox import ExplainableBoostingClassifier

    is_wide = columns.train.shape[1] > MOST_BINARY
    model = ExplainableBoostingClassifier(
        random_state=seed, n_jobs=1, **({"interactions": 0} if is_wide else {})
    )
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
    "figs": "imodels.tree.figs",
    "ripper": "wittgenstein",
    "fasterrisk": "fasterrisk.fasterrisk",
    "streed": "pystreed",
    "ebm": "interpret.glassbox",
}
"""Where each is."""

SIZES_OF = {tool: SIZES if tool != "ebm" else (FREE,) for tool in LEARNERS}
"""The sizes that each is asked for."""


def find_columns(train: Sequence[Ticket], test: Sequence[Ticket]) -> Columns:
    """The tickets as tables. A column of numbers holds the median where a train ticket has none;
    few different numbers are values, too."""
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
                table[f"{name} as a number"] = [
                    median(told) if number is None else float(number) for number in found
                ]
            if has_values:
                table[name] = [read.pairs.get(name, "none") for read in reads]
            elif len(told) < len(taught):
                table[f"{name} is there"] = [int(name in read.pairs) for read in reads]
    counts = Counter(word for read in taught for word in read.words)
    for word in sorted(word for word in counts if counts[word] >= FEWEST):
        for table, reads in zip(tables, (taught, judged), strict=True):
            table[f"mentions {word}"] = [int(word in read.words) for read in reads]
    frames = [pd.DataFrame(table) for table in tables]
    return Columns(
        frames[0], frames[1], [ticket.label for ticket in train], [ticket.label for ticket in test]
    )


def _make_binary(columns: Columns) -> tuple[Any, Any]:
    """Train and test with a column of 0 and 1 for each value that a train ticket has."""
    import pandas as pd

    train, test = (
        pd.get_dummies(table, prefix_sep=" is ", dtype=int)
        for table in (columns.train, columns.test)
    )
    return train, test.reindex(columns=train.columns, fill_value=0)


def _count_splits(node: Any) -> int:
    return 0 if node.left is None else 1 + _count_splits(node.left) + _count_splits(node.right)
