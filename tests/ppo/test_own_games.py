"""Games that users bring: what they return is copied and read strictly, what they hold is closed,
all kinds are learnt."""

from __future__ import annotations

import json
import re
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from conformance import check_equal_bytes, content, differing
from programs import forks
from programs.processes import Job

from stageb.__main__ import main
from stageb.cli.parsing import parse
from stageb.job import heartbeat
from stageb.ppo.agents import read_numbers
from stageb.ppo.config import (
    AgentConfig,
    EnvConfig,
    EvaluationConfig,
    GameConfig,
    PpoLoopConfig,
    PpoRunnerConfig,
)
from stageb.ppo.environment import Joint
from stageb.ppo.envs.gym import GymEnvironment
from stageb.ppo.envs.snake import SnakeEnvironment
from stageb.ppo.envs.snake_agent import Agent
from stageb.ppo.evaluate import play_out
from stageb.ppo.make import make_agent, make_environment
from stageb.ppo.rollout import Player

LEARNS = {
    "runner.envs": 16,
    "runner.rollout_steps": 32,
    "runner.global_batch": 128,
    "runner.total_steps": 30_720,
    "evaluation.episodes": 64,
    "agent.hidden": 32,
    "ppo.learning_rate": 0.003,
    "ppo.gamma": 0.5,
    "fabric.accelerator": "cpu",
    "fabric.devices": 1,
    "curves": False,
    "loggers": [],
}
SHORT = {
    "runner.envs": 8,
    "runner.total_steps": 2048,
    "evaluation.episodes": 12,
    "runner.global_batch": 64,
}


def line(root: Path, make: str, **keys: Any) -> list[str]:
    """What follows ``stageb`` for a small run."""
    named = {name.replace("__", "."): value for name, value in keys.items()}
    given = {**LEARNS, "env.make": f"programs.games:{make}", "output.root": str(root), **named}
    texts = {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items()
    }
    return ["fit", "--loop=ppo", *(f"--{key}={text}" for key, text in texts.items())]


def short(root: Path, make: str, **keys: Any) -> list[str]:
    """A run that learns nothing yet."""
    return line(
        root, make, **{name.replace(".", "__"): value for name, value in SHORT.items()} | keys
    )


