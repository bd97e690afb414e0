"""The rows of a run's files: the figures of an update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from stageb.growth.schedule import Schedule
from stageb.growth.types import SLOTS, EpisodeResult
from stageb.runs.figures import rounded
from stageb.runs.logs import Curves, RowView
from stageb.training.ppo import Figures
from stageb.training.schedules import entropy_weight, learning_rate

MEANS = ("objective", "accuracy", "reward", "extra", "germinated", "fossilized", "culled")
LEARNT = "policy_loss value_loss entropy approx_kl clip_frac grad_norm explained_variance skipped epochs".split()
GROUPS = {  # how TensorBoard groups what rows call plainly
    **dict.fromkeys((*MEANS, "right", "none"), "episodes"),
    **dict.fromkeys(("flops", "flops_so_far", "host_skipped_so_far"), "hosts"),
    **dict.fromkeys(("policy_loss", "value_loss"), "losses"),
    **dict.fromkeys(("entropy", "approx_kl", "clip_frac", "explained_variance", "grad_norm", "epochs"), "ppo"),
    **dict.fromkeys(("skipped", "learning_rate", "entropy_weight"), "ppo"),
}
CURVES = Curves(
    step="episodes",
    axis="episodes",
    panels=(
        ("objective", "objective J (validation)"),
        ("accuracy", "validation accuracy at episodes' ends"),
        ("fossilized", "seeds kept an episode"),
        ("entropy", "entropy (nats)"),
        ("explained_variance", "explained variance"),
        ("approx_kl", "KL(old, new)"),
    ),
    tested={"objective": "eval/objective", "accuracy": "eval/accuracy", "fossilized": "eval/fossilized"},
    apart="held-out environments",
)


VIEW = RowView(CURVES, GROUPS)


def make_row(
    schedule: Schedule,
    update: int,
    ended: Sequence[EpisodeResult],
    so_far: Mapping[str, float],
    figures: Figures | None,
    evaluation: Sequence[EpisodeResult],
) -> dict[str, Any]:
    """The row after an update, whose episodes have ``ended``: ``so_far`` are FLOPs and skipped steps since the run began,
    ``figures`` what was learnt, if anything learns, ``evaluation`` the episodes of an evaluation."""
    ppo, done, learns = schedule.config.ppo, schedule.done(update), figures is not None
    return {
        "update": update + 1,
        "episodes": (update + 1) * schedule.config.growth.environments,
        **average_episodes(ended),
        "flops": rounded(sum(each.flops for each in ended)),
        "flops_so_far": rounded(so_far["flops"]),
        "host_skipped_so_far": so_far["skipped"],
        **list_learning_figures(asdict(figures) if figures else None),
        "learning_rate": rounded(learning_rate(ppo, done)) if learns else None,
        "entropy_weight": rounded(entropy_weight(ppo, done)) if learns else None,
        "eval/episodes": len(evaluation),
        **average_episodes(evaluation, "eval/"),
    }


def average_episodes(ended: Sequence[EpisodeResult], prefix: str = "") -> dict[str, float | int | None]:
    """Means over episodes, by name; None for each if there are no episodes.

    ``right`` is the share of those whose right slot and blueprint are known that kept exactly this one seed; ``none`` the
    share that kept no seed.
    """
    known = [each for each in ended if each.truth is not None]
    means: dict[str, float | None] = dict.fromkeys((*MEANS, "right", "none"))
    if ended:
        means = {name: sum(getattr(each, name) for each in ended) / len(ended) for name in MEANS}
        means["none"] = sum(not each.kept for each in ended) / len(ended)
        means["right"] = sum(each.kept == each.truth for each in known) / len(known) if known else None
    return {f"{prefix}{name}": rounded(value) for name, value in means.items()}


def make_episode_row(update: int, ended: EpisodeResult, blueprints: Sequence[str]) -> dict[str, Any]:
    """A row of episodes.jsonl."""
    plain = {name: rounded(value) if isinstance(value, float) else value for name, value in ended.plain().items()}
    named = {"kept": [_name_seed(each, blueprints) for each in ended.kept]}
    truth = [_name_seed(each, blueprints) for each in ended.truth or ()]
    return {"update": update + 1, **plain, **named, "truth": truth if len(truth) > 1 else next(iter(truth), None)}


def list_learning_figures(figures: Mapping[str, Any] | None) -> dict[str, float | None]:
    """The figures of an update of the controller, by name; None for each if it does not learn."""
    return {name: rounded(figures[name]) if figures else None for name in LEARNT}


def _name_seed(seed: tuple[int, int], blueprints: Sequence[str]) -> dict[str, str]:
    slot, blueprint = seed
    return {"slot": SLOTS[slot], "blueprint": blueprints[blueprint]}
