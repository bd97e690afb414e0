"""The config that loops share: which devices, where the run's folder lies, how a policy learns."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from stageb.errors import ConfigError
from stageb.settings import (
    ABOVE_0,
    CODE,
    DATA,
    DEVICES,
    PLAIN_NAME,
    SECONDS,
    UNIT,
    WRITTEN,
    Check,
    Section,
    at_least,
    setting,
)

DEVICES_ASKED = Check(
    lambda asked: (
        not isinstance(asked, str) or re.fullmatch(r"auto|-1|\d+(,\d+)*,?", asked) is not None
    ),
    "a count, a list of indices such as [0, 1], or auto; fabric.accelerator says of what kind",
)


def require(holds: bool, key: str, value: object, remedy: str) -> None:
    """Raise ``ConfigError`` for ``key`` unless ``holds``."""
    if not holds:
        raise ConfigError(key, value, remedy)


@dataclass(frozen=True)
class FabricConfig(Section, at="fabric"):
    """How Lightning Fabric launches and places ranks."""

    accelerator: str = setting("auto", trust=DEVICES)
    """cpu, cuda or auto."""
    devices: int | str | list[int] = setting("auto", DEVICES_ASKED, trust=DEVICES)
    """A count, a list of indices, or auto: every GPU, or one process on a CPU; a command that
    judges tickets by the model in the package, or one from a folder, then has a rank for each
    core."""
    num_nodes: int = setting(1, at_least(1), trust=DEVICES)
    """Machines that take part."""
    strategy: str = setting("auto", trust=DEVICES)
    """ddp gives every device a rank with a whole copy of the model; auto means ddp where there are
    several devices."""
    precision: str | None = setting(None, trust=DATA)
    """Fabric's precision plugin for modules that it sets up; frozen models take model.torch_dtype
    instead."""
    threads: int = setting(1, at_least(1))
    """CPU threads of each rank, whatever the machine has: others round sums otherwise. More cores
    take more ranks."""
    timeout_s: float = setting(600.0, SECONDS)
    """Seconds without a sign of life (a step of decoding, a request under way) after which a rank
    is taken for hung."""

    load_timeout_s: float = setting(1800.0, SECONDS)
    """The same where disk traffic is the sign of life: a rank that loads a model; rank 0 that
    decides, learns or writes."""


Level = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True)
class LoggerConfig(Section, at="loggers"):
    """A logger of Lightning's."""

    class_path: str = setting("lightning.fabric.loggers.CSVLogger", trust=CODE)
    """Its class, with its module unless it is Lightning's. It is imported, so a config is trusted
    as code is."""
    init_args: dict[str, Any] = setting(dict, trust=CODE)
    """Arguments that it is made with; it is told where to write: logs.d/ in the run's folder."""


AUTO_LOGGERS = "auto"  # in place of a class: those of what is installed


@dataclass(frozen=True)
class OutputConfig(Section, at="output"):
    """Where a run's folder lies: ``{root}/{run_name}``."""

    root: str = setting("out", trust=WRITTEN)
    """The folder that holds runs."""
    run_name: str = setting("run", PLAIN_NAME, trust=WRITTEN)
    """This run's folder under root; one path component."""

    def __str__(self) -> str:
        return f"{self.root}/{self.run_name}"

    @property
    def folder(self) -> Path:
        """The run's."""
        return Path(self.root, self.run_name)


@dataclass(frozen=True)
class TimeConfig(Section, at="budget"):
    """Limits that end learning. A higher limit goes on from there."""

    seconds: float | None = setting(None, ABOVE_0.or_null())
    """Wall-clock seconds, over all parts of an interrupted run. Two equal runs may then end at
    different steps."""


@dataclass(frozen=True)
class LearningConfig(Section, at=""):
    """Keys that the configs of all loops that learn weights have."""

    loop: str = ""
    """The loop that these keys belong to."""
    seed: int = 17
    """Seed of every random stream of the run."""
    output: OutputConfig = field(default_factory=OutputConfig)
    curves: bool = True
    """Draw curves.png at the end."""
    loggers: list[str | LoggerConfig] = field(default_factory=list)
    """Lightning loggers that receive every row, each a class path, or class_path and init_args:
    TensorBoardLogger, ...; auto: CSV, and TensorBoard where its package is installed."""
    log_level: Level = "info"
    """How much is printed; info: progress; warning, error: less; debug: also what libraries log."""
    budget: TimeConfig = field(default_factory=TimeConfig)
    fabric: FabricConfig = field(default_factory=FabricConfig)


@dataclass(frozen=True)
class PpoConfig(Section, at="ppo"):
    """Proximal policy optimisation (Schulman et al. 2017)."""

    gamma: float = setting(0.99, UNIT)
    """Discount of the next step's value."""
    gae_lambda: float = setting(0.95, UNIT)
    """Share of the longer returns in advantages (generalised advantage estimation)."""
    clip: float = setting(0.2, ABOVE_0)
    """How far the ratio of probabilities may part from 1 to any use."""
    epochs: int = setting(8, at_least(1))
    """Passes over a rollout."""
    value_weight: float = setting(0.5, at_least(0))
    """Of the value loss."""
    entropy_weight: float = setting(0.01, at_least(0))
    """Of the entropy at the first update."""
    entropy_weight_end: float = setting(0.001, at_least(0))
    """Of the entropy at the end of the run; linear in between."""
    learning_rate: float = setting(0.0005, ABOVE_0)
    """Adam's at the first update, whatever the world size and the batch."""
    learning_rate_end: float = setting(0.00005, at_least(0))
    """Adam's at the end of the run; linear in between."""
    max_grad_norm: float = setting(0.5, ABOVE_0)
    """Gradients longer than this are made as long."""
    target_kl: float | None = setting(None, ABOVE_0.or_null())
    """Divergence of the new policy from the old, over all ranks, after which an update makes no
    further pass; null: any."""
