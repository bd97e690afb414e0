"""Screens of ``stageb guidance``, and its exports as code.

Texts of files and models are shown so that they move no terminal.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stageb.cli.draft import Draft
from stageb.errors import InputError, shown
from stageb.guidance.commands.use.doubts import find_named_fields
from stageb.guidance.commands.use.record import FEWEST, compare_with_code
from stageb.guidance.commands.use.source import find_columns, find_tickets
from stageb.guidance.exports.protocol import CodedMission, code_mission
from stageb.guidance.judging.automation import holds, name_guidance
from stageb.guidance.judging.coded import CodeJudge, code_rules
from stageb.guidance.learning.attempts import JUDGES, describe_provisional
from stageb.guidance.learning.reflection_file import REFLECTION, ReflectionRow, parse_row
from stageb.guidance.rules import rules_file
from stageb.guidance.rules.edits import (
    compare_marks,
    compare_order,
    compare_rules,
    compare_words,
    find_author,
    find_moves,
)
from stageb.guidance.rules.evidence_forms import reading
from stageb.guidance.rules.guidance_file import read_past, split_step
from stageb.guidance.rules.prompts import Words
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.tickets.groups import name_content
from stageb.guidance.tickets.tables import list_roles
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.texts import count_of
from stageb.guidance.words.types import UNCALIBRATED, Guidance, Operation, Rule, Ticket
from stageb.runs.folder import RunFolder
from stageb.store import disk
from stageb.store.journal import safe_name

# Two guidances of a mission, as a person reads what differs. Pure functions.

_MARKS = {"same": "{}", "gone": "[-{}-]", "new": "{{+{}+}}"}


def describe_changes(old: Guidance | None, new: Guidance | None) -> Iterator[str]:
    """+ a rule added, - removed, ~ changed with the words marked, > one that got another number; in
    the order of keys."""
    changes = compare_rules(old, new)
    moves = find_moves(changes)
    marks = {rule.key: rule.mark for rule in new.rules} if new else {}
    for change in changes:
        gone = bool(change.before) and change.key not in moves.values()
        new_here = bool(change.after) and change.key not in moves
        if gone and new_here:
            yield f"  ~ {change.key}{marks[change.key]}. {mark_words(change.before, change.after)}"
        elif gone:
            yield f"  - {change.key}. {change.before}"
        elif new_here:
            yield f"  + {change.key}{marks[change.key]}. {change.after}"
        if change.key in moves:
            yield f"  > {moves[change.key]} -> {change.key}. {change.after}"
    for rule in compare_marks(old, new):
        yield f"  ~ {rule.key}{rule.mark or ' (no longer fixed)'}. {rule.text}"
    if order := compare_order(old, new):
        yield f"  ~ the order, in which the first decides: {', '.join(order)}"


def mark_words(old: str, new: str) -> str:
    """``new`` with what it has in place of ``old``'s words marked, as git's word diff does:
    ``[-gone-]{+new+}``."""
    return "".join(_MARKS[what].format(text) for what, text in compare_words(old, new))


# in a rule's metadata, where it was copied out of the run that learnt it: what that run's files say
LEARNT = "learnt"


def read_edits(run: Path, mission: str) -> list[ReflectionRow]:
    """The rows of reflection.jsonl by which a run edited a mission's guidance, in order.

    Raises ``BadInputError`` where another program changed them.
    """
    files, file = RunFolder(run), f"{safe_name(mission)}/{REFLECTION}"
    rows = files.read_whole(file, '"applied": true')
    return [
        parse_reflection(files, file, line, row) for line, row in rows if row.get("applied") is True
    ]


def parse_reflection(
    files: RunFolder, file: str, line: int, row: Mapping[str, Any]
) -> ReflectionRow:
    """A row of reflection.jsonl. Raises ``BadInputError`` where no run writes such a one."""
    try:
        return parse_row(row)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise files.fault(file, line, f"no row of a reflection ({type(error).__name__})") from None


def read_val_metrics(run: Path, mission: str) -> dict[int, Mapping[str, Any]]:
    """The first figures on val of every step that was judged there."""
    files, file = RunFolder(run), f"{safe_name(mission)}/metrics.jsonl"
    judged: dict[int, Mapping[str, Any]] = {}
    for line, row in files.read_whole(file, '"split": "val"'):
        if not isinstance(row.get("guidance_step"), int) or not isinstance(row.get("n"), int):
            raise files.fault(file, line, "no row of metrics")
        judged.setdefault(row["guidance_step"], row)
    return judged


def find_edit(rule: Rule, made: list[ReflectionRow]) -> ReflectionRow | None:
    """The edit that gave a rule its text; None where none of these did, but an earlier run, or a
    person."""

    def gave(edit: ReflectionRow) -> bool:
        texts = [(operation.text, list(operation.evidence)) for operation in edit.operations]
        by, sources = rule.metadata.get("reflection_id"), rule.metadata.get("sources")
        return edit.reflection_id == by and (rule.text, sources) in texts

    return next((edit for edit in reversed(made) if gave(edit)), None)


def summarize_edit(edit: ReflectionRow, run: str) -> dict[str, Any]:
    """Metadata of a rule that is copied out of ``run``, on the edit that gave it its text."""
    return {"run": run, "step": edit.step_after, "epoch": edit.epoch, "gate": edit.test}


def add_provenance(guidance: Guidance, run: Path) -> Guidance:
    """The guidance, each of its rules with what the files of ``run`` say of how it was learnt."""
    made = read_edits(run, guidance.mission)

    def annotate(rule: Rule) -> Rule:
        edit = find_edit(rule, made)
        if edit is None or LEARNT in rule.metadata:
            return rule
        return replace(rule, metadata={**rule.metadata, LEARNT: summarize_edit(edit, run.name)})

    return replace(guidance, rules=tuple(annotate(rule) for rule in guidance.rules))


BROKEN = 10  # tickets named that a change breaks
TICKETS = 5  # named of those that a rule was learnt from, where all are not asked for
DONE = {"add": "added", "update": "updated", "merge": "merged", "remove": "removed"}


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
            for line in _describe_provenance(rule, find_edit(rule, made), all_tickets)
        )
        yield from (f"      {line}" for line in decided.get(rule.key, ()))
    yield from (f"  {line}" for line in describe_provisional(guidance.rules))
    if guidance.shown:
        named = [_name_ticket(each.source) for each in guidance.shown]
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
            + (": too few to rely on" if rule["decided"] < FEWEST else "")
        ]
        for of in found.values()
        for rule in of["rules"]
        if "decided" in rule
    }


def _describe_provenance(
    rule: Rule, edit: ReflectionRow | None, all_tickets: bool
) -> Iterator[str]:
    """How a rule came to its text. What its metadata holds, anybody may have written there."""
    data = rule.metadata
    if not data:
        yield "given: by a person, or as the neutral headline"
        return
    told = data.get(LEARNT) if edit is None else summarize_edit(edit, "")
    told = told if isinstance(told, Mapping) else {}
    place = [
        f"{name} {shown(str(told[name]), 60)}"
        for name in ("step", "epoch")
        if told.get(name) is not None
    ]
    place += [f"run {shown(str(told['run']), 60)}"] if told.get("run") else []
    op = data.get("op") if isinstance(data.get("op"), str) else ""
    merged = data.get("merged_from") if isinstance(data.get("merged_from"), list) else []
    made = [DONE.get(str(op), shown(str(op), 20)) or "written"]
    made += [f"from {shown(', '.join(map(str, merged or [])), 80)}"] if merged else []
    made += [f"by {shown(str(data['reflection_id']), 60)}"] if data.get("reflection_id") else []
    yield " ".join(made) + (f" ({', '.join(place)})" if place else "")
    if why := str(data.get("rationale") or ""):
        yield f"why, says {find_author(why)}: {shown(why, 400)}"
    sources = data.get("sources")
    if isinstance(sources, list) and sources:
        named = [_name_ticket(str(key)) for key in (sources if all_tickets else sources[:TICKETS])]
        more = len(sources) - len(named)
        yield (
            f"learnt from {count_of(len(sources), 'ticket')}: "
            f"{', '.join(named)}{f' and {more} more' if more else ''}"
        )
    # of another size, it is of the rules in use
    if isinstance(told.get("gate"), Mapping) and not rule.is_provisional:
        yield f"gate: {_describe_test(told['gate'])}"


def _name_ticket(key: str) -> str:
    """A ticket's key for people."""
    group, _, label = key.rpartition("::")
    return shown(f"{group} ({label})" if group else key, 120)


