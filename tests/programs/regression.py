"""A loop of the other kind, for tests: it learns weights, with gradients that are reduced over
ranks.

    python -m programs.regression fit --loop regression ...   the ``stageb`` command with this loop
    registered

A small network learns a curve by plain gradient descent, so weights are all there is to keep: a
versioned file of the journal, and a commit for every step. Every rank learns from its share of the
step's examples; gradients are averaged by DDP, so that ranks hold the same weights at all times.
The sum over ranks rounds otherwise at each world size: equal bytes are promised at one world size,
killed and resumed or not, and weights within a tolerance across world sizes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from stageb.__main__ import main as stageb
from stageb.cli.commands import Loop, loops
from stageb.config import FabricConfig, OutputConfig
from stageb.job.world import World, run
from stageb.seeds import shuffled, stream, uniform
from stageb.store.journal import Journal

loops()["regression"] = Loop(
    "Learn a curve.", "programs.regression:RegressionConfig", "programs.regression:fit"
)
WEIGHTS = "weights/curve.safetensors"
EXAMPLES = 96


@dataclass(frozen=True)
class RegressionConfig:
    """A run that learns a curve."""

    loop: Literal["regression"] = "regression"
    """The loop that these keys are of."""
    steps: int = 30
    """Steps of gradient descent."""
    batch_size: int = 24
    """Examples of a step, over all ranks."""
    learning_rate: float = 0.3
    """Of gradient descent."""
    raises_on: int = -1
    """A rank that raises amid the work."""
    seed: int = 0
    """Names every random choice."""
    fabric: FabricConfig = field(default_factory=FabricConfig)
    output: OutputConfig = field(default_factory=OutputConfig)


def fit(config: RegressionConfig, resolved_yaml: str, fresh: bool) -> int:
    """Run, or go on with, the run that ``config`` names. Returns the exit code."""
    return run(config.fabric, lambda world: main(world, config, resolved_yaml, fresh))


def main(world: World, config: RegressionConfig, resolved_yaml: str, fresh: bool) -> int:
    """The loop, on every rank."""
    keeper = Keeper()
    network = network_of(config.seed)
    begun, weights = world.lead(keeper.begin, config, resolved_yaml, fresh)
    if weights:
        network.load_state_dict(weights)
    model, optimizer = world.fabric.setup(
        network, torch.optim.SGD(network.parameters(), lr=config.learning_rate)
    )
    # DDP lays gradients out anew after its first reduction, and then rounds otherwise: without one
    # that changes nothing, a run that goes on would leave other bytes.
    with world.together("gradients"):
        world.fabric.backward(0 * model(torch.zeros(1, 1)).sum())
    optimizer.zero_grad()
    for step in range(begun, config.steps):
        drawn = shuffled(range(EXAMPLES), stream(config.seed, "step", step))[: config.batch_size]
        with world.at(f"step {step}"):
            if (world.rank, step) == (config.raises_on, 3):
                raise ValueError("the slope is gone")
            x, y = examples(config.seed, world.share(drawn))
            loss = (model(x) - y).square().sum() / len(drawn)
        with world.together("gradients"):
            # DDP averages over ranks, and the loss is a mean over all
            world.fabric.backward(loss * world.world_size)
            total: Any = world.fabric.all_reduce(loss.detach(), reduce_op="sum")
        optimizer.step()
        optimizer.zero_grad()
        world.lead(keeper.keep, step, total.item(), network.state_dict())
    world.lead(lambda: keeper.journal.close())
    return 0


class Keeper:
    """What rank 0 does with the run's folder."""

    journal: Journal  # from ``begin`` on

    def begin(
        self, config: RegressionConfig, resolved_yaml: str, fresh: bool
    ) -> tuple[int, dict[str, Tensor] | None]:
        """Steps done, and the weights that came of them; None before the first."""
        root, name = config.output.root, config.output.run_name
        self.journal = Journal.open(
            root, name, asdict(config), fresh=fresh, ignored=("fabric.", "output.")
        )
        if self.journal.number == 0:
            self.journal.replace("config.yaml", resolved_yaml)
        path = self.journal.path(WEIGHTS)
        return self.journal.number, load_file(path) if path else None

    def keep(self, step: int, loss: float, weights: dict[str, Tensor]) -> None:
        """A step is done."""
        self.journal.append("metrics.jsonl", [{"step": step, "loss": loss}])
        self.journal.put(WEIGHTS, lambda path: save_file(weights, path))
        self.journal.commit({"step": step})


def network_of(seed: int) -> nn.Module:
    """The network before the first step."""
    network = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    generator = torch.Generator().manual_seed(seed)
    for weights in network.parameters():
        nn.init.uniform_(weights, -1, 1, generator)
    return network


def examples(seed: int, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Points of the curve, by their numbers alone: x and y, of shape (len(numbers), 1)."""
    x = torch.tensor([[2 * uniform(stream(seed, "example", n), 0) - 1] for n in numbers])
    return x, torch.sin(3 * x)


if __name__ == "__main__":
    sys.exit(stageb())
