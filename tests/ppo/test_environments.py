"""Environments that are not the loop's own: Gymnasium's by name, and a user's."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import subprocess
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from conformance import check_equal_bytes, check_stopped_after_any_commit, content
from PIL import Image
from programs import forks
from safetensors.torch import load_file

from stageb.__main__ import main
from stageb.cli.parsing import parse_run
from stageb.ppo.config import AgentConfig, EnvConfig, PpoLoopConfig
from stageb.ppo.environment import mask
from stageb.ppo.export import ExportedAgent, ExportError, compare
from stageb.ppo.learner import make_batch
from stageb.ppo.make import make_agent, make_environment
from stageb.ppo.rollout import Player
from stageb.ppo.run import PpoRun, UpdateResult
from stageb.ppo.stored import load_agent
from stageb.runs.folder import RunFolder

SMALL = {
    "agent.hidden": 16,
    "agent.normalize": True,
    "env.normalize_rewards": True,
    "runner.envs": 6,
    "runner.rollout_steps": 16,
    "runner.global_batch": 48,
    "runner.total_steps": 6 * 16 * 8,
    "runner.commit_every": 2,
    "evaluation.every": 3,
    "evaluation.episodes": 5,
    "curves": False,
    "loggers": [],
    "fabric.accelerator": "cpu",
}


def line(root: Path, ranks: int = 1, **keys: Any) -> list[str]:
    """What follows ``stageb`` on the command line of a small run."""
    named = {name.replace("__", "."): value for name, value in keys.items()}
    given = {**SMALL, "output.root": str(root), "fabric.devices": ranks, **named}
    texts = {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items()
    }
    return ["fit", "--loop=ppo", *(f"--{key}={text}" for key, text in texts.items())]


def last_row(root: Path) -> dict[str, Any]:
    row: dict[str, Any] = json.loads((root / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    return row


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ranks", "units"),
    [("CartPole-v1", 1, 0), ("CartPole-v1", 2, 4), ("2048", 2, 0), ("2048", 1, 4)],
)
def test_a_killed_run_goes_on_to_the_very_bytes(
    tmp_path: Path, name: str, ranks: int, units: int
) -> None:
    """What it remembers of games, which outlast commits, included."""

    def line_of(part: str, size: int) -> list[str]:
        return line(tmp_path / part, size, env__name=name, agent__recurrent=units)

    kills = [(0.5, ranks, ranks)]
    whole, resumed = check_equal_bytes(
        tmp_path, line_of, lambda part: content(tmp_path / part / "run"), (ranks,), kills
    )
    told = (
        "DDP wraps the policy, whose parameters are equal on all ranks; rank 0 plays games 0 "
        "to 2, rank 1 plays games 3 to 5"
    )
    assert (told in whole.err) == (ranks == 2)
    assert "resuming after" in resumed.err
    if units:
        games = torch.load(next(tmp_path.glob("*/run/checkpoint-*.pt")), weights_only=True)["games"]
        assert bool((games["memory"] != 0).any()) and bool((games["returns"] != 0).any())


@pytest.mark.slow
def test_a_run_offers_the_agent_of_its_best_evaluation_and_goes_on_from_its_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rates that do not fall make a shorter run the beginning of a longer one; one as high forgets
    what it has learnt."""
    keys: dict[str, Any] = {
        "env__name": "CartPole-v1",
        "ppo__learning_rate": 0.05,
        "ppo__learning_rate_end": 0.05,
    }
    keys |= {"ppo__entropy_weight_end": 0.01, "runner__commit_every": 3, "evaluation__every": 1}
    for seed in range(8):  # which of them forget hangs on the processor
        keys["seed"], root = seed, tmp_path / f"whole {seed}"
        assert main(line(root, **keys)) == 0
        said, whole = capsys.readouterr().err.splitlines()[-1], root / "run"
        found = [
            json.loads(row)["eval/return"]
            for row in (whole / "metrics.jsonl").read_text().splitlines()
        ]
        best = max(range(8), key=lambda update: (found[update], update)) + 1
        if best < 8:
            break
    assert best < 8
    assert said.startswith(f"best agent, of update {best} of 8, after {96 * best} steps, ")
    assert f"return {max(found):.2f}" in said
    keys["runner__total_steps"] = 6 * 16 * best
    assert main(line(tmp_path / "part", **keys)) == 0
    (offered,), (last,) = (
        whole.glob("weights/*"),
        (tmp_path / "part" / "run").glob("checkpoint-*.pt"),
    )
    weights = torch.load(last, weights_only=True)["agent"]
    assert all(torch.equal(each, weights[name]) for name, each in load_file(offered).items())
    del keys["runner__total_steps"]
    # what it found before it went on is still the best
    assert main(line(tmp_path / "part", **keys)) == 0
    assert next((tmp_path / "part" / "run").glob("weights/*")).read_bytes() == offered.read_bytes()
    capsys.readouterr()
    assert main(["evaluate", str(whole), "--episodes", "2", "--accelerator", "cpu"]) == 0
    assert f"run, best agent, of update {best} of 8" in capsys.readouterr().out
    card = tmp_path / "card.md"
    assert (
        main(["evaluate", str(whole), "--episodes=10", "--accelerator=cpu", f"--card={card}"]) == 0
    )
    table = capsys.readouterr().out.splitlines()[1:-1]
    said = card.read_text()
    assert (
        f"Plays `CartPole-v1`, learnt by PPO: `VectorAgent`, 755 parameters; best agent, of "
        f"update {best} of 8." in said
    )
    assert "\n".join(table) in said and (whole / "config.yaml").read_text() in said
    # a build of PyPI calls itself 2.13.0+cu130, its package 2.13.0
    assert f"torch {version('torch')}" in said
    assert (
        main(["evaluate", str(whole), "--accelerator=cpu", f"--card={whole / 'config.yaml'}"]) == 2
    )


