"""A job for tests of the world: squares, and whatever mishap the command line asks for.

    python job.py --devices 2 --mishap raise --on 1

Prints ``result: <digest> <first> <last>`` on success. ``--ready FILE`` is written by rank 0 just
before the work, with the ranks' process ids; ``FILE.mishap`` holds the moment of the mishap.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch.distributed

from stageb.config import FabricConfig
from stageb.errors import ConfigError, StagebError, at
from stageb.job import heartbeat, lifetime
from stageb.job.world import Json, World, run

parser = argparse.ArgumentParser()
parser.add_argument("--devices", default="auto")
parser.add_argument("--strategy", default="auto")
parser.add_argument("--timeout_s", type=float, default=60.0)
parser.add_argument("--load_timeout_s", type=float, default=1800.0)
parser.add_argument("--items", type=int, default=7)
parser.add_argument("--size", type=int, default=1, help="characters in each result")
parser.add_argument("--mishap", default="none")
parser.add_argument("--on", type=int, default=-1, help="the rank that it befalls")
parser.add_argument("--ready", type=Path)
args = parser.parse_args()

FOREVER_S = 1000.0


def note_the_time() -> None:
    """The mishap is now."""
    if args.ready:
        args.ready.with_suffix(".mishap").write_text(str(time.time()))


def befall(rank: int, mishap: str, key: str) -> None:
    """Do ``mishap`` if this is the rank and the place for it."""
    if rank != args.on or mishap != args.mishap:
        return
    note_the_time()
    if mishap in ("raise", "raise_in_lead", "raise_at_start"):
        with at(f"ticket {key}"):
            raise ValueError("seven is not a verdict")
    if mishap == "config":
        raise ConfigError("model.model_name_or_path", "nowhere", "name a folder that exists")
    if mishap == "exit":
        sys.exit(0)
    if mishap == "vanish":
        os._exit(0)
    if mishap == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if mishap == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if mishap in ("hang", "hang_in_loading", "hang_in_lead"):
        time.sleep(FOREVER_S)
    # holds the interpreter's lock and never lets go: no thread of this process runs again
    if mishap == "lock":
        re.match(r"(a+)+$", "a" * 64 + "b")


class Question(NamedTuple):
    """What rank 0 asks of all ranks."""

    kind: str
    items: Sequence[int]
    late: int | None = None  # the item that the mishap befalls


def square(world: World, item: int, late: int | None) -> Json:
    """One item's work; the mishap befalls the item ``late``."""
    if item == late:
        for mishap in ("raise", "exit", "vanish", "kill", "stop", "hang", "lock"):
            befall(world.rank, mishap, f"group-{item}")
    if args.mishap == "busy" and item >= world.world_size:
        time.sleep(FOREVER_S)
    while args.mishap == "tick" and item >= world.world_size:  # deep in work that gets on
        time.sleep(0.1)
        heartbeat.tick()
    if args.mishap == "api":  # long work that shows signs of life: not a failure
        for _ in range(10):
            time.sleep(0.3 * args.timeout_s)
            heartbeat.tick()
    return {"square": item * item, "pair": (item, 0.1 * item), "text": "\ud800é" + "x" * args.size}


def main(world: World) -> int:
    """Every rank: begin, do a share of squares with the others, have rank 0 ask for squares,
    end."""
    befall(world.rank, "config", "at start")
    befall(world.rank, "raise_at_start", "at start")
    with heartbeat.at("loading the model", "quiet"):
        befall(world.rank, "hang_in_loading", "at start")
    if args.mishap in ("config_everywhere", "disagree"):
        note_the_time()
    if args.mishap == "config_everywhere":
        raise ConfigError("model.model_name_or_path", "nowhere", "name a folder that exists")
    world.agree("inputs", "other" if (args.mishap, args.on) == ("disagree", world.rank) else "same")
    if args.mishap == "parted":  # one rank sits in a collective that the others never come to
        note_the_time()
        if world.rank == args.on:
            world.gather(b"alone")
    seen: list[int] = []

    def answer(question: Question) -> list[Any]:
        if question.kind == "where":
            return world.map(
                "where item", lambda item: [world.rank, world.device, os.getpid()], question.items
            )
        return world.map(
            "square item",
            lambda item: square(world, item, question.late),
            question.items,
            seen.append,
        )

    code = world.broadcast(world.consult(answer, lead, world, seen))
    # stuck in torch, all of its own work done
    if (args.mishap, args.on) == ("at_the_end", world.rank):
        note_the_time()
        torch.distributed.destroy_process_group = partial(time.sleep, FOREVER_S)
    return code


def lead(world: World, seen: list[int]) -> Generator[Question, list[Any], int]:
    """Rank 0's steps; ``seen`` is how many squares were done each time that it could tell."""
    places = yield Question("where", range(world.world_size))
    assert [place[0] for place in places] == list(range(world.world_size))
    nothing = yield Question("square", [])
    assert nothing == []
    befall(0, "raise_in_lead", "reflection")
    befall(0, "hang_in_lead", "reflection")
    if args.ready:
        args.ready.write_text(json.dumps([place[2] for place in places]))
    # busy between two questions for longer than the timeout: not a failure
    if args.mishap == "reflect":
        time.sleep(2.5 * args.timeout_s)
    if args.mishap == "reflect_forever":
        time.sleep(FOREVER_S)
    late = args.on if args.on >= 0 else None  # the first item of that rank
    results = yield Question("square", range(args.items), late)
    assert [result["square"] for result in results] == [item * item for item in range(args.items)]
    assert seen == [min(done * world.world_size, args.items) for done in range(1, len(seen) + 1)]
    digest = hashlib.sha256(json.dumps(results).encode()).hexdigest()[:16]
    print(f"result: {digest} of {len(results)} from {len(places)} ranks", flush=True)
    return 3 if args.mishap == "code" else 0


devices: int | str = int(args.devices) if args.devices.isdigit() else args.devices
# cuda: the same cases with tensors over NCCL
accelerator = os.environ.get("JOB_ACCELERATOR", "cpu")
settings = FabricConfig(
    accelerator=accelerator,
    devices=devices,
    strategy=args.strategy,
    timeout_s=args.timeout_s,
    load_timeout_s=args.load_timeout_s,
)
if __name__ == "__main__":
    if os.environ.get("LOCAL_RANK") == str(args.on):
        if args.mishap == "early":  # a child that dies before the ranks have met
            note_the_time()
            sys.exit(5)
        if args.mishap == "late":  # or that keeps the others waiting to meet
            lifetime.die_with_launcher()
            args.ready.write_text(json.dumps([os.getppid(), os.getpid()]))
            time.sleep(FOREVER_S)
    try:
        sys.exit(run(settings, main))
    except StagebError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
