"""Whole episodes with the most probable action: how good an agent is."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from stageb import seeds
from stageb.config import FabricConfig, require
from stageb.job import heartbeat
from stageb.job import world as worlds
from stageb.job.world import World
from stageb.ppo.agents import ActorCritic
from stageb.ppo.config import SNAKE, PpoLoopConfig
from stageb.ppo.environment import Environment, mask
from stageb.ppo.make import count_side_by_side, make_environment
from stageb.ppo.rollout import Autocast
from stageb.ppo.stored import StoredAgent, add_authority, load_agent, replace_authority
from stageb.runs.figures import short, wilson
from stageb.runs.folder import RunFolder
from stageb.store import disk
from stageb.store.output import check_target
from stageb.store.trust import file_of
from stageb.training.run import add_placement

CUT = "cut_rate"  # the measure that tells of an episode whether it was cut off
MOST_GAMES = 1_000_000
LOOK = 32  # steps between two questions to the device whether all games are over
Rows = list[list[float]]  # of episodes: a 1, then their measures


def main(folder: Path, config: PpoLoopConfig, arguments: Sequence[str]) -> int:
    """``stageb evaluate RUN``: how good the agent of a run is, on games that it did not learn
    from."""
    parser = argparse.ArgumentParser(prog="stageb evaluate RUN", description=main.__doc__)
    parser.add_argument("--episodes", type=int, default=1000, help="games to play (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the games (default 0)")
    add_placement(parser, "games")
    parser.add_argument(
        "--card",
        metavar="FILE",
        help="write a model card: agent, environment, these figures, config",
    )
    parser.add_argument(
        "--cycle",
        action="store_true",
        help="play Snake around the board, a reference that always wins",
    )
    add_authority(parser)
    given = parser.parse_args(arguments)
    require(1 <= given.episodes <= MOST_GAMES, "--episodes", given.episodes, f"1 to {MOST_GAMES}")
    require(given.devices >= 1, "--devices", given.devices, "at least 1")
    stored = load_agent(folder, replace_authority(config, folder, given))
    fabric = FabricConfig(
        accelerator=given.accelerator, devices=given.devices, precision=config.fabric.precision
    )
    if given.cycle:
        from stageb.ppo.envs.snake_agent import Cycle

        require(config.env.title == SNAKE, "--cycle", config.env.title, "a run that learnt Snake")
        stored = replace(stored, agent=Cycle(config.game.size), told="around the board")
    if given.card:
        check_target(Path(given.card), {})
    return worlds.run(fabric, lambda world: _play_on_ranks(world, stored, given))


def _play_on_ranks(world: World, stored: StoredAgent, given: argparse.Namespace) -> int:
    """Play the episodes on all ranks; rank 0 prints the results, and writes the card that is asked
    for."""
    agent, config = stored.agent.to(world.device), stored.config
    named = seeds.stream(given.seed, config.env.title, "stageb evaluate")
    with world.at("evaluation"):
        found = play_out(
            agent, config, named, world.share(range(given.episodes)), world.fabric.autocast
        )
    rows: Rows = world.join_shares(world.collect(found.tolist()))
    if world.is_global_zero:
        table = "\n".join(format_table(rows, stored.measures))
        print(f"{stored.folder}, {stored.told}\n{table}")
        if given.card:
            with disk.reporting(Path(given.card)):
                disk.replace(Path(given.card), disk.encode(make_card(stored, table)))
            print(given.card)
    return 0


def make_card(stored: StoredAgent, table: str) -> str:
    """A model card as Markdown: what the agent is, what it plays and how well, and what it was made
    with."""
    made, agent, env = RunFolder(stored.folder).read_machine(), stored.agent, stored.config.env
    versions = {name: made.get(name) for name in ("stageb", "python", "platform")} | made.get(
        "packages", {}
    )
    size = short(sum(each.numel() for each in agent.parameters()))
    options = "".join(f", {name} {value}" for name, value in env.options.items())
    config = file_of(stored.folder, stored.folder / "config.yaml").read_text(encoding="utf-8")
    learner = f"`{type(agent).__name__}`, {size} parameters"
    made_with = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"""# {stored.folder.name}

