"""What reaches the terminal beside what a loop says itself: Python's warnings, records of loggers, libraries' included.

A library's warning is shown where a user may be able to act on it. Notes that one developer writes to another (deprecations,
coming changes), and what a rank beside rank 0 would say once more, are shown at level debug alone.
"""

from __future__ import annotations

import logging
import os
import warnings

from stageb.config import Level
from stageb.job import lifetime

SPEAKERS = ("lightning", "lightning.fabric", "lightning.pytorch", "stageb", "torch", "transformers")


def set_log_level(level: Level) -> None:
    """From now on this process says what is of ``level`` or worse."""
    if level == "debug":
        logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.DEBUG)
        return
    least = "error" if level == "error" or not lifetime.leads() else "warning"
    for name in SPEAKERS:
        logging.getLogger(name).setLevel(least.upper())
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", least)  # which it asks as it is imported
    for category in (FutureWarning, DeprecationWarning, PendingDeprecationWarning):
        warnings.simplefilter("ignore", category)
    if least == "error":
        warnings.simplefilter("ignore")
