"""The two-channel loop's config of the model: which it is, how it is made from nothing, and what of it learns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from stageb.config import require


@dataclass(frozen=True)
class SmallConfig:
    """A small model of the Qwen3-VL kind, with random weights; as its own checkpoint would say."""

    hidden_size: int = 128
    """Width of the language model."""
    intermediate_size: int = 384
    """Width within its feed-forward layers."""
    num_hidden_layers: int = 4
    """Its layers."""
    num_attention_heads: int = 4
    """Heads of its attention."""
    num_key_value_heads: int = 2
    """Heads that keep keys and values."""
    vision_hidden_size: int = 96
    """Width of the vision tower."""
    vision_depth: int = 4
    """Its layers."""
    vision_num_heads: int = 4
    """Heads of its attention."""
    patch_size: int = 8
    """Pixels along a side of a patch."""
    spatial_merge_size: int = 2
    """Patches along a side of the square that becomes one token."""
    max_position_embeddings: int = 4096
    """Tokens of a sequence, at most."""
    stem: Literal["patches", "convolution"] = "patches"
    """How the vision tower begins: a linear map of each patch, or convolutions of 3 x 3 down to one place for each (Xiao et
    al. 2021), for which patch_size must be a power of two; transformers and vLLM do not know such a checkpoint."""
    seed: int = 0
    """Names its weights."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name == "stem":
                continue
            require(value >= (0 if name == "seed" else 1), f"model.small.{name}", value, "a whole number above 0")
        for width, parts in (("hidden_size", self.num_attention_heads), ("vision_hidden_size", self.vision_num_heads)):
            value = getattr(self, width)
            require(value % (4 * parts) == 0, f"model.small.{width}", value, f"a multiple of 4 times its heads, {parts}")
        heads, keys = self.num_attention_heads, self.num_key_value_heads
        halves = self.stem == "patches" or (side := self.patch_size) & (side - 1) == 0
        require(halves, "model.small.patch_size", self.patch_size, "a power of two where model.small.stem is convolution")
        require(heads % keys == 0, "model.small.num_key_value_heads", keys, f"a divisor of num_attention_heads, {heads}")


@dataclass(frozen=True)
class ModelConfig:
    """The model that is taught."""

    model_name_or_path: str | None = None
    """A vision-language checkpoint: a folder, or a name of the hub; null: a small model is made, as `small` says."""
    small: SmallConfig = field(default_factory=SmallConfig)
    image_pixels: int = 1_003_520
    """Larger images are made smaller, to at most so many pixels."""
    gradient_checkpointing: bool = False
    """Compute activations again on the way back, to spend less memory."""
    compile: bool = False
    """Have torch compile the layers that learn, and on a GPU record them as CUDA graphs, unless adapters learn or a soft
    context is asked for: a minute at the start, then steps of a small model take half the time; needs a C compiler."""

    def __post_init__(self) -> None:
        require(self.image_pixels >= 1024, "model.image_pixels", self.image_pixels, "1024 or more")


@dataclass(frozen=True)
class TunerConfig:
    """Which weights learn: all, or adapters beside them (peft)."""

    kind: Literal["full", "lora"] = "full"
    """full: all weights; lora: low-rank adapters (Hu et al. 2021) and the coordinate tokens' embeddings."""
    rank: int = 16
    """Of an adapter."""
    alpha: float = 32.0
    """An adapter counts alpha / rank."""
    dropout: float = 0.0
    """Of an adapter's input, while it learns."""
    use_dora: bool = False
    """Learn lengths and directions apart (Liu et al. 2024)."""
    target_modules: str = "all-linear"
    """The layers that get one: all-linear, or a regular expression over their names."""

    def __post_init__(self) -> None:
        require(self.rank >= 1, "tuner.rank", self.rank, "at least 1")
        require(self.alpha > 0, "tuner.alpha", self.alpha, "above 0")
        require(0 <= self.dropout < 1, "tuner.dropout", self.dropout, "0 to below 1")
        require(self.kind == "lora" or not self.use_dora, "tuner.use_dora", self.use_dora, "tuner.kind lora, or false")
