"""The container file and the compose file: no image is built here, but steps are read, and those
that install are run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import site
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from docs.pages import ROOT
from docs.test_guides import assert_parses

FOLDER = ROOT / "docs" / "container"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


class Step(NamedTuple):
    """One instruction, with the values of arguments in it."""

    name: str
    text: str


def read_steps() -> list[list[Step]]:
    """The steps of each stage."""
    text = re.sub(
        r"^#.*\n", "", (FOLDER / "Containerfile").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    values, stages = dict[str, str](), [list[Step]()]
    for line in text.replace("\\\n", " ").splitlines():
        name, _, rest = line.partition(" ")
        if name == "ARG":
            key, _, value = rest.partition("=")
            values[key] = value.strip('"')
        if name == "FROM":
            stages.append([])
        if line.strip():
            stages[-1].append(
                Step(name, re.sub(r"\$\{(\w+)\}", lambda found: values[found[1]], rest))
            )
    return stages[1:]


def test_the_image_runs_stageb_as_nobody_special() -> None:
    last = read_steps()[-1]
    said = {step.name: step.text for step in last}
    users = [step.text for step in last if step.name == "USER"]
    assert users == ["10001"], "a number, by which a cluster can tell that it is not root"
    assert any("useradd" in step.text and "--uid 10001" in step.text for step in last)
    assert said["ENTRYPOINT"] == '["stageb"]'
    assert last.index(Step("USER", "10001")) < last.index(Step("ENTRYPOINT", '["stageb"]'))
    assert "/opt/stageb/bin" in said["ENV"]


def test_what_it_copies_is_in_the_checkout_and_what_it_installs_exists() -> None:
    build = read_steps()[0]
    copied = [name for step in build if step.name == "COPY" for name in shlex.split(step.text)[:-1]]
    assert all((ROOT / name).exists() for name in copied)
    assert {"stageb", "configs", "constraints.txt"} <= set(copied), "stageb/configs is a link"
    [extras] = [found[1] for step in build if (found := re.search(r'"\.\[([\w,-]+)\]"', step.text))]
    assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()
    assert "serve" in extras.split(",")
    assert "pypi.org" in (FOLDER / "Containerfile").read_text(), "the torch of CUDA"


@pytest.mark.slow
def test_its_steps_install_a_command(tmp_path: Path) -> None:
    """Run in a folder as clean as the image's, without a network: packages are those of this
    environment."""
    source, target = tmp_path / "source", tmp_path / "opt"
    source.mkdir()
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    for step in read_steps()[0]:
        words = shlex.split(step.text)
        if step.name == "COPY":
            for name in words[:-1]:
                into = source / words[-1] / (name if words[-1] == "./" else "")
                place = ROOT / name
                (shutil.copytree if place.is_dir() else shutil.copy)(
                    place, into, **_ignoring(place)
                )
        if step.name == "RUN":
            # pip is this environment's, too, and nothing that is installed is run but for its name
            line = step.text.replace("/opt/stageb", str(target)).replace(
                "python -m venv", f"{sys.executable} -m venv --without-pip", 1
            )
            line = re.sub(
                r"--extra-index-url \S+",
                "--no-index --no-deps --no-build-isolation --no-compile",
                line,
            )
            packages = os.pathsep.join(site.getsitepackages())
            subprocess.run(
                ["bash", "-euc", line],
                cwd=source,
                env=environment | {"PYTHONPATH": packages},
                check=True,
            )
    stageb = target / "bin" / "stageb"
    program = (
        f"import sys; sys.path.extend({site.getsitepackages()!r}); import stageb; "
        f"print(stageb.__file__)"
    )
    command = [str(target / "bin" / "python"), "-c", program]
    where = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert Path(where.stdout.strip()).is_relative_to(target)
    assert (Path(where.stdout.strip()).parent / "configs" / "guidance" / "frugal.yaml").is_file()
    assert stageb.is_file()


def _ignoring(place: Path) -> dict[str, Any]:
    return {"ignore": shutil.ignore_patterns("__pycache__")} if place.is_dir() else {}


def test_the_services_are_started_as_their_commands_say(tmp_path: Path) -> None:
    composed = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
    services = composed["services"]
    serve = services["serve"]
    assert_parses(serve["command"])
    assert serve["build"]["context"] == os.path.relpath(ROOT, FOLDER)
    assert (ROOT / serve["build"]["dockerfile"]).is_file()
    assert serve["ports"] == ["127.0.0.1:8080:8080"], "no login: this machine alone"
    assert "http://127.0.0.1:8080/health" in serve["healthcheck"]["test"][-1]
    assert serve["volumes"][0].endswith(":/work/guidance:ro")
    config = tmp_path / "server-model.yaml"
    config.write_text(
        re.sub(r"\$\{MODEL:-(.+?)\}", r"\1", composed["configs"]["server-model"]["content"])
    )
    words = [
        str(config) if word == config.name else word
        for word in services["predict"]["entrypoint"][1:]
    ]
    assert_parses(
        [
            *words,
            "--guidance",
            "guidance/shared.json",
            "--tickets",
            "work/new.jsonl",
            "--by",
            "both",
        ]
    )
    address = yaml.safe_load(config.read_text())["model"]["base_url"]
    assert re.fullmatch(r"http://(\w+):8000/v1", address)
    assert address.split("/")[2].split(":")[0] in services
    assert services["predict"]["depends_on"]["model"]["condition"] == "service_healthy"
