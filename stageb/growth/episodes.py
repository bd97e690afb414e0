"""Whole episodes of a block: a controller looks at each environment after each epoch, and acts.

An *episode* is ``host.epochs`` epochs. At the end of each but the last the controller chooses one
action for every environment; what that asks of the slots holds from the next epoch on. After the
last, all that was not kept for good is taken out, and what stays is judged on the validation set,
for the last reward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from stageb import seeds
from stageb.growth.config import GrowthConfig
from stageb.growth.controllers import Controller
from stageb.growth.environment import Block
from stageb.growth.observation import observe
from stageb.growth.policy import GrowthRollout, encode_action, make_masks
from stageb.growth.types import Action, EnvironmentView, EpisodeResult, Op
from stageb.growth.views import compute_objective, compute_reward, list_kept


@dataclass(frozen=True)
class Episodes:
    """A block from its start to its end."""

    ended: tuple[EpisodeResult, ...]
    played: GrowthRollout  # what PPO learns from
    views: tuple[tuple[EnvironmentView, ...], ...]  # of every epoch, by member
    actions: tuple[tuple[Action, ...], ...]  # of every epoch but the last


class Turn(NamedTuple):
    """A block's turn: what its controller knew at an epoch's end, and the actions that it chose."""

    observations: Tensor  # float32 (B, 80)
    legal: Tensor  # bool (B, 4, 3)
    actions: tuple[Action, ...]


def play(block: Block, controller: Controller) -> Episodes:
    """Whole episodes of a block that has just begun."""
    config = block.setting.config
    seen: list[tuple[EnvironmentView, ...]] = []
    turns: list[Turn] = []
    for epoch in range(1, config.host.epochs + 1):
        known = block.look(block.train())
        seen.append(tuple(known))
        if epoch < config.host.epochs:
            turns.append(take_turn(block, controller, known))
    for member in range(len(block.keys)):
        block.close(member)
    finals = _view_finals(block)
    rewards = _compute_rewards(seen, finals, config)
    decided = tuple(turn.actions for turn in turns)
    played = GrowthRollout(
        torch.stack([turn.observations for turn in turns]),
        torch.stack([turn.legal for turn in turns]),
        torch.tensor([[encode_action(action) for action in actions] for actions in decided]),
        rewards,
    )
    ended = _make_results(block, finals, decided, rewards)
    return Episodes(ended, played, tuple(seen), decided)


def take_turn(block: Block, controller: Controller, known: Sequence[EnvironmentView]) -> Turn:
    """Have every environment of a block do what ``controller`` chooses for it, and end its
    epoch."""
    observations, legal = (
        observe(known),
        make_masks([block.setting.rules.legal(view) for view in known]),
    )
    keys = [seeds.stream(key, "action", block.epochs) for key in block.keys]
    actions = tuple(controller.act(known, observations, legal, keys))
    block.act(actions)
    return Turn(observations, legal, actions)


def _view_finals(block: Block) -> list[EnvironmentView]:
    """The networks that stay, as the validation set judges them."""
    finals = []
    for member, (loss, accuracy) in enumerate(block.judge(test=False)):
        view = block.views[member]
        assert view is not None, "an episode has an epoch at least"
        finals.append(
            replace(
                view,
                slots=block.slots[member],
                loss=loss,
                accuracy=accuracy,
                extra_parameters=block.count_parameters(member)[1],
            )
        )
    return finals


def _compute_rewards(
    seen: Sequence[Sequence[EnvironmentView]],
    finals: Sequence[EnvironmentView],
    config: GrowthConfig,
) -> Tensor:
    """Of every action: float32 (T, B)."""
    last = len(seen) - 2
    rows = [
        [
            compute_reward(
                before, after, final if step == last else None, config.reward, config.ppo.gamma
            )
            for before, after, final in zip(seen[step], seen[step + 1], finals, strict=True)
        ]
        for step in range(last + 1)
    ]
    return torch.tensor(rows)


def _make_results(
    block: Block,
    finals: Sequence[EnvironmentView],
    decided: Sequence[Sequence[Action]],
    rewards: Tensor,
) -> tuple[EpisodeResult, ...]:
    """Return the results of a block's episodes, with its slots closed."""
    right, ended = block.lessons.right, []
    for member, final in enumerate(finals):
        done = [actions[member].op for actions in decided]
        ended.append(
            EpisodeResult(
                environment=block.places.numbers[member],
                epochs=block.epochs,
                loss=final.loss,
                accuracy=final.accuracy,
                objective=compute_objective(final, block.setting.config.reward),
                reward=float(rewards[:, member].sum()),
                host_parameters=final.host_parameters,
                extra_parameters=final.extra_parameters,
                germinated=done.count(Op.GERMINATE),
                fossilized=done.count(Op.FOSSILIZE),
                culled=done.count(Op.CULL),
                skipped=block.skipped[member],
                flops=block.flops[member],
                kept=list_kept(final.slots),
                truth=right[member] if right else None,
            )
        )
    return tuple(ended)
