"""Workbooks, without a package that writes them."""

import datetime
from collections.abc import Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any
from xml.sax.saxutils import escape
from zipfile import ZipFile

BOOK = '<workbook xmlns="{m}" xmlns:r="{r}"><sheets>{sheets}</sheets></workbook>'
FORMATS = '<xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="46"/>'
STYLES = f'<styleSheet xmlns="{{m}}"><cellXfs count="3">{FORMATS}</cellXfs></styleSheet>'
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
HIDDEN = ' state="hidden"'
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"


def write_xlsx(
    path: Path, *sheets: list[list[Any]], merged: Sequence[str] = (), hidden: Sequence[int] = ()
) -> Path:
    """A workbook with these sheets, as spreadsheets write it, with ``merged`` ranges such as A2:A5
    in each, the ``hidden`` ones by their numbers from 1. A text that begins with an equals sign is
    a formula that was never computed."""

    def cell(value: Any) -> str:
        if isinstance(value, datetime.date):
            return f'<c s="1"><v>{(value - datetime.date(1899, 12, 30)).days}</v></c>'
        if isinstance(value, datetime.timedelta):
            return f'<c s="2"><v>{value / datetime.timedelta(days=1)!r}</v></c>'
        if isinstance(value, int | float):
            return f"<c><v>{value!r}</v></c>"
        return (
            f'<c t="inlineStr"><is><t xml:space="preserve">{escape(value)}</t></is></c>'
            if value
            else "<c/>"
        )

    def row_of(number: int, cells: list[Any]) -> str:
        written = (
            f'<c r="{letter}{number}"><f>{escape(value[1:])}</f><v></v></c>'
            if str(value).startswith("=")
            else cell(value)
            for letter, value in zip(ascii_uppercase, cells, strict=False)
        )
        return f"<row>{''.join(written)}</row>"

    numbers = range(1, len(sheets) + 1)
    names = "".join(
        f'<sheet name="S{n}" sheetId="{n}" r:id="r{n}"{HIDDEN * (n in hidden)}/>' for n in numbers
    )
    links = "".join(
        f'<Relationship Id="r{n}" Type="{OFFICE}/worksheet" Target="worksheets/s{n}.xml"/>'
        for n in numbers
    )
    links += f'<Relationship Id="r0" Type="{OFFICE}/styles" Target="styles.xml"/>'
    with ZipFile(path, "w") as book:
        book.writestr("[Content_Types].xml", "<Types/>")
        root = f'<Relationship Id="r1" Type="{OFFICE}/officeDocument" Target="xl/workbook.xml"/>'
        book.writestr("_rels/.rels", f'<Relationships xmlns="{PACKAGE}">{root}</Relationships>')
        book.writestr("xl/workbook.xml", BOOK.format(m=MAIN, r=OFFICE, sheets=names))
        book.writestr(
            "xl/_rels/workbook.xml.rels",
            f'<Relationships xmlns="{PACKAGE}">{links}</Relationships>',
        )
        book.writestr("xl/styles.xml", STYLES.format(m=MAIN))
        for n, rows in zip(numbers, sheets, strict=True):
            lines = "".join(row_of(place, row) for place, row in enumerate(rows, 1))
            areas = "".join(f'<mergeCell ref="{area}"/>' for area in merged)
            areas = f'<mergeCells count="{len(merged)}">{areas}</mergeCells>' if merged else ""
            sheet = f'<worksheet xmlns="{MAIN}"><sheetData>{lines}</sheetData>{areas}</worksheet>'
            book.writestr(f"xl/worksheets/s{n}.xml", sheet)
    return path
