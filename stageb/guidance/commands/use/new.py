"""``stageb new TABLE``: a config for a table, guessed from its header and its cells.

What cannot be guessed is asked for, where a person sits at a terminal, or refused with the option that says it. Before the
config is written, the table is read by it as a run would read it, so every line that does not fit is reported. It holds no
key of ``fit`` alone, so ``predict`` and ``evaluate`` read it, too.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from stageb.cli.draft import defaults
from stageb.cli.parsing import WordParser
from stageb.errors import BadInputError, BadLine, InputError, shown
from stageb.guidance.commands.fit.advice import DATES, warn_of_labels
from stageb.guidance.config import LoopConfig
from stageb.guidance.tickets.groups import find_repeats
from stageb.guidance.tickets.tables import Table, hint_nearest, table_lines
from stageb.guidance.tickets.tickets import KIND, SPLIT_WORDS, read_tickets
from stageb.guidance.words.column_names import ColumnsConfig, Decimal, is_table
from stageb.guidance.words.costs import describe_counts
from stageb.guidance.words.texts import MOST_LABELS
from stageb.store.output import check_target
from stageb.untrusted import strict_yaml
from stageb.untrusted.strict_json import FaultError, short

# Words for verdicts, folded. Those that only say yes or no mean what their column's name makes of them.
PASSES = {"pass", "passed", "ok", "okay", "good", "go", "accept", "accepted", "approved", "conforming", "合格", "通过"}
PASSES |= {"i.o."}
FAILS = {"fail", "failed", "ng", "nok", "not ok", "bad", "no go", "nogo", "reject", "rejected", "defect", "defective"}
FAILS |= {"nonconforming", "n.i.o.", "不合格", "不通过"}
NO_YES = [("no", "yes"), ("n", "y"), ("false", "true"), ("0", "1"), ("0.0", "1.0")]
FAULTS = re.compile(r"fail|fault|defect|reject|scrap|anomal|broken|缺陷|不良|故障", re.I)
LABELS = re.compile(r"label|verdict|result|outcome|checked|status|decision|judge?ment|class|target|结果|结论", re.I)
# Columns of labels, or of what tells them.
TOPICS = re.compile(r"queue|categor|priorit|department|rout|team|topic|intent|severity|rating|type", re.I)
REASONS = re.compile(r"reasons?|why|justification|rationale|原因|理由", re.I)
MISSIONS = re.compile(r"mission|inspection|programme", re.I)
GROUPS = re.compile(r"(.*[ _.-])?(id|group|case|ticket|serial|no|nr|number|key)|group_?id|编号", re.I)
MOST_WORDS = 6  # that a column of verdicts may hold
SHOWN = 20  # names of columns, or words, in a message


class Cells(NamedTuple):
    """A table as it was read."""

    columns: dict[str, list[str]]  # by name: the cells of every row, stripped
    decimal: Decimal  # the mark by which its numbers can be read


def main(arguments: Sequence[str]) -> int:
    """Run ``stageb new ARGUMENTS``; returns the exit code. Raises ``InputError``."""
    args = make_parser().parse_args(arguments)
    table = str(args.table)
    target = Path(args.to or f"{Path(table).stem}.yaml")
    check_target(target, {"tickets": [table]})
    if target.exists():
        raise InputError(shown(f"{target}: exists already; name another file with --to, or remove it"))
    columns = guess_columns(table, args)
    tickets, _ = read_tickets([table], "error", columns)
    if any(each.is_coarse for each in find_repeats(tickets)):
        columns = replace(columns, repeats="apart")
    counts = Counter(ticket.label for ticket in tickets)
    try:
        target.write_text(write_config(table, columns), encoding="utf-8")
    except OSError as error:
        raise InputError(shown(f"{target}: {error.strerror}; name another file with --to")) from None
    print(f"{shown(table)}: {len(tickets):,} tickets: {describe_counts(counts)}")
    for line in warn_of_labels(tickets, LoopConfig(tickets=[table])):
        print(f"Note: {line}")
    print(f"wrote {shown(str(target))}: see whether it says what you mean, then")
    print(f"  stageb validate --config tickets --config frugal --config {shlex.quote(str(target))}")
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command."""
    parser = WordParser(prog="stageb new", description="Write a config for a table of tickets, guessed from what it holds.")
    kinds = "a table of labelled tickets (.csv, .tsv, .xlsx, .parquet), its first row the header"
    parser.add_argument("table", metavar="TABLE", help=kinds)
    parser.add_argument("--label", metavar="COLUMN", help="the column that holds the right verdict")
    parser.add_argument("--passes", nargs="+", metavar="WORD", help="words of that column that mean pass")
    parser.add_argument("--fails", nargs="+", metavar="WORD", help="words of that column that mean fail")
    parser.add_argument(
        "--mission", metavar="COLUMN", help="the column that names the mission; by default all rows are of one"
    )
    parser.add_argument("--group", metavar="COLUMN", help="the column that names what was inspected; null: there is none")
    parser.add_argument("--sheet", metavar="NAME", help="the sheet of a workbook (default: the only one with rows)")
    parser.add_argument("--to", metavar="FILE", help="the config to write (default: the table's name with .yaml)")
    return parser


