"""``stageb summarize``: summarize images round by round, and write the lines of each round in order.

Fabric has launched the ranks (``world.py``). Rank 0 alone reads the ticket file, a round at a time, and writes; every rank
summarizes its share of each round's images. Committed lines are never summarized again, whenever the job was interrupted
(``commands/use/rounds.py``). Groups are cut by the round alone, as ``guidance/judging/rollout.py`` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stageb.cli import registry
from stageb.cli.parsing import from_keywords
from stageb.engines.config import HOW_ASKED
from stageb.errors import ConfigError
from stageb.guidance.commands.summarize.config import SummarizeConfig
from stageb.guidance.commands.summarize.source import ImageLine, choose_prompt, find_missing, stream_images
from stageb.guidance.commands.use.rounds import Rounds
from stageb.guidance.words.columns import is_table
from stageb.store.commits import flatten
from stageb.store.output import COMMIT, check_file, read_rows
from stageb.store.targets import check_target
from stageb.untrusted import pictures

if TYPE_CHECKING:
    from stageb.job.world import World  # torch

AT_FIRST = 4096  # tickets that are looked at before anything else is done
NOT_SHAPING = ("tickets", "output", "fabric.", *HOW_ASKED)
"""Keys that change no line, or do so through what is compared beside them."""


def summarize(*, tickets: str, output: str, fresh: bool = False, **keys: Any) -> Iterator[dict[str, Any]]:
    """Summarize the images that tickets name, as ``stageb summarize`` does; the lines of ``output``, one at a time.

    ``keys`` are those of that command; ``config`` names YAML files of keys: one, or several of which later ones win.
    Resumes an interrupted call, unless ``fresh``, which sets its lines aside. Raises ``stageb.StagebError`` if something
    cannot be used, or fails.
    """
    given = {"tickets": tickets, "output": output, **keys}
    config: SummarizeConfig = from_keywords("summarize", registry.tools()["summarize"], given)
    _run(config, fresh)
    return read_rows(Path(config.output))


def main(config: SummarizeConfig, resolved_yaml: str, fresh: bool) -> int:
    """The command. Raises ``InputError`` before any image is summarized where something cannot be used."""
    return _run(config, fresh, says=True)


def _run(config: SummarizeConfig, fresh: bool, says: bool = False) -> int:
    if is_table(config.tickets):
        raise ConfigError("tickets", config.tickets, "a table names no images: write each row as a line of JSON Lines")
    pictures.pillow()
    tickets = stream_images(config.tickets, choose_prompt(config.prompt, config.language))
    check_target(Path(config.output), {"tickets": [config.tickets]}, COMMIT)
    if check_file(Path(config.output), _shaping(config), fresh) is None:
        tickets.glance(AT_FIRST, lambda: lambda line: None)

    from stageb.guidance.commands.summarize.ranks import SummarizingRanks  # torch
    from stageb.job import world as worlds

    def on_rank(world: World) -> int:
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
    """Check all tickets, unless an earlier call did, and resume from the last commit."""
    tickets = rounds.tickets
    rounds.begin(lambda: {"tickets": tickets.survey()}, lambda: {**_shaping(config), "the tickets": tickets.digest()}, fresh)


def _shaping(config: SummarizeConfig) -> dict[str, Any]:
    """The keys that lines depend on, flat."""
    return {key: value for key, value in flatten(asdict(config)).items() if not key.startswith(NOT_SHAPING)}


def _commit(rounds: Rounds[ImageLine], lines: Sequence[ImageLine], summaries: Sequence[str]) -> None:
    """Commit the lines of a round, their summaries filled in."""
    made, left = [], iter(summaries)
    for line in lines:
        said = {**line.summaries, **{number: next(left) for number in find_missing(line)}}
        made.append({**line.row, "per_image": {f"image_{number}": said[number] for number in sorted(said)}})
    rounds.commit(made, rounds.state)
