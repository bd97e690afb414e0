"""The config of the Snake loop: one frozen dataclass per section, keys as users write them.

Nothing here is ever mutated; what changes over a run (learning rate, weight of the entropy) is a function of the update.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from stageb.config import FabricConfig, Level, LogConfig, LoggerConfig, OutputConfig, PpoConfig, require

SMALLEST, LARGEST = 4, 15  # sides of a board; an age, at most the number of cells, must fit a byte beside the food's mark
FOOD = 255  # that mark, in a grid
START_LENGTH = 3
MOST_STEPS = 4096  # of a rollout
ACCELERATORS = "cpu or cuda for this loop, which needs float64"


@dataclass(frozen=True)
class GameConfig:
    """The game and its rewards."""

    size: int = 12
    """Cells along a side of the square board, 4 to 15."""
    patience: int | None = None
    """Steps without food after which a game is cut off (truncated, not lost); null: twice the number of cells."""
    food: float = 1.0
    """Reward for eating."""
    death: float = -1.0
    """Reward for running into a wall or the snake's own body."""
    step: float = -0.001
    """Reward for every step, in addition to the others."""
    approach: float = 0.0
    """Reward for every cell that the head moves nearer to the food, and penalty for every cell that it moves away."""

    def __post_init__(self) -> None:
        require(SMALLEST <= self.size <= LARGEST, "game.size", self.size, f"{SMALLEST} to {LARGEST}")
        patience = self.patience
        require(patience is None or 1 <= patience <= 30_000, "game.patience", patience, "1 to 30000 steps, or null")

    @property
    def cells(self) -> int:
        """Cells of the board."""
        return self.size**2

    @property
    def hunger(self) -> int:
        """Steps without food after which a game is cut off."""
        return self.patience if self.patience is not None else 2 * self.cells


@dataclass(frozen=True)
class AgentConfig:
    """The network: a small residual CNN with a policy and a value."""

    channels: int = 32
    """Channels of every convolution."""
    blocks: int = 3
    """Residual blocks of two 3x3 convolutions each."""
    hidden: int = 256
    """Width of the layer that sees the whole board."""
    patch: int = 1
    """Side, in cells, of the squares that the network reads as one position: 1, 2 or 3."""

    def __post_init__(self) -> None:
        require(self.channels >= 1, "agent.channels", self.channels, "at least 1")
        require(self.blocks >= 0, "agent.blocks", self.blocks, "0 or more")
        require(self.hidden >= 1, "agent.hidden", self.hidden, "at least 1")
        require(self.patch in (1, 2, 3), "agent.patch", self.patch, "1, 2 or 3")


@dataclass(frozen=True)
class RunnerConfig:
    """Rollouts, batches and commits."""

    total_steps: int = 3_000_000_000
    """Most steps of all environments together; a run makes whole updates."""
    per_rank_num_envs: int | str = "auto"
    """Games that a rank plays at a time; auto: the same total at every world size, divided evenly among ranks."""
    rollout_steps: int = 64
    """Steps of every environment per update."""
    global_batch: int = 16_384
    """Steps in a minibatch of the optimiser, over all ranks."""
    commit_every: int = 50
    """Updates from one commit to the next."""
    log_every: int = 1
    """Updates that a row of metrics.jsonl summarises."""
    compile: bool = False
    """Compile the network with torch.compile: takes a minute at the start, then runs faster; needs a C compiler."""
    divergence_every: int = 50
    """Updates between two checks that all ranks hold the same weights, besides the check before every commit."""

    def __post_init__(self) -> None:
        given = self.per_rank_num_envs
        fine = given == "auto" or (isinstance(given, int) and given >= 1)
        require(fine, "runner.per_rank_num_envs", given, "a number of games, or auto")
        require(self.rollout_steps <= MOST_STEPS, "runner.rollout_steps", self.rollout_steps, f"at most {MOST_STEPS}")
        for name in ("total_steps", "rollout_steps", "global_batch", "commit_every", "log_every", "divergence_every"):
            require(getattr(self, name) >= 1, f"runner.{name}", getattr(self, name), "at least 1")


@dataclass(frozen=True)
class EvaluationConfig:
    """Evaluation in whole games with the most probable actions."""

    every: int = 0
    """Updates between two evaluations; 0: only at the end."""
    episodes: int = 512
    """Games of an evaluation, over all ranks."""

    def __post_init__(self) -> None:
        require(self.every >= 0, "evaluation.every", self.every, "0 or more")
        require(self.episodes >= 1, "evaluation.episodes", self.episodes, "at least 1")


@dataclass(frozen=True)
class SnakeConfig:
    """One agent that learns to play Snake with PPO."""

    loop: Literal["snake"] = "snake"
    """The loop that these keys belong to."""
    seed: int = 17
    """Seed of every random stream of the run."""
    game: GameConfig = field(default_factory=GameConfig)
    agent: AgentConfig = field(default_factory=AgentConfig)
    ppo: PpoConfig = field(default_factory=PpoConfig)
    runner: RunnerConfig = field(default_factory=RunnerConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    log: LogConfig = field(default_factory=LogConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
    fabric: FabricConfig = field(default_factory=FabricConfig)
    loggers: list[str | LoggerConfig] = field(default_factory=list)
    """Lightning loggers that receive every row besides ``log``: each a class path, or class_path and init_args."""
    log_level: Level = "info"
    """How much is printed; info: progress; warning, error: less; debug: also what libraries log."""

    def __post_init__(self) -> None:
        fine = self.fabric.accelerator in ("auto", "cpu", "cuda", "gpu")
        require(fine, "fabric.accelerator", self.fabric.accelerator, ACCELERATORS)
        precisions = (None, "32-true", "32", "bf16-mixed")
        precision = self.fabric.precision
        require(precision in precisions, "fabric.precision", precision, "32-true or bf16-mixed for this loop, or null")
