from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stageb.errors import StagebError
from stageb.guidance.judging.selection import (
    latest_of_the_best,
    load_selection_rule,
    majority,
    select,
)
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.read_guidance import make_neutral
from stageb.guidance.words.types import Answers, Candidate, Choice, Ticket, Verdict

TICKET = Ticket("m", "g1", "pass", (("image_1", "a: b"),))


def candidate(index: int, verdict: Verdict | None, temperature: float = 0.7) -> Candidate:
    reason = f"reason {index}" if verdict else ""
    return Candidate(index, 0, temperature, "raw", verdict, reason, verdict is not None, 5)


def answers(*candidates: Candidate, set_aside: str = "") -> Answers:
    return Answers(TICKET.key, 10, candidates, set_aside)


def of(*verdicts: Verdict | None) -> Answers:
    return answers(*(candidate(index, verdict) for index, verdict in enumerate(verdicts)))


def test_the_majority_wins_and_malformed_answers_have_no_vote() -> None:
    chosen = select(TICKET, of("pass", "fail", "pass", None, None, None), 0.5)
    assert (chosen.verdict, chosen.label_match, chosen.vote_strength) == ("pass", True, 2 / 3)
    assert (chosen.low_agreement, chosen.manual_review) == (False, "")


def test_a_tie_goes_to_fail() -> None:
    chosen = select(TICKET, of("pass", "fail"), 0.5)
    assert (chosen.verdict, chosen.label_match, chosen.selected_candidate) == ("fail", False, 1)
    assert select(TICKET, of("broken", "fail", "pass"), 0.0).verdict == "fail"


@pytest.mark.parametrize("verdicts", [("mid", "low", "high"), ("high", "mid", "low")])
def test_a_tie_of_other_labels_goes_to_the_name_that_comes_first(verdicts: tuple[str, ...]) -> None:
    assert select(TICKET, of(*verdicts), 0.0).verdict == "high"
    assert select(TICKET, of(*verdicts, "mid", "low"), 0.0).verdict == "low"


def test_the_winner_is_the_coolest_then_the_first() -> None:
    chosen = select(
        TICKET,
        answers(
            candidate(0, "fail", 0.0),
            candidate(1, "pass", 0.7),
            candidate(2, "pass", 0.3),
            candidate(3, "pass", 0.3),
        ),
        0.5,
    )
    assert (chosen.selected_candidate, chosen.reason) == (2, "reason 2")
    some = [candidate(index, "pass") for index in range(3)]
    assert {majority("m", order).index for order in permutations(some)} == {0}


@given(
    st.lists(st.sampled_from(["pass", "fail"]), min_size=1, max_size=6),
    st.integers(0, 6),
    st.integers(1, 6),
)
@example(["pass", "pass", "pass", "fail"], 3, 4)
def test_agreement_is_low_below_what_is_asked_for_and_says_how_many(
    verdicts: list[Verdict], part: int, whole: int
) -> None:
    agreeing, count = max(map(verdicts.count, verdicts)), len(verdicts)
    chosen = select(TICKET, of(*verdicts, None), part / whole)
    assert chosen.low_agreement == (agreeing * whole < part * count)
    told = f"low agreement: {agreeing} of {count}"
    assert chosen.manual_review == (told if chosen.low_agreement else "")


def test_no_usable_answer_is_wrong_whatever_the_label() -> None:
    for label in ("pass", "fail"):
        chosen = select(replace(TICKET, label=label), of(None, None), 0.8)
        assert (chosen.verdict, chosen.selected_candidate, chosen.label_match) == (
            None,
            None,
            False,
        )
        assert chosen.manual_review == "no usable answer in 2 candidates"
        assert chosen.low_agreement and not select(TICKET, of(None, None), 0.0).low_agreement


def test_where_a_rule_of_ones_own_chooses_none_of_several_a_person_is_told_of_how_many() -> None:
    chosen = select(TICKET, of("pass", "fail", None), 0.8, lambda mission, candidates: None)
    assert (chosen.verdict, chosen.label_match) == (None, False)
    assert chosen.manual_review == "no verdict chosen from 2 candidates"


