"""The controller of a run, read from its folder as it was last committed; the run itself may go on meanwhile."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, replace
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file

from stageb.errors import InputError
from stageb.growth import flops
from stageb.growth.config import GrowthConfig
from stageb.growth.deciding import Snapshot, load_snapshot
from stageb.runs.folder import RunFolder
from stageb.runs.run import METRICS
from stageb.settings import CODE, READ
from stageb.store.commits import read_commit
from stageb.store.trust import file_of, refuse
from stageb.training.nonfinite import check_finite

WEIGHTS = "weights/policy.safetensors"


@dataclass(frozen=True)
class StoredController:
    """What a run's folder holds."""

    snapshot: Snapshot  # the policy and its normaliser; empty for a controller that does not learn
    updates: int  # that it learnt from


def learning_cost(folder: Path, config: GrowthConfig) -> float:
    """FLOPs by which a run's controller came to what it is: of its episodes, of deciding in them, and of the policy's own
    learning, as far as committed. 0 for a controller that does not learn."""
    if config.growth.controller != "ppo":
        return 0.0
    decisions = config.growth.environments * (config.host.epochs - 1)
    forward = flops.count_policy(config.policy.hidden, len(config.host.blueprints))
    read = 1 + 1  # by which it decides, and by which learning begins
    rows = RunFolder(folder).read_committed(METRICS)
    return math.fsum(row["flops"] + decisions * forward * (read + 3 * row["epochs"]) for row in rows)


def add_authority(parser: argparse.ArgumentParser) -> None:
    """The options by which a user names what the folder of a run may not."""
    parser.add_argument("--folder", help="folder with the files of the run's task (default: as for fit)")
    parser.add_argument("--make", metavar="FUNCTION", help="the run's host.make, if it builds its own hosts")


def replace_authority(config: GrowthConfig, folder: Path, given: argparse.Namespace) -> GrowthConfig:
    """The config of the run in ``folder``, with the examples and the hosts that the user names. Raises ``InputError`` where
    only its config names them."""
    folders = [("task.folder", READ, "--folder", config.task.folder)] if given.folder is None else []
    makers = [("host.make", CODE, "--make", config.host.make)] if given.make is None else []
    refuse(folder, [key for key in (*folders, *makers) if key[-1] is not None])
    task, host = replace(config.task, folder=given.folder), replace(config.host, make=given.make)
    return replace(config, task=task, host=host)


def load_controller(folder: Path, config: GrowthConfig, controller: str) -> StoredController:
    """What a controller needs, as last committed. Raises ``InputError`` where there is none yet, or of another shape."""
    last = read_commit(folder)
    if not last["state"]:
        raise InputError(f"{folder}: its run has committed nothing yet; wait for its first commit")
    updates = last["state"]["update"]
    if controller != "ppo":
        return StoredController({}, updates)
    if WEIGHTS not in last["versions"]:
        raise InputError(f"{folder}: its controller is {config.growth.controller}, which learns nothing; name another one")
    path = file_of(folder, folder / last["versions"][WEIGHTS].name)
    try:
        snapshot = load_file(path)
        load_snapshot(snapshot, config)
        check_finite(snapshot)
    except (OSError, RuntimeError, ValueError, KeyError, SafetensorError) as error:
        raise InputError(f"{path}: not the weights of the policy that config.yaml tells of: {error}") from error
    return StoredController(snapshot, updates)
