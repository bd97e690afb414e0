"""Several runs of one config, one after the other: ``stageb sweep``, whose runs differ in a few
keys, which Optuna chooses, and ``stageb fit --seeds``.

What a trial tries follows from the config's seed, its own number and the trials before it, and is
written down before its run starts: a sweep that was interrupted goes on with the very trials of one
that was not.
"""

from __future__ import annotations

import csv
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from stageb import seeds
from stageb.cli import commands
from stageb.cli.draft import list_keys
from stageb.cli.parsing import FLAGS, ParsedCommand, WordParser, parse
from stageb.config import LearningConfig, require
from stageb.errors import InputError, StagebError, shown
from stageb.job import lifetime
from stageb.runs.figures import Curves, Rows, draw, make_console, make_table, print_table
from stageb.runs.folder import METRICS, TESTED, RunFolder
from stageb.store import disk

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial, Trial

STUDY, TABLE, BEST = "study.log", "trials.csv", "best.yaml"  # in the folder of a sweep
WAYS = "KEY=A,B,C for values, KEY=LOW..HIGH for a range, KEY=LOW..HIGH:log for one that is wide"
RANGE = re.compile(r"(\S+?)\.\.(\S+?)(:log)?")


class Span(NamedTuple):
    """The values of a key among which a sweep chooses."""

    key: str
    values: tuple[Any, ...]  # as options write them; of a range its ends, numbers
    is_range: bool = False
    is_log: bool = False

    def suggest(self, trial: Trial | FrozenTrial) -> str:
        """Return the value that a trial tries, or has tried, as options write it."""
        if not self.is_range:
            return str(trial.suggest_categorical(self.key, self.values))
        if isinstance(self.values[0], int):
            return str(trial.suggest_int(self.key, *self.values, log=self.is_log))
        return f"{trial.suggest_float(self.key, *self.values, log=self.is_log):.6g}"


def main(arguments: Sequence[str]) -> int:
    """Search for the values of keys with which runs of fit come to the best figure; fit's own
    options say the rest."""
    parser = WordParser(prog="stageb sweep", description=main.__doc__, allow_abbrev=False)
    parser.add_argument(
        "--over",
        action="append",
        required=True,
        metavar="KEY=VALUES",
        help=f"as often as you like: {WAYS}",
    )
    parser.add_argument(
        "--trials",
        type=int,
        default=20,
        metavar="N",
        help="runs in all, earlier ones too (default 20)",
    )
    given, rest = parser.parse_known_args(arguments)
    asked = parse(rest)
    require(given.trials >= 1, "--trials", given.trials, "1 or more")
    if asked.seeds or asked.fresh:
        raise InputError(
            "stageb sweep: takes no --seeds and no --fresh; another output.run_name starts anew"
        )
    check_launcher("stageb sweep")
    spans = [read_span(text, type(asked.config), rest) for text in given.over]
    commands.check_sweep(asked.loop)
    folder = Path(asked.config.output.root, f"{asked.config.output.run_name}-sweep")
    study = open_study(folder, {"over": given.over, "config": asked.resolved_yaml})
    for number in range(given.trials):
        if code := take_trial(study, number, folder, spans, asked, rest):
            return code
    show(study, folder, spans, rest)
    return 0


def read_span(text: str, kind: type, arguments: Sequence[str]) -> Span:
    """Parse ``--over text`` for a config of a ``kind``, the rest of which ``arguments`` give.
    Raises ``InputError``."""
    told = f"--over {shown(text, 100)}"
    key, _, written = text.partition("=")
    ends = RANGE.fullmatch(written)
    values = ends.group(1, 2) if ends else tuple(written.split(","))
    if len(set(values)) < 2 or key in ("loop", "config", *FLAGS) or key.startswith("output"):
        raise InputError(
            f"{told}: name a key that results depend on, and two values or more: {WAYS}"
        )
    try:
        for value in values:
            parse([*arguments, f"--{key}={value}"])
    except InputError as error:
        raise InputError(f"{told}: {error}") from None
    if not ends:
        return Span(key, values)
    annotation, is_log = dict(list_keys(kind))[key], ends[3] is not None
    number = float if float in (annotation, *get_args(annotation)) else int
    try:
        low, high = (number(value) for value in values)
        if low < high and (low > 0 or not is_log):
            return Span(key, (low, high), True, is_log)
    except ValueError:
        pass
    raise InputError(
        f"{told}: a range goes from a number to a higher one{', both above 0' * is_log}; or "
        f"write KEY=A,B,C"
    )


