"""A run's files, as of its last commit: how its tickets were judged, and how its guidance grew.

Nothing is locked and nothing is written: the run may go on meanwhile.

Rows after the last commit are left out, since they will be written again. The guidance is not read
but made again (``lineage.py``): so it is that of the commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stageb.errors import InputError
from stageb.guidance.commands.report.lineage import GuidanceStep, replay
from stageb.guidance.commands.use.black_box import BlackBox, measure_on_test
from stageb.guidance.commands.use.record import compare_with_code
from stageb.guidance.config import LoopConfig
from stageb.guidance.judging.automation import name_guidance
from stageb.guidance.judging.coded import code_rules
from stageb.guidance.learning.attempts import Attempts, list_attempts
from stageb.guidance.learning.reflection_file import REFLECTION, SizeEntry, parse_row
from stageb.guidance.rules.guidance_json import from_json
from stageb.guidance.rules.prompts import words_of
from stageb.guidance.rules.read_guidance import load_seed
from stageb.guidance.tickets.splits import SPLITS
from stageb.guidance.tickets.tickets import read_same_tickets
from stageb.guidance.words.automation import Automation
from stageb.guidance.words.costs import measure_interval, measure_ratio
from stageb.guidance.words.types import Guidance, Ticket
from stageb.runs.folder import RunFolder, RunRow
from stageb.store.journal import safe_name
from stageb.store.trust import file_of

# How a mission's tickets were judged: confusion, agreement, and the tickets that it gets most
# wrong.
#
# Rows are read once, one after the other; what is kept grows with the tickets, not with the epochs.

WORST = 50  # tickets kept, at the most, of which a page shows fewer


@dataclass(slots=True)
class VerdictCounts:
    """The verdicts on a split's tickets in one epoch."""

    split: str
    epoch: int
    steps: set[int] = field(default_factory=set)  # guidance steps that they were given under
    # (label, verdict) -> tickets
    verdicts: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    # (share that agrees, right) -> tickets
    agreement: Counter[tuple[float, bool]] = field(default_factory=Counter)

    def add(self, row: RunRow) -> None:
        """One more ticket."""
        self.steps.add(row["guidance_step"])
        self.verdicts[row["label"], row["verdict"]] += 1
        if row["verdict"] is not None:
            self.agreement[round(row["vote_strength"], 2), row["label_match"]] += 1

    @property
    def tickets(self) -> int:
        """All of them."""
        return self.verdicts.total()


@dataclass(frozen=True, slots=True)
class WrongTicket:
    """How often a ticket was judged wrong, and how it was judged last: under the guidance in force,
    where it was."""

    row: RunRow  # of selections.jsonl
    judged: int  # times
    wrong: int  # times
    candidates: tuple[RunRow, ...] = ()  # of trajectories.jsonl


@dataclass(frozen=True, slots=True)
class AgreementLevel:
    """Tickets on which an equal share of answers agreed."""

    agreement: float
    right: int
    wrong: int

    @property
    def interval(self) -> list[float] | None:
        """Of the share that is right, 95 %."""
        return measure_interval(self.right, self.right + self.wrong)

    @property
    def accuracy(self) -> float | None:
        """The share that is right."""
        return measure_ratio(self.right, self.right + self.wrong)


@dataclass(frozen=True, slots=True)
class TicketVerdicts:
    """Rows of selections.jsonl and trajectories.jsonl of a mission."""

    # one per split, under the guidance in force where it was judged under that
    counts: tuple[VerdictCounts, ...]
    present: int  # tickets that were judged under the guidance in force
    wrong: int  # of these, judged wrong
    stale: int  # judged wrong, and under earlier guidance alone
    worst: tuple[
        WrongTicket, ...
    ]  # of ``wrong``, of ``stale`` where none was judged under the guidance in force; worst first

    @property
    def held_out(self) -> list[VerdictCounts]:
        """The counts of val and test."""
        return [count for count in self.counts if count.split != "train"]

    @property
    def levels(self) -> list[AgreementLevel]:
        """Agreement over val and test, over train where neither was judged; the least agreement
        first."""
        counts = self.held_out or self.counts
        total = sum((count.agreement for count in counts), Counter[tuple[float, bool]]())
        levels = sorted({level for level, _ in total})
        return [AgreementLevel(level, total[level, True], total[level, False]) for level in levels]


