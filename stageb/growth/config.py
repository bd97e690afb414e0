"""The config of the growth loop: one frozen dataclass per section, keys as users write them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from stageb.config import FabricConfig, Level, LogConfig, LoggerConfig, OutputConfig, PpoConfig, require
from stageb.growth.types import SLOTS

Blend = Literal["linear", "sigmoid", "gated"]
Precision = Literal["32-true", "bf16-mixed", "16-mixed"]
Controller = Literal["ppo", "probe-1", "probe-2", "selective", "heuristic", "random", "periodic", "static-small", "oracle"]
PROBES = {"probe-1": 1, "probe-2": 2}  # epochs of their trials


@dataclass(frozen=True)
class TaskConfig:
    """The data that hosts are trained on."""

    name: str = "teacher"
    """digits, mnist1d, mnist1d-shuffled, mnist5k, teacher, futile, fashion_mnist, cifar10 or tinystories."""
    folder: str | None = None
    """Folder with the files of fashion_mnist, cifar10 and tinystories; null: data/fashion-mnist, data/cifar-10-batches-py,
    data/TinyStories."""
    fit_examples: int | None = None
    """Training examples of a host; null: all that the task has."""
    validation: Literal["shared", "own"] = "shared"
    """For tasks with real data; shared: one validation set for all environments; own: each environment draws its own from
    all but the test set."""
    validation_examples: int | None = None
    """Size of the validation set: fewer examples cost less and measure less precisely; null: all that the task has."""
    slot: Literal["early", "mid", "late"] | None = None
    """For task.name teacher: the slot of the teacher's seed; null: drawn for each environment."""
    blueprint: str | None = None
    """For task.name teacher: the blueprint of its seed, one of host.blueprints; null: drawn for each environment."""
    seeds: int = 1
    """For task.name teacher: how many seeds a teacher has, each in its own slot."""
    inner: Literal["teacher", "own"] = "teacher"
    """For task.name teacher: the initial inner weights of the right seed; teacher: those of the teacher's seed; own: drawn,
    as for any other seed."""

    def __post_init__(self) -> None:
        require(self.slot in (None, "early", "mid", "late"), "task.slot", self.slot, "early, mid, late or null")
        for key in ("slot", "blueprint"):
            value = getattr(self, key)
            require(value is None or self.name == "teacher", f"task.{key}", value, "null; it is for task.name teacher")
        fine = self.validation == "shared" or self.name not in ("teacher", "futile")
        require(fine, "task.validation", self.validation, f"shared; the examples of {self.name} are drawn")
        fine = self.seeds == 1 or (self.seeds in (2, 3) and self.name == "teacher")
        require(fine, "task.seeds", self.seeds, "1; or 2 or 3 for task.name teacher")
        fine = self.inner == "teacher" or self.name == "teacher"
        require(fine, "task.inner", self.inner, "teacher; any other is for task.name teacher")


@dataclass(frozen=True)
class HostConfig:
    """The networks that are grown."""

    kind: Literal["mlp", "conv1d", "conv2d", "transformer"] = "mlp"
    """Architecture of a host."""
    make: str | None = None
    """A function that builds your own hosts instead of host.kind: package.module:function; see docs/guides/own-host.md."""
    width: int = 16
    """Features, or channels, of every stage."""
    blueprints: list[str] = field(default_factory=lambda: ["norm", "mlp", "low_rank"])
    """The seed modules that may germinate, among those that the host supports."""
    blend: Blend = "sigmoid"
    """How the weight of a seed in its host rises; linear, sigmoid: over epochs; gated: linearly, times a trained gate."""
    epochs: int = 20
    """Epochs of an episode, which trains one host from the start."""
    steps_per_epoch: int = 8
    """Optimiser steps of the host per epoch."""
    batch_size: int = 64
    """Examples per optimiser step."""
    learning_rate: float = 0.01
    """Learning rate of the host's optimiser, Adam."""
    slots: list[str] = field(default_factory=lambda: ["early", "mid", "late"])
    """The slots in which seeds may germinate, among early, mid and late."""
    seed_learning_rate: float | None = None
    """Learning rate of seeds; null: that of the host."""
    precision: Precision = "32-true"
    """Precision in which hosts are trained and evaluated; mixed ones keep weights in float32, and 16-mixed scales losses."""

    def __post_init__(self) -> None:
        require(2 <= self.width <= 1024 and self.width % 2 == 0, "host.width", self.width, "an even number, 2 to 1024")
        names = self.blueprints
        require(0 < len(names) == len(set(names)), "host.blueprints", names, "at least one, none twice")
        fine = 0 < len(self.slots) == len(set(self.slots)) and set(self.slots) <= set(SLOTS)
        require(fine, "host.slots", self.slots, "at least one of early, mid, late, none twice")
        for key in ("epochs", "steps_per_epoch", "batch_size"):
            require(getattr(self, key) >= 1, f"host.{key}", getattr(self, key), "at least 1")
        require(self.learning_rate > 0, "host.learning_rate", self.learning_rate, "above 0")
        rate = self.seed_learning_rate
        require(rate is None or rate > 0, "host.seed_learning_rate", rate, "above 0, or null")


