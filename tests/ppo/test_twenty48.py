"""2048 beside a game as one would write it down."""

from __future__ import annotations

import torch
from torch import Tensor

from stageb.ppo.envs.twenty48 import Twenty48

LEFT, RIGHT, UP, DOWN = MOVES = range(4)
Board = list[int]  # exponents, row by row


def slide(row: Board) -> tuple[Board, int]:
    """A row slid to its beginning, and what that scores."""
    tiles, done, points = [tile for tile in row if tile], [], 0
    while tiles:
        tile = tiles.pop(0)
        if tiles and tiles[0] == tile < 15:
            tile = tiles.pop(0) + 1
            points += 2**tile
        done.append(tile)
    return done + [0] * (4 - len(done)), points


def move(board: Board, action: int) -> tuple[Board, int]:
    """The board after a move, before a tile appears, and what the move scores."""
    lines = [board[place : place + 4] for place in (0, 4, 8, 12)]
    lines = [list(line) for line in zip(*lines, strict=True)] if action in (UP, DOWN) else lines
    back = -1 if action in (RIGHT, DOWN) else 1
    slid = [slide(line[::back]) for line in lines]
    lines = [line[::back] for line, _ in slid]
    lines = [list(line) for line in zip(*lines, strict=True)] if action in (UP, DOWN) else lines
    return [cell for line in lines for cell in line], sum(points for _, points in slid)


def boards_of(boards: Tensor) -> Twenty48:
    """Games that stand at ``boards``, (N, 16)."""
    games = Twenty48(3, range(len(boards)), "cpu")
    games.load({**games.state(), "board": boards})
    return games


def random_boards(seed: int) -> Tensor:
    """A few thousand, from nearly empty ones of small tiles to full ones of all."""
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for highest in (1, 2, 3, 6, 15):
        tiles = torch.randint(1, highest + 1, (600, 16), generator=generator)
        parts.append(
            tiles
            * (
                torch.rand(tiles.shape, generator=generator)
                < torch.linspace(0.2, 1.1, 600)[:, None]
            )
        )
    return torch.cat(parts).to(torch.uint8)


def test_every_row_slides_as_by_hand() -> None:
    rows = torch.cartesian_prod(*[torch.arange(16)] * 4)
    games = boards_of(torch.cat([rows, torch.zeros(len(rows), 12)], dim=1).to(torch.uint8))
    rewards = games.step(torch.full((len(rows),), LEFT)).rewards
    for row, found, reward in zip(
        rows.tolist(), games.board[:, :4].tolist(), rewards.tolist(), strict=True
    ):
        wanted, points = slide(row)
        assert reward == torch.tensor(points / 1000), row
        # where a tile appeared
        assert all(cell == due or due == 0 for cell, due in zip(found, wanted, strict=True)), row


def test_moves_and_masks_are_those_of_a_plain_game() -> None:
    boards = random_boards(0)
    for action in MOVES:
        games = boards_of(boards)
        allowed = games.masks()
        outcome = games.step(torch.full((len(boards),), action))
        score, highest, reached, length = (each.tolist() for each in outcome.measures)
        for place, board in enumerate(boards.tolist()):
            (after, points), found = move(board, action), games.board[place].tolist()
            changed = [cell for cell in range(16) if found[cell] != after[cell]]
            assert allowed[place, action] == (after != board)
            # a new tile, but for a move that changes nothing
            assert len(changed) == length[place] == (after != board)
            assert all(after[cell] == 0 and found[cell] in (1, 2) for cell in changed)
            assert outcome.rewards[place] == torch.tensor(points / 1000) and score[place] == points
            assert highest[place] == 2 ** max(found) and reached[place] == (max(found) >= 11)
            assert outcome.terminated[place] == all(
                move(found, other)[0] == found for other in MOVES
            )
    stuck = boards_of(torch.tensor([[1, 2, 1, 2, 2, 1, 2, 1] * 2], dtype=torch.uint8))
    assert bool(stuck.step(torch.tensor([UP])).terminated)


def test_an_agent_sees_which_tile_stands_where() -> None:
    boards = random_boards(1)
    assert torch.equal(boards_of(boards).observe().long().argmax(2), boards.long())
    assert torch.equal(boards_of(boards).observe().sum(2), torch.ones_like(boards).long())


def near(share: Tensor, wanted: float) -> bool:
    return bool(((share - wanted).abs() < 0.01).all())


def test_a_game_begins_with_two_tiles() -> None:
    board = Twenty48(5, range(20_000), "cpu").board
    assert ((board > 0).sum(1) == 2).all()
    assert near((board > 0).double().mean(0), 2 / 16)
    assert near((board[board > 0] == 1).double().mean(), 0.9)


def test_a_new_tile_is_a_2_nine_times_of_ten_on_any_free_cell_and_another_after_each_move_and_in_each_game() -> (
    None
):
    board = torch.tensor([0, 0, 3, 4, 0, 0, 0, 5, 0, 6, 0, 7, 0, 0, 0, 8], dtype=torch.uint8)
    slid = torch.tensor([3, 4, 0, 0, 5, 0, 0, 0, 6, 7, 0, 0, 8, 0, 0, 0], dtype=torch.uint8)

    def laid(**names: Tensor) -> Tensor:
        games = boards_of(board.repeat(20_000, 1))
        games.load({**games.state(), **names})
        games.step(torch.full((20_000,), LEFT))
        return (games.board - slid)[:, slid == 0]

    zero, one = torch.zeros((2, 20_000), dtype=torch.int64) + torch.tensor([[0], [1]])
    tiles = laid(moves=zero, episode=zero)
    assert ((tiles > 0).sum(1) == 1).all()
    assert near((tiles == 1).double().mean(0), 0.09) and near((tiles == 2).double().mean(0), 0.01)
    for other in (laid(moves=one, episode=zero), laid(moves=zero, episode=one)):
        assert near((tiles.argmax(1) == other.argmax(1)).double().mean(), 0.1)
        assert near((tiles.amax(1) == other.amax(1)).double().mean(), 0.9 * 0.9 + 0.1 * 0.1)