def guess_columns(table: str, args: argparse.Namespace) -> ColumnsConfig:
    """What the columns of a table say. Raises ``InputError`` for what cannot be guessed."""
    try:
        cells = read_cells(table, args.sheet)
    except FaultError as fault:
        raise BadInputError("ticket files", [BadLine(table, fault.line, fault.what, fault.remedy)]) from None
    names = list(cells.columns)
    for option in ("label", "mission", "group"):
        name = getattr(args, option)
        if name is not None and name not in names and (option, name) != ("group", "null"):
            what = f"there is no column {short(name)}{hint_nearest(name, names)}"
            raise InputError(f"--{option}: {what}; there are {_list(names)}")
    label = args.label or guess_label(table, cells.columns)
    passes, fails = divide_words(label, cells.columns[label], args.passes or [], args.fails or [])
    mission = args.mission or next((name for name in names if MISSIONS.fullmatch(name) and name != label), None)
    split = next((name for name in names if name != label and names_splits(cells.columns[name])), None)
    reason = next((name for name in names if name != label and REASONS.fullmatch(name)), None)
    others = [name for name in names if name not in (label, mission, split, reason)]
    group = args.group or guess_group({name: cells.columns[name] for name in others}, cells.columns[label])
    group = None if group == "null" else group
    return ColumnsConfig(
        mission=mission or ColumnsConfig.mission,
        mission_name=None if mission else Path(table).stem,
        group_id=group,
        split=split,
        reason=reason,
        label=label,
        passes=passes,
        fails=fails,
        texts=[name for name in others if name != group and not holds_dates(cells.columns[name])],
        sheet=args.sheet,
        decimal=cells.decimal,
    )


def read_cells(table: str, sheet: str | None = None) -> Cells:
    """The cells of a table, read by whichever decimal mark its numbers allow. Raises ``FaultError``."""
    if not is_table(table):
        other = "JSON Lines need no such config: stageb validate --config tickets --tickets FILE"
        raise FaultError("no table by its name", f"name a table (.csv, .tsv, .xlsx, .parquet); {other}")
    try:
        return _read_cells(table, sheet, ".")
    except FaultError as fault:
        try:
            return _read_cells(table, sheet, ",")
        except FaultError:
            raise fault from None


def _read_cells(table: str, sheet: str | None, decimal: Decimal) -> Cells:
    roles = ColumnsConfig(mission_name="any", group_id=None, label="\0", decimal=decimal)  # so that none need be there
    opened = Table(table_lines(table, KIND, sheet), roles, table, labelled=False)
    rows = [row.cells for row in opened.rows() if len(row.cells) == len(opened.header)]
    if not rows:
        raise FaultError("no rows below the header", "write a ticket per row")
    return Cells({name: [row[place].strip() for row in rows] for place, name in enumerate(opened.header) if name}, decimal)