def collect_verdicts(
    selections: Iterable[RunRow], trajectories: Iterable[RunRow], final_step: int
) -> TicketVerdicts:
    """How a mission's tickets were judged. ``final_step`` is the step of the guidance in force;
    rows come in file order."""
    counts: dict[tuple[str, int], VerdictCounts] = {}
    latest: dict[str, WrongTicket] = {}
    for row in selections:
        counts.setdefault(
            (row["split"], row["epoch"]), VerdictCounts(row["split"], row["epoch"])
        ).add(row)
        known = latest.get(row["ticket_key"])
        times, off = (known.judged, known.wrong) if known else (0, 0)
        stays = known and known.row["guidance_step"] == final_step != row["guidance_step"]
        kept = known.row if known and stays else row
        latest[row["ticket_key"]] = WrongTicket(kept, times + 1, off + (not row["label_match"]))
    final = []
    for split in SPLITS:
        of_split = [count for count in counts.values() if count.split == split]
        final += [count for count in of_split if count.steps == {final_step}][-1:] or of_split[-1:]
    present = [each for each in latest.values() if each.row["guidance_step"] == final_step]
    stale = [
        each
        for each in latest.values()
        if each.row["guidance_step"] != final_step and not each.row["label_match"]
    ]
    wrong = [each for each in present if not each.row["label_match"]]
    ranked = sorted(
        wrong if present else stale,
        key=lambda each: (-each.wrong, -each.row["vote_strength"], each.row["ticket_key"]),
    )
    worst = _add_candidates(ranked[:WORST], trajectories)
    return TicketVerdicts(tuple(final), len(present), len(wrong), len(stale), worst)


def _add_candidates(
    worst: list[WrongTicket], trajectories: Iterable[RunRow]
) -> tuple[WrongTicket, ...]:
    wanted: dict[tuple[str, int, str], list[RunRow]] = {_place(each.row): [] for each in worst}
    if wanted:
        for row in trajectories:
            if (place := _place(row)) in wanted:
                wanted[place].append(row)
    return tuple(replace(each, candidates=tuple(wanted[_place(each.row)])) for each in worst)


def _place(row: RunRow) -> tuple[str, int, str]:
    return row["ticket_key"], row["epoch"], row["split"]


NAMING = "stageb report RUN --tickets FILE ..."


