"""Six environments as users bring them, each learnt by the ppo loop and by Stable-Baselines3, both
with what they ship.

A vector of processes, a vector that writes into one buffer of its own, pictures of bytes, ``Dict``
observations, ``MultiDiscrete`` actions, and a continuous action from 0 to 1000. Both have equal
steps, and no key set for any of them but the number of these. Stable-Baselines3 gets a single game
where it cannot take a vector of Gymnasium's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from stageb.runs.figures import interval

ROUNDS = 20  # of a game that asks a question at every step


class Questions(gymnasium.Env[Any, Any]):
    """A new question at every step, one point for a right answer."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """A new game."""
        super().reset(seed=seed)
        self.round = 0
        return self.ask(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """An answer."""
        points, self.round = self.judge(action), self.round + 1
        return self.ask(), points, False, self.round >= ROUNDS, {}

    def ask(self) -> Any:
        """The next question."""
        raise NotImplementedError

    def judge(self, action: Any) -> float:
        """The points of an answer."""
        raise NotImplementedError


class Photograph(Questions):
    """In which quarter of a picture of bytes is the bright part? A darker one lies elsewhere."""

    observation_space = spaces.Box(0, 255, (36, 36, 1), np.uint8)
    action_space = spaces.Discrete(4)

    def ask(self) -> Any:
        """The picture."""
        picture = np.zeros((36, 36, 1), np.uint8)
        self.quarter, other = self.np_random.permutation(4)[:2]
        for quarter, light in ((self.quarter, 255), (other, 110)):
            row, column = 18 * np.array(divmod(quarter, 2)) + self.np_random.integers(0, 12, 2)
            picture[row : row + 6, column : column + 6] = light
        return picture

    def judge(self, action: Any) -> float:
        """One for the right quarter."""
        return float(action == self.quarter)


class Sensors(Questions):
    """Of four sensors name the loudest, counted from the kind of machine on: a ``Dict`` of numbers
    and a kind."""

    observation_space = spaces.Dict(
        {"sensors": spaces.Box(0, 1, (4,), np.float32), "kind": spaces.Discrete(3)}
    )
    action_space = spaces.Discrete(4)

    def ask(self) -> Any:
        """The readings."""
        self.readings, self.kind = (
            self.np_random.random(4).astype(np.float32),
            int(self.np_random.integers(3)),
        )
        return {"sensors": self.readings, "kind": self.kind}

    def judge(self, action: Any) -> float:
        """One for the right sensor."""
        return float(action == (self.readings.argmax() + self.kind) % 4)


class Switches(Questions):
    """Set two switches by what is seen: ``MultiDiscrete`` actions, a point for each that is
    right."""

    observation_space = spaces.Box(0, 1, (4,), np.float32)
    action_space = spaces.MultiDiscrete([3, 2])

    def ask(self) -> Any:
        """Four numbers."""
        self.seen = self.np_random.random(4).astype(np.float32)
        return self.seen

    def judge(self, action: Any) -> float:
        """A point for each switch."""
        right = (int(self.seen[0] * 3), int(self.seen[1] > self.seen[2]))
        return float(action[0] == right[0]) + float(action[1] == right[1])


class Tank(gymnasium.Env[Any, Any]):
    """Keep a tank at its level by a valve from 0 to 1000 litres."""

    observation_space = spaces.Box(0, 1, (2,), np.float32)
    action_space = spaces.Box(0, 1000, (1,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """A new level to keep."""
        super().reset(seed=seed)
        self.level, self.wanted = self.np_random.random(2)
        self.round = 0
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """A tenth of a minute, in which half of what is in the tank is let out."""
        self.level = float(np.clip(0.5 * self.level + 0.5 * float(action[0]) / 1000, 0, 1))
        self.round += 1
        return self.seen(), 1 - 2 * abs(self.level - self.wanted), False, self.round >= ROUNDS, {}

    def seen(self) -> Any:
        """Its level, and the one to keep."""
        return np.array([self.level, self.wanted], np.float32)


SIDE, ROWS = 7, 8  # of the court on which balls fall


class Catch(gymnasium.Env[Any, Any]):
    """A paddle catches falling balls: one game."""

    observation_space = spaces.Box(0, 1, (SIDE * 2 + 1,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """A new ball."""
        super().reset(seed=seed)
        self.court = Court(1, self.np_random)
        return self.court.seen()[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """A row further down."""
        rewards, ended = self.court.move(np.array([action]))
        return self.court.seen()[0], float(rewards[0]), bool(ended[0]), False, {}


class Court:
    """The games of several paddles: ``seen`` always writes into the same buffer."""

    def __init__(self, games: int, chance: np.random.Generator) -> None:
        self.chance, self.buffer = chance, np.zeros((games, SIDE * 2 + 1), np.float32)
        self.ball, self.paddle, self.row = (np.zeros(games, np.int64) for _ in range(3))
        self.begin(np.ones(games, bool))

    def begin(self, which: Any) -> None:
        """A new ball for each of ``which``."""
        self.ball[which] = self.chance.integers(0, SIDE, which.sum())
        self.paddle[which], self.row[which] = SIDE // 2, 0

    def move(self, actions: Any) -> tuple[Any, Any]:
        """Rewards, and which have ended."""
        self.paddle = np.clip(self.paddle + actions - 1, 0, SIDE - 1)
        self.row += 1
        ended = self.row >= ROWS
        return np.where(ended, np.where(self.ball == self.paddle, 1.0, -1.0), 0.0), ended

    def seen(self) -> Any:
        """Where balls and paddles are, (games, 2 SIDE + 1)."""
        places = np.arange(len(self.ball))
        self.buffer[:] = 0
        self.buffer[places, self.ball] = 1
        self.buffer[places, SIDE + self.paddle] = 1
        self.buffer[:, -1] = self.row / ROWS
        return self.buffer


class CatchVector(VectorEnv[Any, Any, Any]):
    """Many paddles at once, as a library in C would bring them: observations are one buffer,
    written anew at every step."""

    def __init__(self, num_envs: int) -> None:
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = (
            Catch.observation_space,
            Catch.action_space,
        )
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.court = Court(num_envs, np.random.default_rng(0))

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """New balls where ``reset_mask`` says."""
        if seed is not None:
            self.court.chance = np.random.default_rng(seed)
        self.court.begin((options or {}).get("reset_mask", np.ones(self.num_envs, bool)))
        return self.court.seen(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """A row further down."""
        rewards, ended = self.court.move(actions)
        return self.court.seen(), rewards, ended, np.zeros(self.num_envs, bool), {}


def make_pole() -> Any:
    """One game of CartPole."""
    return gymnasium.make("CartPole-v1")


def make_poles(num_envs: int) -> Any:
    """Games of CartPole, each in a process of its own."""
    return AsyncVectorEnv([make_pole] * num_envs, autoreset_mode=AutoresetMode.DISABLED)


@dataclass(frozen=True)
class Game:
    """An environment of the table."""

    title: str
    make: str  # what a user of the loop writes, in this module
    single: Callable[[], Any]  # what a user of Stable-Baselines3 hands over
    policy: str
    most: str  # the best return, in words
    # games that Stable-Baselines3 plays; in its own process, since others change no figure
    side_by_side: int = 1


GAMES = {
    "async": Game(
        "CartPole in an `AsyncVectorEnv`", "make_poles", make_pole, "MlpPolicy", "500", 16
    ),
    "buffer": Game(
        "a vector that writes into its own buffer", "CatchVector", Catch, "MlpPolicy", "1"
    ),
    "images": Game("pictures, 36 x 36 bytes", "Photograph", Photograph, "CnnPolicy", "20"),
    "dict": Game("`Dict` observations", "Sensors", Sensors, "MultiInputPolicy", "20"),
    "multi": Game("`MultiDiscrete` actions", "Switches", Switches, "MlpPolicy", "40"),
    "wide": Game("an action from 0 to 1000", "Tank", Tank, "MlpPolicy", "about 19"),
}
ROLLOUT = 2048  # steps of one of Stable-Baselines3's rollouts, by default of a single game


def learn_here(name: str, steps: int, seed: int, folder: Path) -> float:
    """The return that the ppo loop reaches with its defaults."""
    keys = {
        "env.make": f"lab.bench.games:{GAMES[name].make}",
        "runner.total_steps": steps,
        "seed": seed,
    }
    keys |= {
        "evaluation.episodes": EPISODES,
        "fabric.accelerator": "cpu",
        "fabric.devices": 1,
        "curves": "false",
    }
    keys |= {"output.root": folder, "output.run_name": f"{name}-{seed}"}
    words = [f"--{key}={value}" for key, value in keys.items()]
    subprocess.run(
        [sys.executable, "-m", "stageb", "fit", "--fresh", "--loop=ppo", *words], check=True
    )
    rows = [
        json.loads(line)
        for line in (folder / f"{name}-{seed}" / "metrics.jsonl").read_text().splitlines()
    ]
    return float(rows[-1]["eval/return"])


EPISODES = 100


def learn_there(name: str, steps: int, seed: int) -> float:
    """The same of Stable-Baselines3's PPO with its defaults."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    torch.set_num_threads(1)
    game = GAMES[name]
    envs = make_vec_env(game.single, n_envs=game.side_by_side, seed=seed)
    model = PPO(game.policy, envs, n_steps=ROLLOUT // envs.num_envs, seed=seed, device="cpu")
    model.learn(steps)
    tried = make_vec_env(game.single, seed=1000 + seed)
    found: Any = evaluate_policy(model, tried, n_eval_episodes=EPISODES, deterministic=True)[0]
    envs.close()
    return float(found)


def main(arguments: Sequence[str]) -> int:
    """The table, a line for each environment, and what is behind it as JSON Lines in the folder."""
    parser = argparse.ArgumentParser(prog="bin/bench games", description=__doc__)
    parser.add_argument("--games", default=",".join(GAMES), help=f"of {', '.join(GAMES)}")
    parser.add_argument(
        "--steps", type=int, default=32_768, help="of all games of an environment together"
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--to", type=Path, default=Path("out/games"), help="the folder of runs and figures"
    )
    parser.add_argument("--only", choices=("here", "there"), help="one of the two")
    given = parser.parse_args(arguments)
    given.to.mkdir(parents=True, exist_ok=True)
    lines = ["| | best | ppo | Stable-Baselines3 |", "|---|---|---|---|"]
    for name in given.games.split(","):
        found: dict[str, list[float]] = {"here": [], "there": []}
        for seed in range(1, given.seeds + 1):
            if given.only != "there":
                found["here"].append(learn_here(name, given.steps, seed, given.to))
            if given.only != "here":
                found["there"].append(learn_there(name, given.steps, seed))
        with (given.to / "games.jsonl").open("a") as file:
            file.write(json.dumps({"game": name, "steps": given.steps, **found}) + "\n")
        here, there = (_tell_returns(found[side]) for side in ("here", "there"))
        lines.append(f"| {GAMES[name].title} | {GAMES[name].most} | {here} | {there} |")
        print(lines[-1], flush=True)
    print("\n".join(lines))
    return 0


def _tell_returns(found: Sequence[float]) -> str:
    """The mean over seeds with its 95 % interval, then the return of each."""
    each = ", ".join(f"{value:.2f}" for value in found)
    if len(found) < 2:
        return each
    mean, half = interval(found)
    return f"{mean:.2f} +- {half:.2f} ({each})"
