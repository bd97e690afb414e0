"""What ``stageb evaluate --out`` wrote, as tables against any arm: ``bin/bench outcomes FILE ... --base stopped-final``.

Each FILE is a part, called after the file's name as far as its first dot, or holds several, as ``--to`` writes them. Of each
part and arm: means, and by how much its test accuracy is above that of the base, with the 95 % interval of paired
differences; ``--pictures`` draws accuracy over FLOPs. Rows of the same part, run, environment and arm count once: calls that
compare with different arms may be given together.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from lab.bench.rows import Row, tell
from stageb.config import require
from stageb.errors import InputError
from stageb.growth import courses
from stageb.growth.compare import Comparison
from stageb.growth.evaluate import measure_gain

KEYS = [each.name for each in fields(Comparison)]


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bin/bench outcomes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="JSON Lines")
    parser.add_argument("--base", default="ppo", metavar="ARM", help="whom the others are above (default ppo)")
    parser.add_argument("--to", metavar="FILE", help="write all rows, with their parts, as one file of JSON Lines")
    parser.add_argument("--pictures", metavar="FOLDER", help="draw accuracy over FLOPs of every part")
    given = parser.parse_args(arguments)
    rows = read([Path(name) for name in given.files])
    if given.to:
        Path(given.to).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    parts = list(dict.fromkeys(row["part"] for row in rows))
    found = [row for part in parts for row in table(part, [row for row in rows if row["part"] == part], given.base)]
    require(bool(found), "--base", given.base, "an arm of one part at least")
    for row in found:
        tell(row)
    if given.pictures:
        Path(given.pictures).mkdir(parents=True, exist_ok=True)
        for part in parts:
            draw(part, [row for row in rows if row["part"] == part], Path(given.pictures) / f"{part}.png")
    return 0


def read(paths: Sequence[Path]) -> list[Row]:
    """Rows in their order, none twice. Raises ``InputError``."""
    found: dict[tuple[object, ...], Row] = {}
    for path in paths:
        try:
            for line in path.read_text(encoding="utf-8").splitlines():
                row = {"part": path.stem.partition(".")[0], **json.loads(line)}
                found.setdefault(tuple(row[name] for name in ("part", "run", "environment", "controller")), row)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: not what stageb evaluate --out writes: {error}") from error
    return list(found.values())


def comparisons(rows: Sequence[Row]) -> dict[int, dict[str, list[Comparison]]]:
    """By run and arm."""
    runs: dict[int, dict[str, list[Comparison]]] = {}
    for row in rows:
        plain = {**{name: row[name] for name in KEYS if name in row}, "truth": None}
        runs.setdefault(row["run"], {}).setdefault(row["controller"], []).append(Comparison.of(plain))
    return runs


def draw(part: str, rows: Sequence[Row], path: Path) -> None:
    """The courses of all arms of a part that every run has; nothing where they were not noted."""
    runs = comparisons([row for row in rows if row.get("course")])
    arms = dict.fromkeys(row["controller"] for row in rows)
    whole = [arm for arm in arms if runs and all(arm in held for held in runs.values())]
    if whole:
        found = {arm: courses.average_course([held[arm] for held in runs.values()], arm) for arm in whole}
        count = len(next(iter(runs.values()))[whole[0]])
        courses.draw(found, f"{part}: {len(runs)} runs, {count} held-out environments", path)


def table(part: str, rows: Sequence[Row], base: str) -> list[Row]:
    """A row for each arm of a part, of the runs in which it and ``base`` both played; none where there are no such runs."""
    runs, found = comparisons(rows), []
    for arm in dict.fromkeys(row["controller"] for row in rows):
        both = [arms for arms in runs.values() if arm in arms and base in arms]
        if not both:
            continue
        mine = [each for arms in both for each in arms[arm]]
        row = {"part": part, "arm": arm, "runs": len(both), "environments": len(mine) // len(both)}
        row |= {
            name: statistics.fmean(getattr(each, name) for each in mine)
            for name in ("test_accuracy", "extra", "epochs", "flops")
        }
        row["seeds_kept"] = statistics.fmean(len(each.kept) for each in mine)
        if arm != base:
            mean, half = measure_gain([[*arms[arm], *arms[base]] for arms in both], arm, base)
            row |= {f"points_above_{base}": 100 * mean, "half": 100 * half}
        found.append(row)
    return found
