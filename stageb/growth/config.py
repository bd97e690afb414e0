"""The config of the growth loop: one frozen dataclass per section, keys as users write them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from stageb.config import FabricConfig, Level, LogConfig, LoggerConfig, OutputConfig, require

Blend = Literal["linear", "sigmoid", "gated"]
Controller = Literal["ppo", "heuristic", "random", "periodic", "static-small", "static-final"]


@dataclass(frozen=True)
class TaskConfig:
    """What hosts are trained on."""

    name: str = "teacher"
    """digits, mnist1d, mnist1d-shuffled, mnist5k, teacher, futile, cifar10 or tinystories."""
    folder: str | None = None
    """Where the files of cifar10 and tinystories lie; null: their usual folder."""
    fit_examples: int | None = None
    """Examples that hosts learn from; null: as many as the task has."""


@dataclass(frozen=True)
class HostConfig:
    """The networks that are grown."""

    kind: Literal["mlp", "conv1d", "conv2d", "transformer"] = "mlp"
    """How a host is built."""
    width: int = 16
    """Features, or channels, of every stage."""
    blueprints: list[str] = field(default_factory=lambda: ["norm", "mlp", "low_rank"])
    """The seed modules that may germinate, of those that the host can hold."""
    blend: Blend = "sigmoid"
    """How a seed's weight in the host rises: linear or sigmoid in epochs, or gated, by a gate that is trained."""
    epochs: int = 20
    """Epochs of an episode: one host trained from its start."""
    steps_per_epoch: int = 8
    """Steps of the host's optimiser in an epoch."""
    batch_size: int = 64
    """Examples of such a step."""
    learning_rate: float = 0.01
    """Of the host's optimiser, Adam."""


@dataclass(frozen=True)
class GatesConfig:
    """When a seed may go on: thresholds of the gates G0 to G5."""


@dataclass(frozen=True)
class RewardConfig:
    """What the controller is paid for."""


@dataclass(frozen=True)
class GrowthSection:
    """What this loop alone has."""

    controller: Controller = "ppo"
    """Who decides."""
    updates: int = 60
    """Rounds of a run: in each, episodes are played, and the controller learns from them once."""
    environments: int = 64
    """Episodes between two updates of the controller."""
    block: int = 16
    """Environments that are trained as one batch; a result depends on it in its last bits, never on the world size."""
    ddp: bool = False
    """Train every host on all ranks together, its batches shared out, instead of different hosts on different ranks."""
    commit_every: int = 5
    """Updates from one commit to the next."""

    def __post_init__(self) -> None:
        for name in ("updates", "block", "commit_every"):
            require(getattr(self, name) >= 1, f"growth.{name}", getattr(self, name), "at least 1")
        whole = self.environments >= 1 and self.environments % self.block == 0
        require(whole, "growth.environments", self.environments, f"a multiple of growth.block, {self.block}")


@dataclass(frozen=True)
class EvaluationConfig:
    """Episodes with the most probable actions, of environments that are never learnt from."""

    every: int = 0
    """Updates between two evaluations; 0: at the end alone."""
    environments: int = 64
    """Environments of an evaluation, shared out over ranks."""

    def __post_init__(self) -> None:
        require(self.every >= 0, "evaluation.every", self.every, "0 or more")
        require(self.environments >= 1, "evaluation.environments", self.environments, "at least 1")


@dataclass(frozen=True)
class GrowthConfig:
    """A controller that learns when and how networks should grow."""

    loop: Literal["growth"] = "growth"
    """The loop that these keys are of."""
    seed: int = 17
    """Names every random stream of the run."""
    task: TaskConfig = field(default_factory=TaskConfig)
    host: HostConfig = field(default_factory=HostConfig)
    gates: GatesConfig = field(default_factory=GatesConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    growth: GrowthSection = field(default_factory=GrowthSection)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    log: LogConfig = field(default_factory=LogConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
    fabric: FabricConfig = field(default_factory=FabricConfig)
    loggers: list[str | LoggerConfig] = field(default_factory=list)
    """Lightning's loggers to show every row to, beside the run's own: each a class path, or class_path and init_args."""
    log_level: Level = "info"
    """What is said on the way: info: how it goes; warning, error: less; debug: all that libraries say, too."""

    def __post_init__(self) -> None:
        precisions = (None, "32-true", "32", "bf16-mixed", "16-mixed")
        precision = self.fabric.precision
        require(precision in precisions, "fabric.precision", precision, "32-true, bf16-mixed or 16-mixed for this loop, or null")
