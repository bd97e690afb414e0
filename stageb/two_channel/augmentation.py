"""Views of images: mirrored, turned, scaled, in another light, so that few images teach as many.

A view is drawn from a stream and noted in the image's name, ``photo.jpg#mirrored,crop=12:0:500:366``; whoever opens images
by ``Views`` sees it so, the learner and the engine that rolls out alike, and nobody else need know. Boxes are moved with it.

Scaling keeps the aspect, as images to be judged by have theirs: what is scaled up is cropped, what is scaled down stands on
grey, so a view is as large as its image and as many tokens. A view scaled up shows few objects at once, where looking is
learnt; images to be judged by show all, so the range of scales may go from the one to the other over a run.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from torch import Tensor

from stageb.engines.vision import DRAWN, THREADS, ImageInputs
from stageb.seeds import uniform
from stageb.two_channel.config import AugmentationConfig
from stageb.two_channel.pixels import Pixels
from stageb.two_channel.types import Box, Object, Sample
from stageb.untrusted import pictures

KEPT = 2 << 30  # bytes of images that are kept
KNOWN = 1 << 15  # views whose names are: more than any step shows, few enough for a run of any length
GREY = 128  # of what lies around an image that is scaled down
COARSE = 8  # pixels that become one where the mean grey is looked for
VISIBLE = 0.4  # the share of an object's area that a crop must show; of others it shows no box
_VIEW = re.compile(r"#((?:mirrored|upended|turned|crop=[\d:]+|pad=[\d:]+|light=[-\d]+:[-\d]+)(?:,|$))+$")

Corners = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class View:
    """What is done to an image, in this order."""

    crop: Corners | None = None  # what is kept of it, scaled up to the whole view, in pixels
    pad: Corners | None = None  # where in the view the whole of it stands, scaled down, in pixels
    mirrored: bool = False  # left is right
    upended: bool = False  # top is bottom
    turned: bool = False  # rows are columns
    light: tuple[int, int] = (0, 0)  # brightness and contrast, in hundredths more


def scale_range(config: AugmentationConfig, done: float) -> tuple[float, float]:
    """Least and greatest scale of views when the share ``done`` of a run lies behind, from 0 to 1."""
    first, last = config.scale_jitter, config.scale_jitter_end or config.scale_jitter
    least, greatest = (begin ** (1 - done) * end**done for begin, end in zip(first, last, strict=True))
    return least, greatest


def make_view(sample: Sample, key: int, config: AugmentationConfig, done: float) -> Sample:
    """``sample`` in a view drawn from the stream ``key`` when the share ``done`` of a run lies behind; itself where
    ``config`` asks for none. Its scale is uniform in the logarithm."""
    size = (sample.width, sample.height)
    draw = [uniform(key, position) for position in range(10)]
    least, greatest = scale_range(config, done)
    crop, pad = _scaled(size, least ** (1 - draw[0]) * greatest ** draw[0], draw[1:3])
    view = View(
        crop=crop,
        pad=pad,
        mirrored=config.mirror and draw[4] < 0.5,
        upended=config.upend and draw[5] < 0.5,
        turned=config.turn and draw[6] < 0.5,
        light=(round((2 * draw[7] - 1) * 100 * config.light), round((2 * draw[8] - 1) * 100 * config.light)),
    )
    if view == View():
        return sample
    width, height = size[::-1] if view.turned else size
    objects = tuple(found for each in sample.objects if (found := _moved(each, view, size)))
    return replace(sample, image=f"{sample.image}#{_noted(view)}", width=width, height=height, objects=objects)


def parted(image: str) -> tuple[str, View]:
    """The path in an image's name, and the view."""
    if not _VIEW.search(image):
        return image, View()
    path, _, noted = image.rpartition("#")
    view = View()
    for part in noted.split(","):
        name, _, numbers = part.partition("=")
        given: Any = tuple(map(int, numbers.split(":"))) if numbers else True
        view = replace(view, **{name: given})
    return path, view


