"""``stageb guidance show``, ``diff`` and ``history``.

Texts of files and models are shown so that they move no terminal.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stageb.errors import shown
from stageb.guidance.commands.govern.changes import describe_differences
from stageb.guidance.commands.govern.provenance import (
    describe_provenance,
    describe_test,
    find_edit,
    name_ticket,
    read_edits,
    read_val_metrics,
)
from stageb.guidance.commands.govern.sources import (
    add_language,
    choose_words,
    parse_step,
    read_source,
)
from stageb.guidance.commands.use.record import FEWEST_DECIDED, compare_with_code
from stageb.guidance.commands.use.source import find_tickets
from stageb.guidance.judging.automation import name_guidance
from stageb.guidance.judging.coded import code_rules
from stageb.guidance.learning.attempts import JUDGES, describe_provisional
from stageb.guidance.rules import history_file
from stageb.guidance.rules.prompts import Words
from stageb.guidance.rules.read_guidance import read_guidance, read_past, split_step
from stageb.guidance.tickets.groups import name_content
from stageb.guidance.words.texts import count_of
from stageb.guidance.words.types import UNCALIBRATED, Guidance, Operation, Ticket

DIFFERS = """\
+ an added rule, - a removed one, ~ a changed one, with [-deleted-] and {+inserted+} words, > one
with a new number.

Exit code: 0 if all rules are equal, 1 if some differ, 2 if a source cannot be read."""


def add_options(parser: ArgumentParser) -> None:
    """The options of ``show``."""
    parser.add_argument(
        "--step",
        type=parse_step,
        metavar="N",
        help="the guidance of this step; the same as SOURCE@N",
    )
    parser.add_argument(
        "--all-tickets",
        action="store_true",
        help="list every ticket that taught a rule, not only five",
    )
    add_language(parser)


def show(args: Any) -> int:
    """Print every rule, and where it comes from."""
    source = args.source if args.step is None else f"{args.source}@{args.step}"
    (tickets, _), words = find_tickets(source), choose_words(source, args.language)
    for number, guidance in enumerate(read_source(source, args).values()):
        said = describe_rules(guidance, source, args.all_tickets, tickets, words)
        print(*([""] if number else []), *said, sep="\n")
    return 0


def diff(args: Any) -> int:
    """Print what differs; 1 where anything does."""
    sources = (args.a, args.b)
    before, after = (read_guidance(source, args.mission) for source in sources)
    found = list(describe_differences(before, after, sources))
    for line in found:
        print(line)
    return 1 if found else 0


def history(args: Any) -> int:
    """Print every step."""
    path, _ = split_step(args.source)
    of = describe_run if path.is_dir() else describe_file
    for number, guidance in enumerate(read_guidance(path, args.mission).values()):
        print(*([""] if number else []), *of(path, guidance.mission, guidance), sep="\n")
    return 0


def describe_rules(
    guidance: Guidance, source: str, all_tickets: bool, tickets: Sequence[Ticket], words: Words
) -> Iterator[str]:
    """The rules of a mission, each with where it comes from, and how many it decides of those
    ``tickets`` that taught."""
    decided = _describe_decided(
        guidance, [ticket for ticket in tickets if ticket.mission == guidance.mission], words
    )
    path, _ = split_step(source)
    made = read_edits(path, guidance.mission) if path.is_dir() else []
    yield f"{shown(guidance.mission)}, step {guidance.step}:"
    for rule in guidance.rules:
        yield f"  {rule.key}{rule.mark}. {shown(rule.text)}"
        yield from (
            f"      {line}"
            for line in describe_provenance(rule, find_edit(rule, made), all_tickets)
        )
        yield from (f"      {line}" for line in decided.get(rule.key, ()))
    yield from (f"  {line}" for line in describe_provisional(guidance.rules))
    if guidance.shown:
        named = [name_ticket(each.source) for each in guidance.shown]
        yield f"  shown with it: {count_of(len(named), 'train ticket')}: {', '.join(named)}"
    if guidance.judge:
        yield f"  judged by: {JUDGES[guidance.judge]}"
    if guidance.automation and guidance.automation.guidance == name_guidance(guidance):
        yield f"  {guidance.automation.describe()}"
    if guidance.calibration != UNCALIBRATED:
        known = guidance.calibration
        slope, offset, rules, offsets = known.slope, known.offset, known.rules, known.offsets
        if offsets:
            each = ", ".join(f"{offset:.3g} ({shown(label)})" for label, offset in offsets)
            yield f"  calibrated: log-probability of each label times {slope:.3g}, plus {each}"
        else:
            yield f"  calibrated: log-odds of a pass times {slope:.3g}, plus {offset:.3g}"
        if rules and offsets:
            yield f"  rules as code: {rules:.3g} more for the label that they give a ticket"
        elif rules:
            yield (
                f"  rules as code: {rules:.3g} more where they pass a ticket, {rules:.3g} "
                f"less where they fail it"
            )
        if points := known.points:
            yield (
                f"  points as code: {points:.3g} more for a label with each point above the "
                f"least that its rule asks for"
            )


def _describe_decided(
    guidance: Guidance, tickets: Sequence[Ticket], words: Words
) -> dict[str, list[str]]:
    """By rule, a line on the train tickets that it decides as code; none of what code cannot
    read."""
    taught = [ticket for ticket in tickets if name_content(ticket) in guidance.taught_by]
    rows = [
        ({"mission": ticket.mission, "label": ticket.label, "verdict": None}, ticket)
        for ticket in taught
    ]
    found = compare_with_code(
        rows, code_rules({guidance.mission: guidance}, tickets, words), by_model=False
    )
    return {
        rule["rule"]: [
            f"decides {rule['decided']:,} of {count_of(len(taught), 'train ticket')}, "
            f"{rule['right']:,} of them rightly"
            + (": too few to rely on" if rule["decided"] < FEWEST_DECIDED else "")
        ]
        for of in found.values()
        for rule in of["rules"]
        if "decided" in rule
    }


def describe_run(folder: Path, mission: str, now: Guidance) -> Iterator[str]:
    """Every step of a run's mission: what made it, how it was proven, how it did on val."""
    made = {edit.step_after: edit for edit in read_edits(folder, mission)}
    judged = read_val_metrics(folder, mission)
    yield f"{shown(mission)}, step {now.step} in use:"
    for step in sorted({*made, *judged, now.step, *([min(made) - 1] if made else [])}):
        edit, mark = made.get(step), "*" if step == now.step else " "
        epoch = f", epoch {edit.epoch}" if edit and edit.epoch is not None else ""
        yield f"{mark} step {step}: {shown(edit.reflection_id, 60) + epoch if edit else 'given'}"
        for operation in edit.operations if edit else ():
            yield f"      {_describe_operation(operation)}"
        if edit and edit.test is not None:
            yield f"      gate: {describe_test(edit.test)}"
        if edit and edit.is_provisional:
            yield "      gate: not proven, kept as provisional"
        if step in judged:
            yield f"      val: {_describe_accuracy(judged[step])}"


