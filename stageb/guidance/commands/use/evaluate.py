"""``stageb evaluate``: how good guidance is on labelled tickets, and how much better than another
on the same ones.

Tickets are judged as ``predict`` judges them, without their labels; the verdicts are compared with
the labels afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from stageb.cli.parsing import from_keywords
from stageb.errors import ConfigError, shown
from stageb.guidance.commands.use import summary
from stageb.guidance.commands.use.config import By, EvaluateConfig, tickets_per_round
from stageb.guidance.commands.use.figures import FILES, Evaluation, write_evaluation
from stageb.guidance.commands.use.judged import JudgedRounds
from stageb.guidance.commands.use.predict import judge_outputs
from stageb.guidance.commands.use.rounds import Rounds
from stageb.guidance.commands.use.source import list_inputs, load_guidance, stream_tickets
from stageb.guidance.tickets.stream import TicketLine, TicketStream
from stageb.guidance.words.costs import check_prices
from stageb.guidance.words.types import Guidance
from stageb.store.output import check_target

ON_SCREEN = 5  # tickets judged wrong
PREDICTIONS, COMPARED = "predictions.jsonl", "compared.jsonl"


def evaluate(
    *, guidance: str, tickets: str | list[str], fresh: bool = False, **keys: Any
) -> Evaluation:
    """Say how good guidance is on labelled tickets, as ``stageb evaluate`` does.

    ``keys`` are those of that command: ``compare="out/second"``, ``output="evaluation"``,
    ``sampler={...}``, ...; ``config`` names YAML files of keys: one, or several of which later ones
    win. Raises ``stageb.StagebError`` if something cannot be used, or fails.
    """
    given = {"guidance": guidance, "tickets": tickets, **keys}
    config: EvaluateConfig = from_keywords("evaluate", given)
    _run(config, fresh)
    return Evaluation.read(Path(config.output))


def main(config: EvaluateConfig, fresh: bool) -> int:
    """The command. Raises ``InputError`` before any ticket is judged where something cannot be
    used."""
    return _run(config, fresh, summary.show_evaluation)


def _run(
    config: EvaluateConfig,
    fresh: bool,
    show: Callable[[Mapping[str, Any], list[dict[str, Any]], Path], None] | None = None,
) -> int:
    tickets, folder = stream_tickets(config), Path(config.output)
    sides, read = _make_sides(config, tickets), list_inputs(config)
    for name in FILES:
        check_target(folder / name, read)

    def finish() -> None:
        found = write_evaluation(config, tickets, sides)
        if show:
            show(found.figures, list(islice(found.wrong(), ON_SCREEN)), folder)

    return judge_outputs(config, list(sides.values()), fresh, finish)


def _make_sides(
    config: EvaluateConfig, tickets: TicketStream[TicketLine]
) -> dict[str, JudgedRounds]:
    """By name: ``compare``, and whoever judges by the guidance that is evaluated, the first of
    ``by`` first. Raises ``InputError`` where guidance cannot be read."""
    guidance = load_guidance(config.guidance, config.prompt)
    modes = config.modes
    folder = Path(config.output)
    other = (
        None if config.compare is None else load_guidance(config.compare, config.prompt, "compare")
    )
    missions = set(guidance) & set(guidance if other is None else other)
    for mission in sorted(missions):
        check_prices(config.price, mission, guidance[mission].labels)
        if other and {*other[mission].labels} != {*guidance[mission].labels}:
            raise ConfigError(
                "compare",
                config.compare,
                f"its labels of mission {shown(mission)!r} are others; name another",
            )

    def make(by: By, source: str, of: Mapping[str, Guidance], file: str) -> JudgedRounds:
        is_plain = by == "learnt" or (by == "model" and "learnt" not in modes)
        named = file if is_plain else file.replace(".", f"-{by}.")  # predictions-rules.jsonl
        rounds = Rounds(folder / named, tickets, tickets_per_round(config))
        return JudgedRounds(config, by, rounds, of, missions, source)

    sides: dict[str, JudgedRounds] = {
        by: make(by, config.guidance, guidance, PREDICTIONS) for by in modes
    }
    if config.compare is not None and other is not None:
        sides["compare"] = make(modes[0], config.compare, other, COMPARED)
    return sides
