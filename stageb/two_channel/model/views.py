"""Image inputs: patches of bytes for a vision tower, and views, transformed on the model's device.

A view is one bilinear sampling of its image, directly to the size that the vision tower cuts into
patches, and one multiplication and addition for light; images of one size in a pack are processed
together. The result for an image does not depend on the others: operations are element-wise, and
contrast varies about the image's own mean grey. Images without a view are scaled by Pillow, as in
the checkpoint's processor.
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from stageb.engines.native.api import DRAWN, THREADS, Grid, ImageInputs, send
from stageb.two_channel.boxes.augmentation import ImageView, Paste, note_view, parse_name
from stageb.two_channel.model.tower import Geometry
from stageb.untrusted import pictures

# Images cut into patches of bytes for a vision tower: an eighth of the memory and of the transfer
# to the device that the floats of a checkpoint's image processor take.
#
# Processors of the Qwen-VL kind scale an image to whole patches and map every byte to a float by a
# function of its channel. The table of that function is read from the processor itself, once for
# each byte, so the result equals the processor's bit for bit. A processor that does anything else
# is detected on a test picture, and then used for every image.

BYTES = 256
ODD = (101, 67)  # a size that is not a whole number of patches


class Pixels:
    """Cuts images for ``process``, a checkpoint's image processor."""

    def __init__(self, process: Any) -> None:
        self._process = process
        self._side, self._merged = int(process.patch_size), int(process.merge_size)
        self._table = self._asked()

    @classmethod
    def of(cls, process: Any) -> Pixels | None:
        """A ``Pixels`` that gives the same result as ``process``; None if there is none."""
        if not all(
            hasattr(process, name) for name in ("patch_size", "merge_size", "temporal_patch_size")
        ):
            return None
        found, drawn = cls(process), pictures.draw_chequered().resize(ODD)
        made = process(images=[drawn], return_tensors="pt")
        _, height, width = made["image_grid_thw"][0].tolist()
        cut = found.cut(drawn, (height, width))
        same = len(cut) == len(made["pixel_values"]) and torch.equal(
            found.numbers(cut), made["pixel_values"]
        )
        return found if same else None

    def cut(self, image: Any, grid: tuple[int, int]) -> Tensor:
        """``image``, a ``PIL.Image`` in RGB, as bytes (patches, 3, side * side); ``grid`` is the
        number of patches from top to bottom and from left to right."""
        size = grid[1] * self._side, grid[0] * self._side
        if image.size != size:
            image = image.resize(size, pictures.pillow().Resampling.BICUBIC)
        return self.patches(to_bytes(image)[None], grid)[0]

    def patches(self, images: Tensor, grid: tuple[int, int]) -> Tensor:
        """``images``, bytes (n, 3, height, width) of exactly the size of ``grid``, as bytes (n,
        patches, 3, side * side)."""
        side, merged, (rows, columns) = self._side, self._merged, grid
        blocks = images.reshape(
            len(images), 3, rows // merged, merged, side, columns // merged, merged, side
        )
        return blocks.permute(0, 2, 5, 3, 6, 1, 4, 7).reshape(
            len(images), rows * columns, 3, side * side
        )

    def numbers(self, cut: Tensor) -> Tensor:
        """The processor's floats for bytes: (patches, 3, side * side) to float32 (patches, 3 *
        times * side * side)."""
        patches, channels, area = cut.shape
        table = self._table = self._table.to(cut.device)
        lines = (
            table[channel].index_select(0, cut[:, channel].int().flatten())
            for channel in range(channels)
        )
        found = torch.stack([line.view(patches, area) for line in lines], 1)
        times = int(self._process.temporal_patch_size)  # an image is repeated that many times
        return found[:, :, None].expand(-1, -1, times, -1).reshape(patches, channels * times * area)

    def _asked(self) -> Tensor:
        """The processor's float for each channel and byte: (3, 256)."""
        side, times = self._side * self._merged, int(self._process.temporal_patch_size)
        plain = [pictures.pillow().new("RGB", (side, side), (value,) * 3) for value in range(BYTES)]
        made = self._process(images=plain, return_tensors="pt")
        patches: Tensor = made["pixel_values"].view(BYTES, -1, 3, times * self._side**2)
        return patches[:, 0, :, 0].T.contiguous()


