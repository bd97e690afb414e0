"""Memory that learning on a CPU allocates and frees again; in a process of its own, since libc keeps what it is told."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

LEARN = """
import resource, torch
from lightning.fabric import Fabric
from stageb.config import PpoConfig
from stageb.snake.config import AgentConfig, RunnerConfig, SnakeConfig
from stageb.snake.ranks import Ranks
from stageb.snake.schedule import Schedule
from stageb.job.world import World

torch.set_num_threads(1)
runner = RunnerConfig(per_rank_num_envs=128, rollout_steps=8, global_batch=1024, total_steps=1024)
config = SnakeConfig(agent=AgentConfig(16, 1, 64), ppo=PpoConfig(epochs=2), runner=runner)
ranks = Ranks(config, Schedule.of(config, 1, 128), World(Fabric(accelerator="cpu", devices=1)))
ranks.take_up(None)
faults = []
for update in range(8):
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
    ranks.learn(ranks.roll_out(update), update)
print(min(faults[update + 2] - faults[update] for update in range(1, 6)))
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="libc is not glibc")
def test_learning_on_a_cpu_asks_the_system_for_no_memory_once_it_goes() -> None:
    done = subprocess.run([sys.executable, "-c", LEARN], capture_output=True, text=True, check=True)
    # pages of the two updates that take fewest, since other work on the machine adds some; where libc gives back what is
    # freed, two take 19,500 to 46,000
    assert int(done.stdout) < 4_000
