"""What only GPUs show: a step of the optimiser that was recorded is the step itself, on one rank
and on several."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch
from conformance import content, differing
from programs import forks
from programs.snakes import GAMES, arguments, brief
from torch import Tensor

from stageb.job.placement import Fabric
from stageb.job.world import World
from stageb.ppo.config import AgentConfig, GameConfig, PpoLoopConfig, PpoRunnerConfig
from stageb.ppo.learner import make_batch
from stageb.ppo.ranks import Ranks
from stageb.ppo.schedule import Schedule

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
GPUS = torch.cuda.device_count()
SIZES = [size for size in (1, 2, 4) if size <= max(1, GPUS)]


def on_gpus(
    root: Path, world_size: int, job: Path, kill_before: int | None = None, **keys: object
) -> forks.Ended:
    line = brief(root, world_size, fabric__accelerator="cuda", **keys)
    return forks.run(line, world_size, job, kill_before)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_recorded_step_is_the_step_itself(precision: Literal["32-true", "bf16-mixed"]) -> None:
    config = PpoLoopConfig(
        game=GameConfig(size=5),
        agent=AgentConfig(channels=4, blocks=1, hidden=16),
        runner=PpoRunnerConfig(rollout_steps=8, global_batch=GAMES * 2, envs=GAMES),
    )
    world = World(Fabric(accelerator="cuda", devices=1, precision=precision))

    def taken(recorded: bool) -> tuple[Tensor, Tensor]:
        ranks = Ranks(config, Schedule.of(config, 1, GAMES), world)
        ranks.take_up(None)
        ranks.step.set_hyperparameters(learning_rate=0.01, entropy_weight=0.01)
        assert ranks.step.uses_graphs
        ranks.step.uses_graphs = recorded
        rollout, losses = ranks.roll_out(0), []
        whole = make_batch(rollout, rollout.rewards, rollout.values)
        for number, batch in enumerate(
            ranks.learner._minibatches(whole, len(rollout.rewards), (0, 0))
        ):
            spoilt = replace(batch, returns=batch.returns * torch.nan) if number == 2 else batch
            losses.append(ranks.step.take(spoilt))
        weights = torch.cat([each.detach().flatten() for each in ranks.agent.parameters()])
        return weights, torch.stack(losses)

    (weights, losses), (plain_weights, plain_losses) = taken(True), taken(False)
    assert torch.isfinite(weights).all()
    assert losses[:, -1].isfinite().tolist() == [True, True, False, True]
    assert torch.allclose(weights, plain_weights, atol=1e-6)
    assert torch.allclose(losses, plain_losses, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("world_size", SIZES)
def test_a_killed_run_goes_on_to_the_very_bytes(tmp_path: Path, world_size: int) -> None:
    whole = on_gpus(tmp_path / "whole", world_size, tmp_path / "job")
    assert set(whole.codes) == {0}, whole.err
    root = tmp_path / "broken"
    killed = on_gpus(root, world_size, root / "killed", len(whole.operations[0]) // 2)
    assert killed.codes[0] == 137
    resumed = on_gpus(root, world_size, root / "resumed")
    assert set(resumed.codes) == {0}, resumed.err
    assert "resuming after" in resumed.err
    assert differing(content(root / "run"), content(tmp_path / "whole" / "run")) == []


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("world_size", SIZES[:2])
def test_a_compiled_run_goes_on_to_the_very_bytes(tmp_path: Path, world_size: int) -> None:
    keys = {"fabric__accelerator": "cuda", "runner__compile": True}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    undisturbed = forks.Forks(brief(whole, world_size, **keys), world_size, whole / "job").wait(400)
    assert set(undisturbed.codes) == {0}, undisturbed.err
    line = brief(broken, world_size, **keys)
    killed = forks.killed_after_a_commit(
        line, world_size, broken / "killed", broken / "run" / "commit.json", 400
    )
    assert killed.codes[0] == 137, killed.err
    resumed = forks.Forks(line, world_size, broken / "resumed").wait(400)
    assert set(resumed.codes) == {0}, resumed.err
    assert "resuming after" in resumed.err
    assert differing(content(broken / "run"), content(whole / "run")) == []


@pytest.mark.skipif(GPUS < 2, reason="there is no second GPU")
def test_a_last_bit_of_a_moment_ends_the_run(tmp_path: Path) -> None:
    keys = {
        "fabric__accelerator": "cuda",
        "parts": "moments",
        "parts_on": 1,
        "runner__commit_every": 4,
    }
    ended = forks.run(brief(tmp_path, 2, "parting", **keys), 2, tmp_path / "job")
    assert ended.codes == (1, 1), ended.err
    assert (
        "update 8: rank 1 diverged from rank 0 in moments; the last commit is intact"
        in ended.err.splitlines()[-1]
    )


@pytest.mark.skipif(GPUS < 2, reason="there is no second GPU")
def test_the_gradient_of_several_ranks_is_that_of_one_on_all_their_batches(tmp_path: Path) -> None:
    """Adam's first mean is a tenth of the first gradient."""
    means = []
    for world_size in SIZES:
        root = tmp_path / str(world_size)
        one_step = {
            "runner__global_batch": GAMES * 4,
            "runner__total_steps": GAMES * 4,
            "ppo__epochs": 1,
        }
        done = on_gpus(root, world_size, root / "job", ppo__max_grad_norm=1e9, **one_step)
        assert set(done.codes) == {0}, done.err
        [path] = (root / "run").glob("checkpoint-*.pt")
        state = torch.load(path, weights_only=True)["optimizer"]["state"]
        means.append(torch.cat([state[index]["exp_avg"].flatten() for index in sorted(state)]))
        assert all(each["step"] == 1 for each in state.values())
    assert all((other - means[0]).norm() < 1e-2 * means[0].norm() for other in means[1:])


@pytest.mark.skipif(GPUS < 2, reason="there is no second GPU")
def test_ranks_hold_one_agent(tmp_path: Path) -> None:
    line = arguments(tmp_path, SIZES[-1], fabric__accelerator="cuda")
    done = forks.run(line, SIZES[-1], tmp_path / "job")
    assert set(done.codes) == {0}, done.err
    rows = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert (
        rows.count('"ddp/replica_divergence":0.0') + rows.count('"ddp/replica_divergence": 0.0')
        == 3
    )
