"""What rank 0 does with the results of the ranks: learn, record, log, commit, print."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from safetensors.torch import save_file

from stageb.growth import rows
from stageb.growth.config import GrowthConfig, GrowthSection
from stageb.growth.deciding import WEIGHTS, Snapshot, take_snapshot
from stageb.growth.learner import Learner, Rollout
from stageb.growth.ranks import RoundResult
from stageb.growth.schedule import Schedule
from stageb.runs.figures import short
from stageb.runs.run import METRICS
from stageb.training.ppo import Figures
from stageb.training.run import LearningRun


def describe_start(config: GrowthConfig, schedule: Schedule, done: int, last: Mapping[str, Any] | None) -> str:
    """The first line, when ``done`` updates are done; ``last`` is the row of the last of them."""
    place = f"{config.output.root}/{config.output.run_name}"
    if last:
        return f"{place}: resuming after {done} of {schedule.updates} updates, {describe_figures(last)}"
    growth, host = config.growth, config.host
    return (
        f"{place}: {schedule.updates:,} updates of {growth.environments} environments each: {config.task.name}, "
        f"{host.kind} hosts, {host.epochs} epochs; controller {growth.controller}"
    )


def describe_assignment(places: Sequence[str], environments: Sequence[int], growth: GrowthSection) -> list[str]:
    """The assignment of an update's environments in lines: ``places`` are the ranks' devices. A lopsided one is said."""
    lines = [
        f"rank {rank} on {place}: {count} environments of an update, in {-(-count // growth.block)} blocks"
        for rank, (place, count) in enumerate(zip(places, environments, strict=True))
    ]
    if len(set(environments)) > 1:
        idle = 1 - sum(environments) / (max(environments) * len(environments))
        lines.append(
            f"lopsided: ranks wait for the busiest, and {idle:.0%} of their time is idle; make the number of blocks "
            f"(growth.environments / growth.block) a multiple of {len(environments)}"
        )
    return lines


def describe_figures(row: Mapping[str, Any]) -> str:
    """The figures of episodes, in a few words."""
    said = f"J {row['objective']:.3f}, validation accuracy {row['accuracy']:.1%}, {row['fossilized']:.2f} seeds kept"
    if row["explained_variance"] is not None:
        said += f", explained variance {row['explained_variance']:.2f}"
    return said if row["eval/objective"] is None else f"{said}; held out: J {row['eval/objective']:.3f}"


def describe_result(row: Mapping[str, Any]) -> str:
    """The result of the run whose last row is ``row``, in a few words."""
    right = "" if row["eval/right"] is None else f", the right slot and blueprint in {row['eval/right']:.0%}"
    return (
        f"after {row['episodes']:,} episodes, {short(row['flops_so_far'])}FLOP; {row['eval/episodes']} held out: "
        f"J {row['eval/objective']:.3f}, validation accuracy {row['eval/accuracy']:.1%}, "
        f"{row['eval/fossilized']:.2f} seeds kept{right}"
    )


EPISODES = "episodes.jsonl"


@dataclass(frozen=True)
class Start:
    """Where a run starts or resumes."""

    done: int  # updates
    snapshot: Snapshot  # what decides in the next


class Run(LearningRun):
    """The state of a run on rank 0, and all that is written and printed about it."""

    config: GrowthConfig
    view, unit, limits = rows.VIEW, "update", ("growth.updates",)

    def __init__(self, config: GrowthConfig, resolved_yaml: str, facts: Mapping[str, Any]) -> None:
        """``facts`` describe the machine."""
        super().__init__(resolved_yaml, facts)
        self.config, self.schedule = config, Schedule(config)
        self.learner: Learner | None = None  # from when it begins on, where the controller learns
        self._so_far: dict[str, Any] = {"flops": 0.0, "skipped": 0}  # since the run began
        self._figures: Figures | None = None  # what was learnt in the last update
        self._learn_s = 0.0  # seconds that this took

    def shaping(self) -> Mapping[str, Any]:
        """See ``LearningRun``."""
        return {"growth": {**asdict(self.config.growth), "updates": self.schedule.updates}}

    def total(self) -> int:
        """See ``LearningRun``."""
        return self.schedule.updates

    def result(self, row: Mapping[str, Any]) -> str:
        """See ``LearningRun``."""
        return describe_result(row)

    def begin(self, fresh: bool, places: Sequence[str]) -> Start | None:
        """Open the folder; None where nothing is left to do. ``places`` are the ranks' devices."""
        if self.is_finished(fresh):
            return None
        done = self._open(fresh)
        if self.journal.raised:
            self.journal.replace("config.yaml", self._yaml)
        self._so_far = self._state("so_far", self._so_far)
        if self.config.growth.controller == "ppo":
            self.learner = Learner(self.config, places[0])
            if checkpoint := self._checkpoint():
                self.learner.load(checkpoint)
        shares = self.schedule.shares(len(places))
        self._describe({"ranks": [{"device": place, "environments": n} for place, n in zip(places, shares, strict=True)]})
        held = self.journal.rows(METRICS)
        opening = describe_start(self.config, self.schedule, done, held[-1] if held else None)
        also = describe_assignment(places, shares, self.config.growth)
        self._show(self.schedule.updates, done, opening, also)
        return Start(done, self._snapshot())

    def learn(self, update: int, result: RoundResult) -> Snapshot:
        """Learn from an update's episodes, if anything learns; what decides in the next."""
        begun = time.monotonic()
        if self.learner:
            self._figures = self.learner.learn(Rollout.join(result.rollouts), update, self.schedule.done(update))
        self._learn_s = round(time.monotonic() - begun, 3)
        return self._snapshot()

    def record(self, update: int, result: RoundResult, evaluation: RoundResult | None) -> None:
        """Write down what an update came to, episode by episode and on average."""
        for name in ("flops", "skipped"):
            self._so_far = {**self._so_far, name: self._so_far[name] + sum(getattr(each, name) for each in result.results)}
        held_out = evaluation.results if evaluation else ()
        row = rows.make_row(self.schedule, update, result.results, self._so_far, self._figures, held_out)
        blueprints = self.config.host.blueprints
        self.journal.append(EPISODES, [rows.make_episode_row(update, each, blueprints) for each in result.results])
        seconds = self._lap()
        times = {"time/episodes_per_s": round(self.config.growth.environments / seconds, 2)}
        took = {"seconds": round(seconds, 3), "learn_s": self._learn_s}
        self._add(row, times, {**took, **times, "ranks": result.ranks})
        said = f"{describe_figures(row)}, {short(times['time/episodes_per_s'])} episodes/s"
        self.progress.recorded(update + 1, said, worth_a_line=evaluation is not None)

    def commit(self, update: int) -> None:
        """Commit: from now on the run resumes here."""
        if self.learner:
            weights = take_snapshot(self.learner)
            self.journal.put(WEIGHTS, lambda path: save_file(weights, path))
        self._commit(update + 1, self.learner and self.learner.state(), so_far=self._so_far)

    def _snapshot(self) -> Snapshot:
        return take_snapshot(self.learner) if self.learner else {}
