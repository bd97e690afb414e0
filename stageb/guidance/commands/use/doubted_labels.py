"""Doubts about the labels of a run's tickets.

Doubted is a label that the run's rules contradict, or where they cannot tell, its last verdict.
Where no rule speaks of a ticket, whose verdict is the headline's, the reason of its label may stand
in no ticket, so these are listed apart from the others (``KINDS``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stageb.guidance.config import LoopConfig
from stageb.guidance.judging.coded import CodeJudge, code_rules
from stageb.guidance.rules.prompts import words_of
from stageb.guidance.rules.read_guidance import read_guidance
from stageb.guidance.words.types import Ticket
from stageb.runs.folder import RunFolder
from stageb.store.journal import safe_name

KINDS = {  # of doubted labels, in the order in which they are listed
    "contradicted": "a rule speaks for another label: look for a wrong one",
    "unexplained": "no rule speaks of the ticket: is the reason of its label there at all?",
}


class Doubt(NamedTuple):
    """A doubt about a label."""

    ticket: Ticket
    verdict: str  # which is another
    kind: str  # of ``KINDS``
    why: str


def list_doubts(folder: Path, config: LoopConfig, tickets: Sequence[Ticket]) -> list[Doubt]:
    """Find the doubts about the labels of ``tickets``, those of the run in ``folder``."""
    guidance = read_guidance(str(folder))
    judge = CodeJudge(code_rules(guidance, tickets, words_of(config.prompt, config.model)))
    last = {
        (mission, row["ticket_key"]): row
        for mission in guidance
        for row in RunFolder(folder).read_committed(f"{safe_name(mission)}/selections.jsonl")
    }
    return find_doubts(tickets, judge, last)


def find_doubts(
    tickets: Sequence[Ticket], judge: CodeJudge, last: Mapping[tuple[str, str], Mapping[str, Any]]
) -> list[Doubt]:
    """Find doubts about labels, kind by kind; of each those of a rule that is mostly right first.
    ``last`` are verdicts, with their reasons, by mission and key, for tickets of which rules cannot
    tell."""
    decided, right = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    doubted: list[tuple[tuple[str, str], Doubt]] = []
    for ticket in tickets:
        ruling = judge.judge(ticket)
        row = last.get((ticket.mission, ticket.key), {"verdict": None, "reason": ""})
        verdict, rule = (ruling.verdict or row["verdict"], (ticket.mission, ruling.rule))
        why = judge.explain(ruling, ticket) if ruling.verdict else row["reason"]
        decided[rule] += verdict is not None
        right[rule] += verdict == ticket.label
        if verdict not in (None, ticket.label):
            by_headline = (
                judge.is_silent(ruling) and verdict == judge.rules[ticket.mission].labels[0]
            )
            kind = "unexplained" if by_headline else "contradicted"
            doubted.append((rule, Doubt(ticket, verdict, kind, why)))
    order = [*KINDS]
    doubted.sort(key=lambda each: (order.index(each[1].kind), -right[each[0]] / decided[each[0]]))
    return [
        doubt._replace(
            why=f"{doubt.why} (so labelled: {right[rule]:,} of {decided[rule]:,} tickets)"
        )
        for rule, doubt in doubted
    ]
