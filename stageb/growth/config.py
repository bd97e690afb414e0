"""The config of the growth loop: one frozen dataclass per section, keys as users write them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from stageb.config import LearningConfig, PpoConfig, require
from stageb.growth.types import SLOTS
from stageb.settings import ABOVE_0, DATA, Check, Section, at_least, setting

Controller = Literal[
    "ppo", "probe-1", "probe-2", "heuristic", "random", "periodic", "static-small", "oracle"
]
DISTINCT = Check(lambda names: 0 < len(names) == len(set(names)), "at least one, none twice")
SOME_SLOTS = Check(
    lambda slots: 0 < len(slots) == len(set(slots)) and set(slots) <= set(SLOTS),
    "at least one of early, mid, late, none twice",
)
PROBES = {"probe-1": 1, "probe-2": 2}  # epochs of their trials


@dataclass(frozen=True)
class TaskConfig(Section, at="task"):
    """The data that hosts are trained on."""

    name: str = setting("teacher", trust=DATA)
    """digits, teacher or futile."""
    fit_examples: int | None = None
    """Training examples of a host; null: all that the task has."""
    validation_examples: int | None = None
    """Size of the validation set: fewer examples cost less and measure less precisely; null: all
    that the task has."""
    seeds: int = 1
    """For task.name teacher: how many seeds a teacher has, each in its own slot."""
    inner: Literal["teacher", "own"] = "teacher"
    """For task.name teacher: the initial inner weights of the right seed; teacher: those of the
    teacher's seed; own: drawn, as for any other seed."""

    def check(self) -> None:
        fine = self.seeds == 1 or (self.seeds in (2, 3) and self.name == "teacher")
        self.require(fine, "seeds", "1; or 2 or 3 for task.name teacher")
        fine = self.inner == "teacher" or self.name == "teacher"
        self.require(fine, "inner", "teacher; any other is for task.name teacher")


@dataclass(frozen=True)
class HostConfig(Section, at="host"):
    """The networks that are grown."""

    kind: Literal["mlp", "conv1d", "conv2d"] = "mlp"
    """Architecture of a host."""
    width: int = setting(
        16, Check(lambda width: 2 <= width <= 1024 and width % 2 == 0, "an even number, 2 to 1024")
    )
    """Features, or channels, of every stage."""
    blueprints: list[str] = setting(lambda: ["norm", "mlp", "low_rank"], DISTINCT, trust=DATA)
    """The seed modules that may germinate, among those that the host supports."""
    epochs: int = setting(20, at_least(1))
    """Epochs of an episode, which trains one host from the start."""
    steps_per_epoch: int = setting(8, at_least(1))
    """Optimiser steps of the host per epoch."""
    batch_size: int = setting(64, at_least(1))
    """Examples per optimiser step."""
    learning_rate: float = setting(0.01, ABOVE_0)
    """Learning rate of the host's optimiser, Adam."""
    slots: list[str] = setting(lambda: ["early", "mid", "late"], SOME_SLOTS, trust=DATA)
    """The slots in which seeds may germinate, among early, mid and late."""
    seed_learning_rate: float | None = setting(None, ABOVE_0.or_null())
    """Learning rate of seeds; null: that of the host."""


@dataclass(frozen=True)
class GatesConfig(Section, at="gates"):
    """When a seed may enter its next stage: thresholds of the gates G0 to G5
    (stageb/growth/lifecycle.py)."""

    training_epochs: int = setting(2, at_least(1))
    """Epochs that a seed trains beside the host before it blends in: gate G2."""
    blending_epochs: int = setting(3, at_least(1))
    """Epochs in which the weight of a seed in the host rises from 0 to 1: gate G3."""
    probation_epochs: int = setting(1, at_least(1))
    """Epochs at full weight before a seed may stay for good: gate G4."""
    least_contribution: float = setting(
        0.0, Check(lambda share: -1 <= share < 1, "-1 to below 1, a share of the examples")
    )
    """A seed may stay for good only if it adds more than this to the validation accuracy: gate
    G5."""
    embargo_epochs: int = setting(1, at_least(1))
    """Epochs that a slot stays closed after a cull."""

    @property
    def shortest_life(self) -> int:
        """Epochs from germination to the first in whose end the seed may be kept."""
        return self.training_epochs + self.blending_epochs + self.probation_epochs


