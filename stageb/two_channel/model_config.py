"""The model sections of the two-channel loop's config: which model, how to create one from scratch, and what to train."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from stageb.config import require


@dataclass(frozen=True)
class SmallConfig:
    """A small model with the Qwen3-VL architecture and random weights; keys are named as in its config.json."""

    hidden_size: int = 128
    """Width of the language model."""
    intermediate_size: int = 384
    """Width of its feed-forward layers."""
    num_hidden_layers: int = 4
    """Layers of the language model."""
    num_attention_heads: int = 4
    """Attention heads of the language model."""
    num_key_value_heads: int = 2
    """Key and value heads of the language model."""
    vision_hidden_size: int = 96
    """Width of the vision tower."""
    vision_depth: int = 4
    """Layers of the vision tower."""
    vision_num_heads: int = 4
    """Attention heads of the vision tower."""
    patch_size: int = 8
    """Side of a patch, in pixels."""
    spatial_merge_size: int = 2
    """Side, in patches, of the square that becomes one token."""
    max_position_embeddings: int = 4096
    """Most tokens of a sequence."""
    stem: Literal["patches", "convolution"] = "patches"
    """How the vision tower embeds patches: by a linear map of each patch, or by strided 3 x 3 convolutions (Xiao et al.
    2021), which need a patch_size that is a power of two; transformers and vLLM alone cannot load such a checkpoint."""
    seed: int = 0
    """Seed of its weights."""

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
        require(halves, "model.small.patch_size", self.patch_size, "a power of two if model.small.stem is convolution")
        require(heads % keys == 0, "model.small.num_key_value_heads", keys, f"a divisor of num_attention_heads, {heads}")


@dataclass(frozen=True)
class ModelConfig:
    """The model to train."""

    model_name_or_path: str | None = None
    """A vision-language checkpoint: a folder, or a name on the hub; null: create a small model as `small` says."""
    small: SmallConfig = field(default_factory=SmallConfig)
    image_pixels: int = 1_003_520
    """Larger images are scaled down to at most this many pixels."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass to save memory."""
    compile: bool = False
    """Compile the trained layers with torch.compile, and on a GPU record them as CUDA graphs, unless tuner.kind is lora or
    channel_a.n_softctx_iter is above 1. Takes a minute at the start and halves the step time of a small model; needs a C
    compiler."""

    def __post_init__(self) -> None:
        require(self.image_pixels >= 1024, "model.image_pixels", self.image_pixels, "1024 or more")


@dataclass(frozen=True)
class TunerConfig:
    """Which weights are trained: all of them, or adapters (peft)."""

    kind: Literal["full", "lora"] = "full"
    """full: all weights; lora: low-rank adapters (Hu et al. 2021) and the embeddings of the coordinate tokens."""
    rank: int = 16
    """Rank of an adapter."""
    alpha: float = 32.0
    """The output of an adapter is scaled by alpha / rank."""
    dropout: float = 0.0
    """Dropout of an adapter's input during training."""
    use_dora: bool = False
    """Train the magnitude and the direction of weights separately (DoRA, Liu et al. 2024)."""
    target_modules: str = "all-linear"
    """The layers that get an adapter: all-linear, or a regular expression over their names."""

    def __post_init__(self) -> None:
        require(self.rank >= 1, "tuner.rank", self.rank, "at least 1")
        require(self.alpha > 0, "tuner.alpha", self.alpha, "above 0")
        require(0 <= self.dropout < 1, "tuner.dropout", self.dropout, "0 to below 1")
        require(self.kind == "lora" or not self.use_dora, "tuner.use_dora", self.use_dora, "tuner.kind lora, or false")
