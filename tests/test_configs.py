"""The configs that ship: each can be used as its first lines say, alone or behind another."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from stageb.__main__ import main
from stageb.cli.parsing import parse

ROOT = Path(__file__).parent.parent
CONFIGS = sorted(ROOT.glob("configs/*/*.yaml"))
TICKETS = ["--tickets", "[my.jsonl]"]


def uses(config: Path) -> list[list[str]]:
    """The configs that the head of ``config`` tells to name, in order, for each way that it shows;
    without one, itself."""
    head = config.read_text(encoding="utf-8").partition("\n\n")[0]
    lines = re.sub(r"\\\n#", " ", head).splitlines()
    shown = [
        re.findall(r"--config (configs/\S+)", line) for line in lines if "--config configs/" in line
    ]
    return shown or [[str(config.relative_to(ROOT))]]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_config_is_whole_as_its_head_tells_to_use_it(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    for named in uses(config):
        assert named[-1] == str(config.relative_to(ROOT))
        words = [word for path in named for word in ("--config", path)]
        tickets = TICKETS if config.parent.name == "guidance" else []
        parse([*words, *tickets])  # raises for a value out of range
        with pytest.raises(SystemExit) as end:
            main(["fit", *words, *tickets, "--print_config"])
        assert end.value.code == 0
        resolved = yaml.safe_load(capsys.readouterr().out)
        assert holds(resolved, {**yaml.safe_load(config.read_text("utf-8")), "tickets": None})


def test_a_config_that_ships_goes_by_its_name_anywhere_and_a_file_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def resolve(*words: str) -> dict[str, object]:
        with pytest.raises(SystemExit):
            main(["fit", *words, "--print_config"])
        return dict(yaml.safe_load(capsys.readouterr().out))

    for config in CONFIGS:
        given = yaml.safe_load(config.read_text("utf-8"))
        loop = given.get("loop", "guidance")
        assert holds(resolve("--config", config.stem, "--loop", loop), {**given, "tickets": None})
    assert resolve("--config", "5x5")["loop"] == "ppo"
    assert resolve("--config", "demo")["loop"] == "guidance"  # growth has one too
    (tmp_path / "tickets").mkdir()
    assert resolve("--config", "tickets")["seed"] == 17, "a folder is no config"
    (tmp_path / "demo").write_text("seed: 18")
    assert resolve("--config", "demo")["seed"] == 18
    assert main(["fit", "--config", "tikets"]) == 2
    said = capsys.readouterr().err
    assert (
        "tikets: cannot be read (No such file or directory); name a YAML file after --config, "
        "or one that ships: " in said
    )
    assert "one-gpu, pendulum, server, shapes, teacher, tickets, wide" in said
    for path in ("guidance/tickets", "../configs/guidance/tickets", "./tickets"):
        assert main(["fit", "--config", path]) == 2
        assert "one that ships" not in capsys.readouterr().err


def holds(whole: object, part: object) -> bool:
    """Whether ``whole`` says all that ``part`` does."""
    if isinstance(whole, dict) and isinstance(part, dict):
        return all(holds(whole[key], value) for key, value in part.items() if key != "tickets")
    if isinstance(whole, list) and isinstance(part, list):
        return len(whole) == len(part) and all(map(holds, whole, part))
    return whole == part


def test_the_slurm_script_starts_the_checkout_that_it_was_submitted_from(tmp_path: Path) -> None:
    (tmp_path / "srun").write_text('#!/bin/sh\npwd\nprintf "%s\\n" "$@"\nexit 7\n')
    (tmp_path / "srun").chmod(0o755)
    script = shutil.copy(ROOT / "bin" / "slurm.sh", tmp_path / "spooled")  # as SLURM runs a copy
    (tmp_path / "checkout").mkdir()
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    line = [str(script), "--config", "my file.yaml", "--fresh"]
    refused = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert "submit it: sbatch bin/slurm.sh" in refused.stderr
    environment["SLURM_SUBMIT_DIR"] = str(tmp_path / "checkout")
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 7  # what the job said
    where, *words = done.stdout.splitlines()
    assert where == str(tmp_path / "checkout")
    assert words[-5:] == [".venv/bin/python", "bin/fit.py", "--config", "my file.yaml", "--fresh"]
