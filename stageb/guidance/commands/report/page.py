"""The page: what a run's files say, put into the templates beside this file.

All that the templates are given is untrusted (tickets, model output, names of missions) and is
escaped by the template engine; what is not escaped (``safe``) are the style sheet and the charts,
which are made here. The page needs no script and no network, and forbids both by its content
security policy: where an escape is forgotten, nothing runs.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jinja2
from jinja2 import TemplateError as TemplateError  # of rows that lack what a template shows

import stageb
from stageb.guidance.commands.report import charts, sentences
from stageb.guidance.commands.report.charts import Pair, use_settings
from stageb.guidance.commands.report.read import RunReport
from stageb.guidance.commands.report.section import MissionSection, make_points, make_section
from stageb.guidance.commands.report.sentences import (
    escape_unseen,
    format_percent,
    format_span,
    shorten,
)
from stageb.guidance.commands.use.record import is_misread
from stageb.guidance.learning import attempts
from stageb.guidance.learning.attempts import keep_furthest
from stageb.guidance.tickets.splits import SPLITS
from stageb.guidance.words.costs import EQUAL, count_wrong, describe_review
from stageb.runs.folder import RunRow

TEMPLATES = Path(__file__).parent / "templates"
MOST_BYTES = 2_900_000  # of a page; what it shows is cut until it is no larger
SHARES = (1.0, 0.5, 0.25, 0.1, 0.03)  # of ``Limits``
DETAILED = 60  # missions that get a section of their own
FEW = 6  # missions of which the first chart shows every split


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a page shows of what may be long; all of it stands in the run's files."""

    missions: int  # with a section of their own
    worst: int  # tickets of a mission
    edits: int
    sources: int  # tickets that a rule was learnt from
    steps: int  # of the guidance
    letters: int  # of one text

    @classmethod
    def of(cls, missions: int, share: float) -> Limits:
        """The limits for a run of so many missions. Their charts cannot be cut: where they are too
        much, there are fewer."""
        detailed = max(1, min(missions, DETAILED, round(DETAILED * share * 4)))

        def limit(all_missions: int, most: int) -> int:
            return max(2, min(round(most * share), round(all_missions * share / detailed)))

        letters = max(120, min(700, round(1400 * share)))
        return cls(detailed, limit(200, 20), limit(900, 150), limit(48, 6), limit(600, 60), letters)


def render_page(run: RunReport) -> str:
    """The HTML of a run."""
    with use_settings():
        sections = [
            make_section(number, mission, run, with_charts=number <= DETAILED)
            for number, mission in enumerate(run.missions, 1)
        ]
        overview = _draw_overview(sections)
    prices = run.config.price.by_label
    style = (TEMPLATES / "report.css").read_text("utf-8")
    html = ""
    for share in SHARES:
        limits = Limits.of(len(sections), share)
        given = {
            "run": run,
            "sections": sections,
            "detailed": sections[: limits.missions],
            "charts": overview,
            "limits": limits,
            "prices": prices,
            "is_weighed": prices != EQUAL,
            "version": stageb.__version__,
            "style": style,
            "digest": base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        }
        html = _make_environment().get_template("report.html").render(given)
        if len(html.encode("utf-8", "replace")) <= MOST_BYTES:
            break
    return html


def _draw_overview(sections: list[MissionSection]) -> dict[str, str]:
    splits = SPLITS if len(sections) <= FEW else ("test",)
    rows = []
    for section in sections[:DETAILED]:
        mine = [
            (before, after) for before, after in section.pairs if after["split"] in splits
        ] or section.pairs[-1:]
        for before, after in mine:
            start = next(iter(make_points([before] if before else [])), None)
            rows += [
                Pair(section.mission.name, after["split"], start, point, after["always"]["acc"])
                for point in make_points([after])
            ]
    return {"pairs": charts.draw_pairs(rows, "pairs")} if rows else {}


@cache
def _make_environment() -> jinja2.Environment:
    """Read the templates once in a process: each is compiled when a page first needs it."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    environment.filters |= {
        "percent": format_percent,
        "plain": escape_unseen,
        "cut": shorten,
        "words": lambda name: name.replace("_", " "),
        "span": format_span,
        "cut_off": sentences.mark_cut,
        "ticket_name": sentences.name_ticket,
        "decided": sentences.describe_decided,
        "rules_tell": sentences.describe_rules,
        "left_out": sentences.describe_left_out,
        "furthest": keep_furthest,
        "review": describe_review,
        "wrong": count_wrong,
        "reflection": attempts.name_reflection,
        "attempt": sentences.describe_attempt,
        "refusals": attempts.explain_refusals,
        "idle": attempts.explain_idle,
        "fields": sentences.split_fields,
        "is_misread": is_misread,
    }
    environment.globals |= {"candidate_text": show_candidate, "outcomes": attempts.OUTCOME_TEXTS}
    return environment


def show_candidate(candidate: RunRow) -> str:
    """The text of a candidate: its reason, or all of it where that has none."""
    return str(candidate["reason"] or candidate["text"]) or "(nothing)"
