"""Edits from the model, as this loop asks for them: the one prompt that the shipped model was
trained to answer.

And two that stand in for the model, as functions for the scripted engine: ``statistics`` makes
rules of the evidence in that prompt, ``idle`` makes rules that change nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log

from lab.bench.learning.clues import says
from lab.bench.learning.method import ENGLISH
from stageb.engines.protocol import Decode, Engine, Prompt, Request
from stageb.guidance.config import ReflectionConfig
from stageb.guidance.learning.proposals import parse_proposal
from stageb.guidance.learning.proposer import why_ineligible
from stageb.guidance.learning.reflect import Study, fit_cases, merge_equal, of_kind, requests
from stageb.guidance.rules.conditions import compile_expression
from stageb.guidance.rules.evidence import find_evidence
from stageb.guidance.rules.evidence_forms import PLAIN, Forms
from stageb.guidance.rules.parse import RuleCode, parse_rule
from stageb.guidance.rules.prompts import Case, ReflectionInput
from stageb.guidance.rules.value_types import Reading, read_summaries
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.words.types import HEADLINE_KEY, Guidance, Proposal, Rule, Ticket
from stageb.seeds import stream, uniform

# as in configs/guidance/tickets.yaml, but that evidence is what this loop adds
SETTINGS = ReflectionConfig(max_prompt_tokens=2000, max_new_tokens=120, temperature=0.9, evidence=0)
CLUES = ReflectionConfig.evidence  # lines of evidence that a peer is given where it is given some
NEXT = 0.25  # by how much each rank of the evidence is drawn less often than the one before it
NAMED = 3  # cases that an answer names

_COUNTED = re.compile(r"^Counted in \d+ wrong that should (pass|fail), ", re.MULTILINE)
_CLUE = re.compile(r"^\[\d+\] \d+ to \d+: (.+)$", re.MULTILINE)
_WRONG = re.compile(r"^Wrong or unsure.*", re.MULTILINE | re.DOTALL)
_CASE = re.compile(r"^(T\d+)\. (.*)$", re.MULTILINE)
_REASON = re.compile(r" => .*$")


@dataclass(frozen=True, slots=True)
class Counting:
    """The cases that evidence is counted over, and the forms of its lines."""

    cases: Sequence[Case] = ()  # none: no evidence is shown
    forms: Forms = PLAIN


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
        forms=counting.forms,
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


def statistics(prompt: Prompt, decode: Decode, key: int) -> str:
    """A reflection answer that a clue of the evidence makes up: ``Fail if CLUE.`` or ``Pass if
    CLUE.``; no operation where there is no evidence. The key draws the rank, the first ones most
    often. Named are, as by the shipped model, three wrong cases that meet the clue. For the
    scripted engine."""
    clues, heading, wrong = (
        _CLUE.findall(prompt.user),
        _COUNTED.search(prompt.user),
        _WRONG.search(prompt.user),
    )
    if not (clues and heading and wrong):
        return json.dumps({"operations": []})
    # geometric, as far as there are clues
    share = uniform(stream("statistics", key), 0) * (1 - (1 - NEXT) ** len(clues))
    place = min(int(log(1 - share) / log(1 - NEXT)), len(clues) - 1)
    cases = {
        name: read_summaries(tuple(_REASON.sub("", text).split(" | ")))
        for name, text in _CASE.findall(wrong[0])
    }
    text = f"{heading[1].capitalize()} if {clues[place]}."
    named = [name for name, each in cases.items() if says(clues[place], each)]
    named = named or _met(text, cases) or list(cases)
    return json.dumps(
        {
            "operations": [
                {"op": "add", "text": text, "rationale": "counted", "evidence": named[:NAMED]}
            ]
        }
    )


def _met(text: str, cases: Mapping[str, Reading]) -> list[str]:
    """The cases that a rule speaks of by its code; none where their words alone do not tell how it
    reads."""
    texts = (
        "; ".join(f"{name}: {value}" for name, value in each.pairs.items())
        for each in cases.values()
    )
    tickets = [
        Ticket("", "", "pass", (("image_1", "; ".join((text, *each.texts))),))
        for text, each in zip(texts, cases.values(), strict=True)
    ]
    code = parse_rule(text, Vocabulary.of(tickets), ENGLISH)
    if not isinstance(code, RuleCode):
        return []
    holds = compile_expression(code.expression)
    return [name for name, each in cases.items() if holds(each)]


def idle(prompt: Prompt, decode: Decode, key: int) -> str:
    """A reflection answer whose rule speaks of something that no ticket has. For the scripted
    engine."""
    text = f"Fail if dunlin berth is osprey {stream('idle', key) % 10_000}."
    operation = {"op": "add", "text": text, "rationale": "it changes nothing", "evidence": ["T1"]}
    return json.dumps({"operations": [operation]})
