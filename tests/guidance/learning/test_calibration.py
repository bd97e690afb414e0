import math
from collections.abc import Sequence
from dataclasses import astuple, replace

from stageb.guidance.judging.answers import sigmoid
from stageb.guidance.learning.calibration import LEAST_SLOPE, find_scores, fit_calibration, measure_calibration_error
from stageb.guidance.words.types import PASS_FAIL, UNCALIBRATED, Calibration, Judgement, Verdict


def fit(
    log_odds: list[float], passes: list[bool], rulings: Sequence[Verdict | None] = (), counts: Sequence[float] = ()
) -> Calibration:
    return fit_calibration([(each, 0.0) for each in log_odds], name(passes), PASS_FAIL, rulings, counts)


def name(passes: list[bool]) -> list[Verdict]:
    return ["pass" if each else "fail" for each in passes]


def right(log_odds: list[float], passes: list[bool], calibration: Calibration) -> int:
    return sum((calibration.of(each) > 0) == label for each, label in zip(log_odds, passes, strict=True))


def test_verdicts_that_all_lie_on_one_side_are_moved_to_both() -> None:
    log_odds = [6 + place / 10 for place in range(40)]
    passes = [place >= 20 for place in range(40)]
    assert right(log_odds, passes, UNCALIBRATED) == 20
    assert right(log_odds, passes, fit(log_odds, passes)) >= 39


def test_noise_is_answered_with_the_share_of_the_labels() -> None:
    log_odds = [float(place % 7) - 3 for place in range(70)]
    passes = [place % 10 < 8 for place in range(70)]
    found = fit(log_odds, passes)
    assert all(0.7 < 1 / (1 + math.exp(-found.of(each))) < 0.9 for each in log_odds)


def test_a_model_that_is_wrong_throughout_is_not_turned_round() -> None:
    log_odds = [1.0 if place % 2 else -1.0 for place in range(60)]
    assert fit(log_odds, [each < 0 for each in log_odds]).slope >= LEAST_SLOPE


def test_too_few_tickets_or_one_label_calibrate_nothing() -> None:
    assert fit([1.0, -1.0], [True, False]) == UNCALIBRATED
    assert fit([1.0] * 50, [True] * 50) == UNCALIBRATED


def test_merits_give_back_their_log_odds() -> None:
    for log_odds in (-3.0, 0.2, 2.5):
        for label, sign in (("pass", 1), ("fail", -1)):
            judged = Judgement(sigmoid(sign * log_odds, 0.7), 0)
            passes, fails = find_scores(judged, label, PASS_FAIL, 0.7)
            assert math.isclose(passes - fails, log_odds, abs_tol=1e-3)


def test_two_calibrations_in_turn_are_one() -> None:
    first, then = Calibration(2.0, 1.0), Calibration(0.5, -3.0)
    assert then.after(first).of(4.0) == then.of(first.of(4.0))
    assert then.after(replace(first, rules=3.0)).given("fail").of(4.0) == then.of(first.of(4.0) - 3.0)


def test_what_rules_say_moves_a_verdict_either_way_and_their_silence_does_not() -> None:
    calibration = Calibration(2.0, 1.0, 3.0)
    moved = [calibration.given(ruling).of(0.5) for ruling in ("pass", None, "fail")]
    assert moved == [5.0, 2.0, -1.0]


def test_rules_weigh_what_they_are_worth_beside_the_model() -> None:
    passes = [place % 2 == 0 for place in range(80)]
    log_odds = [(1.0 if is_pass else -1.0) + place % 5 - 2 for place, is_pass in enumerate(passes)]
    right: list[Verdict | None] = ["pass" if is_pass else "fail" for is_pass in passes]
    often = [None if place % 4 else each for place, each in enumerate(right)]
    wrong: list[Verdict | None] = ["fail" if is_pass else "pass" for is_pass in passes]
    always, at_times, never = (fit(log_odds, passes, rulings).rules for rulings in (right, often, wrong))
    assert always > 2 and at_times > 1 and never == 0.0
    assert fit(log_odds, passes, [None] * 80) == fit(log_odds, passes)


def test_a_ticket_that_counts_twice_is_two_tickets() -> None:
    passes, log_odds = [place % 3 > 0 for place in range(60)], [float(place % 7) for place in range(60)]
    rulings: list[Verdict | None] = [("pass", "fail", None)[place % 3] for place in range(60)]
    twice = fit(log_odds * 2, passes * 2, rulings * 2)
    counted = fit(log_odds, passes, rulings, [2.0] * 60)
    assert all(math.isclose(*pair, abs_tol=1e-5) for pair in zip(astuple(twice)[:3], astuple(counted)[:3], strict=True))


def test_the_calibration_error_is_how_far_shares_are_from_probabilities() -> None:
    passes = [place % 4 > 0 for place in range(400)]
    assert measure_calibration_error([(math.log(3), 0.0)] * 400, name(passes)) < 0.03
    assert math.isclose(measure_calibration_error([(40.0, 0.0)] * 400, name(passes)), 0.25, abs_tol=1e-6)
