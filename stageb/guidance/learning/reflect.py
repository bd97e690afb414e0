"""From judged tickets to proposed edits: each answer looks at one kind of error, beside what must
not break.

A ticket is *right* when its verdict is its label and its candidates agree. Everything else, wrong
or unsure, is what an answer should turn. A *kind* of error is a label and, where reasons name the
rule that decided, that rule: then the answer is asked to mend it.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from stageb.engines.protocol import Completion, Decode, Request
from stageb.guidance.config import ReflectionConfig
from stageb.guidance.judging.answers import find_cited_rule
from stageb.guidance.judging.questions import CountTokens, Dialogue, SampleAnswers
from stageb.guidance.learning.proposals import parse_proposal, refuse_unfinished
from stageb.guidance.learning.proposer import Lesson, why_ineligible
from stageb.guidance.rules.candidates import SearchSpace
from stageb.guidance.rules.evidence import Evidence, find_evidence
from stageb.guidance.rules.prompts import (
    Case,
    ReflectionInput,
    Words,
    ordered_cases,
    reflection_prompt,
    rule_opening,
)
from stageb.guidance.words.types import Guidance, Proposal, Record, Verdict
from stageb.seeds import shuffled, stream, uniform

MENDING = 0.5  # share of the answers that look at errors of a rule which are asked to mend it
FEWEST_TO_MEND = 2  # errors of one rule, for an answer to be asked to mend it

ErrorKind = tuple[Verdict, str]
"""The right verdict of the errors, and the key of the rule that decided them; empty: any rule, or
none."""


def case_of(record: Record) -> Case:
    """Return a record as reflection sees it."""
    reason = record.selection.reason or (None if record.selection.verdict else "")
    return Case(record.ticket, record.is_right, reason)


def reflect(
    judged: Sequence[Case],
    guidance: Guidance,
    count_tokens: CountTokens,
    config: ReflectionConfig,
    words: Words,
    key: int,
) -> Dialogue[Lesson]:
    """Sample ``config.num_proposals`` answers to what was judged, and parse them; none where
    nothing can be learnt from it. ``key`` names their streams. ``judged`` holds a ticket once."""
    if why_ineligible(judged):
        return Lesson()
    shown, asked = fit_cases(Study(judged, guidance, config), count_tokens, words, key)
    sampled: Sequence[tuple[Completion]] = yield SampleAnswers(tuple(asked))
    answers = [completion for (completion,) in sampled]
    proposals = [
        refuse_unfinished(index, answer)
        or parse_proposal(request.begin + answer.text, each, guidance, config, words, index)
        for index, (each, request, answer) in enumerate(zip(shown, asked, answers, strict=True))
    ]
    read = sum(count_tokens([request.prompt for request in asked]))
    return Lesson(tuple(shown), tuple(proposals), read + sum(answer.tokens for answer in answers))


@dataclass(frozen=True)
class Study:
    """The subject of a reflection, and its guidance."""

    judged: Sequence[Case]
    guidance: Guidance
    config: ReflectionConfig

    def count(self, kind: ErrorKind) -> Evidence:
        """Count what sets the errors of a kind apart."""
        errors, contrast = of_kind(self.judged, kind, self.guidance)
        won, lost = (
            max((case.weight for case in cases), default=1.0) for cases in (errors, contrast)
        )
        # share of wrong tickets from which on a rule mends as much as it breaks
        pure = lost / (won + lost)
        wrong, right = ([case.ticket for case in cases] for cases in (errors, contrast))
        return find_evidence(
            wrong, right, self.config.evidence, pure, SearchSpace(self.config.arithmetic)
        )


def fit_cases(
    study: Study, count_tokens: CountTokens, words: Words, key: int
) -> tuple[list[ReflectionInput], list[Request]]:
    """Return what each answer sees, and its request. Where a prompt exceeds ``max_prompt_tokens``,
    show fewer cases, but one at least."""
    judged, guidance, config = study.judged, study.guidance, study.config
    most, counted = config.max_cases, dict[ErrorKind, Evidence]()
    while True:
        shown = [
            choose_cases(judged, guidance, most, stream(key, "cases", index))
            for index in range(config.num_proposals)
        ]
        counted |= {
            kind: study.count(kind) for kind in {kind for kind, _ in shown} - counted.keys()
        }
        sights = [ReflectionInput(tuple(cases), counted[kind], kind[1]) for kind, cases in shown]
        asked = requests(sights, guidance, config, words, key)
        longest = max(count_tokens([request.prompt for request in asked]))
        if longest <= config.max_prompt_tokens or most == 1:
            return sights, asked
        most = max(1, most * config.max_prompt_tokens // longest)


def requests(
    shown: Sequence[ReflectionInput],
    guidance: Guidance,
    config: ReflectionConfig,
    words: Words,
    key: int,
) -> list[Request]:
    """Make one request with one sample for each answer. If the model's verdicts are begun in its
    place, so are its rules; one alone ends with its line."""
    begun = bool(words.instruct and words.begin)
    stop = ("\n",) if begun and config.max_operations == 1 else ()
    decode = Decode(
        config.temperature, config.top_p, max_new_tokens=config.max_new_tokens, stop=stop
    )
    return [
        Request(
            reflection_prompt(each, guidance, words, config.max_operations),
            decode,
            (stream(key, "answer", index),),
            rule_opening(each, words) if begun else "",
        )
        for index, each in enumerate(shown)
    ]


def choose_cases(
    judged: Sequence[Case], guidance: Guidance, most: int, key: int
) -> tuple[ErrorKind, list[Case]]:
    """Choose a kind of error, and at most ``most`` cases that show it, in the order in which a
    prompt names them.

    A label is drawn with a probability proportional to its share of the errors, weighed. Half of
    the answers that meet an error of a rule look at the errors of that rule alone, if it is known
    what that rule decides rightly. Half of the cases are errors; the others are rightly judged
    tickets of other labels, which a careless rule would turn; where these are too few, further
    errors take their places. The stream ``key`` decides every draw; none is made twice. No kind and
    no case where nothing is wrong.
    """
    wrong = [case for case in judged if not case.right]
    if not wrong:
        return ("pass", ""), []
    ends = list(accumulate(case.weight for case in wrong))
    drawn = wrong[min(bisect(ends, uniform(stream(key, "kind"), 0) * ends[-1]), len(wrong) - 1)]
    kind: ErrorKind = (drawn.ticket.label, deciding_rule(drawn, guidance))
    errors, contrast = of_kind(judged, kind, guidance)
    if (
        len(errors) < FEWEST_TO_MEND
        or not _is_known(judged)
        or uniform(stream(key, "mend"), 0) >= MENDING
    ):
        kind = (drawn.ticket.label, "")
        errors, contrast = of_kind(judged, kind, guidance)
    errors, contrast = (
        shuffled(errors, stream(key, "errors")),
        shuffled(contrast, stream(key, "right")),
    )
    first = errors[: max(1, most // 2)]
    chosen = first + contrast[: most - len(first)]
    chosen += errors[len(first) :][: most - len(chosen)]
    return kind, ordered_cases(chosen)


def of_kind(
    judged: Sequence[Case], kind: ErrorKind, guidance: Guidance
) -> tuple[list[Case], list[Case]]:
    """Return the errors of a kind, and the rightly judged tickets of other labels; where the kind
    names a rule, those that it decided alone."""
    label, rule = kind
    there = [case for case in judged if not rule or deciding_rule(case, guidance) == rule]
    errors = [case for case in there if not case.right and case.ticket.label == label]
    return errors, [case for case in there if case.right and case.ticket.label != label]


def _is_known(judged: Sequence[Case]) -> bool:
    """Whether reasons say what rules decide rightly: an answer that mends one must not break
    that."""
    reasons = [case.reason for case in judged if case.right]
    return not reasons or any(reason is not None for reason in reasons)


def deciding_rule(case: Case, guidance: Guidance) -> str:
    """Return the key of the rule that the reason of a case names last; empty if the guidance has no
    such rule that may change."""
    rule = guidance.rule(find_cited_rule(case.reason or ""))
    return rule.key if rule and not rule.is_fixed else ""


def merge_equal(proposals: Sequence[Proposal]) -> list[tuple[Proposal, int]]:
    """List each different edit once, in the order of first appearance, with the number of proposals
    that hold it.

    Proposals without operations are left out. Rationales and evidence make no difference, nor does
    the order of operations.
    """
    first: dict[object, Proposal] = {}
    count: dict[object, int] = {}
    for proposal in proposals:
        edit = frozenset(
            (each.op, each.key, frozenset(each.merged_from), each.text)
            for each in proposal.operations
        )
        if edit:
            first.setdefault(edit, proposal)
            count[edit] = count.get(edit, 0) + 1
    return [(proposal, count[edit]) for edit, proposal in first.items()]
