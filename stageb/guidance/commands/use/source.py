"""What commands work with: guidance that was learnt or written, and tickets to judge, as they stand in their files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from stageb.cli.draft import defaults
from stageb.cli.parsing import parse_run
from stageb.errors import ConfigError, InputError, shown
from stageb.guidance.commands.use.code import list_read_files
from stageb.guidance.commands.use.config import EvaluateConfig, PricesConfig, UseConfig, list_ticket_files, list_vocabulary
from stageb.guidance.learning.gate.judge import digest
from stageb.guidance.rules.guidance_file import read_guidance, split_step
from stageb.guidance.rules.prompts import words_of
from stageb.guidance.tickets.images import attach_images
from stageb.guidance.tickets.tickets import Entry, TicketStream, claim_place
from stageb.guidance.words.config import LoopConfig, PromptConfig, SamplerConfig
from stageb.guidance.words.types import UNKNOWN, Guidance, Ticket, Verdict
from stageb.store import trust
from stageb.untrusted.strict_json import FaultError

OF_RUN = ("seed", "prompt", "model", "sampler", "selection", "manual_review")


def inherit_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """What the run that ``values["guidance"]`` names gives in the place of defaults, as far as a folder may; nothing of a
    file.

    Raises ``InputError`` where the folder holds a run of another loop, or cannot be read.
    """
    folder, _ = split_step(values["guidance"])
    if not values["guidance"] or not (folder / "config.yaml").exists():
        return {}
    asked = parse_run(folder)
    if not isinstance(asked.config, LoopConfig):
        raise InputError(f"{shown(str(folder))}: a run of loop {asked.loop}, which learns no guidance; name another run")
    plain = asdict(asked.config)
    plain["sampler"]["reasons"] = SamplerConfig.reasons  # a run need not read what people want to
    taken = trust.take_data(str(folder), {name: plain[name] for name in OF_RUN}, LoopConfig, defaults(LoopConfig))
    if "gate" in values:
        gate = asked.config.gating
        taken["gate"] = asdict(PricesConfig(gate.fp_weight, gate.fn_weight))
    return {**taken, "by": asked.config.runner.judge}


def load_guidance(source: str, prompt: PromptConfig, key: str = "guidance") -> dict[str, Guidance]:
    """Every mission's guidance that ``source`` names, as ``read_guidance`` reads it; ``key`` is where the config names it.

    Raises ``ConfigError`` where there is none, ``InputError`` where it cannot be used.
    """
    if not split_step(source)[0].exists():
        raise ConfigError(key, source, "there is no such file or folder; name a run's folder or a guidance.json")
    return read_guidance(source, words=words_of(prompt))


def fingerprint_guidance(guidance: Mapping[str, Guidance]) -> dict[str, str]:
    """A short name for what each mission's guidance tells a model."""
    return {mission: f"step {each.step}, {digest(each)}" for mission, each in guidance.items()}


@dataclass(frozen=True, slots=True)
class TicketLine:
    """One ticket to judge, and where it stands."""

    file: str  # as the user named it
    line: int  # from 1
    ticket: Ticket  # without its label: it plays no part in how a ticket is judged
    label: Verdict | None  # where the file tells


def stream_tickets(config: UseConfig) -> TicketStream[TicketLine]:
    """The tickets that a config names. To evaluate, each needs a label."""
    labelled = isinstance(config, EvaluateConfig)

    def read(file: str, entry: Entry) -> TicketLine:
        ticket = attach_images(entry.ticket(labelled), file, config.sampler.use_images)
        return TicketLine(file, entry.line, replace(ticket, label=UNKNOWN) if ticket.label else ticket, ticket.label or None)

    return TicketStream(list_ticket_files(config), read, config.columns, labelled)


def list_inputs(config: UseConfig) -> dict[str, list[str]]:
    """The files that a config has read, by what they hold."""
    found = {"tickets": [*list_ticket_files(config)], "vocabulary": [*list_vocabulary(config)]}
    compared = config.compare if isinstance(config, EvaluateConfig) else None
    for source in (config.guidance, compared):
        for what, files in list_read_files(source).items() if source else ():
            found[what] = [*found.get(what, []), *files]
    return found


def make_check(missions: Collection[str], once: bool) -> Callable[[TicketLine], None]:
    """What raises ``FaultError`` for a ticket of none of the ``missions`` and, where each may come ``once`` alone, for one
    that came before."""
    places: dict[tuple[str, str], str] = {}

    def check(line: TicketLine) -> None:
        if line.ticket.mission not in missions:
            what = f"mission {line.ticket.mission!r}, for which there is no guidance"
            known = shown(", ".join(sorted(missions)), 400) or "none"  # there may be thousands
            raise FaultError(what, f"there is some for {known}; leave the others out")
        if once and line.label:
            claim_place(replace(line.ticket, label=line.label), f"{line.file}:{line.line}", places)

    return check


def group_by_mission(lines: Sequence[TicketLine]) -> Mapping[str, list[int]]:
    """Positions of the lines of each mission, missions in order of first appearance."""
    found: dict[str, list[int]] = {}
    for position, line in enumerate(lines):
        found.setdefault(line.ticket.mission, []).append(position)
    return found
