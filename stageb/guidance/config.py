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
    """Share to learn from and to test edits on."""
    val: float = 0.2
    """Share that is judged after every epoch and never learnt from."""
    test: float = 0.2
    """Share that is held out for the final figures."""
    seed: int | None = None
    """Seed of the split; null: ``seed``. Set it to keep the split of the run whose guidance you start from."""

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
    """Your own words for the two verdicts, such as {pass: OK, fail: NG}; null: those of the language. The model reads and
    writes them; the files of a run say pass and fail."""
    style: Literal["auto", "instruct", "shipped"] = "auto"
    """shipped: the texts that the model in the package is trained on; instruct: those for other models, with
    demonstrations; auto: by the model."""
    prefill: bool | None = None
    """Start every answer for the model with "Verdict:", so that a weak model keeps to the form. No model then thinks
    aloud. null: true with instruct texts, for engines that load the model here, unless it is configured to think."""
    demonstration_tokens: int = 1536
    """With instruct texts: tokens of train tickets with their verdicts that the model is shown, at most; 0: none."""

    def __post_init__(self) -> None:
        if self.verdict_words is not None:
            fault = verdict_words_fault(self.verdict_words)
            require(not fault, "prompt.verdict_words", self.verdict_words, fault)
        tokens = self.demonstration_tokens
        require(tokens >= 0, "prompt.demonstration_tokens", tokens, "0 or more")


@dataclass(frozen=True)
class GuidanceConfig:
    """Where guidance starts and how much of its history is kept."""

    path: str | None = None
    """What to start from: guidance.json, rules as .txt, or a run's folder; a mission not in it starts with a neutral G0."""
    retention: int = 10
    """Snapshots kept per mission, newest first."""
    reset_on_rerun: bool = False
    """If the folder already holds a run, set it aside and start a new one."""

    def __post_init__(self) -> None:
        require(self.retention >= 1, "guidance.retention", self.retention, "at least 1")


@dataclass(frozen=True)
class DecodeConfig:
    """One entry of the decode grid."""

    temperature: float = 0.7
    """0 is greedy."""
    top_p: float = 1.0
    """Sample from the fewest tokens whose probabilities add up to at least this."""
    top_k: int = 0
    """Sample from this many of the most likely tokens; 0: all."""
    max_new_tokens: int = 96
    """Tokens of one answer, at most."""
    repetition_penalty: float = 1.0
    """Above 1 discourages tokens that already occur in the prompt or the answer."""
    seed: int = 0
    """Gives this entry random streams of its own."""
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
    """Tickets that the model reads in one batch, at most, at any world size. A GPU is fastest with many."""
    use_images: UseImages = False
    """true: show a vision model the images that tickets name, beside their summaries; instead: in place of the summaries.
    Reflection always reads the summaries."""
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
    """Train tickets drawn for each epoch and mission; null: all except those that edits are raced on."""
    judge: Literal["model", "both"] = "model"
    """Who judges in rounds and for the gate: model; or both: rules as code, and the model where code cannot decide."""
    log_every_s: float = 10.0
    """Seconds between progress lines if the output is not a terminal; the end of a split always gets one."""
    max_unreadable: float = 0.5
    """Stop before anything is learnt if a larger share of the first round's answers cannot be read; 1: never stop."""

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

    scope: Literal["bundle", "round", "all"] = "bundle"
    """bundle: reflect on batch_size tickets at a time. round, for rounds of many tickets: reflect on all that were rolled
    out, in one bundle for each third of train; their answers are sampled together and tested in turn. all, where code judges
    (runner.judge both): learn the whole guidance at once, from all train tickets, without asking the model."""
    batch_size: int = 64
    """Tickets rolled out, over all ranks, for each bundle."""
    num_proposals: int = 8
    """Answers sampled per bundle."""
    max_operations: int = 1
    """Operations that one answer may hold."""
    max_cases: int = 24
    """Tickets of the bundle that one answer sees, at most; each answer draws its own."""
    evidence: int = 12
    """Lines of evidence: what sets the errors apart, counted over all tickets that an answer may see; 0: none."""
    evidence_tickets: int = 192
    """Train tickets that evidence is counted over, at least; those not yet judged under the present guidance are judged."""
    arithmetic: bool = False
    """Whether evidence also computes with two numbers. Few models follow such rules; with runner.judge both, code does."""
    phrases: bool = False
    """Whether evidence also names phrases of two or three words, not only single words."""
    lists: bool = False
    """Whether one line of evidence may list several, any of which may hold, each counted over the tickets that those before
    it leave. An edit that cites it adds a rule for each; they are tested together."""
    counted: int = 0
    """For each label, so many of the most telling lines are also tried as edits themselves, without the model."""
    scales: list[str] | None = None
    """Orders of values, such as "low < med, medium < high", that evidence may rank by, besides well-known ones; null: no
    ranking."""
    max_prompt_tokens: int = 8192
    """Tokens of a reflection prompt, at most; an answer sees fewer cases if its prompt would be longer."""
    max_rules: int = 24
    """Rules that a guidance may hold, including the headline. A further rule replaces the one that earns least."""
    max_guidance_tokens: int = 1024
    """Tokens of all rules together, at most; again, the rule that earns least makes room."""
    max_rule_chars: int = 240
    """Characters of one rule, at most."""
    temperature: float = 1.0
    """Sampling temperature of reflection answers."""
    top_p: float = 0.95
    """As in sampler.grid, for reflection answers."""
    max_new_tokens: int = 256
    """Tokens of one reflection answer, at most."""
    model: ModelConfig | None = None
    """A separate model for reflection; null: the model that judges tickets."""

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
    """A run's first change to its guidance is for the worse with a probability of at most this, however many edits it tries:
    an edit that is no better, or a removed rule that costs more than its part of ``removal_margin``. One budget for all
    tests; runs that start from the learnt guidance share it on the same tickets. For later changes this is measured, not
    proven."""
    pool_size: int = 1024
    """Train tickets that test one edit, at most: whole groups, each counted once, none from the fold that taught it."""
    race_size: int = 64
    """Train tickets, at most a third of them, on which the edits of a bundle race; the best of a race are tested. Epochs
    leave these tickets out. If tickets are drawn by price: several times as many, at most a sixth."""
    race_chunk: int = 16
    """Tickets between two cuts of a race, which sees at most six times as many: fewer cost less, more detect smaller
    gains."""
    judge_by: Literal["auto", "probability", "answer"] = "auto"
    """probability: how likely the right verdict is, read off the model without decoding; answer: the greedy verdict; auto:
    probability if the engine can give it."""
    fp_weight: float = 1.0
    """Price of a wrong pass: a missed failure."""
    fn_weight: float = 1.0
    """Price of a wrong fail: a false alarm."""
    choose: str | None = None
    """Your own gate, package.module:function of (edits, gate): it returns the edit to accept, or None. It replaces the race
    and the test, so alpha then promises nothing about accepted edits. null: race and test."""
    provisional: Literal["keep", "drop"] = "keep"
    """With reflection.scope all, what becomes of rules that seem better on tickets that did not teach them, but are not
    proven: kept, and marked as provisional, or dropped."""
    removal_margin: float = 0.02
    """Accuracy that all rules removed from a mission may cost together. A rule goes if hardly any loss is seen without it;
    what it may still cost, as far as the tickets seen cannot rule it out, counts against this (0.6 % with 1,000 tickets,
    none lost)."""

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
    """Epochs without an accepted edit after which a mission stops learning; null: never."""
    reflections: int | None = 12
    """Reflections in a row without an accepted edit after which a mission stops learning, even within an epoch; null:
    never."""

    def __post_init__(self) -> None:
        for name, most in vars(self).items():
            require(most is None or most >= 1, f"early_stop.{name}", most, "at least 1, or null")


