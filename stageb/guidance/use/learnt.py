"""Guidance to use: what a run has learnt, or a file holds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from stageb.errors import BadInputError, BadLine, ConfigError
from stageb.guidance.files.guidance_file import load_seed
from stageb.guidance.prompts import rule_lines
from stageb.guidance.types import Guidance


def learnt(path: str, key: str = "guidance") -> dict[str, Guidance]:
    """Every mission's guidance in a run's folder, or in a file; ``key`` is where the config names it.

    Raises ``ConfigError`` where there is none, ``BadInputError`` where it cannot be used.
    """
    place = Path(path)
    if not place.exists():
        raise ConfigError(key, path, "there is no such file or folder; name a run's folder or a guidance.json")
    if not place.is_dir():
        return load_seed(place)
    files = sorted(place.glob("*/guidance.json"))
    if not files:
        raise ConfigError(key, path, "no guidance.json lies in this folder's folders; name a run's folder, such as out/run")
    found: dict[str, Guidance] = {}
    for file in files:
        for mission, guidance in load_seed(file).items():
            if mission in found:
                what = f"mission {mission!r} stands in another file of {path} as well"
                raise BadInputError("places in the guidance", [BadLine(str(file), 0, what, "name the file to use")])
            found[mission] = guidance
    return found


def digests(guidance: Mapping[str, Guidance]) -> dict[str, str]:
    """A short name for what each mission's guidance tells a model."""
    return {
        mission: f"step {each.step}, {hashlib.blake2b(rule_lines(each).encode(), digest_size=8).hexdigest()}"
        for mission, each in guidance.items()
    }
