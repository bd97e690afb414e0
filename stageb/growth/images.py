"""Files of images with labels: NumPy archives, and the idx files of MNIST's kind. Neither may hold anything that runs."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from stageb.errors import BadInputError, BadLine

CLASSES = 10
MOST_BYTES = 1 << 28  # of a file's images, unpacked: five times Fashion-MNIST's
Labelled = tuple[Tensor, Tensor]
"""Images, float32 (N, rows, columns, channels) from -1 to 1, and labels, int64 (N,)."""


def archive_in(folder: Path) -> Path | None:
    """The one .npz file that lies there, if one does."""
    found = sorted(folder.glob("*.npz")) if folder.is_dir() else []
    return found[0] if len(found) == 1 else None


def read_archive(path: Path, shape: tuple[int, ...]) -> tuple[Labelled, Labelled]:
    """Images of ``shape`` to learn from and to be tested by: arrays x_train, y_train, x_test and y_test, images of bytes.

    Raises ``BadInputError``.
    """
    try:
        with np.load(path, allow_pickle=False) as held:
            if sum(each.file_size for each in held.zip.infolist()) > 4 * MOST_BYTES:
                raise ValueError(f"its arrays have more than {4 * MOST_BYTES >> 20} MiB")
            parts = [_labelled(held[f"x_{name}"], held[f"y_{name}"], shape) for name in ("train", "test")]
    except Exception as error:  # of zip files, headers, or arrays
        raise _refusal(path, error, "name a folder with one .npz of x_train, y_train, x_test and y_test") from error
    return parts[0], parts[1]


def read_idx(folder: Path, shape: tuple[int, ...]) -> tuple[Labelled, Labelled]:
    """The same from train-images-idx3-ubyte.gz and its three fellows. Raises ``BadInputError``."""
    remedy = "lay its four .gz files there, or one .npz, and name the folder by task.folder"
    parts = []
    for name in ("train", "t10k"):
        path = folder / f"{name}-images-idx3-ubyte.gz"
        try:
            images = _idx(path, 3)
            path = folder / f"{name}-labels-idx1-ubyte.gz"
            parts.append(_labelled(images, _idx(path, 1), shape))
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise _refusal(path, error, remedy) from error
    return parts[0], parts[1]


def _idx(path: Path, axes: int) -> np.ndarray:
    """An array of bytes: LeCun's format, two zeros, 8 for bytes, the number of axes, and their sizes."""
    with gzip.open(path) as file:
        if file.read(4) != bytes((0, 0, 8, axes)):
            raise ValueError(f"not an idx file of {axes} axes of bytes")
        sizes = [int.from_bytes(file.read(4), "big") for _ in range(axes)]
        count = math.prod(sizes)
        if count > MOST_BYTES:
            raise ValueError(f"{' x '.join(map(str, sizes))} bytes are more than {MOST_BYTES >> 20} MiB")
        data = file.read(count + 1)  # not all that a few bytes may inflate to
        if len(data) != count:
            raise ValueError(f"{'more' if len(data) > count else 'fewer'} bytes than {' x '.join(map(str, sizes))}")
        return np.frombuffer(data, np.uint8).reshape(sizes)


def _labelled(images: np.ndarray, labels: np.ndarray, shape: tuple[int, ...]) -> Labelled:
    """Raises ``ValueError`` for what is no image of ``shape``, or no label of ten."""
    fits = images.dtype == np.uint8 and len(images) > 0 and images.size == len(images) * int(np.prod(shape))
    if not fits or labels.shape != (len(images),) or labels.dtype.kind not in "iu" or not (labels >= 0).all():
        raise ValueError(f"{images.dtype} {images.shape} and labels {labels.dtype} {labels.shape} are no images of {shape}")
    if labels.max() >= CLASSES:
        raise ValueError(f"a label is {labels.max()}; they are to be 0 to {CLASSES - 1}")
    pixels = torch.from_numpy(images.reshape(-1, *shape).copy()).float() / 127.5 - 1
    return pixels, torch.from_numpy(labels.astype(np.int64))


def _refusal(path: Path, error: Exception, remedy: str) -> BadInputError:
    why = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
    return BadInputError("files", [BadLine(str(path), 0, why, remedy)])
