"""The tasks that hosts are trained on: real data, and teachers whose answer is known; three sets
that share no example.

What is fit, validation and test, named streams decide, the same for every run: scores of different
runs are of one test set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from stageb import draws, seeds
from stageb.config import require
from stageb.errors import InputError
from stageb.growth import blocks
from stageb.growth.blocks import (
    StandingSeeds,
    choose_batch_size,
    forward,
    group_members,
    open_segment,
)
from stageb.growth.config import HostConfig, TaskConfig
from stageb.growth.hosts import HOST, Plan, TaskShape
from stageb.growth.types import SLOTS


@dataclass(frozen=True)
class Split:
    """One of the three sets."""

    inputs: Tensor  # float32 (N, *shape)
    targets: Tensor  # int64 (N,); stacked over members: (B, N)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs (B, n, *shape) and targets (B, n) of ``indices``, int64 (B, n); of sets stacked
        over members."""
        inputs = self.inputs.index_select(0, indices.flatten()).view(
            *indices.shape, *self.inputs.shape[1:]
        )
        members = torch.arange(len(indices), device=indices.device)[:, None]
        return inputs, self.targets[members, indices]

    def part(self, places: slice) -> tuple[Tensor, Tensor]:
        """Inputs, (n, *shape) for all members, and targets (B, n) of some; of stacked sets."""
        return self.inputs[places], self.targets[:, places]

    def __len__(self) -> int:
        return len(self.inputs)


class Sets(NamedTuple):
    """All that there is to learn from and to be judged by."""

    fit: Split
    validation: Split
    test: Split


def draw_gaussian(count: int, shape: tuple[int, ...], name: str) -> Tensor:
    """Standard normal float32 numbers (count, *shape) of the stream ``name``, by the inverse of
    their distribution."""
    keys = torch.tensor([draws.signed(seeds.stream("growth", "inputs", name))])
    places = torch.arange(count * prod(shape))
    uniforms = draws.uniforms(keys, places).clamp(1e-12, 1 - 1e-12)
    normal: Tensor = torch.special.erfinv(2 * uniforms - 1) * 2**0.5
    return normal.float().view(count, *shape)


def draw_digits() -> Sets:
    """scikit-learn's 1,797 digits of 8 x 8, in a drawn order: the test set of Alpaydin and Kaynak,
    1998 (UCI, CC BY 4.0).

    Raises ``InputError`` where scikit-learn is missing.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise InputError(
            f"task digits needs the package {error.name}: install the extra growth, stageb[growth]"
        ) from error
    found = load_digits()
    inputs, targets = (
        torch.from_numpy(found.images).float()[..., None] / 8 - 1,
        torch.from_numpy(found.target).long(),
    )
    order = seeds.shuffled(range(len(inputs)), seeds.stream("growth", "split", "digits"))
    parts = (order[600:], order[:300], order[300:600])
    return Sets(*(Split(inputs[part].contiguous(), targets[part].contiguous()) for part in parts))


# Teachers: hosts that make the labels of other hosts, so that what these lack is known.
#
# A *teacher* is a host with a seed in a slot, or several, its own for every environment. Its pupil
# is that host without, and is to answer as the teacher does. The host stays as it is given, since
# one that learns soon makes up for what it lacks, in its own way, and no growth pays; and the right
# seed germinates as the teacher's, but for its last layer, which is to be learnt: so what a pupil
# lacks is exactly that blueprint in that slot. Nobody who grows a network on data is given that:
# with ``task.inner: own`` the teacher's seed has weights of its own, and all of the right seed is
# to be learnt.
#
# Where no growth pays, the teacher is the host alone, and its answers are drawn from what it holds
# likely rather than its best guess: its pupil is as good as it can become, and whatever grows can
# only learn noise.

# deviation of a teacher's logits: enough that to be as sure as it is, is to answer as it does
SHARPNESS = 4.0

Right = tuple[int, int]
"""A slot and a blueprint."""


def seed_key(key: int) -> int:
    """The stream of all seeds of the environment ``key``: the same blueprint in the same slot
    always begins alike."""
    return seeds.stream(key, "seed")


def choose_seeds(plan: Plan, key: int, count: int) -> tuple[Right, ...]:
    """The ``count`` slots and blueprints of an environment's teacher, drawn, by slot."""
    its, free, chosen = seeds.stream(key, "teacher"), list(range(len(SLOTS))), list[Right]()
    for number in range(count):
        at, which = (seeds.bits(its, 2 * number + each) for each in (0, 1))
        chosen.append((free.pop(at % len(free)), which % len(plan.blueprints)))
    return tuple(sorted(chosen))


