"""``stageb guidance resize``: what code learnt at once, in another size that the fit has kept."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stageb.errors import InputError, shown
from stageb.guidance.commands.govern.provenance import parse_reflection
from stageb.guidance.commands.govern.show import describe_rules
from stageb.guidance.commands.report.lineage import replay
from stageb.guidance.commands.use.source import list_read_files
from stageb.guidance.learning.reflection_file import REFLECTION, ReflectionRow, SizeEntry
from stageb.guidance.rules.edits import apply, mark_provisional
from stageb.guidance.rules.guidance_json import format_file, from_json
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.read_guidance import read_guidance, split_step
from stageb.guidance.words.types import UNCALIBRATED, Guidance
from stageb.runs.folder import RunFolder
from stageb.store import disk
from stageb.store.journal import safe_name
from stageb.store.output import check_target

RESIZES = """\
Without --conditions it lists the sizes that the fit has kept, each with its accuracy as
estimated on train tickets that did not teach it. With it, the rules of the largest size that has
no more are printed, or written to a file that predict, evaluate, promote and guidance.path take.
They are marked as provisional, since the gate has tested those in use alone; edits that came
after them are not in it."""


def add_options(parser: ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "--conditions", type=parse_conditions, metavar="N", help="the most that all rules may have"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="write the guidance of that size to this file"
    )


def parse_conditions(text: str) -> int:
    """Read --conditions. Raises ``ArgumentTypeError``."""
    if not re.fullmatch("[1-9][0-9]{0,8}", text):
        raise ArgumentTypeError(f"{text!r}: a number of conditions is a whole number, 1 or more")
    return int(text)


def resize(args: Any) -> int:
    """List the sizes of what code has learnt, or take another one. Raises ``InputError`` where
    there is none."""
    run, step = split_step(args.source)
    if step is not None or not run.is_dir():
        raise InputError(shown(f"{args.source}: sizes are kept in a run's folder; name that"))
    found = list(read_sizes(run, args.mission))
    if args.conditions is None:
        for line in (line for sizes in found for line in describe_sizes(sizes)):
            print(line)
        return 0
    taken = [sizes.take(sizes.find(args.conditions)) for sizes in found]
    if args.output:
        check_target(args.output, list_read_files(args.source))
        disk.write(args.output, format_file(taken))
    else:
        for line in (
            line
            for guidance in taken
            for line in describe_rules(guidance, args.source, False, (), WORDS["en"])
        ):
            print(line)
    return 0


@dataclass(frozen=True, slots=True)
class LearntSizes:
    """Guidance that a run has learnt for a mission, and its other sizes."""

    learnt: Guidance
    before: Guidance  # what the sizes are made of
    row: ReflectionRow  # that holds them

    def find(self, conditions: int) -> SizeEntry:
        """The largest of so many conditions at most. Raises ``InputError`` where all have more."""
        found = [size for size in self.row.sizes if size.conditions <= conditions]
        if not found:
            least = min(size.conditions for size in self.row.sizes)
            raise InputError(
                f"{shown(self.learnt.mission)}: the smallest size has {least} conditions; give "
                f"--conditions {least}"
            )
        return max(found, key=lambda size: size.conditions)

    def take(self, size: SizeEntry) -> Guidance:
        """The guidance of that size: what was learnt, if its rules are those. Otherwise its rules
        are marked as provisional, since the gate has not tested them, and stand without
        demonstrations and calibration, which belong to other rules."""
        made = apply(self.before, size.operations, self.row.reflection_id)
        if [rule.text for rule in made.rules] == [rule.text for rule in self.learnt.rules]:
            return self.learnt
        marked = mark_provisional(made, self.row.reflection_id, size.estimate)
        return replace(
            self.learnt,
            step=self.learnt.step + 1,
            rules=marked.rules,
            next_number=max(marked.next_number, self.learnt.next_number),
            demonstrations=(),
            calibration=UNCALIBRATED,
            judge="rules" if self.learnt.judge == "rules" else "",
        )


def read_sizes(run: Path, mission: str | None) -> Iterator[LearntSizes]:
    """Those of each mission of a run, or of one. Raises ``InputError`` where a mission has none."""
    files = RunFolder(run)
    first = {
        name: one
        for each in files.commit["config"]["first_guidance"]
        for name, one in from_json(each, "commit.json").items()
    }
    for name, learnt in read_guidance(run, mission).items():
        file = f"{safe_name(name)}/{REFLECTION}"
        rows = [
            parse_reflection(files, file, line, row)
            for line, row in enumerate(files.read_committed(file), 1)
        ]
        place = next((place for place, row in enumerate(rows) if row.sizes), None)
        if place is None:
            raise InputError(
                shown(
                    f"{run}: code has learnt no rules of {name} at once, so there is no other "
                    f"size; set reflection.size"
                )
            )
        yield LearntSizes(learnt, replay(first[name], rows[:place])[-1].guidance, rows[place])


def describe_sizes(sizes: LearntSizes) -> Iterator[str]:
    """A line for each size: its conditions, its rules, and what is hoped of it."""
    yield f"{shown(sizes.learnt.mission)}: conditions, rules, estimated accuracy"
    for size in sizes.row.sizes:
        mark = "  in use" if sizes.take(size) is sizes.learnt else ""
        rules = sum(operation.op == "add" for operation in size.operations)
        yield f"  {size.conditions:>4}  {rules:>3}  {size.estimate.acc:6.1%}{mark}"
