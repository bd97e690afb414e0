"""Guidance to use: what a run has learnt, or a file holds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from stageb.errors import ConfigError
from stageb.guidance.files.guidance_file import read_guidance, split_step
from stageb.guidance.prompts import Words, rule_lines
from stageb.guidance.types import Guidance


def learnt(source: str, words: Words, key: str = "guidance") -> dict[str, Guidance]:
    """Every mission's guidance that ``source`` names, as ``read_guidance`` reads it; ``key`` is where the config names it.

    Raises ``ConfigError`` where there is none, ``InputError`` where it cannot be used.
    """
    if not split_step(source)[0].exists():
        raise ConfigError(key, source, "there is no such file or folder; name a run's folder or a guidance.json")
    return read_guidance(source, words=words)


def digests(guidance: Mapping[str, Guidance]) -> dict[str, str]:
    """A short name for what each mission's guidance tells a model."""
    return {
        mission: f"step {each.step}, {hashlib.blake2b(rule_lines(each).encode(), digest_size=8).hexdigest()}"
        for mission, each in guidance.items()
    }
