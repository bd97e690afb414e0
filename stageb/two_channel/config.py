"""The config of the two-channel loop: one frozen dataclass per section, keys as users write them.

Nothing here is ever mutated; what changes over a run (channel, learning rate) is a function of the step: ``schedule.py``.
The sections on the model are in ``model_config.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from stageb.config import FabricConfig, Level, LogConfig, LoggerConfig, OutputConfig, require
from stageb.two_channel.model_config import ModelConfig, TunerConfig

Channel = Literal["A", "B", "C"]
FalsePositives = Literal["cut", "neutral", "duplicates", "all", "noise"]
Polygons = Literal["refuse", "box"]
Order = Literal["top_down", "random"]


@dataclass(frozen=True)
class DataConfig:
    """Images and their objects, JSON Lines of `images`, `objects`, `width`, `height`."""

    train: str = ""
    """The file to learn from."""
    val: str = ""
    """The file to look at on the way: the checkpoint with the best F1 on it is kept, and ``evaluation.patience`` may end the
    run by it."""
    test: str = ""
    """The file to be judged by, once, at the end."""
    images: str | None = None
    """The folder that images are named relative to; null: that of the file that names them."""
    polygons: Polygons = "refuse"
    """What becomes of objects that are given as a `poly`; box: they are taken as the boxes around them."""
    prompt: str = "Detect all objects."
    """What the model is asked beneath each image; {categories} stands for the names of the objects of train."""

    def __post_init__(self) -> None:
        require(bool(self.prompt.strip()), "data.prompt", self.prompt, "words that the model is asked")


@dataclass(frozen=True)
class AugmentationConfig:
    """Views in which training images are shown, drawn anew for every step; boxes are moved with them."""

    mirror: bool = False
    """Left and right change places, half the time."""
    upend: bool = False
    """Top and bottom change places, half the time."""
    turn: bool = False
    """Rows and columns change places, half the time."""
    scale_jitter: list[float] = field(default_factory=lambda: [1.0, 1.0])
    """Least and greatest factor by which an image is scaled, width and height alike (Ghiasi et al. 2021): above 1 a part of
    it fills the view, below 1 the whole stands somewhere in it, on grey."""
    scale_jitter_end: list[float] | None = None
    """The same at the last step, approached in equal ratios from the first on; null: as at the first."""
    light: float = 0.0
    """How far brightness and contrast vary, up and down: 0 to below 1."""
    copy_paste: int = 0
    """Objects of other training images, at most, that are pasted into one, where they hide none (Ghiasi et al. 2021)."""

    def __post_init__(self) -> None:
        for name in ("scale_jitter", "scale_jitter_end"):
            given = getattr(self, name) or [1.0, 1.0]
            fits = len(given) == 2 and 0.1 <= given[0] <= given[1] <= 10
            require(fits, f"augmentation.{name}", given, "least and greatest factor, from 0.1 to 10, such as [1.0, 3.0]")
        require(0 <= self.light < 1, "augmentation.light", self.light, "0 to below 1")
        require(self.copy_paste >= 0, "augmentation.copy_paste", self.copy_paste, "0 or more")


@dataclass(frozen=True)
class AnswerConfig:
    """How the model writes what it sees."""

    box_first: bool = False
    """An object's box stands before its name, which is then said of that box (Chen et al. 2022, Pix2Seq)."""
    order: Order = "top_down"
    """Of the objects that are taught: by their upper left corners, or drawn anew for every view."""
    object_budget: int = 0
    """Objects that an answer which is taught holds at least: behind the true ones stand boxes that show none, named noise,
    whose coordinates are not taught. Objects named noise are not told. 0: the true ones alone; above, box_first."""

    def __post_init__(self) -> None:
        require(self.object_budget >= 0, "answer.object_budget", self.object_budget, "0 or more")
        fits = self.box_first or not self.object_budget
        require(fits, "answer.object_budget", self.object_budget, "0, or answer.box_first true")


