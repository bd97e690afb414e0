"""What a run's files say, as of its last commit. Nothing is locked and nothing is written: the run may go on meanwhile.

Rows after the last commit are left out, since they will be written again. The guidance is not read but made again, from the
first one and the edits that were accepted: so it is that of the commit, and every step of it is known, whatever
``guidance.retention`` kept and whatever a person did to ``guidance.json`` since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stageb.errors import InputError
from stageb.guidance.attempts import Attempts, list_attempts
from stageb.guidance.config import LoopConfig
from stageb.guidance.files.artifacts import folder as folder_of
from stageb.guidance.files.guidance_file import from_json
from stageb.guidance.files.reflection_file import REFLECTION, parse_row
from stageb.guidance.files.run_tickets import read_same_tickets
from stageb.guidance.prompts import words_of
from stageb.guidance.report.history import GuidanceStep, replay
from stageb.guidance.report.verdicts import TicketVerdicts, collect_verdicts
from stageb.guidance.rules.scales import parse_scales
from stageb.guidance.types import Guidance, Ticket
from stageb.guidance.use.black_box import BlackBox, measure_on_test
from stageb.guidance.use.code import code_rules
from stageb.guidance.use.letter import compare_with_letter
from stageb.runs.folder import RunFolder, RunRow

NAMING = "stageb report RUN --tickets FILE ..."


@dataclass(frozen=True, slots=True)
class MissionReport:
    """One mission's part of a run."""

    name: str
    folder: str  # in the run's
    metrics: tuple[RunRow, ...]  # rows of metrics.jsonl
    steps: tuple[GuidanceStep, ...]  # the guidance as it grew; the first is what the mission started with
    final: int  # which of the steps is in force: the one that val chose, the last one while none is chosen
    is_chosen: bool  # whether val has chosen
    attempts: Attempts  # edits, accepted and not
    judged: TicketVerdicts  # how tickets were judged
    letter: Mapping[str, Any]  # what ``compare_with_letter`` says of the last val and test; empty where that is not known


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run, as far as its last commit."""

    folder: Path
    config: LoopConfig
    commits: int
    is_finished: bool
    ended: str  # the budget that ended learning; empty where none did
    spent: Mapping[str, int]  # rollouts, judged, reflections, tokens
    seconds: tuple[float, ...]  # between commits, all parts of an interrupted run together
    machine: RunRow  # run.json
    missions: tuple[MissionReport, ...]
    tickets: Mapping[tuple[str, str], Ticket]  # by mission and ticket_key; empty where they cannot be read any more
    no_tickets: str  # why; empty where they can
    black_boxes: Mapping[str, BlackBox]  # by mission, what a model that nobody can read reaches on test

    @property
    def is_audit(self) -> bool:
        """Whether the run only judges."""
        return self.config.jump_reflection


def read_run(
    folder: Path,
    config: LoopConfig,
    tickets: Sequence[Ticket] | None = None,
    named: Sequence[str] = (),
    black_boxes: Mapping[str, BlackBox] | None = None,
) -> RunReport:
    """The run in ``folder``. ``tickets`` are those that it read; None: they are read again, if they still are the
    same, from the files ``named`` by the user, if any are. ``black_boxes`` are measured where they are not given.

    Raises ``InputError`` where nothing is committed yet, ``JournalError`` where a file is cut, and errors of
    Python's own where one holds something else than a run writes.
    """
    files = RunFolder(folder)
    if not files.commit["number"]:
        raise InputError(f"{folder}: nothing is committed yet, so there is nothing to report; run it, or let it run")
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
        spent=state["spent"],
        seconds=tuple(row["seconds"] for row in files.read_notes("timings.jsonl")),
        machine=files.read_machine(),
        missions=tuple(_read_mission(files, first, known, config) for first in shaping["first_guidance"]),
        tickets=known,
        no_tickets=why,
        black_boxes=measure_on_test(config, tickets) if black_boxes is None else black_boxes,
    )


def _read_mission(
    files: RunFolder, first: Mapping[str, Any], tickets: Mapping[tuple[str, str], Ticket], config: LoopConfig
) -> MissionReport:
    [(name, start)] = from_json(first, "commit.json").items()
    place = folder_of(name)

    def rows(file: str) -> Iterator[RunRow]:
        return files.read_committed(f"{place}/{file}")

    reflections = list(map(parse_row, rows(REFLECTION)))
    steps = replay(start, reflections)
    chosen = next((row["guidance_step"] for row in rows("choice.jsonl") if row["chosen"]), None)
    final = next((i for i, step in enumerate(steps) if step.guidance.step == chosen), len(steps) - 1)
    final_guidance = steps[final].guidance
    judged = collect_verdicts(rows("selections.jsonl"), rows("trajectories.jsonl"), final_guidance.step)
    return MissionReport(
        name=name,
        folder=place,
        metrics=tuple(rows("metrics.jsonl")),
        steps=steps,
        final=final,
        is_chosen=chosen is not None,
        attempts=list_attempts(reflections),
        judged=judged,
        letter=read_letter(files, final_guidance, judged, tickets, config),
    )


def read_letter(
    files: RunFolder,
    guidance: Guidance,
    judged: TicketVerdicts,
    tickets: Mapping[tuple[str, str], Ticket],
    config: LoopConfig,
) -> Mapping[str, Any]:
    """What ``compare_with_letter`` says of a mission's last val and test; empty where ``tickets`` are not known."""
    name, held_out = (
        guidance.mission,
        {(each.split, each.epoch) for each in judged.held_out if each.steps == {guidance.step}},
    )

    def judged_tickets() -> Iterator[tuple[RunRow, Ticket]]:
        for row in files.read_committed(f"{folder_of(name)}/selections.jsonl"):
            ticket = tickets.get((name, row["ticket_key"]))
            if ticket and (row["split"], row["epoch"]) in held_out:
                yield row, ticket

    scales = parse_scales(config.reflection.scales or ())
    coded = code_rules({name: guidance}, tickets.values(), words_of(config.prompt, config.model), scales)
    letter: Mapping[str, Any] = compare_with_letter(judged_tickets, coded, config.runner.judge == "model").get(name, {})
    return letter
