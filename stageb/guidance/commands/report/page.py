"""The page: what a run's files say, put into the templates beside this file.

All that the templates are given is untrusted (tickets, model output, names of missions) and is
escaped by the template engine; what is not escaped (``safe``) are the style sheet and the charts,
which are made here. The page needs no script and no network, and forbids both by its content
security policy: where an escape is forgotten, nothing runs.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import TemplateError as TemplateError  # of rows that lack what a template shows

import stageb
from stageb.guidance.commands.fit.advice import advise
from stageb.guidance.commands.report import charts, sentences
from stageb.guidance.commands.report.charts import Pair, Point, use_settings
from stageb.guidance.commands.report.read import Lineage, MissionReport, RunReport, trace_rules
from stageb.guidance.commands.report.sentences import (
    Outcome,
    escape_unseen,
    format_percent,
    format_span,
    shorten,
)
from stageb.guidance.commands.use.record import is_misread
from stageb.guidance.config import LoopConfig
from stageb.guidance.learning import attempts
from stageb.guidance.learning.attempts import keep_furthest
from stageb.guidance.learning.state import STOP
from stageb.guidance.rules.word_lists import find_deciding
from stageb.guidance.tickets.splits import SPLITS
from stageb.guidance.words.costs import EQUAL, count_wrong, describe_review
from stageb.guidance.words.labels import has_labels
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


@dataclass(frozen=True, slots=True)
class MissionSection:
    """A mission, ready to be shown."""

    number: int
    mission: MissionReport
    pairs: list[tuple[RunRow | None, RunRow]]  # of metrics.jsonl: before and after, by split
    rules: list[Lineage]
    charts: Mapping[str, str]
    # which rules the figures in ``pairs`` are older than; empty where they are of all rules shown
    unmeasured: str
    # what the guidance comes to; None before any split is judged to its end under it
    outcome: Outcome | None
    advice: list[str]  # what to try next; empty where something was learnt
    # by rule: what it decides as code, and how often the model judged so
    rules_as_code: Mapping[str, Mapping[str, Any]]

    @property
    def is_sampled(self) -> bool:
        """Whether figures stand for more tickets than were judged."""
        return any(
            sum(each["n"] for each in after["classes"].values()) > after["n"]
            for _, after in self.pairs
        )

    @property
    def has_own_labels(self) -> bool:
        """Whether its labels are others than pass and fail."""
        return has_labels(self.mission.steps[self.mission.final].guidance.labels)

    @property
    def held_out(self) -> str:
        """The split that the constant answer's accuracy is shown of."""
        return str(_find_held_out(self.mission.metrics)["split"])

    @property
    def stage(self) -> str:
        """Which stage stopped learning, where nothing was learnt."""
        return attempts.name_last_stage(self.mission.attempts)

    @property
    def judge(self) -> list[str]:
        """A line that tells who judges, where learning chose that."""
        return list(attempts.describe_judge(self.mission.attempts.judge, self.mission.attempts))

    @property
    def alone(self) -> str:
        """A line on what is decided alone; empty where nothing was promised."""
        return self.mission.automation.describe() if self.mission.automation else ""

    @property
    def provisional(self) -> list[str]:
        """Lines that tell the provisional rules, and what is hoped of them."""
        return attempts.describe_provisional([each.rule for each in self.rules])


