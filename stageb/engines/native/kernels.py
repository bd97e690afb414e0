"""Triton kernels: sums over blocks of a vocabulary (``rows.py``); attention of a decode step and of
prompts being read (``attention.py``); lines of numbers in float8 (``products.py``).

The kernel of a step runs one program per group and key head, where a *group* is the rows of one
prompt. It reads the prompt's keys and values once for all rows of the group, then each row's new
tokens, and merges both with what the rows found in the stem (softmax in base 2, by running maximum
and sum). Every key and value is read once per step, so the step is bound by memory bandwidth. The
kernel of prompts runs one program per head and *tile*, that is some queries of one text: the stem
and the text's own keys go through one softmax.

Triton comes with torch's CUDA wheels; this module is imported on GPUs alone.
"""

# ruff: noqa: N803, N806  # Triton writes what a kernel is compiled for in capitals
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import math

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

BLOCK = 64  # keys that a program looks at together
KEPT = 8192  # numbers that a program makes float8
LARGEST = torch.finfo(torch.float8_e4m3fn).max


@triton.jit
def _look(q, k, v, seen, top, total, acc, scale, of_values, PRECISION: tl.constexpr):  # type: ignore[no-untyped-def]
    """Go on with a softmax over more keys: its maximum (log 2), its sum and the weighted values so
    far.

    ``scale`` is of the scores and ``of_values`` of the values: one number, or a line with one for
    each key."""
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    scores = tl.where(seen, scores, -float("inf"))
    higher = tl.maximum(top, tl.max(scores, 1))
    weights = tl.exp2(scores - higher[:, None])
    shrink = tl.exp2(top - higher)
    acc = tl.dot(
        (weights * of_values).to(v.dtype), v, acc * shrink[:, None], input_precision=PRECISION
    )
    return higher, total * shrink + tl.sum(weights, 1), acc


