"""Two guidances of a mission, as a person reads what differs: the rules, and what that changes for
tickets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from stageb.errors import shown
from stageb.guidance.commands.govern.provenance import name_ticket
from stageb.guidance.commands.use.doubts import find_named_fields
from stageb.guidance.judging.coded import CodeJudge, code_rules
from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.edits import (
    compare_marks,
    compare_order,
    compare_rules,
    compare_words,
    find_moves,
)
from stageb.guidance.rules.prompts import Words
from stageb.guidance.rules.read_guidance import split_step
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.words.texts import count_of
from stageb.guidance.words.types import Guidance, Ticket

BROKEN = 10  # tickets named that a change breaks

_MARKS = {"same": "{}", "gone": "[-{}-]", "new": "{{+{}+}}"}


def describe_changes(old: Guidance | None, new: Guidance | None) -> Iterator[str]:
    """+ a rule added, - removed, ~ changed with the words marked, > one that got another number; in
    the order of keys."""
    changes = compare_rules(old, new)
    moves = find_moves(changes)
    marks = {rule.key: rule.mark for rule in new.rules} if new else {}
    for change in changes:
        gone = bool(change.before) and change.key not in moves.values()
        new_here = bool(change.after) and change.key not in moves
        if gone and new_here:
            yield f"  ~ {change.key}{marks[change.key]}. {mark_words(change.before, change.after)}"
        elif gone:
            yield f"  - {change.key}. {change.before}"
        elif new_here:
            yield f"  + {change.key}{marks[change.key]}. {change.after}"
        if change.key in moves:
            yield f"  > {moves[change.key]} -> {change.key}. {change.after}"
    for was, rule in compare_marks(old, new):
        mark = rule.mark or was.mark.replace("(", "(no longer ")
        yield f"  ~ {rule.key}{mark}. {rule.text}"
    if order := compare_order(old, new):
        yield f"  ~ the order, in which the first decides: {', '.join(order)}"


def mark_words(old: str, new: str) -> str:
    """``new`` with what it has in place of ``old``'s words marked, as git's word diff does:
    ``[-gone-]{+new+}``."""
    return "".join(_MARKS[what].format(text) for what, text in compare_words(old, new))


def describe_differences(
    before: Mapping[str, Guidance],
    after: Mapping[str, Guidance],
    sources: tuple[str, str] = ("", ""),
) -> Iterator[str]:
    """Differences of two sets of guidance, mission by mission; nothing where all rules are the
    same. Two ``sources`` may number their steps alike, so each is named where there are any."""
    for mission in dict.fromkeys([*before, *after]):
        old, new = before.get(mission), after.get(mission)
        if found := list(describe_changes(old, new)):
            steps = [f"step {each.step}" if each else "none" for each in (old, new)]
            if any(sources):
                steps = [
                    shown(f"{split_step(of)[0]} ({step})")
                    for of, step in zip(sources, steps, strict=True)
                ]
            yield f"{shown(mission)}: {steps[0]} -> {steps[1]}"
            yield from map(shown, found)


def describe_effect(
    before: Guidance, after: Guidance, tickets: Sequence[Ticket], words: Words
) -> Iterator[str]:
    """Changes for labelled tickets where rules decide as code: how many it mends, and those that it
    breaks."""
    mine = [ticket for ticket in tickets if ticket.mission == after.mission]
    old, new = (
        CodeJudge(code_rules({each.mission: each}, mine, words)) for each in (before, after)
    )
    rulings = [(ticket, old.judge(ticket).verdict, new.judge(ticket).verdict) for ticket in mine]
    mended = sum(was != ticket.label == now for ticket, was, now in rulings)
    broken = [(ticket, now) for ticket, was, now in rulings if was == ticket.label != now]
    yield (
        f"      of the run's {count_of(len(mine), 'ticket')} it mends {mended:,} and breaks "
        f"{len(broken):,}"
    )
    named = [*find_named_fields(after, Vocabulary.of(mine), words)]
    for ticket, now in broken[:BROKEN]:
        pairs = reading(ticket).pairs
        # what the verdict rests on
        first = "; ".join(f"{name}: {pairs[name]}" for name in named if name in pairs)
        said = " | ".join([*([first] if first else []), *(text for _, text in ticket.per_image)])
        yield f"        {name_ticket(ticket.key)} -> {now or 'no verdict'}: {shown(said, 200)}"
    if len(broken) > BROKEN:
        yield f"        and {len(broken) - BROKEN:,} more"
