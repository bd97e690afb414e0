"""Temporary: where an update's time goes, variants side by side in one launch."""

from __future__ import annotations

import argparse
import collections
import gc
import json
import statistics
import sys
import tempfile
import time
import traceback
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import old_learner
import torch
import torch.distributed as dist

from stageb import launching, pulse
from stageb import world as worlds
from stageb.cli import parse
from stageb.snake import loop, ppo
from stageb.snake import ranks as ranks_module
from stageb.snake.run import Run
from stageb.snake.schedule import Schedule
from stageb.snake.step import Step
from stageb.snake.types import Batch

Schedule.evaluates = lambda self, update: False
Schedule.commits = lambda self, update: False
Schedule.compares = lambda self, update: False
BEGAN = time.time()


class OldRanks(ranks_module.Ranks):
    def __init__(self, config, schedule, world):
        super().__init__(config, schedule, world)
        first = world.rank * schedule.games
        self.learner = old_learner.Learner(
            world, schedule, self.step.model, self.optimizer, range(first, first + schedule.games)
        )

    def take_up(self, checkpoint):
        zeros = torch.zeros(self.schedule.games, device=self.world.device)
        self.learner.warm_up(Batch(self.game.grids(), zeros.long(), zeros, zeros, zeros))


class FlatStep(Step):
    """One all-reduce of the whole gradient, no hooks of DDP."""

    def _take(self, batch):
        fabric, alone = self.world.fabric, self.world.world_size == 1
        with fabric.no_backward_sync(self.model, enabled=not alone):
            losses = ppo.ppo_loss(self.model(batch.grids, batch.actions), batch, self.config, self._entropy_weight)
            fabric.backward(losses.total)
        grads = [each.grad for each in self.model.parameters()]
        flat = torch.cat([each.flatten() for each in grads])
        if not alone:
            dist.all_reduce(flat, op=dist.ReduceOp.AVG if flat.is_cuda else dist.ReduceOp.SUM)
        norm = torch.linalg.vector_norm(flat)
        flat.mul_((self.config.max_grad_norm / (norm + 1e-6)).clamp(max=1.0))
        parts = flat.split([each.numel() for each in grads])
        torch._foreach_copy_(grads, [part.view(each.shape) for part, each in zip(parts, grads)])
        self.optimizer.optimizer.found_inf = (~norm.isfinite()).float()
        self.optimizer.step()
        self.optimizer.zero_grad()
        names = ("policy", "value", "entropy", "approx_kl", "clip_frac")
        return torch.stack([*(getattr(losses, name).detach() for name in names), norm])


def flat_ranks(config, schedule, world):
    ranks = ranks_module.Ranks(config, schedule, world)
    ranks.step.__class__ = FlatStep
    return ranks


def sync():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class Phases:
    """Seconds in named calls; with the device waited for before and after each, where ``exact``."""

    def __init__(self):
        self.on, self.exact = False, False
        self.clear()

    def clear(self):
        self.seconds, self.calls = collections.Counter(), collections.Counter()

    def around(self, name, call):
        def timed(*args, **keywords):
            if not self.on:
                return call(*args, **keywords)
            if self.exact:
                sync()
            began = time.perf_counter()
            try:
                return call(*args, **keywords)
            finally:
                if self.exact:
                    sync()
                self.seconds[name] += time.perf_counter() - began
                self.calls[name] += 1

        return timed


def drawn(batches):
    return lambda *args: iter(list(batches(*args)))


def wire(phases, world, ranks):
    """Have the calls of one update timed."""
    for name in ("roll_out", "learn", "ended"):
        setattr(ranks, name, phases.around(name, getattr(ranks, name)))
    world.lead = phases.around("lead", type(world).lead.__get__(world))
    learner = ranks.learner
    for name in ("_pass", "_step", "_left_out", "_over_ranks", "_order"):
        if hasattr(learner, name):
            setattr(learner, name, phases.around(f"learn.{name}", getattr(learner, name)))
    for name in ("gae", "sums", "normalised"):
        setattr(ppo, name, phases.around(f"learn.{name}", getattr(ppo, name)))
    for name in ("_begin", "_next_values"):
        setattr(ranks.player, name, phases.around(f"roll_out.{name}", getattr(ranks.player, name)))
    if hasattr(learner, "step"):
        learner.step.take = phases.around("learn.take", learner.step.take)


