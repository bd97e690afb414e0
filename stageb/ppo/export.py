"""``stageb export RUN``: the agent as an ONNX file, and by how much its answers differ there."""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stageb.errors import InputError, StagebError
from stageb.ppo.agents import ActorCritic
from stageb.ppo.config import PpoLoopConfig
from stageb.ppo.environment import Discrete, Environment, Joint, mask
from stageb.ppo.make import make_environment
from stageb.ppo.stored import add_authority, load_agent, replace_authority
from stageb.store import disk
from stageb.store.output import check_target

NEEDS = ("onnx", "onnxruntime", "onnxscript")
CLOSE = 1e-5  # how near answers must be
GAMES, STEPS = 8, 64  # played to compare them


class ExportError(StagebError):
    """An exported model whose outputs differ from those of its source."""


class ExportedAgent(nn.Module):
    """An agent as a network: what it decides, of one with a memory what it remembers then, and the
    most probable actions as the game counts them."""

    def __init__(self, agent: ActorCritic, environment: Environment) -> None:
        super().__init__()
        self.agent, self.units = agent, environment.units()
        memory, is_masked = agent.memory > 0, environment.masks() is not None
        self.reads = ["observations", *["memory"] * memory, *["masks"] * is_masked]
        self.answers = ["outputs", "values", *["next_memory"] * memory, "actions"]

    def forward(
        self, observations: Tensor, memory: Tensor | None = None, masks: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """See ``ActorCritic.decide`` and ``advance``."""
        decided = (
            self.agent.decide(observations)
            if memory is None
            else self.agent.advance(observations, memory)
        )
        return *decided, self.units.convert(self.agent.actions.best(mask(decided[0], masks)))

    def inputs(self, environment: Environment, memory: Tensor) -> dict[str, Tensor]:
        """Return the inputs that it reads of an environment, by name."""
        read = {
            "observations": environment.observe(),
            "memory": memory,
            "masks": environment.masks(),
        }
        return {
            name: each for name, each in read.items() if name in self.reads and each is not None
        }

    def describe(self, title: str) -> dict[str, Any]:
        """Return the file's metadata for people and programs: the meaning of outputs and actions,
        and the bounds of these."""
        actions = self.agent.actions
        counts = (
            actions.counts
            if isinstance(actions, Joint)
            else [actions.count]
            if isinstance(actions, Discrete)
            else []
        )
        logits = [f"logits of {count} choices" for count in counts]
        size = len(self.units.low)
        numbers = [f"means of {size} numbers, then the logarithms of their deviations"] * bool(size)
        return {
            "environment": title,
            "outputs": "; then ".join([*logits, *numbers]),
            "values": "discounted rewards to come",
            "actions": "the most probable ones: choices, counted from starts; then numbers, "
            "within low and high",
            "observations": "float, or bytes of a picture as they are; other than a Box "
            "flattened as Gymnasium does; of a Box from 0 to 255, if not bytes, divided by 255",
            **asdict(self.units),
        }


def main(folder: Path, config: PpoLoopConfig, arguments: Sequence[str]) -> int:
    """Write the agent of a run as ONNX: from observations to what its actions are drawn from, and
    to values."""
    parser = argparse.ArgumentParser(prog="stageb export RUN", description=main.__doc__)
    parser.add_argument("--to", metavar="FILE", help="file to write (default RUN/agent.onnx)")
    add_authority(parser)
    given = parser.parse_args(arguments)
    _check_onnx()
    place = Path(given.to) if given.to else folder / "agent.onnx"
    check_target(place, {})
    stored = load_agent(folder, replace_authority(config, folder, given))
    with closing(make_environment(stored.config, 0, range(GAMES), "cpu")) as environment:
        network = ExportedAgent(stored.agent, environment).eval()
        examples = network.inputs(environment, torch.zeros((GAMES, stored.agent.memory)))
    _write(network, examples, place, network.describe(stored.config.env.title))
    print(
        f"{place}: {folder}, {stored.told}; {', '.join(network.reads)} to "
        f"{', '.join(network.answers)}"
    )
    print(
        f"answers are those of the agent to {compare(network, _read(place), stored.config):.1e}, "
        f"of {STEPS} steps"
    )
    return 0


@torch.no_grad()
def compare(network: ExportedAgent, file: Any, config: PpoLoopConfig) -> float:
    """By how much the answers of ``file`` differ at most in games of the agent. Raises
    ``ExportError`` where it is not rounding alone."""
    with closing(make_environment(config, 0, range(GAMES), "cpu")) as environment:
        memory, most = torch.zeros((GAMES, network.agent.memory)), 0.0
        for _ in range(STEPS):
            inputs = network.inputs(environment, memory)
            # of two actions that are as probable either may be named
            *wanted, _ = network(**inputs)
            *found, _ = file.run(None, {name: each.numpy() for name, each in inputs.items()})
            apart = [
                (torch.from_numpy(one) - other).abs() / other.abs().clamp(min=1)
                for one, other in zip(found, wanted, strict=True)
            ]
            most = max(most, *(float(each.max()) for each in apart))
            outcome = environment.step(
                network.agent.actions.best(mask(wanted[0], environment.masks()))
            )
            done = outcome.terminated | outcome.truncated
            environment.restart(done)
            memory = wanted[-1].masked_fill(done[:, None], 0.0) if network.agent.memory else memory
    if not most <= CLOSE:
        raise ExportError(f"the answers of the file differ from those of the agent by {most:.1e}")
    return most


def _check_onnx() -> None:
    if missing := [name for name in NEEDS if importlib.util.find_spec(name) is None]:
        remedy = "python -m pip install 'stageb[onnx]', or in a checkout: pip install -e '.[onnx]'"
        raise InputError(
            f"stageb export needs the extra onnx, of which {', '.join(missing)} cannot be "
            f"found: {remedy}"
        )


def _write(
    network: ExportedAgent, examples: Mapping[str, Tensor], path: Path, told: Mapping[str, Any]
) -> None:
    """The network as ONNX, of any number of rows; its metadata hold what is ``told``, as JSON."""
    rows = torch.export.Dim("N")
    program = torch.onnx.export(
        network,
        (),
        kwargs=dict(examples),
        dynamo=True,
        dynamic_shapes={name: {0: rows} for name in examples},
        input_names=network.reads,
        output_names=network.answers,
        verbose=False,
    )
    assert program is not None, "it was exported by dynamo"
    program.model.metadata_props["stageb"] = json.dumps(told)
    disk.write(path, lambda beside: program.save(beside))


def _read(path: Path) -> Any:
    """Load an ONNX file to compute: ``run(None, {name: array})``."""
    import onnxruntime

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
