import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stageb.engines.native.attention import (
    GROUP_LINES,
    TILE,
    Prefill,
    PromptStore,
    Stepping,
    group_rows,
    make_tiles,
)

HEADS = [(4, 4, 8), (4, 2, 8), (6, 1, 12), (5, 5, 6)]  # heads, key heads, dim


def plain(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float
) -> torch.Tensor:
    """One query (heads, dim) that sees all of ``key`` (key heads, keys, dim): in float64, by the
    book."""
    grouped_query = query.view(len(key), -1, query.shape[-1]).double()
    weights = (grouped_query @ key.double().transpose(1, 2) * scaling).softmax(-1)
    return (weights @ value.double()).reshape(query.shape).to(query.dtype)


@pytest.mark.parametrize("stemmed", [True, False])
@pytest.mark.parametrize(("heads", "key_heads", "dim"), HEADS)
def test_reading_is_causal_attention_to_the_stem_and_the_own_text(
    heads: int, key_heads: int, dim: int, stemmed: bool
) -> None:
    torch.manual_seed(0)
    scaling, edges = 0.3, [0, 3, 4, 11]
    query, (key, value) = torch.randn(11, heads, dim), torch.randn(2, key_heads, 11, dim)
    stems = [tuple(torch.randn(2, 1, key_heads, 5, dim))] if stemmed else None
    store, tiles = torch.zeros(1, 2, key_heads, 20, dim), torch.tensor(make_tiles(edges))
    found = Prefill(stems, edges, tiles, PromptStore(store), 6).attend(
        0, query, key, value, scaling
    )
    before = [part[0] for part in stems[0]] if stems else [key[:, :0], value[:, :0]]
    for start, end in ((0, 3), (3, 4), (4, 11)):
        for place in range(start, end):
            fed = (key[:, start : place + 1], value[:, start : place + 1])
            keys, values = (torch.cat(pair, 1) for pair in zip(before, fed, strict=True))
            torch.testing.assert_close(found[place], plain(query[place], keys, values, scaling))
    assert torch.equal(store[0, :, :, 6:17], torch.stack([key, value]))
    assert not store[0, :, :, :6].any() and not store[0, :, :, 17:].any()


@pytest.mark.parametrize("stemmed", [True, False])
@pytest.mark.parametrize(("heads", "key_heads", "dim"), HEADS)
def test_a_step_is_attention_to_stem_prompt_and_new_tokens(
    heads: int, key_heads: int, dim: int, stemmed: bool
) -> None:
    torch.manual_seed(0)
    scaling, prompt_of = 0.3, [(0, 4), (0, 4), (4, 9), (13, 1), (13, 1), (13, 1)]
    prompts, new = torch.randn(1, 2, key_heads, 14, dim), torch.randn(1, 2, 8, key_heads, 6, dim)
    stems = [tuple(torch.randn(2, 1, key_heads, 5, dim))] if stemmed else None
    slots, counts = torch.tensor([7, 0, 3, 2, 5, 1]), torch.tensor([2, 0, 5, 1, 1, 4])
    groups = torch.tensor([(0, 4, 0, 2), (4, 9, 2, 1), (13, 1, 3, 3)])
    view = Stepping(stems, PromptStore(prompts), new, groups, 3, slots, counts)
    query, (key, value) = torch.randn(6, heads, dim), torch.randn(2, key_heads, 6, dim)
    old = new.clone()
    found = view.attend(0, query, key, value, scaling)
    for row, (start, length) in enumerate(prompt_of):
        slot, count = slots[row], counts[row]
        seen = []
        for kind, fed in enumerate((key, value)):
            stem = stems[0][kind][0] if stems else fed[:, :0]
            parts = [
                stem,
                prompts[0, kind, :, start : start + length],
                old[0, kind, slot, :, :count],
            ]
            seen.append(torch.cat([*parts, fed[:, row : row + 1]], 1))
            assert torch.equal(new[0, kind, slot, :, count], fed[:, row])
        torch.testing.assert_close(found[row], plain(query[row], seen[0], seen[1], scaling))


@settings(max_examples=50)
@given(st.lists(st.integers(1, 40), max_size=6), st.integers(1, 2 * GROUP_LINES))
def test_groups_are_runs_of_one_prompt(samples: list[int], lines: int) -> None:
    prompt_of = [prompt for prompt, count in enumerate(samples) for _ in range(count)]
    groups = group_rows(prompt_of, lines)
    assert [prompt for prompt, _, rows in groups for _ in range(rows)] == prompt_of
    assert [first + place for _, first, rows in groups for place in range(rows)] == list(
        range(len(prompt_of))
    )
    assert all(rows == 1 or rows * lines <= GROUP_LINES for _, _, rows in groups)


@given(st.lists(st.integers(1, 5 * TILE), min_size=1, max_size=9))
def test_tiles_hold_every_token_of_every_text_once(lengths: list[int]) -> None:
    edges = [sum(lengths[:index]) for index in range(len(lengths) + 1)]
    held = [
        text + place
        for text, first, length in make_tiles(edges)
        for place in range(first, min(first + TILE, length))
    ]
    assert held == list(range(edges[-1]))
    assert {(text, length) for text, _, length in make_tiles(edges)} == set(
        zip(edges, lengths, strict=False)
    )
