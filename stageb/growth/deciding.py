"""Who decides in a block: controllers by name, what the one that learns is made of, and the one
that a run has kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from torch import Tensor

from stageb.errors import ConfigError, InputError
from stageb.growth import hosts
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
    Static,
)
from stageb.growth.environment import Block
from stageb.growth.lifecycle import Rules
from stageb.growth.policy import Policy, PolicyLearner, make_normaliser
from stageb.runs.folder import METRICS, RunFolder
from stageb.store.commits import read_commit
from stageb.training.ppo import RunningNorm
from stageb.training.run import load_weights

CONTROLLERS: tuple[str, ...] = get_args(Name)
SIMPLE: Mapping[str, Callable[[Rules], Controller]] = {
    "heuristic": Heuristic,
    "random": Random,
    "periodic": Periodic,
    "static-small": Static,
}
# the policy and its normaliser, by name; empty for controllers that do not learn
Snapshot = Mapping[str, Tensor]


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
            return PolicyController(policy, normaliser, len(block.keys), self.greedy)
        if self.name == "oracle":
            return Oracle(
                [()] * len(block.keys) if block.lessons.right is None else list(block.lessons.right)
            )
        if self.name in PROBES:
            return Probe(setting.rules, PROBES[self.name], len(block.keys))
        return SIMPLE[self.name](setting.rules)


def take_snapshot(learner: PolicyLearner) -> dict[str, Tensor]:
    """Copy the policy and its normaliser, so that they stay as they are while the learner goes
    on."""
    kept = {"policy": learner.policy.state_dict(), "normaliser": learner.normaliser.state_dict()}
    return {
        f"{part}.{name}": tensor.detach().cpu().clone()
        for part, state in kept.items()
        for name, tensor in state.items()
    }


def load_snapshot(snapshot: Snapshot, config: GrowthConfig) -> tuple[Policy, RunningNorm]:
    """The policy and the normaliser that a snapshot holds. Raises ``RuntimeError`` where it is of
    another policy."""
    policy, normaliser = (
        Policy(config.policy.hidden, len(config.host.blueprints), config.seed),
        make_normaliser(),
    )

    def part(name: str) -> dict[str, Tensor]:
        return {
            key.removeprefix(f"{name}."): value
            for key, value in snapshot.items()
            if key.startswith(f"{name}.")
        }

    policy.load_state_dict(part("policy"))
    normaliser.load_state_dict(part("normaliser"))
    return policy, normaliser


WEIGHTS = "weights/policy.safetensors"


@dataclass(frozen=True)
class StoredController:
    """A controller from a run's folder."""

    snapshot: Snapshot  # the policy and its normaliser; empty for a controller that does not learn
    updates: int  # that it learnt from


def estimate_learning_cost(folder: Path, config: GrowthConfig) -> float:
    """FLOPs by which a run's controller came to what it is: of its episodes, of deciding in them,
    and of the policy's own learning, as far as committed. 0 for a controller that does not
    learn."""
    if config.growth.controller != "ppo":
        return 0.0
    decisions = config.growth.environments * (config.host.epochs - 1)
    forward = hosts.count_policy(config.policy.hidden, len(config.host.blueprints))
    read = 1 + 1  # by which it decides, and by which learning begins
    rows = RunFolder(folder).read_committed(METRICS)
    return math.fsum(
        row["flops"] + decisions * forward * (read + 3 * row["epochs"]) for row in rows
    )


def load_controller(folder: Path, config: GrowthConfig, controller: str) -> StoredController:
    """Load a controller as last committed. Raises ``InputError`` where there is none yet, or of
    another shape."""
    last = read_commit(folder)
    if not last["state"]:
        raise InputError(f"{folder}: its run has committed nothing yet; wait for its first commit")
    updates = last["state"]["update"]
    if controller != "ppo":
        return StoredController({}, updates)
    if WEIGHTS not in last["versions"]:
        raise InputError(
            f"{folder}: its controller is {config.growth.controller}, which learns nothing; "
            f"name another one"
        )
    version = last["versions"][WEIGHTS].name
    snapshot = load_weights(
        folder, version, "policy", lambda weights: load_snapshot(weights, config)
    )
    return StoredController(snapshot, updates)
