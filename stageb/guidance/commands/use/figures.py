"""The figures of ``stageb evaluate``: the rows of judged tickets beside their labels, and beside
those of other guidance."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from stageb.guidance.commands.use.black_box import MOST_TRAINED_ON, BlackBox, measure_on
from stageb.guidance.commands.use.compare import ALL, PairedComparison, count_verdicts, is_right
from stageb.guidance.commands.use.config import EvaluateConfig
from stageb.guidance.commands.use.judged import JudgedRounds
from stageb.guidance.commands.use.record import compare_with_code
from stageb.guidance.commands.use.source import find_tickets, read_run_config
from stageb.guidance.judging.coded import code_rules
from stageb.guidance.rules.prompts import words_of
from stageb.guidance.tickets.groups import name_content
from stageb.guidance.tickets.stream import TicketLine, TicketStream
from stageb.guidance.words.costs import Prices
from stageb.store import disk
from stageb.store.output import read_rows

FILES = EVALUATION, WRONG, CHANGED = "evaluation.json", "wrong.jsonl", "changed.jsonl"


@dataclass(frozen=True)
class Evaluation:
    """The result of ``evaluate``."""

    folder: Path  # of its files
    figures: dict[str, Any]  # the content of evaluation.json

    @classmethod
    def read(cls, folder: Path) -> Evaluation:
        """The result that was written to this folder."""
        return cls(folder, json.loads((folder / EVALUATION).read_text(encoding="utf-8")))

    def wrong(self) -> Iterator[dict[str, Any]]:
        """The rows of tickets that were judged wrong, one at a time."""
        return read_rows(self.folder / WRONG)


Sides = Mapping[str, JudgedRounds]
"""By name: ``compare``, and whoever judges by the guidance that is evaluated."""


def write_evaluation(
    config: EvaluateConfig, tickets: TicketStream[TicketLine], sides: Sides
) -> Evaluation:
    """Write what the rows come to. Raises ``JournalError`` where the disk refuses."""
    folder, first = Path(config.output), sides[config.modes[0]]
    figures = {
        name: _count_file(side, tickets, config.price.by_label) for name, side in sides.items()
    }
    evaluation: dict[str, Any] = {
        "guidance": config.guidance,
        "compare": config.compare,
        "tickets": config.tickets,
        "price": asdict(config.price),
        "figures": {
            "guidance": figures[first.by],
            **({"compare": figures["compare"]} if "compare" in sides else {}),
        },
        "by": {by: figures[by] for by in config.modes},
        "letter": _compare_rules_as_code(config, tickets, sides),
        "black_box": {
            mission: asdict(box) for mission, box in _measure_black_boxes(config, tickets).items()
        },
    }
    with disk.reporting(folder):
        _write_rows(folder / WRONG, _find_wrong(first.rounds.path, tickets))
        if "compare" in sides:
            paired = PairedComparison(config.price.by_label)
            for one, other in _pair_rows(first, sides["compare"]):
                paired.add(one, other)
            evaluation["difference"] = _split_by_mission(paired.figures())
            _write_rows(folder / CHANGED, _find_flipped(first, sides["compare"]))
        compared = [sides["compare"].rounds.path.name, CHANGED] if "compare" in sides else []
        evaluation["files"] = [
            EVALUATION,
            WRONG,
            *(sides[by].rounds.path.name for by in config.modes),
            *compared,
        ]
        text = json.dumps(evaluation, ensure_ascii=False, indent=2) + "\n"
        disk.replace(folder / EVALUATION, disk.encode(text))
    return Evaluation(folder, evaluation)


def _compare_rules_as_code(
    config: EvaluateConfig, tickets: TicketStream[TicketLine], sides: Sides
) -> dict[str, Any]:
    """The verdicts of the rules as code beside the model's, if it gave any."""
    side = sides.get("model", sides[config.modes[0]])
    rules = next((each.rules for by, each in sides.items() if by != "compare" and each.rules), None)
    if not rules:
        known = (line.ticket for line in tickets.items())
        rules = code_rules(side.guidance, known, words_of(config.prompt, config.model))
    judged = zip(
        read_rows(side.rounds.path), (line.ticket for line in tickets.items()), strict=True
    )
    return compare_with_code(judged, rules, side.by in ("model", "learnt"))


def _measure_black_boxes(
    config: EvaluateConfig, tickets: TicketStream[TicketLine]
) -> dict[str, BlackBox]:
    """By mission, how well a model judges these tickets that the train tickets of the guidance's
    run taught; nothing of a file, where the run's tickets are not found, and of more tickets than
    are worth the memory."""
    learnt, (known, _) = read_run_config(config.guidance), find_tickets(config.guidance)
    if not learnt or not known:
        return {}
    lines = list(islice(tickets.items(), MOST_TRAINED_ON + 1))
    judged = [replace(line.ticket, label=line.label) for line in lines if line.label]
    if len(lines) > MOST_TRAINED_ON:
        return {}
    return measure_on(judged, learnt, known, config.price.by_label)


def _count_file(
    side: JudgedRounds, tickets: TicketStream[TicketLine], prices: Prices
) -> dict[str, Any]:
    """The figures of one guidance at the user's prices, each mission's with its step."""
    guidance, taught = side.guidance, dict[str, set[str]]()
    for line in tickets.items() if any(each.taught_by for each in guidance.values()) else ():
        of = guidance[line.ticket.mission]
        if name_content(line.ticket) in of.taught_by | of.chosen_by:
            taught.setdefault(of.mission, set()).add(f"{line.ticket.group_id}::{line.label}")
    labels = {mission: each.labels for mission, each in guidance.items()}
    counted = count_verdicts(read_rows(side.rounds.path), taught, labels)
    figures = _split_by_mission(
        {mission: count.figures(prices) for mission, count in counted.items()}
    )
    for mission, of in figures["missions"].items():
        of["guidance_step"] = guidance[mission].step
    return figures


def _split_by_mission(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "all": figures[ALL],
        "missions": {mission: of for mission, of in figures.items() if mission != ALL},
    }


def _pair_rows(
    one: JudgedRounds, other: JudgedRounds
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    return zip(read_rows(one.rounds.path), read_rows(other.rounds.path), strict=True)


def _find_wrong(path: Path, tickets: TicketStream[TicketLine]) -> Iterator[dict[str, Any]]:
    """Rows of tickets that were judged wrong, with what they say."""
    for row, line in zip(read_rows(path), tickets.items(), strict=True):
        if not is_right(row):
            yield {**row, "per_image": dict(line.ticket.per_image)}


def _find_flipped(first: JudgedRounds, second: JudgedRounds) -> Iterator[dict[str, Any]]:
    """Rows of tickets that one guidance judges rightly and the other one wrong."""
    for one, other in _pair_rows(first, second):
        if is_right(one) != is_right(other):
            yield {**one, "compared_verdict": other["verdict"], "compared_reason": other["reason"]}


def _write_rows(path: Path, some: Iterable[Mapping[str, Any]]) -> None:
    def write(beside: Path) -> None:
        with beside.open("wb") as opened:
            opened.writelines(disk.json_lines([row]) for row in some)

    disk.place(path, write)
