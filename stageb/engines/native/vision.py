"""Images in a decode loop that knows ids alone: an image in a prompt is a run of one id, made of
its content.

So prompts with images are ids like any other, to be sorted, shared and counted. Where a model is
called, such ids become its placeholder token, the features of its vision tower, and positions of
three coordinates (M-RoPE; Qwen2-VL, arXiv 2409.12191, section 2.1). Images are decoded just before
a model reads them, and not kept.

``TextInputs`` is the same for models that see no images.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import AutoImageProcessor

from stageb.engines.config import ModelConfig
from stageb.engines.native.memory import send
from stageb.engines.native.rows import PICTURE, has_image
from stageb.engines.protocol import Ids
from stageb.errors import ConfigError
from stageb.untrusted import pictures

THREADS = 8  # that decode images
SIZES = 4096  # sizes of images, and texts, whose measures are remembered
DRAWN = ""  # the path of the image that is tried first
_KEY = "model.model_name_or_path"

Line = list[int] | list[list[int]]  # a position for each token, or three lists of them
Places = tuple[Tensor, int]  # positions, int64 (3, tokens), and that of what follows
Grid = tuple[int, int, int]  # patches in time, from top to bottom, from left to right


class TextInputs:
    """The inputs of a model that sees no images."""

    def replace_images(self, text: Ids) -> Sequence[int]:
        """The ids that the model is given."""
        return text

    def list_positions(self, texts: Sequence[Ids], before: int) -> Line:
        """Positions of ``texts``, packed behind each other, where each stands behind ``before``
        tokens."""
        return [before + place for text in texts for place in range(len(text))]

    def find_next_position(self, text: Ids, before: int) -> int:
        """The position of what follows ``text`` where that stands behind ``before`` tokens."""
        return before + len(text)

    def make_arguments(self, texts: Sequence[Ids]) -> dict[str, Any]:
        """Return the arguments of the model's forward pass besides the ids of ``texts``, in
        order."""
        return {}


@dataclass(frozen=True, slots=True)
class ShownImage:
    """An image that some prompt shows."""

    path: str
    grid: Grid
    tokens: int  # that it takes in a prompt


class ImageInputs(TextInputs):
    """The eyes of ``model``; ``process`` is its checkpoint's image processor. Images have at most
    ``pixels`` pixels."""

    def __init__(self, model: Any, process: Any, pixels: int) -> None:
        config = model.config
        self._model = model
        self.process = process
        self._pixels = pixels
        self._token: int = config.image_token_id
        self._opening: int = config.vision_start_token_id
        self._closing: int = config.vision_end_token_id
        self._merged: int = config.vision_config.spatial_merge_size**2
        self._names: dict[str, int] = {}  # by path: a file is taken to stay as it is
        self._pictures: dict[int, ShownImage] = {}  # by name, the id in prompts
        self._grid = lru_cache(SIZES)(self._measure_grid)
        self._placed = lru_cache(SIZES // 8)(self._compute_places)

    def ids(self, paths: Sequence[str]) -> Ids:
        """Return the ids that stand for images in a prompt. Raises ``PictureError``."""
        found: list[int] = []
        for path in paths:
            if path not in self._names:
                self._names[path] = self._met(path)
            name = self._names[path]
            found += [self._opening, *[name] * self._pictures[name].tokens, self._closing]
        return tuple(found)

    def replace_images(self, text: Ids) -> Sequence[int]:
        """See ``TextInputs``."""
        return (
            [self._token if token >= PICTURE else token for token in text]
            if has_image(text)
            else text
        )

    def list_positions(self, texts: Sequence[Ids], before: int) -> Line:
        """See ``TextInputs``: three lists where an image is among them."""
        if not any(map(has_image, texts)):
            return super().list_positions(texts, before)
        found: list[list[int]] = torch.cat(
            [before + self.places(text)[0] for text in texts], 1
        ).tolist()
        return found

    def find_next_position(self, text: Ids, before: int) -> int:
        """See ``TextInputs``: an image takes fewer positions than tokens."""
        return before + (self.places(text)[1] if has_image(text) else len(text))

    def places(self, text: Ids) -> Places:
        """Positions of a text that begins at 0, and of what follows it: what its images show does
        not matter."""
        return self._placed(
            tuple(self.replace_images(text)),
            tuple(self._pictures[name].grid for name in self.names_in(text)),
        )

    def make_arguments(self, texts: Sequence[Ids]) -> dict[str, Any]:
        """See ``TextInputs``: the features of the images in ``texts``. Raises ``PictureError``."""
        names = [name for text in texts for name in self.names_in(text)]
        if not names:
            return {}
        found = self._model.get_image_features(**self.inputs(names), return_dict=True)
        return {"mm_encoder_outputs": {"image": found}}

    def names_in(self, text: Ids) -> list[int]:
        """The images in ``text``, in order."""
        names: list[int] = []
        place = 0 if has_image(text) else len(text)
        while place < len(text):
            name = text[place]
            place += self._pictures[name].tokens if name >= PICTURE else 1
            names += [name] if name >= PICTURE else []
        return names

    def inputs(self, names: Sequence[int]) -> dict[str, Any]:
        """Patches of images and where they lie, as the vision tower takes them."""
        patches = self._on_device(torch.cat(self._cut(names)))
        return {"pixel_values": self._numbers(patches)} | self._grid_inputs(
            [self._pictures[name].grid for name in names]
        )

    def trial(self, shared: Ids) -> tuple[Ids, Tensor]:
        """A text with an image that no file holds, and what the model itself makes of it behind
        ``shared``: the logits (1, vocabulary) behind its last token."""
        image = pictures.draw_chequered()
        name = self._registered(DRAWN, image.tobytes(), image.size)
        text = (7, 8, self._opening, *[name] * self._pictures[name].tokens, self._closing, 9, 5)
        made = self.process(images=[image], return_tensors="pt")
        ids = self._on_device(torch.tensor([[*shared, *self.replace_images(text)]]))
        given = {name: self._on_device(made[name]) for name in ("pixel_values", "image_grid_thw")}
        kinds = {
            "mm_token_type_ids": (ids == self._token).int(),
            "attention_mask": torch.ones_like(ids),
        }
        logits: Tensor = self._model(input_ids=ids, **kinds, **given, use_cache=False).logits
        return text, logits[:, -1]

    def check(self, found: Tensor, wanted: Tensor, alike: float) -> None:
        """Raise ``ConfigError`` where logits lie further apart than ``alike``, as a share of their
        norm."""
        difference = float((found - wanted).float().norm() / wanted.float().norm())
        if not difference <= alike:
            remedy = (
                f"its images are not read as {self._model.config.model_type} reads them: "
                f"logits differ by {difference:.2g}"
            )
            raise ConfigError(
                _KEY, self._model.name_or_path, f"{remedy}; serve it and take model.engine openai"
            )

    def _met(self, path: str) -> int:
        data = pictures.read(path)
        return self._registered(path, data, pictures.size_shown(path, data, self._pixels))

    def _registered(self, path: str, data: bytes, size: tuple[int, int]) -> int:
        name, grid = _name(data), self._grid(size)
        time, height, width = grid
        self._pictures[name] = ShownImage(path, grid, time * height * width // self._merged)
        return name

    def _measure_grid(self, size: tuple[int, int]) -> tuple[int, int, int]:
        """The grid that the processor makes of an image of ``size`` (width, height)."""
        blank = pictures.pillow().new("RGB", size)
        time, height, width = self.process(images=[blank], return_tensors="pt")["image_grid_thw"][
            0
        ].tolist()
        return time, height, width

    def _compute_places(self, ids: Ids, grids: tuple[Grid, ...]) -> Places:
        """By the model's own rule."""
        kinds = torch.tensor([[int(token == self._token) for token in ids]])
        given = {
            "input_ids": torch.tensor([ids]),
            "mm_token_type_ids": kinds,
            "image_grid_thw": torch.tensor(grids),
        }
        positions, gap = self._model.model.get_rope_index(**given)
        return positions[:, 0], len(ids) + int(gap)

    def _cut(self, names: Sequence[int]) -> list[Tensor]:
        """The patches of each image."""
        different = list(dict.fromkeys(names))
        with ThreadPoolExecutor(
            min(THREADS, len(different)), thread_name_prefix="stageb-images"
        ) as pool:
            made = dict(zip(different, pool.map(self._patches, different), strict=True))
        return [made[name] for name in names]

    def _grid_inputs(self, grids: Sequence[Grid]) -> dict[str, Any]:
        """Where the patches of images of ``grids`` lie."""
        return {"image_grid_thw": self._on_device(torch.tensor(grids))}

    def _numbers(self, patches: Tensor) -> Tensor:
        """Return what the vision tower takes for ``patches``, those that ``_cut`` gave, on the
        device."""
        return patches

    def _patches(self, name: int) -> Tensor:
        path = self._pictures[name].path
        image = pictures.draw_chequered() if path == DRAWN else self._opened(path, name)
        patches: Tensor = self.process(images=[image], return_tensors="pt")["pixel_values"]
        return patches

    def _opened(self, path: str, name: int) -> Any:
        data = pictures.read(path)
        if _name(data) != name:
            raise pictures.PictureError(
                path, "changed since it was first read", "put it back as it was, or start anew"
            )
        return pictures.open_picture(path, data, self._pixels)

    def _on_device(self, tensor: Tensor) -> Tensor:
        device: torch.device = self._model.get_input_embeddings().weight.device
        return send(tensor, device)