def to_bytes(image: Any) -> Tensor:
    """``image``, a ``PIL.Image`` in RGB, as uint8 (3, height, width)."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


KEPT = 2 << 30  # bytes of images that a cache holds
# views whose names are remembered: more than any step shows, and bounded for runs of any length
KNOWN = 1 << 15
COARSE = 8  # factor by which an image is reduced to compute its mean grey
GREY = 128  # of the padding around an image that is scaled down
TOGETHER = 16  # views that are computed at a time
MARGIN = 0.1  # width of the border over which a pasted object fades out, as a fraction of its sides

Size = tuple[int, int]  # width, height


class Views(ImageInputs):
    """Image inputs with views. Decoded images and patches are cached: files are assumed not to
    change.

    ``sources`` are the paths of the images from which pasted objects come, by index.
    """

    def __init__(self, model: Any, process: Any, pixels: int) -> None:
        super().__init__(model, process, pixels)
        self.sources: Sequence[str] = ()
        self._plain = Pixels.of(process)
        self._pool = ThreadPoolExecutor(THREADS, "stageb-images")
        self._frames = SizedCache(lambda frame: frame.bytes)
        self._cuts = SizedCache(lambda cut: cut.bytes)
        self._files: dict[str, File] = {}  # by path
        self._viewed: deque[str] = deque()  # names of views, the oldest first
        self._geometry = (
            Geometry(model.model.visual) if Geometry.known(model.model.visual) else None
        )

    def share(self, other: Views) -> None:
        """Share the caches of ``other``, whose processor and device must be the same."""
        self._pool, self._frames, self._cuts = other._pool, other._frames, other._cuts
        self.sources = other.sources

    def prepare(self, names: Iterable[int]) -> None:
        """Start to decode or cut, in threads, images that will be needed soon; errors are raised
        when they are used."""
        for name in names:
            path, view = parse_name(self._pictures[name].path)
            if self._plain and view != ImageView():
                for place in (path, *(self.sources[each.source] for each in view.pasted)):
                    self._decoding(place)
            else:
                self._cutting(name)

    def _grid_inputs(self, grids: Sequence[Grid]) -> dict[str, Any]:
        """See ``ImageInputs``."""
        return self._geometry.inputs(grids) if self._geometry else super()._grid_inputs(grids)

    def _cut(self, names: Sequence[int]) -> list[Tensor]:
        """See ``ImageInputs``."""
        found: dict[int, Tensor] = {}
        # names of views, by the sizes that they come from and go to
        alike: dict[tuple[Size, Grid], list[int]] = {}
        waiting: dict[int, Job] = {}
        for name in dict.fromkeys(names):
            picture = self._pictures[name]
            path, view = parse_name(picture.path)
            if self._plain and view != ImageView():
                alike.setdefault((self._look(path).size, picture.grid), []).append(name)
            else:
                waiting[name] = self._cutting(name)
        for group in alike.values():
            for begin in range(0, len(group), TOGETHER):
                part = group[begin : begin + TOGETHER]
                found.update(zip(part, self._viewed_patches(part), strict=True))
        found.update({name: self._on_device(each.done.result()) for name, each in waiting.items()})
        return [found[name] for name in names]

    def _numbers(self, patches: Tensor) -> Tensor:
        """See ``ImageInputs``."""
        return self._plain.numbers(patches) if self._plain else patches

    def _viewed_patches(self, names: Sequence[int]) -> Tensor:
        """The patches of views of one size, of images of one size."""
        assert self._plain
        parts = [parse_name(self._pictures[name].path) for name in names]
        frames = [self._with_pasted(self._shown_frame(path), path, view) for path, view in parts]
        _, rows, columns = self._pictures[names[0]].grid
        side = self._model.config.vision_config.patch_size
        noted = [self._look(path).noted for path, _ in parts]
        seen = show_views(frames, [view for _, view in parts], noted, (columns * side, rows * side))
        return self._plain.patches(seen, (rows, columns))

    def _shown_frame(self, path: str) -> DecodedImage:
        """The decoded image in a file, on the model's device."""
        found: DecodedImage = self._decoding(path).done.result()
        found.pixels = self._on_device(found.pixels)
        return found

    def _with_pasted(self, frame: DecodedImage, path: str, view: ImageView) -> DecodedImage:
        """``frame``, of the image in ``path``, with the objects that ``view`` pastes into it."""
        if not view.pasted:
            return frame
        pixels = frame.pixels.clone()
        sources = [self.sources[each.source] for each in view.pasted]
        shown = [(self._shown_frame(source).pixels, self._look(source).noted) for source in sources]
        pasted = [(*image, each) for image, each in zip(shown, view.pasted, strict=True)]
        paste_objects(pixels, self._look(path).noted, pasted)
        return DecodedImage(pixels, frame.grey)

    def _decoding(self, path: str) -> Job:
        """The job that decodes the image in a file, started if necessary."""
        width, height = self._look(path).size
        found: Job = self._frames.get(
            path,
            lambda: Job(
                self._pool.submit(lambda: DecodedImage.of(self._open(path))), 3 * width * height
            ),
        )
        return found

    def _cutting(self, name: int) -> Job:
        """The job that cuts the image ``name`` into patches, started if necessary."""
        picture = self._pictures[name]
        size = (
            3 * picture.grid[1] * picture.grid[2] * self._model.config.vision_config.patch_size**2
        )
        size *= 1 if self._plain else 8
        found: Job = self._cuts.get(
            picture.path, lambda: Job(self._pool.submit(self._patches, name), size)
        )
        return found

    def _met(self, path: str) -> int:
        place, view = parse_name(path)
        if view == ImageView():
            return super()._met(path)
        file = self._look(place)
        self._remember(path)
        return self._registered(
            path,
            file.digest + note_view(view).encode(),
            file.size[::-1] if view.turned else file.size,
        )

    def _look(self, path: str) -> File:
        """The facts about a file that need no decoding; cached."""
        if path not in self._files:
            data = pictures.read(path)
            size, digest = (
                pictures.size_shown(path, data, self._pixels),
                hashlib.blake2b(data, digest_size=16).digest(),
            )
            self._files[path] = File(digest, size, pictures.look_upright(path))
        return self._files[path]

    def _remember(self, path: str) -> None:
        """Remember the name of a view, and forget the oldest if there are too many: a view is used
        only once."""
        self._viewed.append(path)
        if len(self._viewed) > KNOWN:
            oldest = self._viewed.popleft()
            name = self._names.pop(oldest, None)
            # or else met again under another path
            if name is not None and self._pictures[name].path == oldest:
                del self._pictures[name]

    def _patches(self, name: int) -> Tensor:
        picture = self._pictures[name]
        path, view = parse_name(picture.path)
        image = pictures.draw_chequered() if path == DRAWN else self._open(path)
        if self._plain:
            return self._plain.cut(image, picture.grid[1:])
        if view != ImageView():
            size = image.size[::-1] if view.turned else image.size
            frame = self._with_pasted(DecodedImage.of(image), path, view)
            (seen,) = show_views([frame], [view], [self._look(path).noted], size)
            image = pictures.pillow().fromarray(seen.permute(1, 2, 0).numpy())
        patches: Tensor = self.process(images=[image], return_tensors="pt")["pixel_values"]
        return patches

    def _open(self, path: str) -> Any:
        return pictures.open_picture(path, pictures.read(path), self._pixels)