@triton.jit(do_not_specialize=["rows", "tokens", "room"])
def _step_kernel(  # type: ignore[no-untyped-def]
    query, key, value, out,
    prompt_keys, prompt_values, key_scales, value_scales, new_keys, new_values,
    groups, slots, counts, stem_out, stem_lse,
    rows, tokens, room, scale,
    KEY_HEADS: tl.constexpr, PER_KEY: tl.constexpr, DIM: tl.constexpr,
    STEM: tl.constexpr, FLOAT8: tl.constexpr, LARGEST: tl.constexpr, PRECISION: tl.constexpr,
    MEMBERS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    group, head = tl.program_id(0), tl.program_id(1)
    start = tl.load(groups + group * 4).to(tl.int64)
    length = tl.load(groups + group * 4 + 1)
    first = tl.load(groups + group * 4 + 2)
    members = tl.load(groups + group * 4 + 3)

    # The queries: PER_KEY lines for each member.
    m = tl.arange(0, BLOCK_M)
    d = tl.arange(0, BLOCK_D)[None, :]
    member = m // PER_KEY
    line = ((first + member).to(tl.int64) * KEY_HEADS + head) * PER_KEY + m % PER_KEY
    at_query = line[:, None] * DIM + d
    is_query = (member < members)[:, None] & (d < DIM)
    q = tl.load(query + at_query, mask=is_query, other=0.0)

    # Finite, so that the idle lines of a block, which see no key at all, divide no infinities.
    top = tl.full([BLOCK_M], -1e30, tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)

    # The tokens fed in this step: looked at where they come in, and stored for the steps to come.
    r = tl.arange(0, BLOCK_R)
    slot = tl.load(slots + first + r, mask=r < members, other=0).to(tl.int64)
    count = tl.load(counts + first + r, mask=r < members, other=0)
    at_fed = ((first + r).to(tl.int64) * KEY_HEADS + head)[:, None] * DIM + d
    at_store = ((slot * KEY_HEADS + head) * room + count)[:, None] * DIM + d
    is_fed = (r < members)[:, None] & (d < DIM)
    fed_key = tl.load(key + at_fed, mask=is_fed, other=0.0)
    fed_value = tl.load(value + at_fed, mask=is_fed, other=0.0)
    tl.store(new_keys + at_store, fed_key, mask=is_fed)
    tl.store(new_values + at_store, fed_value, mask=is_fed)
    seen_fed = (member[:, None] == r[None, :]) & (r < members)[None, :]
    top, total, acc = _look(q, fed_key, fed_value, seen_fed, top, total, acc, scale, 1.0, PRECISION)

    # The prompt, for all members at once.
    n = tl.arange(0, BLOCK_N)
    prompt = (head.to(tl.int64) * tokens + start) * DIM
    # becomes float16 in one instruction, bfloat16 in four; values' scales are lifted into float16's
    # range
    if FLOAT8:
        acc = acc * LARGEST
    for begin in range(0, length, BLOCK_N):
        at = prompt + (begin + n)[:, None] * DIM + d
        mask = (begin + n < length)[:, None] & (d < DIM)
        k = tl.load(prompt_keys + at, mask=mask, other=0.0)
        v = tl.load(prompt_values + at, mask=mask, other=0.0)
        is_key = begin + n < length
        if FLOAT8:
            token = head.to(tl.int64) * tokens + start + begin + n
            of_key = scale * tl.load(key_scales + token, mask=is_key, other=1.0)[None, :]
            of_value = LARGEST * tl.load(value_scales + token, mask=is_key, other=1.0)[None, :]
            k, v = k.to(tl.float16), v.to(tl.float16)
            top, total, acc = _look(
                q.to(tl.float16),
                k,
                v,
                is_key[None, :],
                top,
                total,
                acc,
                of_key,
                of_value,
                PRECISION,
            )
        else:
            top, total, acc = _look(
                q, k, v, is_key[None, :], top, total, acc, scale, 1.0, PRECISION
            )

    if FLOAT8:
        acc = acc / LARGEST

    # Each member's earlier new tokens: a block holds as many columns of every member.
    WIDE: tl.constexpr = BLOCK_N // MEMBERS
    owner = n // WIDE
    owned = tl.load(counts + first + owner, mask=owner < members, other=0)
    store = (
        tl.load(slots + first + owner, mask=owner < members, other=0).to(tl.int64) * KEY_HEADS
        + head
    ) * room
    for begin in range(0, tl.max(owned, 0), WIDE):
        column = begin + n % WIDE
        at = (store + column)[:, None] * DIM + d
        mask = (column < owned)[:, None] & (d < DIM)
        k = tl.load(new_keys + at, mask=mask, other=0.0)
        v = tl.load(new_values + at, mask=mask, other=0.0)
        seen = (member[:, None] == owner[None, :]) & (column < owned)[None, :]
        top, total, acc = _look(q, k, v, seen, top, total, acc, scale, 1.0, PRECISION)

    if STEM:
        at_lse = (head * PER_KEY + m % PER_KEY) * rows + first + member
        # to base 2
        lse = tl.load(stem_lse + at_lse, mask=member < members, other=0.0) * 1.4426950408889634
        found = tl.load(stem_out + at_query, mask=is_query, other=0.0).to(tl.float32)
        higher = tl.maximum(top, lse)
        shrink, weight = tl.exp2(top - higher), tl.exp2(lse - higher)
        total = total * shrink + weight
        acc = acc * shrink[:, None] + found * weight[:, None]
    tl.store(out + at_query, (acc / total[:, None]).to(out.dtype.element_ty), mask=is_query)


def step_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    prompts: tuple[Tensor, ...],
    new: tuple[Tensor, Tensor],
    groups: Tensor,
    members: int,
    slots: Tensor,
    counts: Tensor,
    stem: tuple[Tensor, Tensor] | None,
    scaling: float,
) -> Tensor:
    """Compute ``attention.Stepping.attend`` in one kernel; returns (rows, heads, dim).

    ``key`` and ``value`` are (rows, key heads, dim); ``prompts`` are keys, values and, where these
    are float8, their scales; ``stem`` is what was found there, with its log-sum-exp. Everything is
    contiguous and on one GPU.
    """
    given = (query, key, value, *prompts, *new, groups, slots, counts, *(stem or ()))
    assert all(tensor.is_contiguous() for tensor in given)
    rows, heads, dim = query.shape
    key_heads, tokens = prompts[0].shape[:2]
    per_key, members = heads // key_heads, triton.next_power_of_2(members)
    lines = max(16, triton.next_power_of_2(members * per_key))
    out = torch.empty_like(query)
    float8 = len(prompts) == 4
    _step_kernel[len(groups), key_heads](
        *(query, key, value, out, *(prompts if float8 else (*prompts, query, query)), *new),
        *(groups, slots, counts, *(stem or (query, query))),
        *(rows, tokens, new[0].shape[2], scaling * math.log2(math.e)),
        KEY_HEADS=key_heads,
        PER_KEY=per_key,
        DIM=dim,
        STEM=stem is not None,
        FLOAT8=float8,
        LARGEST=LARGEST,
        PRECISION="ieee" if query.dtype == torch.float32 else "tf32",
        MEMBERS=members,
        BLOCK_M=lines,
        BLOCK_N=max(BLOCK, members),
        BLOCK_R=max(16, members),
        BLOCK_D=max(16, triton.next_power_of_2(dim)),
        num_warps=2 if float8 and lines == 16 else 4,
        num_stages=2,
    )
    return out


