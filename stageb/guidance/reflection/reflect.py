"""From a bundle of records to proposed edits: each answer looks at one kind of error, beside what must not break.

A record is *right* when its verdict is its label and its candidates agree. Everything else, wrong or unsure, is what an
answer should turn. Records that were set aside teach nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from stageb.engines.protocol import Decode, Engine, Request
from stageb.guidance.config import ReflectionConfig
from stageb.guidance.prompts import Case, ordered_cases, reflection_prompt
from stageb.guidance.reflection.proposals import parse_proposal
from stageb.guidance.types import Guidance, Proposal, Record
from stageb.seeds import shuffled, stream, uniform

__all__ = [
    "Reflection",
    "case_sets",
    "distinct",
    "draw_cases",
    "eligible",
    "fitting",
    "is_right",
    "judged_again",
    "parse_proposal",
    "reflect",
    "requests",
]


def is_right(record: Record) -> bool:
    """Whether a record needs no turning."""
    return record.selection.label_match and not record.selection.low_agreement


def eligible(records: Sequence[Record]) -> str:
    """An empty string when the bundle can teach, otherwise why it cannot."""
    shown = _shown(records)
    if not shown:
        return "every ticket was set aside" if records else "no records"
    return "all right with high agreement" if all(is_right(record) for record in shown) else ""


@dataclass(frozen=True, slots=True)
class Reflection:
    """What reflecting on a bundle brought."""

    proposals: tuple[Proposal, ...] = ()
    tokens: int = 0  # read and made


def reflect(
    bundle: Sequence[Record], guidance: Guidance, engine: Engine, config: ReflectionConfig, language: str, key: int
) -> Reflection:
    """``config.num_proposals`` answers to the bundle, parsed; none where it is not eligible. ``key`` names its streams.

    Raises what the engine raises.
    """
    if eligible(bundle):
        return Reflection()
    shown, asked = fitting(bundle, guidance, engine, config, language, key)
    answers = [completion for (completion,) in engine.generate(asked)]
    proposals = tuple(
        parse_proposal(answer.text, cases, guidance, config, language, index)
        for index, (cases, answer) in enumerate(zip(shown, answers, strict=True))
    )
    read = sum(engine.count_tokens([request.prompt for request in asked]))
    return Reflection(proposals, read + sum(answer.tokens for answer in answers))


def fitting(
    bundle: Sequence[Record], guidance: Guidance, engine: Engine, config: ReflectionConfig, language: str, key: int
) -> tuple[list[list[Case]], list[Request]]:
    """Cases and request of each answer: fewer cases, but one at least, where a prompt exceeds ``max_prompt_tokens``."""
    most = config.max_cases
    while True:
        shown = case_sets(bundle, config.num_proposals, most, key)
        asked = requests(shown, guidance, config, language, key)
        longest = max(engine.count_tokens([request.prompt for request in asked]))
        if longest <= config.max_prompt_tokens or most == 1:
            return shown, asked
        most = max(1, min(most - 1, most * config.max_prompt_tokens // longest))


def case_sets(bundle: Sequence[Record], num_proposals: int, max_cases: int, key: int) -> list[list[Case]]:
    """The cases that each answer sees, a draw of its own for each."""
    return [draw_cases(bundle, max_cases, stream(key, "cases", index)) for index in range(num_proposals)]


def requests(
    shown: Sequence[Sequence[Case]], guidance: Guidance, config: ReflectionConfig, language: str, key: int
) -> list[Request]:
    """One request with one sample for each set of cases."""
    decode = Decode(temperature=config.temperature, top_p=config.top_p, max_new_tokens=config.max_new_tokens)
    return [
        Request(reflection_prompt(cases, guidance, language, config.max_operations), decode, (stream(key, "answer", index),))
        for index, cases in enumerate(shown)
    ]


def judged_again(cases: Sequence[Record], merits: Mapping[str, float], bundle: Collection[str]) -> list[Record]:
    """What of ``cases`` can be shown once more as an edited guidance judges them, ``merits`` by ticket_key: what was turned
    is right now. ``bundle`` holds the ticket_keys of the bundle, whose tickets no edit made from them is tested on.

    The reason of a wrong record stays true as long as it stays wrong. What the edit has broken is left out: why, its next
    rollout will say. So is what has no merit yet; and what is right now but not of the bundle: it is a case because it was
    judged wrong, and if answers saw it, edits would be tested on too few of the tickets that the last one mended.
    """
    again = []
    for record in cases:
        key = record.ticket.key
        right = merits.get(key, 0.0) > 0.5
        if right and not is_right(record):
            turned = replace(record.selection, verdict=record.ticket.label, label_match=True, low_agreement=False)
            record = replace(record, selection=turned)
        if key in merits and right == is_right(record) and (key in bundle or not right):
            again.append(record)
    return again


def draw_cases(records: Sequence[Record], max_cases: int, key: int) -> list[Case]:
    """At most ``max_cases`` cases that show one kind of error, in the order in which a prompt names them.

    The kind (tickets that should fail, or that should pass) is drawn with the shares that it has of the errors. Half of the
    cases are such errors; the others are rightly judged tickets of the opposite label, which a careless rule would turn;
    where these are too few, further errors take their places. The stream ``key`` decides every draw; none is made twice.
    """
    shown = _shown(records)
    wrong = [record for record in shown if not is_right(record)]
    if not wrong:
        return []
    label = wrong[int(uniform(stream(key, "kind"), 0) * len(wrong))].ticket.label
    errors = [record for record in wrong if record.ticket.label == label]
    contrast = [record for record in shown if is_right(record) and record.ticket.label != label]
    errors, contrast = shuffled(errors, stream(key, "errors")), shuffled(contrast, stream(key, "right"))
    first = errors[: max(1, max_cases // 2)]
    chosen = first + contrast[: max_cases - len(first)]
    chosen += errors[len(first) :][: max_cases - len(chosen)]
    return ordered_cases([Case(record.ticket, is_right(record), record.selection.reason) for record in chosen])


def distinct(proposals: Sequence[Proposal]) -> list[tuple[Proposal, int]]:
    """Each different edit once, in the order of first appearance, with how many proposals hold it.

    Proposals without operations are left out. Rationales and evidence make no difference, nor does the order of operations.
    """
    first: dict[object, Proposal] = {}
    count: dict[object, int] = {}
    for proposal in proposals:
        edit = frozenset((each.op, each.key, frozenset(each.merged_from), each.text) for each in proposal.operations)
        if edit:
            first.setdefault(edit, proposal)
            count[edit] = count.get(edit, 0) + 1
    return [(proposal, count[edit]) for edit, proposal in first.items()]


def _shown(records: Sequence[Record]) -> list[Record]:
    """The records that were rolled out; of a ticket that comes twice (a bundle may span epochs) the later one."""
    latest = {record.ticket.key: record for record in records if not record.answers.set_aside}
    return list(latest.values())
