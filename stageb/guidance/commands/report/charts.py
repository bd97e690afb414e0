"""The charts of a report, drawn by matplotlib as SVG.

Sizes are in units of the drawing, which is as wide as a phone's screen; a
wider screen shows it larger, with its letters kept small (``templates/report.css``).

Whatever colour tells, a shape, a hatch or a place tells as well, and every chart stands beside a
table of its figures.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from unicodedata import east_asian_width
from xml.etree import ElementTree

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from stageb.guidance.commands.report.read import AgreementLevel
from stageb.guidance.commands.report.sentences import escape_unseen
from stageb.guidance.learning.attempts import OUTCOME_TEXTS, Attempt, Attempts, keep_furthest
from stageb.guidance.learning.reflection_file import SizeEntry

# A matplotlib figure as SVG for a page: its colours are the page's, light or dark, and nothing in
# it needs a style of its own or shares a name with another figure.
#
# Matplotlib is given stand-ins for colours (``COLOURS``); here each becomes a class, which the
# page's style sheet paints. The text stays text, in the reader's fonts. What is left are plain
# shapes with attributes: no script, no style, no link.

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
COLOURS = {  # name -> stand-in; the style sheet has .f-NAME and .s-NAME
    name: f"#0000{number:02x}"
    for number, name in enumerate(
        "ink soft grid paper val test train right wrong accepted refused seen".split(), start=1
    )
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
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), COLOURS["ink"]
    ),
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
    "d x y width height transform clip-path patternUnits fill stroke stroke-width "
    "stroke-dasharray stroke-linecap opacity fill-opacity stroke-opacity text-anchor".split()
)


@contextmanager
def use_settings() -> Iterator[None]:
    """Within, matplotlib draws as ``render_svg`` expects it."""
    with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():  # type: ignore[arg-type]
        # of letters that its own font lacks: the reader's fonts draw the text
        warnings.simplefilter("ignore")
        logger = logging.getLogger("matplotlib")
        level = logger.level
        logger.setLevel(logging.ERROR)  # of its cache of fonts, about which nobody can do anything
        try:
            yield
        finally:
            logger.setLevel(level)


def render_svg(figure: Figure, name: str, title: str, description: str) -> str:
    """``figure`` as an ``<svg>`` element for HTML; ``name`` sets its identifiers apart. Both texts
    are for people who do not see it."""
    written = io.BytesIO()
    figure.savefig(
        written, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
    )
    root = ElementTree.fromstring(written.getvalue())
    names = {
        reference: f"{name}-{number}" for number, reference in zip(count(), _find_references(root))
    }
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
    """The places that elements refer to, in order."""
    values = (value for element in root.iter() for value in element.attrib.values())
    return list(
        dict.fromkeys(
            name
            for value in values
            for name in _REFERENCE.findall(value)
            if f"#{name}" not in _CLASSES
        )
    )


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
            made.set(
                key, _shorten_numbers(_REFERENCE.sub(lambda match: f"#{names[match[1]]}", value))
            )
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
    return " ".join(
        _NUMBER.sub(lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), value).split()
    )


WIDTH = 360
LETTER = 11  # units
ROOM = 14.0  # for a mission and its split, in letters as wide as they are high
POINTS = 500  # that one chart draws, at the most
BINS = 10  # of agreement, at the most
SPLIT_STYLES = {"val": ("o", -0.07), "test": ("s", 0.07), "train": ("^", 0.0)}
INK, SOFT, PAPER = (COLOURS[name] for name in ("ink", "soft", "paper"))


@dataclass(frozen=True, slots=True)
class Point:
    """An accuracy."""

    epoch: int
    accuracy: float
    low: float  # of its 95 % interval
    high: float


@dataclass(frozen=True, slots=True)
class Pair:
    """One line of the chart that begins a report."""

    mission: str
    split: str
    before: Point | None
    after: Point
    always: float  # accuracy of the best constant answer


def draw_pairs(rows: Sequence[Pair], name: str) -> str:
    """Accuracy before and after, and of the best constant answer, in a row for each mission and
    split."""
    several = len({row.split for row in rows}) > 1
    labels = [_make_label(row, several) for row in rows]
    left = 12 + max(map(_measure_width, labels)) * LETTER
    height = (26 if len(rows) <= 12 else 19) * len(rows) + 62
    figure, axes = _make_figure(height, left, top=38, bottom=24)
    for place, row in enumerate(rows):
        colour = COLOURS[row.split]
        axes.axhline(place, color=COLOURS["grid"], linewidth=0.8)
        axes.plot(
            [row.after.low, row.after.high], [place, place], color=colour, linewidth=5, alpha=0.35
        )
        axes.plot(row.always, place, "|", color=INK, markersize=14, markeredgewidth=1.5)
        if row.before:
            axes.plot(
                row.before.accuracy, place, "o", color=SOFT, markerfacecolor=PAPER, markersize=7
            )
        axes.plot(row.after.accuracy, place, SPLIT_STYLES[row.split][0], color=colour, markersize=7)
        axes.annotate(
            labels[place],
            xy=(0, place),
            xycoords=axes.get_yaxis_transform(),
            xytext=(-6, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=LETTER,
            annotation_clip=False,
        )
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.xaxis.set_major_formatter(FuncFormatter(_format_percent))
    started = any(row.before for row in rows)
    if started:
        axes.plot([], [], "o", color=SOFT, markerfacecolor=PAPER, markersize=7, label="before")
    axes.plot(
        [],
        [],
        "o",
        color=INK,
        markersize=7,
        label=f"{'after' if started else 'accuracy'}; bar: likely range",
    )
    axes.plot(
        [], [], "|", color=INK, markersize=11, markeredgewidth=1.5, label="always the same answer"
    )
    _add_legend(axes, 2)
    told = (
        f"{escape_unseen(row.mission)}, {row.split}: "
        + (f"{row.before.accuracy:.1%} before, " if row.before else "")
        + f"{row.after.accuracy:.1%} after ({row.after.low:.0%} to {row.after.high:.0%}), "
        f"{row.always:.1%} by always " + "answering the same"
        for row in rows
    )
    return render_svg(figure, name, "Accuracy by mission and split", "; ".join(told))


def draw_epochs(lines: dict[str, list[Point]], always: float, name: str) -> str:
    """Accuracy with intervals by epoch and split, above or below what the best constant answer
    scores."""
    figure, axes = _make_figure(210)
    for split, points in lines.items():
        marker, shift = SPLIT_STYLES[split]
        heights = [point.accuracy for point in points]
        off = [
            [point.accuracy - point.low for point in points],
            [point.high - point.accuracy for point in points],
        ]
        places = [point.epoch + shift for point in points]
        axes.errorbar(
            places,
            heights,
            yerr=off,
            fmt=marker,
            color=COLOURS[split],
            markersize=5.5,
            capsize=2.5,
            elinewidth=1.4,
            label=split,
        )
    draw_dotted(axes, always, "always the same")
    known = [point for points in lines.values() for point in points]
    last = max(point.epoch for point in known)
    axes.set_xlim(-0.4, max(1, last) + 0.4)
    _scale_accuracies(axes, min(always, *(point.low for point in known)), 6)
    _tick_whole_numbers(axes)
    axes.set_xlabel("epoch (0: before learning)", fontsize=LETTER)
    _add_legend(axes, 4)
    told = (
        f"{split}: " + ", ".join(f"epoch {p.epoch} {p.accuracy:.1%}" for p in points)
        for split, points in lines.items()
    )
    return render_svg(figure, name, "Accuracy by epoch and split", "; ".join(told))


def draw_time_line(attempts: Attempts, rules: Sequence[tuple[int, int]], name: str) -> str:
    """Gains of edits, reflection by reflection, over how many rules there were: ``rules`` are
    (reflection, rules). Where no gain is known, as without a gate, the rules alone."""
    shown = keep_furthest([each for each in attempts.tried if each.gain is not None], POINTS)
    kinds: list[tuple[str, str, str, list[Attempt]]] = [
        ("not tested", ".", "seen", [each for each in shown if not each.test]),
        (
            "not proven",
            "X",
            "refused",
            [each for each in shown if each.test and each.outcome != "accepted"],
        ),
        ("accepted", "o", "accepted", [each for each in shown if each.outcome == "accepted"]),
    ]
    gains = any(some for *_, some in kinds)
    height = 300 if gains else 118
    figure = Figure(figsize=(WIDTH / 72, height / 72))
    below = _add_axes(figure, (46, 40, WIDTH - 62, 56))
    if gains:
        _draw_gains(_add_axes(figure, (46, 116, WIDTH - 62, 148)), kinds, attempts.reflections)
        figure.text(4 / WIDTH, 287 / height, "gain in accuracy", fontsize=LETTER, color=INK)
    counts = [count for _, count in rules]
    below.step([place for place, _ in rules], counts, where="post", color=INK, linewidth=1.5)
    below.set_ylim(-0.3, max(counts) * 1.15 + 1)
    below.yaxis.set_major_locator(MaxNLocator(3, integer=True, min_n_ticks=1))
    below.set_xlim(0.5, attempts.reflections + 0.5)
    _tick_whole_numbers(below)
    below.set_xlabel("reflection", fontsize=LETTER)
    figure.text(4 / WIDTH, 101 / height, "rules", fontsize=LETTER, color=INK)
    told = (
        ", ".join(f"{count} {OUTCOME_TEXTS[outcome]}" for outcome, count in attempts.outcomes)
        or "none"
    )
    return render_svg(
        figure, name, "Edits on a time line", f"{attempts.reflections} reflections; edits: {told}"
    )


def _draw_gains(
    axes: Axes, kinds: Sequence[tuple[str, str, str, list[Attempt]]], reflections: int
) -> None:
    """The upper half of the time line: ``kinds`` are (label, marker, colour, edits)."""
    for label, marker, colour, some in kinds:
        if some:
            small = marker == "."
            axes.plot(
                [each.place for each in some],
                [each.gain or 0.0 for each in some],
                marker,
                label=label,
                color=COLOURS[colour],
                markeredgecolor=COLOURS[colour] if small else PAPER,
                markersize=5 if small else 7,
                markeredgewidth=0.8,
                clip_on=False,
            )
    axes.axhline(0, color=SOFT, linewidth=1)
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value * 100:+.0f}%" if value else "0")
    )
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.tick_params(labelbottom=False)
    axes.set_xlim(0.5, reflections + 0.5)
    _tick_whole_numbers(axes)
    _add_legend(axes, 4)


def draw_sizes(sizes: Sequence[SizeEntry], name: str) -> str:
    """Estimated accuracy by the conditions that a guidance may have, above what it is without its
    rules."""
    figure, axes = _make_figure(170)
    heights = [size.estimate.acc for size in sizes]
    places = range(len(sizes))
    axes.plot(
        places,
        heights,
        "o-",
        color=COLOURS["val"],
        markersize=5.5,
        linewidth=1.4,
        label="estimated accuracy",
    )
    before = sizes[0].estimate.acc_before
    draw_dotted(axes, before, "without these rules")
    axes.set_xticks(places, [f"{size.conditions}" for size in sizes])
    axes.set_xlim(-0.4, max(1, len(sizes) - 1) + 0.4)
    _scale_accuracies(axes, min(before, *heights), 5)
    axes.set_xlabel("conditions in all rules", fontsize=LETTER)
    _add_legend(axes, 2)
    told = (f"{size.conditions} conditions: {size.estimate.acc:.1%}" for size in sizes)
    return render_svg(figure, name, "Estimated accuracy by size", "; ".join(told))


def draw_agreement(levels: Sequence[AgreementLevel], name: str) -> str:
    """How many tickets so many answers agreed on, and how many of these were right."""
    bars = _bin_levels(levels)
    figure, axes = _make_figure(190)
    right, wrong = [each.right for _, each in bars], [each.wrong for _, each in bars]
    places = range(len(bars))
    axes.bar(places, right, color=COLOURS["right"], width=0.7, label="right")
    axes.bar(
        places,
        wrong,
        bottom=right,
        width=0.7,
        label="wrong",
        color=COLOURS["wrong"],
        hatch="////",
        edgecolor=PAPER,
        linewidth=0,
    )
    axes.set_xticks(places, [label for label, _ in bars])
    axes.set_xlim(-0.6, max(2, len(bars)) - 0.4)
    axes.grid(axis="x", visible=False)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True, min_n_ticks=1))
    axes.set_xlabel("answers that agree with the verdict", fontsize=LETTER)
    figure.text(4 / WIDTH, 176 / 190, "tickets", fontsize=LETTER, color=INK)
    _add_legend(axes, 2)
    told = (f"{label} agree: {each.right} right, {each.wrong} wrong" for label, each in bars)
    return render_svg(figure, name, "Tickets by agreement", "; ".join(told))


def _make_figure(
    height: float, left: float = 46, top: float = 28, bottom: float = 38
) -> tuple[Figure, Axes]:
    """A figure of one chart."""
    figure = Figure(figsize=(WIDTH / 72, height / 72))
    return figure, _add_axes(figure, (left, bottom, WIDTH - left - 16, height - bottom - top))


def _add_axes(figure: Figure, box: tuple[float, float, float, float]) -> Axes:
    """Axes at (left, bottom, width, height), in units."""
    width, height = (size * 72 for size in figure.get_size_inches())
    axes = figure.add_axes((box[0] / width, box[1] / height, box[2] / width, box[3] / height))
    axes.tick_params(labelsize=LETTER, length=3)
    return axes


def draw_dotted(axes: Axes, height: float, label: str | None = None) -> None:
    """Draw a dotted line across a chart at a ``height`` to compare with."""
    axes.axhline(height, color=INK, linewidth=1, linestyle=(0, (1, 2)), label=label)


def _scale_accuracies(axes: Axes, least: float, ticks: int) -> None:
    """Let heights be accuracies, from a little below the ``least`` on."""
    axes.set_ylim(max(0.0, least // 0.1 / 10 - 0.02), 1.02)
    axes.yaxis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(_format_percent))


def _add_legend(axes: Axes, columns: int) -> None:
    """Above the chart, on the right."""
    axes.legend(
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncol=columns,
        fontsize=LETTER,
        borderaxespad=0.2,
        handletextpad=0.3,
        columnspacing=1.0,
        handlelength=1.6,
    )


def _tick_whole_numbers(axes: Axes) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))


def _format_percent(value: float, _: object = None) -> str:
    return f"{value:.0%}"


def _bin_levels(levels: Sequence[AgreementLevel]) -> list[tuple[str, AgreementLevel]]:
    """The levels by name; where there are too many, ten of them."""
    if len(levels) <= BINS:
        return [(f"{each.agreement:.0%}", each) for each in levels]
    bins: dict[int, AgreementLevel] = {}
    for each in levels:
        place = min(BINS - 1, int(each.agreement * BINS))
        known = bins.get(place, AgreementLevel(place / BINS, 0, 0))
        bins[place] = AgreementLevel(
            place / BINS, known.right + each.right, known.wrong + each.wrong
        )
    return [(f"{place * BINS}+", bins[place]) for place in sorted(bins)]


def _make_label(row: Pair, several: bool) -> str:
    """The mission's name, as far as there is room for it, and the split where there are several."""
    split = f" {row.split}" if several else ""
    room, name = ROOM - _measure_width(split), ""
    for letter in escape_unseen(row.mission):
        if _measure_width(f"{name}{letter}…") > room:
            return f"{name.rstrip()}…{split}"
        name += letter
    return f"{name}{split}"


def _measure_width(text: str) -> float:
    """How wide a text is, at the most, in letters of the size that it is set in: matplotlib's font
    lacks many."""
    return sum(1.0 if east_asian_width(letter) in "WF" else 0.62 for letter in text)
