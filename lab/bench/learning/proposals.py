"""Edits from the model, as this loop asks for them: the one prompt that the shipped model was
trained to answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lab.bench.learning.method import ENGLISH
from stageb.engines.protocol import Engine, Request
from stageb.guidance.config import ReflectionConfig
from stageb.guidance.learning.proposals import parse_proposal
from stageb.guidance.learning.proposer import why_ineligible
from stageb.guidance.learning.reflect import Study, fit_cases, merge_equal, of_kind, requests
from stageb.guidance.rules.candidates import PLAIN, SearchSpace
from stageb.guidance.rules.evidence import find_evidence
from stageb.guidance.rules.prompts import Case, ReflectionInput
from stageb.guidance.words.types import HEADLINE_KEY, Guidance, Proposal, Rule

# as in configs/guidance/tickets.yaml, but that evidence is what this loop adds
SETTINGS = ReflectionConfig(max_prompt_tokens=2000, max_new_tokens=120, temperature=0.9, evidence=0)
CLUES = ReflectionConfig.evidence  # lines of evidence that a peer is given where it is given some


@dataclass(frozen=True, slots=True)
class Counting:
    """The cases that evidence is counted over, and the conditions that its lines may have."""

    cases: Sequence[Case] = ()  # none: no evidence is shown
    space: SearchSpace = PLAIN


def propose(
    cases: Sequence[Case],
    guidance: Guidance,
    engine: Engine,
    answers: int,
    key: int,
    counting: Counting = Counting(),
) -> tuple[list[Proposal], int]:
    """The distinct proposals among ``answers`` answers to these cases, the most frequent first; and
    how many answers were asked for: none where every case is right. Where ``counting`` has cases,
    evidence counted over them is shown too."""
    if why_ineligible(cases):
        return [], 0
    shown, asked = _shown(cases, guidance, engine, answers, key, counting)
    given = [
        parse_proposal(completion.text, each, guidance, SETTINGS, ENGLISH, index)
        for index, (each, (completion,)) in enumerate(
            zip(shown, engine.generate(asked), strict=True)
        )
    ]
    return [proposal for proposal, _ in sorted(merge_equal(given), key=lambda pair: -pair[1])], len(
        given
    )


def _shown(
    cases: Sequence[Case],
    guidance: Guidance,
    engine: Engine,
    answers: int,
    key: int,
    counting: Counting,
) -> tuple[list[ReflectionInput], list[Request]]:
    """Return the input and the request of each answer: fewer cases where evidence needs their
    room."""
    config = replace(SETTINGS, num_proposals=answers)
    while True:
        shown, asked = fit_cases(Study(cases, guidance, config), engine.count_tokens, ENGLISH, key)
        if not counting.cases:
            return shown, asked
        shown = [_with_evidence(each, counting, guidance) for each in shown]
        asked = requests(shown, guidance, config, ENGLISH, key)
        longest = max(engine.count_tokens([request.prompt for request in asked]))
        if longest <= config.max_prompt_tokens or config.max_cases == 1:
            return shown, asked
        config = replace(config, max_cases=max(1, config.max_cases * 3 // 4))


def _with_evidence(
    shown: ReflectionInput, counting: Counting, guidance: Guidance
) -> ReflectionInput:
    """Add to an answer's input the counts of the kind of error that it looks at."""
    label = next(case.ticket.label for case in shown.cases if not case.right)
    errors, contrast = of_kind(counting.cases, (label, shown.rule), guidance)
    counts = find_evidence(
        [case.ticket for case in errors],
        [case.ticket for case in contrast],
        CLUES,
        space=counting.space,
    )
    return replace(shown, evidence=counts)


def parse_rules(mission: str, text: str) -> Guidance:
    """The guidance that ``prompts.rule_lines`` wrote down as ``text``."""
    rules = []
    for line in text.split("\n"):
        key, _, rule = line.partition(". ")
        rules.append(Rule(key, rule))
    assert rules and rules[0].key == HEADLINE_KEY, f"no guidance: {text!r}"
    return Guidance(mission, 0, tuple(rules), 1 + max(int(rule.key[1:]) for rule in rules))
