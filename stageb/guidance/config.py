"""The config of the training-free loop: one frozen dataclass per section, keys as users write them.

Nothing here is ever mutated; what changes over a run is a function of the step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from stageb.config import FabricConfig, Level, LoggerConfig, OutputConfig, require
from stageb.engines.config import ModelConfig
from stageb.guidance.columns import ColumnsConfig
from stageb.guidance.rules.scales import is_scale
from stageb.guidance.texts import verdict_words_fault

Language = Literal["en", "zh"]
UseImages = bool | Literal["instead"]


@dataclass(frozen=True)
class SplitConfig:
    """Shares of a mission's groups; what is left of 1 after train and val is test."""

    train: float = 0.6
    """Learnt from, and gated on."""
    val: float = 0.2
    """Judged after every epoch, never learnt from."""
    test: float = 0.2
    """Sealed for the report."""
    seed: int | None = None
    """Names the split where ``seed`` shall not; null: it does. One that goes on from learnt guidance keeps its split."""

    def __post_init__(self) -> None:
        for name, share in (("train", self.train), ("val", self.val), ("test", self.test)):
            require(0 <= share <= 1, f"split.{name}", share, "a share between 0 and 1")
        total = self.train + self.val + self.test
        require(abs(total - 1) < 1e-9, "split", total, "train, val and test must add up to 1")
        require(self.train > 0, "split.train", self.train, "learning needs some tickets: a share above 0")


@dataclass(frozen=True)
class PromptConfig:
    """How tickets and guidance are put to the model."""

    language: Language = "en"
    """en or zh: the language of the instructions and of the verdict words."""
    verdict_words: dict[str, str] | None = None
    """Words of your own for the two verdicts, such as {pass: OK, fail: NG}; null: the language's. The model reads and writes
    them, the files of a run say pass and fail."""
    prefill: bool = False
    """Begin every verdict for the model, with Verdict:, so that a poor one keeps to the form. No model then thinks aloud."""

    def __post_init__(self) -> None:
        if self.verdict_words is not None:
            fault = verdict_words_fault(self.verdict_words)
            require(not fault, "prompt.verdict_words", self.verdict_words, fault)


@dataclass(frozen=True)
class GuidanceConfig:
    """Where guidance starts and how much of its history is kept."""

    path: str | None = None
    """What to start from: guidance.json, rules as .txt, or a run's folder; a mission not in it starts with a neutral G0."""
    retention: int = 10
    """Snapshots kept per mission, newest first."""
    reset_on_rerun: bool = False
    """Start anew where the run's folder already holds a run, setting the old folder aside."""

    def __post_init__(self) -> None:
        require(self.retention >= 1, "guidance.retention", self.retention, "at least 1")


@dataclass(frozen=True)
class DecodeConfig:
    """One entry of the decode grid."""

    temperature: float = 0.7
    """0 is greedy."""
    top_p: float = 1.0
    """Keep the smallest set of tokens with at least this probability."""
    top_k: int = 0
    """Keep this many tokens; 0: all."""
    max_new_tokens: int = 96
    """An answer ends here at the latest."""
    repetition_penalty: float = 1.0
    """Above 1 discourages tokens that stand in the prompt or the answer already."""
    seed: int = 0
    """Sets this entry's random streams apart."""
    stop: list[str] = field(default_factory=list)
    """An answer ends before the first of these strings."""

    def __post_init__(self) -> None:
        require(self.temperature >= 0, "sampler.grid.temperature", self.temperature, "0 or more")
        require(0 < self.top_p <= 1, "sampler.grid.top_p", self.top_p, "above 0, at most 1")
        require(self.top_k >= 0, "sampler.grid.top_k", self.top_k, "0 or more")
        require(self.max_new_tokens >= 1, "sampler.grid.max_new_tokens", self.max_new_tokens, "at least 1")
        require(self.repetition_penalty > 0, "sampler.grid.repetition_penalty", self.repetition_penalty, "above 0")
        require(all(self.stop), "sampler.grid.stop", self.stop, "no empty strings")


