"""The keys of ``stageb summarize``. Of the standard library alone, since ``--help`` reads it."""

from __future__ import annotations

from dataclasses import dataclass, field

from stageb.config import FabricConfig
from stageb.engines.config import ModelConfig
from stageb.guidance.words.config import Language
from stageb.settings import Check, Section, at_least, setting

ROUND = 384  # images: 24 groups of 16, so that every usual number of ranks gets as many


@dataclass(frozen=True)
class SummarizeConfig(Section, at=""):
    """Writing a summary of every image that tickets name."""

    tickets: str = setting("", Check(bool, "name a ticket file: tickets.jsonl"))
    """A ticket file in JSON Lines whose lines name "images", relative to the file. Labels and summaries are optional."""
    output: str = setting("", Check(lambda path: bool(path) and not path.endswith("/"), "name a file: summarized.jsonl"))
    """The file to write: every line again, in order, with a summary of each image in "per_image". Put it beside the tickets,
    since images keep their relative names."""
    language: Language = "en"
    """en or zh: the language of the instructions."""
    prompt: str | None = setting(
        None, Check(lambda text: text is None or bool(text.strip()), "say what to write down, or null")
    )
    """What to ask the model about each image; {mission} stands for the ticket's mission. null: a prompt for short facts."""
    temperature: float = setting(0.0, at_least(0))
    """0 is greedy."""
    max_new_tokens: int = setting(160, at_least(1))
    """Tokens of one summary, at most."""
    micro_batch_size: int = setting(16, at_least(1))
    """Images that the model sees in one batch. Results at two world sizes are equal only if this is the same."""
    round_size: int = setting(ROUND, at_least(1))
    """Tickets between two commits, over all ranks: how much work an interruption can cost."""
    seed: int = 17
    """Seed of every random choice."""
    model: ModelConfig = field(default_factory=ModelConfig)
    fabric: FabricConfig = field(default_factory=FabricConfig)

    def check(self) -> None:
        self.require(self.output != self.tickets, "output", "name another file than the tickets")
