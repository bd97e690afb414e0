"""The header of a table: what its columns say of a ticket, and what is wrong with their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import filterfalse

from stageb.errors import write_option
from stageb.guidance.rules.fields import Columns, is_image_column
from stageb.guidance.rules.value_types import clean_value
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.texts import ALIKE, find_nearest, find_renamed
from stageb.untrusted.clean_text import fold_text
from stageb.untrusted.strict_json import FaultError, short

SHOWN = 4  # names of columns at either end


def list_roles(columns: ColumnsConfig) -> Columns:
    """Return the roles of a table's columns, for rules written as code that read its rows."""
    mission = columns.mission if columns.mission_name is None else None
    others = (
        mission,
        columns.label,
        columns.group_id,
        columns.together,
        columns.split,
        columns.reason,
    )
    named = tuple(name for name in others if name is not None)
    missing = tuple(cell.strip().lower() for cell in columns.missing)
    renamed = tuple(columns.rename.items())
    return Columns(named, tuple(columns.texts), columns.decimal, renamed, missing)


def find_columns(
    header: Sequence[str], columns: ColumnsConfig, is_labelled: bool, line: int
) -> tuple[dict[str, int], dict[str, int]]:
    """Find where mission, group_id and label stand in a ``header``, whose names are those that
    rules know; and where the texts do, by their columns' names: those that the config names, or all
    that say nothing else. A label need not be there, unless tickets have to be labelled. Raises
    ``FaultError`` about the header's ``line``."""
    place_of = {name: place for place, name in enumerate(header)}
    wanted = {
        "mission": columns.mission if columns.mission_name is None else None,
        "group_id": columns.group_id,
    }
    if columns.label in place_of or is_labelled:
        wanted["label"] = columns.label
    found = {key: name for key, name in wanted.items() if name is not None}
    texts = columns.texts or [
        name
        for name in place_of
        if name and name not in (*found.values(), columns.together, columns.split, columns.reason)
    ]
    together = [("together", columns.together)] if columns.together is not None else []
    named = [*found.items(), *together, *(("texts", name) for name in texts)]
    asked = {columns.split, columns.reason, *(name for _, name in named)}
    check_once(sorted(name for name in header if name in asked), line)
    missing = [(key, name) for key, name in named if name not in place_of]
    if missing or not texts:
        taken = {*found.values(), columns.together, *columns.texts}
        # one may be what is missing
        free = [name for name in place_of if name and name not in taken]
        raise _refuse_missing(missing, header, free, line)
    check_apart(texts, line)
    return {key: place_of[name] for key, name in found.items()}, {
        name: place_of[name] for name in texts
    }


def check_renamed(names: Sequence[str], columns: ColumnsConfig, line: int) -> None:
    """Raise ``FaultError`` where the config renames a column that is not there, among the ``names``
    as the file writes them."""
    for name, other in columns.rename.items():
        if name not in names and other not in names:
            what = f"no column {short(name)} (columns.rename){hint_nearest(name, names)}"
            raise FaultError(what, "name one that is there, or leave it out", line)


def check_once(names: Iterable[str], line: int = 0) -> None:
    """Raise ``FaultError`` about the first of ``names`` that several columns have."""
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise FaultError(
            f"two columns {short(twice[0])}", "give every column a name of its own", line
        )


def check_apart(names: Iterable[str], line: int = 0) -> None:
    """Raise ``FaultError`` where rules cannot tell two columns apart; those of images, they can."""
    column_of: dict[str, str] = {}
    for name in filterfalse(is_image_column, names):
        other = column_of.setdefault(fold_text(clean_value(name)), name)
        if other is not name:
            what = f"columns {short(other)} and {short(name)}, which rules cannot tell apart"
            raise FaultError(what, "rename one, or name others in columns.texts", line)


def hint_nearest(wrong: str, names: Iterable[str], cutoff: float = ALIKE) -> str:
    """Name what is most like a name that is not there, if anything is."""
    return _write_hint(find_nearest(wrong, filter(None, names), cutoff))


def _write_hint(near: str) -> str:
    return f", did you mean {short(near)}?" if near else ""


def _refuse_missing(
    missing: Sequence[tuple[str, str]], header: Sequence[str], free: Sequence[str], line: int
) -> FaultError:
    """Tell of columns that are ``missing``, each with its key of the config's columns; none: all
    texts are. ``free`` are names of the header that the config does not."""
    near = {name: find_renamed(name, free) for _, name in missing}
    told = [f"{short(name)} (columns.{key}){_write_hint(near[name])}" for key, name in missing]
    what = ", ".join(told) or "for the text"
    remedy = _advise_columns([*dict.fromkeys(key for key, _ in missing)] or ["texts"])
    if renamed := {near[name]: name for key, name in missing if near[name] and key == "texts"}:
        remedy += f"; where it is the same column: {write_option('columns.rename', renamed)}"
    return FaultError(f"no column {what}; there are {_describe(header, free)}", remedy, line)


def _advise_columns(keys: Sequence[str]) -> str:
    """Say how to name the columns that ``keys`` of the config's columns mean, and what they may say
    else."""
    named = write_option("columns", dict.fromkeys(keys, "NAME"))
    hints = {
        "mission": f"{write_option('columns.mission_name', 'TEXT')} where all rows are of one "
        f"mission",
        "group_id": f"{write_option('columns.group_id', None)} where every row is a group of "
        f"its own",
        "together": "or leave together out",
        "texts": "texts are those that say what is seen, one or several",
    }
    return "; ".join(
        [f"name it in the config's columns, or by {named}", *filter(None, map(hints.get, keys))]
    )


def _describe(header: Sequence[str], free: Sequence[str]) -> str:
    """List the names of the columns; of many, those that the config does not name, the first and
    the last of them, among which people look for a label."""
    names, more = [name for name in header if name], list[str]()
    if len(names) > 2 * SHOWN + 1 and free:
        more = [f"{len(names) - len(free)} that the config names"] * (len(free) < len(names))
        names = [*free]
    if len(names) > 2 * SHOWN + 1:
        names = [*names[:SHOWN], f"{len(names) - 2 * SHOWN} more", *names[-SHOWN:]]
    return ", ".join([*names, *more])
