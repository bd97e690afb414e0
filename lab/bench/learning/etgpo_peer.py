"""ETGPO (Error Taxonomy-Guided Prompt Optimization, arXiv:2602.00997), written anew for tickets.

From the whole landscape of errors to the prompt, in four steps: every ticket is answered several times, and the failed
answers are collected; batch by batch the model sorts them into categories; categories of a single ticket are dropped, the
others ranked by how many failed answers they hold; guidance for the most frequent ones is put into the prompt, all of it,
untested. The paper stops there. Here a pass is followed by another one over other tickets until the budget is spent, and the
best on val is handed back, whose judging it pays for: it has as many rollouts as everybody, and further passes cannot harm.

The shipped model answers one prompt only, this package's own. So a category is a rule that an answer proposes for a batch of
failures with one label, its failures are those that the answer names as evidence, and equal rules of several batches are one
category; a batch is answered several times, since an answer names one category. The guidance for a category is its rule.
Written after summaries of the paper and other people's code after it, from where the number of categories is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lab.bench.learning.grpo_peer import roll_out
from lab.bench.learning.method import Learnt, Point, Task
from lab.bench.learning.proposer import SETTINGS, propose, together
from stageb.guidance.rules.prompts import Case
from stageb.guidance.words.types import Guidance, Proposal, Verdict
from stageb.seeds import shuffled, stream


@dataclass(frozen=True, slots=True)
class Settings:
    """What a pass is."""

    tickets: int = 64  # of train that a pass answers
    answers: int = 5  # per ticket, as in the paper
    namings: int = 4  # answers that sort one batch of failures
    fewest: int = 2  # tickets of a category that is kept, as in the paper
    categories: int = 5  # that become guidance
    most_val: int = 128  # val tickets that passes are ranked on


@dataclass(slots=True)
class Category:
    """One kind of error."""

    rule: Proposal  # what answers it
    tickets: set[str] = field(default_factory=set)  # ticket_keys of its failures


def learn(task: Task, settings: Settings) -> Learnt:
    """Pass after pass, until the next one would exceed the budget."""
    val = shuffled(task.parts["val"], stream(task.seed, "etgpo val"))[: settings.most_val]
    train = shuffled(task.parts["train"], stream(task.seed, "etgpo train"))
    size = min(settings.tickets, len(train))
    best, points = task.first, [Point(0, task.first)]
    best_right, spent = sum(task.judge.right(best, val)), len(val)
    reflections = accepted = passes = 0
    while spent + size * settings.answers + len(val) <= task.budget:
        batch = [train[(passes * size + i) % len(train)] for i in range(size)]
        key = stream(task.seed, "etgpo pass", passes)
        cases, failures = [], {}
        for ticket, given in roll_out(task, batch, best, settings.answers, key):
            failed = [each for each in given.candidates if each.verdict != ticket.label]
            failures[ticket.key] = len(failed)
            cases.append(Case(ticket, not failed, failed[0].reason if failed else ""))
        found, asked = taxonomy(cases, best, task, settings.namings, key)
        guidance = together(best, [each.rule for each in chosen(found, failures, settings)])
        right = sum(task.judge.right(guidance, val))
        passes, reflections = passes + 1, reflections + asked
        spent += size * settings.answers + len(val)
        if guidance != best and right >= best_right:
            best, best_right, accepted = guidance, right, accepted + 1
            points.append(Point(spent, best))
    return Learnt(points, spent, reflections, accepted)


def taxonomy(cases: Sequence[Case], guidance: Guidance, task: Task, namings: int, key: int) -> tuple[list[Category], int]:
    """The categories of all failures, and how many answers sorted them."""
    found: dict[object, Category] = {}
    asked = 0
    for number, batch in enumerate(batches(cases, key)):
        proposals, answers = propose(batch, guidance, task.reflector, namings, stream(key, "naming", number))
        asked += answers
        for proposal in proposals:
            (operation,) = proposal.operations
            same = found.setdefault((operation.op, operation.key, operation.merged_from, operation.text), Category(proposal))
            same.tickets.update(operation.evidence)
    return list(found.values()), asked


def batches(cases: Sequence[Case], key: int) -> Iterator[list[Case]]:
    """Every failure once, with others of its label, each time beside as many rightly judged tickets of the other label."""
    size = SETTINGS.max_cases // 2
    verdicts: list[Verdict] = ["pass", "fail"]
    for label in verdicts:
        wrong = [case for case in cases if not case.right and case.ticket.label == label]
        right = [case for case in cases if case.right and case.ticket.label != label]
        for start in range(0, len(wrong), size):
            yield wrong[start : start + size] + shuffled(right, stream(key, "beside", label, start))[:size]


def chosen(found: Sequence[Category], failures: dict[str, int], settings: Settings) -> list[Category]:
    """The categories with the most failed answers, but for those of too few tickets."""
    kept = [each for each in found if len(each.tickets) >= settings.fewest]
    return sorted(kept, key=lambda each: -sum(failures[key] for key in each.tickets))[: settings.categories]
