"""``stageb export RUN``: a network that was grown, as a file of plain torch with its weights, which needs nothing else."""

from __future__ import annotations

import argparse
import copy
import inspect
import re
import runpy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stageb.config import require
from stageb.errors import InputError
from stageb.growth import blocks, blueprints, plain
from stageb.growth.config import GrowthConfig
from stageb.growth.deciding import CONTROLLERS, Decider, add_authority, load_controller, replace_authority
from stageb.growth.environment import Block, Places, Setting, play
from stageb.growth.hosts import HOST, Plan, name_segment
from stageb.growth.types import SLOTS
from stageb.store import disk
from stageb.training.export import ExportError, check_onnx, write_onnx

SEEDS = {
    "norm": plain.Norm,
    "attention": plain.Attention,
    "depthwise": plain.Depthwise,
    "conv_light": plain.ConvLight,
    "conv_heavy": plain.ConvHeavy,
    "mlp": plain.Mlp,
    "low_rank": plain.LowRank,
}
PARTS: tuple[Any, ...] = (  # what a file may need, each after what it needs itself
    blueprints.attend,
    plain.mix,
    plain.convolution,
    plain.PlaceNorm,
    *SEEDS.values(),
    plain.Network,
    plain.Dense,
    plain.DenseNetwork,
    plain.Halving,
    plain.ConvNetwork,
)
CLOSE = 1e-6  # how near the answers of both networks must be, in float64


@dataclass(frozen=True)
class Grown:
    """A network at the end of its episode."""

    plan: Plan
    active: tuple[int, ...]  # the blueprint in each slot, -1 for none
    weights: Mapping[str, Tensor]  # float32 (size,) of every segment in use


def main(folder: Path, config: GrowthConfig, arguments: Sequence[str]) -> int:
    """Grow the network of a held-out environment as a run's controller does, and write it as plain PyTorch."""
    parser = argparse.ArgumentParser(prog="stageb export RUN", description=main.__doc__)
    parser.add_argument("--environment", type=int, default=0, help="number of a held-out environment (default 0)")
    parser.add_argument("--controller", choices=CONTROLLERS, help="the controller (default: the run's)")
    parser.add_argument("--out", metavar="FOLDER", help="folder to write to (default RUN/network-N, N the environment)")
    parser.add_argument("--onnx", action="store_true", help="write network.onnx too; needs the extra onnx")
    add_authority(parser)
    given = parser.parse_args(arguments)
    require(given.environment >= 0, "--environment", given.environment, "0 or more")
    if given.onnx:
        check_onnx("--onnx")
    place = Path(given.out) if given.out else folder / f"network-{given.environment}"
    disk.check_place(place, "another --out")
    name = given.controller or config.growth.controller
    held = load_controller(folder, config, name)
    config = replace_authority(config, folder, given)
    if config.host.make:
        raise InputError(f"its hosts are made by {config.host.make}: export knows how to write those of host.kind alone")
    torch.set_num_threads(1)
    block = Block(Setting.of(config, "cpu"), Places((given.environment,), held_out=True))
    [ended] = play(block, Decider(name, held.snapshot, greedy=True).of(block)).ended
    [(_, accuracy)] = block.judge(test=True)
    grown = take_network(block, 0)
    about = (
        f"Grown by stageb: task {config.task.name}, held-out environment {given.environment}, controller {name}, "
        f"{block.setting.config.host.epochs} epochs."
    )
    network = write(grown, about, place)
    difference = compare(grown, network, block.lessons.sets.test.inputs)
    print(f"{place / 'network.py'}: {describe(grown)}; {1 + ended.extra:.2f} x the host's parameters")
    print(f"test accuracy {accuracy:.1%}; logits are those of the run's network to {difference:.1e}, in float64")
    if given.onnx:
        write_onnx(network, [block.lessons.sets.test.inputs[:2]], place / "network.onnx")
        print(place / "network.onnx")
    return 0


def take_network(block: Block, member: int) -> Grown:
    """The network of a member whose episode has ended."""
    plan, active = block.setting.plan, tuple(block.active()[member].tolist())
    names = [HOST, *(name_segment(plan, slot, index) for slot, index in enumerate(active) if index >= 0)]
    return Grown(plan, active, {name: block.hosts.weights[name][member].detach().cpu().clone() for name in names})


def compare(grown: Grown, network: nn.Module, inputs: Tensor) -> float:
    """By how much the answers of the plain network differ from those of the grown one at most, of logits in float64.

    Raises ``ExportError`` where it is not rounding alone.
    """
    network = copy.deepcopy(network).double()
    plan = grown.plan
    held: blocks.StandingSeeds = [[(index, False) if index >= 0 else None for index in grown.active]]
    slots = blocks.group_members(plan, held, torch.device("cpu"))
    params = {group: grown.weights[group.segment].double()[None] for slot in slots for group in slot.groups}
    ones = torch.ones((1, 1, len(SLOTS)), dtype=torch.float64)
    host, most = grown.weights[HOST].double()[None], 0.0
    with torch.no_grad():
        for part in torch.split(inputs.double(), blocks.choose_batch_size(plan)):
            expected = blocks.forward(plan, host, slots, params, part, ones)[0, 0]
            most = max(most, float((network(part) - expected).abs().max()))
    if not most <= CLOSE:
        raise ExportError(f"the plain network's logits differ from those of the grown one by {most:.1e}")
    return most