class Teachers:
    """The teachers of a block, on a device."""

    def __init__(
        self,
        plan: Plan,
        keys: Sequence[int],
        right: Sequence[Sequence[Right]] | None,
        inputs: Tensor,
        known: bool = True,
    ) -> None:
        """``keys`` name the environments; ``right``: what each teacher has; None: no seeds, and
        answers that are drawn. ``known``: whether the right seed germinates with the inner weights
        of the teacher's.

        The last layer is scaled by ``inputs``, (N, *shape), so that logits have mean 0 for every
        class and one deviation.
        """
        self.plan, self.keys, self.drawn = plan, keys, right is None
        self.host = blocks.draw(plan, HOST, keys).float().to(inputs.device)  # (B, size)
        has = [dict(each) for each in right or [()] * len(keys)]
        held: StandingSeeds = [
            [(its[slot], False) if slot in its else None for slot in range(len(SLOTS))]
            for its in has
        ]
        self.slots, self.params = group_members(plan, held, inputs.device), {}
        for group in (group for slot in self.slots for group in slot.groups):
            its = [keys[member] for member in group.rows.tolist()]
            whose = [
                seed_key(key) if known else seeds.stream(key, "seed of the teacher") for key in its
            ]
            drawn = blocks.draw(plan, group.segment, whose, teaching=True)
            self.params[group] = drawn.float().to(inputs.device)
        logits, last = self._logits(inputs), open_segment(self.plan, HOST, self.host)
        mean = logits.mean(1)
        last["head_bias"].sub_(mean)
        scale = SHARPNESS / (logits - mean[:, None]).flatten(1).std(1)
        last["head"].mul_(scale[:, None, None])
        last["head_bias"].mul_(scale[:, None])

    def answers(self, inputs: Tensor, name: str) -> Tensor:
        """Return each teacher's answers to the inputs of the set ``name``, (N, *shape): int64 (B,
        N)."""
        logits = self._logits(inputs)
        return (logits + self._draw_noise(logits, name) if self.drawn else logits).argmax(-1)

    def _logits(self, inputs: Tensor) -> Tensor:
        """(B, N, classes)"""
        ones = torch.ones(len(self.keys), 1, len(SLOTS), device=inputs.device)
        with torch.no_grad():
            parts = torch.split(inputs, choose_batch_size(self.plan))
            said = [
                forward(self.plan, self.host, self.slots, self.params, part, ones)[:, 0]
                for part in parts
            ]
        return torch.cat(said, 1)

    def _draw_noise(self, logits: Tensor, name: str) -> Tensor:
        """Gumbel noise, by which the largest is drawn as a softmax would."""
        keys = torch.tensor(
            [draws.signed(seeds.stream(key, "noise", name)) for key in self.keys],
            device=logits.device,
        )
        uniforms = draws.uniforms(
            keys[:, None], torch.arange(logits[0].numel(), device=logits.device)
        )
        return -(-uniforms.clamp(1e-7, 1 - 1e-7).log()).log().view(logits.shape)


TEACHER_SIZES = {"fit": 1024, "validation": 512, "test": 1024}  # examples
TEACHER_CLASSES = 8

DIGITS = TaskShape((8, 8, 1), 10)
TEACHER_SHAPES = {  # what a teacher of that kind reads
    "mlp": TaskShape((16,), TEACHER_CLASSES, given=True),
    "conv1d": TaskShape((24, 2), TEACHER_CLASSES, given=True),
    "conv2d": TaskShape((8, 8, 2), TEACHER_CLASSES, given=True),
}
TAUGHT = ("teacher", "futile")
KNOWN = (*TAUGHT, "digits")


