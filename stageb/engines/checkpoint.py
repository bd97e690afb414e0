"""Where a checkpoint lies. Of the standard library alone: a wrong name is refused before torch is imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stageb import tiny
from stageb.errors import ConfigError, shown

GGUF = ".gguf"
KEY = "model.model_name_or_path"
INSTALLED = (
    "aqlm auto-round awq bitnet bitsandbytes bitsandbytes_4bit bitsandbytes_8bit compressed-tensors gptq hqq quanto torchao"
)
"""Ways of quantization whose code is an installed package's; transformers fetches that of others, or may in time."""

_METHOD = "quantization_config.quant_method"


def find_checkpoint(name: str) -> str:
    """The folder or hub name to load. A name that can only be a folder must be one."""
    if name == tiny.NAME:
        if not (tiny.CHECKPOINT / "config.json").is_file():
            raise ConfigError(
                KEY, name, f"the package's own model is missing from {tiny.CHECKPOINT}; install the package again"
            )
        return str(tiny.CHECKPOINT)
    folder = Path(name).expanduser()
    if folder.is_dir():
        ggufs = sorted(folder.glob(f"*{GGUF}"))
        if (folder / "config.json").is_file():
            return str(folder)
        if len(ggufs) == 1:
            return str(ggufs[0])
        holds = f"{len(ggufs)} GGUF files; name one of them" if ggufs else "no config.json; name a checkpoint's own folder"
        raise ConfigError(KEY, name, f"the folder holds {holds}")
    if folder.is_file() and folder.suffix == GGUF:
        return str(folder)
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        raise ConfigError(KEY, name, f"there is no such folder (looked in {folder.absolute()})")
    return name


def check_whole(loading: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` where a checkpoint lacks weights, by what transformers says of loading it: it makes some up."""
    if missing := sorted(loading["missing_keys"]):
        raise ValueError(f"it lacks {len(missing):,} of the model's weights, such as {missing[0]}, which would be random")


def find_code(name: str, any_method: bool = False) -> str | None:
    """What the config.json of a checkpoint names that transformers would fetch from the hub and run without asking; None
    where it names nothing of the kind. (What ``auto_map`` names runs only by ``trust_remote_code``.)

    ``any_method``: quantization is somebody else's work. Raises what transformers raises of a config that it cannot read.
    """
    from transformers import PreTrainedConfig

    values, _ = PreTrainedConfig.get_config_dict(name)
    found = _find_code(values)
    return next((code for code in found if not (any_method and code.startswith(_METHOD))), None)


def _find_code(values: Any, key: str = "") -> Iterator[str]:
    if isinstance(values, Mapping):
        method = values.get("quant_method", "bitsandbytes")
        if key == "quantization_config" and method not in INSTALLED.split():
            yield f"{_METHOD} {shown(repr(method), 80)}"
        for name, value in values.items():
            yield from _find_code(value, key if "implementation" in key else name)
    elif isinstance(values, list):
        for value in values:
            yield from _find_code(value, key)
    elif "implementation" in key and "/" in str(values):  # a kernel of the hub: attention, experts
        yield f"{key} {shown(repr(values), 80)}"
