"""Schedules: what the updates, or steps, of a run go by, and after which something is done. Functions of the step."""

from __future__ import annotations

import math

from stageb.config import PpoConfig


def is_due(step: int, every: int, steps: int) -> bool:
    """Whether something that is done ``every`` so many steps follows ``step``, from 0; it always follows the last of
    ``steps``, and where ``every`` is 0 that alone."""
    return step + 1 == steps or (every > 0 and (step + 1) % every == 0)


def share_done(step: int, steps: int) -> float:
    """How much of a run lies before ``step``: from 0 at the first to 1 at the last of ``steps``."""
    return step / max(1, steps - 1)


def linear(first: float, last: float, done: float) -> float:
    """From ``first``, where ``done`` is 0, to ``last``, where it is 1."""
    return first + (last - first) * done


def warmed_cosine(first: float, last: float, step: int, steps: int, warmup: int) -> float:
    """Grows from 0 to ``first`` in ``warmup`` steps, then falls to ``last`` along half a cosine.

    Loshchilov & Hutter 2017, "SGDR", equation 5, without restarts.
    """
    warm = min(1.0, (step + 1) / (warmup + 1))
    gone = max(0, step - warmup) / max(1, steps - 1 - warmup)
    share = (1 + math.cos(math.pi * min(1.0, gone))) / 2
    return warm * (last + (first - last) * share)


def learning_rate(config: PpoConfig, done: float) -> float:
    """PPO's, after a share of the run."""
    return linear(config.learning_rate, config.learning_rate_end, done)


def entropy_weight(config: PpoConfig, done: float) -> float:
    """PPO's, after a share of the run."""
    return linear(config.entropy_weight, config.entropy_weight_end, done)
