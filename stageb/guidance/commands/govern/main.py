"""``stageb guidance``: look at learnt guidance, compare it, take it elsewhere, decide which is in
use."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

from stageb.cli.parsing import WordParser, parse_run
from stageb.errors import InputError, shown
from stageb.guidance.commands.govern import screens, shared
from stageb.guidance.commands.govern.resize import RESIZES, parse_conditions, resize
from stageb.guidance.commands.govern.screens import add_provenance
from stageb.guidance.commands.use.source import find_tickets, list_read_files
from stageb.guidance.config import Language, LoopConfig, PromptConfig
from stageb.guidance.exports.protocol import list_exporters, make_exporter
from stageb.guidance.exports.sql_dialects import DIALECTS
from stageb.guidance.learning.attempts import describe_provisional
from stageb.guidance.rules import rules_file
from stageb.guidance.rules.edits import compare_order, compare_rules
from stageb.guidance.rules.edits import number as number_of
from stageb.guidance.rules.guidance_file import (
    keep_origins,
    load_seed,
    make_neutral,
    read_guidance,
    split_step,
)
from stageb.guidance.rules.judge import keep_named
from stageb.guidance.rules.prompts import WORDS, Words, rollout_prompt, words_of
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.words.labels import has_labels
from stageb.guidance.words.types import Guidance, Ticket
from stageb.job import process
from stageb.runs.folder import is_finished
from stageb.store.output import check_target

TICKET = "{ticket}"  # in an exported prompt: where a ticket's summaries go

SOURCE = """\
SOURCE is a run's folder (out/first), a guidance.json, or a text file of rules (.txt); each may end in @STEP, for the
guidance of that step, from a run's snapshots or a shared file's history (out/first@3).

