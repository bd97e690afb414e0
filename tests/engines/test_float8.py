"""Float8: the arithmetic on a CPU, whose products torch emulates; the kernels, and a whole engine,
on a GPU."""

from typing import Any

import pytest
import torch
from engines import tiny_models
from engines.contract import requests
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from stageb.engines.chat import Chat
from stageb.engines.config import ModelConfig
from stageb.engines.native import products
from stageb.engines.native.attention import Prefill, PromptStore, Stepping, make_tiles
from stageb.engines.native.products import (
    FLOAT8,
    LARGEST,
    Float8Linear,
    is_quantized,
    quantize,
    quantize_rows,
)
from stageb.engines.native.transformers import TransformersEngine, build
from stageb.engines.protocol import Question
from stageb.errors import ConfigError

on_a_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1000), st.floats(-30, 30))
def test_numbers_lose_no_more_than_their_last_bits(seed: int, magnitude: float) -> None:
    lines = torch.randn(5, 64, generator=torch.Generator().manual_seed(seed)) * 2.0**magnitude
    kept, scale = quantize_rows(lines)
    largest = lines.abs().amax(-1, keepdim=True)
    error = (kept.float() * scale - lines).abs()
    # half a unit of three bits, or of the smallest
    assert torch.all(error <= lines.abs() / 16 + largest / LARGEST / 512)
    torch.testing.assert_close((kept.float().abs() * scale).amax(-1, keepdim=True), largest)


def test_lines_of_zeros_stay_zeros() -> None:
    kept, scale = quantize_rows(torch.zeros(2, 16))
    assert not kept.float().any() and torch.all(scale > 0)


@pytest.mark.parametrize("bias", [False, True])
def test_a_layer_multiplies_nearly_as_before(bias: bool) -> None:
    torch.manual_seed(0)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(64, 32, bias=bias), nn.Linear(32, 24, bias=bias))
            self.head = nn.Linear(24, 16)

        def get_decoder(self) -> nn.Module:
            return self.inner

    model = Model().bfloat16()
    x = torch.randn(2, 3, 64).bfloat16()
    expected = model.inner[0](x).float()
    quantize(model)
    # 24 is no multiple of 16
    assert [type(layer) for layer in model.inner] == [Float8Linear, nn.Linear]
    assert type(model.head) is nn.Linear
    found = model.inner[0](x)
    assert found.dtype == torch.bfloat16 and found.shape == expected.shape
    assert (found.float() - expected).norm() < 0.06 * expected.norm()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda:0", marks=on_a_gpu)])
def test_layers_with_one_input_multiply_together_as_they_would_apart(device: str) -> None:
    def made() -> Any:
        torch.manual_seed(0)
        return tiny_models.model("qwen3", 300).bfloat16().to(device)

    model, apart = made(), made()
    quantize(model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "TOGETHER", ())
        quantize(apart)
    joined = [module.joined for module in model.modules() if isinstance(module, Float8Linear)]
    layers = model.config.num_hidden_layers
    assert (
        len(joined) == 7 * layers
        and len(set(joined) - {None}) == 2 * layers
        and joined.count(None) == 2 * layers
    )
    for ids in (torch.arange(9, device=device)[None], torch.arange(4, device=device)[None]):
        found, expected = model(ids).logits.float(), apart(ids).logits.float()
        assert (found - expected).norm() < 0.01 * expected.norm()


@pytest.mark.parametrize("n", [16, 576, 2560, 9728])
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_lines_on_a_gpu_are_made_as_on_a_cpu(n: int) -> None:
    lines = torch.randn(37, n).bfloat16() * torch.logspace(-9, 9, 37)[:, None].bfloat16()
    lines[5] = 0
    (kept, scale), (expected, of_them) = quantize_rows(lines.cuda()), quantize_rows(lines)
    torch.testing.assert_close(scale.cpu(), of_them)
    apart = kept.cpu().float() != expected.float()
    assert apart.float().mean() < 0.01  # a quotient between two numbers may be rounded either way
    torch.testing.assert_close(kept.cpu().float(), expected.float(), rtol=1 / 8, atol=2**-9)


def test_prompts_are_kept_nearly_as_they_were() -> None:
    torch.manual_seed(0)
    query, (key, value) = torch.randn(7, 4, 8), torch.randn(2, 2, 7, 8)
    exact = PromptStore(torch.zeros(1, 2, 2, 20, 8))
    small = PromptStore(torch.zeros(1, 2, 2, 20, 8, dtype=FLOAT8), torch.zeros(1, 2, 2, 20))
    for kept in (exact, small):
        Prefill(None, [0, 7], torch.tensor(make_tiles([0, 7])), kept, 6).attend(
            0, query, key, value, 0.3
        )
    for before, after in zip(
        exact.read(0, torch.float32), small.read(0, torch.float32), strict=True
    ):
        assert (after - before).abs().max() < 0.1 * before.abs().max()
        assert torch.equal(before == 0, after == 0)
    new, groups = torch.randn(1, 2, 3, 2, 4, 8), torch.tensor([(6, 7, 0, 3)])
    slots, counts = torch.arange(3), torch.tensor([2, 0, 1])
    found = [
        Stepping(None, kept, new.clone(), groups, 3, slots, counts).attend(
            0, query[:3], key[:, :3], value[:, :3], 0.3
        )
        for kept in (exact, small)
    ]
    assert 0 < (found[1] - found[0]).norm() < 0.06 * found[0].norm()