@pytest.mark.slow
def test_a_finished_run_goes_on_where_more_steps_are_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """To the weights of one that had them from the start, where rates do not fall."""
    keys: dict[str, Any] = {
        "env__name": "2048",
        "ppo__learning_rate_end": 0.0005,
        "ppo__entropy_weight_end": 0.01,
    }
    for root, steps in (("whole", 768), ("part", 384), ("part", 768)):
        assert (
            main(line(tmp_path / root, **keys, evaluation__every=2, runner__total_steps=steps)) == 0
        )
    assert "resuming after 4 of 8 updates" in capsys.readouterr().err
    whole, part = (
        next(tmp_path.glob(f"{root}/run/weights/*")).read_bytes() for root in ("whole", "part")
    )
    assert whole == part and last_row(tmp_path / "whole") == last_row(tmp_path / "part")
    assert "total_steps: 768" in (tmp_path / "part/run/config.yaml").read_text()
    assert main(line(tmp_path / "part", **keys, evaluation__every=2, runner__total_steps=384)) == 2
    assert "higher values are allowed for runner.total_steps" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["CartPole-v1", "2048", "snake"])
def test_episodes_are_the_same_however_they_are_dealt(name: str) -> None:
    parts = [range(6), range(2), range(2, 6)]
    config = PpoLoopConfig(env=EnvConfig(name=name))
    whole, *halves = (make_environment(config, 7, numbers, "cpu") for numbers in parts)
    ended = 0
    for turn in range(400):
        chances = torch.rand(
            (6, 2 if name == "CartPole-v1" else 4), generator=torch.Generator().manual_seed(turn)
        )
        masks = whole.masks()
        actions = (chances if masks is None else chances * masks).argmax(1)
        outcome = whole.step(actions)
        found = [
            half.step(actions[part.start : part.stop])
            for half, part in zip(halves, parts[1:], strict=True)
        ]
        assert torch.equal(outcome.rewards, torch.cat([each.rewards for each in found]))
        assert torch.equal(whole.observe(), torch.cat([half.observe() for half in halves]))
        for environment, each in zip((whole, *halves), (outcome, *found), strict=True):
            environment.restart(each.terminated | each.truncated)
        ended += int(outcome.terminated.sum())
    assert ended > 10
    assert len({tuple(row) for row in whole.observe().flatten(1).tolist()}) == 6