def _describe_test(test: Mapping[str, Any]) -> str:
    """The figures of a test, in a line."""
    figures = {name: value for name, value in test.items() if isinstance(value, int | float)}
    said = [f"mean gain {figures['mean_gain'] * 100:+.1f} points"] if "mean_gain" in figures else []
    said += [f"on {figures['tickets']} tickets"] if "tickets" in figures else []
    said += (
        [f"({figures['won']:g} won, {figures['lost']:g} lost)"]
        if {"won", "lost"} <= figures.keys()
        else []
    )
    tested = [" ".join(said)] if said else []
    if "level" in figures:
        tested.append(
            f"a rule that does not help would pass with a chance of at most {figures['level']:.2g}"
        )
    return "; ".join(tested)


def describe_change(key: str, before: Guidance, after: Guidance, run: Path) -> Iterator[str]:
    """A rule that is to come, change or go, and where it comes from."""
    yield from describe_changes(before, after)
    if rule := after.rule(key):
        made = read_edits(run, after.mission) if run.is_dir() else []
        yield from (
            f"      {line}" for line in _describe_provenance(rule, find_edit(rule, made), False)
        )


def describe_effect(
    before: Guidance, after: Guidance, tickets: Sequence[Ticket], words: Words
) -> Iterator[str]:
    """Changes for labelled tickets where rules decide as code: how many it mends, and those that it
    breaks."""
    mine = [ticket for ticket in tickets if ticket.mission == after.mission]
    old, new = (
        CodeJudge(code_rules({each.mission: each}, mine, words)) for each in (before, after)
    )
    rulings = [(ticket, old.judge(ticket).verdict, new.judge(ticket).verdict) for ticket in mine]
    mended = sum(was != ticket.label == now for ticket, was, now in rulings)
    broken = [(ticket, now) for ticket, was, now in rulings if was == ticket.label != now]
    yield (
        f"      of the run's {count_of(len(mine), 'ticket')} it mends {mended:,} and breaks "
        f"{len(broken):,}"
    )
    named = [*find_named_fields(after, Vocabulary.of(mine), words)]
    for ticket, now in broken[:BROKEN]:
        pairs = reading(ticket).pairs
        # what the verdict rests on
        first = "; ".join(f"{name}: {pairs[name]}" for name in named if name in pairs)
        said = " | ".join([*([first] if first else []), *(text for _, text in ticket.per_image)])
        yield f"        {_name_ticket(ticket.key)} -> {now or 'no verdict'}: {shown(said, 200)}"
    if len(broken) > BROKEN:
        yield f"        and {len(broken) - BROKEN:,} more"


