"""The keys of ``stageb summarize``. Of the standard library alone, since ``--help`` reads it."""

from __future__ import annotations

from dataclasses import dataclass, field

from stageb.config import FabricConfig, require
from stageb.engines.config import ModelConfig
from stageb.guidance.config import Language

ROUND = 384  # images: 24 groups of 16, so that every usual number of ranks gets as many


@dataclass(frozen=True)
class SummarizeConfig:
    """Writing a summary of every image that tickets name."""

    tickets: str = ""
    """A ticket file in JSON Lines whose lines name "images", relative to the file. Labels and summaries are optional."""
    output: str = ""
    """The file to write: every line again, in order, with a summary of each image in "per_image". Put it beside the tickets,
    since images keep their relative names."""
    language: Language = "en"
    """en or zh: the language of the instructions."""
    prompt: str | None = None
    """What to ask the model about each image; {mission} stands for the ticket's mission. null: a prompt for short facts."""
    temperature: float = 0.0
    """0 is greedy."""
    max_new_tokens: int = 160
    """Tokens of one summary, at most."""
    micro_batch_size: int = 16
    """Images that the model sees in one batch. Results at two world sizes are equal only if this is the same."""
    round_size: int = ROUND
    """Tickets between two commits, over all ranks: how much work an interruption can cost."""
    seed: int = 17
    """Seed of every random choice."""
    model: ModelConfig = field(default_factory=ModelConfig)
    fabric: FabricConfig = field(default_factory=FabricConfig)

    def __post_init__(self) -> None:
        require(bool(self.tickets), "tickets", self.tickets, "name a ticket file: tickets.jsonl")
        require(bool(self.output) and not self.output.endswith("/"), "output", self.output, "name a file: summarized.jsonl")
        require(self.output != self.tickets, "output", self.output, "name another file than the tickets")
        asked = self.prompt is None or bool(self.prompt.strip())
        require(asked, "prompt", self.prompt, "say what to write down, or null")
        require(self.temperature >= 0, "temperature", self.temperature, "0 or more")
        for name in ("max_new_tokens", "micro_batch_size", "round_size"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
