"""The kernels against plain products. They need a GPU; ``test_cascade.py`` checks the plain
products by the book."""

import pytest
import torch

from stageb.engines.native.attention import (
    Prefill,
    PromptStore,
    Stepping,
    make_tiles,
    stem_attention,
)
from stageb.engines.native.rows import BLOCK

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2), (torch.float16, 2e-3)]
)
@pytest.mark.parametrize(
    ("heads", "key_heads", "dim", "members", "longest", "new"),
    [
        (32, 8, 128, 4, 170, 37),
        (4, 4, 16, 1, 20, 0),
        (6, 1, 64, 3, 90, 30),
        (5, 5, 24, 9, 30, 5),
        (8, 2, 256, 16, 300, 129),
    ],
)
@pytest.mark.parametrize("stemmed", [True, False])
def test_a_step_on_a_gpu_is_the_plain_one(
    heads: int,
    key_heads: int,
    dim: int,
    members: int,
    longest: int,
    new: int,
    stemmed: bool,
    dtype: torch.dtype,
    tolerance: float,
) -> None:
    generator = torch.Generator("cuda").manual_seed(0)

    def some(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device="cuda").to(dtype)

    groups, rows, tokens = [], 0, 0
    for index in range(5):
        length, count = 1 + (longest * (index + 1) * 3) % longest, 1 + (index * 7) % members
        groups.append((tokens, length, rows, count))
        tokens, rows = tokens + length, rows + count
    prompts, store = (
        some(2, 2, key_heads, tokens, dim),
        some(2, 2, rows + 3, key_heads, new + 2, dim),
    )
    stems = (
        [(some(1, key_heads, 50, dim), some(1, key_heads, 50, dim)) for _ in range(2)]
        if stemmed
        else None
    )
    slots = torch.randperm(rows + 3, generator=generator, device="cuda")[:rows].int()
    counts = (new - torch.arange(rows, device="cuda") % (new + 1)).int()
    view = Stepping(
        stems,
        PromptStore(prompts),
        store,
        torch.tensor(groups, device="cuda").int(),
        members,
        slots,
        counts,
    )
    query, key, value = (
        some(rows, heads, dim),
        some(key_heads, rows, dim),
        some(key_heads, rows, dim),
    )
    wide = Stepping(stems, PromptStore(prompts), store.clone(), view.groups, members, slots, counts)
    stem = stem_attention(query, stems[1], 0.1) if stems else None
    fed = key.transpose(0, 1).contiguous(), value.transpose(0, 1).contiguous()
    expected = wide._plain(
        query, fed, (prompts[1, 0], prompts[1, 1]), (wide.new[1, 0], wide.new[1, 1]), stem, 0.1
    ).float()
    found = view.attend(1, query, key, value, 0.1).float()
    assert (found - expected).norm() < tolerance * expected.norm()
    assert torch.equal(view.new, wide.new)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 1e-2), (torch.float16, 2e-3)])
@pytest.mark.parametrize(
    ("heads", "key_heads", "dim"), [(32, 8, 128), (4, 4, 16), (6, 1, 64), (5, 5, 24), (8, 2, 256)]
)
@pytest.mark.parametrize("stem", [0, 1, 64, 1000])
def test_reading_on_a_gpu_is_the_plain_one(
    heads: int, key_heads: int, dim: int, stem: int, dtype: torch.dtype, tolerance: float
) -> None:
    generator = torch.Generator("cuda").manual_seed(0)

    def some(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device="cuda").to(dtype)

    edges = [0, 1, 65, 129, 629, 1000]
    tokens, tiles = edges[-1], torch.tensor(make_tiles(edges), dtype=torch.int32, device="cuda")
    query, (key, value) = some(tokens, heads, dim), some(2, tokens, key_heads, dim).transpose(1, 2)
    stems = [(some(1, key_heads, stem, dim), some(1, key_heads, stem, dim))] if stem else None
    wide = [(one.float(), other.float()) for one, other in stems] if stems else None
    expected = Prefill(wide, edges, tiles).attend(0, query.float(), key.float(), value.float(), 0.1)
    found = Prefill(stems, edges, tiles).attend(0, query, key, value, 0.1).float()
    assert torch.all((found - expected).norm(dim=-1) < tolerance * expected.norm(dim=-1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocabulary", [BLOCK + 1, 3 * BLOCK, 151936])
def test_block_sums_on_a_gpu_are_the_plain_ones(vocabulary: int, dtype: torch.dtype) -> None:
    from stageb.engines.native import kernels
    from stageb.engines.native.rows import _block_sums

    logits = (torch.randn(7, vocabulary, device="cuda") * 5).to(dtype)
    logits[2, : BLOCK + 5] = -torch.inf
    scale = torch.linspace(0.2, 3, 7, device="cuda")
    tops, sums = kernels.block_sums(logits, scale, BLOCK)
    plain_tops, plain_sums = _block_sums(logits.cpu(), scale.cpu())
    torch.testing.assert_close(tops.cpu(), plain_tops)
    torch.testing.assert_close(sums.cpu(), plain_sums)
