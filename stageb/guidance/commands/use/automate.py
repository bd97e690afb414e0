"""``stageb automate``: find which tickets may be decided alone, under a bound on the errors among them.

Labelled tickets that neither taught nor chose the rules are judged as ``predict`` judges them; what they prove
(``judging/automation.py``) becomes part of the guidance. By default they are the test tickets of a run: nothing is learnt
from those, and nothing chosen by them. Verdicts out of fold will not do: each is by rules that other tickets taught, so
they tell how good learning is, but not how good the rules are that it ended with.

The pilot are the run's train tickets where rules alone judge. They flatter the rules, which is no harm, since they only say
which verdicts to try first. Elsewhere it is a part of the labelled tickets, drawn by the name of their group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stageb.cli import commands
from stageb.cli.parsing import from_keywords
from stageb.errors import ConfigError, InputError, shown
from stageb.guidance.commands.govern import shared
from stageb.guidance.commands.use.config import AutomateConfig, tickets_per_round
from stageb.guidance.commands.use.judged import JudgedRounds
from stageb.guidance.commands.use.predict import judge_all, judge_by_rules, look_ahead
from stageb.guidance.commands.use.rounds import Rounds
from stageb.guidance.commands.use.source import (
    CodeJudge,
    code_rules,
    find_tickets,
    fingerprint_guidance,
    load_guidance,
    read_run_config,
    stream_tickets,
)
from stageb.guidance.config import LoopConfig
from stageb.guidance.judging.automation import (
    BoundSearch,
    Judged,
    count_more,
    divide_level,
    find_bounds,
    find_decider,
    name_guidance,
    name_judge,
)
from stageb.guidance.rules.guidance_file import find_guidance_files, format_file, load_seed, split_step
from stageb.guidance.rules.predicates import measure_margin
from stageb.guidance.rules.prompts import words_of
from stageb.guidance.tickets.groups import join_equal, name_content
from stageb.guidance.tickets.splits import split_tickets
from stageb.guidance.words.automation import MODEL, Automation, write_share
from stageb.guidance.words.types import HEADLINE_KEY, Guidance, Ticket, Verdict
from stageb.job import lifetime
from stageb.runs.folder import is_finished
from stageb.seeds import stream, uniform
from stageb.store import disk
from stageb.store.output import read_rows

if TYPE_CHECKING:
    from stageb.job.world import World  # torch

PILOT = 0.2  # of the groups, where the train tickets of a run cannot be the pilot
NO_TEST = "this run held out no test tickets; give labelled ones that neither taught nor chose its rules: --tickets FILE"


@dataclass(frozen=True)
class MissionBounds:
    """What was found for a mission."""

    automation: Automation | None  # None: nothing can be promised
    searches: Mapping[Verdict, BoundSearch]  # by the verdict that was asked about; empty: all of them
    limits: Mapping[Verdict, float]  # as ``searches``: the errors that were allowed
    more: Mapping[Verdict, int | None]  # of what was not found: about how many more tickets would do; None: no number would
    seen: int  # tickets left out, since they taught or chose the rules
    groups: int  # that tested the bounds

    def describe(self) -> Iterator[str]:
        """A line for what is promised, and one for each bound that is not."""
        if self.automation:
            counts = [(each.decided, each.wrong) for each in self.automation.bounds]
            decided, wrong = (sum(each) for each in zip(*counts, strict=True))
            yield f"{self.automation.describe()}; of {self.groups:,} it decided {decided:,}, {wrong:,} of them wrongly"
        for verdict, found in self.searches.items():
            if found.bound is None:
                limit, of = write_share(self.limits[verdict]), f" of those judged {verdict}" if verdict else ""
                count = self.more[verdict]
                more = f"about {count:,} more labelled tickets would do" if count else "more tickets would not do"
                are = "is" if found.wrong == 1 else "are"
                tried = f"{found.wrong:,} of the {found.decided:,} surest verdicts of {self.groups:,} tickets {are} wrong"
                yield f"cannot promise {limit}{of}: {more} ({tried})"


def automate(*, guidance: str, fresh: bool = False, **keys: Any) -> dict[str, MissionBounds]:
    """Find which tickets may be decided alone, by mission, as ``stageb automate`` does, and keep that with the guidance.

    ``keys`` are those of that command: ``tickets="labelled.csv"``, ``max_error=0.02``, ``confidence=0.95``, ...; ``config``
    names YAML files of keys: one, or several of which later ones win. Raises ``stageb.StagebError`` if something
    cannot be used, or fails.
    """
    config: AutomateConfig = from_keywords("automate", commands.tools()["automate"], {"guidance": guidance, **keys})
    found = dict[str, MissionBounds]()
    _run(config, fresh, found.update)
    return found


def main(config: AutomateConfig, resolved_yaml: str, fresh: bool) -> int:
    """The command; 1 where nothing can be promised of any mission. Raises ``InputError`` before any ticket is judged where
    something cannot be used."""
    found = dict[str, MissionBounds]()

    def show(bounds: Mapping[str, MissionBounds]) -> None:
        found.update(bounds)
        for mission, of in bounds.items():
            for said in of.describe():
                print(shown(f"{mission}: {said}", 400))
            if of.automation:
                print(shown(f"{mission}: kept with its rules, for predict and exports: {config.guidance}", 400))
            if of.seen:
                print(shown(f"{mission}: {of.seen:,} tickets taught or chose its rules, and were left out"))

    _run(config, fresh, show)
    return int(bool(found) and not any(of.automation for of in found.values()))


def _run(config: AutomateConfig, fresh: bool, show: Callable[[Mapping[str, MissionBounds]], None]) -> None:
    path = _check_source(config.guidance)
    guidance = {
        mission: replace(each, automation=None) for mission, each in load_guidance(config.guidance, config.prompt).items()
    }
    _check_limits(config, guidance)
    learnt = read_run_config(config.guidance)
    known, why = find_tickets(config.guidance, (), None, "--tickets FILE") if learnt else ((), "")
    places = None
    if not config.tickets:
        config, places = _take_test(config, learnt, known, why)
    tickets = stream_tickets(config, places)
    rounds = Rounds(Path(config.output), tickets, tickets_per_round(config))
    judged = JudgedRounds(config, config.by, rounds, guidance, guidance, config.guidance)
    count = look_ahead(judged, fresh)

    def finish() -> None:
        of_run = {ticket.place: ticket for ticket in known}
        lines = list(tickets.items())
        asked = join_equal([line.ticket for line in lines])
        if places is not None:  # their groups are those of the run
            asked = [of_run[f"{line.file}:{line.line}"] for line in lines]
        rows = list(zip(read_rows(rounds.path), asked, strict=True))
        there = {row["mission"] for row, _ in rows}
        bounded = {mission: each for mission, each in guidance.items() if mission in there}
        found = {mission: _find(config, each, rows, known, judged.asked) for mission, each in bounded.items()}
        _keep(path, config, guidance, found)
        show(found)

    if config.by == "rules":
        if lifetime.leads():
            judge_by_rules(judged, fresh)
            finish()
        return

    from stageb.guidance.commands.use.ranks import JudgingRanks, launch  # torch

    def on_rank(world: World) -> int:
        world.agree("the guidance", repr(fingerprint_guidance(guidance)))
        judge_all(world, JudgingRanks(config, world), judged, fresh)
        if world.is_global_zero:
            finish()
        return 0

    launch(config, count, on_rank)


def _check_source(source: str) -> Path:
    """The run's folder, or the file, that the bounds are kept in. Raises ``InputError`` where they cannot be."""
    path, step = split_step(source)
    if step is not None:
        raise InputError(shown(f"{source}: bounds are kept with the guidance in use; promote this step, and name that file"))
    if not path.is_dir():
        return shared.resolve_target(source) if path.exists() else path  # what is missing is told as everywhere
    if (path / "config.yaml").exists() and not is_finished(path):
        raise InputError(shown(f"{source}: this run is not finished, and may learn other rules yet; let it end first"))
    return path


