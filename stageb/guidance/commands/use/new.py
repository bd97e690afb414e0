"""``stageb new TABLE``: a config for a table, guessed from its header and its cells.

What cannot be guessed is asked for, where a person sits at a terminal, or refused with the option
that says it. Before the config is written, the table is read by it as a run would read it, so every
line that does not fit is reported. It holds no key of ``fit`` alone, so ``predict`` and
``evaluate`` read it, too.
"""

from __future__ import annotations

import argparse
import shlex
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from stageb.cli.draft import defaults
from stageb.cli.parsing import WordParser
from stageb.errors import InputError, shown
from stageb.guidance.commands.fit.cautions import (
    are_chinese,
    warn_of_copies,
    warn_of_fields,
    warn_of_labels,
    warn_of_names,
)
from stageb.guidance.commands.use.guess import Told, read_guessed
from stageb.guidance.config import LoopConfig
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.costs import describe_counts
from stageb.store.output import check_target
from stageb.untrusted import strict_yaml


def main(arguments: Sequence[str]) -> int:
    """Run ``stageb new ARGUMENTS``; returns the exit code. Raises ``InputError``."""
    args = make_parser().parse_args(arguments)
    table = str(args.table)
    target = Path(args.to or f"{Path(table).stem}.yaml")
    check_target(target, {"tickets": [table]})
    if target.exists():
        raise InputError(
            shown(f"{target}: exists already; name another file with --to, or remove it")
        )
    (columns, notes), tickets = read_guessed(
        table, Told(*(getattr(args, name) for name in Told._fields))
    )
    counts = Counter(ticket.label for ticket in tickets)
    try:
        target.write_text(
            write_config(table, columns, is_chinese := are_chinese(tickets)), encoding="utf-8"
        )
    except OSError as error:
        raise InputError(
            shown(f"{target}: {error.strerror}; name another file with --to")
        ) from None
    print(f"{shown(table)}: {len(tickets):,} tickets: {describe_counts(counts)}")
    if is_chinese:
        print("most tickets are Chinese, so rules will be, too: prompt.language zh")
    told = (warn(tickets) for warn in (warn_of_names, warn_of_copies, warn_of_fields))
    for line in chain(notes, warn_of_labels(tickets, LoopConfig(tickets=[table])), *told):
        print(f"Note: {line}")
    print(f"wrote {shown(str(target))}: see whether it says what you mean, then")
    print(f"  stageb validate --config tickets --config frugal --config {shlex.quote(str(target))}")
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command."""
    parser = WordParser(
        prog="stageb new",
        description="Write a config for a table of tickets, guessed from what it holds.",
    )
    kinds = "a table of labelled tickets (.csv, .tsv, .xlsx, .parquet), its first row the header"
    parser.add_argument("table", metavar="TABLE", help=kinds)
    parser.add_argument("--label", metavar="COLUMN", help="the column that holds the right verdict")
    parser.add_argument(
        "--passes",
        nargs="+",
        default=[],
        metavar="WORD",
        help="words of that column that mean pass",
    )
    parser.add_argument(
        "--fails", nargs="+", default=[], metavar="WORD", help="words of that column that mean fail"
    )
    parser.add_argument(
        "--mission",
        metavar="COLUMN",
        help="the column that names the mission; by default all rows are of one",
    )
    parser.add_argument(
        "--group",
        metavar="COLUMN",
        help="the column that names what was inspected; null: there is none",
    )
    skip = "rows without a label: an error (refuse, the default), or left out"
    parser.add_argument("--unlabelled", choices=["refuse", "skip"], default="refuse", help=skip)
    parser.add_argument(
        "--sheet", metavar="NAME", help="the sheet of a workbook (default: the only one with rows)"
    )
    parser.add_argument(
        "--to", metavar="FILE", help="the config to write (default: the table's name with .yaml)"
    )
    return parser


def write_config(table: str, columns: ColumnsConfig, is_chinese: bool = False) -> str:
    """The config as commented YAML: the keys that a table's owner may want to set, and the language
    of rules where tickets are Chinese."""
    mission = ("mission", columns.mission, "the column that names the mission")
    if columns.mission_name is not None:
        mission = ("mission_name", columns.mission_name, "of all rows; or mission: COLUMN")
    rows = [
        mission,
        (
            "group_id",
            columns.group_id,
            "the column that names what was inspected; null: every row is a case of its own",
        ),
        (
            "together",
            columns.together,
            "a column whose equal rows stay in one split, such as a machine's name; or null",
        ),
        (
            "split",
            columns.split,
            "the column that says train, val or test; null: shares of the rows",
        ),
        (
            "reason",
            columns.reason,
            "the column in which people say why, which only learning reads; or null",
        ),
        ("label", columns.label, "the column that holds the right verdict"),
        ("passes", columns.passes, "its words that mean pass"),
        ("fails", columns.fails, "its words that mean fail"),
        (
            "texts",
            columns.texts,
            "the columns to judge by, without dates: take out those that a verdict must not "
            "rest on",
        ),
        ("decimal", columns.decimal, "the mark before the decimals of numbers"),
    ]
    if columns.unlabelled == "skip":
        rows.append(("unlabelled", "skip", "rows without a label are left out"))
    if columns.missing:
        rows.append(("missing", columns.missing, "cells that say nothing, as empty ones do"))
    if columns.sheet is not None:
        rows.append(("sheet", columns.sheet, "of the workbook"))
    if columns.repeats == "apart":
        why = (
            "rows say but few different things: equal ones are cases of their own; of copies "
            "write together"
        )
        rows.insert(2, ("repeats", columns.repeats, why))
    top = [
        _write_key("tickets", [table], "labelled tickets to learn from"),
        _write_key("seed", defaults(LoopConfig)["seed"], "of every random choice"),
    ]
    if is_chinese:
        top.append(f"prompt:\n  {_write_key('language', 'zh', 'of the rules: en or zh')}")
    head = (
        "# Written by `stageb new`, for validate, fit, predict and evaluate. stageb fit "
        "--columns.help says more.\n"
    )
    return "".join([head, *top, "columns:\n", *(f"  {_write_key(*row)}" for row in rows)])


def _write_key(name: str, value: object, about: str) -> str:
    """One line of YAML with a comment."""
    text = strict_yaml.dump_line(value)
    return f"{f'{name}: {text}':<40}  # {about}\n"
