"""What a synthetic rule says and what it does are the same thing."""

import random

import pytest

from lab.tiny.examples import labelled_row, meet, miss, rollout_row
from lab.tiny.rules import BETWEEN, CANONICAL, COMPARISONS, Book, Condition, Facts, Style, WorldRule
from lab.tiny.worlds import draw_condition, draw_rule, draw_world
from stageb.engines import Prompt
from stageb.guidance.config import Language
from stageb.guidance.judging.answers import parse_answer
from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.judge import read_rules
from stageb.guidance.rules.prompts import WORDS, Words, rollout_prompt
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.words.types import Guidance, Ticket

SMALL = Facts(
    {"size": "small", "age": "39", "years": "39", "weight": "2.5 kg"}, ("pump", "leaking", "oil")
)


@pytest.mark.parametrize(
    ("condition", "text", "holds"),
    [
        (Condition("is", "size", ("small",)), "size is small", True),
        (Condition("is", "size", ("big",)), "size is big", False),
        (Condition("not", "size", ("big",)), "size is not big", True),
        (Condition("in", "size", ("big", "small")), "size is big or small", True),
        (Condition("above", "age", ("39",)), "age is above 39", False),
        (Condition("above", "age", ("38",)), "age is above 38", True),
        (Condition("below", "age", ("100",)), "age is below 100", True),
        (Condition("below", "age", ("39",)), "age is below 39", False),
        (Condition("least", "age", ("39",)), "age is at least 39", True),
        (Condition("most", "age", ("38",)), "age is at most 38", False),
        (Condition("above", "weight", ("2.4 kg",)), "weight is above 2.4 kg", True),
        (Condition("most", "weight", ("2.5",)), "weight is at most 2.5", True),
        (Condition("none", "size", ("big", "tall")), "size is neither big nor tall", True),
        (Condition("none", "size", ("big", "small")), "size is neither big nor small", False),
        (Condition("silent", "", ("water",)), "no summary mentions water", True),
        (Condition("silent", "", ("oil", "water")), "no summary mentions oil or water", False),
        (Condition("mentions", "", ("leak",)), "a summary mentions leak", True),
        (Condition("mentions", "", ("lea",)), "a summary mentions lea", False),
        (Condition("mentions", "", ("pump leak",)), "a summary mentions pump leak", True),
        (Condition("mentions", "", ("oil leak",)), "a summary mentions oil leak", False),
        (Condition("is", "colour", ("red",)), "colour is red", False),
        (Condition("not", "colour", ("red",)), "colour is not red", False),
        (Condition("none", "colour", ("red", "blue")), "colour is neither red nor blue", False),
        (Condition("above", "size", ("3",)), "size is above 3", False),
        (Condition("equals", "age", ("years",)), "age equals years", True),
        (Condition("equals", "age", ("size",)), "age equals size", False),
        (Condition("differs", "age", ("size",)), "age differs from size", True),
        (Condition("differs", "age", ("colour",)), "age differs from colour", False),
        (Condition("over", "age", ("weight",)), "age is above weight", True),
        (Condition("under", "age", ("weight",)), "age is below weight", False),
        (Condition("over", "age", ("size",)), "age is above size", False),
    ],
)
def test_a_condition_means_what_it_says(condition: Condition, text: str, holds: bool) -> None:
    assert condition.text("en", CANONICAL) == text
    assert condition.holds(SMALL) is holds


def test_pass_rules_win_then_fail_rules_then_the_headline() -> None:
    small = WorldRule("fail", (Condition("is", "size", ("small",)),))
    oily = WorldRule("pass", (Condition("mentions", "", ("oil",)),))
    assert Book({"G1": small, "G2": oily}, "fail").judge(SMALL, "en")[0] == "pass"
    assert Book({"G1": small}, "pass").judge(SMALL, "en") == ("fail", "size is small (G1)", "G1")
    assert Book({}, "fail").judge(SMALL, "en")[0] == "fail"


