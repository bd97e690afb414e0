"""What ``predict`` and ``evaluate`` print at their end, on standard output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from stageb.errors import shown
from stageb.guidance.costs import describe_classes, warn_of_constant
from stageb.guidance.use.letter import warn_of_misread
from stageb.guidance.use.rows import Counts
from stageb.runs.summary import make_console, make_table


def show_counts(path: Path, counts: Counts) -> None:
    """How tickets were answered, by mission."""
    console, drawn = make_console(), make_table("", ["mission"], ["tickets", "pass", "fail", "no verdict", "review"])
    for mission, of in counts.items():
        verdicts = [of["pass"], of["fail"], of["none"]]
        drawn.add_row(Text(mission), *(f"{each:,}" for each in (sum(verdicts), *verdicts, of["review"])))
    console.print(drawn)
    console.print(f"\nA row per ticket, in their order: {path}")


def show_evaluation(evaluation: Mapping[str, Any], wrong: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """How good guidance is, and how much better than another; ``wrong`` are the first tickets that were judged wrong."""
    console = make_console()
    names = ["accuracy", "wrong pass", "wrong fail", "no verdict", "review"]
    drawn = make_table("accuracy (95 % interval)", ["guidance", "mission"], ["tickets", *names])
    for name in ("guidance", "compare"):
        of = evaluation["figures"].get(name, {"missions": {}})
        for mission, figures in of["missions"].items():
            drawn.add_row(Text(evaluation[name]), Text(mission), *_format_cells(figures))
        if len(of["missions"]) > 1:
            drawn.add_row(Text(evaluation[name]), "all", *_format_cells(of["all"]))
    console.print(drawn)
    for name in ("guidance", "compare"):
        for mission, figures in evaluation["figures"].get(name, {"missions": {}})["missions"].items():
            warning = warn_of_constant(figures)
            console.print(f"\n{evaluation[name]}, {mission}: {describe_classes(figures)}{warning and f'. {warning}'}")
    for mission, letter in evaluation["letter"].items():
        for line in warn_of_misread(mission, letter):
            console.print(shown(line, 400))
    taught = evaluation["figures"]["guidance"]["all"]["taught"]
    if taught:
        console.print(f"\n{taught:,} of these tickets taught the guidance its rules: on new ones expect less.")
    for mission, paired in evaluation.get("difference", {}).get("missions", {}).items():
        console.print(f"\n{_describe_difference(mission, paired)}")
    total = evaluation["figures"]["guidance"]["all"]
    count = total["fp"] + total["fn"] + total["unanswered"]
    if wrong:
        console.print(f"\nJudged wrong, {len(wrong)} of {count:,}:")
    for row in wrong:
        answered = f"answered {row['verdict']}: {row['reason']}" if row["verdict"] else row["why"]
        said = f"  {row['file']}:{row['line']}: {row['mission']}, {row['group_id']}: labelled {row['label']}, {answered}"
        console.print(shown(said, 240))
    console.print(f"\nFiles: {', '.join(str(folder / name) for name in evaluation['files'])}")


def _describe_difference(mission: str, paired: Mapping[str, Any]) -> str:
    """Two guidances beside each other, in one line."""
    low, high = (100 * edge for edge in paired["difference_interval"])
    return (
        f"{mission}: {100 * paired['difference']:+.1f} points (95 % interval {low:+.1f} to {high:+.1f}): of "
        f"{paired['groups']:,} groups {paired['won']:,} are better, {paired['lost']:,} worse; p = {paired['p']:.2g} "
        "(McNemar's exact test)"
    )


def _format_cells(figures: Mapping[str, Any]) -> list[str]:
    low, high = figures["acc_interval"]
    counts = [figures["fp"], figures["fn"], figures["unanswered"], figures["n"] - figures["without_review"]["n"]]
    return [f"{figures['n']:,}", f"{figures['acc']:.1%} ({low:.1%}-{high:.1%})", *(f"{each:,}" for each in counts)]