class Views(ImageInputs):
    """Image inputs that know views. They keep images decoded, and cut into patches: files are taken not to change."""

    def __init__(self, model: Any, process: Any, pixels: int) -> None:
        super().__init__(model, process, pixels)
        self._plain = Pixels.of(process)
        self._pool = ThreadPoolExecutor(THREADS, "stageb-images")
        self._decoded = Recent(lambda held: 3 * held[0].width * held[0].height)  # images, and the sizes of their files
        self._cuts = Recent(lambda cut: cut.bytes)
        self._viewed: deque[str] = deque()  # names of views, the oldest first

    def share(self, other: Views) -> None:
        """See by what ``other``, whose processor is the same, has decoded and cut."""
        self._pool, self._decoded, self._cuts = other._pool, other._decoded, other._cuts

    def prepare(self, names: Iterable[int]) -> None:
        """Have images cut that will be asked for soon; what is wrong with one is told when it is."""
        for name in names:
            self._cutting(name)

    def _cut(self, names: Sequence[int]) -> list[Tensor]:
        """See ``ImageInputs``."""
        return [each.done.result() for each in [self._cutting(name) for name in names]]

    def _numbers(self, patches: Tensor) -> Tensor:
        """See ``ImageInputs``."""
        return self._plain.numbers(patches) if self._plain else patches

    def _cutting(self, name: int) -> Crop:
        """The image of that name, on its way to being cut."""
        picture = self._pictures[name]
        size = 3 * picture.grid[1] * picture.grid[2] * self._model.config.vision_config.patch_size**2
        size *= 1 if self._plain else 8
        found: Crop = self._cuts.get(picture.path, lambda: Crop(self._pool.submit(self._patches, name), size))
        return found

    def _met(self, path: str) -> int:
        place, view = parted(path)
        data = pictures.read(place)
        size = pictures.size_shown(place, data, self._pixels)
        if view != View():
            self._remember(path)
        noted = _noted(view).encode()
        return self._registered(path, data + noted, size[::-1] if view.turned else size)

    def _remember(self, path: str) -> None:
        """A view comes once: let go of the oldest, where there are many."""
        self._viewed.append(path)
        if len(self._viewed) > KNOWN:
            oldest = self._viewed.popleft()
            name = self._names.pop(oldest, None)
            if name is not None and self._pictures[name].path == oldest:  # or else met again under another path
                del self._pictures[name]

    def _patches(self, name: int) -> Tensor:
        picture = self._pictures[name]
        path, view = parted(picture.path)
        if path == DRAWN:
            image = pictures.chequered()
        elif view == View():
            image = self._open(path)
        else:
            whole, size = self._decoded.get(path, lambda: (self._open(path), pictures.look_upright(path)))
            image = shown(whole, view, size)
        if self._plain:
            return self._plain.cut(image, picture.grid[1:])
        patches: Tensor = self.process(images=[image], return_tensors="pt")["pixel_values"]
        return patches

    def _open(self, path: str) -> Any:
        return pictures.opened(path, pictures.read(path), self._pixels)


@dataclass(frozen=True, slots=True)
class Crop:
    """An image that is cut into patches, or about to be."""

    done: Future[Tensor]
    bytes: int  # that its patches take


class Recent:
    """What was made of late, by name, up to ``KEPT`` bytes in all; several threads may ask."""

    def __init__(self, size: Callable[[Any], int]) -> None:
        """``size`` gives the bytes of a thing."""
        self._size = size
        self._held: OrderedDict[str, Any] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def get(self, name: str, make: Callable[[], Any]) -> Any:
        """The thing of that name, made where it is not held."""
        with self._lock:
            if name in self._held:
                self._held.move_to_end(name)
                return self._held[name]
        made = make()
        with self._lock:
            if name not in self._held:
                self._held[name] = made
                self._bytes += self._size(made)
            while self._bytes > KEPT and len(self._held) > 1:
                self._bytes -= self._size(self._held.popitem(last=False)[1])
        return made


