"""The config that loops share: which devices, where the run's folder lies, how a policy learns.

Plain frozen dataclasses of the standard library. Values are checked here, where they enter; a wrong one raises
``ConfigError`` with its key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from stageb.errors import ConfigError


def require(holds: bool, key: str, value: object, remedy: str) -> None:
    """Raise ``ConfigError`` for ``key`` unless ``holds``."""
    if not holds:
        raise ConfigError(key, value, remedy)


@dataclass(frozen=True)
class FabricConfig:
    """How Lightning Fabric launches and places ranks."""

    accelerator: str = "auto"
    """cpu, cuda or auto."""
    devices: int | str | list[int] = "auto"
    """A count, a list of indices, or auto: every GPU, or one process on a CPU; a command that judges tickets by the model in
    the package, or one from a folder, then has a rank for each core."""
    num_nodes: int = 1
    """Machines that take part."""
    strategy: str = "auto"
    """ddp gives every device a rank with a whole copy of the model; auto means ddp where there are several devices."""
    precision: str | None = None
    """Fabric's precision plugin for modules that it sets up; frozen models take model.torch_dtype instead."""
    threads: int = 1
    """CPU threads of each rank, whatever the machine has: others round sums otherwise. More cores take more ranks."""
    timeout_s: float = 600.0
    """Seconds without a sign of life (a step of decoding, a request under way) after which a rank is taken for hung."""

    load_timeout_s: float = 1800.0
    """The same where disk traffic is the sign of life: a rank that loads a model; rank 0 that decides, learns or writes."""

    def __post_init__(self) -> None:
        for name in ("num_nodes", "threads"):
            require(getattr(self, name) >= 1, f"fabric.{name}", getattr(self, name), "at least 1")
        for name in ("timeout_s", "load_timeout_s"):
            require(
                0 < getattr(self, name) <= 1e6, f"fabric.{name}", getattr(self, name), "seconds above 0, at most 1000000"
            )


Level = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True)
class LogConfig:
    """What is written beside metrics.jsonl."""

    csv: bool = True
    """csv/metrics.csv."""
    tensorboard: bool = True
    """Event files under tensorboard/."""
    curves: bool = True
    """curves.png, at the end."""


@dataclass(frozen=True)
class LoggerConfig:
    """A logger of Lightning's."""

    class_path: str = "lightning.fabric.loggers.CSVLogger"
    """Its class, with its module. It is imported, so a config is trusted as code is."""
    init_args: dict[str, Any] = field(default_factory=dict)
    """What it is made with. Where it is to write, it is told: logs.d/ in the run's folder."""


@dataclass(frozen=True)
class OutputConfig:
    """Where a run's folder lies: ``{root}/{run_name}``."""

    root: str = "out"
    """The folder that holds runs."""
    run_name: str = "run"
    """This run's folder under root; one path component."""

    def __post_init__(self) -> None:
        plain = self.run_name.isprintable() and self.run_name not in ("", ".", "..") and not set(self.run_name) & set("/\\")
        require(plain, "output.run_name", self.run_name, "one path component of printable characters, without / or \\")

    @property
    def folder(self) -> Path:
        """The run's."""
        return Path(self.root, self.run_name)


@dataclass(frozen=True)
class PpoConfig:
    """Proximal policy optimisation (Schulman et al. 2017)."""

    gamma: float = 0.99
    """Discount of the next step's value."""
    gae_lambda: float = 0.95
    """Share of the longer returns in advantages (generalised advantage estimation)."""
    clip: float = 0.2
    """How far the ratio of probabilities may part from 1 to any use."""
    epochs: int = 2
    """Passes over a rollout."""
    value_weight: float = 0.5
    """Of the value loss."""
    entropy_weight: float = 0.01
    """Of the entropy at the first update."""
    entropy_weight_end: float = 0.001
    """Of the entropy at the last update; linear in between."""
    learning_rate: float = 0.0005
    """Adam's at the first update, whatever the world size and the batch."""
    learning_rate_end: float = 0.00005
    """Adam's at the last update; linear in between."""
    max_grad_norm: float = 0.5
    """Gradients longer than this are made as long."""
    target_kl: float | None = None
    """Divergence of the new policy from the old, over all ranks, after which an update makes no further pass; null: any."""

    def __post_init__(self) -> None:
        for name in ("gamma", "gae_lambda"):
            require(0 <= getattr(self, name) <= 1, f"ppo.{name}", getattr(self, name), "0 to 1")
        for name in ("clip", "learning_rate", "max_grad_norm"):
            require(getattr(self, name) > 0, f"ppo.{name}", getattr(self, name), "above 0")
        for name in ("value_weight", "entropy_weight", "entropy_weight_end", "learning_rate_end"):
            require(getattr(self, name) >= 0, f"ppo.{name}", getattr(self, name), "0 or more")
        require(self.epochs >= 1, "ppo.epochs", self.epochs, "at least 1")
        require(self.target_kl is None or self.target_kl > 0, "ppo.target_kl", self.target_kl, "above 0, or null")
