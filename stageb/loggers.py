"""Loggers of Lightning's as a run's config names them: views of its figures for other programs, on rank 0 alone.

What a run goes on from is in its journal; nothing here is read again. A logger that breaks is left out from then on, and the
run goes on without it.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.fabric.loggers.logger import Logger

from stageb.config import LoggerConfig
from stageb.errors import ConfigError, shown

FOLDER = "logs.d"  # in a run's folder; no folder that is named after anything has a dot in its name
PLACES = ("root_dir", "save_dir")  # what such classes call the folder to write to


def check(asked: Sequence[str | LoggerConfig]) -> None:
    """Raise ``ConfigError`` for a class that is not there, is no logger, or does not take its ``init_args``.

    This imports the modules that are named: a config is trusted as code is.
    """
    for each in asked:
        _class(each)


class Loggers:
    """The loggers of a run."""

    def __init__(self, asked: Sequence[str | LoggerConfig], folder: Path, tell: Callable[[str], None]) -> None:
        """``folder`` is the run's; ``tell`` says what became of a logger that broke. Raises ``ConfigError``."""
        self._tell = tell
        self._loggers = [_made(each, folder / FOLDER) for each in asked]

    def log(self, figures: Mapping[str, Any], step: int) -> None:
        """Numbers by name; what is none, is left out."""
        numbers = {name: value for name, value in figures.items() if isinstance(value, int | float)}
        self._all(lambda logger: logger.log_metrics(numbers, step=step))

    def save(self) -> None:
        """Bring what was logged to where it goes."""
        self._all(lambda logger: logger.save())

    def close(self, status: str) -> None:
        """No more is logged; ``status`` is "success" or "aborted"."""
        self._all(lambda logger: logger.finalize(status))
        self._loggers = []

    def _all(self, act: Callable[[Logger], None]) -> None:
        for logger in list(self._loggers):
            try:
                act(logger)
            except Exception as error:  # whatever a service, a disk or a library does, the run is not to end for it
                self._loggers.remove(logger)
                what = shown(f"{type(error).__name__}: {error}", 300)
                self._tell(f"{type(logger).__name__} is left out from now on: {what}")


def _class(asked: str | LoggerConfig) -> type[Logger]:
    path, given = (asked, {}) if isinstance(asked, str) else (asked.class_path, asked.init_args)
    module, _, name = path.rpartition(".")
    if not module:
        raise ConfigError("loggers", path, "give a class by its whole path, such as lightning.fabric.loggers.CSVLogger")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            "loggers", path, f"there is no such class ({error}); mend the path, or install its package"
        ) from None
    if not (isinstance(found, type) and issubclass(found, Logger)) or inspect.isabstract(found):
        raise ConfigError("loggers", path, "this is no class of loggers of lightning.fabric or lightning.pytorch")
    try:
        inspect.signature(found).bind(**{**_places(found, Path()), **given})
    except TypeError as error:
        raise ConfigError("loggers", path, f"init_args: {error}; this class takes {inspect.signature(found)}") from None
    return found


def _made(asked: str | LoggerConfig, folder: Path) -> Logger:
    found, given = _class(asked), {} if isinstance(asked, str) else asked.init_args
    try:
        return found(**{**_places(found, folder), **given})
    except Exception as error:  # a package that it needs is missing, a service refuses, ...
        path = asked if isinstance(asked, str) else asked.class_path
        remedy = f"it cannot be made ({type(error).__name__}: {error}); install what it needs, or mend its init_args"
        raise ConfigError("loggers", path, remedy) from error


def _places(kind: type[Logger], folder: Path) -> dict[str, str]:
    """Where to write, for a class that asks."""
    return {name: str(folder) for name in PLACES if name in inspect.signature(kind).parameters}
