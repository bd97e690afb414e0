"""What a round costs beside the model's work, on 1, 2, 4, ... ranks: ``bin/bench heart --ranks 1,2,4,8,16,32``

Ranks are forks of this process, one thread each, on the CPU; where they share few cores, the figures say as much of that.
Measured with them, in milliseconds: the collectives, from when the last rank has come until the last one leaves; rounds of
the loop with a model that answers at once; and whole runs of the ``scripted`` engine whose rounds are equal, which must
leave equal bytes. Of rank 0 alone: a bundle's work beside the model's, and commits.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from lightning.fabric import Fabric

from lab.bench import leading
from lab.bench.rows import write
from stageb.config import OutputConfig, require
from stageb.engines.config import ModelConfig
from stageb.guidance import loop
from stageb.guidance.config import GateConfig, LoopConfig, ReflectionConfig, RunnerConfig, SamplerConfig
from stageb.guidance.files.guidance_file import make_neutral
from stageb.guidance.gate.budget import budget_per_mission
from stageb.guidance.inputs import Inputs
from stageb.guidance.loop import guidance_for, select
from stageb.guidance.prompts import WORDS
from stageb.guidance.ranks import Ranks
from stageb.guidance.run import Run
from stageb.guidance.splits import split_tickets
from stageb.guidance.types import Ticket
from stageb.job.world import World, decode, encode
from stageb.store.commits import LOCK
from stageb.untrusted import strict_yaml

T = TypeVar("T")
ONCE = {"config.yaml", "run.json", "timings.jsonl", LOCK}  # how and when it ran, rather than what came of it
TOGETHER = 192  # tickets of a round of the whole runs, whatever the number of ranks


def main(arguments: Sequence[str]) -> int:
    """The command line. Exit code 1 where runs at different numbers of ranks left different bytes."""
    parser = argparse.ArgumentParser(prog="bin/bench heart", description=__doc__)
    parser.add_argument("--ranks", default="1,2,4,8", help="how many, one after the other (default 1,2,4,8)")
    parser.add_argument("--per-rank", type=int, default=64, help="tickets of a rank and round (default 64)")
    parser.add_argument("--tickets", type=int, default=100_000, help="of the mission that reflects (default 100000)")
    parser.add_argument("--missions", type=int, default=50, help="of the run that commits (default 50)")
    parser.add_argument("--repeats", type=int, default=7, help="of which medians are shown (default 7)")
    parser.add_argument("--json", metavar="FILE", help="write what was measured, as JSON")
    given = parser.parse_args(arguments)
    worlds = [int(word) for word in given.ranks.split(",") if word.isdecimal()]
    fine = bool(worlds) and all(size and TOGETHER % size == 0 for size in worlds)
    require(fine, "--ranks", given.ranks, f"numbers that divide {TOGETHER}, such as 1,2,4")
    for name in ("per_rank", "tickets", "missions", "repeats"):
        require(getattr(given, name) >= 1, f"--{name.replace('_', '-')}", getattr(given, name), "at least 1")
    with tempfile.TemporaryDirectory() as folder:
        rows = [measured(size, given, Path(folder)) for size in worlds]
        whole_runs = {size: content(Path(folder, f"whole-{size}")) for size in worlds}
        equal = {size: files == whole_runs[worlds[0]] for size, files in whole_runs.items()}
        alone = by_itself(given, Path(folder))
    print("whole runs, bytes equal to the first: " + ", ".join(f"{size}: {equal[size]}" for size in worlds))
    print("\n".join(f"{name}: {row}" for name, row in alone.items()))
    machine = {"cores": os.cpu_count(), "load": os.getloadavg()}
    write(given.json, {**machine, "ranks": rows, "equal_bytes": equal, "rank_0": alone})
    return 0 if all(equal.values()) else 1


def measured(size: int, given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Everything that takes ranks, on ``size`` of them."""
    row: dict[str, Any] = {"ranks": size}
    row |= on_ranks(size, lambda world: collectives(world, given.repeats))
    row |= on_ranks(size, lambda world: rounds(world, given.per_rank, given.repeats, folder))
    row["whole_run_s"] = on_ranks(size, lambda world: whole(world, folder))
    print(", ".join(f"{name} {value:.4g}" for name, value in row.items()), flush=True)
    return row


def on_ranks(size: int, act: Callable[[World], T]) -> T:
    """What ``act`` returns on rank 0 of so many ranks, which are forks of this process."""
    for library in ("lightning.fabric", "lightning.pytorch"):
        logging.getLogger(library).setLevel(logging.WARNING)
    torch.set_num_threads(1)  # a fork of a process with OpenMP's threads may hang
    if size == 1:
        return act(World(Fabric(accelerator="cpu", devices=1)))
    before = dict(os.environ)  # Fabric notes its port there
    try:
        fabric = Fabric(accelerator="cpu", devices=size, strategy="ddp_fork")
        return fabric.launch(lambda fabric: act(World(fabric)))  # type: ignore[no-any-return]
    finally:
        os.environ.clear()
        os.environ.update(before)


