"""Rollout: tickets, a guidance and an engine in; answers out.

Canonical micro-batches. A model's numbers move in their last bits with what else is in a batch, and now and then a token
turns over that. So the cuts are made by the round alone: its tickets are sorted by length and cut into groups of equal
size, and whole groups go to ranks. ``group_size`` chooses the size from the round's size, such that the same groups fill
the ranks evenly at every usual world size with that round; equal rounds then give equal bytes whatever the world size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from stageb.engines.protocol import Decode, Engine, Question, Request, Scorer
from stageb.guidance.config import DecodeConfig, SamplerConfig
from stageb.guidance.prompts import parse_answer, parse_verdict, rollout_prompt, ticket_text, verdict_lines
from stageb.guidance.types import Answers, Candidate, Guidance, Judgement, Ticket, Verdict
from stageb.seeds import stream

VERDICT_LINE = DecodeConfig(temperature=0.0, max_new_tokens=12, stop=["\n"])
"""The verdict alone, greedily: the first line of an answer."""


WORTHWHILE = 16
"""Tickets that are worth reading together: fewer at once take longer."""


def group_size(round_size: int, per_rank: int, micro_batch_size: int) -> int:
    """Tickets per group: at most ``micro_batch_size``, and a divisor of ``per_rank``, so that whole groups fill every rank.

    The same for all world sizes that divide 24 and the round: a group divides round / gcd(round, 24), and that divides a
    rank's share at each of them. Where an eighth of the round is less than ``micro_batch_size`` and fewer tickets than are
    worthwhile, the same goes for 12 alone, and groups stay larger.
    """
    ways = 24 if round_size >= 8 * min(micro_batch_size, WORTHWHILE) else 12
    share = round_size // math.gcd(round_size, ways)
    largest = max(size for size in range(1, min(share, micro_batch_size) + 1) if share % size == 0)
    return math.gcd(largest, per_rank)


def micro_batches(tickets: Sequence[Ticket], size: int) -> list[list[int]]:
    """Positions in ``tickets``, cut into groups of ``size`` by length of text, longest first; the last may be smaller."""
    by_length = sorted(range(len(tickets)), key=lambda i: (-len(ticket_text(tickets[i])), tickets[i].key, i))
    return [by_length[start : start + size] for start in range(0, len(by_length), size)]


def rollout(
    tickets: Sequence[Ticket],
    guidance: Guidance,
    engine: Engine,
    sampler: SamplerConfig,
    language: str,
    names: Sequence[str | int],
) -> list[Answers]:
    """Candidates for every ticket, in the tickets' order: each entry of the grid, ``samples_per_decode`` times.

    ``names`` begin the name of every stream (seed, epoch, ...); mission, ticket, decode and sample complete it. Tickets
    whose prompt is longer than ``max_prompt_tokens`` are set aside. Raises what the engine raises.
    """
    samples, limit = sampler.samples_per_decode, sampler.max_prompt_tokens
    prompts = [rollout_prompt(ticket, guidance, language) for ticket in tickets]
    lengths = engine.count_tokens(prompts)
    asked = [i for i, length in enumerate(lengths) if length <= limit]
    requests = [
        Request(prompts[i], as_decode(decode), tuple(_keys(names, tickets[i], entry, decode.seed, samples)))
        for i in asked
        for entry, decode in enumerate(sampler.grid)
    ]
    completions = iter(engine.generate(requests))
    candidates: dict[int, list[Candidate]] = {i: [] for i in asked}
    for i in asked:
        for entry, decode in enumerate(sampler.grid):
            for completion in next(completions):
                parsed = parse_answer(completion.text, language)
                verdict, reason = parsed or (None, "")
                index = len(candidates[i])
                candidates[i].append(
                    Candidate(
                        index, entry, decode.temperature, completion.text, verdict, reason, bool(parsed), completion.tokens
                    )
                )
    too_long = "prompt of {} tokens, at most {} (sampler.max_prompt_tokens)"
    return [
        Answers(ticket.key, length, tuple(candidates.get(i, ())), "" if i in candidates else too_long.format(length, limit))
        for i, (ticket, length) in enumerate(zip(tickets, lengths, strict=True))
    ]


def judgements(
    tickets: Sequence[Ticket], guidance: Guidance, engine: Engine, sampler: SamplerConfig, language: str, judge_by: str
) -> list[Judgement]:
    """How each ticket is judged, in order, for the gate: a verdict without a reason, at the least cost.

    With ``judge_by`` "probability" (the engine must be a ``Scorer``) nothing is decoded: the two verdict lines are weighed
    at the temperature of the grid's first entry, which gives exactly the share of right answers that sampling would only
    estimate, where answers keep their form. With "answer" the first line is decoded greedily, and the share is 0 or 1. A
    prompt that is longer than ``max_prompt_tokens`` is never judged right.
    """
    if judge_by == "probability":
        assert isinstance(engine, Scorer)  # whoever chose the way has looked
        return _weighed(tickets, guidance, engine, sampler, language)
    once = replace(sampler, grid=[VERDICT_LINE], samples_per_decode=1)
    answers = rollout(tickets, guidance, engine, once, language, ["verdict"])
    return [
        Judgement(
            # The line alone is no whole answer, and so has no verdict as one.
            merit=float(any((c.verdict or parse_verdict(c.text, language)) == ticket.label for c in answer.candidates)),
            tokens=sum(answer.prompt_tokens + c.tokens for c in answer.candidates),
        )
        for ticket, answer in zip(tickets, answers, strict=True)
    ]


def _weighed(
    tickets: Sequence[Ticket], guidance: Guidance, engine: Scorer, sampler: SamplerConfig, language: str
) -> list[Judgement]:
    lines = verdict_lines(language)
    prompts = [rollout_prompt(ticket, guidance, language) for ticket in tickets]
    lengths = engine.count_tokens(prompts)
    asked = [i for i, length in enumerate(lengths) if length <= sampler.max_prompt_tokens]
    scores = engine.score([Question(prompts[i], tuple(lines.values())) for i in asked])
    judged = dict.fromkeys(range(len(tickets)), Judgement(0.0, 0))
    for i, score in zip(asked, scores, strict=True):
        by_verdict = dict(zip(lines, score, strict=True))
        other: Verdict = "fail" if tickets[i].label == "pass" else "pass"
        lead = by_verdict[tickets[i].label] - by_verdict[other]
        judged[i] = Judgement(sigmoid(lead, sampler.grid[0].temperature), lengths[i] + 1)
    return list(judged.values())


def sigmoid(lead: float, temperature: float) -> float:
    """The probability, at ``temperature``, of what is more probable than its only rival by the log-ratio ``lead``; rounded
    to six places."""
    if temperature == 0:
        return float(lead > 0)
    scaled = max(-700.0, min(700.0, lead / temperature))
    return round(1 / (1 + math.exp(-scaled)), 6)


def as_decode(config: DecodeConfig) -> Decode:
    """An entry of the grid as engines take it."""
    return Decode(
        temperature=config.temperature,
        top_p=config.top_p,
        top_k=config.top_k,
        max_new_tokens=config.max_new_tokens,
        repetition_penalty=config.repetition_penalty,
        seed=config.seed,
        stop=tuple(config.stop),
    )


def _keys(names: Sequence[str | int], ticket: Ticket, entry: int, seed: int, samples: int) -> list[int]:
    return [stream(*names, ticket.mission, ticket.key, entry, seed, sample) for sample in range(samples)]