def _check_limits(config: AutomateConfig, guidance: Mapping[str, Guidance]) -> None:
    if isinstance(config.max_error, dict):
        for verdict in config.max_error:
            known = [label for each in guidance.values() for label in each.labels]
            if verdict not in known:
                remedy = f"name verdicts of {', '.join(dict.fromkeys(known))}"
                raise ConfigError("max_error", config.max_error, f"nothing is judged {shown(verdict)!r}; {remedy}")


def _take_test(
    config: AutomateConfig, learnt: LoopConfig | None, known: Sequence[Ticket], why: str
) -> tuple[AutomateConfig, frozenset[str]]:
    """The config with the ticket files of the run, and where its test tickets stand in them. Raises ``InputError``."""
    if learnt is None or not known:
        why = why or "a file of guidance has no test tickets; give labelled ones: --tickets FILE"
        raise InputError(shown(f"{config.guidance}: {why}", 400))
    splits = split_tickets(known, learnt)
    places = frozenset(known[i].place for each in splits.values() for i in each.test)
    if not places:
        raise InputError(shown(f"{config.guidance}: {NO_TEST}", 400))
    return replace(config, tickets=learnt.files, columns=learnt.columns), places


def _find(
    config: AutomateConfig,
    guidance: Guidance,
    rows: Sequence[tuple[Mapping[str, Any], Ticket]],
    known: Sequence[Ticket],
    asked: str,
) -> MissionBounds:
    """The bounds of a mission, by ``rows`` of predictions with their tickets; ``known`` are those of the run."""
    mission, seen = guidance.mission, guidance.taught_by | guidance.chosen_by
    mine = [(row, ticket) for row, ticket in rows if row["mission"] == mission]
    new = [(row, ticket) for row, ticket in mine if name_content(ticket) not in seen]
    tested = _draw_one_each(new, config.seed, mission)
    pilot = _judge_train(config, guidance, known) if all(row["by"] != MODEL for row, _ in mine) else []
    if not pilot:
        pilot = [each for group, each in tested.items() if _is_pilot(config.seed, mission, group)]
        tested = {group: each for group, each in tested.items() if not _is_pilot(config.seed, mission, group)}
    given = config.max_error
    limits = given if isinstance(given, dict) else {"": given}
    limits = {verdict: limit for verdict, limit in limits.items() if verdict in ("", *guidance.labels)}
    searches = find_bounds(pilot, list(tested.values()), limits, config.confidence)
    bounds = tuple(found.bound for found in searches.values() if found.bound)
    automation = None
    if bounds:
        by, is_asked = name_judge(config.by, guidance), any(MODEL in each.least for each in bounds)
        name = name_guidance(guidance)
        automation = Automation(config.confidence, name, by, asked if is_asked else "", len(tested), bounds)
    level = divide_level(config.confidence, limits)
    asked_for = [verdict for verdict, of in searches.items() if of.bound is None]
    more = {verdict: count_more(pilot, list(tested.values()), verdict, limits[verdict], level) for verdict in asked_for}
    return MissionBounds(automation, searches, limits, more, len(mine) - len(new), len(tested))


