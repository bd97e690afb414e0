import math
from collections.abc import Sequence
from dataclasses import astuple
from itertools import combinations
from statistics import mean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stageb.guidance.learning.calibrate import (
    FEWEST_TO_FIT,
    LEAST_SLOPE,
    Numbers,
    calibrate,
    centre,
    find_spread,
    fit_calibration,
    fit_logistic,
    measure_calibration_error,
)
from stageb.guidance.learning.scorecards import PENALTY
from stageb.guidance.words.calibration import find_shares
from stageb.guidance.words.types import (
    PASS_FAIL,
    UNCALIBRATED,
    Calibration,
    Guidance,
    Judgement,
    Rule,
    Ticket,
    Verdict,
)


def fit(
    log_odds: list[float],
    passes: list[bool],
    rulings: Sequence[Verdict | None] = (),
    counts: Sequence[float] = (),
) -> Calibration:
    return fit_calibration(
        [(each, 0.0) for each in log_odds], name(passes), PASS_FAIL, rulings, counts=counts
    )


def name(passes: list[bool]) -> list[Verdict]:
    return ["pass" if each else "fail" for each in passes]


def right(log_odds: list[float], passes: list[bool], calibration: Calibration) -> int:
    return sum(
        (calibration.of(each) > 0) == label for each, label in zip(log_odds, passes, strict=True)
    )


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
    passes = [place % 2 == 0 for place in range(FEWEST_TO_FIT)]
    log_odds = [1.0 if is_pass else -1.0 for is_pass in passes]
    assert fit(log_odds[1:], passes[1:]) == UNCALIBRATED != fit(log_odds, passes)
    assert fit([1.0] * 50, [True] * 50) == UNCALIBRATED


def test_a_ticket_far_above_the_least_points_is_surer_than_one_that_just_reaches_them() -> None:
    """Of each five tickets with a lead of one point, three have the label; of those with a lead of
    six, all."""
    leads = [[0.0, float(lead)] for lead in (1, 6, -1, -6) for _ in range(25)]
    labelled = [
        "fail" if (n % 5 < (3 if lead == 1 else 5)) == (lead > 0) else "pass"
        for n, (_, lead) in enumerate(leads)
    ]
    rulings = ["fail" if lead > 0 else "pass" for _, lead in leads]
    found = fit_calibration([(0.0, 0.0)] * 100, labelled, PASS_FAIL, rulings, leads)
    assert found.points > 0
    near, far = (found.given("fail", (("fail", lead),)).of(0.0) for lead in (1, 6))
    assert far < near < 0 < found.given("pass", (("fail", -6),)).of(0.0)
    near, far = (found.given("pass", (("pass", lead),)).of(0.0) for lead in (1, 6))
    assert 0 < near < far
    labels = ("low", "medium", "high")
    calibration = Calibration.of_labels(labels, 1.0, [0.0] * 3, rules=1.0, points=0.5)
    assert calibration.given("low", (("low", 2), ("high", -4))).weigh((0.0, 0.0, 0.0)) == (
        2.0,
        0.0,
        -2.0,
    )


@given(st.permutations(["low", "medium", "high"]), st.sampled_from([None, "low", "medium", "high"]))
def test_what_rules_say_of_a_ticket_is_added_to_what_each_label_is_moved_by(
    labels: list[Verdict], ruling: Verdict | None
) -> None:
    moves = {"low": 3.0, "medium": -1.0, "high": 0.5}
    calibration = Calibration.of_labels(
        tuple(labels), 2.0, [moves[each] for each in labels], rules=1.0, points=0.5
    )
    weighed = calibration.given(ruling, (("high", -4),)).weigh([0.25] * 3)
    wanted = {label: 0.5 + move + (label == ruling) for label, move in moves.items()}
    wanted["high"] -= 2.0
    assert weighed == tuple(wanted[label] for label in labels)


