"""``stageb automate``: find which tickets may be decided alone, under a bound on the errors among
them.

Labelled tickets that neither taught nor chose the rules are judged as ``predict`` judges them; what
they prove (``bounds.py``) becomes part of the guidance. By default they are the test tickets of a
run: nothing is learnt from those, and nothing chosen by them. Verdicts out of fold will not do:
each is by rules that other tickets taught, so they tell how good learning is, but not how good the
rules are that it ended with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from stageb.cli.parsing import from_keywords
from stageb.errors import ConfigError, InputError, shown
from stageb.guidance.commands.govern import shared
from stageb.guidance.commands.use.bounds import MissionBounds, find_mission_bounds, take_test
from stageb.guidance.commands.use.config import AutomateConfig, tickets_per_round
from stageb.guidance.commands.use.judged import JudgedRounds
from stageb.guidance.commands.use.predict import judge_outputs
from stageb.guidance.commands.use.rounds import Rounds
from stageb.guidance.commands.use.source import (
    find_tickets,
    load_guidance,
    read_run_config,
    stream_tickets,
)
from stageb.guidance.judging.automation import name_guidance
from stageb.guidance.rules.guidance_json import format_file
from stageb.guidance.rules.read_guidance import find_guidance_files, load_seed, split_step
from stageb.guidance.tickets.groups import join_equal
from stageb.guidance.words.types import Guidance
from stageb.runs.folder import is_finished
from stageb.store import disk
from stageb.store.output import read_rows


def automate(*, guidance: str, fresh: bool = False, **keys: Any) -> dict[str, MissionBounds]:
    """Find which tickets may be decided alone, by mission, as ``stageb automate`` does, and keep
    that with the guidance.

    ``keys`` are those of that command: ``tickets="labelled.csv"``, ``max_error=0.02``,
    ``confidence=0.95``, ...; ``config`` names YAML files of keys: one, or several of which later
    ones win. Raises ``stageb.StagebError`` if something cannot be used, or fails.
    """
    config: AutomateConfig = from_keywords("automate", {"guidance": guidance, **keys})
    found = dict[str, MissionBounds]()
    _run(config, fresh, found.update)
    return found


def main(config: AutomateConfig, fresh: bool) -> int:
    """The command; 1 where nothing can be promised of any mission. Raises ``InputError`` before any
    ticket is judged where something cannot be used."""
    found = dict[str, MissionBounds]()

    def show(bounds: Mapping[str, MissionBounds]) -> None:
        found.update(bounds)
        for mission, of in bounds.items():
            for said in of.describe():
                print(shown(f"{mission}: {said}", 400))
            if of.automation:
                print(
                    shown(
                        f"{mission}: kept with its rules, for predict and exports: "
                        f"{config.guidance}",
                        400,
                    )
                )
            if of.seen:
                print(
                    shown(
                        f"{mission}: {of.seen:,} tickets taught or chose its rules, and were "
                        f"left out"
                    )
                )

    _run(config, fresh, show)
    return int(bool(found) and not any(of.automation for of in found.values()))


def _run(
    config: AutomateConfig, fresh: bool, show: Callable[[Mapping[str, MissionBounds]], None]
) -> None:
    path = _check_source(config.guidance)
    guidance = {
        mission: replace(each, automation=None)
        for mission, each in load_guidance(config.guidance, config.prompt).items()
    }
    _check_limits(config, guidance)
    learnt = read_run_config(config.guidance)
    known, why = find_tickets(config.guidance, "--tickets FILE") if learnt else ((), "")
    places = None
    if not config.tickets:
        config, places = take_test(config, learnt, known, why)
    tickets = stream_tickets(config, places)
    rounds = Rounds(Path(config.output), tickets, tickets_per_round(config))
    judged = JudgedRounds(config, config.by, rounds, guidance, guidance, config.guidance)

    def finish() -> None:
        of_run = {ticket.place: ticket for ticket in known}
        lines = list(tickets.items())
        asked = join_equal([line.ticket for line in lines])
        if places is not None:  # their groups are those of the run
            asked = [of_run[f"{line.file}:{line.line}"] for line in lines]
        rows = list(zip(read_rows(rounds.path), asked, strict=True))
        there = {row["mission"] for row, _ in rows}
        bounded = {mission: each for mission, each in guidance.items() if mission in there}
        found = {
            name: find_mission_bounds(config, each, rows, known, judged.asked)
            for name, each in bounded.items()
        }
        _keep(path, config, guidance, found)
        show(found)

    judge_outputs(config, [judged], fresh, finish)


def _check_source(source: str) -> Path:
    """The run's folder, or the file, that the bounds are kept in. Raises ``InputError`` where they
    cannot be."""
    path, step = split_step(source)
    if step is not None:
        raise InputError(
            shown(
                f"{source}: bounds are kept with the guidance in use; promote this step, and "
                f"name that file"
            )
        )
    if not path.is_dir():
        # what is missing is told as everywhere
        return shared.resolve_target(source) if path.exists() else path
    if (path / "config.yaml").exists() and not is_finished(path):
        raise InputError(
            shown(
                f"{source}: this run is not finished, and may learn other rules yet; let it end "
                f"first"
            )
        )
    return path


def _check_limits(config: AutomateConfig, guidance: Mapping[str, Guidance]) -> None:
    if isinstance(config.max_error, dict):
        for verdict in config.max_error:
            known = [label for each in guidance.values() for label in each.labels]
            if verdict not in known:
                remedy = f"name verdicts of {', '.join(dict.fromkeys(known))}"
                raise ConfigError(
                    "max_error", config.max_error, f"nothing is judged {shown(verdict)!r}; {remedy}"
                )


def _keep(
    path: Path,
    config: AutomateConfig,
    guidance: Mapping[str, Guidance],
    found: Mapping[str, MissionBounds],
) -> None:
    """Write the bounds that were found beside the rules; others stay. Raises ``InputError`` where
    the rules are others by now, ``JournalError`` where the disk refuses."""
    kept = {mission: of.automation for mission, of in found.items() if of.automation}
    files = find_guidance_files(path) if path.is_dir() else [path]
    for file in files:
        content = load_seed(file)
        if any(
            name_guidance(each) != name_guidance(guidance[name]) for name, each in content.items()
        ):
            raise InputError(
                shown(
                    f"{file}: its rules have changed meanwhile; nothing was kept: run the "
                    f"command again"
                )
            )
        bounded = {
            name: replace(each, automation=kept.get(name, each.automation))
            for name, each in content.items()
        }
        if path.is_dir():
            disk.write(file, format_file(bounded.values()))
            continue
        for name in kept:
            source = shown(", ".join(config.tickets), 200)
            shared.apply_change(
                path,
                shared.GuidanceChange("bounded by", source, bounded[name], new=True),
                lambda *_: True,
            )
