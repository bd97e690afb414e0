"""Guidance to use: what a run has learnt, or a file holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from stageb.cli.draft import defaults
from stageb.cli.parsing import parse_run
from stageb.errors import ConfigError, InputError, shown
from stageb.guidance.config import LoopConfig, PromptConfig, SamplerConfig
from stageb.guidance.files.guidance_file import read_guidance, split_step
from stageb.guidance.gate.judge import digest
from stageb.guidance.prompts import words_of
from stageb.guidance.types import Guidance
from stageb.guidance.use.config import PricesConfig
from stageb.store import trust

OF_RUN = ("seed", "prompt", "model", "sampler", "selection", "manual_review")


def inherit_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """What the run that ``values["guidance"]`` names gives in the place of defaults, as far as a folder may; nothing of a
    file.

    Raises ``InputError`` where the folder holds a run of another loop, or cannot be read.
    """
    folder, _ = split_step(values["guidance"])
    if not values["guidance"] or not (folder / "config.yaml").exists():
        return {}
    asked = parse_run(folder)
    if not isinstance(asked.config, LoopConfig):
        raise InputError(f"{shown(str(folder))}: a run of loop {asked.loop}, which learns no guidance; name another run")
    plain = asdict(asked.config)
    plain["sampler"]["reasons"] = SamplerConfig.reasons  # a run need not read what people want to
    taken = trust.take_data(str(folder), {name: plain[name] for name in OF_RUN}, LoopConfig, defaults(LoopConfig))
    if "gate" in values:
        gate = asked.config.gating
        taken["gate"] = asdict(PricesConfig(gate.fp_weight, gate.fn_weight))
    return {**taken, "by": asked.config.runner.judge}


def load_guidance(source: str, prompt: PromptConfig, key: str = "guidance") -> dict[str, Guidance]:
    """Every mission's guidance that ``source`` names, as ``read_guidance`` reads it; ``key`` is where the config names it.

    Raises ``ConfigError`` where there is none, ``InputError`` where it cannot be used.
    """
    if not split_step(source)[0].exists():
        raise ConfigError(key, source, "there is no such file or folder; name a run's folder or a guidance.json")
    return read_guidance(source, words=words_of(prompt))


def fingerprint_guidance(guidance: Mapping[str, Guidance]) -> dict[str, str]:
    """A short name for what each mission's guidance tells a model."""
    return {mission: f"step {each.step}, {digest(each)}" for mission, each in guidance.items()}
