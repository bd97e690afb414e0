"""Attention of rows that begin alike: what they share is read once, on three levels.

Registered with transformers as ``NAME``. It equals transformers' sdpa except in two cases: packed
rows (``attention.py``), and a single query per row behind a shared stem. There the queries of all
rows form one matrix for the stem, and those of a prompt's samples one for the prompt. The scores of
stem, prompt and own part share one softmax, and the weighted values are summed: exact attention
over the concatenated keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from stageb.engines.native.products import FLOAT8, quantize_rows

# Exact attention over packed rows on three levels, each read once: the text that all prompts share
# (the *stem*), each prompt's own part, and each row's new tokens.
#
# *Packed* means one line of tokens without padding, (1, tokens), whatever prompt or row a token
# belongs to. A *view* says where it belongs, and is what a forward pass hands to its attention:
# ``Prefill`` for prompts, ``Stepping`` for one new token of every row. Levels are merged by their
# log-sum-exp: out = sum_i exp(lse_i - lse) out_i with lse = log sum_i exp(lse_i), as in
# Flash-Decoding (Dao et al., 2023).
#
# On a GPU in half precision, the kernels in ``kernels.py`` read prompts and, in steps, all but the
# stem, which torch's flash attention reads. On a CPU, where rows are packed for reading alone,
# torch has a flash attention of another name. Elsewhere (tests, float32 on a GPU) plain products do
# the same, slowly.

Stem = tuple[Tensor, Tensor]  # keys and values that all rows share: each (1, key heads, stem, dim)
Found = tuple[Tensor, Tensor]  # (queries, heads, dim) and its log-sum-exp, float32 (heads, queries)

TILE = 64  # queries of one text that a program reads for
# queries of one key head that a group of rows may bring: more would spill registers
GROUP_LINES = 64


@dataclass(frozen=True, slots=True)
class PromptStore:
    """Room for the keys and values of all prompts' own parts, packed; in float8 where there are
    scales."""

    states: Tensor | list[Tensor]  # (layers, 2, key heads, tokens, dim)
    scales: Tensor | None = None  # float32 (layers, 2, key heads, tokens)

    @classmethod
    def of(cls, like: Tensor, layers: int, tokens: int, float8: bool) -> PromptStore:
        """Room for ``tokens`` whose keys are ``like`` (1, key heads, any, dim)."""
        shape = (layers, 2, like.shape[1], tokens, like.shape[3])
        if not float8:
            return cls(like.new_empty(shape))
        return cls(
            like.new_empty(shape, dtype=FLOAT8), like.new_empty(shape[:-1], dtype=torch.float32)
        )

    def keep(self, layer: int, start: int, states: Stem) -> None:
        """Put keys and values, (key heads, tokens, dim) each, behind the first ``start`` tokens of
        ``layer``."""
        for part, found in enumerate(states):
            span = slice(start, start + found.shape[1])
            if self.scales is None:
                self.states[layer][part][:, span] = found
            elif found.is_cuda:
                from stageb.engines.native import kernels

                kernels.keep_in_float8(
                    found, self.states[layer][part][:, span], self.scales[layer, part, :, span]
                )
            else:
                self.states[layer][part][:, span], scale = quantize_rows(found)
                self.scales[layer, part, :, span] = scale[..., 0]

    def read(self, layer: int, dtype: torch.dtype) -> Stem:
        """All keys and values of ``layer``, (key heads, tokens, dim) each, as ``dtype``."""
        keys, values = self.states[layer]
        if self.scales is None:
            return keys, values
        of_keys, of_values = self.scales[layer, ..., None]
        return (keys.float() * of_keys).to(dtype), (values.float() * of_values).to(dtype)


@dataclass(frozen=True, slots=True)
class Prefill:
    """Prompts being read: each sees the stem and itself up to the token that looks. No gradient
    goes back through it."""

    stems: list[Stem] | None  # one per layer
    edges: list[int]  # where the texts that are packed in the line begin and end
    tiles: Tensor  # see ``make_tiles``, on the device
    store: PromptStore | None = None  # where to keep their keys and values
    start: int = 0  # from which token of it

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float
    ) -> Tensor:
        """(queries, heads, dim) and (key heads, queries, dim) to (queries, heads, dim)."""
        if self.store is not None:
            self.store.keep(layer, self.start, (key, value))
        stem = None if self.stems is None else self.stems[layer]
        if has_flash(query):
            from stageb.engines.native import kernels

            return kernels.read_attention(
                query, key, value, self.tiles, TILE, stem and (stem[0][0], stem[1][0]), scaling
            )
        own = attend_apart(query, key, value, self.edges, scaling)
        if stem is None:
            return own[0]
        return _merge(own, stem_attention(query, stem, scaling))


@dataclass(frozen=True, slots=True)
class Stepping:
    """Rows that step together: each sees the stem, its prompt, its earlier new tokens, and the
    token being fed."""

    stems: list[Stem] | None
    prompts: PromptStore
    # (layers, 2, slots, key heads, room, dim): of the rows' new tokens; a row keeps its slot to its
    # end
    new: Tensor
    # int32 (groups, 4): where the prompt starts in ``prompts``, its length, the first row, how many
    # rows
    groups: Tensor
    members: int  # rows of the largest group
    slots: Tensor  # int32 (rows,)
    # int32 (rows,): new tokens that each row has in its slot; the token being fed is put behind
    # them
    counts: Tensor

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float
    ) -> Tensor:
        """(rows, heads, dim) and (key heads, rows, dim) to (rows, heads, dim); stores ``key`` and
        ``value``."""
        stem = stem_attention(query, self.stems[layer], scaling) if self.stems else None
        new = self.new[layer, 0], self.new[layer, 1]
        key, value = key.transpose(0, 1).contiguous(), value.transpose(0, 1).contiguous()
        if query.is_cuda:
            from stageb.engines.native import kernels

            states, scales = self.prompts.states[layer], self.prompts.scales
            prompts = (
                states[0],
                states[1],
                *(() if scales is None else (scales[layer, 0], scales[layer, 1])),
            )
            return kernels.step_attention(
                query,
                key,
                value,
                prompts,
                new,
                self.groups,
                self.members,
                self.slots,
                self.counts,
                stem,
                scaling,
            )
        return self._plain(
            query, (key, value), self.prompts.read(layer, query.dtype), new, stem, scaling
        )

    def _plain(
        self, query: Tensor, fed: Stem, prompts: Stem, new: Stem, stem: Found | None, scaling: float
    ) -> Tensor:
        """Compute the kernel's result in plain PyTorch, row by row."""
        found = []
        for start, length, first, members in self.groups.tolist():
            for row in range(first, first + members):
                slot, count = int(self.slots[row]), int(self.counts[row])
                seen = []
                for prompt, store, states in zip(prompts, new, fed, strict=True):
                    store[slot, :, count] = states[row]
                    seen.append(
                        torch.cat(
                            [prompt[:, start : start + length], store[slot, :, : count + 1]], 1
                        )
                    )
                found.append(_attend_dense(query[row : row + 1], seen[0], seen[1], scaling))
        own = torch.cat([out for out, _ in found]), torch.cat([lse for _, lse in found], 1)
        return _merge(own, stem) if stem else own[0]


