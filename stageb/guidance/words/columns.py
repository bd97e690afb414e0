"""What the columns of tickets say: the config of tables, and values that have an order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from stageb.settings import DATA, Section, setting

Decimal = Literal[".", ","]
SHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
PARQUET = (".parquet",)


@dataclass(frozen=True)
class ColumnsConfig(Section, at="columns"):
    """What the columns of tables of tickets say. ``--columns mission=Station,label=Result`` for short."""

    mission: str = setting("mission", trust=DATA)
    """The column that names the mission."""
    mission_name: str | None = setting(None, trust=DATA)
    """The mission of all rows, where no column names it."""
    group_id: str | None = setting("group_id", trust=DATA)
    """The column that names what was inspected; null: every row is a case of its own, called after what it says."""
    together: str | None = setting(None, trust=DATA)
    """A column whose rows stay in one split where they say the same in it, such as a machine's name."""
    split: str | None = setting(None, trust=DATA)
    """The column, or the key of JSON Lines, that says which split each ticket is of: train, val or test; null: ``split``
    deals them."""
    repeats: Literal["together", "apart"] = "together"
    """Tickets that say the same under several group_ids. together: they are one case, which no split parts and a test
    counts once. apart: each is a case of its own, as where tickets can say but a few different things. Never for copies of
    one case, which would teach a rule and prove it, too."""
    reason: str | None = setting(None, trust=DATA)
    """The column, or the key of JSON Lines, in which people say why a ticket passed or failed. Reflection and evidence read
    it, for train tickets; whoever judges a ticket never does."""
    label: str = setting("label", trust=DATA)
    """The column that holds the right verdict."""
    passes: list[str] = setting(lambda: ["pass"], trust=DATA)
    """Words of that column that mean pass, in any case; of labels in JSON Lines, too."""
    fails: list[str] = setting(lambda: ["fail"], trust=DATA)
    """Words of that column that mean fail."""
    texts: list[str] = setting(list, trust=DATA)
    """The columns that say what is seen, read as "column: text; ..."; those called image_1, image_2, ... are a summary each.
    Empty: all other columns."""
    decimal: Decimal = "."
    """The mark before the decimals of numbers in tables; a comma is read as a point: 0,5 as 0.5."""

    def check(self) -> None:
        both = {word.casefold() for word in self.passes} & {word.casefold() for word in self.fails}
        self.require(not both, "fails", f"no word that means pass as well: {', '.join(sorted(both))}")

    def check_files(self, files: Sequence[str]) -> None:
        """Raise ``ConfigError`` for a decimal mark where none of the ``files`` is a table, and nothing would go by it."""
        is_used = self.decimal == "." or any(map(is_table, files))
        remedy = "leave it out: it is of tables (.csv, .tsv), and in JSON Lines decimals stand behind a point"
        self.require(is_used, "decimal", remedy)


def is_table(path: str) -> bool:
    """Whether a ticket file is a table, by its name."""
    return path.lower().endswith((".csv", ".tsv", *SHEETS, *PARQUET))


# Values that have an order: of well-known scales, and of those that a config names.
#
# A field is ordered where all of its values, three or more, stand on one scale. "Is at least med" then says which of them a
# ticket may have, and no more: a rule that ranks is the same as one that lists.


FEWEST = 3  # values of an ordered field
WELL_KNOWN = (
    "very low, vlow, v-low < low < medium, med, mid, moderate, normal < high < very high, vhigh, v-high < critical",
    "very small, vsmall, tiny < small < medium, med, mid < large, big < very large, vlarge, very big, vbig, huge",
    "very bad, vbad < bad, poor < fair, acceptable, average, ok < good < very good, vgood < excellent",
    "none, no < slight, minor, low, small < moderate, medium, some < severe, major, high, large < critical, extreme",
    "never < rarely, seldom < sometimes, occasionally < often, frequently < always",
    "very slow < slow < medium, moderate, normal < fast < very fast",
    "xs < s < m < l < xl < xxl",
    "first < second < third < fourth < fifth",
    "low < medium, mid < upper, high",
)

Scale = Sequence[frozenset[str]]
"""Ranks, lowest first: what each is called, in small letters."""


def is_scale(text: str) -> bool:
    """Whether a text names two ranks or more, with ``<`` between them, and no name twice: ``low < med, medium < high``."""
    names = [name for rank in _split_ranks(text) for name in rank]
    return "<" in text and all(names) and len({*names}) == len(names)


def parse_scales(texts: Iterable[str]) -> tuple[Scale, ...]:
    """The scales that texts name."""
    return tuple([frozenset(rank) for rank in _split_ranks(text)] for text in texts)


def _split_ranks(text: str) -> list[list[str]]:
    return [[_fold_name(name) for name in rank.split(",")] for rank in text.split("<")]


def _fold_name(name: str) -> str:
    """A value as scales name it: in any case, with ``_`` or a space in it."""
    return " ".join(name.casefold().replace("_", " ").split())


_WELL_KNOWN = parse_scales(WELL_KNOWN)


def order_values(values: Iterable[str], scales: Sequence[Scale] = ()) -> tuple[str, ...]:
    """The values of a field, lowest first, by the first of ``scales``, and else of the well-known ones, on which all of them
    stand, each on a rank of its own; none where there is no such scale."""
    names = {_fold_name(value): value for value in sorted({*values})}
    if len(names) < FEWEST:
        return ()
    for scale in (*scales, *_WELL_KNOWN):
        ranks = {name: rank for rank, called in enumerate(scale) for name in called}
        if len({ranks.get(name, -1) for name in names} - {-1}) == len(names):
            return tuple(names[name] for name in sorted(names, key=ranks.__getitem__))
    return ()
