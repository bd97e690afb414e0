"""The config of the training-free loop: one frozen dataclass per section, keys as users write them.

Nothing here is ever mutated; what changes over a run is a function of the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from stageb.config import FabricConfig, Level, LoggerConfig, OutputConfig, TimeConfig, require
from stageb.engines.config import ModelConfig
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.costs import PriceConfig
from stageb.guidance.words.former_keys import FORMER_KEYS
from stageb.guidance.words.texts import verdict_words_fault
from stageb.guidance.words.types import Split
from stageb.settings import (
    CODE,
    DATA,
    READ,
    SHARE,
    SHARE_ABOVE_0,
    UNIT,
    Check,
    Section,
    at_least,
    setting,
)

Language = Literal["en", "zh"]
LIMIT = Check(lambda limit: limit is None or limit > 0, "above 0, or null for no limit")
SHARE_OR_FILE = Check(
    lambda given: bool(given) if isinstance(given, str) else 0 <= given <= 1,
    "a share from 0 to 1, or a file",
)
UseImages = bool | Literal["instead"]


@dataclass(frozen=True)
class SplitConfig(Section, at="split"):
    """Shares of a mission's groups; what is left of 1 after train and val is test.
    ``columns.split`` takes their place."""

    train: float = setting(0.6, SHARE)
    """Share to learn from and to test edits on."""
    val: float | str = setting(0.2, SHARE_OR_FILE, trust=READ)
    """Share that is judged after every epoch and never learnt from; or a ticket file that is."""
    test: float | str = setting(0.2, SHARE_OR_FILE, trust=READ)
    """Share that is held out for the final figures; or a ticket file that is. ``tickets`` are then
    dealt to the others, by their shares."""
    seed: int | None = None
    """Seed of the split; null: ``seed``. Set it to keep the split of the run whose guidance you
    start from."""
    leave_out: list[str] = setting(list, trust=DATA)
    """Tickets that are of no split, each by its group_id, or by its key, such as case-7::fail. A
    list in a file of its own is one more --config."""

    @property
    def files(self) -> dict[Split, str]:
        """The ticket files that are a split."""
        named: dict[Split, float | str] = {"val": self.val, "test": self.test}
        return {split: file for split, file in named.items() if isinstance(file, str)}

    @property
    def shares(self) -> dict[Split, float]:
        """The splits that tickets are dealt to, and to what share of them."""
        named: dict[Split, float | str] = {"train": self.train, "val": self.val, "test": self.test}
        shares = {split: share for split, share in named.items() if not isinstance(share, str)}
        total = sum(shares.values()) if self.files else 1.0
        return {split: share / total for split, share in shares.items()}

    def check(self) -> None:
        self.require(self.train > 0, "train", "learning needs some tickets: a share above 0")
        total = sum(self.shares.values())
        require(abs(total - 1) < 1e-9, "split", total, "train, val and test must add up to 1")


@dataclass(frozen=True)
class PromptConfig(Section, at="prompt"):
    """How tickets and guidance are put to the model."""

    language: Language = "en"
    """en or zh: the language of the instructions and of the verdict words."""
    verdict_words: dict[str, str] | None = setting(None, trust=DATA)
    """Your own words for the two verdicts, such as {pass: OK, fail: NG}; null: those of the
    language. The model reads and writes them; the files of a run say pass and fail."""
    style: Literal["auto", "instruct", "shipped"] = "auto"
    """shipped: the texts that the model in the package is trained on; instruct: those for other
    models, with demonstrations; auto: by the model."""
    prefill: bool | None = None
    """Start every answer for the model with "Verdict:", so that a weak model keeps to the form. No
    model then thinks aloud. null: true with instruct texts where the engine goes on from there,
    unless the model is configured to think."""
    demonstration_tokens: int = setting(1536, at_least(0))
    """With instruct texts: tokens of train tickets with their verdicts that the model is shown, at
    most; 0: none."""

    def instructs(self, model: ModelConfig) -> bool:
        """Whether ``model`` reads instruct texts. The scripted engine stands for the shipped
        model."""
        is_ours = model.engine == "scripted" or model.is_shipped
        return self.style == "instruct" or (self.style == "auto" and not is_ours)

    def check(self) -> None:
        if self.verdict_words is not None:
            fault = verdict_words_fault(self.verdict_words)
            self.require(not fault, "verdict_words", fault)


@dataclass(frozen=True)
class GuidanceConfig(Section, at="guidance"):
    """Where guidance starts and how much of its history is kept."""

    path: str | None = setting(None, trust=READ)
    """What to start from: guidance.json, rules as .txt, or a run's folder; a mission not in it
    starts with a neutral G0."""
    retention: int = setting(10, at_least(1))
    """Snapshots kept per mission, newest first."""


@dataclass(frozen=True)
class DecodeConfig(Section, at="sampler.grid"):
    """One entry of the decode grid."""

    temperature: float = setting(0.7, at_least(0))
    """0 is greedy."""
    top_p: float = setting(1.0, SHARE_ABOVE_0)
    """Sample from the fewest tokens whose probabilities add up to at least this."""
    top_k: int = setting(0, at_least(0))
    """Sample from this many of the most likely tokens; 0: all."""
    max_new_tokens: int = setting(96, at_least(1))
    """Tokens of one answer, at most."""
    seed: int = 0
    """Gives this entry random streams of its own."""
    stop: list[str] = setting(list, Check(all, "no empty strings"), trust=DATA)
    """An answer ends before the first of these strings."""


@dataclass(frozen=True)
class SamplerConfig(Section, at="sampler"):
    """Candidates per ticket: every entry of the grid, samples_per_decode times."""

    samples_per_decode: int = setting(4, at_least(1))
    """Samples for each entry of the grid."""
    max_prompt_tokens: int = setting(4096, at_least(1))
    """A ticket with a longer prompt is set aside and recorded, never truncated."""
    micro_batch_size: int = setting(128, at_least(1))
    """Tickets that the model reads in one batch, at most, at any world size. A GPU is fastest with
    many."""
    equal_bytes: bool = True
    """Cut a round into batches that suit one to eight ranks alike, so that equal rounds leave equal
    bytes whatever the world size; false: into the largest ones, which a GPU writes several times as
    fast."""
    use_images: UseImages = False
    """true: show a vision model the images that tickets name, beside their summaries; instead: in
    place of the summaries. Reflection always reads the summaries."""
    reasons: Literal["all", "wrong", "none"] = "all"
    """Which answers give reasons: all; wrong: the chosen one of train tickets judged wrong or
    unsure, for reflection; none. An answer without a reason ends with its verdict, after a few
    tokens, and counts by its first line."""
    grid: list[DecodeConfig] = setting(
        lambda: [DecodeConfig()], Check(bool, "at least one decode setting")
    )
    """The decode settings."""
    eval_temperature: float | None = setting(None, at_least(0).or_null())
    """Temperature at which val, test and, for predict and evaluate, new tickets are judged; null:
    those of the grid."""

    @property
    def evaluating(self) -> SamplerConfig:
        """The same as it is used where nothing is learnt."""
        if self.eval_temperature is None:
            return self
        return replace(
            self, grid=[replace(decode, temperature=self.eval_temperature) for decode in self.grid]
        )


@dataclass(frozen=True)
class RunnerConfig(Section, at="runner"):
    """The epoch loop."""

    epochs: int = setting(4, at_least(0, 10_000))
    """Passes over the train tickets."""
    per_rank_rollout_batch_size: int = setting(64, at_least(1))
    """Tickets per rank and round; a round is this times the world size."""
    tickets_per_epoch: int | None = setting(None, at_least(1).or_null())
    """Train tickets drawn for each epoch and mission; null: all except those that edits are raced
    on."""
    judge: Literal["model", "both"] = "model"
    """Who judges in rounds and for the gate: model: what learning finds best for each mission
    (judge in guidance.json), and before that the model; both: rules as code, and the model where
    code cannot decide."""
    log_every_s: float = setting(
        10.0, Check(lambda seconds: 0 <= seconds <= 1e6, "seconds, 0 or more")
    )
    """Seconds between progress lines if the output is not a terminal; the end of a split always
    gets one."""
    max_unreadable: float = setting(0.5, SHARE)
    """Stop before anything is learnt if a larger share of the first round's answers cannot be read;
    1: never stop."""


@dataclass(frozen=True)
class ReflectionConfig(Section, at="reflection"):
    """When and how the model edits its guidance."""

    scope: Literal["auto", "bundle", "round", "all"] = "auto"
    """all: code learns the whole guidance at once, from all train tickets, and no model reflects;
    where code judges (runner.judge both), or another model than the shipped one. bundle: reflect on
    batch_size tickets at a time. round, for rounds of many tickets: reflect on all that were rolled
    out, in one bundle for each third of train; their answers are sampled together and tested in
    turn. Where another model than the shipped one judges, code learns first with both. auto: all
    where code can learn at once, for labels of your own with runner.judge both beside the shipped
    model; else bundle."""
    batch_size: int = setting(64, at_least(1))
    """Tickets rolled out, over all ranks, for each bundle."""
    num_proposals: int = setting(8, at_least(1))
    """Answers sampled per bundle."""
    max_operations: int = setting(1, at_least(1))
    """Operations that one answer may hold."""
    max_cases: int = setting(24, at_least(1))
    """Tickets of the bundle that one answer sees, at most; each answer draws its own."""
    evidence: int = setting(12, at_least(0))
    """Lines of evidence: what sets the errors apart, counted over all tickets that an answer may
    see; 0: none."""
    evidence_tickets: int = setting(192, at_least(0))
    """Train tickets that evidence is counted over, at least; those not yet judged under the present
    guidance are judged."""
    arithmetic: bool = False
    """Whether evidence also computes with two numbers. Few models follow such rules; with
    runner.judge both, code does."""
    size: int | None = setting(None, at_least(1).or_null())
    """Conditions of a whole guidance that code learns, at most: each test of a field, each word or
    word list. null: 30, and with labels
    other than pass and fail 80, 12 for each."""
    max_prompt_tokens: int = setting(8192, at_least(1))
    """Tokens of a reflection prompt, at most; an answer sees fewer cases if its prompt would be
    longer."""
    max_rules: int = setting(24, at_least(1))
    """Rules that a guidance may hold, including the headline; with more than eight labels, in
    proportion; for each label other than pass and fail, where code judges. An edit that comes to
    more is refused."""
    max_guidance_tokens: int = setting(1024, at_least(1))
    """Tokens of all rules together, at most, likewise; for a model no more than half of
    sampler.max_prompt_tokens. Where code judges, word lists count for neither."""
    max_rule_chars: int = setting(240, at_least(1))
    """Characters of one rule, at most."""
    temperature: float = setting(1.0, at_least(0))
    """Sampling temperature of reflection answers."""
    top_p: float = setting(0.95, SHARE_ABOVE_0)
    """As in sampler.grid, for reflection answers."""
    max_new_tokens: int = setting(256, at_least(1))
    """Tokens of one reflection answer, at most."""
    model: ModelConfig | None = None
    """A separate model for reflection; null: the model that judges tickets."""


@dataclass(frozen=True)
class GateConfig(Section, at="gate"):
    """What an edit must show before it is accepted."""

    alpha: float = setting(0.05, Check(lambda chance: 0 < chance <= 0.5, "above 0, at most 0.5"))
    """A run's first change to its guidance is for the worse with a probability of at most this,
    however many edits it tries: an edit that is no better. One budget for all tests; runs that
    start from the learnt guidance share it on the same tickets. For later changes this is measured,
    not proven."""
    pool_size: int = setting(1024, at_least(1))
    """Train tickets that test one edit, at most: whole groups, each counted once, none from the
    fold that taught it."""
    race_size: int = setting(64, at_least(1))
    """Train tickets, at most a third of them, on which the edits of a bundle race; the best of a
    race are tested. Epochs leave these tickets out. If tickets are drawn by price: several times as
    many, at most a sixth."""
    race_chunk: int = setting(16, at_least(1))
    """Tickets between two cuts of a race, which sees at most six times as many: fewer cost less,
    more detect smaller gains."""
    judge_by: Literal["auto", "probability", "answer"] = "auto"
    """probability: how likely the right verdict is, read off the model without decoding; answer:
    the greedy verdict; auto: probability if the engine can give it."""
    max_false_passes: float = setting(1.0, SHARE)
    """Share of the tickets that test an edit which it may turn into wrong passes, less those that
    it mends; a proven edit that does more is refused. 1: any."""
    max_changed_verdicts: float = setting(1.0, SHARE)
    """Share of these tickets whose verdict it may change, likewise; one wrong label for another
    does not count."""
    choose: str | None = setting(None, trust=CODE)
    """Your own gate, package.module:function of (edits, gate): it returns the edit to accept, or
    None. It replaces the race and the test, so alpha then promises nothing about accepted edits.
    null: race and test."""
    provisional: Literal["keep", "drop"] = "keep"
    """With reflection.scope all, what becomes of rules that seem better on tickets that did not
    teach them, but are not proven: kept, and marked as provisional, or dropped."""


@dataclass(frozen=True)
class _NoGate(GateConfig):
    """What ``gate: none`` comes to: no ticket is set apart, nothing is spent, nothing is tested."""

    alpha: float = 0.0
    pool_size: int = 0
    race_size: int = 0
    judge_by: Literal["auto", "probability", "answer"] = "answer"

    def __post_init__(self) -> None:
        """Nothing to check: these are no values of a user's."""