def shown(image: Any, view: View, noted: tuple[int, int]) -> Any:
    """``image``, a ``PIL.Image``, in a view; it may be smaller than the size in whose pixels views are ``noted``."""
    pil, size = pictures.pillow(), image.size
    corners = [corner * size[place % 2] / noted[place % 2] for place, corner in enumerate(view.crop or view.pad or ())]
    if view.crop:
        image = image.resize(size, pil.Resampling.BILINEAR, box=tuple(map(min, corners, size * 2)))
    if view.pad:
        left, top, right, bottom = map(round, corners)
        whole = image.resize((max(1, right - left), max(1, bottom - top)), pil.Resampling.BILINEAR)
        image = pil.new("RGB", size, (GREY,) * 3)
        image.paste(whole, (left, top))
    for turn, wanted in (
        (pil.Transpose.FLIP_LEFT_RIGHT, view.mirrored),
        (pil.Transpose.FLIP_TOP_BOTTOM, view.upended),
        (pil.Transpose.TRANSPOSE, view.turned),
    ):
        image = image.transpose(turn) if wanted else image
    return _lit(image, *view.light) if any(view.light) else image


def _lit(image: Any, brighter: int, harder: int) -> Any:
    """Brightness, then contrast about the mean grey, in hundredths more: one look-up for each byte."""
    brightness, contrast = 1 + brighter / 100, 1 + harder / 100
    grey = image.reduce(COARSE).convert("L").resize((1, 1), pictures.pillow().Resampling.BOX).getpixel((0, 0))
    values = [brightness * (grey + contrast * (byte - grey)) for byte in range(256)]
    return image.point([min(255, max(0, round(value))) for value in values] * 3)


def _scaled(size: tuple[int, int], scale: float, draw: list[float]) -> tuple[Corners | None, Corners | None]:
    """The crop or the padding that scales an image of ``size`` by ``scale``, in a place by ``draw``; neither where that
    leaves it as it is."""
    width, height = (max(1, round(side * min(scale, 1 / scale))) for side in size)
    if (width, height) == size:
        return None, None
    left, top = (round((side - less) * part) for side, less, part in zip(size, (width, height), draw, strict=True))
    corners = left, top, left + width, top + height
    return (corners, None) if scale > 1 else (None, corners)


def _moved(given: Object, view: View, size: tuple[int, int]) -> Object | None:
    """An object where the view shows it, if enough of it."""
    x1, y1, x2, y2 = given.box
    width, height = size
    if view.crop:
        left, top, right, bottom = view.crop
        xs = [min(max(x, left), right) for x in (x1, x2)]
        ys = [min(max(y, top), bottom) for y in (y1, y2)]
        if (xs[1] - xs[0]) * (ys[1] - ys[0]) < VISIBLE * (x2 - x1) * (y2 - y1):
            return None
        x1, x2 = ((x - left) * width / (right - left) for x in xs)
        y1, y2 = ((y - top) * height / (bottom - top) for y in ys)
    if view.pad:
        left, top, right, bottom = view.pad
        x1, x2 = (left + x * (right - left) / width for x in (x1, x2))
        y1, y2 = (top + y * (bottom - top) / height for y in (y1, y2))
    if view.mirrored:
        x1, x2 = width - x2, width - x1
    if view.upended:
        y1, y2 = height - y2, height - y1
    box: Box = (y1, x1, y2, x2) if view.turned else (x1, y1, x2, y2)
    return Object(given.desc, box)


def _noted(view: View) -> str:
    parts = [name for name in ("mirrored", "upended", "turned") if getattr(view, name)]
    parts += [f"crop={':'.join(map(str, view.crop))}"] if view.crop else []
    parts += [f"pad={':'.join(map(str, view.pad))}"] if view.pad else []
    parts += [f"light={view.light[0]}:{view.light[1]}"] if any(view.light) else []
    return ",".join(parts)
