"""What every rank does for ``summarize``: hold the model, look at its share of a round's images."""

from __future__ import annotations

from collections.abc import Sequence

from stageb.engines.protocol import Decode, Engine, Prompt, Request
from stageb.guidance.commands.summarize.config import SummarizeConfig
from stageb.guidance.commands.summarize.source import INSTRUCTIONS, MISSION, ImageLine, choose_prompt, find_missing
from stageb.guidance.judging.ranks import load_engine
from stageb.guidance.words.texts import one_line
from stageb.job.world import World
from stageb.seeds import stream

LONGEST = 4000  # characters of a summary


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
            self._engine = load_engine(self._config.model, self._world, use_images=True)
        return [each for group in self._world.map("group", self._summarize_group, groups) for each in group]

    def _summarize_group(self, group: Sequence[Request]) -> list[str]:
        assert self._engine is not None  # ``summarize`` has loaded it
        nothing = INSTRUCTIONS[self._config.language].nothing
        return [one_line(each.text, LONGEST) or nothing for (each,) in self._engine.generate(group)]


def make_requests(lines: Sequence[ImageLine], config: SummarizeConfig) -> list[Request]:
    """What is asked of the model for each image of ``lines`` that has no summary, in order."""
    decode_by = Decode(temperature=config.temperature, max_new_tokens=config.max_new_tokens)
    system, prompt = INSTRUCTIONS[config.language].system, choose_prompt(config.prompt, config.language)
    found = []
    for line in lines:
        user = prompt.replace(MISSION, str(line.row.get("mission", "")))
        for number in find_missing(line):
            key = stream(config.seed, "summarize", str(line.row.get("group_id", "")), number)
            found.append(Request(Prompt(system, user, (line.images[number],)), decode_by, (key,)))
    return found
