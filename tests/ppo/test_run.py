"""Whole runs by the command: what they leave, how they go on, what they refuse, and that they
learn."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from conformance import content, differing, read_rows
from PIL import Image
from programs import forks
from programs.snakes import GAMES, arguments, brief
from safetensors.torch import load_file, save_file

from stageb.__main__ import main
from stageb.cli.parsing import parse
from stageb.errors import ConfigError, StagebError
from stageb.ppo.config import AgentConfig, GameConfig, PpoLoopConfig
from stageb.ppo.envs.snake_agent import Agent
from stageb.ppo.play import Replay, draw, play_best
from stageb.ppo.ranks import find_device_kind
from stageb.ppo.schedule import MOST_GAMES, Schedule, fit_games

LAST = GAMES * 4 * 24  # steps of a small run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small run, with all that it can leave."""
    root = tmp_path_factory.mktemp("finished")
    assert main(arguments(root, curves=True)) == 0
    return root / "run"


@pytest.fixture(scope="module")
def replay() -> Replay:
    """A game of an agent that has learnt nothing."""
    return play_best(
        Agent(AgentConfig(4, 1, 16), 5, 0), PpoLoopConfig(game=GameConfig(size=5)), 0, 8
    )


@pytest.mark.slow
def test_a_run_leaves_rows_that_add_up(finished: Path) -> None:
    rows = read_rows(finished)
    assert [row["update"] for row in rows] == list(range(1, 25))
    assert rows[-1]["steps"] == LAST
    assert {
        "score",
        "fill",
        "win_rate",
        "length",
        "policy_loss",
        "approx_kl",
        "clip_frac",
        "entropy",
    } <= rows[0].keys()
    assert [row["update"] for row in rows if row["eval/games"]] == [12, 24]
    assert [row["ddp/replica_divergence"] for row in rows if row["update"] in (8, 16, 24)] == [
        0,
        0,
        0,
    ]
    assert not any("time" in name for row in rows for name in row)
    assert {"time/global_fps", "time/sps"} <= read_rows(finished, "timings.jsonl")[0].keys()
    assert rows[0]["learning_rate"] == 0.0005
    assert rows[-1]["learning_rate"] == pytest.approx(
        0.0005 + (0.00005 - 0.0005) * 23 / 24, rel=1e-3
    )


def test_a_run_leaves_curves(finished: Path) -> None:
    with Image.open(finished / "curves.png") as picture:
        assert picture.size == (1200, 650)


def test_a_checkpoint_is_plain(finished: Path) -> None:
    [path] = finished.glob("checkpoint-*.pt")
    checkpoint = torch.load(path, weights_only=True)
    Agent(AgentConfig(4, 1, 16), 5, 0).load_state_dict(checkpoint["agent"], strict=True)
    assert checkpoint["games"]["grids"].shape == (GAMES, 25)


@pytest.mark.slow
@pytest.mark.parametrize("parts", ["weights", "moments"])
def test_a_run_whose_ranks_part_ends_before_its_next_commit_and_goes_on_from_the_last(
    tmp_path: Path, parts: str
) -> None:
    """By the last bit of one number, after 7 updates; commits are after 4, 8 and 12, other
    comparisons after 5 and 10."""
    keys = {
        "loop": "parting",
        "runner__commit_every": 4,
        "runner__divergence_every": 5,
        "parts": parts,
        "parts_on": 1,
    }
    parted, resumed = (
        forks.run(brief(tmp_path, 2, **keys), 2, tmp_path / job) for job in ("parted", "resumed")
    )
    assert parted.codes == (1, 1), parted.err
    assert (
        f"update 8: rank 1 diverged from rank 0 in {parts}; the last commit is intact"
        in parted.err.splitlines()[-1]
    )
    assert resumed.codes == (0, 0), resumed.err
    assert "resuming after 4 of 12 updates" in resumed.err


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler")
def test_a_compiled_run_learns_what_a_plain_one_does_and_goes_on_to_the_very_bytes(
    tmp_path: Path,
) -> None:
    whole, broken, plain = (tmp_path / name for name in ("whole", "broken", "plain"))
    undisturbed = forks.Forks(brief(whole, runner__compile=True), 1, whole / "job").wait(400)
    assert undisturbed.codes == (0,), undisturbed.err
    line = brief(broken, runner__compile=True)
    killed = forks.killed_after_a_commit(
        line, 1, broken / "killed", broken / "run" / "commit.json", 400
    )
    assert killed.codes == (137,), killed.err
    resumed = forks.Forks(line, 1, broken / "resumed").wait(400)
    assert resumed.codes == (0,), resumed.err
    assert "resuming after" in resumed.err
    assert differing(content(broken / "run"), content(whole / "run")) == []
    assert forks.run(brief(plain), 1, plain / "job").codes == (0,)
    first, wanted = read_rows(whole / "run")[0], read_rows(plain / "run")[0]
    for name in ("games", "score", "entropy", "value_loss", "grad_norm"):
        if wanted[name] is None:  # no game has ended
            assert first[name] is None
        else:
            assert first[name] == pytest.approx(wanted[name], rel=1e-3, abs=1e-5)


