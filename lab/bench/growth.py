"""Growth, in steps a second: ``bin/bench growth batch conv ranks``, any of the three, one after the other.

- ``batch``: training steps of hosts on one device, as blocks of many beside one after another. Who trains one after another is
  a plain loop of autograd and torch's fused Adam over the same functions. Both with hosts alone, and with hosts in which each
  slot holds a seed, drawn for each host.
- ``conv``: gradients of networks of three convolutions: torch's own under ``vmap``, unfolded and multiplied, one after another.
- ``ranks``: training steps of the real command by ``--config``, on 1, 2, ... devices (``--devices 1,2,4``), each with
  ``--environments`` environments in blocks of ``--block``, and the same on all devices together where ``--set growth.ddp=true``.

A step is one of one host's optimiser. Figures are medians over ``--repeats``, or over a run's updates but the first, with the
lowest and the highest.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from lab.bench.growth_conv import FORMS, stepper
from stageb.config import require
from stageb.errors import InputError

PASS_S = 1.0  # that a measurement of one contestant takes, at least


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bin/bench growth", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", choices=tuple(ACTS))
    parser.add_argument("--hosts", default="mlp,conv1d", help="kinds, for batch (default mlp,conv1d)")
    parser.add_argument("--environments", type=int, default=64, help="at a time; a device, for ranks (default 64)")
    parser.add_argument("--block", type=int, default=64, help="environments that are one batch, for batch and ranks (default 64)")
    parser.add_argument("--device", default="cpu", help="for batch and conv: cpu or cuda (default cpu)")
    parser.add_argument("--config", default="configs/growth/digits.yaml", help="for ranks (default configs/growth/digits.yaml)")
    parser.add_argument("--devices", default="1", help="how many, one after the other, for ranks (default 1)")
    parser.add_argument("--updates", type=int, default=5, help="of each run, for ranks (default 5)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key of the config, for batch and ranks")
    parser.add_argument("--repeats", type=int, default=5, help="for batch and conv (default 5)")
    parser.add_argument("--json", metavar="FILE", help="write what was measured, as JSON")
    given = parser.parse_args(arguments)
    for name in ("environments", "block", "repeats", "updates"):
        require(getattr(given, name) >= 1, f"--{name}", getattr(given, name), "at least 1")
    there = given.device == "cpu" or (given.device == "cuda" and torch.cuda.is_available())
    require(there, "--device", given.device, "cpu, or cuda where there is a GPU")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    rows = []
    for part in given.parts:
        for row in ACTS[part](given):
            print(", ".join(f"{name} {_shown(value)}" for name, value in row.items()), flush=True)
            rows.append({"part": part, **row})
    if given.json:
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
        machine = {"cores": os.cpu_count(), "load": os.getloadavg(), "torch": torch.__version__, "device": device}
        Path(given.json).write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n", encoding="utf-8")
    return 0


def timed(contestants: dict[str, Callable[[], object]], device: str, repeats: int) -> dict[str, list[float]]:
    """Seconds of a call of each contestant, ``repeats`` times in turn, so that what else runs here disturbs all alike."""

    def took(act: Callable[[], object], calls: int) -> float:
        began = time.perf_counter()
        for _ in range(calls):
            act()
        if device == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - began) / calls

    calls = {}
    for name, act in contestants.items():
        took(act, 2)
        calls[name] = max(1, round(PASS_S / repeats / took(act, 1)))
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, act in contestants.items():
            found[name].append(took(act, calls[name]))
    return found


# Convolutions


def conv(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Gradients a second, of networks of three convolutions."""
    found = []
    for shape, examples in (((16, 20), 32), ((16, 40), 32), ((8, 8, 8), 32), ((16, 16, 16), 32)):
        ways = {"one by one": None, **FORMS}
        contestants = {name: stepper(form, given.environments, examples, shape, given.device) for name, form in ways.items()}
        seconds = timed(contestants, given.device, given.repeats)
        found += _beside(seconds, {"shape": "x".join(map(str, shape)), "networks": given.environments}, "one by one")
    return found


def _beside(seconds: dict[str, list[float]], what: dict[str, Any], first: str) -> list[dict[str, Any]]:
    """Rows: steps a second of each contestant, and how many times as fast as ``first`` it is."""
    count, alone = what["networks"], statistics.median(seconds[first])
    return [
        {**what, "way": name, **_spread([count / each for each in taken]), "times": alone / statistics.median(taken)}
        for name, taken in seconds.items()
    ]


def _spread(rates: Sequence[float]) -> dict[str, float]:
    return {"steps_per_s": statistics.median(rates), "lowest": min(rates), "highest": max(rates)}


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


ACTS: dict[str, Callable[[argparse.Namespace], list[dict[str, Any]]]] = {"conv": conv}