@dataclass(frozen=True)
class GatesConfig:
    """When a seed may enter its next stage: thresholds of the gates G0 to G5 (stageb/growth/lifecycle.py)."""

    training_epochs: int = 2
    """Epochs that a seed trains beside the host before it blends in: gate G2."""
    blending_epochs: int = 3
    """Epochs in which the weight of a seed in the host rises from 0 to 1: gate G3."""
    probation_epochs: int = 1
    """Epochs at full weight before a seed may stay for good: gate G4."""
    least_contribution: float = 0.0
    """A seed may stay for good only if it adds more than this to the validation accuracy: gate G5."""
    embargo_epochs: int = 1
    """Epochs that a slot stays closed after a cull."""
    vanishing: float = 1e-6
    """Gradient norm of a seed, averaged over an epoch, below which its gradient counts as vanishing."""
    exploding: float = 100.0
    """Gradient norm above which it counts as exploding, which closes gates G1 to G4."""

    def __post_init__(self) -> None:
        for name in ("training_epochs", "blending_epochs", "probation_epochs", "embargo_epochs"):
            require(getattr(self, name) >= 1, f"gates.{name}", getattr(self, name), "at least 1")
        lengths = 0 <= self.vanishing < self.exploding
        require(lengths, "gates.vanishing", self.vanishing, f"0 or more, and below gates.exploding, {self.exploding}")
        least = self.least_contribution
        require(-1 <= least < 1, "gates.least_contribution", least, "-1 to below 1, a share of the examples")

    @property
    def shortest_life(self) -> int:
        """Epochs from germination to the first in whose end the seed may be kept."""
        return self.training_epochs + self.blending_epochs + self.probation_epochs


@dataclass(frozen=True)
class RewardConfig:
    """The reward of the controller (stageb/growth/reward.py), in units of accuracy, 0 to 1."""

    size_price: float = 0.05
    """Lambda of the objective at the end of an episode: accuracy - lambda x ln(1 + extra / host parameters)."""
    shaping: float = 1.0
    """Weight of potential-based shaping, which pays changes of the objective every epoch; it changes no optimal policy."""
    scale: float = 10.0
    """Factor of all rewards, so that their size is near 1."""

    def __post_init__(self) -> None:
        for name in ("size_price", "shaping"):
            require(getattr(self, name) >= 0, f"reward.{name}", getattr(self, name), "0 or more")
        require(self.scale > 0, "reward.scale", self.scale, "above 0")


@dataclass(frozen=True)
class PolicyConfig:
    """The policy network."""

    hidden: int = 64
    """Width of its hidden layers."""
    minibatches: int = 4
    """Minibatches, and so optimiser steps, per pass over a round."""

    def __post_init__(self) -> None:
        for name in ("hidden", "minibatches"):
            require(getattr(self, name) >= 1, f"policy.{name}", getattr(self, name), "at least 1")


