"""The agent of a run, read from its folder as it was last committed; the run itself may go on meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file

from stageb.errors import InputError
from stageb.snake.agent import Agent
from stageb.snake.config import SnakeConfig
from stageb.store.commits import read_commit
from stageb.store.trust import file_of
from stageb.training.nonfinite import check_finite

WEIGHTS = "weights/agent.safetensors"


@dataclass(frozen=True)
class StoredAgent:
    """What a run's folder holds."""

    folder: Path
    config: SnakeConfig
    agent: Agent  # on the CPU
    updates: int  # that it learnt from


def load_agent(folder: Path, config: SnakeConfig) -> StoredAgent:
    """The agent as last committed. Raises ``InputError`` where there is none, or one of another shape."""
    last = read_commit(folder)
    if WEIGHTS not in last["versions"]:
        raise InputError(f"{folder}: its run has committed no agent yet; wait for its first commit")
    path = file_of(folder, folder / last["versions"][WEIGHTS].name)
    agent = Agent(config.agent, config.game.size, config.seed)
    try:
        weights = load_file(path)
        agent.load_state_dict(weights)
        check_finite(weights)
    except (OSError, RuntimeError, ValueError, SafetensorError) as error:
        raise InputError(f"{path}: not the weights of the agent that config.yaml tells of: {error}") from error
    return StoredAgent(folder, config, agent, last["state"]["update"])
