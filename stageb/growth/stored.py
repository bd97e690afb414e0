"""The controller of a run, read from its folder as it was last committed; the run itself may go on meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file

from stageb.errors import InputError
from stageb.growth.config import GrowthConfig
from stageb.growth.deciding import Snapshot, load_snapshot
from stageb.store.commits import read_commit
from stageb.store.trust import file_of, refuse

WEIGHTS = "weights/policy.safetensors"


@dataclass(frozen=True)
class StoredController:
    """What a run's folder holds."""

    snapshot: Snapshot  # the policy and its normaliser; empty for a controller that does not learn
    updates: int  # that it learnt from


def replace_data_folder(config: GrowthConfig, folder: Path, given: str | None) -> GrowthConfig:
    """The config of the run in ``folder``, its examples read from where the user says. Raises ``InputError`` where the run's
    lie in a folder that only its config names."""
    if given is None and config.task.folder is not None:
        refuse(folder, [("task.folder", "--folder", config.task.folder)])
    return replace(config, task=replace(config.task, folder=given))


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
    except (OSError, RuntimeError, KeyError, SafetensorError) as error:
        raise InputError(f"{path}: not the weights of the policy that config.yaml tells of: {error}") from error
    return StoredController(snapshot, updates)
