"""The detector: a vision-language checkpoint with coordinate tokens, loaded or created from
scratch.

The coordinate token ``<|coord_k|>`` stands for bin k of an axis. If a checkpoint does not have
these tokens, they are added, and their embeddings are initialised with sines and cosines of many
wavelengths along the axis, so that near coordinates are similar from the start and share what is
learnt (like the positions in Vaswani et al. 2017, section 3.5).

Prompts become ids exactly as in the default engine (``engines/chat.py``,
``engines/native/vision.py``), so training and rollouts see the same prompts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn
from transformers import (
    AutoModelForImageTextToText,
    AutoTokenizer,
    PreTrainedTokenizerFast,
    Qwen2VLImageProcessorPil,
    Qwen3VLConfig,
)
from transformers.utils.logging import disable_progress_bar

from stageb import seeds
from stageb.engines import config as engines
from stageb.engines.chat import Chat
from stageb.engines.config import check_whole, find_code
from stageb.engines.native.api import ATTENTION, image_inputs_of
from stageb.engines.protocol import Ids, Prompt
from stageb.errors import ConfigError, EngineError
from stageb.two_channel.boxes.text import (
    COORDINATES,
    Spelling,
    fill_prompt,
    find_spelling,
    list_pieces,
)
from stageb.two_channel.config import SmallConfig, TwoChannelConfig
from stageb.two_channel.model import adapters, tower
from stageb.two_channel.model.tower import Qwen3VLConvolutionConfig
from stageb.two_channel.model.views import Views
from stageb.two_channel.types import BINS

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for part in m['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ "
    "part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
SEEING = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
_KEY = "model.model_name_or_path"
# learnt positions along a side of the vision tower; they are interpolated over every image
PLACES = 16
MERGED, LONGEST = 2, 4096  # patches along the side of a token's square; most tokens of a sequence
SPREAD = 0.02  # initial standard deviation of embeddings
FIRMNESS = 1.0  # initial amplitude of the vision tower's position embeddings
REACH = 0.1  # initial amplitude of the coordinate embeddings of a small model
TEXT_ADDS = ("o_proj.weight", "down_proj.weight")  # output projections of residual branches
VISION_ADDS = ("attn.proj.weight", "fc2.weight")
LOGITS = 1 << 25  # logits that learning holds at a time: 128 MiB in float32
CONTRAST = 5.0  # initial gain of the first layer for pixels, relative to other layers


@dataclass(frozen=True, slots=True)
class Head:
    """The output layer."""

    logits: Callable[[Tensor], Tensor]  # hidden states (rows, width) to (rows, vocabulary)
    first: int  # the id of the coordinate token of bin 0; the others follow
    rows: int  # most rows whose logits are computed at a time


@dataclass(frozen=True)
class Detector:
    """A model that writes boxes, with its tokenizer, image inputs, prompt and spelling."""

    model: Any
    tokenizer: Any
    eyes: Views
    chat: Chat
    words: str  # of every prompt
    spelling: Spelling  # of its answers

    def head(self, precision: Callable[[], AbstractContextManager[Any]] = nullcontext) -> Head:
        """The output layer, which runs within the context that ``precision`` returns."""

        def logits(states: Tensor) -> Tensor:
            with precision():
                made: Tensor = self.model.get_output_embeddings()(states)
            return made

        return Head(
            logits,
            self.spelling.coordinates[0],
            max(1, LOGITS // self.model.get_input_embeddings().weight.shape[0]),
        )

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """The weights by name, adapters merged: those of a plain checkpoint."""
        return adapters.merge_weights(self.model)

    def prompt(self, image: str) -> Prompt:
        """The engine's prompt for a picture."""
        return Prompt("", self.words, (image,))

    def prompt_ids(self, image: str) -> Ids:
        """The ids of the prompt, with the picture's tokens as ``ImageInputs`` names them. Raises
        ``PictureError``."""
        shared, own = self.chat.encode(self.prompt(image))
        return shared + self.eyes.ids((image,)) + own


def find_dtype(config: TwoChannelConfig, device: str, answers: bool) -> torch.dtype:
    """The dtype of a detector's weights: bfloat16 if training is bf16-mixed and they do not learn,
    since it only ``answers`` (on a GPU) or its adapters learn in their place; else float32."""
    still = device.startswith("cuda") if answers else config.model.lora_rank is not None
    return torch.bfloat16 if still and config.fabric.precision == "bf16-mixed" else torch.float32


