"""The result of a run: accuracy before and after on every split, the learnt rules, and where the
files are."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from stageb.guidance.commands.fit.advice import advise
from stageb.guidance.commands.fit.artifacts import MissionFiles
from stageb.guidance.commands.report.read import collect_verdicts, read_rules_as_code
from stageb.guidance.commands.use.black_box import BlackBox
from stageb.guidance.commands.use.record import name_doubtful, name_misread, read_record
from stageb.guidance.config import LoopConfig
from stageb.guidance.learning.attempts import (
    Attempts,
    describe_judge,
    describe_provisional,
    name_last_stage,
)
from stageb.guidance.learning.state import STOP, State
from stageb.guidance.rules.guidance_file import read_guidance
from stageb.guidance.rules.word_lists import find_deciding, find_word_lists
from stageb.guidance.tickets.splits import SPLITS, split_tickets
from stageb.guidance.words.costs import count_wrong, describe_classes, warn_of_constant
from stageb.guidance.words.labels import has_labels
from stageb.guidance.words.texts import count_of
from stageb.guidance.words.types import Guidance, Split, Ticket
from stageb.runs.figures import make_console, make_table, print_table
from stageb.runs.folder import RunFolder, RunScore
from stageb.store.journal import Journal, safe_name


def show(
    journal: Journal,
    config: LoopConfig,
    state: State,
    tickets: Sequence[Ticket],
    black_boxes: Mapping[str, BlackBox],
) -> None:
    """Print the summary on standard output; ``tickets`` are those of the run, ``black_boxes`` what
    models reach on test."""
    console = make_console()
    guidance = {name: mission.guidance for name, mission in state.missions.items()}
    print_table(console, tabulate(journal, guidance, list_unpaid(state)))
    for line in describe_by_class(journal, config, guidance):
        console.print(line)
    for mission, box in black_boxes.items():
        console.print(f"{mission}, test: {box.describe(config.price.by_label)}")
    applied = {
        mission: MissionFiles(journal, mission).list_attempts(learnt.step)
        for mission, learnt in guidance.items()
    }
    for mission, learnt in guidance.items():
        count, lists = len(find_deciding(learnt.rules)), len(find_word_lists(learnt.rules))
        named = f" with {count_of(lists, 'word list')}" if lists else ""
        said = (
            f"headline and {count_of(count, 'rule')}{named}, after "
            f"{describe_applied(applied[mission])}"
        )
        console.print(f"\n{mission}: {said}:")
        for rule in learnt.rules:
            console.print(f"  {rule.key}{rule.mark}. {rule.text}")
        for line in (
            *describe_provisional(learnt.rules),
            *describe_judge(learnt.judge, applied[mission]),
        ):
            console.print(f"  {line}")
        for line in warn_of_rules(journal, config, learnt, tickets) if count else ():
            console.print(f"  {line}")
        for line in advise_mission(journal, config, state, mission):
            console.print(line)
    console.print("")
    for line in describe_spending(state, sum(len(edits.settled) for edits in applied.values())):
        console.print(line)
    splits = split_tickets(tickets, config).values()
    console.print(
        describe_splits({split for split in SPLITS if any(each.of(split) for each in splits)})
    )
    console.print(f"Files: {journal.folder}")
    for mission in guidance:
        console.print(f"  {mission}: {journal.folder / safe_name(mission) / 'guidance.json'}")


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


def list_unpaid(state: State) -> dict[str, str]:
    """The missions that had spent their share of a budget before the model taught them anything,
    and what came of that."""
    return {
        name: f"{'learnt by code alone' if state.missions[name].unpaid else 'learnt nothing'}: "
        f"{key} spent"
        for name, key in state.over.items()
        if state.missions[name].unpaid or not state.missions[name].bundles
    }


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


def warn_of_rules(
    journal: Journal, config: LoopConfig, guidance: Guidance, tickets: Sequence[Ticket]
) -> Iterator[str]:
    """Warn of learnt rules before they are used: of those that were often wrong on val, and of
    those that the model does not apply as written."""
    mission, files = guidance.mission, RunFolder(journal.folder)
    yield from name_doubtful(
        mission, read_record(str(journal.folder), guidance, tickets), config.price.by_label
    )
    if config.runner.judge == "model":
        judged = collect_verdicts(
            files.read_committed(f"{safe_name(mission)}/selections.jsonl"), (), guidance.step
        )
        known = {(ticket.mission, ticket.key): ticket for ticket in tickets}
        yield from name_misread(mission, read_rules_as_code(files, guidance, judged, known, config))


def advise_mission(
    journal: Journal, config: LoopConfig, state: State, mission: str
) -> Iterator[str]:
    """Advise what to try next where a run has changed nothing of a mission's guidance."""
    files = MissionFiles(journal, mission)
    attempts = files.list_attempts()
    if not config.runner.epochs or attempts.accepted:
        return
    why = STOP if state.ended == STOP else state.over.get(mission, "")
    lines = list(advise(files.read("metrics.jsonl"), attempts, config, why))
    shown = len(state.missions[mission].guidance.shown)
    if shown:
        yield (
            f"  The model is shown {count_of(shown, 'train ticket')} with their verdicts, and "
            f"told no rule."
        )
    what = "No rule was learnt" if shown else "Nothing was learnt"
    yield f"  {what}: {name_last_stage(attempts)}.{' What to try next:' if lines else ''}"
    yield from (f"  - {line}" for line in lines)