@dataclass(frozen=True)
class SamplerConfig:
    """Candidates per ticket: every entry of the grid, samples_per_decode times."""

    samples_per_decode: int = 4
    """Samples for each entry of the grid."""
    max_prompt_tokens: int = 4096
    """A ticket with a longer prompt is set aside and recorded, never truncated."""
    micro_batch_size: int = 128
    """Tickets that the model reads at once, at most: the same at every world size. A GPU is fastest with many."""
    use_images: UseImages = False
    """true: a model that can see is shown the images of tickets that name some, beside their summaries; instead: in their
    place. Reflection reads the summaries all the same."""
    reasons: Literal["all", "wrong", "none"] = "all"
    """Which answers give reasons: all; wrong: the chosen one of train tickets judged wrong or unsure, for reflection;
    none. An answer without a reason ends with its verdict, after a few tokens, and counts by its first line."""
    grid: list[DecodeConfig] = field(default_factory=lambda: [DecodeConfig()])
    """The decode settings."""

    def __post_init__(self) -> None:
        for name in ("samples_per_decode", "max_prompt_tokens", "micro_batch_size"):
            require(getattr(self, name) >= 1, f"sampler.{name}", getattr(self, name), "at least 1")
        require(bool(self.grid), "sampler.grid", self.grid, "at least one decode setting")


@dataclass(frozen=True)
class RunnerConfig:
    """The epoch loop."""

    epochs: int = 4
    """Passes over the train tickets."""
    per_rank_rollout_batch_size: int = 64
    """Tickets per rank and round; a round is this times the world size."""
    tickets_per_epoch: int | None = None
    """Train tickets drawn for each epoch and mission; null: all but those that edits are raced on."""
    judge: Literal["model", "both"] = "model"
    """Who judges in rounds and for the gate: the model; both: rules as code, and the model where these cannot tell."""
    log_every_s: float = 10.0
    """Seconds between two lines on how it goes, where the output is not a terminal; the end of a split has one always."""
    max_unreadable: float = 0.5
    """Stop, before anything is learnt, where a larger share of the first round's answers cannot be read; 1: never."""

    def __post_init__(self) -> None:
        require(0 <= self.epochs <= 10_000, "runner.epochs", self.epochs, "0 or more, at most 10000")
        size, drawn, share = self.per_rank_rollout_batch_size, self.tickets_per_epoch, self.max_unreadable
        require(size >= 1, "runner.per_rank_rollout_batch_size", size, "at least 1")
        require(drawn is None or drawn >= 1, "runner.tickets_per_epoch", drawn, "at least 1, or null for all")
        require(0 <= self.log_every_s <= 1e6, "runner.log_every_s", self.log_every_s, "seconds, 0 or more")
        require(0 <= share <= 1, "runner.max_unreadable", share, "a share between 0 and 1")


@dataclass(frozen=True)
class ReflectionConfig:
    """When and how the model edits its guidance."""

    scope: Literal["bundle", "round"] = "bundle"
    """bundle: batch_size tickets at a time. round: all that are rolled out by then, a bundle for each third of train, whose
    answers are sampled at once and tested in turn: for rounds of many tickets."""
    batch_size: int = 64
    """Tickets rolled out, over all ranks, for each bundle."""
    num_proposals: int = 8
    """Answers sampled per bundle."""
    max_operations: int = 1
    """Operations that one answer may hold."""
    max_cases: int = 24
    """Tickets of the bundle that one answer sees; each answer draws its own."""
    evidence: int = 12
    """Lines of what sets the errors apart, counted over all tickets that an answer may see; 0: none."""
    evidence_tickets: int = 192
    """Train tickets that this is counted over, at least: those not judged yet by the present guidance are judged for it."""
    arithmetic: bool = False
    """Whether these lines also compute with two numbers. Few models follow such rules; with runner.judge both code does."""
    counts: bool = False
    """Whether they also count: at least 2 of three to five conditions. The same holds."""
    phrases: bool = False
    """Whether they also name phrases of two or three words, beside single ones."""
    lists: bool = False
    """Whether one line also lists several, any of which may hold, each counted on what those before it leave over. An edit
    that points at it adds a rule for each, tested together."""
    counted: int = 0
    """Of these lines, the most telling for the errors of each label: tried as edits as they stand, beside the answers."""
    scales: list[str] | None = None
    """Orders of values, as "low < med, medium < high", beside well-known ones, for lines that rank values; null: no such."""
    max_prompt_tokens: int = 8192
    """An answer sees fewer cases where its prompt would be longer."""
    max_rules: int = 24
    """Rules that a guidance may hold, the headline included. One more takes the place of the one that earns least."""
    max_guidance_tokens: int = 1024
    """Length of all rules together; the same holds."""
    max_rule_chars: int = 240
    """Length of one rule."""
    temperature: float = 1.0
    """Of the reflection answers."""
    top_p: float = 0.95
    """Of the reflection answers."""
    max_new_tokens: int = 256
    """Of one reflection answer."""
    model: ModelConfig | None = None
    """A model of its own for reflection; null: the one that rolls out."""

    def __post_init__(self) -> None:
        counts = "batch_size num_proposals max_operations max_cases max_prompt_tokens max_rules max_guidance_tokens"
        for name in [*counts.split(), "max_rule_chars", "max_new_tokens"]:
            require(getattr(self, name) >= 1, f"reflection.{name}", getattr(self, name), "at least 1")
        for name in ("evidence", "evidence_tickets", "counted", "temperature"):
            require(getattr(self, name) >= 0, f"reflection.{name}", getattr(self, name), "0 or more")
        require(0 < self.top_p <= 1, "reflection.top_p", self.top_p, "above 0, at most 1")
        require(all(map(is_scale, self.scales or ())), "reflection.scales", self.scales, "as 'low < med, medium < high'")


