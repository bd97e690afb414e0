"""Dialogues that are led together."""

from stageb.engines.protocol import Decode, Prompt, Request
from stageb.guidance.judging.questions import Dialogue, SampleAnswers, answer_all, sample_together


def request(name: str) -> Request:
    return Request(Prompt("", name), Decode(), (0,))


def asks(*questions: str) -> Dialogue[list[str]]:
    """Asks each of the questions in turn, a request for each letter, and returns all answers."""
    heard: list[str] = []
    for letters in questions:
        heard += yield SampleAnswers(tuple(map(request, letters)))
    return heard


def test_what_dialogues_ask_at_a_time_is_one_question_and_each_gets_its_own_answers() -> None:
    asked: list[str] = []

    def answer(question: SampleAnswers) -> list[str]:
        names = [each.prompt.user for each in question.requests]
        asked.append("".join(names))
        return [name.upper() for name in names]

    dialogues = [asks("ab"), asks(), asks("c", "de"), asks("f")]
    assert answer_all(sample_together(dialogues), answer) == [["A", "B"], [], ["C", "D", "E"], ["F"]]
    assert asked == ["abcf", "de"]


def test_one_alone_asks_what_it_would_have_asked_and_none_ask_nothing() -> None:
    assert next(sample_together([asks("ab")])) == next(asks("ab"))
    assert answer_all(sample_together([asks(), asks()]), lambda question: 1 / 0) == [[], []]