@dataclass(frozen=True)
class EarlyStopConfig(Section, at="early_stop"):
    """When a mission has learnt what it can."""

    patience: int | None = setting(2, at_least(1).or_null())
    """Epochs without an accepted edit after which a mission stops learning; null: never."""
    reflections: int | None = setting(12, at_least(1).or_null())
    """Reflections in a row without an accepted edit after which a mission stops learning, even
    within an epoch; null: never."""


@dataclass(frozen=True)
class BudgetConfig(TimeConfig, at="budget"):
    """What may be spent from the start, before learning ends: each mission has an equal share, and
    what one leaves goes to the others. What code learns for nothing is learnt whatever was spent.

    The step that reaches a limit is the last and is completed; judging val and test comes on top.
    """

    rollouts: int | None = setting(None, LIMIT)
    """Sampled answers and verdicts for the gate, together; judging val and test counts before
    learning, but not after."""
    tokens: int | None = setting(None, LIMIT)
    """Tokens read and written, of rollouts, gate and reflection."""


@dataclass(frozen=True)
class DistillConfig(Section, at="distill"):
    """Right answers under the final guidance, as training data for a model of your own."""

    size: int = setting(0, at_least(0))
    """Rows of distill_chatml.jsonl per mission, at most; 0: no such file."""
    temperature: float = setting(0.2, at_least(0))
    """Temperature at which they are sampled."""


