"""What a run reads before anything starts: the samples to learn from, to look at on the way, and to be judged by."""

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
    """The same on every rank."""

    train: tuple[Sample, ...]
    val: tuple[Sample, ...]  # none where there is nothing to look at on the way
    test: tuple[Sample, ...]  # none where there is nothing to be judged by

    @property
    def descs(self) -> list[str]:
        """What objects to learn from are called, in order."""
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
        """Of all that was read; the folders that images lie in do not count."""
        rows = [[_plain(sample) for sample in part] for part in (self.train, self.val, self.test)]
        return hashlib.blake2b(json.dumps(rows).encode(), digest_size=16).hexdigest()


def _plain(sample: Sample) -> dict[str, Any]:
    """A sample but for the folder that its image lies in."""
    return {name: value for name, value in asdict(sample).items() if name != "crowds" or value} | {"image": ""}


def read(config: TwoChannelConfig) -> Inputs:
    """The samples that ``config`` names. Raises ``InputError`` with every unusable line."""
    paths = (config.data.train, config.data.val, config.data.test)
    train, val, test = (data.read([path], config.data.images, config.data.polygons) if path else [] for path in paths)
    if not train:
        named = "a file with samples to learn from; this one has none"
        remedy = named if config.data.train else "name the JSON Lines to learn from"
        raise ConfigError("data.train", config.data.train, remedy)
    return Inputs(tuple(train), tuple(val), tuple(test))


def check(config: TwoChannelConfig) -> int:
    """``stageb validate``: read the samples as a fit does before it starts, and say what was read. Raises ``InputError``."""
    found = read(config)
    counts = f"{len(found.train)} samples to learn from (train), {len(found.val)} to look at on the way (val)"
    print(f"The keys are sound, and so is every line of the data: {counts}, {len(found.test)} to be judged by (test).")
    for sentence in found.shared:
        print(sentence)
    print("The model, the loggers and the devices were not looked at.")
    return 0


def list_keys(samples: Sequence[Sample], limit: int = 5) -> str:
    """Some of their keys, for a message."""
    more = f" and {len(samples) - limit} more" if len(samples) > limit else ""
    return ", ".join(sample.key for sample in samples[:limit]) + more