class AttentionPattern(Protocol):
    """Says which tokens see which."""

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float
    ) -> Tensor:
        """(queries, heads, dim) and (key heads, queries, dim) to (queries, heads, dim)."""
        ...


class Envelope:
    """Carries a view through compiled layers unread: they would be compiled anew for every length
    of a list in a view.

    A plain class, since the compiler looks into dataclasses.
    """

    def __init__(self, view: AttentionPattern) -> None:
        self.view = view


def packed_attention(
    module: Any, packed: Envelope, query: Tensor, key: Tensor, value: Tensor, scaling: float
) -> Tensor:
    """Between transformers' shapes, (1, heads, tokens, dim) in and (1, tokens, heads, dim) out, and
    a view's."""
    return packed.view.attend(
        module.layer_idx, query[0].transpose(0, 1).contiguous(), key[0], value[0], scaling
    )[None]


def make_tiles(edges: list[int]) -> list[tuple[int, int, int]]:
    """Texts between ``edges`` in tiles of TILE queries: (where the text begins, the tile's first
    place in it, the text's length)."""
    texts = [(start, end - start) for start, end in pairwise(edges)]
    return [(start, first, length) for start, length in texts for first in range(0, length, TILE)]


def group_rows(prompt_of: list[int], lines: int) -> list[tuple[int, int, int]]:
    """Runs of rows with one prompt as (prompt, first row, rows), none of more rows than bring
    GROUP_LINES queries.

    ``prompt_of`` names each row's prompt, rows of one prompt standing together; ``lines`` are the
    queries of one row and key head.
    """
    largest = max(1, GROUP_LINES // lines)
    groups: list[tuple[int, int, int]] = []
    for row, prompt in enumerate(prompt_of):
        if groups and groups[-1][0] == prompt and groups[-1][2] < largest:
            groups[-1] = (prompt, groups[-1][1], groups[-1][2] + 1)
        else:
            groups.append((prompt, row, 1))
    return groups


def stem_attention(query: Tensor, stem: Stem, scaling: float) -> Found:
    """All of ``query`` (queries, heads, dim) against all of ``stem``."""
    key, value = stem[0][0], stem[1][0]
    if not has_flash(query):
        return _attend_text(query, key, value, scaling)
    # Lines of one text: no edges are needed, and none could be made while a graph is being
    # captured.
    found = torch.ops.aten._flash_attention_forward(
        query[None], key.transpose(0, 1)[None], value.transpose(0, 1)[None], None, None,
        len(query), key.shape[1], 0.0, False, False, scale=scaling,
    )  # fmt: skip
    return found[0][0], found[1][0]


def has_flash(query: Tensor) -> bool:
    """Whether torch's flash attention takes such queries."""
    return (
        query.is_cuda
        and query.dtype in (torch.float16, torch.bfloat16)
        and query.shape[-1] in range(8, 257, 8)
    )


def attend_apart(
    query: Tensor, key: Tensor, value: Tensor, edges: list[int], scaling: float
) -> Found:
    """Texts packed behind each other between ``edges``, each seeing itself, one by one; in a view's
    shapes."""
    lengths = [end - start for start, end in pairwise(edges)]
    parts = zip(
        torch.split(query, lengths),
        torch.split(key, lengths, 1),
        torch.split(value, lengths, 1),
        strict=True,
    )
    found = [_attend_text(*part, scaling, causal=True) for part in parts]
    return torch.cat([out for out, _ in found]), torch.cat([lse for _, lse in found], 1)


def _attend_text(
    query: Tensor, key: Tensor, value: Tensor, scaling: float, causal: bool = False
) -> Found:
    """Attend within one text, in ``_attend_dense``'s shapes: by flash attention on a CPU, by plain
    products elsewhere."""
    if query.device.type != "cpu":
        return _attend_dense(query, key, value, scaling, causal)
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query.transpose(0, 1)[None], key[None], value[None], 0.0, causal, scale=scaling
    )
    return out[0].transpose(0, 1), lse[0]


