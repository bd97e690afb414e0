"""Sequences laid behind each other, so that no place of a pass through the model is lost to padding.

Sequences of a pack do not see each other: attention is told where each begins and ends (``Apart``, which the engine's own
attention heeds), and each has positions of its own from 0 on, three coordinates to a token where images are among them. On a
GPU in half precision that is one flash kernel for all of them.

The order of sequences says nothing: packs are made best fit decreasing (Johnson 1973), and every term of the loss is a sum
that does not know what else stands in its pack.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any

import torch
from torch import Tensor

from stageb.engines.cascade import Envelope, attend_apart, flashes
from stageb.engines.rows import PICTURE, Ids
from stageb.engines.transfer import send
from stageb.errors import InputError
from stageb.two_channel.losses import Taught
from stageb.two_channel.model import Detector
from stageb.two_channel.types import Sample, StepTotals, Target

AHEAD = 2  # packs' worth of lines that wait, so that there is choice; more would have the first pack wait longer


@dataclass(frozen=True, slots=True)
class Line:
    """A sample as the model is given it: the prompt, its picture's tokens included, and the answer to be taught."""

    key: str  # of the sample
    prompt: Ids
    target: Target

    def __len__(self) -> int:
        return len(self.prompt) + len(self.target.ids)


@dataclass(frozen=True, slots=True)
class Pack:
    """Lines that go through the model together, on its device."""

    ids: Tensor  # int64 (1, tokens)
    places: Tensor  # int64 (image tokens,): where the tokens of images stand
    inputs: dict[str, Any]  # of the text model's forward pass, beside what the tokens are
    images: dict[str, Any]  # of its vision tower's
    keep: Tensor  # int64 (rows,): the places whose hidden states are looked at, each before the token that it should bring
    taught: Taught


def make_line(detector: Detector, sample: Sample, target: Target) -> Line:
    """``sample`` as a line. Raises ``PictureError``."""
    return Line(sample.key, detector.prompt_ids(sample.image), target)


def fits(line: Line, longest: int, set_aside: bool) -> bool:
    """Whether a line has at most ``longest`` tokens. Raises ``InputError`` where not, unless such are ``set_aside``."""
    if len(line) > longest and not set_aside:
        raise InputError(
            f"{line.key}: its prompt has {len(line.prompt)} tokens and its answer {len(line.target.ids)}, together more "
            f"than packing.max_length {longest}; raise that, lower model.image_pixels, or set packing.overlong to set_aside"
        )
    return len(line) <= longest


def make_packs(lines: Iterable[Line], room: int) -> Iterator[list[Line]]:
    """``lines`` in packs of at most ``room`` tokens, handed over while lines are still coming in.

    As soon as more lines wait than ``AHEAD`` packs hold, the fullest pack that can be made of them goes. Which lines share a
    pack is given by the lines' lengths and order alone.
    """
    waiting: list[Line] = []
    for line in lines:
        waiting.append(line)
        if sum(map(len, waiting)) > AHEAD * room:
            lengths = list(map(len, waiting))
            fullest = max(fit_decreasing(lengths, room), key=lambda places: sum(lengths[place] for place in places))
            yield [waiting[place] for place in fullest]
            waiting = [line for place, line in enumerate(waiting) if place not in fullest]
    for places in fit_decreasing(list(map(len, waiting)), room):
        yield [waiting[place] for place in places]


