"""``stageb evaluate``: how good guidance is on labelled tickets, and how much better than another on the same ones.

Tickets are judged as ``predict`` judges them, without their labels; what came of it is compared with these afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stageb.cli import registry
from stageb.cli.parsing import from_keywords
from stageb.guidance.files.stream import TicketStream
from stageb.guidance.prompts import words_of
from stageb.guidance.types import Guidance
from stageb.guidance.use import summary
from stageb.guidance.use.config import EvaluateConfig, list_ticket_files, tickets_per_round
from stageb.guidance.use.figures import ALL, PairedComparison, count_verdicts, is_right
from stageb.guidance.use.guidance import fingerprint_guidance, load_guidance
from stageb.guidance.use.letter import compare_with_letter
from stageb.guidance.use.predict import judge_all, look_ahead
from stageb.guidance.use.rounds import Rounds
from stageb.guidance.use.source import TicketLine, stream_tickets
from stageb.store import disk
from stageb.store.output import read_rows

if TYPE_CHECKING:
    from stageb.job.world import World  # torch

ON_SCREEN = 5  # tickets judged wrong
PREDICTIONS, COMPARED = "predictions.jsonl", "compared.jsonl"
EVALUATION, WRONG, CHANGED = "evaluation.json", "wrong.jsonl", "changed.jsonl"


@dataclass(frozen=True)
class Evaluation:
    """What came of ``evaluate``."""

    folder: Path  # of its files
    figures: dict[str, Any]  # the content of evaluation.json

    def wrong(self) -> Iterator[dict[str, Any]]:
        """The rows of tickets that were judged wrong, one at a time."""
        return read_rows(self.folder / WRONG)


def evaluate(*, guidance: str, tickets: str | list[str], fresh: bool = False, **keys: Any) -> Evaluation:
    """Say how good guidance is on labelled tickets, as ``stageb evaluate`` does.

    ``keys`` are those of that command: ``compare="out/second"``, ``output="evaluation"``, ``sampler={...}``, ...; ``config``
    may name a YAML file of keys. Raises ``stageb.StagebError`` where something cannot be used, or breaks.
    """
    given = {"guidance": guidance, "tickets": tickets, **keys}
    config: EvaluateConfig = from_keywords("evaluate", registry.tools()["evaluate"], given)
    _run(config, fresh)
    folder = Path(config.output)
    return Evaluation(folder, json.loads((folder / EVALUATION).read_text(encoding="utf-8")))


def main(config: EvaluateConfig, resolved_yaml: str, fresh: bool) -> int:
    """The command. Raises ``InputError`` before any ticket is judged where something cannot be used."""
    return _run(config, fresh, summary.show_evaluation)


Guidances = Mapping[str, Mapping[str, Guidance]]
"""By the file of the rows that are judged under it, each mission's guidance."""
Show = Callable[[Mapping[str, Any], list[dict[str, Any]], Path], None]


def _run(config: EvaluateConfig, fresh: bool, show: Show | None = None) -> int:
    guidances = {PREDICTIONS: load_guidance(config.guidance, config.prompt)}
    if config.compare is not None:
        guidances[COMPARED] = load_guidance(config.compare, config.prompt, "compare")

    tickets, folder = stream_tickets(config), Path(config.output)
    missions = set.intersection(*(set(guidance) for guidance in guidances.values()))
    counts = [look_ahead(config, folder / file, tickets, guidance, missions, fresh) for file, guidance in guidances.items()]

    from stageb.guidance.use.judging import JudgingRanks, launch  # torch

    def on_rank(world: World) -> int:
        world.agree("the guidance", repr([fingerprint_guidance(guidance) for guidance in guidances.values()]))
        judging = JudgingRanks(config, world)
        for file, guidance in guidances.items():
            rounds = Rounds(folder / file, tickets, tickets_per_round(config))
            judge_all(world, judging, rounds, guidance, missions, fresh)
        if world.is_global_zero:
            evaluation = _write_evaluation(config, tickets, guidances)
            if show:
                show(evaluation, list(islice(read_rows(folder / WRONG), ON_SCREEN)), folder)
        return 0

    return launch(config, max(counts), on_rank)


