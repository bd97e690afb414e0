"""How a model is loaded, and where its checkpoint lies.

Of the standard library alone, since ``--help`` reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from stageb import tiny
from stageb.config import require
from stageb.errors import ConfigError, shown
from stageb.settings import CHECKPOINT, CODE, DATA, Check, Section, at_least, one_of, setting

# Where a checkpoint lies. Of the standard library alone: a wrong name is refused before torch is
# imported.

GGUF = ".gguf"
KEY = "model.model_name_or_path"
INSTALLED = (
    "aqlm auto-round awq bitnet bitsandbytes bitsandbytes_4bit bitsandbytes_8bit "
    "compressed-tensors gptq hqq quanto torchao"
)
"""Ways of quantization whose code is an installed package's; transformers fetches that of others,
or may in time."""

PLACED = (
    "leave it out: each rank has the whole model on a device of its own, which "
    "fabric.accelerator and fabric.devices choose"
)
"""The remedy for ``device_map``, by which transformers spreads a model over devices."""

# what a config may count, by what its key holds: parts are made one by one
_MOST = {"layers": 10_000, "num_": 10_000_000}
_ANY = 1 << 62  # of whatever else


def find_checkpoint(name: str) -> str:
    """The folder or hub name to load. A name that can only be a folder must be one."""
    if name == tiny.NAME:
        if not (tiny.CHECKPOINT / "config.json").is_file():
            raise ConfigError(
                KEY,
                name,
                f"the package's own model is missing from {tiny.CHECKPOINT}; install the "
                f"package again",
            )
        return str(tiny.CHECKPOINT)
    folder = Path(name).expanduser()
    if folder.is_dir():
        ggufs = sorted(folder.glob(f"*{GGUF}"))
        if (folder / "config.json").is_file():
            return str(folder)
        if len(ggufs) == 1:
            return str(ggufs[0])
        holds = (
            f"{len(ggufs)} GGUF files; name one of them"
            if ggufs
            else "no config.json; name a checkpoint's own folder"
        )
        raise ConfigError(KEY, name, f"the folder holds {holds}")
    if folder.is_file() and folder.suffix == GGUF:
        return str(folder)
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        raise ConfigError(KEY, name, f"there is no such folder (looked in {folder.absolute()})")
    return name


def check_whole(loading: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` where a checkpoint lacks weights, by what transformers says of loading
    it: it makes some up."""
    if missing := sorted(loading["missing_keys"]):
        raise ValueError(
            f"it lacks {len(missing):,} of the model's weights, such as {missing[0]}, which "
            f"would be random"
        )


def find_code(name: str) -> str | None:
    """Return the name of code in a checkpoint's config.json that transformers would fetch from the
    hub and run without asking; None where it names none. (What ``auto_map`` names runs only by
    ``trust_remote_code``.)

    Raises what transformers raises of a config that it cannot read, and ``ValueError`` for numbers
    that would keep it at work for ever.
    """
    from transformers import PreTrainedConfig

    values, _ = PreTrainedConfig.get_config_dict(name)
    if excess := next(_find_excess(values), None):
        raise ValueError(f"its config.json has {excess}, more than any model has")
    return next(_find_code(values), None)


def _find_code(values: Any, key: str = "") -> Iterator[str]:
    if isinstance(values, Mapping):
        method = values.get("quant_method", "bitsandbytes")
        if key == "quantization_config" and method not in INSTALLED.split():
            yield f"{key}.quant_method {shown(repr(method), 80)}"
        for name, value in values.items():
            yield from _find_code(value, key if "implementation" in key else name)
    elif isinstance(values, list):
        for value in values:
            yield from _find_code(value, key)
    elif "implementation" in key and "/" in str(values):  # a kernel of the hub: attention, experts
        yield f"{key} {shown(repr(values), 80)}"


def _find_excess(values: Any, key: str = "") -> Iterator[str]:
    if isinstance(values, Mapping | list):
        for name, value in (
            values.items() if isinstance(values, Mapping) else ((key, value) for value in values)
        ):
            yield from _find_excess(value, str(name))
    elif isinstance(values, int) and values > next(
        (most for part, most in _MOST.items() if part in key), _ANY
    ):
        yield f"{shown(key, 80)} {values:.3g}"


# keys that change no answer
HOW_ASKED = ("model.api_key_env", "model.concurrency", "model.timeout_s")
TAG = Check(lambda tag: bool(tag.strip()), "a tag, such as </think>")


