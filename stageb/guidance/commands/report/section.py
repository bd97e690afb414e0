"""The part of a page that shows a mission: its figures before and after, its rules, its charts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stageb.guidance.commands.fit.advice import advise
from stageb.guidance.commands.report import charts, sentences
from stageb.guidance.commands.report.charts import Point
from stageb.guidance.commands.report.lineage import Lineage, trace_rules
from stageb.guidance.commands.report.read import MissionReport, RunReport
from stageb.guidance.commands.report.sentences import Outcome
from stageb.guidance.learning import attempts
from stageb.guidance.learning.state import STOP
from stageb.guidance.rules.word_lists import find_deciding
from stageb.guidance.tickets.splits import SPLITS
from stageb.guidance.words.labels import has_labels
from stageb.runs.folder import RunRow


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


def make_section(
    number: int, mission: MissionReport, run: RunReport, with_charts: bool
) -> MissionSection:
    """Make the section of the mission of this ``number``, from 1, of a run."""
    rules = trace_rules(mission.steps, mission.final)
    drawn = dict(_draw_charts(number, mission)) if with_charts else {}
    pairs = _pair_metrics(mission)
    rules_as_code = {row["rule"]: row for row in mission.rules_as_code.get("rules", ())}
    unmeasured = _describe_unmeasured(pairs, mission)
    if unmeasured:
        pairs = [(None, row) for _, row in pairs]  # before what is shown, and nothing after it
    judged = [row for _, row in pairs if row["n"] and not unmeasured]
    prices, deciding = run.config.price.by_label, find_deciding([each.rule for each in rules])
    outcome = (
        sentences.describe_outcome(_find_held_out(judged), prices, len(deciding))
        if judged
        else None
    )
    lacks = run.is_finished and run.config.runner.epochs and not mission.attempts.accepted
    ended = STOP if run.ended == STOP else run.over.get(mission.name, "")
    advice = list(advise(mission.metrics, mission.attempts, run.config, ended)) if lacks else []
    return MissionSection(
        number, mission, pairs, rules, drawn, unmeasured, outcome, advice, rules_as_code
    )


def _draw_charts(number: int, mission: MissionReport) -> Iterable[tuple[str, str]]:
    """Draw the charts of a mission that have something to show."""
    lines: dict[str, list[Point]] = {
        split: make_points(row for row in mission.metrics if row["split"] == split)
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


def _find_held_out(rows: Sequence[RunRow]) -> RunRow:
    """Find the last row of test; of the split judged last where there is none."""
    return next((row for row in reversed(rows) if row["split"] == "test"), rows[-1])


def make_points(rows: Iterable[RunRow]) -> list[Point]:
    """Make the points of a chart of accuracies, one for each row in which tickets were judged."""
    return [Point(row["epoch"], row["acc"], *row["acc_interval"]) for row in rows if row["n"]]


def _pair_metrics(mission: MissionReport) -> list[tuple[RunRow | None, RunRow]]:
    """Find for each split the first row and the one of the guidance in force, where they exist."""
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
    """Say which rules in force the figures are older than, in a sentence: val is judged at an
    epoch's end, and a run may stand before it. Empty where they are of these rules."""
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
