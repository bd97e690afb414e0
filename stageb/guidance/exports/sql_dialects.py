"""Dialects of SQL: how databases write names, texts, and the few functions that rules need.

A translator of SQL would not do: that MySQL compares in any case, and takes the letters to trim for
one text, is in no grammar. So each function is written here, and the query is tried where the
engine runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dialect:
    """One database's SQL."""

    title: str
    double: str = "DOUBLE"  # the type of numbers
    cast: str = "TRY_CAST"  # of a text that may be no number
    as_text: str = "CAST({} AS TEXT)"  # a column
    a_character: str = "CHR"
    a_length: str = "LENGTH"
    name_mark: str = '"'
    has_escapes: bool = False  # whether a backslash in a text begins an escape
    longest_name: int = 120  # bytes of a column's name
    is_tried: bool = True  # whether its engine has judged rows by such queries

    @property
    def tried(self) -> str:
        """The same in words."""
        return (
            f"tried with {self.title}"
            if self.is_tried
            else "written after its manual, and not tried there"
        )

    def name(self, name: str) -> str:
        """The name of a column."""
        mark = self.name_mark
        return f"{mark}{name.replace(mark, mark * 2)}{mark}"

    def quote(self, text: str) -> str:
        """A text."""
        if not self.has_escapes:
            return "'" + text.replace("'", "''") + "'"
        return (
            "'"
            + text.replace("\\", "\\\\")
            .replace("'", "\\'")
            .replace("\n", "\\n")
            .replace("\r", "\\r")
            + "'"
        )

    def cell(self, name: str) -> str:
        """A column of the table as text, empty where it is NULL: what can be joined."""
        # With the table's name before it, since SQLite takes a quoted name that is no column for a
        # text.
        return f"COALESCE({self.as_text.format(f't.{self.name(name)}')}, '')"

    def number(self, text: str) -> str:
        """The number that a text is."""
        return f"{self.cast}({text} AS {self.double})"

    def length(self, text: str) -> str:
        """How many characters a text has."""
        return f"{self.a_length}({text})"

    def character(self, code: int) -> str:
        """The character of this code point."""
        return f"{self.a_character}({code})"

    def join(self, *parts: str) -> str:
        """Texts, one after the other; NULL where one is."""
        return " || ".join(parts)

    def skip(self, text: str, letters: str) -> str:
        """A text without any of these letters at its beginning."""
        return f"LTRIM({text}, {self.quote(letters)})"

    def skip_end(self, text: str, letters: str) -> str:
        """A text without any of these letters at its end."""
        return f"RTRIM({text}, {self.quote(letters)})"

    def strip(self, text: str, codes: tuple[int, ...]) -> str:
        """A text without spaces and characters of these code points around it."""
        blanks = self.join("' '", *map(self.character, codes))
        return f"RTRIM(LTRIM({text}, {blanks}), {blanks})"


class _Spark(Dialect):
    """Spark's functions have the letters first, or stand in words."""

    __slots__ = ()

    def skip(self, text: str, letters: str) -> str:
        return f"TRIM(LEADING {self.quote(letters)} FROM {text})"

    def skip_end(self, text: str, letters: str) -> str:
        return f"TRIM(TRAILING {self.quote(letters)} FROM {text})"

    def strip(self, text: str, codes: tuple[int, ...]) -> str:
        blanks = self.join("' '", *map(self.character, codes))
        return f"TRIM(BOTH {blanks} FROM {text})"


class _MySql(Dialect):
    """MySQL and MariaDB trim one text and no set of letters, and join no texts by bars."""

    __slots__ = ()

    def join(self, *parts: str) -> str:
        return f"CONCAT({', '.join(parts)})"

    def character(self, code: int) -> str:
        return f"_utf8mb4 X'{chr(code).encode().hex().upper()}'"

    def skip(self, text: str, letters: str) -> str:
        return self._remove(text, f"^[{self._list(letters)}]+")

    def skip_end(self, text: str, letters: str) -> str:
        return self._remove(text, f"[{self._list(letters)}]+$")

    def strip(self, text: str, codes: tuple[int, ...]) -> str:
        blanks = " " + "".join(f"\\x{{{code:X}}}" for code in codes)
        return self._remove(text, f"^[{blanks}]+|[{blanks}]+$")

    def _remove(self, text: str, pattern: str) -> str:
        return f"REGEXP_REPLACE({text}, {self.quote(pattern)}, '')"

    def _list(self, letters: str) -> str:
        def escape() -> Iterator[str]:
            for letter in letters:
                yield letter if letter.isalnum() or not letter.isascii() else f"\\{letter}"

        return "".join(escape())


_STRING = "CAST({} AS STRING)"
# compared letter by letter, not in any case
_BINARY = "CAST({} AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin"
DIALECTS = {
    "sqlite": Dialect("SQLite", "DOUBLE PRECISION", "CAST", a_character="CHAR"),
    "duckdb": Dialect("DuckDB"),
    "postgres": Dialect("PostgreSQL", "DOUBLE PRECISION", "CAST", longest_name=63),
    "mysql": _MySql(
        "MySQL and MariaDB", "DOUBLE", "CAST", _BINARY, "", "CHAR_LENGTH", "`", True, 64
    ),
    "spark": _Spark("Spark", as_text=_STRING, name_mark="`", has_escapes=True),
    "bigquery": Dialect(
        "BigQuery", "FLOAT64", "SAFE_CAST", _STRING, name_mark="`", has_escapes=True, is_tried=False
    ),
    "snowflake": Dialect("Snowflake", has_escapes=True, is_tried=False),
}
"""By the name that ``--dialect`` has."""
