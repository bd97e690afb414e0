"""Code that benchmarks share: rows of figures, told and kept as JSON, and the real command as what
is measured.

A row is figures by name. Speeds come with their spread: the median under the figure's own name,
``lowest`` and ``highest``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stageb.config import require
from stageb.errors import InputError
from stageb.runs.folder import TIMINGS

Row = dict[str, Any]
Act = Callable[[argparse.Namespace], Iterable[Row]]  # measures one part of a benchmark


def measured(given: argparse.Namespace, acts: Mapping[str, Act]) -> list[Row]:
    """The rows of all ``given.parts``, each told as soon as it is known."""
    rows = []
    for part in given.parts:
        for row in acts[part](given):
            tell(row)
            rows.append({"part": part, **row})
    return rows


def tell(row: Row) -> None:
    """Print a row, but for the lists in it."""
    figures = {name: value for name, value in row.items() if not isinstance(value, list)}
    shown = {
        name: f"{value:.4g}" if isinstance(value, float) else value
        for name, value in figures.items()
    }
    print(", ".join(f"{name} {value}" for name, value in shown.items()), flush=True)


def write(path: str | None, record: Mapping[str, Any]) -> None:
    """The record as it stands, as JSON, where a file was asked for."""
    if path:
        Path(path).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def add_sets(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    """The options that say which sets of tickets are measured, by default those ``names``."""
    where = "where NAME/tickets.jsonl of each set lies"
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help=where)
    parser.add_argument("--sets", nargs="+", metavar="NAME", default=names, help="which of them")


def find_set(data: Path, name: str) -> Path:
    """The tickets of a set. Raises ``InputError`` where there are none."""
    path = data / name / "tickets.jsonl"
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    return path


def spread(name: str, values: Sequence[float]) -> dict[str, float]:
    """The median as ``name``, and between what it lies."""
    return {name: statistics.median(values), "lowest": min(values), "highest": max(values)}


# The real command


def pairs(given: argparse.Namespace) -> dict[str, str]:
    """Parse ``--set``. Raises ``ConfigError``."""
    for each in given.set:
        require("=" in each, "--set", each, "KEY=VALUE")
    return dict(each.partition("=")[::2] for each in given.set)


def fit(keys: Mapping[str, Any], files: Sequence[str] = (TIMINGS,)) -> list[Row]:
    """Run ``stageb fit`` with these keys; what ``files`` of its folder say of each update,
    together.

    Raises ``InputError`` where it fails.
    """
    with tempfile.TemporaryDirectory() as root:
        last = {"output.root": root, "output.run_name": "run"}
        texts = {
            key: value if isinstance(value, str) else json.dumps(value)
            for key, value in {**keys, **last}.items()
        }
        line = [
            sys.executable,
            "-m",
            "stageb",
            "fit",
            *(f"--{key}={text}" for key, text in texts.items()),
        ]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode:
            raise InputError(f"stageb fit ended with {done.returncode}: {done.stderr[-2000:]}")
        read = [Path(root, "run", file).read_text(encoding="utf-8").splitlines() for file in files]
    return [
        {name: value for text in texts for name, value in json.loads(text).items()}
        for texts in zip(*read, strict=True)
    ]


def on_devices(devices: str, act: Callable[[int], Row]) -> Iterator[Row]:
    """The row of each number of ``devices``, as each is known, with its share of ``steps_per_s``
    grown linearly from the first. Raises ``ConfigError``."""
    counts = [int(word) for word in devices.split(",") if word.isdecimal()]
    require(bool(counts) and min(counts) >= 1, "--devices", devices, "numbers such as 1,2,4")
    alone = 0.0  # steps a second of a device, by the first row
    for count in counts:
        row = act(count)
        alone = alone or row["steps_per_s"] / count
        yield {**row, "of linear": row["steps_per_s"] / (count * alone)}