def growth_ppo() -> PpoConfig:
    """The defaults of this loop. Episodes are short and of a known length, so nothing is discounted."""
    return PpoConfig(
        gamma=1.0,
        epochs=8,
        entropy_weight=0.05,
        entropy_weight_end=0.005,
        learning_rate=0.003,
        learning_rate_end=0.0003,
        max_grad_norm=5.0,
    )


@dataclass(frozen=True)
class GrowthSection:
    """Rollouts and updates of the controller."""

    controller: Controller = "ppo"
    """The controller that decides when and how hosts grow; ppo learns, the others are fixed rules."""
    updates: int = 60
    """Updates of a run: each plays a round of episodes and lets the controller learn from it once."""
    environments: int = 64
    """Episodes per update."""
    block: int = 16
    """Environments that are trained as one batch; the last bits of a result depend on it, never on the world size."""
    commit_every: int = 5
    """Updates from one commit to the next."""

    def __post_init__(self) -> None:
        for name in ("updates", "block", "commit_every"):
            require(getattr(self, name) >= 1, f"growth.{name}", getattr(self, name), "at least 1")
        whole = self.environments >= 1 and self.environments % self.block == 0
        require(whole, "growth.environments", self.environments, f"a multiple of growth.block, {self.block}")


@dataclass(frozen=True)
class EvaluationConfig:
    """Evaluation with the most probable actions, in environments that are never trained on."""

    every: int = 0
    """Updates between two evaluations; 0: only at the end."""
    environments: int = 64
    """Environments of an evaluation, over all ranks."""

    def __post_init__(self) -> None:
        require(self.every >= 0, "evaluation.every", self.every, "0 or more")
        require(self.environments >= 1, "evaluation.environments", self.environments, "at least 1")


@dataclass(frozen=True)
class GrowthConfig:
    """A controller that learns when and how networks should grow."""

    loop: Literal["growth"] = "growth"
    """The loop that these keys belong to."""
    seed: int = 17
    """Seed of every random stream of the run."""
    task: TaskConfig = field(default_factory=TaskConfig)
    host: HostConfig = field(default_factory=HostConfig)
    gates: GatesConfig = field(default_factory=GatesConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    ppo: PpoConfig = field(default_factory=growth_ppo)
    growth: GrowthSection = field(default_factory=GrowthSection)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    log: LogConfig = field(default_factory=LogConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
    fabric: FabricConfig = field(default_factory=FabricConfig)
    loggers: list[str | LoggerConfig] = field(default_factory=list)
    """Lightning loggers that receive every row besides ``log``: each a class path, or class_path and init_args."""
    log_level: Level = "info"
    """How much is printed; info: progress; warning, error: less; debug: also what libraries log."""

    def __post_init__(self) -> None:
        precision = self.fabric.precision
        require(precision in (None, "32-true", "32"), "fabric.precision", precision, "null: hosts have host.precision")
        taught = self.task.name in ("teacher", "futile")
        remedy = f"null; the teachers of task.name {self.task.name} are hosts of host.kind"
        require(not (taught and self.host.make), "host.make", self.host.make, remedy)
        obstacle = self.obstacle(self.growth.controller)
        require(not obstacle, "growth.controller", self.growth.controller, f"{obstacle}; take another controller")
        names = self.host.blueprints
        require(len(names) <= 5, "host.blueprints", names, "at most five: the observation has room for five")
        require(self.host.epochs >= 2, "host.epochs", self.host.epochs, "at least 2: the controller acts between epochs")

    def obstacle(self, controller: str) -> str:
        """Why ``controller`` cannot decide here; empty where it can."""
        if controller == "oracle" and self.task.name not in ("teacher", "futile"):
            return f"the right growth in the task {self.task.name} is not known"
        widens = self.host.kind == "mlp" and not self.host.make and self.task.name not in ("teacher", "futile")
        if controller in ("net2net", "gradmax") and not widens:
            return "it can widen only hosts of kind mlp that learn from data"
        trial, training = PROBES.get(controller, 0), self.gates.training_epochs
        if trial > training:
            return f"its trials of {trial} epochs need gates.training_epochs of {trial} or more, not {training}"
        return ""
