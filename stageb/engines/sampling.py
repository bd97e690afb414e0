"""Keyed sampling: the next token of every row from its logits, its decode setting and its random stream.

A row's draw is a function of (logits, decode, key, position) alone, so it cannot see the batch around it. One uniform
number per row and position, the same as ``seeds.uniform`` gives, picks the token by inverting the cumulative distribution
in the order of token ids.

The order of the steps is transformers' own: repetition penalty, temperature, top-k, top-p. Both cuts are made by value:
tokens as probable as the last one kept are kept too. So no order among equals is needed, which matters in bfloat16, where
equal logits are common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stageb import seeds
from stageb.engines.protocol import Decode


def _signed(bits: int) -> int:
    """64 bits as the int64 that holds them."""
    return bits - (1 << 64) if bits >> 63 else bits


_GOLDEN, _MIX_1, _MIX_2 = _signed(seeds.GOLDEN), _signed(seeds.MIX_1), _signed(seeds.MIX_2)


def _wide(device: torch.device) -> torch.dtype:
    """The type that probabilities are summed in: Apple's GPUs know no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def _shift(z: Tensor, places: int) -> Tensor:
    """``z`` shifted right by ``places``, zeros coming in: torch's own shift brings the sign in."""
    return (z >> places) & ((1 << (64 - places)) - 1)


def uniforms(keys: Tensor, position: int) -> Tensor:
    """``seeds.uniform(key, position)`` for each of ``keys``: int64 (rows,) holding 64 bits, to floats (rows,)."""
    z = keys + _signed(((position + 1) * seeds.GOLDEN) & seeds.MASK)
    z = (z ^ _shift(z, 30)) * _MIX_1
    z = (z ^ _shift(z, 27)) * _MIX_2
    return _shift(z ^ _shift(z, 31), 11).to(_wide(keys.device)) * 2.0**-53


@dataclass(frozen=True)
class Settings:
    """How each row of a batch samples: one element per row, on the logits' device."""

    keys: Tensor  # int64: the row's stream
    temperature: Tensor  # a float; 0: greedy
    top_k: Tensor  # int64; the vocabulary's size: no limit
    top_p: Tensor  # a float
    penalty: Tensor  # a float: the repetition penalty
    samples: bool  # some row is not greedy
    largest_k: int  # the largest top-k that limits a row; 0: none does
    cuts_p: bool  # top-p limits some row
    penalises: bool  # a repetition penalty moves some row

    @classmethod
    def of(cls, decodes: Sequence[Decode], keys: Sequence[int], vocabulary: int, device: torch.device) -> Settings:
        """The settings of rows that decode with ``decodes`` and draw from ``keys``."""
        wide = _wide(device)
        limits = [min(decode.top_k, vocabulary) for decode in decodes]

        def column(values: Sequence[float], dtype: torch.dtype) -> Tensor:
            return torch.tensor(values, dtype=dtype, device=device)

        return cls(
            keys=column([_signed(key & seeds.MASK) for key in keys], torch.int64),
            temperature=column([decode.temperature for decode in decodes], wide),
            top_k=column([limit or vocabulary for limit in limits], torch.int64),
            top_p=column([decode.top_p for decode in decodes], wide),
            penalty=column([decode.repetition_penalty for decode in decodes], wide),
            samples=any(decode.temperature > 0 for decode in decodes),
            largest_k=max((limit for limit in limits if limit < vocabulary), default=0),
            cuts_p=any(decode.top_p < 1 for decode in decodes),
            penalises=any(decode.repetition_penalty != 1 for decode in decodes),
        )


def next_tokens(logits: Tensor, settings: Settings, position: int, seen: Tensor | None = None) -> Tensor:
    """The token of each row at ``position`` of its answer: (rows, vocabulary) to int64 (rows,).

    ``seen`` (rows, vocabulary) marks the tokens of prompt and answer; needed where a repetition penalty is set.
    """
    logits = logits.to(_wide(logits.device))
    if settings.penalises and seen is not None:
        logits = penalised(logits, seen, settings.penalty)
    greedy = logits.argmax(-1)  # the first, so the lowest id, among equals
    if not settings.samples:
        return greedy
    drawn = inverted(probabilities(logits, settings), uniforms(settings.keys, position))
    return torch.where(settings.temperature == 0, greedy, drawn)


def penalised(logits: Tensor, seen: Tensor, penalty: Tensor) -> Tensor:
    """``logits`` with those of ``seen`` tokens made less likely by the factor ``penalty`` (rows,)."""
    factor = penalty[:, None]
    return torch.where(seen, torch.where(logits < 0, logits * factor, logits / factor), logits)


def probabilities(logits: Tensor, settings: Settings) -> Tensor:
    """The distribution that each row draws from, (rows, vocabulary): 0 where cut; not scaled to 1 after top-p."""
    temperature = torch.where(settings.temperature == 0, 1.0, settings.temperature)
    # Taking the maximum off first keeps a temperature near 0 from overflowing.
    scaled = (logits - logits.amax(-1, keepdim=True)) / temperature[:, None]
    if settings.largest_k:
        scaled = scaled.masked_fill(scaled < _kth_largest(scaled, settings), -torch.inf)
    result = scaled.softmax(-1)
    if settings.cuts_p:
        result = result.masked_fill(result < _least_kept(result, settings.top_p), 0.0)
    return result


def _kth_largest(scaled: Tensor, settings: Settings) -> Tensor:
    """The value of the last token that top-k keeps, (rows, 1); minus infinity where it keeps all."""
    largest = scaled.topk(settings.largest_k).values
    limited = settings.top_k <= settings.largest_k
    last = largest.gather(-1, (settings.top_k.clamp(max=settings.largest_k) - 1)[:, None])
    return torch.where(limited[:, None], last, -torch.inf)


def _least_kept(probability: Tensor, top_p: Tensor) -> Tensor:
    """The probability of the last token that top-p keeps, (rows, 1); 0 where it keeps all."""
    falling = probability.sort(-1, descending=True).values
    kept = (falling.cumsum(-1) < top_p[:, None]).sum(-1, keepdim=True)  # before the last one
    last = falling.gather(-1, kept.clamp(max=falling.shape[-1] - 1))
    return torch.where(top_p[:, None] < 1, last, 0.0)


def inverted(probability: Tensor, uniform: Tensor) -> Tensor:
    """The token at ``uniform`` (rows,) of each row's cumulative distribution (rows, vocabulary), which need not sum to 1."""
    cumulative = probability.cumsum(-1)
    total = cumulative[:, -1]
    # Strictly below the total, so that a token with a positive probability is always found.
    target = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
    found = torch.searchsorted(cumulative, target[:, None], right=True)[:, 0]
    return found.clamp(max=probability.shape[-1] - 1)