def describe_applied(edits: Attempts) -> str:
    """Describe edits in words: ``2 accepted edits``."""
    accepted, provisional = len(edits.settled), len(edits.accepted) - len(edits.settled)
    if not provisional:
        return count_of(accepted, "accepted edit")
    kept = f"{count_of(provisional, 'edit')} kept as provisional"
    return f"{count_of(accepted, 'accepted edit')}, {kept}" if accepted else kept


def describe_splits(used: Collection[Split]) -> str:
    """Describe the use of each split; of one that is not ``used``, as it has no tickets, say what
    was not done for want of it."""
    chosen = (
        "Val chose the final ones."
        if "val" in used
        else "Without val none are chosen: the last ones stand."
    )
    served = (
        "Test was used for this table alone."
        if "test" in used
        else "Without test no figure is of sealed tickets."
    )
    return f"Rules were learnt from train tickets. {chosen} {served}"


def describe_spending(state: State, edits: int) -> list[str]:
    """Describe the cost of a run, all in all and for each of its accepted ``edits``, and what ended
    it."""
    lines = _describe_answers(state, edits)
    if state.ended == STOP:
        lines.append(
            "Learning was told to stop. To learn on, run the same command with a higher "
            "runner.epochs."
        )
    for key in dict.fromkeys(state.over.values()):
        names = [name for name, spent_on in state.over.items() if spent_on == key]
        of = f" of {', '.join(names)}" if len(names) < len(state.missions) else ""
        lines.append(
            f"Learning{of} ended at {key}. To learn on, run the same command with a higher one."
        )
    return lines


def _describe_answers(state: State, edits: int) -> list[str]:
    """Describe what the model was asked, and what rules as code spared it."""
    spent = state.spent
    asked = spent.rollouts + spent.judged
    if spent.saved and not asked + spent.tokens:
        return [f"Spent: no answer of a model; rules as code gave all {spent.saved:,}."]
    lines = [
        f"Spent: {spent.rollouts:,} rollouts, {spent.judged:,} verdicts for the gate, "
        f"{count_of(spent.reflections, 'reflection')}; {spent.tokens:,} tokens"
    ]
    if edits and asked:
        lines[0] += f". For each accepted edit {asked / edits:,.0f} rollouts and verdicts"
    if spent.saved:
        some = (
            f", about {spent.saved * spent.tokens // asked:,} tokens"
            if asked and spent.reflections <= len(state.missions)
            else ""
        )  # each took none
        lines.append(
            f"Rules as code spared the model {spent.saved:,} more rollouts and verdicts{some}."
        )
    return lines
