"""Snake, in steps a second: ``bin/bench snake games learn ranks``, any of the three, one after the other.

- ``games``: steps of the game alone, on the CPU's cores, beside a plain Python game.
- ``learn``: training steps (playing and learning) on the CPU beside Stable-Baselines3 and a CleanRL-style PPO, all with the
  same game, network and numbers; this loop with a rank a core. Stable-Baselines3 is left out where it is not installed.
- ``ranks``: training steps of the real command by ``--config``, on 1, 2, ... devices (``--devices 1,2,4``), each with as
  many games and as large a part of a batch. A run makes ``--updates`` updates, of which the first quarter is not counted.

Figures are medians over ``--repeats``, or over a run's updates, with the lowest and the highest.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from stageb.cli import parse
from stageb.config import require
from stageb.errors import InputError
from stageb.snake.config import AgentConfig, GameConfig, SnakeConfig
from stageb.snake.game import ACTIONS, Game

PARTS = ("games", "learn", "ranks")
PASS_S = 3.0  # that a measurement of the game alone takes


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bin/bench snake", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--size", type=int, default=12, help="of the board, for games and learn (default 12)")
    parser.add_argument("--games", type=int, default=4096, help="at a time on a core, for games (default 4096)")
    parser.add_argument("--cores", type=int, default=2, help="for games and learn (default 2)")
    parser.add_argument("--config", default="configs/snake/12x12.yaml", help="for ranks (default configs/snake/12x12.yaml)")
    parser.add_argument("--devices", default="1", help="how many, one after the other, for ranks (default 1)")
    parser.add_argument("--updates", type=int, default=40, help="of each run, for ranks (default 40)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key of the config, for ranks")
    parser.add_argument("--repeats", type=int, default=3, help="for games and learn (default 3)")
    parser.add_argument("--json", metavar="FILE", help="write what was measured, as JSON")
    given = parser.parse_args(arguments)
    for name in ("games", "cores", "repeats", "updates"):
        require(getattr(given, name) >= 1, f"--{name}", getattr(given, name), "at least 1")
    acts: dict[str, Callable[[argparse.Namespace], Iterable[dict[str, Any]]]] = {
        "games": games,
        "learn": learn,
        "ranks": ranks,
    }
    rows = []
    for part in given.parts:
        for row in acts[part](given):
            print(", ".join(f"{name} {_shown(value)}" for name, value in row.items()), flush=True)
            rows.append({"part": part, **row})
    if given.json:
        machine = {"cores": os.cpu_count(), "load": os.getloadavg(), "torch": torch.__version__}
        Path(given.json).write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n", encoding="utf-8")
    return 0


# The game alone


def games(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Steps a second of all cores together, a process each; random actions, observations included and not."""
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
                sum(pool.map(act, [(given.size, given.games, number) for number in range(given.cores)], chunksize=1))
                for _ in range(given.repeats)
            ]
        found.append({"game": name, "size": given.size, "cores": given.cores, **_spread(rates)})
    return found


def _tensors(asked: tuple[int, int, int], seen: bool = False) -> float:
    torch.set_num_threads(1)
    size, count, number = asked
    game = Game(GameConfig(size=size), number, range(count))
    actions = torch.randint(0, ACTIONS, (64, count), generator=torch.Generator().manual_seed(number))
    grids = game.grids()

    def step(turn: int) -> None:
        outcome = game.move(actions[turn % 64])
        game.restart(outcome.terminated | outcome.truncated, outcome.ate)
        if seen:
            game.grids(grids)

    return _rate(step, count)


def _tensors_seen(asked: tuple[int, int, int]) -> float:
    return _tensors(asked, seen=True)


def _vector(asked: tuple[int, int, int]) -> float:
    from stageb.snake.env import SnakeVectorEnv

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
    actions = torch.randint(0, ACTIONS, (4096,), generator=torch.Generator().manual_seed(number)).tolist()

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


