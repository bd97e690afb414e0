"""Sources of commands: guidance, its rules as code, and tickets, as they stand in their files."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from stageb.cli.draft import defaults
from stageb.cli.parsing import parse_run
from stageb.errors import BadInputError, BadLine, ConfigError, InputError, shown
from stageb.guidance.commands.use.config import EvaluateConfig, UseConfig
from stageb.guidance.config import LoopConfig, PromptConfig, SamplerConfig
from stageb.guidance.learning.gate.judge import digest
from stageb.guidance.rules.guidance_file import read_guidance, split_step
from stageb.guidance.rules.prompts import words_of
from stageb.guidance.rules.rules_file import history_path
from stageb.guidance.tickets.images import attach_images
from stageb.guidance.tickets.stream import TicketStream
from stageb.guidance.tickets.tickets import (
    Entry,
    claim_place,
    name_strange_label,
    read_entries,
    read_same_tickets,
)
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.costs import EQUAL, Prices
from stageb.guidance.words.types import PASS_FAIL, UNKNOWN, Guidance, Ticket, Verdict
from stageb.runs.folder import RunFolder
from stageb.store import trust
from stageb.untrusted.strict_json import FaultError, short

USUAL = ColumnsConfig()
OF_A_FILE = (
    "a file of guidance does not tell which names and values its rules speak of; name "
    "ticket files that do: {}"
)


def find_tickets(
    source: str, naming: str = "", named: Sequence[str] = (), columns: ColumnsConfig = USUAL
) -> tuple[Sequence[Ticket], str]:
    """Tickets with what the rules of ``source`` speak of: those of the files ``named``, or those
    that the run learnt from; otherwise none, and why. ``columns`` are of tables (the run's where
    they are the usual ones), ``naming`` is the option by which a user names files.

    Raises ``BadInputError`` where a file that is named cannot be used.
    """
    of_run = read_run_config(source)
    if named:
        return _read_named(named, of_run.columns if of_run and columns == USUAL else columns), ""
    if of_run is None:
        return [], OF_A_FILE.format(naming)
    folder, _ = split_step(source)
    digest = RunFolder(folder).commit["config"].get("tickets")
    return read_same_tickets(folder, of_run, str(digest), naming)


def list_read_files(source: str) -> dict[str, list[str]]:
    """The files that guidance is read from, and those that a run learnt it from, by what they
    hold."""
    path, _ = split_step(source)
    config = read_run_config(source)
    own = path.glob("*/guidance.json") if path.is_dir() else (path, history_path(path))
    return {"tickets": config.files if config else [], "guidance": list(map(str, own))}


def find_columns(source: str) -> ColumnsConfig:
    """The columns of tables in the run that ``source`` names; the usual of a file."""
    config = read_run_config(source)
    return config.columns if config else USUAL


def find_prices(config: UseConfig) -> Prices:
    """The prices of errors: a config's own, or those of the run whose guidance it names; the same
    of a file."""
    priced = config if isinstance(config, EvaluateConfig) else read_run_config(config.guidance)
    return priced.price.by_label if priced else EQUAL


def read_run_config(source: str) -> LoopConfig | None:
    """The config of the run that ``source`` names; None where it names a file."""
    folder, _ = split_step(source)
    config = parse_run(folder).config if (folder / "config.yaml").exists() else None
    return config if isinstance(config, LoopConfig) else None


def _read_named(files: Sequence[str], columns: ColumnsConfig) -> list[Ticket]:
    """The tickets of files that a user names; labels do not matter."""
    tickets: list[Ticket] = []
    bad: list[BadLine] = []
    for file in files:
        try:
            for entry in read_entries(file, columns, labelled=False):
                try:
                    place = f"{file}:{entry.line}"
                    tickets.append(replace(entry.ticket(False), place=place))
                except FaultError as fault:
                    bad.append(BadLine(file, entry.line, fault.what, fault.remedy))
        except FaultError as fault:
            bad.append(BadLine(file, fault.line, fault.what, fault.remedy))
    if bad:
        raise BadInputError("places in the ticket files", bad)
    return tickets


OF_RUN = ("seed", "columns", "prompt", "model", "sampler", "selection", "manual_review")


def inherit_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that the run of ``values["guidance"]`` gives in the place of defaults, as far as a
    folder may; nothing of a file.

    Raises ``InputError`` where the folder holds a run of another loop, or cannot be read.
    """
    folder, _ = split_step(values["guidance"])
    if not values["guidance"] or not (folder / "config.yaml").exists():
        return {}
    asked = parse_run(folder)
    if not isinstance(asked.config, LoopConfig):
        raise InputError(
            f"{shown(str(folder))}: a run of loop {asked.loop}, which learns no guidance; name "
            f"another run"
        )
    plain = asdict(asked.config)
    plain["sampler"]["reasons"] = SamplerConfig.reasons  # a run need not read what people want to
    # learning alone needs these
    unused = ("split", "reason") if "max_error" in values else ("together", "split", "reason")
    plain["columns"] |= dict.fromkeys(unused)
    own = {name: plain[name] for name in OF_RUN if name in values}
    taken = trust.take_data(str(folder), own, LoopConfig, defaults(LoopConfig))
    if "price" in values:
        taken["price"] = asdict(asked.config.price)
    if "model" not in values:
        return taken
    if values["by"] == "rules":  # then no engine is loaded, whatever the folder names
        del taken["model"]
    return {**taken, "by": "both" if asked.config.runner.judge == "both" else "learnt"}


