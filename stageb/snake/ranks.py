"""What every rank does for the loop: play, and learn from its share of what was played.

Every method is for all ranks, in the same order. Rank 0 alone decides and writes: ``run.py``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import Any

import torch
from torch import Tensor

from stageb import draws, seeds
from stageb.config import require
from stageb.job.world import World, decode, encode, pack, unpack
from stageb.snake import evaluate
from stageb.snake.agent import Agent
from stageb.snake.config import ACCELERATORS, SnakeConfig
from stageb.snake.game import Game, GameTotals, SnakeRollout
from stageb.snake.rollout import Player
from stageb.snake.schedule import MOST_GAMES, SnakeSchedule, fit_games
from stageb.training import ppo, run
from stageb.training.ppo import Batch
from stageb.training.run import digest_of
from stageb.training.step import REASON, WARM_UP_DDP, SkippedSteps, Step

# Learning from a rollout: passes over it in equal minibatches, on every rank alike.
#
# A minibatch takes equally many steps of every game, chosen for each game by a stream that its global number names. So every
# rank has as many minibatches, and the union of what ranks learn from at a step of the optimiser is the same at every world
# size. Where one rank has a game more than another its means count for so much more (``SnakeSchedule.weight``).


class SnakeLearner:
    """What a rank does with its rollouts."""

    def __init__(self, world: World, schedule: SnakeSchedule, step: Step, numbers: Sequence[int]) -> None:
        """``numbers`` are those of this rank's games."""
        self.world, self.schedule, self.step = world, schedule, step
        self.config = schedule.config.ppo
        self._numbers = torch.tensor(numbers, dtype=torch.int64, device=world.device)
        self._skipped_steps = SkippedSteps("fabric.precision 32-true, or a smaller ppo.learning_rate")

    def learn(self, rollout: SnakeRollout, update: int) -> ppo.Figures:
        """One update. Raises ``NonFiniteError``, on all ranks alike."""
        with self.world.at(f"advantages of update {update}"):
            advantages = ppo.gae(rollout, self.config.gamma, self.config.gae_lambda)
            total = ppo.sum_moments(rollout, advantages)
        mean, deviation, explained = ppo.compute_moments(self.world.sum(total))
        returns, advantages = advantages + rollout.values, ppo.normalise(advantages, mean, deviation)
        self.step.set_hyperparameters(self.schedule.learning_rate(update), self.schedule.entropy_weight(update))
        whole = make_batch(rollout, advantages, returns)

        def take(epoch: int) -> Tensor:
            batches = self._minibatches(whole, len(advantages), (update, epoch))
            with self.world.together(f"gradients of update {update}"):  # DDP meets in forward too, as it lays them out
                return self.step.take_all(batches)

        steps, epochs = ppo.take_passes(self.config, take, self._mean)
        return self._figures(steps, explained, epochs, update)

    def _figures(self, steps: Tensor, explained: Tensor, epochs: int, update: int) -> ppo.Figures:
        """What steps (S, 6) came to; asked once an update, since the answer must be waited for."""
        means = self._mean(ppo.average_steps(steps))
        with self.world.together(f"figures of update {update}"):
            *read, variance = torch.cat([means, steps[:, -1].double(), explained[None]]).tolist()
        finite = [math.isfinite(length) for length in read[len(means) :]]  # of the gradients of steps
        for each in finite:
            self._skipped_steps.count(each, f"update {update}: {REASON}")
        return ppo.Figures.of(read[: len(means)], variance, finite.count(False), epochs)

    def _minibatches(self, whole: Batch, steps: int, names: tuple[int, int]) -> Iterator[Batch]:
        """The minibatches of one pass over so many ``steps`` of every game; ``names`` are the update's and the pass's."""
        games = len(self._numbers)
        places = self._order(steps, names) * games + torch.arange(games, device=self._numbers.device)
        for some in places.chunk(self.schedule.minibatches):
            yield whole.rows(some.flatten())

    def _order(self, steps: int, names: tuple[int, int]) -> Tensor:
        """The order in which a pass takes the steps of every game: int64 (steps, games)."""
        key = draws.signed(seeds.stream(self.schedule.config.seed, "snake", "minibatches", *names))
        keys = draws.bits(torch.full_like(self._numbers, key), self._numbers)
        return draws.bits(keys[None], torch.arange(steps, device=keys.device)[:, None]).argsort(0)

    def _mean(self, mine: Tensor) -> Tensor:
        """Means over the games of all ranks, from those over this rank's games."""
        return self.world.sum(mine * self.schedule.weight(self.world.rank)) / self.world.world_size


def make_batch(rollout: SnakeRollout, advantages: Tensor, returns: Tensor) -> Batch:
    """All steps of a rollout; ``advantages`` and ``returns`` are float32 (T, N)."""
    columns = (rollout.grids, rollout.actions, rollout.log_probs, advantages, returns)
    grids, actions, log_probs, advantages, returns = (column.flatten(0, 1) for column in columns)
    return Batch((grids, actions), log_probs, advantages, returns)


Checkpoint = dict[str, Any]  # agent, optimizer, games: tensors by name


def count_games(config: SnakeConfig, world: World) -> int:
    """How many games all ranks together are to play at a time. Auto is what the smallest memory would hold with ease."""
    kind = find_device_kind(world.device)
    if isinstance(config.runner.per_rank_num_envs, int):
        return config.runner.per_rank_num_envs * world.world_size
    if kind == "cuda":
        memory = torch.cuda.mem_get_info(torch.device(world.device))[0] // 2
    else:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    least: int = min(decode(each) for each in world.gather(encode(fit_games(memory, config, kind))))
    return least


