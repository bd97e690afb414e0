"""How right the guidance of a run was on every split, before learning and after: as a table, by
class, and as the score of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from stageb.guidance.commands.fit.artifacts import MissionFiles
from stageb.guidance.config import LoopConfig
from stageb.guidance.rules.read_guidance import read_guidance
from stageb.guidance.tickets.splits import SPLITS
from stageb.guidance.words.costs import count_wrong, describe_classes, warn_of_constant
from stageb.guidance.words.labels import has_labels
from stageb.guidance.words.types import Guidance
from stageb.runs.figures import make_table
from stageb.runs.folder import RunFolder, RunScore
from stageb.store.journal import Journal, safe_name


def tabulate(
    journal: Journal, guidance: Mapping[str, Guidance], unpaid: Mapping[str, str]
) -> Table:
    """Accuracy with its 95 % interval, missed failures (fp) and false alarms (fn) per mission and
    split: before learning and after. Of missions that are ``unpaid``, why they learnt nothing, or
    for nothing alone."""
    has_own = any(has_labels(each.labels) for each in guidance.values())
    wrong = ["wrong"] if has_own else ["missed failures", "false alarms"]
    drawn = make_table(
        "before learning -> after (95 % interval)",
        ["mission", "split"],
        ["tickets", "accuracy", *wrong, "review"],
    )
    for mission, split, before, after in _pair_rows(journal, guidance):
        drawn.add_row(Text(mission), split, *format_cells(before, after, has_own))
    for mission, why in unpaid.items():
        drawn.add_row(Text(mission), "train", "", why, *[""] * (len(wrong) + 1))
    return drawn


def describe_by_class(
    journal: Journal, config: LoopConfig, guidance: Mapping[str, Guidance]
) -> Iterator[str]:
    """Describe the accuracies by class: failures caught and false alarms beside the best constant
    answer, and a warning if that is as good."""
    prices = config.price.by_label
    yield ""
    for mission, split, _, after in _pair_rows(journal, guidance):
        yield f"{mission}, {split}: {describe_classes(after, prices)}"
        warning = warn_of_constant(after, prices)
        if warning:
            yield f"  {warning}"


def find_score(run: Path) -> RunScore | None:
    """1 less the cost of a val ticket under a run's final guidance: accuracy, where errors cost
    alike. None without val."""
    rows: list[Mapping[str, Any]] = []
    for mission, learnt in read_guidance(run).items():
        judged = RunFolder(run).read_committed(f"{safe_name(mission)}/metrics.jsonl")
        rows += [
            row for row in judged if (row["split"], row["guidance_step"]) == ("val", learnt.step)
        ][-1:]
    tickets = sum(row["n"] for row in rows)
    return (
        RunScore("1 - cost on val", 1 - sum(row["n"] * row["cost"] for row in rows) / tickets)
        if tickets
        else None
    )


def format_cells(
    before: Mapping[str, Any] | None, after: Mapping[str, Any], together: bool = False
) -> list[str]:
    """The cells of one row, all kinds of wrong verdicts ``together`` or each by itself."""

    def count(row: Mapping[str, Any]) -> list[int]:
        return [count_wrong(row)] if together else [row["fp"], row["fn"]]

    low, high = after["acc_interval"]
    accuracy = f"{after['acc']:.1%} ({low:.0%}-{high:.0%})"
    counts = [f"{n:4}" for n in count(after)]
    if before is not None:
        accuracy = f"{before['acc']:.1%} -> {accuracy}"
        counts = [f"{n:4} -> {later}" for n, later in zip(count(before), counts, strict=True)]
    return [str(after["n"]), accuracy, *counts, str(after["n"] - after["without_review"]["n"])]


def _pair_rows(
    journal: Journal, guidance: Mapping[str, Guidance]
) -> Iterator[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]]:
    """By mission and split the first row of metrics.jsonl, and that of the final guidance, which
    may be an earlier one: not the last that was measured."""
    for mission, learnt in guidance.items():
        rows = MissionFiles(journal, mission).read("metrics.jsonl")
        for split in SPLITS[1:]:
            of_split = [row for row in rows if row["split"] == split]
            of_final = [row for row in of_split if row["guidance_step"] == learnt.step]
            if of_final:
                yield mission, split, of_split[0], of_final[-1]
