"""The checkpoints of a run, as transformers and vLLM load them: ``{run}/model``, the last, and ``{run}/best``, the one that
was best on val.

Weights belong to a commit, so their file's name changes with every one, ``model/weights-00000012.safetensors``; which it is
the checkpoint's own index says, which transformers and vLLM read for checkpoints in several files.
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
from stageb.store.trust import file_of
from stageb.untrusted.clean_text import text_fault

MODEL, BEST = "model", "best"  # the folders, in the run's
BASE = "base"  # the folder of a small model as it was made, in the run's


@dataclass(frozen=True, slots=True)
class Learnt:
    """What a run has learnt beside its weights."""

    categories: tuple[str, ...]  # what objects to learn from are called, in order; none in runs from before these were kept
    threshold: float | None  # the score from which on boxes were best kept on val; None where nothing was judged


def find_learnt(folder: Path) -> Learnt:
    """What the last commit of the run in ``folder``, which anybody may have written, says of it. Raises ``InputError``."""
    state = read_commit(folder)["state"]
    state = state if isinstance(state, dict) else {}
    names, best = state.get("categories", []), state.get("best") or {}
    threshold = best.get("threshold") if isinstance(best, dict) else None
    sound = isinstance(names, list) and all(isinstance(each, str) and not text_fault(each) for each in names)
    number = threshold is None or (isinstance(threshold, int | float) and not isinstance(threshold, bool))
    if not (sound and number and (threshold is None or 0 <= threshold <= 1)):
        raise InputError(f"{folder}: its commit names no sound categories and threshold, as runs do; take another run")
    return Learnt(tuple(names), threshold)


def weights_in(folder: str) -> str:
    """The file of weights of a checkpoint's folder, as commits name it."""
    return f"{folder}/weights.safetensors"


def index_in(folder: str) -> str:
    """The file that says which version of the weights is the newest."""
    return f"{folder}/model.safetensors.index.json"


def write_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Write ``weights`` as transformers does."""
    save_file({name: each.contiguous() for name, each in weights.items()}, path, metadata={"format": "pt"})


def make_index(path: Path) -> str:
    """The index of a checkpoint whose weights lie in ``path``."""
    with safe_open(path, "pt") as file:
        names = sorted(file.keys())
    found = {"metadata": {"total_size": path.stat().st_size}, "weight_map": dict.fromkeys(names, path.name)}
    return disk.json_text(found) + "\n"


def clear(folder: Path) -> None:
    """Remove a checkpoint's folder, if it is there. Raises ``JournalError``."""
    with disk.reporting(folder):
        for path in folder.iterdir() if folder.is_dir() else ():
            path.unlink()
        if folder.is_dir():
            folder.rmdir()


def sweep(folder: Path) -> None:
    """Remove what a write of a tokenizer left half done in a checkpoint's folder when it was killed. Raises
    ``JournalError``."""
    with disk.reporting(folder):
        for path in folder.glob(".tmp*"):
            path.unlink()


def find_model(folder: Path, last: bool = False) -> tuple[Path, int]:
    """Where the checkpoint of the run in ``folder`` lies that was best on val, or the ``last`` one, which it is where there
    was no val; and how many steps it has learnt from. Raises ``InputError`` where there is none."""
    commit = read_commit(folder)
    name = MODEL if last or weights_in(BEST) not in commit["versions"] else BEST
    weights, index = weights_in(name), folder / index_in(name)
    if weights not in commit["versions"]:
        raise InputError(f"{folder}: its run has committed no weights yet; wait for its first commit")
    for path in (folder / name).iterdir():
        file_of(folder, path)
    named = json.loads(index.read_text())["weight_map"] if index.is_file() else {}
    held = Path(commit["versions"][weights].name).name
    if set(named.values()) != {held}:
        raise InputError(f"{index}: does not name {held}; run the command that made this run again, which mends it")
    if (folder / name / "adapter_config.json").exists():
        raise InputError(
            f"{folder / name}: holds adapter_config.json, which no run writes and which names another checkpoint"
        )
    return folder / name, commit["state"]["step"] if name == MODEL else commit["state"]["best"]["step"]
