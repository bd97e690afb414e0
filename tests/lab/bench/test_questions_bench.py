"""Rules that only a model can read, on tickets where a fake model reads what no word tells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from lab.bench.questions import Card, deal_anew, find_cuts, fit_cuts, measure, parse_questions
from stageb.engines.protocol import Completion, Prompt, Question, Request
from stageb.guidance.words.types import Ticket
from stageb.seeds import shuffled, stream, uniform

ANGRY = "Is the writer angry?"


class Reader:
    """A model that asks whether the writer is angry, and reads it off the length of a ticket; of all else it says no."""

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int]:
        return [1 for _ in prompts]

    def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
        return [(Completion(f"1. {ANGRY}\n2. Is it about hotels?", 9, "stop"),) for _ in requests]

    def score(self, questions: Sequence[Question]) -> list[tuple[float, ...]]:
        return [self._weigh(question.prompt) for question in questions]

    def _weigh(self, prompt: Prompt) -> tuple[float, float]:
        is_angry = len(prompt.user.split("\n")[1].split()) % 2 == 0
        return (-0.1, -3.0) if ANGRY in prompt.system and is_angry else (-3.0, -0.1)


def write_tickets(count: int = 240) -> list[Ticket]:
    """Words in any order; of an even number of them the ticket fails, so that no word tells."""
    words = "the room was clean and warm with a view over quiet old streets".split()
    keys = [stream("questions", number) for number in range(count)]
    sizes = [6 + int(6 * uniform(key, 0)) for key in keys]
    texts = [" ".join(shuffled(words, key)[:size]) for key, size in zip(keys, sizes, strict=True)]
    sides = ["pass" if size % 2 else "fail" for size in sizes]
    return [
        Ticket("mail", f"t{number}", side, (("image_1", text),))
        for number, (side, text) in enumerate(zip(sides, texts, strict=True))
    ]


def test_what_the_model_reads_is_learnt_beside_words_and_proven() -> None:
    found = measure(Reader(), write_tickets(), seed=1, dealt=False, most=2)
    assert "error" not in found
    assert not found["words"]["proven"]
    for name in ("answers", "both"):
        assert found[name]["proven"]
        assert found[name]["questions"] == [ANGRY]
        assert found[name]["test"] == 1
    assert found["answers_logistic"] == 1
    assert {name: found["proposed"][name] for name in ("answers", "readable", "questions", "kept")} == {
        "answers": 24,
        "readable": 24,
        "questions": 2,
        "kept": 2,
    }


def test_labels_dealt_anew_prove_nothing() -> None:
    found = measure(Reader(), write_tickets(), seed=1, dealt=True, most=2)
    assert "error" not in found
    assert not found["both"]["proven"]


def test_one_failure_is_told_beside_what_was_found() -> None:
    class Mute(Reader):
        def score(self, questions: Sequence[Question]) -> list[tuple[float, ...]]:
            raise RuntimeError("no memory")

    found = measure(Mute(), write_tickets(), seed=1, dealt=False, most=2)
    assert "no memory" in found["error"]
    assert "words" in found


@pytest.mark.parametrize(
    ("line", "question"),
    [
        ("Is the writer angry?", "Is the writer angry?"),
        ("3. **Does it report a fault?**", "Does it report a fault?"),
        ("- Was anything broken? ", "Was anything broken?"),
        ("What is broken?", None),
        ("Is it in list A?", None),
        ("Does the ticket pass?", None),
        ("Here are six questions:", None),
    ],
)
def test_lines_that_are_questions(line: str, question: str | None) -> None:
    assert parse_questions(f"\n{line}\n") == ([question] if question else [])


def test_cuts_are_found_of_a_model_that_says_yes_to_all() -> None:
    log_odds = np.array([[1.0, 7.0], [5.0, 7.0], [1.0, 9.0], [2.0, 7.5]])
    code = np.array([[False, False], [True, False], [False, True], [False, False]])
    assert ((log_odds >= find_cuts(log_odds, code)) == code).all()


def test_a_cut_moves_where_labels_say_so() -> None:
    log_odds, fails = np.array([[1.0], [2.0], [3.0]]), np.array([False, True, True])
    assert fit_cuts(log_odds, np.array([3.0]), np.ones(1), Card("fail", 1, []), fails).tolist() == [2.0]


def test_labels_are_dealt_to_train_half_of_each() -> None:
    tickets = write_tickets(60)
    dealt = deal_anew(tickets, 3)
    assert sum(ticket.label == "fail" for ticket in dealt) == 30
    assert [ticket.group_id for ticket in dealt] == [ticket.group_id for ticket in tickets]
    assert [t.label for t in dealt] != [t.label for t in tickets]
