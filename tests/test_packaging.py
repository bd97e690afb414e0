"""What a user installs and starts: the wheel, the pins, the scripts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from stageb import __version__
from stageb.cli.draft import list_keys
from stageb.guidance.config import LoopConfig

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SCRIPTS = [
    path
    for folder in ("bin", ".ci")
    for path in (ROOT / folder).iterdir()
    if path.suffix != ".py" and path.is_file()
]


# What the repository's root may hold: a page of a run or a table that was tried out is not for
# those who clone it.
ROOT_ENTRIES = set(
    ".ci .github .gitignore .pre-commit-config.yaml CHANGELOG.md CITATION.cff CONTRIBUTING.md "
    "LICENSE MANIFEST.in README.md "
    "SECURITY.md bin configs constraints.txt docs lab pyproject.toml stageb tests".split()
)


def name_of(requirement: str) -> str:
    """The project that a requirement names, in the registry's spelling."""
    return re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def test_who_cites_cites_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (cited["version"], cited["license"]) == (__version__, PROJECT["license"])


def test_the_changelog_has_a_dated_section_of_this_version_as_a_release_asks() -> None:
    heads = re.findall(
        r"^## .*$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert re.fullmatch(rf"## \[{re.escape(__version__)}\] - \d{{4}}-\d\d-\d\d", heads[0])


def test_a_build_fetches_nothing_but_setuptools() -> None:
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"][
        "requires"
    ]
    assert [name_of(requirement) for requirement in needed] == ["setuptools"]


def test_the_root_of_the_repository_holds_what_was_agreed_alone() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: git is not asked what belongs to it")
    listing = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=True
    ).stdout
    assert {line.partition("/")[0].strip('"') for line in listing.splitlines()} == ROOT_ENTRIES


def test_every_direct_dependency_has_a_tested_version() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {name_of(line): line for line in lines if line and not line.startswith("#")}
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"]]
    for extra in ("dev", "docs", "ppo", "growth", "serve", "two-channel"):
        wanted += extras[extra]
    assert {name_of(requirement) for requirement in wanted} <= set(pins)
    assert all(re.fullmatch(r"[\w-]+==[\w.]+", line) for line in pins.values())


PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
OFFLINE = ["--no-deps", "--no-build-isolation", "--no-index"]