def find_device_kind(device: str) -> str:
    """The kind of a device that was found. Raises ``ConfigError`` for one that the loop cannot run on."""
    kind = torch.device(device).type
    require(kind in MOST_GAMES, "fabric.accelerator", kind, ACCELERATORS)
    return kind


class SnakeRanks:
    """The ranks of a run, as the loop sees them."""

    def __init__(self, config: SnakeConfig, schedule: SnakeSchedule, world: World) -> None:
        self.config, self.schedule, self.world = config, schedule, world
        run.keep_freed(world.device)  # a step of the optimiser frees and allocates the same tensors as the one before
        numbers = schedule.share(world.rank)
        self.agent = Agent(config.agent, config.game.size, config.seed)
        optimizer = torch.optim.Adam(self.agent.parameters(), eps=ppo.ADAM_EPSILON, fused=True)
        torch.backends.cudnn.deterministic = True  # a run that goes on leaves the bytes of one that was not disturbed
        if config.runner.compile:
            self.agent.compile()
        with world.together("setup"):
            model, self.optimizer = world.fabric.setup(self.agent, optimizer)
        weight = schedule.weight(world.rank)
        self.step = Step(
            model, self.optimizer, config.ppo, lambda loss: world.fabric.backward(loss * weight), warm_up=WARM_UP_DDP
        )
        self.game = Game(config.game, config.seed, numbers, world.device)
        self.player = Player(self.agent, self.game, schedule.rollout_steps, numbers, config.seed, world.fabric.autocast)
        if config.runner.compile:
            self.player.compile_agent()
        self.learner = SnakeLearner(world, schedule, self.step, numbers)
        self._ended = GameTotals()  # since they were last gathered

    def take_up(self, checkpoint: Checkpoint | None) -> None:
        """Resume from a checkpoint; None: start from the beginning."""
        if checkpoint:
            self.agent.load_state_dict(checkpoint["agent"])
            self.step.load(checkpoint["optimizer"])
            share = self.schedule.share(self.world.rank)
            self.game.load({name: each[share.start : share.stop] for name, each in checkpoint["games"].items()})
        blank = self._blank()
        with self.world.together("warming up"):
            self.step.prepare(blank)

    def _blank(self) -> Batch:
        """A minibatch of this rank's that says nothing."""
        size, device = self.schedule.batch(self.world.rank), self.world.device
        numbers, actions = torch.zeros(size, device=device), torch.zeros(size, dtype=torch.int64, device=device)
        grids = torch.zeros((size, self.config.game.cells), dtype=self.game.dtype, device=device)
        return Batch((grids, actions), numbers, numbers, numbers)

    def roll_out(self, update: int) -> SnakeRollout:
        """Play the steps before an update, this rank's games."""
        with self.world.at(f"rollout of update {update}"):
            rollout, played = self.player.play(update * self.schedule.rollout_steps)
        self._ended = self._ended.add(played)
        return rollout

    def learn(self, rollout: SnakeRollout, update: int) -> ppo.Figures:
        """One update of the agent, the same on all ranks."""
        return self.learner.learn(rollout, update)

    def gather_totals(self) -> GameTotals:
        """The games of all ranks that ended since this was last asked."""
        mine, self._ended = self._ended, GameTotals()
        return _sum_over_ranks(self.world, mine)

    def compare(self, update: int) -> float:
        """How far replicas are apart after an update: 0. Raises DivergedError, on all ranks alike, where weights or the
        optimiser's moments differ in a bit."""
        if self.world.world_size > 1:
            moments = (self.optimizer.state[each] for each in self.agent.parameters())
            named = {f"{place} {name}": each for place, state in enumerate(moments) for name, each in state.items()}
            with self.world.together(f"replicas of update {update}"):  # the device may still wait for other ranks
                mine = {"weights": digest_of(self.agent.state_dict()), "moments": digest_of(named)}
            run.check_agreement(self.world, f"update {update + 1}", mine)
        return 0.0

    def evaluate(self, update: int) -> GameTotals:
        """Whole games of the agent as it stands, shared out over ranks; the same games after every update."""
        numbers = self.world.share(range(self.config.evaluation.episodes))
        seed = seeds.stream(self.config.seed, "snake", "evaluation")
        with self.world.at(f"evaluation after update {update}"):
            found = evaluate.play_out(self.agent, self.config.game, seed, numbers, self.world.fabric.autocast)
        return _sum_over_ranks(self.world, evaluate.sum_games(found))

    def checkpoint(self, update: int) -> Checkpoint:
        """All that a run goes on from after an update; on rank 0, and empty elsewhere. Raises DivergedError: what ranks do
        not agree on is never committed."""
        self.compare(update)
        parts = self.world.gather(pack(self.game.state()))
        if not self.world.is_global_zero:
            return {}
        states = [unpack(part) for part in parts]
        games = {name: torch.cat([state[name] for state in states]) for name in states[0]}
        return {
            "agent": _copy_to_cpu(self.agent.state_dict()),
            "optimizer": _copy_to_cpu(self.optimizer.state_dict()),
            "games": games,
        }


def _sum_over_ranks(world: World, mine: GameTotals) -> GameTotals:
    """The sum over ranks."""
    sums = torch.tensor(astuple(mine), device=world.device)
    with world.together("games of all ranks"):  # on a GPU the wait for the other ranks is that for the device
        return GameTotals(*world.sum(sums).tolist())


def _copy_to_cpu(value: Any) -> Any:
    """``value`` with its tensors copied to the CPU, laid out as they were."""
    if isinstance(value, Tensor):
        return value.detach().cpu().clone()
    if isinstance(value, dict):
        return {key: _copy_to_cpu(each) for key, each in value.items()}
    return [_copy_to_cpu(each) for each in value] if isinstance(value, list) else value
