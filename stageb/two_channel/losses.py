"""The losses: functions of hidden states, of the layer that makes logits of them, and of what is taught.

Coordinates are weighed over the whole vocabulary: with a softmax over coordinate tokens alone, nothing would keep text out
of boxes. Where a coordinate is needed as a number (L1, GIoU), it is the expectation under the model, given that the token
is a coordinate.

Every term is a sum whose parts carry their shares already: one over the text tokens, or the objects, that the true answers
of the step's images hold together. So sums over packs and ranks are means over the step, however its samples are laid out,
and a token weighs the same on either channel and in every image.

Logits are made of a bounded number of rows at a time, and again on the way back (Chen et al. 2016), so that memory does not
grow with the vocabulary: of 150,000 words and a pack's 5,000 rows they would take 3 GB in single precision, several times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from stageb.engines.transfer import send
from stageb.two_channel.config import LossConfig
from stageb.two_channel.types import BINS

_TINY = 1e-9  # an area that stands in for none


@dataclass(frozen=True, slots=True)
class Head:
    """The layer that makes logits of hidden states."""

    logits: Callable[[Tensor], Tensor]  # hidden states (rows, width) to (rows, vocabulary)
    first: int  # the id of the coordinate token of bin 0
    rows: int  # whose logits may be there at a time


@dataclass(frozen=True, slots=True)
class Taught:
    """What is taught of a pack. A *row* is one of its hidden states that are looked at: of the token it should bring."""

    tokens: Tensor  # int64 (rows,): that token
    words: Tensor  # int64 (words,): rows of taught text
    slots: Tensor  # int64 (objects, 4): rows of an object's coordinates
    bins: Tensor  # int64 (objects, 4): the true ones
    against: Tensor  # int64 (coordinates,): rows whose token is taught against
    weighed: Tensor  # int64 (tokens,): rows whose token's log-probability is weighed
    weights: Tensor  # (tokens,): by how much, of either sign
    word_share: float  # of a word in its term
    object_share: float  # of an object in its terms

    def to(self, device: torch.device) -> Taught:
        """The same, on ``device``."""
        return replace(
            self,
            tokens=send(self.tokens, device),
            words=send(self.words, device),
            slots=send(self.slots, device),
            bins=send(self.bins, device),
            against=send(self.against, device),
            weighed=send(self.weighed, device),
            weights=send(self.weights, device),
        )


@dataclass(frozen=True, slots=True)
class DetectionLosses:
    """Terms of the loss, unweighted, and what they sum to with their weights."""

    total: Tensor
    text: Tensor
    coordinates: Tensor
    l1: Tensor
    giou: Tensor
    against: Tensor
    reward: Tensor  # its gradient is minus that of the expected reward
    mass: Tensor  # mean probability, where a coordinate belongs, of all coordinate tokens together; no loss


NAMES = tuple(field.name for field in fields(DetectionLosses))


def compute_losses(passes: tuple[Tensor, Tensor], taught: Taught, head: Head, weights: LossConfig) -> DetectionLosses:
    """The losses of a pack whose ``passes`` came to hidden states (rows, width): cross-entropies are taken on the first
    pass's, expected coordinates on the last's."""

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
        """-log(1 - p): by what all other tokens hold, which stays finite where the model is sure."""
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
    rewarded = _apply_in_chunks(text, head.rows, states[taught.weighed], taught.tokens[taught.weighed]) @ taught.weights
    rewarded = rewarded * taught.object_share
    if len(taught.weighed):
        total = total + weights.reward * rewarded
    return DetectionLosses(total, **terms, reward=rewarded, mass=masses.detach().sum() * coordinate_share)


def soft_cross_entropy(chances: Tensor, bins: Tensor, soft_width: float) -> Tensor:
    """Cross-entropy of ``chances`` (..., bins), log-probabilities, with a Gaussian around ``bins`` (...), whose standard
    deviation is ``soft_width`` and whose sum over the bins is 1; 0: with that bin alone."""
    if not soft_width:
        return -chances.gather(-1, bins[..., None])[..., 0]
    away = torch.arange(BINS, device=bins.device) - bins[..., None]
    wanted = (-0.5 * (away / soft_width) ** 2).softmax(-1)
    return -(wanted * chances).sum(-1)


def expected_coordinates(logits: Tensor) -> Tensor:
    """Expected coordinates, from 0 to 1, under ``logits`` (..., bins)."""
    places = torch.linspace(0, 1, BINS, device=logits.device)
    return logits.softmax(-1) @ places


def sort_corners(boxes: Tensor) -> Tensor:
    """``boxes`` (..., 4) with the lesser x and y first: expectations may come in any order."""
    corners = boxes.reshape(*boxes.shape[:-1], 2, 2)
    return torch.cat([corners.amin(-2), corners.amax(-2)], -1)


def giou(boxes: Tensor, others: Tensor) -> Tensor:
    """Generalised IoU of each box (..., 4) with its own of ``others``, from -1 to 1 (Rezatofighi et al. 2019, algorithm 1);
    0 where both and what encloses them have no area. transformers' function weighs every box with every other."""
    (low, high), (others_low, others_high) = torch.split(boxes, 2, -1), torch.split(others, 2, -1)
    shared = _area((torch.minimum(high, others_high) - torch.maximum(low, others_low)).clamp(min=0))
    union = _area(high - low) + _area(others_high - others_low) - shared
    around = _area(torch.maximum(high, others_high) - torch.minimum(low, others_low))
    return shared / union.clamp(min=_TINY) - (around - union) / around.clamp(min=_TINY)


def _area(sides: Tensor) -> Tensor:
    return sides[..., 0] * sides[..., 1]


def _apply_in_chunks(function: Callable[[Tensor, Tensor], Tensor], most: int, states: Tensor, others: Tensor) -> Tensor:
    """What ``function`` makes of each row of ``states`` and ``others``, at most so many at a time; where they are more,
    what it holds on the way is made again on the way back."""
    if len(states) <= most:
        return function(states, others)
    parts = zip(torch.split(states, most), torch.split(others, most), strict=True)
    return torch.cat([checkpoint(function, *part, use_reentrant=False) for part in parts])
