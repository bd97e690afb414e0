import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stageb.guidance.words.costs import (
    EQUAL,
    Confusion,
    PriceConfig,
    count_alarms,
    count_wrong,
    describe_classes,
    describe_review,
    effective_counts,
    find_cheapest,
    measure_classes,
    warn_of_constant,
)

ALWAYS_PASS = {
    "pass": {"pass": 965, "fail": 0, "none": 0},
    "fail": {"pass": 35, "fail": 0, "none": 0},
}
CATCHES = {"pass": {"pass": 905, "fail": 60, "none": 0}, "fail": {"pass": 9, "fail": 25, "none": 1}}
NOTHING = {"pass": {"pass": 0, "fail": 0, "none": 0}, "fail": {"pass": 0, "fail": 0, "none": 0}}
DEAR = PriceConfig(20.0).by_label


def test_recall_precision_and_costs_stand_beside_what_a_constant_would_score() -> None:
    figures = measure_classes(CATCHES, DEAR)
    assert figures["classes"] == {
        "pass": {"n": 965, "recall": 0.937824, "precision": 0.990153, "unanswered": 0},
        "fail": {"n": 35, "recall": 0.714286, "precision": 0.294118, "unanswered": 1},
    }
    assert figures["cost"] == 0.26  # (10 missed at 20 and 60 false alarms at 1) of 1,000
    assert figures["always"] == {"verdict": "pass", "acc": 0.965, "cost": 0.7}
    assert measure_classes(CATCHES, EQUAL)["cost"] == 0.07
    assert measure_classes(CATCHES, {"pass": 1.0, "fail": 100.0})["always"]["verdict"] == "fail"


def test_a_ticket_without_a_verdict_is_no_false_alarm() -> None:
    mute = {"pass": {"pass": 1, "fail": 2, "none": 4}, "fail": {"pass": 0, "fail": 2, "none": 1}}
    assert "2 false alarms among 7 others, 5 without a verdict" in describe_classes(
        measure_classes(mute, EQUAL)
    )
    assert "without a verdict" not in describe_classes(measure_classes(ALWAYS_PASS, EQUAL))


def test_what_is_no_better_than_a_constant_is_said_aloud() -> None:
    assert warn_of_constant(measure_classes(ALWAYS_PASS, EQUAL)).startswith(
        "NO BETTER THAN ALWAYS PASS"
    )
    assert "--price.missed_failure" in warn_of_constant(measure_classes(CATCHES, EQUAL))
    assert "--price.missed_failure" not in warn_of_constant(
        measure_classes(ALWAYS_PASS, DEAR), DEAR
    )
    assert not warn_of_constant(measure_classes(CATCHES, DEAR), DEAR)
    assert not warn_of_constant(measure_classes(NOTHING, EQUAL))
    only_passes = {**ALWAYS_PASS, "fail": NOTHING["fail"]}
    assert not warn_of_constant(measure_classes(only_passes, EQUAL)), (
        "all right: there is nothing better"
    )


def test_figures_are_said_in_words() -> None:
    said = describe_classes(measure_classes(CATCHES, DEAR), DEAR)
    assert said == (
        "25 of 35 failures caught (71%), 60 false alarms among 965 others, 1 without a verdict, "
        "29% of "
        "the alarms right; always pass would score 96.5%. Cost a ticket: 0.260, and 0.700 if "
        "all pass"
    )
    one = measure_classes(
        {"pass": {"pass": 58, "fail": 1, "none": 0}, "fail": CATCHES["fail"]}, EQUAL
    )
    assert ", 1 false alarm among 59 others" in describe_classes(one)
    sampled = describe_classes(
        {**measure_classes(CATCHES, DEAR), "n": 200, "without_review": {"n": 200, "acc": 0.9}}, DEAR
    )
    assert sampled == f"estimated for all 1,000 from the 200 that were judged: {said}"
    assert "Cost" not in describe_classes(measure_classes(CATCHES, EQUAL))
    assert describe_classes(measure_classes(NOTHING, EQUAL)) == "no tickets"


