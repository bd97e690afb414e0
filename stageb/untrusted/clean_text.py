"""Whether a text is one clean line, as prompts, labels and names must be: nothing hidden in it, no
line broken; and how two of them are compared."""

from __future__ import annotations

import re
import unicodedata

# letters of scripts without spaces, as a class of a regular expression has them
CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
# control, format (bidirectional marks, zero width), half pairs, separators
_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
# letters and marks that show nothing: joiners, fillers, variation selectors but those of emoji
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0") | {
    chr(code) for block in (range(0xFE00, 0xFE0E), range(0xE0100, 0xE01F0)) for code in block
}


def text_fault(text: str) -> str:
    """Say why ``text`` is not one clean line; return an empty string where it is.

    Control and format characters hide things from the people who read guidance or break its one
    line per rule.
    """
    for character in "" if text.isascii() and text.isprintable() else text:  # most texts, at once
        if is_unseen(character):
            return (
                f"the character U+{ord(character):04X}, which is a line break, a control or "
                f"invisible"
            )
    return "" if text.strip() else "an empty text"


def is_unseen(character: str) -> bool:
    """Whether ``character`` breaks a line, or shows nothing."""
    return unicodedata.category(character) in _UNSEEN or character in _BLANK


# full width -> ASCII
WIDTHS = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20}
_DECIMAL = re.compile(r"-?[0-9]+\.[0-9]+")
FULL_STOPS = " .。"


def fold_text(text: str) -> str:
    """Fold a text to compare it: in any case, letters composed and of half width (Unicode's NFC).
    Not NFKC, by which 10³ is 103."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize(
        "NFC", unicodedata.normalize("NFC", text.translate(WIDTHS)).casefold()
    )


def fold_value(value: str) -> str:
    """Fold a value to compare it: like a text, without a full stop behind it, and a decimal number
    without zeros at its end, which programs add on their own (``1`` and ``1.0``)."""
    if _DECIMAL.fullmatch(value):
        return value.rstrip("0").rstrip(".")
    folded = fold_text(value)
    return folded.rstrip(FULL_STOPS) or folded