def describe_differences(
    before: Mapping[str, Guidance],
    after: Mapping[str, Guidance],
    sources: tuple[str, str] = ("", ""),
) -> Iterator[str]:
    """Differences of two sets of guidance, mission by mission; nothing where all rules are the
    same. Two ``sources`` may number their steps alike, so each is named where there are any."""
    for mission in dict.fromkeys([*before, *after]):
        old, new = before.get(mission), after.get(mission)
        if found := list(describe_changes(old, new)):
            steps = [f"step {each.step}" if each else "none" for each in (old, new)]
            if any(sources):
                steps = [
                    shown(f"{split_step(of)[0]} ({step})")
                    for of, step in zip(sources, steps, strict=True)
                ]
            yield f"{shown(mission)}: {steps[0]} -> {steps[1]}"
            yield from map(shown, found)


def describe_run(folder: Path, mission: str, now: Guidance) -> Iterator[str]:
    """Every step of a run's mission: what made it, how it was proven, how it did on val."""
    made, judged = (
        {edit.step_after: edit for edit in read_edits(folder, mission)},
        read_val_metrics(folder, mission),
    )
    yield f"{shown(mission)}, step {now.step} in use:"
    for step in sorted({*made, *judged, now.step, *([min(made) - 1] if made else [])}):
        edit, mark = made.get(step), "*" if step == now.step else " "
        epoch = f", epoch {edit.epoch}" if edit and edit.epoch is not None else ""
        yield f"{mark} step {step}: {shown(edit.reflection_id, 60) + epoch if edit else 'given'}"
        for operation in edit.operations if edit else ():
            yield f"      {_describe_operation(operation)}"
        if edit and edit.test is not None:
            yield f"      gate: {_describe_test(edit.test)}"
        if edit and edit.is_provisional:
            yield "      gate: not proven, kept as provisional"
        if step in judged:
            yield f"      val: {_describe_accuracy(judged[step])}"