@pytest.mark.slow
def test_auto_plays_as_many_games_as_memory_holds_and_goes_on_with_as_many(tmp_path: Path) -> None:
    cut = {
        "runner__rollout_steps": 8,
        "runner__global_batch": 1024,
        "runner__total_steps": 256 * 8 * 8,
    }
    for world_size, kill, says in ((2, 60, "of 256 games on 2 ranks"), (3, None, "resuming after")):
        line = arguments(tmp_path, world_size, runner__envs="auto", **cut)
        ended = forks.run(line, world_size, tmp_path / f"job-{world_size}", kill_before=kill)
        assert ended.codes[0] == (137 if kill else 0) and says in ended.err, ended.err
        said = json.loads((tmp_path / "run" / "run.json").read_text())
        assert (said["games"], said["per_rank_num_envs"]) == (256, -(-256 // world_size))


@pytest.mark.parametrize("name", ["5x5", "6x6", "12x12"])
@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 6, 8])
def test_configs_that_ship_learn_alike_on_any_number_of_ranks(name: str, world_size: int) -> None:
    config: PpoLoopConfig = parse(["--config", f"configs/snake/{name}.yaml"]).config
    for kind, most in MOST_GAMES.items():
        games = fit_games(1 << 40, config.runner, kind, config.game.cells)
        batch = config.runner.global_batch
        assert (
            batch
            and games
            == {"cpu": max(most, batch // config.runner.rollout_steps), "cuda": batch}[kind]
        )
        schedule, alone = (Schedule.of(config, size, games) for size in (world_size, 1))
        assert replace(schedule, world_size=1) == alone
        shares = [schedule.share(rank) for rank in range(world_size)]
        assert [number for share in shares for number in share] == list(range(games))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
        assert sum(map(schedule.weight, range(world_size))) == pytest.approx(world_size)


def test_without_keys_a_rollout_is_learnt_from_in_many_small_steps() -> None:
    """Of games that are stepped one by one, too: their steps are dear."""
    config = PpoLoopConfig()
    assert [fit_games(1 << 40, config.runner, "cpu", 4, single) for single in (True, False)] == [
        16,
        256,
    ]
    for games, minibatches in ((16, 8), (256, 8), (16_384, 64)):
        schedule = Schedule.of(config, 1, games)
        assert (schedule.minibatches, schedule.batch(0)) == (minibatches, games * 64 // minibatches)
        assert schedule.batch(0) <= 16_384
    short = replace(config, runner=replace(config.runner, rollout_steps=6))
    # as many as there are, each of a step of every game
    assert Schedule.of(short, 1, 16).minibatches == 6


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"game__size": 3}, "game.size: 3: 4 to 30"),
        ({"game__patience": 0}, "game.patience: 0: 1 to 30000 steps, or null"),
        ({"runner__envs": "many"}, "runner.envs: 'many': a number of environments, or auto"),
        (
            {"runner__global_batch": 36},
            "= 96: give that divided by a divisor of runner.rollout_steps, such as 48",
        ),
        (
            {"runner__total_steps": 95},
            "runner.total_steps: 95: at least 96, the steps of one update",
        ),
        ({"ppo__gamma": 1.5}, "ppo.gamma: 1.5: 0 to 1"),
        ({"fabric__accelerator": "mps"}, "fabric.accelerator: 'mps': cpu or cuda for this loop"),
        (
            {"fabric__precision": "16-mixed"},
            "fabric.precision: '16-mixed': 32-true or bf16-mixed for this loop, or null",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], keys: dict[str, Any], told: str
) -> None:
    assert main(arguments(tmp_path, **keys)) == 2
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_device_that_auto_found_and_the_loop_cannot_use_is_refused() -> None:
    assert [find_device_kind(device) for device in ("cpu", "cuda:1")] == ["cpu", "cuda"]
    with pytest.raises(ConfigError, match=r"fabric\.accelerator: 'mps': cpu or cuda"):
        find_device_kind("mps:0")


# Evaluating and playing


def test_evaluate_says_how_good_a_run_is_and_the_same_on_two_ranks(
    finished: Path, tmp_path: Path
) -> None:
    line = ["evaluate", str(finished), "--episodes", "33", "--accelerator", "cpu", "--devices"]
    before = content(finished)
    one, two = (
        forks.run([*line, str(count)], count, tmp_path / str(count)).out for count in (1, 2)
    )
    assert one == two
    assert re.search("best agent, of update (12|24) of 24", one)
    assert "games       33 with the most probable actions" in one
    shares = [
        float(re.search(rf"^{end} +([0-9.]+)%", one, re.M)[1])  # type: ignore[index]
        for end in ("win_rate", "death_rate", "cut_rate")
    ]
    assert sum(shares) == pytest.approx(100, abs=0.2)
    assert differing(content(finished), before) == []


