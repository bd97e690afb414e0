"""What rank 0 does with the results of the ranks: record, log, commit, print."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from safetensors.torch import save_file

from stageb.runs.figures import rounded, short
from stageb.runs.logs import Curves, RowView
from stageb.snake.config import START_LENGTH, SnakeConfig
from stageb.snake.evaluate import WEIGHTS
from stageb.snake.game import GameTotals
from stageb.snake.ranks import Checkpoint
from stageb.snake.schedule import SnakeSchedule
from stageb.store.commits import read_commit
from stageb.training import ppo
from stageb.training.run import NOT_SHAPING, LearningRun

GROUPS = {  # how TensorBoard groups what rows call plainly
    **dict.fromkeys(("score", "fill", "win_rate", "death_rate", "cut_rate", "length", "games"), "games"),
    "skipped_so_far": "ppo",
    **ppo.GROUPS,
}
CURVES = Curves(
    step="steps",
    axis="steps of all environments",
    panels=(
        ("score", "foods a game"),
        ("win_rate", "games won"),
        ("length", "steps a game"),
        *ppo.PANELS,
    ),
    tested={"score": "eval/score", "win_rate": "eval/win_rate", "length": "eval/length"},
    apart="most probable actions",
)
VIEW = RowView(CURVES, GROUPS)


@dataclass(frozen=True)
class UpdateResult:
    """The result of an update, over all ranks."""

    figures: ppo.Figures
    ended: GameTotals  # games, since the last row
    divergence: float | None  # how far replicas are apart; None where they were not compared
    evaluation: GameTotals | None  # games of an evaluation


def make_row(schedule: SnakeSchedule, update: int, result: UpdateResult, skipped: int) -> dict[str, Any]:
    """The row after an update; ``skipped`` are steps of the optimiser since the run began."""
    cells = schedule.config.game.cells
    return {
        "update": update + 1,
        "steps": (update + 1) * schedule.steps,
        **average_games(result.ended, cells, ""),
        **{name: rounded(value) for name, value in asdict(result.figures).items()},
        "skipped_so_far": skipped,
        "learning_rate": rounded(schedule.learning_rate(update)),
        "entropy_weight": rounded(schedule.entropy_weight(update)),
        "ddp/replica_divergence": result.divergence,
        **average_games(result.evaluation or GameTotals(), cells, "eval/"),
    }


def average_games(played: GameTotals, cells: int, prefix: str) -> dict[str, float | int | None]:
    """Means over games, by name; None for each if there are no games."""
    games = played.games
    figures: dict[str, float | None] = dict.fromkeys(("score", "fill", "win_rate", "death_rate", "cut_rate", "length"))
    if games:
        figures = {
            "score": played.score / games,
            "fill": (played.score / games + START_LENGTH) / cells,
            "win_rate": played.won / games,
            "death_rate": played.died / games,
            "cut_rate": played.cut / games,
            "length": played.steps / games,
        }
    return {f"{prefix}games": games} | {f"{prefix}{name}": rounded(value) for name, value in figures.items()}


@dataclass(frozen=True)
class SnakeStart:
    """Where a run starts or resumes."""

    schedule: SnakeSchedule
    done: int  # updates
    checkpoint: Checkpoint | None  # None: from the beginning


class SnakeRun(LearningRun):
    """The state of a run on rank 0, and all that is written and printed about it."""

    config: SnakeConfig
    schedule: SnakeSchedule  # from ``begin`` on
    view, unit = VIEW, "update"
    not_shaping = (*NOT_SHAPING, "runner.per_rank_num_envs")

    def __init__(self, config: SnakeConfig, resolved_yaml: str, facts: Mapping[str, Any]) -> None:
        """``facts`` describe the machine."""
        super().__init__(resolved_yaml, facts)
        self.config = config
        self._foods = config.game.cells - START_LENGTH  # that a game can have
        self._games = 0  # of all ranks; from ``begin`` on
        self._skipped = 0  # steps of the optimiser, since the run began
        self._recorded = 0  # updates, up to the last row

    def shaping(self) -> Mapping[str, Any]:
        """See ``LearningRun``."""
        return {"games": self._games}

    def result(self, row: Mapping[str, Any]) -> str:
        """See ``LearningRun``."""
        return (
            f"after {short(row['steps'])} steps, {row['eval/games']} games with the most probable actions: "
            f"{row['eval/score']:.1f} of {self._foods} foods, {row['eval/win_rate']:.1%} won, "
            f"{row['eval/death_rate']:.1%} died, {row['eval/cut_rate']:.1%} cut off; {row['eval/length']:,.0f} steps a game"
        )

    def figures(self, row: Mapping[str, Any]) -> str:
        """See ``LearningRun``."""
        if row["eval/games"]:
            return (
                f"evaluated: {row['eval/score']:.1f} foods in {row['eval/length']:.0f} steps, {row['eval/win_rate']:.1%} won"
            )
        if row["games"]:
            return f"{row['score']:.2f} of {self._foods} foods in {row['length']:.0f} steps, {row['win_rate']:.1%} won"
        return "no game ended"

    def begin(self, fresh: bool, games: int, world_size: int) -> SnakeStart | None:
        """Open the folder; None where nothing is left to do. ``games`` are for all ranks to play at a time, unless that is
        left to the loop and the run has begun with another number."""
        self._games = read_commit(self.config.output.folder)["config"].get("games", 0)
        if self.is_finished(fresh):
            return None
        if fresh or not self._games or self.config.runner.per_rank_num_envs != "auto":
            self._games = games
        self.schedule = schedule = SnakeSchedule.of(self.config, world_size, self._games)
        done = self._recorded = self._open(fresh)
        self._skipped = self._state("skipped", 0)
        self._describe({"games": schedule.all_games, "per_rank_num_envs": schedule.games})
        games_of = f"{schedule.all_games:,} games on {world_size} rank{'s' * (world_size > 1)}"
        opening = f"{schedule.updates:,} updates from {schedule.steps:,} steps each, of {games_of}"
        self._show(schedule.updates, done, opening)
        return SnakeStart(schedule, done, self._checkpoint())

    def record(self, update: int, result: UpdateResult) -> None:
        """Write down what an update came to, and the games that ended since the last row."""
        self._skipped += result.figures.skipped
        row = make_row(self.schedule, update, result, self._skipped)
        seconds, updates, self._recorded = self._lap(), update + 1 - self._recorded, update + 1
        fps = updates * self.schedule.steps / seconds
        times = {"time/global_fps": round(fps, 1), "time/sps": round(fps / self.schedule.world_size, 1)}
        self._add(row, times, {"seconds": round(seconds, 3), **times})
        said = f"{self.figures(row)}, {short(times['time/global_fps'])} steps/s"
        self.progress.recorded(update + 1, said, worth_a_line=bool(row["eval/games"]))

    def commit(self, update: int, checkpoint: Checkpoint) -> None:
        """Commit: from now on the run resumes here."""
        weights = {name: each.contiguous() for name, each in checkpoint["agent"].items()}
        self.journal.put(WEIGHTS, lambda path: save_file(weights, path))
        self._commit(update + 1, checkpoint, skipped=self._skipped)
