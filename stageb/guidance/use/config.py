"""The keys of ``stageb predict`` and ``stageb evaluate``; sections that ``fit`` has too are the very same.

Of the standard library alone, since ``--help`` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from stageb.config import FabricConfig, require
from stageb.engines.config import ModelConfig
from stageb.guidance.columns import ColumnsConfig
from stageb.guidance.config import ManualReviewConfig, PromptConfig, SamplerConfig

By = Literal["model", "rules", "both"]
GROUPS = 24  # of a round, so that every usual number of ranks gets as many


@dataclass(frozen=True)
class UseConfig:
    """What both commands take."""

    guidance: str = ""
    """A run's folder, or a guidance.json. With a folder, seed, prompt, model, sampler (except its reasons), selection and
    manual_review default to the run's."""
    tickets: str | list[str] = ""
    """Ticket files, JSON Lines or CSV; to predict, labels are optional."""
    output: str = ""
    """Where to write a line per ticket, in the tickets' order."""
    vocabulary: str | list[str] | None = None
    """For judging by rules: ticket files that contain the names and values in the rules; tables have the columns of the
    tickets. null: those that the run learnt from, or else the tickets to judge."""
    columns: ColumnsConfig = field(default_factory=ColumnsConfig)
    probability: bool = True
    """Read off the model how probable each verdict is, if the engine can tell; the model then reads every ticket once
    more."""
    round_size: int | None = None
    """Tickets whose rows are written together, over all ranks; a small number slows the model down. Answers in between are
    saved about every ten seconds. null: 24 times sampler.micro_batch_size."""
    max_unreadable: float = 0.5
    """Stop before a row is written if a larger share of the first round's answers cannot be read."""
    seed: int = 17
    """Seed of every random choice."""
    prompt: PromptConfig = field(default_factory=PromptConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    selection: str = "majority"
    """How a ticket's verdict is chosen from its candidates: majority, or package.module:function, as fit takes it."""
    manual_review: ManualReviewConfig = field(default_factory=ManualReviewConfig)
    min_rule_accuracy: float | None = None
    """Send a verdict to review if its rule was right for less than this share of the val tickets that it decided in its run,
    or decided fewer than five; null: never for that reason."""
    fabric: FabricConfig = field(default_factory=FabricConfig)

    def __post_init__(self) -> None:
        require(bool(self.guidance), "guidance", self.guidance, "name a run's folder, such as out/run, or a guidance.json")
        files = list_ticket_files(self)
        require(bool(files) and all(files), "tickets", self.tickets, "name ticket files: tickets.jsonl, or [a.jsonl, b.csv]")
        self.columns.check_files([*files, *list_vocabulary(self)])
        size = self.round_size
        require(size is None or size >= 1, "round_size", size, "at least 1, or null")
        wanted = self.min_rule_accuracy
        require(wanted is None or 0 <= wanted <= 1, "min_rule_accuracy", wanted, "a share between 0 and 1, or null")
        share = self.max_unreadable
        require(0 <= share <= 1, "max_unreadable", share, "a share between 0 and 1")
        reasons = self.sampler.reasons
        require(reasons != "wrong", "sampler.reasons", reasons, "all or none: no answer is known to be wrong here")
        named = reasons == "all" or wanted is None
        require(named, "sampler.reasons", reasons, "all, since min_rule_accuracy goes by the rules that reasons name")


@dataclass(frozen=True)
class PredictConfig(UseConfig):
    """Judging tickets under learnt guidance."""

    tickets: str | list[str] = ""
    """Ticket files, JSON Lines or CSV; labels are optional."""
    output: str = "predictions.jsonl"
    """The file to write: a line per ticket, in the tickets' order."""
    by: By = "model"
    """Who judges: model; rules: the rules as code, without loading a model; both: code, and the model for tickets that code
    cannot decide. With a run's folder, its runner.judge is the default."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(bool(self.output) and not self.output.endswith("/"), "output", self.output, "name a file")


@dataclass(frozen=True)
class PricesConfig:
    """What errors cost, as the gate of a run weighs them."""

    fp_weight: float = 1.0
    """Price of a wrong pass: a missed failure."""
    fn_weight: float = 1.0
    """Price of a wrong fail: a false alarm."""

    def __post_init__(self) -> None:
        for name, weight in vars(self).items():
            require(0 < weight < float("inf"), f"gate.{name}", weight, "a number above 0")


@dataclass(frozen=True)
class EvaluateConfig(UseConfig):
    """How good guidance is on labelled tickets."""

    tickets: str | list[str] = ""
    """Ticket files, JSON Lines or CSV, with labels."""
    output: str = "evaluation"
    """The folder to write: evaluation.json, wrong.jsonl and predictions.jsonl."""
    by: str = "model"
    """Who judges, separated by commas: model, rules, both (see predict), for example model,rules,both. compare and the other
    files use the first. With a run's folder, its runner.judge is the default."""
    compare: str | None = None
    """Another run's folder, or guidance.json, to judge the same tickets under, with the same model."""
    gate: PricesConfig = field(default_factory=PricesConfig)
    """What errors cost. With a run's folder, the prices of its gate are the default."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(bool(self.output), "output", self.output, "name a folder")
        named = self.by.split(",")
        known = all(each in get_args(By) for each in named) and len({*named}) == len(named)
        require(known, "by", self.by, "name model, rules or both, each once at most, with commas between")

    @property
    def modes(self) -> list[By]:
        """What ``by`` names."""
        return [mode for name in self.by.split(",") for mode in get_args(By) if mode == name]


def tickets_per_round(config: UseConfig) -> int:
    """Tickets of a round."""
    return config.round_size or GROUPS * config.sampler.micro_batch_size


def list_ticket_files(config: UseConfig) -> list[str]:
    """The ticket files by name."""
    return [config.tickets] if isinstance(config.tickets, str) else config.tickets


def list_vocabulary(config: UseConfig) -> list[str]:
    """The ticket files that tell what rules speak of, by name; none where the user names none."""
    return [config.vocabulary] if isinstance(config.vocabulary, str) else config.vocabulary or []
