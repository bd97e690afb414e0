"""How answers to rollouts are sampled: whole, or the verdict first and the reason where it is wanted (``sampler.reasons``).

An answer's first line decides its verdict, and takes a few tokens; most of the others write a reason that nobody reads. A
verdict alone is an answer that stops at its first line break. Its reason goes on from the very tokens that were drawn, each
further one by the number that the answer's stream has for its place: so no verdict changes, and the whole is what would
have been sampled at once, but for the last bits of logits that are computed in another batch.

Where verdicts are begun in the model's place (``words.begin``) and the engine can weigh them, they are drawn by their
probabilities: a verdict alone decodes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

from stageb.engines.protocol import Completion, Engine, Prompt, Question, Request, Resumer, Scorer
from stageb.guidance.judging.answers import read_answer
from stageb.guidance.rules.prompts import REASON, Words, verdict_lines
from stageb.guidance.words.types import Calibration, Guidance, Ticket, Verdict
from stageb.seeds import stream, uniform

Ids = tuple[int, ...]


def sample_answers(
    requests: Sequence[Request], engine: Engine, words: Words, calibrations: Sequence[Calibration]
) -> list[tuple[Completion, ...]]:
    """Whole answers; ``calibrations`` are of the requests, in their order."""
    if not _is_drawn(engine, words):
        return engine.generate(requests)
    begun: list[Request] = []
    drawn: list[list[int]] = []  # for each request which of ``begun`` answers each key
    for request, verdicts in zip(requests, _draw_verdicts(requests, engine, words, calibrations), strict=True):
        places = {verdict: len(begun) + place for place, verdict in enumerate(dict.fromkeys(verdicts))}
        drawn.append([places[verdict] for verdict in verdicts])
        for verdict in places:
            keys = tuple(key for key, each in zip(request.keys, verdicts, strict=True) if each == verdict)
            begun.append(_begin_reason(replace(request, keys=keys), verdict, words))
    reasons = [iter(each) for each in engine.generate(begun)]
    return [tuple(_put_before(begun[place].begin, next(reasons[place])) for place in places) for places in drawn]


def sample_verdicts(
    requests: Sequence[Request], engine: Engine, words: Words, calibrations: Sequence[Calibration]
) -> list[tuple[Completion, ...]]:
    """Answers that end with their verdicts. One whose first line is no verdict is sampled whole, where the engine can go on
    with it: then what is wrong with it shows."""
    if _is_drawn(engine, words):
        lines = verdict_lines(words)
        return [
            tuple(Completion(lines[verdict], 0, "stop") for verdict in verdicts)
            for verdicts in _draw_verdicts(requests, engine, words, calibrations)
        ]
    stopping = [replace(each, decode=replace(each.decode, stop=(*each.decode.stop, "\n"))) for each in requests]
    answers = [list(each) for each in engine.generate(stopping)]
    if isinstance(engine, Resumer):
        unread = [
            (request, place, group)
            for request, group in zip(requests, answers, strict=True)
            for place, answer in enumerate(group)
            if _goes_on(answer.ids, request) and read_answer(answer, request.prompt, words, alone=True)[1] is None
        ]
        asked = [replace(request, keys=request.keys[place : place + 1]) for request, place, _ in unread]
        whole = engine.resume(asked, [(group[place].ids,) for _, place, group in unread])
        for (_, place, group), (answer,) in zip(unread, whole, strict=True):
            group[place] = replace(answer, ids=())
    return [tuple(group) for group in answers]


def sample_reasons(
    requests: Sequence[Request], begun: Sequence[tuple[Verdict | None, Ids]], engine: Engine, words: Words
) -> list[Completion | None]:
    """The whole of answers that ``sample_verdicts`` has begun: of each request, of one key, the verdict and
    ``Completion.ids``. None of one that ended there by itself.

    The engine must be one of which ``can_write_reasons`` is true.
    """
    if _is_drawn(engine, words):
        verdicts = [verdict for verdict, _ in begun if verdict]  # there is one wherever verdicts are drawn
        asked = [_begin_reason(request, verdict, words) for request, verdict in zip(requests, verdicts, strict=True)]
        reasons = engine.generate(asked)
        return [_put_before(each.begin, reason) for each, (reason,) in zip(asked, reasons, strict=True)]
    assert isinstance(engine, Resumer)  # whoever chose this has looked
    going = [place for place, (_, ids) in enumerate(begun) if _goes_on(ids, requests[place])]
    whole = engine.resume([requests[place] for place in going], [(begun[place][1],) for place in going])
    found: list[Completion | None] = [None] * len(requests)
    for place, (answer,) in zip(going, whole, strict=True):
        found[place] = answer
    return found


def can_write_reasons(engine: Engine, words: Words) -> bool:
    """Whether reasons can be written behind verdicts that were sampled alone."""
    return isinstance(engine, Resumer) or _is_drawn(engine, words)


def score_log_odds(
    prompts: Sequence[Prompt], engine: Scorer, words: Words, calibrations: Sequence[Calibration]
) -> list[float]:
    """For each prompt, the log-odds of pass against fail by its calibration."""
    lines = verdict_lines(words)
    scores = engine.score([Question(prompt, (lines["pass"], lines["fail"])) for prompt in prompts])
    return [each.of(passes - fails) for each, (passes, fails) in zip(calibrations, scores, strict=True)]


def calibrations_of(guidance: Guidance, tickets: Sequence[Ticket]) -> list[Calibration]:
    """The calibration of each ticket's verdict under ``guidance``."""
    return [guidance.calibration.given(ticket.ruling) for ticket in tickets]


