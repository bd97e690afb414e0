"""Answers to rollouts: how they are sampled, what they say, and where they cannot be read, why.

The answer is untrusted text: what cannot be read is kept with its *fault*, and where most of a
run's first answers cannot be read, the run ends before it learns anything, with one of them, the
likely cause and the remedy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, NamedTuple, TypeGuard

from stageb.engines.protocol import Completion, Engine, Prompt, Question, Request, Resumer, Scorer
from stageb.errors import InputError, shown, write_option
from stageb.guidance.rules.prompts import REASON, VERDICT, Words, verdict_lines
from stageb.guidance.words.calibration import find_shares
from stageb.guidance.words.types import (
    HEADLINE_KEY,
    Answers,
    Calibration,
    Candidate,
    Fault,
    Guidance,
    Ticket,
    Verdict,
    shallow,
)
from stageb.seeds import stream, uniform

FEWEST_ANSWERS = 16  # answers from which a share is estimated, at least
# characters of a ticket's text, at least, by which an answer is known to give its prompt back
ECHO = 24
EXAMPLE = 300  # characters of the answer that is shown
MOST_REASON = 400  # characters of a reason that is read leniently, at most

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_KEY = re.compile(r"\bG\d+\b", re.ASCII)  # ASCII: Chinese letters may touch a key
# How instruct models write around a verdict: other verdicts beside it, and signs that the sentence
# or the line is not their own statement.
_BESIDE = (
    r"""["'*_]{0,3}(?:[ \t]?[/|\\,&-][ \t]?|,?[ \t]+(?:or|and|vs\.?|oder|und)[ \t]+|[ \t]+)"""
    r"""["'*_]{0,3}"""
)
_OPENS = re.compile(r"[\"'`>\u2018-\u201f\u00ab\u300c\u300e]\W*$")
_GIVES = re.compile(r"\W*Reason\W*", re.IGNORECASE)
_IN_QUOTES = re.compile(r"""(["'`]+|\u201c|\u300c)(.*?)(?:\1|\u201d|\u300d)""", re.DOTALL)
_LEADS = re.compile(
    r"(?:\W|_|\b(?:answer|boxed|conclusion|final|is|my|overall|so|text|the|therefore|thus)\b)*",
    re.IGNORECASE,
)
_ENDS = re.compile(r"[^\w?\uff1f]*(?:$|Reason(?!\w))", re.IGNORECASE)
_DENIES = re.compile(
    r"\b(?:not?|nor|never|than|instead|says?|said|reads?|states?|stated|would|could|"
    r"might|nicht|keine?)\b|n['\u2019]t\b|\u4e0d",
    re.IGNORECASE,
)
_SETS = re.compile(
    r"(?<![^\W_])(?:if|unless|whether|last time|yesterday|previous(?:ly)?|earlier|former(?:ly)?|"
    r"prior|falls|wenn)(?![^\W_])|\u5982\u679c",
    re.IGNORECASE,
)
_TURNS = re.compile(
    r"\W{0,4}[?\uff1f]|[\W_]{1,4}(?:if|unless|only|is|was|would|could|might|may)\b", re.IGNORECASE
)
_NUMBERED = r"[ \t#*]*(?:[\w-]*\d[\w-]*)?[ \t*_]*(?:[:\uff1a>]|$)"  # what ends a heading
_REFUSES = re.compile(
    r"\W*(I('|\u2019)?m sorry|I am sorry|Sorry|I can('|\u2019)?t|I cannot|I('|\u2019)?m unable|"
    r"I am unable|As an AI|抱歉|对不起|很抱歉|我无法|我不能)",
    re.IGNORECASE,
)
_REMEDIES: dict[Fault, str] = {
    "empty": "the model said nothing: look at its chat template, or at what the server logs",
    "filtered": "the server's content filter withholds answers: have it relaxed there, or "
    "choose another server",
    "gives its prompt back": "the server returns the prompt within the answer: its chat "
    "template and the way in which it reads answers do not fit this checkpoint; serve it "
    "otherwise, or take model.engine transformers",
    "thinking never closed": "the model thought aloud to the end of its tokens: raise "
    "sampler.grid's max_new_tokens, or end its thinking (model.chat_template_kwargs: "
    "{enable_thinking: false}, or prompt.prefill: true)",
    "cut off": "sampler.grid's max_new_tokens cut the answer before it had two lines: raise "
    "that. prompt.prefill: true begins answers that would never come to them; a model that thinks "
    "behind a tag of its own needs model.thinking_ends",
    "refuses": "the model refuses to judge: choose another, or prompt.prefill: true",
    "not the two-line answer": "the model does not keep to the two lines: prompt.prefill: true "
    "begins its answers, prompt.verdict_words gives it words of its own; or choose a larger model",
}
_BEGUN = (  # the remedy if prompt.prefill was tried already
    "the answers are begun for the model, and it does not go on in form: a server may not go on "
    "from a last message of the assistant's, see what docs/engines.md says of it; or choose a "
    "larger model"
)


