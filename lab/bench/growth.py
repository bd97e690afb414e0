"""Growth, in steps a second: ``bin/bench growth batch ranks``, either or both.

- ``batch``: training steps of hosts on one device, in blocks, and one by one in a plain loop of autograd and torch's fused
  Adam over the same functions; on a GPU, which waits for such small kernels to be launched, also with each host's step
  replayed as a CUDA graph. Hosts alone, and hosts in which each slot holds a seed. ``--ones``: in blocks of one, too.
- ``ranks``: training steps of the real command by ``--config``, on 1, 2, ... devices (``--devices 1,2,4``), which share
  ``--environments`` environments in blocks of ``--block``. All play the same episodes: how long those take depends on what
  the policy grows.

A step is one of one host's optimiser. Figures are medians over ``--repeats``, or over a run's updates but the first, with
the lowest and the highest.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lab.bench import one_host
from lab.bench.rows import Act, Row, device_name, fit, measured, on_devices, pairs, spread, write
from stageb.cli.parsing import parse
from stageb.config import require
from stageb.errors import InputError
from stageb.growth import bank, hosts, tasks, training
from stageb.growth.config import GrowthConfig, HostConfig, TaskConfig
from stageb.growth.data import Split
from stageb.growth.hosts import Plan
from stageb.growth.types import SLOTS
from stageb.training.cuda_graphs import recorded

PASS_S = 1.0  # that a measurement of one contestant takes, at least


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bin/bench growth", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", choices=tuple(ACTS))
    parser.add_argument("--hosts", default="mlp,conv1d", help="kinds, for batch (default mlp,conv1d)")
    parser.add_argument("--environments", type=int, default=64, help="at a time; of an update, for ranks (default 64)")
    parser.add_argument("--block", type=int, default=64, help="environments that are one batch (default 64)")
    parser.add_argument("--ones", action="store_true", help="measure blocks of one beside these, for batch")
    parser.add_argument("--device", default="cpu", help="for batch: cpu or cuda (default cpu)")
    parser.add_argument(
        "--config", default="configs/growth/teacher.yaml", help="for ranks (default configs/growth/teacher.yaml)"
    )
    parser.add_argument("--devices", default="1", help="how many, one after the other, for ranks (default 1)")
    parser.add_argument("--updates", type=int, default=5, help="of each run, for ranks (default 5)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key, for batch of the host alone")
    parser.add_argument("--repeats", type=int, default=5, help="for batch (default 5)")
    parser.add_argument("--json", metavar="FILE", help="write what was measured, as JSON")
    given = parser.parse_args(arguments)
    for name in ("environments", "block", "repeats", "updates"):
        require(getattr(given, name) >= 1, f"--{name}", getattr(given, name), "at least 1")
    there = given.device == "cpu" or (given.device == "cuda" and torch.cuda.is_available())
    require(there, "--device", given.device, "cpu, or cuda where there is a GPU")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    rows = measured(given, ACTS)
    machine = {"cores": os.cpu_count(), "load": os.getloadavg(), "torch": torch.__version__, "device": device_name()}
    write(given.json, {"machine": machine, "rows": rows})
    return 0


def timed(contestants: dict[str, Callable[[], object]], device: str, repeats: int) -> dict[str, list[float]]:
    """Seconds of a call of each contestant, ``repeats`` times in turn, so that what else runs here disturbs all alike."""

    def took(act: Callable[[], object], calls: int) -> float:
        began = time.perf_counter()
        for _ in range(calls):
            act()
        if device == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - began) / calls

    calls = {}
    for name, act in contestants.items():
        took(act, 1)
        calls[name] = max(1, round(PASS_S / repeats / took(act, 1)))
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, act in contestants.items():
            found[name].append(took(act, calls[name]))
    return found


# Blocks beside one after another

STEPS, EXAMPLES = 4, 512  # of an epoch; in a made-up set
TASKS = {"mlp": "digits", "conv1d": "mnist1d", "conv2d": "digits", "transformer": "mnist1d"}  # whose examples' shape is read


def batch(given: argparse.Namespace) -> list[Row]:
    """Training steps a second, of all hosts together."""
    whole = given.environments % given.block == 0
    require(whole, "--environments", given.environments, f"a multiple of --block, {given.block}")
    found = []
    for kind in given.hosts.split(","):
        require(kind in TASKS, "--hosts", kind, f"of {', '.join(TASKS)}")
        for grown in (False, True):
            made = Made.of(given, kind, grown)
            ways = {"plain loop, one by one": one_by_one(made), "blocks": in_blocks(made, given.block)}
            if given.device == "cuda":
                ways["plain steps replayed, one by one"] = one_by_one(made, replayed=True)
            if given.ones:
                ways["blocks of one"] = in_blocks(made, 1)
            seconds = timed({name: act for name, (_, act) in ways.items()}, given.device, given.repeats)
            what = {"hosts": kind, "grown": grown, "networks": given.environments, "block": given.block}
            found += _beside(seconds, what, "plain loop, one by one", STEPS)
    return found


@dataclass(frozen=True)
class Made:
    """Hosts to train, and what they learn from."""

    plan: Plan
    fit: Split
    batches: Tensor  # int64 (networks, steps, examples of a step)
    active: Tensor  # int64 (networks, 3)
    device: str

    @classmethod
    def of(cls, given: argparse.Namespace, kind: str, grown: bool) -> Made:
        """``grown``: every slot holds a seed, one blueprint or another."""
        keys = {key.removeprefix("host."): json.loads(value) for key, value in pairs(given).items()}
        config = HostConfig(**{"kind": kind, **keys})
        form = tasks.find_form(TaskConfig(TASKS[kind]), config)
        plan, count = hosts.make_plan(config, form), given.environments
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(EXAMPLES, *form.shape, generator=generator)
        targets = torch.randint(0, form.classes, (EXAMPLES,), generator=generator)
        fit = Split(inputs, targets).stacked(count).to(given.device)
        batches = torch.randint(0, EXAMPLES, (count, STEPS, config.batch_size), generator=generator)
        seeds_of = torch.randint(0, len(plan.blueprints), (count, len(SLOTS)), generator=generator)
        active = seeds_of if grown else torch.full_like(seeds_of, -1)
        return cls(plan, fit, batches, active, given.device)


Trained = list[dict[str, Tensor]]  # the weights of every host, by segment
Contestant = tuple[Trained, Callable[[], object]]  # what it trains, and a call that trains it for an epoch


def in_blocks(made: Made, block: int) -> Contestant:
    """As the loop trains them."""
    trained: Trained = []
    epochs = []
    for first in range(0, len(made.batches), block):
        members = range(first, first + block)
        state = training.make_hosts(made.plan, bank.draw(made.plan, hosts.HOST, members), made.device)
        active = made.active[members]
        for member, slot in active.ge(0).nonzero().tolist():
            training.germinate(state, member, slot, int(active[member, slot]), first + member)
        fit = Split(made.fit.inputs, made.fit.targets[members])
        epochs.append((state, active, torch.ones(active.shape), active >= 0, fit, made.batches[members]))
        trained += [{name: held[member] for name, held in state.weights.items()} for member in range(block)]
    return trained, lambda: [training.train_epoch(*each) for each in epochs]


def one_by_one(made: Made, replayed: bool = False) -> Contestant:
    """By a plain training loop, host by host: parameters with gradients, autograd, torch's fused Adam.

    ``replayed``: on a GPU, each host's step is recorded as a CUDA graph beforehand, and replayed.
    """
    active, networks = made.active.tolist(), []
    batches = made.batches.to(made.device)
    for number in range(len(batches)):
        grown = [hosts.name_segment(made.plan, slot, index) for slot, index in enumerate(active[number]) if index >= 0]
        drawn = {name: bank.draw(made.plan, name, [number])[0].float().to(made.device) for name in [hosts.HOST, *grown]}
        params = {name: each.requires_grad_() for name, each in drawn.items()}
        rates = [made.plan.learning_rates[bank.find_part(name)] for name in params]
        options = [{"params": [each], "lr": rate} for each, rate in zip(params.values(), rates, strict=True)]
        optimizer = torch.optim.Adam(options, fused=True, capturable=replayed)
        step = partial(_step, made, number, active[number], params, optimizer)
        networks.append((params, _replayed(step, batches[number, 0], params, optimizer) if replayed else step))

    def train() -> None:
        for (_, step), of in zip(networks, batches, strict=True):
            for chosen in of:
                step(chosen)

    return [params for params, _ in networks], train


def _step(
    made: Made, number: int, active: list[int], params: dict[str, Tensor], optimizer: torch.optim.Adam, chosen: Tensor
) -> None:
    """A plain step of one host."""
    logits = one_host.forward(made.plan, params, made.fit.inputs[chosen], [1.0] * len(SLOTS), active)
    loss = functional.cross_entropy(logits, made.fit.targets[number][chosen])
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def _replayed(
    step: Callable[[Tensor], None], examples: Tensor, params: dict[str, Tensor], optimizer: torch.optim.Adam
) -> Callable[[Tensor], None]:
    """``step`` as a CUDA graph, which begins from the same weights."""
    begun, at_hand = [each.detach().clone() for each in params.values()], examples.clone()

    def warm_up() -> None:
        for _ in range(3):
            step(at_hand)

    again = recorded(lambda: step(at_hand), warm_up)
    with torch.no_grad():
        for each, before in zip(params.values(), begun, strict=True):
            each.copy_(before)
        for state in optimizer.state.values():
            for held in state.values():
                held.zero_()

    def replay(chosen: Tensor) -> None:
        at_hand.copy_(chosen)
        again()

    return replay


# Training on devices


def ranks(given: argparse.Namespace) -> Iterator[Row]:
    """Training steps a second of the real command on each number of devices, as each is known."""
    require(given.updates >= 3, "--updates", given.updates, "at least 3 for ranks: the first and the last are not counted")
    asked = pairs(given)
    config: GrowthConfig = parse(["--config", given.config, *(f"--{key}={value}" for key, value in asked.items())]).config
    if config.loop != "growth":
        raise InputError(f"bin/bench growth ranks: {given.config} is for loop {config.loop}; name one for loop growth")

    steps = given.environments * config.host.epochs * config.host.steps_per_epoch

    def trained(count: int) -> Row:
        keys = {
            "growth.environments": given.environments,
            "growth.block": given.block,
            "growth.updates": given.updates,
            "growth.commit_every": given.updates,
            "evaluation.every": 0,
            "evaluation.environments": 1,
            "log.csv": False,
            "log.tensorboard": False,
            "log.curves": False,
            "fabric.devices": count,
        }
        rows = fit({"loop": "growth", "config": given.config, **asked, **keys})[1:-1]
        played = [[rank["play_s"] for rank in row["ranks"]] for row in rows]
        row = {"devices": count, "environments": given.environments, "block": given.block}
        row |= spread("steps_per_s", [steps / row["seconds"] for row in rows])
        parts = {"play_s": map(max, played), "least_play_s": map(min, played), "learn_s": (row["learn_s"] for row in rows)}
        return row | {name: statistics.median(seconds) for name, seconds in parts.items()}

    yield from on_devices(given.devices, trained)


def _beside(seconds: dict[str, list[float]], what: dict[str, Any], first: str, steps: int) -> list[Row]:
    """Rows: steps a second of each contestant, whose calls make so many of each network, and how many times as fast as
    ``first`` it is."""
    count, alone = what["networks"] * steps, statistics.median(seconds[first])
    return [
        {
            **what,
            "way": name,
            **spread("steps_per_s", [count / each for each in taken]),
            "times": alone / statistics.median(taken),
        }
        for name, taken in seconds.items()
    ]


ACTS: dict[str, Act] = {"batch": batch, "ranks": ranks}
