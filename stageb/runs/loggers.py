"""Loggers of Lightning's as a run's config names them: views of its figures for other programs, on
rank 0 alone.

What a run goes on from is in its journal; all that is read again here is which run of a service's
was its own, so that the figures that follow go there too. A logger that breaks is left out from
then on, and the run goes on without it.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stageb.config import AUTO_LOGGERS, LoggerConfig
from stageb.errors import ConfigError, shown
from stageb.store import disk
from stageb.untrusted import strict_yaml

if TYPE_CHECKING:
    # torch: commands that only look at runs do without
    from lightning.fabric.loggers.logger import Logger

FOLDER = "logs.d"  # in a run's folder; no folder that is named after anything has a dot in its name
PLACES = ("root_dir", "save_dir")  # what such classes call the folder to write to
# what MLflow calls the server or the database, which it wants rather than a folder
DATABASE = "tracking_uri"
# Fabric's own name for its package: that of ``lightning`` takes seconds to import.
CSV = LoggerConfig("lightning_fabric.loggers.CSVLogger", {"name": "csv"})
TENSORBOARD = LoggerConfig("lightning_fabric.loggers.TensorBoardLogger", {"name": "tensorboard"})
# TensorBoard's logger would plot a made-up metric of -1 for the config
HP_METRIC = "default_hp_metric"
# what classes of W&B's and MLflow's call a run of the service's that is to go on
RUN = ("id", "run_id")
RUNS = "runs.json"  # under FOLDER: by logger, the service's run that this one is shown in


def check(configs: Sequence[str | LoggerConfig]) -> None:
    """Raise ``ConfigError`` for a class that is not there, is no logger, or does not take its
    ``init_args``.

    This imports the modules that are named: a config is trusted as code is.
    """
    for each in resolve(configs):
        _load_class(each)


def resolve(configs: Sequence[str | LoggerConfig]) -> list[str | LoggerConfig]:
    """``configs`` with auto replaced by what is installed."""
    usual = [
        CSV,
        *[TENSORBOARD] * any(map(importlib.util.find_spec, ("tensorboard", "tensorboardX"))),
    ]
    return [one for each in configs for one in (usual if each == AUTO_LOGGERS else [each])]


class Loggers:
    """The loggers of a run."""

    def __init__(
        self, configs: Sequence[str | LoggerConfig], folder: Path, tell: Callable[[str], None]
    ) -> None:
        """``folder`` is the run's, which holds its config; ``tell`` says what became of a logger
        that broke.

        Raises ``ConfigError``.
        """
        self._tell, configs = tell, resolve(configs)
        self._file = folder / FOLDER / RUNS
        self._runs = _read_runs(self._file)
        if configs:
            disk.make_folder(folder / FOLDER)
        named = [(_identify(each), each) for each in configs]
        self._loggers = [
            (name, _create_logger(each, folder / FOLDER, self._runs.get(name)))
            for name, each in named
        ]
        self._undescribed = {name for name, _ in self._loggers} - set(self._runs)
        self._config = folder / "config.yaml"

    def log(self, figures: Mapping[str, Any], step: int) -> None:
        """Log figures by name; what is not a number is left out."""
        numbers = {name: value for name, value in figures.items() if isinstance(value, int | float)}
        self._all(lambda name, logger: logger.log_metrics(numbers, step=step))
        if self._undescribed:
            self._describe(strict_yaml.read(self._config.read_text(encoding="utf-8"))[0])
            self._undescribed.clear()

    def save(self) -> None:
        """Flush what was logged, and note the services' runs, so that a resumed run continues in
        them."""
        known = dict(self._runs)
        self._all(self._save)
        if self._runs != known:
            disk.quietly(lambda: disk.replace(self._file, disk.json_lines([self._runs])))

    def close(self, status: str) -> None:
        """No more is logged; ``status`` is "success" or "aborted", which Lightning's loggers know
        as "failed"."""
        self._all(
            lambda name, logger: logger.finalize("success" if status == "success" else "failed")
        )
        self._loggers = []

    def _describe(self, config: Mapping[str, Any]) -> None:
        """Show the config to loggers whose runs have begun; some have no place for it."""
        for logger in [logger for name, logger in self._loggers if name in self._undescribed]:
            try:
                logger.log_hyperparams(dict(config))
            except NotImplementedError:
                continue
            except Exception as error:
                self._tell(
                    f"{type(logger).__name__} does not take the config: {_describe_error(error)}"
                )

    def _save(self, name: str, logger: Logger) -> None:
        logger.save()
        if _find_parameters(type(logger), RUN) and isinstance(logger.version, str):
            self._runs[name] = logger.version

    def _all(self, act: Callable[[str, Logger], None]) -> None:
        for held in list(self._loggers):
            try:
                act(*held)
            # whatever a service, a disk or a library does, the run is not to end for it
            except Exception as error:
                self._loggers.remove(held)
                self._tell(
                    f"{type(held[1]).__name__} is switched off from now on: "
                    f"{_describe_error(error)}"
                )


def _describe_error(error: Exception) -> str:
    return shown(f"{type(error).__name__}: {error}", 300)


def _read_runs(path: Path) -> dict[str, str]:
    """The services' runs to continue; none if the file does not exist or cannot be read."""
    try:
        held = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return (
        {name: run for name, run in held.items() if isinstance(run, str)}
        if isinstance(held, dict)
        else {}
    )


