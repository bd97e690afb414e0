"""The losses: functions of logits and of what is taught.

Coordinates are weighed over the whole vocabulary: with a softmax over coordinate tokens alone, nothing would keep text out
of boxes. Where a coordinate is needed as a number (L1, GIoU), it is the expectation under the model, given that the token
is a coordinate.

Every term is a sum whose parts carry their shares already: one over the text tokens, or the objects, that the true answers
of the step's images hold together. So sums over packs and ranks are means over the step, however its samples are laid out,
and a token weighs the same on either channel and in every image.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from stageb.two_channel.config import LossConfig
from stageb.two_channel.types import BINS

_TINY = 1e-9  # an area that stands in for none


@dataclass(frozen=True, slots=True)
class Taught:
    """What is taught of a pack. A *row* is one of its logits that are looked at: of the token it should bring."""

    tokens: Tensor  # int64 (rows,): that token
    text: Tensor  # float (rows,): its share in the text's cross-entropy
    slots: Tensor  # int64 (objects, 4): rows of an object's coordinates
    bins: Tensor  # int64 (objects, 4): the true ones
    shares: Tensor  # float (objects,): of an object
    against: Tensor  # float (rows,): share of the token in what is taught against


@dataclass(frozen=True, slots=True)
class DetectionLosses:
    """Terms of the loss, unweighted, and what they sum to with their weights."""

    total: Tensor
    text: Tensor
    coordinates: Tensor
    l1: Tensor
    giou: Tensor
    against: Tensor
    mass: Tensor  # mean probability, where a coordinate belongs, of all coordinate tokens together; no loss


NAMES = tuple(field.name for field in fields(DetectionLosses))


def losses(passes: tuple[Tensor, Tensor], taught: Taught, first: int, weights: LossConfig) -> DetectionLosses:
    """The losses of a pack whose ``passes`` came to logits (rows, vocabulary): cross-entropies are taken on the first
    pass's, expected coordinates on the last's. ``first`` is the id of the coordinate token of bin 0."""
    logits, last = (each.float() for each in passes)
    text = (cross_entropy(logits, taught.tokens, reduction="none") * taught.text).sum()
    chances = logits[taught.slots].log_softmax(-1)[..., first : first + BINS]  # (objects, 4, bins), of the whole vocabulary
    coordinates = _shared(soft_cross_entropy(chances, taught.bins, weights.soft_width).mean(-1), taught)
    boxes = in_order(expected(last[taught.slots][..., first : first + BINS]))
    true = taught.bins.float() / (BINS - 1)
    terms = {
        "text": text,
        "coordinates": coordinates,
        "l1": _shared((boxes - true).abs().mean(-1), taught),
        "giou": _shared(1 - giou(boxes, true), taught),
        "against": _against(logits, taught),
    }
    total = torch.stack([getattr(weights, name) * term for name, term in terms.items() if getattr(weights, name)]).sum()
    return DetectionLosses(total, **terms, mass=_shared(chances.detach().exp().sum(-1).mean(-1), taught))


def soft_cross_entropy(chances: Tensor, bins: Tensor, soft_width: float) -> Tensor:
    """Cross-entropy of ``chances`` (..., bins), log-probabilities, with a Gaussian around ``bins`` (...), whose standard
    deviation is ``soft_width`` and whose sum over the bins is 1; 0: with that bin alone."""
    if not soft_width:
        return -chances.gather(-1, bins[..., None])[..., 0]
    away = torch.arange(BINS, device=bins.device) - bins[..., None]
    wanted = (-0.5 * (away / soft_width) ** 2).softmax(-1)
    return -(wanted * chances).sum(-1)


def expected(logits: Tensor) -> Tensor:
    """Expected coordinates, from 0 to 1, under ``logits`` (..., bins)."""
    places = torch.linspace(0, 1, BINS, device=logits.device)
    return logits.softmax(-1) @ places


def in_order(boxes: Tensor) -> Tensor:
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


def _against(logits: Tensor, taught: Taught) -> Tensor:
    """-log(1 - p) of the tokens taught against: by what all others hold, which stays finite where the model is sure."""
    rows = taught.against.nonzero()[:, 0]
    others = logits[rows].scatter(-1, taught.tokens[rows, None], -torch.inf)
    return ((logits[rows].logsumexp(-1) - others.logsumexp(-1)) * taught.against[rows]).sum()


def _shared(term: Tensor, taught: Taught) -> Tensor:
    return (term * taught.shares).sum()
