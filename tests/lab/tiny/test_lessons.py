"""Reflection rows show what the loop would show, and their answers are edits that the loop
accepts."""

import json
import random
from dataclasses import replace
from functools import cache
from itertools import islice

import pytest
from times import TIMES

from lab.tiny.answers import executed, read_rule
from lab.tiny.lessons import Lesson, lessons
from lab.tiny.operations import cited
from lab.tiny.rules import CANONICAL
from lab.tiny.stage import LOSS_PRICE, edited
from lab.tiny.teacher import LEAST_GAIN
from stageb.guidance.config import Language, ReflectionConfig
from stageb.guidance.learning.proposals import parse_proposal
from stageb.guidance.rules.edits import apply
from stageb.guidance.rules.judge import check_proposal
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.vocabulary import Vocabulary


@cache
def some(language: Language = "en") -> tuple[Lesson, ...]:
    return tuple(
        islice(
            lessons(random.Random(5), 1.0, chinese=float(language == "zh")),
            100 if language == "en" else 50,
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "zh"])
def test_answers_are_operations_that_the_loop_accepts(language: Language) -> None:
    accepted = total = 0
    for lesson in some(language):
        assert lesson.row.system.startswith(WORDS[language].reflection.partition("{")[0])
        assert sum(lesson.row.shares) == pytest.approx(len(lesson.row.shares))
        for _, answer in lesson.row.segments:
            proposal = parse_proposal(
                answer, lesson.shown, lesson.guidance, ReflectionConfig(), WORDS[language], 0
            )
            total += 1
            accepted += len(proposal.operations)
    # the rest repeat a rule that is there already, or state it at more length than a rule may have
    assert accepted > 0.9 * total


@pytest.mark.slow
def test_an_edit_that_takes_a_line_of_the_evidence_quotes_it() -> None:
    quoted = mended = 0
    for lesson in some():
        lines = lesson.row.segments[0][0].split("\n")
        for option, (_, answer) in zip(lesson.options, lesson.row.segments, strict=False):
            (operation,) = json.loads(answer)["operations"]
            found, rest = cited(option.edit.grounds, lesson.shown)
            if not rest and len(found) == 1:
                assert any(line.startswith(f"[{found[0]}] ") for line in lines)
                assert operation["rationale"].endswith(f"[{found[0]}]")
                quoted += 1
            if (
                lesson.shown.rule
                and operation["op"] == "update"
                and operation["key"] == lesson.shown.rule
            ):
                assert operation["rationale"].startswith(lesson.shown.rule + ";")
                mended += 1
    assert quoted > 30
    assert mended


def test_what_the_loop_makes_of_an_answer_is_what_the_teacher_meant() -> None:
    """The text, read back and executed, judges the pool like the option; and the product applies it
    to the same rule."""
    for lesson in some()[:: 1 if TIMES > 1 else 4]:
        pool, book = lesson.stage.pool, lesson.stage.book
        known = Vocabulary.of(
            pool.ticket(position, random.Random(1)) for position in range(len(pool.facts))
        )
        for _, answer in lesson.row.segments:
            proposal = parse_proposal(
                answer, lesson.shown, lesson.guidance, ReflectionConfig(), WORDS["en"], 0
            )
            for operation in proposal.operations:
                after = executed(book, operation)
                assert after is not None
                checked = check_proposal(
                    replace(proposal, operations=(operation,)), known, WORDS["en"]
                ).operations
                texts = {rule.text for rule in apply(lesson.guidance, checked).rules[1:]}
                written = {rule.text for rule in lesson.guidance.rules}
                is_known = all(
                    rule.text("en", CANONICAL) in written for rule in book.rules.values()
                )
                # What is read loosely is written anew, with "not above" for "at most".
                is_respelt = checked != (operation,) and " is at " in (operation.text or "")
                if checked and is_known and not is_respelt:
                    assert texts == {rule.text("en", CANONICAL) for rule in after.rules.values()}
                tested = lesson.stage.tested
                assert (pool.right(after) & tested).bit_count() > (
                    pool.right(book) & tested
                ).bit_count()


@pytest.mark.parametrize(
    "text",
    [
        "Fail if a is b.",
        "Pass if a is b, c or d and e is not f.",
        "Fail if a is neither b nor c unless d is at least 3.5 kg.",
        "Fail unless a is b.",
        "Fail if a summary mentions b or c d and no summary mentions e.",
        "Fail if a is above 3 and b is below 4 and c is at most 5.",
        "Fail if a equals b and c differs from d.",
        "Fail if a is above b unless c-d is below e.",
    ],
)
def test_canonical_rules_are_read_back(text: str) -> None:
    rule = read_rule(text)
    assert rule is not None
    assert rule.text("en", CANONICAL) == text


def test_lessons_come_from_their_seed_alone() -> None:
    one, two = (
        [lesson.row for lesson in islice(lessons(random.Random(7), 1.0), 12)] for _ in range(2)
    )
    assert one == two


# The teacher: masks are what rules mean, and edits do what their scores say


@pytest.mark.slow
def test_a_book_judges_a_pool_as_it_judges_each_ticket() -> None:
    for lesson in islice(lessons(random.Random(2), 1.0), 40):
        pool, book = lesson.stage.pool, lesson.stage.book
        for position, facts in enumerate(pool.facts):
            right = book.judge(facts, pool.world.language)[0] == pool.labels[position]
            assert pool.right(book) >> position & 1 == right


def test_options_turn_the_cases_that_they_name_and_gain_what_they_score() -> None:
    for lesson in islice(lessons(random.Random(3), 1.0), 60):
        stage, pool = lesson.stage, lesson.stage.pool
        before = pool.right(stage.book)
        assert [o.score for o in lesson.options] == sorted(
            (o.score for o in lesson.options), reverse=True
        )
        for option in lesson.options:
            after = pool.right(edited(stage.book, option.edit))
            won, lost = (
                (mask & stage.tested).bit_count() for mask in (after & ~before, before & ~after)
            )
            assert LEAST_GAIN <= option.score <= won - LOSS_PRICE * lost
            assert option.turned
            for place in option.turned:
                position = stage.shown[place]
                assert after >> position & 1
                assert not lesson.shown.cases[place].right
