"""The work of rank 0 with the results of the ranks: record, log, commit, print."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from stageb.ppo.config import PpoLoopConfig
from stageb.ppo.environment import Environment
from stageb.ppo.ranks import Checkpoint
from stageb.ppo.rollout import Totals
from stageb.ppo.schedule import Schedule
from stageb.ppo.stored import WEIGHTS
from stageb.runs.figures import Curves, rounded, short
from stageb.store.commits import read_commit
from stageb.training import ppo
from stageb.training.run import NOT_SHAPING, LearningRun


def describe_curves(sample: Environment) -> Curves:
    """Return the curves of an environment like ``sample``."""
    shown = {name: title for name, title in sample.measures.items() if title}
    return Curves(
        step="steps",
        axis="steps of all environments",
        panels=(*shown.items(), *ppo.PANELS),
        tested={name: f"eval/{name}" for name in shown},
        apart="most probable actions",
    )


@dataclass(frozen=True)
class UpdateResult:
    """The result of an update, over all ranks."""

    figures: ppo.Figures
    ended: Totals  # episodes, since the last row
    divergence: float | None  # how far replicas are apart; None where they were not compared
    evaluation: Totals | None


def average(
    measures: Iterable[str], played: Totals, prefix: str = ""
) -> dict[str, float | int | None]:
    """Means over episodes, by name; None for each if there are none."""
    means = [each / played.games if played.games else None for each in played.sums]
    figures = {f"{prefix}{name}": rounded(mean) for name, mean in zip(measures, means, strict=True)}
    return {f"{prefix}games": played.games} | figures


@dataclass(frozen=True)
class Start:
    """Where a run starts or resumes."""

    schedule: Schedule
    done: int  # updates
    checkpoint: Checkpoint | None  # None: from the beginning


class PpoRun(LearningRun):
    """The state of a run on rank 0, and all that is written and printed about it."""

    config: PpoLoopConfig
    schedule: Schedule  # from ``begin`` on
    unit = "update"
    not_shaping = (*NOT_SHAPING, "runner.envs", "runner.envs_per_rank", "env.workers")
    limits = ("runner.total_steps",)

    def __init__(
        self,
        config: PpoLoopConfig,
        resolved_yaml: str,
        facts: Mapping[str, Any],
        sample: Environment,
    ) -> None:
        """``facts`` describe the machine, ``sample`` is an environment of one."""
        super().__init__(resolved_yaml, facts)
        self.config, self._sample = config, sample
        self.curves = describe_curves(sample)
        self._measure = next(iter(sample.measures))  # tells how good an agent is
        self._games = 0  # of all ranks; from ``begin`` on
        self._skipped = 0  # steps of the optimiser, since the run began
        # evaluation so far: after which update, and its first measure
        self._best: dict[str, Any] | None = None
        self._recorded = 0  # updates, up to the last row

    def shaping(self) -> Mapping[str, Any]:
        """See ``LearningRun``."""
        return {"games": self._games}

    def total(self) -> int:
        """See ``LearningRun``."""
        return Schedule.of(self.config, 1, self._games).updates

    def result(self, row: Mapping[str, Any]) -> str:
        """See ``LearningRun``."""
        done = self._state("update", 0)
        best = f"best agent, of update {row['update']} of {done}, " if row["update"] < done else ""
        played = f"{row['eval/games']} games with the most probable actions"
        return f"{best}after {short(row['steps'])} steps, {played}: {self._tell(row, 'eval/')}"

    def figures(self, row: Mapping[str, Any]) -> str:
        """See ``LearningRun``."""
        if row["eval/games"]:
            return f"evaluated: {self._tell(row, 'eval/')}"
        return self._tell(row) if row["games"] else "no game ended"

    def _tell(self, row: Mapping[str, Any], prefix: str = "") -> str:
        return self._sample.tell({name: row[f"{prefix}{name}"] for name in self._sample.measures})

    def begin(self, fresh: bool, games: int, world_size: int) -> Start | None:
        """Open the folder; None where nothing is left to do. ``games`` are for all ranks to play at
        a time, unless that is left to the loop and the run has begun with another number."""
        self._games = read_commit(self.config.output.folder)["config"].get("games", 0)
        if self.is_finished(fresh):
            return None
        if fresh or not self._games or self.config.runner.envs != "auto":
            self._games = games
        self.schedule = schedule = Schedule.of(self.config, world_size, self._games)
        done = self._recorded = self._open(fresh)
        self._skipped, self._best = self._state("skipped", 0), self._state("best", None)
        self._describe({"games": schedule.all_games, "per_rank_num_envs": schedule.games})
        games_of = f"{schedule.all_games:,} games on {world_size} rank{'s' * (world_size > 1)}"
        opening = f"{schedule.updates:,} updates from {schedule.steps:,} steps each, of {games_of}"
        self._show(schedule.updates, done, opening)
        return Start(schedule, done, self._checkpoint())

    def tell_ranks(self) -> None:
        """Say who plays what, once ranks were found equal."""
        schedule = self.schedule
        if schedule.world_size > 1:
            shares = [schedule.share(rank) for rank in range(schedule.world_size)]
            games = ", ".join(
                f"rank {rank} plays games {share[0]} to {share[-1]}"
                for rank, share in enumerate(shares)
            )
            self.progress.tells(
                f"DDP wraps the policy, whose parameters are equal on all ranks; {games}"
            )

    def record(self, update: int, result: UpdateResult, agent: Mapping[str, Tensor]) -> None:
        """Write down what an update came to, and the games that ended since the last row; keep the
        weights of an ``agent`` that no evaluation has found to be worse than an earlier one."""
        self._skipped += result.figures.skipped
        row = self._make_row(update, result)
        if (found := row[f"eval/{self._measure}"]) is not None and (
            not self._best or found >= self._best[self._measure]
        ):
            self._best = {"update": update + 1, self._measure: found}
            self._keep(agent)
        seconds, updates, self._recorded = self._lap(), update + 1 - self._recorded, update + 1
        fps = updates * self.schedule.steps / seconds
        times = {
            "time/global_fps": round(fps, 1),
            "time/sps": round(fps / self.schedule.world_size, 1),
        }
        self._add(row, times, times)
        said = f"{self.figures(row)}, {short(times['time/global_fps'])} steps/s"
        self.progress.show_row(update + 1, said, worth_a_line=bool(row["eval/games"]))

    def _make_row(self, update: int, result: UpdateResult) -> dict[str, Any]:
        """The row after an update."""
        schedule, measures = self.schedule, self._sample.measures
        return {
            "update": update + 1,
            "steps": (update + 1) * schedule.steps,
            **average(measures, result.ended),
            **{name: rounded(value) for name, value in asdict(result.figures).items()},
            "skipped_so_far": self._skipped,
            "learning_rate": rounded(schedule.learning_rate(update)),
            "entropy_weight": rounded(schedule.entropy_weight(update)),
            "ddp/replica_divergence": result.divergence,
            **average(measures, result.evaluation or Totals(0, (0.0,) * len(measures)), "eval/"),
        }

    def commit(self, update: int, checkpoint: Checkpoint) -> None:
        """Commit: from now on the run resumes here. It offers its best agent, or its newest before
        any was evaluated."""
        if not self._best:
            self._keep(checkpoint["agent"])
        self._commit(update + 1, checkpoint, skipped=self._skipped, best=self._best)

    def _keep(self, agent: Mapping[str, Tensor]) -> None:
        """Make these weights what the run offers from its next commit on."""
        weights = {name: each.contiguous() for name, each in agent.items()}
        self.journal.put(WEIGHTS, lambda path: save_file(weights, path))
