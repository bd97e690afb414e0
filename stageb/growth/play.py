"""``stageb play RUN``: watch an episode of a controller, as text and as a picture."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from stageb.config import require
from stageb.errors import InputError
from stageb.growth.config import GrowthConfig
from stageb.growth.deciding import CONTROLLERS, Decider, load_controller
from stageb.growth.environment import Block, Places, Setting
from stageb.growth.episodes import play
from stageb.growth.types import SLOTS, Action, EnvironmentView, EpisodeResult, Op, Stage
from stageb.store import disk
from stageb.store.output import check_target

COLOURS = {  # of stages; an empty slot stays white
    Stage.GERMINATED: "#d9d9d9",
    Stage.TRAINING: "#fdd49e",
    Stage.BLENDING: "#a6d8a0",
    Stage.PROBATIONARY: "#41ab5d",
    Stage.FOSSILIZED: "#08589e",
    Stage.CULLED: "#99000d",
    Stage.EMBARGOED: "#ef3b2c",
    Stage.RESETTING: "#fcbba1",
}
LETTERS = dict(zip(Stage, "·gtbPF×er", strict=True))  # by which the text shows stages


@dataclass(frozen=True)
class Episode:
    """One environment from its start to its end."""

    title: str
    blueprints: tuple[str, ...]  # names, by index
    views: tuple[EnvironmentView, ...]  # at each epoch's end, before the action
    actions: tuple[Action, ...]  # what was decided then; nothing at the last
    test_accuracy: float  # at the end
    kept: tuple[tuple[int, int], ...]  # slot and blueprint of every seed that stays


def write_text(episode: Episode) -> list[str]:
    """A line for each slot, a letter an epoch, and one for what the letters mean."""
    rows = []
    for place, name in enumerate(SLOTS):
        kept = "".join(
            f"  {episode.blueprints[blueprint]}"
            for slot, blueprint in episode.kept
            if slot == place
        )
        rows.append(
            f"{name:<6}"
            + "".join(LETTERS[view.slots[place].stage] for view in episode.views)
            + kept
        )
    met = sorted({each.stage for view in episode.views for each in view.slots})
    return [*rows, "      " + ", ".join(f"{LETTERS[stage]} {stage.name.lower()}" for stage in met)]


def draw(episode: Episode, path: Path) -> None:
    """Write the episode as a PNG file: accuracy above, the slots with their stages as colours
    below."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5.5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    epochs = [view.epoch for view in episode.views]
    above.plot(
        epochs, [view.accuracy for view in episode.views], color="#222222", label="validation"
    )
    above.plot(
        epochs,
        [view.train_accuracy for view in episode.views],
        color="#999999",
        linewidth=1,
        label="fit",
    )
    above.plot(
        epochs[-1:],
        [episode.test_accuracy],
        "D",
        color="#c51b7d",
        label=f"test {episode.test_accuracy:.1%}",
    )
    above.set_ylabel("accuracy")
    above.set_title(episode.title, fontsize=10)
    above.grid(alpha=0.3)
    above.legend(frameon=False, fontsize=8, loc="lower right")
    _slots(below, episode)
    for view, action in zip(episode.views[:-1], episode.actions, strict=True):
        if action.op != Op.WAIT:
            above.axvline(view.epoch + 0.5, color="#bbbbbb", linewidth=0.8, linestyle=":", zorder=0)
    figure.savefig(path, dpi=100, metadata={"Software": None})


def _slots(axes: Any, episode: Episode) -> None:
    """Three rows of cells, early above; a seed's blueprint stands where it begins."""
    from matplotlib.patches import Patch, Rectangle

    for row, _ in enumerate(SLOTS):
        seed = -1
        for view in episode.views:
            slot = view.slots[row]
            if slot.stage in COLOURS:
                cell, colour = (view.epoch - 0.5, row - 0.4), COLOURS[slot.stage]
                axes.add_patch(Rectangle(cell, 1.0, 0.8, facecolor=colour, edgecolor="none"))
            if slot.blueprint >= 0 and slot.seed_id not in (-1, seed):
                name, dark = episode.blueprints[slot.blueprint], slot.stage == Stage.FOSSILIZED
                axes.text(
                    view.epoch - 0.4,
                    row,
                    name,
                    fontsize=8,
                    va="center",
                    color="white" if dark else "black",
                    zorder=3,
                )
                seed = slot.seed_id
    axes.set_yticks(range(len(SLOTS)), SLOTS)
    axes.set_ylim(len(SLOTS) - 0.5, -0.5)
    axes.set_xlim(0.5, len(episode.views) + 0.5)
    axes.set_xlabel("epoch")
    axes.xaxis.get_major_locator().set_params(integer=True)
    met = {each.stage for view in episode.views for each in view.slots}
    handles = [
        Patch(color=colour, label=stage.name.lower())
        for stage, colour in COLOURS.items()
        if stage in met
    ]
    if handles:
        axes.legend(
            handles=handles,
            frameon=False,
            fontsize=8,
            ncols=8,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.3),
        )


def main(folder: Path, config: GrowthConfig, arguments: Sequence[str]) -> int:
    """Show an episode of a held-out environment, and write it as a picture into the run's
    folder."""
    parser = argparse.ArgumentParser(prog="stageb play RUN", description=main.__doc__)
    parser.add_argument(
        "--environment", type=int, default=0, help="number of a held-out environment (default 0)"
    )
    parser.add_argument(
        "--controller", choices=CONTROLLERS, help="the controller (default: the run's)"
    )
    parser.add_argument("--out", metavar="FILE", help="PNG file to write (default RUN/episode.png)")
    given = parser.parse_args(arguments)
    require(given.environment >= 0, "--environment", given.environment, "0 or more")
    place = Path(given.out) if given.out else folder / "episode.png"
    if place.suffix.lower() != ".png":
        raise InputError(f"--out {place}: give a name that ends in .png")
    check_target(place, {})
    name = given.controller or config.growth.controller
    held = load_controller(folder, config, name)
    torch.set_num_threads(1)
    episode, ended = play_episode(
        config, Decider(name, held.snapshot, greedy=True), given.environment
    )
    print(episode.title)
    print("\n".join(write_text(episode)))
    accuracy, parameters = episode.test_accuracy, 1 + ended.extra
    print(
        f"test accuracy {accuracy:.1%}, J {ended.objective:.3f}, parameters {parameters:.2f} x "
        f"the host's"
    )
    disk.write(place, lambda path: draw(episode, path))
    print(place)
    return 0


def play_episode(
    config: GrowthConfig, decider: Decider, environment: int
) -> tuple[Episode, EpisodeResult]:
    """The episode of a held-out environment, played alone on the CPU, and what it came to."""
    block = Block(Setting.of(config, "cpu"), Places((environment,), held_out=True))
    episodes = play(block, decider.of(block))
    [ended], [(_, test_accuracy)], blueprints = (
        episodes.ended,
        block.judge(test=True),
        block.setting.plan.blueprints,
    )
    truth = " and ".join(
        f"{blueprints[index]} in {SLOTS[slot]}" for slot, index in ended.truth or ()
    )
    right = f"; right: {truth}" if truth else ""
    episode = Episode(
        title=f"{config.task.name}, held-out environment {environment}: {decider.name}{right}",
        blueprints=blueprints,
        views=tuple(views[0] for views in episodes.views),
        actions=tuple(actions[0] for actions in episodes.actions),
        test_accuracy=test_accuracy,
        kept=ended.kept,
    )
    return episode, ended
