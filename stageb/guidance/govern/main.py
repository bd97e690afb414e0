"""``stageb guidance``: look at learnt guidance, compare it, take it elsewhere, decide which is in use."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

from stageb.cli.parsing import WordParser, parse_run
from stageb.errors import InputError, shown
from stageb.guidance.config import Language, LoopConfig
from stageb.guidance.files.guidance_file import read_guidance, split_step
from stageb.guidance.govern import code, screens, shared
from stageb.guidance.govern.provenance import add_provenance
from stageb.guidance.prompts import WORDS, Words, rollout_prompt, words_of
from stageb.guidance.types import Guidance, Ticket
from stageb.guidance.use.code import list_read_files
from stageb.job import streams
from stageb.runs.run import is_finished
from stageb.store import disk
from stageb.store.targets import check_target

TICKET = "{ticket}"  # in an exported prompt: where a ticket's summaries go

SOURCE = """\
SOURCE is a run's folder (out/first), a guidance.json, or a text file of rules (.txt); each may end in @STEP, for the
guidance of that step, as a run's snapshots or a shared file's history keep it (out/first@3).

A text file of rules holds [the mission] on a line of its own, and below it one rule a line. A line may begin with its
number, "G4. Fail if ..."; "G0. ..." is the headline, neutral where there is none; a line that begins with # is not read."""


def main(words: Sequence[str]) -> int:
    """Do what the words after ``stageb guidance`` ask for; the exit code. Raises ``InputError``."""
    asked = make_parser().parse_args(words)
    code: int = asked.run(asked)
    return code


