"""Proximal policy optimisation as functions of tensors: Schulman et al. 2017, "Proximal policy
optimization algorithms".

Of the 37 details of Huang et al. 2022 ("The 37 implementation details of proximal policy
optimization"), in their numbers: used are vectorised games (1), orthogonal weights (2), Adam's
epsilon of 1e-5 (3), annealed learning rate (4), generalised advantages (5), minibatches (6),
advantages normalised (7, by the moments of the whole rollout over all ranks, since those of a
minibatch would differ between ranks), the clipped objective (8), an entropy bonus (10), gradients
clipped to a global norm (11), debug figures (12), and one network for policy and value (13). Left
out are clipping of the value loss (9), which Andrychowicz et al. 2021 found to harm, and all that
concerns Atari frames. docs/ppo.md has a table of what differs.

A game that was cut off did not end: its advantage bootstraps from the value of its final
observation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Self, cast

import torch
from torch import Tensor, nn

from stageb.config import PpoConfig

ADAM_EPSILON = 1e-5  # Huang et al. 2022, detail 3
SumOverRanks = Callable[[Tensor], Tensor]


def draw_weights(network: nn.Module, seed: int, gains: Mapping[nn.Module, float]) -> None:
    """Draw all weights of ``network`` orthogonal, as in Huang et al. 2022, detail 2, from the
    stream that ``seed`` is: with a gain of sqrt 2 but for the layers in ``gains``. Biases become
    0."""
    generator = torch.Generator().manual_seed(seed >> 1)
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.orthogonal_(module.weight, gains.get(module, 2**0.5), generator)
            nn.init.zeros_(cast(Tensor, module.bias))


@dataclass(frozen=True, slots=True)
class Trajectory:
    """T steps of N episodes that run in parallel."""

    values: Tensor  # float32 (T, N): of each observation
    # float32 (T, N): of the next observation, also if it is the final one of a truncated episode;
    next_values: Tensor
    # arbitrary where the episode terminated
    rewards: Tensor  # float32 (T, N)
    terminated: Tensor  # bool (T, N): the episode ended with this step
    truncated: Tensor  # bool (T, N): it was cut off here, and did not end


@dataclass(frozen=True, slots=True)
class Batch:
    """A minibatch on one rank: B steps of episodes."""

    inputs: tuple[Tensor, ...]  # B rows each: the observations, then the actions
    log_probs: Tensor  # float32 (B,): of the actions, under the policy that took them
    advantages: Tensor  # float32 (B,): normalised
    returns: Tensor  # float32 (B,): targets of the value function

    def __len__(self) -> int:
        return len(self.log_probs)

    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors of the batch."""
        return (*self.inputs, self.log_probs, self.advantages, self.returns)

    def rows(self, places: Tensor | slice) -> Batch:
        """Some of the steps."""
        *inputs, log_probs, advantages, returns = (each[places] for each in self.tensors())
        return Batch(tuple(inputs), log_probs, advantages, returns)


@dataclass(frozen=True, slots=True)
class Losses:
    """One evaluation of PPO's objective: scalars."""

    total: Tensor  # what is minimised
    policy: Tensor
    value: Tensor
    entropy: Tensor
    approx_kl: Tensor  # Schulman's estimate of KL(old, new): mean of (ratio - 1) - log ratio
    clip_frac: Tensor  # share of steps whose ratio is beyond the clip


_NOTED = [each.name for each in fields(Losses)][1:]
APPROX_KL = _NOTED.index("approx_kl")  # its place in what ``note_step`` gives


@dataclass(frozen=True)
class Figures:
    """The figures of one update: means over its minibatches and over ranks."""

    policy_loss: float
    value_loss: float
    entropy: float
    approx_kl: float
    clip_frac: float
    explained_variance: float
    grad_norm: float
    skipped: int  # steps of the optimiser left out, since their gradients were not finite
    epochs: int  # passes made, fewer than ``ppo.epochs`` where ``ppo.target_kl`` was reached

    @classmethod
    def of(
        cls, means: Sequence[float], explained_variance: float, skipped: int, epochs: int
    ) -> Self:
        """From what ``average_steps`` returns."""
        policy, value, entropy, approx_kl, clip_frac, norm = means
        return cls(
            policy_loss=policy,
            value_loss=value,
            entropy=entropy,
            approx_kl=approx_kl,
            clip_frac=clip_frac,
            explained_variance=explained_variance,
            grad_norm=norm,
            skipped=skipped,
            epochs=epochs,
        )