@given(st.lists(st.floats(-50, 0), min_size=3, max_size=5), st.sampled_from([-5000.0, 0.0, 5000.0]))
def test_labels_are_as_probable_however_long_the_prompt_was(
    scores: list[float], further: float
) -> None:
    """Their scores count by what is between them alone, though each may be hopeless by itself."""
    moved = [score + further for score in scores]
    assert find_shares(moved, 0.5) == pytest.approx(find_shares(scores, 0.5), abs=2e-6)


NUMBERS = st.sampled_from([-3.0, -0.5, 0.0, 0.25, 1.0, 4.0])


@given(st.data(), st.sampled_from([PASS_FAIL, ("low", "medium", "high")]), st.booleans())
def test_two_calibrations_in_turn_are_one(
    data: st.DataObject, labels: tuple[Verdict, ...], is_first: bool
) -> None:
    """Whichever of them weighs what the rules say, by verdicts and by points."""
    each_label = st.tuples(*[NUMBERS] * len(labels))

    def draw(weighs_rules: bool) -> Calibration:
        rules, points = (data.draw(NUMBERS) if weighs_rules else 0.0 for _ in range(2))
        slope, offsets = data.draw(st.sampled_from([0.5, 2.0])), data.draw(each_label)
        return Calibration.of_labels(labels, slope, offsets, rules, points)

    first, then, scores = draw(is_first), draw(not is_first), data.draw(each_label)
    ruling = data.draw(st.sampled_from([None, *labels]))
    leads = data.draw(st.sets(st.sampled_from(labels)).map(sorted))
    said = ruling, tuple((label, data.draw(st.integers(-4, 4))) for label in leads)
    in_turn = then.given(*said).weigh(first.given(*said).weigh(scores))
    together = then.after(first).given(*said).weigh(scores)
    assert [each - together[-1] for each in together] == pytest.approx(
        [each - in_turn[-1] for each in in_turn]
    )


@given(
    NUMBERS,
    st.sampled_from([0.5, 1.0, 2.0]),
    st.sampled_from([0.5, 3.0]),
    st.sampled_from(PASS_FAIL),
)
def test_a_lead_that_is_sure_decides_as_the_model_would_after_a_second_calibration(
    offset: float, slope: float, reach: float, ruling: Verdict
) -> None:
    """Whatever a model says that is within the reach of the first."""
    first = Calibration(2.0, -0.5, rules=1.0, points=0.5, reach=reach)
    together = Calibration(slope, offset).after(first)
    sure = [lead for lead in range(40) if together.is_sure(ruling, ((ruling, lead),), PASS_FAIL)]
    assert sure
    for lead in sure:
        weighed = together.given(ruling, ((ruling, lead),))
        for asked in (-reach, reach):
            log_odds = weighed.of((asked - first.offset) / first.slope)
            assert (log_odds > 0) == (ruling == "pass")


@given(st.lists(NUMBERS, min_size=2, max_size=4), st.sampled_from([0.5, 2.0]))
def test_a_temperature_flattens_shares_of_any_number_of_labels(
    scores: list[float], temperature: float
) -> None:
    scaled = [score / temperature for score in scores]
    assert find_shares(scores, temperature) == pytest.approx(find_shares(scaled, 1.0), abs=2e-6)


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
    always, at_times, never = (
        fit(log_odds, passes, rulings).rules for rulings in (right, often, wrong)
    )
    assert always > 2 and at_times > 1 and never == 0.0
    assert fit(log_odds, passes, [None] * 80) == fit(log_odds, passes)


def test_a_ticket_that_counts_twice_is_two_tickets() -> None:
    passes, log_odds = (
        [place % 3 > 0 for place in range(60)],
        [float(place % 7) for place in range(60)],
    )
    rulings: list[Verdict | None] = [("pass", "fail", None)[place % 3] for place in range(60)]
    twice = fit(log_odds * 2, passes * 2, rulings * 2)
    counted = fit(log_odds, passes, rulings, [2.0] * 60)
    assert all(
        math.isclose(*pair, abs_tol=1e-5)
        for pair in zip(astuple(twice)[:3], astuple(counted)[:3], strict=True)
    )


