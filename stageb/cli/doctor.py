"""``stageb doctor``: what this machine and its Python can run, and what to install for what they
cannot.

What a package needs is read from the installed package's own metadata, so the answer is of this
release. PyTorch is imported in a process of its own: where it is broken, that process dies, and the
doctor says how.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import NamedTuple

from stageb import __version__
from stageb.cli import commands
from stageb.engines import ENGINES
from stageb.errors import InputError, shown
from stageb.job.process import count_cores, free_memory

USAGE = (
    "usage: stageb doctor; says what can run here, and what to install for what cannot. "
    "Exit code: 1 if no loop can."
)
GIB = 1 << 30
PROBE_S = 120  # of importing torch, from a slow disk too
PROBE = """
import json, torch
gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
gpus = [[gpu.name, gpu.total_memory] for gpu in gpus]
print(json.dumps([torch.__version__, torch.version.cuda or torch.version.hip, gpus]))
"""
MORE = {
    "images": "tickets with images, stageb boxes",
    "tables": "Excel, Parquet",
    "gguf": "checkpoints in GGUF files",
    "baselines": "GuidanceClassifier, and a model that nobody can read beside results",
    "onnx": "stageb export",
    "sheet": "rules as a workbook: stageb guidance export --format xlsx",
    "serve": "stageb serve",
    "sweep": "stageb sweep",
}


class Requirement(NamedTuple):
    """A package that stageb needs."""

    name: str
    least: str  # version; "" for any
    extra: str  # that brings it; "" for all of stageb


def main(arguments: Sequence[str]) -> int:
    """Print what can run; returns the exit code. Raises ``InputError``."""
    if arguments:
        if arguments[0] not in ("-h", "--help"):
            raise InputError(f"stageb doctor: unexpected {shown(arguments[0], 60)}; {USAGE}")
        print(USAGE)
        return 0
    needed = list(read_requirements())
    probe, has_torch = probe_torch()
    print(
        f"stageb {__version__}, Python {platform.python_version()}, {platform.system()} "
        f"{platform.machine()}"
    )
    print(f"{count_cores()} cores, {free_memory() / GIB:.1f} GiB of memory free")
    print(probe)
    if not needed:
        print(
            "stageb is not installed but found in a folder, so that versions cannot be checked: "
            "python -m pip install -e ."
        )
    rows = [("packages", "", "what every loop needs")]
    rows += [
        (f"loop {name}", name.replace("_", "-"), loop.summary)
        for name, loop in commands.loops().items()
    ]
    unloaded = {f"loop {name}": why for name, why in commands.unloaded().items()}
    rows += [(name, "", "") for name in unloaded]
    rows += [(f"engine {name}", "", engine.summary) for name, engine in ENGINES.items()]
    rows += [(f"extra {extra}", extra, purpose) for extra, purpose in MORE.items()]
    print()
    for name, extra, purpose in rows:
        lacks = ", ".join(find_faults(needed, extra))
        remedy = (
            f"python -m pip install 'stageb[{extra}]'"
            if extra
            else "python -m pip install --upgrade stageb"
        )
        fault = (
            f"{lacks}: {remedy}"
            if lacks
            else ""
            if has_torch
            else "torch cannot be imported: see above"
        )
        fault = f"it cannot be imported: {unloaded[name]}" if name in unloaded else fault
        print(f"{'no ' if fault else 'yes'}  {name:<20}  {fault or purpose}")
    print(
        "\nIn a checkout, write -e '.[NAME]' for 'stageb[NAME]', and -c constraints.txt before it."
    )
    return int(not has_torch or any(find_faults(needed, "")))


def read_requirements() -> Iterator[Requirement]:
    """Yield the requirements of the installed stageb; nothing where it is not installed."""
    try:
        lines = metadata.requires("stageb") or []
    except metadata.PackageNotFoundError:
        return
    for line in lines:
        text, _, marker = line.partition(";")
        name, least, extra = (
            re.search(pattern, part)
            for pattern, part in (
                (r"^[\w.-]+", text),
                (r">=\s*([\d.]+)", text),
                (r"extra == ['\"]([\w-]+)", marker),
            )
        )
        if name:
            yield Requirement(name[0], least[1] if least else "", extra[1] if extra else "")


def find_faults(needed: Sequence[Requirement], extra: str) -> Iterator[str]:
    """Yield what is wrong with the packages that all of stageb needs, and with those of ``extra``
    if it is not ""."""
    for each in needed:
        if each.extra not in ("", extra):
            continue
        try:
            version = metadata.version(each.name)
        except metadata.PackageNotFoundError:
            yield f"{each.name} is missing"
            continue
        if _parse_version(version) < _parse_version(each.least):
            yield f"{each.name} {version} is older than {each.least}"


def _parse_version(text: str) -> tuple[int, ...]:
    """The numbers that a version begins with."""
    return tuple(int(number) for number in re.findall(r"\d+", re.split(r"[^\d.]", text)[0]))


def probe_torch() -> tuple[str, bool]:
    """Describe PyTorch and the GPUs that it sees, and say whether it can be imported."""
    try:
        probe = subprocess.run(
            [sys.executable, "-c", PROBE],
            capture_output=True,
            text=True,
            timeout=PROBE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return (
            f"torch could not be imported within {PROBE_S} s: see whether its disk, or a GPU, "
            f"hangs",
            False,
        )
    if probe.returncode:
        last = (
            probe.stderr.strip().splitlines() or [f"its process ended with {probe.returncode}"]
        )[-1]
        return (
            f"torch cannot be imported: {shown(last, 200)}; install it anew: python -m pip "
            f"install --force-reinstall torch",
            False,
        )
    version, toolkit, gpus = json.loads(probe.stdout.splitlines()[-1])
    if gpus:
        return f"torch {version} sees " + ", ".join(
            f"{name} ({memory / GIB:.0f} GiB)" for name, memory in gpus
        ), True
    if toolkit:
        return (
            f"torch {version} sees no GPU: see whether there is one (nvidia-smi), and whether "
            f"its driver fits {toolkit}",
            True,
        )
    return (
        f"torch {version} is built for CPUs alone; for a GPU: "
        f"https://pytorch.org/get-started/locally",
        True,
    )
