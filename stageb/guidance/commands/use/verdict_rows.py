"""The row of a ticket that was judged: who gave which verdict, why, and whether it needs a person.
Files of predictions and the service (``commands/serve``) say the same of the same ticket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stageb.guidance.commands.use.doubts import find_missing_fields, send_to_review
from stageb.guidance.commands.use.summary import Counts
from stageb.guidance.judging.answers import find_cited_rule
from stageb.guidance.judging.automation import describe_promises, find_decider
from stageb.guidance.judging.coded import CodeJudge
from stageb.guidance.judging.selection import SelectionRule, select
from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.predicates import Ruling, measure_margin
from stageb.guidance.words.automation import PERSON, STAGEB, Automation
from stageb.guidance.words.texts import TAKEN, one_line
from stageb.guidance.words.types import HEADLINE_KEY, Answers, Guidance, Ticket, Verdict

ANSWER = 200  # characters, at most, of an answer that could not be used
NO_TEXT, BLANK = Ruling(None), "no text"  # of a ticket that says nothing, whoever judges the others


@dataclass(frozen=True, slots=True)
class VerdictWriter:
    """Writes the rows of tickets, by the guidance of their missions."""

    guidance: Mapping[str, Guidance]
    promises: Mapping[str, Automation]  # what is decided alone, where anything is
    code: CodeJudge | None = None  # None: nobody asks what the rules say as code

    def rule_on(self, ticket: Ticket) -> Ruling | None:
        """Return the ruling of the rules on a ticket, if anybody asks; nothing of one that says
        nothing, which is for a person."""
        if ticket.is_blank:
            return NO_TEXT
        return self.code.judge(ticket) if self.code else None

    def write_answered(
        self,
        ticket: Ticket,
        answers: Answers,
        shares: Mapping[Verdict, float] | None,
        min_verdict_agreement: float,
        rule: SelectionRule,
        doubt: str = "",
    ) -> dict[str, Any]:
        """Write how a model judged a ticket; ``shares``: how probable each label is, where the
        engine can tell; ``rule`` selects the verdict. A ``doubt`` is for a person."""
        selection = select(ticket, answers, min_verdict_agreement, rule)
        why, verdict, candidates = selection.manual_review, selection.verdict, answers.candidates
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
        row = {
            "verdict": verdict,
            "by": "model",
            "reason": selection.reason,
            "agreement": round(selection.vote_strength, 6),
            "probability": probability,
            "rule": find_cited_rule(selection.reason),
            "margin": None,
            "review": bool(why),
            "why": why,
        }
        return self._finish(row, ticket, doubt)

    def write_ruled(self, ticket: Ticket, ruling: Ruling, doubt: str = "") -> dict[str, Any]:
        """Write how rules judge a ticket as code, which gave the ``ruling``: with the rule that
        gives the verdict, or why none does. A ``doubt`` is for a person."""
        is_decided = ruling.verdict is not None
        said = self.code.explain(ruling, ticket) if self.code and ruling is not NO_TEXT else BLANK
        row = {
            "verdict": ruling.verdict,
            "by": "rules",
            "reason": said if is_decided else "",
            "agreement": float(is_decided),
            "probability": None,
            "rule": ruling.rule,
            "margin": measure_margin(ruling, HEADLINE_KEY),
            "review": not is_decided,
            "why": "" if is_decided else said,
        }
        return self._finish(row, ticket, doubt)

    def _finish(self, row: Mapping[str, Any], ticket: Ticket, doubt: str) -> dict[str, Any]:
        """Return the row with the step of the guidance, whether its rule is provisional, and who
        decides, ``STAGEB`` or ``PERSON``, by a promise that holds here; None where nothing is
        promised."""
        guidance, promise = self.guidance[ticket.mission], self.promises.get(ticket.mission)
        rule = guidance.rule(row["rule"])
        is_provisional = rule is not None and rule.is_provisional
        row = {**row, "guidance_step": guidance.step, "provisional": is_provisional}
        row = send_to_review(row, doubt)
        if promise is None:
            return {**row, "decides": None}
        if row["review"]:
            return {**row, "decides": PERSON}
        missing = find_missing_fields(promise.told, reading(ticket), by_code=True)
        if not missing and promise.decides(row["verdict"], *find_decider(row)):
            return {**row, "decides": STAGEB}
        why = "not decided alone" + f": no {', '.join(missing)}" * bool(missing)
        return {**send_to_review(row, why), "decides": PERSON}

    def describe_promises(self) -> Iterator[str]:
        """Say of each mission for which something was promised whether that holds, a line each."""
        yield from describe_promises(self.guidance, self.promises)

    def add_counts(self, counts: Counts, rows: Sequence[Mapping[str, Any]]) -> Counts:
        """Return ``counts`` with further rows."""
        found = {mission: dict(of) for mission, of in counts.items()}
        for each in rows:
            labels = self.guidance[each["mission"]].labels
            of = found.setdefault(each["mission"], dict.fromkeys((*labels, *TAKEN), 0))
            of[each["verdict"] or "none"] += 1
            of["review"] += each["review"]
            of["model"] += each["by"] == "model"
        return found


def count_asked(counts: Counts) -> int:
    """Tickets that the model was asked."""
    return sum(of["model"] for of in counts.values())