def render_page(run: RunReport) -> str:
    """The HTML of a run."""
    with use_settings():
        sections = [
            _make_section(number, mission, run) for number, mission in enumerate(run.missions, 1)
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


def _make_section(number: int, mission: MissionReport, run: RunReport) -> MissionSection:
    rules = trace_rules(mission.steps, mission.final)
    drawn = dict(_draw_charts(number, mission)) if number <= DETAILED else {}
    pairs = _pair_metrics(mission)
    rules_as_code = (
        {row["rule"]: row for row in mission.rules_as_code["rules"]}
        if mission.rules_as_code
        else {}
    )
    unmeasured = _describe_unmeasured(pairs, mission)
    if unmeasured:
        pairs = [(None, row) for _, row in pairs]  # before what is shown, and nothing after it
    outcome = (
        None
        if unmeasured
        else _describe_outcome(pairs, len(find_deciding([each.rule for each in rules])), run.config)
    )
    lacks = run.is_finished and run.config.runner.epochs and not mission.attempts.accepted
    ended = STOP if run.ended == STOP else run.over.get(mission.name, "")
    advice = list(advise(mission.metrics, mission.attempts, run.config, ended)) if lacks else []
    return MissionSection(
        number, mission, pairs, rules, drawn, unmeasured, outcome, advice, rules_as_code
    )


def _draw_charts(number: int, mission: MissionReport) -> Iterable[tuple[str, str]]:
    """The charts of a mission that have something to show."""
    lines: dict[str, list[Point]] = {
        split: _make_points(row for row in mission.metrics if row["split"] == split)
        for split in SPLITS
    }
    lines = {split: points for split, points in lines.items() if points}
    if lines:
        yield (
            "epochs",
            charts.draw_epochs(
                lines, _find_held_out(mission.metrics)["always"]["acc"], f"m{number}-epochs"
            ),
        )
    if mission.attempts.tried:
        counts = [(step.place, len(find_deciding(step.guidance.rules))) for step in mission.steps]
        ends = [*counts, (mission.attempts.reflections + 1, counts[-1][1])]
        yield "edits", charts.draw_time_line(mission.attempts, ends, f"m{number}-edits")
    if len(mission.sizes) > 1:
        yield "sizes", charts.draw_sizes(mission.sizes, f"m{number}-sizes")
    if len(mission.judged.levels) > 1:
        yield "agreement", charts.draw_agreement(mission.judged.levels, f"m{number}-agreement")


def _describe_outcome(
    pairs: Sequence[tuple[RunRow | None, RunRow]], rules: int, config: LoopConfig
) -> Outcome | None:
    """The figures of the guidance on test, or else on the last split that was judged."""
    rows = [after for _, after in pairs if after["n"]]
    return (
        sentences.describe_outcome(_find_held_out(rows), config.price.by_label, rules)
        if rows
        else None
    )


def _find_held_out(rows: Sequence[RunRow]) -> RunRow:
    """The last row of test; of the split judged last where there is none."""
    return next((row for row in reversed(rows) if row["split"] == "test"), rows[-1])


def _draw_overview(sections: list[MissionSection]) -> dict[str, str]:
    splits = SPLITS if len(sections) <= FEW else ("test",)
    rows = []
    for section in sections[:DETAILED]:
        mine = [
            (before, after) for before, after in section.pairs if after["split"] in splits
        ] or section.pairs[-1:]
        for before, after in mine:
            start = next(iter(_make_points([before] if before else [])), None)
            rows += [
                Pair(section.mission.name, after["split"], start, point, after["always"]["acc"])
                for point in _make_points([after])
            ]
    return {"pairs": charts.draw_pairs(rows, "pairs")} if rows else {}


def _make_points(rows: Iterable[RunRow]) -> list[Point]:
    return [Point(row["epoch"], row["acc"], *row["acc_interval"]) for row in rows if row["n"]]


def _pair_metrics(mission: MissionReport) -> list[tuple[RunRow | None, RunRow]]:
    """For each split the first row and the one of the guidance in force, where there are such."""
    found: list[tuple[RunRow | None, RunRow]] = []
    step = mission.steps[mission.final].guidance.step
    for split in SPLITS[1:]:
        rows = [row for row in mission.metrics if row["split"] == split]
        after = (
            [row for row in rows if row["guidance_step"] == step]
            if mission.is_chosen or split == "test"
            else rows
        )
        if after:
            found.append((rows[0], after[-1]))
    return found


def _describe_unmeasured(
    pairs: Sequence[tuple[RunRow | None, RunRow]], mission: MissionReport
) -> str:
    """Which rules in force the figures are older than, in a sentence: val is judged at an epoch's
    end, and a run may stand before it. Empty where they are of these rules."""
    final = mission.steps[mission.final].guidance
    old = next(
        (row["guidance_step"] for _, row in pairs if row["guidance_step"] != final.step), None
    )
    if old is None:
        return ""
    measured = next(
        (step.guidance.rules for step in mission.steps if step.guidance.step == old), ()
    )
    known = {(rule.key, rule.text) for rule in measured}
    return sentences.describe_unmeasured(
        [rule.key for rule in final.rules if (rule.key, rule.text) not in known]
    )


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