@dataclass(frozen=True)
class RewardConfig(Section, at="reward"):
    """The reward of the controller (stageb/growth/views.py), in units of accuracy, 0 to 1."""

    size_price: float = setting(0.05, at_least(0))
    """Lambda of the objective at the end of an episode: accuracy - lambda x ln(1 + extra / host
    parameters)."""
    shaping: float = setting(1.0, at_least(0))
    """Weight of potential-based shaping, which pays changes of the objective every epoch; it
    changes no optimal policy."""


@dataclass(frozen=True)
class PolicyConfig(Section, at="policy"):
    """The policy network."""

    hidden: int = setting(64, at_least(1))
    """Width of its hidden layers."""
    minibatches: int = setting(4, at_least(1))
    """Minibatches, and so optimiser steps, per pass over a round."""


def growth_ppo() -> PpoConfig:
    """The defaults of this loop. Episodes are short and of a known length, so nothing is
    discounted."""
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
class GrowthSection(Section, at="growth"):
    """Rollouts and updates of the controller."""

    controller: Controller = "ppo"
    """The controller that decides when and how hosts grow; ppo learns, the others are fixed
    rules."""
    updates: int = setting(60, at_least(1))
    """Updates of a run: each plays a round of episodes and lets the controller learn from it
    once."""
    environments: int = setting(64, at_least(1))
    """Episodes per update."""
    block: int = setting(16, at_least(1))
    """Environments that are trained as one batch; the last bits of a result depend on it, never on
    the world size."""
    commit_every: int = setting(5, at_least(1))
    """Updates from one commit to the next."""

    def check(self) -> None:
        self.require(
            self.environments % self.block == 0,
            "environments",
            f"a multiple of growth.block, {self.block}",
        )


@dataclass(frozen=True)
class GrowthEvaluationConfig(Section, at="evaluation"):
    """Evaluation with the most probable actions, in environments that are never trained on."""

    every: int = setting(0, at_least(0))
    """Updates between two evaluations; 0: only at the end."""
    environments: int = setting(64, at_least(1))
    """Environments of an evaluation, over all ranks."""


@dataclass(frozen=True)
class GrowthConfig(LearningConfig):
    """A controller that learns when and how networks should grow."""

    loop: Literal["growth"] = "growth"
    task: TaskConfig = field(default_factory=TaskConfig)
    host: HostConfig = field(default_factory=HostConfig)
    gates: GatesConfig = field(default_factory=GatesConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    ppo: PpoConfig = field(default_factory=growth_ppo)
    growth: GrowthSection = field(default_factory=GrowthSection)
    evaluation: GrowthEvaluationConfig = field(default_factory=GrowthEvaluationConfig)

    def check(self) -> None:
        precision = self.fabric.precision
        require(
            precision in (None, "32-true", "32"),
            "fabric.precision",
            precision,
            "null: hosts are trained in float32",
        )
        obstacle = self.obstacle(self.growth.controller)
        require(
            not obstacle,
            "growth.controller",
            self.growth.controller,
            f"{obstacle}; take another controller",
        )
        names = self.host.blueprints
        require(
            len(names) <= 5,
            "host.blueprints",
            names,
            "at most five: the observation has room for five",
        )
        require(
            self.host.epochs >= 2,
            "host.epochs",
            self.host.epochs,
            "at least 2: the controller acts between epochs",
        )

    def obstacle(self, controller: str) -> str:
        """Why ``controller`` cannot decide here; empty where it can."""
        if controller == "oracle" and self.task.name not in ("teacher", "futile"):
            return f"the right growth in the task {self.task.name} is not known"
        trial, training = PROBES.get(controller, 0), self.gates.training_epochs
        if trial > training:
            return (
                f"its trials of {trial} epochs need gates.training_epochs of {trial} or "
                f"more, not {training}"
            )
        return ""
