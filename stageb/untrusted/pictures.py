"""Picture files, opened with suspicion: the one place that knows Pillow.

A picture may come from anywhere, and what decodes it is a large piece of C. So no file is read that
is not plain, small enough and, by its header, one of six formats; none is decoded that says it has
more pixels than a camera makes (a decompression bomb: a few kilobytes that unfold to gigabytes),
and the decoders of other formats are never asked. Of a file with several frames the first one
counts.

What a model is shown is the picture alone: upright as the camera held it, on white where it is
transparent, scaled down where it is large; nothing of its metadata, such as where it was taken.
Greys of 16 bits, as industrial cameras write them, are shown with 8.
"""

from __future__ import annotations

import io
import logging
import math
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from stageb.errors import InputError, StagebError
from stageb.store import disk

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
MAX_BYTES = 64 << 20
MAX_PIXELS = 1 << 26  # 67 million; decoded, 200 MB
MAX_ASPECT = 100  # one side to the other: models refuse strips
# the EXIF tag that says how the camera was held, and what turns such a picture upright
ORIENTATION = 0x0112
UPRIGHT = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
TURNED = (5, 6, 7, 8)  # of these, width and height change places
DEPTHS = (8, 10, 12, 14, 16)  # bits of the sensors whose pictures have 16 bits a channel
INSTALL = (
    "python -m pip install 'stageb[images]', or in a checkout: pip install -c "
    "constraints.txt -e '.[images]'"
)

log = logging.getLogger(__name__)
_deep_told = threading.Lock()  # taken once, by the first picture of 16 bits that this process shows


class PictureError(StagebError):
    """A picture file cannot be used."""

    def __init__(self, path: str, what: str, remedy: str) -> None:
        super().__init__(f"{path}: {what}; {remedy}")
        self.path = path
        self.what = what
        self.remedy = remedy


def pillow() -> Any:
    """The module ``PIL.Image``. Raises ``InputError`` where it is missing."""
    try:
        from PIL import Image
    except ImportError as error:
        raise InputError(f"images need the extra images: {error}; {INSTALL}") from error
    # Of pictures that are too large for us it would warn as well; nobody could act on that.
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)
    return Image


def look(path: str) -> tuple[int, int]:
    """Width and height by the file's header: a tenth of a millisecond. Raises ``PictureError``."""
    with _reporting(path), _open_file(path) as file, pillow().open(file, formats=FORMATS) as image:
        return _check_size(path, image)


def look_upright(path: str) -> tuple[int, int]:
    """Width and height of the picture as the camera held it, as ``open_picture`` shows it, by the
    file's header.

    Raises ``PictureError``.
    """
    with _reporting(path), _open_file(path) as file, pillow().open(file, formats=FORMATS) as image:
        width, height = _check_size(path, image)
        return (height, width) if _read_orientation(image) in TURNED else (width, height)


def read(path: str) -> bytes:
    """The bytes of a picture file that ``look`` has no fault to find with. Raises
    ``PictureError``."""
    with _reporting(path), _open_file(path) as file:
        with pillow().open(file, formats=FORMATS) as image:
            _check_size(path, image)
        file.seek(0)
        return file.read(MAX_BYTES)


def examine(path: str) -> str:
    """A digest of the file's bytes, once its pixels were decoded to their end, small where the
    format can do that.

    Raises ``PictureError``.
    """
    data = read(path)
    open_picture(path, data, 1)  # all that a run will do to it
    return disk.digest(data)


def open_picture(path: str, data: bytes, pixels: int) -> Any:
    """The picture in ``data`` as a model is shown it, of at most ``pixels`` pixels: a ``PIL.Image``
    of mode RGB.

    ``path`` names it in errors. Raises ``PictureError``.
    """
    with _reporting(path), pillow().open(io.BytesIO(data), formats=FORMATS) as image:
        size = scale_size(_check_size(path, image), pixels)
        # a JPEG can be decoded at half its size, or less, but to no less than this
        image.draft(None, size)
        held = _read_orientation(image)  # asked first: it is lost on the way
        shown = (_reduce_to_bytes(image, path) if _is_deep(image) else _lay_on_white(image)).resize(
            size, pillow().Resampling.BICUBIC, reducing_gap=2.0
        )
        return shown.transpose(pillow().Transpose[UPRIGHT[held]]) if held in UPRIGHT else shown


def size_shown(path: str, data: bytes, pixels: int) -> tuple[int, int]:
    """Width and height of what ``open_picture`` would give, without decoding ``data``. Raises
    ``PictureError``."""
    with _reporting(path), pillow().open(io.BytesIO(data), formats=FORMATS) as image:
        width, height = scale_size(_check_size(path, image), pixels)
        return (height, width) if _read_orientation(image) in TURNED else (width, height)