def describe_file(path: Path, mission: str, now: Guidance) -> Iterator[str]:
    """Every change of a mission's guidance in a file that commands have changed."""
    kept, before = read_past(path, mission), dict[str, Guidance]()
    made = [row for row in history_file.read_history(path) if row["mission"] == mission]
    in_use = max(
        (number for number, row in enumerate(made) if kept[row["step"]] == now), default=None
    )
    yield f"{shown(mission)}, step {now.step} in use:"
    for number, row in enumerate(made):
        version, mark = kept[row["step"]], "*" if number == in_use else " "
        what = f"{shown(row['action'], 60)} {shown(row['source'], 200)}".rstrip()
        yield f"{mark} step {row['step']}: {what}"
        yield f"      {shown(row['at'], 40)}, {shown(row['by'], 60)}"
        yield from (
            f"    {line}" for line in list(describe_differences(before, {mission: version}))[1:]
        )
        before = {mission: version}
    if in_use is None:
        what = "edited by hand since" if made else "as it is; no command has changed it"
        yield f"* step {now.step}: {what}"


def _describe_operation(operation: Operation) -> str:
    """An operation, in a line."""
    what = [operation.op, operation.key or ", ".join(map(str, operation.merged_from))]
    return shown(
        " ".join(map(str, filter(None, what))) + (f": {operation.text}" if operation.text else "")
    )


def _describe_accuracy(row: Mapping[str, Any]) -> str:
    accuracy, interval = row.get("acc"), row.get("acc_interval")
    if not isinstance(accuracy, float | int):
        return f"{row['n']} tickets"
    within = ""
    if (
        isinstance(interval, list)
        and len(interval) == 2
        and all(isinstance(end, float | int) for end in interval)
    ):
        within = f" (95 % interval {interval[0]:.0%}-{interval[1]:.0%})"
    return f"{accuracy:.1%} of {row['n']} tickets{within}"