class UnreadableError(InputError):
    """Most of the first answers cannot be read: with this model and these keys there is nothing to
    learn, or to report."""


def read_answer(
    completion: Completion, prompt: Prompt, words: Words, alone: bool = False
) -> tuple[str, Verdict | None, str, Fault | None]:
    """Return the answer as a whole, its beginning that was written for the model included; its
    verdict, its reason, and its fault if it has no verdict. Where verdicts are sampled ``alone``,
    an answer has the verdict of its first line, and a reason or none."""
    text, begin = completion.text, words.begin
    if not text.lstrip().startswith(begin) and (text or not completion.thinking):
        text = begin + text
    parsed = parse_answer(text, words)
    if alone and not parsed and not words.instruct and (verdict := read_first_verdict(text, words)):
        parsed = verdict, ""
    return (
        (text, *parsed, None) if parsed else (text, None, "", _find_fault(completion, text, prompt))
    )


def parse_answer(text: str, words: Words) -> tuple[Verdict, str] | None:
    """Return verdict and reason of a strict two-line answer, or None.

    White space around the answer and around its parts is forgiven, and the case of the verdict
    word; a third line, a third verdict, an empty reason, or a control character in the reason is
    not. In an answer to instruct texts, the verdict that it names counts, and what follows is the
    reason, if anything does; nothing counts from a later line on that is headed as another ticket.
    Where it names several verdicts, as an answer that quotes another or corrects itself, the last
    line counts that is a verdict by itself; there is no verdict where a later sentence contradicts
    it.
    """
    text = text.strip()
    if words.instruct:
        return _read_leniently(text, words)
    head, _, tail = text.partition("\n")
    verdict = parse_verdict(head, words)
    label, _, reason = tail.partition(":")
    reason = reason.strip()
    if verdict is None or label.strip() != "Reason" or len(text.splitlines()) != 2:
        return None
    if not reason or _CONTROL.search(reason):
        return None
    return verdict, reason


def _read_leniently(text: str, words: Words) -> tuple[Verdict, str] | None:
    text = quoted[2] if (quoted := _IN_QUOTES.fullmatch(text)) else text
    found = list(_find_statements(text, words))
    if first := next((each.end for each in found if each.is_said and each.is_alone), None):
        text = text[: _find_next_ticket(text, first, words)]
        found = [each for each in found if each.end <= len(text)]
    said = [each for each in found if each.is_said]
    if len({verdict for each in found for verdict in each.verdicts}) > 1:
        *_, last = [None, *(each for each in said if each.is_alone)]
        said = (
            [last]
            if last and all(each.end <= last.end or each.verdicts == last.verdicts for each in said)
            else []
        )
    if not said:
        return None
    reason = _CONTROL.sub(" ", text[said[0].end :]).lstrip(" *_.,;:-").rstrip(" *_")
    reason = re.sub(r"^\W*Reason\W*", "", reason, flags=re.IGNORECASE)
    return said[0].verdicts[0], " ".join(reason.split())[:MOST_REASON]


def _find_next_ticket(text: str, start: int, words: Words) -> int:
    """Return where, behind ``start``, a model that has answered goes on with a ticket of its own
    making: at a line that is headed as those of its prompt are, or at the end of ``text``."""
    assert words.instruct is not None  # other answers end with their second line
    ticket = re.escape(words.instruct.ticket.rstrip(":\uff1a"))
    heading = re.compile(rf"^\W*(?:\w+\W+)?{ticket}{_NUMBERED}", re.IGNORECASE | re.MULTILINE)
    return found.start() if (found := heading.search(text, start)) else len(text)