def test_a_cpu_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"model\.quantize.*fp8.*null on cpu.*8\.9"):
        build(ModelConfig(quantize="fp8"), "cpu")


def test_what_cannot_be_is_refused_in_the_config() -> None:
    with pytest.raises(ConfigError, match=r"model\.quantize.*int4.*fp8, or null"):
        ModelConfig(quantize="int4")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda:0", marks=on_a_gpu)])
def test_an_engine_answers_in_float8(device: str, caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = tiny_models.bpe()
    plain, small = (
        tiny_models.model("qwen3", len(tokenizer)).bfloat16().to(device) for _ in range(2)
    )
    quantize(small)
    assert is_quantized(small) and not is_quantized(plain)
    asked, lines = requests(), ("pass", "fail")
    questions = [Question(request.prompt, lines) for request in asked]
    engines = [TransformersEngine(model, Chat(tokenizer, {})) for model in (plain, small)]
    exact, near = (torch.tensor(engine.score(questions)) for engine in engines)
    assert 0 < (near - exact).norm() < 0.1 * exact.norm()
    answers = engines[1].generate(asked)
    assert [len(each) for each in answers] == [len(request.keys) for request in asked]
    assert answers == engines[1].generate(asked)
    assert "not packed" not in caplog.text


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_gpu_is_asked_for_half_precision() -> None:
    with pytest.raises(ConfigError, match=r"model\.torch_dtype.*bfloat16"):
        build(ModelConfig(quantize="fp8", torch_dtype="float32"), "cuda:0")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize(
    ("heads", "key_heads", "dim", "members", "longest", "new"),
    [(32, 8, 128, 4, 170, 37), (4, 4, 16, 1, 20, 0), (6, 1, 64, 3, 90, 30), (5, 5, 24, 9, 30, 5)],
)
def test_a_step_on_a_gpu_reads_float8_as_plain_products_do(
    heads: int, key_heads: int, dim: int, members: int, longest: int, new: int
) -> None:
    torch.manual_seed(0)
    lengths = [1 + (longest * (index + 1) * 3) % longest for index in range(5)]
    samples = [1 + (index * 7) % members for index in range(5)]
    tokens, rows = sum(lengths), sum(samples)
    states = torch.randn(2, key_heads, tokens + 9, dim, device="cuda").bfloat16()[:, :, :tokens] * 3
    kept = PromptStore(
        torch.empty(1, 2, key_heads, tokens, dim, dtype=FLOAT8, device="cuda"),
        torch.empty(1, 2, key_heads, tokens, device="cuda"),
    )
    kept.keep(0, 0, (states[0, :, :5], states[1, :, :5]))
    kept.keep(0, 5, (states[0, :, 5:], states[1, :, 5:]))
    expected, scales = (part.cuda() for part in quantize_rows(states.cpu()))
    assert kept.scales is not None
    torch.testing.assert_close(kept.scales[0], scales[..., 0])
    rounded = (
        kept.states[0].float() - expected.float()
    ).abs() <= expected.float().abs() / 8 + 2**-9
    assert (
        torch.all(rounded)
        and torch.mean((kept.states[0].float() == expected.float()).float()) > 0.99
    )

    starts = [sum(lengths[:index]) for index in range(5)]
    firsts = [sum(samples[:index]) for index in range(5)]
    groups = torch.tensor(
        list(zip(starts, lengths, firsts, samples, strict=True)), device="cuda"
    ).int()
    store = torch.randn(1, 2, rows, key_heads, new + 2, dim, device="cuda").bfloat16()
    slots = torch.randperm(rows, device="cuda").int()
    counts = (new - torch.arange(rows, device="cuda") % (new + 1)).int()
    query = torch.randn(rows, heads, dim, device="cuda").bfloat16()
    key, value = torch.randn(2, key_heads, rows, dim, device="cuda").bfloat16()
    fed = key.transpose(0, 1).contiguous(), value.transpose(0, 1).contiguous()
    view = Stepping(None, kept, store, groups, max(samples), slots, counts)
    wide = store.clone()
    plain = view._plain(
        query, fed, kept.read(0, query.dtype), (wide[0, 0], wide[0, 1]), None, 0.1
    ).float()
    found = view.attend(0, query, key, value, 0.1).float()
    assert (found - plain).norm() < 1e-2 * plain.norm()
