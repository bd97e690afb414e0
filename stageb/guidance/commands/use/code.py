"""Rules read as code, by the names and values of the tickets that they were learnt from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from stageb.cli.parsing import parse_run
from stageb.errors import BadInputError, BadLine
from stageb.guidance.rules.conditions import reading
from stageb.guidance.rules.guidance_file import split_step
from stageb.guidance.rules.history_file import history_path
from stageb.guidance.rules.judge import CodedRule, compile_rules, explain_unknown, read_rules
from stageb.guidance.rules.predicates import Ruling
from stageb.guidance.rules.prompts import Words
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.tickets.tickets import read_entries, read_same_tickets
from stageb.guidance.words.columns import ColumnsConfig, Scale, parse_scales
from stageb.guidance.words.config import LoopConfig
from stageb.guidance.words.costs import EQUAL, Prices, prices_of
from stageb.guidance.words.types import Guidance, Ticket
from stageb.runs.folder import RunFolder
from stageb.untrusted.strict_json import FaultError

NO_RULE = "no rule speaks of it"
OF_A_FILE = "a file of guidance does not tell which names and values its rules speak of; name ticket files that do: {}"


def find_tickets(
    source: str, named: Sequence[str], columns: ColumnsConfig | None, naming: str
) -> tuple[Sequence[Ticket], str]:
    """Tickets with what the rules of ``source`` speak of: those of the files ``named``, or those that the run learnt from;
    otherwise none, and why. ``columns`` are of tables (None: the run's, or the usual ones), ``naming`` is the option by
    which a user names files.

    Raises ``BadInputError`` where a file that is named cannot be used.
    """
    of_run = read_run_config(source)
    if named:
        return _read_named(named, columns or find_columns(source)), ""
    if of_run is None:
        return [], OF_A_FILE.format(naming)
    folder, _ = split_step(source)
    digest = RunFolder(folder).commit["config"].get("tickets")
    return read_same_tickets(folder, of_run, str(digest), naming)


def list_read_files(source: str) -> dict[str, list[str]]:
    """The files that guidance is read from, and those that a run learnt it from, by what they hold."""
    path, _ = split_step(source)
    config = read_run_config(source)
    own = path.glob("*/guidance.json") if path.is_dir() else (path, history_path(path))
    return {"tickets": list(config.tickets) if config else [], "guidance": list(map(str, own))}


def find_scales(source: str) -> tuple[Scale, ...]:
    """Orders beside the well-known ones by which the rules of ``source`` rank values: ``reflection.scales`` of a run; none
    of a file."""
    config = read_run_config(source)
    return parse_scales(config.reflection.scales or ()) if config else ()


def find_columns(source: str) -> ColumnsConfig:
    """What the columns of tables say in the run that ``source`` names; the usual of a file."""
    config = read_run_config(source)
    return config.columns if config else ColumnsConfig()


def find_prices(source: str) -> Prices:
    """What errors cost in the run that ``source`` names; the same of a file."""
    config = read_run_config(source)
    return prices_of(config.gating) if config else EQUAL


def code_rules(
    guidance: Mapping[str, Guidance],
    tickets: Iterable[Ticket],
    words: Words,
    scales: Sequence[Scale] = (),
    is_whole: bool = True,
) -> dict[str, list[CodedRule]]:
    """The rules of each mission, read by what ``tickets`` of it hold and by ``scales`` beside the well-known ones;
    ``is_whole`` as ``read_rules`` takes it."""
    of: dict[str, list[Ticket]] = {mission: [] for mission in guidance}
    for ticket in tickets:
        of.get(ticket.mission, []).append(ticket)
    return {
        mission: read_rules(guidance[mission], Vocabulary.of(mine, scales), words, is_whole) for mission, mine in of.items()
    }


class CodeJudge:
    """Judges the tickets of missions by their rules as code."""

    def __init__(self, rules: Mapping[str, Sequence[CodedRule]]) -> None:
        self.rules = rules
        self._told = {
            mission: {rule.key: f"{' (provisional)' * rule.is_provisional}: {rule.text}" for rule in of}
            for mission, of in rules.items()
        }
        self.judges = {mission: compile_rules(of) for mission, of in rules.items()}

    @property
    def digest(self) -> str:
        """A short name for what the rules say."""
        return hashlib.blake2b(repr(self.rules).encode(), digest_size=8).hexdigest()

    def judge(self, ticket: Ticket) -> Ruling:
        """The verdict on a ticket of one of the missions."""
        return self.judges[ticket.mission](reading(ticket))

    def explain(self, ruling: Ruling, ticket: Ticket) -> str:
        """The rule that gives a verdict; or why there is none."""
        if ruling.verdict is None:
            return explain_unknown(self.rules[ticket.mission], ruling, reading(ticket))
        return f"{ruling.rule}{self._told[ticket.mission].get(ruling.rule, f': {NO_RULE}')}"


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
                    tickets.append(entry.ticket(False))
                except FaultError as fault:
                    bad.append(BadLine(file, entry.line, fault.what, fault.remedy))
        except FaultError as fault:
            bad.append(BadLine(file, fault.line, fault.what, fault.remedy))
    if bad:
        raise BadInputError("places in the ticket files", bad)
    return tickets
