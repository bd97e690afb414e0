"""The work of rank 0 with the results of the ranks: learn, record, log, commit, print."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from safetensors.torch import save_file

from stageb.growth.config import GrowthConfig, GrowthSection
from stageb.growth.deciding import WEIGHTS, Snapshot, take_snapshot
from stageb.growth.policy import GrowthRollout, PolicyLearner
from stageb.growth.ranks import GrowthSchedule, RoundResult
from stageb.growth.types import SLOTS, EpisodeResult
from stageb.runs.figures import Curves, rounded, short
from stageb.training.ppo import PANELS, Figures
from stageb.training.run import LearningRun
from stageb.training.schedules import entropy_weight, learning_rate

MEANS = ("objective", "accuracy", "reward", "extra", "germinated", "fossilized", "culled")
LEARNT = (
    "policy_loss value_loss entropy approx_kl clip_frac grad_norm explained_variance "
    "skipped epochs".split()
)
CURVES = Curves(
    step="episodes",
    axis="episodes",
    panels=(
        ("objective", "objective J (validation)"),
        ("accuracy", "validation accuracy at episodes' ends"),
        ("fossilized", "seeds kept an episode"),
        *PANELS,
    ),
    tested={
        "objective": "eval/objective",
        "accuracy": "eval/accuracy",
        "fossilized": "eval/fossilized",
    },
    apart="held-out environments",
)


def make_row(
    schedule: GrowthSchedule,
    update: int,
    ended: Sequence[EpisodeResult],
    so_far: Mapping[str, float],
    figures: Figures | None,
    evaluation: Sequence[EpisodeResult],
) -> dict[str, Any]:
    """The row after an update, whose episodes have ``ended``: ``so_far`` are FLOPs and skipped
    steps since the run began, ``figures`` what was learnt, if anything learns, ``evaluation`` the
    episodes of an evaluation."""
    ppo, done, learns = schedule.config.ppo, schedule.done(update), figures is not None
    return {
        "update": update + 1,
        "episodes": (update + 1) * schedule.config.growth.environments,
        **average_episodes(ended),
        "flops": rounded(sum(each.flops for each in ended)),
        "flops_so_far": rounded(so_far["flops"]),
        "host_skipped_so_far": so_far["skipped"],
        **{name: rounded(getattr(figures, name)) if figures else None for name in LEARNT},
        "learning_rate": rounded(learning_rate(ppo, done)) if learns else None,
        "entropy_weight": rounded(entropy_weight(ppo, done)) if learns else None,
        "eval/episodes": len(evaluation),
        **average_episodes(evaluation, "eval/"),
    }


def average_episodes(
    ended: Sequence[EpisodeResult], prefix: str = ""
) -> dict[str, float | int | None]:
    """Means over episodes, by name; None for each if there are no episodes.

    ``right`` is the share of those whose right slot and blueprint are known that kept exactly this
    one seed; ``none`` the share that kept no seed.
    """
    known = [each for each in ended if each.truth is not None]
    means: dict[str, float | None] = dict.fromkeys((*MEANS, "right", "none"))
    if ended:
        means = {name: sum(getattr(each, name) for each in ended) / len(ended) for name in MEANS}
        means["none"] = sum(not each.kept for each in ended) / len(ended)
        means["right"] = (
            sum(each.kept == each.truth for each in known) / len(known) if known else None
        )
    return {f"{prefix}{name}": rounded(value) for name, value in means.items()}


def make_episode_row(
    update: int, ended: EpisodeResult, blueprints: Sequence[str]
) -> dict[str, Any]:
    """A row of episodes.jsonl."""
    plain = {
        name: rounded(value) if isinstance(value, float) else value
        for name, value in asdict(ended).items()
    }
    named = {"kept": [_name_seed(each, blueprints) for each in ended.kept]}
    truth = [_name_seed(each, blueprints) for each in ended.truth or ()]
    return {
        "update": update + 1,
        **plain,
        **named,
        "truth": truth if len(truth) > 1 else next(iter(truth), None),
    }


def _name_seed(seed: tuple[int, int], blueprints: Sequence[str]) -> dict[str, str]:
    slot, blueprint = seed
    return {"slot": SLOTS[slot], "blueprint": blueprints[blueprint]}


def describe_assignment(
    places: Sequence[str], environments: Sequence[int], growth: GrowthSection
) -> list[str]:
    """The assignment of an update's environments in lines: ``places`` are the ranks' devices. A
    lopsided one is said."""
    lines = [
        f"rank {rank} on {place}: {count} environments of an update, in "
        f"{-(-count // growth.block)} blocks"
        for rank, (place, count) in enumerate(zip(places, environments, strict=True))
    ]
    if len(set(environments)) > 1:
        idle = 1 - sum(environments) / (max(environments) * len(environments))
        lines.append(
            f"lopsided: ranks wait for the busiest, and {idle:.0%} of their time is idle; make "
            f"the number of blocks (growth.environments / growth.block) a multiple of "
            f"{len(environments)}"
        )
    return lines


EPISODES = "episodes.jsonl"


@dataclass(frozen=True)
class GrowthStart:
    """Where a run starts or resumes."""

    done: int  # updates
    snapshot: Snapshot  # what decides in the next


class GrowthRun(LearningRun):
    """The state of a run on rank 0, and all that is written and printed about it."""

    config: GrowthConfig
    curves, unit, limits = CURVES, "update", ("growth.updates",)

    def __init__(self, config: GrowthConfig, resolved_yaml: str, facts: Mapping[str, Any]) -> None:
        """``facts`` describe the machine."""
        super().__init__(resolved_yaml, facts)
        self.config, self.schedule = config, GrowthSchedule(config)
        # from when it begins on, where the controller learns
        self.learner: PolicyLearner | None = None
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
        right = (
            ""
            if row["eval/right"] is None
            else f", the right slot and blueprint in {row['eval/right']:.0%}"
        )
        return (
            f"after {row['episodes']:,} episodes, {short(row['flops_so_far'])}FLOP; "
            f"{row['eval/episodes']} held out: J {row['eval/objective']:.3f}, validation accuracy "
            f"{row['eval/accuracy']:.1%}, {row['eval/fossilized']:.2f} seeds kept{right}"
        )

    def figures(self, row: Mapping[str, Any]) -> str:
        """See ``LearningRun``."""
        said = (
            f"J {row['objective']:.3f}, validation accuracy {row['accuracy']:.1%}, "
            f"{row['fossilized']:.2f} seeds kept"
        )
        if row["explained_variance"] is not None:
            said += f", explained variance {row['explained_variance']:.2f}"
        return (
            said
            if row["eval/objective"] is None
            else f"{said}; held out: J {row['eval/objective']:.3f}"
        )

    def begin(self, fresh: bool, places: Sequence[str]) -> GrowthStart | None:
        """Open the folder; None where nothing is left to do. ``places`` are the ranks' devices."""
        if self.is_finished(fresh):
            return None
        done = self._open(fresh)
        self._so_far = self._state("so_far", self._so_far)
        if self.config.growth.controller == "ppo":
            self.learner = PolicyLearner(self.config, places[0])
            if checkpoint := self._checkpoint():
                self.learner.load(checkpoint)
        shares = self.schedule.shares(len(places))
        self._describe(
            {
                "ranks": [
                    {"device": place, "environments": n}
                    for place, n in zip(places, shares, strict=True)
                ]
            }
        )
        growth, host = self.config.growth, self.config.host
        opening = (
            f"{growth.updates:,} updates of {growth.environments} environments each: "
            f"{self.config.task.name}, {host.kind} hosts, {host.epochs} epochs; controller "
            f"{growth.controller}"
        )
        also = describe_assignment(places, shares, growth)
        self._show(self.schedule.updates, done, opening, also)
        return GrowthStart(done, self._snapshot())

    def learn(self, update: int, result: RoundResult) -> Snapshot:
        """Learn from an update's episodes, if anything learns; what decides in the next."""
        begun = time.monotonic()
        if self.learner:
            self._figures = self.learner.learn(
                GrowthRollout.join(result.rollouts), update, self.schedule.done(update)
            )
        self._learn_s = round(time.monotonic() - begun, 3)
        return self._snapshot()

    def record(self, update: int, result: RoundResult, evaluation: RoundResult | None) -> None:
        """Write down what an update came to, episode by episode and on average."""
        for name in ("flops", "skipped"):
            self._so_far = {
                **self._so_far,
                name: self._so_far[name] + sum(getattr(each, name) for each in result.results),
            }
        held_out = evaluation.results if evaluation else ()
        row = make_row(self.schedule, update, result.results, self._so_far, self._figures, held_out)
        blueprints = self.config.host.blueprints
        self.journal.append(
            EPISODES, [make_episode_row(update, each, blueprints) for each in result.results]
        )
        seconds = self._lap()
        times = {"time/episodes_per_s": round(self.config.growth.environments / seconds, 2)}
        self._add(row, times, {"learn_s": self._learn_s, **times, "ranks": result.ranks})
        said = f"{self.figures(row)}, {short(times['time/episodes_per_s'])} episodes/s"
        self.progress.show_row(update + 1, said, worth_a_line=evaluation is not None)

    def commit(self, update: int) -> None:
        """Commit: from now on the run resumes here."""
        if self.learner:
            weights = take_snapshot(self.learner)
            self.journal.put(WEIGHTS, lambda path: save_file(weights, path))
        self._commit(update + 1, self.learner and self.learner.state(), so_far=self._so_far)

    def _snapshot(self) -> Snapshot:
        return take_snapshot(self.learner) if self.learner else {}
