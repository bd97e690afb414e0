"""``stageb guidance review``: learnt rules come into use one by one, as a person approves
them."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from stageb.errors import InputError, shown
from stageb.guidance.commands.govern import shared
from stageb.guidance.commands.govern.changes import describe_changes, describe_effect
from stageb.guidance.commands.govern.promote import add_named, add_target, ask
from stageb.guidance.commands.govern.provenance import (
    add_provenance,
    describe_provenance,
    find_edit,
    read_edits,
)
from stageb.guidance.commands.govern.sources import add_language, choose_words
from stageb.guidance.commands.use.source import find_tickets
from stageb.guidance.rules.edits import compare_order, compare_rules
from stageb.guidance.rules.edits import number as number_of
from stageb.guidance.rules.prompts import Words
from stageb.guidance.rules.read_guidance import (
    keep_origins,
    make_neutral,
    read_guidance,
    split_step,
)
from stageb.guidance.words.labels import has_labels
from stageb.guidance.words.types import Guidance

REVIEWS = """\
Asks about every rule that the run added, changed or removed beside what is in use in FILE: where
it comes from, how it was proven, how many tickets it mends, and which it breaks, as code on the
run's tickets. Those that you say yes to are in use then; the others stay as they were in FILE."""


def add_options(parser: ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "--accept", nargs="*", metavar="KEY", help="the rules to say yes to, unasked (for scripts)"
    )
    parser.add_argument(
        "--tickets",
        nargs="+",
        metavar="FILE",
        default=(),
        help="its ticket files, where they were moved",
    )
    add_target(parser)
    add_language(parser)


def review(args: Any) -> int:
    """Copy missions' guidance into a shared file, each rule after it was agreed to; 1 where nothing
    was."""
    path, (run, _) = shared.resolve_target(args.to), split_step(args.source)
    words = choose_words(args.source, args.language)
    tickets, why = find_tickets(args.source, "--tickets FILE ...", args.tickets)
    if why:
        print(shown(f"{args.source}: {why}; what rules change is not shown", 400), file=sys.stderr)
    done = False
    for learnt in read_guidance(args.source, args.mission).values():
        learnt = add_provenance(learnt, run) if run.is_dir() else learnt
        in_use = shared.load(path).get(learnt.mission)
        kept = start = in_use or make_neutral(learnt.mission, words, learnt.labels)
        for keys in _join_turned(
            [change.key for change in compare_rules(start, learnt)], start, learnt, words
        ):
            changed = kept
            for key in keys:
                before, changed = changed, _put_rule(changed, learnt, key)
                for line in describe_change(key, before, changed, run):
                    print(shown(line))
            if tickets:
                for line in describe_effect(kept, changed, tickets, words):
                    print(line)
            if args.accept is None:
                these = f"these {len(keys)} together" if len(keys) > 1 else "this"
                is_accepted = ask(f"Accept {these} in {shown(learnt.mission)}?", "--accept KEY ...")
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
            print(f"{shown(learnt.mission)}: nothing was changed")
        else:
            _put_in_use(args, path, in_use, add_named(keep_origins(learnt, kept), tickets, words))
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
    return replace(guidance, rules=tuple(rules))


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
    print(f"{shown(name)}: step {after.step} is now in use")


def describe_change(key: str, before: Guidance, after: Guidance, run: Path) -> Iterator[str]:
    """A rule that is to come, change or go, and where it comes from."""
    yield from describe_changes(before, after)
    if rule := after.rule(key):
        made = read_edits(run, after.mission) if run.is_dir() else []
        yield from (
            f"      {line}" for line in describe_provenance(rule, find_edit(rule, made), False)
        )
