"""The losses, as functions of hidden states, the output layer, and the labels of a pack.

The cross-entropy of coordinates is over the whole vocabulary: with a softmax over coordinate tokens
only, nothing would keep text out of boxes.

Every term is a sum whose parts are already divided by the number of text tokens, or of objects, in
the true answers of all images of the step. So sums over packs and ranks are means over the step,
however its samples are packed, and a token has the same weight in every channel and image.

Logits are computed for a bounded number of rows at a time, and again in the backward pass (Chen et
al. 2016), so that memory does not grow with the vocabulary: 150,000 words and 5,000 rows would take
3 GB in single precision, several times over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from stageb.engines.native.api import send
from stageb.two_channel.config import LossConfig
from stageb.two_channel.model.model import Head
from stageb.two_channel.types import BINS


@dataclass(frozen=True, slots=True)
class PackLabels:
    """The labels of a pack. A *row* is a hidden state that carries a loss: the one before the token
    that it predicts."""

    tokens: Tensor  # int64 (rows,): that token
    words: Tensor  # int64 (words,): rows of text with cross-entropy
    slots: Tensor  # int64 (objects, 4): rows of an object's coordinates
    bins: Tensor  # int64 (objects, 4): the true bins
    word_share: float  # weight of a word in its term: 1 / text tokens of the step
    object_share: float  # weight of an object in its terms: 1 / objects of the step

    def to(self, device: torch.device) -> PackLabels:
        """The same, on ``device``."""
        return replace(
            self,
            tokens=send(self.tokens, device),
            words=send(self.words, device),
            slots=send(self.slots, device),
            bins=send(self.bins, device),
        )


@dataclass(frozen=True, slots=True)
class DetectionLosses:
    """The terms of the loss, and their sum."""

    total: Tensor
    text: Tensor
    coordinates: Tensor
    mass: Tensor  # mean probability of all coordinate tokens together at coordinates; not a loss


NAMES = tuple(field.name for field in fields(DetectionLosses))


def compute_losses(
    states: Tensor, taught: PackLabels, head: Head, config: LossConfig
) -> DetectionLosses:
    """The losses of a pack, whose hidden states are ``states`` (rows, width)."""

    def text(states: Tensor, tokens: Tensor) -> Tensor:
        return cross_entropy(head.logits(states).float(), tokens, reduction="none")

    def coordinates(states: Tensor, bins: Tensor) -> Tensor:
        """(rows, 2): cross-entropy, probability of all coordinate tokens together."""
        logits = head.logits(states).float()
        chances = logits[:, head.first : head.first + BINS] - logits.logsumexp(-1, keepdim=True)
        return torch.stack(
            [soft_cross_entropy(chances, bins, config.soft_width), chances.detach().exp().sum(-1)],
            -1,
        )

    places, bins = taught.slots.flatten(), taught.bins.flatten()
    entropies, masses = _apply_in_chunks(coordinates, head.rows, states[places], bins).unbind(-1)
    words = _apply_in_chunks(
        text, head.rows, states[taught.words], taught.tokens[taught.words]
    ).sum()
    coordinate_share = taught.object_share / 4
    of_text, of_coordinates = words * taught.word_share, entropies.sum() * coordinate_share
    return DetectionLosses(
        of_text + of_coordinates, of_text, of_coordinates, masses.detach().sum() * coordinate_share
    )


def soft_cross_entropy(chances: Tensor, bins: Tensor, soft_width: float) -> Tensor:
    """Cross-entropy (...) of log-probabilities ``chances`` (..., BINS) with a discretised Gaussian
    around ``bins`` (...) of standard deviation ``soft_width``, normalised to 1; for 0, with
    ``bins`` themselves."""
    if not soft_width:
        return -chances.gather(-1, bins[..., None])[..., 0]
    away = torch.arange(BINS, device=bins.device) - bins[..., None]
    wanted = (-0.5 * (away / soft_width) ** 2).softmax(-1)
    return -(wanted * chances).sum(-1)


def _apply_in_chunks(
    function: Callable[[Tensor, Tensor], Tensor], most: int, states: Tensor, others: Tensor
) -> Tensor:
    """``function`` of the rows of ``states`` and ``others``, at most ``most`` at a time; if there
    are more, its activations are recomputed in the backward pass."""
    if len(states) <= most:
        return function(states, others)
    parts = zip(torch.split(states, most), torch.split(others, most), strict=True)
    return torch.cat([checkpoint(function, *part, use_reentrant=False) for part in parts])
