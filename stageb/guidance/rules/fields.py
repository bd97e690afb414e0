"""Reads a ticket's named values as fields: the columns of a row, and the keys of summaries that are
JSON.

A summary that holds a JSON object or list becomes fields named by their paths, joined by ``_``. In
a list of objects, the first text of each says what it is and stands in its path, and its other
texts are counted: ``[{"object": "plug", "state": "loose"}]`` is ``plug: 1`` and ``plug_state_loose:
1``. Whole numbers are counts: they are added up over a ticket's images, and a count that is not
there is 0. Other values stand where all images agree on them. Each image's own fields have its name
before theirs: ``image_2_plug``. Texts in lists are remarks, and so free text.

``exports/python.py`` writes this file into the modules that it makes, so that these read tickets as
files are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from stageb.guidance.rules.value_types import POWER, Reading, clean_value, read_content
from stageb.guidance.words.types import Content
from stageb.untrusted.clean_text import fold_text

HEADER = re.compile(r"\A\s*<DOMAIN=[^>\n]*>,[ \t]*<TASK=[^>\n]*>[ \t\r]*(\n|\Z)")
# summaries, folded, of images that show nothing of the matter
IRRELEVANT = frozenset({"无关图片", "irrelevant image"})
OF_ONE_IMAGE = re.compile(r"image_\d+_")  # begins the name of a field of one image
_IMAGE_KEY = re.compile(r"\D*(\d{1,9})\D*")
_IMAGE_COLUMN = re.compile(r"image_[1-9][0-9]{0,8}")
MOST_COUNT = 10**18  # a larger whole number counts nothing
UNIT = r"(?: ?[^\s\d.,:;+/-][^\s\d.,:;]*)?"
_MINUS_BEHIND = re.compile(r"\d+,\d+-")
_DECIMAL_COMMA = re.compile(rf"[-+−]?\d+,\d+{POWER}{UNIT}")


class Columns(NamedTuple):
    """The meaning of a row's columns."""

    others: tuple[str, ...] = ("mission", "group_id", "label")  # columns that are no fields
    texts: tuple[str, ...] = ()  # columns that are fields; if none is named, all but ``others``
    decimal: str = "."  # the mark before decimals
    renamed: tuple[tuple[str, str], ...] = ()  # names of columns, and what rules call them
    missing: tuple[str, ...] = ()  # cells that say nothing, beside empty ones; folded


BY_NAMES = Columns()


class Summary(NamedTuple):
    """The summary of one image."""

    image: str  # image_{n}
    text: str


class Document(NamedTuple):
    """The content of one summary's JSON."""

    counts: dict[str, int]
    values: dict[str, str | None]  # None where it has several
    remarks: list[str]

    def describe(self) -> str:
        """Return the same as one line."""
        fields = {
            **self.counts,
            **{name: value for name, value in self.values.items() if value is not None},
        }
        return "; ".join([*(f"{name}: {value}" for name, value in fields.items()), *self.remarks])


def read_ticket(ticket: Mapping[str, object], columns: Columns = BY_NAMES) -> Reading:
    """Read a ticket with summaries in ``per_image``, or a row of a table by the names of its
    columns. Raises ``ValueError`` for an image without a number."""
    return read_content(read_said(ticket, columns)[1])


def read_said(ticket: Mapping[str, object], columns: Columns) -> tuple[bool, Content]:
    """Return whether such a ticket says anything, and its content."""
    images = ticket.get("per_image")
    if isinstance(images, Mapping):
        shown, content = read_images(
            sort_summaries((str(key), str(text)) for key, text in images.items()), {}
        )
    else:
        cells = {name: write_cell(value) for name, value in ticket.items() if isinstance(name, str)}
        shown, content = read_row(cells, columns)
    return any(summary.text.strip() for summary in shown), content


def write_cell(value: object) -> str:
    """Write a value as a table does: nothing for None, NaN, or a NaT or NA of pandas, which are
    equal to nothing; hours for a length of time."""
    if value is None or str(value == value) in ("False", "<NA>"):
        return ""
    return str(value.total_seconds() / 3600 if hasattr(value, "total_seconds") else value)


def sort_summaries(images: Iterable[tuple[str, str]]) -> list[Summary]:
    """Sort summaries by the number in their images' keys, headers dropped. Raises ``ValueError``
    for a key without a number."""
    numbered = sorted((parse_image(key), HEADER.sub("", text)) for key, text in images)
    return [Summary(f"image_{number}", text) for number, text in numbered]


def parse_image(key: str) -> int:
    """Return the number of an image in its key. Raises ``ValueError``."""
    found = _IMAGE_KEY.fullmatch(key)
    if found is None:
        raise ValueError(f"per_image: no number in the key {key!r}")
    return int(found[1])


def read_row(cells: Mapping[str, str], columns: Columns) -> tuple[list[Summary], Content]:
    """Return the summaries of a row as a model reads them, and its content; ``cells`` by their
    columns' names."""
    places, number = place_columns(tuple(cells), columns)
    images, fields = list[tuple[str, str]](), dict[str, str]()
    for name, column, is_image in places:
        text = read_cell(cells[column], columns)
        if not is_image:
            fields[name] = clean_value(text)
        elif text:
            images.append((name, text))
    return read_images(sort_summaries(images), fields, number)


@lru_cache(maxsize=64)  # rows of a table have the same columns
def place_columns(
    header: tuple[str, ...], columns: Columns
) -> tuple[Sequence[tuple[str, str, bool]], int]:
    """Name the columns that are fields as rules know them, each with its name in the ``header`` and
    whether it is an image; and number the image that the others make up."""
    renamed = dict(columns.renamed)
    called = {renamed.get(name, name): name for name in header}
    names = columns.texts or [name for name in called if name and name not in columns.others]
    taken = {parse_image(name) for name in names if is_image_column(name)}
    number = next(number for number in range(1, len(taken) + 2) if number not in taken)
    known = {clean_value(name): called[name] for name in names if name in called}
    return [(name, column, is_image_column(name)) for name, column in known.items()], number