@dataclass(frozen=True)
class Task:
    """A task, common to all environments."""

    name: str
    shape: TaskShape
    sets: Sets  # where teachers answer, without targets
    seeds: int = 1  # of each teacher
    # weights with which the right seed germinates: the teacher's, or its own
    inner: str = "teacher"


@dataclass(frozen=True)
class BlockTask:
    """The data that a block's environments learn from: targets stacked over members."""

    sets: Sets
    start: Tensor  # how their hosts begin: (B, size of the segment ``host``)
    # of teachers' pupils: the slots and the blueprints that they lack
    right: tuple[tuple[Right, ...], ...] | None


def load(task: TaskConfig, host: HostConfig, device: str = "cpu") -> Task:
    """The task with its examples on ``device``, where its lessons will lie too. Raises
    ``ConfigError`` and ``InputError``, before anything is trained."""
    require(task.name in KNOWN, "task.name", task.name, f"one of: {', '.join(KNOWN)}")
    shape = TEACHER_SHAPES[host.kind] if task.name in TAUGHT else DIGITS
    sets = _draw_questions(task.name, shape) if task.name in TAUGHT else draw_digits()
    for key, most in (
        ("fit_examples", len(sets.fit)),
        ("validation_examples", len(sets.validation)),
    ):
        wanted = getattr(task, key)
        require(
            wanted is None or 1 <= wanted <= most,
            f"task.{key}",
            wanted,
            f"1 to {most} for {task.name}",
        )
    counts = (task.fit_examples, task.validation_examples, None)
    parts = (
        Split(each.inputs[:count].to(device), each.targets[:count].to(device))
        for each, count in zip(sets, counts, strict=True)
    )
    return Task(task.name, shape, Sets(*parts), task.seeds, task.inner)


def _draw_questions(name: str, shape: TaskShape) -> Sets:
    """Draw the inputs that teachers are asked, without targets."""
    nothing = torch.zeros(0, dtype=torch.int64)
    return Sets(
        *(
            Split(draw_gaussian(count, shape.example, f"{name} {which}"), nothing)
            for which, count in TEACHER_SIZES.items()
        )
    )


def make_lessons(task: Task, plan: Plan, keys: Sequence[int]) -> BlockTask:
    """Make the data that the environments named by ``keys`` learn from, on the task's device."""
    if task.name not in TAUGHT:
        stacked = (Split(each.inputs, each.targets.expand(len(keys), -1)) for each in task.sets)
        return BlockTask(Sets(*stacked), blocks.draw(plan, HOST, keys), None)
    right = (
        None
        if task.name == "futile"
        else tuple(choose_seeds(plan, key, task.seeds) for key in keys)
    )
    teachers = Teachers(plan, keys, right, task.sets.fit.inputs, known=task.inner == "teacher")
    asked = zip(TEACHER_SIZES, task.sets, strict=True)
    answered = [Split(each.inputs, teachers.answers(each.inputs, name)) for name, each in asked]
    return BlockTask(Sets(*answered), teachers.host, right)


def draw_batches(
    keys: Sequence[int],
    epoch: int,
    steps: int,
    size: int,
    examples: int,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Which examples every member reads in an epoch: int64 (B, steps, size), in passes over all of
    them.

    An epoch begins a pass. Each is in an order of its own, and reads no example twice. Drawn on
    ``device``, the same on all.
    """
    wanted = steps * size
    rounds = -(-wanted // examples)
    passes = []
    for number in range(rounds):
        streams = [draws.signed(seeds.stream(key, "batches", epoch, number)) for key in keys]
        bits = draws.bits(
            torch.tensor(streams, device=device)[:, None], torch.arange(examples, device=device)
        )
        passes.append(bits.argsort(1))
    return torch.cat(passes, 1)[:, :wanted].view(len(keys), steps, size)