@pytest.mark.parametrize("name", ["snake", "2048"])
def test_no_step_of_those_that_a_gpu_records_waits_for_the_device(name: str) -> None:
    # what asks a tensor fails there
    games = make_environment(PpoLoopConfig(env=EnvConfig(name=name)), 7, range(4), "meta")
    assert games.recordable
    for _ in range(2):
        seen, masks = games.observe(), games.masks()
        outcome = games.step(torch.zeros(4, dtype=torch.int64, device="meta"))
        games.restart(outcome.terminated | outcome.truncated)
        for each in (seen, *([] if masks is None else [masks]), *outcome.measures, outcome.rewards):
            assert each.device.type == "meta" and len(each) == 4


@pytest.mark.slow
def test_what_only_a_mask_tells_is_played_without_a_fault_and_without_it_never_learnt(
    tmp_path: Path,
) -> None:
    for told, wanted in ((True, 8.0), (False, 2.0)):
        options: dict[str, Any] = {
            "env__make": "programs.toys:Doors",
            "env__options": {"told": told},
            "evaluation__episodes": 64,
        }
        assert main(line(tmp_path / str(told), **options)) == 0
        row = last_row(tmp_path / str(told))
        assert row["eval/return"] == wanted if told else row["eval/return"] < wanted
        # of what is learnt from: one door is no choice
        assert row["entropy"] == 0 if told else row["entropy"] > 1


REMEMBERS: dict[str, Any] = {
    "env__make": "programs.toys:Cue",
    "agent__recurrent": 16,
    "runner__envs": 32,
    "runner__global_batch": 256,
    "ppo__learning_rate": 0.01,
    "runner__total_steps": 15_000,
    "runner__commit_every": 99,
    "evaluation__every": 0,
    "evaluation__episodes": 64,
}


@pytest.mark.slow
def test_what_was_seen_at_first_is_remembered_to_the_last_and_without_a_memory_never(
    tmp_path: Path,
) -> None:
    for units in (16, 0):
        assert main(line(tmp_path / str(units), **REMEMBERS | {"agent__recurrent": units})) == 0
        row = last_row(tmp_path / str(units))
        assert row["eval/return"] == 1.0 if units else row["eval/return"] < 0.8
        words = [
            "evaluate",
            str(tmp_path / str(units) / "run"),
            "--make",
            "programs.toys:Cue",
            "--accelerator",
            "cpu",
        ]
        assert main([*words, "--episodes", "50"]) == 0


@pytest.mark.slow
def test_an_agent_with_a_memory_learns_alike_on_two_ranks(tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "env__name": "CartPole-v1",
        "agent__recurrent": 4,
        "runner__commit_every": 99,
    }
    for ranks in (1, 2):
        ended = forks.run(
            line(tmp_path / str(ranks), ranks, **keys), ranks, tmp_path / f"job-{ranks}"
        )
        assert set(ended.codes) == {0}, ended.err
    one, two = (load_file(next(tmp_path.glob(f"{ranks}/run/weights/*"))) for ranks in (1, 2))
    assert all(torch.allclose(each, two[name], rtol=1e-4, atol=1e-4) for name, each in one.items())


def test_sequences_are_learnt_from_as_they_were_played() -> None:
    """A game of 8 steps is truncated, and the next one begins amid a sequence of 6."""
    env = EnvConfig(make="programs.toys:Cue", options={"cut": True})
    config = PpoLoopConfig(env=env, agent=AgentConfig(recurrent=3, hidden=8))
    environment = make_environment(config, 0, range(5), "cpu")
    agent = make_agent(config, environment)
    player = Player(agent, environment, 12, range(5), 0, contextlib.nullcontext)
    for turn in range(2):
        memory = player.memory.clone()
        rollout, _ = player.play(12 * turn)
        assert rollout.truncated.sum() == 5 * (1 + (turn > 0))
        for step, cut in enumerate(rollout.truncated):
            assert torch.equal(cut, cut[:1].expand(5))
            _, values, memory = agent.advance(rollout.observations[step], memory)
            assert torch.allclose(values, rollout.values[step], atol=1e-6)
            shown = (
                player.buffers["finals"][step]
                if step == 11 or cut[0]
                else rollout.observations[step + 1]
            )
            assert torch.allclose(
                agent.advance(shown, memory)[1], rollout.next_values[step], atol=1e-6
            )
            memory = memory.masked_fill(cut[:, None], 0.0)
        batch = make_batch(rollout, rollout.rewards, rollout.values, 2)
        log_probs, _, values = agent(*batch.inputs)
        assert batch.returns.shape == (2 * 5, 6)
        assert torch.allclose(values, batch.returns, atol=1e-6) and torch.allclose(
            log_probs, batch.log_probs, atol=1e-5
        )


