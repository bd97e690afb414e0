"""How names and texts are written in SQL."""

from __future__ import annotations


def quote_name(name: str) -> str:
    """The name of a column."""
    return '"' + name.replace('"', '""') + '"'


def quote(text: str) -> str:
    """A literal of SQL."""
    return "'" + text.replace("'", "''") + "'"
