"""The columns of a table, guessed from its header and its cells: for ``stageb new``, and for
``stageb.fit`` where it is not told.

A wrong guess that nobody sees would teach wrong rules, so what is left out of the texts is told,
and what cannot be guessed is asked for, where a person sits at a terminal, or refused with the
option that says it.

Rows belong together where they are several judgements of one case, as labelling programs write
them: a row for each person who judged it. Their name for the case, or else the text that comes
again, keeps such rows in one split; who judged, and when, is no text to judge by, and a column that
alone tells the label under a label's name is a second label.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

from stageb.errors import CALLER, IN_PYTHON, InputError, shown, write_option
from stageb.guidance.commands.fit.advice import DATES, FEWEST_TICKETS, tells_label
from stageb.guidance.rules.value_types import parse_number
from stageb.guidance.tickets.groups import find_repeats
from stageb.guidance.tickets.headers import hint_nearest
from stageb.guidance.tickets.tables import TableReader, table_lines
from stageb.guidance.tickets.tickets import (
    KIND,
    SPLIT_WORDS,
    describe_left_out,
    read_tickets,
    reporting,
)
from stageb.guidance.words.column_names import ColumnsConfig, Decimal, is_table
from stageb.guidance.words.texts import MOST_LABELS
from stageb.guidance.words.types import Ticket
from stageb.untrusted.strict_json import FaultError, short
from stageb.untrusted.workbook import MARK

# Words for verdicts, folded. Those that only say yes or no mean what their column's name makes of
# them.
PASSES = {
    "pass",
    "passed",
    "ok",
    "okay",
    "good",
    "go",
    "accept",
    "accepted",
    "approved",
    "conforming",
    "合格",
    "通过",
}
PASSES |= {"i.o."}
FAILS = {
    "fail",
    "failed",
    "ng",
    "nok",
    "not ok",
    "bad",
    "no go",
    "nogo",
    "reject",
    "rejected",
    "defect",
    "defective",
}
FAILS |= {"nonconforming", "n.i.o.", "不合格", "不通过"}
NO_YES = [("no", "yes"), ("n", "y"), ("false", "true"), ("0", "1"), ("0.0", "1.0")]
FAULTS = re.compile(r"fail|fault|defect|reject|scrap|anomal|broken|缺陷|不良|故障", re.I)
LABELS = re.compile(
    r"label|verdict|result|outcome|checked|status|decision|judge?ment|class|target|结果|结论", re.I
)
# Columns of labels, or of what tells them.
TOPICS = re.compile(
    r"queue|categor|priorit|department|rout|team|topic|intent|severity|rating|type", re.I
)
REASONS = re.compile(r"reasons?|why|justification|rationale|原因|理由", re.I)
MISSIONS = re.compile(r"mission|inspection|programme", re.I)
GROUPS = re.compile(
    r"(.*[ _.-])?(id|group|case|ticket|serial|no|nr|number|key)|group_?id|编号", re.I
)
JUDGED = (
    "(annotat|label|labell|rat|inspect|review|check|judg|assess|approv|verifi|examin|complet|creat|"
    "updat|submitt)ed"
)
PEOPLE = re.compile(
    rf"annotators?|labell?ers?|raters?|inspectors?|reviewers?|{JUDGED}[ _.-]?by|评审人|检验员", re.I
)
TIMES = re.compile(rf"lead[ _.-]?time|{JUDGED}[ _.-]?(at|on|date|time)|time[ _.-]?stamp", re.I)
MISSING = re.compile(r"n\.?/?a\.?|#n/a|nan|null|k\.? ?a\.?|[?/.-]|--+", re.I)
MOST_WORDS = 6  # that a column of verdicts may hold
SHOWN = 20  # names of columns, or words, in a message
LONG = 5  # words of a text, in the mean, from which on it hardly comes twice by chance
# rows for each text, in the mean, from and up to which these are judgements of it, not forms of
# words
REPEATED = 1.5, 20
FEWEST_CASES = 10  # that come again


class Told(NamedTuple):
    """Columns as a person names them."""

    label: str | None = None
    passes: Sequence[str] = ()
    fails: Sequence[str] = ()
    mission: str | None = None
    group: str | None = None  # "null" where there is none
    sheet: str | None = None
    unlabelled: Literal["refuse", "skip"] = "refuse"


class Guess(NamedTuple):
    """Columns as guessed, and what a person should know of them."""

    columns: ColumnsConfig
    notes: list[str]


def guess_columns(table: str, told: Told) -> Guess:
    """Guess what the columns of a table say. Raises ``InputError`` for what cannot be guessed."""
    with reporting(table, "ticket files"):
        cells, decimal = read_cells(table, told.sheet)
    names = list(cells)
    for option in ("label", "mission", "group"):
        name = getattr(told, option)
        if name is not None and name not in names and (option, name) != ("group", "null"):
            what = f"there is no column {short(name)}{hint_nearest(name, names)}"
            raise InputError(f"--{option}: {what}; there are {_list(names)}")
    label, notes = (told.label, list[str]()) if told.label else guess_label(table, cells)
    labels = cells[label]
    passes, fails = divide_words(label, labels, told.passes, told.fails)
    mission = told.mission or next(
        (name for name in names if MISSIONS.fullmatch(name) and name != label), None
    )
    split = next((name for name in names if name != label and names_splits(cells[name])), None)
    reason = next((name for name in names if name != label and REASONS.fullmatch(name)), None)
    others = {
        name: own for name, own in cells.items() if name not in (label, mission, split, reason)
    }
    group = told.group or guess_group(others, labels)
    group = None if group == "null" else group
    others.pop(group or "", None)
    left_out = find_others(others, labels)
    texts = {name: own for name, own in others.items() if name not in left_out}
    together = guess_together(texts)
    if together:
        said = (
            f"{len(labels):,} rows are of {len({*texts[together]}):,} different {short(together)}"
        )
        notes.append(f"{said}: columns.together keeps those of one in one split")
    for why in dict.fromkeys(left_out.values()):
        alike = _list([name for name in left_out if left_out[name] == why])
        notes.append(f"no texts to judge by: {alike} ({why})")
    missing = sorted({mark for own in texts.values() for mark in find_marks(own)})
    if missing:
        notes.append(f"cells that say nothing: {_list(missing)} (columns.missing)")
    columns = ColumnsConfig(
        mission=mission or ColumnsConfig.mission,
        mission_name=None if mission else Path(table).stem,
        group_id=group,
        together=together,
        split=split,
        reason=reason,
        label=label,
        unlabelled=told.unlabelled,
        passes=passes,
        fails=fails,
        texts=[name for name in texts if name != together or is_long(texts[name])],
        sheet=told.sheet,
        missing=missing,
        decimal=decimal,
    )
    return Guess(columns, notes)


def find_marks(cells: Sequence[str]) -> set[str]:
    """Marks of missing values in a column that holds numbers, with whichever mark before decimals,
    beside them, and nothing else."""
    others = {cell for cell in cells if cell and parse_number(cell.replace(",", ".")) is None}
    is_measured = len(others) < len({*cells} - others - {""})
    return others if is_measured and all(MISSING.fullmatch(cell) for cell in others) else set()


def find_others(columns: Mapping[str, Sequence[str]], labels: Sequence[str]) -> dict[str, str]:
    """The columns that are no texts to judge by, with the reason: dates go without saying in an
    empty one."""
    found: dict[str, str] = {}
    # so lead times are of people, not of deliveries
    is_judged = any(map(PEOPLE.fullmatch, columns))
    for name, cells in columns.items():
        if any(cell.startswith(MARK) for cell in cells):
            found[name] = "cells that are no text or number"
        elif PEOPLE.fullmatch(name) or (is_judged and TIMES.fullmatch(name)):
            found[name] = "who judged a row, and when"
        elif holds_dates(cells):
            found[name] = "dates alone, of which rules read nothing, or no value at all"
        elif is_second_label(name, cells, labels):
            found[name] = "it alone tells the label of every row, as a second label does"
    return found


def is_second_label(name: str, cells: Sequence[str], labels: Sequence[str]) -> bool:
    """Whether a column tells the label of every row, and is called like a label or holds words of
    verdicts."""
    words = {cell.casefold() for cell in cells}
    is_named = LABELS.search(name) or FAULTS.search(name) or (words <= PASSES | FAILS)
    if not is_named or min(Counter(labels).values()) < FEWEST_TICKETS or "" in words:
        return False
    return tells_label(dict(enumerate(cells)), labels, len(labels))


def is_long(cells: Sequence[str]) -> bool:
    """Whether a column holds texts that are hardly ever written twice."""
    return sum(len(cell.split()) for cell in cells) >= LONG * len(cells)


def guess_together(columns: Mapping[str, Sequence[str]]) -> str | None:
    """The column whose rows are judgements of one case, where they come again: a name of cases that
    tells each its long text, or all that is said of it, or such a text itself; None where there is
    none."""
    rows = len(next(iter(columns.values()), ()))
    repeated = [name for name, cells in columns.items() if _comes_again(cells, rows)]
    long = [name for name in repeated if is_long(columns[name])]

    def tells(name: str, other: str) -> bool:
        return len({*zip(columns[name], columns[other], strict=True)}) == len({*columns[name]})

    for name in filter(GROUPS.fullmatch, repeated):
        others = [other for other in columns if other != name]
        if any(tells(name, text) for text in long) or (
            others and all(tells(name, other) for other in others)
        ):
            return name
    return next(iter(long), None)


def _comes_again(cells: Sequence[str], rows: int) -> bool:
    least, most = REPEATED
    different = len({*cells})
    return (
        all(cells) and different >= FEWEST_CASES and least * different <= rows <= most * different
    )


def read_guessed(table: str, told: Told) -> tuple[Guess, list[Ticket]]:
    """The same, with the tickets as a run would read them, so that every line that does not fit is
    told. Raises ``InputError``."""
    columns, notes = guess_columns(table, told)
    tickets, left_out = read_tickets([table], "error", columns)
    if not columns.together and any(each.is_coarse for each in find_repeats(tickets)):
        columns = replace(columns, repeats="apart")
    return Guess(columns, [*notes, *describe_left_out(left_out)]), tickets


def lacks_names(path: str) -> bool:
    """Whether a file is a table without the columns that a config names by itself."""
    try:
        if is_table(path):
            TableReader(table_lines(path, KIND), ColumnsConfig(), path, labelled=True)
        return False
    except FaultError:
        return True


def read_cells(table: str, sheet: str | None = None) -> tuple[dict[str, list[str]], Decimal]:
    """The stripped cells of a table by column, and whichever decimal mark its numbers allow. Raises
    ``FaultError``."""
    if not is_table(table):
        other = "JSON Lines need no such config: stageb validate --config tickets --tickets FILE"
        raise FaultError(
            "no table by its name", f"name a table (.csv, .tsv, .xlsx, .parquet); {other}"
        )
    try:
        return _read_cells(table, sheet, "."), "."
    except FaultError as fault:
        try:
            return _read_cells(table, sheet, ","), ","
        except FaultError:
            raise fault from None


def _read_cells(
    table: str, sheet: str | None, decimal: Decimal, missing: Sequence[str] = ()
) -> dict[str, list[str]]:
    # so that none need be there
    roles = ColumnsConfig(
        mission_name="any", group_id=None, label="\0", decimal=decimal, missing=[*missing]
    )
    opened = TableReader(table_lines(table, KIND, sheet), roles, table, labelled=False)
    rows = [row.cells for row in opened.rows() if len(row.cells) == len(opened.header)]
    if not rows:
        raise FaultError("no rows below the header", "write a ticket per row")
    cells = {
        name: [row[place].strip() for row in rows]
        for place, name in enumerate(opened.header)
        if name
    }
    marks = set[str]().union(*map(find_marks, cells.values()))
    # beside such marks numbers have decimals, too
    return _read_cells(table, sheet, decimal, [*marks]) if marks.difference(missing) else cells


def guess_label(table: str, columns: dict[str, list[str]]) -> tuple[str, list[str]]:
    """The column of verdicts: one that says pass and fail in words that mean it; else the one that
    is called like it, says yes or no to a fault, or sorts rows into a few topics. Of several that
    mean it, a name that tells wins, then the last; of others, a person is asked. Then which others
    would do, in words. Raises ``InputError``."""
    words = {name: {cell.casefold() for cell in cells} - {""} for name, cells in columns.items()}
    plain = [
        name for name, own in words.items() if own & (PASSES | FAILS) and len(own) <= MOST_WORDS
    ]
    named = [name for name, own in words.items() if LABELS.search(name) and len(own) <= MOST_LABELS]
    both = [name for name in plain if words[name] & PASSES and words[name] & FAILS]
    faults = [name for name, own in words.items() if FAULTS.search(name) and _find_no_yes(own)]
    topics = [
        name
        for name, own in words.items()
        if TOPICS.search(name) and _sorts_rows(own, columns[name])
    ]
    telling = (
        [name for name in both if name in named]
        or both
        or [name for name in plain if name in named]
    )
    likely = telling[-1:] or named or faults or topics
    if len(likely) == 1:
        label = likely[0]
    else:
        question = (
            f"{shown(table)}: which column holds the right verdict, of "
            f"{_list(likely or list(columns))}?"
        )
        label = _ask(question, list(columns), _say("label", "COLUMN"))
    others = [
        name for name in columns if name != label and name in {*plain, *named, *faults, *topics}
    ]
    told = (
        f"the label is column {short(label)}; {_list(others)} would do as well: "
        f"{_say('label', 'COLUMN')}"
    )
    return label, [told] if others else []


def _sorts_rows(words: Collection[str], cells: Sequence[str]) -> bool:
    """Whether a column's ``words`` are 2 or more, as many as labels may be, and come again and
    again."""
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
    """The words of the column ``label`` that mean pass, and those that mean fail; some may be
    given. Three words or more of which none is known to mean either are labels of their own.

    Raises ``InputError`` where that cannot be guessed, or where all mean the same.
    """
    words = list({cell.casefold(): cell for cell in reversed(cells) if cell}.values())[::-1]
    folds = {word.casefold() for word in words}
    if not (passes or fails or folds & (PASSES | FAILS)) and 3 <= len(words) <= MOST_LABELS:
        return ["pass"], ["fail"]
    if not (passes or fails) and FAULTS.search(label) and (pair := _find_no_yes(folds)):
        passes, fails = [pair[0]], [pair[1]]
    if len(words) > MOST_WORDS and not (passes or fails):
        what = (
            f"column {short(label)} holds {len(words):,} different values, such as "
            f"{_list(words[:MOST_WORDS])}"
        )
        raise InputError(
            f"{what}: a verdict is one of a few words; name another column with "
            f"{_say('label', 'COLUMN')}"
        )
    if strange := [word for word in (*passes, *fails) if word.casefold() not in folds]:
        raise InputError(
            f"column {short(label)} nowhere says {_list(strange)}; it says {_list(words)}"
        )
    meant = {word.casefold(): "pass" for word in passes} | {
        word.casefold(): "fail" for word in fails
    }
    for word in words:
        folded = word.casefold()
        verdict = "pass" if folded in PASSES else "fail" if folded in FAILS else None
        if folded not in meant and len(words) == 2 and bool(passes) != bool(fails):
            verdict = "fail" if passes else "pass"  # the other one of two
        if folded not in meant:
            question = (
                f"column {short(label)} says {_list(words)}: does {short(word)} mean pass or fail?"
            )
            options = f"{_say('passes', 'WORD ...')} {_say('fails', 'WORD ...')}"
            meant[folded] = verdict or _ask(question, ["pass", "fail"], options)
    divided = {
        verdict: [word for word in words if meant[word.casefold()] == verdict]
        for verdict in ("pass", "fail")
    }
    for verdict, own in divided.items():
        if not own:
            other = ", ".join(map(short, words)) or "nothing"
            remedy = (
                f"give tickets that {verdict} too, or name another column with "
                f"{_say('label', 'COLUMN')}"
            )
            raise InputError(
                f"column {short(label)} says {other} alone, so nothing can be learnt from it; "
                f"{remedy}"
            )
    return divided["pass"], divided["fail"]


def guess_group(columns: Mapping[str, Sequence[str]], labels: Sequence[str]) -> str | None:
    """The column that names what was inspected: one that is called like it, or the first of all if
    it says something else in each row, exact copies of rows aside; None where there is none. A case
    comes at most once with each label, so a machine's name is none."""
    rows = [*dict.fromkeys(zip(labels, *columns.values(), strict=True))]
    # so many copies are tickets that say few different things
    if len(rows) == len(labels) or 2 * len(rows) < len(labels):
        rows = [*zip(labels, *columns.values(), strict=True)]
    for place, name in enumerate(columns):
        is_called = GROUPS.fullmatch(name)
        cells = [row[place + 1] for row in rows]
        names_cases = all(cells) and len({(row[0], row[place + 1]) for row in rows}) == len(cells)
        single_words = all(
            len(cell.split()) == 1 and not re.fullmatch(r"-?\d+[.,]\d+", cell) for cell in cells
        )
        may_copy = (
            is_called or len(rows) == len(labels) or not all(cell.isdecimal() for cell in cells)
        )
        if (
            names_cases
            and single_words
            and may_copy
            and len(columns) > 1
            and (place == 0 or is_called)
        ):
            return name
    return None


def _say(name: str, value: str) -> str:
    """How a caller says what a column is."""
    return (
        write_option(f"columns.{name}", value) if CALLER.get() == IN_PYTHON else f"--{name} {value}"
    )


def _ask(question: str, answers: Sequence[str], option: str) -> str:
    """One of ``answers``, from a person at a terminal. Raises ``InputError`` where nobody is there,
    or answers otherwise."""
    if CALLER.get() == IN_PYTHON or not sys.stdin.isatty():
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
