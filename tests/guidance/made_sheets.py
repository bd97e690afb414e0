"""Workbooks, without a package that writes them."""

import datetime
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape
from zipfile import ZipFile

BOOK = '<workbook xmlns="{m}" xmlns:r="{r}"><sheets>{sheets}</sheets></workbook>'
STYLES = '<styleSheet xmlns="{m}"><cellXfs count="2"><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs></styleSheet>'
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"


def write_xlsx(path: Path, *sheets: list[list[Any]]) -> Path:
    """A workbook with these sheets, as spreadsheets write it."""

    def cell(value: Any) -> str:
        if isinstance(value, datetime.date):
            return f'<c s="1"><v>{(value - datetime.date(1899, 12, 30)).days}</v></c>'
        if isinstance(value, int | float):
            return f"<c><v>{value!r}</v></c>"
        return f'<c t="inlineStr"><is><t xml:space="preserve">{escape(value)}</t></is></c>' if value else "<c/>"

    numbers = range(1, len(sheets) + 1)
    names = "".join(f'<sheet name="S{n}" sheetId="{n}" r:id="r{n}"/>' for n in numbers)
    links = "".join(f'<Relationship Id="r{n}" Type="{OFFICE}/worksheet" Target="worksheets/s{n}.xml"/>' for n in numbers)
    links += f'<Relationship Id="r0" Type="{OFFICE}/styles" Target="styles.xml"/>'
    with ZipFile(path, "w") as book:
        book.writestr("[Content_Types].xml", "<Types/>")
        root = f'<Relationship Id="r1" Type="{OFFICE}/officeDocument" Target="xl/workbook.xml"/>'
        book.writestr("_rels/.rels", f'<Relationships xmlns="{PACKAGE}">{root}</Relationships>')
        book.writestr("xl/workbook.xml", BOOK.format(m=MAIN, r=OFFICE, sheets=names))
        book.writestr("xl/_rels/workbook.xml.rels", f'<Relationships xmlns="{PACKAGE}">{links}</Relationships>')
        book.writestr("xl/styles.xml", STYLES.format(m=MAIN))
        for n, rows in zip(numbers, sheets, strict=True):
            lines = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
            sheet = f'<worksheet xmlns="{MAIN}"><sheetData>{lines}</sheetData></worksheet>'
            book.writestr(f"xl/worksheets/s{n}.xml", sheet)
    return path
