"""Cells in SQL: a cell's text on one line, what compares with other values, its number and its
unit.

SQL folds no text as code does, so each is NULL where a cell holds what its functions may read
otherwise.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from itertools import product

from stageb.guidance.exports.protocol import CodedMission, UnsaidError
from stageb.guidance.exports.sql_dialects import Dialect
from stageb.guidance.rules.value_types import (
    ANY,
    CURRENCIES,
    ENDINGS,
    GOES_ON,
    JOINTS,
    LEAST_STEM,
    LONGEST_SYMBOL,
    SURELY_MENTIONED,
    UNFOLDED,
    begins_cjk,
    split_words,
)
from stageb.untrusted.clean_text import FULL_STOPS

_ASCII = "".join(letter for letter in string.printable if letter.isprintable())
# line breaks, tab, no-break space; other cells with blanks of their own are not compared
_BLANKS = (10, 13, 9, 160)
_DIGITS = "0123456789"
_SIGNED = "+-." + _DIGITS
ALWAYS, NEVER = "1 = 1", "1 = 0"
MOST_MARKS = 55  # of ``_letters`` that part words
WORD_STAGES, AT_ONCE = ("cells", "digits", "beyond", "plain"), 20  # of what parts words
STAGES = (
    "fields",
    "texts",
    "cells",
    "digits",
    "beyond",
    "plain",
    "compared",
    "comparisons",
    "rules",
)


class CellColumns:
    """The columns that say what the cells of a mission's fields hold.

    ``stages`` are the subqueries that make them, each from the one before: the fields of rules,
    their texts, the numbers in them, what compares; and then what is made of these, how they
    compare and whether each rule holds.
    """

    def __init__(self, mission: CodedMission, dialect: Dialect) -> None:
        self.stages: dict[str, dict[str, str]] = {each: {} for each in STAGES}
        self._mission, self._sql = mission, dialect
        self.fields: dict[str, str] = {}  # the columns of the first stage
        self._cut: dict[str, int] = {}  # names that are too long
        numbers = "".join(
            each for each in mission.letters if each not in GOES_ON and not each.isdecimal()
        )
        self._letters, self._letters_of_numbers = _ASCII + mission.letters, _ASCII + numbers

    def add(self, stage: str, name: str, condition: str, said: str = "") -> str:
        """A column of a stage, by the name that it is called from now on."""
        quoted = self._sql.name(self._shorten(name))
        self.stages[stage].setdefault(name, f"    {said}{condition} AS {quoted}")
        return f"t.{quoted}"

    def _shorten(self, name: str) -> str:
        """A name that differs from others where a database would cut it."""
        if len(name.encode()) <= self._sql.longest_name:
            return name
        number = self._cut.setdefault(name, len(self._cut) + 1)
        return f"{name.encode()[: self._sql.longest_name - 8].decode(errors='ignore')} {number}"

    # Texts

    def text(self, field: str) -> str:
        """A column's text on one line, runs of blanks (up to eight) as one; NULL where it is
        empty."""
        text = self._raw(field)
        for blank in _BLANKS:
            text = f"REPLACE({text}, {self._sql.character(blank)}, ' ')"
        for _ in range(3):
            text = f"REPLACE({text}, '  ', ' ')"
        told = f"CASE WHEN NOT {self.is_missing(text)} THEN TRIM({text}) END"
        said = told if self._mission.columns.missing else f"NULLIF(TRIM({text}), '')"
        return self.add("texts", f"text of {field}", said)

    def is_missing(self, cell: str) -> str:
        """Whether a cell says nothing; NULL where it is NULL."""
        marks = self._mission.columns.missing
        if not marks:
            return f"TRIM({cell}) = ''"
        return f"LOWER(TRIM({cell})) IN ({', '.join(map(self._sql.quote, ('', *marks)))})"

    def _raw(self, field: str) -> str:
        self.fields[field] = self.add("fields", f"raw {field}", self._sql.cell(field))
        return self.fields[field]

    def lacks(self, field: str, is_number: bool) -> str:
        """Whether a ticket surely does not tell a field: of counts, one that is not there is 0."""
        return (
            NEVER
            if is_number and self._mission.is_counted is not False
            else f"{self.text(field)} IS NULL"
        )

    def cell(self, field: str, is_number: bool) -> str:
        """The same text with a point before decimals, with true and false in the place of 1 and 0,
        where it is one of these, and with 0 where an empty cell counts none. NULL, too, where SQL
        cannot know what code makes of a comma."""
        cell = text = self.text(field)
        if field in self._mission.booleans:
            cell = f"CASE {text} WHEN '1' THEN 'true' WHEN '0' THEN 'false' ELSE {text} END"
        elif self._mission.columns.decimal == "," and field not in self._mission.numeric:
            cell = self._read_comma(text, self._raw(field))
        if is_number and self._mission.is_counted:
            return self.add(
                "cells", f"count of {field}", f"CASE WHEN {text} IS NULL THEN '0' ELSE {cell} END"
            )
        return cell if cell is text else self.add("cells", f"cell of {field}", cell)

    def _read_comma(self, text: str, raw: str) -> str:
        """What ``read_decimal`` makes of a text."""
        sql = self._sql
        rest = sql.skip(text, f"+-{_DIGITS},")
        body, unit = f"SUBSTR({text}, 1, {sql.length(text)} - 1)", self._drop_sign(rest, " ")
        unsigned = self._drop_sign(
            f"SUBSTR({text}, 1, {sql.length(text)} - {sql.length(rest)})", "+-"
        )

        def is_one(number: str) -> str:
            only = f"{sql.skip(number, f'{_DIGITS},')} = ''"
            return f"{number} LIKE '%_,_%' AND {number} NOT LIKE '%,%,%' AND {only}"

        strange = " OR ".join(f"{unit} LIKE '%{each}%'" for each in f" .,:;{_DIGITS}")
        is_unit = f"{unit} <> '' AND NOT ({strange} OR SUBSTR({unit}, 1, 1) IN ('+', '/', '-'))"
        negative = sql.join("'-'", f"REPLACE({body}, ',', '.')")
        return (
            f"CASE WHEN {text} NOT LIKE '%,%' THEN {text}"
            # blanks of which one is no single space
            f" WHEN {sql.strip(raw, _BLANKS)} <> {text} THEN {text}"
            f" WHEN {text} LIKE '%_-' AND {is_one(body)} THEN {negative}"
            f" WHEN NOT ({is_one(unsigned)}) THEN {text}"
            f" WHEN {rest} = '' OR ({is_unit}) THEN REPLACE({text}, ',', '.')"
            f" WHEN SUBSTR({rest}, 1, 1) NOT IN ('e', 'E') THEN {text} END"
        )

    def _drop_sign(self, text: str, signs: str) -> str:
        """A text without the sign that it may begin with."""
        return self._sql.join(self._sql.skip(f"SUBSTR({text}, 1, 1)", signs), f"SUBSTR({text}, 2)")

    def folded(self, field: str, is_number: bool) -> str:
        """The text that compares with other values; NULL where SQL does not fold a cell as
        ``fold_value`` does."""
        cell = self.cell(field, is_number)
        name = (
            f"compared {'count' if is_number and self._mission.is_counted else 'value'} of {field}"
        )
        return self.add(
            "compared", name, f"CASE WHEN {self.is_plain(cell)} THEN {self._fold(cell)} END"
        )

    def _fold(self, text: str) -> str:
        """What ``fold_value`` makes of a plain text."""
        sql = self._sql
        digits = (
            f"{sql.skip(text, f'-.{_DIGITS}')} = '' AND {sql.skip(text, '-')} NOT LIKE "
            f"'.%' AND {text} LIKE '%.%_'"
        )
        one_of_each = f"{text} NOT LIKE '%.%.%' AND SUBSTR({text}, 2) NOT LIKE '%-%'"
        number, word = sql.skip_end(sql.skip_end(text, "0"), "."), f"LOWER({text})"
        stopped = f"COALESCE(NULLIF({sql.skip_end(word, ' .')}, ''), {word})"
        return f"CASE WHEN {digits} AND {one_of_each} THEN {number} ELSE {stopped} END"

    def is_plain(self, text: str) -> str:
        """Whether SQL folds a text as ``fold_value`` does."""
        return f"{self._sql.skip(text, self._letters)} = '' AND {text} NOT LIKE '%  %'"

    # Words

    def words(self, field: str) -> str:
        """A column's words as they stand, in small letters, each between blanks; NULL where SQL
        does not fold the text as ``split_words`` does."""
        text, sql = self.text(field), self._sql
        joints = [each for each in JOINTS if each.isascii() or each in self._letters]
        whole = {"_", " ", *joints}
        marks = [each for each in self._letters if not each.isalnum() and each not in whole]
        # what joins stands between two letters, and alone
        apart = [*map("".join, product(joints, repeat=2))]
        apart += [pair for each in joints for pair in (f" {each}", f"{each} ")]
        steps = [*marks[:MOST_MARKS], *apart, *["  "] * 5]
        kept = "".join(each for each in self._letters if each not in marks[MOST_MARKS:])
        found = sql.join("' '", f"LOWER({text})", "' '")
        # a stage for some at a time, since SQLite takes only so many brackets in brackets
        for place, stage in enumerate(WORD_STAGES):
            for each in steps[place * AT_ONCE :][:AT_ONCE]:
                found = f"REPLACE({found}, {sql.quote(each)}, ' ')"
            found = self.add(stage, f"words of {field} in {stage}", found)
        said = (
            f"CASE WHEN {text} IS NULL THEN ' ' WHEN {sql.skip(text, kept)} = '' THEN {found} END"
        )
        return self.add("compared", f"words of {field}", said)

    def has_word(self, words: str, word: str) -> str:
        """Whether ``words`` have a word, a stem or a phrase, its words with any ending."""
        begun, *ways = f" {word.removesuffix(ANY).split(' ')[0]}", *_spell(word)
        if ways == [begun]:
            return self._holds(words, begun)
        found = " OR ".join(self._holds(words, way) for way in ways)
        # most texts do not, which this tells at once
        return f"({self._holds(words, begun)} AND ({found}))"

    def _holds(self, words: str, text: str) -> str:
        if "_" in text:  # any letter, for LIKE
            return f"REPLACE({words}, {self._sql.quote(text)}, '') <> {words}"
        return f"{words} LIKE {self._sql.quote(f'%{text}%')}"

    # Numbers

    def number(self, field: str) -> str:
        """The number that ``parse_quantity`` makes of a cell; NULL where that may be another, or
        none."""
        sql, (cell, digits, beyond) = self._sql, self._part(field)
        if field in self._mission.numeric:
            return self.add("compared", f"number of {field}", sql.number(cell))
        parts = [
            f"{sql.skip(cell, self._letters_of_numbers)} = '' AND {cell} NOT LIKE '%-' AND "
            f"{cell} NOT LIKE '%  %'",
            f"NOT ({self._is_malformed(digits)})",
            f"{sql.skip(digits, '+-.')} <> '' AND NOT ({self._has_figures(beyond)})",
        ]
        number = sql.number(f"SUBSTR({cell}, 1, {sql.length(cell)} - {sql.length(beyond)})")
        return self.add(
            "compared", f"number of {field}", f"CASE WHEN {' AND '.join(parts)} THEN {number} END"
        )

    def no_number(self, field: str) -> str:
        """Whether code surely makes no number of a cell."""
        sql, lacks, (cell, digits, beyond) = self._sql, self.lacks(field, True), self._part(field)
        if field in self._mission.numeric:
            return lacks
        ends = f"{sql.skip(f'SUBSTR({digits}, {sql.length(digits)})', _DIGITS)} = ''"
        reasons = [
            f"{sql.skip(digits, '+-.')} = ''",
            self._has_figures(beyond),
            f"({self._is_malformed(digits)}) AND {ends}",
            f"{sql.skip(cell, f'-.{_DIGITS}')} = '' AND {cell} LIKE '%-'",
        ]
        plain = [f"{sql.skip(cell, self._letters_of_numbers)} = '' AND {cell} NOT LIKE '%  %'"]
        plain += [f"{cell} NOT LIKE '%{sign}%'" for sign in CURRENCIES]
        said = (
            f"CASE WHEN {lacks} THEN 1 WHEN {' AND '.join(plain)} AND "
            f"({' OR '.join(reasons)}) THEN 1 END"
        )
        return f"{self.add('compared', f'no number in {field}', said)} = 1"

    def unit(self, field: str) -> str:
        """The unit of that number, as ``fold_unit`` leaves it."""
        sql, beyond = self._sql, self._part(field)[2]
        plain = self.add(
            "plain",
            f"plain unit of {field}",
            sql.skip_end(sql.skip(beyond, FULL_STOPS), FULL_STOPS),
        )
        length, symbols = sql.length(plain), ", ".join(map(sql.quote, UNFOLDED))
        is_symbol = f"{length} <= {LONGEST_SYMBOL} AND SUBSTR({plain}, 1, 1) IN ({symbols})"
        folded = f"CASE WHEN {is_symbol} THEN {plain} ELSE LOWER({plain}) END"
        is_many = f"{length} >= {LONGEST_SYMBOL} AND SUBSTR({folded}, {length}) = 's'"
        unit = f"CASE WHEN {is_many} THEN SUBSTR({folded}, 1, {length} - 1) ELSE {folded} END"
        return self.add("compared", f"unit of {field}", unit)

    def _part(self, field: str) -> tuple[str, str, str]:
        """A cell with a number; the signs, digits and points that it begins with; and what stands
        behind the number."""
        sql, cell = self._sql, self.cell(field, True)
        if field in self._mission.numeric:
            return cell, "''", "''"
        behind = sql.skip(cell, _SIGNED)
        rest = self.add("digits", f"rest of {field}", behind)
        run = f"SUBSTR({cell}, 1, {sql.length(cell)} - {sql.length(behind)})"
        digits = self.add("digits", f"digits of {field}", run)
        first, second = f"SUBSTR({rest}, 1, 1)", f"SUBSTR({rest}, 2, 1)"
        signed, bare = (sql.skip(f"SUBSTR({rest}, {place})", _DIGITS) for place in (3, 2))
        size = f"{sql.length(rest)} - "
        beyond = (
            f"CASE WHEN {first} IN ('e', 'E') AND {second} IN ('+', '-') AND {digits} NOT LIKE '%.'"
            f" AND {size}{sql.length(signed)} BETWEEN 3 AND 4 THEN {signed}"
            f" WHEN {first} IN ('e', 'E') AND {digits} LIKE '%.%_'"
            f" AND {size}{sql.length(bare)} BETWEEN 2 AND 3 THEN {bare} ELSE {rest} END"
        )
        return cell, digits, self.add("beyond", f"beyond {field}", beyond)

    def _is_malformed(self, digits: str) -> str:
        unsigned = self._drop_sign(digits, "+-")
        return " OR ".join(f"{unsigned} LIKE '{pattern}'" for pattern in ("%+%", "%-%", "%.%.%"))

    def _has_figures(self, beyond: str) -> str:
        """Whether digits stand behind the number, but those of m2 and m3: a blank takes their
        place, or mm23 were m3."""
        letters = "".join(each for each in self._letters_of_numbers if each not in _DIGITS)
        plain = f"REPLACE(REPLACE({beyond}, 'm2', ' '), 'm3', ' ')"
        return f"{self._sql.skip(plain, letters)} <> ''"


def check_word(mission: CodedMission, field: str, word: str) -> None:
    """Raises ``UnsaidError`` where SQL cannot find a word, a stem or a phrase in a column."""
    if any(map(begins_cjk, mission.letters)):
        raise UnsaidError("SQL finds no words in texts without spaces")
    if field in mission.booleans or field in mission.numeric:
        raise UnsaidError("SQL finds no words in numbers and flags")
    plain = word.removesuffix(ANY)
    read = [forms[0] for forms in split_words(plain) if forms]
    if read != plain.split(" ") or max(map(len, read)) > SURELY_MENTIONED or len(plain) < 2:
        raise UnsaidError(f"SQL cannot find {word!r}")


def _spell(word: str) -> Sequence[str]:
    """The ways in which texts write a word, a stem or a phrase, with the blanks around it."""
    if word.endswith(ANY):
        return [f" {word.removesuffix(ANY)}"]
    ways = (
        [each, *(each + end for end in ENDINGS if len(each) >= LEAST_STEM)]
        for each in word.split(" ")
    )
    return [f" {' '.join(way)} " for way in product(*ways)]
