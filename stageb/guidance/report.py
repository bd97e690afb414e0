"""What a run came to: accuracy before and after on every split, the learnt rules, and where the files lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from stageb.guidance.artifacts import folder
from stageb.guidance.config import LoopConfig
from stageb.guidance.plan import SPLITS
from stageb.guidance.types import Guidance
from stageb.journal import Journal


def show(journal: Journal, config: LoopConfig, guidance: Mapping[str, Guidance]) -> None:
    """Print the report on standard output."""
    console = Console(soft_wrap=True, highlight=False)
    console.print(table(journal, guidance))
    for mission, learnt in guidance.items():
        console.print(f"{mission}, after {learnt.step} accepted edits:", markup=False)
        for rule in learnt.rules:
            console.print(f"  {rule.key}. {rule.text}", markup=False)
    if config.split.test:
        console.print("val and test were not learnt from; test was used for nothing but this table.")
    console.print(f"Files: {journal.folder}", markup=False)
    for mission in guidance:
        console.print(f"  {mission}: {journal.folder / folder(mission) / 'guidance.json'}", markup=False)


def table(journal: Journal, guidance: Mapping[str, Guidance]) -> Table:
    """Accuracy, wrong passes (fp) and wrong fails (fn) per mission and split, before learning and after."""
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    drawn.add_column("mission")
    drawn.add_column("split")
    for title in ("tickets", "acc before", "acc after", "fp before", "fp after", "fn before", "fn after"):
        drawn.add_column(title, justify="right")
    for mission in guidance:
        rows = journal.rows(f"{folder(mission)}/metrics.jsonl")
        for split in SPLITS:
            of_split = [row for row in rows if row["split"] == split]
            if of_split:
                drawn.add_row(mission, split, *figures(of_split[0], of_split[-1]))
    return drawn


def figures(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The cells of one row."""
    cells = [str(after["n"]), f"{before['acc']:.1%}", f"{after['acc']:.1%}"]
    return cells + [str(row[name]) for name in ("fp", "fn") for row in (before, after)]
