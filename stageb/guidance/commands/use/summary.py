"""Tables that ``predict`` and ``evaluate`` print at their end, on standard output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from stageb.errors import shown
from stageb.guidance.commands.use.black_box import BlackBox
from stageb.guidance.commands.use.record import warn_of_misread
from stageb.guidance.words.costs import (
    PriceConfig,
    Prices,
    count_wrong,
    describe_classes,
    warn_of_constant,
)
from stageb.guidance.words.texts import TAKEN, count_of
from stageb.runs.figures import make_console, make_table, print_table

MOST_COLUMNS = 6  # labels that have a column
PLAIN = (["learnt"], ["model"])  # ways to judge that need no saying

Counts = dict[str, dict[str, int]]
"""By mission: how many tickets were answered with each label, or not at all ("none"), how many a
person should see, and how many the model was asked."""


def show_counts(path: Path, counts: Counts) -> None:
    """How tickets were answered, by mission."""
    labels = list(dict.fromkeys(name for of in counts.values() for name in of if name not in TAKEN))
    columns = labels if len(labels) <= MOST_COLUMNS else []
    console = make_console()
    drawn = make_table("", ["mission"], ["tickets", *columns, "no verdict", "review"])
    total = 0
    for mission, of in counts.items():
        tickets = sum(of.get(label, 0) for label in labels) + of["none"]
        shown_counts = tickets, *(of.get(label, 0) for label in columns), of["none"], of["review"]
        drawn.add_row(Text(mission), *(f"{each:,}" for each in shown_counts))
        total += tickets
    print_table(console, drawn)
    asked, none = (sum(of[name] for of in counts.values()) for name in ("model", "none"))
    if asked < total:
        console.print(f"\n{describe_coded(total, asked, none)}")
    console.print(f"\nA row per ticket, in their order: {path}")


def describe_coded(total: int, asked: int, none: int) -> str:
    """How many of all tickets the model was asked, and the rules as code judged, where ``none`` so
    many got no verdict: code alone leaves tickets without one, since with a model beside it that is
    asked for them."""
    if not asked and none:
        return (
            f"The rules as code judged {total - none:,} of {total:,} tickets; {none:,} have "
            f"no verdict: their rows say why."
        )
    if not asked:
        return f"The rules as code judged all {count_of(total, 'ticket')}; the model was not asked."
    return (
        f"The model was asked for {asked:,} of {total:,} tickets; the rules as code judged "
        f"the others."
    )


def show_evaluation(
    evaluation: Mapping[str, Any], wrong: Sequence[Mapping[str, Any]], folder: Path
) -> None:
    """How good guidance is, and how much better than another; ``wrong`` are the first tickets that
    were judged wrong."""
    console = make_console()
    sides, prices = list(_list_sides(evaluation)), PriceConfig(**evaluation["price"]).by_label
    print_table(console, _tabulate(evaluation, sides))
    for name, by, figures in sides:
        for mission, of in figures["missions"].items():
            warning = warn_of_constant(of, prices)
            who = ", ".join(filter(None, [evaluation[name], by, mission]))
            console.print(f"\n{who}: {describe_classes(of, prices)}{warning and f'. {warning}'}")
    for mission, box in evaluation["black_box"].items():
        console.print(f"{mission}: {BlackBox(**box).describe(prices)}")
    for mission, coded in evaluation["letter"].items():
        for line in warn_of_misread(mission, coded):
            console.print(shown(line, 400))
        if list(evaluation["by"]) not in PLAIN and coded["rules"]:
            print_table(console, _tabulate_rules(mission, coded))
    total = evaluation["figures"]["guidance"]["all"]
    if taught := total["taught"]:
        console.print(
            f"\n{taught:,} of these tickets taught the guidance its rules: on new ones expect less."
        )
    if provisional := total["provisional"]:
        console.print(
            f"\n{provisional:,} of these verdicts are by provisional rules, which are not "
            f"proven to help."
        )
    for mission, paired in evaluation.get("difference", {}).get("missions", {}).items():
        for line in _describe_difference(mission, paired, prices):
            console.print(line)
    count = count_wrong(total) + total["unanswered"]
    if wrong:
        console.print(f"\nJudged wrong, {len(wrong)} of {count:,}:")
    for row in wrong:
        answered = (
            f"answered {row['verdict']}: {row['reason'] or 'no reason asked for'}"
            if row["verdict"]
            else row["why"]
        )
        said = (
            f"  {row['file']}:{row['line']}: {row['mission']}, {row['group_id']}: labelled "
            f"{row['label']}, {answered}"
        )
        console.print(shown(said, 240))
    console.print(f"\nFiles: {', '.join(str(folder / name) for name in evaluation['files'])}")


def _list_sides(evaluation: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Which guidance, who judged, where that needs saying, and the figures; the ways to judge are
    told apart if there are several, or one is by rules."""
    modes = list(evaluation["by"])
    for by, figures in evaluation["by"].items():
        yield "guidance", "" if modes in PLAIN else by, figures
    if "compare" in evaluation["figures"]:
        yield "compare", "" if modes in PLAIN else modes[0], evaluation["figures"]["compare"]