class _Statement(NamedTuple):
    """A place where an answer names a verdict, or several side by side, as "pass or fail"."""

    verdicts: list[Verdict]
    end: int  # in the text
    # whether it may be meant: it is no question, nor quoted, denied, or about another time or case
    is_said: bool
    is_alone: bool  # whether its line says nothing else, except a reason


def _find_statements(text: str, words: Words) -> Iterator[_Statement]:
    either = "|".join(
        re.escape(each) for each in sorted(words.verdicts.values(), key=len, reverse=True)
    )
    for found in re.finditer(
        rf"Verdict(\W{{0,8}}?)((?:{either})(?:{_BESIDE}(?:{either}))*)(?!\w)", text, re.IGNORECASE
    ):
        named = [each.lower() for each in re.findall(either, found[2], re.IGNORECASE)]
        verdicts = [
            verdict for verdict, spelling in words.verdicts.items() if spelling.lower() in named
        ]
        before = re.split(r"[\n\r]", text[: found.start()])[-1]
        after = re.split(r"[\n\r]", text[found.end() :])[0]
        is_quoted = (bool(_OPENS.search(before)) and not _OPENS.search(found[1])) or bool(
            _GIVES.fullmatch(before)
        )
        is_line = bool(_LEADS.fullmatch(before) and _ENDS.match(after))
        is_meant = not (
            _DENIES.search(re.split(r"[.,;!?。，；]", before)[-1])
            or _SETS.search(before)
            or _TURNS.match(after)
        )
        yield _Statement(
            verdicts, found.end(), is_meant and not is_quoted and len(verdicts) == 1, is_line
        )


def read_first_verdict(text: str, words: Words) -> Verdict | None:
    """Return the verdict of an answer's first line, whatever follows."""
    return parse_verdict(text.strip().partition("\n")[0], words)


def parse_verdict(line: str, words: Words) -> Verdict | None:
    """Return the verdict of a lone ``Verdict: ...`` line, or None."""
    line = line.strip()
    if not line.startswith(VERDICT):
        return None
    word = line.removeprefix(VERDICT).strip().lower()
    return next(
        (verdict for verdict, spelling in words.verdicts.items() if word == spelling.lower()), None
    )


def _find_fault(completion: Completion, text: str, prompt: Prompt) -> Fault:
    """Say why ``text`` is no answer."""
    if completion.finish == "filtered":
        return "filtered"
    if not completion.text.strip():
        return "thinking never closed" if completion.thinking else "empty"
    if len(prompt.user) >= ECHO and prompt.user in text:
        return "gives its prompt back"
    if completion.finish == "length":
        return "cut off"
    return "refuses" if _REFUSES.match(completion.text) else "not the two-line answer"


def check_readable(
    candidates: Sequence[Candidate], most: float, words: Words, key: str, loss: str
) -> None:
    """Raise ``UnreadableError`` where a larger share than ``most`` of ``candidates`` cannot be
    read, and they are enough to tell. ``key`` is the config key that sets the share, and ``loss``
    what would come of unreadable answers."""
    faulty = [candidate for candidate in candidates if candidate.fault]
    if len(candidates) < FEWEST_ANSWERS or len(faulty) <= most * len(candidates):
        return
    ((fault, count),) = Counter(candidate.fault for candidate in faulty).most_common(1)
    example = next(candidate for candidate in faulty if candidate.fault == fault)
    said = shown(example.text or example.thinking, EXAMPLE)
    assert fault is not None  # they are faulty
    remedy = _BEGUN if words.begin and "prompt.prefill" in _REMEDIES[fault] else _REMEDIES[fault]
    raise UnreadableError(
        f"{len(faulty)} of the first {len(candidates)} answers cannot be read ({count} of them: "
        f"{fault}), so {loss}. "
        f"One of them:\n  {said}\nWhat to do: {remedy}. Then begin anew ({write_option('fresh')}); "
        f"{key} says how many may be unreadable"
    )


def find_cited_rule(reason: str) -> str:
    """Return the key of the rule that a reason names last, as the model is asked to do; empty if it
    names none, or the headline, which decides where no rule does."""
    key = next(reversed(_KEY.findall(reason)), "")
    return "" if key == HEADLINE_KEY else key