A text file of rules has [the mission] on a line of its own, and below it one rule per line. A line may begin with its
number, "G4. Fail if ..."; "G0. ..." is the headline (default: a neutral one); lines that begin with # are ignored.
Learning neither changes nor removes a rule that is marked as fixed, "G4 (fixed). Fail if ..."."""


def main(arguments: Sequence[str]) -> int:
    """Run ``stageb guidance ARGUMENTS``; returns the exit code. Raises ``InputError``."""
    args = make_parser().parse_args(arguments)
    code: int = args.run(args)
    return code


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command and its subcommands."""
    parser = WordParser(
        prog="stageb guidance",
        description="Look at learnt guidance, compare it, take it elsewhere, decide which is in "
        "use.",
        epilog=f"{SOURCE}\n\nFor details of a command: stageb guidance COMMAND --help.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    command = partial(_add_command, commands)
    shows = command("show", "Every rule, and where it comes from.", show, "source")
    shows.add_argument(
        "--step",
        type=_parse_step,
        metavar="N",
        help="the guidance of this step; the same as SOURCE@N",
    )
    shows.add_argument(
        "--all-tickets",
        action="store_true",
        help="list every ticket that taught a rule, not only five",
    )
    exits = "Exit code: 0 if all rules are equal, 1 if some differ, 2 if a source cannot be read."
    command(
        "diff",
        "What differs between two, rule by rule.",
        diff,
        "a",
        "b",
        more=f"{MARKS}\n\n{exits}",
    )
    command(
        "history",
        "Every step: what made it, its gate figures, its accuracy on val.",
        history,
        "source",
    )
    exports = command(
        "export",
        "The prompt that rollouts read, or the rules as text or code.",
        export,
        "source",
        more=EXPORTS,
    )
    exports.add_argument(
        "--format",
        choices=("prompt", "chat", "text", *list_exporters()),
        default="prompt",
        help=FORMATS,
    )
    exports.add_argument(
        "--dialect", choices=DIALECTS, help="of sql and dbt: whose SQL (default: sqlite)"
    )
    exports.add_argument("--output", type=Path, metavar="FILE", help=OUTPUT)
    exports.add_argument("--tickets", nargs="+", metavar="FILE", default=(), help=TICKETS)
    exports.add_argument(
        "--columns",
        metavar="NAME=VALUE,...",
        help="what the columns of a table mean, as for predict",
    )
    exports.add_argument("--typed", action="store_true", help=TYPED)
    resizes = command(
        "resize", "What a run has learnt by code, in another size.", resize, "source", more=RESIZES
    )
    resizes.add_argument(
        "--conditions", type=parse_conditions, metavar="N", help="the most that all rules may have"
    )
    resizes.add_argument(
        "--output", type=Path, metavar="FILE", help="write the guidance of that size to this file"
    )
    promotes = command(
        "promote",
        "Copy guidance into a shared file that many runs can use.",
        promote,
        "source",
        more=PROMOTES,
    )
    promotes.add_argument("--base", metavar="SOURCE", help=BASE)
    reviews = command(
        "review",
        "Approve learnt rules one by one, into a shared file.",
        review,
        "source",
        more=REVIEWS,
    )
    reviews.add_argument(
        "--accept", nargs="*", metavar="KEY", help="the rules to say yes to, unasked (for scripts)"
    )
    reviews.add_argument(
        "--tickets",
        nargs="+",
        metavar="FILE",
        default=(),
        help="its ticket files, where they were moved",
    )
    for each in (promotes, reviews):
        each.add_argument(
            "--to",
            required=True,
            metavar="FILE",
            help="the shared file; created if it does not exist",
        )
    rolls = command(
        "rollback",
        "Put a mission's guidance in a shared file back to an earlier step.",
        roll_back,
        "file",
    )
    rolls.add_argument(
        "--to",
        required=True,
        type=_parse_step,
        metavar="STEP",
        help="a step that its history lists",
    )
    for each in (shows, exports, reviews):
        each.add_argument("--language", choices=get_args(Language), help=OF_PROMPT)
    for each in (promotes, rolls):
        each.add_argument(
            "--yes", action="store_true", help="do not ask for confirmation (for scripts)"
        )
    return parser


def _add_command(
    commands: Any, name: str, summary: str, run: Callable[[Any], int], *sources: str, more: str = ""
) -> argparse.ArgumentParser:
    added: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary}\n\n{more}".rstrip(),
        epilog=SOURCE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for source in sources:
        added.add_argument(source, metavar=source.upper(), help=OPERANDS[source])
    added.add_argument("--mission", metavar="M", help="only this mission, named as in its tickets")
    added.set_defaults(run=run)
    return added


