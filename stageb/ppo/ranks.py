"""The work of every rank for the loop: play, learn, evaluate, and what a run goes on from.

Every method is for all ranks, in the same order. Rank 0 alone decides and writes: ``run.py``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from stageb import seeds
from stageb.config import require
from stageb.errors import StagebError
from stageb.job.world import World, pack, unpack
from stageb.ppo import evaluate
from stageb.ppo.config import ACCELERATORS, PpoLoopConfig
from stageb.ppo.environment import Environment
from stageb.ppo.learner import Learner
from stageb.ppo.make import make_agent, make_environment
from stageb.ppo.rollout import Player, Rollout, Totals
from stageb.ppo.schedule import MOST_GAMES, Schedule, fit_games
from stageb.training import ppo, run
from stageb.training.ppo import Batch, RewardScale
from stageb.training.run import digest_tensors
from stageb.training.step import WARM_UP_DDP, Step

# Among the games of a checkpoint: discounted returns, for the scale of rewards, and what the agent
# remembers.
RETURNS, MEMORY = "returns", "memory"
Checkpoint = dict[str, Any]  # agent, optimizer, games, perhaps rewards: tensors by name


def count_games(config: PpoLoopConfig, sample: Environment, world: World) -> int:
    """How many episodes all ranks together are to have under way. Auto is what the smallest memory
    would hold with ease; ``sample`` is an environment of one."""
    kind = find_device_kind(world.device)
    if (asked := config.runner.count_envs(world.world_size)) is not None:
        return asked
    if kind == "cuda":
        memory = torch.cuda.mem_get_info(torch.device(world.device))[0] // 2
    else:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    fits = fit_games(memory, config.runner, kind, sample.observe()[0].numel(), sample.single)
    least: int = min(world.collect(fits))
    return least


def find_device_kind(device: str) -> str:
    """The kind of a device that was found. Raises ``ConfigError`` for one that the loop cannot run
    on."""
    kind = torch.device(device).type
    require(kind in MOST_GAMES, "fabric.accelerator", kind, ACCELERATORS)
    return kind


class DivergedError(StagebError):
    """A rank's replica is no longer that of rank 0."""