def _attend_dense(
    query: Tensor, key: Tensor, value: Tensor, scaling: float, causal: bool = False
) -> Found:
    """Plain attention: ``query`` (queries, heads, dim), ``key`` and ``value`` (key heads, keys,
    dim)."""
    queries, heads, dim = query.shape
    # (key heads, per key, queries, dim)
    grouped = query.view(queries, len(key), -1, dim).permute(1, 2, 0, 3)
    scores = (grouped @ key[:, None].transpose(2, 3)).float() * scaling
    if causal:
        scores = scores.masked_fill(
            ~torch.ones_like(scores[0, 0], dtype=torch.bool).tril(), -torch.inf
        )
    out = (scores.softmax(-1).to(value.dtype) @ value[:, None]).permute(2, 0, 1, 3)
    return out.reshape(queries, heads, -1).contiguous(), scores.logsumexp(-1).reshape(
        heads, queries
    )


def _merge(one: Found, other: Found) -> Tensor:
    """Attention over the keys of both: a mean weighted by each one's share of the sum of
    exponentials."""
    share = torch.sigmoid(other[1] - one[1]).to(one[0].dtype)
    return torch.lerp(one[0], other[0], share.t()[..., None])


NAME = "stageb_stemmed"

# What models say to their attention and packed attention may overlook. Whatever else one says, it
# would have to heed.
_OF_NO_CONSEQUENCE = {
    *("dropout", "is_causal", "position_ids", "cache_position", "use_cache"),
    *("output_attentions", "output_hidden_states", "output_router_logits"),
}


