"""The keys of ``predict``, ``evaluate`` and ``summarize``.

Of the standard library alone, since ``--help`` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

from stageb.config import FabricConfig, require
from stageb.engines.config import ModelConfig
from stageb.guidance.config import Language, ManualReviewConfig, PromptConfig, SamplerConfig
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.costs import PriceConfig
from stageb.guidance.words.former_keys import FORMER_MODEL, FORMER_PRICES
from stageb.settings import SECONDS, SHARE, Check, Section, at_least, setting

By = Literal["learnt", "model", "rules", "both"]
GROUPS = 24  # of a round, so that every usual number of ranks gets as many


@dataclass(frozen=True)
class UseConfig(Section, at=""):
    """Keys of all commands that judge tickets."""

    former_keys: ClassVar[Mapping[str, str]] = FORMER_MODEL
    needs_labels: ClassVar[bool] = False  # whether every ticket needs one, and comes once alone
    guidance: str = setting(
        "", Check(bool, "name a run's folder, such as out/run, or a guidance.json")
    )
    """A run's folder, or a guidance.json. With a folder, seed, prompt, model, sampler (except its
    reasons), selection and manual_review default to the run's."""
    tickets: list[str] = field(default_factory=list)
    """Ticket files, JSON Lines or tables; to predict, labels are optional."""
    output: str = ""
    """Where to write a line per ticket, in the tickets' order."""
    vocabulary: list[str] | None = None
    """For judging by rules: ticket files that contain the names and values in the rules; tables
    have the columns of the tickets. null: those that the run learnt from, or else the tickets to
    judge."""
    columns: ColumnsConfig = field(default_factory=ColumnsConfig)
    probability: bool = True
    """Read off the model how probable each verdict is, if the engine can tell; the model then reads
    every ticket once more."""
    round_size: int | None = setting(None, at_least(1).or_null())
    """Tickets whose rows are written together, over all ranks; a small number slows the model down.
    Answers in between are saved about every ten seconds. null: 24 times
    sampler.micro_batch_size."""
    max_unreadable: float = setting(0.5, SHARE)
    """Stop before a row is written if a larger share of the first round's answers cannot be
    read."""
    seed: int = 17
    """Seed of every random choice."""
    prompt: PromptConfig = field(default_factory=PromptConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    selection: str = "majority"
    """How a ticket's verdict is chosen from its candidates: majority, or package.module:function,
    as fit takes it."""
    manual_review: ManualReviewConfig = field(default_factory=ManualReviewConfig)
    fabric: FabricConfig = field(default_factory=FabricConfig)

    def check(self) -> None:
        self.check_tickets()
        self.columns.check_files([*self.tickets, *(self.vocabulary or ())])
        reasons = self.sampler.reasons
        require(
            reasons != "wrong",
            "sampler.reasons",
            reasons,
            "all or none: no answer is known to be wrong here",
        )

    def check_tickets(self) -> None:
        """Raise ``ConfigError`` where no ticket file is named."""
        named = bool(self.tickets) and all(self.tickets)
        self.require(named, "tickets", "name ticket files: tickets.jsonl, or [a.jsonl, b.csv]")


@dataclass(frozen=True)
class PredictConfig(UseConfig):
    """Judging tickets under learnt guidance."""

    tickets: list[str] = field(default_factory=list)
    """Ticket files, JSON Lines or tables; labels are optional."""
    output: str = setting(
        "predictions.jsonl",
        Check(lambda path: bool(path) and not path.endswith("/"), "name a file"),
    )
    """The file to write: a line per ticket, in the tickets' order; a table if its name ends in
    .csv."""
    by: By = "learnt"
    """Who judges: learnt: what learning found best for each mission (judge in guidance.json), else
    the model; model; rules: the rules as code, without loading a model; both: code, and the model
    for tickets that code cannot decide, which is the default with the folder of a run of
    runner.judge both."""


@dataclass(frozen=True)
class EvaluateConfig(UseConfig):
    """How good guidance is on labelled tickets."""

    former_keys: ClassVar[Mapping[str, str]] = {**FORMER_MODEL, **FORMER_PRICES}
    needs_labels: ClassVar[bool] = True
    tickets: list[str] = field(default_factory=list)
    """Ticket files, JSON Lines or tables, with labels."""
    output: str = setting("evaluation", Check(bool, "name a folder"))
    """The folder to write: evaluation.json, wrong.jsonl and predictions.jsonl."""
    by: str = "learnt"
    """Who judges, separated by commas: learnt, model, rules, both (see predict), for example
    model,rules,both. compare and the other files use the first."""
    compare: str | None = None
    """Another run's folder, or guidance.json, to judge the same tickets under, with the same
    model."""
    price: PriceConfig = field(default_factory=PriceConfig)
    """What errors cost. With a run's folder, its prices are the default."""

    def check(self) -> None:
        super().check()
        named = self.by.split(",")
        known = all(each in get_args(By) for each in named) and len({*named}) == len(named)
        self.require(
            known, "by", "name learnt, model, rules or both, each once at most, with commas between"
        )

    @property
    def modes(self) -> list[By]:
        """What ``by`` names."""
        return [mode for name in self.by.split(",") for mode in get_args(By) if mode == name]


LIMIT = Check(lambda value: 0 < value < 1, "above 0 and below 1")
LIMITS = Check(
    lambda given: (
        bool(given) and all(0 < each <= 1 for each in given.values())
        if isinstance(given, dict)
        else 0 < given < 1
    ),
    "a share above 0 and below 1, or one for each verdict, such as {pass: 0.01, fail: 0.1} (1: "
    "without a bound)",
)


@dataclass(frozen=True)
class AutomateConfig(UseConfig):
    """Finding which tickets may be decided alone."""

    needs_labels: ClassVar[bool] = True
    tickets: list[str] = field(default_factory=list)
    """Ticket files with labels, JSON Lines or tables, of tickets that neither taught nor chose the
    rules; none: those that the run held out as test."""
    output: str = setting(
        "automation.jsonl", Check(lambda path: bool(path) and not path.endswith("/"), "name a file")
    )
    """The file to write: how these tickets were judged, a line each."""
    by: By = "learnt"
    """Who judges, as for predict, which must judge in the same way then."""
    max_error: float | dict[str, float] = setting(0.02, LIMITS)
    """Share of the tickets decided alone that may be wrong, at most; or by verdict, of those that
    get this verdict: others are for a person, and 1 sets no bound."""
    confidence: float = setting(0.95, LIMIT)
    """The probability with which the bounds of a mission hold, all of them together."""

    def check_tickets(self) -> None:
        self.require(
            all(self.tickets),
            "tickets",
            "name ticket files, or none: then the test tickets of the run",
        )


def tickets_per_round(config: UseConfig) -> int:
    """Tickets of a round."""
    return config.round_size or GROUPS * config.sampler.micro_batch_size


@dataclass(frozen=True)
class ServeConfig(Section, at=""):
    """Judging tickets by rules as code, for programs that ask over HTTP."""

    guidance: str = setting(
        "", Check(bool, "name a run's folder, such as out/run, or a guidance.json")
    )
    """A run's folder, or a guidance.json. With a folder, columns and prompt default to the run's.
    It is read again as it changes."""
    by: Literal["learnt", "rules"] = "learnt"
    """learnt: refuse missions for which learning found that a model judges better (judge in
    guidance.json); rules: judge those by their rules alone, too."""
    vocabulary: list[str] | None = None
    """Ticket files that contain the names and values in the rules; null: those that the run learnt
    from, or what the file tells."""
    columns: ColumnsConfig = field(default_factory=ColumnsConfig)
    prompt: PromptConfig = field(default_factory=PromptConfig)
    host: str = setting(
        "127.0.0.1", Check(bool, "an address of this machine: 127.0.0.1, or 0.0.0.0 for all")
    )
    """The address to answer at. Others than this machine reach it at 0.0.0.0: there is no login and
    no TLS, so put a proxy before it."""
    port: int = setting(8080, at_least(0, 65535))
    """The port; 0: any that is free."""
    max_tickets: int = setting(1000, at_least(1))
    """Tickets of a request, at most."""
    max_kib: int = setting(1024, at_least(1))
    """KiB of a request, at most."""
    max_seconds: float = setting(10.0, SECONDS)
    """Seconds in which a request has to come, in which it is judged, and in which those in progress
    are finished at the end."""
    max_connections: int = setting(256, at_least(1))
    """Connections at the same time; further ones get status 503."""


ROUND = 384  # images: 24 groups of 16, so that every usual number of ranks gets as many


@dataclass(frozen=True)
class SummarizeConfig(Section, at=""):
    """Writing a summary of every image that tickets name."""

    former_keys: ClassVar[Mapping[str, str]] = FORMER_MODEL
    tickets: str = setting("", Check(bool, "name a ticket file: tickets.jsonl"))
    """A ticket file in JSON Lines whose lines name "images", relative to the file. Labels and
    summaries are optional."""
    output: str = setting(
        "",
        Check(lambda path: bool(path) and not path.endswith("/"), "name a file: summarized.jsonl"),
    )
    """The file to write: every line again, in order, with a summary of each image in "per_image".
    Put it beside the tickets, since images keep their relative names."""
    language: Language = "en"
    """en or zh: the language of the instructions."""
    prompt: str | None = setting(
        None,
        Check(lambda text: text is None or bool(text.strip()), "say what to write down, or null"),
    )
    """What to ask the model about each image; {mission} stands for the ticket's mission. null: a
    prompt for short facts."""
    temperature: float = setting(0.0, at_least(0))
    """0 is greedy."""
    max_new_tokens: int = setting(160, at_least(1))
    """Tokens of one summary, at most."""
    micro_batch_size: int = setting(16, at_least(1))
    """Images that the model sees in one batch. Results at two world sizes are equal only if this is
    the same."""
    round_size: int = setting(ROUND, at_least(1))
    """Tickets between two commits, over all ranks: how much work an interruption can cost."""
    seed: int = 17
    """Seed of every random choice."""
    model: ModelConfig = field(default_factory=ModelConfig)
    fabric: FabricConfig = field(default_factory=FabricConfig)

    def check(self) -> None:
        self.require(self.output != self.tickets, "output", "name another file than the tickets")
