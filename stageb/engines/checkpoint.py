"""Where a checkpoint lies. Of the standard library alone: a wrong name is refused before torch is imported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stageb.errors import ConfigError
from stageb.tiny import CHECKPOINT, NAME

GGUF = ".gguf"
KEY = "model.model_name_or_path"


def find_checkpoint(name: str) -> str:
    """The folder or hub name to load. A name that can only be a folder must be one."""
    if name == NAME:
        if not (CHECKPOINT / "config.json").is_file():
            raise ConfigError(KEY, name, f"the package's own model is missing from {CHECKPOINT}; install the package again")
        return str(CHECKPOINT)
    folder = Path(name).expanduser()
    if folder.is_dir():
        ggufs = sorted(folder.glob(f"*{GGUF}"))
        if (folder / "config.json").is_file():
            return str(folder)
        if len(ggufs) == 1:
            return str(ggufs[0])
        holds = f"{len(ggufs)} GGUF files; name one of them" if ggufs else "no config.json; name a checkpoint's own folder"
        raise ConfigError(KEY, name, f"the folder holds {holds}")
    if folder.is_file() and folder.suffix == GGUF:
        return str(folder)
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        raise ConfigError(KEY, name, f"there is no such folder (looked in {folder.absolute()})")
    return name


def check_whole(loading: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` where a checkpoint lacks weights, by what transformers says of loading it: it makes some up."""
    if missing := sorted(loading["missing_keys"]):
        raise ValueError(f"it lacks {len(missing):,} of the model's weights, such as {missing[0]}, which would be random")
