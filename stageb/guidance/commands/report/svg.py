"""A matplotlib figure as SVG for a page: its colours are the page's, light or dark, and nothing in it needs a style of its
own or shares a name with another figure.

Matplotlib is given stand-ins for colours (``COLOURS``); here each becomes a class, which the page's style sheet paints. The
text stays text, in the reader's fonts. What is left are plain shapes with attributes: no script, no style, no link.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
COLOURS = {  # name -> stand-in; the style sheet has .f-NAME and .s-NAME
    name: f"#0000{number:02x}"
    for number, name in enumerate("ink soft grid paper val test train right wrong accepted refused seen".split(), start=1)
}
SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "stageb",
    "text.parse_math": False,  # names of missions are nobody's formulas
    "axes.unicode_minus": False,
    "font.family": "DejaVu Sans",  # that matplotlib brings: the same layout everywhere
    "font.size": 10,
    "hatch.linewidth": 1.2,
    "path.simplify": False,
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), COLOURS["ink"]),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), COLOURS["soft"]),
    "grid.color": COLOURS["grid"],
    "grid.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}
_CLASSES = {stand_in: name for name, stand_in in COLOURS.items()}
_NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
_REFERENCE = re.compile(r"#([\w-]+)")
_KEPT = frozenset(
    "d x y width height transform clip-path patternUnits fill stroke stroke-width stroke-dasharray stroke-linecap opacity "
    "fill-opacity stroke-opacity text-anchor".split()
)


@contextmanager
def use_settings() -> Iterator[None]:
    """Within, matplotlib draws as ``render_svg`` expects it."""
    import logging
    import warnings

    import matplotlib

    with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():  # type: ignore[arg-type]  # a dict of settings
        warnings.simplefilter("ignore")  # of letters that its own font lacks: the reader's fonts draw the text
        logger = logging.getLogger("matplotlib")
        level = logger.level
        logger.setLevel(logging.ERROR)  # of its cache of fonts, about which nobody can do anything
        try:
            yield
        finally:
            logger.setLevel(level)


def render_svg(figure: Figure, name: str, title: str, description: str) -> str:
    """``figure`` as an ``<svg>`` element for HTML; ``name`` sets its identifiers apart. Both texts are for people who do
    not see it."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    FigureCanvasSVG(figure)
    written = io.BytesIO()
    figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(written.getvalue())
    names = {reference: f"{name}-{number}" for number, reference in zip(count(), _find_references(root))}
    drawn = _strip_element(root, names)
    for tag, text in (("desc", description), ("title", title)):
        told = ElementTree.Element(tag, {"id": f"{name}-{tag}"})
        told.text = text
        drawn.insert(0, told)
    drawn.attrib = {
        "viewBox": root.attrib["viewBox"],
        "role": "img",
        "aria-labelledby": f"{name}-title {name}-desc",
        "class": "chart",
    }
    return ElementTree.tostring(drawn, encoding="unicode")


def _find_references(root: ElementTree.Element) -> list[str]:
    """What elements refer to, in order."""
    values = (value for element in root.iter() for value in element.attrib.values())
    return list(dict.fromkeys(name for value in values for name in _REFERENCE.findall(value) if f"#{name}" not in _CLASSES))


def _strip_element(element: ElementTree.Element, names: dict[str, str]) -> ElementTree.Element:
    """The element without namespaces, styles, metadata and identifiers that nothing refers to."""
    made = ElementTree.Element(element.tag.removeprefix(f"{{{SVG}}}"))
    classes = []
    for key, value in [*element.attrib.items(), *_parse_style(element.attrib.get("style", ""))]:
        if key in ("fill", "stroke") and value.startswith("#"):
            classes.append(f"{key[0]}-{_CLASSES[value]}")
        elif key == f"{{{XLINK}}}href":
            made.set("href", f"#{names[value[1:]]}")
        elif key == "id" and value in names:
            made.set("id", names[value])
        elif key in _KEPT and not value.startswith("rotate(-0 "):
            made.set(key, _shorten_numbers(_REFERENCE.sub(lambda match: f"#{names[match[1]]}", value)))
    if classes:
        made.set("class", " ".join(classes))
    made.text = element.text if made.tag == "text" else None
    for child in element:
        tag = child.tag.removeprefix(f"{{{SVG}}}")
        if tag not in ("metadata", "style") and not tag.startswith("{"):
            shape = _strip_element(child, names)
            if shape.tag == "g" and not shape.attrib:
                made.extend(shape)
            elif len(shape) or shape.tag not in ("g", "defs"):
                made.append(shape)
    return made


def _parse_style(style: str) -> Iterator[tuple[str, str]]:
    """The declarations of a style."""
    for declaration in style.split(";"):
        name, _, value = declaration.partition(":")
        yield name.strip(), value.strip()


def _shorten_numbers(value: str) -> str:
    """Numbers at a tenth of a unit: as fine as a screen shows, and half the bytes."""
    return " ".join(_NUMBER.sub(lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), value).split())