@torch.compiler.disable  # type: ignore[untyped-decorator]  # the layers around it may be compiled
def stemmed_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend from ``query`` (rows, heads, columns, dim) to the stem and to ``key``, ``value``
    (rows, key heads, own, dim).

    ``options["stems"]`` holds a ``Stem`` for each layer, ``options["prompts"]`` one more, of a line
    for each prompt, where ``key`` and ``value`` do not hold them. Without stems, and where the mask
    has no more columns than these two, they are all there is. Returns (rows, columns, heads, dim),
    as transformers' attention functions do.
    """
    packed: Envelope | None = options.pop("packed", None)
    if packed is not None:
        scaling = options.pop("scaling", None) or query.shape[-1] ** -0.5
        unheeded = {
            name for name, value in options.items() if value is not None
        } - _OF_NO_CONSEQUENCE
        if unheeded:
            raise NotImplementedError(
                f"packed attention does not heed {', '.join(sorted(unheeded))}"
            )
        return packed_attention(module, packed, query, key, value, scaling), None
    stems: list[Stem] | None = options.pop("stems", None)
    prompts: list[Stem] | None = options.pop("prompts", None)
    apart = query.shape[2] == 1 or (
        attention_mask is not None and attention_mask.shape[-1] > key.shape[2]
    )
    if stems is None or not apart:
        plain: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, **options
        )
        return plain
    scaling = options.get("scaling") or query.shape[-1] ** -0.5
    assert attention_mask is not None  # the decode loop always gives one for a single column
    shared = [each[module.layer_idx] for each in (stems, prompts) if each is not None]
    return attend_one_step(query, [*shared, (key, value)], attention_mask, scaling), None


def attend_one_step(query: Tensor, levels: list[Stem], mask: Tensor, scaling: float) -> Tensor:
    """Attention of one query per row, or a few, to its line of each of ``levels``: the stem,
    prompts where there are any, own parts.

    A level's keys and values are (lines, key heads, columns, dim) each: one line for all rows, one
    for each prompt, one for each row. Each line serves equally many rows, in their order. ``mask``
    (rows, 1, queries, columns of all levels) is true where a query may look.
    """
    rows, heads, columns, dim = query.shape
    key_heads, length = levels[0][0].shape[1:3]  # of the stem, which all rows see whole
    grouped = query.reshape(rows, key_heads, heads // key_heads * columns, dim)
    scores = torch.cat(
        [_unfold(_fold(grouped, len(keys)) @ keys.transpose(2, 3), rows) for keys, _ in levels], -1
    )
    apart = scores.view(rows, key_heads, heads // key_heads, columns, -1)
    apart[..., length:].masked_fill_(~mask[:, :, None, :, length:], -torch.inf)
    weights = (scores * scaling).softmax(-1, dtype=torch.float32).to(query.dtype)
    parts = torch.split(weights, [keys.shape[2] for keys, _ in levels], -1)
    found = [
        _unfold(_fold(part, len(values)) @ values, rows)
        for part, (_, values) in zip(parts, levels, strict=True)
    ]
    return sum(found[1:], start=found[0]).reshape(rows, heads, columns, -1).transpose(1, 2)


def _fold(tensor: Tensor, lines: int) -> Tensor:
    """(rows, key heads, per key, n) to (lines, key heads, rows / lines * per key, n)."""
    rows, key_heads, per_key, columns = tensor.shape
    if lines == rows:
        return tensor
    return (
        tensor.view(lines, rows // lines, key_heads, per_key, columns).transpose(1, 2).flatten(2, 3)
    )


def _unfold(tensor: Tensor, rows: int) -> Tensor:
    """The way back."""
    lines, key_heads, _, columns = tensor.shape
    if lines == rows:
        return tensor
    return tensor.view(lines, key_heads, rows // lines, -1, columns).transpose(1, 2).flatten(0, 1)


AttentionInterface.register(NAME, stemmed_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
