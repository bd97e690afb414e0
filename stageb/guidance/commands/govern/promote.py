"""``stageb guidance promote`` and ``rollback``: put guidance in use in a shared file, and back."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stageb.errors import InputError, shown
from stageb.guidance.commands.govern import shared
from stageb.guidance.commands.govern.changes import describe_differences
from stageb.guidance.commands.govern.provenance import add_provenance
from stageb.guidance.commands.govern.sources import choose_words, get_only, parse_step
from stageb.guidance.commands.use.source import find_tickets
from stageb.guidance.rules.judge import keep_named
from stageb.guidance.rules.prompts import Words
from stageb.guidance.rules.read_guidance import keep_origins, read_guidance, split_step
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.words.types import Guidance, Ticket
from stageb.job import process
from stageb.runs.folder import is_finished

BASE = """\
where the rules of a text file come from, such as the run that they were exported from: what it
tells of rules that stand as they did is kept, and what its tickets have taught (default: what is
in use in FILE)"""
PROMOTES = """\
Shows what would change and asks for confirmation, mission by mission; other missions stay as
they are. Runs can start from the file (guidance.path). Its history lies beside it, as FILE with
the suffix .history.jsonl: every version, when it was promoted, and by whom, for stageb guidance
history and rollback. Several processes may promote at once."""


def add_options(parser: ArgumentParser) -> None:
    """The options of ``promote``."""
    parser.add_argument("--base", metavar="SOURCE", help=BASE)
    add_target(parser)
    _add_yes(parser)


def add_rollback_options(parser: ArgumentParser) -> None:
    """The options of ``rollback``."""
    parser.add_argument(
        "--to", required=True, type=parse_step, metavar="STEP", help="a step that its history lists"
    )
    _add_yes(parser)


def add_target(parser: ArgumentParser) -> None:
    """The option that names the shared file."""
    parser.add_argument(
        "--to", required=True, metavar="FILE", help="the shared file; created if it does not exist"
    )


def _add_yes(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--yes", action="store_true", help="do not ask for confirmation (for scripts)"
    )


def promote(args: Any) -> int:
    """Copy missions' guidance into a shared file, each after its difference was shown and agreed
    to."""
    path, (run, _) = shared.resolve_target(args.to), split_step(args.source)
    if run.is_dir() and not is_finished(run):
        print(
            shown(f"{run}: this run is not finished; what it has learnt so far is copied"),
            file=sys.stderr,
        )
    origin, done = args.base or args.source, True
    tickets, why = find_tickets(origin, "stageb predict --vocabulary FILE")
    learnt, words = read_guidance(args.source, args.mission), choose_words(origin)
    for guidance in learnt.values():
        kept = add_provenance(guidance, run) if run.is_dir() else guidance
        if run.suffix == ".txt" and (base := _find_base(args.base, path, guidance.mission)):
            kept = keep_origins(base, guidance)
        kept = add_named(kept, tickets, words)
        source = shown(f"{args.source} (step {guidance.step})")
        done &= _change(args, path, shared.GuidanceChange("promoted from", source, kept, new=True))
        if done and why and not kept.named and len(kept.rules) > 1:
            print(shown(f"{origin}: {why}", 400), file=sys.stderr)
    return 0 if done else 1


def add_named(guidance: Guidance, tickets: Sequence[Ticket], words: Words) -> Guidance:
    """``guidance`` with what its rules speak of, as far as ``tickets`` tell."""
    mine = Vocabulary.of(ticket for ticket in tickets if ticket.mission == guidance.mission)
    return keep_named(guidance, mine, words) if tickets else guidance


def _find_base(source: str | None, path: Path, mission: str) -> Guidance | None:
    """The guidance that the rules of a text come from: what ``source`` names, or else what is in
    use at ``path``."""
    if source is None:
        return shared.load(path).get(mission)
    run, found = split_step(source)[0], read_guidance(source, mission)[mission]
    return add_provenance(found, run) if run.is_dir() else found


def roll_back(args: Any) -> int:
    """Put an earlier step of a mission back in its place."""
    path = shared.resolve_target(args.file)
    mission = get_only(read_guidance(path, args.mission), args.file).mission
    guidance = read_guidance(f"{path}@{args.to}", mission)[mission]
    return (
        0
        if _change(args, path, shared.GuidanceChange("rolled back", "", guidance, new=False))
        else 1
    )


def _change(args: Any, path: Path, change: shared.GuidanceChange) -> bool:
    """Make a change that is agreed to; whether it was. Raises ``InputError`` where nobody can be
    asked."""
    name, changed = change.guidance.mission, False

    def confirm(before: Guidance | None, after: Guidance) -> bool:
        nonlocal changed
        changed = True
        print(f"{shown(str(path))}:")
        for line in describe_differences({name: before} if before else {}, {name: after}):
            print(line)
        return args.yes or ask(f"Make this the guidance of {shown(name)}?", "--yes")

    after = shared.apply_change(path, change, confirm)
    if after is None:
        print(f"{shown(name)}: nothing was changed")
    else:
        what = "is now in use" if changed else "holds these rules already"
        print(f"{shown(name)}: step {after.step} {what}")
    return after is not None


def ask(question: str, instead: str) -> bool:
    """Whether a person at the terminal says yes; ``instead`` is the option that does. Raises
    ``InputError`` where nobody can be asked."""
    if not sys.stdin.isatty():
        raise InputError(
            f"cannot ask for confirmation, since the input is not a terminal; give {instead} to "
            f"do it without"
        )
    sys.stdout.flush()
    if why := process.find_loss():
        raise InputError(
            f"{why}: what would change cannot be shown; give {instead} to do it anyway"
        )
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
