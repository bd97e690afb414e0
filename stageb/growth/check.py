"""``stageb validate`` of a growth config: read what a fit would read and print it; nothing is started or written."""

from __future__ import annotations

from stageb.growth.config import GrowthConfig
from stageb.growth.data import FROM_FOLDERS
from stageb.growth.environment import Setting


def main(config: GrowthConfig) -> int:
    """Read the task and lay out its hosts, as every rank of a fit does first. Raises ``ConfigError`` and ``InputError``."""
    task = Setting.of(config, "cpu").task
    fit, validation, test = (f"{len(part):,}" for part in (task.sets.fit, task.sets.validation, task.sets.test))
    counts = f"{fit} training, {validation} validation and {test} test examples"
    print(f"The keys are valid, and so is the data of task {task.name}: {counts}.")
    if config.task.folder is not None and task.name not in FROM_FOLDERS:
        print(f"task.folder is not used: task {task.name} reads no folder.")
    print("The loggers and the devices were not checked.")
    return 0