@dataclass(frozen=True)
class BudgetConfig:
    """What may be spent, over all missions and from the start, before learning ends.

    The step that reaches a limit is the last and is completed; judging val and test comes on top.
    """

    rollouts: int | None = None
    """Sampled answers and verdicts for the gate, together; judging val and test counts before learning, but not after."""
    tokens: int | None = None
    """Tokens read and written, of rollouts, gate and reflection."""
    seconds: float | None = None
    """Wall-clock seconds, over all parts of an interrupted run. Two equal runs may then end at different steps."""

    def __post_init__(self) -> None:
        for name, limit in vars(self).items():
            require(limit is None or limit > 0, f"budget.{name}", limit, "above 0, or null for no limit")


@dataclass(frozen=True)
class DistillConfig:
    """Right answers under the final guidance, as training data for a model of your own."""

    size: int = 0
    """Rows of distill_chatml.jsonl per mission, at most; 0: no such file."""
    temperature: float = 0.2
    """Temperature at which they are sampled."""

    def __post_init__(self) -> None:
        require(self.size >= 0, "distill.size", self.size, "0 or more")
        require(self.temperature >= 0, "distill.temperature", self.temperature, "0 or more")


@dataclass(frozen=True)
class ManualReviewConfig:
    """Which tickets a person should see."""

    min_verdict_agreement: float = 0.8
    """A ticket with a smaller share of agreeing candidates goes to review."""

    def __post_init__(self) -> None:
        require(0 <= (share := self.min_verdict_agreement) <= 1, "manual_review.min_verdict_agreement", share, "0 to 1")


@dataclass(frozen=True)
class LoopConfig:
    """A run of the training-free loop."""

    loop: Literal["guidance"] = "guidance"
    """The loop that these keys belong to."""
    tickets: list[str] = field(default_factory=list)
    """Ticket files, JSON Lines or CSV: one, or several as [a.jsonl, b.csv]."""
    columns: ColumnsConfig = field(default_factory=ColumnsConfig)
    seed: int = 17
    """Seed of every random choice of the run, including the split."""
    on_bad_record: Literal["error", "skip"] = "error"
    """error: do not start while any ticket line is unusable; skip: set such lines aside in a file."""
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
    """Only audit: judge all tickets under the given guidance, list what was judged wrong, and learn nothing."""
    manual_review: ManualReviewConfig = field(default_factory=ManualReviewConfig)
    report: bool = True
    """Write report.html, the run on one page, at the end; ``stageb report RUN`` writes it at any time."""
    fabric: FabricConfig = field(default_factory=FabricConfig)
    loggers: list[str | LoggerConfig] = field(default_factory=list)
    """Lightning loggers that receive the figures, each a class path, or class_path and init_args: CSV, TensorBoard, ..."""
    log_level: Level = "info"
    """How much is printed: info: progress; warning, error: less; debug: every round, and everything that libraries log."""

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
        at_once = self.reflection.scope == "all"
        require(not at_once or self.runner.judge == "both", "reflection.scope", "all", "bundle or round, unless code judges")
        require(not at_once or self.has_gate, "gate", self.gate, "a gate with reflection.scope all, whose rules it proves")
        self.columns.check_files(self.tickets)
