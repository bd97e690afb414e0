"""Small jobs of ``stageb predict`` and ``stageb evaluate``: tickets with a hidden rule, and
guidance that knows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from programs import small

from stageb.guidance.config import LoopConfig
from stageb.seeds import stream, uniform
from stageb.untrusted.strict_yaml import dump

HEADLINE = "A ticket passes unless a rule fails it."


def guidance(path: Path, rules: dict[str, str], **metadata: Any) -> str:
    """A guidance.json for missions, each with one rule."""
    content = {
        mission: {
            "step": 3,
            "experiences": {"G0": HEADLINE, "G1": rule},
            "metadata": {"G1": metadata} if metadata else {},
        }
        for mission, rule in rules.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return str(path)


def run_folder(folder: Path, config: LoopConfig, rules: dict[str, str]) -> str:
    """What a run leaves, as far as those who use it need it."""
    from dataclasses import asdict

    for number, (mission, rule) in enumerate(rules.items()):
        guidance(folder / f"mission-{number}" / "guidance.json", {mission: rule})
    (folder / "config.yaml").write_text(dump(asdict(config)))
    return str(folder)


def tickets(path: Path, *missions: str, groups: int = 40, labelled: bool = True) -> str:
    """Tickets of several missions in turn, a line each."""
    rows = [
        row
        for several in zip(*(small.rows(mission, groups) for mission in missions), strict=True)
        for row in several
    ]
    for row in rows:
        if not labelled:
            del row["label"]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


def options(command: str, keys: dict[str, Any]) -> list[str]:
    """A command line with the scripted engine; ``keys`` win."""
    given = {
        "model.engine": "scripted",
        "fabric.accelerator": "cpu",
        "sampler.samples_per_decode": 2,
        **keys,
    }
    texts = {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items()
    }
    return [command, *(f"--{key}={text}" for key, text in texts.items())]


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def write_parts(
    path: Path, parts: int, key: int, of_group: int = 0, good: float = 0.4, kinds: float = 0.3
) -> str:
    """Parts that fail above 95 degrees; of the odd ones below that, which rules fail, a share is
    ``good``. ``of_group`` so many are of one machine; 0: none is named. ``kinds`` of all are
    odd."""
    rows = [f"{'machine' if of_group else 'group_id'},Temp,Kind,label"]
    for n in range(parts):
        temperature, kind = (
            60 + int(uniform(stream(key, "t"), n) * 50000) / 1000,
            uniform(stream(key, "k"), n),
        )
        is_odd = kind < kinds
        fails = temperature > 95 or (is_odd and uniform(stream(key, "odd"), n) >= good)
        rows.append(
            f"{key}-{n // (of_group or 1)},{temperature:.3f},{'odd' if is_odd else 'even'},{'fail' if fails else 'pass'}"
        )
    path.write_text("\n".join(rows) + "\n")
    return str(path)
