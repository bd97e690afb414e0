"""``stageb play RUN``: watch an episode of a controller, as text and as a picture."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from stageb.config import require
from stageb.errors import InputError
from stageb.growth import picture
from stageb.growth.config import GrowthConfig
from stageb.growth.deciding import CONTROLLERS, Decider
from stageb.growth.environment import Block, Places, Setting, play
from stageb.growth.stored import add_authority, load_controller, replace_authority
from stageb.growth.types import SLOTS, EpisodeResult
from stageb.store import disk
from stageb.store.targets import check_target


def main(folder: Path, config: GrowthConfig, arguments: Sequence[str]) -> int:
    """Show an episode of a held-out environment, and write it as a picture into the run's folder."""
    parser = argparse.ArgumentParser(prog="stageb play RUN", description=main.__doc__)
    parser.add_argument("--environment", type=int, default=0, help="number of a held-out environment (default 0)")
    parser.add_argument("--controller", choices=CONTROLLERS, help="the controller (default: the run's)")
    parser.add_argument("--out", metavar="FILE", help="PNG file to write (default RUN/episode.png)")
    add_authority(parser)
    given = parser.parse_args(arguments)
    require(given.environment >= 0, "--environment", given.environment, "0 or more")
    place = Path(given.out) if given.out else folder / "episode.png"
    if place.suffix.lower() != ".png":
        raise InputError(f"--out {place}: give a name that ends in .png")
    check_target(place, {})
    name = given.controller or config.growth.controller
    held = load_controller(folder, config, name)
    config = replace_authority(config, folder, given)
    torch.set_num_threads(1)
    episode, ended = play_episode(config, Decider(name, held.snapshot, greedy=True), given.environment)
    print(episode.title)
    print("\n".join(picture.write_text(episode)))
    accuracy, parameters = episode.test_accuracy, 1 + ended.extra
    print(f"test accuracy {accuracy:.1%}, J {ended.objective:.3f}, parameters {parameters:.2f} x the host's")
    with disk.reporting(place):
        disk.place(place, lambda path: picture.draw(episode, path))
    print(place)
    return 0


def play_episode(config: GrowthConfig, decider: Decider, environment: int) -> tuple[picture.Episode, EpisodeResult]:
    """The episode of a held-out environment, played alone on the CPU, and what it came to."""
    block = Block(Setting.of(config, "cpu"), Places((environment,), held_out=True))
    episodes = play(block, decider.of(block))
    [ended], [(_, test_accuracy)], blueprints = episodes.ended, block.judge(test=True), block.setting.plan.blueprints
    truth = " and ".join(f"{blueprints[index]} in {SLOTS[slot]}" for slot, index in ended.truth or ())
    right = f"; right: {truth}" if truth else ""
    episode = picture.Episode(
        title=f"{config.task.name}, held-out environment {environment}: {decider.name}{right}",
        blueprints=blueprints,
        views=tuple(views[0] for views in episodes.views),
        actions=tuple(actions[0] for actions in episodes.actions),
        test_accuracy=test_accuracy,
        kept=ended.kept,
    )
    return episode, ended