def _identify(config: str | LoggerConfig) -> str:
    """Return the identity of a logger in ``RUNS``: its class path and arguments."""
    return (
        config
        if isinstance(config, str)
        else f"{config.class_path} {json.dumps(config.init_args, sort_keys=True)}"
    )


def _load_class(config: str | LoggerConfig) -> type[Logger]:
    path, given = (config, {}) if isinstance(config, str) else (config.class_path, config.init_args)
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module or "lightning.pytorch.loggers"), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            "loggers", path, f"there is no such class ({error}); correct it, or install its package"
        ) from None
    if not (isinstance(found, type) and issubclass(found, _list_kinds(path))) or inspect.isabstract(
        found
    ):
        raise ConfigError(
            "loggers", path, "this is not a logger class of lightning.fabric or lightning.pytorch"
        )
    try:
        inspect.signature(found).bind(**{**_list_defaults(found, Path()), **given})
    except TypeError as error:
        raise ConfigError(
            "loggers", path, f"init_args: {error}; this class takes {inspect.signature(found)}"
        ) from None
    return found


def _list_kinds(path: str) -> tuple[type[Any], ...]:
    """Return the base classes of loggers: Lightning has the class twice, under the name of either
    of its packages."""
    from lightning_fabric.loggers.logger import Logger as Bare

    if path.startswith("lightning_fabric."):
        return (Bare,)
    from lightning.fabric.loggers.logger import Logger

    return (Bare, Logger)


def _create_logger(config: str | LoggerConfig, folder: Path, run: str | None) -> Logger:
    found, given = _load_class(config), {} if isinstance(config, str) else config.init_args
    again = {name: run for name in _find_parameters(found, RUN) if run}
    try:
        return found(**{**_list_defaults(found, folder), **again, **given})
    except Exception as error:  # a package that it needs is missing, a service refuses, ...
        path = config if isinstance(config, str) else config.class_path
        remedy = (
            f"it cannot be created ({type(error).__name__}: {error}); install what it "
            f"needs, or correct its init_args"
        )
        raise ConfigError("loggers", path, remedy) from error


def _list_defaults(kind: type[Logger], folder: Path) -> dict[str, Any]:
    """Where to write, for a class that asks; a server that the environment names is left as it
    is."""
    defaults: dict[str, Any] = {name: str(folder) for name in _find_parameters(kind, PLACES)}
    defaults |= dict.fromkeys(_find_parameters(kind, (HP_METRIC,)), False)
    for name in _find_parameters(kind, (DATABASE,)):
        if inspect.signature(kind).parameters[name].default is None:
            defaults[name] = f"sqlite:///{folder}/mlflow.db"
    return defaults


def _find_parameters(kind: type[Logger], names: Sequence[str]) -> list[str]:
    """Those of ``names`` that are parameters of the class."""
    return [name for name in names if name in inspect.signature(kind).parameters]