def copy_source(folder: Path) -> Path:
    """What the package is built from, copied to ``folder``."""
    for name in ("lab", "stageb"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.mark.slow
def test_a_script_beside_the_checkout_imports_the_package(tmp_path: Path) -> None:
    """Although the folder there has its name."""
    checkout, site = copy_source(tmp_path / "stageb"), tmp_path / "site"
    subprocess.run(
        [*PIP, "install", *OFFLINE, "--target", str(site), "--editable", str(checkout)], check=True
    )
    script = tmp_path / "script.py"
    script.write_text(
        f"import site\nsite.addsitedir({str(site)!r})\nimport stageb\nprint(stageb.__file__)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    alone = [sys.executable, "-S", str(script)]  # without the package that runs this test
    done = subprocess.run(alone, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == str(checkout / "stageb" / "__init__.py")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_sound_and_can_be_run(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert script.name == "setup" or os.access(script, os.X_OK)


@pytest.fixture
def launcher(tmp_path: Path) -> Path:
    """``bin/stageb.sh`` beside a ``setup`` that installs nothing; ``stageb`` and ``torchrun`` say
    how they were called."""
    place = tmp_path / "bin"
    place.mkdir()
    shutil.copy(ROOT / "bin" / "stageb.sh", place)
    for name in ("stageb", "torchrun"):
        say = 'echo "gpus=$CUDA_VISIBLE_DEVICES"\nprintf "%s\\n" "${0##*/}" "$@"'
        (place / name).write_text(f"#!/bin/bash\n{say}\nexit 7\n")
        (place / name).chmod(0o755)
    (place / "setup").write_text(f'set -euo pipefail\nROOT="{tmp_path}"\nPATH="{place}:$PATH"\n')
    return place / "stageb.sh"


def called(launcher: Path, *arguments: str) -> tuple[int, list[str], str]:
    done = subprocess.run([str(launcher), *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize(
    ("gpus", "devices", "accelerator", "strategy"),
    [("", 1, "cpu", "auto"), ("3", 1, "cuda", "auto"), ("0,1,2,3", 4, "cuda", "ddp")],
)
def test_the_launch_script_turns_gpus_into_ranks(
    launcher: Path, gpus: str, devices: int, accelerator: str, strategy: str
) -> None:
    named = [f"gpus={gpus}"] if gpus else []
    program = launcher.with_name("fit.py")
    code, lines, _ = called(
        launcher,
        *named,
        "config=my file.yaml",
        "runner.epochs=2",
        'tickets=["a b.jsonl"]',
        "--fresh",
    )
    assert code == 7  # what stageb said
    assert lines == [
        f"gpus={gpus}",
        *(
            ["stageb", "fit"]
            if devices == 1
            else ["torchrun", "--standalone", f"--nproc-per-node={devices}", str(program)]
        ),
        "--config",
        "my file.yaml",
        f"--fabric.accelerator={accelerator}",
        f"--fabric.devices={devices}",
        f"--fabric.strategy={strategy}",
        "--runner.epochs=2",
        '--tickets=["a b.jsonl"]',
        "--fresh",
    ]


@pytest.mark.parametrize(
    "arguments", [[], ["gpus=0"], ["gpus=all", "config=x"], ["config=x", "epochs"]]
)
def test_the_launch_script_refuses_what_it_cannot_read(
    launcher: Path, arguments: list[str]
) -> None:
    code, lines, message = called(launcher, *arguments)
    assert (code, lines) == (2, [])
    assert "config=PATH" in message or "expected" in message


PAGES = {
    path.name: path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
}


def test_the_keys_that_pages_list_exist() -> None:
    known = dict(list_keys(LoopConfig))
    parts = [part for page in PAGES.values() for part in re.split(r"^#+ ", page, flags=re.M)]
    sections = [part for part in parts if part.startswith(("The ten keys to set\n", "Keys\n"))]
    rows = [row for part in sections for row in part.splitlines() if row.startswith("| `")]
    named = [key for row in rows for key in re.findall(r"`([\w.]+)`", row.split("|")[1])]
    assert len(sections) == 2
    assert len(named) > 30
    assert [key for key in named if key not in known] == []


def test_the_example_of_a_test_without_a_model_passes() -> None:
    names: dict[str, Callable[[], None]] = {}
    exec((ROOT / "docs" / "examples" / "without_a_model.py").read_text(encoding="utf-8"), names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert tests
    for test in tests:
        test()


def test_the_files_that_pages_name_are_in_the_checkout() -> None:
    for page in PAGES.values():
        for name in set(
            re.findall(r"(?<![\w/])(?:bin|configs|lab|stageb|tests|\.ci)/[\w./-]+\w", page)
        ):
            assert (ROOT / name).exists(), name


def read_steps() -> list[tuple[str, str]]:
    """Every step of every workflow that runs a command, by the workflow's name."""
    steps = []
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values():
            steps += [(path.stem, step["run"]) for step in job["steps"] if "uses" not in step]
    return steps


def test_every_step_of_a_workflow_is_a_script_of_the_checkout() -> None:
    steps = read_steps()
    assert {name for name, _ in steps} == {"checks", "night", "release"}
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][
        0
    ]["hooks"]
    for command in [command for _, command in steps] + [hook["entry"] for hook in hooks]:
        assert re.fullmatch(r"(bin|\.ci)/\w+", command), command
        assert os.access(ROOT / command, os.X_OK), command


def test_workflows_test_the_oldest_and_the_newest_python_that_is_named() -> None:
    named = [
        line.split(" :: ")[-1] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)
    ]
    checks = yaml.safe_load(
        (ROOT / ".github" / "workflows" / "checks.yml").read_text(encoding="utf-8")
    )
    tested = checks["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert {named[0], named[-1]} <= set(tested) <= set(named)
    assert PROJECT["requires-python"] == f">={named[0]}"


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with one commit, whose ``setup`` installs nothing."""
    checkout = copy_source(tmp_path_factory.mktemp("committed") / "checkout")
    for name in ("bin", "tests/programs", "configs"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "MANIFEST.in", checkout)
    (checkout / "bin" / "setup").write_text(f"set -euo pipefail\nROOT={str(checkout)!r}\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(checkout)]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "first"]):
        subprocess.run([*git, *words], check=True)
    return checkout


def build(checkout: Path, mode: int) -> dict[str, bytes]:
    """What ``bin/build`` makes of a checkout whose files have just been touched."""
    for path in (checkout / "stageb").rglob("*.py"):
        path.touch()
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    subprocess.run(
        ["bin/build"],
        cwd=checkout,
        env=environment,
        umask=mode,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return {path.name: path.read_bytes() for path in (checkout / "dist").iterdir()}


@pytest.fixture(scope="module")
def built(committed: Path) -> dict[str, bytes]:
    return build(committed, 0o022)


@pytest.mark.slow
def test_a_build_has_the_same_bytes_at_another_time(
    committed: Path, built: dict[str, bytes]
) -> None:
    assert {name.removeprefix(f"stageb-{__version__}") for name in built} == {
        "-py3-none-any.whl",
        ".tar.gz",
    }
    assert build(committed, 0o077) == built
    with tarfile.open(committed / "dist" / f"stageb-{__version__}.tar.gz") as sdist:
        held = {name.partition("/")[2] for name in sdist.getnames()}
    assert {
        "tests/programs/small.py",
        "bin/build",
        "lab/__init__.py",
        "stageb/tiny/checkpoint/model.safetensors",
    } <= held


def test_the_wheel_holds_the_whole_package_and_nothing_else_and_runs(
    committed: Path, built: dict[str, bytes], tmp_path: Path
) -> None:
    wheel, site = tmp_path / f"stageb-{__version__}-py3-none-any.whl", tmp_path / "site"
    wheel.write_bytes(built[wheel.name])
    held = set(zipfile.ZipFile(wheel).namelist())
    files = [
        path.relative_to(committed).as_posix()
        for path in (committed / "stageb").rglob("*")
        if path.is_file()
    ]
    assert {name for name in held if ".dist-info/" not in name} == set(files)
    assert {
        "stageb/py.typed",
        "stageb/demo/tickets.jsonl",
        "stageb/tiny/checkpoint/model.safetensors",
    } <= held
    assert {f"stageb/{path.relative_to(ROOT)}" for path in ROOT.glob("configs/*/*.yaml")} <= held

    subprocess.run(
        [*PIP, "install", *OFFLINE, "--no-compile", "--target", str(site), str(wheel)], check=True
    )
    environment = {**os.environ, "PYTHONPATH": str(site)}
    where = "import stageb; print(stageb.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", where],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=True,
    )
    assert Path(done.stdout.strip()).parent == site / "stageb"
    subprocess.run(
        [sys.executable, "-m", "stageb", "--help"],
        stdout=subprocess.DEVNULL,
        env=environment,
        check=True,
    )
