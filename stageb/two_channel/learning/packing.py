"""Sequence packing, and the forward pass over a pack.

Sequences of a pack do not attend to each other: attention gets their boundaries (``Apart``, which
the engine's attention supports), and each has its own positions from 0 on, with three coordinates
per token if there are images. On a GPU in half precision that is one flash attention kernel for all
of them.

The order of sequences has no meaning: packs are formed by best fit decreasing (Johnson 1973), and
no term of the loss depends on what else is in a pack.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any

import torch
from torch import Tensor

from stageb.engines.native.api import PICTURE, Envelope, attend_apart, has_flash, send
from stageb.engines.protocol import Ids
from stageb.errors import InputError
from stageb.two_channel.learning.losses import PackLabels
from stageb.two_channel.model.model import Detector
from stageb.two_channel.types import Sample, StepTotals, Target

# lines wait until they would fill this many packs, to have a choice; more would delay the first
# pack
AHEAD = 2


@dataclass(frozen=True, slots=True)
class Line:
    """A training sequence: the prompt, including its image's tokens, and the target answer."""

    key: str  # of the sample
    prompt: Ids
    target: Target

    def __len__(self) -> int:
        return len(self.prompt) + len(self.target.ids)


@dataclass(frozen=True, slots=True)
class Pack:
    """Lines that go through the model together, as tensors on its device."""

    ids: Tensor  # int64 (1, tokens)
    places: Tensor  # int64 (image tokens,): the indices of image tokens in ``ids``
    inputs: dict[str, Any]  # of the text model's forward pass, besides the ids
    images: dict[str, Any]  # inputs of the vision tower
    # int64 (rows,): indices in ``ids`` of the hidden states that carry a loss, each before its
    # token
    keep: Tensor
    taught: PackLabels


def make_line(detector: Detector, sample: Sample, target: Target) -> Line:
    """The line of ``sample`` with ``target``. Raises ``PictureError``."""
    return Line(sample.key, detector.prompt_ids(sample.image), target)


def fits(line: Line, longest: int, set_aside: bool) -> bool:
    """Whether a line has at most ``longest`` tokens. If it has more, raises ``InputError`` unless
    ``set_aside``."""
    if len(line) > longest and not set_aside:
        raise InputError(
            f"{line.key}: its prompt has {len(line.prompt)} tokens and its answer "
            f"{len(line.target.ids)}, together more than packing.max_length {longest}; raise that, "
            f"lower model.image_pixels, or set packing.overlong to set_aside"
        )
    return len(line) <= longest


def make_packs(lines: Iterable[Line], room: int) -> Iterator[list[Line]]:
    """Group ``lines`` into packs of at most ``room`` tokens, while lines are still arriving.

    As soon as the waiting lines exceed ``AHEAD`` packs, the fullest pack that they can form is
    yielded. The grouping depends only on the lengths and the order of the lines.
    """
    waiting: list[Line] = []
    for line in lines:
        waiting.append(line)
        if sum(map(len, waiting)) > AHEAD * room:
            lengths = list(map(len, waiting))
            fullest = max(
                fit_decreasing(lengths, room),
                key=lambda places: sum(lengths[place] for place in places),
            )
            yield [waiting[place] for place in fullest]
            waiting = [line for place, line in enumerate(waiting) if place not in fullest]
    for places in fit_decreasing(list(map(len, waiting)), room):
        yield [waiting[place] for place in places]


def fit_decreasing(lengths: Sequence[int], room: int) -> list[list[int]]:
    """Bin packing by best fit decreasing: the indices of ``lengths`` in few groups, each of at most
    ``room`` in total."""
    found: list[list[int]] = []
    left: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: (-lengths[place], place)):
        spaces = [(space, index) for index, space in enumerate(left) if space >= lengths[place]]
        if not spaces:
            spaces = [(room, len(left))]
            found.append([])
            left.append(room)
        index = min(spaces)[1]
        found[index].append(place)
        left[index] -= lengths[place]
    return found


def pack(detector: Detector, lines: Sequence[Line], totals: StepTotals) -> Pack:
    """The pack of ``lines``; ``totals`` are those of the step, over all packs and ranks. Raises
    ``PictureError``."""
    eyes = detector.eyes
    # puts images of one size together, which the tower batches
    lines = sorted(lines, key=lambda line: len(line.prompt))
    device = detector.model.get_input_embeddings().weight.device
    texts = [line.prompt + line.target.ids for line in lines]
    edges = [0, *accumulate(map(len, texts))]
    names = [name for line in lines for name in eyes.names_in(line.prompt)]
    # an image token is the name of its image here
    named = torch.tensor(list(chain.from_iterable(texts)))
    ids = torch.where(named >= PICTURE, detector.model.config.image_token_id, named)
    keep, taught = _gather_taught(lines, edges, totals)
    inputs = {
        "position_ids": send(_find_positions(detector, lines), device),
        # of four dimensions: taken as it is
        "attention_mask": torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device),
        "packed": Envelope(Apart.between(edges, device)),
        "use_cache": False,
    }
    return Pack(
        ids=send(ids[None], device),
        places=send((named >= PICTURE).nonzero()[:, 0], device),
        inputs=inputs,
        images=eyes.inputs(names),
        keep=send(keep, device),
        taught=taught.to(device),
    )