@dataclass(frozen=True)
class LossConfig:
    """What a step takes its gradients of: weights of its parts. Text is a mean over the text tokens of the true answers of
    the step, all else a mean over its objects, on both channels."""

    text: float = 1.0
    """Of the cross-entropy of words."""
    coordinates: float = 1.0
    """Of the cross-entropy of coordinate tokens, over the whole vocabulary."""
    soft_width: float = 0.0
    """Bins of spread (a standard deviation) of a coordinate's target; 0: the true bin alone."""
    l1: float = 0.0
    """Of the distance of expected coordinates from the truth, in shares of the image."""
    giou: float = 0.0
    """Of the generalised IoU (Rezatofighi et al. 2019) of expected boxes."""
    against: float = 1.0
    """Of what is taught against: the unlikelihood (Welleck et al. 2019) of repeated or false objects."""

    reward: float = 1.0
    """Of what channel C teaches."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            require(value >= 0, f"losses.{name}", value, "0 or more")
        require(self.text + self.coordinates > 0, "losses.text", self.text, "above 0 where losses.coordinates is 0")


@dataclass(frozen=True)
class ChannelAConfig:
    """Steps that teach the truth itself."""

    samples_per_step: int = 16
    """Images of a step, over all ranks."""
    n_softctx_iter: int = 1
    """Forward passes; from the second on a coordinate is fed as what the pass before expected of it, and losses.l1 and
    losses.giou, one of which must then be above 0, are taken on the last; 1: teacher forcing."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            require(value >= 1, f"channel_a.{name}", value, "at least 1")


@dataclass(frozen=True)
class ChannelBConfig:
    """Steps that teach on the model's own answers."""

    rollouts_per_step: int = 16
    """Images that are answered in a step, over all ranks."""
    max_new_tokens: int = 512
    """Of an answer."""
    temperature: float = 0.7
    """Of sampling; 0: the most probable token."""
    top_p: float = 1.0
    """Least probability mass that tokens are drawn from."""
    min_iou: float = 0.5
    """Overlap with an object of the same name from which on a box counts as found."""
    false_positives: FalsePositives = "cut"
    """What comes of boxes without an object. cut: the answer is kept up to the first of them. noise, where
    answer.object_budget is above 0 and only there: they stay in it, named noise, and all others are given the name of the
    object that they overlap. Else they stay in it, and are taught against: none (neutral), near-duplicates of earlier boxes,
    or all."""

    def __post_init__(self) -> None:
        require(self.rollouts_per_step >= 1, "channel_b.rollouts_per_step", self.rollouts_per_step, "at least 1")
        require(self.max_new_tokens >= 16, "channel_b.max_new_tokens", self.max_new_tokens, "at least 16")
        require(self.temperature >= 0, "channel_b.temperature", self.temperature, "0 or more")
        require(0 < self.top_p <= 1, "channel_b.top_p", self.top_p, "above 0, at most 1")
        require(0 < self.min_iou <= 1, "channel_b.min_iou", self.min_iou, "above 0, at most 1")


@dataclass(frozen=True)
class ChannelCConfig:
    """Steps that teach by the reward of the model's own answers, drawn at temperature 1, of channel_b.max_new_tokens."""

    images_per_step: int = 16
    """Over all ranks."""
    answers_per_image: int = 8
    """Each is weighed against the others."""
    duplicate_price: float = 1.0
    """What an object told again takes away, where a right one adds 2."""
    object_credit: float = 1.0
    """Of what an answer's objects differ in, beside its own weight; 0: all tokens of an answer weigh the same."""

    def __post_init__(self) -> None:
        require(self.images_per_step >= 1, "channel_c.images_per_step", self.images_per_step, "at least 1")
        require(self.answers_per_image >= 2, "channel_c.answers_per_image", self.answers_per_image, "at least 2")
        for name in ("duplicate_price", "object_credit"):
            require(getattr(self, name) >= 0, f"channel_c.{name}", getattr(self, name), "0 or more")


