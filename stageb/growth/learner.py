"""Learning from a round of episodes, on rank 0: the policy is tiny, and one source of truth needs no reduction.

What the policy gave for its own actions is asked of it again before it learns, in one batch: ranks that played need send no
more than what was seen, done and paid. Episodes end where they end: no value is added past their last step.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from stageb import draws, seeds
from stageb.growth import observation
from stageb.growth.config import GrowthConfig
from stageb.growth.observation import SIZE, Normaliser
from stageb.growth.policy import Policy
from stageb.training import ppo
from stageb.training.nonfinite import IN_A_ROW, SkippedSteps
from stageb.training.ppo import Batch
from stageb.training.schedules import entropy_weight, learning_rate
from stageb.training.step import Step


@dataclass(frozen=True, slots=True)
class Rollout:
    """T steps of N whole episodes."""

    observations: Tensor  # float32 (T, N, 80)
    legal: Tensor  # bool (T, N, 4, 3): the masks
    actions: Tensor  # int64 (T, N, 3): operation, slot, blueprint, 0 for what an action does not name
    rewards: Tensor  # float32 (T, N)

    @classmethod
    def join(cls, parts: Sequence[Rollout]) -> Rollout:
        """Episodes of several blocks, in their order."""
        return cls(*(torch.cat([getattr(part, each.name) for part in parts], dim=1) for each in fields(cls)))


@dataclass(frozen=True, slots=True)
class Trajectory:
    """What ``ppo.gae`` reads."""

    values: Tensor
    next_values: Tensor
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor


class Learner:
    """The policy, its normaliser and its optimiser; the policy learns on ``device``, from what is on the CPU."""

    def __init__(self, config: GrowthConfig, device: str = "cpu") -> None:
        self.config, self.device = config, device
        self.policy = Policy(config.policy.hidden, len(config.host.blueprints), config.seed).to(device)
        self.normaliser = Normaliser(SIZE)
        adam = torch.optim.Adam(self.policy.parameters(), eps=ppo.ADAM_EPSILON, fused=True)
        self.step = Step(self.policy, adam, config.ppo, Tensor.backward)
        self._skipped_steps = SkippedSteps("a smaller ppo.learning_rate")

    def learn(self, played: Rollout, update: int, done: float) -> ppo.Figures:
        """One update; ``done`` is the share of the run before it, 0 to 1, by which the schedules go.

        Raises ``NonFiniteError`` where three gradients in a row are not finite.
        """
        config = self.config.ppo
        remembered = observation.remember_all(played.observations)
        steps = (self.normaliser(played.observations), remembered, played.legal, played.actions)
        inputs = tuple(self._there(each) for each in steps)
        with torch.no_grad():
            log_probs, _, values = self.policy(*inputs)
        trajectory = _whole(played.rewards, values.cpu().view_as(played.rewards))
        advantages = ppo.gae(trajectory, config.gamma, config.gae_lambda)
        mean, deviation, explained = ppo.compute_moments(ppo.sum_moments(trajectory, advantages))
        returns = self._there(advantages + trajectory.values)
        normal = self._there(ppo.normalise(advantages, mean, deviation))
        whole = Batch(inputs, log_probs, normal, returns)
        self.step.set_hyperparameters(learning_rate(config, done), entropy_weight(config, done))
        taken, passes = ppo.take_passes(
            config, lambda number: self.step.take_all(self._minibatches(whole, (update, number))), lambda mine: mine
        )
        self.normaliser.take(played.observations)
        return self._figures(taken.cpu(), float(explained), passes)

    def state(self) -> dict[str, Any]:
        """All that it goes on from: copies of tensors, by name."""
        kept = {"policy": self.policy.state_dict(), "optimizer": self.step.optimizer.state_dict()}
        return copy.deepcopy({**kept, "normaliser": self.normaliser.state()})

    def load(self, state: dict[str, Any]) -> None:
        """Restore the result of ``state``."""
        self.policy.load_state_dict(state["policy"])
        self.normaliser.load(state["normaliser"])
        self.step.load(state["optimizer"])

    def _there(self, steps: Tensor) -> Tensor:
        """Of (T, N, ...): (T * N, ...), where the policy learns."""
        return steps.flatten(0, 1).to(self.device)

    def _figures(self, steps: Tensor, explained: float, passes: int) -> ppo.Figures:
        """What steps (S, 6) came to; asked once an update, since the answer must be waited for."""
        finite = steps[:, -1].isfinite().tolist()  # of the gradients of steps
        for each in finite:
            self._skipped_steps.count(each, f"the gradients of the policy are not finite, {IN_A_ROW} steps in a row")
        return ppo.Figures.of(ppo.average_steps(steps).tolist(), explained, finite.count(False), passes)

    def _minibatches(self, whole: Batch, names: tuple[int, int]) -> Iterator[Batch]:
        """The steps of the round in parts of nearly one size, in an order that ``names`` name: the update and the pass."""
        key = draws.signed(seeds.stream(self.config.seed, "growth", "minibatches", *names))
        order = draws.bits(torch.full((len(whole),), key), torch.arange(len(whole))).argsort()
        for some in order.to(self.device).chunk(self.config.policy.minibatches):
            yield whole.rows(some)


def _whole(rewards: Tensor, values: Tensor) -> Trajectory:
    """Episodes that end with their last step."""
    nothing = torch.zeros_like(values[:1])
    ends = torch.zeros_like(rewards, dtype=torch.bool)
    ends[-1] = True
    return Trajectory(values, torch.cat([values[1:], nothing]), rewards, ends, torch.zeros_like(ends))