def describe_file(path: Path, mission: str, now: Guidance) -> Iterator[str]:
    """Every change of a mission's guidance in a file that commands have changed."""
    kept, before = read_past(path, mission), dict[str, Guidance]()
    made = [row for row in rules_file.read_history(path) if row["mission"] == mission]
    in_use = max(
        (number for number, row in enumerate(made) if kept[row["step"]] == now), default=None
    )
    yield f"{shown(mission)}, step {now.step} in use:"
    for number, row in enumerate(made):
        version, mark = kept[row["step"]], "*" if number == in_use else " "
        yield f"{mark} step {row['step']}: {shown(row['action'], 60)} {shown(row['source'], 200)}".rstrip()
        yield f"      {shown(row['at'], 40)}, {shown(row['by'], 60)}"
        yield from (
            f"    {line}" for line in list(describe_differences(before, {mission: version}))[1:]
        )
        before = {mission: version}
    if in_use is None:
        yield f"* step {now.step}: {'edited by hand since' if made else 'as it is; no command has changed it'}"


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


def code_missions(
    args: Any, guidance: Mapping[str, Guidance], words: Words, is_typed: bool
) -> list[CodedMission]:
    """The rules of each mission as code; ``is_typed``: with columns of numbers. Raises
    ``InputError`` where neither tickets nor the guidance say what they name."""
    columns = parse_columns(args.columns) if args.columns else find_columns(args.source)
    tickets, why = find_tickets(args.source, "--tickets FILE ...", args.tickets, columns)
    if why and not all(each.named for each in guidance.values() if len(each.rules) > 1):
        raise InputError(shown(f"{args.source}: {why}", 400))
    rules = code_rules(guidance, tickets, words, is_whole=not why)
    roles = list_roles(columns)
    known = {
        mission: [ticket for ticket in tickets if ticket.mission == mission] for mission in guidance
    }
    return [
        replace(
            code_mission(each, rules[mission], roles, known[mission], is_typed),
            notes=describe_provisional(each.rules),
            automation=each.automation
            if each.automation and holds(each.automation, each, "rules", "")
            else None,
        )
        for mission, each in guidance.items()
    ]


def write_text(text: str, path: Path | None) -> None:
    """To a file as a whole, or to standard output: as UTF-8, which code is read as, whatever a
    terminal shows. Raises ``JournalError`` where the disk refuses."""
    if path is None:
        sys.stdout.flush()
        if isinstance(sys.stdout, io.TextIOWrapper):
            # to have it take another encoding, it would have to be sought in
            sys.stdout.buffer.write(text.encode())
            sys.stdout.buffer.flush()
        else:
            sys.stdout.write(text)
        return
    disk.write(path, text)


def write_files(
    files: str | bytes | Mapping[str, str],
    form: str,
    output: Path | None,
    check: Callable[[Path], object],
) -> None:
    """An export to a file, to standard output where it is one text, or several files to a folder,
    each of which ``check`` allows. Raises ``InputError`` where none is named for what needs one."""
    if isinstance(files, str) and output is None:
        write_text(files, None)
        return
    if output is None:
        raise InputError(
            f"--format {form} is no single text: name where to write it, --output PATH"
        )
    written = (
        {output / name: text for name, text in files.items()}
        if isinstance(files, Mapping)
        else {output: files}
    )
    for path in written:
        check(path)
    for path, content in written.items():
        disk.write(path, content)


@dataclass(frozen=True)
class _TableKeys:
    """Keys that an option may give of ticket files."""

    columns: ColumnsConfig = field(default_factory=ColumnsConfig)


def parse_columns(text: str) -> ColumnsConfig:
    """Read an option. Raises ``InputError`` as ``predict`` does."""
    draft = Draft(_TableKeys)
    draft.add_option("columns", text)
    draft.check()
    keys: _TableKeys = draft.build()
    return keys.columns