def test_a_ticket_set_aside_gives_its_reason() -> None:
    chosen = select(TICKET, answers(set_aside="prompt of 5000 tokens, limit 4096"), 0.8)
    assert (chosen.verdict, chosen.manual_review) == (None, "prompt of 5000 tokens, limit 4096")


def choose_none(mission: str, candidates: Sequence[Candidate]) -> None:
    """A rule for configs to name."""


def make_one(mission: str, candidates: Sequence[Candidate]) -> Candidate:
    return replace(candidates[0], index=9)


def test_a_rule_of_ones_own_may_choose_none_but_no_candidate_that_it_was_not_given() -> None:
    given_ = of("pass", "fail").candidates
    assert load_selection_rule(f"{__name__}:choose_none")("m", given_) is None
    with pytest.raises(StagebError, match="return one of the candidates"):
        load_selection_rule(f"{__name__}:make_one")("m", given_)


# Among guidances


def choices(*right: int, n: int = 100) -> list[Choice]:
    return [
        Choice(
            replace(make_neutral("m", WORDS["en"]), step=step), n, {"pass": n - count, "fail": 0}
        )
        for step, count in enumerate(right)
    ]


def chosen(*right: int, n: int = 100) -> int:
    return latest_of_the_best(choices(*right, n=n)).guidance.step


def test_the_latest_within_one_standard_error_of_the_best_is_chosen() -> None:
    assert chosen(50, 80, 77) == 2  # 80 of 100: a standard error of 4
    assert chosen(50, 80, 76) == 2
    assert chosen(50, 80, 75) == 1
    assert chosen(50, 76, 80, 70) == 2
    assert chosen(50, 76, 80, 77, 60) == 3
    assert chosen(7) == 0
    assert chosen(3200, 3184, n=4000) == 1  # a standard error of 25 tickets
    assert chosen(3200, 3174, n=4000) == 0


def test_prices_choose_between_missed_failures_and_false_alarms() -> None:
    always_pass, careful, broad = (
        replace(choice, missed={"pass": alarms, "fail": missed})
        for choice, alarms, missed in zip(
            choices(0, 0, 0, n=1000), (0, 60, 400), (35, 10, 9), strict=True
        )
    )
    made = [broad, careful, always_pass]
    assert latest_of_the_best(made) is always_pass
    assert latest_of_the_best(made, {"pass": 1.0, "fail": 20.0}) is careful
    assert latest_of_the_best(made, {"pass": 5.0, "fail": 100.0}) is careful
    # one missed failure more or less is chance
    assert latest_of_the_best(made, {"pass": 1.0, "fail": 10_000.0}) is careful
    assert latest_of_the_best([careful, broad], {"pass": 1.0, "fail": 10_000.0}) is broad


def test_errors_count_for_the_tickets_that_they_stand_for_at_their_prices() -> None:
    """Of the passes one in ten was judged: an alarm more among them is ten more."""
    alarms, misses = (
        replace(choice, missed=missed, scale={"pass": 10.0})
        for choice, missed in zip(
            choices(0, 0, n=4000), ({"pass": 40, "fail": 0}, {"pass": 0, "fail": 60}), strict=True
        )
    )
    for price, better in ((1.0, misses), (20.0, alarms)):
        for made in ([alarms, misses], [misses, alarms]):
            assert latest_of_the_best(made, {"pass": 1.0, "fail": price}) is better
    unscaled = [replace(each, scale={}) for each in (misses, alarms)]
    assert latest_of_the_best(unscaled, {"pass": 1.0, "fail": 1.0}) is unscaled[1]


@given(st.lists(st.integers(0, 60), min_size=1, max_size=8))
def test_what_is_chosen_is_nearly_the_best_and_nothing_later_is(right: list[int]) -> None:
    made = choices(*right, n=60)
    one = latest_of_the_best(made)
    best = max(right) / 60
    error = (best * (1 - best) / 60) ** 0.5
    assert one.right / 60 >= best - error
    assert not [each for each in made[made.index(one) + 1 :] if each.right / 60 >= best - error]