def _write_evaluation(
    config: EvaluateConfig, tickets: TicketStream[TicketLine], guidances: Mapping[str, Mapping[str, Guidance]]
) -> dict[str, Any]:
    """Write what the rows come to; the content of evaluation.json. Raises ``JournalError`` where the disk refuses."""
    folder = Path(config.output)
    evaluation: dict[str, Any] = {
        "guidance": config.guidance,
        "compare": config.compare,
        "tickets": list_ticket_files(config),
    }
    evaluation["figures"] = {
        name: _count_file(folder / file, guidance)
        for name, (file, guidance) in zip(("guidance", "compare"), guidances.items(), strict=False)
    }
    evaluation["letter"] = compare_with_letter(
        lambda: zip(read_rows(folder / PREDICTIONS), (line.ticket for line in tickets.items()), strict=True),
        guidances[PREDICTIONS],
        words_of(config.prompt),
    )
    with disk.reporting(folder):
        _write_rows(folder / WRONG, _find_wrong(folder, tickets))
        if config.compare is not None:
            paired = PairedComparison()
            for one, other in _pair_rows(folder):
                paired.add(one, other)
            evaluation["difference"] = _split_by_mission(paired.figures())
            _write_rows(folder / CHANGED, _find_flipped(folder))
        compared = [COMPARED, CHANGED] if config.compare is not None else []
        evaluation["files"] = [EVALUATION, WRONG, PREDICTIONS, *compared]
        text = json.dumps(evaluation, ensure_ascii=False, indent=2) + "\n"
        disk.replace(folder / EVALUATION, disk.encode(text))
    return evaluation


def _count_file(path: Path, guidance: Mapping[str, Guidance]) -> dict[str, Any]:
    """The figures of one guidance, each mission's with its step."""
    taught = {mission: frozenset(_taught_by(each)) for mission, each in guidance.items()}
    figures = _split_by_mission(
        {mission: count.figures() for mission, count in count_verdicts(read_rows(path), taught).items()}
    )
    for mission, of in figures["missions"].items():
        of["guidance_step"] = guidance[mission].step
    return figures


def _taught_by(guidance: Guidance) -> Iterator[str]:
    """The keys of the tickets that the rules say they were learnt from. What a user wrote may be anything."""
    for rule in guidance.rules:
        sources = rule.metadata.get("sources")
        yield from (key for key in (sources if isinstance(sources, list) else []) if isinstance(key, str))


def _split_by_mission(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {"all": figures[ALL], "missions": {mission: of for mission, of in figures.items() if mission != ALL}}


def _pair_rows(folder: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    return zip(read_rows(folder / PREDICTIONS), read_rows(folder / COMPARED), strict=True)


def _find_wrong(folder: Path, tickets: TicketStream[TicketLine]) -> Iterator[dict[str, Any]]:
    """Rows of tickets that were judged wrong, with what they say."""
    for row, line in zip(read_rows(folder / PREDICTIONS), tickets.items(), strict=True):
        if not is_right(row):
            yield {**row, "per_image": dict(line.ticket.per_image)}


def _find_flipped(folder: Path) -> Iterator[dict[str, Any]]:
    """Rows of tickets that one guidance judges rightly and the other one wrong."""
    for one, other in _pair_rows(folder):
        if is_right(one) != is_right(other):
            yield {**one, "compared_verdict": other["verdict"], "compared_reason": other["reason"]}


def _write_rows(path: Path, some: Iterable[Mapping[str, Any]]) -> None:
    def write(beside: Path) -> None:
        with beside.open("wb") as opened:
            opened.writelines(disk.json_lines([row]) for row in some)

    disk.place(path, write)