def open_study(folder: Path, asked: dict[str, Any]) -> Study:
    """The trials in a folder, new or as they were left. Raises ``InputError`` where they are of
    another sweep than asked."""
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalStorage

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    disk.check_place(folder, "another output.run_name")
    with disk.reporting(folder):
        folder.mkdir(parents=True, exist_ok=True)
        mend_study(folder / STUDY)
    storage = JournalStorage(JournalFileBackend(str(folder / STUDY)))
    study = optuna.create_study(
        storage=storage, study_name="sweep", direction="maximize", load_if_exists=True
    )
    if study.user_attrs.get("asked", asked) != asked:
        remedy = "give the options that it began with, or another output.run_name"
        raise InputError(
            f"{folder}: holds a sweep over other values, or from another config; {remedy}"
        )
    study.set_user_attr("asked", asked)
    return study


def mend_study(path: Path) -> None:
    """Drop a last line that a full disk or a power cut left half written. Raises ``InputError``
    where another is broken."""
    text = path.read_bytes() if path.exists() else b""
    whole, _, torn = text.rpartition(b"\n")
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            json.loads(line)
        except ValueError:
            remedy = "take the line out, or move the folder away and begin anew"
            raise InputError(f"{path}:{number}: not a line of a study; {remedy}") from None
    if torn:
        print(f"{path}: its last line was half written, and is dropped", file=sys.stderr)
        os.truncate(path, len(text) - len(torn))


def take_trial(
    study: Study,
    number: int,
    folder: Path,
    spans: Sequence[Span],
    asked: ParsedCommand,
    arguments: Sequence[str],
) -> int:
    """Make a trial, unless it is made; an exit code where it was interrupted, so that it goes on
    another time."""
    from optuna import samplers, trial

    known = study.get_trials()
    if number < len(known) and known[number].state.is_finished():
        return 0
    study.sampler = samplers.TPESampler(seed=seeds.stream(asked.config.seed, "sweep", number) >> 32)
    begun = trial.Trial(study, known[number]._trial_id) if number < len(known) else study.ask()
    keys = {span.key: span.suggest(begun) for span in spans}
    print(
        f"trial {number}: {', '.join(f'{key} {text}' for key, text in keys.items())}",
        file=sys.stderr,
        flush=True,
    )
    run = folder / f"trial-{number}"
    code = call_fit(arguments, {**keys, "output.root": folder, "output.run_name": run.name})
    if code >= 128:
        return code
    if code:
        study.tell(number, state=trial.TrialState.FAIL)
        print(
            f"trial {number}: failed, exit code {code}; the sweep goes on without it",
            file=sys.stderr,
        )
    elif score := commands.import_object(commands.loops()[asked.loop].score)(run):
        study.set_user_attr("figure", score.figure)
        study.tell(number, score.value)
    else:
        raise StagebError(
            f"{run}: nothing was evaluated by which one trial is better; give the loop what to "
            f"try it on"
        )
    return 0


def show(study: Study, folder: Path, spans: Sequence[Span], arguments: Sequence[str]) -> None:
    """Print what trials came to, and write it, and the best config, into the folder."""
    done = sorted(
        (each for each in study.get_trials() if each.values),
        key=lambda each: (-each.values[0], each.number),
    )
    if not done:
        raise StagebError(f"{folder}: every trial failed, each for the reason told above")
    head = ["trial", *(span.key for span in spans), study.user_attrs["figure"]]
    rows = [
        [str(each.number), *(span.suggest(each) for span in spans), f"{each.values[0]:.6g}"]
        for each in done
    ]
    table = make_table(f"{len(rows)} trials, the best first", head[:1], head[1:])
    for row in rows:
        table.add_row(*row)
    print_table(make_console(), table)
    best = parse([*arguments, *(f"--{span.key}={span.suggest(done[0])}" for span in spans)])
    with disk.reporting(folder), (folder / TABLE).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([head, *rows])
        disk.place(
            folder / BEST, lambda path: path.write_text(best.resolved_yaml, encoding="utf-8")
        )
    print(f"{folder / BEST}: the config of trial {done[0].number}")


