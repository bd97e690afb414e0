"""Functions of a user's own that a config names: ``package.module:function``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from stageb.errors import ConfigError


def function_named(key: str, name: str) -> Callable[..., Any]:
    """The function that ``key`` of a config names; its module is imported. Raises ``ConfigError`` where there is none."""
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise ConfigError(key, name, "name a function, written package.module:function")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        remedy = "name a function that Python can find; PYTHONPATH=. has it look into this folder"
        raise ConfigError(key, name, f"{name} cannot be imported: {error}; {remedy}") from error
    if not callable(found):
        raise ConfigError(key, name, f"{name} is not a function")
    function_found: Callable[..., Any] = found
    return function_found
