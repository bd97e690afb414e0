"""What a run came to: accuracy before and after on every split, the learnt rules, and where the files lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stageb.guidance.artifacts import folder
from stageb.guidance.config import LoopConfig
from stageb.guidance.plan import SPLITS
from stageb.guidance.types import Guidance
from stageb.journal import Journal


def show(journal: Journal, config: LoopConfig, guidance: Mapping[str, Guidance]) -> None:
    """Print the report on standard output."""
    console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
    console.print(table(journal, guidance))
    for mission, learnt in guidance.items():
        edits = f"{learnt.step} accepted edit{'s' if learnt.step != 1 else ''}"
        console.print(f"\n{mission}, after {edits}:")
        for rule in learnt.rules:
            console.print(f"  {rule.key}. {rule.text}")
    console.print("\nRules were learnt from train tickets alone; test served for nothing but this table.")
    console.print(f"Files: {journal.folder}")
    for mission in guidance:
        console.print(f"  {mission}: {journal.folder / folder(mission) / 'guidance.json'}")


def table(journal: Journal, guidance: Mapping[str, Guidance]) -> Table:
    """Accuracy, wrong passes (fp) and wrong fails (fn) per mission and split, before learning and after."""
    drawn = Table(title="before learning -> after", title_justify="left", box=None, pad_edge=False, header_style="bold")
    for title in ("mission", "split"):
        drawn.add_column(title, no_wrap=True, overflow="ellipsis", max_width=32)
    for title in ("tickets", "accuracy", "wrong passes", "wrong fails"):
        drawn.add_column(title, justify="right", no_wrap=True)
    for mission in guidance:
        rows = journal.rows(f"{folder(mission)}/metrics.jsonl")
        for split in SPLITS:
            of_split = [row for row in rows if row["split"] == split]
            if of_split:
                drawn.add_row(Text(mission), split, *figures(of_split[0], of_split[-1]))
    return drawn


def figures(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The cells of one row."""
    accuracy = f"{before['acc']:6.1%} -> {after['acc']:6.1%}"
    return [str(after["n"]), accuracy, *(f"{before[name]:4} -> {after[name]:4}" for name in ("fp", "fn"))]
