"""``stageb fit`` of this loop: what a run starts from is read, and refused, before torch is imported: that takes seconds."""

from __future__ import annotations

from stageb.guidance.commands.fit.inputs import check_folder, read_inputs
from stageb.guidance.words.config import LoopConfig
from stageb.job.process import collector_off
from stageb.runs.progress import set_log_level


def fit(config: LoopConfig, resolved_yaml: str, fresh: bool) -> int:
    """Run, or go on with, the run that ``config`` names. Returns the exit code.

    Raises ``InputError`` before anything is started where the input cannot be used.
    """
    set_log_level(config.log_level)
    if config.loggers:
        from stageb.runs import loggers  # brings Lightning

        loggers.check(config.loggers)
    inputs = read_inputs(config)
    check_folder(config, inputs, fresh)

    with collector_off():  # as in stageb/cli/registry.py
        from stageb.guidance.loop import run  # brings torch

    return run(config, resolved_yaml, fresh, inputs)
