"""Proposers that stand in for the model, as functions for the scripted engine: ``statistics`` makes
rules of the evidence in a reflection's prompt, ``idle`` makes rules that change nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import log

from lab.bench.learning.clues import says
from lab.bench.learning.method import ENGLISH
from stageb.engines.protocol import Decode, Prompt
from stageb.guidance.rules.conditions import compile_expression
from stageb.guidance.rules.parse import RuleCode, parse_rule
from stageb.guidance.rules.value_types import Reading, read_summaries
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.words.types import Ticket
from stageb.seeds import stream, uniform

NEXT = 0.25  # by how much each rank of the evidence is drawn less often than the one before it
NAMED = 3  # cases that an answer names

_COUNTED = re.compile(r"^Counted in \d+ wrong that should (pass|fail), ", re.MULTILINE)
_CLUE = re.compile(r"^\[\d+\] \d+ to \d+: (.+)$", re.MULTILINE)
_WRONG = re.compile(r"^Wrong or unsure.*", re.MULTILINE | re.DOTALL)
_CASE = re.compile(r"^(T\d+)\. (.*)$", re.MULTILINE)
_REASON = re.compile(r" => .*$")


def statistics(prompt: Prompt, decode: Decode, key: int) -> str:
    """A reflection answer that a clue of the evidence makes up: ``Fail if CLUE.`` or ``Pass if
    CLUE.``; no operation where there is no evidence. The key draws the rank, the first ones most
    often. Named are, as by the shipped model, three wrong cases that meet the clue."""
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
    """A reflection answer whose rule speaks of something that no ticket has."""
    text = f"Fail if dunlin berth is osprey {stream('idle', key) % 10_000}."
    operation = {"op": "add", "text": text, "rationale": "it changes nothing", "evidence": ["T1"]}
    return json.dumps({"operations": [operation]})
