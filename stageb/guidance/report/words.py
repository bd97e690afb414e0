"""Figures and untrusted texts, as a page shows them."""

from __future__ import annotations


def format_percent(value: float | None, places: int = 1) -> str:
    """A share for people; a dash for none."""
    return "–" if value is None else f"{value:.{places}%}"


def format_span(seconds: float) -> str:
    """A stretch of time for people."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {left} s"


def escape_unseen(text: str) -> str:
    """``text`` with escapes for what hides or moves: controls, marks of direction, halves of letters."""
    return "".join(
        letter if letter.isprintable() or letter in "\n\u3000" else letter.encode("unicode_escape").decode()
        for letter in text.replace("\t", " ").replace("\xa0", " ")
    )


def shorten(text: str, letters: int) -> str:
    """``text`` as ``escape_unseen`` shows it, cut where it is too long."""
    if len(text) <= letters:
        return escape_unseen(text)
    return f"{escape_unseen(text[:letters])}… ({len(text):,} characters)"
