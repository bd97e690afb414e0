"""Transport of rollouts from the ranks that generate them to the ranks that learn, and of weights back.

There are two ways, by ``topology``. *Shared*: every rank answers its share of a step's images, and all ranks get all
answers. *Split*: the last ranks of the world only answer. They receive new weights by broadcast, answer all their images at
once in a thread, and send answers in groups as they finish; learners receive these groups in one fixed order, so that
training does not depend on which rank was faster.

With ``topology.staleness`` 1, the rollouts of a channel B step begin when those of the previous channel B step have been
received, with the weights from before that previous step. They are generated while the previous step, and the steps up to
their own, are learnt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import Tensor

from stageb.engines.protocol import Decode
from stageb.errors import StagebError
from stageb.job.world import World, decode, encode
from stageb.two_channel.learning.rollout import Writer
from stageb.two_channel.learning.schedule import DetectorSchedule
from stageb.two_channel.types import DetectorRollout, Sample

GROUPS = 16  # number of groups in which a rank sends the answers of a step, at least one answer in each
LOOK_S = 0.05  # seconds between two checks whether answers have finished

Answered = tuple[Sample, DetectorRollout]
OnRollout = Callable[[int, DetectorRollout], None]
Group = list[tuple[int, DetectorRollout]]  # places in a rank's share, and answers
Samples = Callable[[int], list[Sample]]
Weights = Callable[[], Iterator[tuple[str, Tensor]]]


class SharedRanks:
    """Every rank answers its share of the images and learns."""

    def __init__(self, world: World, writer: Writer, schedule: DetectorSchedule, samples: Samples, weights: Weights) -> None:
        """``samples`` gives the images of a step; ``weights`` the current weights of the learner."""
        self.world, self.writer, self.schedule = world, writer, schedule
        self.times: dict[str, float] = {}  # seconds by phase, until the caller clears it
        self._samples, self._weights = samples, weights
        self._ahead = schedule.config.topology.staleness
        self._made: dict[int, list[DetectorRollout]] = {}  # by step: answers that have not been learnt from

    def refresh(self, step: int) -> None:
        """Load the weights from before ``step``, the current step, into the writer."""
        if self.writer.version != step:
            self._take(step)

    def recall(self, path: str, step: int) -> None:
        """Load the weights in the file ``path``, from before ``step``, into the writers of all ranks; rank 0 reads the
        file."""
        if self.world.is_global_zero:
            self.writer.take(load_file(path).items(), step)
        if self.world.world_size > 1:
            with self.world.together("the best weights"):
                self.writer.receive(step, lambda weight: dist.broadcast(weight, 0))

    def rollouts(self, step: int) -> Iterator[Answered]:
        """The images of ``step``, the current step, which is of channel B, with their answers as they arrive."""
        if not self._begun(step):
            self._begin(step, step)
        return self._handed_over(step)

    def mine(self, step: int) -> Sequence[Sample]:
        """The images of ``step`` that this rank will need first."""
        return self.world.share(self._samples(step))

    def pending(self) -> dict[int, list[list[Any]]]:
        """The answers, by step, that are finished or in progress and not yet learnt from; for a checkpoint."""
        return {step: _encode_rollouts(made) for step, made in self._made.items()}

    def take_up(self, pending: dict[int, list[list[Any]]]) -> None:
        """Resume with the result of ``pending``."""
        self._made = {step: _decode_rollouts(rows) for step, rows in pending.items()}

    def _take(self, step: int) -> None:
        self.writer.take(self._weights(), step)

    def _handed_over(self, step: int) -> Iterator[Answered]:
        following = self.schedule.next_answered(step)
        if not self._ahead or following is None:
            yield from self._taken(step)
            return
        taken = list(self._taken(step))  # all of them before the first is learnt from, so that the next can begin at once
        self._begin(following, step)  # with the current weights, which change at the end of this step
        yield from taken

    def _begun(self, step: int) -> bool:
        return step in self._made

    def _begin(self, step: int, version: int) -> None:
        """Generate the answers of ``step`` with the weights from before the step ``version``, the current step."""
        self.refresh(version)
        with self.world.at(f"rollout of step {step}"):
            mine = self._written(step, self.world.share(self._samples(step)))
        with self._timed("wait_s"):
            parts = self.world.gather(encode(_encode_rollouts(mine)))
        self._made[step] = _decode_rollouts(self.world.dealt([decode(part) for part in parts]))

    def _taken(self, step: int) -> Iterator[Answered]:
        yield from zip(self._samples(step), self._made.pop(step), strict=True)

    def _written(self, step: int, samples: Sequence[Sample], told: OnRollout | None = None) -> list[DetectorRollout]:
        """Answers to some images of ``step``."""
        with self._timed("rollout_generate_s"):
            settings = self.schedule.config.channel_b
            decode = Decode(settings.temperature, settings.top_p, max_new_tokens=settings.max_new_tokens)
            return self.writer.write(samples, [self.schedule.key(step, each.key) for each in samples], decode, told)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.times[name] = self.times.get(name, 0.0) + time.perf_counter() - began


class SplitRanks(SharedRanks):
    """The last ranks answer, the first ranks learn."""

    def __init__(self, world: World, writer: Writer, schedule: DetectorSchedule, samples: Samples, weights: Weights) -> None:
        super().__init__(world, writer, schedule, samples, weights)
        topology = schedule.config.topology
        self._learners, self._writers = range(topology.learn), range(topology.learn, topology.learn + topology.rollout)
        self._writes = world.rank in self._writers
        self._weighed = dist.new_group([0, *self._writers])  # ranks that share weights
        self._pool = ThreadPoolExecutor(1, "stageb-rollouts", _use_device, (world.device,))
        self._under_way: tuple[int, int] | None = None  # the step, and the version of the weights
        self._job: Future[list[DetectorRollout]] | None = None  # where this rank answers, as these
        self._ended: SimpleQueue[Group] = SimpleQueue()

    def mine(self, step: int) -> Sequence[Sample]:
        """See ``SharedRanks``: the images that it answers, or for a learner, all that it may learn from."""
        return self._samples(step)[self._number :: len(self._writers)] if self._writes else self._samples(step)

    def pending(self) -> dict[int, list[list[Any]]]:
        """See ``SharedRanks``: waits for answers in progress, and keeps them on every rank."""
        if self._under_way:
            (step, _), mine = self._under_way, list[DetectorRollout]()
            if self._job:
                with self.world.at(f"rollout of step {step}"):
                    mine = self._job.result()
            parts = self.world.gather(encode(_encode_rollouts(mine)))
            rows = [decode(parts[rank]) for rank in self._writers]
            self._made[step] = _decode_rollouts(
                [rows[place % len(rows)][place // len(rows)] for place in range(sum(map(len, rows)))]
            )
            self._under_way = self._job = None
        return super().pending()

    def _take(self, step: int) -> None:
        """Load new weights by broadcast, once the answers in progress are finished."""
        if self._job:
            with self.world.at("rollouts"):
                self._job.result()
        if not self._writes:
            super()._take(step)
        if self._writes or self.world.rank == 0:
            with self._timed("wait_s"), self.world.together("new weights"):
                self.writer.receive(step, lambda weight: dist.broadcast(weight, 0, self._weighed))

    def _begun(self, step: int) -> bool:
        return super()._begun(step) or (self._under_way is not None and self._under_way[0] == step)

    def _begin(self, step: int, version: int) -> None:
        self.refresh(version)
        self._under_way = step, version
        if self._writes:
            self._ended = SimpleQueue()
            self._job = self._pool.submit(self._answer, step, self._samples(step)[self._number :: len(self._writers)])

    @property
    def _number(self) -> int:
        """The index of this rank among those that answer."""
        return self.world.rank - self._writers[0]

    def _answer(self, step: int, samples: Sequence[Sample]) -> list[DetectorRollout]:
        """In a thread: answer this rank's images of ``step``, and queue groups of answers as they finish."""
        told: dict[int, DetectorRollout] = {}
        size, sent = group_size(len(samples)), 0

        def tell(place: int, rollout: DetectorRollout) -> None:
            nonlocal sent
            told[place] = rollout
            if len(told) - sent == size or len(told) == len(samples):
                group, sent = list(told.items())[sent:], len(told)
                self._ended.put(group)

        return self._written(step, samples, tell)

    def _taken(self, step: int) -> Iterator[Answered]:
        if step in self._made:
            yield from super()._taken(step)
            return
        assert self._under_way
        _, version = self._under_way
        if self._writes:
            self._hand_over(step)
        else:
            yield from self._received(step, version)
        self._under_way = self._job = None

    def _hand_over(self, step: int) -> None:
        """Send groups of answers to all learners as they finish."""
        assert self._job
        mine = len(self._samples(step)[self._number :: len(self._writers)])
        sent = 0
        under_way: list[Any] = []
        with self.world.at(f"rollout of step {step}"):
            while sent < mine:
                try:
                    group = self._ended.get(timeout=LOOK_S)
                except Empty:
                    if self._job.done():
                        self._job.result()  # re-raises its error
                    continue
                sent += len(group)
                data = encode([[place, *_encode_rollouts([rollout])[0]] for place, rollout in group])
                under_way += [part for rank in self._learners for part in _send(data, rank)]
            self._job.result()
        with self._timed("wait_s"), self.world.together("rollouts"):
            for work, _ in under_way:
                work.wait()

    def _received(self, step: int, version: int) -> Iterator[Answered]:
        """Receive a group from each rank in turn, until all answers have arrived."""
        samples, ranks = self._samples(step), len(self._writers)
        left = {rank: len(samples[number::ranks]) for number, rank in enumerate(self._writers)}
        while any(left.values()):
            for number, rank in enumerate(self._writers):
                if not left[rank]:
                    continue
                with self._timed("wait_s"), self.world.together("rollouts"):
                    rows = decode(_receive(rank))
                left[rank] -= len(rows)
                for place, *row in rows:
                    (rollout,) = _decode_rollouts([row])
                    if rollout.version != version:
                        raise StagebError(f"rank {rank} answered with weights of step {rollout.version}, not {version}")
                    yield samples[place * ranks + number], rollout