def image_inputs_of(model: Any, folder: str, config: ModelConfig) -> ImageInputs:
    """The eyes of the checkpoint ``model``, which lies in ``folder``.

    Raises ``ConfigError`` where it has none that are known here, ``InputError`` where the extra
    images is missing.
    """
    pictures.pillow()
    tokens = ("image_token_id", "vision_start_token_id", "vision_end_token_id")
    known = all(getattr(model.config, name, None) is not None for name in tokens)
    if not known or not hasattr(getattr(model, "model", None), "get_rope_index"):
        remedy = (
            f"a checkpoint of type {model.config.model_type} cannot be shown images here; name "
            f"one of the Qwen2-VL, Qwen2.5-VL or Qwen3-VL kind, or serve it and take model.engine "
            "openai"
        )
        raise ConfigError(_KEY, config.model_name_or_path, remedy)
    if "mm_encoder_outputs" not in inspect.signature(model.forward).parameters:
        remedy = (
            f"transformers {transformers.__version__} cannot take images read apart; "
            f"install 5.18 or newer"
        )
        raise ConfigError(_KEY, config.model_name_or_path, remedy)
    try:
        # Pillow's way of resizing, whether torchvision is there or not: equal pixels on every
        # machine.
        options = {"backend": "pil", "trust_remote_code": config.trust_remote_code}
        process: Any = AutoImageProcessor.from_pretrained(folder, **options)
    except Exception as error:  # what strangers wrote makes transformers stumble in any way
        remedy = (
            f"its image processor cannot be loaded: {error}; see that the folder holds "
            f"preprocessor_config.json"
        )
        raise ConfigError(_KEY, config.model_name_or_path, remedy) from error
    return ImageInputs(model, process, config.image_pixels)


def _name(data: bytes) -> int:
    """The id that stands for an image of this content."""
    return PICTURE + int.from_bytes(hashlib.blake2b(data, digest_size=8).digest()) % PICTURE
