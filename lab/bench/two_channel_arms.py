"""Ways to teach a detector beside each other, by val: ``bin/bench arms --config FILE --arm plain --arm 'still
augmentation.scale_jitter=[1.0,1.0] augmentation.scale_jitter_end=[1.0,1.0]' --seeds 1,2``.

An arm is a name and keys of the config that it changes. Every arm is run with every seed by the real command, so many at
once; they share the devices that there are. Told of each run are the best figures on val and those at its end, with the
median seconds of a step, and of each arm the means over seeds. ``data.test`` is never opened.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lab.bench.rows import Row, device_name, fit, pairs, tell, write
from stageb.config import require
from stageb.runs.run import METRICS, TIMINGS

FILES = (METRICS, TIMINGS)
FIGURES = ("best_f1_50", "best_step", "f1_50", "mAP50", "predicted_per_true", "step_s")


@dataclass(frozen=True)
class Arm:
    """One way."""

    name: str
    keys: dict[str, str]  # of the config

    @classmethod
    def of(cls, words: str) -> Arm:
        """``NAME KEY=VALUE KEY=VALUE``. Raises ``ConfigError``."""
        name, *rest = words.split() or [""]
        sound = bool(name) and "=" not in name and all("=" in each for each in rest)
        require(sound, "--arm", words, "NAME KEY=VALUE KEY=VALUE ..., no space within a value")
        return cls(name, dict(each.partition("=")[::2] for each in rest))


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bin/bench arms", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", required=True, help="names data.train and data.val")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key of the config, of all arms")
    parser.add_argument("--arm", action="append", required=True, metavar="'NAME KEY=VALUE ...'", help="a way; repeatable")
    parser.add_argument("--seeds", default="1", help="a run of each arm for each (default 1)")
    parser.add_argument("--at-once", type=int, default=4, help="runs beside each other (default 4)")
    parser.add_argument("--json", metavar="FILE", help="write what was measured, as JSON")
    given = parser.parse_args(arguments)
    seeds = [int(word) for word in given.seeds.split(",") if word.isdecimal()]
    require(bool(seeds), "--seeds", given.seeds, "numbers such as 1,2,3")
    require(given.at_once >= 1, "--at-once", given.at_once, "at least 1")
    common, arms = pairs(given), [Arm.of(words) for words in given.arm]

    def measure(seed: int, arm: Arm) -> Row:
        quiet = {"data.test": "", "log.tensorboard": False, "log_level": "error", "seed": seed, "model.small.seed": seed}
        row = {"arm": arm.name, "seed": seed, **figures(fit({"config": given.config, **common, **arm.keys, **quiet}, FILES))}
        tell(row)
        return row

    with ThreadPoolExecutor(given.at_once) as pool:
        jobs = [pool.submit(measure, seed, arm) for seed in seeds for arm in arms]
        rows = [job.result() for job in jobs]
    for arm in arms:
        mine = [row for row in rows if row["arm"] == arm.name]
        tell(
            {"arm": arm.name, "seeds": len(mine), **{name: statistics.fmean(row[name] for row in mine) for name in FIGURES}}
        )
    write(given.json, {"device": device_name(), "given": vars(given), "rows": rows})
    return 0


def figures(rows: Sequence[Row]) -> Row:
    """What a run came to, by its ``rows``. The seconds of a step are without the first tenth's."""
    looks = [row for row in rows if "val/f1_50" in row]
    best, last = max(looks, key=lambda row: (row["val/f1_50"], -row["step"])), looks[-1]
    return {
        "best_f1_50": best["val/f1_50"],
        "best_step": best["step"],
        **{name: last[f"val/{name}"] for name in ("f1_50", "mAP50", "predicted_per_true")},
        "step_s": statistics.median(row["time/step_s"] for row in rows[len(rows) // 10 :]),
        "looks": [[row["step"], row["val/f1_50"], row["val/mAP50"]] for row in looks],
    }