@dataclass(frozen=True)
class ManualReviewConfig(Section, at="manual_review"):
    """Which tickets a person should see."""

    min_verdict_agreement: float = setting(0.8, UNIT)
    """A ticket with a smaller share of agreeing candidates goes to review."""


@dataclass(frozen=True)
class LoopConfig(Section, at=""):
    """A run of the training-free loop."""

    former_keys: ClassVar[Mapping[str, str]] = FORMER_KEYS
    loop: Literal["guidance"] = "guidance"
    """The loop that these keys belong to."""
    tickets: list[str] = setting(
        list, Check(bool, "name ticket files: tickets.jsonl, or [a.jsonl, b.csv]"), trust=READ
    )
    """Ticket files, JSON Lines or tables: one, or several as [a.jsonl, b.csv]."""
    columns: ColumnsConfig = field(default_factory=ColumnsConfig)
    seed: int = 17
    """Seed of every random choice of the run, including the split."""
    on_bad_record: Literal["error", "skip"] = "error"
    """error: do not start while any ticket line is unusable; skip: set such lines aside in a
    file."""
    split: SplitConfig = field(default_factory=SplitConfig)
    prompt: PromptConfig = field(default_factory=PromptConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    guidance: GuidanceConfig = field(default_factory=GuidanceConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    selection: str = setting("majority", trust=CODE)
    """How a ticket's verdict is chosen from its candidates: majority, or package.module:function of
    (mission, candidates), which returns one of them, or None for no verdict."""
    runner: RunnerConfig = field(default_factory=RunnerConfig)
    reflection: ReflectionConfig = field(default_factory=ReflectionConfig)
    gate: GateConfig | Literal["none"] = field(default_factory=GateConfig)
    """The gate's settings, or none: edits are applied untested."""
    price: PriceConfig = field(default_factory=PriceConfig)
    early_stop: EarlyStopConfig = field(default_factory=EarlyStopConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    distill: DistillConfig = field(default_factory=DistillConfig)
    manual_review: ManualReviewConfig = field(default_factory=ManualReviewConfig)
    report: bool = True
    """Write report.html, the run on one page, at the end; ``stageb report RUN`` writes it at any
    time. And measure what a model that nobody can read reaches on the same tickets, where
    scikit-learn is installed."""
    fabric: FabricConfig = field(default_factory=FabricConfig)
    loggers: list[str | LoggerConfig] = field(default_factory=list)
    """Lightning loggers that receive the figures, each a class path, or class_path and init_args:
    TensorBoardLogger, ..."""
    log_level: Level = "info"
    """How much is printed: info: progress; warning, error: less; debug: every round, and everything
    that libraries log."""

    @property
    def files(self) -> list[str]:
        """All ticket files."""
        return [*self.tickets, *self.split.files.values()]

    @property
    def has_gate(self) -> bool:
        """Whether edits are tested before they are applied."""
        return self.gate != "none"

    @property
    def needs_preparing(self) -> bool:
        """Whether guidance has demonstrations and a calibration: only other models than the shipped
        one need them, and only where they judge all tickets."""
        return self.prompt.instructs(self.model) and self.runner.judge == "model"

    @property
    def gating(self) -> GateConfig:
        """The gate's settings; where there is none, those that set no ticket apart and spend
        nothing."""
        return _NoGate() if self.gate == "none" else self.gate

    def check(self) -> None:
        shown = self.sampler.use_images
        require(
            not (shown and self.distill.size),
            "distill.size",
            self.distill.size,
            "0 with images: chats hold text alone",
        )
        at_once = self.reflection.scope == "all"
        self.require(
            not at_once or self.has_gate,
            "gate",
            "a gate with reflection.scope all, whose rules it proves",
        )
        is_told = self.columns.split is not None and bool(self.split.files)
        require(
            not is_told,
            "columns.split",
            self.columns.split,
            "name a column of splits, or files of val and test, not both",
        )
        self.columns.check_files(self.files)
