"""Which language model, and how to load it: a section of the config of every loop that asks one.

Of the standard library alone, since ``--help`` reads it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from stageb.config import require

HOW_ASKED = ("model.api_key_env", "model.concurrency", "model.memory_share", "model.timeout_s")  # keys that change no answer


@dataclass(frozen=True)
class ModelConfig:
    """A language model and how to load it."""

    engine: str = "transformers"
    """transformers, vllm, openai (a server), scripted (a deterministic fake), or one of your own: package.module:function
    of (model config, device)."""
    model_name_or_path: str = "stageb-tiny"
    """A folder or hub name of a causal or vision-language checkpoint; stageb-tiny is the model in the package."""
    torch_dtype: str = "auto"
    """float32, bfloat16, float16, or auto: the checkpoint's own on a GPU; float32 on a CPU, but for products of weights that
    the checkpoint holds in bfloat16, where the CPU can multiply those."""
    quantize: str | None = None
    """fp8: products of the layers' weights, and the keys and values kept of prompts, in float8, on GPUs that multiply such
    numbers (H100, L40S, RTX 4090 and later). Faster; verdicts near a tie may turn over (bin/bench precision)."""
    device_map: str | None = None
    """auto spreads one model over the devices of a single process; ignored where several ranks run."""
    attn_implementation: str | None = None
    """sdpa, eager, flash_attention_2, ...; null leaves the choice to transformers."""
    trust_remote_code: bool = False
    """Run code that the checkpoint brings. Off unless you trust its author with this machine."""
    chat_template_kwargs: dict[str, Any] = field(default_factory=lambda: {"enable_thinking": False})
    """Variables handed to the tokenizer's chat template."""
    image_pixels: int = 1 << 20
    """Images of more pixels are scaled down before the model is shown them; a token of Qwen3-VL is 1,024 pixels."""
    thinking_ends: str | None = None
    """The tag that a model which thinks aloud writes before its answer, such as </think>; null: as its chat template says.
    Set it where a model thinks and no template tells."""
    memory_share: float = 0.9
    """vllm: the share of its GPU's memory that the engine may take, weights and cache together."""
    base_url: str | None = None
    """openai: where the server's API lies, such as http://localhost:8000/v1; the model's name is model_name_or_path."""
    api_key_env: str | None = None
    """openai: the environment variable that holds the key; null: none is sent. A key itself never stands in a config."""
    concurrency: int = 8
    """openai: requests under way at once, per rank."""
    timeout_s: float = 120.0
    """openai: seconds that a whole answer may take; then the request is tried again, five times at most."""
    tokenizer: str | None = None
    """openai: a folder or hub name of the model's tokenizer, to count prompts exactly; null: lengths are estimated."""

    def __post_init__(self) -> None:
        dtypes = ("auto", "float32", "bfloat16", "float16")
        require(self.torch_dtype in dtypes, "model.torch_dtype", self.torch_dtype, f"choose one of {', '.join(dtypes)}")
        require(self.quantize in (None, "fp8"), "model.quantize", self.quantize, "fp8, or null")
        apart = self.quantize is None or self.device_map is None
        require(apart, "model.quantize", self.quantize, "null where model.device_map spreads the model")
        require(bool(self.model_name_or_path), "model.model_name_or_path", self.model_name_or_path, "name a model")
        require(1024 <= self.image_pixels <= 1 << 26, "model.image_pixels", self.image_pixels, "1024 to 67108864")
        require(0 < self.memory_share <= 1, "model.memory_share", self.memory_share, "a share above 0, at most 1")
        tag = self.thinking_ends
        require(tag is None or bool(tag.strip()), "model.thinking_ends", tag, "a tag, such as </think>, or null")
        hidden = "(not shown)"  # what stands in these two by mistake may be secret
        plain = "@" not in (self.base_url or "")
        require(plain, "model.base_url", hidden, "no user or password: name a key with model.api_key_env")
        web = self.base_url is None or _is_web(self.base_url)
        require(web, "model.base_url", self.base_url, "write http:// or https://, a host and a path, such as /v1")
        name = self.api_key_env is None or re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", self.api_key_env) is not None
        require(name, "model.api_key_env", hidden, "the name of an environment variable, never the key itself")
        require(1 <= self.concurrency <= 1024, "model.concurrency", self.concurrency, "at least 1, at most 1024")
        require(0 < self.timeout_s <= 86400, "model.timeout_s", self.timeout_s, "seconds above 0, at most 86400")


def _is_web(text: str) -> bool:
    """Whether ``text`` is a plain URL that paths can be put behind."""
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0 and not (url.query or url.fragment)
    except ValueError:  # a port or an address that cannot be
        return False