def load(
    folder: str,
    config: TwoChannelConfig,
    categories: Sequence[str],
    device: str,
    answers: bool = False,
) -> Detector:
    """Load the checkpoint in ``folder`` (or a hub name), with coordinate tokens, in eval mode on
    ``device``: to learn, with adapters if the config asks for them, or only to give ``answers``.
    ``categories`` are the names that a prompt may list.

    Raises ``ConfigError`` if it does not support images, ``EngineError`` if it cannot be loaded,
    ``InputError`` if its tokenizer cannot spell answers.
    """
    disable_progress_bar()  # a bar per rank would say nothing
    try:
        if code := find_code(folder):
            raise ValueError(f"its config.json has {code}, code that would be fetched and run")
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        dtype = find_dtype(config, device, answers)
        options = {
            "dtype": dtype,
            "use_safetensors": True,
            "trust_remote_code": False,
            "output_loading_info": True,
        }
        loaded: Any = AutoModelForImageTextToText.from_pretrained(folder, **options)
        model, loading = loaded
        check_whole(loading)
    # what strangers wrote makes transformers and tokenizers stumble in any way
    except Exception as error:
        raise EngineError(
            f"{_KEY}: {folder!r} could not be loaded: {error}; name a folder, or a model of the "
            f"hub that this machine can reach, of the Qwen2-VL, Qwen2.5-VL or Qwen3-VL kind"
        ) from error
    add_coordinates(model, tokenizer)
    model.set_attn_implementation(
        {"": ATTENTION, "text_config": ATTENTION, "vision_config": tower.NAME}
    )
    model = model.to(device).eval()
    asked = engines.ModelConfig(model_name_or_path=folder, image_pixels=config.model.image_pixels)
    eyes = Views(model, image_inputs_of(model, folder, asked).process, config.model.image_pixels)
    words, spelling = (
        fill_prompt(config.data.prompt, categories),
        find_spelling(tokenizer, config.answer.box_first),
    )
    if config.model.lora_rank and not answers:
        adapters.add_adapters(model, config.model.lora_rank, spelling.coordinates[0], config.seed)
    return Detector(model, tokenizer, eyes, Chat(tokenizer, {}), words, spelling)


def make_small(
    folder: Path, small: SmallConfig, descs: Iterable[str], box_first: bool = False
) -> None:
    """Create a small Qwen3-VL checkpoint in ``folder``: random weights, a tokenizer with one token
    for each fixed piece of answers and for each of ``descs``, and an image processor."""
    disable_progress_bar()
    tokenizer = _make_tokenizer({*list_pieces(box_first), "user\n", "assistant\n", *descs})
    tokenizer.add_tokens([_make_token(token) for token in COORDINATES])
    shape = _make_config(small, tokenizer)
    kind = Qwen3VLConfig if small.stem == "patches" else Qwen3VLConvolutionConfig
    model: Any = AutoModelForImageTextToText.from_config(kind(**shape))
    _draw_weights(model, small.seed)
    if small.stem_weights is not None:
        model.model.visual.stem.layers[0].load(small.stem_weights)
    _set_coordinate_embeddings(
        model, int(tokenizer.convert_tokens_to_ids(COORDINATES[0])), small.seed, REACH
    )
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    side = small.patch_size * MERGED
    Qwen2VLImageProcessorPil(
        patch_size=small.patch_size,
        temporal_patch_size=1,
        merge_size=MERGED,
        size={"shortest_edge": side * side, "longest_edge": side * side * LONGEST // 2},
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    ).save_pretrained(folder)


def add_coordinates(model: Any, tokenizer: Any) -> None:
    """Add the coordinate tokens to both if they do not have them. Raises ``ConfigError`` if they
    have only some."""
    known = tokenizer.get_vocab()
    held = [token for token in COORDINATES if token in known]
    if not held:
        tokenizer.add_tokens([_make_token(token) for token in COORDINATES])
        if len(tokenizer) > model.get_input_embeddings().weight.shape[0]:
            model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        spread = float(model.get_input_embeddings().weight.std())
        _set_coordinate_embeddings(
            model, int(tokenizer.convert_tokens_to_ids(COORDINATES[0])), seed=0, spread=spread
        )
        return
    ids = tokenizer.convert_tokens_to_ids(list(COORDINATES))
    if len(held) < BINS or ids != list(range(ids[0], ids[0] + BINS)):
        remedy = (
            f"its tokenizer knows {len(held)} of the {BINS} coordinate tokens, or not in a "
            f"row; name one with all or none"
        )
        raise ConfigError(_KEY, model.name_or_path, remedy)


def make_waves(width: int, seed: int) -> Tensor:
    """Unit-variance embeddings of the bins, (BINS, width): sines and cosines along the axis, with
    wavelengths from four axes to eight bins, multiplied by a random rotation so that no dimension
    is special."""
    generator = torch.Generator().manual_seed(seeds.stream(seed, "two_channel", "coordinates") >> 1)
    lengths = torch.logspace(
        math.log2(4 * BINS), 3, (width + 1) // 2, base=2.0, dtype=torch.float64
    )
    angles = torch.arange(BINS, dtype=torch.float64)[:, None] * (2 * math.pi / lengths)
    along = torch.cat([angles.sin(), angles.cos()], -1)[:, :width] * math.sqrt(2)
    turn = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64)).Q
    found: Tensor = (along @ turn).float()
    return found