def make_parser() -> argparse.ArgumentParser:
    """The words of the command."""
    made = WordParser(
        prog="stageb guidance",
        description="Look at learnt guidance, compare it, take it elsewhere, decide which is in use.",
        epilog=f"{SOURCE}\n\nstageb guidance COMMAND --help says more of each.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = made.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(
        name: str, summary: str, run: Callable[[Any], int], *sources: str, more: str = ""
    ) -> argparse.ArgumentParser:
        added = commands.add_parser(
            name,
            help=summary,
            description=f"{summary}\n\n{more}".rstrip(),
            epilog=SOURCE,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for source in sources:
            added.add_argument(source, metavar=source.upper(), help=OPERANDS[source])
        added.add_argument("--mission", metavar="M", help="this mission alone, named as its tickets name it")
        added.set_defaults(run=run)
        return added

    shows = command("show", "Every rule, and where it comes from.", show, "source")
    shows.add_argument("--step", type=_parse_step, metavar="N", help="as it was at this step; the same as SOURCE@N")
    shows.add_argument("--all-tickets", action="store_true", help="name all tickets that a rule was learnt from, not five")
    exits = "Exits with 0 where all rules are equal, with 1 where some differ, with 2 where one cannot be read."
    command("diff", "What differs between two, rule by rule.", diff, "a", "b", more=f"{MARKS}\n\n{exits}")
    command("history", "Every step: what made it, its gate figures, its accuracy on val.", history, "source")
    exports = command("export", "The prompt that rollouts read, or the rules as code.", export, "source", more=EXPORTS)
    exports.add_argument("--format", choices=("text", "chat", *code.WRITERS), default="text", help=FORMATS)
    exports.add_argument("--output", type=Path, metavar="FILE", help="write it there, not to standard output")
    exports.add_argument("--tickets", nargs="+", metavar="FILE", default=(), help=TICKETS)
    exports.add_argument("--columns", metavar="NAME=VALUE,...", help="where a table's cells belong, as predict takes it")
    promotes = command("promote", "Copy guidance into a file that is kept for many runs.", promote, "source", more=PROMOTES)
    promotes.add_argument(
        "--to", required=True, metavar="FILE", help="that file, such as shared.json; made if it is not there"
    )
    rolls = command("rollback", "Put a mission's guidance in a shared file back to an earlier step.", roll_back, "file")
    rolls.add_argument(
        "--to", required=True, type=_parse_step, metavar="STEP", help="the step; stageb guidance history FILE lists them"
    )
    for each in (shows, exports):
        each.add_argument(
            "--language", choices=get_args(Language), help="of the prompt and of a default headline; en, or the run's"
        )
    for each in (promotes, rolls):
        each.add_argument("--yes", action="store_true", help="do not ask; for scripts")
    return made


def _parse_step(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise argparse.ArgumentTypeError(f"{text!r}: a step is a whole number, 0 or more")
    return int(text)


OPERANDS = {
    "source": "the guidance: see below",
    "a": "the guidance to compare with, the older one as a rule: a SOURCE, see below",
    "b": "the guidance that may differ from it: a SOURCE, see below",
    "file": "a shared file, as promote made it",
}
MARKS = """\
+ a rule added, - removed, ~ changed, with the words that went and came [-so-]{+so+}; > one that got another number."""
EXPORTS = f"""\
The prompt ends with {TICKET}, which stands for one line per image of the ticket to judge: "image_1: what is seen there".

Rules as code need nothing of stageb: python is a module with judge(ticket), sql a query over a table with a column for
each field, json the rules' expressions as a tree. Rules that cannot be read as code are named, and tickets that hang on them
get no verdict. Exits with 0 where all rules are written as code, with 1 where some are not."""
FORMATS = "text (default) or chat (JSON messages): the prompt; python, sql or json: the rules as code"
TICKETS = """\
for code: ticket files with the names and values that the rules speak of; by default those that the run learnt from"""
PROMOTES = """\
What would change is shown, and asked about, mission by mission; other missions stay as they are. The file can be given to
runs as guidance.path. Beside it lies its history, FILE with .history.jsonl for its suffix: every version, when it came, and
by whom, for stageb guidance history and rollback. Several processes may promote at once."""


def show(asked: Any) -> int:
    """Print every rule, and where it comes from."""
    source = asked.source if asked.step is None else f"{asked.source}@{asked.step}"
    for number, guidance in enumerate(_read(source, asked).values()):
        _print([*([""] if number else []), *screens.describe_rules(guidance, source, asked.all_tickets)])
    return 0


def diff(asked: Any) -> int:
    """Print what differs; 1 where anything does."""
    sources = (asked.a, asked.b)
    before, after = (read_guidance(source, asked.mission) for source in sources)
    found = list(screens.describe_differences(before, after, sources))
    _print(found)
    return 1 if found else 0


def history(asked: Any) -> int:
    """Print every step."""
    path, _ = split_step(asked.source)
    of = screens.describe_run if path.is_dir() else screens.describe_file
    for number, guidance in enumerate(read_guidance(path, asked.mission).values()):
        _print([*([""] if number else []), *of(path, guidance.mission, guidance)])
    return 0


def export(asked: Any) -> int:
    """Write the prompt of one mission, or the rules as code; 1 where some cannot be."""
    if asked.output:
        read = list_read_files(asked.source)
        check_target(asked.output, {**read, "tickets": [*read["tickets"], *asked.tickets]})
    found = _read(asked.source, asked)
    if asked.format in code.WRITERS:
        text, unreadable = code.write(asked.format, code.code_missions(asked, found, _choose_words(asked)))
        _write(text, asked.output)
        for line in unreadable:
            print(shown(line, 400), file=sys.stderr)
        return 1 if unreadable else 0
    prompt = rollout_prompt(Ticket("", "", "pass", ()), _get_only(found, asked.source), _choose_words(asked))
    if asked.format == "chat":
        turns = [{"role": "system", "content": prompt.system}, {"role": "user", "content": TICKET}]
        _write(json.dumps(turns, ensure_ascii=False, indent=2) + "\n", asked.output)
    else:
        _write(f"{prompt.system}\n\n{TICKET}\n", asked.output)
    return 0


def promote(asked: Any) -> int:
    """Copy missions' guidance into a shared file, each after its difference was shown and agreed to."""
    path, (run, _) = shared.check_target(asked.to), split_step(asked.source)
    if run.is_dir() and not is_finished(run):
        print(shown(f"{run}: this run is not finished; what it has learnt so far is copied"), file=sys.stderr)
    done = True
    for guidance in read_guidance(asked.source, asked.mission).values():
        kept = add_provenance(guidance, run) if run.is_dir() else guidance
        source = shown(f"{asked.source} (step {guidance.step})")
        done &= _change(asked, path, shared.GuidanceChange("promoted from", source, kept, new=True))
    return 0 if done else 1


def roll_back(asked: Any) -> int:
    """Put an earlier step of a mission back in its place."""
    path = shared.check_target(asked.file)
    mission = _get_only(read_guidance(path, asked.mission), asked.file).mission
    guidance = read_guidance(f"{path}@{asked.to}", mission)[mission]
    return 0 if _change(asked, path, shared.GuidanceChange("rolled back", "", guidance, new=False)) else 1


def _change(asked: Any, path: Path, change: shared.GuidanceChange) -> bool:
    """Make a change that is agreed to; whether it was. Raises ``InputError`` where nobody can be asked."""
    name, changed = change.guidance.mission, False

    def confirm(before: Guidance | None, after: Guidance) -> bool:
        nonlocal changed
        changed = True
        _print([f"{shown(str(path))}:", *screens.describe_differences({name: before} if before else {}, {name: after})])
        if asked.yes:
            return True
        if not sys.stdin.isatty():
            raise InputError("nobody can be asked, since the input is no terminal; give --yes if this is to be done")
        sys.stdout.flush()
        if why := streams.find_loss():
            raise InputError(f"{why}: what would change cannot be shown; give --yes if this is to be done all the same")
        print(f"Make this the guidance of {shown(name)}? [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    after = shared.apply(path, change, confirm)
    if after is None:
        _print([f"{shown(name)}: nothing was changed"])
    else:
        _print([f"{shown(name)}: step {after.step} {'is now in use' if changed else 'holds these rules already'}"])
    return after is not None


def _read(source: str, asked: Any) -> dict[str, Guidance]:
    return read_guidance(source, asked.mission, WORDS[asked.language] if asked.language else None)


def _get_only(found: dict[str, Guidance], source: str) -> Guidance:
    if len(found) > 1:
        names = shown(", ".join(map(repr, found)), 400)
        raise InputError(shown(f"{source} holds several missions; choose one by --mission: {names}"))
    (guidance,) = found.values()
    return guidance


def _choose_words(asked: Any) -> Words:
    """The words of a prompt: of the language given, or of the run's config."""
    path, _ = split_step(asked.source)
    if asked.language or not path.is_dir():
        return WORDS[asked.language or "en"]
    config = parse_run(path).config
    if not isinstance(config, LoopConfig):
        raise InputError(shown(f"{path}: a run of loop {config.loop} has no guidance"))
    return words_of(config.prompt)


def _write(text: str, path: Path | None) -> None:
    """To a file as a whole, or to standard output. Raises ``JournalError`` where the disk refuses."""
    if path is None:
        sys.stdout.write(text)
        return
    with disk.reporting(path):
        disk.replace(path, disk.encode(text))


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)
