"""Edits from the model, as this loop asks for them: the one prompt that the shipped model was trained to answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from lab.bench.learning.method import LANGUAGE
from stageb.engines.protocol import Decode, Engine, Prompt
from stageb.guidance.config import ReflectionConfig
from stageb.guidance.reflection.edits import apply, named
from stageb.guidance.reflection.reflect import distinct, reflect
from stageb.guidance.types import HEADLINE_KEY, Guidance, Operation, Proposal, Record, Rule
from stageb.seeds import stream

SETTINGS = ReflectionConfig(
    max_prompt_tokens=2000, max_new_tokens=120, temperature=0.9
)  # as in configs/guidance/tickets.yaml


def propose(
    records: Sequence[Record], guidance: Guidance, engine: Engine, answers: int, key: int
) -> tuple[list[Proposal], int]:
    """The distinct proposals among ``answers`` answers to these records, the most frequent first; and how many answers were
    asked for: none where every record is right."""
    given = reflect(records, guidance, engine, replace(SETTINGS, num_proposals=answers), LANGUAGE, key).proposals
    return [proposal for proposal, _ in sorted(distinct(given), key=lambda pair: -pair[1])], len(given)


def together(guidance: Guidance, proposals: Sequence[Proposal]) -> Guidance:
    """The guidance after all proposals; left out is what clashes with an earlier one, or finds the guidance full."""
    kept: list[Operation] = []
    for operation in (operation for proposal in proposals for operation in proposal.operations):
        touched = {key for earlier in kept for key in named(earlier)}
        if not touched & {*named(operation)} and len(apply(guidance, [*kept, operation]).rules) <= SETTINGS.max_rules:
            kept.append(operation)
    return apply(guidance, kept)


def parse_rules(mission: str, text: str) -> Guidance:
    """The guidance that ``prompts.rule_lines`` wrote down as ``text``."""
    rules = []
    for line in text.split("\n"):
        key, _, rule = line.partition(". ")
        rules.append(Rule(key, rule))
    assert rules and rules[0].key == HEADLINE_KEY, f"no guidance: {text!r}"
    return Guidance(mission, 0, tuple(rules), 1 + max(int(rule.key[1:]) for rule in rules))


def idle(prompt: Prompt, decode: Decode, key: int) -> str:
    """A reflection answer whose rule speaks of something that no ticket has. For the scripted engine."""
    text = f"Fail if dunlin berth is osprey {stream('idle', key) % 10_000}."
    operation = {"op": "add", "text": text, "rationale": "it changes nothing", "evidence": ["T1"]}
    return json.dumps({"operations": [operation]})
