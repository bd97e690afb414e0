"""The result of a run as it ends: its accuracies, the learnt rules, what it took, what to try next,
and where the files are."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from stageb.guidance.commands.fit.accuracies import describe_by_class, tabulate
from stageb.guidance.commands.fit.advice import advise_mission
from stageb.guidance.commands.fit.artifacts import MissionFiles
from stageb.guidance.commands.report.read import collect_verdicts, read_rules_as_code
from stageb.guidance.commands.report.write import write_at_end
from stageb.guidance.commands.use.black_box import measure_on_test
from stageb.guidance.commands.use.record import name_doubtful, name_misread, read_record
from stageb.guidance.config import LoopConfig
from stageb.guidance.learning.attempts import Attempts, describe_judge, describe_provisional
from stageb.guidance.learning.state import STOP, State
from stageb.guidance.rules.word_lists import count_rules, shorten_list
from stageb.guidance.tickets.splits import SPLITS, split_tickets
from stageb.guidance.words.texts import count_of
from stageb.guidance.words.types import Guidance, Split, Ticket
from stageb.runs.figures import make_console, print_table
from stageb.runs.folder import RunFolder
from stageb.store.journal import Journal, safe_name


def show_result(
    journal: Journal, config: LoopConfig, state: State, tickets: Sequence[Ticket]
) -> None:
    """Print the summary on standard output, and write the report if it is wanted; ``tickets`` are
    those of the run. A report that fails does not fail the run."""
    black_boxes = measure_on_test(config, tickets) if config.report else {}
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
        (count, rules), after = count_rules(learnt.rules), describe_applied(applied[mission])
        console.print(f"\n{mission}: headline and {rules}, after {after}:")
        for rule in learnt.rules:
            console.print(f"  {rule.key}{rule.mark}. {shorten_list(rule.text)}")
        if any(rule.text != shorten_list(rule.text) for rule in learnt.rules):
            console.print(f"  All words of the lists: stageb guidance show {journal.folder}")
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
    if config.report:
        print(write_at_end(journal.folder, config, tickets, black_boxes), flush=True)


def list_unpaid(state: State) -> dict[str, str]:
    """The missions that had spent their share of a budget before the model taught them anything,
    and what came of that."""
    return {
        name: f"{'learnt by code alone' if state.missions[name].unpaid else 'learnt nothing'}: "
        f"{key} spent"
        for name, key in state.over.items()
        if state.missions[name].unpaid or not state.missions[name].bundles
    }


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