def test_the_calibration_error_is_how_far_shares_are_from_probabilities() -> None:
    passes = [place % 4 > 0 for place in range(400)]
    assert measure_calibration_error([(math.log(3), 0.0)] * 400, name(passes)) < 0.03
    assert math.isclose(
        measure_calibration_error([(40.0, 0.0)] * 400, name(passes)), 0.25, abs_tol=1e-6
    )


def test_the_calibration_error_is_that_of_the_mean_label() -> None:
    """Where all tickets are surely low and one in three is: a third of each other label, and two
    thirds of this one, are not as was said."""
    labels = ("low", "medium", "high")
    found = measure_calibration_error(
        [(40.0, 0.0, 0.0)] * 300, [labels[n % 3] for n in range(300)], labels
    )
    assert found == pytest.approx((2 / 3 + 1 / 3 + 1 / 3) / 3, abs=0.01)


@given(st.lists(st.lists(st.floats(-9, 9), min_size=3, max_size=3), min_size=1, max_size=9))
def test_labels_are_as_far_apart_as_pairs_of_them_are_in_the_root_mean_square(
    scores: list[list[float]],
) -> None:
    squares = [(a - b) ** 2 for each in scores for a, b in combinations(each, 2)]
    assert find_spread(centre(scores)) == pytest.approx(math.sqrt(mean(squares)), abs=1e-6)


@pytest.mark.parametrize("labels", [PASS_FAIL, ("low", "medium", "high")])
def test_what_a_ticket_adds_to_the_scores_of_all_labels_says_nothing(
    labels: tuple[Verdict, ...],
) -> None:
    """As where a model thinks little of every answer to some tickets."""
    labelled = [labels[n % 7 % len(labels)] for n in range(120)]
    scores = [
        [float(n * place % 5) + 2 * (label == each) for place, each in enumerate(labels)]
        for n, label in enumerate(labelled)
    ]
    moved = [[score - 10.0 * (n % 4) for score in each] for n, each in enumerate(scores)]
    assert fit_calibration(moved, labelled, labels) == fit_calibration(scores, labelled, labels)


@pytest.mark.parametrize("labels", [PASS_FAIL, ("low", "medium", "high")])
def test_the_calibration_error_is_the_same_in_whichever_order_labels_stand(
    labels: tuple[Verdict, ...],
) -> None:
    """Each label counts, not the first alone."""
    labelled = [labels[n % 7 % len(labels)] for n in range(200)]
    scores = [[float(n * place % 5) for place in range(len(labels))] for n in range(200)]
    turned = [each[::-1] for each in scores]
    assert measure_calibration_error(scores, labelled, labels) == pytest.approx(
        measure_calibration_error(turned, labelled, labels[::-1])
    )


