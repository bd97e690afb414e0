"""``stageb play RUN``: watch a game of the agent, in the terminal and as a picture that moves."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from stageb import seeds
from stageb.config import require
from stageb.errors import InputError, StagebError, shown
from stageb.ppo.agents import ActorCritic
from stageb.ppo.config import PpoLoopConfig
from stageb.ppo.environment import Frame, mask
from stageb.ppo.evaluate import play_out
from stageb.ppo.make import make_environment
from stageb.ppo.stored import add_authority, load_agent, replace_authority
from stageb.store import disk
from stageb.store.output import check_target

if TYPE_CHECKING:
    from PIL import Image

FRAMES_PER_SECOND = 20
MOST_FRAMES = 750  # of a picture; a longer game skips some
MOST_GAMES = 10_000  # to choose from; all are played at once, in some hundred MB


@dataclass(frozen=True)
class Replay:
    """One game from start to end."""

    frames: tuple[Frame, ...]  # after every step that changed what is seen; the first is the start
    told: str  # what it came to


def main(folder: Path, config: PpoLoopConfig, arguments: Sequence[str]) -> int:
    """Replay a game in the terminal, and write it as a GIF into the run's folder, as an MP4 too
    where ffmpeg is there."""
    parser = argparse.ArgumentParser(prog="stageb play RUN", description=main.__doc__)
    parser.add_argument("--seed", type=int, default=0, help="seed of the games (default 0)")
    parser.add_argument(
        "--best-of",
        type=int,
        default=1,
        metavar="N",
        help="play N games, show the best (default 1)",
    )
    parser.add_argument(
        "--delay", type=float, default=0.05, help="seconds between two frames (default 0.05)"
    )
    parser.add_argument("--out", metavar="FILE", help="GIF file to write (default RUN/play.gif)")
    parser.add_argument(
        "--no-pictures", action="store_true", help="show the game in the terminal only"
    )
    add_authority(parser)
    given = parser.parse_args(arguments)
    require(1 <= given.best_of <= MOST_GAMES, "--best-of", given.best_of, f"1 to {MOST_GAMES}")
    require(0 <= given.delay <= 10, "--delay", given.delay, "0 to 10 seconds")
    place = Path(given.out) if given.out else folder / "play.gif"
    check_target(place, {})
    stored = load_agent(folder, replace_authority(config, folder, given))
    print(f"{folder}, {stored.told}")
    replay = play_best(stored.agent, stored.config, given.seed, given.best_of)
    show(replay, given.delay)
    if not given.no_pictures:
        for written in draw(replay, place):
            print(written)
    return 0


@torch.no_grad()
def play_best(agent: ActorCritic, config: PpoLoopConfig, seed: int, games: int) -> Replay:
    """Of so many games with the most probable actions the one with the most of the first measure;
    of equals the one with the least of the last, such as its length. Raises ``InputError`` where
    the environment cannot show itself."""
    named, number = seeds.stream(seed, config.env.title, "stageb play"), 0
    if games > 1:
        found = play_out(agent, config, named, range(games), nullcontext).tolist()
        number = max(range(games), key=lambda each: (found[each][1], -found[each][-1]))
    with closing(make_environment(config, named, [number], "cpu", look=True)) as environment:
        frames, memory, step, ended = (
            [environment.frame()],
            torch.zeros((1, agent.memory)),
            0,
            False,
        )
        while not ended:
            outputs, _, memory = agent.advance(environment.observe(), memory)
            outcome = environment.step(agent.actions.best(mask(outputs, environment.masks())))
            done, step = outcome.terminated | outcome.truncated, step + 1
            if not (ended := bool(done) or step == config.evaluation.limit):
                environment.restart(done)
            frame = environment.frame()
            frames += [frame] if not frame.text or frame.text != frames[-1].text else []
    measures = zip(environment.measures, (float(each) for each in outcome.measures), strict=True)
    return Replay(tuple(frames), environment.tell_one(dict(measures)))


def show(replay: Replay, delay: float) -> None:
    """The game on the terminal, frame upon frame; elsewhere its end alone."""
    *texts, last = (each.text for each in replay.frames)
    lines = last.count("\n") + 1
    if last and sys.stdout.isatty():
        print("\n" * lines, end="")
        for text in texts:
            print(f"\x1b[{lines}A{text}", flush=True)
            time.sleep(delay)
        print(f"\x1b[{lines}A", end="")
    print(*filter(None, (last, replay.told)), sep="\n")


def draw(replay: Replay, place: Path) -> list[Path]:
    """Write the game as a GIF, and where ffmpeg is found as an MP4 beside it; the files written."""
    if place.suffix.lower() != ".gif":
        raise InputError(f"--out {place}: give a name that ends in .gif")
    every = -(-len(replay.frames) // MOST_FRAMES)
    frames = [each.draw() for each in (*replay.frames[:-1:every], replay.frames[-1])]
    frames += [frames[-1]] * FRAMES_PER_SECOND  # a second to see the end
    film: dict[str, Any] = {
        "append_images": frames[1:],
        "duration": 1000 // FRAMES_PER_SECOND,
        "loop": 0,
    }
    if palette := frames[0].getpalette():  # one for all frames, which then hold what changed
        film |= {"palette": bytes(palette), "optimize": True}
    disk.write(place, lambda path: frames[0].save(path, save_all=True, **film))
    ffmpeg = shutil.which("ffmpeg")
    if ffmpeg is None:
        return [place]
    other = place.with_suffix(".mp4")
    disk.write(other, lambda path: _encode(ffmpeg, frames, path))
    return [place, other]


def _encode(ffmpeg: str, frames: Sequence[Image.Image], place: Path) -> None:
    """Write an MP4 that every browser plays. Raises ``StagebError`` where this ffmpeg cannot."""
    with tempfile.TemporaryDirectory() as folder:
        for number, frame in enumerate(frames):
            frame.save(Path(folder, f"{number:06d}.png"))
        line = [
            ffmpeg,
            "-y",
            "-loglevel",
            "error",
            "-framerate",
            str(FRAMES_PER_SECOND),
            "-i",
            f"{folder}/%06d.png",
        ]
        line += ["-c:v", "libx264", "-pix_fmt", "yuv420p", str(place)]
        done = subprocess.run(
            line, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise StagebError(
            f"ffmpeg made no MP4 (the GIF is written): {shown(done.stderr.strip(), 300)}"
        )
