"""Methods of learning beside each other: bin/bench learn --out out/learn --data FOLDER

Every method learns guidance for the same tickets with the same model, from the same empty guidance,
with as many rollouts; a decision tree and a rule list, which need none, show what rules can reach,
and logistic regression and boosting what labels have to give. Writes results.json, table.md and
curves.png into --out; a folder per run stands under cells/.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec

from lab.bench.learning import options
from lab.bench.learning.cells import Cell, run_all
from lab.bench.learning.data import MADE, REAL
from lab.bench.learning.figures import learning_table

DATASETS = ",".join([*MADE, *REAL])
DEFAULT = "ours,statistics,gepa-tuned,gepa-evidence,gepa,tree,rules,logistic,boosting"


def main(arguments: Sequence[str]) -> int:
    """The command. Raises ``InputError`` where it cannot be started."""
    parser = options.parser_of("learn", __doc__, DATASETS, DEFAULT, budget=5000, seeds=3)
    given = parser.parse_args(arguments)
    methods, datasets = options.methods_of(given), options.datasets_of(given)
    cells = [
        Cell(dataset, method, seed, given.budget)
        for seed in range(1, given.seeds + 1)
        for dataset in datasets
        for method in methods
    ]
    results = run_all(cells, options.place_of(given), given.workers)
    results.sort(
        key=lambda r: (datasets.index(r["dataset"]), methods.index(r["method"]), r["seed"])
    )
    (given.out / "results.json").write_text(
        json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    text = learning_table(results, given.budget)
    (given.out / "table.md").write_text(text, encoding="utf-8")
    print(text)
    if find_spec("matplotlib"):
        from lab.bench.learning import plot

        plot.draw(results, given.budget, given.out / "curves.png")
    else:
        print(
            "matplotlib is not installed: no curves.png; the same command draws it from the "
            "same --out where it is"
        )
    return 0
