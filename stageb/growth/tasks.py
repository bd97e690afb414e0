"""What hosts are trained on: real data, and teachers whose answer is known.

A *teacher* is a host with one seed in one slot, its own for every environment. Its pupil is that host without the seed, and
is to answer as the teacher does. The host stays as it is given, since one that learns soon makes up for what it lacks, in
its own way, and no growth pays; and the right seed germinates as the teacher's, but for its last layer, which is to be
learnt: so what a pupil lacks is exactly that blueprint in that slot, and the right choice is known. Where no growth pays
(``futile``), the teacher is the host alone, and answers are drawn from what it says rather than its best guess: its pupil is
as good as it can become, and whatever grows can only learn noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from stageb import draws, seeds
from stageb.config import require
from stageb.growth import bank, data
from stageb.growth.config import HostConfig, TaskConfig
from stageb.growth.data import Sets, Split
from stageb.growth.hosts import HOST, Plan, forward, segment
from stageb.growth.kinds import Form
from stageb.growth.types import SLOTS

TEACHER_SIZES = (1024, 512, 1024)  # examples of fit, validation and test
TEACHER_CLASSES = 8
SHARPNESS = 2.0  # of the answers that a teacher without a seed draws: logits have this deviation

_ROWS = ("mlp", "conv1d", "transformer")
FORMS = {
    "digits": Form((8, 8, 1), 10),
    "mnist1d": Form((40, 1), 10, kinds=_ROWS),
    "mnist1d-shuffled": Form((40, 1), 10, kinds=_ROWS),
    "mnist5k": Form((28, 28, 1), 10),
    "cifar10": Form((32, 32, 3), 10),
    "tinystories": Form((data.CONTEXT,), 256, vocabulary=256, kinds=("transformer",)),
}
TEACHER_FORMS = {  # what a teacher of that kind reads
    "mlp": Form((16,), TEACHER_CLASSES, kinds=("mlp",), given=True),
    "conv1d": Form((24, 2), TEACHER_CLASSES, kinds=("conv1d",), given=True),
    "conv2d": Form((8, 8, 2), TEACHER_CLASSES, kinds=("conv2d",), given=True),
    "transformer": Form((8, 4), TEACHER_CLASSES, kinds=("transformer",), given=True),
}
TAUGHT = ("teacher", "futile")


@dataclass(frozen=True)
class Task:
    """What is common to all environments."""

    name: str
    form: Form
    sets: Sets | None  # None: of a teacher, each environment's own
    slot: int | None = None  # of teachers' seeds; None: drawn
    blueprint: int | None = None  # likewise


@dataclass(frozen=True)
class Lessons:
    """What a block's environments learn from: targets stacked over members."""

    sets: Sets
    start: Tensor  # how their hosts begin: float64 (B, size of the segment ``host``)
    right: tuple[tuple[int, int], ...] | None  # of a teacher's pupils: the slot and the blueprint that they lack


def form(task: TaskConfig, host: HostConfig) -> Form:
    """What examples of a task look like. Raises ``ConfigError`` where there is no such task."""
    known = (*TAUGHT, *FORMS)
    require(task.name in known, "task.name", task.name, f"one of: {', '.join(known)}")
    return TEACHER_FORMS[host.kind] if task.name in TAUGHT else FORMS[task.name]


def load(task: TaskConfig, host: HostConfig) -> Task:
    """The task with its examples. Raises ``ConfigError`` and ``InputError``, before anything is trained."""
    shape = form(task, host)
    if task.name in TAUGHT:
        able = host.blueprints
        wanted = "one of host.blueprints: " + ", ".join(able)
        require(task.blueprint is None or task.blueprint in able, "task.blueprint", task.blueprint, wanted)
        return Task(
            name=task.name,
            form=shape,
            sets=None,
            slot=None if task.slot is None else SLOTS.index(task.slot),
            blueprint=None if task.blueprint is None else able.index(task.blueprint),
        )
    sets = data.read(task.name, task.folder)
    if task.fit_examples is not None:
        most = len(sets.fit)
        require(1 <= task.fit_examples <= most, "task.fit_examples", task.fit_examples, f"1 to {most} for {task.name}")
        sets = replace(sets, fit=Split(sets.fit.inputs[: task.fit_examples], sets.fit.targets[: task.fit_examples]))
    return Task(task.name, shape, sets)


def lessons(task: Task, plan: Plan, keys: Sequence[int]) -> Lessons:
    """What the environments that ``keys`` name learn from; on the CPU."""
    start = bank.drawn(plan, HOST, keys)
    if task.sets is not None:
        return Lessons(task.sets.stacked(len(keys)), start, None)
    right = None if task.name == "futile" else tuple(_choice(task, plan, key) for key in keys)
    sets = []
    for name, count in zip(("fit", "validation", "test"), TEACHER_SIZES, strict=True):
        inputs = data.gaussian(count, plan.form.shape, f"{task.name} {name}")
        answers = [
            _answers(plan, key, host, None if right is None else right[member], (inputs, name))
            for member, (key, host) in enumerate(zip(keys, start, strict=True))
        ]
        sets.append(Split(inputs, torch.stack(answers)))
    return Lessons(Sets(*sets), start, right)


def seed_key(key: int) -> int:
    """The stream of all seeds of the environment ``key``: the same blueprint in the same slot always begins alike."""
    return seeds.stream(key, "seed")


def _choice(task: Task, plan: Plan, key: int) -> tuple[int, int]:
    """The slot and the blueprint of an environment's teacher."""
    stream = seeds.stream(key, "teacher")
    slot = seeds.bits(stream, 0) % len(SLOTS) if task.slot is None else task.slot
    return slot, seeds.bits(stream, 1) % len(plan.blueprints) if task.blueprint is None else task.blueprint


def _answers(plan: Plan, key: int, host: Tensor, right: tuple[int, int] | None, of: tuple[Tensor, str]) -> Tensor:
    """What one teacher says of inputs: int64 (N,)."""
    inputs, name = of
    params, active = {HOST: host}, [-1, -1, -1]
    if right is not None:
        slot, active[slot] = right
        name = segment(plan, *right)
        params[name] = bank.drawn(plan, name, [seed_key(key)], teaching=True)[0]
    logits = forward(replace(plan, gated=False, precision="32-true"), params, inputs.double(), [1.0] * len(SLOTS), active)
    if right is not None:
        return logits.argmax(-1)
    keys = draws.bits(torch.tensor([draws.signed(seeds.stream(key, "noise", name))]), torch.arange(logits.numel()))
    uniforms = draws.uniforms(keys, 0).clamp(1e-12, 1 - 1e-12).view(logits.shape)
    return (SHARPNESS * logits - (-uniforms.log()).log()).argmax(-1)


def batches(keys: Sequence[int], epoch: int, steps: int, size: int, examples: int) -> Tensor:
    """Which examples every member reads in an epoch: int64 (B, steps, size), in passes over all of them, each in an own
    order.

    An epoch begins a pass; none of a pass is read twice.
    """
    wanted = steps * size
    rounds = -(-wanted // examples)
    passes = []
    for number in range(rounds):
        streams = torch.tensor([draws.signed(seeds.stream(key, "batches", epoch, number)) for key in keys])
        passes.append(draws.bits(streams[:, None], torch.arange(examples)).argsort(1))
    return torch.cat(passes, 1)[:, :wanted].view(len(keys), steps, size)
