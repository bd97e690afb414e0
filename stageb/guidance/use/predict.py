"""``stageb predict``: tickets are judged round by round, and a row for each is brought to the disk in their order.

Fabric has launched the ranks (``world.py``). Rank 0 alone reads the ticket files, a round at a time, and writes; every rank
judges its share of each round. What was committed is never judged again, whenever the job was killed (``rounds.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stageb.cli import registry
from stageb.cli.parsing import from_keywords
from stageb.engines.config import HOW_ASKED
from stageb.errors import ConfigError
from stageb.guidance.answers import check_readable
from stageb.guidance.files.stream import TicketStream
from stageb.guidance.prompts import words_of
from stageb.guidance.selection import Rule, rule_named
from stageb.guidance.types import Guidance
from stageb.guidance.use import summary
from stageb.guidance.use.config import EvaluateConfig, PredictConfig, UseConfig, list_ticket_files, tickets_per_round
from stageb.guidance.use.guidance import fingerprint_guidance, load_guidance
from stageb.guidance.use.rounds import Rounds
from stageb.guidance.use.rows import Counts, add_counts, make_row
from stageb.guidance.use.source import TicketLine, make_check, stream_tickets
from stageb.store.journal import flatten
from stageb.store.output import check_file, read_commit, read_rows

if TYPE_CHECKING:  # torch
    from stageb.guidance.use.judging import JudgingRanks, TicketAnswers
    from stageb.job.world import World

AT_FIRST = 4096  # tickets that are looked at before anything else is done
DIGEST = "the tickets"
# Keys that change no row, or do so through what is compared beside them.
NOT_SHAPING = ("guidance", "compare", "tickets", "output", "max_unreadable", "fabric.", *HOW_ASKED)


@dataclass(frozen=True)
class Predictions:
    """What came of ``predict``: iterate over it for the rows, one at a time."""

    path: Path  # of the rows
    counts: Counts  # by mission

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return read_rows(self.path)


def predict(*, guidance: str, tickets: str | list[str], fresh: bool = False, **keys: Any) -> Predictions:
    """Judge tickets under guidance, as ``stageb predict`` does.

    ``keys`` are those of that command: ``output="out.jsonl"``, ``sampler={"samples_per_decode": 1}``, ...; ``config`` may
    name a YAML file of keys. Rows that an earlier call has left are gone on with; ``fresh`` sets them aside. Raises
    ``stageb.StagebError`` where something cannot be used, or breaks.
    """
    given = {"guidance": guidance, "tickets": tickets, **keys}
    config: PredictConfig = from_keywords("predict", registry.tools()["predict"], given)
    _run(config, fresh)
    return read_predictions(Path(config.output))


def read_predictions(path: Path) -> Predictions:
    """What lies in a file of rows."""
    content = read_commit(path)
    assert content is not None  # it was just written
    return Predictions(path, content["state"]["counts"])


def main(config: PredictConfig, resolved_yaml: str, fresh: bool) -> int:
    """The command. Raises ``InputError`` before any ticket is judged where something cannot be used."""
    return _run(config, fresh, summary.show_counts)


def _run(config: PredictConfig, fresh: bool, show: Callable[[Path, Counts], None] | None = None) -> int:
    guidance = load_guidance(config.guidance, config.prompt)
    tickets = stream_tickets(config)
    count = look_ahead(config, Path(config.output), tickets, guidance, guidance, fresh)

    from stageb.guidance.use.judging import JudgingRanks, launch  # torch

    def on_rank(world: World) -> int:
        world.agree("the guidance", repr(fingerprint_guidance(guidance)))
        rounds = Rounds(Path(config.output), tickets, tickets_per_round(config))
        judge_all(world, JudgingRanks(config, world), rounds, guidance, guidance, fresh)
        if world.is_global_zero and show:
            show(rounds.path, rounds.state["counts"])
        return 0

    return launch(config, count, on_rank)


def look_ahead(
    config: UseConfig,
    path: Path,
    tickets: TicketStream[TicketLine],
    guidance: Mapping[str, Guidance],
    missions: Collection[str],
    fresh: bool,
) -> int:
    """Refuse what shows at once, before torch is imported, which takes seconds; the number of tickets, as far as it shows.

    ``path`` is the file of rows, ``missions`` are those that tickets may be of. Raises ``InputError``.
    """
    if path.exists() and any(path.samefile(file) for file in tickets.files if Path(file).exists()):
        raise ConfigError("output", str(path), "it holds the tickets; name another file")
    fingerprint = take_fingerprint(config, guidance, "")
    del fingerprint[DIGEST]
    state = check_file(path, fingerprint, fresh)
    if state is not None:
        return int(state["tickets"])
    return tickets.glance(AT_FIRST, lambda: make_check(missions, once=isinstance(config, EvaluateConfig)))


def judge_all(
    world: World,
    judging: JudgingRanks,
    rounds: Rounds[TicketLine],
    guidance: Mapping[str, Guidance],
    missions: Collection[str],
    fresh: bool,
) -> None:
    """Judge what is left to judge, on every rank. ``missions`` are those that tickets may be of."""
    config = judging.config
    rule = rule_named(config.selection)
    with closing(rounds):
        world.lead(_begin, rounds, config, guidance, missions, fresh)
        while lines := world.lead(rounds.hand_out):
            judged = judging.judge(lines, guidance, rounds.show)
            world.lead(_commit, rounds, config, guidance, rule, lines, judged)


def _begin(
    rounds: Rounds[TicketLine],
    config: UseConfig,
    guidance: Mapping[str, Guidance],
    missions: Collection[str],
    fresh: bool,
) -> None:
    """Look the tickets over, unless that was done before, and take up where the last commit left off."""
    tickets = rounds.tickets

    def survey() -> dict[str, Any]:
        check = make_check(missions, once=isinstance(config, EvaluateConfig))
        return {"tickets": tickets.survey(check), "counts": {}}

    rounds.begin(survey, lambda: take_fingerprint(config, guidance, tickets.digest()), fresh)


def _commit(
    rounds: Rounds[TicketLine],
    config: UseConfig,
    guidance: Mapping[str, Guidance],
    rule: Rule,
    lines: Sequence[TicketLine],
    judged: Sequence[TicketAnswers],
) -> None:
    """Select a verdict for every ticket of a round, and commit their rows.

    Raises ``UnreadableError`` where the first round's answers can mostly not be read.
    """
    if not rounds.done:
        said = [candidate for answers, _ in judged for candidate in answers.candidates]
        most, words = config.max_unreadable, words_of(config.prompt)
        check_readable(said, most, words, "max_unreadable", "few tickets would get a verdict")
    agreement = config.manual_review.min_verdict_agreement
    made = [
        make_row(line, answers, passes, guidance[line.ticket.mission].step, agreement, rule)
        for line, (answers, passes) in zip(lines, judged, strict=True)
    ]
    rounds.commit(made, {**rounds.state, "counts": add_counts(rounds.state["counts"], made)})


def take_fingerprint(config: UseConfig, guidance: Mapping[str, Guidance], digest: str) -> dict[str, Any]:
    """What rows depend on, flat: keys, the tickets' bytes, the guidance."""
    plain = {key: value for key, value in flatten(asdict(config)).items() if not key.startswith(NOT_SHAPING)}
    plain |= {"ticket files": list_ticket_files(config), DIGEST: digest}
    return plain | {f"guidance of {mission}": said for mission, said in fingerprint_guidance(guidance).items()}
