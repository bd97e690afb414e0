"""The policy: from an observation to an operation, to a slot given that, to a blueprint given both; and the value beside it.

Every choice is made among what the lifecycle's masks leave, so that no action that is sampled is ever illegal. Slots share
their weights, and so do blueprints: each is read with the number of its place, but what is learnt of one slot holds for the
others until it is seen to differ. Actor and critic share nothing: the value's loss, whatever its scale, cannot move the
actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from stageb import draws, seeds
from stageb.growth.lifecycle import Legal
from stageb.growth.observation import BASE, HOST, MOST_BLUEPRINTS, SHAPE, SIZE, TELEMETRY
from stageb.growth.types import Action, Op

OPS, SLOTS = len(Op), 3
FIRST = (2.0, 0.0, 1.0, -2.0)  # log-odds of the operations at first: who culls at every turn never sees what a seed is worth
MEMORY_SCALE = 10.0  # contributions are hundredths


def make_masks(legal: Sequence[Legal]) -> Tensor:
    """What the lifecycle allows, as bool (N, 4, 3)."""
    return torch.tensor(legal, dtype=torch.bool).reshape(len(legal), OPS, SLOTS)


class Trunk(nn.Module):
    """What both actor and critic begin with: a vector of the environment, and one of each slot in its light."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.slot = nn.Linear(BASE + TELEMETRY + MOST_BLUEPRINTS * SHAPE[2] + SLOTS, hidden)
        self.whole = nn.Linear(HOST + hidden, hidden)
        self.joint = nn.Linear(2 * hidden, hidden)

    def forward(self, observations: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Of normalised observations (N, 80) and memory (N, 3, 5, 2): (N, hidden) and (N, 3, hidden)."""
        base = observations[:, HOST : HOST + SLOTS * BASE].reshape(-1, SLOTS, BASE)
        telemetry = observations[:, SIZE - SLOTS * TELEMETRY :].reshape(-1, SLOTS, TELEMETRY)
        place = torch.eye(SLOTS, device=base.device).expand(len(base), -1, -1)
        slots = torch.tanh(self.slot(torch.cat([base, telemetry, memory.flatten(2), place], dim=-1)))
        whole = torch.tanh(self.whole(torch.cat([observations[:, :HOST], slots.mean(1)], dim=-1)))
        joint = torch.cat([slots, whole[:, None].expand_as(slots)], dim=-1)
        return whole, torch.tanh(self.joint(joint))


class Policy(nn.Module):
    """Actor and critic. ``forward`` is the training evaluation, ``decide`` samples."""

    def __init__(self, hidden: int, blueprints: int, seed: int) -> None:
        """Weights are drawn from the stream that ``seed`` names; ``blueprints`` is how many there are to choose from."""
        super().__init__()
        self.blueprints = blueprints
        self.actor, self.critic = Trunk(hidden), Trunk(hidden)
        self.op = nn.Linear(hidden, OPS)
        self.slot = nn.Linear(hidden, OPS - 1)
        self.candidate = nn.Linear(hidden + 2 * SHAPE[2] + MOST_BLUEPRINTS, hidden)
        self.blueprint = nn.Linear(hidden, 1)
        self.value = nn.Linear(hidden, 1)
        self._draw_weights(torch.Generator().manual_seed(seeds.stream(seed, "growth", "weights") >> 1))

    def forward(self, observations: Tensor, memory: Tensor, legal: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What PPO learns from: log-probabilities of actions, int64 (N, 3), entropies and values, each float32 (N,).

        What was known are normalised observations (N, 80), memory (N, 3, 5, 2) and masks (N, 4, 3). An action is its
        operation, slot and blueprint, 0 for what it does not name.
        """
        op, slot, blueprint = self.log_probs(observations, memory, legal)
        chosen, at, which = actions.unbind(1)
        rows = torch.arange(len(actions), device=actions.device)
        names_slot, germinates = chosen != Op.WAIT, chosen == Op.GERMINATE
        of_slot = slot[rows, (chosen - 1).clamp(min=0), at]
        of_blueprint = blueprint[rows, at, which]
        log_probs = op[rows, chosen] + torch.where(names_slot, of_slot, 0.0) + torch.where(germinates, of_blueprint, 0.0)
        return log_probs, _entropies(op, slot, blueprint), self.values(observations, memory)

    def log_probs(self, observations: Tensor, memory: Tensor, legal: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of operations (N, 4), of slots given one that names a slot (N, 3, 3), of blueprints given the slot (N, 3, n).

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
    def decide(self, seen: tuple[Tensor, Tensor, Tensor], keys: Sequence[int] | None) -> list[Action]:
        """An action for each row of what is ``seen``, as in ``log_probs``: drawn by the streams that ``keys`` are, one each,
        or without keys the most probable operation, slot and blueprint."""
        of_op, of_slot, of_blueprint = self.log_probs(*seen)
        rows = torch.arange(len(of_op))
        drawn = None if keys is None else torch.tensor([draws.signed(key) for key in keys], dtype=torch.int64)
        op = _chosen(of_op, drawn, 0)
        slot = _chosen(of_slot[rows, (op - 1).clamp(min=0)], drawn, 1)
        blueprint = _chosen(of_blueprint[rows, slot], drawn, 2)
        chosen = zip(op.tolist(), slot.tolist(), blueprint.tolist(), strict=True)
        return [decode_action(*each) for each in chosen]

    def _draw_weights(self, generator: torch.Generator) -> None:
        """Orthogonal, as in Huang et al. 2022, detail 2: choices near uniform but for ``FIRST``."""
        gains = {self.op: 0.01, self.slot: 0.01, self.blueprint: 0.01, self.value: 0.1}
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.orthogonal_(module.weight, gains.get(module, 2**0.5), generator)
                nn.init.zeros_(module.bias)
        self.op.bias.data.copy_(torch.tensor(FIRST))


def decode_action(op: int, slot: int, blueprint: int) -> Action:
    """The action that three numbers are, of which an operation may not need all."""
    return Action(Op(op), None if op == Op.WAIT else slot, blueprint if op == Op.GERMINATE else None)


def encode_action(action: Action) -> tuple[int, int, int]:
    """Operation, slot and blueprint, 0 for what the action does not name: what ``decode_action`` reads."""
    return int(action.op), action.slot or 0, action.blueprint or 0


def _chosen(log_probs: Tensor, keys: Tensor | None, position: int) -> Tensor:
    """A choice for every row of (N, n): int64 (N,), never one of probability 0."""
    if keys is None:
        return log_probs.argmax(-1)
    shares = log_probs.double().exp().cumsum(-1)
    return (shares / shares[:, -1:] <= draws.uniforms(keys, position)[:, None]).sum(-1)


def _entropies(op: Tensor, slot: Tensor, blueprint: Tensor) -> Tensor:
    """Of whole actions: float32 (N,). That of a choice counts as often as the choices before lead to it."""

    def within(log_probs: Tensor) -> Tensor:
        return -(log_probs.exp() * log_probs.masked_fill(log_probs == -torch.inf, 0.0)).sum(-1)

    p_op, p_slot = op.exp(), slot[:, Op.GERMINATE - 1].exp()
    given_op = (p_op[:, 1:] * within(slot)).sum(-1)
    return within(op) + given_op + p_op[:, Op.GERMINATE] * (p_slot * within(blueprint)).sum(-1)
