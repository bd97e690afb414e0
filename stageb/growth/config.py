"""The config of the growth loop: one frozen dataclass per section, keys as users write them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from stageb.config import FabricConfig, Level, LoggerConfig, OutputConfig, require

Blend = Literal["linear", "sigmoid", "gated"]
Precision = Literal["32-true", "bf16-mixed", "16-mixed"]
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
    slot: Literal["early", "mid", "late"] | None = None
    """Of teachers: where their seed stands; null: drawn for each environment."""
    blueprint: str | None = None
    """Of teachers: what their seed is, of host.blueprints; null: drawn for each environment."""

    def __post_init__(self) -> None:
        require(self.slot in (None, "early", "mid", "late"), "task.slot", self.slot, "early, mid, late or null")


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
    seed_learning_rate: float | None = None
    """Of the same optimiser, for seeds; null: the host's."""
    precision: Precision = "32-true"
    """In which hosts are trained and judged; the mixed ones keep weights in float32, and 16-mixed scales losses."""

    def __post_init__(self) -> None:
        require(2 <= self.width <= 1024 and self.width % 2 == 0, "host.width", self.width, "an even number, 2 to 1024")
        names = self.blueprints
        require(0 < len(names) == len(set(names)), "host.blueprints", names, "at least one, none twice")
        for key in ("epochs", "steps_per_epoch", "batch_size"):
            require(getattr(self, key) >= 1, f"host.{key}", getattr(self, key), "at least 1")
        require(self.learning_rate > 0, "host.learning_rate", self.learning_rate, "above 0")
        rate = self.seed_learning_rate
        require(rate is None or rate > 0, "host.seed_learning_rate", rate, "above 0, or null")


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
    environments: int = 64
    """Episodes between two updates of the controller."""
    block: int = 16
    """Environments that are trained as one batch; a result depends on it in its last bits, never on the world size."""
    ddp: bool = False
    """Train every host on all ranks together, its batches shared out, instead of different hosts on different ranks."""


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
    output: OutputConfig = field(default_factory=OutputConfig)
    fabric: FabricConfig = field(default_factory=FabricConfig)
    loggers: list[str | LoggerConfig] = field(default_factory=list)
    """Lightning's loggers to show every row to, beside the run's own: each a class path, or class_path and init_args."""
    log_level: Level = "info"
    """What is said on the way: info: how it goes; warning, error: less; debug: all that libraries say, too."""

    def __post_init__(self) -> None:
        growth = self.growth
        require(growth.block >= 1, "growth.block", growth.block, "at least 1")
        whole = growth.environments >= 1 and growth.environments % growth.block == 0
        require(whole, "growth.environments", growth.environments, "a multiple of growth.block")
