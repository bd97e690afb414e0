"""The samples that a run reads before it starts: train, val and test."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from stageb.errors import ConfigError
from stageb.two_channel import data
from stageb.two_channel.config import TwoChannelConfig
from stageb.two_channel.types import Sample


@dataclass(frozen=True)
class Inputs:
    """The data of a run, the same on every rank."""

    train: tuple[Sample, ...]
    val: tuple[Sample, ...]  # empty without data.val
    test: tuple[Sample, ...]  # empty without data.test

    @property
    def descs(self) -> list[str]:
        """The names of the objects in train, sorted."""
        return sorted({each.desc for sample in self.train for each in sample.objects})

    @property
    def shared(self) -> list[str]:
        """A sentence for each two parts that have images in common."""
        parts = {"train": self.train, "val": self.val, "test": self.test}
        images = {name: {sample.image for sample in part} for name, part in parts.items()}
        counts = {(one, other): len(images[one] & images[other]) for one, other in combinations(images, 2)}
        return [
            f"{count:,} of {len(images[other]):,} images of {other} stand in {one}, too: figures on them flatter."
            for (one, other), count in counts.items()
            if count
        ]

    @property
    def digest(self) -> str:
        """A digest of all that was read, apart from the folders of the images."""
        rows = [[_to_plain(sample) for sample in part] for part in (self.train, self.val, self.test)]
        return hashlib.blake2b(json.dumps(rows).encode(), digest_size=16).hexdigest()


def _to_plain(sample: Sample) -> dict[str, Any]:
    """A sample as JSON, without the folder of its image."""
    return {name: value for name, value in asdict(sample).items() if name != "crowds" or value} | {"image": ""}


def read(config: TwoChannelConfig) -> Inputs:
    """The samples that ``config`` names. Raises ``InputError`` with every unusable line."""
    paths = (config.data.train, config.data.val, config.data.test)
    train, val, test = (data.read([path], config.data.images, config.data.polygons) if path else [] for path in paths)
    if not train:
        named = "a file with samples to train on; this one has none"
        remedy = named if config.data.train else "name the JSON Lines to train on"
        raise ConfigError("data.train", config.data.train, remedy)
    return Inputs(tuple(train), tuple(val), tuple(test))


def check(config: TwoChannelConfig) -> int:
    """``stageb validate``: read the samples as a fit does, and print what was read. Raises ``InputError``."""
    found = read(config)
    counts = f"{len(found.train)} train, {len(found.val)} val and {len(found.test)} test samples"
    print(f"The keys are valid, and so is every line of the data: {counts}.")
    for sentence in found.shared:
        print(sentence)
    print("The model, the loggers and the devices were not checked.")
    return 0


def list_keys(samples: Sequence[Sample], limit: int = 5) -> str:
    """The first keys of ``samples``, for a message."""
    more = f" and {len(samples) - limit} more" if len(samples) > limit else ""
    return ", ".join(sample.key for sample in samples[:limit]) + more
