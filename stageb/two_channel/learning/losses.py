"""The losses, as functions of hidden states, the output layer, and the labels of a pack.

The cross-entropy of coordinates is over the whole vocabulary: with a softmax over coordinate tokens only, nothing would keep
text out of boxes. If a coordinate is needed as a number (L1, GIoU), it is its expectation under the model, given that the
token is a coordinate.

Every term is a sum whose parts are already divided by the number of text tokens, or of objects, in the true answers of all
images of the step. So sums over packs and ranks are means over the step, however its samples are packed, and a token has the
same weight in every channel and image.

Logits are computed for a bounded number of rows at a time, and again in the backward pass (Chen et al. 2016), so that memory
does not grow with the vocabulary: 150,000 words and 5,000 rows would take 3 GB in single precision, several times over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from stageb.engines.native.memory import send
from stageb.two_channel.config import LossConfig
from stageb.two_channel.model.model import Head
from stageb.two_channel.types import BINS

_TINY = 1e-9  # the smallest area to divide by


@dataclass(frozen=True, slots=True)
class Taught:
    """The labels of a pack. A *row* is a hidden state that carries a loss: the one before the token that it predicts."""

    tokens: Tensor  # int64 (rows,): that token
    words: Tensor  # int64 (words,): rows of text with cross-entropy
    slots: Tensor  # int64 (objects, 4): rows of an object's coordinates
    bins: Tensor  # int64 (objects, 4): the true bins
    against: Tensor  # int64 (coordinates,): rows with unlikelihood loss
    word_share: float  # weight of a word in its term: 1 / text tokens of the step
    object_share: float  # weight of an object in its terms: 1 / objects of the step

    def to(self, device: torch.device) -> Taught:
        """The same, on ``device``."""
        return replace(
            self,
            tokens=send(self.tokens, device),
            words=send(self.words, device),
            slots=send(self.slots, device),
            bins=send(self.bins, device),
            against=send(self.against, device),
        )


@dataclass(frozen=True, slots=True)
class DetectionLosses:
    """The terms of the loss, unweighted, and their weighted sum."""

    total: Tensor
    text: Tensor
    coordinates: Tensor
    l1: Tensor
    giou: Tensor
    against: Tensor
    mass: Tensor  # mean probability of all coordinate tokens together at coordinates; not a loss


NAMES = tuple(field.name for field in fields(DetectionLosses))


def compute_losses(passes: tuple[Tensor, Tensor], taught: Taught, head: Head, weights: LossConfig) -> DetectionLosses:
    """The losses of a pack. ``passes`` are the hidden states (rows, width) of the first and the last pass: cross-entropies
    are taken on the first, expected coordinates on the last."""

    def text(states: Tensor, tokens: Tensor) -> Tensor:
        return cross_entropy(head.logits(states).float(), tokens, reduction="none")

    def coordinates(states: Tensor, bins: Tensor) -> Tensor:
        """(rows, 3): cross-entropy, probability of all coordinate tokens together, expected coordinate."""
        logits = head.logits(states).float()
        among = logits[:, head.first : head.first + BINS]
        chances = among - logits.logsumexp(-1, keepdim=True)  # log-probabilities, of the whole vocabulary
        mass = chances.detach().exp().sum(-1)
        return torch.stack([soft_cross_entropy(chances, bins, weights.soft_width), mass, expected_coordinates(among)], -1)

    def against(states: Tensor, tokens: Tensor) -> Tensor:
        """-log(1 - p), computed from the logits of all other tokens, which stays finite as p approaches 1."""
        logits = head.logits(states).float()
        return logits.logsumexp(-1) - logits.scatter(-1, tokens[:, None], -torch.inf).logsumexp(-1)

    states, last = passes
    places, bins = taught.slots.flatten(), taught.bins.flatten()
    entropies, masses, numbers = _apply_in_chunks(coordinates, head.rows, states[places], bins).unbind(-1)
    if last is not states:
        numbers = _apply_in_chunks(coordinates, head.rows, last[places], bins)[:, 2]
    boxes, true = sort_corners(numbers.view(-1, 4)), taught.bins.float() / (BINS - 1)
    words, blamed = (
        _apply_in_chunks(function, head.rows, states[rows], taught.tokens[rows]).sum()
        for function, rows in ((text, taught.words), (against, taught.against))
    )
    coordinate_share = taught.object_share / 4
    terms = {
        "text": words * taught.word_share,
        "coordinates": entropies.sum() * coordinate_share,
        "l1": (boxes - true).abs().sum() * coordinate_share,
        "giou": (1 - giou(boxes, true)).sum() * taught.object_share,
        "against": blamed * coordinate_share,
    }
    total = torch.stack([getattr(weights, name) * term for name, term in terms.items() if getattr(weights, name)]).sum()
    return DetectionLosses(total, **terms, mass=masses.detach().sum() * coordinate_share)


def soft_cross_entropy(chances: Tensor, bins: Tensor, soft_width: float) -> Tensor:
    """Cross-entropy (...) of log-probabilities ``chances`` (..., BINS) with a discretised Gaussian around ``bins`` (...) of
    standard deviation ``soft_width``, normalised to 1; for 0, with ``bins`` themselves."""
    if not soft_width:
        return -chances.gather(-1, bins[..., None])[..., 0]
    away = torch.arange(BINS, device=bins.device) - bins[..., None]
    wanted = (-0.5 * (away / soft_width) ** 2).softmax(-1)
    return -(wanted * chances).sum(-1)


def expected_coordinates(logits: Tensor) -> Tensor:
    """Expected coordinates (...), from 0 to 1, under ``logits`` (..., BINS)."""
    places = torch.linspace(0, 1, BINS, device=logits.device)
    return logits.softmax(-1) @ places


def sort_corners(boxes: Tensor) -> Tensor:
    """``boxes`` (..., 4) with the smaller x and y first: expected corners may be in any order."""
    corners = boxes.reshape(*boxes.shape[:-1], 2, 2)
    return torch.cat([corners.amin(-2), corners.amax(-2)], -1)


def giou(boxes: Tensor, others: Tensor) -> Tensor:
    """Generalised IoU (...), from -1 to 1, of each box (..., 4) with its counterpart in ``others`` (Rezatofighi et al. 2019,
    algorithm 1); 0 if both and the box that encloses them have no area. The function in transformers compares all pairs."""
    (low, high), (others_low, others_high) = torch.split(boxes, 2, -1), torch.split(others, 2, -1)
    shared = _area((torch.minimum(high, others_high) - torch.maximum(low, others_low)).clamp(min=0))
    union = _area(high - low) + _area(others_high - others_low) - shared
    around = _area(torch.maximum(high, others_high) - torch.minimum(low, others_low))
    return shared / union.clamp(min=_TINY) - (around - union) / around.clamp(min=_TINY)


def _area(sides: Tensor) -> Tensor:
    return sides[..., 0] * sides[..., 1]


def _apply_in_chunks(function: Callable[[Tensor, Tensor], Tensor], most: int, states: Tensor, others: Tensor) -> Tensor:
    """``function`` of the rows of ``states`` and ``others``, at most ``most`` at a time; if there are more, its activations
    are recomputed in the backward pass."""
    if len(states) <= most:
        return function(states, others)
    parts = zip(torch.split(states, most), torch.split(others, most), strict=True)
    return torch.cat([checkpoint(function, *part, use_reentrant=False) for part in parts])