def last_row(root: Path) -> dict[str, Any]:
    row: dict[str, Any] = json.loads((root / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    return row


def config_of(make: str, **sections: Any) -> PpoLoopConfig:
    return PpoLoopConfig(
        env=EnvConfig(make=f"programs.games:{make}"), agent=AgentConfig(hidden=8), **sections
    )


def start(arguments: list[str], folder: Path) -> Job:
    """A whole command line in a process of its own."""
    path = {"PYTHONPATH": str(Path(__file__).parents[1])}
    return Job.start([sys.executable, "-m", "stageb", *arguments], folder, path)


@pytest.mark.slow
def test_a_vector_that_hands_out_its_own_buffer_is_learnt_without_keys(tmp_path: Path) -> None:
    few = {
        "--runner.total_steps=8192",
        "--evaluation.episodes=64",
        "--fabric.accelerator=cpu",
        "--fabric.devices=1",
    }
    own = {
        "--env.make=programs.games:Guess",
        f"--output.root={tmp_path}",
        "--curves=false",
        "--loggers=[]",
    }
    assert main(["fit", "--loop=ppo", *sorted(few | own)]) == 0
    assert last_row(tmp_path)["eval/return"] == 20  # chance: 10


@pytest.mark.slow
@pytest.mark.parametrize(("make", "workers"), [("async_cartpoles", 0), ("Plain", 3)])
def test_processes_of_games_end_with_the_run_and_none_of_their_signals_reaches_it(
    tmp_path: Path, make: str, workers: int
) -> None:
    job = start(short(tmp_path, make, env__workers=workers), tmp_path / "job")
    try:
        assert job.wait(200), job.err
    finally:
        left = job.clear()
    assert (job.code, left) == (0, 0), job.err
    assert "games with the most probable actions" in job.err and "Warning" not in job.err


@pytest.mark.slow
@pytest.mark.parametrize("signal", ["KILL", "TERM"])
def test_processes_of_games_end_with_a_run_that_is_ended(tmp_path: Path, signal: str) -> None:
    job = start(short(tmp_path, "async_cartpoles", runner__total_steps=1 << 30), tmp_path / "job")
    try:
        commits = tmp_path / "run" / "metrics.jsonl"
        while not commits.exists():
            assert job.parent.poll() is None, job.err
        job.parent.kill() if signal == "KILL" else job.parent.terminate()
        assert job.wait(60), job.processes()
    finally:
        left = job.clear()
    assert (job.code, left) == (137 if signal == "KILL" else 143, 0), job.err


@pytest.mark.slow
def test_games_in_processes_are_the_games_of_one(tmp_path: Path) -> None:
    for workers in (0, 3):
        assert main(short(tmp_path / str(workers), "Plain", env__workers=workers)) == 0
    one, several = (content(tmp_path / str(workers) / "run") for workers in (0, 3))
    assert differing(one, several) == []


def test_a_process_of_games_that_is_gone_ends_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(short(tmp_path, "Crashing", env__workers=2)) == 1
    assert "its process ended, exit code 7" in capsys.readouterr().err


@pytest.mark.slow
def test_a_vector_and_games_in_processes_go_on_after_a_kill_to_the_very_bytes(
    tmp_path: Path,
) -> None:
    """Amid episodes, which are played again from their seeds and actions."""
    for make, workers in (("Guess", 0), ("Mixed", 2)):

        def line_of(part: str, size: int, make: str = make, workers: int = workers) -> list[str]:
            root = tmp_path / make / part
            return short(
                root, make, env__workers=workers, fabric__devices=size, runner__commit_every=1
            )

        def read(part: str, make: str = make) -> dict[str, bytes]:
            return content(tmp_path / make / part / "run")

        check_equal_bytes(tmp_path / make, line_of, read, (1,), [(0.5, 1, 1)])


def test_episodes_outlast_commits(tmp_path: Path) -> None:
    """Though two rollouts are shorter than one."""
    assert main(short(tmp_path, "Plain", runner__commit_every=1, runner__rollout_steps=8)) == 0
    rows = [
        json.loads(row) for row in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    assert max(row["length"] or 0 for row in rows) == 20


def test_every_step_of_a_rollout_and_of_an_evaluation_is_a_sign_of_life() -> None:
    config, started = config_of("Plain"), heartbeat.now().count
    environment = make_environment(config, 0, range(3), "cpu")
    agent = make_agent(config, environment)
    before = heartbeat.now().count
    assert before - started >= 2 * 3  # each is made, and reset
    Player(agent, environment, 16, range(3), 0, nullcontext).play(0)
    played = heartbeat.now().count
    assert played - before >= 3 * 16  # of every game, since a single one may be slow
    play_out(agent, config, 0, range(3), nullcontext)
    assert heartbeat.now().count - played >= 3 * 20


@pytest.mark.slow
def test_an_evaluation_of_games_that_never_end_ends(tmp_path: Path) -> None:
    """By its limit, or when the run's time has passed."""
    for name, keys in (("steps", {"evaluation__limit": 50}), ("seconds", {"budget__seconds": 2})):
        assert main(short(tmp_path / name, "Endless", **keys)) == 0
        row = last_row(tmp_path / name)
        assert (row["eval/games"], row["eval/cut_rate"]) == (12, 1)
        assert row["eval/length"] == 50 or name == "seconds"


def test_an_evaluation_makes_no_more_games_than_a_rollout_and_plays_the_same_episodes() -> None:
    found = []
    for envs in (2, 5, 64):
        config = config_of(
            "Scaled", runner=PpoRunnerConfig(envs=envs), evaluation=EvaluationConfig(episodes=5)
        )
        agent = make_agent(config, make_environment(config, 0, [0], "cpu"))
        found.append(play_out(agent, config, 7, range(5), nullcontext))
    assert all(torch.allclose(each, found[0]) for each in found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "wanted", "steps", "rate"),
    [
        ("Scaled", -8.0, 20_480, 0.003),
        ("Pictures", 19.0, 6144, 0.001),
        ("Mixed", 17.0, 15_360, 0.003),
    ],
)
def test_numbers_of_any_scale_pictures_and_choices_of_many_parts_are_learnt(
    tmp_path: Path, make: str, wanted: float, steps: int, rate: float
) -> None:
    """By chance they are worth -29, 10 and 9.3."""
    keys = {"runner__total_steps": steps, "ppo__learning_rate": rate, "evaluation__episodes": 24}
    assert main(line(tmp_path, make, **keys)) == 0
    assert last_row(tmp_path)["eval/return"] > wanted


def test_shades_from_0_to_255_are_read_from_0_to_1_whatever_their_type() -> None:
    found = []
    for kind, beside in (("uint8", False), ("uint8", True), ("float32", False), ("int64", False)):
        env = EnvConfig(make="programs.games:Shades", options={"kind": kind, "beside": beside})
        shown = make_environment(PpoLoopConfig(env=env), 0, [0], "cpu").observe()
        assert (shown.dtype == torch.uint8) == (kind == "uint8" and not beside)
        found.append(read_numbers(shown))
    assert 0.9 < found[0].max() <= 1 and all(torch.equal(each, found[0]) for each in found)


class Reused(SnakeEnvironment):
    """It shows the same tensor at all times."""

    shown: torch.Tensor | None = None

    def observe(self) -> torch.Tensor:
        self.shown = super().observe() if self.shown is None else self.shown
        return self.shown.copy_(super().observe())


def test_an_environment_that_shows_one_tensor_is_learnt_from_as_it_was_seen() -> None:
    found = []
    for kind in (SnakeEnvironment, Reused):
        environment = kind(GameConfig(size=5), 0, range(3), "cpu")
        agent = Agent(AgentConfig(channels=4, blocks=0, hidden=8), 5, 0)
        found.append(Player(agent, environment, 32, range(3), 0, nullcontext).play(0)[0])
    for name in ("observations", "next_values"):
        assert torch.equal(getattr(found[0], name), getattr(found[1], name))


def test_a_joint_action_is_as_probable_as_its_parts_together() -> None:
    joint, generator = Joint((3, 2), 2), torch.Generator().manual_seed(0)
    outputs = torch.randn((64, 9), generator=generator)
    actions, log_probs = joint.draw(outputs, torch.arange(64), torch.zeros(1, dtype=torch.int64))
    judged, entropies = joint.judge(outputs, actions)
    torch.testing.assert_close(judged, log_probs)
    three, two = outputs[:, :3].log_softmax(1), outputs[:, 3:5].log_softmax(1)
    normal = torch.distributions.Normal(outputs[:, 5:7], outputs[:, 7:].exp())
    picked = three.gather(1, actions[:, :1].long()) + two.gather(1, actions[:, 1:2].long())
    torch.testing.assert_close(judged, picked[:, 0] + normal.log_prob(actions[:, 2:]).sum(1))
    parts = [-(each.exp() * each).sum(1) for each in (three, two)]
    torch.testing.assert_close(entropies, sum(parts) + normal.entropy().sum(1))
    assert len({tuple(row) for row in actions[:, :2].tolist()}) == 6
    assert torch.equal(joint.best(outputs)[:, 0], three.argmax(1).float())


FAULTS = [
    (
        "OldReset",
        "reset returned ndarray alone; return observation, info (as Gymnasium has it)",
        True,
    ),
    ("NoSeed", "reset: TypeError: ", True),
    ("NoInfo", "reset returned NoneType as info; return observation, info", True),
    (
        "OldStep",
        "step returned 4 values; return observation, reward, terminated, truncated, info",
        True,
    ),
    ("WrongShape", "its shape is (5,), and observation_space says (3,)", True),
    ("NoSpaces", "it has no observation_space and action_space", True),
    ("nothing", "it has no observation_space and action_space", True),
    ("ListReward", "the reward is array([1.]); return one number", True),
    ("LateMask", "info of step has action_mask, that of reset has none; tell it in both", True),
    ("NoChoice", "step 3 of its episode 1: action_mask allows no action", False),
    (
        "NanReward",
        "game 0, step 8 of its episode 1: the reward is nan; return a finite number",
        False,
    ),
    ("FarReward", "step 3 of its episode 1: the reward is 1e+39; return a finite number", False),
    ("UnitPictures", "; return whole numbers from 0 to 255, as observation_space says", True),
    ("LogitMask", "give 0 or 1 for each of 2 choices", True),
    ("Leaving", "step 4 of its episode 1: step: SystemExit: no licence", False),
    ("NanShown", "game 0, step 8 of its episode 1: the observation holds nan", False),
    ("Raising", "game 0, step 12 of its episode 1: step: ValueError: sensor offline", False),
]


@pytest.mark.parametrize(("make", "told", "at_once"), FAULTS)
def test_faults_of_games_are_told_in_a_line_with_their_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: str, told: str, at_once: bool
) -> None:
    """By validate, and by a run: before anything is written, or at its step."""
    source = (Path(__file__).parents[1] / "programs" / "games.py").read_text().splitlines()
    assert main(["validate", *short(tmp_path, make)[1:]]) == 2
    said = capsys.readouterr().err
    place = re.search(r"\((?:\S*/)?programs/games\.py:(\d+)\)$", said.strip())
    assert (
        told in said
        and said.count("\n") == 1
        and said.startswith(f"stageb: config: env.make: 'programs.games:{make}': ")
    )
    assert place and re.search(
        r"def (reset|step|nothing)|class NoS|raise|super\(\)", source[int(place[1]) - 1]
    ), said
    assert main(short(tmp_path, make)) == (2 if at_once else 1)
    said = capsys.readouterr().err
    assert told.replace("game 0, ", "") in said.splitlines()[-1] and "Traceback" not in said
    assert (tmp_path / "run").exists() != at_once


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("NanReward", "step 8 of its episode 1: the reward is nan; return a finite number"),
        ("NanShown", "step 8 of its episode 1: the observation holds nan"),
        ("LateMask", "infos of step have action_mask, those of reset have none"),
        ("NoChoice", "step 3 of its episode 1: action_mask allows no action"),
        ("LogitMask", "give 0 or 1 for each of 2 choices"),
        ("Raising", "step 12 of its episode 1: ValueError: sensor offline"),
    ],
)
def test_faults_in_a_vector_are_told_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, told: str
) -> None:
    words = short(tmp_path, "vector", env__options={"kind": kind})
    assert main(["validate", *words[1:]]) == 2
    said = capsys.readouterr().err
    assert "env.make: 'programs.games:vector': game 0, step " in said and told in said
    assert said.count("\n") == 1 and "programs/games.py:" in said