@triton.jit
def _look_at_all(q, k, v, top, total, acc, scale):  # type: ignore[no-untyped-def]
    """``_look`` where every query sees every key."""
    scores = tl.dot(q, tl.trans(k))
    higher = tl.maximum(top, tl.max(scores, 1) * scale)
    weights = tl.exp2(scores * scale - higher[:, None])
    shrink = tl.exp2(top - higher)
    acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None])
    return higher, total * shrink + tl.sum(weights, 1), acc


@triton.jit(do_not_specialize=["stem_tokens"])
def _read_kernel(  # type: ignore[no-untyped-def]
    query, key, value, stem_key, stem_value, tiles, out,
    key_of_head, key_of_token, value_of_head, value_of_token,
    stem_key_of_head, stem_key_of_token, stem_value_of_head, stem_value_of_token, stem_tokens,
    scale,
    HEADS: tl.constexpr, PER_KEY: tl.constexpr, DIM: tl.constexpr, STEM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    head, tile = tl.program_id(0), tl.program_id(1)
    key_head = (head // PER_KEY).to(tl.int64)
    text = tl.load(tiles + tile * 3).to(tl.int64)
    begin = tl.load(tiles + tile * 3 + 1)  # from here on all places are of the text
    length = tl.load(tiles + tile * 3 + 2)

    m, n = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    d = tl.arange(0, BLOCK_D)[None, :]
    at_query = ((text + begin + m)[:, None] * HEADS + head) * DIM + d
    is_query = (begin + m < length)[:, None] & (d < DIM)
    q = tl.load(query + at_query, mask=is_query, other=0.0)
    top = tl.full([BLOCK_M], -1e30, tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)

    if STEM:
        keys = stem_key + key_head * stem_key_of_head + d
        values = stem_value + key_head * stem_value_of_head + d
        whole = stem_tokens // BLOCK_N * BLOCK_N
        for first in range(0, whole, BLOCK_N):
            k = tl.load(keys + (first + n)[:, None] * stem_key_of_token, mask=d < DIM, other=0.0)
            v = tl.load(
                values + (first + n)[:, None] * stem_value_of_token, mask=d < DIM, other=0.0
            )
            top, total, acc = _look_at_all(q, k, v, top, total, acc, scale)
        if whole < stem_tokens:
            inside = whole + n < stem_tokens
            mask = inside[:, None] & (d < DIM)
            k = tl.load(keys + (whole + n)[:, None] * stem_key_of_token, mask=mask, other=0.0)
            v = tl.load(values + (whole + n)[:, None] * stem_value_of_token, mask=mask, other=0.0)
            top, total, acc = _look(q, k, v, inside[None, :], top, total, acc, scale, 1.0, "ieee")

    # The text itself: what stands before the tile, which all of its queries see, then the tile.
    keys = key + key_head * key_of_head + text * key_of_token + d
    values = value + key_head * value_of_head + text * value_of_token + d
    for first in range(0, begin, BLOCK_N):
        k = tl.load(keys + (first + n)[:, None] * key_of_token, mask=d < DIM, other=0.0)
        v = tl.load(values + (first + n)[:, None] * value_of_token, mask=d < DIM, other=0.0)
        top, total, acc = _look_at_all(q, k, v, top, total, acc, scale)
    for first in range(begin, tl.minimum(begin + BLOCK_M, length), BLOCK_N):
        mask = (first + n < length)[:, None] & (d < DIM)
        k = tl.load(keys + (first + n)[:, None] * key_of_token, mask=mask, other=0.0)
        v = tl.load(values + (first + n)[:, None] * value_of_token, mask=mask, other=0.0)
        seen = (begin + m)[:, None] >= (first + n)[None, :]
        top, total, acc = _look(q, k, v, seen, top, total, acc, scale, 1.0, "ieee")
    tl.store(out + at_query, (acc / total[:, None]).to(out.dtype.element_ty), mask=is_query)


def read_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tiles: Tensor,
    tile: int,
    stem: tuple[Tensor, Tensor] | None,
    scaling: float,
) -> Tensor:
    """Compute ``attention.Prefill.attend`` in half precision; returns (tokens, heads, dim).

    ``key`` and ``value`` are (key heads, tokens, dim), and so are those of the stem; ``tiles`` is
    ``tiles_of`` the texts, of ``tile`` queries each.
    """
    heads, dim = query.shape[1:]
    stem_key, stem_value = stem or (key, value)
    assert not (torch.is_grad_enabled() and query.requires_grad), "there is no way back"
    assert query.is_contiguous() and all(
        tensor.stride(2) == 1 for tensor in (key, value, stem_key, stem_value)
    )
    out, wide = torch.empty_like(query), max(16, triton.next_power_of_2(dim))
    # As many stages as the device's shared memory holds, of three: queries stand there once, keys
    # and values for each.
    room = torch.cuda.get_device_properties(query.device).shared_memory_per_block_optin  # type: ignore[attr-defined]
    stages = (room // (wide * query.element_size()) - tile) // (2 * BLOCK)
    _read_kernel[heads, len(tiles)](
        *(query, key, value, stem_key, stem_value, tiles, out),
        *(*key.stride()[:2], *value.stride()[:2], *stem_key.stride()[:2], *stem_value.stride()[:2]),
        *(stem_key.shape[1], scaling * math.log2(math.e)),
        HEADS=heads,
        PER_KEY=heads // len(key),
        DIM=dim,
        STEM=stem is not None,
        BLOCK_M=tile,
        BLOCK_N=BLOCK,
        BLOCK_D=wide,
        num_warps=4,
        num_stages=max(1, min(3, stages)),
    )
    return out


@triton.jit
def _keep_kernel(  # type: ignore[no-untyped-def]
    states, kept, scales, tokens, of_head, of_token, kept_of_head, scales_of_head,
    LARGEST: tl.constexpr, DIM: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    token, head = (
        tl.program_id(0).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T),
        tl.program_id(1).to(tl.int64),
    )
    d = tl.arange(0, BLOCK_D)[None, :]
    inside = (token < tokens)[:, None] & (d < DIM)
    numbers = tl.load(
        states + head * of_head + token[:, None] * of_token + d, mask=inside, other=0.0
    ).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(numbers), 1), 1e-12) / LARGEST
    numbers = tl.minimum(tl.maximum(numbers / scale[:, None], -LARGEST), LARGEST)
    tl.store(
        kept + head * kept_of_head + token[:, None] * DIM + d,
        numbers.to(kept.dtype.element_ty),
        mask=inside,
    )
    tl.store(scales + head * scales_of_head + token, scale, mask=token < tokens)