# How answers to rollouts are sampled: whole, or the verdict first and the reason where it is wanted
# (``sampler.reasons``).
#
# An answer's first line decides its verdict, and takes a few tokens; most of the others write a
# reason that nobody reads. A verdict alone is an answer that stops at its first line break. Its
# reason goes on from the very tokens that were drawn, each further one by the number that the
# answer's stream has for its place: so no verdict changes, and the whole is what would have been
# sampled at once, but for the last bits of logits that are computed in another batch.
#
# Where verdicts are begun in the model's place (``words.begin``) and the engine can weigh them,
# they are drawn by their probabilities: a verdict alone decodes nothing.

Ids = tuple[int, ...]


def sample_answers(
    requests: Sequence[Request], engine: Engine, words: Words, calibrations: Sequence[Calibration]
) -> list[tuple[Completion, ...]]:
    """Sample whole answers; ``calibrations`` are those of the requests, in their order."""
    if not _is_drawn(engine, words):
        return engine.generate(requests)
    begun: list[Request] = []
    drawn: list[list[int]] = []  # for each request which of ``begun`` answers each key
    for request, verdicts in zip(
        requests, _draw_verdicts(requests, engine, words, calibrations), strict=True
    ):
        places = {
            verdict: len(begun) + place for place, verdict in enumerate(dict.fromkeys(verdicts))
        }
        drawn.append([places[verdict] for verdict in verdicts])
        for verdict in places:
            keys = tuple(
                key for key, each in zip(request.keys, verdicts, strict=True) if each == verdict
            )
            begun.append(_begin_reason(replace(request, keys=keys), verdict, words))
    reasons = [iter(each) for each in engine.generate(begun)]
    return [
        tuple(_put_before(begun[place].begin, next(reasons[place])) for place in places)
        for places in drawn
    ]


def sample_verdicts(
    requests: Sequence[Request], engine: Engine, words: Words, calibrations: Sequence[Calibration]
) -> list[tuple[Completion, ...]]:
    """Sample answers that end with their verdicts. An answer whose first line is no verdict is
    sampled whole, if the engine can go on with it: then its fault shows."""
    if _is_drawn(engine, words):
        lines = verdict_lines(words)
        return [
            tuple(Completion(lines[verdict], 0, "stop") for verdict in verdicts)
            for verdicts in _draw_verdicts(requests, engine, words, calibrations)
        ]
    stopping = [
        replace(each, decode=replace(each.decode, stop=(*each.decode.stop, "\n")))
        for each in requests
    ]
    answers = [list(each) for each in engine.generate(stopping)]
    if isinstance(engine, Resumer):
        unread = [
            (request, place, group)
            for request, group in zip(requests, answers, strict=True)
            for place, answer in enumerate(group)
            if _goes_on(answer.ids, request)
            and read_answer(answer, request.prompt, words, alone=True)[1] is None
        ]
        asked = [
            replace(request, keys=request.keys[place : place + 1]) for request, place, _ in unread
        ]
        whole = engine.resume(asked, [(group[place].ids,) for _, place, group in unread])
        for (_, place, group), (answer,) in zip(unread, whole, strict=True):
            group[place] = replace(answer, ids=())
    return [tuple(group) for group in answers]


def sample_reasons(
    requests: Sequence[Request],
    begun: Sequence[tuple[Verdict | None, Ids]],
    engine: Engine,
    words: Words,
) -> list[Completion | None]:
    """Complete answers that ``sample_verdicts`` has begun: for each request, of one key, the
    verdict and ``Completion.ids``. None for an answer that ended there by itself.

    The engine must be one for which ``can_write_reasons`` is true.
    """
    if _is_drawn(engine, words):
        # there is one wherever verdicts are drawn
        verdicts = [verdict for verdict, _ in begun if verdict]
        asked = [
            _begin_reason(request, verdict, words)
            for request, verdict in zip(requests, verdicts, strict=True)
        ]
        reasons = engine.generate(asked)
        return [
            _put_before(each.begin, reason) for each, (reason,) in zip(asked, reasons, strict=True)
        ]
    assert isinstance(engine, Resumer)  # whoever chose this has looked
    going = [place for place, (_, ids) in enumerate(begun) if _goes_on(ids, requests[place])]
    whole = engine.resume(
        [requests[place] for place in going], [(begun[place][1],) for place in going]
    )
    found: list[Completion | None] = [None] * len(requests)
    for place, (answer,) in zip(going, whole, strict=True):
        found[place] = answer
    return found


def can_write_reasons(engine: Engine, words: Words) -> bool:
    """Whether reasons can be written behind verdicts that were sampled alone."""
    return isinstance(engine, Resumer) or _is_drawn(engine, words)