@pytest.mark.slow
def test_validate_says_what_it_found(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for make, told in (
        ("Plain", ["observations (3,) of float32", "took 20 steps"]),
        ("Endless", ["No episode ended in 10,000 steps: wrap it in gymnasium.wrappers.TimeLimit"]),
        ("Pictures", ["(36, 36, 1) of uint8"]),
        ("Stray", ["an observation holds 5, beyond Box("]),
        ("Levers", ["took 20 steps"]),
        ("Unseeded", ["it showed different observations"]),
    ):
        assert main(["validate", *short(tmp_path, make)[1:]]) == 0
        said = capsys.readouterr().out
        assert all(each in said for each in told), said
        assert ("different observations" in said) == (make == "Unseeded")
    assert main(["validate", *short(tmp_path, "Plain", runner__global_batch=63)[1:]]) == 2
    assert list(tmp_path.iterdir()) == []


def test_texts_among_options_are_taken_and_given_again_for_the_folder_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder may be somebody else's, and a text may name a file."""
    keys: dict[str, Any] = {
        "env__make": None,
        "env__name": "FrozenLake-v1",
        "evaluation__episodes": 4,
    }
    keys |= {"env__options": {"map_name": "4x4", "is_slippery": False}}
    assert main(short(tmp_path, "", **keys)) == 0
    words = ["evaluate", str(tmp_path / "run"), "--episodes=2", "--accelerator=cpu"]
    assert main(words) == 2
    assert "add: --options map_name=4x4" in capsys.readouterr().err
    assert main([*words, "--options", "map_name=4x4"]) == 0


def test_the_last_update_learns_where_rates_end_at_0(tmp_path: Path) -> None:
    assert main(short(tmp_path, "Plain", ppo__learning_rate_end=0)) == 0
    row = last_row(tmp_path)
    assert row["learning_rate"] == pytest.approx(0.003 / 8) and row["approx_kl"] != 0


@pytest.mark.parametrize("make", ["Scaled", "Mixed", "Pictures"])
def test_an_exported_agent_names_actions_as_the_game_counts_them_and_says_what_its_outputs_are(
    tmp_path: Path, make: str
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    assert main(short(tmp_path, make)) == 0
    assert main(["export", str(tmp_path / "run"), "--make", f"programs.games:{make}"]) == 0
    file = runtime.InferenceSession(tmp_path / "run" / "agent.onnx")
    told = json.loads(file.get_modelmeta().custom_metadata_map["stageb"])
    config = config_of(make)
    environment = make_environment(config, 0, range(4), "cpu")
    outputs, _, actions = file.run(None, {"observations": environment.observe().numpy()})
    best = environment.actions.best(torch.from_numpy(outputs))
    assert isinstance(environment, GymEnvironment)
    wanted = environment.spaces.native(best.numpy())
    if make == "Pictures":
        assert told["outputs"] == "logits of 2 choices" and actions.tolist() == wanted
    elif make == "Mixed":
        assert told["starts"] == [5, 0, 10, 0, 0]
        assert actions.tolist() == [[kind, *levels, *lamps] for kind, levels, lamps in wanted]
    else:
        assert (told["low"], told["high"]) == ([0, 10], [1000, 20])
        assert actions[:, 0].tolist() == pytest.approx(
            [float(each["far"][0]) for each in wanted], rel=1e-5
        )


@pytest.mark.slow
def test_envs_per_rank_play_more_games_on_more_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys: dict[str, Any] = {
        "runner__envs": "auto",
        "runner__envs_per_rank": 3,
        "runner__global_batch": 96,
    }
    for ranks in (1, 2):
        root = tmp_path / str(ranks)
        ended = forks.run(short(root, "Plain", **keys, fabric__devices=ranks), ranks, root / "job")
        assert set(ended.codes) == {0}, ended.err
        assert json.loads((root / "run" / "run.json").read_text())["games"] == 3 * ranks
    assert main(short(tmp_path, "Plain", runner__envs=6, runner__envs_per_rank=3)) == 2
    assert "runner.envs_per_rank: 3: leave out runner.envs" in capsys.readouterr().err


def test_every_row_goes_to_csv_and_tensorboard_where_nothing_else_is_said(tmp_path: Path) -> None:
    assert main(short(tmp_path, "Plain", loggers=["auto"])) == 0
    (table,) = (tmp_path / "run" / "logs.d").glob("csv/version_0/metrics.csv")
    assert len(table.read_text().splitlines()) == 1 + 8
    assert list((tmp_path / "run" / "logs.d").glob("tensorboard/version_0/events.*"))
    assert PpoLoopConfig().loggers == ["auto"]


def test_the_precision_of_fabric_run_is_the_runs_and_another_cannot_resume_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LT_CLI_USED", "LT_PRECISION"):
        monkeypatch.setenv(name, "1")
    for asked, told in (("bf16-mixed", "bf16-mixed"), ("32", "32-true")):
        monkeypatch.setenv("LT_PRECISION", asked)
        parsed = parse(short(tmp_path, "Plain")[1:])
        assert (
            parsed.config.fabric.precision == told and f"precision: {told}" in parsed.resolved_yaml
        )
    assert main(short(tmp_path, "Plain", fabric__precision="bf16-mixed")) == 2
    assert (
        "fabric run was given --precision 32-true: leave one of them out" in capsys.readouterr().err
    )
    monkeypatch.setenv("LT_PRECISION", "64")
    assert main(short(tmp_path, "Plain")) == 2
    assert (
        "fabric.precision: '64-true': 32-true or bf16-mixed for this loop"
        in capsys.readouterr().err
    )


@pytest.mark.slow
def test_a_run_under_fabric_run_tells_its_precision_and_one_in_another_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fabric, program = (
        Path(sys.executable).with_name("fabric"),
        Path(__file__).parents[2] / "bin" / "fit.py",
    )
    words = short(tmp_path, "Plain", runner__total_steps=512, evaluation__episodes=2)
    line = [
        str(fabric),
        "run",
        "--precision=bf16-mixed",
        "--accelerator=cpu",
        "--devices=1",
        str(program),
        *words[1:],
    ]
    job = Job.start(line, tmp_path / "job", {"PYTHONPATH": str(Path(__file__).parents[1])})
    assert job.wait(200) and job.code == 0, job.err
    assert "precision: bf16-mixed" in (tmp_path / "run" / "config.yaml").read_text()
    # as ``fabric run --precision=32-true`` would have it
    for name in ("LT_CLI_USED", "LT_PRECISION"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("LT_PRECISION", "32-true")
    assert main(words) == 2
    assert 'precision: "bf16-mixed" there, "32" now' in capsys.readouterr().err


def test_devices_that_are_no_indices_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(short(tmp_path, "Plain", fabric__devices="cuda:0")) == 2
    assert (
        "fabric.devices: 'cuda:0': a count, a list of indices such as [0, 1], or auto"
        in capsys.readouterr().err
    )


def test_workers_are_refused_where_games_are_many_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for keys, told in (
        ({}, "env.make makes many games at once"),
        ({"env__make": None}, "0 for env.name snake"),
    ):
        assert main(short(tmp_path, "Guess", env__workers=2, **keys)) == 2
        assert told in capsys.readouterr().err


def test_what_the_folder_of_a_stranger_says_cannot_move_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(short(tmp_path, "Plain")) == 0
    commit = tmp_path / "run" / "commit.json"
    kept = json.loads(commit.read_text())
    kept["state"]["update"] = "8\x1b[2J"
    commit.write_text(json.dumps(kept))
    capsys.readouterr()
    assert (
        main(
            [
                "evaluate",
                str(tmp_path / "run"),
                "--make=programs.games:Plain",
                "--episodes=2",
                "--accelerator=cpu",
            ]
        )
        == 0
    )
    assert "8\\x1b[2J" in capsys.readouterr().out
