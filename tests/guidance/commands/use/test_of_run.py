"""A run's folder that somebody else wrote: its rules and prompts are taken, what would give it
power over this machine is not."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from guidance.commands.use.made import guidance, options, rows, run_folder, tickets

import stageb
from stageb.__main__ import main
from stageb.engines.config import ModelConfig
from stageb.engines.remote import client
from stageb.guidance.config import DecodeConfig, LoopConfig, PromptConfig, SamplerConfig
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.tiny import CHECKPOINT

TORN = {"valves": "Fail if state is torn."}


@dataclass
class Server:
    """Listens, and counts who comes."""

    url: str
    came: int = 0


@pytest.fixture
def server() -> Iterator[Server]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        found = Server(f"http://127.0.0.1:{listening.getsockname()[1]}/v1")

        def count() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                found.came += 1
                connection.close()

        thread = threading.Thread(target=count, daemon=True)
        thread.start()
        yield found
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


@dataclass(frozen=True)
class Case:
    """A folder of a run, and the commands on it."""

    folder: Path

    def run(self, **keys: Any) -> str:
        return run_folder(self.folder / "run", LoopConfig(tickets=["x"], **keys), TORN)

    def line(self, command: str, *more: str) -> list[str]:
        output = self.folder / ("out" if command == "evaluate" else "out.jsonl")
        known = {
            "guidance": str(self.folder / "run"),
            "tickets": str(self.folder / "in.jsonl"),
            "output": str(output),
        }
        return [
            command,
            *(f"--{key}={value}" for key, value in known.items()),
            "--fabric.accelerator=cpu",
            *more,
        ]


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    tickets(tmp_path / "in.jsonl", "valves", groups=8)
    (tmp_path / "trap.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("MY_CLOUD_SECRET", "s3cret")
    return Case(tmp_path)


def test_columns_of_the_run_are_those_of_new_tables(case: Case) -> None:
    """But for columns that learning alone reads, which new tickets lack."""
    columns = ColumnsConfig(
        "-",
        "valves",
        "id",
        together="maker",
        split="part",
        reason="why",
        label="result",
        fails=["NG"],
    )
    case.run(columns=columns)
    (case.folder / "new.csv").write_text("id,state,result\n1,torn,NG\n2,good,pass\n")
    assert main(case.line("predict", "--by=rules", f"--tickets={case.folder / 'new.csv'}")) == 0
    assert [(row["group_id"], row["verdict"]) for row in rows(case.folder / "out.jsonl")] == [
        ("1", "fail"),
        ("2", "pass"),
    ]


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_no_server_of_the_folders_choice_is_asked(
    case: Case,
    server: Server,
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(client, "FIRST_PAUSE_S", 0.001)
    case.run(
        model=ModelConfig(
            "openai", "gpt", base_url=server.url, api_key_env="MY_CLOUD_SECRET", timeout_s=1.0
        )
    )
    assert main(case.line(command)) == 2
    said = capsys.readouterr().err
    assert server.came == 0
    assert not (case.folder / "out").exists()
    assert not (case.folder / "out.jsonl").exists()
    given = (
        f"--model.engine openai --model.model_name_or_path gpt --model.base_url {server.url} "
        "--model.api_key_env MY_CLOUD_SECRET"
    )
    assert f"add: {given}\n" in said
    assert "model.base_url (the server that is sent the tickets)" in said
    with pytest.raises(stageb.InputError, match=r"model\.api_key_env"):
        stageb.predict(guidance=str(case.folder / "run"), tickets=str(case.folder / "in.jsonl"))
    assert server.came == 0
    assert main([*case.line(command), *given.split()]) == 1  # it does not answer
    assert server.came > 0


@pytest.mark.parametrize(
    ("keys", "given"),
    [
        ({"selection": "trap:choose"}, "--selection trap:choose"),
        ({"model": ModelConfig("trap:build")}, "--model.engine trap:build"),
        (
            {"model": ModelConfig("scripted", "trap:respond")},
            "--model.engine scripted --model.model_name_or_path trap:respond",
        ),
        (
            {"model": ModelConfig(attn_implementation="who/kernel")},
            "--model.attn_implementation who/kernel",
        ),
        ({"model": ModelConfig(trust_remote_code=True)}, "--model.trust_remote_code true"),
        (
            {"model": ModelConfig(model_name_or_path="who/ever")},
            "--model.model_name_or_path who/ever",
        ),
        (
            {"model": ModelConfig(tokenizer="; rm -rf '~'\n\x1b[2J")},
            "--model.tokenizer '; rm -rf '\"'\"'~'\"'\"'\\n\\x1b[2J'",
        ),
    ],
)
def test_no_code_of_the_folders_choice_runs(
    case: Case, keys: dict[str, Any], given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    case.run(**keys)
    assert main(case.line("predict")) == 2
    said = capsys.readouterr().err
    assert f"add: {given}\n" in said
    assert all(line.isprintable() for line in said.splitlines())
    assert not (case.folder / "out.jsonl").exists()


def test_what_the_user_gives_counts(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    sampler = SamplerConfig(samples_per_decode=1, grid=[DecodeConfig(temperature=0.0)])
    case.run(
        model=ModelConfig("openai", base_url="http://127.0.0.1:9/v1"),
        sampler=sampler,
        selection="trap:choose",
    )
    mine = ["--model.engine=scripted", "--model.base_url=null", "--selection=majority"]
    assert main(case.line("predict", *mine)) == 0
    assert {row["agreement"] for row in rows(case.folder / "out.jsonl")} == {1.0}
    own: dict[str, Any] = {
        "model": {"engine": "scripted", "base_url": None},
        "selection": "majority",
    }
    (case.folder / "own.yaml").write_text(yaml.safe_dump(own))
    assert main(case.line("predict", f"--config={case.folder / 'own.yaml'}")) == 0
    done = stageb.predict(
        guidance=str(case.folder / "run"),
        tickets=str(case.folder / "in.jsonl"),
        output=str(case.folder / "again.jsonl"),
        fabric={"accelerator": "cpu"},
        **own,
    )
    assert list(done) == rows(case.folder / "out.jsonl")
    capsys.readouterr()
    assert main(case.line("predict", *mine[:2], "--print_config")) == 2
    assert "--selection trap:choose" in capsys.readouterr().err


def test_a_plain_checkpoint_of_this_machine_is_taken(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    """As one's own run names it; but none whose weights lie elsewhere."""
    shutil.copytree(CHECKPOINT, case.folder / "mine")
    sampler = SamplerConfig(
        samples_per_decode=1, grid=[DecodeConfig(temperature=0.0, max_new_tokens=24)]
    )
    case.run(model=ModelConfig(model_name_or_path=str(case.folder / "mine")), sampler=sampler)
    assert main(case.line("predict")) == 0
    assert len(rows(case.folder / "out.jsonl")) == 8
    (case.folder / "mine" / "adapter_config.json").write_text(
        '{"base_model_name_or_path": "who/ever"}'
    )
    assert main(case.line("predict")) == 2
    assert f"add: --model.model_name_or_path {case.folder / 'mine'}\n" in capsys.readouterr().err


