"""The game as Gymnasium's environments: many games at once, or one.

Observations are three planes, float32 (3, size, size), from 0 to 1: the age of the body over its
length (its order, from the tail's 1/length to the head's 1), the food, the head. Actions are 0 up,
1 right, 2 down, 3 left.

Food is drawn from streams named by the seed of ``reset``, the game's number and the episode: with
one seed, game 3 of a vector of 8 and game 3 of a vector of 100 are the same game, and
``SnakeEnv(number=3)`` is that game alone.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from torch import Tensor

from stageb.ppo.config import GameConfig
from stageb.ppo.envs.snake import ACTIONS, Game, draw_image, write_text

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]
SETTLED_EVERY = 1 << 20  # steps; clocks could go on for twice as many


def make_observations(game: Game, rows: Tensor | slice = slice(None)) -> Floats:
    """Planes of all games, or of those in the places ``rows``: float32 (rows, 3, size, size)."""
    length, food, head = game.length[rows], game.food[rows], game.head[rows]
    planes = torch.zeros((len(length), 3, game.cells), device=game.device)
    ages = (game.free_at[rows] - game.clock[rows, None]).clamp_(min=0)
    planes[:, 0].copy_(ages).div_(length.to(torch.float32)[:, None])
    planes[:, 1].scatter_(1, food[:, None], (food != head).to(torch.float32)[:, None])
    planes[:, 2].scatter_(1, head[:, None], 1.0)
    found: Floats = planes.view(-1, 3, game.config.size, game.config.size).cpu().numpy()
    return found


def _space(config: GameConfig) -> gymnasium.Space[Floats]:
    box: gymnasium.Space[Any] = spaces.Box(0.0, 1.0, (3, config.size, config.size), np.float32)
    return box


class SnakeVectorEnv(VectorEnv[Floats, NDArray[np.int64], NDArray[Any]]):
    """Many games; one that ends begins anew within the same step, its last observation in
    ``infos["final_obs"]``."""

    def __init__(
        self, num_envs: int, config: GameConfig | None = None, device: str = "cpu"
    ) -> None:
        """``num_envs`` games by ``config`` on ``device``; what goes in and out is NumPy's."""
        self.config = config or GameConfig()
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}
        self.single_observation_space = _space(self.config)
        self.single_action_space = spaces.Discrete(ACTIONS)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._device = device
        self._steps = 0
        self.game: Game | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Begin new episodes, in all games or those of ``options["reset_mask"]``, bool (num_envs,).

        A ``seed`` names all streams anew, from the first episode on; without one the streams of the
        last seed go on.
        """
        super().reset(seed=seed)
        if seed is not None or self.game is None:
            named = int(self.np_random.integers(1 << 62)) if seed is None else seed
            self.game = Game(self.config, named, range(self.num_envs), self._device)
        else:
            mask = (options or {}).get("reset_mask", np.ones(self.num_envs, dtype=np.bool_))
            chosen = torch.as_tensor(mask).to(self._device)
            self.game.settle()
            self.game.renew(chosen, torch.zeros_like(chosen))
        return make_observations(self.game), self._info(self.game)

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[Floats, NDArray[Any], Bools, Bools, dict[str, Any]]:
        """One step of every game: observations, rewards (float32), terminations, truncations,
        infos."""
        game = self._require_game()
        outcome = game.move(torch.as_tensor(actions, dtype=torch.int64).to(self._device))
        done = outcome.terminated | outcome.truncated
        infos: dict[str, Any] = {}
        ended = done.nonzero()[:, 0]
        if len(ended):
            infos = self._describe_final(game, ended, done.cpu().numpy())
        game.renew(done, outcome.ate)
        self._steps += 1
        if self._steps % SETTLED_EVERY == 0:
            game.settle()
        infos |= self._info(game)
        seen = make_observations(game)
        rewards, terminated, truncated = (
            each.cpu().numpy() for each in (outcome.rewards, outcome.terminated, outcome.truncated)
        )
        return seen, rewards, terminated, truncated, infos

    def _require_game(self) -> Game:
        if self.game is None:
            raise gymnasium.error.ResetNeeded("call reset before step")
        return self.game

    def _info(self, game: Game) -> dict[str, Any]:
        everyone = np.ones(self.num_envs, dtype=np.bool_)
        return {"score": game.score.cpu().numpy(), "_score": everyone}

    def _describe_final(self, game: Game, ended: Tensor, done: Bools) -> dict[str, Any]:
        """Return ``info`` of games that ended, as Gymnasium's own vectors do."""
        last = np.full(self.num_envs, None, dtype=object)
        for place, seen in zip(ended.tolist(), make_observations(game, ended), strict=True):
            last[place] = seen
        score = np.where(done, game.score.cpu().numpy(), 0)
        return {
            "final_obs": last,
            "_final_obs": done,
            "final_info": {"score": score, "_score": done},
            "_final_info": done,
        }


class SnakeEnv(gymnasium.Env[Floats, np.int64]):
    """One game."""

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 12}  # noqa: RUF012 - Gymnasium's own way

    def __init__(
        self, config: GameConfig | None = None, number: int = 0, render_mode: str | None = None
    ) -> None:
        """The game with that global ``number``."""
        self.config = config or GameConfig()
        self.render_mode = render_mode
        self.observation_space = _space(self.config)
        self.action_space = spaces.Discrete(ACTIONS)
        self.number = number
        self.game: Game | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Begin a new episode: the first of ``seed``, or the next one."""
        super().reset(seed=seed)
        if seed is not None or self.game is None:
            named = int(self.np_random.integers(1 << 62)) if seed is None else seed
            self.game = Game(self.config, named, [self.number])
        else:
            yes = torch.ones(1, dtype=torch.bool)
            self.game.settle()
            self.game.renew(yes, ~yes)
        return self._observe(self.game), {"score": int(self.game.score)}

    def step(self, action: np.int64) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """One step."""
        if self.game is None:
            raise gymnasium.error.ResetNeeded("call reset before step")
        outcome = self.game.move(torch.tensor([int(action)]))
        self.game.renew(torch.zeros(1, dtype=torch.bool), outcome.ate & ~outcome.won)
        info = {"score": int(self.game.score)}
        return (
            self._observe(self.game),
            float(outcome.rewards),
            bool(outcome.terminated),
            bool(outcome.truncated),
            info,
        )

    def render(self) -> Any:
        """The board as text ("ansi") or as a picture, uint8 (height, width, 3)."""
        if self.game is None or self.render_mode is None:
            return None
        grid = self.game.grids()[0].tolist()
        return (
            write_text(grid)
            if self.render_mode == "ansi"
            else np.asarray(draw_image(grid).convert("RGB"))
        )

    def _observe(self, game: Game) -> Floats:
        found: Floats = make_observations(game)[0]
        return found
