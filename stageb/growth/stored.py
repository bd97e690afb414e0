"""The controller of a run, read from its folder as it was last committed; the run itself may go on meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from stageb.commits import committed
from stageb.errors import InputError

WEIGHTS = "weights/policy.safetensors"


@dataclass(frozen=True)
class Stored:
    """What a run's folder holds."""

    snapshot: dict[str, Tensor]  # the policy and its normaliser; empty for a controller that does not learn
    updates: int  # that it learnt from


def stored(folder: Path, learns: bool) -> Stored:
    """The controller as last committed. Raises ``InputError`` where there is none yet."""
    last = committed(folder)
    if not last["state"]:
        raise InputError(f"{folder}: its run has committed nothing yet; wait for its first commit")
    updates = last["state"]["update"]
    if not learns:
        return Stored({}, updates)
    path = folder / last["versions"][WEIGHTS][0].name
    try:
        return Stored(load_file(path), updates)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: not the weights of a policy: {error}") from error
