"""``stageb predict``: tickets are judged round by round, and a row for each is brought to the disk in their order.

Fabric has launched the ranks (``world.py``). Rank 0 alone reads the ticket files, a round at a time, and writes; every rank
judges its share of each round. What was committed is never judged again, whenever the job was killed (``output.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from stageb.cli import registry
from stageb.cli.parsing import from_keywords
from stageb.engines.config import HOW_ASKED
from stageb.errors import ConfigError, InputError
from stageb.guidance.answers import check_readable
from stageb.guidance.prompts import words_of
from stageb.guidance.selection import rule_named
from stageb.guidance.types import Guidance
from stageb.guidance.use import summary
from stageb.guidance.use.config import EvaluateConfig, PredictConfig, round_size, ticket_files
from stageb.guidance.use.judging import Judged, Judging
from stageb.guidance.use.learnt import digests, learnt
from stageb.guidance.use.output import Output, committed, rows, set_aside
from stageb.guidance.use.progress import Progress
from stageb.guidance.use.rows import Counts, counted, row
from stageb.guidance.use.source import Line, Source
from stageb.job import world as worlds
from stageb.job.world import World
from stageb.store.journal import flatten

# Keys that change no row, or do so through what is compared beside them.
NOT_SHAPING = ("guidance", "compare", "tickets", "output", "max_unreadable", "fabric.", *HOW_ASKED)


@dataclass(frozen=True)
class Predicted:
    """What came of ``predict``: iterate over it for the rows, one at a time."""

    path: Path  # of the rows
    counts: Counts  # by mission

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return rows(self.path)


def predict(*, guidance: str, tickets: str | list[str], fresh: bool = False, **keys: Any) -> Predicted:
    """Judge tickets under guidance, as ``stageb predict`` does.

    ``keys`` are those of that command: ``output="out.jsonl"``, ``sampler={"samples_per_decode": 1}``, ...; ``config`` may
    name a YAML file of keys. Rows that an earlier call has left are gone on with; ``fresh`` sets them aside. Raises
    ``stageb.StagebError`` where something cannot be used, or breaks.
    """
    given = {"guidance": guidance, "tickets": tickets, **keys}
    config: PredictConfig = from_keywords("predict", registry.tools()["predict"], given)
    _run(config, fresh)
    return predicted(Path(config.output))


def predicted(path: Path) -> Predicted:
    """What lies in a file of rows."""
    content = committed(path)
    assert content is not None  # it was just written
    return Predicted(path, content["state"]["counts"])


def main(config: PredictConfig, resolved_yaml: str, fresh: bool) -> int:
    """The command. Raises ``InputError`` before any ticket is judged where something cannot be used."""
    return _run(config, fresh, summary.show_counts)


def _run(config: PredictConfig, fresh: bool, show: Callable[[Path, Counts], None] | None = None) -> int:
    guidance = learnt(config.guidance, config.prompt)

    def on_rank(world: World) -> int:
        world.agree("the guidance", repr(digests(guidance)))
        source = Source(ticket_files(config), config.columns, False, config.sampler.use_images)
        rounds = Rounds(config, source, Path(config.output), guidance)
        judge_all(world, Judging(config, world), rounds, fresh)
        if world.is_global_zero and show:
            show(rounds.path, rounds.counts)
        return 0

    return worlds.run(config.fabric, on_rank)


def judge_all(world: World, judging: Judging, rounds: Rounds, fresh: bool) -> None:
    """Judge what is left to judge, on every rank."""
    with closing(rounds):
        world.lead(rounds.begin, fresh)
        while lines := world.lead(rounds.hand_out):
            judged = judging.judge(lines, rounds.guidance, rounds.within)
            world.lead(rounds.take_in, lines, judged)


class Rounds:
    """The rounds of one file of rows. It stands on every rank; its methods are called on rank 0 alone."""

    def __init__(
        self,
        config: PredictConfig | EvaluateConfig,
        source: Source,
        path: Path,
        guidance: Mapping[str, Guidance],
        known: Collection[str] | None = None,
    ) -> None:
        """``known`` are the missions that tickets may be of; None: all that the guidance is for."""
        self.path = path
        self.guidance = guidance
        self._known = guidance.keys() if known is None else known
        self._config = config
        self._rule = rule_named(config.selection)
        self._source = source
        self._output: Output | None = None
        self._progress: Progress | None = None
        self._lines: Iterator[Line] = iter(())

    def begin(self, fresh: bool) -> None:
        """Look the tickets over, unless that was done before, and take up where the last commit left off."""
        if self.path.exists() and any(self.path.samefile(file) for file in self._source.files if Path(file).exists()):
            raise ConfigError("output", str(self.path), "it holds the tickets; name another file")
        state = None
        if fresh or committed(self.path) is None:
            missions = self._source.survey(self._known)
            state = {"tickets": sum(missions.values()), "counts": {}}
        shaping = shaping_of(self._config, self.guidance, self._source.digest())
        if fresh:
            set_aside(self.path)
        self._output = Output(self.path, shaping, state)
        self._lines = self._source.lines(self._output.done)
        if not self._output.finished:
            self._progress = Progress(str(self.path), self._output.state["tickets"], self._output.done)

    def hand_out(self) -> list[Line]:
        """The next round; empty where all is done."""
        if self._out.finished:
            return []
        lines = list(islice(self._lines, round_size(self._config)))
        if not lines:
            raise InputError(
                f"{', '.join(self._source.files)}: fewer tickets than were looked at; leave files alone meanwhile"
            )
        return lines

    def within(self, tickets: int) -> None:
        """``tickets`` of the round in progress are judged."""
        if self._progress:
            self._progress.within(tickets)

    def take_in(self, lines: list[Line], judged: list[Judged]) -> None:
        """Select a verdict for every ticket of a round, and commit their rows. Raises ``UnreadableError`` where the first
        round's answers can mostly not be read."""
        if not self._out.done:
            said = [candidate for answers, _ in judged for candidate in answers.candidates]
            most, words = self._config.max_unreadable, words_of(self._config.prompt)
            check_readable(said, most, words, "max_unreadable", "few tickets would get a verdict")
        agreement = self._config.manual_review.min_verdict_agreement
        made = [
            row(line, answers, passes, self.guidance[line.ticket.mission].step, agreement, self._rule)
            for line, (answers, passes) in zip(lines, judged, strict=True)
        ]
        state = {**self._out.state, "counts": counted(self.counts, made)}
        self._out.add(made, len(made), state, finished=self._out.done + len(made) == state["tickets"])
        if self._progress:
            self._progress.round(len(made))

    def close(self) -> None:
        """Let go of what ``begin`` took."""
        for held in (self._progress, self._output):
            if held:
                held.close()

    @property
    def counts(self) -> Counts:
        """How the tickets so far were answered."""
        counts: Counts = self._out.state["counts"]
        return counts

    @property
    def _out(self) -> Output:
        assert self._output is not None  # ``begin`` has opened it
        return self._output


def shaping_of(config: PredictConfig | EvaluateConfig, guidance: Mapping[str, Guidance], digest: str) -> dict[str, Any]:
    """What rows depend on, flat: keys, the tickets' bytes, the guidance."""
    plain = {key: value for key, value in flatten(asdict(config)).items() if not key.startswith(NOT_SHAPING)}
    plain |= {"ticket files": ticket_files(config), "the tickets": digest}
    return plain | {f"guidance of {mission}": said for mission, said in digests(guidance).items()}
