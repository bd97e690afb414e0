"""Snake as an environment of the loop's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from stageb.ppo.actions import Actions, Discrete
from stageb.ppo.config import START_LENGTH, GameConfig
from stageb.ppo.environment import Environment, Frame, Transition
from stageb.ppo.envs.snake.game import ACTIONS, Game, draw_image, write_text


class SnakeEnvironment(Environment):
    """Many boards."""

    actions: Actions = Discrete(ACTIONS)
    recordable: bool = True
    measures: Mapping[str, str] = {
        "score": "foods a game",
        "fill": "",
        "win_rate": "games won",
        "death_rate": "",
        "cut_rate": "",
        "length": "steps a game",
    }

    def __init__(self, config: GameConfig, seed: int, numbers: Sequence[int], device: torch.device | str) -> None:
        """See ``Environment``."""
        self.game = Game(config, seed, numbers, device)
        self.device = self.game.device
        self._foods = config.cells - START_LENGTH

    def observe(self) -> Tensor:
        """Grids: (N, cells)."""
        return self.game.grids()

    def step(self, actions: Tensor) -> Transition:
        """See ``Environment``."""
        game, moved = self.game, self.game.move(actions)
        self._ate = moved.ate
        died = moved.terminated & ~moved.won
        measures = (game.score, game.length / game.cells, moved.won, died, moved.truncated, game.steps)
        return Transition(moved.rewards, moved.terminated, moved.truncated, measures)

    def restart(self, done: Tensor) -> None:
        """See ``Environment``."""
        self.game.restart(done, self._ate)

    def settle(self) -> None:
        """See ``Environment``."""
        self.game.settle()

    def state(self) -> dict[str, Tensor]:
        """See ``Environment``."""
        return self.game.state()

    def load(self, state: dict[str, Tensor]) -> None:
        """See ``Environment``."""
        self.game.load(state)

    def tell(self, means: Mapping[str, float]) -> str:
        """See ``Environment``."""
        foods = f"{means['score']:.2f} of {self._foods} foods in {means['length']:,.0f} steps"
        return f"{foods}, {means['win_rate']:.1%} won, {means['death_rate']:.1%} died, {means['cut_rate']:.1%} cut off"

    def frame(self) -> Frame:
        """See ``Environment``."""
        grid = self.game.grids()[0].tolist()
        return Frame(write_text(grid), partial(draw_image, grid))

    def tell_one(self, measures: Mapping[str, float]) -> str:
        """See ``Environment``; to die takes no step."""
        steps = measures["length"] - measures["death_rate"]
        how = "won: the board is full" if measures["win_rate"] else "cut off" if measures["cut_rate"] else "died"
        return f"{measures['score']:.0f} of {self._foods} foods in {steps:.0f} steps; {how}"
