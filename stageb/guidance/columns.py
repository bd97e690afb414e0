"""The config of tables of tickets: what their columns say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from stageb.config import require

Decimal = Literal[".", ","]


@dataclass(frozen=True)
class ColumnsConfig:
    """What the columns of ticket files in CSV say. ``--columns mission=Station,label=Result`` for short."""

    mission: str = "mission"
    """The column that names the mission."""
    mission_name: str | None = None
    """The mission of all rows, where no column names it."""
    group_id: str | None = "group_id"
    """The column that names what was inspected; null: every row is a case of its own, called after what it says."""
    together: str | None = None
    """A column whose rows stay in one split where they say the same in it, such as a machine's name."""
    label: str = "label"
    """The column that holds the right verdict."""
    passes: list[str] = field(default_factory=lambda: ["pass"])
    """Words of that column that mean pass, in any case; of labels in JSON Lines, too."""
    fails: list[str] = field(default_factory=lambda: ["fail"])
    """Words of that column that mean fail."""
    texts: list[str] = field(default_factory=list)
    """The columns that say what is seen, read as "column: text; ..."; those called image_1, image_2, ... are a summary each.
    Empty: all other columns."""
    decimal: Decimal = "."
    """The mark before the decimals of numbers in tables; a comma is read as a point: 0,5 as 0.5."""

    def __post_init__(self) -> None:
        both = {word.casefold() for word in self.passes} & {word.casefold() for word in self.fails}
        require(not both, "columns.fails", self.fails, f"no word that means pass as well: {', '.join(sorted(both))}")

    def check_files(self, files: Sequence[str]) -> None:
        """Raise ``ConfigError`` for a decimal mark where none of the ``files`` is a table, and nothing would go by it."""
        is_used = self.decimal == "." or any(map(is_table, files))
        remedy = "leave it out: it is of tables (.csv, .tsv), and in JSON Lines decimals stand behind a point"
        require(is_used, "columns.decimal", self.decimal, remedy)


def is_table(path: str) -> bool:
    """Whether a ticket file is a table, by its name."""
    return path.lower().endswith((".csv", ".tsv"))
