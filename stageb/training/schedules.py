"""Schedules: values that change over the updates or steps of a run, and when periodic work is due.
Functions of the step."""

from __future__ import annotations

import math

from stageb.config import PpoConfig


def is_due(step: int, every: int, steps: int) -> bool:
    """Whether work that is due after ``every`` so many steps follows ``step`` (from 0). It always
    follows the last of ``steps``; with ``every`` 0, only that one."""
    return step + 1 == steps or (every > 0 and (step + 1) % every == 0)


def share_done(step: int, steps: int) -> float:
    """The share of a run before ``step``: 0 at the first of ``steps``, 1 at the last."""
    return step / max(1, steps - 1)


def linear(first: float, last: float, done: float) -> float:
    """Linear interpolation: ``first`` where ``done`` is 0, ``last`` where it is 1."""
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
    """PPO's learning rate after the share ``done`` of a run."""
    return linear(config.learning_rate, config.learning_rate_end, done)


def entropy_weight(config: PpoConfig, done: float) -> float:
    """The weight of PPO's entropy bonus after the share ``done`` of a run."""
    return linear(config.entropy_weight, config.entropy_weight_end, done)