@dataclass(frozen=True, slots=True)
class Apart:
    """A view (``cascade.View``) of packed sequences that do not attend to each other; it supports
    gradients."""

    edges: list[int]  # boundaries of the sequences
    sent: Tensor  # int32 (sequences + 1,): the same on the device
    longest: int  # upper bound of their lengths

    @classmethod
    def between(cls, edges: list[int], device: torch.device) -> Apart:
        """The view of sequences with the boundaries ``edges``, on ``device``."""
        longest = max(end - start for start, end in pairwise(edges))
        return cls(edges, send(torch.tensor(edges, dtype=torch.int32), device), longest)

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float
    ) -> Tensor:
        """See ``View``. Under autocast, inputs are cast to its dtype, as in torch's own attention:
        norms may return float32.

        On a GPU this is the same call as ``torch.nn.attention.varlen.varlen_attn``, whose arguments
        change from release to release: some need an option for grouped heads, others do not have
        it.
        """
        if torch.is_autocast_enabled(query.device.type):
            query, key, value = (
                each.to(torch.get_autocast_dtype(query.device.type)) for each in (query, key, value)
            )
        if not has_flash(query):
            return attend_apart(query, key, value, self.edges, scaling)[0]
        found: tuple[Tensor, ...] = torch.ops.aten._flash_attention_forward(
            query, key.transpose(0, 1), value.transpose(0, 1), self.sent, self.sent,
            self.longest, self.longest, 0.0, True, False, scale=scaling,
        )  # fmt: skip
        return found[0]


def _find_positions(detector: Detector, lines: Sequence[Line]) -> Tensor:
    """Positions (3, 1, tokens): those of a prompt by the model's own rule, then counting up through
    the answer."""
    parts: list[Tensor] = []
    for line in lines:
        prompt, after = detector.eyes.places(line.prompt)
        parts += [prompt, (after + torch.arange(len(line.target.ids))).expand(3, -1)]
    return torch.cat(parts, 1)[:, None]


def _gather_taught(
    lines: Sequence[Line], edges: Sequence[int], totals: StepTotals
) -> tuple[Tensor, PackLabels]:
    """The indices of the hidden states that carry a loss, and the labels there. Every word has the
    same weight in its term, and every object in its terms, whatever else is in its image and in
    every channel; a false object weighs as a true one."""
    keep: list[int] = []
    tokens: list[int] = []
    words: list[int] = []
    slots: list[list[int]] = []
    bins: list[tuple[int, ...]] = []
    for line, end in zip(lines, edges[1:], strict=True):
        target, begin, row = line.target, end - len(line.target.ids), len(keep)
        keep += range(begin - 1, end - 1)
        tokens += target.ids
        words += [row + place for place, one in enumerate(target.taught) if one]
        for slot in target.slots:
            slots.append([row + place for place in slot.positions])
            bins.append(slot.bins)
    return torch.tensor(keep), PackLabels(
        tokens=torch.tensor(tokens),
        words=torch.tensor(words, dtype=torch.int64),
        slots=torch.tensor(slots, dtype=torch.int64).reshape(-1, 4),
        bins=torch.tensor(bins, dtype=torch.int64).reshape(-1, 4),
        word_share=1 / max(1, totals.text),
        object_share=1 / max(1, totals.objects),
    )


def forward(model: Any, pack: Pack) -> Tensor:
    """The hidden states (rows, width) of a pack at ``pack.keep``.

    Image features are put into the text here: the model itself would search for their places on the
    device, and the CPU would wait for the result.
    """
    seen = model.get_image_features(**pack.images, return_dict=True)
    embedded = model.get_input_embeddings()(pack.ids)
    embedded = embedded.index_copy(1, pack.places, torch.cat(seen.pooler_output)[None].to(embedded))
    text = model.model.language_model
    features = [torch.cat(each)[None] for each in getattr(seen, "deepstack_features", None) or ()]
    with add_features(text.layers, pack.places, features):
        found = text(inputs_embeds=embedded, **pack.inputs)
    states: Tensor = found[0][0, pack.keep]
    return states


@contextmanager
def add_features(layers: Any, places: Tensor, features: Sequence[Tensor]) -> Iterator[None]:
    """Context in which ``features``, (1, places, width) for each of the first layers, are added to
    the outputs of ``layers`` at ``places`` (Meng et al. 2024, "DeepStack")."""

    def adding(feature: Tensor) -> Any:
        return lambda _layer, _given, found: found.index_add(1, places, feature.to(found))

    handles = [
        layer.register_forward_hook(adding(feature))
        for layer, feature in zip(layers, features, strict=False)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
