"""``stageb guidance export``: the prompt that rollouts read, or the rules as text or code."""

from __future__ import annotations

import io
import json
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from stageb.errors import InputError, shown
from stageb.guidance.commands.govern.sources import (
    add_columns,
    add_language,
    choose_words,
    get_only,
    read_source,
)
from stageb.guidance.commands.use.source import find_columns, find_tickets, list_read_files
from stageb.guidance.config import PromptConfig
from stageb.guidance.exports.protocol import CodedMission, code_mission
from stageb.guidance.exports.registry import list_exporters, make_exporter
from stageb.guidance.exports.sql_dialects import DIALECTS
from stageb.guidance.judging.automation import holds
from stageb.guidance.judging.coded import code_rules
from stageb.guidance.learning.attempts import describe_provisional
from stageb.guidance.rules import rules_as_text
from stageb.guidance.rules.prompts import Words, rollout_prompt, words_of
from stageb.guidance.tickets.headers import list_roles
from stageb.guidance.words.types import Guidance, Ticket
from stageb.store import disk
from stageb.store.output import check_target

TICKET = "{ticket}"  # in an exported prompt: where a ticket's summaries go

EXPORTS = f"""\
The prompt ends with {TICKET}, which stands for one line per image of the ticket to judge: "image_1:
what is seen there".

Rules as code need nothing of stageb. python is a module with judge(ticket), sql a query over a
table with a column for each field (--dialect), dbt the same as models with tests, json the
rules' expressions as a tree; of these, rules that cannot be read as code are listed, and tickets
that depend on them get no verdict. json-logic, pmml, dmn (decision tables) and xlsx (a workbook
that judges what is typed) judge columns of numbers, flags and texts; a rule that they cannot say
is refused, and nothing is written. Exit code: 0 if all rules are written, 1 if some are not, 2
if nothing is."""
FORMATS = """\
prompt (default) or chat (JSON messages): what rollouts read; text: the rules, to edit and
promote; the others: the rules as code"""
OUTPUT = "write to this file (dbt: folder) instead of standard output"
TICKETS = """\
for code: ticket files with the names and values that the rules mention (default: those of the
run, or what a promoted file keeps)"""
TYPED = (
    "of sql, dbt: columns of which the known tickets have numbers alone are numbers in the "
    "table; the query is short"
)


def add_options(parser: ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "--format",
        choices=("prompt", "chat", "text", *list_exporters()),
        default="prompt",
        help=FORMATS,
    )
    parser.add_argument(
        "--dialect", choices=DIALECTS, help="of sql and dbt: whose SQL (default: sqlite)"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help=OUTPUT)
    parser.add_argument("--tickets", nargs="+", metavar="FILE", default=(), help=TICKETS)
    add_columns(parser, "as in the run")
    parser.add_argument("--typed", action="store_true", help=TYPED)
    add_language(parser)


def export(args: Any) -> int:
    """Write the prompt of one mission, or the rules as code; 1 where some cannot be."""
    read = list_read_files(args.source)
    check = partial(check_target, inputs={**read, "tickets": [*read["tickets"], *args.tickets]})
    if args.output and args.format not in list_exporters():  # which may write several files
        check(args.output)
    if args.dialect and args.format not in ("sql", "dbt"):
        raise InputError(
            f"--dialect {args.dialect}: of --format sql and dbt alone, and not of {args.format}"
        )
    found = read_source(args.source, args)
    if args.format == "text":
        write_text(rules_as_text.write(found.values()), args.output)
        return 0
    if args.format in list_exporters():
        exporter, words = make_exporter(args.format), choose_words(args.source, args.language)
        coded = code_missions(args, found, words, is_typed=exporter.is_typed or args.typed)
        written = exporter.write(coded, DIALECTS[args.dialect or "sqlite"])
        write_files(written.files, args.format, args.output, check)
        for line in written.notes:
            print(shown(line, 400), file=sys.stderr)
        return 1 if written.notes else 0
    guidance, words = get_only(found, args.source), choose_words(args.source, args.language)
    for line in describe_provisional(guidance.rules):
        print(f"{shown(guidance.mission)}: {line}", file=sys.stderr)  # the prompt does not tell
    if guidance.shown and not words.instruct:  # a file does not say which model reads it
        words = words_of(
            PromptConfig(language=args.language or "en", style="instruct", prefill=False)
        )
    prompt = rollout_prompt(Ticket("", "", "pass", ()), guidance, words)
    if args.format == "chat":
        turns = [{"role": "system", "content": prompt.system}, {"role": "user", "content": TICKET}]
        write_text(json.dumps(turns, ensure_ascii=False, indent=2) + "\n", args.output)
    else:
        write_text(f"{prompt.system}\n\n{TICKET}\n", args.output)
    return 0


def code_missions(
    args: Any, guidance: Mapping[str, Guidance], words: Words, is_typed: bool
) -> list[CodedMission]:
    """The rules of each mission as code; ``is_typed``: with columns of numbers. Raises
    ``InputError`` where neither tickets nor the guidance say what they name."""
    columns = args.columns or find_columns(args.source)
    tickets, why = find_tickets(args.source, "--tickets FILE ...", args.tickets, columns)
    if why and not all(each.named for each in guidance.values() if len(each.rules) > 1):
        raise InputError(shown(f"{args.source}: {why}", 400))
    rules = code_rules(guidance, tickets, words, is_whole=not why)
    roles = list_roles(columns)
    known = {
        mission: [ticket for ticket in tickets if ticket.mission == mission] for mission in guidance
    }
    return [
        replace(
            code_mission(each, rules[mission], roles, known[mission], is_typed),
            notes=describe_provisional(each.rules),
            automation=each.automation
            if each.automation and holds(each.automation, each, "rules", "")
            else None,
        )
        for mission, each in guidance.items()
    ]


def write_text(text: str, path: Path | None) -> None:
    """To a file as a whole, or to standard output: as UTF-8, which code is read as, whatever a
    terminal shows. Raises ``JournalError`` where the disk refuses."""
    if path is None:
        sys.stdout.flush()
        if isinstance(sys.stdout, io.TextIOWrapper):
            # to have it take another encoding, it would have to be sought in
            sys.stdout.buffer.write(text.encode())
            sys.stdout.buffer.flush()
        else:
            sys.stdout.write(text)
        return
    disk.write(path, text)


def write_files(
    files: str | bytes | Mapping[str, str],
    form: str,
    output: Path | None,
    check: Callable[[Path], object],
) -> None:
    """An export to a file, to standard output where it is one text, or several files to a folder,
    each of which ``check`` allows. Raises ``InputError`` where none is named for what needs one."""
    if isinstance(files, str) and output is None:
        write_text(files, None)
        return
    if output is None:
        raise InputError(
            f"--format {form} is no single text: name where to write it, --output PATH"
        )
    written = (
        {output / name: text for name, text in files.items()}
        if isinstance(files, Mapping)
        else {output: files}
    )
    for path in written:
        check(path)
    for path, content in written.items():
        disk.write(path, content)