Plays `{env.title}`{options}, learnt by PPO: {learner}; {stored.told}.

## Evaluation

Whole games that it did not learn from; what is in brackets, or behind +-, is a 95 % interval.

```text
{table}
```

## Made with

{made_with}; `stageb fit --config` reads the config:

```yaml
{config.rstrip()}
```
"""


def format_table(rows: Rows, measures: Iterable[str]) -> list[str]:
    """The results of episodes, as lines of text; intervals are 95 %."""
    games = len(rows)
    lines = [f"games       {games:,} with the most probable actions"]
    for place, name in enumerate(measures, 1):
        found = sorted(row[place] for row in rows)
        mean = sum(found) / games
        if name.endswith("_rate"):
            low, high = wilson(round(sum(found)), games)
            lines.append(f"{name:<12}{mean:.1%} ({low:.1%} to {high:.1%})")
        else:
            spread = math.sqrt(sum((each - mean) ** 2 for each in found) / max(1, games - 1))
            quarters = ", ".join(
                f"{found[min(games - 1, games * quarter // 4)]:g}" for quarter in (1, 2, 3)
            )
            told = f"quarters {quarters}; {found[0]:g} to {found[-1]:g}"
            lines.append(f"{name:<12}{mean:.2f} +- {1.96 * spread / math.sqrt(games):.2f}, {told}")
    return lines


@torch.no_grad()
def play_out(
    agent: ActorCritic, config: PpoLoopConfig, seed: int, numbers: Sequence[int], autocast: Autocast
) -> Tensor:
    """The first episode of each of those that ``numbers`` name: float64 (episodes, 1 + measures), a
    1 and its measures.

    One that goes on is cut off after ``evaluation.limit`` steps, and all are once as much time has
    passed as the whole run may take (``budget.seconds``): an evaluation ends, whatever its games
    do.
    """
    device, until = (
        next(agent.parameters()).device,
        time.monotonic() + (config.budget.seconds or math.inf),
    )
    most = count_side_by_side(config) or max(1, len(numbers))
    waves = [list(numbers[first : first + most]) for first in range(0, len(numbers), most)] or [[]]
    # games that nobody asks about
    fill = [(numbers or [0])[0]] * (max(1, min(most, len(numbers))) - len(waves[-1]))
    waves[-1] += fill
    with closing(make_environment(config, seed, waves[0], str(device))) as environment:
        found = []
        for place, wave in enumerate(waves):
            if place:
                environment.renumber(wave)
            found.append(_play_wave(agent, environment, config.evaluation.limit, until, autocast))
    return torch.cat(found)[: len(numbers)]


def _play_wave(
    agent: ActorCritic,
    environment: Environment,
    limit: int | None,
    until: float,
    autocast: Autocast,
) -> Tensor:
    """The episodes that an environment is at the start of, to their end, or as they stand after
    ``limit`` steps, or when the clock says ``until``."""
    over = torch.zeros(len(environment.observe()), dtype=torch.bool, device=environment.device)
    found = torch.zeros(
        (len(over), 1 + len(environment.measures)), dtype=torch.float64, device=over.device
    )
    memory, step = torch.zeros((len(over), agent.memory), device=over.device), 0
    while step % LOOK or not bool(over.all()):
        with autocast():
            outputs, _, memory = agent.advance(environment.observe(), memory)
        outcome = environment.step(agent.actions.best(mask(outputs, environment.masks())))
        done = outcome.terminated | outcome.truncated
        step += 1
        ends = step == limit or time.monotonic() >= until
        came_to = torch.stack(
            [each.double() for each in (torch.ones_like(done), *outcome.measures)], dim=1
        )
        if ends and CUT in environment.measures:
            came_to[:, 1 + list(environment.measures).index(CUT)].masked_fill_(~done, 1.0)
        found = torch.where(((done | ends) & ~over)[:, None], came_to, found)
        if ends:
            break
        over |= done
        environment.restart(done)
        heartbeat.tick()
    return found
