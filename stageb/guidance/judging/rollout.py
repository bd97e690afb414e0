"""Rollout: takes tickets, a guidance and an engine; returns answers.

Canonical micro-batches. A model's numbers differ in their last bits with what else is in a batch,
and now and then that changes a token. So the cuts are made by the round alone: its tickets are
sorted by length and cut into groups of equal size, and whole groups go to ranks. ``group_size``
chooses the size from the round's size, such that the same groups fill the ranks evenly at every
usual world size with that round, and ``share_out`` a smaller one where fewer tickets are asked
about, within the limit per rank (``keep_limit``); so with equal round sizes, all world sizes write
equal bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from stageb.engines.protocol import Decode, Engine, Request, Scorer, thinks
from stageb.guidance.config import DecodeConfig, SamplerConfig
from stageb.guidance.judging.answers import (
    calibrations_of,
    read_answer,
    read_first_verdict,
    sample_answers,
    sample_reasons,
    sample_verdicts,
    score_verdicts,
)
from stageb.guidance.rules.prompts import Words, name_labels, rollout_prompt, ticket_text
from stageb.guidance.words.calibration import find_shares
from stageb.guidance.words.types import Answers, Candidate, Guidance, Judgement, Ticket
from stageb.seeds import stream

VERDICT_LINE = DecodeConfig(temperature=0.0, max_new_tokens=12, stop=["\n"])
"""Decodes the verdict alone, greedily: the first line of an answer."""


AnswerStart = tuple[Ticket, Candidate, tuple[int, ...]]
"""A ticket, an answer to it that ends with its verdict, and that answer's entry in
``Answers.openings``."""

WORTHWHILE = 16
"""Tickets that are worth reading together: with fewer at once, each takes longer."""

WAYS = 8
"""Shares into which fewer tickets than a round's are cut: one for each GPU of a large host."""


def group_size(
    round_size: int, per_rank: int, micro_batch_size: int, ways: int | None = None
) -> int:
    """Return the tickets per group: at most ``micro_batch_size``, and a divisor of ``per_rank``, so
    that whole groups fill every rank.

    The same for all world sizes that divide 24 and the round: a group divides round / gcd(round,
    24), and that divides a rank's share at each of them. Where an eighth of the round is less than
    ``micro_batch_size`` and fewer tickets than are worthwhile, the same holds for 12 alone, and
    groups stay larger. With ``ways`` it holds for the world sizes that divide these.
    """
    ways = ways or (24 if round_size >= 8 * min(micro_batch_size, WORTHWHILE) else 12)
    share = round_size // math.gcd(round_size, ways)
    largest = max(size for size in range(1, min(share, micro_batch_size) + 1) if share % size == 0)
    return math.gcd(largest, per_rank)


def share_out(tickets: int, size: int, least: int, ways: int | None = None) -> int:
    """Return the tickets per group where so many ``tickets`` are asked about: at most ``size``, as
    in a whole round. Where they are fewer, a share for each of ``ways`` ranks, by default ``WAYS``,
    which would have nothing to do otherwise, but at least ``least`` tickets.

    It depends on the number of tickets alone, so that the groups are the same at every world size.
    """
    return min(size, max(least, math.ceil(tickets / (ways or WAYS))))


