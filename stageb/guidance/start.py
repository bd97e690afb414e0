"""``stageb fit`` of this loop: what a run starts from is read, and refused, before torch is
imported: that takes seconds."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from stageb.errors import InputError
from stageb.guidance.commands.fit.inputs import read_inputs
from stageb.guidance.commands.fit.resume import check_folder
from stageb.guidance.config import LoopConfig
from stageb.guidance.learning.state import STOP
from stageb.job.process import collector_off
from stageb.runs.folder import is_finished
from stageb.runs.progress import set_log_level
from stageb.store import disk
from stageb.untrusted import strict_yaml


def fit(config: LoopConfig, resolved_yaml: str, fresh: bool) -> int:
    """Run, or go on with, the run that ``config`` names. Returns the exit code.

    Raises ``InputError`` before anything is started where the input cannot be used.
    """
    set_log_level(config.log_level)
    if config.loggers:
        from stageb.runs import loggers  # brings Lightning

        loggers.check(config.loggers)
    inputs = read_inputs(config)
    settled = inputs.config
    if settled != config:  # what a run's folder says must hold without its tickets
        given, _ = strict_yaml.read(resolved_yaml)
        given["reflection"]["scope"], given["runner"]["judge"] = (
            settled.reflection.scope,
            settled.runner.judge,
        )
        resolved_yaml = strict_yaml.dump(given)
    check_folder(settled, inputs, fresh)

    with collector_off():  # as in stageb/cli/commands.py
        from stageb.guidance.loop import run  # brings torch

    return run(settled, resolved_yaml, fresh, inputs)


def stop(folder: Path, config: LoopConfig, arguments: Sequence[str]) -> int:
    """``stageb stop RUN``: end a run's learning at its next step. What it has learnt by then is
    judged and kept, as where a budget ends. Learning by code ends between two kinds of rules; what
    it has found by then without proof is provisional."""
    argparse.ArgumentParser(prog="stageb stop RUN", description=stop.__doc__).parse_args(arguments)
    if is_finished(folder):
        raise InputError(f"{folder}: has ended already")
    disk.write(folder / STOP, "")
    print(
        f"{folder}: learning ends at the next step, now or when the run goes on; what it has "
        f"learnt is judged and kept"
    )
    return 0
