"""``stageb evaluate``: how good guidance is on labelled tickets, and how much better than another on the same ones.

Tickets are judged as ``predict`` judges them, without their labels; the verdicts are compared with the labels afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stageb.cli import commands
from stageb.cli.parsing import from_keywords
from stageb.errors import ConfigError, shown
from stageb.guidance.commands.use import summary
from stageb.guidance.commands.use.black_box import MOST, BlackBox, measure_on
from stageb.guidance.commands.use.compare import ALL, PairedComparison, count_verdicts, is_right
from stageb.guidance.commands.use.config import By, EvaluateConfig, tickets_per_round
from stageb.guidance.commands.use.judged import JudgedRounds
from stageb.guidance.commands.use.predict import judge_all, judge_by_rules, look_ahead
from stageb.guidance.commands.use.record import compare_with_letter
from stageb.guidance.commands.use.rounds import Rounds
from stageb.guidance.commands.use.source import (
    TicketLine,
    code_rules,
    find_tickets,
    fingerprint_guidance,
    labels_of,
    list_inputs,
    load_guidance,
    read_run_config,
    stream_tickets,
)
from stageb.guidance.rules.prompts import words_of
from stageb.guidance.tickets.groups import name_content
from stageb.guidance.tickets.stream import TicketStream
from stageb.guidance.words.costs import Prices, check_prices, prices_of
from stageb.guidance.words.types import Guidance
from stageb.job import lifetime
from stageb.store import disk
from stageb.store.output import check_target, read_rows

if TYPE_CHECKING:
    from stageb.job.world import World  # torch

ON_SCREEN = 5  # tickets judged wrong
PREDICTIONS, COMPARED = "predictions.jsonl", "compared.jsonl"
EVALUATION, WRONG, CHANGED = "evaluation.json", "wrong.jsonl", "changed.jsonl"


@dataclass(frozen=True)
class Evaluation:
    """The result of ``evaluate``."""

    folder: Path  # of its files
    figures: dict[str, Any]  # the content of evaluation.json

    def wrong(self) -> Iterator[dict[str, Any]]:
        """The rows of tickets that were judged wrong, one at a time."""
        return read_rows(self.folder / WRONG)


def evaluate(*, guidance: str, tickets: str | list[str], fresh: bool = False, **keys: Any) -> Evaluation:
    """Say how good guidance is on labelled tickets, as ``stageb evaluate`` does.

    ``keys`` are those of that command: ``compare="out/second"``, ``output="evaluation"``, ``sampler={...}``, ...; ``config``
    names YAML files of keys: one, or several of which later ones win. Raises ``stageb.StagebError`` if something
    cannot be used, or fails.
    """
    given = {"guidance": guidance, "tickets": tickets, **keys}
    config: EvaluateConfig = from_keywords("evaluate", commands.tools()["evaluate"], given)
    _run(config, fresh)
    folder = Path(config.output)
    return Evaluation(folder, json.loads((folder / EVALUATION).read_text(encoding="utf-8")))


def main(config: EvaluateConfig, resolved_yaml: str, fresh: bool) -> int:
    """The command. Raises ``InputError`` before any ticket is judged where something cannot be used."""
    return _run(config, fresh, summary.show_evaluation)


Show = Callable[[Mapping[str, Any], list[dict[str, Any]], Path], None]


Sides = Mapping[str, JudgedRounds]
"""By name: ``compare``, and whoever judges by the guidance that is evaluated, the first of ``by`` first."""


def _run(config: EvaluateConfig, fresh: bool, show: Show | None = None) -> int:
    tickets, folder = stream_tickets(config), Path(config.output)
    sides = _make_sides(config, tickets)
    read = list_inputs(config)
    for name in (EVALUATION, WRONG, CHANGED):
        check_target(folder / name, read)
    count = max([look_ahead(side, fresh) for side in sides.values()])

    def finish() -> None:
        evaluation = _write_evaluation(config, tickets, sides)
        if show:
            show(evaluation, list(islice(read_rows(folder / WRONG), ON_SCREEN)), folder)

    if all(side.by == "rules" for side in sides.values()):
        if lifetime.leads():
            for side in sides.values():
                judge_by_rules(side, fresh)
            finish()
        return 0

    from stageb.guidance.commands.use.ranks import JudgingRanks, launch  # torch

    def on_rank(world: World) -> int:
        world.agree("the guidance", repr([fingerprint_guidance(side.guidance) for side in sides.values()]))
        judging = JudgingRanks(config, world)
        for side in sides.values():
            judge_all(world, judging, side, fresh)
        if world.is_global_zero:
            finish()
        return 0

    return launch(config, count, on_rank)


def _make_sides(config: EvaluateConfig, tickets: TicketStream[TicketLine]) -> Sides:
    """Raises ``InputError`` where guidance cannot be read."""
    guidance, modes, folder = load_guidance(config.guidance, config.prompt), config.modes, Path(config.output)
    other = None if config.compare is None else load_guidance(config.compare, config.prompt, "compare")
    missions = set(guidance) & set(guidance if other is None else other)
    for mission in sorted(missions):
        check_prices(config.price, mission, guidance[mission].labels)
        if other and {*other[mission].labels} != {*guidance[mission].labels}:
            raise ConfigError(
                "compare", config.compare, f"its labels of mission {shown(mission)!r} are others; name another"
            )

    def make(by: By, source: str, of: Mapping[str, Guidance], file: str) -> JudgedRounds:
        is_plain = by == "learnt" or (by == "model" and "learnt" not in modes)
        named = file if is_plain else file.replace(".", f"-{by}.")  # predictions-rules.jsonl
        rounds = Rounds(folder / named, tickets, tickets_per_round(config))
        return JudgedRounds(config, by, rounds, of, missions, source)

    sides: dict[str, JudgedRounds] = {by: make(by, config.guidance, guidance, PREDICTIONS) for by in modes}
    if config.compare is not None and other is not None:
        sides["compare"] = make(modes[0], config.compare, other, COMPARED)
    return sides


def _write_evaluation(config: EvaluateConfig, tickets: TicketStream[TicketLine], sides: Sides) -> dict[str, Any]:
    """Write what the rows come to; the content of evaluation.json. Raises ``JournalError`` where the disk refuses."""
    folder, first = Path(config.output), sides[config.modes[0]]
    figures = {name: _count_file(side, tickets, prices_of(config.price)) for name, side in sides.items()}
    evaluation: dict[str, Any] = {
        "guidance": config.guidance,
        "compare": config.compare,
        "tickets": config.tickets,
        "price": asdict(config.price),
        "figures": {"guidance": figures[first.by], **({"compare": figures["compare"]} if "compare" in sides else {})},
        "by": {by: figures[by] for by in config.modes},
        "letter": _read_letter(config, tickets, sides),
        "black_box": {mission: asdict(box) for mission, box in _measure_black_boxes(config, tickets).items()},
    }
    with disk.reporting(folder):
        _write_rows(folder / WRONG, _find_wrong(first.rounds.path, tickets))
        if "compare" in sides:
            paired = PairedComparison(prices_of(config.price))
            for one, other in _pair_rows(first, sides["compare"]):
                paired.add(one, other)
            evaluation["difference"] = _split_by_mission(paired.figures())
            _write_rows(folder / CHANGED, _find_flipped(first, sides["compare"]))
        compared = [sides["compare"].rounds.path.name, CHANGED] if "compare" in sides else []
        evaluation["files"] = [EVALUATION, WRONG, *(sides[by].rounds.path.name for by in config.modes), *compared]
        text = json.dumps(evaluation, ensure_ascii=False, indent=2) + "\n"
        disk.replace(folder / EVALUATION, disk.encode(text))
    return evaluation


def _read_letter(config: EvaluateConfig, tickets: TicketStream[TicketLine], sides: Sides) -> dict[str, Any]:
    """What the rules' letter says beside the model's verdicts, if it gave any."""
    side = sides.get("model", sides[config.modes[0]])
    rules = next((each.rules for by, each in sides.items() if by != "compare" and each.rules), None)
    if not rules:
        known = (line.ticket for line in tickets.items())
        rules = code_rules(side.guidance, known, words_of(config.prompt, config.model))
    judged = zip(read_rows(side.rounds.path), (line.ticket for line in tickets.items()), strict=True)
    return compare_with_letter(judged, rules, side.by in ("model", "learnt"))


def _measure_black_boxes(config: EvaluateConfig, tickets: TicketStream[TicketLine]) -> dict[str, BlackBox]:
    """What a model reaches on these tickets that the train tickets of the guidance's run taught; nothing of a file, where
    the run's tickets are not found, and of more tickets than are worth the memory."""
    learnt, (known, _) = read_run_config(config.guidance), find_tickets(config.guidance, (), None, "")
    if not learnt or not known:
        return {}
    lines = list(islice(tickets.items(), MOST + 1))
    judged = [replace(line.ticket, label=line.label) for line in lines if line.label]
    if len(lines) > MOST:
        return {}
    return measure_on(judged, learnt, known, prices_of(config.price))


def _count_file(side: JudgedRounds, tickets: TicketStream[TicketLine], prices: Prices) -> dict[str, Any]:
    """The figures of one guidance at the user's prices, each mission's with its step."""
    guidance, taught = side.guidance, dict[str, set[str]]()
    for line in tickets.items() if any(each.taught_by for each in guidance.values()) else ():
        of = guidance[line.ticket.mission]
        if name_content(line.ticket) in of.taught_by | of.chosen_by:
            taught.setdefault(of.mission, set()).add(f"{line.ticket.group_id}::{line.label}")
    counted = count_verdicts(read_rows(side.rounds.path), taught, labels_of(guidance))
    figures = _split_by_mission({mission: count.figures(prices) for mission, count in counted.items()})
    for mission, of in figures["missions"].items():
        of["guidance_step"] = guidance[mission].step
    return figures


def _split_by_mission(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {"all": figures[ALL], "missions": {mission: of for mission, of in figures.items() if mission != ALL}}


def _pair_rows(one: JudgedRounds, other: JudgedRounds) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
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
