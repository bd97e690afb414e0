"""Snake, in steps a second: ``bin/bench snake games learn ranks``, any of the three, one after the
other.

- ``games``: steps of the game alone, on the CPU's cores, beside a plain Python game.
- ``learn``: training steps (playing and learning) on the CPU beside Stable-Baselines3 and a
  CleanRL-style PPO, all with the same game, network and numbers; this loop with a rank a core.
  Stable-Baselines3 is left out where it is not installed.
- ``ranks``: training steps of the real command by ``--config``, on 1, 2, ... devices (``--devices
  1,2,4``), each with as many games and as large a part of a batch. A run makes ``--updates``
  updates, of which the first quarter is not counted.

Figures are medians over ``--repeats``, or over a run's updates, with the lowest and the highest.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import torch

from lab.bench.rows import Row, fit, measured, on_devices, pairs, spread, write
from stageb.cli.parsing import parse
from stageb.config import require
from stageb.errors import InputError
from stageb.ppo.config import AgentConfig, GameConfig, PpoLoopConfig
from stageb.ppo.envs.snake import ACTIONS, Game

PARTS = ("games", "learn", "ranks")
PASS_S = 3.0  # that a measurement of the game alone takes


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bin/bench snake",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument(
        "--size", type=int, default=12, help="of the board, for games and learn (default 12)"
    )
    parser.add_argument(
        "--games", type=int, default=4096, help="at a time on a core, for games (default 4096)"
    )
    parser.add_argument("--cores", type=int, default=2, help="for games and learn (default 2)")
    parser.add_argument(
        "--config",
        default="configs/snake/12x12.yaml",
        help="for ranks (default configs/snake/12x12.yaml)",
    )
    parser.add_argument(
        "--devices", default="1", help="how many, one after the other, for ranks (default 1)"
    )
    parser.add_argument(
        "--updates", type=int, default=40, help="of each run, for ranks (default 40)"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a key of the config, for ranks",
    )
    parser.add_argument("--repeats", type=int, default=3, help="for games and learn (default 3)")
    parser.add_argument("--json", metavar="FILE", help="write what was measured, as JSON")
    given = parser.parse_args(arguments)
    for name in ("games", "cores", "repeats", "updates"):
        require(getattr(given, name) >= 1, f"--{name}", getattr(given, name), "at least 1")
    rows = measured(given, {"games": games, "learn": learn, "ranks": ranks})
    machine = {"cores": os.cpu_count(), "load": os.getloadavg(), "torch": torch.__version__}
    write(given.json, {"machine": machine, "rows": rows})
    return 0


# The game alone


def games(given: argparse.Namespace) -> list[Row]:
    """Steps a second of all cores together, a process each; random actions, observations included
    and not."""
    contestants = {
        "this game": _tensors,
        "this game, grids too": _tensors_seen,
        "this game by Gymnasium, planes too": _vector,
        "plain Python": _python,
    }
    found = []
    for name, act in contestants.items():
        with multiprocessing.get_context("spawn").Pool(given.cores) as pool:
            rates = [
                sum(
                    pool.map(
                        act,
                        [(given.size, given.games, number) for number in range(given.cores)],
                        chunksize=1,
                    )
                )
                for _ in range(given.repeats)
            ]
        found.append(
            {"game": name, "size": given.size, "cores": given.cores, **spread("steps_per_s", rates)}
        )
    return found


def _tensors(asked: tuple[int, int, int], seen: bool = False) -> float:
    torch.set_num_threads(1)
    size, count, number = asked
    game = Game(GameConfig(size=size), number, range(count))
    actions = torch.randint(
        0, ACTIONS, (64, count), generator=torch.Generator().manual_seed(number)
    )

    def step(turn: int) -> None:
        outcome = game.move(actions[turn % 64])
        game.renew(outcome.terminated | outcome.truncated, outcome.ate)
        if seen:
            game.grids()

    return _rate(step, count)


def _tensors_seen(asked: tuple[int, int, int]) -> float:
    return _tensors(asked, seen=True)


def _vector(asked: tuple[int, int, int]) -> float:
    from stageb.ppo.envs.snake_gym import SnakeVectorEnv

    torch.set_num_threads(1)
    size, count, number = asked
    envs = SnakeVectorEnv(count, GameConfig(size=size))
    envs.reset(seed=number)
    actions = torch.randint(0, ACTIONS, (64, count)).numpy()
    return _rate(lambda turn: envs.step(actions[turn % 64]), count)


def _python(asked: tuple[int, int, int]) -> float:
    from lab.bench.snake_peers import PythonSnake

    size, _, number = asked
    env = PythonSnake(GameConfig(size=size))
    env.reset(seed=number)
    actions = torch.randint(
        0, ACTIONS, (4096,), generator=torch.Generator().manual_seed(number)
    ).tolist()

    def step(turn: int) -> None:
        _, _, terminated, truncated, _ = env.step(actions[turn % 4096])
        if terminated or truncated:
            env.reset()

    return _rate(step, 1)


def _rate(step: Callable[[int], object], count: int) -> float:
    """Steps of ``count`` games a second."""
    for turn in range(64):
        step(turn)
    began, turn = time.perf_counter(), 64
    while time.perf_counter() - began < PASS_S:
        step(turn)
        turn += 1
    return (turn - 64) * count / (time.perf_counter() - began)


# Learning on the CPU


def learn(given: argparse.Namespace) -> list[Row]:
    """Training steps a second on the cores: each contestant in turn, ``repeats`` times.

    This loop has a rank a core. The others are one process; on few or busy cores one thread can be
    faster than several, so both are tried, and the faster counts.
    """
    contestants = ["this loop", "CleanRL-style", "CleanRL-style, plain Python games"]
    if importlib.util.find_spec("stable_baselines3"):
        contestants.append("Stable-Baselines3")
    rates: dict[tuple[str, int], list[float]] = {}
    for _ in range(given.repeats):
        for name in contestants:
            for threads in {given.cores} if name == "this loop" else {1, given.cores}:
                rates.setdefault((name, threads), []).append(_learning(name, given.size, threads))
    found = []
    for name in contestants:
        threads, best = max(
            ((threads, each) for (who, threads), each in rates.items() if who == name),
            key=lambda pair: statistics.median(pair[1]),
        )
        found.append(
            {
                "learner": name,
                "size": given.size,
                "cores": given.cores,
                "used": threads,
                **spread("steps_per_s", best),
            }
        )
    return found


def _learning(name: str, size: int, threads: int) -> float:
    """In a process of its own, so that none warms up for another."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_learner, (name, size, threads))


