"""Facts about a model before its weights are loaded: the length of prompts, its window, the memory
it will take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stageb import engines
from stageb.engines.config import ModelConfig, find_checkpoint
from stageb.engines.protocol import Prompt, Served
from stageb.errors import StagebError
from stageb.tiny import CHECKPOINT, NAME

PROCESS_BYTES = 1 << 30  # of a rank without its model: the libraries, and what it works with
# bytes that a rank holds for one of a checkpoint's files, at the most: four-bit weights become
# float32
COPY = 8


@dataclass(frozen=True, slots=True)
class Outline:
    """A model in figures. What cannot be known without loading it is None."""

    count_tokens: Callable[[Sequence[Prompt]], list[int]] | None  # as ``Engine.count_tokens``
    scores: bool | None  # whether the engine is a ``Scorer``
    resumes: bool | None  # whether it is a ``Resumer``
    window: int | None = None  # tokens that prompt and answer may have together
    weight_bytes: int | None = None  # of one copy
    cache_bytes: int | None = None  # of keys and values, per token


def outline(model: ModelConfig, accelerator: str) -> Outline:
    """The model that ``model`` names, for a device of ``fabric.accelerator``; nothing is loaded but
    config and tokenizer.

    Raises ``ConfigError`` or ``EngineError`` as ``engines.build`` does.
    """
    if model.is_local:
        return _outline_checkpoint(model, accelerator)
    engine = engines.build(model, "cpu")  # of one that does not exist, it says so
    scores = None if isinstance(engine, Served) else isinstance(engine, engines.Scorer)
    return Outline(engine.count_tokens, scores, isinstance(engine, engines.Resumer))


def check_name(model: ModelConfig) -> None:
    """Look whether ``model`` can be right, without importing anything heavy. Raises ``ConfigError``
    where it cannot."""
    if model.is_local:
        find_checkpoint(model.model_name_or_path)
    else:
        engines.build(model, "cpu")


def rank_bytes(model: ModelConfig) -> int | None:
    """Bytes of memory, at most, that a rank takes on a CPU which loads the checkpoint that lies in
    a folder or file; None for one on a hub, and for engines that would gain nothing by further
    ranks."""
    if not model.is_local:
        return None
    place = (
        CHECKPOINT
        if model.model_name_or_path == NAME
        else Path(model.model_name_or_path).expanduser()
    )
    files = (
        [place]
        if place.is_file()
        else [*place.glob("*.safetensors"), *place.glob("*.bin"), *place.glob("*.gguf")]
    )
    return PROCESS_BYTES + COPY * sum(file.stat().st_size for file in files) if files else None


def _outline_checkpoint(model: ModelConfig, accelerator: str) -> Outline:
    import torch
    from transformers import AutoConfig, AutoTokenizer

    from stageb.engines.chat import Chat
    from stageb.engines.native.transformers import auto_class, explain_failure, refuse_code

    name = find_checkpoint(model.model_name_or_path)
    options: dict[str, Any] = {"trust_remote_code": model.trust_remote_code}
    try:
        refuse_code(name, model)
        config = AutoConfig.from_pretrained(name, **options)
        tokenizer = AutoTokenizer.from_pretrained(name, **options)
        with torch.device("meta"):
            empty = auto_class(config).from_config(config, **options)
        chat = Chat(tokenizer, model.chat_template_kwargs)
    except StagebError:
        raise
    except Exception as error:  # as in ``engines.build``
        raise explain_failure(error, model, "meta") from error
    text = config.get_text_config(decoder=True)
    on_cpu = accelerator == "cpu" or (
        accelerator == "auto" and not torch.accelerator.is_available()
    )
    kind = (
        model.torch_dtype
        if model.torch_dtype != "auto"
        else "float32"
        if on_cpu
        else str(text.dtype).rpartition(".")[2]
    )
    each = torch.finfo(getattr(torch, kind, torch.float32)).bits // 8
    return Outline(
        count_tokens=lambda prompts: [sum(map(len, chat.encode(prompt))) for prompt in prompts],
        scores=True,
        resumes=True,
        window=getattr(text, "max_position_embeddings", None),
        weight_bytes=sum(weight.numel() for weight in empty.parameters()) * each,
        cache_bytes=_count_cache_bytes(text, each),
    )


def _count_cache_bytes(text: Any, each: int) -> int | None:
    """Bytes of keys and values that a token takes in all layers; None of a model that caches
    something else."""
    heads = getattr(text, "num_key_value_heads", None) or getattr(text, "num_attention_heads", None)
    layers, width = getattr(text, "num_hidden_layers", None), getattr(text, "hidden_size", None)
    if not heads or not layers or not width or hasattr(text, "kv_lora_rank"):
        return None
    size = getattr(text, "head_dim", None) or width // text.num_attention_heads
    return int(2 * layers * heads * size * each)