def group_size(answers: int) -> int:
    """How many answers a rank with ``answers`` in all sends at a time."""
    return max(1, -(-answers // GROUPS))


def _use_device(device: str) -> None:
    """Select ``device`` in this thread: a new thread starts with the first GPU."""
    if device.startswith("cuda"):
        torch.cuda.set_device(device)


def _encode_rollouts(rollouts: Sequence[DetectorRollout]) -> list[list[Any]]:
    """``rollouts`` as plain lists, for JSON."""
    return [[each.ids, each.ended, each.version] for each in rollouts]


def _decode_rollouts(rows: Sequence[Sequence[Any]]) -> list[DetectorRollout]:
    """The inverse of ``_encode_rollouts``."""
    return [DetectorRollout(tuple(ids), ended, version) for ids, ended, version in rows]


def _send(data: bytes, rank: int) -> list[tuple[Any, Tensor]]:
    """Begin to send ``data`` to ``rank``: the operations to wait for, each with the tensor that must live until then."""
    tensors = [torch.tensor([len(data)]), torch.frombuffer(bytearray(data), dtype=torch.uint8)]
    return [(dist.isend(tensor, rank), tensor) for tensor in tensors]


def _receive(rank: int) -> bytes:
    """The data that ``rank`` has sent with ``_send``."""
    length = torch.zeros(1, dtype=torch.int64)
    dist.recv(length, rank)
    data = torch.zeros(int(length), dtype=torch.uint8)
    dist.recv(data, rank)
    return data.numpy().tobytes()
