"""The model sections of the two-channel loop's config: which model, how to create one from scratch, and what to train."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from stageb.settings import ABOVE_0, CHECKPOINT, DATA, SHARE_BELOW_1, Check, Section, at_least, setting

WHOLE = Check(lambda number: number >= 1, "a whole number above 0")


@dataclass(frozen=True)
class SmallConfig(Section, at="model.small"):
    """A small model with the Qwen3-VL architecture and random weights; keys are named as in its config.json."""

    hidden_size: int = setting(128, WHOLE)
    """Width of the language model."""
    intermediate_size: int = setting(384, WHOLE)
    """Width of its feed-forward layers."""
    num_hidden_layers: int = setting(4, WHOLE)
    """Layers of the language model."""
    num_attention_heads: int = setting(4, WHOLE)
    """Attention heads of the language model."""
    num_key_value_heads: int = setting(2, WHOLE)
    """Key and value heads of the language model."""
    vision_hidden_size: int = setting(96, WHOLE)
    """Width of the vision tower."""
    vision_depth: int = setting(4, WHOLE)
    """Layers of the vision tower."""
    vision_num_heads: int = setting(4, WHOLE)
    """Attention heads of the vision tower."""
    patch_size: int = setting(8, WHOLE)
    """Side of a patch, in pixels."""
    spatial_merge_size: int = setting(2, WHOLE)
    """Side, in patches, of the square that becomes one token."""
    max_position_embeddings: int = setting(4096, WHOLE)
    """Most tokens of a sequence."""
    stem: Literal["patches", "convolution"] = "patches"
    """How the vision tower embeds patches: by a linear map of each patch, or by strided 3 x 3 convolutions (Xiao et al.
    2021), which need a patch_size that is a power of two; transformers and vLLM alone cannot load such a checkpoint."""
    seed: int = setting(0, Check(lambda seed: seed >= 0, "a whole number, 0 or more"))
    """Seed of its weights."""

    def check(self) -> None:
        for width, parts in (("hidden_size", self.num_attention_heads), ("vision_hidden_size", self.vision_num_heads)):
            self.require(getattr(self, width) % (4 * parts) == 0, width, f"a multiple of 4 times its heads, {parts}")
        heads, keys = self.num_attention_heads, self.num_key_value_heads
        halves = self.stem == "patches" or (side := self.patch_size) & (side - 1) == 0
        self.require(halves, "patch_size", "a power of two if model.small.stem is convolution")
        self.require(heads % keys == 0, "num_key_value_heads", f"a divisor of num_attention_heads, {heads}")


@dataclass(frozen=True)
class ModelConfig(Section, at="model"):
    """The model to train."""

    model_name_or_path: str | None = setting(None, trust=CHECKPOINT)
    """A vision-language checkpoint: a folder, or a name on the hub; null: create a small model as `small` says."""
    small: SmallConfig = field(default_factory=SmallConfig)
    image_pixels: int = setting(1_003_520, Check(lambda pixels: pixels >= 1024, "1024 or more"))
    """Larger images are scaled down to at most this many pixels."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass to save memory."""
    compile: bool = False
    """Compile the trained layers with torch.compile, and on a GPU record them as CUDA graphs, unless tuner.kind is lora or
    channel_a.n_softctx_iter is above 1. Takes a minute at the start and halves the step time of a small model; needs a C
    compiler."""


@dataclass(frozen=True)
class TunerConfig(Section, at="tuner"):
    """Which weights are trained: all of them, or adapters (peft)."""

    kind: Literal["full", "lora"] = "full"
    """full: all weights; lora: low-rank adapters (Hu et al. 2021) and the embeddings of the coordinate tokens."""
    rank: int = setting(16, at_least(1))
    """Rank of an adapter."""
    alpha: float = setting(32.0, ABOVE_0)
    """The output of an adapter is scaled by alpha / rank."""
    dropout: float = setting(0.0, SHARE_BELOW_1)
    """Dropout of an adapter's input during training."""
    use_dora: bool = False
    """Train the magnitude and the direction of weights separately (DoRA, Liu et al. 2024)."""
    target_modules: str = setting("all-linear", trust=DATA)
    """The layers that get an adapter: all-linear, or a regular expression over their names."""

    def check(self) -> None:
        self.require(self.kind == "lora" or not self.use_dora, "use_dora", "tuner.kind lora, or false")