@pytest.mark.parametrize(("name", "units"), [("snake", 0), ("2048", 4), ("CartPole-v1", 0)])
def test_the_agent_answers_the_same_as_onnx(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, units: int
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    keys: dict[str, Any] = {
        "env__name": name,
        "agent__recurrent": units,
        "game__size": 6,
        "evaluation__every": 0,
    }
    assert main(line(tmp_path, **keys)) == 0
    place = tmp_path / "agent.onnx"
    assert main(["export", str(tmp_path / "run"), "--to", str(place)]) == 0
    said = capsys.readouterr().out
    assert "best agent, of update 8 of 8" in said and "answers are those of the agent to" in said
    file, config = runtime.InferenceSession(place), parse_run(tmp_path / "run").config
    environment, agent = (
        make_environment(config, 3, range(3), "cpu"),
        load_agent(tmp_path / "run", config).agent,
    )
    names, memory, masks = (
        [each.name for each in file.get_inputs()],
        torch.rand((3, units)),
        environment.masks(),
    )
    assert names == ["observations", *["memory"] * bool(units), *["masks"] * (masks is not None)]
    inputs = {"observations": environment.observe(), "memory": memory, "masks": masks}
    *found, actions = file.run(None, {each: inputs[each].numpy() for each in names})  # type: ignore[union-attr]
    wanted = agent.advance(environment.observe(), memory)[: len(found)]
    assert actions.tolist() == agent.actions.best(mask(wanted[0], masks)).tolist()
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(torch.from_numpy(one), other.detach(), atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        next(agent.parameters()).add_(1e-2)
    with pytest.raises(ExportError, match="differ from those of the agent by"):
        compare(ExportedAgent(agent, environment), file, config)


def test_without_its_extra_nothing_is_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(line(tmp_path, env__name="CartPole-v1")) == 0
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "onnxscript" else find(name)
    )
    assert main(["export", str(tmp_path / "run")]) == 2
    assert "stageb export needs the extra onnx, of which " in capsys.readouterr().err
    assert not (tmp_path / "run" / "agent.onnx").exists()


def test_what_is_counted_and_what_was_best_go_on_after_any_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The optimiser skips a step in each update, and the second of three evaluations is as good as
    the first, which learnt less."""
    record, scores = PpoRun.record, (2.0, 2.0, 1.0)

    def make_up(run: PpoRun, update: int, result: UpdateResult, agent: Any) -> None:
        assert result.evaluation
        sums = [scores[update]] * len(result.evaluation.sums)
        evaluation = replace(result.evaluation, games=1, sums=tuple(sums))
        figures = replace(result.figures, skipped=1)
        record(run, update, replace(result, figures=figures, evaluation=evaluation), agent)

    monkeypatch.setattr(PpoRun, "record", make_up)
    keys: dict[str, Any] = {
        "env__name": "CartPole-v1",
        "runner__envs": 2,
        "runner__rollout_steps": 4,
        "runner__total_steps": 24,
        "runner__global_batch": 4,
        "runner__commit_every": 1,
        "evaluation__every": 1,
        "evaluation__episodes": 1,
    }
    check_stopped_after_any_commit(lambda root: line(root, **keys), tmp_path)
    row = RunFolder(tmp_path / "whole" / "run").read_offered()
    assert row["update"] == row["skipped_so_far"] == 2


@pytest.mark.slow
def test_several_seeds_are_a_table_and_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run is what its seed alone makes of it, and a second call shows those that are there."""
    monkeypatch.setattr(subprocess, "call", lambda words: main(words[3:]))
    keys: dict[str, Any] = {
        "env__name": "CartPole-v1",
        "ppo__learning_rate": 0.05,
        "evaluation__every": 1,
    }
    words = [*line(tmp_path, seed=3, **keys), "--seeds", "2"]
    assert main(words) == 0
    said = capsys.readouterr().out
    found = [
        (tmp_path / f"run-{seed}" / "metrics.jsonl").read_text().splitlines() for seed in (3, 4)
    ]
    best = [
        max(map(json.loads, rows), key=lambda row: (row["eval/return"], row["update"]))
        for rows in found
    ]
    assert [row["update"] for row in best] != [8, 8] and best[0]["eval/return"] != best[1][
        "eval/return"
    ]
    for column, name, style in (("eval/return", "return", ".4g"), ("steps", "after steps", ",.0f")):
        values = [row[column] for row in best]
        figures = (np.mean(values), np.std(values, ddof=1), min(values), max(values))
        assert re.search(
            rf"^{name} +" + " +".join(format(each, style) for each in figures) + "$", said, re.M
        ), said
    ended = [json.loads(rows[-1])["eval/return"] for rows in found]
    figures = (np.mean(ended), np.std(ended, ddof=1), min(ended), max(ended))
    assert re.search(
        "^return at the end +" + " +".join(format(each, ".4g") for each in figures) + "$",
        said,
        re.M,
    ), said
    with Image.open(tmp_path / "run-seeds.png") as picture:
        assert picture.size == (1200, 325)
    assert main(line(tmp_path / "alone", seed=4, **keys)) == 0
    assert last_row(tmp_path / "alone") == json.loads(found[1][-1])
    capsys.readouterr()
    assert main(words) == 0
    assert (shown := capsys.readouterr()).out == said and shown.err.count("already finished") == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["fit", "--loop=ppo", "--seeds=some"], "--seeds: 'some': how many"),
        (
            ["fit", "--loop=guidance", "--tickets=a.jsonl", "--seeds=2"],
            "--seeds: for loops that learn weights",
        ),
        (["validate", "--loop=ppo", "--seeds=2"], "seeds"),
    ],
)
def test_seeds_that_cannot_be_are_refused(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert told in capsys.readouterr().err


@pytest.mark.slow
def test_numbers_are_learnt_to_be_chosen_from_observations_and_rewards_of_any_scale(
    tmp_path: Path,
) -> None:
    keys: dict[str, Any] = {
        "env__make": "programs.toys:Mirror",
        "runner__total_steps": 40_000,
        "runner__envs": 32,
        "ppo__epochs": 4,
    }
    keys |= {
        "runner__global_batch": 256,
        "ppo__learning_rate": 0.003,
        "ppo__gamma": 0.0,
        "runner__commit_every": 99,
    }
    assert main(line(tmp_path, **keys)) == 0
    row = last_row(tmp_path)
    assert row["eval/return"] > -600  # to choose 0 is worth -3,400 a game
    assert row["eval/cut_rate"] == 1
    assert row["value_loss"] < 1  # of rewards that vary by hundreds


def test_an_agent_and_an_environment_of_ones_own_are_named_again_for_a_run_of_somebody_elses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named: dict[str, Any] = {
        "env__make": "programs.toys:Doors",
        "agent__make": "programs.toys:Narrow",
    }
    assert main(line(tmp_path, **named)) == 0
    assert (
        yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["env"]["make"]
        == "programs.toys:Doors"
    )
    words = ["evaluate", str(tmp_path / "run"), "--episodes", "10", "--accelerator", "cpu"]
    capsys.readouterr()
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "--make programs.toys:Doors --agent programs.toys:Narrow" in said
    again = ["--make", "programs.toys:Doors", "--agent", "programs.toys:Narrow"]
    assert main([*words, *again]) == 0
    assert "return      8.00 +- 0.00, quarters 8, 8, 8; 8 to 8" in capsys.readouterr().out
    for given, told in (([], " ".join(again)), (again, "cannot be looked at")):
        assert main(["play", str(tmp_path / "run"), *given]) == 2
        assert told in capsys.readouterr().err


@pytest.mark.slow
def test_play_shows_a_game_of_any_environment_that_can_be_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, key, value in (
        ("2048", "env__name", "2048"),
        ("shown", "env__make", "programs.toys:Shown"),
    ):
        assert main(line(tmp_path / name, 1, **{key: value}, evaluation__every=0)) == 0
    capsys.readouterr()
    assert main(["play", str(tmp_path / "2048" / "run"), "--best-of", "4"]) == 0
    *board, told, place = capsys.readouterr().out.splitlines()[1:]
    tiles = [[0 if tile == "·" else int(tile) for tile in row.split()] for row in board]
    score, highest, _, moves = (float(each.split()[1].rstrip("%")) for each in told.split(", "))
    assert np.shape(tiles) == (4, 4) and np.max(tiles) == highest and score > 0
    with Image.open(place) as film:
        assert film.n_frames == moves + 1  # type: ignore[attr-defined]
    assert main(["play", str(tmp_path / "shown" / "run"), "--make", "programs.toys:Shown"]) == 0
    _, told, place = capsys.readouterr().out.splitlines()
    assert told == "return 8.00, cut_rate 100.0%, length 8.00"
    with Image.open(place) as film:
        assert film.size == (48, 32) and film.n_frames == 9  # type: ignore[attr-defined]
        for turn in range(9):
            film.seek(turn)
            assert film.convert("RGB").getpixel((0, 0)) == (30 * turn,) * 3


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"env__name": "CartPole-v99"}, "env.name: 'CartPole-v99': "),
        ({"env__name": "os:CartPole-v1"}, "name code of your own in env.make"),
        (
            {"env__name": "CartPole-v1", "env__options": {"sutton_barto_reward": [1]}},
            "env.options: ",
        ),
        ({"env__name": "CartPole-v1", "env__options": {"wheels": 4}}, "env.name: 'CartPole-v1': "),
        (
            {"env__name": "snake", "env__options": {"size": 5}},
            "env.options: {'size': 5}: none for env.name snake",
        ),
        ({"env__name": "snake", "agent__recurrent": 8}, "agent.recurrent: 8: 0 for Snake"),
        (
            {"env__name": "2048", "env__options": {"size": 5}},
            "env.options: {'size': 5}: none for env.name 2048",
        ),
        ({"env__make": "programs.toys:Pictures"}, "the observation does not fit Dict("),
        (
            {"env__make": "programs.toys:Listed"},
            "action_mask has 3 numbers; give 0 or 1 for each of 4 choices (tests/programs/toys.py:",
        ),
        ({"env__make": "programs.toys:Nothing"}, "env.make: 'programs.toys:Nothing': "),
        (
            {"env__name": "CartPole-v1", "agent__make": "programs.toys:Doors"},
            "agent.make: 'programs.toys:Doors': ",
        ),
    ],
)
def test_what_cannot_be_played_is_told_with_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], keys: dict[str, Any], told: str
) -> None:
    assert main(line(tmp_path, **keys)) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_guides_environment_is_learnt_and_a_killed_run_of_it_goes_on_to_the_very_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "docs" / "examples"))
    keys: dict[str, Any] = {
        "env__make": "own_environment:Catch",
        "runner__envs": 64,
        "runner__global_batch": 256,
    }
    keys |= {
        "runner__total_steps": 40_000,
        "runner__commit_every": 8,
        "ppo__learning_rate": 0.003,
        "agent__hidden": 32,
    }
    keys |= {"env__normalize_rewards": False, "evaluation__episodes": 100}

    def line_of(part: str, size: int) -> list[str]:
        return line(tmp_path / part, size, **keys)

    check_equal_bytes(
        tmp_path, line_of, lambda part: content(tmp_path / part / "run"), (1,), [(0.5, 1, 1)]
    )
    assert last_row(tmp_path / "1")["eval/catch_rate"] > 0.95
