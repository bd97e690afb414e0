"""What a controller is paid: for the network that an episode leaves, and on the way for what brings it about.

An episode ends with the objective J = accuracy - lambda ln(1 + extra / host), of the network that stays: the host and its
fossils. Shaping pays what J changes by from epoch to epoch: a potential (Ng, Harada & Russell 1999, "Policy invariance under
reward transformations", theorem 1), of 0 at the end, so that no policy gains by it that did not before.

All figures are of the validation set.
"""

from __future__ import annotations

import math

from stageb.growth.config import RewardConfig
from stageb.growth.types import View


def compute_objective(view: View, config: RewardConfig) -> float:
    """J: accuracy less the price of its size."""
    return view.accuracy - config.size_price * measure_growth(view)


def measure_growth(view: View) -> float:
    """ln(1 + extra / host parameters): 0 for the bare host."""
    return math.log1p(view.extra_parameters / view.host_parameters)


def compute_reward(before: View, after: View, final: View | None, config: RewardConfig, gamma: float) -> float:
    """Of what was done on seeing ``before``: it led to ``after``, an epoch later.

    ``final`` is the network that stays, judged once the episode is over; None where it goes on.
    """
    potential = config.shaping * compute_objective(after, config) if final is None else 0.0
    paid = gamma * potential - config.shaping * compute_objective(before, config)
    if final is not None:
        paid += compute_objective(final, config)
    return config.scale * paid
