"""Tiny real checkpoints, made on the spot: a byte-level BPE tokenizer trained on a few lines, and
random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LINES = [
    "You judge tickets by written guidance.",
    "Verdict: pass",
    "Verdict: 不通过",
    "image_1: a red valve, closed",
] * 4

_SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    # far from flat, so that the best token is the best by more than the last bits
    "initializer_range": 0.3,
}


def bpe(vocabulary: int = 320, template: str | None = CHATML) -> Any:
    """A byte-level tokenizer; with 259 entries every token is one byte or special."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(LINES, trainer)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        extra_special_tokens=["<|endoftext|>", "<|im_start|>"],
    )
    fast.chat_template = template
    return fast


def config(kind: str, vocabulary: int) -> Any:
    """The config of a tiny model of one ``kind``."""
    sizes = _SIZES | {
        "vocab_size": vocabulary,
        "eos_token_id": None,
        "bos_token_id": None,
        "pad_token_id": None,
    }
    match kind:
        case "qwen3":
            return transformers.Qwen3Config(**sizes, head_dim=8, tie_word_embeddings=True)
        case "llama":
            return transformers.LlamaConfig(**sizes)
        case "mistral":  # every layer sees the last 7 tokens alone
            return transformers.MistralConfig(**sizes, head_dim=8, sliding_window=7)
        case "qwen3_vl":
            vision: dict[str, Any] = {
                "depth": 1,
                "hidden_size": 16,
                "intermediate_size": 16,
                "num_heads": 2,
            }
            vision |= {
                "out_hidden_size": 32,
                "deepstack_visual_indexes": [0],
                "num_position_embeddings": 16,
            }
            rope = {"rope_type": "default", "mrope_section": [2, 1, 1], "rope_theta": 10000.0}
            text = sizes | {"head_dim": 8, "rope_parameters": rope}
            made: Any = transformers.Qwen3VLConfig(text_config=text, vision_config=vision)
            made.initializer_range = made.text_config.initializer_range
            return made
    raise AssertionError(kind)


def model(kind: str, vocabulary: int, seed: int = 0) -> Any:
    """A tiny model with random weights."""
    torch.manual_seed(seed)
    made = config(kind, vocabulary)
    if kind == "qwen3_vl":
        return transformers.Qwen3VLForConditionalGeneration(made).eval()
    return transformers.AutoModelForCausalLM.from_config(made).eval()


def save(
    folder: Path, kind: str, template: str | None = CHATML, model_max_length: int | None = None
) -> str:
    """A checkpoint of one ``kind`` in ``folder``: safetensors, tokenizer, config. Returns the
    folder's name."""
    tokenizer = bpe(template=template)
    tokenizer.model_max_length = model_max_length or tokenizer.model_max_length
    model(kind, len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def save_with_eyes(folder: Path, seed: int = 0) -> str:
    """A checkpoint of a tiny Qwen3-VL that can be shown images of up to 16 tokens."""
    tokenizer = bpe()
    seeing = {"vision_start_token_id": "<|vision_start|>", "vision_end_token_id": "<|vision_end|>"}
    seeing |= {"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>"}
    tokenizer.add_tokens(
        [AddedToken(text, special=True, normalized=False) for text in seeing.values()],
        special_tokens=True,
    )
    made = config("qwen3_vl", len(tokenizer))
    for name, text in seeing.items():
        setattr(made, name, tokenizer.convert_tokens_to_ids(text))
    made.vision_config.initializer_range = 0.3
    torch.manual_seed(seed)
    transformers.Qwen3VLForConditionalGeneration(made).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    sizes = {"shortest_edge": 32 * 32, "longest_edge": 16 * 32 * 32}
    transformers.Qwen2VLImageProcessorPil(
        patch_size=16, temporal_patch_size=2, merge_size=2, size=sizes
    ).save_pretrained(folder)
    return str(folder)


def draw(path: Path, seed: int, size: tuple[int, int] = (96, 64)) -> str:
    """An image of coloured squares."""
    squares = np.random.default_rng(seed).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(squares).resize(size, Image.Resampling.NEAREST).save(path)
    return str(path)