def scale_size(size: tuple[int, int], pixels: int) -> tuple[int, int]:
    """``size``, smaller where it has more than ``pixels``."""
    width, height = size
    share = min(1.0, math.sqrt(pixels / (width * height)))
    return max(1, int(width * share)), max(1, int(height * share))


def draw_chequered() -> Any:
    """A small drawn picture."""
    image = pillow().new("RGB", (96, 64))
    image.putdata(
        [(x * 2, y * 4, 255 * ((x // 16 + y // 16) % 2)) for y in range(64) for x in range(96)]
    )
    return image


def encode_png(image: Any) -> bytes:
    """``image`` as a PNG file without metadata."""
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=1)
    return file.getvalue()


@contextmanager
def _open_file(path: str) -> Iterator[BinaryIO]:
    with disk.open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_BYTES:
            raise PictureError(
                path, f"{size >> 20} MiB, at most {MAX_BYTES >> 20}", "save it smaller"
            )
        yield file


def _check_size(path: str, image: Any) -> tuple[int, int]:
    width, height = image.size
    if image.mode in ("I", "F"):
        raise PictureError(
            path,
            "32 bits a channel",
            "save it with 8 or 16, at a brightness that shows what matters",
        )
    if width * height > MAX_PIXELS:
        raise _too_many_pixels(path, f"{width} x {height} pixels")
    if max(width, height) > MAX_ASPECT * min(width, height):
        remedy = "cut it into pictures of a more usual shape"
        raise PictureError(
            path, f"{width} x {height} pixels: one side over {MAX_ASPECT} times the other", remedy
        )
    return width, height


def _read_orientation(image: Any) -> int:
    """How the camera was held; 1 is upright, and what nonsense in EXIF is taken for, as viewers do.
    Pillow turns a TIFF."""
    if image.format == "TIFF":
        return 1
    if image.format == "PNG" and "exif" not in image.info:
        # EXIF may stand behind the pixels, and what is wrong with those is no nonsense of EXIF
        image.load()
    try:
        held = image.getexif().get(ORIENTATION)
    except Exception:  # it is parsed as deep as it leads, and Pillow promises no error of its own
        return 1
    return int(held) if held in UPRIGHT else 1


def _is_deep(image: Any) -> bool:
    """Whether a picture is of greys of 16 bits."""
    return bool(image.mode.startswith("I;16"))


def _reduce_to_bytes(image: Any, path: str) -> Any:
    """A picture of greys of 16 bits, in RGB of 8: the whole range of its sensor, which is the least
    of ``DEPTHS`` that holds its brightest point, becomes 0 to 255.

    Cameras write 10, 12 or 14 bits into 16 and do not say so; by the range of 16 such a picture
    were black. A range of its own for each picture, from its darkest point to its brightest, would
    make the same grey differ from picture to picture.
    """
    if _deep_told.acquire(blocking=False):
        what = (
            "16 bits a channel; such pictures are shown with 8, their range of 10, 12, 14 or "
            "16 bits as 0 to 255"
        )
        log.warning("%s: %s", path, what)
    whole = image.convert("I")
    brightest = whole.getextrema()[1]
    bits = next(bits for bits in DEPTHS if brightest < 1 << bits)
    scale = 255 / ((1 << bits) - 1)
    return whole.point(lambda value: value * scale + 0.5).convert("L").convert("RGB")


def _lay_on_white(image: Any) -> Any:
    if not image.has_transparency_data:
        return image.convert("RGB")
    shown = pillow().new("RGBA", image.size, "white")
    shown.alpha_composite(image.convert("RGBA"))
    return shown.convert("RGB")


def _too_many_pixels(path: str, what: str) -> PictureError:
    return PictureError(path, f"{what}, at most {MAX_PIXELS >> 20} million", "save it smaller")


@contextmanager
def _reporting(path: str) -> Iterator[None]:
    """Raise what Pillow or the disk finds wrong with a picture as ``PictureError``."""
    image = pillow()
    try:
        yield
    except StagebError:
        raise
    except FileNotFoundError:
        raise PictureError(
            path,
            "no such file",
            "put it there, or name it as it is called, relative to the file that names it",
        ) from None
    except disk.NotAFileError:
        raise PictureError(path, "not a file", "name a picture file") from None
    except image.DecompressionBombError:
        raise _too_many_pixels(path, "far too many pixels") from None
    except image.UnidentifiedImageError:
        remedy = f"save it as one of {', '.join(FORMATS)}"
        raise PictureError(
            path, "not a picture of a known format, or broken at its beginning", remedy
        ) from None
    except OSError as error:
        if error.errno is not None:
            raise PictureError(
                path, f"cannot be read: {error.strerror}", "make it readable"
            ) from error
        raise PictureError(path, f"broken: {error}", "save it anew from its source") from error
    except Exception as error:  # a decoder may stumble in any way over what strangers wrote
        raise PictureError(
            path, f"broken: {str(error) or type(error).__name__}", "save it anew from its source"
        ) from error
