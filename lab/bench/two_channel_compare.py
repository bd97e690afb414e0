"""Which of two ways to teach a detector is better: ``bin/bench boxes --data FILE --a A1 A2 A3 --b B1 B2 B3``.

Files are predictions for the same images, as ``stageb evaluate RUN --told FILE`` writes them, one a seed; the first of
``--a`` and the first of ``--b`` are of one seed, and so on. Told are both sides' means over seeds, and the difference b - a
with its 95 % interval, by bootstrap of images and seeds together (Efron & Tibshirani 1993, section 13): both sides lose and
repeat the same images. Seeds that went on from one start resemble each other: with ``--per-start 3``, of every three files
that follow each other, starts are drawn first, and then seeds of each (section 8 there).
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lab.bench.rows import write
from stageb.config import require
from stageb.seeds import bits, stream
from stageb.two_channel import data, metrics, predictions
from stageb.two_channel.metrics import Count, Detections
from stageb.two_channel.types import Sample

FIGURES = ("f1_50", "miou_f1", "mAP50", "precision_50", "recall_50", "duplicates", "predicted_per_true")
SHARE = 0.95  # of the replicates that an interval holds


@dataclass(frozen=True)
class Seed:
    """One seed's predictions."""

    told: list[Detections]
    counts: list[Count]


@dataclass(frozen=True)
class Draws:
    """How often, and in which groups, seeds are drawn."""

    replicates: int
    per_start: int = 1  # seeds that follow each other are of one start

    def resample(self, images: int, seeds: int) -> Iterator[tuple[list[int], list[int]]]:
        """As many images, and as many seeds of as many starts, drawn with replacement."""
        for replicate in range(self.replicates):
            starts = _draw("starts", replicate, seeds // self.per_start, seeds // self.per_start)
            within = _draw("seeds", replicate, seeds, self.per_start)
            of_starts = [start * self.per_start for start in starts for _ in range(self.per_start)]
            chosen = [first + seed for first, seed in zip(of_starts, within, strict=True)]
            yield _draw("images", replicate, images, images), chosen


def _draw(what: str, replicate: int, times: int, below: int) -> list[int]:
    key = stream("bootstrap", what, replicate)
    return [bits(key, at) % below for at in range(times)]


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bin/bench boxes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="JSON Lines of the images")
    parser.add_argument("--images", help="the folder that they are relative to")
    parser.add_argument("--a", nargs="+", required=True, metavar="FILE", help="predictions of one side, one a seed")
    parser.add_argument("--b", nargs="+", required=True, metavar="FILE", help="of the other, in the same order")
    parser.add_argument("--per-start", type=int, default=1, help="files of one start, which follow each other (default 1)")
    parser.add_argument("--replicates", type=int, default=500, help="of the bootstrap (default 500)")
    parser.add_argument("--json", metavar="FILE", help="write what was found, as JSON")
    given = parser.parse_args(arguments)
    require(len(given.a) == len(given.b), "--b", given.b, f"as many files as --a, {len(given.a)}")
    fits = given.per_start >= 1 and len(given.a) % given.per_start == 0
    require(fits, "--per-start", given.per_start, f"a number that divides the files of a side, {len(given.a)}")
    require(given.replicates >= 40, "--replicates", given.replicates, "at least 40")
    samples = data.read([given.data], given.images)
    a, b = ([_seed(path, samples) for path in paths] for paths in (given.a, given.b))
    rows = compared(samples, a, b, Draws(given.replicates, given.per_start))
    for row in rows:
        low, high = row["low"], row["high"]
        means = f"a {row['a']:.3f}, b {row['b']:.3f}"
        print(f"{row['figure']:<20} {means}, b - a {row['difference']:+.3f} [{low:+.3f}, {high:+.3f}]")
    write(given.json, {"given": vars(given), "rows": rows})
    return 0


def compared(samples: Sequence[Sample], a: Sequence[Seed], b: Sequence[Seed], draws: Draws) -> list[dict[str, float | str]]:
    """Means of both sides, and their difference with its interval, figure by figure."""
    everything = (list(range(len(samples))), list(range(len(a))))
    first, second = (_means(samples, side, *everything) for side in (a, b))
    differences: dict[str, list[float]] = {name: [] for name in FIGURES}
    for images, seeds in draws.resample(len(samples), len(a)):
        one, other = (_means(samples, side, images, seeds) for side in (a, b))
        for name in FIGURES:
            differences[name].append(other[name] - one[name])
    found: list[dict[str, float | str]] = []
    for name in FIGURES:
        ordered, tail = sorted(differences[name]), round((1 - SHARE) / 2 * draws.replicates)
        interval = {"low": ordered[tail], "high": ordered[-1 - tail]}
        found.append(
            {"figure": name, "a": first[name], "b": second[name], "difference": second[name] - first[name], **interval}
        )
    return found


def _seed(path: str, samples: Sequence[Sample]) -> Seed:
    told = predictions.read(path, samples)
    return Seed(told, [metrics.count_matches(sample, each.objects) for sample, each in zip(samples, told, strict=True)])


def _means(samples: Sequence[Sample], side: Sequence[Seed], images: Sequence[int], seeds: Sequence[int]) -> dict[str, float]:
    """Figures over ``images``, means over ``seeds``."""
    each = {number: _figures([samples[at] for at in images], side[number], images) for number in set(seeds)}
    return {name: statistics.fmean(each[number][name] for number in seeds) for name in FIGURES}


def _figures(samples: Sequence[Sample], seed: Seed, images: Sequence[int]) -> dict[str, float]:
    precision = metrics.compute_average_precision(samples, [seed.told[at] for at in images])
    return {**precision, **metrics.compute_f1([seed.counts[at] for at in images])}