def test_exceptions_and_unless() -> None:
    small, oily = Condition("is", "size", ("small",)), Condition("mentions", "", ("oil",))
    assert (
        WorldRule("fail", (small,), exception=oily).text("en", CANONICAL)
        == "Fail if size is small unless a summary mentions oil."
    )
    assert not WorldRule("fail", (small,), exception=oily).fires(SMALL)
    assert (
        WorldRule("fail", (small,), inverted=True).text("en", CANONICAL)
        == "Fail unless size is small."
    )
    assert not WorldRule("fail", (small,), inverted=True).fires(SMALL)
    assert (
        WorldRule("fail", (Condition("is", "size", ("big",)),), inverted=True).seen(SMALL, "en")
        == "size is not big"
    )


@pytest.mark.parametrize("chinese", [0.0, 1.0])
def test_worlds_draw_tickets_and_rules_that_speak_of_them(chinese: float) -> None:
    rng = random.Random(5)
    fired = silent = 0
    for _ in range(60):
        world = draw_world(rng, chinese=chinese)
        rule = draw_rule(world, rng)
        assert rule is not None
        assert rule.text(world.language, CANONICAL)
        for _ in range(5):
            facts = world.draw(rng)
            ticket = world.ticket(facts, rng)
            assert [name for name, _ in ticket.per_image] == [
                f"image_{n + 1}" for n in range(len(ticket.per_image))
            ]
            assert all(text.strip() for _, text in ticket.per_image)
            fired += rule.fires(facts)
            silent += not rule.fires(facts)
    assert min(fired, silent) > 30


# Rollout rows


@pytest.mark.parametrize(("chinese", "language"), [(0.0, "en"), (1.0, "zh")])
def test_rollout_answers_are_strict_two_line_answers_in_both_verdicts(
    chinese: float, language: Language
) -> None:
    rng = random.Random(1)
    verdicts = []
    for _ in range(30):
        row = rollout_row(rng, draw_world(rng, chinese=chinese))
        assert row.system.startswith(WORDS[language].rollout.partition("{")[0])
        for user, answer in row.segments:
            assert user.startswith("image_1: ")
            parsed = parse_answer(answer, WORDS[language])
            assert parsed is not None, answer
            verdicts.append(parsed[0])
    assert 0.3 < verdicts.count("pass") / len(verdicts) < 0.7


@pytest.mark.parametrize("chinese", [0.0, 1.0])
def test_rows_of_own_labels_answer_as_the_rules_say_as_code(
    chinese: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, agree, read, seen = random.Random(3), 0, 0, set()
    judged: list[tuple[Ticket, Guidance, Words]] = []

    def record(ticket: Ticket, guidance: Guidance, words: Words) -> Prompt:
        judged.append((ticket, guidance, words))
        return rollout_prompt(ticket, guidance, words)

    monkeypatch.setattr(Style, "draw", lambda rng: CANONICAL)
    monkeypatch.setattr("lab.tiny.examples.rollout_prompt", record)
    for _ in range(40):
        judged.clear()
        row = labelled_row(rng, draw_world(rng, chinese=chinese))
        vocabulary = Vocabulary.of(ticket for ticket, _, _ in judged)
        for (ticket, guidance, words), (_, answer) in zip(judged, row.segments, strict=True):
            parsed = parse_answer(answer, words)
            assert parsed is not None and parsed[0] in guidance.labels, answer
            ruling = read_rules(guidance, vocabulary, words).compile()(reading(ticket))
            read += ruling.verdict is not None
            agree += ruling.verdict == parsed[0]
            seen.add(guidance.labels.index(parsed[0]))
    assert read > 300 and agree > 0.97 * read
    assert len(seen) > 8


def test_tickets_are_drawn_on_both_sides_of_a_condition() -> None:
    rng = random.Random(4)
    met = missed = compared = between = 0
    for _ in range(400):
        world = draw_world(rng, chinese=0.0)
        condition = draw_condition(world, rng)
        if condition is None or not condition.attribute:
            continue
        forced: dict[str, str] = {}
        meet(world, condition, rng, forced, [])
        if forced:  # a comparison may find no number that meets it in a few tries
            assert condition.holds(Facts(forced, ()))
            met += 1
        forced = {}
        miss(world, condition, rng, forced)
        if forced:
            assert not condition.holds(Facts(forced, ()))
            missed += 1
            compared += condition.kind in COMPARISONS
            between += condition.kind in BETWEEN
    assert met > 150
    assert missed > 150
    assert compared > 10
    assert between > 10