@dataclass(frozen=True)
class ScheduleConfig:
    """What follows what."""

    steps: int = 300
    """Of the optimiser."""
    pattern: list[Channel] = field(default_factory=lambda: ["A", "A", "B"])
    """Channels of steps, over and over."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """adamw: of all weights; muon: Muon (Jordan et al. 2024) of matrices, AdamW of the rest, with which a model that begins
    from nothing learns several times as fast."""
    learning_rate: float = 0.0005
    """The optimiser's, once warm; Muon's steps are as long as AdamW's."""
    learning_rate_end: float = 0.00005
    """The optimiser's at the last step; a cosine in between."""
    warmup_steps: int = 20
    """Steps in which the learning rate grows from 0."""
    weight_decay: float = 0.01
    """Of matrices."""
    max_grad_norm: float = 1.0
    """Gradients longer than this are made as long."""
    average_weights: float = 0.0
    """Decay of an exponential moving average of the weights, such as 0.999 (Polyak and Juditsky 1992): what is judged on val
    and test and saved in `model` and `best` is the average; learning and its rollouts go on from the weights themselves. 0:
    none."""
    commit_every: int = 50
    """Steps from one commit to the next."""

    def __post_init__(self) -> None:
        require(len(self.pattern) >= 1, "schedule.pattern", self.pattern, "at least one channel, such as [A, A, B]")
        for name in ("steps", "commit_every"):
            require(getattr(self, name) >= 1, f"schedule.{name}", getattr(self, name), "at least 1")
        for name in ("learning_rate", "max_grad_norm"):
            require(getattr(self, name) > 0, f"schedule.{name}", getattr(self, name), "above 0")
        for name in ("learning_rate_end", "warmup_steps", "weight_decay"):
            require(getattr(self, name) >= 0, f"schedule.{name}", getattr(self, name), "0 or more")
        decay = self.average_weights
        require(0 <= decay < 1, "schedule.average_weights", decay, "0 to below 1, such as 0.999")


@dataclass(frozen=True)
class PackingConfig:
    """How sequences are laid behind each other."""

    global_max_length: int = 4096
    """Tokens that a pack holds: what one backward pass works on."""
    max_length: int = 2048
    """Tokens of one sequence, prompt, image and answer; at least the longest prompt and channel_b.max_new_tokens."""
    overlong: Literal["refuse", "set_aside"] = "refuse"
    """What becomes of samples that are longer: the run does not start, or goes on without them, and says which."""

    def __post_init__(self) -> None:
        require(self.max_length >= 32, "packing.max_length", self.max_length, "at least 32")
        fits = self.global_max_length >= self.max_length
        require(fits, "packing.global_max_length", self.global_max_length, f"at least packing.max_length, {self.max_length}")


@dataclass(frozen=True)
class TopologyConfig:
    """Which ranks do what. Rank 0 learns; ranks that roll out come last."""

    rollout: int = 0
    """Ranks that roll out and do nothing else; 0: every rank does both."""
    learn: int = 0
    """Ranks that learn, where others roll out."""
    staleness: int = 0
    """0: rollouts are made with the newest weights; 1: with those of one channel B step before, which hides their time,
    where ranks roll out and do nothing else."""

    def __post_init__(self) -> None:
        require(self.rollout >= 0, "topology.rollout", self.rollout, "0 or more")
        require(self.staleness in (0, 1), "topology.staleness", self.staleness, "0 or 1")
        fits = (self.learn >= 1) == (self.rollout >= 1)
        require(fits, "topology.learn", self.learn, "at least 1 where topology.rollout is, 0 where that is 0")
        remedy = "0, or topology.rollout above 0: ranks that also learn save no time by older answers"
        require(not self.staleness or self.rollout >= 1, "topology.staleness", self.staleness, remedy)