PANELS = (  # of learning curves
    ("entropy", "entropy (nats)"),
    ("explained_variance", "explained variance"),
    ("approx_kl", "KL(old, new)"),
)


def gae(rollout: Trajectory, gamma: float, gae_lambda: float) -> Tensor:
    """Generalised advantages, float32 (T, N): Schulman et al. 2016, "High-dimensional continuous
    control", equation 16.

    A terminated step is worth its reward alone, a truncated one its reward and the value of its
    final observation; neither takes anything from the steps after it, which are another episode's.
    """
    not_terminated = (~rollout.terminated).float()
    kept = gamma * gae_lambda * not_terminated * (~rollout.truncated).float()
    advantages = rollout.rewards + gamma * not_terminated * rollout.next_values - rollout.values
    for step in reversed(range(len(advantages) - 1)):
        advantages[step].addcmul_(kept[step], advantages[step + 1])
    return advantages


def estimate_advantages(
    rollout: Trajectory, config: PpoConfig, sum_over_ranks: SumOverRanks = lambda mine: mine
) -> tuple[Tensor, Tensor, Tensor]:
    """Advantages with mean 0 and deviation 1 over all ranks, and returns, both float32 (T, N); and
    the explained variance of the returns, a float64 scalar.

    Explained variance is 1 - Var(returns - values) / Var(returns), and these differences are the
    advantages.
    """
    advantages = gae(rollout, config.gamma, config.gae_lambda)
    returns = advantages + rollout.values
    a, r = advantages.double(), returns.double()
    steps = torch.tensor(float(a.numel()), dtype=torch.float64, device=a.device)
    mine = torch.stack([steps, a.sum(), a.square().sum(), r.sum(), r.square().sum()])
    count, first, second, total, squares = sum_over_ranks(mine)
    mean = first / count
    variance = (second / count - mean.square()).clamp(min=0.0)
    spread = squares / count - (total / count).square()
    normal = ((advantages - mean) / (variance.sqrt() + 1e-8)).to(torch.float32)
    return normal, returns, 1 - variance / spread.clamp(min=1e-12)


def ppo_loss(
    evaluated: tuple[Tensor, Tensor, Tensor],
    batch: Batch,
    config: PpoConfig,
    entropy_weight: float | Tensor,
) -> Losses:
    """The clipped objective (Schulman et al. 2017, equations 7 and 9), to be minimised.

    ``evaluated`` are the log-probabilities, entropies and values that the agent gives now, each
    float32 (B,). The divergence is estimated as in Schulman 2020, "Approximating KL divergence".
    """
    log_probs, entropies, values = evaluated
    log_ratio = log_probs - batch.log_probs
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
    policy = -torch.minimum(ratio * batch.advantages, clipped * batch.advantages).mean()
    value = 0.5 * (values - batch.returns).square().mean()
    entropy = entropies.mean()
    with torch.no_grad():
        approx_kl = (ratio - 1 - log_ratio).mean()
        clip_frac = ((ratio - 1).abs() > config.clip).float().mean()
    total = policy + config.value_weight * value - entropy_weight * entropy
    return Losses(total, policy, value, entropy, approx_kl, clip_frac)


def take_passes(
    config: PpoConfig, take: Callable[[int], Tensor], mean: Callable[[Tensor], Tensor]
) -> tuple[Tensor, int]:
    """Make passes over a rollout until ``config.target_kl`` is reached. Returns what ``note_step``
    noted of each step, (S, 6), and the number of passes.

    ``take`` takes the steps of the pass with a given number; ``mean`` averages what
    ``average_steps`` returned over ranks.
    """
    taken: list[Tensor] = []
    for number in range(config.epochs):
        taken.append(take(number))
        if (
            config.target_kl is not None
            and float(mean(average_steps(taken[-1]))[APPROX_KL]) > config.target_kl
        ):
            break
    return torch.cat(taken), len(taken)


