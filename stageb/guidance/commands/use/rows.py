"""The row of a ticket that was judged: who gave which verdict, why, and whether it needs a person.
Files of predictions and the service (``commands/serve``) say the same of the same ticket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stageb.guidance.commands.use.doubts import find_missing_fields, send_to_review
from stageb.guidance.commands.use.summary import Counts
from stageb.guidance.judging.answers import find_cited_rule
from stageb.guidance.judging.automation import find_decider
from stageb.guidance.judging.coded import CodeJudge
from stageb.guidance.judging.selection import SelectionRule, select
from stageb.guidance.rules.evidence_forms import reading
from stageb.guidance.rules.predicates import Ruling, measure_margin
from stageb.guidance.words.automation import PERSON, STAGEB, Automation
from stageb.guidance.words.texts import TAKEN, one_line
from stageb.guidance.words.types import HEADLINE_KEY, Answers, Guidance, Ticket, Verdict

ANSWER = 200  # characters, at most, of an answer that could not be used
NO_TEXT, BLANK = Ruling(None), "no text"  # of a ticket that says nothing, whoever judges the others


def judge_by_code(code: CodeJudge, ticket: Ticket) -> Ruling:
    """The ruling of the rules on a ticket; nothing of one that says nothing, which is for a
    person."""
    return NO_TEXT if ticket.is_blank else code.judge(ticket)


def make_row(
    ticket: Ticket,
    answers: Answers,
    shares: Mapping[Verdict, float] | None,
    guidance_step: int,
    min_verdict_agreement: float,
    rule: SelectionRule,
) -> dict[str, Any]:
    """How a model judged a ticket; ``shares``: how probable each label is, where the engine can
    tell; ``rule`` selects the verdict."""
    selection, candidates = select(ticket, answers, min_verdict_agreement, rule), answers.candidates
    why, verdict = selection.manual_review, selection.verdict
    probability = shares[verdict] if shares and verdict is not None else None
    if verdict is None and candidates:
        why += f"; the first: {one_line(candidates[0].text, ANSWER) or 'nothing'}"
    if (
        not why
        and len(candidates) == 1
        and probability is not None
        and probability < min_verdict_agreement
    ):
        why = f"low probability: {probability:.2f}"  # one answer cannot disagree with itself
    return {
        "verdict": verdict,
        "by": "model",
        "reason": selection.reason,
        "agreement": round(selection.vote_strength, 6),
        "probability": probability,
        "rule": find_cited_rule(selection.reason),
        "margin": None,
        "review": bool(why),
        "why": why,
        "guidance_step": guidance_step,
    }


def make_ruled_row(
    ticket: Ticket, ruling: Ruling, code: CodeJudge | None, guidance_step: int
) -> dict[str, Any]:
    """How rules judge a ticket as ``code``, which gave the ``ruling``: with the rule that gives the
    verdict, or why none does."""
    is_decided = ruling.verdict is not None
    said = code.explain(ruling, ticket) if code and ruling is not NO_TEXT else BLANK
    return {
        "verdict": ruling.verdict,
        "by": "rules",
        "reason": said if is_decided else "",
        "agreement": float(is_decided),
        "probability": None,
        "rule": ruling.rule,
        "margin": measure_margin(ruling, HEADLINE_KEY),
        "review": not is_decided,
        "why": "" if is_decided else said,
        "guidance_step": guidance_step,
    }


def finish_row(
    row: Mapping[str, Any],
    ticket: Ticket,
    guidance: Guidance,
    automation: Automation | None,
    doubt: str = "",
) -> dict[str, Any]:
    """The row of a ticket with whether its rule is provisional, and who decides, ``STAGEB`` or
    ``PERSON``, by an ``automation`` that holds here; None where nothing is promised. A ``doubt`` is
    for a person."""
    rule = guidance.rule(row["rule"])
    row = send_to_review({**row, "provisional": rule is not None and rule.is_provisional}, doubt)
    if automation is None:
        return {**row, "decides": None}
    if row["review"]:
        return {**row, "decides": PERSON}
    missing = find_missing_fields(automation.told, reading(ticket), by_code=True)
    if not missing and automation.decides(row["verdict"], *find_decider(row)):
        return {**row, "decides": STAGEB}
    why = "not decided alone" + f": no {', '.join(missing)}" * bool(missing)
    return {**send_to_review(row, why), "decides": PERSON}


def add_counts(
    counts: Counts, rows: Sequence[Mapping[str, Any]], labels: Mapping[str, tuple[Verdict, ...]]
) -> Counts:
    """``counts`` with further rows; ``labels`` are those of each mission."""
    found = {mission: dict(of) for mission, of in counts.items()}
    for each in rows:
        of = found.setdefault(each["mission"], dict.fromkeys((*labels[each["mission"]], *TAKEN), 0))
        of[each["verdict"] or "none"] += 1
        of["review"] += each["review"]
        of["model"] += each["by"] == "model"
    return found


def count_asked(counts: Counts) -> int:
    """Tickets that the model was asked."""
    return sum(of["model"] for of in counts.values())
