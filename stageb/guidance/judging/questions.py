"""Questions of reflection and the gate to the model, for verdicts, samples and reasons.

A function that needs the model is a generator: it yields a question, is sent the answer, and
returns its result. So it is a function of its arguments and of the answers alone; it knows neither
ranks nor engines, and a test may answer from a list.

    gains = yield from judge.gains([(edit.guidance, tickets)])
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from stageb.engines.protocol import Prompt, Request
from stageb.guidance.words.types import Candidate, Guidance, Record, Round

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JudgeTickets:
    """Asks for verdicts under each guidance. The answer: a ``Judgement`` for each position, by
    guidance."""

    asked: tuple[tuple[Guidance, tuple[int, ...]], ...]  # with positions of tickets


@dataclass(frozen=True, slots=True)
class SampleAnswers:
    """Asks for samples of the model that reflects. The answer: a ``Completion`` for each key, by
    request."""

    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class WriteReasons:
    """Asks for the reasons of verdicts. The answer: a ``Candidate`` for each position."""

    guidance: Guidance  # under which the verdicts were sampled
    names: tuple[str, int]  # of the streams of the verdicts (``Round.names``)
    # position of a ticket, each once, and its answer as begun
    asked: tuple[tuple[int, Candidate, tuple[int, ...]], ...]


Question: TypeAlias = JudgeTickets | SampleAnswers | WriteReasons

Dialogue: TypeAlias = Generator[Question, Any, T]
"""A generator that yields questions, is sent their answers, and returns a T."""

CountTokens = Callable[[Sequence[Prompt]], list[int]]
"""The number of tokens of each prompt, as the model that reflects counts them."""


def sample_together(dialogues: Sequence[Dialogue[T]]) -> Dialogue[list[T]]:
    """Run ``dialogues`` that only ask ``SampleAnswers`` side by side, their questions joined;
    return their results in order."""
    results: dict[int, T] = {}
    answers: dict[int, Any] = dict.fromkeys(range(len(dialogues)))
    while answers:
        asked: dict[int, Any] = {}
        for place, answer in answers.items():
            try:
                asked[place] = dialogues[place].send(answer)
            except StopIteration as end:
                results[place] = end.value
        requests = tuple(request for question in asked.values() for request in question.requests)
        sampled = iter((yield SampleAnswers(requests)) if requests else ())
        answers = {
            place: [next(sampled) for _ in question.requests] for place, question in asked.items()
        }
    return [results[place] for place in range(len(dialogues))]


def answer_all(steps: Dialogue[T], answer: Callable[[Any], Any]) -> T:
    """Run ``steps``, answer each question with ``answer``, and return their result. For tests, and
    trials without ranks."""
    try:
        question = next(steps)
        while True:
            question = steps.send(answer(question))
    except StopIteration as end:
        result: T = end.value
        return result


# Reasons on demand (``sampler.reasons: wrong``): written once verdicts are chosen, and put into the
# records.
#
# For a ticket that is judged wrong, reflection reads why the chosen answer judged so; all other
# answers end with their verdicts.


def add_reasons(
    batch: Round, records: Sequence[Record], guidance: Guidance
) -> Dialogue[list[Record]]:
    """Return the records of a round with the reasons of chosen answers that are wrong, or that
    others disagree with, and may have one: those whose ``openings`` are known. The records no
    longer hold these."""
    found = [replace(each, answers=replace(each.answers, openings=())) for each in records]
    places, asked = [], []
    for place, (position, record) in enumerate(zip(batch.tickets, records, strict=True)):
        chosen = record.selection.selected_candidate
        if record.answers.openings and chosen is not None and not record.is_right:
            places.append(place)
            asked.append(
                (position, record.answers.candidates[chosen], record.answers.openings[chosen])
            )
    if asked:
        explained: list[Candidate] = yield WriteReasons(guidance, batch.names, tuple(asked))
        for place, candidate in zip(places, explained, strict=True):
            found[place] = _explain(found[place], candidate)
    return found


def _explain(record: Record, candidate: Candidate) -> Record:
    """Return a record whose chosen answer is now ``candidate``."""
    candidates = tuple(
        candidate if each.index == candidate.index else each for each in record.answers.candidates
    )
    selection = replace(record.selection, reason=candidate.reason)
    return replace(
        record, answers=replace(record.answers, candidates=candidates), selection=selection
    )
