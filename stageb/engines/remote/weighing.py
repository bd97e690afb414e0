"""How probable answers are, by the most probable tokens that a server gives behind what all of them
begin with.

An answer weighs what the tokens do that begin the rest of it, and of no other answer. Of one that
none of them begins, it is known that its token is no more probable than the least of them, nor than
all that are not given: it weighs that. What all answers begin with, and what comes behind the first
token, is not weighed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Tokens = tuple[tuple[str, float], ...]
"""Texts of tokens, with their log-probabilities."""

# what is less probable counts as this: servers write -9999 where it has no number
LEAST_LOGPROB = -50.0
_NEVER_CERTAIN = -1e-9
_MARKS = " \t\n*_`\"'"


def find_beginning(answers: Sequence[str]) -> str:
    """The whole words that all ``answers`` begin with, without blanks at their end: tokens have
    them in front."""
    first, last = min(answers), max(answers)
    same = next(
        (
            place
            for place, (one, other) in enumerate(zip(first, last, strict=False))
            if one != other
        ),
        len(first),
    )
    return first[: first.rfind(" ", 0, same) + 1].rstrip()


def read_tokens(choice: Mapping[str, Any]) -> Tokens | None:
    """The most probable first tokens of an answer, none where it has none; None where the server
    does not give them in OpenAI's form."""
    try:
        places = choice["logprobs"]["content"]
        top = (
            [(str(each["token"]), float(each["logprob"])) for each in places[0]["top_logprobs"]]
            if places != []
            else []
        )
    except (LookupError, TypeError, ValueError, OverflowError):
        return None
    known = tuple(
        (token, min(0.0, max(LEAST_LOGPROB, logprob)))
        for token, logprob in top
        if not math.isnan(logprob)
    )
    return known if known or places == [] else None


def weigh(answers: Sequence[str], tokens: Tokens) -> tuple[float, ...]:
    """The log-probability of each of ``answers``, as far as ``tokens`` tell."""
    left = 1 - sum(math.exp(logprob) for _, logprob in tokens)
    floor = min([_log(left), *(logprob for _, logprob in tokens)])
    shares = [0.0] * len(answers)
    for token, logprob in tokens:
        begun = _find_begun(answers, token)
        if len(begun) == 1:
            shares[begun[0]] += math.exp(logprob)
    return tuple(min(_NEVER_CERTAIN, _log(share) if share else floor) for share in shares)


def can_tell(answers: Sequence[str], tokens: Tokens) -> bool:
    """Whether ``tokens`` tell ``answers`` from each other, rather than begin several of them."""
    begun = [(len(_find_begun(answers, token)), math.exp(logprob)) for token, logprob in tokens]
    return sum(share for count, share in begun if count == 1) > sum(
        share for count, share in begun if count > 1
    )


def goes_on(text: str, answers: Sequence[str]) -> bool:
    """Whether ``text`` goes on from the beginning of ``answers`` as one of them does, and does not
    begin anew."""
    said = text.strip(_MARKS).casefold()
    return bool(said) and any(
        rest.startswith(said) or said.startswith(rest)
        for rest in map(str.casefold, _rests(answers))
    )


def _find_begun(answers: Sequence[str], token: str) -> list[int]:
    """Which of ``answers`` go on with ``token``. Tokens may be written without the blank in front;
    one of blanks alone begins all."""
    return [place for place, rest in enumerate(_rests(answers)) if rest.startswith(token.lstrip())]


def _rests(answers: Sequence[str]) -> list[str]:
    begin = find_beginning(answers)
    return [answer[len(begin) :].lstrip() for answer in answers]


def _log(share: float) -> float:
    return max(LEAST_LOGPROB, math.log(share)) if share > 0 else LEAST_LOGPROB