def fit_decreasing(lengths: Sequence[int], room: int) -> list[list[int]]:
    """Places in ``lengths`` in few packs of at most ``room`` together: best fit decreasing."""
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
    """``lines`` as one pack; ``totals`` are of the step, over all packs and ranks. Raises ``PictureError``."""
    eyes = detector.eyes
    lines = sorted(lines, key=lambda line: len(line.prompt))  # images of one size together: the vision tower batches them
    device = detector.model.get_input_embeddings().weight.device
    texts = [line.prompt + line.target.ids for line in lines]
    edges = [0, *accumulate(map(len, texts))]
    names = [name for line in lines for name in eyes.names_in(line.prompt)]
    named = torch.tensor(list(chain.from_iterable(texts)))  # tokens of images have the image's name
    ids = torch.where(named >= PICTURE, detector.model.config.image_token_id, named)
    keep, taught = _gather_taught(lines, edges, totals)
    inputs = {
        "position_ids": send(_find_positions(detector, lines), device),
        "attention_mask": torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device),  # of four dimensions: taken as it is
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
    """A view of sequences that do not see each other, in one pass that gradients go back through."""

    edges: list[int]  # where they begin and end
    sent: Tensor  # int32 (sequences + 1,): the same on the device
    longest: int  # of them, at least

    @classmethod
    def between(cls, edges: list[int], device: torch.device) -> Apart:
        """Sequences between ``edges``, seen on ``device``."""
        longest = max(end - start for start, end in pairwise(edges))
        return cls(edges, send(torch.tensor(edges, dtype=torch.int32), device), longest)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """See ``View``. Under autocast in its type, as torch's own attention: norms may have left another.

        ``varlen_attn`` of ``torch.nn.attention.varlen`` is the same call as here on a GPU, under a name whose arguments
        change from release to release: grouped heads must be asked for in some and cannot be in others.
        """
        if torch.is_autocast_enabled(query.device.type):
            query, key, value = (each.to(torch.get_autocast_dtype(query.device.type)) for each in (query, key, value))
        if not flashes(query):
            return attend_apart(query, key, value, self.edges, scaling)[0]
        found: tuple[Tensor, ...] = torch.ops.aten._flash_attention_forward(
            query, key.transpose(0, 1), value.transpose(0, 1), self.sent, self.sent, self.longest, self.longest, 0.0, True,
            False, scale=scaling,
        )  # fmt: skip
        return found[0]


def _find_positions(detector: Detector, lines: Sequence[Line]) -> Tensor:
    """(3, 1, tokens): those of each prompt by the model's own rule, then counted on."""
    parts: list[Tensor] = []
    for line in lines:
        prompt, after = detector.eyes.places(line.prompt)
        parts += [prompt, (after + torch.arange(len(line.target.ids))).expand(3, -1)]
    return torch.cat(parts, 1)[:, None]


def _gather_taught(lines: Sequence[Line], edges: Sequence[int], totals: StepTotals) -> tuple[Tensor, Taught]:
    """What is looked at, and what is taught there. A word has the same share of its term, and an object of its terms,
    whatever else its image shows, and on either channel; a false object weighs as a true one."""
    keep: list[int] = []
    tokens: list[int] = []
    words: list[int] = []
    against: list[int] = []
    weighed: list[int] = []
    weights: list[float] = []
    slots: list[list[int]] = []
    bins: list[tuple[int, ...]] = []
    for line, end in zip(lines, edges[1:], strict=True):
        target, begin, row = line.target, end - len(line.target.ids), len(keep)
        keep += range(begin - 1, end - 1)
        tokens += target.ids
        words += [row + place for place, one in enumerate(target.taught) if one]
        against += [row + place for place in target.against]
        weighed += range(row, row + len(target.weights))
        weights += target.weights
        for slot in target.slots:
            slots.append([row + place for place in slot.positions])
            bins.append(slot.bins)
    return torch.tensor(keep), Taught(
        tokens=torch.tensor(tokens),
        words=torch.tensor(words, dtype=torch.int64),
        slots=torch.tensor(slots, dtype=torch.int64).reshape(-1, 4),
        bins=torch.tensor(bins, dtype=torch.int64).reshape(-1, 4),
        against=torch.tensor(against, dtype=torch.int64),
        weighed=torch.tensor(weighed, dtype=torch.int64),
        weights=torch.tensor(weights, dtype=torch.float32),
        word_share=1 / max(1, totals.text),
        object_share=1 / max(1, totals.objects),
    )