@torch.no_grad()
def _draw_weights(model: Any, seed: int) -> None:
    """Initialise all weights of a small model.

    Matrices preserve the variance of their inputs. Qwen's standard deviation of .02 suits widths of
    thousands; in a narrow model it makes image features so weak that the model ignores them for
    long. Pixels get an extra gain, and position embeddings of the vision tower start as sines and
    cosines along rows and columns. Residual branches are scaled down with the number of layers
    (Radford et al. 2019, section 2.3).
    """
    generator = torch.Generator().manual_seed(seeds.stream(seed, "two_channel", "model") >> 1)
    embeddings = {id(layer.weight) for layer in model.modules() if isinstance(layer, nn.Embedding)}
    for weight in model.parameters():
        if weight.ndim > 1:
            spread = SPREAD if id(weight) in embeddings else weight[0].numel() ** -0.5
            weight.copy_(torch.randn(weight.shape, generator=generator) * spread)
    text, visual = model.model.language_model, model.model.visual
    for layers, adding in ((text.layers, TEXT_ADDS), (visual.blocks, VISION_ADDS)):
        for name, weight in layers.named_parameters():
            if name.endswith(adding):
                weight.mul_((2 * len(layers)) ** -0.5)
    getattr(visual, "stem", visual.patch_embed).proj.weight.mul_(CONTRAST)
    half = visual.pos_embed.weight.shape[1] // 2
    # of waves, in sides of an image: from four to an eighth
    lengths = torch.logspace(2, -3, half // 2, base=2.0)
    angles = torch.linspace(0, 1, PLACES)[:, None] * (2 * math.pi / lengths)
    side = torch.cat([angles.sin(), angles.cos()], -1)
    rows, columns = side[:, None].expand(-1, PLACES, -1), side[None].expand(PLACES, -1, -1)
    visual.pos_embed.weight.copy_(torch.cat([rows, columns], -1).flatten(0, 1) * FIRMNESS)


@torch.no_grad()
def _set_coordinate_embeddings(model: Any, first: int, seed: int, spread: float) -> None:
    """Initialise the embeddings of the coordinate tokens, and their output rows if these are not
    tied, around the mean of the other tokens."""
    tables = {
        id(layer.weight): layer.weight
        for layer in (model.get_input_embeddings(), model.get_output_embeddings())
    }
    for weight in tables.values():
        weight[first : first + BINS] = (
            weight[:first].mean(0) + make_waves(weight.shape[1], seed).to(weight) * spread
        )


def _make_token(token: str) -> AddedToken:
    """An added token that decoding does not skip."""
    return AddedToken(token, special=False, normalized=False)


def _make_tokenizer(known: Iterable[str]) -> Any:
    """A byte-level tokenizer to which each of ``known`` is one token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    words = sorted(known)
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + len(SPECIAL) + sum(map(len, words)),
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(alphabet),
        min_frequency=2,
        show_progress=False,
    )
    tokenizer.train_from_iterator(words * 2, trainer)
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=list(SPECIAL[:2]),
    )
    made.add_tokens(
        [AddedToken(text, special=True, normalized=False) for text in SEEING], special_tokens=True
    )
    made.chat_template = TEMPLATE
    return made


def _make_config(small: SmallConfig, tokenizer: Any) -> dict[str, Any]:
    """The transformers config of a small model, as keyword arguments."""
    # frequencies, dealt out to time, height and width
    half = small.hidden_size // small.num_attention_heads // 2
    share = half // 3
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_interleaved": True}
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": small.hidden_size,
        "intermediate_size": small.intermediate_size,
        "num_hidden_layers": small.num_hidden_layers,
        "num_attention_heads": small.num_attention_heads,
        "num_key_value_heads": small.num_key_value_heads,
        "head_dim": 2 * half,
        "max_position_embeddings": LONGEST,
        "rope_parameters": rope | {"mrope_section": [half - 2 * share, share, share]},
        "tie_word_embeddings": True,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": None,
    }
    vision = {
        "depth": small.vision_depth,
        "hidden_size": small.vision_hidden_size,
        "intermediate_size": 4 * small.vision_hidden_size,
        "num_heads": small.vision_num_heads,
        "patch_size": small.patch_size,
        "temporal_patch_size": 1,
        "spatial_merge_size": MERGED,
        "out_hidden_size": small.hidden_size,
        "num_position_embeddings": PLACES**2,
        "deepstack_visual_indexes": [small.vision_depth // 2] if small.vision_depth > 1 else [],
    }
    if small.stem != "patches":
        vision["stem"] = small.stem
    names = dict(zip(("vision_start", "vision_end", "image", "video"), SEEING, strict=True))
    tokens: dict[str, Any] = {
        f"{name}_token_id": int(tokenizer.convert_tokens_to_ids(token))
        for name, token in names.items()
    }
    return {"text_config": text, "vision_config": vision, "tie_word_embeddings": True, **tokens}