def load_guidance(source: str, prompt: PromptConfig, key: str = "guidance") -> dict[str, Guidance]:
    """Every mission's guidance that ``source`` names, as ``read_guidance`` reads it; ``key`` is
    where the config names it.

    Raises ``ConfigError`` where there is none, ``InputError`` where it cannot be used.
    """
    if not split_step(source)[0].exists():
        raise ConfigError(
            key, source, "there is no such file or folder; name a run's folder or a guidance.json"
        )
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


def stream_tickets(
    config: UseConfig, places: Container[str] | None = None
) -> TicketStream[TicketLine]:
    """The tickets that a config names, of the ``places`` alone where any are given."""
    labelled = config.needs_labels

    def read(file: str, entry: Entry) -> TicketLine:
        ticket = attach_images(entry.ticket(labelled), file, config.sampler.use_images)
        return TicketLine(
            file,
            entry.line,
            replace(ticket, label=UNKNOWN) if ticket.label else ticket,
            ticket.label or None,
        )

    return TicketStream(config.tickets, read, config.columns, labelled, places)


def list_inputs(config: UseConfig) -> dict[str, list[str]]:
    """The files that a config has read, by what they hold."""
    found = {"tickets": [*config.tickets], "vocabulary": [*(config.vocabulary or ())]}
    compared = config.compare if isinstance(config, EvaluateConfig) else None
    for source in (config.guidance, compared):
        for what, files in list_read_files(source).items() if source else ():
            found[what] = [*found.get(what, []), *files]
    return found


def labels_of(guidance: Mapping[str, Guidance]) -> dict[str, tuple[Verdict, ...]]:
    """The labels of each mission."""
    return {mission: each.labels for mission, each in guidance.items()}


def make_check(
    missions: Mapping[str, Sequence[Verdict]], columns: ColumnsConfig, once: bool
) -> Callable[[TicketLine], None]:
    """Make a check that raises ``FaultError`` for a ticket of none of the ``missions``, whose
    labels these are, for one with another label and, where each may come ``once`` alone, for one
    that came before."""
    places: dict[tuple[str, str], str] = {}

    def check(line: TicketLine) -> None:
        if line.ticket.mission not in missions:
            what = f"mission {line.ticket.mission!r}, for which there is no guidance"
            known = shown(", ".join(sorted(missions)), 400) or "none"  # there may be thousands
            raise FaultError(what, f"there is some for {known}; leave the others out")
        labels = missions[line.ticket.mission]
        if line.label and line.label not in labels:
            if labels == PASS_FAIL:
                raise name_strange_label(line.label, columns)
            raise FaultError(f"label {short(line.label)}", f"write one of {', '.join(labels)}")
        if once and line.label:
            ticket, place = replace(line.ticket, label=line.label), f"{line.file}:{line.line}"
            claim_place(ticket, place, places, columns)

    return check
