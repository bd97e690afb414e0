"""What pressing Tab offers, in a real shell."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from stageb.__main__ import COMMANDS, main
from stageb.cli import loops
from stageb.cli.completion import SHELLS
from stageb.cli.draft import dotted
from stageb.guidance.words.config import LoopConfig


@pytest.fixture
def script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """What ``stageb completion bash`` prints."""
    assert main(["completion", "bash"]) == 0
    path = tmp_path / "stageb.bash"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    return path


def offered(script: Path, *words: str) -> list[str]:
    """What bash offers for the last of ``words`` behind ``stageb``."""
    line = " ".join(f"'{word}'" for word in ("stageb", *words))
    asked = f"""
        source {script.name}
        COMP_WORDS=({line}) COMP_CWORD={len(words)}
        "$(complete -p stageb | sed -E 's/.* -F ([^ ]+) .*/\\1/')" stageb '{words[-1]}' '{(words[-2:-1] or ("stageb",))[0]}'
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", asked], cwd=script.parent, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_bash_offers_commands_keys_values_and_files(script: Path) -> None:
    (script.parent / "tickets.jsonl").touch()
    assert set(offered(script, "")) >= {*COMMANDS, *loops.tools(), *loops.run_commands()}
    keys = set(offered(script, "fit", "--"))
    assert keys >= {"--config", "--fresh", "--print_config", "--gate"}
    assert keys >= {f"--{key}" for key, _ in dotted(LoopConfig) if "." in key}
    assert not keys & {"--sampler", "--fabric"}  # sections, of which no value is written on a line
    assert offered(script, "fit", "--tickets") == ["--tickets", "--tickets+"]
    assert offered(script, "fit", "--gate.judge_by", "p") == ["probability"]
    assert offered(script, "fit", "--jump_reflection", "") == ["true", "false"]
    assert offered(script, "fit", "--loop", "p") == ["ppo"]
    assert "scripted" in offered(script, "fit", "--model.engine", "")
    assert offered(script, "fit", "--seed", "1", "--config", "tick") == ["tickets.jsonl"]
    assert offered(script, "evaluate", "tick") == ["tickets.jsonl"]
    assert offered(script, "completion", "z") == ["zsh"]
    assert offered(script, "guidance", "di") == ["diff"]
    assert offered(script, "guidance", "show", "tick") == ["tickets.jsonl"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh on this machine")
def test_zsh_offers_commands_keys_and_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    (tmp_path / "stageb.zsh").write_text(capsys.readouterr().out, encoding="utf-8")
    with Zsh(tmp_path) as zsh:
        zsh.ask(
            f"autoload -Uz compinit; compinit -u -d {tmp_path / 'dump'}; eval \"$(<stageb.zsh)\"; echo re''ady\n", "ready"
        )
        zsh.ask("stageb guid\t", "guidance")
        zsh.ask("ex\t", "export")
        zsh.ask("\x15stageb boxes sh\t", "shapes")
        zsh.ask("\x15stageb fit --gate.judge_by p\t", "probability")
        zsh.ask("\x15stageb fit --jump_refl\t", "--jump_reflection")


class Zsh:
    """A zsh at a terminal of its own, without anybody's settings."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Zsh:
        self._master, slave = pty.openpty()
        self._shell = subprocess.Popen(["zsh", "-f", "-i"], cwd=self._folder, stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        return self

    def __exit__(self, *_: object) -> None:
        self._shell.kill()
        self._shell.wait()
        os.close(self._master)

    def ask(self, typed: str, shown: str) -> None:
        """Type, and wait until the terminal shows a text."""
        os.write(self._master, typed.encode())
        seen, deadline = "", time.monotonic() + 60
        while shown not in seen:
            assert select.select([self._master], [], [], deadline - time.monotonic())[0], f"{shown!r} is not in {seen!r}"
            seen += os.read(self._master, 4096).decode(errors="replace")


@pytest.mark.parametrize("name", [name for name, tool in loops.tools().items() if not tool.config])
def test_the_commands_of_a_tool_are_those_that_it_reads(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    tool = loops.tools()[name]
    with pytest.raises(SystemExit):
        main([name, "--help"])
    listed = re.findall(r"^    (\w+)(?:  |$)", capsys.readouterr().out, re.MULTILINE)
    assert tuple(listed) == tool.words


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script_that_it_can_read(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out, encoding="utf-8")
    assert "probability" in (tmp_path / "script").read_text("utf-8")  # a value of a key
    if shell in ("bash", "zsh", "fish") and shutil.which(shell):
        subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)


@pytest.mark.parametrize("words", [[], ["csh"], ["bash", "zsh"]])
def test_a_shell_must_be_named(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", *words]) == 2
    assert 'eval "$(stageb completion bash)"' in capsys.readouterr().err
