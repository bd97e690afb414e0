"""How a cell, the value of a field, becomes a number, or a quantity with its unit; and how values are compared."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

from stageb.guidance.words.texts import one_line

POWER = r"(?:[eE][-+]\d{1,2})?"  # of ten, as programs write it; without a sign it may be part of a code
NUMBER = rf"[-+]?(?:\d+(?:\.\d+)?{POWER}|\d*\.\d+(?:[eE]\d{{1,2}})?)"  # no code has a point before its e: 4.2e4
CURRENCIES = "$€£¥"
GOES_ON = "¹²³⁴⁵⁶⁷⁸⁹⁺⁻¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞⅟万萬亿億"  # the number itself, behind digits: 10³, 5½, 5万; no ⁰, often °
# Nor 百, 千 and 兆, which begin units: 5千克, 0.5兆帕.
_NUMBER = re.compile(  # with its unit, without digits but in m2, cm3 ...
    rf"(?!.*\d[-.]*-\Z)(-?)([{CURRENCIES}] ?)?({NUMBER})(?! ?[{GOES_ON}])((?:\D|(?<=m)[23])*)"
)
_DECIMAL = re.compile(r"-?[0-9]+\.[0-9]+")
_WIDTHS = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20}  # full width -> ASCII
_MINUS = {0x2212: 0x2D}
FULL_STOPS = " .。"
UNFOLDED = ("m", "M", "p", "P")  # begin units whose case tells milli from mega, and pico from peta
LONGEST_SYMBOL = 4  # characters of such a unit: Mbar


class Quantity(NamedTuple):
    """A number with its unit."""

    number: float
    unit: str  # as ``fold_unit`` leaves it; empty where there is none


@lru_cache(maxsize=1 << 16)
def parse_quantity(value: str) -> Quantity | None:
    """The number that a value is, with its unit, as ``-2.5``, ``1e-05``, ``.5 mm`` and ``$7``; None where it is none, or may
    be another, as ``1,5``, ``2-3``, ``1e5``, ``5½``, ``10³`` and ``2.5-``, where some programs put the sign. A letter for
    thousands, as in ``5k``, is a unit like any other: it cannot be told from kelvin."""
    found = _NUMBER.fullmatch(value if value.isascii() else value.translate(_WIDTHS).translate(_MINUS))
    if not found or (found[1] and found[3][0] in "+-"):
        return None
    return Quantity(float(found[1] + found[3]), fold_unit(found[2] or found[4]))


def parse_number(value: str) -> float | None:
    """The number of ``parse_quantity`` alone."""
    found = parse_quantity(value)
    return found.number if found else None


def fold_unit(unit: str) -> str:
    """A unit as it is compared: in any case where that tells no milli from mega, and with an s for many or without."""
    plain = unit.strip(FULL_STOPS)
    folded = plain if plain[:1] in UNFOLDED and len(plain) <= LONGEST_SYMBOL else fold_text(plain)
    return folded.removesuffix("s") if len(folded) >= LONGEST_SYMBOL else folded


def are_comparable(one: Quantity, other: Quantity) -> bool:
    """Whether both are of one unit, or one of them names none."""
    return one.unit == other.unit or not one.unit or not other.unit


def clean_value(text: str) -> str:
    """A name or a value on one line, nothing hidden in it."""
    return " ".join(text.split()) if text.isascii() and text.isprintable() else one_line(text, len(text))


def fold_text(text: str) -> str:
    """A text as it is compared: in any case, letters composed and of half width (Unicode's NFC). Not NFKC, by which 10³ is
    103."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text.translate(_WIDTHS)).casefold())


def fold_value(value: str) -> str:
    """A value as it is compared: folded, without a full stop behind it, and a decimal number without zeros at its end, which
    programs add on their own (``1`` and ``1.0``)."""
    if _DECIMAL.fullmatch(value):
        return value.rstrip("0").rstrip(".")
    folded = fold_text(value)
    return folded.rstrip(FULL_STOPS) or folded
