"""How the weight of a seed in its host rises while it blends in: functions of the epochs in that stage."""

from __future__ import annotations

import math

from stageb.growth.config import Blend

STEEPNESS = 6.0  # of the sigmoid: from its middle to an end, in units of its argument


def compute_alpha(blend: Blend, epochs_in_stage: int, epochs: int) -> float:
    """The weight after ``epochs_in_stage`` of ``epochs`` epochs of blending: 0 at none, 1 at all of them, never falling.

    A sigmoid is cut to its middle and scaled, so that it does meet 0 and 1. Gated, the ramp is the linear one, and a gate
    beside it, which is trained and stays with the seed, says at every place how much of the branch is let through: its
    parameters are counted (``hosts.count_parameters``), and at the ramp's end the gate alone decides.
    """
    done = min(1.0, max(0.0, epochs_in_stage / max(1, epochs)))
    if blend != "sigmoid" or done in (0.0, 1.0):
        return done
    low, high = 1 / (1 + math.exp(STEEPNESS)), 1 / (1 + math.exp(-STEEPNESS))
    return (1 / (1 + math.exp(STEEPNESS * (1 - 2 * done))) - low) / (high - low)