def guess_label(table: str, columns: dict[str, list[str]]) -> str:
    """The column of verdicts: one that says pass and fail in words that mean it; else the one that is called like it, says
    yes or no to a fault, or sorts rows into a few topics. Of several that mean it, a name that tells wins, then the last;
    of others, a person is asked. Which others would do is printed. Raises ``InputError``."""
    words = {name: {cell.casefold() for cell in cells} - {""} for name, cells in columns.items()}
    plain = [name for name, own in words.items() if own & (PASSES | FAILS) and len(own) <= MOST_WORDS]
    named = [name for name, own in words.items() if LABELS.search(name) and len(own) <= MOST_LABELS]
    both = [name for name in plain if words[name] & PASSES and words[name] & FAILS]
    faults = [name for name, own in words.items() if FAULTS.search(name) and _find_no_yes(own)]
    topics = [name for name, own in words.items() if TOPICS.search(name) and _sorts_rows(own, columns[name])]
    telling = [name for name in both if name in named] or both or [name for name in plain if name in named]
    likely = telling[-1:] or named or faults or topics
    if len(likely) == 1:
        label = likely[0]
    else:
        question = f"{shown(table)}: which column holds the right verdict, of {_list(likely or list(columns))}?"
        label = _ask(question, list(columns), "--label COLUMN")
    others = [name for name in columns if name != label and name in {*plain, *named, *faults, *topics}]
    if others:
        print(f"Note: the label is column {short(label)}; {_list(others)} would do as well: --label COLUMN")
    return label


def _sorts_rows(words: Collection[str], cells: Sequence[str]) -> bool:
    """Whether a column's ``words`` are 2 or more, as many as labels may be, and come again and again."""
    return 2 <= len(words) <= MOST_LABELS and len(list(filter(None, cells))) >= 2 * len(words)


def _find_no_yes(words: Collection[str]) -> tuple[str, str] | None:
    """The two of these ``words``, folded, that say no and yes, where there are no others."""
    return next((pair for pair in NO_YES if set(pair) == set(words)), None)


def names_splits(cells: Sequence[str]) -> bool:
    """Whether a column says which split each row is of."""
    words = {cell.casefold() for cell in cells}
    return "train" in words and len(words) > 1 and words <= SPLIT_WORDS.keys()


def holds_dates(cells: Sequence[str]) -> bool:
    """Whether a column holds dates alone, of which rules make no condition, or nothing at all."""
    return all(map(DATES.fullmatch, filter(None, cells)))


