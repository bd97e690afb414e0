"""A GGUF file, written here from a tiny model, answers as that model does. Skipped without the
extra ``gguf``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from engines import tiny_models
from torch import Tensor

from stageb import engines
from stageb.engines import Decode, Prompt, Request
from stageb.engines.chat import Chat
from stageb.engines.config import ModelConfig
from stageb.engines.native.transformers import TransformersEngine
from stageb.errors import EngineError

gguf = pytest.importorskip("gguf")
pytest.importorskip("accelerate")

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def interleaved(weight: Tensor, heads: int) -> Tensor:
    """A query or key projection with its rotary halves in llama.cpp's order."""
    rows = weight.shape[0]
    return weight.reshape(heads, 2, rows // heads // 2, -1).swapaxes(1, 2).reshape(rows, -1)


def write(path: Path, model: Any, tokenizer: Any) -> None:
    """``model``, a Llama, and ``tokenizer`` as one GGUF file of float32."""
    config, made = model.config, json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    special = set(tokenizer.added_tokens_decoder)
    writer.add_token_list(tokenizer.convert_ids_to_tokens(range(len(tokenizer))))
    writer.add_token_types([3 if place in special else 1 for place in range(len(tokenizer))])
    writer.add_token_merges([" ".join(merge) for merge in made["merges"]])
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_chat_template(tokenizer.chat_template)
    outer = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, tensor in model.state_dict().items():
        stem, own = name.removesuffix(".weight"), tensor.detach().float()
        if stem.startswith("model.layers."):
            _, _, layer, part = stem.split(".", 3)
            own = interleaved(own, heads[part[-6:]]) if part[-6:] in heads else own
            writer.add_tensor(f"blk.{layer}.{NAMES[part]}.weight", own.contiguous().numpy())
        else:
            writer.add_tensor(f"{outer[stem]}.weight", own.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_file_answers_as_the_model_that_it_was_made_of(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tokenizer = tiny_models.bpe()
    model = tiny_models.model("llama", len(tokenizer))
    write(tmp_path / "tiny.gguf", model, tokenizer)
    decode = Decode(temperature=0.0, max_new_tokens=12)
    asked = [
        Request(Prompt("You judge.", f"image_1: a {word} valve"), decode, (1,))
        for word in ("red", "闭", "<|im_end|>")
    ]
    expected = TransformersEngine(model, Chat(tokenizer, {})).generate(asked)
    capfd.readouterr()
    for name in (tmp_path, tmp_path / "tiny.gguf"):
        assert (
            engines.build(ModelConfig(model_name_or_path=str(name)), "cpu").generate(asked)
            == expected
        )
    assert "it/s" not in capfd.readouterr().err
    data = (tmp_path / "tiny.gguf").read_bytes()
    for broken in (data[: len(data) // 3], b"GGUF", b"no such thing"):
        (tmp_path / "tiny.gguf").write_bytes(broken)
        with pytest.raises(EngineError, match=r"tiny\.gguf.*could not be loaded"):
            engines.build(ModelConfig(model_name_or_path=str(tmp_path / "tiny.gguf")), "cpu")
