"""The policy, from an observation to an operation, a slot and a blueprint; and how it learns from a
round of episodes.

Every choice is made among what the lifecycle's masks leave, so that no action that is sampled is
ever illegal. Slots share their weights, and so do blueprints: each is read with the number of its
place, but what is learnt of one slot holds for the others until it is seen to differ. Actor and
critic share nothing: the value's loss, whatever its scale, cannot move the actions.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, cast

import torch
from torch import Tensor, nn

from stageb import draws, seeds
from stageb.growth import observation
from stageb.growth.config import GrowthConfig
from stageb.growth.lifecycle import Legal
from stageb.growth.observation import BASE, HOST, MOST_BLUEPRINTS, SHAPE, SIZE, TELEMETRY
from stageb.growth.types import Action, Op
from stageb.training import ppo
from stageb.training.ppo import Batch, RunningNorm, Trajectory
from stageb.training.schedules import entropy_weight, learning_rate
from stageb.training.step import IN_A_ROW, SkippedSteps, Step

OPS, SLOTS = len(Op), 3
# log-odds of the operations at first: who culls at every turn never sees what a seed is worth
FIRST = (2.0, 0.0, 1.0, -2.0)
MEMORY_SCALE = 10.0  # contributions are hundredths


def make_masks(legal: Sequence[Legal]) -> Tensor:
    """Stack the lifecycle's masks as bool (N, 4, 3)."""
    return torch.tensor(legal, dtype=torch.bool).reshape(len(legal), OPS, SLOTS)


class Trunk(nn.Module):
    """The first layers of both actor and critic: a vector of the environment, and one of each slot
    in its light."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.slot = nn.Linear(BASE + TELEMETRY + MOST_BLUEPRINTS * SHAPE[2] + SLOTS, hidden)
        self.whole = nn.Linear(HOST + hidden, hidden)
        self.joint = nn.Linear(2 * hidden, hidden)

    def forward(self, observations: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Of normalised observations (N, 80) and memory (N, 3, 5, 2): (N, hidden) and (N, 3,
        hidden)."""
        base = observations[:, HOST : HOST + SLOTS * BASE].reshape(-1, SLOTS, BASE)
        telemetry = observations[:, SIZE - SLOTS * TELEMETRY :].reshape(-1, SLOTS, TELEMETRY)
        place = torch.eye(SLOTS, device=base.device).expand(len(base), -1, -1)
        slots = torch.tanh(
            self.slot(torch.cat([base, telemetry, memory.flatten(2), place], dim=-1))
        )
        whole = torch.tanh(self.whole(torch.cat([observations[:, :HOST], slots.mean(1)], dim=-1)))
        joint = torch.cat([slots, whole[:, None].expand_as(slots)], dim=-1)
        return whole, torch.tanh(self.joint(joint))