@pytest.mark.parametrize("labels", [PASS_FAIL, ("low", "medium", "high")])
@pytest.mark.parametrize("spread", [1.0, 10.0])
def test_few_tickets_that_are_all_right_make_no_verdict_certain(
    labels: tuple[Verdict, ...], spread: float
) -> None:
    labelled = [labels[n % len(labels)] for n in range(FEWEST_TO_FIT + 2)]
    scores = [[spread * (each == label) for each in labels] for label in labelled]
    found = fit_calibration(scores, labelled, labels)
    chances = [
        find_shares(found.weigh(each), 1.0)[labels.index(label)]
        for each, label in zip(scores, labelled, strict=True)
    ]
    assert all(0.7 < each < 0.99 for each in chances)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 1.0, 20.0]),
            st.sampled_from([0.0, 1.0, -8.0]),
            st.sampled_from([0.0, 0.2, 1.0]),
        ),
        min_size=2,
        max_size=12,
    ),
    st.sampled_from([0.05, PENALTY, 1.0, 5.0]),
    st.lists(st.floats(0.5, 4), min_size=12, max_size=12),
    st.lists(st.sampled_from([-1.0, 0.0, 2.0]), min_size=12, max_size=12),
)
def test_no_other_weights_of_a_regression_lose_less(
    drawn: list[tuple[float, float, float]], ridge: float, counts: list[float], others: list[float]
) -> None:
    """By the likelihood of the labels, beside what others say of each row, and by the ridge that
    draws all weights to 0; also where rows are so wide, and the ridge so weak, that a step of
    Newton's method would go too far."""
    rows, labels = (
        np.array([[1.0, *each[:2]] for each in drawn]),
        np.array([each[2] for each in drawn]),
    )
    weights, penalty = np.array(counts[: len(drawn)]), np.array([0.01, ridge, ridge])
    beside = np.array(others[: len(drawn)])

    def lose(fitted: Numbers) -> float:
        log_odds = rows @ fitted + beside
        missed = np.logaddexp(0, log_odds) - labels * log_odds
        return float((penalty * fitted**2).sum() / 2 + weights @ missed)

    fitted = fit_logistic(rows, labels, weights, np.zeros(3), penalty, beside)
    for step in 0.01 * np.vstack([np.eye(3), -np.eye(3)]):
        assert lose(fitted) < lose(fitted + step)


def test_a_guidance_that_is_calibrated_again_weighs_what_the_model_says_by_both() -> None:
    """What is judged under a calibration comes out of it; the next one stands behind, and neither
    takes its place."""
    first = Calibration(0.5, -2.0)
    tickets = [
        Ticket("m", f"g{n}", "pass" if n % 3 else "fail", (("image_1", "a"),)) for n in range(60)
    ]
    raw = {n: (2.0 if n % 3 else -1.0) + 3 * (n % 7 == 0) for n in range(60)}
    judged = {n: Judgement(0.5, 0, scores=first.weigh((each, 0.0))) for n, each in raw.items()}
    guidance = Guidance("m", 1, (Rule("G0", "the headline"),), 1, calibration=first)
    found, p_correct = calibrate(guidance, judged, tickets, 1.0)
    for n, each in raw.items():
        (log_odds, _) = found.calibration.weigh((each, 0.0))
        chance = 1 / (1 + math.exp(-log_odds))
        assert p_correct[n] == pytest.approx(
            chance if tickets[n].label == "pass" else 1 - chance, abs=1e-4
        )


@pytest.mark.parametrize("labels", [PASS_FAIL, ("low", "medium", "high")])
@pytest.mark.parametrize("is_right", [True, False])
def test_tickets_that_rules_decide_alone_calibrate_nothing(
    labels: tuple[Verdict, ...], is_right: bool
) -> None:
    """Whether the rules are right or wrong, the model is calibrated as if there were only the other
    tickets, and each ticket of theirs stays as right as it was."""
    tickets = [
        Ticket("m", f"g{n}", labels[n % len(labels)], (("image_1", "a"),)) for n in range(120)
    ]
    by_model, by_rules = dict[int, Judgement](), dict[int, Judgement]()
    for n, ticket in enumerate(tickets):
        if n % 5 < 3:
            by_rules[n] = Judgement(float(is_right), 0, by_rules=True)
        else:
            said = ticket.label if n % 7 else labels[0]
            scores = tuple(2.0 * (each == said) + (each == labels[-1]) for each in labels)
            by_model[n] = Judgement(0.5, 9, scores=scores)
    guidance = Guidance("m", 1, (Rule("G0", "the headline"),), 1, labels=labels)
    alone, known = calibrate(guidance, by_model, tickets, 0.7)
    assert alone.calibration not in (UNCALIBRATED, guidance.calibration)
    together = dict(sorted((by_rules | by_model).items()))
    found, p_correct = calibrate(guidance, together, tickets, 0.7)
    assert found == alone
    assert p_correct == known | {n: each.p_correct for n, each in by_rules.items()}
