"""The guidance that a service judges by, read once, and the rows that it gives; and what tells that
its files have changed.

Nothing here knows of HTTP. Tickets are judged as ``stageb predict --by rules`` judges them, by the
same functions, so a service and a file of predictions say the same of a ticket, in the same words.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stageb.errors import InputError, StagebError, shown, write_option
from stageb.guidance.commands.use.config import ServeConfig
from stageb.guidance.commands.use.source import find_vocabulary, load_guidance
from stageb.guidance.commands.use.verdict_rows import VerdictWriter
from stageb.guidance.judging.automation import find_promises
from stageb.guidance.judging.coded import CodeJudge, code_rules
from stageb.guidance.rules.conditions import OutOfReach
from stageb.guidance.rules.judge import CodedRules
from stageb.guidance.rules.prompts import words_of
from stageb.guidance.rules.read_guidance import split_step
from stageb.guidance.tickets.headers import check_apart, check_once, list_roles
from stageb.guidance.tickets.stream import TicketLine, make_check
from stageb.guidance.tickets.tables import read_object
from stageb.guidance.tickets.tickets import make_ticket
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.types import Guidance, Ticket
from stageb.untrusted.strict_json import FaultError

MOST_FAULTS = 20  # of a request that are told
NAMELESS = "ticket"  # the group_id of one that names none, inside the service


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a request, or of one of its tickets."""

    # the ticket's place in a batch, such as [3], counted from 0; empty: the request, or its only
    # ticket
    at: str
    what: str
    remedy: str


class RequestError(Exception):
    """A request that cannot be answered, and the status of HTTP that says so."""

    def __init__(self, status: int, faults: Sequence[Fault]) -> None:
        super().__init__(status)
        self.status, self.faults = status, faults


@dataclass(frozen=True)
class ServedGuidance:
    """Guidance in use."""

    guidance: Mapping[str, Guidance]
    rules: Mapping[str, CodedRules]
    rows: VerdictWriter
    read: Callable[[Mapping[str, Any]], Ticket]
    check: Callable[[TicketLine], None]

    def judge_all(
        self, tickets: Sequence[Any], is_batch: bool, ends: float
    ) -> list[dict[str, Any]]:
        """A row for each of the ``tickets``, in their order, as predictions have them but for their
        places in files; all are judged, or none. ``ends`` is when time is up, by
        ``time.monotonic``.

        Raises ``RequestError``."""
        rows, faults = list[dict[str, Any]](), list[Fault]()
        for place, said in enumerate(tickets):
            if time.monotonic() > ends:
                what = f"not judged in time: {place} of {len(tickets)} tickets were"
                raise RequestError(
                    503,
                    [Fault("", what, "send fewer at once, or give the service more max_seconds")],
                )
            try:
                rows.append(self._judge(said))
            except FaultError as fault:
                faults.append(Fault(f"[{place}]" if is_batch else "", fault.what, fault.remedy))
                if len(faults) >= MOST_FAULTS:
                    break
        if faults:
            raise RequestError(422, faults)
        return rows

    def describe(self) -> Iterator[str]:
        """Cautions before tickets come, a line each."""
        yield from self.rows.describe_promises()
        if self.rows.code:
            yield from self.rows.code.describe_unreadable()

    def list_fields(self) -> dict[str, list[str]]:
        """By mission, the fields that its rules name."""
        found: dict[str, dict[str, None]] = {mission: {} for mission in self.rules}
        for mission, rules in self.rules.items():
            for rule in rules.each:
                if not isinstance(rule.code, OutOfReach):
                    found[mission] |= dict.fromkeys(rule.code.expression.fields)
        return {mission: [*names] for mission, names in found.items()}

    def _judge(self, said: Any) -> dict[str, Any]:
        """The row of one ticket. Raises ``FaultError``."""
        if not isinstance(said, dict):
            remedy = (
                'write a ticket as an object, {"Seal": "worn", ...}, and several as a list '
                "of objects"
            )
            raise FaultError("no object", remedy)
        ticket = self.read(said)
        self.check(TicketLine("", 0, ticket, None))
        named = {"mission": ticket.mission, "group_id": None if ticket.apart else ticket.group_id}
        ruling = self.rows.rule_on(ticket)
        assert ruling  # the rules are code
        return {**named, **self.rows.write_ruled(ticket, ruling)}