class Policy(nn.Module):
    """Actor and critic. ``forward`` is the training evaluation, ``decide`` samples."""

    def __init__(self, hidden: int, blueprints: int, seed: int) -> None:
        """Weights are drawn from the stream that ``seed`` names; ``blueprints`` is how many there
        are to choose from."""
        super().__init__()
        self.blueprints = blueprints
        self.actor, self.critic = Trunk(hidden), Trunk(hidden)
        self.op = nn.Linear(hidden, OPS)
        self.slot = nn.Linear(hidden, OPS - 1)
        self.candidate = nn.Linear(hidden + 2 * SHAPE[2] + MOST_BLUEPRINTS, hidden)
        self.blueprint = nn.Linear(hidden, 1)
        self.value = nn.Linear(hidden, 1)
        # uniform but for FIRST
        choices: dict[nn.Module, float] = dict.fromkeys((self.op, self.slot, self.blueprint), 0.01)
        ppo.draw_weights(
            self, seeds.stream(seed, "growth", "weights"), {**choices, self.value: 0.1}
        )
        self.op.bias.data.copy_(torch.tensor(FIRST))

    def forward(
        self, observations: Tensor, memory: Tensor, legal: Tensor, actions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute what PPO learns from: log-probabilities of actions, int64 (N, 3), entropies and
        values, each float32 (N,).

        What was known are normalised observations (N, 80), memory (N, 3, 5, 2) and masks (N, 4, 3).
        An action is its operation, slot and blueprint, 0 for what it does not name.
        """
        op, slot, blueprint = self.log_probs(observations, memory, legal)
        chosen, at, which = actions.unbind(1)
        rows = torch.arange(len(actions), device=actions.device)
        names_slot, germinates = chosen != Op.WAIT, chosen == Op.GERMINATE
        of_slot = slot[rows, (chosen - 1).clamp(min=0), at]
        of_blueprint = blueprint[rows, at, which]
        log_probs = (
            op[rows, chosen]
            + torch.where(names_slot, of_slot, 0.0)
            + torch.where(germinates, of_blueprint, 0.0)
        )
        return log_probs, _entropies(op, slot, blueprint), self.values(observations, memory)

    def log_probs(
        self, observations: Tensor, memory: Tensor, legal: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Of operations (N, 4), of slots given one that names a slot (N, 3, 3), of blueprints given
        the slot (N, 3, n).

        What is illegal has -inf; a row of slots where none is legal is 0.
        """
        memory = torch.stack([memory[..., 0], memory[..., 1] * MEMORY_SCALE], dim=-1)
        whole, slots = self.actor(observations, memory)
        op = self.op(whole).masked_fill(~legal.any(-1), -torch.inf)
        slot = self.slot(slots).transpose(1, 2).masked_fill(~legal[:, 1:], -torch.inf)
        slot = torch.where(legal[:, 1:].any(-1, keepdim=True), slot, 0.0)
        everywhere = memory.mean(1, keepdim=True).expand_as(memory)
        kinds = torch.eye(MOST_BLUEPRINTS, device=slots.device).expand(len(slots), SLOTS, -1, -1)
        context = slots[:, :, None].expand(-1, -1, MOST_BLUEPRINTS, -1)
        read = torch.cat([context, memory, everywhere, kinds], dim=-1)[:, :, : self.blueprints]
        blueprint = self.blueprint(torch.tanh(self.candidate(read)))[..., 0]
        return op.log_softmax(-1), slot.log_softmax(-1), blueprint.log_softmax(-1)

    def values(self, observations: Tensor, memory: Tensor) -> Tensor:
        """Of normalised observations (N, 80) and memory (N, 3, 5, 2): float32 (N,)."""
        memory = torch.stack([memory[..., 0], memory[..., 1] * MEMORY_SCALE], dim=-1)
        return cast(Tensor, self.value(self.critic(observations, memory)[0])[:, 0])

    @torch.no_grad()
    def decide(
        self, seen: tuple[Tensor, Tensor, Tensor], keys: Sequence[int] | None
    ) -> list[Action]:
        """An action for each row of what is ``seen``, as in ``log_probs``: drawn by the streams
        that ``keys`` are, one each, or without keys the most probable operation, slot and
        blueprint."""
        of_op, of_slot, of_blueprint = self.log_probs(*seen)
        rows = torch.arange(len(of_op))
        drawn = (
            None
            if keys is None
            else torch.tensor([draws.signed(key) for key in keys], dtype=torch.int64)
        )
        op = _choose(of_op, drawn, 0)
        slot = _choose(of_slot[rows, (op - 1).clamp(min=0)], drawn, 1)
        blueprint = _choose(of_blueprint[rows, slot], drawn, 2)
        chosen = zip(op.tolist(), slot.tolist(), blueprint.tolist(), strict=True)
        return [decode_action(*each) for each in chosen]


def decode_action(op: int, slot: int, blueprint: int) -> Action:
    """The action that three numbers are, of which an operation may not need all."""
    return Action(
        Op(op), None if op == Op.WAIT else slot, blueprint if op == Op.GERMINATE else None
    )


def encode_action(action: Action) -> tuple[int, int, int]:
    """Operation, slot and blueprint, 0 for what the action does not name: what ``decode_action``
    reads."""
    return int(action.op), action.slot or 0, action.blueprint or 0


def _choose(log_probs: Tensor, keys: Tensor | None, position: int) -> Tensor:
    """A choice for every row of (N, n): int64 (N,), never one of probability 0."""
    if keys is None:
        return log_probs.argmax(-1)
    shares = log_probs.double().exp().cumsum(-1)
    return (shares / shares[:, -1:] <= draws.uniforms(keys, position)[:, None]).sum(-1)


def _entropies(op: Tensor, slot: Tensor, blueprint: Tensor) -> Tensor:
    """Of whole actions: float32 (N,). That of a choice counts as often as the choices before lead
    to it."""

    def within(log_probs: Tensor) -> Tensor:
        return -(log_probs.exp() * log_probs.masked_fill(log_probs == -torch.inf, 0.0)).sum(-1)

    p_op, p_slot = op.exp(), slot[:, Op.GERMINATE - 1].exp()
    given_op = (p_op[:, 1:] * within(slot)).sum(-1)
    return within(op) + given_op + p_op[:, Op.GERMINATE] * (p_slot * within(blueprint)).sum(-1)


# Learning from a round of episodes, on rank 0: the policy is tiny, and one source of truth needs no
# reduction.
#
# What the policy gave for its own actions is asked of it again before it learns, in one batch:
# ranks that played need send no more than what was seen, done and paid. Episodes end where they
# end: no value is added past their last step.


@dataclass(frozen=True, slots=True)
class GrowthRollout:
    """T steps of N whole episodes."""

    observations: Tensor  # float32 (T, N, 80)
    legal: Tensor  # bool (T, N, 4, 3): the masks
    # int64 (T, N, 3): operation, slot, blueprint, 0 for what an action does not name
    actions: Tensor
    rewards: Tensor  # float32 (T, N)

    @classmethod
    def join(cls, parts: Sequence[GrowthRollout]) -> GrowthRollout:
        """Episodes of several blocks, in their order."""
        return cls(
            *(
                torch.cat([getattr(part, each.name) for part in parts], dim=1)
                for each in fields(cls)
            )
        )


LEAST_VARIANCE = 1e-4  # of observations, which lie within -1 and 1: what hardly varies says little


def make_normaliser() -> RunningNorm:
    """Make the normaliser of observations. It stays as it is while a round is played and learnt
    from."""
    return RunningNorm(SIZE, LEAST_VARIANCE)


class PolicyLearner:
    """The policy, its normaliser and its optimiser; the policy learns on ``device``, from what is
    on the CPU."""

    def __init__(self, config: GrowthConfig, device: str = "cpu") -> None:
        self.config, self.device = config, device
        self.policy = Policy(config.policy.hidden, len(config.host.blueprints), config.seed).to(
            device
        )
        self.normaliser = make_normaliser()
        adam = torch.optim.Adam(self.policy.parameters(), eps=ppo.ADAM_EPSILON, fused=True)
        self.step = Step(self.policy, adam, config.ppo, Tensor.backward)
        self._skipped_steps = SkippedSteps("a smaller ppo.learning_rate")

    def learn(self, played: GrowthRollout, update: int, done: float) -> ppo.Figures:
        """One update; ``done`` is the share of the run before it, 0 to 1, by which the schedules
        go.

        Raises ``NonFiniteError`` where three gradients in a row are not finite.
        """
        config = self.config.ppo
        remembered = observation.remember_all(played.observations)
        steps = (self.normaliser(played.observations), remembered, played.legal, played.actions)
        inputs = tuple(self._flatten(each) for each in steps)
        with torch.no_grad():
            log_probs, _, values = self.policy(*inputs)
        trajectory = _make_trajectory(played.rewards, values.cpu().view_as(played.rewards))
        advantages, returns, explained = ppo.estimate_advantages(trajectory, config)
        whole = Batch(inputs, log_probs, self._flatten(advantages), self._flatten(returns))
        self.step.set_hyperparameters(learning_rate(config, done), entropy_weight(config, done))
        taken, passes = ppo.take_passes(
            config,
            lambda number: self.step.take_all(self._minibatches(whole, (update, number))),
            lambda mine: mine,
        )
        self.normaliser.take(played.observations)
        return self._figures(taken.cpu(), float(explained), passes)

    def state(self) -> dict[str, Any]:
        """All that it goes on from: copies of tensors, by name."""
        kept = {"policy": self.policy.state_dict(), "optimizer": self.step.optimizer.state_dict()}
        return copy.deepcopy({**kept, "normaliser": self.normaliser.state_dict()})

    def load(self, state: dict[str, Any]) -> None:
        """Restore the result of ``state``."""
        self.policy.load_state_dict(state["policy"])
        self.normaliser.load_state_dict(state["normaliser"])
        self.step.load(state["optimizer"])

    def _flatten(self, steps: Tensor) -> Tensor:
        """Of (T, N, ...): (T * N, ...), where the policy learns."""
        return steps.flatten(0, 1).to(self.device)

    def _figures(self, steps: Tensor, explained: float, passes: int) -> ppo.Figures:
        """Average the figures of steps (S, 6); called once an update, since the GPU's answer must
        be waited for."""
        finite = steps[:, -1].isfinite().tolist()  # of the gradients of steps
        for each in finite:
            self._skipped_steps.count(
                each, f"the gradients of the policy are not finite, {IN_A_ROW} steps in a row"
            )
        return ppo.Figures.of(
            ppo.average_steps(steps).tolist(), explained, finite.count(False), passes
        )

    def _minibatches(self, whole: Batch, names: tuple[int, int]) -> Iterator[Batch]:
        """The steps of the round in parts of nearly one size, in an order that ``names`` name: the
        update and the pass."""
        key = draws.signed(seeds.stream(self.config.seed, "growth", "minibatches", *names))
        order = draws.bits(torch.full((len(whole),), key), torch.arange(len(whole))).argsort()
        for some in order.to(self.device).chunk(self.config.policy.minibatches):
            yield whole.rows(some)


def _make_trajectory(rewards: Tensor, values: Tensor) -> Trajectory:
    """Episodes that end with their last step."""
    nothing = torch.zeros_like(values[:1])
    ends = torch.zeros_like(rewards, dtype=torch.bool)
    ends[-1] = True
    return Trajectory(
        values, torch.cat([values[1:], nothing]), rewards, ends, torch.zeros_like(ends)
    )
