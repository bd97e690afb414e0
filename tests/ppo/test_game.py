"""The rules, on boards written by hand; and many games at once, beside a plain one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ppo.boards import Plain, advance, game_of, same

from stageb.ppo.config import GameConfig
from stageb.ppo.envs.snake import DOWN, LEFT, RIGHT, UP, Game

SQUARE = """
. . . .
. a d .
. b c .
. . . *
"""
OPEN = """
. . . . .
a b c . .
. . . . .
. . * . .
. . . . .
"""


def test_the_first_board_is_a_snake_of_three_in_the_middle_that_heads_right() -> None:
    game = Game(GameConfig(size=5), 1, range(50))
    grids = game.grids()
    assert (grids[:, 10:13] == torch.tensor([1, 2, 3])).all()
    assert ((grids == 26).sum(1) == 1).all()
    assert ((grids == 0).sum(1) == 21).all()
    assert game.score.tolist() == [0] * 50
    game.move(torch.full((50,), LEFT))  # a reverse move
    assert (game.head == 13).all()


def test_eating_grows_the_snake_by_one_and_lays_food_on_a_free_cell() -> None:
    game = game_of(OPEN, RIGHT)
    outcome = advance(game, DOWN, DOWN)
    assert bool(outcome.ate)
    assert float(outcome.rewards) == pytest.approx(1 - 0.001)
    game.renew(outcome.terminated, outcome.ate)
    grid = game.grids()[0].tolist()
    assert [grid[cell] for cell in (6, 7, 12, 17)] == [1, 2, 3, 4]
    assert grid.count(0) == 20
    assert grid.count(26) == 1
    assert int(game.score) == 1


def test_any_other_cell_of_the_body_is_deadly() -> None:
    game = game_of(". . . . . e d . a b c . . . . *", LEFT)
    outcome = advance(game, DOWN)
    assert bool(outcome.terminated)
    assert not bool(outcome.won | outcome.truncated)
    assert float(outcome.rewards) == pytest.approx(-1.001)
    assert same(". . . . . e d . a b c . . . . *", game)  # the last observation


def test_the_full_board_is_a_win_that_terminates_and_the_next_game_begins() -> None:
    game = game_of("a b c d h g f e i j k l * o n m", LEFT)
    outcome = advance(game, LEFT)
    assert bool(outcome.won & outcome.terminated & outcome.ate)
    assert not bool(outcome.truncated)
    assert float(outcome.rewards) == pytest.approx(1 - 0.001)
    assert int(game.score) == 13
    assert same("a b c d h g f e i j k l p o n m", game)
    game.renew(outcome.terminated, outcome.ate)
    assert (game.grids() > 0).sum() == 4


def test_too_long_without_food_is_a_truncation_and_no_death() -> None:
    game = game_of(SQUARE, UP, patience=5)
    outcome = advance(game, LEFT, DOWN, RIGHT, UP, LEFT)
    assert bool(outcome.truncated)
    assert not bool(outcome.terminated)
    assert float(outcome.rewards) == pytest.approx(-0.001)


def test_a_game_is_cut_off_at_its_limit_whatever_was_eaten() -> None:
    game = game_of(OPEN, RIGHT, limit=3)
    outcome = advance(game, DOWN, DOWN, RIGHT)
    assert bool(outcome.truncated)
    assert not bool(outcome.terminated)
    assert int(game.score) == 1


def test_a_win_brings_its_reward_beside_the_last_foods() -> None:
    game = game_of("a b c d h g f e i j k l * o n m", LEFT, win=5.0, step=0.0, limit=1)
    outcome = advance(game, LEFT)
    assert float(outcome.rewards) == 6.0
    assert not bool(outcome.truncated)


# Many games at once


@pytest.mark.slow
@settings(max_examples=30)
@given(
    st.sampled_from([4, 5, 6, 7, 8, 15, 16, 30]), st.integers(0, 2**32), st.sampled_from([3, 40])
)
def test_many_games_go_as_plain_ones_do(size: int, seed: int, patience: int) -> None:
    count = 16
    game = Game(GameConfig(size=size, patience=patience), seed, range(count))
    actions = torch.randint(0, 4, (200, count), generator=torch.Generator().manual_seed(seed))
    plain = [Plain(size, int(food), patience) for food in game.food]
    for turn in range(200):
        outcome = game.move(actions[turn])
        found = torch.stack(
            [outcome.ate, outcome.terminated & ~outcome.won, outcome.won, outcome.truncated], dim=1
        )
        assert found.tolist() == [
            list(each.step(action))
            for each, action in zip(plain, actions[turn].tolist(), strict=True)
        ]
        done = outcome.terminated | outcome.truncated
        game.renew(done, outcome.ate)
        for place in range(count):
            food = int(game.food[place])
            plain[place].food = food
            if done[place]:
                plain[place] = Plain(size, food, patience)
        assert game.grids().tolist() == [each.grid() for each in plain]


def test_food_differs_by_seed_game_and_episode_and_falls_on_every_free_cell() -> None:
    config = GameConfig(size=6)
    first, again, other = (Game(config, seed, range(400)) for seed in (1, 1, 2))
    assert torch.equal(first.food, again.food)
    assert not torch.equal(first.food, other.food)
    assert set(first.food.tolist()) == set(range(36)) - {19, 20, 21}
    before = first.food.clone()
    everyone = torch.ones(400, dtype=torch.bool)
    first.renew(everyone, ~everyone)
    assert (before != first.food).float().mean() > 0.9


def test_food_falls_on_all_free_cells_alike() -> None:
    counts = torch.bincount(Game(GameConfig(size=4), 5, range(13_000)).food, minlength=16)
    free = counts[counts > 0]
    assert len(free) == 13
    assert ((free - 1000).abs() < 150).all()  # 5 standard deviations
