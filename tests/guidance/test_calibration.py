import math

from stageb.guidance.calibration import LEAST_SLOPE, find_log_odds, fit_calibration
from stageb.guidance.sampling import sigmoid
from stageb.guidance.types import UNCALIBRATED, Calibration


def right(log_odds: list[float], passes: list[bool], calibration: Calibration) -> int:
    return sum((calibration.of(each) > 0) == label for each, label in zip(log_odds, passes, strict=True))


def test_verdicts_that_all_lie_on_one_side_are_moved_to_both() -> None:
    log_odds = [6 + place / 10 for place in range(40)]
    passes = [place >= 20 for place in range(40)]
    assert right(log_odds, passes, UNCALIBRATED) == 20
    assert right(log_odds, passes, fit_calibration(log_odds, passes)) >= 39


def test_noise_is_answered_with_the_share_of_the_labels() -> None:
    log_odds = [float(place % 7) - 3 for place in range(70)]
    passes = [place % 10 < 8 for place in range(70)]
    found = fit_calibration(log_odds, passes)
    assert all(0.7 < 1 / (1 + math.exp(-found.of(each))) < 0.9 for each in log_odds)


def test_a_model_that_is_wrong_throughout_is_not_turned_round() -> None:
    log_odds = [1.0 if place % 2 else -1.0 for place in range(60)]
    assert fit_calibration(log_odds, [each < 0 for each in log_odds]).slope >= LEAST_SLOPE


def test_too_few_tickets_or_one_label_calibrate_nothing() -> None:
    assert fit_calibration([1.0, -1.0], [True, False]) == UNCALIBRATED
    assert fit_calibration([1.0] * 50, [True] * 50) == UNCALIBRATED


def test_merits_give_back_their_log_odds() -> None:
    for log_odds in (-3.0, 0.2, 2.5):
        assert math.isclose(find_log_odds(sigmoid(log_odds, 0.7), True, 0.7), log_odds, abs_tol=1e-3)
        assert math.isclose(find_log_odds(sigmoid(-log_odds, 0.7), False, 0.7), log_odds, abs_tol=1e-3)


def test_two_calibrations_in_turn_are_one() -> None:
    first, then = Calibration(2.0, 1.0), Calibration(0.5, -3.0)
    assert then.after(first).of(4.0) == then.of(first.of(4.0))
