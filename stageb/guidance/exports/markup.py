"""XML that rules are written in."""

from __future__ import annotations

import re
from collections.abc import Collection
from xml.etree.ElementTree import Element, SubElement, indent, tostring

_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def add(parent: Element, tag: str, text: str = "", **attributes: object) -> Element:
    """An element within another; an attribute that is a word of Python has ``_`` behind it."""
    added = SubElement(
        parent, tag, {name.rstrip("_"): _clean(str(value)) for name, value in attributes.items()}
    )
    added.text = _clean(text) or None
    return added


def free_name(name: str, taken: Collection[str]) -> str:
    """The name, with a number behind it where others have it, in any case."""
    folded = {each.lower() for each in taken}
    several = (name if n == 1 else f"{name}_{n}" for n in range(1, len(folded) + 2))
    return next(each for each in several if each.lower() not in folded)


def write_document(root: Element) -> str:
    """The document, indented."""
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _clean(text: str) -> str:
    return _NO_XML.sub("\ufffd", text)