@dataclass(frozen=True, slots=True)
class File:
    """Facts about an image file."""

    digest: bytes  # of its content
    size: Size  # of the image as it is opened, scaled down if necessary
    noted: Size  # of the image in the file, in whose pixels views are noted


@dataclass(slots=True)
class DecodedImage:
    """A decoded image."""

    # uint8 (3, height, width), on the CPU or, once it was asked for there, on the model's device
    pixels: Tensor
    grey: int  # its mean

    @classmethod
    def of(cls, image: Any) -> DecodedImage:
        """``image`` is a ``PIL.Image`` in RGB."""
        grey = (
            image.reduce(COARSE)
            .convert("L")
            .resize((1, 1), pictures.pillow().Resampling.BOX)
            .getpixel((0, 0))
        )
        return cls(to_bytes(image).contiguous(), grey)


@dataclass(frozen=True, slots=True)
class Job:
    """An image that a thread decodes or cuts."""

    done: Future[Any]  # a frame, or patches
    bytes: int  # that these take


def show_views(
    frames: Sequence[DecodedImage], views: Sequence[ImageView], noted: Sequence[Size], size: Size
) -> Tensor:
    """Apply its view to each of ``frames``, which have one size: uint8 (views, 3, height, width) of
    ``size``, on the frames' device. Frames may be smaller than the sizes in whose pixels views are
    ``noted``."""
    pixels = torch.stack([frame.pixels for frame in frames])
    device, (width, height) = pixels.device, size
    places = send(
        torch.tensor(
            [_compute_affine(view, each) for view, each in zip(views, noted, strict=True)]
        ),
        device,
    )
    lights = [_compute_light(view, frame.grey) for view, frame in zip(views, frames, strict=True)]
    gain, offset = send(torch.tensor(lights), device).T[:, :, None, None, None]
    across = (torch.arange(width, device=device) + 0.5) / width
    down = (torch.arange(height, device=device)[:, None] + 0.5) / height
    begin, by_across, by_down = places.permute(1, 2, 0)[..., None, None]  # each (2, views, 1, 1)
    x, y = begin + by_across * across + by_down * down  # in shares of the image, from edge to edge
    seen = grid_sample(
        pixels.float(),
        torch.stack([x, y], -1) * 2 - 1,
        mode="bilinear",
        padding_mode="border",
        align_corners=False,
    )
    inside = (x >= 0) & (x <= 1) & (y >= 0) & (y <= 1)
    seen = torch.where(inside[:, None], seen, GREY)
    lit: Tensor = seen * gain + offset
    return lit.round().clamp(0, 255).to(torch.uint8)