def _parse_step(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise argparse.ArgumentTypeError(f"{text!r}: a step is a whole number, 0 or more")
    return int(text)


OPERANDS = {
    "source": "the guidance: see below",
    "a": "the guidance to compare with, usually the older one: a SOURCE, see below",
    "b": "the guidance to compare, usually the newer one: a SOURCE, see below",
    "file": "a shared file that promote created",
}
MARKS = """\
+ an added rule, - a removed one, ~ a changed one, with [-deleted-] and {+inserted+} words, > one with a new number."""
EXPORTS = f"""\
The prompt ends with {TICKET}, which stands for one line per image of the ticket to judge: "image_1: what is seen there".

Rules as code need nothing of stageb. python is a module with judge(ticket), sql a query over a table with a column for each
field (--dialect), dbt the same as models with tests, json the rules' expressions as a tree; of these, rules that cannot be
read as code are listed, and tickets that depend on them get no verdict. json-logic, pmml, dmn (decision tables) and xlsx (a
workbook that judges what is typed) judge columns of numbers, flags and texts; a rule that they cannot say is refused, and
nothing is written. Exit code: 0 if all rules are written, 1 if some are not, 2 if nothing is."""
FORMATS = """\
prompt (default) or chat (JSON messages): what rollouts read; text: the rules, to edit and promote; the others: the rules as
code"""
OUTPUT = "write to this file (dbt: folder) instead of standard output"
TICKETS = """\
for code: ticket files with the names and values that the rules mention (default: those of the run, or what a
promoted file keeps)"""
TYPED = (
    "of sql, dbt: columns of which the known tickets have numbers alone are numbers in the "
    "table; the query is short"
)
OF_PROMPT = "of the prompt and a default headline (default: the run's, or en)"
BASE = """\
where the rules of a text file come from, such as the run that they were exported from: what it tells of rules that stand as
they did is kept, and what its tickets have taught (default: what is in use in FILE)"""
REVIEWS = """\
Asks about every rule that the run added, changed or removed beside what is in use in FILE: where it comes from, how it was
proven, how many tickets it mends, and which it breaks, as code on the run's tickets. Those that you say yes to are in use
then; the others stay as they were in FILE."""
PROMOTES = """\
Shows what would change and asks for confirmation, mission by mission; other missions stay as they are. Runs can start from
the file (guidance.path). Its history lies beside it, as FILE with the suffix .history.jsonl: every version, when it was
promoted, and by whom, for stageb guidance history and rollback. Several processes may promote at once."""


def show(args: Any) -> int:
    """Print every rule, and where it comes from."""
    source = args.source if args.step is None else f"{args.source}@{args.step}"
    (tickets, _), words = find_tickets(source), _choose_words(source, args.language)
    for number, guidance in enumerate(_read(source, args).values()):
        _print(
            [
                *([""] if number else []),
                *screens.describe_rules(guidance, source, args.all_tickets, tickets, words),
            ]
        )
    return 0


def diff(args: Any) -> int:
    """Print what differs; 1 where anything does."""
    sources = (args.a, args.b)
    before, after = (read_guidance(source, args.mission) for source in sources)
    found = list(screens.describe_differences(before, after, sources))
    _print(found)
    return 1 if found else 0


def history(args: Any) -> int:
    """Print every step."""
    path, _ = split_step(args.source)
    of = screens.describe_run if path.is_dir() else screens.describe_file
    for number, guidance in enumerate(read_guidance(path, args.mission).values()):
        _print([*([""] if number else []), *of(path, guidance.mission, guidance)])
    return 0


def export(args: Any) -> int:
    """Write the prompt of one mission, or the rules as code; 1 where some cannot be."""
    read = list_read_files(args.source)
    check = partial(check_target, inputs={**read, "tickets": [*read["tickets"], *args.tickets]})
    if args.output and args.format not in list_exporters():  # which may write several files
        check(args.output)
    if args.dialect and args.format not in ("sql", "dbt"):
        raise InputError(
            f"--dialect {args.dialect}: of --format sql and dbt alone, and not of {args.format}"
        )
    found = _read(args.source, args)
    if args.format == "text":
        screens.write_text(rules_file.write(found.values()), args.output)
        return 0
    if args.format in list_exporters():
        exporter, words = make_exporter(args.format), _choose_words(args.source, args.language)
        coded = screens.code_missions(args, found, words, is_typed=exporter.is_typed or args.typed)
        written = exporter.write(coded, DIALECTS[args.dialect or "sqlite"])
        screens.write_files(written.files, args.format, args.output, check)
        for line in written.notes:
            print(shown(line, 400), file=sys.stderr)
        return 1 if written.notes else 0
    guidance, words = _get_only(found, args.source), _choose_words(args.source, args.language)
    for line in describe_provisional(guidance.rules):
        print(f"{shown(guidance.mission)}: {line}", file=sys.stderr)  # the prompt does not tell
    if guidance.shown and not words.instruct:  # a file does not say which model reads it
        words = words_of(
            PromptConfig(language=args.language or "en", style="instruct", prefill=False)
        )
    prompt = rollout_prompt(Ticket("", "", "pass", ()), guidance, words)
    if args.format == "chat":
        turns = [{"role": "system", "content": prompt.system}, {"role": "user", "content": TICKET}]
        screens.write_text(json.dumps(turns, ensure_ascii=False, indent=2) + "\n", args.output)
    else:
        screens.write_text(f"{prompt.system}\n\n{TICKET}\n", args.output)
    return 0


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
    learnt, words = read_guidance(args.source, args.mission), _choose_words(origin)
    for guidance in learnt.values():
        kept = add_provenance(guidance, run) if run.is_dir() else guidance
        if run.suffix == ".txt" and (base := _find_base(args.base, path, guidance.mission)):
            kept = keep_origins(base, guidance)
        kept = _keep_named(kept, tickets, words)
        source = shown(f"{args.source} (step {guidance.step})")
        done &= _change(args, path, shared.GuidanceChange("promoted from", source, kept, new=True))
        if done and why and not kept.named and len(kept.rules) > 1:
            print(shown(f"{origin}: {why}", 400), file=sys.stderr)
    return 0 if done else 1


def _keep_named(guidance: Guidance, tickets: Sequence[Ticket], words: Words) -> Guidance:
    """``guidance`` with what its rules speak of, as far as ``tickets`` tell."""
    mine = Vocabulary.of(ticket for ticket in tickets if ticket.mission == guidance.mission)
    return keep_named(guidance, mine, words) if tickets else guidance


def _find_base(source: str | None, path: Path, mission: str) -> Guidance | None:
    """The guidance that the rules of a text come from: what ``source`` names, or else what is in
    use at ``path``."""
    if source is None:
        return load_seed(path).get(mission) if path.exists() else None
    run, found = split_step(source)[0], read_guidance(source, mission)[mission]
    return add_provenance(found, run) if run.is_dir() else found


def review(args: Any) -> int:
    """Copy missions' guidance into a shared file, each rule after it was agreed to; 1 where nothing
    was."""
    path, (run, _) = shared.resolve_target(args.to), split_step(args.source)
    words = _choose_words(args.source, args.language)
    tickets, why = find_tickets(args.source, "--tickets FILE ...", args.tickets)
    if why:
        print(shown(f"{args.source}: {why}; what rules change is not shown", 400), file=sys.stderr)
    done = False
    for learnt in read_guidance(args.source, args.mission).values():
        learnt = add_provenance(learnt, run) if run.is_dir() else learnt
        in_use = load_seed(path).get(learnt.mission) if path.exists() else None
        kept = start = in_use or make_neutral(learnt.mission, words, learnt.labels)
        for keys in _join_turned(
            [change.key for change in compare_rules(start, learnt)], start, learnt, words
        ):
            changed = kept
            for key in keys:
                before, changed = changed, _put_rule(changed, learnt, key)
                _print(map(shown, screens.describe_change(key, before, changed, run)))
            if tickets:
                _print(screens.describe_effect(kept, changed, tickets, words))
            if args.accept is None:
                these = f"these {len(keys)} together" if len(keys) > 1 else "this"
                is_accepted = _ask(
                    f"Accept {these} in {shown(learnt.mission)}?", "--accept KEY ..."
                )
            else:
                is_accepted = bool({*keys} & {*args.accept})
                if missing := [key for key in keys if is_accepted and key not in args.accept]:
                    why = "the headline turns, so its rules are accepted with it or not at all"
                    raise InputError(
                        shown(f"--accept: {why}: name {' '.join(missing)}, too, or none")
                    )
            kept = changed if is_accepted else kept
        if kept is not start and not compare_rules(kept, learnt) and compare_order(kept, learnt):
            kept = replace(
                kept, rules=tuple(rule for each in learnt.rules if (rule := kept.rule(each.key)))
            )
        if kept is start:
            _print([f"{shown(learnt.mission)}: nothing was changed"])
        else:
            _put_in_use(args, path, in_use, _keep_named(keep_origins(learnt, kept), tickets, words))
            done = True
    return 0 if done else 1


def _join_turned(
    keys: list[str], start: Guidance, learnt: Guidance, words: Words
) -> list[list[str]]:
    """Part changes into those that are accepted together: all, where the headline turns from pass
    to fail or back, since rules that mend what it says do nothing without it, and it is wrong of
    most tickets without them."""
    headlines = {guidance.rules[0].text for guidance in (start, learnt)}
    turns = len(headlines) > 1 and headlines <= {*words.headlines.values()}
    return [keys] if turns else [[key] for key in keys]


def _put_rule(guidance: Guidance, learnt: Guidance, key: str) -> Guidance:
    """``guidance`` with what ``learnt`` has at ``key``, be it nothing. Of labels of one's own,
    where the order of rules decides, a rule stands behind those that it stands behind in
    ``learnt``, as far as these are there."""
    rules = [rule for rule in guidance.rules if rule.key != key]
    if rule := learnt.rule(key):
        order = [each.key for each in learnt.rules]
        before = set(order[: order.index(key)])
        place = max((place for place, each in enumerate(rules, 1) if each.key in before), default=0)
        rules.insert(place, rule)
    if not has_labels(guidance.labels):
        rules.sort(key=number_of)
    next_number = max(guidance.next_number, learnt.next_number)
    return replace(guidance, rules=tuple(rules), next_number=next_number)


def _put_in_use(args: Any, path: Path, in_use: Guidance | None, accepted: Guidance) -> None:
    """Make what was accepted the guidance in use. Raises ``InputError`` where that is another by
    now."""
    name = accepted.mission

    def confirm(before: Guidance | None, _: Guidance) -> bool:
        if before != in_use:
            raise InputError(
                shown(f"{path}: another process has changed it meanwhile; review again")
            )
        return True

    after = shared.apply_change(
        path,
        shared.GuidanceChange("reviewed from", shown(args.source), accepted, new=True),
        confirm,
    )
    assert after is not None
    _print([f"{shown(name)}: step {after.step} is now in use"])


def roll_back(args: Any) -> int:
    """Put an earlier step of a mission back in its place."""
    path = shared.resolve_target(args.file)
    mission = _get_only(read_guidance(path, args.mission), args.file).mission
    guidance = read_guidance(f"{path}@{args.to}", mission)[mission]
    return (
        0
        if _change(args, path, shared.GuidanceChange("rolled back", "", guidance, new=False))
        else 1
    )


def _change(args: Any, path: Path, change: shared.GuidanceChange) -> bool:
    """Make a change that is agreed to; whether it was. Raises ``InputError`` where nobody can be
    args."""
    name, changed = change.guidance.mission, False

    def confirm(before: Guidance | None, after: Guidance) -> bool:
        nonlocal changed
        changed = True
        _print(
            [
                f"{shown(str(path))}:",
                *screens.describe_differences({name: before} if before else {}, {name: after}),
            ]
        )
        return args.yes or _ask(f"Make this the guidance of {shown(name)}?", "--yes")

    after = shared.apply_change(path, change, confirm)
    if after is None:
        _print([f"{shown(name)}: nothing was changed"])
    else:
        _print(
            [
                f"{shown(name)}: step {after.step} "
                f"{'is now in use' if changed else 'holds these rules already'}"
            ]
        )
    return after is not None


def _ask(question: str, instead: str) -> bool:
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


def _read(source: str, args: Any) -> dict[str, Guidance]:
    return read_guidance(source, args.mission, WORDS[args.language] if args.language else None)


def _get_only(found: dict[str, Guidance], source: str) -> Guidance:
    if len(found) > 1:
        names = shown(", ".join(map(repr, found)), 400)
        raise InputError(
            shown(f"{source} holds several missions; choose one by --mission: {names}")
        )
    (guidance,) = found.values()
    return guidance


def _choose_words(source: str, language: str | None = None) -> Words:
    """The words of a prompt: of the ``language`` given, or of the config of the run that is the
    ``source``."""
    path, _ = split_step(source)
    if language or not path.is_dir():
        return WORDS[language or "en"]
    config = parse_run(path).config
    if not isinstance(config, LoopConfig):
        raise InputError(shown(f"{path}: a run of loop {config.loop} has no guidance"))
    return words_of(config.prompt, config.model)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)
