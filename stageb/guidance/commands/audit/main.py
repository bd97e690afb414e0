"""``stageb audit``: watch whether a bound on tickets decided alone still holds, by a sample that
people look at.

One call a day does all: it reads what people answered, draws from new files of predictions, tests,
and says what drifts.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stageb.cli.parsing import WordParser
from stageb.errors import InputError, shown
from stageb.guidance.commands.audit import watch
from stageb.guidance.commands.audit.files import (
    PAGE,
    RIGHT,
    AuditFolder,
    AuditPlan,
    Drawn,
    Promise,
    find_columns_before,
)
from stageb.guidance.commands.govern.sources import add_columns
from stageb.guidance.judging.automation import name_guidance
from stageb.guidance.rules.read_guidance import read_guidance
from stageb.guidance.tickets.tickets import read_entries
from stageb.guidance.words.automation import STAGEB, write_share
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.types import Ticket
from stageb.seeds import stream, uniform
from stageb.store import disk
from stageb.store.output import read_rows
from stageb.untrusted.strict_json import FaultError

SHARE = 0.02  # of the tickets decided alone, that people look at
KEYS = {"file", "line", "mission", "group_id", "verdict", "rule", "decides"}


def main(arguments: Sequence[str]) -> int:
    """Run ``stageb audit ARGUMENTS``; 1 where a bound is broken. Raises ``InputError``."""
    args = make_parser().parse_args(arguments)
    if args.share is not None and not 0 < args.share <= 1:
        raise InputError(
            f"--share {args.share}: a share of the tickets decided alone, above 0, at most 1"
        )
    folder = AuditFolder(args.folder)
    plan, columns = find_plan(folder, args)
    drawn = folder.read_drawn()
    answers = folder.collect_answers(plan.promises, drawn, columns, args.answers)
    samples = dict[str, tuple[Drawn, dict[str, Ticket]]]()
    for name in args.predictions:
        digest = digest_file(name)
        if digest in samples or any(each.digest == digest for each in drawn):
            print(shown(f"{name}: was drawn from before"))
        else:
            before = [*drawn, *(new for new, _ in samples.values())]
            samples[digest] = draw(name, digest, plan, columns, before)
    # all can be used
    folder.keep(plan)
    folder.add_answers(answers)
    for new, says in samples.values():
        sheet = folder.add_drawn(new, says, args.tasks)
        print(
            shown(
                f"{sheet}: {len(new.tickets):,} tickets for people: write the right label of "
                f"each in column {RIGHT}"
            )
        )
        drawn.append(new)
    return conclude(folder, plan.promises, drawn)


def find_plan(folder: AuditFolder, args: argparse.Namespace) -> tuple[AuditPlan, ColumnsConfig]:
    """What is watched, and how: as kept, or named by ``args`` where an audit begins; and what
    columns mean in this call. Another share holds from now on: each file is drawn from once, with a
    probability that was known before, so answers remain those of tickets drawn by chance. Raises
    ``InputError``."""
    promised = find_promises(args.guidance) if args.guidance else None
    kept = folder.read_plan()
    if kept is None:
        if promised is None:
            what = f"{args.folder}: no audit has begun there; name what is watched"
            raise InputError(shown(f"{what}: --guidance SOURCE"))
        columns = args.columns or find_columns_before(args.predictions, args.guidance)
        return AuditPlan(promised, columns, SHARE if args.share is None else args.share), columns
    if promised not in (None, kept.promises):
        raise InputError(
            shown(
                f"{args.folder}: watches what {args.guidance} promised before; name another "
                f"--folder"
            )
        )
    if args.share not in (None, kept.share):
        shares = write_share(args.share), write_share(kept.share)
        print("from now on {} of the tickets decided alone are drawn, {} before".format(*shares))
        kept = replace(kept, share=args.share)
    return kept, args.columns or kept.columns


def digest_file(name: str) -> str:
    """A short name for the bytes of a file. Raises ``InputError`` where it cannot be read."""
    try:
        return disk.digest(Path(name).read_bytes())
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(shown(f"{name}: {why}; name what predict wrote, as JSON Lines")) from None


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command."""
    parser = WordParser(
        prog="stageb audit",
        description="Watch whether what stageb automate has promised still holds: draw tickets "
        "that were decided alone for people, read their answers, and test as they come. Exit code: "
        "0, or 1 where a bound is broken.",
    )
    parser.add_argument(
        "predictions",
        nargs="*",
        metavar="OUT",
        help="new files that stageb predict wrote, JSON Lines",
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("audit"), help="of the audit's files (default: audit)"
    )
    parser.add_argument(
        "--share",
        type=float,
        help="of the tickets decided alone, to draw, from now on (default: as before, at first "
        f"{SHARE})",
    )
    parser.add_argument(
        "--guidance",
        metavar="SOURCE",
        help="what is watched, a run's folder or a file: when an audit begins",
    )
    parser.add_argument(
        "--tasks", action="store_true", help="write the sheet as tasks of Label Studio, too"
    )
    parser.add_argument(
        "--answers",
        nargs="+",
        default=(),
        metavar="JSON",
        help="what Label Studio exported of such tasks",
    )
    add_columns(parser, "as for predict when the audit began, or else as in the run")
    return parser