def sigmoid(log_odds: float, temperature: float) -> float:
    """The probability at ``temperature`` of the outcome that ``log_odds`` speak for, rounded to six places."""
    if temperature == 0:
        return float(log_odds > 0)
    scaled = max(-700.0, min(700.0, log_odds / temperature))
    return round(1 / (1 + math.exp(-scaled)), 6)


def _is_drawn(engine: Engine, words: Words) -> TypeGuard[Scorer]:
    """Whether verdicts are drawn by their probabilities."""
    return bool(words.begin) and isinstance(engine, Scorer)


def _draw_verdicts(
    requests: Sequence[Request], engine: Scorer, words: Words, calibrations: Sequence[Calibration]
) -> list[list[Verdict]]:
    """For each request the verdicts of its keys, drawn by their probabilities at its temperature: by each key alone, or for
    instruct texts evenly, so that a vote is what the probability says, and not what luck does."""
    asked = [(request.prompt, calibration) for request, calibration in zip(requests, calibrations, strict=True)]
    once = dict.fromkeys(asked)
    found = score_log_odds([prompt for prompt, _ in once], engine, words, [calibration for _, calibration in once])
    log_odds_of = dict(zip(once, found, strict=True))
    shares = [sigmoid(log_odds_of[each], request.decode.temperature) for each, request in zip(asked, requests, strict=True)]

    def draw(place: int, key: int, count: int) -> float:
        return (place + 0.5) / count if words.instruct else uniform(stream("verdict", key), 0)

    return [
        ["pass" if draw(place, key, len(request.keys)) < share else "fail" for place, key in enumerate(request.keys)]
        for request, share in zip(requests, shares, strict=True)
    ]


def _begin_reason(request: Request, verdict: Verdict, words: Words) -> Request:
    """``request`` for a reason behind a verdict that is written in the model's place."""
    decode = replace(request.decode, stop=(*request.decode.stop, "\n"))
    return replace(request, decode=decode, begin=f"{verdict_lines(words)[verdict]}\n{REASON}")


def _put_before(begin: str, reason: Completion) -> Completion:
    return replace(reason, text=f"{begin}{reason.text}")


def _goes_on(ids: Ids, request: Request) -> bool:
    """Whether an answer that began with ``ids`` would have gone on."""
    return 0 < len(ids) < request.decode.max_new_tokens