def keep_in_float8(states: Tensor, kept: Tensor, scales: Tensor) -> None:
    """Put ``states`` (heads, tokens, dim) into ``kept``, float8 of that shape, and their scales
    into ``scales`` (heads, tokens), as ``products.quantized`` says. In ``kept`` a head's tokens
    stand behind each other. A line is read once."""
    heads, tokens, dim = states.shape
    assert states.stride(2) == kept.stride(2) == scales.stride(1) == 1 and kept.stride(1) == dim
    wide = triton.next_power_of_2(dim)
    block = max(1, KEPT // wide)
    _keep_kernel[triton.cdiv(tokens, block), heads](
        *(
            states,
            kept,
            scales,
            tokens,
            states.stride(0),
            states.stride(1),
            kept.stride(0),
            scales.stride(0),
        ),
        LARGEST=LARGEST,
        DIM=dim,
        BLOCK_T=block,
        BLOCK_D=wide,
        num_warps=4,
    )


@triton.jit
def _block_kernel(logits, scale, tops, sums, vocabulary, blocks, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = block * BLOCK + tl.arange(0, BLOCK)
    inside = tl.load(
        logits + row * vocabulary + column, mask=column < vocabulary, other=-float("inf")
    ).to(tl.float32)
    scaled = inside * tl.load(scale + row)
    top = tl.maximum(tl.max(scaled, 0), -3.4028234663852886e38)
    tl.store(tops + row * blocks + block, top)
    tl.store(sums + row * blocks + block, tl.sum(tl.exp(scaled - top), 0))


def block_sums(logits: Tensor, scale: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """See ``rows._block_sums``; ``logits`` contiguous."""
    rows, vocabulary = logits.shape
    blocks = triton.cdiv(vocabulary, block)
    tops, sums = torch.empty(2, rows, blocks, dtype=torch.float32, device=logits.device)
    _block_kernel[rows, blocks](
        logits, scale, tops, sums, vocabulary, blocks, BLOCK=block, num_warps=4
    )
    return tops, sums
