"""The config of the PPO loop: one frozen dataclass per section, keys as users write them.

Nothing here is ever mutated; what changes over a run (learning rate, weight of the entropy) is a
function of the update.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from stageb.config import AUTO_LOGGERS, LearningConfig, LoggerConfig, PpoConfig, require
from stageb.settings import CODE, DATA, Check, Section, at_least, setting

SMALLEST, LARGEST = 4, 30  # sides of a board
START_LENGTH = 3
MOST_STEPS = 4096  # of a rollout
SNAKE, TWENTY48 = "snake", "2048"
GYM_ID = Check(
    lambda name: ":" not in name,
    "snake, 2048, or an id of Gymnasium's; name code of your own in env.make",
)
OPTIONS = Check(
    lambda options: all(
        value is None or isinstance(value, bool | int | float | str) for value in options.values()
    ),
    "numbers, booleans, texts and nulls by name; what else it needs, a function of your own in "
    "env.make can give it",
)
GAMES = Check(
    lambda games: games == "auto" or (isinstance(games, int) and games >= 1),
    "a number of environments, or auto",
)
ACCELERATORS = "cpu or cuda for this loop, which needs float64"


@dataclass(frozen=True)
class EnvConfig(Section, at="env"):
    """The environment."""

    name: str = setting(SNAKE, GYM_ID, trust=DATA)
    """snake, 2048, or the id of one of Gymnasium's environments, such as CartPole-v1."""
    make: str | None = setting(None, trust=CODE)
    """Your own, in place of env.name: package.module:function, which makes one of Gymnasium's
    environments, a vector of them if it takes num_envs, or a stageb.ppo.environment.Environment if
    it takes seed, numbers and device; see docs/guides/own-environment.md."""
    options: dict[str, Any] = setting(dict, OPTIONS, trust=DATA)
    """Further arguments that it is made with: numbers, booleans, texts; Snake has its own section,
    game."""
    workers: int = setting(0, at_least(0, 1024))
    """Processes of each rank among which its games are dealt, for games of Gymnasium's that are
    slow; 0: its own alone."""
    normalize_rewards: bool = False
    """Divide rewards by the running deviation of discounted returns."""

    def check(self) -> None:
        takes = bool(self.make) or self.name not in (SNAKE, TWENTY48)
        self.require(
            takes or not self.workers,
            "workers",
            f"0 for env.name {self.name}, whose games are played all at once",
        )
        self.require(
            takes or not self.options,
            "options",
            f"none for env.name {self.name}; Snake has the section game",
        )

    @property
    def texts(self) -> dict[str, str]:
        """The options that may name something: a file, a model."""
        return {name: value for name, value in self.options.items() if isinstance(value, str)}

    @property
    def title(self) -> str:
        """Its name for people."""
        return self.make or self.name


@dataclass(frozen=True)
class GameConfig(Section, at="game"):
    """Snake and its rewards, for env.name snake."""

    size: int = setting(
        12, Check(lambda side: SMALLEST <= side <= LARGEST, f"{SMALLEST} to {LARGEST}")
    )
    """Cells along a side of the square board, 4 to 30."""
    patience: int | None = setting(
        None, Check(lambda steps: 1 <= steps <= 30_000, "1 to 30000 steps").or_null()
    )
    """Steps without food after which a game is cut off (truncated, not lost); null: twice the
    number of cells."""
    limit: int | None = setting(None, at_least(1).or_null())
    """Steps after which any game is cut off; null: none."""
    food: float = 1.0
    """Reward for eating."""
    death: float = -1.0
    """Reward for running into a wall or the snake's own body."""
    win: float = 0.0
    """Reward for filling the board, in addition to the last food's."""
    step: float = -0.001
    """Reward for every step, in addition to the others."""

    @property
    def cells(self) -> int:
        """Cells of the board."""
        return self.size**2

    @property
    def hunger(self) -> int:
        """Steps without food after which a game is cut off."""
        return self.patience if self.patience is not None else 2 * self.cells