def collectives(world: World, repeats: int) -> dict[str, float]:
    """Milliseconds of each collective, medians."""
    acts: dict[str, Callable[[], object]] = {
        **{f"broadcast_{kb}kB": partial(world.broadcast, "x" * 1000 * kb) for kb in (2, 100)},
        **{f"gather_{kb}kB": partial(world.gather, bytes(1000 * kb)) for kb in (2, 50, 500)},
    }
    took = {name: together(world, act, repeats) for name, act in acts.items()}
    items = list(range(4 * world.world_size))
    took["map_tiny"] = together(world, lambda: world.map("item", lambda item: item, items), repeats)
    return took


def together(world: World, act: Callable[[], object], repeats: int) -> float:
    """Milliseconds from when the last rank has come to ``act`` until the last one leaves it; the median."""
    spans = []
    for _ in range(repeats + 1):
        world.fabric.barrier()
        begun = time.perf_counter()
        act()
        spans.append((begun, time.perf_counter()))
    by_rank = [decode(part) for part in world.gather(encode(spans))]
    took: list[float] = [
        max(ends) - max(begins) for each in zip(*by_rank, strict=True) for begins, ends in [zip(*each, strict=True)]
    ]
    return 1e3 * statistics.median(took[1:])


def rounds(world: World, per_rank: int, repeats: int, folder: Path) -> dict[str, float]:
    """Milliseconds of the parts of a round of train, medians: handing out, rolling out and gathering, taking in; of the last
    also what rank 0 works."""
    tickets = leading.made(4 * per_rank * world.world_size * (repeats + 1))  # some are raced on, some are of val and test
    config = config_of(folder, f"rounds-{world.world_size}", per_rank, "lab.bench.leading:respond")
    ranks, took = Ranks(config, tickets, world), []
    with contextlib.redirect_stderr(io.StringIO()), Run(config, "", inputs_of(config, tickets), ranks) as run:
        ranks.load()
        state = world.alone(run.begin, True)
        for batch in itertools.islice(run.schedule.train(1, "m"), repeats + 1):
            begun = time.perf_counter()
            guidance = world.lead(guidance_for, state, batch, config)
            assert guidance is not None
            handed_out = time.perf_counter()
            answers = ranks.roll_out(batch, guidance, run.show_answered)
            rolled_out, cpu = time.perf_counter(), time.process_time()
            state = world.consult(ranks.answer, select, run, state, batch, answers)
            taken_in = time.perf_counter(), time.process_time()
            took.append([handed_out - begun, rolled_out - handed_out, taken_in[0] - rolled_out, taken_in[1] - cpu])
            if world.is_global_zero:  # as if all were reflected on
                state = state.with_mission(replace(state.missions["m"], pending=()))
    parts = ("hand_out", "roll_out", "take_in", "take_in_cpu")
    return {part: 1e3 * statistics.median(values) for part, values in zip(parts, zip(*took[1:], strict=True), strict=True)}


def whole(world: World, folder: Path) -> float:
    """Seconds of a run of the scripted engine from start to end."""
    config = config_of(folder, f"whole-{world.world_size}", TOGETHER // world.world_size, "stageb.guidance.follower:respond")
    tickets = leading.made(4 * TOGETHER)
    begun = time.perf_counter()
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        loop.main(world, config, strict_yaml.dump(asdict(config)), True, inputs_of(config, tickets))
    return time.perf_counter() - begun


def config_of(folder: Path, name: str, per_rank: int, respond: str) -> LoopConfig:
    """A config of the scripted engine."""
    return LoopConfig(
        tickets=["made up"],
        model=ModelConfig(engine="scripted", model_name_or_path=respond),
        output=OutputConfig(root=str(folder), run_name=name),
        sampler=SamplerConfig(samples_per_decode=leading.SAMPLES, micro_batch_size=2),
        runner=RunnerConfig(epochs=2, per_rank_rollout_batch_size=per_rank),
        reflection=ReflectionConfig(num_proposals=4),
        report=False,
    )


def inputs_of(config: LoopConfig, tickets: Sequence[Ticket]) -> Inputs:
    """What a run on these tickets starts from."""
    return Inputs(
        tickets,
        "",
        [],
        split_tickets(tickets, config),
        {"m": make_neutral("m", WORDS["en"])},
        {"m": budget_per_mission(GateConfig(), 1)},
    )


def content(folder: Path) -> dict[str, bytes]:
    """The bytes of a run that are to be equal, by file."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in ONCE)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def by_itself(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """What rank 0 does alone."""
    rows: dict[str, Any] = {}
    for name, turned in (("bundle, an edit accepted", 0.5), ("bundle, none accepted", 0.0)):
        took, judged, accepted = leading.bundle(given.tickets, turned, given.repeats)
        rows[name] = {**asdict(took), "judged": judged, "accepted": accepted, "tickets": given.tickets}
    for missions, pending in ((given.missions, 64), (1, 64), (1, 1024)):
        took, head, part = leading.commit(folder, missions, pending, given.repeats)
        rows[f"commit, {missions} missions x {pending}"] = {**asdict(took), "head_bytes": head, "part_bytes": part}
    return rows