def test_play_shows_a_game_and_writes_it_as_a_picture_that_moves(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "game.gif"
    assert main(["play", str(finished), "--best-of", "5", "--out", str(place)]) == 0
    said = capsys.readouterr().out
    assert "┌───────────┐" in said
    assert "of 22 foods in" in said
    assert str(place) in said
    with Image.open(place) as film:
        assert film.n_frames > 2  # type: ignore[attr-defined]
        assert min(film.size) >= 320  # pixels: large enough to be looked at
    assert main(["evaluate", str(finished), "--cycle"]) == 2
    assert "game.size: 5: an even side for --cycle" in capsys.readouterr().err


def test_a_picture_that_moves_shows_every_board(replay: Replay, tmp_path: Path) -> None:
    place = tmp_path / "game.gif"
    assert draw(replay, place)[0] == place
    with Image.open(place) as film:
        for number, frame in enumerate(replay.frames):
            film.seek(number)
            assert film.convert("RGB").tobytes() == frame.draw().convert("RGB").tobytes()
        assert film.n_frames == len(replay.frames)  # type: ignore[attr-defined]
    assert place.stat().st_size < 1200 * len(replay.frames)


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="there is no ffmpeg")
def test_a_film_is_written_where_ffmpeg_is(
    replay: Replay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gif, film = draw(replay, tmp_path / "game.gif")
    assert film == gif.with_suffix(".mp4")
    assert film.read_bytes()[4:8] == b"ftyp"
    (tmp_path / "ffmpeg").write_text("#!/bin/sh\necho no such codec >&2\nexit 1\n")
    (tmp_path / "ffmpeg").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(StagebError, match=r"no MP4 \(the GIF is written\): no such codec"):
        draw(replay, tmp_path / "other.gif")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "ffmpeg",
        "game.gif",
        "game.mp4",
        "other.gif",
    ]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["play"], "no run was named"),
        (["play", "--"], "no run was named"),
        (["play", "nowhere"], "nowhere: no run lies there"),
        (["play", "--", "-nowhere"], "-nowhere: no run lies there"),
        (["evaluate", "--", "young", "--episodes", "0"], "--episodes: 0: 1 to 1000000"),
        (
            ["play", "guided"],
            "stageb play: there is none for runs of loop guidance; there is one for: growth, ppo",
        ),
        (["play", "young"], "young: its run has committed no agent yet"),
        (["evaluate", "young", "--episodes", "0"], "--episodes: 0: 1 to 1000000"),
        (
            ["evaluate", "young", "--episodes", "999999999999"],
            "--episodes: 999999999999: 1 to 1000000",
        ),
        (["play", "young", "--best-of", "0"], "--best-of: 0: 1 to 10000"),
        (["play", "young", "--best-of", "999999999999"], "--best-of: 999999999999: 1 to 10000"),
    ],
)
def test_what_cannot_be_played_or_evaluated_is_told(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    line: list[str],
    told: str,
) -> None:
    for name, config in (("guided", {"tickets": ["a"]}), ("young", {"loop": "ppo"})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(yaml.safe_dump(config))
    monkeypatch.chdir(tmp_path)
    assert main(line) == 2
    assert told in capsys.readouterr().err


def test_weights_of_another_network_are_refused(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.yaml").write_text(
        (finished / "config.yaml").read_text().replace("channels: 4", "channels: 5")
    )
    shutil.copy(finished / "commit.json", other)
    shutil.copytree(finished / "weights", other / "weights")
    assert main(["play", str(other)]) == 2
    assert "not the weights of the agent that config.yaml tells of" in capsys.readouterr().err


def test_weights_that_are_no_numbers_are_refused(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bent = Path(shutil.copytree(finished, tmp_path / "bent"))
    (path,) = (bent / "weights").glob("*.safetensors")
    weights = load_file(path)
    name = next(iter(weights))
    save_file({**weights, name: torch.full_like(weights[name], torch.nan)}, path)
    assert main(["evaluate", str(bent), "--episodes", "2", "--accelerator", "cpu"]) == 2
    assert (
        f"not the weights of the agent that config.yaml tells of: {name} holds NaN"
        in capsys.readouterr().err
    )


# Learning


@pytest.mark.slow
def test_it_learns(tmp_path: Path) -> None:
    """The first seventh of what configs/snake/5x5.yaml plays, some seconds."""
    torch.set_num_threads(1)
    line = [
        "fit",
        "--config=configs/snake/5x5.yaml",
        "--runner.total_steps=150_000",
        f"--output.root={tmp_path}",
    ]
    alone = ["--fabric.devices=1", "--runner.envs=256"]
    assert main([*line, *alone, "--curves=false"]) == 0
    rows = read_rows(tmp_path / "snake-5x5")
    first, last = rows[0]["score"], rows[-1]["score"]
    assert first < 4  # though no move of its own kills it while another does not
    assert last > 8
    assert rows[-1]["eval/score"] > 6
