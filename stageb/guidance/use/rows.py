"""What ``predict`` says of a ticket, as a row, and rows counted. Functions of their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stageb.engines.protocol import Scorer
from stageb.guidance.prompts import Words, rollout_prompt
from stageb.guidance.rules.predicates import Ruling
from stageb.guidance.sampling import calibrations_of, score_log_odds, sigmoid
from stageb.guidance.selection import SelectionRule, select
from stageb.guidance.texts import one_line
from stageb.guidance.types import Answers, Guidance, Ticket
from stageb.guidance.use.source import TicketLine

ANSWER = 200  # characters, at most, of an answer that could not be used
Counts = dict[str, dict[str, int]]
"""By mission: how many tickets were answered pass, fail, or not at all ("none"), how many a person should see, and how many
the model was asked."""


def make_row(
    line: TicketLine,
    answers: Answers,
    passes: float | None,
    guidance_step: int,
    min_verdict_agreement: float,
    rule: SelectionRule,
) -> dict[str, Any]:
    """The row of one ticket; ``passes``: how probable a pass is, where the engine can tell; ``rule`` selects the verdict."""
    selection, candidates = select(line.ticket, answers, min_verdict_agreement, rule), answers.candidates
    why, verdict = selection.manual_review, selection.verdict
    probability = None if passes is None or verdict is None else passes if verdict == "pass" else round(1 - passes, 6)
    if verdict is None and candidates:
        why += f"; the first: {one_line(candidates[0].text, ANSWER) or 'nothing'}"
    if not why and len(candidates) == 1 and probability is not None and probability < min_verdict_agreement:
        why = f"low probability: {probability:.2f}"  # one answer cannot disagree with itself
    return {
        "file": line.file,
        "line": line.line,
        "mission": line.ticket.mission,
        "group_id": line.ticket.group_id,
        "label": line.label,
        "verdict": verdict,
        "by": "model",
        "reason": selection.reason,
        "agreement": round(selection.vote_strength, 6),
        "probability": probability,
        "review": bool(why),
        "why": why,
        "guidance_step": guidance_step,
    }


def make_ruled_row(line: TicketLine, ruling: Ruling, said: str, guidance_step: int) -> dict[str, Any]:
    """The row of a ticket that rules judge as code; ``said`` is which rule gives the verdict, or why none does."""
    is_decided = ruling.verdict is not None
    return {
        "file": line.file,
        "line": line.line,
        "mission": line.ticket.mission,
        "group_id": line.ticket.group_id,
        "label": line.label,
        "verdict": ruling.verdict,
        "by": "rules",
        "reason": said if is_decided else "",
        "agreement": float(is_decided),
        "probability": None,
        "review": not is_decided,
        "why": "" if is_decided else said,
        "guidance_step": guidance_step,
    }


def weigh_verdicts(
    tickets: Sequence[Ticket], answers: Sequence[Answers], guidance: Guidance, engine: Scorer, words: Words
) -> list[float | None]:
    """How probable a pass is for each ticket, at temperature 1, beside a fail; None of one that was set aside."""
    asked = [i for i, given in enumerate(answers) if given.candidates]
    prompts = [rollout_prompt(tickets[i], guidance, words) for i in asked]
    calibrations = calibrations_of(guidance, [tickets[i] for i in asked])
    found: list[float | None] = [None] * len(tickets)
    for i, log_odds in zip(asked, score_log_odds(prompts, engine, words, calibrations), strict=True):
        found[i] = sigmoid(log_odds, 1.0)
    return found


def add_counts(counts: Counts, rows: Sequence[Mapping[str, Any]]) -> Counts:
    """``counts`` with further rows."""
    found = {mission: dict(of) for mission, of in counts.items()}
    for each in rows:
        of = found.setdefault(each["mission"], dict.fromkeys(("pass", "fail", "none", "review", "model"), 0))
        of[each["verdict"] or "none"] += 1
        of["review"] += each["review"]
        of["model"] += each["by"] == "model"
    return found


def count_asked(counts: Counts) -> int:
    """Tickets that the model was asked."""
    return sum(of["model"] for of in counts.values())