@dataclass(frozen=True)
class ModelConfig(Section, at="model"):
    """A language model and how to load it."""

    engine: str = setting("transformers", trust=CODE)
    """transformers, openai (a server, such as vLLM's), scripted (a deterministic fake), or one of
    your own: package.module:function of (model config, device)."""
    model_name_or_path: str = setting("stageb-tiny", Check(bool, "name a model"), trust=CHECKPOINT)
    """A folder or hub name of a causal or vision-language checkpoint; stageb-tiny is the model in
    the package."""
    torch_dtype: str = setting("auto", one_of("auto", "float32", "bfloat16", "float16"), trust=DATA)
    """float32, bfloat16, float16, or auto: the checkpoint's own on a GPU; float32 on a CPU, but for
    products of weights that the checkpoint holds in bfloat16, where the CPU can multiply those."""
    quantize: str | None = setting(
        None, Check(lambda way: way in (None, "fp8"), "fp8, or null"), trust=DATA
    )
    """fp8: products of the layers' weights, and the keys and values kept of prompts, in float8, on
    GPUs that multiply such numbers (H100, L40S, RTX 4090 and later). Faster; verdicts near a tie
    may turn over (bin/bench precision)."""
    attn_implementation: str | None = setting(None, trust=CODE)
    """sdpa, eager, flash_attention_2, ...; null leaves the choice to transformers."""
    trust_remote_code: bool = setting(False, trust="whether code of a checkpoint runs")
    """Run code that the checkpoint brings. Off unless you trust its author with this machine."""
    chat_template_kwargs: dict[str, Any] = setting(lambda: {"enable_thinking": False}, trust=DATA)
    """Variables handed to the tokenizer's chat template."""
    image_pixels: int = setting(
        1 << 20, Check(lambda pixels: 1024 <= pixels <= 1 << 26, "1024 to 67108864")
    )
    """Images of more pixels are scaled down before the model is shown them; a token of Qwen3-VL is
    1,024 pixels."""
    thinking_ends: str | None = setting(None, TAG.or_null(), trust=DATA)
    """The tag that a model which thinks aloud writes before its answer, such as </think>; null: as
    its chat template says. Set it where a model thinks and no template tells."""
    base_url: str | None = setting(None, trust="the server that is sent the tickets")
    """openai: where the server's API lies, such as http://localhost:8000/v1; the model's name is
    model_name_or_path."""
    api_key_env: str | None = setting(None, trust="the secret that the server is sent")
    """openai: the environment variable that holds the key; null: none is sent. A key itself never
    stands in a config."""
    concurrency: int = setting(8, at_least(1, 1024))
    """openai: requests under way at once, per rank."""
    timeout_s: float = setting(
        120.0, Check(lambda seconds: 0 < seconds <= 86400, "seconds above 0, at most 86400")
    )
    """openai: seconds that a whole answer may take; then the request is tried again, five times at
    most."""
    tokenizer: str | None = setting(None, trust=CHECKPOINT)
    """openai: a folder or hub name of the model's tokenizer, to count prompts exactly; null:
    lengths are estimated."""

    @property
    def is_shipped(self) -> bool:
        """Whether it is the package's own model."""
        return self.engine != "scripted" and self.model_name_or_path == tiny.NAME

    @property
    def is_local(self) -> bool:
        """Whether the engine loads a checkpoint into this process; others load and send nothing
        until they are asked."""
        return self.engine == "transformers"

    def check(self) -> None:
        hidden = "(not shown)"  # what stands in these two by mistake may be secret
        plain = "@" not in (self.base_url or "")
        require(
            plain,
            "model.base_url",
            hidden,
            "no user or password: name a key with model.api_key_env",
        )
        web = self.base_url is None or _is_web(self.base_url)
        self.require(web, "base_url", "write http:// or https://, a host and a path, such as /v1")
        name = (
            self.api_key_env is None
            or re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", self.api_key_env) is not None
        )
        require(
            name,
            "model.api_key_env",
            hidden,
            "the name of an environment variable, never the key itself",
        )


def _is_web(text: str) -> bool:
    """Whether ``text`` is a plain URL that paths can be put behind."""
    try:
        url = urlsplit(text)
        return (
            url.scheme in ("http", "https")
            and bool(url.hostname)
            and url.port != 0
            and not (url.query or url.fragment)
        )
    except ValueError:  # a port or an address that cannot be
        return False