def _learner(name: str, size: int, threads: int) -> float:
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    from lab.bench.snake_peers import PythonSnake, Setting, cleanrl_style
    from stageb.ppo.envs.snake_gym import SnakeVectorEnv

    torch.set_num_threads(threads)
    game = GameConfig(size=size)
    setting = Setting(
        game,
        AgentConfig(16, 1, 64),
        games=256,
        steps=32,
        batch=1024,
        epochs=2,
        updates=3,
        threads=threads,
    )
    if name == "this loop":
        return _this_loop(setting)
    if name == "Stable-Baselines3":
        from lab.bench.snake_sb3 import stable_baselines3

        return stable_baselines3(setting)
    if name == "CleanRL-style":
        return cleanrl_style(setting, SnakeVectorEnv(setting.games, game))
    makers = [lambda: PythonSnake(game)] * setting.games
    return cleanrl_style(setting, SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP))


def _this_loop(setting: Any) -> float:
    """The real command, a rank a core, by its own notes but for its first update and its last,
    which evaluates."""
    keys = {
        **{
            f"game.{key}": value for key, value in asdict(setting.game).items() if value is not None
        },
        **{f"agent.{key}": value for key, value in asdict(setting.agent).items()},
        "ppo.epochs": setting.epochs,
        "runner.envs": setting.games,
        "runner.rollout_steps": setting.steps,
        "runner.global_batch": setting.batch,
        "evaluation.episodes": 1,
        "fabric.accelerator": "cpu",
    }
    per_update = _command(keys, setting.rollout, setting.updates + 2, setting.threads)[:-1]
    return statistics.median(per_update[1:])


# Learning on devices


def ranks(given: argparse.Namespace) -> Iterator[Row]:
    """Training steps a second of the real command on each number of devices, as each is known."""
    keys = pairs(given)
    asked = parse(["--config", given.config, *(f"--{key}={value}" for key, value in keys.items())])
    config: PpoLoopConfig = asked.config
    played, asked_batch = (
        (config.runner.envs, config.runner.global_batch) if asked.loop == "ppo" else (None, None)
    )
    if not isinstance(played, int) or asked_batch is None:
        raise InputError(
            "bin/bench snake ranks: say what a rank plays: --set runner.envs=16384 "
            "runner.global_batch=16384"
        )

    def trained(count: int) -> Row:
        batch = asked_batch * count
        last = {
            "runner.envs": played * count,
            "runner.global_batch": batch,
            "evaluation.episodes": 64,
            "evaluation.every": 0,
        }
        rollout = played * config.runner.rollout_steps * count
        rates = _command({"config": given.config, **keys, **last}, rollout, given.updates, count)
        return {
            "devices": count,
            "games a rank": played,
            **spread("steps_per_s", rates[given.updates // 4 : -1]),
        }

    yield from on_devices(given.devices, trained)


def _command(keys: dict[str, Any], rollout: int, updates: int, devices: int) -> list[float]:
    """Run ``stageb fit``; the steps a second of all ranks at each update."""
    last = {
        "runner.total_steps": rollout * updates,
        "runner.commit_every": updates,
        "runner.log_every": 1,
        "curves": False,
        "fabric.devices": devices,
    }
    return [row["time/global_fps"] for row in fit({"loop": "ppo", **keys, **last})]