def keep_limit(share: int, tickets: int, size: int, round_size: int) -> int:
    """Return the tickets per group, ``share`` or little more, such that no rank gets more of so
    many ``tickets`` than of a whole round, at any world size: groups that are k times smaller than
    its groups of ``size`` are at most k times as many."""
    sizes = (
        (max(share, -(-tickets * size // (k * round_size))), size // k)
        for k in range(size // share, 0, -1)
    )
    return next(least for least, most in sizes if least <= most)


def cut_micro_batches(tickets: Sequence[Ticket], size: int) -> list[list[int]]:
    """Cut the positions in ``tickets`` into groups of ``size`` by length of text, longest first;
    the last group may be smaller."""
    by_length = sorted(
        range(len(tickets)), key=lambda i: (-len(ticket_text(tickets[i])), tickets[i].key)
    )
    return [by_length[start : start + size] for start in range(0, len(by_length), size)]


def rollout(
    tickets: Sequence[Ticket],
    guidance: Guidance,
    engine: Engine,
    sampler: SamplerConfig,
    words: Words,
    names: Sequence[str | int],
) -> list[Answers]:
    """Sample candidates for every ticket, in the tickets' order: each entry of the grid,
    ``samples_per_decode`` times.

    Where ``words`` begin answers in the model's place and the engine can weigh verdicts, a verdict
    is drawn by its probability, the model writes the reason, and the form is met unless that reason
    is empty or holds control characters. With ``sampler.reasons`` other than all, answers end with
    their verdicts; with wrong, ``write_reasons`` can go on from there.

    ``names`` begin the name of every stream (seed, epoch, ...); mission, ticket, decode and sample
    complete it. Tickets whose prompt is longer than ``max_prompt_tokens`` are set aside. Raises
    what the engine raises.
    """
    samples, limit = sampler.samples_per_decode, sampler.max_prompt_tokens
    words = name_labels(words, guidance.labels)
    prompts = [rollout_prompt(ticket, guidance, words) for ticket in tickets]
    lengths = engine.count_tokens(prompts)
    asked = [i for i, length in enumerate(lengths) if length <= limit]
    requests = [
        Request(
            prompts[i],
            make_decode(decode),
            tuple(_list_keys(names, tickets[i], entry, decode.seed, samples)),
            words.begin,
        )
        for i in asked
        for entry, decode in enumerate(sampler.grid)
    ]
    alone = sampler.reasons != "all"
    sample = sample_verdicts if alone else sample_answers
    by_ticket = calibrations_of(guidance, tickets)
    completions = iter(
        sample(requests, engine, words, [by_ticket[i] for i in asked for _ in sampler.grid])
    )
    candidates: dict[int, list[Candidate]] = {i: [] for i in asked}
    openings: dict[int, list[tuple[int, ...]]] = {
        i: [] for i in asked if sampler.reasons == "wrong"
    }
    for i in asked:
        for entry, decode in enumerate(sampler.grid):
            for completion in next(completions):
                text, verdict, reason, fault = read_answer(completion, prompts[i], words, alone)
                known = (
                    len(candidates[i]),
                    entry,
                    decode.temperature,
                    text,
                    verdict,
                    reason,
                    fault is None,
                )
                candidates[i].append(
                    Candidate(*known, completion.tokens, completion.thinking, fault)
                )
                if i in openings:
                    openings[i].append(completion.ids)
    too_long = "prompt of {} tokens, at most {} (sampler.max_prompt_tokens)"
    return [
        Answers(
            ticket_key=ticket.key,
            prompt_tokens=length,
            candidates=tuple(candidates.get(i, ())),
            set_aside="" if i in candidates else too_long.format(length, limit),
            openings=tuple(openings.get(i, ())),
        )
        for i, (ticket, length) in enumerate(zip(tickets, lengths, strict=True))
    ]


def write_reasons(
    starts: Sequence[AnswerStart],
    guidance: Guidance,
    engine: Engine,
    sampler: SamplerConfig,
    words: Words,
    names: Sequence[str | int],
) -> list[Candidate]:
    """Return the candidates among ``starts`` with their reasons, in order; ``rollout`` has made
    these, given the same arguments.

    A verdict stays what it is; the reason is empty where what follows the verdict is none.
    """
    requests, words = [], name_labels(words, guidance.labels)
    for ticket, candidate, _ in starts:
        decode = sampler.grid[candidate.decode]
        sample = candidate.index % sampler.samples_per_decode
        key = _list_keys(names, ticket, candidate.decode, decode.seed, sampler.samples_per_decode)[
            sample
        ]
        requests.append(
            Request(
                rollout_prompt(ticket, guidance, words), make_decode(decode), (key,), words.begin
            )
        )
    found = []
    whole = sample_reasons(
        requests, [(candidate.verdict, opening) for _, candidate, opening in starts], engine, words
    )
    for request, (_, candidate, _), completion in zip(requests, starts, whole, strict=True):
        if completion is None:
            found.append(candidate)
            continue
        text, verdict, reason, _ = read_answer(completion, request.prompt, words)
        reason = reason if verdict == candidate.verdict else ""
        found.append(replace(candidate, text=text, reason=reason, tokens=completion.tokens))
    return found


def judge_tickets(
    tickets: Sequence[Ticket],
    guidance: Guidance,
    engine: Engine,
    sampler: SamplerConfig,
    words: Words,
    judge_by: str,
) -> list[Judgement]:
    """Judge each ticket, in order, for the gate: a verdict without a reason, at the least cost.

    With ``judge_by`` "probability" (the engine must be a ``Scorer``) nothing is decoded: the
    verdict lines are weighed at the temperature of the grid's first entry, which gives exactly the
    share of right answers that sampling would only estimate, where answers keep their form. With
    "answer" the first line is decoded greedily, and the share is 0 or 1; a model that thinks aloud
    may think first, with the grid's first number of tokens, unless its answers are begun for it. A
    prompt that is longer than ``max_prompt_tokens`` is never judged right.
    """
    words = name_labels(words, guidance.labels)
    if judge_by == "probability" or (words.begin and isinstance(engine, Scorer)):
        assert isinstance(engine, Scorer)  # whoever chose the way has looked
        temperature = sampler.grid[0].temperature if judge_by == "probability" else 0.0
        return _judge_by_probability(
            tickets, guidance, engine, sampler.max_prompt_tokens, words, temperature
        )
    line = (
        replace(sampler.grid[0], temperature=0.0)
        if thinks(engine) and not words.begin
        else VERDICT_LINE
    )
    once = replace(sampler, grid=[line], samples_per_decode=1, reasons="all")
    answers = rollout(tickets, guidance, engine, once, words, ["verdict"])
    return [
        Judgement(
            p_correct=float(
                any(
                    (c.verdict or read_first_verdict(c.text, words)) == ticket.label
                    for c in answer.candidates
                )
            ),
            tokens=sum(answer.prompt_tokens + c.tokens for c in answer.candidates),
        )
        for ticket, answer in zip(tickets, answers, strict=True)
    ]


def _judge_by_probability(
    tickets: Sequence[Ticket],
    guidance: Guidance,
    engine: Scorer,
    limit: int,
    words: Words,
    temperature: float,
) -> list[Judgement]:
    prompts = [rollout_prompt(ticket, guidance, words) for ticket in tickets]
    lengths = engine.count_tokens(prompts)
    asked = [i for i, length in enumerate(lengths) if length <= limit]
    calibrations = calibrations_of(guidance, [tickets[i] for i in asked])
    weighed = score_verdicts([prompts[i] for i in asked], engine, words, calibrations)
    order = list(words.verdicts)
    judged = dict.fromkeys(range(len(tickets)), Judgement(0.0, 0))
    for i, scores in zip(asked, weighed, strict=True):
        shares = find_shares(scores, temperature)
        told = tuple(round(score, 6) for score in scores)
        judged[i] = Judgement(shares[order.index(tickets[i].label)], lengths[i] + 1, scores=told)
    return list(judged.values())


def make_decode(config: DecodeConfig) -> Decode:
    """Return an entry of the grid as engines take it."""
    return Decode(
        temperature=config.temperature,
        top_p=config.top_p,
        top_k=config.top_k,
        max_new_tokens=config.max_new_tokens,
        seed=config.seed,
        stop=tuple(config.stop),
    )


def _list_keys(
    names: Sequence[str | int], ticket: Ticket, entry: int, seed: int, samples: int
) -> list[int]:
    return [
        stream(*names, ticket.mission, ticket.key, entry, seed, sample) for sample in range(samples)
    ]
