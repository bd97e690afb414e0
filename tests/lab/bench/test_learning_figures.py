"""The benchmark's arithmetic: intervals, accuracies along the way, differences by seed, simulated
runs of the gate."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import pytest

from lab.bench.learning import figures, power, simulated
from stageb.seeds import stream


def result(
    dataset: str, method: str, seed: int, *curve: tuple[int, str], **changes: Any
) -> dict[str, Any]:
    points = [
        {"rollouts": rollouts, "rules": ["a rule"] * (n + 1), "right": right}
        for n, (rollouts, right) in enumerate(curve)
    ]
    made = {
        "dataset": dataset,
        "method": method,
        "seed": seed,
        "budget": 100,
        "noise": None,
        "rollouts": 90,
    }
    sizes = {"train": 12, "val": 4, "test": len(curve[0][1])}
    return {
        **made,
        "reflections": 5,
        "accepted": len(curve) - 1,
        "tickets": sizes,
        "curve": points,
        **changes,
    }


# Intervals


def test_a_mean_of_three_has_students_interval_and_one_value_has_none() -> None:
    low, high = figures.mean_interval([0.1, 0.2, 0.3])
    assert (low, high) == pytest.approx((0.2 - 0.2484, 0.2 + 0.2484), abs=1e-4)
    assert figures.mean_interval([0.1]) == (-inf, inf)


# Tables


def test_accuracy_is_that_of_what_would_be_handed_back_by_then() -> None:
    made = result("d", "ours", 1, (0, "0001"), (50, "0011"), (80, "1111"))
    assert [figures.accuracy(made, spent) for spent in (0, 49, 50, 79, 100)] == [
        0.25,
        0.25,
        0.5,
        0.5,
        1.0,
    ]


def test_differences_are_paired_by_seed() -> None:
    results = [
        *(result("d", "ours", seed, (0, right)) for seed, right in ((1, "1111"), (2, "0111"))),
        *(
            result("d", "peer", seed, (0, right))
            for seed, right in ((2, "0001"), (1, "0011"), (3, "0000"))
        ),
    ]
    assert figures.differences(results, "d", "peer", 100) == [0.5, 0.5]


def test_the_table_shows_every_method_at_a_quarter_of_the_budget_and_at_its_end() -> None:
    results = [
        # by code the first edits cost no rollout
        result("monk1", method, seed, (0, "0001"), (0, "0011"), (80, right))
        for method, right in (("ours", "1111"), ("gepa-tuned", "0111"))
        for seed in (1, 2)
    ]
    text = figures.learning_table(results, 100)
    assert "| monk1 | ours | 2 | 25.0 | 50.0 | 100.0 | 100.0 to 100.0 | 5 | 2 |" in text
    assert "| monk1 | +0.0 (+0.0 to +0.0) | +25.0 (+25.0 to +25.0) |" in text


def test_made_up_sets_are_marked_and_stay_out_of_the_mean_of_the_real_ones() -> None:
    results = [
        result(dataset, method, seed, (0, "0000"), (20, right))
        for dataset, ours in (("plain", "0000"), ("monk1", "1111"), ("maintie", "0011"))
        for method, right in (("ours", ours), ("statistics", "0001"))
        for seed in (1, 2)
    ]
    text = figures.learning_table(results, 100)
    assert "| plain (tuned to) | ours |" in text
    assert "| ours | 2 | 75.0 | 75.0 | - | - |" in text
    ahead = "+50.0 (+4.1 to +95.9); -267.7 to +367.7"  # four runs; two sets
    assert f"| statistics | 2 | 25.0 | 25.0 | {ahead} | {ahead} |" in text


def test_the_noise_table_counts_runs_that_accepted_and_runs_that_handed_back() -> None:
    results = [
        result("d", "ours", 1, (0, ""), noise="shuffled"),
        result("d", "ours", 2, (0, ""), (20, ""), noise="shuffled"),
        result("d", "ours", 3, (0, ""), noise="shuffled", accepted=4),
        result("d", "ours", 1, (0, ""), noise="idle"),
    ]
    text = figures.noise_table(results)
    assert "| d | labels dealt anew | ours | 2 of 3 |" in text
    assert "| 1.67 | 1 | 90 |" in text
    assert "| d | idle edits | ours | 0 of 1 |" in text


@pytest.mark.parametrize(
    ("rights", "worthless"),
    [
        (["0001"], 0),  # nothing was accepted
        (["0001", "1111"], 0),  # the true rule was found
        # a part of it, then one that helps only where labels are chance
        (["0001", "1101", "1111"], 1),
        # one that loses what was found, and one that brings it back
        (["0001", "1101", "1001", "1101"], 2),
        (["0001", "1001", "1101"], 0),  # a part of it, then the rest
    ],
)
def test_beside_one_true_rule_edits_count_that_do_not_judge_more_of_its_tickets_rightly(
    rights: list[str], worthless: int
) -> None:
    points = list(enumerate(rights))
    found = result(
        "d", "ours", 1, *points, noise="one-rule", ruled="1100", accepted=len(points) - 1
    )
    assert figures.worthless(found) == worthless
    back = {"rollouts": 50, "rules": found["curve"][0]["rules"], "right": rights[0]}
    assert figures.worthless({**found, "curve": [*found["curve"], back]}) == worthless, (
        "to come back to a step is no edit"
    )


# Power


def test_power_prints_and_writes_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(power, "BUNDLES", 4)
    assert power.main(["--worlds", "1", "--out", str(tmp_path)]) == 0
    text = (tmp_path / "table.md").read_text()
    assert text in capsys.readouterr().out
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    missions = len(power.MISSIONS) * len(power.TURNS)
    assert len(rows) == 3 * 2 + missions + 2 * len(power.TRAIN) + 2 * len(power.CHAIN)


def test_what_is_worthless_is_seldom_accepted_where_there_is_nothing_to_learn() -> None:
    ran = [simulated.with_nothing_to_learn(stream("nothing", run), 360, 12) for run in range(12)]
    assert sum(tested for _, tested in ran) > 12
    assert sum(accepted for accepted, _ in ran) <= 2


def test_learning_at_once_is_proven_where_it_mends_and_not_where_it_breaks_as_much() -> None:
    assert all(simulated.at_once(key, 300, 0.2, 0.0, 0.05) for key in range(5))
    assert sum(simulated.at_once(key, 150, 0.06, 0.06, 0.05) for key in range(60)) <= 8