def find_promises(source: str) -> dict[str, Promise]:
    """The promise of each mission. Raises ``InputError`` where nothing is promised."""
    found = {
        mission: Promise(each.labels, each.automation)
        for mission, each in read_guidance(source).items()
        if each.automation and each.automation.guidance == name_guidance(each)
    }
    if not found:
        raise InputError(
            shown(
                f"{source}: nothing is promised of its rules; begin with: stageb automate {source}"
            )
        )
    return found


def draw(
    name: str, digest: str, plan: AuditPlan, columns: ColumnsConfig, before: Sequence[Drawn]
) -> tuple[Drawn, dict[str, Ticket]]:
    """Tickets of a file of predictions that were decided alone, each group with the same
    probability; and what these say. Numbers are counted as ``before``. Raises
    ``InputError`` where it holds none, or the ticket files are others."""
    rows = list(read_rows(Path(name)))
    if not rows or not all(row.keys() >= KEYS and type(row["line"]) is int for row in rows):
        raise InputError(shown(f"{name}: no rows of predict; name what it wrote as JSON Lines"))
    alone = [row for row in rows if row["decides"] == STAGEB and row["mission"] in plan.promises]
    if not alone:
        why = (
            "; predict says why"
            if any(row["decides"] for row in rows)
            else ", since nothing was promised of its verdicts: have predict judge them by the "
            "rules of the promise, with --fresh where it did so before"
        )
        raise InputError(shown(f"{name}: no ticket was decided alone there{why}", 400))
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in alone:
        groups.setdefault((row["mission"], row["group_id"]), []).append(row)
    tickets = _read_tickets(name, rows, columns)
    picked, says = list[Mapping[str, Any]](), dict[str, Ticket]()
    for (mission, group), together in groups.items():
        key = stream("audit", digest, mission, group)
        if uniform(key, 0) < plan.share:
            one = together[int(len(together) * uniform(key, 1))]
            name_of = f"{digest[:8]}-{len(picked) + 1}"
            picked.append(
                {"id": name_of, "mission": mission, "verdict": one["verdict"], "rule": one["rule"]}
            )
            says[name_of] = tickets[one["file"], one["line"]]
    shares, edges = watch.count_shares(rows, tickets, before)
    return Drawn(name, digest, picked, shares, edges), says


def _read_tickets(
    name: str, rows: Sequence[Mapping[str, Any]], columns: ColumnsConfig
) -> dict[tuple[str, int], Ticket]:
    """The tickets of predictions by file and line. Raises ``InputError`` where one is another by
    now."""
    found: dict[tuple[str, int], Ticket] = {}
    for file in dict.fromkeys(row["file"] for row in rows):
        try:
            for entry in read_entries(file, columns, labelled=False):
                found[file, entry.line] = entry.ticket(False)
        except FaultError as fault:
            raise InputError(
                shown(f"{file}: {fault.what}; call from where predict was, with its --columns", 400)
            ) from None
    for row in rows:
        ticket = found.get((row["file"], row["line"]))
        if ticket is None or ticket.group_id != row["group_id"]:
            raise InputError(
                shown(
                    f"{name}: {row['file']}:{row['line']} does not hold {row['group_id']!r} any "
                    f"more",
                    400,
                )
            )
    return found


def conclude(folder: AuditFolder, promises: Mapping[str, Promise], drawn: Sequence[Drawn]) -> int:
    """Test every bound, say what was found, and write it as a page; 1 where one is broken."""
    from stageb.guidance.commands.audit.page import AuditedBound, render_page  # brings matplotlib

    by_id = {each["id"]: each for of in drawn for each in of.tickets}
    answered = [
        (by_id[row["id"]], row["label"]) for row in folder.read_answers() if row["id"] in by_id
    ]
    audited, notes = [], list(watch.describe_drift(drawn))
    for mission, promise in promises.items():
        for bound in promise.automation.bounds:
            mine = [
                (each["rule"], each["verdict"] != label)
                for each, label in answered
                if each["mission"] == mission and bound.verdict in ("", each["verdict"])
            ]
            if bound.max_error < 1:
                errors = [is_wrong for _, is_wrong in mine]
                wealth = tuple(watch.trace_wealth(errors, bound.max_error))
                audited.append(
                    AuditedBound(
                        mission,
                        bound,
                        tuple(errors),
                        wealth,
                        watch.rank_rules(mine, bound.max_error),
                    )
                )
    for each in audited:
        print(shown(each.describe(), 400))
    for said in notes:
        print(shown(f"note: {said}", 400))
    left = len(by_id) - len(answered)
    if left:
        print(f"{left:,} of {len(by_id):,} tickets drawn have no answer yet")
    disk.write(folder.path / PAGE, render_page(audited, notes), "nothing else")
    print(shown(f"Page: {folder.path / PAGE}"))
    return int(any(each.is_broken for each in audited))