def one_variant(world, given, name, config, yaml, out):
    root = world.broadcast(tempfile.mkdtemp())
    last = replace(config, output=replace(config.output, root=root, run_name=name))
    compiled = name.endswith("+compile")
    if compiled:
        last = replace(last, runner=replace(config.runner, compile=True))
    make = {"old": OldRanks, "graph": ranks_module.Ranks, "flat": flat_ranks}[name.split("+")[0]]
    began = time.perf_counter()
    originals = {each: getattr(ppo, each) for each in ("gae", "sums", "normalised")}
    with Run(last, yaml, world.facts()) as run:
        schedule = Schedule.of(last, world.world_size, last.runner.per_rank_num_envs * world.world_size)
        world.lead(run.begin, True, schedule)
        ranks = make(last, schedule, world)
        ranks.take_up(None)
        phases = Phases()
        starts = []
        roll_out = ranks.roll_out

        def stamped(update):
            starts.append(time.perf_counter())
            return roll_out(update)

        ranks.roll_out = stamped
        wire(phases, world, ranks)
        ready = time.perf_counter() - began

        def some(first, count):
            starts.clear()
            ranks.schedule = replace(schedule, updates=first + count)
            loop.updates(world, run, ranks, first)
            sync()
            starts.append(time.perf_counter())

        some(0, 4)
        some(4, given.updates)
        gaps = [after - before for before, after in zip(starts, starts[1:])]
        rates = [schedule.steps / gap for gap in gaps]
        total = schedule.steps * len(gaps) / (starts[-1] - starts[0])
        row = {"devices": world.world_size, "variant": name, "mean": total, "median": statistics.median(rates)}
        row |= {"lowest": min(rates), "highest": max(rates), "ready_s": ready}
        row["divergence"] = ranks.divergence()
        lines = [json.dumps(row)]
        phases.on = True
        for exact in (False, True):
            phases.exact = exact
            phases.clear()
            some(100 + 10 * exact, 4)
            parts = {key: round(1000 * value / 4, 2) for key, value in sorted(phases.seconds.items())}
            counts = {key: value // 4 for key, value in phases.calls.items() if value > 4}
            wall = 1000 * (starts[-1] - starts[0]) / 4
            every = world.gather(worlds.encode(parts))
            lines.append(
                f"  ms/update {'device waited for' if exact else 'as it is'}: wall {wall:.1f} {parts} calls {counts}"
            )
            for rank, part in enumerate(every[1:], start=1):
                lines.append(f"    rank {rank}: {worlds.decode(part)}")
        phases.on = False
        lines += profiled(world, ranks, some, f"{world.world_size}-{name}", out)
        if world.is_global_zero:
            text = "\n".join(lines)
            print(text, flush=True)
            with Path(out, "variants.txt").open("a") as file:
                file.write(text + "\n")
        for each, original in originals.items():
            setattr(ppo, each, original)
        del world.lead
    return row


def profiled(world, ranks, some, name, out):
    """One update, on rank 0 with the profiler."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    if not world.is_global_zero:
        some(200, 3)
        return []
    some(200, 1)
    with torch.profiler.profile(activities=activities) as profile:
        some(201, 1)
    some(202, 1)
    path = Path(out, f"trace-{name}.json")
    profile.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    path.unlink()
    spans = sorted(
        (each["ts"], each["ts"] + each["dur"], each["name"])
        for each in events
        if each.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    )
    lines = []
    if spans:
        busy, end, gaps = 0.0, spans[0][0], []
        for start, stop, kernel in spans:
            if start > end:
                gaps.append((start - end, kernel))
            busy += max(0.0, stop - max(start, end))
            end = max(end, stop)
        wall = end - spans[0][0]
        lines.append(f"  profile: {len(spans)} kernels, busy {busy / 1000:.1f} of {wall / 1000:.1f} ms")
        lines.append(
            f"    ten longest gaps (us, kernel after): {[(round(g), k[:40]) for g, k in sorted(gaps, reverse=True)[:10]]}"
        )
        times, counts = collections.Counter(), collections.Counter()
        for start, stop, kernel in spans:
            times[kernel] += stop - start
            counts[kernel] += 1
        for kernel, took in times.most_common(40):
            lines.append(f"    {took / 1000:8.2f} ms {counts[kernel]:6d} x {took / counts[kernel]:8.1f} us  {kernel[:110]}")
    calls = collections.Counter()
    for each in events:
        if each.get("cat") in ("cuda_runtime", "cuda_driver"):
            calls[each["name"]] += each["dur"]
    lines.append(f"    calls, ms: { {key: round(value / 1000, 2) for key, value in calls.most_common(10)} }")
    cpu = [(each.key, each.count, each.self_cpu_time_total) for each in profile.key_averages()]
    cpu.sort(key=lambda each: -each[2])
    lines.append(f"    self CPU, ms: {[(key[:36], count, round(took / 1000, 2)) for key, count, took in cpu[:25]]}")
    return lines


def reductions(world, out):
    """How long a sum over ranks of this agent's gradient takes by itself."""
    if world.world_size == 1 or not torch.cuda.is_available():
        return
    lines = []
    for numbers in (7, 330_000, 1_000_000):
        flat = torch.zeros(numbers, device=world.device)
        for _ in range(5):
            dist.all_reduce(flat)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            dist.all_reduce(flat)

        def per_call(call, count=200):
            world.fabric.barrier()
            sync()
            began = time.perf_counter()
            for _ in range(count):
                call()
            issued = time.perf_counter() - began
            sync()
            return f"{1e6 * (time.perf_counter() - began) / count:.1f} us (issued in {1e6 * issued / count:.1f})"

        eager, replayed = per_call(lambda: dist.all_reduce(flat)), per_call(graph.replay)
        waited = per_call(lambda: world.fabric.all_reduce(flat, reduce_op="sum"), 50)
        lines.append(f"all_reduce of {numbers} float32: {eager}, in a graph {replayed}, fabric.all_reduce {waited}")
        del graph
    began = time.perf_counter()
    for _ in range(50):
        world.gather(b"x" * 40)
    lines.append(f"world.gather {1e6 * (time.perf_counter() - began) / 50:.0f} us")
    began = time.perf_counter()
    for _ in range(50):
        world.lead(lambda: None)
    lines.append(f"world.lead {1e6 * (time.perf_counter() - began) / 50:.0f} us")
    if world.is_global_zero:
        print("\n".join(lines), flush=True)
        with Path(out, "variants.txt").open("a") as file:
            file.write("\n".join(lines) + "\n")


def main(world, given, config, yaml):
    try:
        reductions(world, given.out)
    except Exception:
        print(f"rank {world.rank}, reductions failed:\n{traceback.format_exc()[-3000:]}", flush=True)
    for name in given.variants.split(","):
        left = world.broadcast(given.until - time.time())
        if left < given.least:
            if world.is_global_zero:
                print(f"{name}: left out, {left:.0f} s are left")
            continue
        try:
            one_variant(world, given, name, config, yaml, given.out)
        except Exception:
            text = f"rank {world.rank}, {name} failed:\n{traceback.format_exc()[-3000:]}"
            print(text, flush=True)
            with Path(given.out, "variants.txt").open("a") as file:
                file.write(text + "\n")
            world.__dict__.pop("lead", None)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--accelerator", default="cuda")
    parser.add_argument("--games", type=int, default=16384)
    parser.add_argument("--updates", type=int, default=24)
    parser.add_argument("--variants", default="old,graph,flat")
    parser.add_argument("--out", required=True)
    parser.add_argument("--until", type=float, default=BEGAN + 1000)
    parser.add_argument("--least", type=float, default=20)
    parser.add_argument("--config", default="configs/snake/12x12.yaml")
    given = parser.parse_args()
    keys = {
        "runner.per_rank_num_envs": given.games,
        "runner.global_batch": given.games * given.devices,
        "runner.total_steps": 10**12,
        "log.tensorboard": "true",
        "log.curves": "false",
        "fabric.accelerator": given.accelerator,
        "fabric.devices": given.devices,
    }
    asked = parse(["--config", given.config, *(f"--{key}={value}" for key, value in keys.items())])
    sys.exit(worlds.run(asked.config.fabric, lambda world: main(world, given, asked.config, "")))
