"""The checkpoint of a run, as transformers and vLLM load it: ``{run}/model``.

Weights belong to a commit, so their file's name changes with every one, ``model/weights-00000012.safetensors``; which it is
the checkpoint's own index says, which transformers and vLLM read for checkpoints in several files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from stageb.errors import InputError
from stageb.store import disk
from stageb.store.commits import read_commit
from stageb.store.trust import file_of

MODEL = "model"  # the folder, in the run's
BASE = "base"  # the folder of a small model as it was made, in the run's
WEIGHTS = f"{MODEL}/weights.safetensors"
INDEX = f"{MODEL}/model.safetensors.index.json"


def put(weights: Mapping[str, Tensor], path: Path) -> None:
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


def find_model(folder: Path) -> tuple[Path, int]:
    """Where the checkpoint of the run in ``folder`` lies, and how many steps it has learnt from. Raises ``InputError`` where
    there is none."""
    last = read_commit(folder)
    if WEIGHTS not in last["versions"]:
        raise InputError(f"{folder}: its run has committed no weights yet; wait for its first commit")
    for path in (folder / MODEL).iterdir():
        file_of(folder, path)
    named = json.loads((folder / INDEX).read_text())["weight_map"] if (folder / INDEX).is_file() else {}
    held = Path(last["versions"][WEIGHTS].name).name
    if set(named.values()) != {held}:
        raise InputError(f"{folder / INDEX}: does not name {held}; run the command that made this run again, which mends it")
    if (folder / MODEL / "adapter_config.json").exists():
        raise InputError(
            f"{folder / MODEL}: holds adapter_config.json, which no run writes and which names another checkpoint"
        )
    return folder / MODEL, last["state"]["step"]