@dataclass(frozen=True)
class EvaluationConfig:
    """Answers with the most probable tokens, apart from learning: for ``data.val`` on the way and at the end, and for
    ``data.test`` once, at the end, with the weights that were best on val, or the last where there is none."""

    every: int = 0
    """Steps between two evaluations; 0: at the end alone."""
    samples: int = 0
    """Images of val that are answered, the file's first; 0: all."""
    patience: int = 0
    """Evaluations without a better F1 on val after which the run ends; 0: never before its last step."""
    pictures: int = 8
    """Test images that are drawn at the end with their boxes, true and predicted."""
    views: int = 1
    """Views in which each image is answered, also by `stageb predict`: as it is, and as ``augmentation`` mirrors, upends and
    turns images that are learnt from. Boxes that half of the views tell of count, fused into one (``fusion.py``). Each view
    costs as much time as the first."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            least = 1 if name == "views" else 0
            require(value >= least, f"evaluation.{name}", value, f"{least} or more")
        patient = not self.patience or self.every > 0
        require(patient, "evaluation.patience", self.patience, "0, or evaluation.every above 0")


@dataclass(frozen=True)
class TwoChannelConfig:
    """A vision-language model that learns to write the objects of an image, from the truth and from its own answers."""

    loop: Literal["two_channel"] = "two_channel"
    """The loop that these keys are of."""
    seed: int = 17
    """Names every random stream of the run."""
    data: DataConfig = field(default_factory=DataConfig)
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    answer: AnswerConfig = field(default_factory=AnswerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    tuner: TunerConfig = field(default_factory=TunerConfig)
    losses: LossConfig = field(default_factory=LossConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    channel_a: ChannelAConfig = field(default_factory=ChannelAConfig)
    channel_b: ChannelBConfig = field(default_factory=ChannelBConfig)
    channel_c: ChannelCConfig = field(default_factory=ChannelCConfig)
    packing: PackingConfig = field(default_factory=PackingConfig)
    topology: TopologyConfig = field(default_factory=TopologyConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    log: LogConfig = field(default_factory=LogConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
    fabric: FabricConfig = field(default_factory=FabricConfig)
    loggers: list[str | LoggerConfig] = field(default_factory=list)
    """Lightning's loggers to show every row to, beside ``log``: each a class path, or class_path and init_args."""
    log_level: Level = "info"
    """What is said on the way: info: how it goes; warning, error: less; debug: all that libraries say, too."""

    def __post_init__(self) -> None:
        precision, known = self.fabric.precision, (None, "32-true", "32", "bf16-mixed")
        require(precision in known, "fabric.precision", precision, "32-true or bf16-mixed for this loop, or null")
        passes = self.channel_a.n_softctx_iter
        remedy = "1, or losses.l1 or losses.giou above 0: no other loss is taken on later passes"
        require(passes == 1 or self.losses.l1 + self.losses.giou > 0, "channel_a.n_softctx_iter", passes, remedy)
        treated = self.channel_b.false_positives
        noisy = self.answer.object_budget > 0
        remedy = "noise where answer.object_budget is above 0, and only there"
        sound = (treated == "noise") == noisy or "B" not in self.schedule.pattern
        require(sound, "channel_b.false_positives", treated, remedy)
        stale = self.topology.staleness
        remedy = "0 where schedule.pattern holds a C: its rewards are of answers of the weights that learn"
        require(not stale or "C" not in self.schedule.pattern, "topology.staleness", stale, remedy)
        noise = self.answer.object_budget
        remedy = "0 where schedule.pattern holds a C: a reward knows no noise"
        require(not noise or "C" not in self.schedule.pattern, "answer.object_budget", noise, remedy)
        ways = [name for name in ("mirror", "upend", "turn") if getattr(self.augmentation, name)]
        remedy = f"1 to {2 ** len(ways)}: as many as augmentation.mirror, upend and turn make"
        require(self.evaluation.views <= 2 ** len(ways), "evaluation.views", self.evaluation.views, remedy)
        every = self.evaluation.every
        remedy = "0, or data.val named: data.test is judged once, at the end"
        require(not every or bool(self.data.val), "evaluation.every", every, remedy)
        answered = not {"B", "C"}.isdisjoint(self.schedule.pattern)
        remedy = "0, or a schedule.pattern with a B or a C in it: without one nobody rolls out"
        require(answered or not self.topology.rollout, "topology.rollout", self.topology.rollout, remedy)
