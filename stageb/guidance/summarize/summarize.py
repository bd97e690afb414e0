"""``stageb summarize``: images are looked at round by round, and the lines of a round are brought to the disk in order.

Fabric has launched the ranks (``world.py``). Rank 0 alone reads the ticket file, a round at a time, and writes; every rank
looks at its share of each round's images. What was committed is never summarized again, whenever the job was killed
(``use/rounds.py``). Groups are cut by the round alone, as ``guidance/rollout.py`` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stageb.cli import registry
from stageb.cli.parsing import from_keywords
from stageb.engines.config import HOW_ASKED
from stageb.engines.protocol import Decode, Engine, Prompt, Request
from stageb.guidance.ranks import load
from stageb.guidance.summarize.config import SummarizeConfig
from stageb.guidance.summarize.source import ImageLine, stream_images
from stageb.guidance.summarize.words import INSTRUCTIONS, MISSION
from stageb.guidance.texts import one_line
from stageb.guidance.use.rounds import Rounds
from stageb.job import world as worlds
from stageb.job.world import World
from stageb.seeds import stream
from stageb.store.journal import flatten
from stageb.store.output import read_rows
from stageb.untrusted import pictures

LONGEST = 4000  # characters of a summary
NOT_SHAPING = ("tickets", "output", "fabric.", *HOW_ASKED)
"""Keys that change no line, or do so through what is compared beside them."""


def summarize(*, tickets: str, output: str, fresh: bool = False, **keys: Any) -> Iterator[dict[str, Any]]:
    """Summarize the images that tickets name, as ``stageb summarize`` does; the lines of ``output``, one at a time.

    ``keys`` are those of that command; ``config`` may name a YAML file of keys. What an earlier call has left is gone on
    with; ``fresh`` sets it aside. Raises ``stageb.StagebError`` where something cannot be used, or breaks.
    """
    given = {"tickets": tickets, "output": output, **keys}
    config: SummarizeConfig = from_keywords("summarize", registry.tools()["summarize"], given)
    _run(config, fresh)
    return read_rows(Path(config.output))


def main(config: SummarizeConfig, resolved_yaml: str, fresh: bool) -> int:
    """The command. Raises ``InputError`` before any image is summarized where something cannot be used."""
    return _run(config, fresh, says=True)


def _run(config: SummarizeConfig, fresh: bool, says: bool = False) -> int:
    pictures.pillow()

    def on_rank(world: World) -> int:
        tickets = stream_images(config.tickets, choose_prompt(config))
        rounds, ranks = Rounds(Path(config.output), tickets, config.round_size), SummarizingRanks(config, world)
        with closing(rounds):
            world.lead(_begin, rounds, config, fresh)
            while lines := world.lead(rounds.hand_out):
                summaries = ranks.summarize(lines)
                world.lead(_commit, rounds, lines, summaries)
            if says and world.is_global_zero:
                print(f"{config.output}: every image of {rounds.done:,} tickets has a summary")
        return 0

    return worlds.run(config.fabric, on_rank)


def _begin(rounds: Rounds[ImageLine], config: SummarizeConfig, fresh: bool) -> None:
    """Look the tickets over, unless that was done before, and take up where the last commit left off."""
    plain = {key: value for key, value in flatten(asdict(config)).items() if not key.startswith(NOT_SHAPING)}
    tickets = rounds.tickets
    rounds.begin(lambda: {"tickets": tickets.survey()}, lambda: {**plain, "the tickets": tickets.digest()}, fresh)


def _commit(rounds: Rounds[ImageLine], lines: Sequence[ImageLine], summaries: Sequence[str]) -> None:
    """Commit the lines of a round, their summaries filled in."""
    made, left = [], iter(summaries)
    for line in lines:
        said = {**line.summaries, **{number: next(left) for number in find_missing(line)}}
        made.append({**line.row, "per_image": {f"image_{number}": said[number] for number in sorted(said)}})
    rounds.commit(made, rounds.state)


class SummarizingRanks:
    """The ranks of a job that summarizes: each holds the model, and looks at its share of a round's images."""

    def __init__(self, config: SummarizeConfig, world: World) -> None:
        self._config = config
        self._world = world
        self._engine: Engine | None = None

    def summarize(self, lines: Sequence[ImageLine]) -> list[str]:
        """A summary of each image of ``lines`` that has none, in order: on rank 0, none elsewhere. The model is loaded
        first if it was not needed before."""
        asked, size = make_requests(lines, self._config), self._config.micro_batch_size
        groups = [asked[start : start + size] for start in range(0, len(asked), size)]
        if groups and self._engine is None:
            self._engine = load(self._config.model, self._world, use_images=True)
        return [each for group in self._world.map("group", self._summarize_group, groups) for each in group]

    def _summarize_group(self, group: Sequence[Request]) -> list[str]:
        assert self._engine is not None  # ``summarize`` has loaded it
        nothing = INSTRUCTIONS[self._config.language].nothing
        return [one_line(each.text, LONGEST) or nothing for (each,) in self._engine.generate(group)]


def make_requests(lines: Sequence[ImageLine], config: SummarizeConfig) -> list[Request]:
    """What is asked of the model for each image of ``lines`` that has no summary, in order."""
    decode_by = Decode(temperature=config.temperature, max_new_tokens=config.max_new_tokens)
    system, prompt = INSTRUCTIONS[config.language].system, choose_prompt(config)
    found = []
    for line in lines:
        user = prompt.replace(MISSION, str(line.row.get("mission", "")))
        for number in find_missing(line):
            key = stream(config.seed, "summarize", str(line.row.get("group_id", "")), number)
            found.append(Request(Prompt(system, user, (line.images[number],)), decode_by, (key,)))
    return found


def choose_prompt(config: SummarizeConfig) -> str:
    """What the model is asked for each image."""
    return config.prompt or INSTRUCTIONS[config.language].prompt


def find_missing(line: ImageLine) -> list[int]:
    """The numbers of a line's images that have no summary yet."""
    return [number for number in line.images if number not in line.summaries]
