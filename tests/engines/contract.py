"""The Engine contract as checks that any engine can be put to: call ``check_contract(engine)`` in a
test of yours.

An engine that scores is put to ``check_scorer(engine)`` too, one that goes on with answers to
``check_resumer(engine)``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

import pytest

from stageb import seeds
from stageb.engines import Completion, Decode, Engine, Prompt, Question, Request, Resumer, Scorer

SYSTEMS = ("You judge tickets.\nG0. A ticket passes unless a rule fails it.", "另一个任务。", "")
USERS = (
    "image_1: a red valve",
    "image_1: 阀门 ok\nimage_2: " + "long and longer words, " * 6,
    "x",
    "  spaces around  ",
)
DECODES = (
    Decode(temperature=0.0, max_new_tokens=5),
    Decode(temperature=1.0, max_new_tokens=7),
    Decode(temperature=0.7, top_p=0.8, top_k=9, max_new_tokens=4, seed=3),
    Decode(temperature=1.3, max_new_tokens=6, stop=("e", "\n")),
)


ANSWERS = (
    ("Verdict: pass", "Verdict: fail"),
    ("yes", "yes, but", "no and more words", "y"),
    ("不通过", "通过"),
    ("a", "b"),
)


def requests() -> list[Request]:
    """Requests of many kinds: shared and single system texts, ragged lengths, none to three
    samples."""
    return list(_requests())


def _requests() -> Iterator[Request]:
    for place, user in enumerate(USERS):
        for system in SYSTEMS:
            decode = DECODES[(place + len(system)) % len(DECODES)]
            keys = tuple(seeds.stream(system, user, sample) for sample in range(place))
            yield Request(Prompt(system, user), decode, keys)
    yield Request(Prompt(SYSTEMS[0], USERS[0]), DECODES[1], (2**64 - 1, 0, 1, 1))


def check_contract(engine: Engine) -> None:
    """Put ``engine`` to every check."""
    for check in (
        check_protocol,
        check_lengths_and_order,
        check_nothing_given_is_changed,
        check_alone_equals_together,
        check_keys_decide,
        check_greedy_ignores_keys,
        check_limits,
        check_stops,
        check_count_tokens,
    ):
        check(engine)


def check_protocol(engine: Engine) -> None:
    assert isinstance(engine, Engine)
    assert engine.generate([]) == []
    assert engine.count_tokens([]) == []


def check_lengths_and_order(engine: Engine) -> None:
    asked = requests()
    answers = engine.generate(asked)
    assert [len(group) for group in answers] == [len(request.keys) for request in asked]
    assert all(type(answer) is Completion for group in answers for answer in group)
    assert engine.generate(asked[::-1]) == answers[::-1]
    assert engine.generate(asked) == answers


def check_nothing_given_is_changed(engine: Engine) -> None:
    asked = requests()
    before = copy.deepcopy(asked)
    engine.generate(asked)
    assert asked == before


def check_alone_equals_together(engine: Engine) -> None:
    asked = requests()
    for request, together in zip(asked, engine.generate(asked), strict=True):
        assert engine.generate([request]) == [together]
        for key, answer in zip(request.keys, together, strict=True):
            assert engine.generate([replace(request, keys=(key,))]) == [(answer,)]


def check_keys_decide(engine: Engine) -> None:
    request = Request(
        Prompt(SYSTEMS[0], USERS[0]), Decode(temperature=1.0, max_new_tokens=8), (11, 12, 11)
    )
    first, _, again = engine.generate([request])[0]
    assert first == again


def check_greedy_ignores_keys(engine: Engine) -> None:
    request = Request(
        Prompt(SYSTEMS[0], USERS[1]), Decode(temperature=0.0, max_new_tokens=6), (1, 2, 3)
    )
    assert len(set(engine.generate([request])[0])) == 1


def check_limits(engine: Engine) -> None:
    for request, answers in zip(asked := requests(), engine.generate(asked), strict=True):
        for answer in answers:
            assert 1 <= answer.tokens <= request.decode.max_new_tokens
            assert answer.finish in ("stop", "length")
            if answer.finish == "length":
                assert answer.tokens == request.decode.max_new_tokens


def check_stops(engine: Engine) -> None:
    free = Request(
        Prompt(SYSTEMS[0], USERS[0]), Decode(temperature=1.0, max_new_tokens=12), tuple(range(4))
    )
    for key, answer in zip(free.keys, engine.generate([free])[0], strict=True):
        for start in range(max(0, len(answer.text) - 3)):
            stop = answer.text[start : start + 3]
            if "�" in stop:  # half a character has no spelling that could stop an answer
                continue
            stopped = engine.generate(
                [replace(free, decode=replace(free.decode, stop=("never", stop)), keys=(key,))]
            )[0][0]
            assert stopped.text == answer.text[: answer.text.index(stop)]
            assert stopped.tokens <= answer.tokens
            assert stopped.finish == "stop"


def check_count_tokens(engine: Engine) -> None:
    prompts = [request.prompt for request in requests()]
    counts = engine.count_tokens(prompts)
    assert counts == [engine.count_tokens([prompt])[0] for prompt in prompts]
    assert all(count > 0 for count in counts)
    longer = engine.count_tokens(
        [replace(prompt, user=prompt.user + " and more words") for prompt in prompts]
    )
    assert all(more > count for more, count in zip(longer, counts, strict=True))


def questions() -> list[Question]:
    """Questions of many kinds: one differing token or several, an answer that another begins with,
    nothing in common."""
    kinds = [(system, user, answers) for system in SYSTEMS for user in USERS for answers in ANSWERS]
    return [Question(Prompt(system, user), answers) for system, user, answers in kinds]


def check_scorer(engine: Scorer) -> None:
    """Put ``engine`` to the checks of a ``Scorer``."""
    assert isinstance(engine, Scorer)
    assert engine.score([]) == []
    asked = questions()
    before = copy.deepcopy(asked)
    scores = engine.score(asked)
    assert asked == before
    assert [len(group) for group in scores] == [len(question.answers) for question in asked]
    assert all(type(score) is float and score < 0 for group in scores for score in group)
    _alike(engine.score(asked[::-1]), scores[::-1])
    for question, together in zip(asked, scores, strict=True):
        _alike(engine.score([question, question]), [together, together])
        turned = replace(question, answers=question.answers[::-1])
        _alike(engine.score([turned]), [together[::-1]])


def check_resumer(engine: Engine) -> None:
    """Put ``engine`` to the checks of a ``Resumer``."""
    assert isinstance(engine, Resumer)
    assert engine.resume([], []) == []
    asked, begun, expected = [], [], []
    for request, whole in zip(
        all_requests := requests(), engine.generate(all_requests), strict=True
    ):
        free = replace(request, decode=replace(request.decode, stop=("never",)))
        for key, answer in zip(free.keys, engine.generate([free])[0], strict=True):
            stop = next((each for each in answer.text[1:-1] if each not in "\ufffd"), "")
            one = replace(free, keys=(key,))
            if not stop:
                continue
            ((stopped,),) = engine.generate(
                [replace(one, decode=replace(one.decode, stop=("never", stop)))]
            )
            assert stopped.finish == "stop"
            assert 0 < len(stopped.ids) <= answer.tokens
            if len(stopped.ids) < one.decode.max_new_tokens:
                asked.append(one)
                begun.append((stopped.ids,))
                expected.append((answer,))
        assert all(answer.ids == () or answer.finish == "stop" for answer in whole)
    assert len(asked) > 5
    before = copy.deepcopy((asked, begun))
    found = engine.resume(asked, begun)
    assert (asked, begun) == before
    assert engine.resume(asked[::-1], begun[::-1]) == found[::-1]
    assert found == expected


def _alike(found: list[tuple[float, ...]], expected: list[tuple[float, ...]]) -> None:
    """Equal but for the last bits, which may move with a batch's shape."""
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-4, abs=1e-4)
