"""Which language model, and how to load it: a section of the config of every loop that asks one.

Of the standard library alone, since ``--help`` reads it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from stageb.config import require
from stageb.settings import CHECKPOINT, CODE, DATA, SHARE_ABOVE_0, Check, Section, at_least, one_of, setting

HOW_ASKED = ("model.api_key_env", "model.concurrency", "model.memory_share", "model.timeout_s")  # keys that change no answer
TAG = Check(lambda tag: bool(tag.strip()), "a tag, such as </think>")


@dataclass(frozen=True)
class ModelConfig(Section, at="model"):
    """A language model and how to load it."""

    engine: str = setting("transformers", trust=CODE)
    """transformers, vllm, openai (a server), scripted (a deterministic fake), or one of your own: package.module:function
    of (model config, device)."""
    model_name_or_path: str = setting("stageb-tiny", Check(bool, "name a model"), trust=CHECKPOINT)
    """A folder or hub name of a causal or vision-language checkpoint; stageb-tiny is the model in the package."""
    torch_dtype: str = setting("auto", one_of("auto", "float32", "bfloat16", "float16"), trust=DATA)
    """float32, bfloat16, float16, or auto: the checkpoint's own on a GPU; float32 on a CPU, but for products of weights that
    the checkpoint holds in bfloat16, where the CPU can multiply those."""
    quantize: str | None = setting(None, Check(lambda way: way in (None, "fp8"), "fp8, or null"), trust=DATA)
    """fp8: products of the layers' weights, and the keys and values kept of prompts, in float8, on GPUs that multiply such
    numbers (H100, L40S, RTX 4090 and later). Faster; verdicts near a tie may turn over (bin/bench precision)."""
    device_map: str | None = setting(None, trust=DATA)
    """auto spreads one model over the devices of a single process; ignored where several ranks run."""
    attn_implementation: str | None = setting(None, trust=CODE)
    """sdpa, eager, flash_attention_2, ...; null leaves the choice to transformers."""
    trust_remote_code: bool = setting(False, trust="whether code of a checkpoint runs")
    """Run code that the checkpoint brings. Off unless you trust its author with this machine."""
    chat_template_kwargs: dict[str, Any] = setting(lambda: {"enable_thinking": False}, trust=DATA)
    """Variables handed to the tokenizer's chat template."""
    image_pixels: int = setting(1 << 20, Check(lambda pixels: 1024 <= pixels <= 1 << 26, "1024 to 67108864"))
    """Images of more pixels are scaled down before the model is shown them; a token of Qwen3-VL is 1,024 pixels."""
    thinking_ends: str | None = setting(None, TAG.or_null(), trust=DATA)
    """The tag that a model which thinks aloud writes before its answer, such as </think>; null: as its chat template says.
    Set it where a model thinks and no template tells."""
    memory_share: float = setting(0.9, Check(SHARE_ABOVE_0.holds, "a share above 0, at most 1"))
    """vllm: the share of its GPU's memory that the engine may take, weights and cache together."""
    base_url: str | None = setting(None, trust="the server that is sent the tickets")
    """openai: where the server's API lies, such as http://localhost:8000/v1; the model's name is model_name_or_path."""
    api_key_env: str | None = setting(None, trust="the secret that the server is sent")
    """openai: the environment variable that holds the key; null: none is sent. A key itself never stands in a config."""
    concurrency: int = setting(8, at_least(1, 1024))
    """openai: requests under way at once, per rank."""
    timeout_s: float = setting(120.0, Check(lambda seconds: 0 < seconds <= 86400, "seconds above 0, at most 86400"))
    """openai: seconds that a whole answer may take; then the request is tried again, five times at most."""
    tokenizer: str | None = setting(None, trust=CHECKPOINT)
    """openai: a folder or hub name of the model's tokenizer, to count prompts exactly; null: lengths are estimated."""

    def check(self) -> None:
        self.require(
            self.quantize is None or self.device_map is None, "quantize", "null where model.device_map spreads the model"
        )
        hidden = "(not shown)"  # what stands in these two by mistake may be secret
        plain = "@" not in (self.base_url or "")
        require(plain, "model.base_url", hidden, "no user or password: name a key with model.api_key_env")
        web = self.base_url is None or _is_web(self.base_url)
        self.require(web, "base_url", "write http:// or https://, a host and a path, such as /v1")
        name = self.api_key_env is None or re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", self.api_key_env) is not None
        require(name, "model.api_key_env", hidden, "the name of an environment variable, never the key itself")


def _is_web(text: str) -> bool:
    """Whether ``text`` is a plain URL that paths can be put behind."""
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0 and not (url.query or url.fragment)
    except ValueError:  # a port or an address that cannot be
        return False
