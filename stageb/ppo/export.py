"""``stageb export RUN``: the agent as an ONNX file, and by how much its answers differ there."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stageb.errors import InputError, StagebError
from stageb.ppo.agents import ActorCritic
from stageb.ppo.config import PpoLoopConfig
from stageb.ppo.environment import mask
from stageb.ppo.evaluate import add_authority, load_agent, replace_authority
from stageb.ppo.make import make_environment
from stageb.store import disk
from stageb.store.output import check_target

NEEDS = ("onnx", "onnxruntime", "onnxscript")
CLOSE = 1e-5  # how near answers must be
GAMES, STEPS = 8, 64  # played to compare them


class ExportError(StagebError):
    """What was exported does not answer as what it was made from."""


class ExportedAgent(nn.Module):
    """An agent as a network: what it decides, and of one with a memory what it remembers then."""

    def __init__(self, agent: ActorCritic) -> None:
        super().__init__()
        self.agent = agent
        self.reads = ["observations", *(["memory"] if agent.memory else [])]
        self.answers = ["outputs", "values", *(["next_memory"] if agent.memory else [])]

    def forward(self, observations: Tensor, memory: Tensor | None = None) -> tuple[Tensor, ...]:
        """See ``ActorCritic.decide`` and ``advance``."""
        return self.agent.decide(observations) if memory is None else self.agent.advance(observations, memory)


def main(folder: Path, config: PpoLoopConfig, arguments: Sequence[str]) -> int:
    """Write the agent of a run as ONNX: from observations to what its actions are drawn from, and to values."""
    parser = argparse.ArgumentParser(prog="stageb export RUN", description=main.__doc__)
    parser.add_argument("--to", metavar="FILE", help="file to write (default RUN/agent.onnx)")
    add_authority(parser)
    given = parser.parse_args(arguments)
    _check_onnx()
    place = Path(given.to) if given.to else folder / "agent.onnx"
    check_target(place, {})
    stored = load_agent(folder, replace_authority(config, folder, given))
    network = ExportedAgent(stored.agent).eval()
    with closing(make_environment(stored.config, 0, range(GAMES), "cpu")) as environment:
        examples = (environment.observe(), torch.zeros((GAMES, stored.agent.memory)))[: len(network.reads)]
    _write(network, examples, place)
    print(f"{place}: {folder}, {stored.told}; {', '.join(network.reads)} to {', '.join(network.answers)}")
    print(f"answers are those of the agent to {compare(network, _read(place), stored.config):.1e}, of {STEPS} steps")
    return 0


@torch.no_grad()
def compare(network: ExportedAgent, file: Any, config: PpoLoopConfig) -> float:
    """By how much the answers of ``file`` differ at most in games of the agent. Raises ``ExportError`` where it is not
    rounding alone."""
    with closing(make_environment(config, 0, range(GAMES), "cpu")) as environment:
        memory, most = torch.zeros((GAMES, network.agent.memory)), 0.0
        for _ in range(STEPS):
            inputs = (environment.observe(), memory)[: len(network.reads)]
            wanted = network(*inputs)
            found = file.run(None, {name: each.numpy() for name, each in zip(network.reads, inputs, strict=True)})
            apart = [
                (torch.from_numpy(one) - other).abs() / other.abs().clamp(min=1)
                for one, other in zip(found, wanted, strict=True)
            ]
            most = max(most, *(float(each.max()) for each in apart))
            outcome = environment.step(network.agent.actions.best(mask(wanted[0], environment.masks())))
            done = outcome.terminated | outcome.truncated
            environment.restart(done)
            memory = wanted[-1].masked_fill(done[:, None], 0.0) if network.agent.memory else memory
    if not most <= CLOSE:
        raise ExportError(f"the answers of the file differ from those of the agent by {most:.1e}")
    return most


def _check_onnx() -> None:
    if missing := [name for name in NEEDS if importlib.util.find_spec(name) is None]:
        remedy = "python -m pip install 'stageb[onnx]', or in a checkout: pip install -e '.[onnx]'"
        raise InputError(f"stageb export needs the extra onnx, of which {', '.join(missing)} cannot be found: {remedy}")


def _write(network: ExportedAgent, examples: Sequence[Tensor], path: Path) -> None:
    """The network as ONNX, of any number of rows."""
    rows = torch.export.Dim("N")
    program = torch.onnx.export(
        network,
        tuple(examples),
        dynamo=True,
        dynamic_shapes=tuple({0: rows} for _ in examples),
        input_names=network.reads,
        output_names=network.answers,
        verbose=False,
    )
    assert program is not None, "it was exported by dynamo"
    disk.write(path, lambda beside: program.save(beside))


def _read(path: Path) -> Any:
    """What computes an ONNX file: ``run(None, {name: array})``."""
    import onnxruntime

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
