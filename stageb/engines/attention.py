"""Attention for rows that begin alike: one step of decoding reads the shared keys and values once, not once per row.

Registered with transformers as ``NAME``, and the same as its sdpa but for packed rows (``cascade.py``) and for a single
query behind a shared stem. There the queries of all rows are folded into one matrix for the stem, scores of stem and own
part meet in one softmax, and the weighted values are added up. On a CPU, decoding waits for memory: with 200 shared tokens
of 300 this is the largest saving there is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from stageb.engines.cascade import Envelope, Stem, packed_attention

NAME = "stageb_stemmed"

# What models say to their attention and packed attention may overlook. Whatever else one says, it would have to heed.
_OF_NO_CONSEQUENCE = {
    *("dropout", "is_causal", "position_ids", "cache_position", "use_cache"),
    *("output_attentions", "output_hidden_states", "output_router_logits"),
}


@torch.compiler.disable  # type: ignore[untyped-decorator]  # the layers around it may be compiled
def stemmed_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Attend from ``query`` (rows, heads, columns, dim) to the stem and to ``key``, ``value`` (rows, key heads, own, dim).

    ``options["stems"]`` holds a ``Stem`` for each layer. Without it, and for more than one column, ``key`` and ``value`` are
    all there is. Returns (rows, columns, heads, dim), as transformers' attention functions do.
    """
    packed: Envelope | None = options.pop("packed", None)
    if packed is not None:
        scaling = options.pop("scaling", None) or query.shape[-1] ** -0.5
        unheeded = {name for name, value in options.items() if value is not None} - _OF_NO_CONSEQUENCE
        if unheeded:
            raise NotImplementedError(f"packed attention does not heed {', '.join(sorted(unheeded))}")
        return packed_attention(module, packed, query, key, value, scaling), None
    stems: list[Stem] | None = options.pop("stems", None)
    if stems is None or query.shape[2] > 1:
        plain: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        return plain
    scaling = options.get("scaling") or query.shape[-1] ** -0.5
    assert attention_mask is not None  # the decode loop always gives one for a single column
    return one_step(query, key, value, stems[module.layer_idx], attention_mask, scaling), None


def one_step(query: Tensor, key: Tensor, value: Tensor, stem: Stem, mask: Tensor, scaling: float) -> Tensor:
    """Attention of one query per row; ``mask`` (rows, 1, 1, stem + own) is true where a row may look."""
    rows, heads, _, dim = query.shape
    key_heads, per_key = key.shape[1], heads // key.shape[1]
    stem_key, stem_value = (tensor[0] for tensor in stem)
    length = stem_key.shape[1]
    grouped = query.view(rows, key_heads, per_key, dim)
    folded = _folded(grouped) @ stem_key.transpose(1, 2)
    own = (grouped @ key.transpose(2, 3)).masked_fill(~mask[..., length:], -torch.inf)
    scores = torch.cat([_unfolded(folded, rows), own], -1) * scaling
    weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    result = weights[..., length:] @ value
    result = result + _unfolded(_folded(weights[..., :length]) @ stem_value, rows)
    return result.reshape(rows, 1, heads, -1)


def _folded(tensor: Tensor) -> Tensor:
    """(rows, key heads, per key, n) to (key heads, rows * per key, n)."""
    return tensor.transpose(0, 1).flatten(1, 2)


def _unfolded(tensor: Tensor, rows: int) -> Tensor:
    """The way back."""
    key_heads, _, columns = tensor.shape
    return tensor.view(key_heads, rows, -1, columns).transpose(0, 1)


AttentionInterface.register(NAME, stemmed_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
