"""The config of the two-channel loop: one frozen dataclass per section, keys as users write them.

Nothing here is ever mutated; what changes over a run (channel, learning rate) is a function of the step: ``schedule.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from stageb.config import FabricConfig, Level, LoggerConfig, OutputConfig, require
from stageb.two_channel.sections import (
    ChannelAConfig,
    DetectorConfig,
    LossConfig,
    OptimizerConfig,
    PackingConfig,
    TunerConfig,
)

Channel = Literal["A", "B"]


@dataclass(frozen=True)
class DataConfig:
    """Images and their objects, JSON Lines of `images`, `objects`, `width`, `height`."""

    train: str = ""
    """The file to learn from."""
    test: str = ""
    """The file to evaluate on; nothing is learnt from it."""


@dataclass(frozen=True)
class ChannelBConfig:
    """Steps that teach on the model's own answers."""

    rollouts_per_step: int = 16
    """Images that are answered in a step, over all ranks."""
    max_new_tokens: int = 512
    """Of an answer."""
    temperature: float = 0.7
    """Of sampling; 0: the most probable token."""
    top_p: float = 1.0
    """Least probability mass that tokens are drawn from."""
    min_iou: float = 0.5
    """Overlap with an object of the same name from which on a box counts as found."""
    false_positives: Literal["neutral", "duplicates", "all"] = "duplicates"
    """Boxes without an object that are taught against: none, near-duplicates of earlier boxes, or all."""

    def __post_init__(self) -> None:
        require(self.rollouts_per_step >= 1, "channel_b.rollouts_per_step", self.rollouts_per_step, "at least 1")
        require(self.max_new_tokens >= 16, "channel_b.max_new_tokens", self.max_new_tokens, "at least 16")
        require(self.temperature >= 0, "channel_b.temperature", self.temperature, "0 or more")
        require(0 < self.top_p <= 1, "channel_b.top_p", self.top_p, "above 0, at most 1")
        require(0 < self.min_iou <= 1, "channel_b.min_iou", self.min_iou, "above 0, at most 1")


@dataclass(frozen=True)
class ScheduleConfig:
    """What follows what."""

    steps: int = 300
    """Of the optimiser."""
    pattern: list[Channel] = field(default_factory=lambda: ["A", "A", "B"])
    """Channels of steps, over and over: A teaches the truth, B the model's own answers set right."""
    samples_per_step: int = 16
    """Images of a step of channel A, over all ranks; one of channel B has channel_b.rollouts_per_step."""
    commit_every: int = 50
    """Steps from one commit to the next."""

    def __post_init__(self) -> None:
        require(len(self.pattern) >= 1, "schedule.pattern", self.pattern, "at least one channel, such as [A, A, B]")
        for name in ("steps", "samples_per_step", "commit_every"):
            require(getattr(self, name) >= 1, f"schedule.{name}", getattr(self, name), "at least 1")


@dataclass(frozen=True)
class TopologyConfig:
    """Which ranks do what. Rank 0 learns; ranks that roll out come last."""

    rollout: int = 0
    """Ranks that roll out and do nothing else; 0: every rank does both."""
    learn: int = 0
    """Ranks that learn, where others roll out."""
    staleness: Literal[0, 1] = 0
    """0: rollouts are made with the newest weights; 1: with those of one channel B step before, which hides their time."""

    def __post_init__(self) -> None:
        require(self.rollout >= 0, "topology.rollout", self.rollout, "0 or more")
        fits = (self.learn >= 1) == (self.rollout >= 1)
        require(fits, "topology.learn", self.learn, "at least 1 where topology.rollout is, 0 where that is 0")


@dataclass(frozen=True)
class EvaluationConfig:
    """Answers for the test images, with the most probable tokens, apart from learning."""

    every: int = 0
    """Steps between two evaluations; 0: at the end alone."""
    samples: int = 0
    """Images of an evaluation on the way, the file's first; 0: all. The one at the end takes all."""
    pictures: int = 8
    """Images that are drawn at the end with their boxes, true and predicted."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            require(value >= 0, f"evaluation.{name}", value, "0 or more")


@dataclass(frozen=True)
class LogConfig:
    """What is written beside metrics.jsonl."""

    tensorboard: bool = True
    """Event files under tensorboard/."""


@dataclass(frozen=True)
class TwoChannelConfig:
    """A vision-language model that learns to write the objects of an image, from the truth and from its own answers."""

    loop: Literal["two_channel"] = "two_channel"
    """The loop that these keys are of."""
    seed: int = 17
    """Names every random stream of the run."""
    data: DataConfig = field(default_factory=DataConfig)
    model: DetectorConfig = field(default_factory=DetectorConfig)
    tuner: TunerConfig = field(default_factory=TunerConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    channel_a: ChannelAConfig = field(default_factory=ChannelAConfig)
    channel_b: ChannelBConfig = field(default_factory=ChannelBConfig)
    packing: PackingConfig = field(default_factory=PackingConfig)
    topology: TopologyConfig = field(default_factory=TopologyConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    log: LogConfig = field(default_factory=LogConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
    fabric: FabricConfig = field(default_factory=FabricConfig)
    loggers: list[str | LoggerConfig] = field(default_factory=list)
    """Lightning's loggers to show every row to, beside ``log``: each a class path, or class_path and init_args."""
    log_level: Level = "info"
    """What is said on the way: info: how it goes; warning, error: less; debug: all that libraries say, too."""

    def __post_init__(self) -> None:
        precision, known = self.fabric.precision, (None, "32-true", "32", "bf16-mixed")
        require(precision in known, "fabric.precision", precision, "32-true or bf16-mixed for this loop, or null")
