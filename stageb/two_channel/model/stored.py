"""The checkpoints of a run, as transformers and vLLM load them: ``{run}/model``, the last, and
``{run}/best``, the best on val.

Weights belong to a commit, so the name of their file changes with every commit,
``model/weights-00000012.safetensors``. The checkpoint's index, which transformers and vLLM read for
checkpoints of several files, names the current one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from stageb.errors import InputError
from stageb.store import disk
from stageb.store.commits import read_commit
from stageb.store.journal import Journal
from stageb.store.trust import file_of
from stageb.untrusted.clean_text import text_fault

MODEL, BEST = "model", "best"  # folders of the checkpoints, in the run's folder
BASE = "base"  # folder of the untrained small model, in the run's folder


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """What a run has learnt besides its weights."""

    # the names of the training objects, sorted; empty in runs from before these were stored
    categories: tuple[str, ...]
    threshold: float | None  # the score threshold that was best on val; None without an evaluation
    # at IoU .50, on val, or on test without val; None where neither was evaluated
    f1: float | None = None


def find_metadata(folder: Path) -> ModelMetadata:
    """The categories, threshold and F1 in the last commit of the run in ``folder``. The folder is
    not trusted: raises ``InputError`` if they are malformed."""
    state = read_commit(folder)["state"]
    state = state if isinstance(state, dict) else {}
    names, best = state.get("categories", []), state.get("best") or {}
    threshold = best.get("threshold") if isinstance(best, dict) else None
    f1 = state.get("f1_50")
    sound = isinstance(names, list) and all(
        isinstance(each, str) and not text_fault(each) for each in names
    )
    if not (sound and _is_share(threshold) and _is_share(f1)):
        raise InputError(
            f"{folder}: the categories, the threshold or the F1 in its commit are invalid; name "
            f"another run"
        )
    return ModelMetadata(tuple(names), threshold, f1)


def _is_share(value: object) -> bool:
    """Whether ``value`` is None, or a number from 0 to 1."""
    return value is None or (
        isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    )


def weights_in(folder: str) -> str:
    """The weights file of a checkpoint's folder, by its name in commits (without a version)."""
    return f"{folder}/weights.safetensors"


def index_in(folder: str) -> str:
    """The index file of a checkpoint's folder, which names the current version of the weights."""
    return f"{folder}/model.safetensors.index.json"


def write_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Write ``weights`` as safetensors, with the metadata that transformers writes."""
    save_file(
        {name: each.contiguous() for name, each in weights.items()}, path, metadata={"format": "pt"}
    )


def write_indexes(journal: Journal) -> None:
    """Update the index files of the checkpoints' folders, which name their newest weights."""
    for name in (MODEL, BEST):
        if path := journal.path(weights_in(name)):
            with safe_open(path, "pt") as file:
                names = sorted(file.keys())
            found = {
                "metadata": {"total_size": path.stat().st_size},
                "weight_map": dict.fromkeys(names, path.name),
            }
            journal.replace(index_in(name), disk.json_text(found) + "\n")


def clear(folder: Path) -> None:
    """Remove a checkpoint's folder if it exists. Raises ``JournalError``."""
    with disk.reporting(folder):
        for path in folder.iterdir() if folder.is_dir() else ():
            path.unlink()
        if folder.is_dir():
            folder.rmdir()


def sweep(folder: Path) -> None:
    """Remove temporary files that a killed write of a tokenizer left in a checkpoint's folder.
    Raises ``JournalError``."""
    with disk.reporting(folder):
        for path in folder.glob(".tmp*"):
            path.unlink()


def find_model(folder: Path, last: bool = False) -> tuple[Path, int]:
    """The folder of the run's checkpoint that was best on val, or of the ``last`` one (always
    without val), and the number of steps it was trained for. Raises ``InputError`` if there is none
    or its folder is inconsistent."""
    commit = read_commit(folder)
    name = MODEL if last or weights_in(BEST) not in commit["versions"] else BEST
    weights, index = weights_in(name), folder / index_in(name)
    if weights not in commit["versions"]:
        raise InputError(
            f"{folder}: its run has committed no weights yet; wait for its first commit"
        )
    for path in (folder / name).iterdir():
        file_of(folder, path)
    named = json.loads(index.read_text())["weight_map"] if index.is_file() else {}
    held = Path(commit["versions"][weights].name).name
    if set(named.values()) != {held}:
        raise InputError(
            f"{index}: does not name {held}; to repair it, repeat the command that made this run"
        )
    if (folder / name / "adapter_config.json").exists():
        raise InputError(
            f"{folder / name}: has adapter_config.json, which no run writes and which names "
            f"another checkpoint"
        )
    return folder / name, commit["state"]["step"] if name == MODEL else commit["state"]["best"][
        "step"
    ]