@dataclass(frozen=True)
class GateConfig:
    """What an edit must show before it is accepted."""

    alpha: float = 0.05
    """The first change that a run makes to its guidance is for the worse with a probability of at most this, however many
    edits it tries: an edit that is no better, or a rule let go that costs more than its part of ``removal_margin``. One
    budget for all tests, which runs that go on from what it learnt, on the same tickets, share. For later changes this is
    counted, not proven."""
    pool_size: int = 1024
    """Train tickets, at most, that test one edit: whole groups, each counted once; none of the fold that taught it."""
    race_size: int = 64
    """Train tickets, at most a third of them, set apart to race the edits of a bundle on; the best of a race are tested.
    Epochs leave them out. Where tickets are drawn by price, several times as many, at most a sixth."""
    race_chunk: int = 16
    """Tickets between two cuts of a race, which sees six times as many at most: fewer cost less, more tell small gains."""
    judge_by: Literal["auto", "probability", "answer"] = "auto"
    """probability: how likely the right verdict is, read off the model without decoding; answer: the greedy verdict; auto:
    probability where the engine can tell."""
    fp_weight: float = 1.0
    """Price of a wrong pass: a missed failure."""
    fn_weight: float = 1.0
    """Price of a wrong fail: a false alarm."""
    choose: str | None = None
    """A gate of your own, package.module:function of (edits, gate): it returns the edit to accept, or None. The race and the
    test are left out, and with them what alpha promises of accepted edits. null: race and test."""
    removal_margin: float = 0.02
    """Accuracy that all rules which a mission lets go may cost together. A rule goes if hardly anything is seen to be lost
    without it; this pays what the tickets seen cannot rule out that it costs (0.6 % with 1,000 tickets, none lost)."""

    def __post_init__(self) -> None:
        require(0 < self.alpha <= 0.5, "gate.alpha", self.alpha, "above 0, at most 0.5")
        for name in ("pool_size", "race_size", "race_chunk"):
            require(getattr(self, name) >= 1, f"gate.{name}", getattr(self, name), "at least 1")
        for name, weight in (("fp_weight", self.fp_weight), ("fn_weight", self.fn_weight)):
            require(0 < weight < float("inf"), f"gate.{name}", weight, "a number above 0")
        require(0 < self.removal_margin < 1, "gate.removal_margin", self.removal_margin, "above 0, below 1")


@dataclass(frozen=True)
class _NoGate(GateConfig):
    """What ``gate: none`` comes to: no ticket is set apart, nothing is spent, nothing is tested."""

    alpha: float = 0.0
    pool_size: int = 0
    race_size: int = 0
    judge_by: Literal["auto", "probability", "answer"] = "answer"
    removal_margin: float = 0.0

    def __post_init__(self) -> None:
        """Nothing to check: these are no values of a user's."""


@dataclass(frozen=True)
class EarlyStopConfig:
    """When a mission has learnt what it can."""

    patience: int | None = 2
    """Epochs without an accepted edit after which a mission learns no more; null: all epochs."""
    reflections: int | None = 12
    """Reflections in a row without an accepted edit after which a mission learns no more, however many an epoch has; null:
    all of them."""

    def __post_init__(self) -> None:
        for name, most in vars(self).items():
            require(most is None or most >= 1, f"early_stop.{name}", most, "at least 1, or null")