def test_where_no_ticket_passes_nothing_is_said_of_false_alarms() -> None:
    figures = measure_classes({**CATCHES, "pass": NOTHING["pass"]}, EQUAL)
    assert count_alarms(figures["classes"]["pass"]) == 0
    assert "among" not in describe_classes(figures)
    assert describe_classes(figures).startswith("25 of 35 failures caught (71%), 1 without")


def test_figures_of_other_labels_name_each_label_that_a_ticket_has() -> None:
    none = {"low": 0, "mid": 0, "high": 0, "none": 0}
    found = {"low": {**none, "low": 3, "mid": 1}, "mid": {**none, "mid": 4}, "high": none}
    assert describe_classes(measure_classes(found, EQUAL)) == (
        "low: 75% of 4 found (100% of its verdicts right), mid: 100% of 4 found (80% of its "
        "verdicts right); macro-F1 0.873; always low would score 50.0%"
    )
    unsaid = {**found, "mid": {**none, "low": 1, "high": 3}, "low": {**none, "high": 4}}
    assert describe_classes(measure_classes(unsaid, EQUAL)).startswith(
        "low: 0% of 4 found (0% of its verdicts right), mid: 0% of 4 found; macro-F1"
    )


def test_a_verdict_is_wrong_that_is_another_label_and_none_is_no_verdict() -> None:
    row = {"low": 3, "mid": 1, "high": 2, "none": 4}
    assert count_wrong({"confusion": {"low": row, "mid": row, "high": row}}) == 3 + 5 + 4


def test_a_review_is_of_the_tickets_that_need_one() -> None:
    figures = {"n": 500, "without_review": {"n": 488, "acc": 0.976}}
    assert describe_review(figures) == "12 (others 97.6%)"
    assert describe_review({**figures, "n": 488}) == "0"
    assert describe_review({"n": 12, "without_review": {"n": 0, "acc": None}}) == "12"


COUNTS = st.fixed_dictionaries(
    {"pass": st.integers(0, 30), "fail": st.integers(0, 30), "none": st.integers(0, 5)}
)
CONFUSION = st.fixed_dictionaries({"pass": COUNTS, "fail": COUNTS})


@given(CONFUSION, st.integers(1, 50), st.integers(1, 50))
def test_a_sample_tells_as_much_as_so_many_of_the_whole(
    confusion: Confusion, one: int, other: int
) -> None:
    """Standing each for as many as the others, tickets count as they are, and for more of one
    label, as fewer do; the share of right ones is that of the whole."""
    of = {label: sum(row.values()) for label, row in confusion.items()}
    if not all(of.values()):
        return
    n = sum(of.values())
    right, size = effective_counts(confusion, {"pass": one, "fail": one})
    assert right == pytest.approx(sum(confusion[label][label] for label in of) * size / n)
    shares = {label: confusion[label][label] / of[label] for label in of}
    scale = {"pass": one, "fail": other}
    right, size = effective_counts(confusion, scale)
    whole = {
        label: scale[label] * of[label] / sum(scale[each] * of[each] for each in of) for label in of
    }
    share = sum(whole[label] * shares[label] for label in of)
    variance = sum(
        whole[label] ** 2 * shares[label] * (1 - shares[label]) / of[label] for label in of
    )
    assert right == pytest.approx(share * size)
    assert size == pytest.approx(share * (1 - share) / variance if variance else n)


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3), min_size=1), st.randoms())
def test_of_verdicts_that_cost_as_little_the_first_is_the_constant(
    counts: dict[str, int], draw: random.Random
) -> None:
    order = draw.sample(sorted(counts), len(counts))
    found = find_cheapest({label: counts[label] for label in order}, EQUAL)
    assert found == next(label for label in order if counts[label] == max(counts.values()))
    assert (
        find_cheapest({"pass": 20, "fail": 1}, DEAR) == "pass"
        and find_cheapest({"fail": 1, "pass": 20}, DEAR) == "fail"
    )
