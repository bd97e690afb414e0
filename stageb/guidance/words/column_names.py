"""Which columns of tickets say what. What a cell holds, a number with its unit or a text,
``rules/value_types.py`` reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from stageb.settings import DATA, Section, setting
from stageb.untrusted.clean_text import fold_value

Decimal = Literal[".", ","]
SHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
PARQUET = (".parquet",)
# tables whose cells are parted by tabs, as they are or as ``tables.py`` writes them
TABBED = (".tsv", *SHEETS, *PARQUET)


@dataclass(frozen=True)
class ColumnsConfig(Section, at="columns"):
    """The columns of tables of tickets. ``--columns mission=Station,label=Result`` for short."""

    mission: str = setting("mission", trust=DATA)
    """The column that names the mission."""
    mission_name: str | None = setting(None, trust=DATA)
    """The mission of all rows, where no column names it."""
    group_id: str | None = setting("group_id", trust=DATA)
    """The column that names what was inspected; null: every row is a case of its own, called after
    what it says."""
    together: str | None = setting(None, trust=DATA)
    """A column whose rows stay in one split where they say the same in it, such as a machine's
    name."""
    split: str | None = setting(None, trust=DATA)
    """The column, or the key of JSON Lines, that says which split each ticket is of: train, val or
    test; null: ``split`` deals them."""
    repeats: Literal["together", "apart"] = "together"
    """Tickets that say the same under several group_ids. together: they are one case, which no
    split parts and a test counts once. apart: each is a case of its own, as where tickets can say
    but a few different things. Never for copies of one case, which would teach a rule and prove it,
    too."""
    reason: str | None = setting(None, trust=DATA)
    """The column, or the key of JSON Lines, in which people say why a ticket passed or failed.
    Reflection and evidence read it, for train tickets; whoever judges a ticket never does."""
    label: str = setting("label", trust=DATA)
    """The column that holds the right verdict."""
    unlabelled: Literal["refuse", "skip"] = "refuse"
    """Rows without a label where one is needed. skip: they are left out, and counted."""
    passes: list[str] = setting(lambda: ["pass"], trust=DATA)
    """Words of that column that mean pass, in any case; of labels in JSON Lines, too."""
    fails: list[str] = setting(lambda: ["fail"], trust=DATA)
    """Words of that column that mean fail."""
    texts: list[str] = setting(list, trust=DATA)
    """The columns that say what is seen, read as "column: text; ..."; those called image_1,
    image_2, ... are a summary each. Empty: all other columns."""
    comparable: list[str] = setting(list, trust=DATA)
    """Columns of which rules may compare, and compute with, any two, beside those that have one
    unit or the same values: torque and speed, say, since what fails is the power."""
    rename: dict[str, str] = setting(dict, trust=DATA)
    """Columns of tables that are read under other names, such as those that rules know: ``{TSH: TSH
    (mU/l)}``. A table has each under one of its two names."""
    sheet: str | None = setting(None, trust=DATA)
    """The sheet of a workbook that holds the table; null: the only one with something in it that is
    not hidden."""
    missing: list[str] = setting(list, trust=DATA)
    """Cells of tables that say nothing, as empty ones do, in any case: ``[NA, '?']``."""
    decimal: Decimal = "."
    """The mark before the decimals of numbers in tables; a comma is read as a point: 0,5 as 0.5."""

    def check(self) -> None:
        both = {*map(fold_value, self.passes)} & {*map(fold_value, self.fails)}
        self.require(
            not both, "fails", f"no word that means pass as well: {', '.join(sorted(both))}"
        )
        twice = sorted(name for name, count in Counter(self.rename.values()).items() if count > 1)
        self.require(
            not twice,
            "rename",
            f"a name of its own for each column: {', '.join(twice)} stands for several",
        )

    @property
    def has_own_words(self) -> bool:
        """Whether a user says which words mean pass and fail."""
        return (self.passes, self.fails) != (["pass"], ["fail"])

    def find_verdict(self, word: str) -> str | None:
        """Pass or fail, where ``word`` means one of them."""
        for label, meant in (("pass", self.passes), ("fail", self.fails)):
            if fold_value(word) in map(fold_value, meant):
                return label
        return None

    def check_files(self, files: Sequence[str]) -> None:
        """Raise ``ConfigError`` for a decimal mark, or for names of columns, where none of the
        ``files`` is a table, and nothing would go by it."""
        is_used = self.decimal == "." or any(map(is_table, files))
        remedy = (
            "leave it out: it is of tables (.csv, .tsv), and in JSON Lines decimals stand "
            "behind a point"
        )
        self.require(is_used, "decimal", remedy)
        remedy = (
            "leave it out: it is of tables (.csv, .tsv, .xlsx, ...); in JSON Lines, call "
            "the fields as rules do"
        )
        self.require(not self.rename or any(map(is_table, files)), "rename", remedy)


def is_sheet(path: str) -> bool:
    """Whether a ticket file is a spreadsheet or of Parquet, by its name."""
    return path.lower().endswith(SHEETS + PARQUET)


def is_table(path: str) -> bool:
    """Whether a ticket file is a table, by its name."""
    return path.lower().endswith((".csv", *TABBED))