@dataclass(frozen=True, slots=True)
class MissionReport:
    """One mission's part of a run."""

    name: str
    folder: str  # in the run's
    metrics: tuple[RunRow, ...]  # rows of metrics.jsonl
    # the guidance as it grew; the first is what the mission started with
    steps: tuple[GuidanceStep, ...]
    # which of the steps is in force: the one that val chose, the last one while none is chosen
    final: int
    is_chosen: bool  # whether val has chosen
    attempts: Attempts  # edits, accepted and not
    sizes: tuple[SizeEntry, ...]  # what code learns at once in other sizes; empty where nothing is
    judged: TicketVerdicts  # how tickets were judged
    # what ``compare_with_code`` says of the last val and test; empty where nobody knows
    rules_as_code: Mapping[str, Any]
    automation: Automation | None  # what was promised since of the rules in force


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run, as far as its last commit."""

    folder: Path
    config: LoopConfig
    commits: int
    is_finished: bool
    # the first budget that ended the learning of a mission, or that all were told to stop; else
    # empty
    ended: str
    over: Mapping[str, str]  # mission that had spent its share of a budget -> which
    spent: Mapping[str, int]  # rollouts, judged, reflections, tokens
    seconds: tuple[float, ...]  # between commits, all parts of an interrupted run together
    machine: RunRow  # run.json
    missions: tuple[MissionReport, ...]
    # by mission and ticket_key; empty where they cannot be read any more
    tickets: Mapping[tuple[str, str], Ticket]
    no_tickets: str  # why; empty where they can
    # by mission, what a model that nobody can read reaches on test
    black_boxes: Mapping[str, BlackBox]


def read_run(
    folder: Path,
    config: LoopConfig,
    tickets: Sequence[Ticket] | None = None,
    named: Sequence[str] = (),
    black_boxes: Mapping[str, BlackBox] | None = None,
) -> RunReport:
    """The run in ``folder``. ``tickets`` are those that it read; None: they are read again, if they
    still are the same, from the files ``named`` by the user, if any are. ``black_boxes`` are
    measured where they are not given.

    Raises ``InputError`` where nothing is committed yet, ``JournalError`` where a file is cut, and
    errors of Python's own where one holds something else than a run writes.
    """
    files = RunFolder(folder)
    if not files.commit["number"]:
        raise InputError(
            f"{folder}: nothing is committed yet, so there is nothing to report; run it, or let "
            f"it run"
        )
    state, shaping = files.commit["state"], files.commit["config"]
    why = ""
    if tickets is None:
        tickets, why = read_same_tickets(folder, config, str(shaping.get("tickets")), NAMING, named)
    known = {(ticket.mission, ticket.key): ticket for ticket in tickets}
    return RunReport(
        folder=folder,
        config=config,
        commits=files.commit["number"],
        is_finished=state["finished"],
        ended=state["ended"],
        over=state["over"],
        spent=state["spent"],
        seconds=tuple(row["seconds"] for row in files.read_notes("timings.jsonl")),
        machine=files.read_machine(),
        missions=tuple(
            _read_mission(files, first, known, config) for first in shaping["first_guidance"]
        ),
        tickets=known,
        no_tickets=why,
        black_boxes=measure_on_test(config, tickets) if black_boxes is None else black_boxes,
    )


def _read_mission(
    files: RunFolder,
    first: Mapping[str, Any],
    tickets: Mapping[tuple[str, str], Ticket],
    config: LoopConfig,
) -> MissionReport:
    [(name, start)] = from_json(first, "commit.json").items()
    place = safe_name(name)

    def rows(file: str) -> Iterator[RunRow]:
        return files.read_committed(f"{place}/{file}")

    reflections = list(map(parse_row, rows(REFLECTION)))
    steps = replay(start, reflections)
    chosen = next((row["guidance_step"] for row in rows("choice.jsonl") if row["chosen"]), None)
    final = next(
        (i for i, step in enumerate(steps) if step.guidance.step == chosen), len(steps) - 1
    )
    final_guidance = steps[final].guidance
    judged = collect_verdicts(
        rows("selections.jsonl"), rows("trajectories.jsonl"), final_guidance.step
    )
    return MissionReport(
        name=name,
        folder=place,
        metrics=tuple(rows("metrics.jsonl")),
        steps=steps,
        final=final,
        is_chosen=chosen is not None,
        attempts=list_attempts(reflections),
        sizes=next((row.sizes for row in reversed(reflections) if row.sizes), ()),
        judged=judged,
        rules_as_code=read_rules_as_code(files, final_guidance, judged, tickets, config),
        automation=_read_automation(files, final_guidance),
    )


def _read_automation(files: RunFolder, final: Guidance) -> Automation | None:
    """The promise of guidance.json on the rules in force; None where it holds others, or promises
    nothing."""
    path = file_of(files.path, files.path / safe_name(final.mission) / "guidance.json")
    kept = load_seed(path).get(final.mission) if path.exists() else None
    if kept is None or kept.automation is None or kept.automation.guidance != name_guidance(kept):
        return None
    is_same = [rule.text for rule in kept.rules] == [rule.text for rule in final.rules]
    return kept.automation if is_same else None


def read_rules_as_code(
    files: RunFolder,
    guidance: Guidance,
    judged: TicketVerdicts,
    tickets: Mapping[tuple[str, str], Ticket],
    config: LoopConfig,
) -> Mapping[str, Any]:
    """Compare a mission's last val and test with its rules as code; empty where ``tickets`` are not
    known."""
    name = guidance.mission
    held_out = {
        (each.split, each.epoch) for each in judged.held_out if each.steps == {guidance.step}
    }
    judged_tickets = (
        (row, ticket)
        for row in files.read_committed(f"{safe_name(name)}/selections.jsonl")
        if (row["split"], row["epoch"]) in held_out
        and (ticket := tickets.get((name, row["ticket_key"])))
    )
    coded = code_rules({name: guidance}, tickets.values(), words_of(config.prompt, config.model))
    rules_as_code: Mapping[str, Any] = compare_with_code(
        judged_tickets, coded, config.runner.judge == "model"
    ).get(name, {})
    return rules_as_code
