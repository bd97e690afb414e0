"""Edits as a model proposes them, read strictly. Answers to instruct texts are rules, one a line;
what models put around them is forgiven, JSON included.

The answer is untrusted text. Nothing in it is executed, nothing in it raises, and whatever cannot
be used is kept with the reason why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stageb.engines.protocol import Completion
from stageb.guidance.config import ReflectionConfig
from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.edits import apply, named
from stageb.guidance.rules.evidence import Clue
from stageb.guidance.rules.prompts import Case, ReflectionInput, Words, case_name, clue_text
from stageb.guidance.rules.word_lists import find_deciding
from stageb.guidance.words.labels import has_labels
from stageb.guidance.words.texts import find_copied, one_line
from stageb.guidance.words.types import HEADLINE_KEY, Guidance, Operation, Proposal, Refusal
from stageb.untrusted import strict_json
from stageb.untrusted.clean_text import text_fault

MAX_ANSWER_BYTES = 64 * 1024
MAX_RATIONALE_CHARS = 200

_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*)\n[ \t]*```", re.DOTALL)
# before a rule on its line
_MARKS = re.compile(r"^(?:[-*•#>\s\"'`(]+|\(?\d{1,2}[.):]\s+|[GR]\d+\s*[.:)]\s*)+")
_QUOTES = re.compile('["*`“”]')  # that models put around words, and whole rules
_LINE = re.compile(r"\[(\d{1,3})\]")  # of the evidence
_FIELDS = {  # what each operation must hold, beside its op and evidence; a rationale is welcome
    "add": {"text"},
    "update": {"key", "text"},
    "merge": {"merged_from", "text"},
    "remove": {"key"},
}


class _UnusableError(Exception):
    """Why an operation, or a whole answer, cannot be used."""


def parse_proposal(
    text: str,
    shown: ReflectionInput,
    guidance: Guidance,
    config: ReflectionConfig,
    words: Words,
    index: int,
) -> Proposal:
    """Parse answer ``index`` of a bundle, to a prompt that showed ``shown`` and ``guidance``.

    Operations are taken in their order; one that touches a rule which an earlier one touches is
    refused.
    """
    cases = shown.cases
    seen = tuple(case.ticket.key for case in cases)
    try:
        if len(text.encode("utf-8", "replace")) > MAX_ANSWER_BYTES:
            raise _UnusableError(f"longer than {MAX_ANSWER_BYTES} bytes")
        items = _find_rules(text, shown, words) if words.instruct else _items(text)
    except _UnusableError as refused:
        return Proposal(index, text, (), (Refusal(text, str(refused)),), seen)
    kept: list[Operation] = []
    refusals: list[Refusal] = []
    for position, item in enumerate(items):
        try:
            if position >= config.max_operations:
                raise _UnusableError(f"more operations than {config.max_operations}")
            operation = _expand_lines(_operation(item, cases), shown.evidence.clues, words)
            _check_rules(operation, guidance, kept)
            if operation.op != "remove":
                _check_text(operation, cases, guidance, kept, config, words)
            kept.append(operation)
        except _UnusableError as refused:
            refusals.append(Refusal(json.dumps(item, ensure_ascii=False), str(refused)))
    return Proposal(
        index, text, (*kept, *_turn_headline(kept, guidance, words)), tuple(refusals), seen
    )


def _turn_headline(kept: Sequence[Operation], guidance: Guidance, words: Words) -> list[Operation]:
    """Turn the headline into its other form if, after the edit, all rules would give the verdict
    that it gives already: they would say nothing, and a model that passes whatever no rule of "Fail
    if ..." names would contradict it. A model that was not taught to judge by rules alone may still
    have something to say under a headline, so that stands."""
    defaults = {text: verdict for verdict, text in words.headlines.items()}
    headline = guidance.rule(HEADLINE_KEY)
    if not kept or words.instruct or has_labels(guidance.labels):
        return []
    if not headline or headline.is_fixed or headline.text not in defaults:
        return []
    if HEADLINE_KEY in (operation.key for operation in kept):
        return []
    verdict = defaults[headline.text]
    begin = words.verdicts[verdict].casefold()
    rules = find_deciding(apply(guidance, kept).rules)
    if not rules or not all(rule.text.casefold().startswith(begin) for rule in rules):
        return []
    (other,) = defaults.keys() - {headline.text}
    return [Operation("update", HEADLINE_KEY, (), other, "", kept[0].evidence)]


def refuse_unfinished(index: int, answer: Completion) -> Proposal | None:
    """Return the proposal, refused, of an answer whose thinking was never closed; None for any
    other answer."""
    if answer.text or not answer.thinking:
        return None
    why = "thinking never closed: raise reflection.max_new_tokens"
    return Proposal(index, answer.text, (), (Refusal(answer.thinking, why),))


def _items(text: str) -> list[Any]:
    """Parse the raw operations of an answer, at least one."""
    fenced = _FENCE.fullmatch(text.strip())
    try:
        answer = strict_json.loads(fenced[1] if fenced else text.strip())
    except ValueError as error:
        raise _UnusableError(f"not one JSON object: {error}") from None
    if (
        not isinstance(answer, dict)
        or set(answer) != {"operations"}
        or not isinstance(answer["operations"], list)
    ):
        raise _UnusableError('not an object that holds "operations", a list, and nothing else')
    if not answer["operations"]:
        raise _UnusableError("no operations")
    return answer["operations"]


def _find_rules(text: str, shown: ReflectionInput, words: Words) -> list[Any]:
    """Find the rules in an answer to instruct texts, one or more, as raw operations that should
    turn all wrong cases: new rules, or one in the place of the rule that the answer is asked to
    mend."""
    fenced = re.search(r"```\w*[ \t]*\n(.*?)(?:```|\Z)", text, re.DOTALL)
    body = (fenced[1] if fenced else text).strip()
    try:
        lines = _list_texts(strict_json.loads(body))
    except ValueError:
        lines = body.splitlines()
    rules = [_QUOTES.sub("", _MARKS.sub("", line)).rstrip(" ';,") for line in lines]
    begins = re.compile("|".join(map(re.escape, words.verdicts.values())), re.IGNORECASE)
    rules = [rule for rule in dict.fromkeys(rules) if begins.match(rule)]
    if not rules:
        raise _UnusableError("no line begins with a verdict")
    names = [case_name(place) for place, case in enumerate(shown.cases) if not case.right]
    form = {"op": "update", "key": shown.rule} if shown.rule else {"op": "add"}
    return [{**form, "text": rule, "evidence": names} for rule in rules]


def _list_texts(answer: Any) -> list[str]:
    """List the rules that JSON of any usual shape holds."""
    if isinstance(answer, str):
        return answer.splitlines()
    if isinstance(answer, dict):
        own: Any = next(
            (answer[name] for name in ("text", "rule", "operations", "rules") if name in answer), []
        )
        return _list_texts(own)
    return (
        [text for each in answer for text in _list_texts(each)] if isinstance(answer, list) else []
    )


def _operation(item: Any, cases: Sequence[Case]) -> Operation:
    """Read the operation that ``item`` writes down, its fields of the right names and types."""
    if not isinstance(item, dict):
        raise _UnusableError("not an object")
    op = item.get("op")
    if not isinstance(op, str) or op not in _FIELDS:
        raise _UnusableError(f"op is none of {', '.join(_FIELDS)}")
    for name in item:
        if name not in _FIELDS[op] | {"op", "evidence", "rationale"}:
            raise _UnusableError(f"{op} takes no field {one_line(name, 40)!r}")
    for name in sorted(_FIELDS[op]):
        if name not in item:
            raise _UnusableError(f"{op} without {name}")
    return Operation(
        op=op,  # type: ignore[arg-type]  # one of _FIELDS
        key=_string(item, "key") if "key" in item else None,
        merged_from=_strings(item, "merged_from") if "merged_from" in item else (),
        text=_string(item, "text") if "text" in item else "",
        rationale=_string(item, "rationale") if "rationale" in item else "",
        evidence=_evidence(item, cases),
    )


def _expand_lines(operation: Operation, clues: Sequence[Clue], words: Words) -> Operation:
    """Put the words of counted lines in the places of their numbers, and their counts into the
    rationale."""

    def find_clue(number: re.Match[str]) -> Clue:
        if not 1 <= int(number[1]) <= len(clues):
            raise _UnusableError(f"no counted line {number[0]}: there are {len(clues)}")
        return clues[int(number[1]) - 1]

    def write(number: re.Match[str]) -> str:
        return clue_text(find_clue(number).conditions, words)

    def cite(number: re.Match[str]) -> str:
        clue = find_clue(number)
        return words.cited.format(text=write(number), wrong=clue.wrong, right=clue.right)

    text, rationale = operation.text, operation.rationale
    if clues:  # otherwise brackets are a ticket's own
        text, rationale = _LINE.sub(write, text), _LINE.sub(cite, rationale)
    text = _clean(text) if operation.op != "remove" else ""
    return replace(operation, text=text, rationale=one_line(rationale, MAX_RATIONALE_CHARS))


def _string(item: dict[str, Any], name: str) -> str:
    if not isinstance(item[name], str):
        raise _UnusableError(f"{name} is not a text")
    return str(item[name])


def _strings(item: dict[str, Any], name: str) -> tuple[str, ...]:
    values = item[name]
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise _UnusableError(f"{name} is not a list of texts")
    return tuple(values)


def _clean(text: str) -> str:
    """Return a rule's text with its white space made plain."""
    fault = text_fault(text)
    if fault:
        raise _UnusableError(f"text: {fault}")
    return " ".join(text.split())