def learn(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Training steps a second on the cores: each contestant in turn, ``repeats`` times.

    This loop has a rank a core. The others are one process; on few or busy cores one thread can be faster than several, so
    both are tried, and the faster counts.
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
        found.append({"learner": name, "size": given.size, "cores": given.cores, "used": threads, **_spread(best)})
    return found


def _learning(name: str, size: int, threads: int) -> float:
    """In a process of its own, so that none warms up for another."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_learner, (name, size, threads))


def _learner(name: str, size: int, threads: int) -> float:
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    from lab.bench.snake_peers import PythonSnake, Setting, cleanrl_style, stable_baselines3
    from stageb.snake.env import SnakeVectorEnv

    torch.set_num_threads(threads)
    game = GameConfig(size=size)
    setting = Setting(game, AgentConfig(16, 1, 64), games=256, steps=32, batch=1024, epochs=2, updates=3, threads=threads)
    if name == "this loop":
        return _this_loop(setting)
    if name == "Stable-Baselines3":
        return stable_baselines3(setting)
    if name == "CleanRL-style":
        return cleanrl_style(setting, SnakeVectorEnv(setting.games, game))
    makers = [lambda: PythonSnake(game)] * setting.games
    return cleanrl_style(setting, SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP))


def _this_loop(setting: Any) -> float:
    """The real command, a rank a core, by its own notes but for its first update and its last, which evaluates."""
    keys = {
        **{f"game.{key}": value for key, value in asdict(setting.game).items() if value is not None},
        **{f"agent.{key}": value for key, value in asdict(setting.agent).items()},
        "ppo.epochs": setting.epochs,
        "runner.per_rank_num_envs": setting.games // setting.threads,
        "runner.rollout_steps": setting.steps,
        "runner.global_batch": setting.batch,
        "evaluation.episodes": 1,
        "fabric.accelerator": "cpu",
    }
    per_update = _command(keys, setting.rollout, setting.updates + 2, setting.threads, {"OMP_NUM_THREADS": "1"})[:-1]
    return statistics.median(per_update[1:])


# Learning on devices


def ranks(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Training steps a second of the real command on each number of devices, as each is known."""
    counts = [int(word) for word in given.devices.split(",") if word.isdecimal()]
    require(bool(counts) and min(counts) >= 1, "--devices", given.devices, "numbers such as 1,2,4")
    pairs = dict(each.partition("=")[::2] for each in given.set)
    asked = parse(["--config", given.config, *(f"--{key}={value}" for key, value in pairs.items())])
    config: SnakeConfig = asked.config
    if asked.loop != "snake" or not isinstance(config.runner.per_rank_num_envs, int):
        raise InputError("bin/bench snake ranks: say how many games a rank plays: --set runner.per_rank_num_envs=16384")
    found: list[dict[str, Any]] = []
    for count in counts:
        rollout = config.runner.per_rank_num_envs * config.runner.rollout_steps * count
        keys = {"config": given.config, **pairs, "runner.global_batch": config.runner.global_batch * count}
        keys |= {"evaluation.episodes": 64, "evaluation.every": 0}
        rates = _command(keys, rollout, given.updates, count, {})[given.updates // 4 : -1]
        row = {"devices": count, "games a rank": config.runner.per_rank_num_envs, **_spread(rates)}
        linear = row["steps_per_s"] / (count / counts[0] * found[0]["steps_per_s"]) if found else 1.0
        found.append({**row, "of linear": linear})
        yield found[-1]


def _command(keys: dict[str, Any], rollout: int, updates: int, devices: int, environment: dict[str, str]) -> list[float]:
    """Run ``stageb fit``; the steps a second of all ranks at each update."""
    with tempfile.TemporaryDirectory() as root:
        last = {
            "runner.total_steps": rollout * updates,
            "runner.commit_every": updates,
            "runner.log_every": 1,
            "log.tensorboard": False,
            "log.curves": False,
            "output.root": root,
            "output.run_name": "run",
            "fabric.devices": devices,
        }
        words = [
            f"--{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in {**keys, **last}.items()
        ]
        line = [sys.executable, "-m", "stageb", "fit", "--loop=snake", *words]
        done = subprocess.run(line, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
        if done.returncode:
            raise InputError(f"stageb fit ended with {done.returncode}: {done.stderr[-2000:]}")
        rows = Path(root, "run", "timings.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(row)["time/global_fps"] for row in rows]


def _spread(rates: Sequence[float]) -> dict[str, float]:
    return {"steps_per_s": statistics.median(rates), "lowest": min(rates), "highest": max(rates)}


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