def note_step(losses: Losses, norm: Tensor) -> Tensor:
    """An optimiser step as figures, float32 (6,): all losses except the total, then the gradient
    norm."""
    return torch.stack([*(getattr(losses, name).detach() for name in _NOTED), norm])


def average_steps(steps: Tensor) -> Tensor:
    """The mean, float64 (6,), of steps that ``note_step`` noted, (S, 6), without those that were
    skipped; 0 if all were.

    All ranks skip the same steps, since they share the gradient norm.
    """
    taken = steps.isfinite().all(1)
    return steps.double().masked_fill(~taken[:, None], 0.0).sum(0) / taken.sum().clamp(min=1)


# Running moments of observations and rewards, equal on all ranks: a rank adds up its own, and all
# add up the sums. They are taken up after an update has learnt from a rollout, never amid one, so
# what an agent was when it acted can be told.

FAR = 10.0  # normalised numbers are clipped there, as in Huang et al. 2022
LEAST_VARIANCE = 1e-8


class RunningNorm(nn.Module):
    """Makes numbers of a shape have mean 0 and deviation 1; leaves them as they are before the
    first update. Its moments are part of an agent's weights, so that they are stored and compared
    with these."""

    moments: Tensor  # float64 (3, size): counts, sums, sums of squares

    def __init__(self, size: int, least_variance: float = LEAST_VARIANCE) -> None:
        """For rows of ``size`` numbers, of which none is amplified as if it varied by less than
        ``least_variance``."""
        super().__init__()
        self._least = least_variance
        self.register_buffer("moments", torch.zeros((3, size), dtype=torch.float64))

    def forward(self, rows: Tensor) -> Tensor:
        """Float32 (..., size), of the same."""
        count, total, squares = self.moments
        known = count > 0
        mean = total / count.clamp(min=1)
        variance = (squares / count.clamp(min=1) - mean.square()).clamp(min=self._least)
        found = ((rows - mean) * variance.rsqrt()).clamp(-FAR, FAR)
        return torch.where(known, found, rows.double()).float()

    @torch.no_grad()
    def take(self, rows: Tensor, sum_over_ranks: SumOverRanks = lambda mine: mine) -> None:
        """Take up what ranks saw: each its own rows, (..., size)."""
        seen = rows.double().flatten(0, -2)
        self.moments += sum_over_ranks(
            torch.stack([torch.ones_like(seen).sum(0), seen.sum(0), seen.square().sum(0)])
        )


class RewardScale:
    """Divides rewards by the deviation of discounted returns (Huang et al. 2022, of continuous
    actions: details 8 and 9).

    A return begins and ends with its episode, as in OpenAI's baselines and Stable-Baselines3.
    Gymnasium's NormalizeReward takes an episode's last reward for its return where it terminates,
    and where nothing resets by itself carries the return of one that was cut off into the next.
    """

    def __init__(self, gamma: float, games: int, device: str | torch.device) -> None:
        """For so many ``games`` of this rank."""
        self.gamma = gamma
        # of all ranks: count, sum, sum of squares
        self.moments = torch.zeros(3, dtype=torch.float64, device=device)
        # discounted, from an episode's start
        self.returns = torch.zeros(games, dtype=torch.float64, device=device)

    def scale(self, rewards: Tensor, done: Tensor, sum_over_ranks: SumOverRanks) -> Tensor:
        """``rewards``, float32 (T, N), scaled by all that was seen up to and with them. ``done`` is
        bool (T, N)."""
        found = torch.empty_like(rewards, dtype=torch.float64)
        for step in range(len(rewards)):
            self.returns.mul_(self.gamma).add_(rewards[step])
            found[step] = self.returns
            self.returns.masked_fill_(done[step], 0.0)
        count = torch.full_like(self.moments[0], float(found.numel()))
        self.moments += sum_over_ranks(torch.stack([count, found.sum(), found.square().sum()]))
        count, total, squares = self.moments
        variance = (squares / count - (total / count).square()).clamp(min=LEAST_VARIANCE)
        scaled: Tensor = (rewards * variance.rsqrt()).clamp(-FAR, FAR)
        return scaled.to(torch.float32)

    def load(self, returns: Tensor, moments: Tensor) -> None:
        """Go on from what was kept."""
        self.returns.copy_(returns)
        self.moments.copy_(moments)