def _tabulate(
    evaluation: Mapping[str, Any], sides: Sequence[tuple[str, str, Mapping[str, Any]]]
) -> Table:
    has_own = any("fp" not in figures for _, _, of in sides for figures in of["missions"].values())
    names = [
        "tickets",
        "accuracy",
        *(["wrong"] if has_own else ["missed failures", "false alarms"]),
        "no verdict",
        "review",
    ]
    told = any(by for _, by, _ in sides)
    names += ["model asked"] if told else []
    columns = {"guidance": "compare" in evaluation["figures"] or len(sides) == 1, "by": told}
    drawn = make_table(
        "accuracy (95 % interval)",
        [*(each for each, shows in columns.items() if shows), "mission"],
        names,
    )
    for name, by, of in sides:
        who = [
            Text(cell)
            for cell, shows in zip((evaluation[name], by), columns.values(), strict=True)
            if shows
        ]
        for mission, figures in of["missions"].items():
            drawn.add_row(*who, Text(mission), *_format_cells(figures, told, has_own))
        if len(of["missions"]) > 1:
            drawn.add_row(*who, Text("all"), *_format_cells(of["all"], told, has_own))
    return drawn


def _tabulate_rules(mission: str, coded: Mapping[str, Any]) -> Table:
    """A table of what each rule decides as code, and how the model judges these tickets, if it was
    asked."""
    names = {"decided": "decides", "right": "right by code", "model_right": "right by the model"}
    there = [name for name in names if name in coded]
    drawn = make_table(
        f"{shown(mission, 60)}: rules as code", ["rule"], [names[name] for name in there], "text"
    )
    for rule in coded["rules"]:
        cells = [f"{rule[name]:,}" if name in rule else "" for name in there]
        why = f" (not read as code: {rule['out_of_reach']})" if "out_of_reach" in rule else ""
        why += " (provisional)" if rule.get("provisional") else ""
        drawn.add_row(rule["rule"], *cells, Text(shown(rule["text"] + why, 160)))
    return drawn


def _describe_difference(mission: str, paired: Mapping[str, Any], prices: Prices) -> Iterator[str]:
    """Two guidances beside each other: what a ticket costs more or less, where the prices differ,
    and which is right more often."""
    yield ""
    what = ""
    if prices["fail"] != prices["pass"]:
        low, high = paired["cost_difference_interval"]
        found = "cheaper" if high < 0 else "dearer" if low > 0 else "neither is shown to be cheaper"
        yield (
            f"{mission}, cost a ticket beside the compared guidance: "
            f"{paired['cost_difference']:+.3f} (95 % interval {low:+.3f} to {high:+.3f}): {found}"
        )
        what = ", accuracy, whatever the prices"
    low, high = (100 * edge for edge in paired["difference_interval"])
    yield (
        f"{mission}{what}: {100 * paired['difference']:+.1f} points (95 % interval {low:+.1f} "
        f"to {high:+.1f}): of {paired['groups']:,} groups {paired['won']:,} are better, "
        f"{paired['lost']:,} worse; p = {paired['p']:.2g} (McNemar's exact test)"
    )


def _format_cells(figures: Mapping[str, Any], tells_asked: bool, together: bool) -> list[str]:
    low, high = figures["acc_interval"]
    wrong = [count_wrong(figures)] if together else [figures["fp"], figures["fn"]]
    counts = [*wrong, figures["unanswered"], figures["n"] - figures["without_review"]["n"]]
    counts += [figures["asked"]] if tells_asked else []
    return [
        f"{figures['n']:,}",
        f"{figures['acc']:.1%} ({low:.1%}-{high:.1%})",
        *(f"{each:,}" for each in counts),
    ]
