"""A run of the two-channel loop whose answers are made up rather than a model's, as a loop of its
own: registered once this is imported. An answer is the truth with some objects left out, moved, or
told twice, by its key and the weights' version, so that all of what becomes of answers counts; a
rank may raise instead of answering."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stageb import seeds
from stageb.cli.commands import Loop, loops
from stageb.engines.protocol import Decode
from stageb.two_channel.config import TwoChannelConfig
from stageb.two_channel.types import Detection, DetectorRollout, Sample

loops()["scribbling"] = Loop(
    "Make answers up.", "programs.scribbling:ScribblingConfig", "programs.scribbling:fit"
)
FATEFUL = 1  # the step of channel B, of those that a rank answers in, in which it raises


@dataclass(frozen=True)
class ScribblingConfig(TwoChannelConfig):
    """A run whose answers are made up."""

    loop: Literal["scribbling"] = "scribbling"  # type: ignore[assignment]
    """The loop that these keys are of."""
    raises_on: int = -1
    """The rank that raises."""


def scribbled(sample: Sample, key: int, spelling: Any) -> tuple[int, ...]:
    """An answer to ``sample``, by ``key``: now and then cut short."""
    from stageb.two_channel.boxes.text import list_true_objects, write_answer

    objects: list[Detection] = []
    for number, each in enumerate(list_true_objects(sample)):
        chance, shift = seeds.uniform(key, 2 * number), int(seeds.uniform(key, 2 * number + 1) * 60)
        x1, y1, x2, y2 = each.bins
        moved = Detection(each.desc, (x1, y1, min(999, x2 + shift), min(999, y2 + shift)))
        objects += [] if chance < 0.3 else [moved, moved] if chance > 0.9 else [moved]
    ids = write_answer(objects, spelling).ids
    return ids[: len(ids) // 2] if seeds.uniform(key, 99) < 0.2 else ids


def fit(config: ScribblingConfig, resolved_yaml: str, fresh: bool) -> int:
    """A run on answers that are made up."""
    from stageb.job import world as worlds
    from stageb.job.world import World
    from stageb.two_channel import loop
    from stageb.two_channel.boxes.data import read_inputs
    from stageb.two_channel.learning import rollout

    inputs = read_inputs(config)
    answered = 0

    def main(world: World) -> int:
        def write(
            self: rollout.Writer, samples: Sequence[Sample], keys: Sequence[int], decode: Decode
        ) -> list[DetectorRollout]:
            nonlocal answered
            answered += 1
            version = self.version
            if config.raises_on == world.rank and answered == FATEFUL + 1:
                raise ValueError("the lamp went out")
            return [
                DetectorRollout(
                    scribbled(sample, seeds.stream(key, version), self.detector.spelling),
                    True,
                    version,
                )
                for sample, key in zip(samples, keys, strict=True)
            ]

        rollout.Writer.write = write  # type: ignore[method-assign]
        rollout.Writer.chances = lambda writer, samples, answers: [  # type: ignore
            (-1.0,) * len(ids) for ids in answers
        ]
        return loop.main(world, config, inputs, resolved_yaml, fresh)

    return worlds.run(config.fabric, main)