def describe(grown: Grown) -> str:
    """What it is, in a few words."""
    plan = grown.plan
    seeds = [f"{plan.blueprints[index]} in {slot}" for slot, index in zip(SLOTS, grown.active, strict=True) if index >= 0]
    return f"{plan.kind} of width {plan.width}, {' and '.join(seeds) or 'no seed'}"


# The plain network


def write_constructor(grown: Grown) -> str:
    """The expression that makes the plain network, its weights not yet loaded."""
    plan, form, width = grown.plan, grown.plan.form, grown.plan.width
    axes = len(plan.slots[0].places)
    seeds = ""
    for slot, index in zip(SLOTS, grown.active, strict=True):
        made = "None"
        if index >= 0:
            made = f"{SEEDS[plan.blueprints[index]].__name__}({axes}, {width})"
        seeds += f", {slot}={made}"
    if plan.kind == "mlp":
        return f"DenseNetwork({prod(form.shape)}, {width}, {form.classes}{seeds})"
    read = prod(form.shape[1:]) if axes == 1 else form.shape[2]
    return f"ConvNetwork({axes}, {read}, {prod(plan.slots[2].places)}, {width}, {form.classes}{seeds})"


def name_weights(grown: Grown) -> dict[str, Tensor]:
    """The weights by the plain network's names; those of a map at every place lack its kernel's axes, of one place each."""
    named = dict[str, Tensor]()
    for name, flat in grown.weights.items():
        slot, _, blueprint = name.partition(".")
        for part, tensor in blocks.open_segment(grown.plan, name, flat).items():
            key = _host_key(part) if name == HOST else f"{slot}.{_seed_key(blueprint, part)}"
            named[key] = tensor
    return named


def _seed_key(blueprint: str, part: str) -> str:
    inner = {"in": "inner.weight", "in_bias": "inner.bias", "out": "outer.weight", "bias": "outer.bias"}
    if blueprint == "norm":
        inner = {"gain": "norm.weight", "bias": "norm.bias"}
    return inner.get(part, f"{part}.weight")


def _host_key(part: str) -> str:
    layer, _, kind_of = part.rpartition("_") if part.endswith(("_bias", "_gain", "_shift")) else (part, "", "")
    tensor = "weight" if kind_of in ("", "gain") else "bias"
    if layer == "head":
        return f"{layer}.{tensor}"
    return f"{layer}.{1 if kind_of in ('gain', 'shift') else 0}.{tensor}"


# Files


def write_source(grown: Grown, about: str) -> str:
    """The Python file."""
    made = write_constructor(grown)
    needed = "\n\n\n".join(inspect.getsource(part).rstrip() for part in _list_needed(made))
    form = grown.plan.form
    reads = f"float32 (N, {', '.join(map(str, form.shape))})"
    answers = f"(N, {form.classes})"
    math = "import math\n" * ("math." in needed)
    functional = "from torch.nn import functional\n" * ("functional." in needed)
    needed = re.sub(r"  # type: ignore\[[a-z-]+\]", "", needed)
    return f'''"""{describe(grown)[0].upper()}{describe(grown)[1:]}.

{about}

    from network import load

    network = load()  # weights from network.pt, beside this file
    logits = network(x)  # x: {reads}; logits: {answers}
"""

from __future__ import annotations

{math}from pathlib import Path

import torch
from torch import Tensor, nn
{functional}

{needed}


def build() -> nn.Module:
    """The network, its weights not yet loaded."""
    return {made}


def load(path: str | Path = Path(__file__).with_name("network.pt")) -> nn.Module:
    """The network as it was grown, ready to answer."""
    network = build()
    network.load_state_dict(torch.load(path, weights_only=True))
    return network.eval()
'''


def _list_needed(expression: str) -> Iterator[Any]:
    """The parts that an expression names, and those that they name, in their order."""
    names, texts = set[str](), {part.__name__: inspect.getsource(part) for part in PARTS}
    found = [expression]
    while found:
        words = set(re.findall(r"\w+", found.pop()))
        new = (words & texts.keys()) - names
        names |= new
        found += [texts[name] for name in new]
    return (part for part in PARTS if part.__name__ in names)


def write(grown: Grown, about: str, place: Path) -> nn.Module:
    """The network into the folder ``place``: network.py and network.pt. What these load."""
    disk.make_named_folder(place, "another --out")
    file = place / "network.py"
    with disk.reporting(place):
        disk.replace(file, write_source(grown, about).encode())
        plain_network = runpy.run_path(str(file))
        begun: Mapping[str, Tensor] = plain_network["build"]().state_dict()
        weights = {name: tensor.reshape(begun[name].shape).clone() for name, tensor in name_weights(grown).items()}
        disk.place(place / "network.pt", lambda path: torch.save(weights, path))
    loaded: nn.Module = plain_network["load"]()
    return loaded
