"""The column of labels, guessed, and which of its words mean pass and which fail: the first part of
``guess.py``."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

from stageb.errors import CALLER, IN_PYTHON, InputError, shown, write_option
from stageb.guidance.commands.use.table_words import (
    FAILS,
    FAULTS,
    LABELS,
    MERITS,
    NO_YES,
    PASSES,
    TOPICS,
)
from stageb.guidance.words.texts import MOST_LABELS
from stageb.untrusted.strict_json import short

MOST_WORDS = 6  # that a column of verdicts may hold
SHOWN = 20  # names of columns, or words, in a message


def guess_label(table: str, columns: dict[str, list[str]]) -> tuple[str, list[str]]:
    """The column of verdicts: one that says pass and fail in words that mean it; else the one that
    is called like it, says yes or no to a fault or to its absence, or sorts rows into a few topics. Of several that
    mean it, a name that tells wins, then the last; of others, a person is asked. Then which others
    would do, in words. Raises ``InputError``."""
    words = {name: {cell.casefold() for cell in cells} - {""} for name, cells in columns.items()}
    plain = [
        name for name, own in words.items() if own & (PASSES | FAILS) and len(own) <= MOST_WORDS
    ]
    named = [name for name, own in words.items() if LABELS.search(name) and len(own) <= MOST_LABELS]
    both = [name for name in plain if words[name] & PASSES and words[name] & FAILS]
    answers = [name for name, own in words.items() if _divide_answers(name, own)]
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
    likely = telling[-1:] or named or answers or topics
    if len(likely) == 1:
        label = likely[0]
    else:
        question = (
            f"{shown(table)}: which column holds the right verdict, of "
            f"{list_names(likely or list(columns))}?"
        )
        label = _ask(question, list(columns), _say("label", "COLUMN"))
    others = [
        name for name in columns if name != label and name in {*plain, *named, *answers, *topics}
    ]
    told = (
        f"the label is column {short(label)}; {list_names(others)} would do as well: "
        f"{_say('label', 'COLUMN')}"
    )
    return label, [told] if others else []


def _sorts_rows(words: Collection[str], cells: Sequence[str]) -> bool:
    """Whether a column's ``words`` are 2 or more, as many as labels may be, and come again and
    again."""
    return 2 <= len(words) <= MOST_LABELS and len(list(filter(None, cells))) >= 2 * len(words)


def _divide_answers(name: str, words: Collection[str]) -> tuple[str, str] | None:
    """The two of these ``words``, folded, that mean pass and fail, where a column that is called
    like a fault, or like its absence, says yes and no and nothing else."""
    no_yes = next((pair for pair in NO_YES if set(pair) == set(words)), None)
    if no_yes and FAULTS.search(name):
        return no_yes
    return no_yes[::-1] if no_yes and MERITS.search(name) else None


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
    if not (passes or fails) and (pair := _divide_answers(label, folds)):
        passes, fails = [pair[0]], [pair[1]]
    if len(words) > MOST_WORDS and not (passes or fails):
        what = (
            f"column {short(label)} holds {len(words):,} different values, such as "
            f"{list_names(words[:MOST_WORDS])}"
        )
        raise InputError(
            f"{what}: a verdict is one of a few words; name another column with "
            f"{_say('label', 'COLUMN')}"
        )
    if strange := [word for word in (*passes, *fails) if word.casefold() not in folds]:
        raise InputError(
            f"column {short(label)} nowhere says {list_names(strange)}; it says {list_names(words)}"
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
            question = f"column {short(label)} says {list_names(words)}: does {short(word)} mean pass or fail?"
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
        raise InputError(
            f"{short(answer)} is none of {list_names(answers)}; or say it with {option}"
        )
    return answer


def list_names(names: Sequence[str]) -> str:
    """Names for a message, of many the first ones."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(map(short, names[:SHOWN])) + more
