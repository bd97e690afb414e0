"""Sources of commands: guidance, and the tickets that it was learnt from or is to judge, as they
stand in their files."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from stageb.cli.draft import defaults
from stageb.cli.parsing import parse_run
from stageb.errors import BadInputError, BadLine, ConfigError, InputError, shown, write_option
from stageb.guidance.commands.use.config import EvaluateConfig, ServeConfig, UseConfig
from stageb.guidance.config import LoopConfig, PromptConfig, SamplerConfig
from stageb.guidance.rules.history_file import history_path
from stageb.guidance.rules.prompts import words_of
from stageb.guidance.rules.read_guidance import read_guidance, split_step
from stageb.guidance.tickets.stream import TicketLine, TicketStream
from stageb.guidance.tickets.tickets import read_entries, read_same_tickets
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.costs import EQUAL, Prices
from stageb.guidance.words.types import Guidance, Ticket
from stageb.runs.folder import RunFolder
from stageb.store import trust
from stageb.untrusted.strict_json import FaultError

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


def find_vocabulary(source: str, config: UseConfig | ServeConfig) -> tuple[Sequence[Ticket], str]:
    """Find tickets with what the rules of ``source`` speak of, as ``find_tickets`` does, by the
    files that a config names for that."""
    naming = write_option("vocabulary", "FILE")
    return find_tickets(source, naming, config.vocabulary or (), config.columns)


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
                    bad.append(fault.in_file(file, entry.line))
        except FaultError as fault:
            bad.append(fault.in_file(file))
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


def stream_tickets(
    config: UseConfig, places: Container[str] | None = None
) -> TicketStream[TicketLine]:
    """The tickets that a config names, of the ``places`` alone where any are given."""
    labelled = config.needs_labels
    read = partial(TicketLine.read, labelled=labelled, use_images=config.sampler.use_images)
    return TicketStream(config.tickets, read, config.columns, labelled, places)


def list_inputs(config: UseConfig) -> dict[str, list[str]]:
    """The files that a config has read, by what they hold."""
    found = {"tickets": [*config.tickets], "vocabulary": [*(config.vocabulary or ())]}
    compared = config.compare if isinstance(config, EvaluateConfig) else None
    for source in (config.guidance, compared):
        for what, files in list_read_files(source).items() if source else ():
            found[what] = [*found.get(what, []), *files]
    return found
