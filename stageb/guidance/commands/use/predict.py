"""``stageb predict``: judge tickets round by round, and write a row for each in their order.

Fabric has launched the ranks (``world.py``). Rank 0 alone reads the ticket files, a round at a
time, and writes; every rank judges its share of each round. Committed tickets are never judged
again, whenever the job was interrupted (``rounds.py``). ``rows.py`` makes a ticket's row: a new
column goes there and into ``serve/openapi.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stageb.cli.parsing import from_keywords
from stageb.guidance.commands.use import summary
from stageb.guidance.commands.use.config import PredictConfig, UseConfig, tickets_per_round
from stageb.guidance.commands.use.judged import JudgedRounds, fingerprint_guidance
from stageb.guidance.commands.use.rounds import Rounds, Waves
from stageb.guidance.commands.use.source import list_inputs, load_guidance, stream_tickets
from stageb.guidance.commands.use.summary import Counts
from stageb.job import lifetime
from stageb.store.output import COMMIT, check_file, check_target, read_commit, read_rows

if TYPE_CHECKING:  # torch
    from stageb.guidance.commands.use.predict_ranks import JudgingRanks
    from stageb.job.world import World

AT_FIRST = 4096  # tickets that are looked at before anything else is done


@dataclass(frozen=True)
class Predictions:
    """The result of ``predict``; iterate over it for the rows, one at a time."""

    path: Path  # of the rows
    counts: Counts  # by mission

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return read_rows(self.path)


def predict(
    *, guidance: str, tickets: str | list[str], fresh: bool = False, **keys: Any
) -> Predictions:
    """Judge tickets under guidance, as ``stageb predict`` does.

    ``keys`` are those of that command: ``output="out.jsonl"``, ``sampler={"samples_per_decode":
    1}``, ...; ``config`` names YAML files of keys: one, or several of which later ones win. Resumes
    the rows of an interrupted call, unless ``fresh``, which sets them aside. Raises
    ``stageb.StagebError`` if something cannot be used, or fails.
    """
    given = {"guidance": guidance, "tickets": tickets, **keys}
    config: PredictConfig = from_keywords("predict", given)
    _run(config, fresh)
    path = Path(config.output)
    content = read_commit(path)
    assert content is not None  # it was just written
    return Predictions(path, content["state"]["counts"])


def main(config: PredictConfig, fresh: bool) -> int:
    """The command. Raises ``InputError`` before any ticket is judged where something cannot be
    used."""
    return _run(config, fresh, summary.show_counts)


def _run(
    config: PredictConfig, fresh: bool, show: Callable[[Path, Counts], None] | None = None
) -> int:
    guidance = load_guidance(config.guidance, config.prompt)
    tickets = stream_tickets(config)
    rounds = Rounds(Path(config.output), tickets, tickets_per_round(config))
    judged = JudgedRounds(config, config.by, rounds, guidance, guidance, config.guidance)

    def finish() -> None:
        if show:
            show(rounds.path, rounds.state["counts"])

    return judge_outputs(config, [judged], fresh, finish)


def judge_outputs(
    config: UseConfig, outputs: Sequence[JudgedRounds], fresh: bool, finish: Callable[[], None]
) -> int:
    """Judge what is left to judge of all outputs, then ``finish`` on rank 0. Returns the exit code.
    Raises ``InputError`` before any ticket is judged where something cannot be used."""
    count = max([look_ahead(config, each, fresh) for each in outputs])
    if all(each.by == "rules" for each in outputs):
        if lifetime.leads():
            for each in outputs:
                judge_by_rules(each, fresh)
            finish()
        return 0

    from stageb.guidance.commands.use.predict_ranks import JudgingRanks, launch  # torch

    def on_rank(world: World) -> int:
        world.agree("the guidance", repr([fingerprint_guidance(each.guidance) for each in outputs]))
        judging = JudgingRanks(config, world)
        for each in outputs:
            judge_all(world, judging, each, fresh)
        if world.is_global_zero:
            finish()
        return 0

    return launch(config, count, on_rank)


def look_ahead(config: UseConfig, judged: JudgedRounds, fresh: bool) -> int:
    """Check what can be checked before torch is imported, which takes seconds. Returns the number
    of tickets, of a new output only up to ``AT_FIRST``.

    Raises ``InputError``.
    """
    path, tickets = judged.rounds.path, judged.rounds.tickets
    check_target(path, list_inputs(config), COMMIT)
    state = check_file(path, judged.fingerprint, fresh)
    return tickets.glance(AT_FIRST, judged.make_check) if state is None else int(state["tickets"])


def judge_all(world: World, judging: JudgingRanks, judged: JudgedRounds, fresh: bool) -> None:
    """Judge what is left to judge, on every rank."""
    waves = Waves(judged.rounds)
    with closing(judged.rounds):
        world.lead(judged.begin, fresh)
        while lines := world.lead(judged.hand_out):
            world.lead(judged.commit, judging.judge(lines, judged.guidance, waves))


def judge_by_rules(judged: JudgedRounds, fresh: bool) -> None:
    """Judge what is left to judge, by the rules alone, in this process."""
    with closing(judged.rounds):
        judged.begin(fresh)
        judged.judge_columns()
        asked = judged.hand_out()
        assert not asked  # of nobody