def score_verdicts(
    prompts: Sequence[Prompt], engine: Scorer, words: Words, calibrations: Sequence[Calibration]
) -> list[tuple[float, ...]]:
    """Return for each prompt the log-probabilities of the verdicts, in the order of ``words``; for
    pass and fail the log-odds by its calibration, and 0."""
    lines = tuple(verdict_lines(words).values())
    scores = engine.score([Question(prompt, lines) for prompt in prompts])
    return [calibration.weigh(each) for calibration, each in zip(calibrations, scores, strict=True)]


def calibrations_of(guidance: Guidance, tickets: Sequence[Ticket]) -> list[Calibration]:
    """Return the calibration of each ticket's verdict under ``guidance``."""
    return [guidance.calibration.given(ticket.ruling, ticket.leads) for ticket in tickets]


def _is_drawn(engine: Engine, words: Words) -> TypeGuard[Scorer]:
    """Whether verdicts are drawn by their probabilities."""
    return bool(words.begin) and isinstance(engine, Scorer)


def _draw_verdicts(
    requests: Sequence[Request], engine: Scorer, words: Words, calibrations: Sequence[Calibration]
) -> list[list[Verdict]]:
    """Draw for each request the verdicts of its keys, by their probabilities at its temperature: by
    each key alone, or for instruct texts evenly, so that a vote shows what the probability says,
    and not luck."""
    asked = [
        (request.prompt, calibration)
        for request, calibration in zip(requests, calibrations, strict=True)
    ]
    once = dict.fromkeys(asked)
    found = score_verdicts(
        [prompt for prompt, _ in once], engine, words, [calibration for _, calibration in once]
    )
    scores_of = dict(zip(once, found, strict=True))
    shares = [
        find_shares(scores_of[each], request.decode.temperature)
        for each, request in zip(asked, requests, strict=True)
    ]
    *others, last = words.verdicts

    def choose(key: int, shares: Sequence[float]) -> Verdict:
        drawn = uniform(stream("verdict", key), 0)
        return next(
            (
                verdict
                for verdict, edge in zip(others, accumulate(shares), strict=False)
                if drawn < edge
            ),
            last,
        )

    if words.instruct:
        return [
            apportion(each, len(request.keys), list(words.verdicts))
            for request, each in zip(requests, shares, strict=True)
        ]
    return [
        [choose(key, each) for key in request.keys]
        for request, each in zip(requests, shares, strict=True)
    ]


def apportion(shares: Sequence[float], count: int, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return ``count`` verdicts, in their order, each as often as its share of them says, by the
    largest remainders (Hamilton's method), of equal remainders the last: a single one is the most
    probable."""
    quotas = [share * count for share in shares]
    left = count - sum(map(int, quotas))
    further = sorted(
        range(len(quotas)), key=lambda place: (round(int(quotas[place]) - quotas[place], 9), -place)
    )[:left]
    return [
        verdict
        for place, verdict in enumerate(verdicts)
        for _ in range(int(quotas[place]) + (place in further))
    ]


def _begin_reason(request: Request, verdict: Verdict, words: Words) -> Request:
    """Return ``request`` for a reason behind a verdict that is written in the model's place."""
    decode = replace(request.decode, stop=(*request.decode.stop, "\n"))
    return replace(request, decode=decode, begin=f"{verdict_lines(words)[verdict]}\n{REASON}")


def _put_before(begin: str, reason: Completion) -> Completion:
    return replace(reason, text=f"{begin}{reason.text}")


def _goes_on(ids: Ids, request: Request) -> bool:
    """Whether an answer that began with ``ids`` would have gone on."""
    return 0 < len(ids) < request.decode.max_new_tokens


def answers_to_plain(answers: Answers) -> dict[str, Any]:
    """Return answers as JSON data."""
    plain = {
        **shallow(answers),
        "candidates": [shallow(candidate) for candidate in answers.candidates],
    }
    if not answers.openings:
        del plain["openings"]
    return plain


def answers_from_plain(row: Mapping[str, Any]) -> Answers:
    """Return answers, given what ``answers_to_plain`` and JSON leave of them."""
    candidates = (Candidate(**each) for each in row["candidates"])
    openings = map(tuple, row.get("openings", ()))
    return Answers(**{**row, "candidates": tuple(candidates), "openings": tuple(openings)})
