"""The options that the commands share, and what they mean for cells."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

from lab.bench.learning import data
from lab.bench.learning.cells import METHODS, Place
from lab.bench.learning.classic import LEARNERS
from stageb.errors import InputError
from stageb.guidance.commands.use.black_box import CLASSIFIERS

KNOWN = (*METHODS, *LEARNERS)
FOLDER = Path(__file__).parents[3] / "configs" / "guidance"
# rollouts are what is counted here, so: when they are dear
CONFIGS = (FOLDER / "tickets.yaml", FOLDER / "frugal.yaml")


def parser_of(
    name: str, summary: str | None, datasets: str, methods: str, budget: int, seeds: int
) -> argparse.ArgumentParser:
    """The options with a command's own defaults."""
    parser = argparse.ArgumentParser(
        prog=f"bin/bench {name}",
        description=summary,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--datasets", default=datasets, help=f"names with commas between them (default {datasets})"
    )
    parser.add_argument(
        "--methods", default=methods, help=f"of {', '.join(KNOWN)} (default {methods})"
    )
    parser.add_argument(
        "--budget", type=int, default=budget, help=f"rollouts of a run (default {budget})"
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=seeds,
        help=f"runs of every method on every data set (default {seeds})",
    )
    parser.add_argument(
        "--data",
        type=Path,
        help="a folder with NAME/tickets.jsonl for data sets that are not built in",
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        help="where results go; runs that ended are not run again",
    )
    parser.add_argument(
        "--workers", type=int, default=2, help="runs at a time, one thread each (default 2)"
    )
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="where models run (default cpu)"
    )
    parser.add_argument(
        "--model",
        default="stageb-tiny",
        help="for rollouts and reflection alike (default stageb-tiny)",
    )
    own = (
        "of this loop; give it more than once, and later ones win (default "
        "configs/guidance/tickets.yaml and frugal.yaml)"
    )
    parser.add_argument("--config", type=Path, action="append", help=own)
    return parser


def place_of(given: argparse.Namespace) -> Place:
    """Where the cells of a command line are run. Makes the folder."""
    given.out.mkdir(parents=True, exist_ok=True)
    configs = tuple(path.resolve() for path in given.config or CONFIGS)
    return Place(given.out.resolve(), given.data, configs, given.model, given.device)


def datasets_of(given: argparse.Namespace) -> list[str]:
    """The data sets that are there; what is missing is said."""
    found = []
    for name in given.datasets.split(","):
        if data.load(name, given.data) is None:
            print(
                f"{name}: left out, no {name}/tickets.jsonl in --data "
                f"{given.data or '(not given)'}",
                file=sys.stderr,
            )
        else:
            found.append(name)
    if not found:
        raise InputError(
            f"--datasets {given.datasets}: none is there; give --data, the folder that holds them"
        )
    return found


def methods_of(given: argparse.Namespace) -> list[str]:
    """The methods, all known, and what they need installed. Raises ``InputError``."""
    names: list[str] = given.methods.split(",")
    unknown = [name for name in names if name not in KNOWN]
    if unknown:
        raise InputError(
            f"--methods: there is no {', '.join(unknown)}; choose from {', '.join(KNOWN)}"
        )
    for start, module in (("gepa", "gepa"), (("tree", *CLASSIFIERS), "sklearn")):
        if any(name.startswith(start) for name in names) and find_spec(module) is None:
            raise InputError(
                f"{module} is not installed; in the checkout: python -m pip install -e '.[bench]'"
            )
    return names