def load_served(config: ServeConfig) -> ServedGuidance:
    """The guidance that a config names. Raises ``InputError`` where it cannot be used, or rules as
    code should not judge."""
    guidance = load_guidance(config.guidance, config.prompt)
    asking = [mission for mission, each in guidance.items() if each.judge in ("model", "weighed")]
    if asking and config.by != "rules":
        what = (
            f"learning found that a model judges {', '.join(map(repr, asking))} better than "
            f"rules as code"
        )
        remedy = (
            f"{write_option('by', 'rules')} has the rules judge alone all the same, or "
            f"have stageb predict ask the model"
        )
        raise InputError(
            shown(f"{config.guidance}: {what}, and a service asks none; {remedy}", 600)
        )
    known, why = find_vocabulary(config.guidance, config)
    if why and any(len(each.rules) > 1 and not each.named for each in guidance.values()):
        raise InputError(shown(f"{config.guidance}: {why}", 400))
    rules = code_rules(guidance, known, words_of(config.prompt), is_whole=not why)
    rows = VerdictWriter(guidance, find_promises(guidance, "rules", ""), CodeJudge(rules))
    only = next(iter(guidance)) if len(guidance) == 1 else None
    check = make_check(guidance, config.columns, once=False)
    return ServedGuidance(guidance, rules, rows, _make_reader(config.columns, only), check)


def _make_reader(
    columns: ColumnsConfig, mission: str | None
) -> Callable[[Mapping[str, Any]], Ticket]:
    """A reader of objects: one with ``per_image`` as a line of JSON Lines, any other as a row of a
    table by its columns' names. Labels are not read; ``mission`` is that of tickets that name none;
    one that names no group stands ``apart``. It raises ``FaultError``."""
    roles = list_roles(columns)

    def rename(said: Mapping[str, Any]) -> dict[str, Any]:
        """A row by the names that rules know, which have to be told apart."""
        names = [columns.rename.get(each, each) for each in said]
        check_once(names)
        texts = columns.texts or [each for each in names if each not in roles.others]
        check_apart(each for each in names if each in texts)
        return dict(zip(names, said.values(), strict=True))

    def name(called: Mapping[str, Any], column: str | None) -> str:
        """The text of a column that names something; a number may."""
        value = called.get(column or "")
        return "" if value is None else str(value).strip()

    def read(said: Mapping[str, Any]) -> Ticket:
        if "per_image" in said:
            row = {"mission": mission, "group_id": NAMELESS, **said, "label": None}
            return make_ticket(row, False, None, apart="group_id" not in said)
        called, (summaries, content) = rename(said), read_object(said, roles)
        group = name(called, columns.group_id)
        row = {
            "mission": columns.mission_name or name(called, columns.mission) or mission,
            "group_id": group or NAMELESS,
            "per_image": summaries,
        }
        return make_ticket(row, False, content, apart=not group)

    return read


class GuidanceInUse:
    """Guidance that a service judges by: the last that could be read, while its files change."""

    def __init__(self, config: ServeConfig) -> None:
        """Raises ``InputError`` where there is nothing to begin with."""
        self._config, self._stamp = config, _stamp_files(config.guidance)
        self.served = load_served(config)
        self.refused = ""  # why the files that lie there now are not in use; empty: they are
        self.counts = {"taken": 0, "refused": 0}

    def has_changed(self) -> bool:
        """Whether the files are others than those that were read last."""
        return _stamp_files(self._config.guidance) != self._stamp

    def reload(self) -> str:
        """Read the files again. What cannot be used leaves what is in use. Returns a line for
        people."""
        # before they are read: a later change is seen by its own stamp
        self._stamp = _stamp_files(self._config.guidance)
        try:
            self.served = load_served(self._config)
        except (StagebError, OSError) as error:
            self.refused = str(error)
            self.counts["refused"] += 1
            return (
                f"{self._config.guidance} has changed and cannot be used; in use is still "
                f"{self._list_steps()}: {error}"
            )
        self.refused = ""
        self.counts["taken"] += 1
        return f"{self._config.guidance} has changed, and is in use: {self._list_steps()}"

    def _list_steps(self) -> str:
        return ", ".join(
            f"{mission!r} step {each.step}" for mission, each in self.served.guidance.items()
        )


def _stamp_files(source: str) -> list[tuple[str, int, int, int]]:
    """A mark that tells files of guidance from those that take their places."""
    path, _ = split_step(source)
    files = sorted(path.glob("*/guidance.json")) if path.is_dir() else [path]
    return [stamp for file in files for stamp in _stamp(file)]


def _stamp(file: Path) -> Iterator[tuple[str, int, int, int]]:
    try:
        status = file.stat()
    except OSError:  # gone for now; who reads it says so
        return
    yield str(file), status.st_ino, status.st_mtime_ns, status.st_size