def is_image_column(name: str) -> bool:
    """Whether a column holds the summary of an image."""
    return _IMAGE_COLUMN.fullmatch(name) is not None


def read_cell(cell: str, columns: Columns) -> str:
    """Read a cell, without blanks around it; nothing where it stands for a missing value."""
    text = cell.strip()
    return "" if text.lower() in columns.missing else read_decimal(text, columns.decimal)


def read_decimal(cell: str, mark: str) -> str:
    """Return a cell with a decimal point in the place of another mark, and a minus before its
    number, where some programs put it behind."""
    cell = f"-{cell[:-1]}" if mark == "," and _MINUS_BEHIND.fullmatch(cell) else cell
    return cell.replace(",", ".", 1) if mark == "," and _DECIMAL_COMMA.fullmatch(cell) else cell


def write_decimal(value: str, mark: str) -> str:
    """Return the cell that ``read_decimal`` reads as a value."""
    cell = value.replace(".", mark, 1)
    return cell if read_decimal(cell, mark) == value else value


def read_images(
    images: Sequence[Summary], cells: Mapping[str, str], number: int = 1
) -> tuple[list[Summary], Content]:
    """Return the summaries of a ticket as a model reads them, with one more of this ``number`` for
    the ``cells`` of a table if any say something, and the ticket's content. Beside cells, empty
    ones too, counts that are not there are unknown: no empty cell is a 0."""
    fields = tuple((name, text) for name, text in cells.items() if text)
    if not images:  # as in most tables
        said = "; ".join([f"{name}: {text}" for name, text in fields])
        return ([Summary(f"image_{number}", said)] if fields else []), Content(fields, ())
    documents: list[tuple[str, Document]] = []
    shown: list[Summary] = []
    prose: list[str] = []
    for image, text in images:
        document = parse_document(text)
        if document:
            documents.append((image, document))
            prose += document.remarks
            shown.append(Summary(image, document.describe() or text))
        else:
            shown.append(Summary(image, text))
            if fold_text(text.strip()) not in IRRELEVANT:
                prose.append(text)
    if fields:
        shown.append(
            Summary(f"image_{number}", "; ".join(f"{name}: {text}" for name, text in fields))
        )
        shown.sort(key=lambda summary: parse_image(summary.image))
    together = [*_sum_documents(documents)]
    counts = (
        "; ".join([f"{name}: {value}" for name, value in together]) if len(documents) > 1 else ""
    )
    named = (*fields, *together, *_list_documents(documents))
    return shown, Content(named, tuple(prose), bool(documents) and not cells, counts)


def parse_document(text: str) -> Document | None:
    """Parse a summary that is JSON; None for other text."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    document = Document({}, {}, [])
    try:
        _walk(
            json.loads(text, object_pairs_hook=_JsonObject, parse_constant=_refuse_constant),
            (),
            document,
        )
    except (ValueError, RecursionError):
        return None
    return document


class _JsonObject(list[tuple[str, object]]):
    """A JSON object that keeps each of several equal keys."""


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _walk(value: object, path: tuple[str, ...], document: Document) -> None:
    """Add the value at a path to ``document``."""
    name = "_".join(filter(None, map(clean_value, path)))
    if isinstance(value, _JsonObject):
        for key, inner in value:
            _walk(inner, (*path, key), document)
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, _JsonObject):
                _walk_item(item, path, document)
            elif isinstance(item, str):
                document.remarks.append(clean_value(item))
            else:
                _walk(item, path, document)
    elif (
        name and isinstance(value, int) and not isinstance(value, bool) and abs(value) < MOST_COUNT
    ):
        document.counts[name] = document.counts.get(name, 0) + value
    elif (
        name
        and value is not None
        and (said := clean_value(value if isinstance(value, str) else json.dumps(value)))
    ):
        document.values[name] = said if document.values.get(name, said) == said else None


def _walk_item(item: _JsonObject, path: tuple[str, ...], document: Document) -> None:
    """Add an object in a list: what it is, by its first text, and how it is, by the others."""
    named = next((place for place, (_, value) in enumerate(item) if isinstance(value, str)), -1)
    path = (*path, str(item[named][1])) if named >= 0 else path
    _walk(1, path, document)
    for place, (key, value) in enumerate(item):
        if isinstance(value, str) and place != named:
            _walk(1, (*path, key, value), document)
        elif place != named:
            _walk(value, (*path, key), document)


def _sum_documents(documents: Sequence[tuple[str, Document]]) -> Iterable[tuple[str, str]]:
    """Yield the fields of all images together."""
    counts: dict[str, int] = {}
    values: dict[str, str | None] = {}
    for _, document in documents:
        for name, count in document.counts.items():
            counts[name] = counts.get(name, 0) + count
        for name, value in document.values.items():
            values[name] = value if values.get(name, value) == value else None
    yield from ((name, str(count)) for name, count in counts.items())
    yield from (
        (name, value) for name, value in values.items() if value is not None and name not in counts
    )


def _list_documents(documents: Sequence[tuple[str, Document]]) -> Iterable[tuple[str, str]]:
    """Yield the fields of each image."""
    for image, document in documents:
        yield from ((f"{image}_{name}", str(count)) for name, count in document.counts.items())
        yield from (
            (f"{image}_{name}", value)
            for name, value in document.values.items()
            if value is not None
        )
