"""Attention for rows that begin alike: a decode step reads the shared keys and values once, not once per row.

Registered with transformers as ``NAME``. It equals transformers' sdpa except in two cases: packed rows (``cascade.py``),
and a single query per row behind a shared stem. There the queries of all rows form one matrix for the stem, and those of
a prompt's samples one for the prompt. The scores of stem, prompt and own part share one softmax, and the weighted values
are summed: exact attention over the concatenated keys.
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

    ``options["stems"]`` holds a ``Stem`` for each layer, ``options["prompts"]`` one more, of a line for each prompt, where
    ``key`` and ``value`` do not hold them. Without stems, and where the mask has no more columns than these two, they are
    all there is.
    Returns (rows, columns, heads, dim), as transformers' attention functions do.
    """
    packed: Envelope | None = options.pop("packed", None)
    if packed is not None:
        scaling = options.pop("scaling", None) or query.shape[-1] ** -0.5
        unheeded = {name for name, value in options.items() if value is not None} - _OF_NO_CONSEQUENCE
        if unheeded:
            raise NotImplementedError(f"packed attention does not heed {', '.join(sorted(unheeded))}")
        return packed_attention(module, packed, query, key, value, scaling), None
    stems: list[Stem] | None = options.pop("stems", None)
    prompts: list[Stem] | None = options.pop("prompts", None)
    apart = query.shape[2] == 1 or (attention_mask is not None and attention_mask.shape[-1] > key.shape[2])
    if stems is None or not apart:
        plain: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        return plain
    scaling = options.get("scaling") or query.shape[-1] ** -0.5
    assert attention_mask is not None  # the decode loop always gives one for a single column
    shared = [each[module.layer_idx] for each in (stems, prompts) if each is not None]
    return attend_one_step(query, [*shared, (key, value)], attention_mask, scaling), None


def attend_one_step(query: Tensor, levels: list[Stem], mask: Tensor, scaling: float) -> Tensor:
    """Attention of one query per row, or a few, to its line of each of ``levels``: the stem, prompts where there are any,
    own parts.

    A level's keys and values are (lines, key heads, columns, dim) each: one line for all rows, one for each prompt, one for
    each row. Each line serves equally many rows, in their order. ``mask`` (rows, 1, queries, columns of all levels) is true
    where a query may look.
    """
    rows, heads, columns, dim = query.shape
    key_heads, length = levels[0][0].shape[1:3]  # of the stem, which all rows see whole
    grouped = query.reshape(rows, key_heads, heads // key_heads * columns, dim)
    scores = torch.cat([_unfold(_fold(grouped, len(keys)) @ keys.transpose(2, 3), rows) for keys, _ in levels], -1)
    apart = scores.view(rows, key_heads, heads // key_heads, columns, -1)
    apart[..., length:].masked_fill_(~mask[:, :, None, :, length:], -torch.inf)
    weights = (scores * scaling).softmax(-1, dtype=torch.float32).to(query.dtype)
    parts = torch.split(weights, [keys.shape[2] for keys, _ in levels], -1)
    found = [_unfold(_fold(part, len(values)) @ values, rows) for part, (_, values) in zip(parts, levels, strict=True)]
    return sum(found[1:], start=found[0]).reshape(rows, heads, columns, -1).transpose(1, 2)


def _fold(tensor: Tensor, lines: int) -> Tensor:
    """(rows, key heads, per key, n) to (lines, key heads, rows / lines * per key, n)."""
    rows, key_heads, per_key, columns = tensor.shape
    if lines == rows:
        return tensor
    return tensor.view(lines, rows // lines, key_heads, per_key, columns).transpose(1, 2).flatten(2, 3)


def _unfold(tensor: Tensor, rows: int) -> Tensor:
    """The way back."""
    lines, key_heads, _, columns = tensor.shape
    if lines == rows:
        return tensor
    return tensor.view(lines, key_heads, rows // lines, -1, columns).transpose(1, 2).flatten(0, 1)


AttentionInterface.register(NAME, stemmed_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