def _evidence(item: dict[str, Any], cases: Sequence[Case]) -> tuple[str, ...]:
    """List the ticket_keys of the cases that the operation should turn, each once."""
    if not item.get("evidence"):
        raise _UnusableError("no evidence")
    keys = {case_name(position): case.ticket.key for position, case in enumerate(cases)}
    for name in _strings(item, "evidence"):
        if name not in keys:
            raise _UnusableError(f"evidence: no case {one_line(name, 40)!r} in the prompt")
    return tuple(dict.fromkeys(keys[name] for name in item["evidence"]))


def _check_rules(operation: Operation, guidance: Guidance, kept: Sequence[Operation]) -> None:
    """Refuse an operation on rules that it may not touch."""
    touched = {key for earlier in kept for key in named(earlier)}
    for key in named(operation):
        rule = guidance.rule(key)
        if rule is None:
            raise _UnusableError(f"no rule {one_line(key, 40)!r}")
        if rule.is_fixed:
            raise _UnusableError(f"{key} is fixed")
        if key == HEADLINE_KEY and operation.op != "update":
            raise _UnusableError(f"{HEADLINE_KEY} is never removed")
        if key in touched:
            raise _UnusableError(f"an earlier operation touches {key}")
    if operation.op == "merge" and len(set(operation.merged_from)) < max(
        2, len(operation.merged_from)
    ):
        raise _UnusableError("merge needs two or more different rules")


def _check_text(
    operation: Operation,
    cases: Sequence[Case],
    guidance: Guidance,
    kept: Sequence[Operation],
    config: ReflectionConfig,
    words: Words,
) -> None:
    """Refuse an operation whose text may not become a rule."""
    text = operation.text
    if len(text) > config.max_rule_chars:
        raise _UnusableError(f"text of {len(text)} characters, at most {config.max_rule_chars}")
    if not words.verdict_wording.search(text):
        raise _UnusableError("text without a verdict")
    run = find_copied(text, (piece for case in cases for piece in reading(case.ticket).texts))
    if run:
        raise _UnusableError(f"text copied from a case: {run}")
    # an add moves the rule to where it decides before others
    moves = operation.op == "add" and has_labels(guidance.labels)
    for rule in guidance.rules:
        if rule.text == text and rule.key not in operation.merged_from and not moves:
            raise _UnusableError(f"no change: {rule.key} has that text")
    if any(earlier.text == text for earlier in kept):
        raise _UnusableError("no change: an earlier operation writes that text")
