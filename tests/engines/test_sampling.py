import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LogitsProcessorList
from transformers.generation.logits_process import (
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from stageb import seeds
from stageb.draws import uniforms
from stageb.engines.native.rows import (
    RowSettings,
    draw_tokens,
    invert_cdf,
    probabilities,
    sample_in_blocks,
)
from stageb.engines.protocol import Decode

CPU = torch.device("cpu")
KEYS = st.integers(0, 2**64 - 1)
FREE = Decode(temperature=1.0)


def settings_of(
    *decodes: Decode, vocabulary: int = 50, keys: list[int] | None = None
) -> RowSettings:
    return RowSettings.of(decodes, keys or list(range(len(decodes))), vocabulary, CPU)


def some_logits(rows: int, vocabulary: int = 50, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed)) * 3


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=20).filter(any),
    st.floats(0, 1, exclude_max=True),
)
def test_inversion_finds_the_token_at_the_uniform(weights: list[float], uniform: float) -> None:
    probability = torch.tensor([weights], dtype=torch.float64)
    token = int(invert_cdf(probability, torch.tensor([uniform], dtype=torch.float64)))
    below, total = math.fsum(weights[:token]), math.fsum(weights)
    assert weights[token] > 0
    assert below <= uniform * total * (1 + 1e-12) + 1e-300
    assert uniform * total <= (below + weights[token]) * (1 + 1e-12)


@pytest.mark.parametrize(
    "decode",
    [
        Decode(temperature=1.0),
        Decode(temperature=0.6),
        Decode(temperature=1.3, top_k=7),
        Decode(temperature=1.0, top_p=0.7),
        Decode(temperature=0.8, top_k=11, top_p=0.9),
        Decode(temperature=1.0, top_k=1000),
        Decode(temperature=1.0, top_p=0.01),
    ],
    ids=str,
)
def test_probabilities_are_those_of_transformers(decode: Decode) -> None:
    logits = some_logits(8).double()
    processors: Any = LogitsProcessorList([TemperatureLogitsWarper(decode.temperature)])
    if decode.top_k:
        processors.append(TopKLogitsWarper(decode.top_k))
    if decode.top_p < 1:
        processors.append(TopPLogitsWarper(decode.top_p))
    expected = processors(torch.zeros(8, 1), logits.clone()).softmax(-1)
    found = probabilities(logits, settings_of(*[decode] * 8))
    torch.testing.assert_close(found / found.sum(-1, keepdim=True), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "decode",
    [
        Decode(temperature=0.0),
        Decode(temperature=1.0, top_k=1),
        Decode(temperature=1e-300),
        Decode(temperature=1e-6, top_p=0.5),
        Decode(temperature=1.0, top_p=1e-9),
    ],
    ids=str,
)
def test_settings_that_come_down_to_greedy(decode: Decode) -> None:
    logits = some_logits(20)
    assert (
        draw_tokens(logits, settings_of(*[decode] * 20), 3).tolist() == logits.argmax(-1).tolist()
    )


def test_greedy_takes_the_lowest_id_among_equals() -> None:
    logits = torch.zeros(1, 50)
    logits[0, [7, 20, 49]] = 2.0
    assert draw_tokens(logits, settings_of(Decode(temperature=0.0)), 0).tolist() == [7]


def test_equals_at_a_cut_stay_together() -> None:
    logits = torch.tensor([[1.0, 3.0, 1.0, 1.0, 0.0]])
    kept_k = probabilities(logits, settings_of(Decode(temperature=1.0, top_k=2), vocabulary=5))
    kept_p = probabilities(logits, settings_of(Decode(temperature=1.0, top_p=0.75), vocabulary=5))
    assert (kept_k[0] > 0).tolist() == (kept_p[0] > 0).tolist() == [True, True, True, True, False]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.sampled_from([FREE, Decode(temperature=0.0), Decode(top_k=3), Decode(top_p=0.5)]),
        max_size=5,
    ),
    KEYS,
)
def test_a_row_does_not_see_the_others(others: list[Decode], key: int) -> None:
    decode = Decode(temperature=0.9, top_k=9, top_p=0.8)
    logits = some_logits(len(others) + 1)
    together = settings_of(*others, decode, keys=[*range(len(others)), key])
    alone = settings_of(decode, keys=[key])
    token = draw_tokens(logits, together, 5)[-1:]
    assert token.tolist() == draw_tokens(logits[-1:], alone, 5).tolist()


@pytest.mark.parametrize(
    "decode", [FREE, Decode(temperature=1.5, top_k=8), Decode(temperature=1.0, top_p=0.8)], ids=str
)
def test_draws_follow_the_distribution(decode: Decode) -> None:
    draws, vocabulary = 20_000, 12
    logits = some_logits(1, vocabulary, seed=4)
    keys = [seeds.stream("draw", index) for index in range(draws)]
    tokens = draw_tokens(
        logits.expand(draws, -1),
        settings_of(*[decode] * draws, vocabulary=vocabulary, keys=keys),
        2,
    )
    probability = probabilities(logits.double(), settings_of(decode, vocabulary=vocabulary))[0]
    expected = (probability / probability.sum() * draws).tolist()
    counts = Counter(tokens.tolist())
    assert set(counts) <= {token for token, count in enumerate(expected) if count > 0}
    likely = [token for token, count in enumerate(expected) if count >= 5]
    chi_square = sum((counts[token] - expected[token]) ** 2 / expected[token] for token in likely)
    assert chi_square < 35  # 11 degrees of freedom at most: less than 3 in 10,000 lie above


@pytest.mark.parametrize("vocabulary", [1025, 3000, 4096])
def test_drawing_in_blocks_is_inverting_the_whole(vocabulary: int) -> None:
    decodes = [
        Decode(temperature=0.0),
        Decode(temperature=0.6),
        FREE,
        Decode(temperature=3.0),
        Decode(temperature=1e-300),
    ]
    logits = some_logits(200, vocabulary)
    logits[:, 700:2000] = -torch.inf  # a whole block without a chance
    rows = settings_of(
        *decodes * 40,
        vocabulary=vocabulary,
        keys=[seeds.stream("blocks", row) for row in range(200)],
    )
    whole = invert_cdf(probabilities(logits.double(), rows), uniforms(rows.keys, 3))
    expected = torch.where(rows.greedy, logits.argmax(-1), whole)
    for position in (3, torch.tensor([3])):
        assert sample_in_blocks(logits, rows, position).tolist() == expected.tolist()
        assert draw_tokens(logits, rows, position).tolist() == expected.tolist()


def test_parts_of_a_batch_draw_what_the_whole_draws() -> None:
    decodes = [
        Decode(top_k=3),
        Decode(top_p=0.5),
        Decode(temperature=0.0),
        Decode(temperature=0.7),
    ] * 3
    logits = some_logits(12)
    rows = settings_of(*decodes)
    assert draw_tokens(logits, rows, 2, at_once=5).tolist() == draw_tokens(logits, rows, 2).tolist()


def test_positions_and_keys_draw_apart() -> None:
    logits = torch.zeros(1, 1000).expand(300, -1)
    rows = settings_of(*[FREE] * 300, vocabulary=1000, keys=list(range(300)))
    first, second = draw_tokens(logits, rows, 0).tolist(), draw_tokens(logits, rows, 1).tolist()
    assert len(set(first)) > 200
    assert sum(a == b for a, b in zip(first, second, strict=True)) < 6