class Ranks:
    """The ranks of a run, as the loop sees them."""

    def __init__(self, config: PpoLoopConfig, schedule: Schedule, world: World) -> None:
        self.config, self.schedule, self.world = config, schedule, world
        # a step of the optimiser frees and allocates the same tensors as the one before
        run.keep_freed(world.device)
        numbers = schedule.share(world.rank)
        self.environment = make_environment(config, config.seed, numbers, world.device)
        self.agent = make_agent(config, self.environment)
        optimizer = torch.optim.Adam(self.agent.parameters(), eps=ppo.ADAM_EPSILON, fused=True)
        # a run that goes on leaves the bytes of one that was not disturbed
        torch.backends.cudnn.deterministic = True
        if config.runner.compile:
            self.agent.compile()
        with world.together("setup"):
            self.model, self.optimizer = world.fabric.setup(self.agent, optimizer)
        weight = schedule.weight(world.rank)
        self.step = Step(
            self.model,
            self.optimizer,
            config.ppo,
            lambda loss: world.fabric.backward(loss * weight),
            warm_up=WARM_UP_DDP,
        )
        key = seeds.stream(config.seed, config.env.title, "actions")
        self.player = Player(
            self.agent,
            self.environment,
            schedule.rollout_steps,
            numbers,
            key,
            world.fabric.autocast,
        )
        if config.runner.compile:
            self.player.compile()
            self.step.compile()
        self.learner = Learner(world, schedule, self.agent, self.step, numbers)
        self.rewards = (
            RewardScale(config.ppo.gamma, len(numbers), world.device)
            if config.env.normalize_rewards
            else None
        )
        self._ended = self._make_empty_totals()  # since they were last gathered

    def take_up(self, checkpoint: Checkpoint | None) -> None:
        """Resume from a checkpoint; None: start from the beginning."""
        if checkpoint:
            self.agent.load_state_dict(checkpoint["agent"])
            self.step.load(checkpoint["optimizer"])
            share = self.schedule.share(self.world.rank)
            games = {
                name: each[share.start : share.stop] for name, each in checkpoint["games"].items()
            }
            if self.rewards:
                self.rewards.load(games.pop(RETURNS), checkpoint["rewards"])
            if self.agent.memory:
                self.player.memory.copy_(games.pop(MEMORY))
            self.environment.load(games)
        blank = self._make_blank()
        with self.world.together("warming up"):
            self.step.prepare(blank)

    def _make_blank(self) -> Batch:
        """A minibatch of this rank's that says nothing."""
        size, device, memory = (
            self.schedule.batch(self.world.rank),
            self.world.device,
            self.player.memory,
        )
        rows = (len(memory), size // len(memory)) if self.agent.memory else (size,)
        seen, masks, actions = (
            self.environment.observe(),
            self.environment.masks(),
            self.environment.actions.blank(size, device),
        )
        numbers = torch.zeros(rows, device=device)
        inputs = [seen.new_zeros((*rows, *seen.shape[1:])), actions.view(*rows, *actions.shape[1:])]
        inputs += [memory.clone(), numbers.bool()] if self.agent.memory else []
        inputs += [] if masks is None else [masks.new_ones((*rows, *masks.shape[1:]))]
        return Batch(tuple(inputs), numbers, numbers, numbers)

    def _make_empty_totals(self) -> Totals:
        return Totals(0, (0.0,) * len(self.environment.measures))

    def roll_out(self, update: int) -> Rollout:
        """Play the steps before an update, this rank's episodes."""
        with self.world.at(f"rollout of update {update}"):
            rollout, played = self.player.play(update * self.schedule.rollout_steps)
        self._ended = self._ended.add(played)
        if self.rewards:
            with self.world.together(f"rewards of update {update}"):
                done = rollout.terminated | rollout.truncated
                rollout = replace(
                    rollout, rewards=self.rewards.scale(rollout.rewards, done, self.world.sum)
                )
        return rollout

    def learn(self, rollout: Rollout, update: int) -> ppo.Figures:
        """See ``Learner.learn``."""
        return self.learner.learn(rollout, update)

    def gather_totals(self) -> Totals:
        """The episodes of all ranks that ended since this was last asked."""
        mine, self._ended = self._ended, self._make_empty_totals()
        return _sum_over_ranks(self.world, mine)

    def compare(self, update: int) -> float:
        """How far replicas are apart after an update: 0. Raises DivergedError, on all ranks alike,
        where weights or the optimiser's moments differ in a bit."""
        if self.world.world_size > 1:
            moments = (self.optimizer.state[each] for each in self.agent.parameters())
            named = {
                f"{place} {name}": each
                for place, state in enumerate(moments)
                for name, each in state.items()
            }
            # the device may still wait for other ranks
            with self.world.together(f"replicas of update {update}"):
                mine = {
                    "weights": digest_tensors(self.agent.state_dict()),
                    "moments": digest_tensors(named),
                }
            if found := self.world.find_differing(mine):
                raise DivergedError(
                    f"update {update + 1}: rank {found.rank} diverged from rank 0 in "
                    f"{', '.join(found.names)}; the last commit is intact: run the command again, "
                    "and check that rank's device if it diverges again"
                )
        return 0.0

    def evaluate(self, update: int) -> Totals:
        """Whole episodes of the agent as it stands, shared out over ranks; the same ones after
        every update."""
        numbers = self.world.share(range(self.config.evaluation.episodes))
        seed = seeds.stream(self.config.seed, self.config.env.title, "evaluation")
        with self.world.at(f"evaluation after update {update}"):
            found = evaluate.play_out(
                self.agent, self.config, seed, numbers, self.world.fabric.autocast
            )
        return _sum_over_ranks(self.world, Totals.of(found.sum(0).tolist()))

    def close(self) -> None:
        """End what the games hold."""
        self.environment.close()

    def checkpoint(self, update: int) -> Checkpoint:
        """All that a run goes on from after an update; on rank 0, and empty elsewhere. Raises
        DivergedError: what ranks do not agree on is never committed."""
        self.compare(update)
        state = self.environment.state()
        state |= {RETURNS: self.rewards.returns.cpu()} if self.rewards else {}
        state |= {MEMORY: self.player.memory.cpu()} if self.agent.memory else {}
        parts = self.world.gather(pack(state))
        if not self.world.is_global_zero:
            return {}
        states = [unpack(part) for part in parts]
        games = {name: _join([state[name] for state in states]) for name in states[0]}
        return {
            "agent": _copy_to_cpu(self.agent.state_dict()),
            "optimizer": _copy_to_cpu(self.optimizer.state_dict()),
            "games": games,
            **({"rewards": self.rewards.moments.cpu()} if self.rewards else {}),
        }


def _join(parts: Sequence[Tensor]) -> Tensor:
    """The rows of all ``parts``; where some have more columns, as of longer episodes, the others'
    begin with zeros."""
    width = max((part.shape[1] for part in parts if part.dim() > 1), default=0)
    padded = [
        torch.cat([part.new_zeros((len(part), width - part.shape[1], *part.shape[2:])), part], 1)
        if part.dim() > 1
        else part
        for part in parts
    ]
    return torch.cat(padded)


def _sum_over_ranks(world: World, mine: Totals) -> Totals:
    """The sum over ranks."""
    sums = torch.tensor([mine.games, *mine.sums], dtype=torch.float64, device=world.device)
    # on a GPU the wait for the other ranks is that for the device
    with world.together("episodes of all ranks"):
        return Totals.of(world.sum(sums).tolist())


def _copy_to_cpu(value: Any) -> Any:
    """``value`` with its tensors copied to the CPU, laid out as they were."""
    if isinstance(value, Tensor):
        return value.detach().cpu().clone()
    if isinstance(value, dict):
        return {key: _copy_to_cpu(each) for key, each in value.items()}
    return [_copy_to_cpu(each) for each in value] if isinstance(value, list) else value
