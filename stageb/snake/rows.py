"""The rows of a run's files: the figures of an update."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from stageb.runs.figures import rounded
from stageb.runs.logs import Curves, RowView
from stageb.snake.config import START_LENGTH
from stageb.snake.schedule import Schedule
from stageb.snake.types import GameTotals
from stageb.training.ppo import Figures

GROUPS = {  # how TensorBoard groups what rows call plainly
    **dict.fromkeys(("score", "fill", "win_rate", "cut_rate", "length", "games"), "games"),
    **dict.fromkeys(("policy_loss", "value_loss"), "losses"),
    **dict.fromkeys(("entropy", "approx_kl", "clip_frac", "explained_variance", "grad_norm", "epochs"), "ppo"),
    **dict.fromkeys(("skipped", "skipped_so_far", "learning_rate", "entropy_weight"), "ppo"),
}
CURVES = Curves(
    step="steps",
    axis="steps of all environments",
    panels=(
        ("score", "foods a game"),
        ("win_rate", "games won"),
        ("length", "steps a game"),
        ("entropy", "entropy (nats)"),
        ("explained_variance", "explained variance"),
        ("approx_kl", "KL(old, new)"),
    ),
    tested={"score": "eval/score", "win_rate": "eval/win_rate", "length": "eval/length"},
    apart="most probable actions",
)
VIEW = RowView(CURVES, GROUPS)


@dataclass(frozen=True)
class UpdateResult:
    """The result of an update, over all ranks."""

    figures: Figures
    ended: GameTotals  # games, since the last row
    divergence: float | None  # how far replicas are apart; None where they were not compared
    evaluation: GameTotals | None  # games of an evaluation


def make_row(schedule: Schedule, update: int, result: UpdateResult, skipped: int) -> dict[str, Any]:
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
    figures: dict[str, float | None] = dict.fromkeys(("score", "fill", "win_rate", "cut_rate", "length"))
    if games:
        figures = {
            "score": played.score / games,
            "fill": (played.score / games + START_LENGTH) / cells,
            "win_rate": played.won / games,
            "cut_rate": played.cut / games,
            "length": played.steps / games,
        }
    return {f"{prefix}games": games} | {f"{prefix}{name}": rounded(value) for name, value in figures.items()}
