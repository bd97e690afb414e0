"""Reasons on demand (``sampler.reasons: wrong``): whose answers give one once verdicts are chosen, and the records then.

Of a ticket that is judged wrong, reflection reads why the chosen answer judged so, and an audit's files say it; all other
answers end with their verdicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stageb.guidance.config import LoopConfig
from stageb.guidance.questions import Dialogue, WriteReasons
from stageb.guidance.types import Candidate, Guidance, Record, Round


def reads_reasons(batch: Round, config: LoopConfig) -> bool:
    """Whether anybody reads why tickets of a round are judged wrong."""
    return batch.learns or config.jump_reflection


def add_reasons(batch: Round, records: Sequence[Record], guidance: Guidance) -> Dialogue[list[Record]]:
    """The records of a round with the reasons of chosen answers that are wrong, or that others disagree with, and may have
    one: those whose ``openings`` are known. No record keeps these."""
    found = [replace(each, answers=replace(each.answers, openings=())) for each in records]
    places, asked = [], []
    for place, (position, record) in enumerate(zip(batch.tickets, records, strict=True)):
        chosen = record.selection.selected_candidate
        if record.answers.openings and chosen is not None and not record.is_right:
            places.append(place)
            asked.append((position, record.answers.candidates[chosen], record.answers.openings[chosen]))
    if asked:
        explained: list[Candidate] = yield WriteReasons(guidance, batch.names, tuple(asked))
        for place, candidate in zip(places, explained, strict=True):
            found[place] = _explain(found[place], candidate)
    return found


def _explain(record: Record, candidate: Candidate) -> Record:
    """A record whose chosen answer is now ``candidate``."""
    candidates = tuple(candidate if each.index == candidate.index else each for each in record.answers.candidates)
    selection = replace(record.selection, reason=candidate.reason)
    return replace(record, answers=replace(record.answers, candidates=candidates), selection=selection)