def divide_words(
    label: str, cells: Sequence[str], passes: Sequence[str], fails: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The words of the column ``label`` that mean pass, and those that mean fail; some may be given. Three words or more of
    which none is known to mean either are labels of their own.

    Raises ``InputError`` where that cannot be guessed, or where all mean the same.
    """
    words = list({cell.casefold(): cell for cell in reversed(cells) if cell}.values())[::-1]
    folds = {word.casefold() for word in words}
    if not (passes or fails or folds & (PASSES | FAILS)) and 3 <= len(words) <= MOST_LABELS:
        return ["pass"], ["fail"]
    if not (passes or fails) and FAULTS.search(label) and (pair := _find_no_yes(folds)):
        passes, fails = [pair[0]], [pair[1]]
    if len(words) > MOST_WORDS and not (passes or fails):
        what = f"column {short(label)} holds {len(words):,} different values, such as {_list(words[:MOST_WORDS])}"
        raise InputError(f"{what}: a verdict is one of a few words; name another column with --label")
    if strange := [word for word in (*passes, *fails) if word.casefold() not in folds]:
        raise InputError(f"column {short(label)} nowhere says {_list(strange)}; it says {_list(words)}")
    meant = {word.casefold(): "pass" for word in passes} | {word.casefold(): "fail" for word in fails}
    for word in words:
        folded = word.casefold()
        verdict = "pass" if folded in PASSES else "fail" if folded in FAILS else None
        if folded not in meant and len(words) == 2 and bool(passes) != bool(fails):
            verdict = "fail" if passes else "pass"  # the other one of two
        if folded not in meant:
            question = f"column {short(label)} says {_list(words)}: does {short(word)} mean pass or fail?"
            meant[folded] = verdict or _ask(question, ["pass", "fail"], "--passes WORD ... --fails WORD ...")
    divided = {verdict: [word for word in words if meant[word.casefold()] == verdict] for verdict in ("pass", "fail")}
    for verdict, own in divided.items():
        if not own:
            other = ", ".join(map(short, words)) or "nothing"
            remedy = f"give tickets that {verdict} too, or name another column with --label"
            raise InputError(f"column {short(label)} says {other} alone, so nothing can be learnt from it; {remedy}")
    return divided["pass"], divided["fail"]


def guess_group(columns: dict[str, list[str]], labels: Sequence[str]) -> str | None:
    """The column that names what was inspected: one that is called like it, or the first of all if it says something else
    in each row; None where there is none. A case comes at most once with each label, so a machine's name is none."""
    for place, (name, cells) in enumerate(columns.items()):
        names_cases = all(cells) and len(set(zip(cells, labels, strict=True))) == len(cells)
        single_words = all(len(cell.split()) == 1 and not re.fullmatch(r"-?\d+[.,]\d+", cell) for cell in cells)
        if names_cases and single_words and len(columns) > 1 and (place == 0 or GROUPS.fullmatch(name)):
            return name
    return None


def write_config(table: str, columns: ColumnsConfig) -> str:
    """The config as commented YAML: the keys that a table's owner may want to set."""
    mission = ("mission", columns.mission, "the column that names the mission")
    if columns.mission_name is not None:
        mission = ("mission_name", columns.mission_name, "of all rows; or mission: COLUMN")
    rows = [
        mission,
        ("group_id", columns.group_id, "the column that names what was inspected; null: every row is a case of its own"),
        ("together", columns.together, "a column whose equal rows stay in one split, such as a machine's name; or null"),
        ("split", columns.split, "the column that says train, val or test; null: shares of the rows"),
        ("reason", columns.reason, "the column in which people say why, which only learning reads; or null"),
        ("label", columns.label, "the column that holds the right verdict"),
        ("passes", columns.passes, "its words that mean pass"),
        ("fails", columns.fails, "its words that mean fail"),
        ("texts", columns.texts, "the columns to judge by, without dates: take out those that a verdict must not rest on"),
        ("decimal", columns.decimal, "the mark before the decimals of numbers"),
    ]
    if columns.sheet is not None:
        rows.append(("sheet", columns.sheet, "of the workbook"))
    if columns.repeats == "apart":
        why = "rows say but few different things: equal ones are cases of their own; of copies write together"
        rows.insert(2, ("repeats", columns.repeats, why))
    top = [
        _write_key("tickets", [table], "labelled tickets to learn from"),
        _write_key("seed", defaults(LoopConfig)["seed"], "of every random choice"),
    ]
    head = "# Written by `stageb new`, for validate, fit, predict and evaluate. stageb fit --columns.help says more.\n"
    return "".join([head, *top, "columns:\n", *(f"  {_write_key(*row)}" for row in rows)])


def _write_key(name: str, value: object, about: str) -> str:
    """One line of YAML with a comment."""
    text = strict_yaml.dump_line(value)
    return f"{f'{name}: {text}':<40}  # {about}\n"


def _ask(question: str, answers: Sequence[str], option: str) -> str:
    """One of ``answers``, from a person at a terminal. Raises ``InputError`` where nobody is there, or answers otherwise."""
    if not sys.stdin.isatty():
        raise InputError(f"{question} Say it with {option}")
    print(f"{question} ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip()
    if answer not in answers:
        raise InputError(f"{short(answer)} is none of {_list(answers)}; or say it with {option}")
    return answer


def _list(names: Sequence[str]) -> str:
    """Names for a message, of many the first ones."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(map(short, names[:SHOWN])) + more