def _draw_one_each(rows: Sequence[tuple[Mapping[str, Any], Ticket]], seed: int, mission: str) -> dict[str, Judged]:
    """By group, one of its tickets."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row, ticket in rows:
        groups.setdefault(ticket.group, []).append(row)
    drawn = {group: of[int(len(of) * uniform(stream(seed, "automate", mission, group), 0))] for group, of in groups.items()}
    return {
        group: Judged(*find_decider(row), None if row["review"] else row["verdict"], row["verdict"] == row["label"])
        for group, row in drawn.items()
    }


def _is_pilot(seed: int, mission: str, group: str) -> bool:
    return uniform(stream(seed, "pilot", mission, group), 0) < PILOT


def _judge_train(config: AutomateConfig, guidance: Guidance, known: Sequence[Ticket]) -> list[Judged]:
    """The tickets that taught the rules, as these judge them as code; none where those of the run are not known."""
    mine = [ticket for ticket in known if ticket.mission == guidance.mission]
    judge = CodeJudge(code_rules({guidance.mission: guidance}, mine, words_of(config.prompt, config.model)))
    taught = [ticket for ticket in mine if name_content(ticket) in guidance.taught_by]
    rulings = [(judge.judge(ticket), ticket.label) for ticket in taught]
    return [
        Judged(ruling.rule, measure_margin(ruling, HEADLINE_KEY), ruling.verdict, ruling.verdict == label)
        for ruling, label in rulings
    ]


def _keep(path: Path, config: AutomateConfig, guidance: Mapping[str, Guidance], found: Mapping[str, MissionBounds]) -> None:
    """Write the bounds that were found beside the rules; others stay. Raises ``InputError`` where the rules are others by
    now, ``JournalError`` where the disk refuses."""
    kept = {mission: of.automation for mission, of in found.items() if of.automation}
    files = find_guidance_files(path) if path.is_dir() else [path]
    for file in files:
        content = load_seed(file)
        if any(name_guidance(each) != name_guidance(guidance[name]) for name, each in content.items()):
            raise InputError(shown(f"{file}: its rules have changed meanwhile; nothing was kept: run the command again"))
        bounded = {name: replace(each, automation=kept.get(name, each.automation)) for name, each in content.items()}
        if path.is_dir():
            disk.write(file, format_file(bounded.values()))
            continue
        for name in kept:
            source = shown(", ".join(config.tickets), 200)
            shared.apply_change(path, shared.GuidanceChange("bounded by", source, bounded[name], new=True), lambda *_: True)
