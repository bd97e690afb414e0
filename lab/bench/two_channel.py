"""Speed of loop two_channel: ``bin/bench two_channel steps rollout learn packs``, any of the four, one after the other.

- ``steps``: the real command by ``--config``, steps of channel B alone, for each number of ``--ranks``. The first quarter of
  the steps is not counted.
- ``rollout``: answers by the loop's writer, which takes weights anew before each pass, beside the default engine on the same
  checkpoint, prompts and streams, as ``bin/bench rollout`` times it.
- ``learn``: steps of channel A in this process, views included, with a GPU's sums in a fixed order, as the learner has it,
  and in any; with the most memory that was allocated.
- ``packs``: packs of the train file's true answers in lots of ``--lot``, beside the fewest that there could be.

Figures are medians, with the lowest and the highest.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import torch
from lightning.fabric import Fabric

from lab.bench.rows import Row, device_name, fit, measured, pairs, spread, write
from stageb import engines
from stageb.cli.parsing import parse
from stageb.config import require
from stageb.engines.config import ModelConfig
from stageb.engines.protocol import Decode, Request
from stageb.errors import InputError
from stageb.job.world import World
from stageb.runs.folder import METRICS, TIMINGS
from stageb.seeds import stream
from stageb.two_channel.boxes import data
from stageb.two_channel.boxes.augmentation import make_view
from stageb.two_channel.boxes.text import find_spelling, list_true_objects
from stageb.two_channel.config import TwoChannelConfig
from stageb.two_channel.learning import learner, packing
from stageb.two_channel.learning.learner import DetectorLearner, StepFigures
from stageb.two_channel.learning.rollout import Writer
from stageb.two_channel.learning.schedule import DetectorSchedule
from stageb.two_channel.learning.targets import count_totals, make_true_target
from stageb.two_channel.model import model
from stageb.two_channel.types import Sample

CONFIG = "configs/two_channel/shapes.yaml"
PARTS = ("steps", "rollout", "learn", "packs")
LEARNING = ("parse_match_s", "pack_s", "forward_s", "reduce_s")  # what a rank that learns does in a step
PARTS_OF_A_STEP = ("pack_s", "forward_s", "reduce_s")  # the same, of channel A
ANSWERING, WAITING = "rollout_generate_s", "wait_s"


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bin/bench two_channel", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--config", default=CONFIG, help=f"(default {CONFIG})")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key of the config")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1], help="for steps, one after the other (default 1)")
    parser.add_argument("--steps", type=int, default=24, help="of each run (default 24)")
    parser.add_argument("--images", type=int, default=256, help="for rollout: answered in a pass (default 256)")
    parser.add_argument("--repeats", type=int, default=3, help="for rollout (default 3)")
    parser.add_argument("--lot", type=int, default=256, help="for packs: samples of a step (default 256)")
    parser.add_argument("--json", metavar="FILE", help="write what was measured, as JSON")
    given = parser.parse_args(arguments)
    for name in ("images", "repeats", "lot"):
        require(getattr(given, name) >= 1, f"--{name}", getattr(given, name), "at least 1")
    require(given.steps >= 4, "--steps", given.steps, "at least 4")
    rows = measured(given, {"steps": steps, "rollout": rollout, "learn": learn, "packs": packs})
    machine = {"device": device_name(), "cores": os.cpu_count(), "torch": torch.__version__}
    write(given.json, {"machine": machine, "rows": rows})
    return 0


# Steps of the real command


def steps(given: argparse.Namespace) -> list[Row]:
    """Seconds of a step of channel B, and what they went to."""
    found = []
    for ranks in given.ranks:
        rows = _command(given, ranks)[given.steps // 4 :]
        learning = [max(sum(rank.get(name, 0.0) for name in LEARNING) for rank in row["ranks"]) for row in rows]
        answering = [max(rank.get(ANSWERING, 0.0) for rank in row["ranks"]) for row in rows]
        row = {
            "ranks": ranks,
            **spread("step_s", [row["time/step_s"] for row in rows]),
            "answering_s": statistics.median(answering),
            "learning_s": statistics.median(learning),
            "packs": statistics.median(each["packing/packs"] for each in rows),
            "fill": statistics.median(each["packing/fill"] for each in rows),
            "tokens_per_s": statistics.median(each.get("rollout/gen_tokens_per_s", 0.0) for each in rows),
            "by_rank": [_parts(rows, rank) for rank in range(ranks)],
        }
        found.append(row)
    return found


def _parts(rows: Sequence[Row], rank: int) -> dict[str, float]:
    """The median seconds of a step by what they went to, on one rank."""
    names = (ANSWERING, *LEARNING, WAITING)
    return {name: statistics.median(row["ranks"][rank].get(name, 0.0) for row in rows) for name in names}


def _command(given: argparse.Namespace, ranks: int) -> list[Row]:
    """Run ``stageb fit``; the rows of its steps, of metrics and times together."""
    last = {
        "fabric.devices": ranks,
        "schedule.pattern": "[B]",
        "schedule.steps": given.steps,
        "schedule.commit_every": given.steps,
        "data.val": "",
        "data.test": "",
        "evaluation.every": 0,
        "evaluation.patience": 0,
        "log.tensorboard": False,
    }
    return fit({"config": given.config, **pairs(given), **last}, (METRICS, TIMINGS))


# Answers alone


def rollout(given: argparse.Namespace) -> list[Row]:
    """Tokens a second, with weights taken anew and with those of the checkpoint; the same streams in both."""
    config = config_of(given.config, given.set)
    read = data.read_inputs(config)
    with tempfile.TemporaryDirectory() as made, torch.no_grad():
        return _rates(given, config, read.train, _checkpoint(config, read.descs, Path(made)))


def _rates(given: argparse.Namespace, config: TwoChannelConfig, train: Sequence[Sample], folder: str) -> list[Row]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = model.find_answering_dtype(config.fabric, device)
    detector = model.load(folder, config.model, config.data.prompt, device, dtype)
    held = {name: weight.clone() for name, weight in detector.model.state_dict().items()}
    writer = Writer(detector, find_spelling(detector.tokenizer, config.answer.box_first))
    kind: Literal["bfloat16", "float32"] = "bfloat16" if dtype == torch.bfloat16 else "float32"
    asked = ModelConfig(model_name_or_path=folder, torch_dtype=kind, image_pixels=config.model.image_pixels)
    engine = engines.build(asked, device)
    samples = (list(train) * -(-given.images // len(train)))[: given.images]
    keys = [stream(config.seed, "bench", number) for number in range(len(samples))]
    how = Decode(config.channel_b.temperature, config.channel_b.top_p, max_new_tokens=config.channel_b.max_new_tokens)
    requests = [Request(detector.prompt(sample.image), how, (key,)) for sample, key in zip(samples, keys, strict=True)]

    def by_writer() -> int:
        writer.take(held.items(), 0)
        return sum(len(each.ids) for each in writer.write(samples, keys, how))

    def by_engine() -> int:
        return sum(one.tokens for each in engine.generate(requests) for one in each)

    rates: dict[str, list[float]] = {"writer": [], "engine": []}
    for turn in range(given.repeats + 1):  # of which the first warms up
        for name, act in (("writer", by_writer), ("engine", by_engine)):
            began = time.perf_counter()
            tokens = act()
            if turn:
                rates[name].append(tokens / (time.perf_counter() - began))
    return [{"answers by": name, "images": given.images, **spread("tokens_per_s", each)} for name, each in rates.items()]


def _checkpoint(config: TwoChannelConfig, descs: Sequence[str], folder: Path) -> str:
    if config.model.model_name_or_path:
        return config.model.model_name_or_path
    model.make_small(folder, config.model.small, descs, config.answer.box_first)
    return str(folder)


# Learning alone


def learn(given: argparse.Namespace) -> list[Row]:
    """Seconds of a step of channel A, and the most memory."""
    config = config_of(given.config, given.set)
    train = data.read([config.data.train], config.data.images)
    precision: Any = config.fabric.precision
    world = World(Fabric(accelerator="auto", devices=1, precision=precision))
    schedule, rows = DetectorSchedule(config, len(train)), []
    with tempfile.TemporaryDirectory() as made:
        folder = _checkpoint(config, sorted({each.desc for sample in train for each in sample.objects}), Path(made))
        for name, order in (("fixed", learner.deterministic), ("any", lambda _: nullcontext())):
            dtype = model.find_learning_dtype(config.fabric, config.tuner)
            detector = model.load(folder, config.model, config.data.prompt, world.device, dtype)
            detector.eyes.sources = [sample.image for sample in train]
            taught = DetectorLearner(world, detector, config)
            with patch.object(learner, "deterministic", order):
                figures = [_learnt(taught, schedule, train, step) for step in range(given.steps)][given.steps // 4 :]
            memory = torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else 0.0
            parts = {part: statistics.median(getattr(each, part) for each, _ in figures) for part in PARTS_OF_A_STEP}
            rows.append({"order of sums": name, **spread("step_s", [taken for _, taken in figures]), **parts, "MiB": memory})
    return rows


def _learnt(
    taught: DetectorLearner, schedule: DetectorSchedule, train: Sequence[Sample], step: int
) -> tuple[StepFigures, float]:
    """A step of channel A, and its seconds."""
    began, spelling = time.perf_counter(), find_spelling(taught.detector.tokenizer, schedule.config.answer.box_first)
    views, done = schedule.config.augmentation, schedule.done(step)
    chosen = enumerate(schedule.chosen(step))
    samples = [make_view(train[place], schedule.view_key(step, number), views, done, train) for number, place in chosen]
    targets = [(sample, make_true_target(list_true_objects(sample), spelling)) for sample in samples]
    totals = count_totals(target for _, target in targets)
    figures = taught.step(step, targets, totals, schedule.learning_rate(step))
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return figures, time.perf_counter() - began


# Packs alone


def packs(given: argparse.Namespace) -> list[Row]:
    """Packs of a lot, their bound, and how full all but the last are."""
    config = config_of(given.config, given.set)
    with tempfile.TemporaryDirectory() as made:
        read = data.read_inputs(config)
        folder = _checkpoint(config, read.descs, Path(made))
        detector = model.load(folder, config.model, config.data.prompt, "cpu")
    spelling, room = find_spelling(detector.tokenizer, config.answer.box_first), config.packing.global_max_length
    lines = [packing.make_line(detector, each, make_true_target(list_true_objects(each), spelling)) for each in read.train]
    found = []
    for start in range(0, len(lines) - given.lot + 1, given.lot) if len(lines) >= given.lot else [0]:
        lot = lines[start : start + given.lot]
        made_packs = [sum(map(len, pack)) for pack in packing.make_packs(lot, room)]
        tokens = sum(made_packs)
        fill = sum(made_packs[:-1]) / (room * (len(made_packs) - 1)) if len(made_packs) > 1 else 1.0
        found.append((len(made_packs), -(-tokens // room) + 1, fill))
    numbers, bounds, fills = zip(*found, strict=True)
    most = max(number - bound for number, bound in zip(numbers, bounds, strict=True))
    return [{"lots": len(found), "samples": given.lot, "packs": max(numbers), "over_bound": most, **spread("fill", fills)}]


def config_of(path: str, keys: Sequence[str]) -> TwoChannelConfig:
    """A config of loop two_channel, with keys as ``--set`` takes them. Raises ``InputError``."""
    asked = parse(["--config", path, *(f"--{each}" for each in keys)])
    if asked.loop != "two_channel":
        raise InputError(f"bin/bench: --config {path}: of loop {asked.loop}; name one of two_channel")
    config: TwoChannelConfig = asked.config
    return config
