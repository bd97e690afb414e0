"""Runs in which there is nothing to learn: bin/bench noise --out out/noise --data FOLDER

Four ways: labels dealt anew, as many fail as pass, so that no rule is better than any other; labels
in another order, as rare as they are, for tickets and prices (--config) at which passing all costs
less than failing all; labels dealt anew beside one true rule, so that nothing is left to learn once
that is found; and edits that change nothing in meaning, in the place of the model's own. Counts the
runs that accepted an edit that was no better all the same. Writes results.json and table.md into
--out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from lab.bench.learning import options
from lab.bench.learning.cells import METHODS, Cell, run_all
from lab.bench.learning.classic import LEARNERS
from lab.bench.learning.figures import NOISE, OURS, noise_table
from stageb.config import require
from stageb.errors import InputError

DATASETS = "demo-rack,plain,car_evaluation"


def main(arguments: Sequence[str]) -> int:
    """The command. Raises ``InputError`` where it cannot be started."""
    parser = options.parser_of(
        "noise", __doc__, DATASETS, ",".join(METHODS), budget=4000, seeds=100
    )
    parser.add_argument(
        "--peer-seeds", type=int, default=20, help="runs of every other method (default 20)"
    )
    kinds = [kind for kind in NOISE if kind != "permuted"]
    parser.add_argument(
        "--kinds", default=",".join(kinds), help=f"of {', '.join(NOISE)} (default all but permuted)"
    )
    given = parser.parse_args(arguments)
    require(
        set(given.kinds.split(",")) <= {*NOISE}, "--kinds", given.kinds, f"of {', '.join(NOISE)}"
    )
    methods, datasets = options.methods_of(given), options.datasets_of(given)
    if set(methods) & {*LEARNERS}:
        raise InputError(f"--methods: {', '.join(LEARNERS)} accept no edits; leave them out")
    cells = [
        Cell(dataset, method, seed, given.budget, kind, measured=kind == "one-rule")
        for kind in given.kinds.split(",")
        for dataset in datasets
        for method in methods
        for seed in range(1, (given.seeds if method == OURS else given.peer_seeds) + 1)
    ]
    results = run_all(cells, options.place_of(given), given.workers)
    (given.out / "results.json").write_text(
        json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    text = noise_table(results)
    (given.out / "table.md").write_text(text, encoding="utf-8")
    print(text)
    return 0
