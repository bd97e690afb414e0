"""Who decides in a block: controllers by name, and what the one that learns is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import get_args

from torch import Tensor

from stageb.errors import ConfigError
from stageb.growth.config import PROBES, GrowthConfig
from stageb.growth.config import Controller as Name
from stageb.growth.controllers import (
    Controller,
    Heuristic,
    Oracle,
    Periodic,
    PolicyController,
    Probe,
    Random,
    Selective,
    Static,
)
from stageb.growth.environment import Block, Seeds
from stageb.growth.learner import Learner
from stageb.growth.lifecycle import Rules
from stageb.growth.normaliser import Normaliser
from stageb.growth.observation import SIZE
from stageb.growth.policy import Policy

CONTROLLERS: tuple[str, ...] = get_args(Name)
SIMPLE: Mapping[str, Callable[[Rules], Controller]] = {
    "selective": Selective,
    "heuristic": Heuristic,
    "random": Random,
    "static-small": Static,
}
Snapshot = Mapping[str, Tensor]  # the policy and its normaliser, by name; empty for controllers that do not learn


@dataclass(frozen=True)
class Decider:
    """A controller by its name, before it meets a block."""

    name: str
    snapshot: Snapshot  # of ppo
    greedy: bool = False  # ppo takes the most probable choices, in place of drawn ones

    def of(self, block: Block) -> Controller:
        """The controller of a block. Raises ``ConfigError`` where it cannot decide there."""
        setting = block.setting
        if obstacle := setting.config.obstacle(self.name):
            raise ConfigError("growth.controller", self.name, obstacle)
        if self.name == "ppo":
            policy, normaliser = load_snapshot(self.snapshot, setting.config)
            return PolicyController(policy, normaliser, self.greedy)
        if self.name == "oracle":
            return Oracle(list_answers(block))
        if self.name == "periodic":
            return Periodic(setting.rules, setting.config.gates.shortest_life)
        if self.name in PROBES:
            return Probe(setting.rules, PROBES[self.name])
        return SIMPLE[self.name](setting.rules)


def list_answers(block: Block) -> list[Seeds]:
    """What pays in each environment of a block of a task that knows: slots and blueprints; none where no growth does."""
    if block.lessons.right is not None:
        return list(block.lessons.right)
    return [()] * len(block.keys)


def take_snapshot(learner: Learner) -> dict[str, Tensor]:
    """What decides, copied, so that it stays as it is while the learner goes on."""
    kept = {"policy": learner.policy.state_dict(), "normaliser": learner.normaliser.state()}
    return {
        f"{part}.{name}": tensor.detach().cpu().clone() for part, state in kept.items() for name, tensor in state.items()
    }


def load_snapshot(snapshot: Snapshot, config: GrowthConfig) -> tuple[Policy, Normaliser]:
    """The policy and the normaliser that a snapshot holds. Raises ``RuntimeError`` where it is of another policy."""
    policy, normaliser = Policy(config.policy.hidden, len(config.host.blueprints), config.seed), Normaliser(SIZE)

    def part(name: str) -> dict[str, Tensor]:
        return {key.removeprefix(f"{name}."): value for key, value in snapshot.items() if key.startswith(f"{name}.")}

    policy.load_state_dict(part("policy"))
    normaliser.load(part("normaliser"))
    return policy, normaliser