def paste_objects(pixels: Tensor, size: Size, pasted: Sequence[tuple[Tensor, Size, Paste]]) -> None:
    """Paste objects into ``pixels``, uint8 (3, height, width), in place and in order: each from a
    source image (same layout, any size). A paste is noted in pixels of a target of ``size``, and of
    a source of the size given with it. The object's box is opaque, and the border around it fades
    out, so that there is no visible seam.

    Positions are computed on the CPU for all objects at once: on a GPU each step would be a kernel
    launch.
    """
    placed = [
        _place_pasted(pixels.shape[:0:-1], size, source_size, paste)
        for _, source_size, paste in pasted
    ]
    lines = [line for _, along in placed for line in along]
    sent_lines = iter(
        torch.split(
            send(torch.from_numpy(np.concatenate(lines)), pixels.device), list(map(len, lines))
        )
    )
    for (source, _, _), (spans, _) in zip(pasted, placed, strict=True):
        across, x, down, y = islice(sent_lines, 4)
        grid = torch.stack(torch.meshgrid(x, y, indexing="xy"), -1)
        seen = grid_sample(
            source[None].float(),
            grid[None],
            mode="bilinear",
            padding_mode="border",
            align_corners=False,
        )[0]
        region = pixels[:, spans[1], spans[0]]
        region.copy_(torch.lerp(region.float(), seen, down[:, None] * across).round())


def _place_pasted(
    lengths: Sequence[int], size: Size, source_size: Size, paste: Paste
) -> tuple[list[slice], list[Any]]:
    """Across and down an image that is of ``lengths``: the pixels that an object comes to, and two
    lines of numbers, one for each: how much of it is the object's, and where in the object's image
    to look, from -1 to 1."""
    spans, lines = list[slice](), list[Any]()
    ranges, begins = ((paste.x1, paste.x2), (paste.y1, paste.y2)), (paste.left, paste.top)
    for length, whole, from_whole, (low, high), begin in zip(
        lengths, size, source_size, ranges, begins, strict=True
    ):
        margin, end = MARGIN * (high - low), begin + high - low
        first = max(0, math.floor((begin - margin) * length / whole))
        last = min(length, math.ceil((end + margin) * length / whole))
        at = (np.arange(first, last) + 0.5) * whole / length
        weights = (np.minimum(at - begin, end - at) / margin + 1).clip(0, 1)
        spans.append(slice(first, last))
        lines += [
            weights.astype(np.float32),
            ((at - begin + low) / from_whole * 2 - 1).astype(np.float32),
        ]
    return spans, lines


def _compute_affine(view: ImageView, noted: Size) -> list[list[float]]:
    """The affine map from a view to its image, in fractions of the image, as (x, y) pairs: the
    view's upper left corner, and the vectors from there to its upper right and lower left
    corners."""

    def place(x: float, y: float) -> list[float]:
        x, y = (y, x) if view.turned else (x, y)
        found = [1 - x if view.mirrored else x, 1 - y if view.upended else y]
        left, top, right, bottom = view.crop or view.pad or (0, 0, *noted)
        for axis, (low, high) in enumerate(((left, right), (top, bottom))):
            if view.pad:
                found[axis] = (found[axis] * noted[axis] - low) / (high - low)
            else:
                found[axis] = (low + found[axis] * (high - low)) / noted[axis]
        return found

    corner, right, lower = place(0, 0), place(1, 0), place(0, 1)
    return [
        corner,
        *(
            [one - other for one, other in zip(each, corner, strict=True)]
            for each in (right, lower)
        ),
    ]


def _compute_light(view: ImageView, grey: int) -> tuple[float, float]:
    """Factor and offset of a view's bytes, for its brightness and its contrast about ``grey``."""
    brightness, contrast = (1 + more / 100 for more in view.light)
    return brightness * contrast, brightness * (1 - contrast) * grey


class SizedCache:
    """A thread-safe LRU cache of at most ``KEPT`` bytes."""

    def __init__(self, size: Callable[[Any], int]) -> None:
        """``size`` returns the bytes that a value takes."""
        self._size = size
        self._held: OrderedDict[str, Any] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def get(self, name: str, make: Callable[[], Any]) -> Any:
        """The value under ``name``; if it is not cached, the result of ``make`` is stored and
        returned."""
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