# ``stageb fit --seeds N``: runs that differ in their seed alone, one after the other, and what they
# come to together.

COUNTS = ("steps", "episodes", "step")  # columns that count, of which a loop has one


def fit_all(config: Any, count: int, arguments: Sequence[str]) -> int:
    """So many runs of what ``arguments`` ask for, from the seed of ``config`` on, each a process. A
    table of what they offer follows, and a picture. Returns the exit code of a run that failed,
    which is the last."""
    commands.check_extra(config.loop)
    check_launcher("--seeds")
    if not isinstance(config, LearningConfig):
        raise InputError("--seeds: for loops that learn weights")
    place, seeds = config.output, range(config.seed, config.seed + count)
    names = {seed: f"{place.run_name}-{seed}" for seed in seeds}
    for seed, name in names.items():
        if code := call_fit(arguments, {"seed": seed, "output.run_name": name, "seeds": 0}):
            return code
    folders = [RunFolder(Path(place.root, name)) for name in names.values()]
    runs, offered = (
        [list(each.read_committed(METRICS)) for each in folders],
        [each.read_offered() for each in folders],
    )
    step = next(name for name in COUNTS if name in runs[0][0])
    print_offered(
        f"{count} seeds, from {seeds[0]} to {seeds[-1]}", offered, [rows[-1] for rows in runs], step
    )
    picture = Path(place.root, f"{place.run_name}-seeds.png")
    panels = [(name.removeprefix(TESTED), name.removeprefix(TESTED)) for name in _figures(offered)]
    curves = Curves(
        step, step, panels, {name: f"{TESTED}{name}" for name, _ in panels}, "apart from learning"
    )
    disk.write(picture, lambda path: draw(runs, curves, path))
    print(picture)
    return 0


def check_launcher(asked: str) -> None:
    """Raise ``InputError`` where a launcher has started the process: what ``asked`` is for starts
    the ranks of each run."""
    if lifetime.under_agent() or "LT_CLI_USED" in os.environ:
        raise InputError(
            f"{asked}: starts the ranks of each run by itself; call stageb without a launcher"
        )


def call_fit(arguments: Sequence[str], own: Mapping[str, Any]) -> int:
    """A run of what ``arguments`` ask for with keys of its ``own``; its exit code, as shells tell
    it."""
    lifetime.set_resume("what its runs have committed stands")
    words = (f"--{key}={value}" for key, value in own.items())
    code = subprocess.call([sys.executable, "-m", "stageb", "fit", *arguments, *words])
    return code if code >= 0 else 128 - code


def print_offered(title: str, offered: Rows, last: Rows, step: str) -> None:
    """Print the figures of what runs have ``offered``, which was chosen as the best, and of how
    they ended (``last``); and after how many of its ``step`` each was as it is offered."""
    table = make_table(title, ["figure"], ["mean", "deviation", "least", "most"])
    named = {name: name.removeprefix(TESTED) for name in _figures(offered)}
    told = [(label, name, offered) for name, label in named.items()] + [
        (f"after {step}", step, offered)
    ]
    told += [(f"{named[name]} at the end", name, last) for name in _figures(last) if name in named]
    for label, name, rows in told:
        found = [float(row[name]) for row in rows]
        deviation = statistics.stdev(found) if len(found) > 1 else 0.0
        figures = (statistics.fmean(found), deviation, min(found), max(found))
        table.add_row(
            label, *(f"{each:,.0f}" if name == step else f"{each:.4g}" for each in figures)
        )
    print_table(make_console(), table)


def _figures(offered: Rows) -> list[str]:
    """The columns that all of what was ``offered`` has a figure in; whole numbers are counts."""
    names = (name for name in offered[0] if name.startswith(TESTED))
    return [name for name in names if all(isinstance(row.get(name), float) for row in offered)]
