"""The agent that a run has kept, and the code of its that a user alone may name."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from stageb.errors import InputError, shown
from stageb.ppo.agents import ActorCritic
from stageb.ppo.config import PpoLoopConfig
from stageb.ppo.make import make_agent, make_environment
from stageb.settings import CODE, READ
from stageb.store.commits import read_commit
from stageb.store.trust import refuse
from stageb.training.run import load_weights

WEIGHTS = "weights/agent.safetensors"


@dataclass(frozen=True)
class StoredAgent:
    """An agent from a run's folder."""

    folder: Path
    config: PpoLoopConfig
    agent: ActorCritic  # on the CPU
    measures: Sequence[str]  # of its environment
    told: str  # which it is, of the run's


def load_agent(folder: Path, config: PpoLoopConfig) -> StoredAgent:
    """The agent of the best evaluation that was committed, or the last where none was evaluated.
    Raises ``InputError`` where there is none, or one of another shape."""
    last = read_commit(folder)
    if WEIGHTS not in last["versions"]:
        raise InputError(f"{folder}: its run has committed no agent yet; wait for its first commit")
    with closing(make_environment(config, config.seed, [0], "cpu")) as sample:
        agent = make_agent(config, sample)
    load_weights(folder, last["versions"][WEIGHTS].name, "agent", agent.load_state_dict)
    updates, best = last["state"]["update"], last["state"]["best"]
    told = (
        f"best agent, of update {best['update']} of {updates}"
        if best
        else f"agent after {updates} updates"
    )
    return StoredAgent(folder, config, agent, list(sample.measures), shown(told, 100))


def add_authority(parser: argparse.ArgumentParser) -> None:
    """The options by which a user names what the folder of a run may not."""
    parser.add_argument("--make", metavar="FUNCTION", help="the run's env.make, if it has one")
    parser.add_argument(
        "--options",
        metavar="TEXTS",
        help="the texts among the run's env.options, as NAME=TEXT,NAME=TEXT",
    )
    parser.add_argument("--agent", metavar="CLASS", help="the run's agent.make, if it has one")


def replace_authority(
    config: PpoLoopConfig, folder: Path, given: argparse.Namespace
) -> PpoLoopConfig:
    """The config of the run in ``folder``, with the code that the user names. Raises ``InputError``
    where only its config names it."""
    asked = [("env.make", CODE, "--make", config.env.make)] if given.make is None else []
    asked += [("agent.make", CODE, "--agent", config.agent.make)] if given.agent is None else []
    texts = ",".join(f"{name}={text}" for name, text in config.env.texts.items())
    asked += [("env.options", READ, "--options", texts or None)] if given.options is None else []
    refuse(folder, [each for each in asked if each[-1] is not None])
    pairs = [pair.partition("=") for pair in (given.options or "").split(",") if pair]
    options = {
        name: value for name, value in config.env.options.items() if name not in config.env.texts
    }
    options |= {name: text for name, _, text in pairs}
    env = replace(config.env, make=given.make, options=options)
    return replace(config, env=env, agent=replace(config.agent, make=given.agent))