def test_rules_prompts_and_words_are_taken(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    words = PromptConfig(language="zh", verdict_words={"pass": "OK", "fail": "NG"})
    case.run(prompt=words, seed=5, model=ModelConfig(image_pixels=2048, concurrency=3))
    with pytest.raises(SystemExit):
        main(case.line("predict", "--print_config"))
    found = yaml.safe_load(capsys.readouterr().out)
    assert found["prompt"] == asdict(words)
    assert (found["seed"], found["model"]["image_pixels"], found["model"]["concurrency"]) == (
        5,
        2048,
        3,
    )


def test_a_step_of_a_run_is_judged_by_the_runs_model(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    case.run(seed=5)
    snapshots = case.folder / "run" / "mission-0" / "snapshots"
    guidance(snapshots / "guidance-000003.json", TORN)
    with pytest.raises(SystemExit):
        main(
            [
                *options("predict", {"guidance": f"{case.folder / 'run'}@3", "tickets": "x"}),
                "--print_config",
            ]
        )
    assert "seed: 5\n" in capsys.readouterr().out


LINKS: list[Callable[[Path], Path]] = [
    lambda run: run / "config.yaml",
    lambda run: run / "mission-0" / "guidance.json",
    lambda run: run / "mission-0",
]


@pytest.mark.parametrize("linked", LINKS)
@pytest.mark.parametrize("command", ["predict", "show"])
def test_no_link_leads_out_of_the_folder(
    case: Case, linked: Callable[[Path], Path], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    case.run()
    place = linked(case.folder / "run")
    private = case.folder / "private"
    place.rename(private)
    place.symlink_to(private)
    line = case.line("predict", "--model.engine=scripted") if command == "predict" else None
    assert main(line or ["guidance", "show", str(case.folder / "run")]) == 2
    said = capsys.readouterr().err
    assert f"{place.relative_to(case.folder)}" in said
    assert "leads out of" in said
    place.unlink()
    os.mkfifo(place)
    assert main(line or ["guidance", "show", str(case.folder / "run")]) == 2


@pytest.mark.parametrize("named", ["in", "learnt", "words", "guidance"])
def test_nothing_is_written_over_what_a_command_reads(
    case: Case, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("learnt", "words"):
        tickets(case.folder / f"{name}.jsonl", "valves", groups=8)
    learnt = LoopConfig(tickets=[str(case.folder / "learnt.jsonl")])
    run_folder(case.folder / "run", learnt, TORN)
    path = next(case.folder.rglob(f"{named}.json*"))
    before = path.read_bytes()
    more = ("--by=rules", f"--vocabulary={case.folder / 'words.jsonl'}", f"--output={path}")
    assert main(case.line("predict", *more)) == 2
    assert f"{path}: it holds the " in capsys.readouterr().err
    assert path.read_bytes() == before


def test_rules_alone_need_nothing_of_this(case: Case) -> None:
    """A guidance.json has no config beside it that counts, and no engine does where code judges."""
    case.run(model=ModelConfig("trap:build"))
    file = next((case.folder / "run").glob("*/guidance.json"))
    command, _, *rest = case.line("predict", "--model.engine=scripted")
    assert main([command, f"--guidance={file}", *rest]) == 0
    assert json.loads(file.read_text())["valves"]["step"] == 3
    assert (
        main(case.line("predict", "--by=rules", "--fresh"))
        == main(case.line("evaluate", "--by=rules"))
        == 0
    )
    assert (
        main(case.line("predict", "--by=both", "--fresh"))
        == main(case.line("evaluate", "--by=rules,both"))
        == 2
    )
