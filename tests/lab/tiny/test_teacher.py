"""The teacher's masks are what the rules mean, and its edits do what their scores say."""

import random
from itertools import islice

from lab.tiny.lessons import lessons
from lab.tiny.stage import LOSS_PRICE, edited
from lab.tiny.teacher import LEAST_GAIN


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
        assert [o.score for o in lesson.options] == sorted((o.score for o in lesson.options), reverse=True)
        for option in lesson.options:
            after = pool.right(edited(stage.book, option.edit))
            won, lost = ((mask & stage.tested).bit_count() for mask in (after & ~before, before & ~after))
            assert LEAST_GAIN <= option.score <= won - LOSS_PRICE * lost
            assert option.turned
            for place in option.turned:
                position = stage.shown[place]
                assert after >> position & 1
                assert not lesson.shown.cases[place].right