@dataclass(frozen=True)
class BudgetConfig:
    """What may be spent, over all missions and from the start, before learning ends.

    The step that reaches a limit is the last, and is done to its end; judging val and test follows, on top of it.
    """

    rollouts: int | None = None
    """Sampled answers and verdicts for the gate, together; val and test before learning count, those after it do not."""
    tokens: int | None = None
    """Tokens read and written, of rollouts, gate and reflection."""
    seconds: float | None = None
    """Time on the clock, all parts of an interrupted run together. Two equal runs may then end at different steps."""

    def __post_init__(self) -> None:
        for name, limit in vars(self).items():
            require(limit is None or limit > 0, f"budget.{name}", limit, "above 0, or null for no limit")


@dataclass(frozen=True)
class DistillConfig:
    """Right answers under the final guidance, as training data for a model of your own."""

    size: int = 0
    """Rows of distill_chatml.jsonl per mission, at most; 0: no such file."""
    temperature: float = 0.2
    """At which they are sampled."""

    def __post_init__(self) -> None:
        require(self.size >= 0, "distill.size", self.size, "0 or more")
        require(self.temperature >= 0, "distill.temperature", self.temperature, "0 or more")


@dataclass(frozen=True)
class ManualReviewConfig:
    """Which tickets a person should see."""

    min_verdict_agreement: float = 0.8
    """Below this share of agreeing candidates a selection is of low agreement."""

    def __post_init__(self) -> None:
        require(0 <= (share := self.min_verdict_agreement) <= 1, "manual_review.min_verdict_agreement", share, "0 to 1")


@dataclass(frozen=True)
class LoopConfig:
    """A run of the training-free loop."""

    loop: Literal["guidance"] = "guidance"
    """The loop that these keys are of."""
    tickets: list[str] = field(default_factory=list)
    """Ticket files, JSON Lines or CSV: one, or several as [a.jsonl, b.csv]."""
    columns: ColumnsConfig = field(default_factory=ColumnsConfig)
    seed: int = 17
    """Names every random stream of the run, and the split."""
    on_bad_record: Literal["error", "skip"] = "error"
    """error: nothing starts while a ticket line is unusable; skip: set such lines aside in a file."""
    split: SplitConfig = field(default_factory=SplitConfig)
    prompt: PromptConfig = field(default_factory=PromptConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    guidance: GuidanceConfig = field(default_factory=GuidanceConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    selection: str = "majority"
    """How a ticket's verdict is chosen from its candidates: majority, or package.module:function of (mission, candidates),
    which returns one of them, or None for no verdict."""
    runner: RunnerConfig = field(default_factory=RunnerConfig)
    reflection: ReflectionConfig = field(default_factory=ReflectionConfig)
    gate: GateConfig | Literal["none"] = field(default_factory=GateConfig)
    """The gate's settings, or none: edits are applied untested."""
    early_stop: EarlyStopConfig = field(default_factory=EarlyStopConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    distill: DistillConfig = field(default_factory=DistillConfig)
    jump_reflection: bool = False
    """Audit alone: judge all tickets under the guidance given, say what was judged wrong, and learn nothing."""
    manual_review: ManualReviewConfig = field(default_factory=ManualReviewConfig)
    report: bool = True
    """Write report.html, the run on one page, at the end; ``stageb report RUN`` writes it at any time."""
    fabric: FabricConfig = field(default_factory=FabricConfig)
    loggers: list[str | LoggerConfig] = field(default_factory=list)
    """Loggers of Lightning's to show the figures to, each a class path or class_path and init_args: CSV, TensorBoard, ..."""
    log_level: Level = "info"
    """What is said on the way: info: how it goes; warning, error: less; debug: every round, and all that libraries say."""

    @property
    def has_gate(self) -> bool:
        """Whether edits are tested before they are applied."""
        return self.gate != "none"

    @property
    def gating(self) -> GateConfig:
        """The gate's settings; where there is none, those that set no ticket apart and spend nothing."""
        return _NoGate() if self.gate == "none" else self.gate

    def __post_init__(self) -> None:
        shown = self.sampler.use_images
        require(not (shown and self.distill.size), "distill.size", self.distill.size, "0 with images: chats hold text alone")
        require(bool(self.tickets), "tickets", self.tickets, "name ticket files: tickets.jsonl, or [a.jsonl, b.csv]")
        self.columns.check_files(self.tickets)
