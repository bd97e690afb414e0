"""The newer Pythons at hand compile every module, and say of a config and a command line what this one says.

Nothing is installed for them: what is needed without torch is pure Python, so it is taken from where this Python has it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LINE = "-m stageb fit --config configs/guidance/one-gpu.yaml --config configs/guidance/nodes.yaml --print_config"


def python(version: str) -> str | None:
    """An interpreter of ``version`` that starts, on the path or of pyenv's."""
    known = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    for name in filter(None, [shutil.which(f"python{version}"), *map(str, known)]):
        if subprocess.run([name, "-c", ""], capture_output=True, check=False).returncode == 0:
            return name
    return None


def said(interpreter: str, *words: str) -> str:
    """What ``interpreter`` prints after ``words``."""
    paths = os.pathsep.join([str(ROOT), sysconfig.get_path("purelib")])
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([interpreter, *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_a_newer_python_reads_and_says_the_same(version: str) -> None:
    name = python(version)
    if name is None or sys.version_info[:2] == tuple(map(int, version.split("."))):
        pytest.skip(f"no other Python {version} is at hand")
    said(name, "-W", "error", "-m", "compileall", "-q", "stageb", "lab", "docs")
    assert said(name, *LINE.split()) == said(sys.executable, *LINE.split())