@dataclass(frozen=True)
class AgentConfig(Section, at="agent"):
    """The network, with a policy and a value: for Snake a small residual CNN, else layers of
    tanh."""

    channels: int = setting(32, at_least(1))
    """Of Snake's CNN: channels of every convolution."""
    blocks: int = setting(3, at_least(0))
    """Residual blocks of two 3x3 convolutions each."""
    hidden: int = setting(256, at_least(1))
    """Width of every layer; of Snake's CNN, of the one that sees the whole board."""
    patch: int = setting(1, Check(lambda side: side in (1, 2, 3), "1, 2 or 3"))
    """Side, in cells, of the squares that it reads as one position: 1, 2 or 3."""
    layers: int = setting(2, at_least(0))
    """Layers, but for Snake's CNN."""
    shared: bool = False
    """Whether policy and value share these layers."""
    normalize: bool = False
    """Whether what they read has mean 0 and deviation 1, by running moments of all that was
    seen."""
    recurrent: int = setting(0, at_least(0))
    """Units of a GRU before these layers, which remembers what it saw earlier in an episode; 0:
    none."""
    make: str | None = setting(None, trust=CODE)
    """Your own: package.module:class, which inherits stageb.ppo.agents.ActorCritic."""


@dataclass(frozen=True)
class PpoRunnerConfig(Section, at="runner"):
    """Rollouts, batches and commits."""

    total_steps: int = setting(3_000_000_000, at_least(1))
    """Most steps of all environments together; a run makes whole updates."""
    envs: int | str = setting("auto", GAMES, trust=DATA)
    """Environments that run at a time, divided evenly among ranks; auto: as many as a device holds
    with ease, and 16 if they are Gymnasium's, each step of which takes its time."""
    envs_per_rank: int | None = setting(None, at_least(1).or_null())
    """In place of envs, the environments of each rank: more devices play more. Results then depend
    on how many there are."""
    rollout_steps: int = setting(64, at_least(1, MOST_STEPS))
    """Steps of every environment per update."""
    global_batch: int | None = setting(None, at_least(1).or_null())
    """Steps in a minibatch of the optimiser, over all ranks; null: an eighth of a rollout's, at
    most 16,384."""
    commit_every: int = setting(50, at_least(1))
    """Updates from one commit to the next."""
    log_every: int = setting(1, at_least(1))
    """Updates that a row of metrics.jsonl summarises."""
    compile: bool = False
    """Compile a step of all episodes, the network and its loss with torch.compile: takes a minute
    at the start, then runs faster; needs a C compiler."""
    divergence_every: int = setting(50, at_least(1))
    """Updates between two checks that all ranks hold the same weights, besides the check before
    every commit."""

    def check(self) -> None:
        one = self.envs_per_rank is None or self.envs == "auto"
        self.require(
            one,
            "envs_per_rank",
            "leave out runner.envs, which counts those of all ranks, or this key",
        )

    def count_envs(self, world_size: int) -> int | None:
        """Environments of so many ranks together; None: as many as a device holds with ease."""
        if self.envs_per_rank is not None:
            return self.envs_per_rank * world_size
        return self.envs if isinstance(self.envs, int) else None


@dataclass(frozen=True)
class EvaluationConfig(Section, at="evaluation"):
    """Evaluation in whole episodes with the most probable actions."""

    every: int = setting(0, at_least(0))
    """Updates between two evaluations; 0: only at the end."""
    episodes: int = setting(512, at_least(1))
    """Episodes of an evaluation, over all ranks."""
    limit: int | None = setting(None, at_least(1).or_null())
    """Steps after which an episode of an evaluation is cut off; null: its environment's own
    limit."""


@dataclass(frozen=True)
class PpoLoopConfig(LearningConfig):
    """One agent that learns by PPO, in Snake or any environment."""

    loop: Literal["ppo"] = "ppo"
    loggers: list[str | LoggerConfig] = setting(lambda: [AUTO_LOGGERS])
    """Lightning loggers that receive every row, each a class path, or class_path and init_args;
    auto, the default: CSV, and TensorBoard where its package is installed."""
    env: EnvConfig = field(default_factory=EnvConfig)
    game: GameConfig = field(default_factory=GameConfig)
    agent: AgentConfig = field(default_factory=AgentConfig)
    ppo: PpoConfig = field(default_factory=PpoConfig)
    runner: PpoRunnerConfig = field(default_factory=PpoRunnerConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def check(self) -> None:
        plain = self.env.title == SNAKE and not self.agent.make
        remedy = "0 for Snake, whose board tells all that there is to know"
        require(
            not (plain and self.agent.recurrent), "agent.recurrent", self.agent.recurrent, remedy
        )
        fine = self.fabric.accelerator in ("auto", "cpu", "cuda", "gpu")
        require(fine, "fabric.accelerator", self.fabric.accelerator, ACCELERATORS)
        precisions = (None, "32-true", "32", "bf16-mixed")
        precision = self.fabric.precision
        require(
            precision in precisions,
            "fabric.precision",
            precision,
            "32-true or bf16-mixed for this loop, or null",
        )
