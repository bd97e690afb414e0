"""Layers that learn, recorded as CUDA graphs: of a small model the processor launches kernels more
slowly than the GPU runs them.

A graph is of one shape. So what layers are given is laid into tensors of a round length, with
sequences of zeros behind it that nothing looks at, and whose gradient is zero. Layers are recorded
one by one, forward and back, when a length comes for the first time; what stands between them stays
as it is. Which recording a pack goes through rests on that pack alone, so that a run that goes on
computes as one that was not disturbed.

Recorded passes back add to gradients where these stand: they are set to zero between steps, never
taken away.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from stageb.engines.native.api import Envelope, send
from stageb.training.step import Recorder
from stageb.two_channel.learning.packing import Apart

# places that lengths are rounded up to, at least: long ones to an eighth to a quarter of them
GRAIN = 1024
LONGEST = 1024  # of a sequence, at least: what attention is told, rounded up to a power of two
LINES = 128  # sequences that there is room for, those behind the last included
KEPT = 4  # recordings of each tower, the latest used

Layer = Callable[..., Tensor]


def record_layers(model: nn.Module, ordered: Callable[[], Any]) -> None:
    """Have the layers of ``model`` replay recordings while they learn; ``ordered`` gives the
    context of passes back.

    A pass must go back before the next goes forward: what it left for that stands in the recording.
    """
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and all(
            isinstance(each, GradientCheckpointingLayer) for each in module
        ):
            Tower(list(module), ordered)


@dataclass(frozen=True, slots=True)
class RecordingShape:
    """Of a recording."""

    room: int  # places
    longest: int  # sequence, at most


class Tower:
    """Layers behind each other, all of which are told the same of sequences."""

    def __init__(self, layers: Sequence[nn.Module], ordered: Callable[[], Any]) -> None:
        self._layers: list[Layer] = [layer.forward for layer in layers]
        self._weights = [
            [each for each in layer.parameters() if each.requires_grad] for layer in layers
        ]
        self._ordered = ordered
        self._recordings: OrderedDict[RecordingShape, Recording] = OrderedDict()
        self._now: Recording | None = None
        for place, layer in enumerate(layers):
            layer.forward = partial(self._forward, place)

    def _forward(self, place: int, states: Tensor, **inputs: Any) -> Tensor:
        if place == 0:
            self._now = self._recording(states, inputs)
        if self._now is None:
            return self._layers[place](states, **inputs)
        found: Tensor = _PlayRecording.apply(states, self._now, place)  # type: ignore[no-untyped-call]
        return found

    def _recording(self, states: Tensor, inputs: dict[str, Any]) -> Recording | None:
        """What replays a pass over ``states``; None where they do not learn, or there are too many
        of them."""
        if not (torch.is_grad_enabled() and states.requires_grad):
            return None
        edges, longest = _edges(inputs)
        length = states.shape[-2]
        grain = max(GRAIN, 1 << length.bit_length() >> 3)
        shape = RecordingShape(
            -(-length // grain) * grain, max(LONGEST, 1 << (longest - 1).bit_length())
        )
        if len(edges) + -(-grain // shape.longest) > LINES:
            return None
        if shape not in self._recordings:
            if len(self._recordings) == KEPT:
                self._recordings.popitem(last=False)
            self._recordings[shape] = Recording(
                self._layers, self._weights, self._ordered, shape, states, inputs
            )
        found = self._recordings[shape]
        self._recordings.move_to_end(shape)
        found.begin(inputs, length)
        return found


class Recording:
    """All layers of a tower at one shape, forward and back, in memory that they share in this
    order."""

    def __init__(
        self,
        layers: Sequence[Layer],
        weights: Sequence[Sequence[nn.Parameter]],
        ordered: Callable[[], Any],
        shape: RecordingShape,
        states: Tensor,
        inputs: dict[str, Any],
    ) -> None:
        """``states`` and ``inputs`` are those of any pass of this shape."""
        self._layers, self._weights, self._ordered, self._shape = layers, weights, ordered, shape
        self._length = 0
        self._told = _with_edges(
            {
                name: _map(partial(_roomy, states.shape[-2], shape.room), each)
                for name, each in inputs.items()
            },
            torch.zeros(LINES, dtype=torch.int32, device=states.device),
            shape.longest,
        )
        like = _roomy(states.shape[-2], shape.room, states.detach())
        self._given = [torch.zeros_like(like).requires_grad_() for _ in layers]
        self._made: list[Tensor] = [like] * len(layers)
        self._found: list[Tensor] = [like] * len(layers)
        for each in (weight for some in weights for weight in some if weight.grad is None):
            each.grad = torch.zeros_like(each)
        self.begin(inputs, states.shape[-2])
        recorder = Recorder()
        places = range(len(layers))
        self._forwards = [
            recorder.record(partial(self._forward, place), partial(self._try, place))
            for place in places
        ]
        self._arriving = [torch.zeros_like(each) for each in self._made]
        self._backs = [
            recorder.record(partial(self._back, place), int) for place in reversed(places)
        ][::-1]

    def begin(self, inputs: dict[str, Any], length: int) -> None:
        """Take what all layers are told of ``length`` places."""
        self._length = length
        for name, each in inputs.items():
            _copy(self._told[name], each, length)
        edges, _ = _edges(inputs)
        held, _ = _edges(self._told)
        spare = [
            min(length + number * self._shape.longest, self._shape.room)
            for number in range(1, LINES - len(edges) + 1)
        ]
        held.copy_(torch.cat([edges, send(torch.tensor(spare, dtype=torch.int32), edges.device)]))

    def forward(self, place: int, states: Tensor) -> Tensor:
        """What the layer makes of ``states``; it stays until the next pass."""
        _lay(self._given[place].detach(), states, self._length)
        self._forwards[place]()
        return self._made[place].detach()[..., : self._length, :]

    def back(self, place: int, gradient: Tensor) -> Tensor:
        """The gradient of what the layer was given."""
        _lay(self._arriving[place], gradient, self._length)
        self._backs[place]()
        return self._found[place][..., : self._length, :]

    def _forward(self, place: int) -> None:
        self._made[place] = self._compute(place)

    def _back(self, place: int) -> None:
        self._found[place], *gradients = self._differentiate(
            place, self._made[place], self._arriving[place]
        )
        pairs = [
            (weight.grad, each)
            for weight, each in zip(self._weights[place], gradients, strict=True)
        ]
        sums = [(held, each) for held, each in pairs if held is not None and each is not None]
        torch._foreach_add_([held for held, _ in sums], [each for _, each in sums])

    def _try(self, place: int) -> None:
        """Both, twice, so that all kernels are there."""
        for _ in range(2):
            made = self._compute(place)
            self._differentiate(place, made, torch.zeros_like(made))

    @torch.enable_grad()
    def _compute(self, place: int) -> Tensor:
        """In the precision that is asked for around it; weights that are cast for it are not kept,
        being written anew."""
        kind = self._given[place].device.type
        enabled, dtype = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
        with torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=False):
            return self._layers[place](self._given[place], **self._told)

    def _differentiate(self, place: int, made: Tensor, arriving: Tensor) -> tuple[Tensor, ...]:
        wanted = [self._given[place], *self._weights[place]]
        with self._ordered(), torch.autocast(made.device.type, enabled=False):
            found: tuple[Tensor, ...] = torch.autograd.grad(
                made, wanted, arriving, allow_unused=True
            )
        return found


class _PlayRecording(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, recording: Recording, place: int) -> Tensor:
        ctx.recording, ctx.place = recording, place
        return recording.forward(place, states)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.recording.back(ctx.place, gradient), None, None


# What layers are told


def _edges(inputs: dict[str, Any]) -> tuple[Tensor, int]:
    """Where sequences begin and end, on the device, and the length of the longest."""
    if "packed" in inputs:
        view: Apart = inputs["packed"].view
        return view.sent, view.longest
    return inputs["cu_seqlens"], inputs["max_seqlen"]


def _with_edges(inputs: dict[str, Any], edges: Tensor, longest: int) -> dict[str, Any]:
    """``inputs``, of sequences between ``edges``."""
    if "packed" in inputs:
        return inputs | {"packed": Envelope(Apart([], edges, longest))}
    return inputs | {"cu_seqlens": edges, "max_seqlen": longest}


def _map(function: Callable[[Tensor], Tensor], each: Any) -> Any:
    """``each`` with ``function`` taken of the tensors in it."""
    if isinstance(each, tuple):
        return tuple(_map(function, part) for part in each)
    return function(each) if isinstance(each, Tensor) else each


def _roomy(length: int, room: int, tensor: Tensor) -> Tensor:
    """Zeros like ``tensor``, with ``room`` in place of ``length`` places, and itself where it is
    not of places."""
    return (
        tensor.new_zeros((*tensor.shape[:-2], room, tensor.shape[-1]))
        if _is_of_places(tensor, length)
        else tensor
    )


def _copy(held: Any, each: Any, length: int) -> None:
    """Write the tensors in ``each`` that are of places into those in ``held``."""
    if isinstance(each, tuple):
        for one, other in zip(held, each, strict=True):
            _copy(one, other, length)
    elif isinstance(each, Tensor) and _is_of_places(each, length):
        held[..., :length, :].copy_(each)


def _is_of_places(tensor: Tensor, length: int) -> bool:
    """Whether ``tensor`` (..., ``length``, width) says something of each place."""
    return tensor.ndim > 1 and tensor.shape[-2] == length


def _lay(held: Tensor, states: Tensor, length: int) -> None:
    """``states`` into ``held``, and zeros behind them."""
    held[..., :length, :].copy_(states)
    held[..., length:, :].zero_()
