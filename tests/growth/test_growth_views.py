"""What is made of an epoch's figures: views, pictures of episodes, intervals of what was
compared."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from stageb.growth import play, views
from stageb.growth.compare import POINTS, Comparison, average_course
from stageb.growth.evaluate import estimate_break_even, format_table, measure_gain
from stageb.growth.ranks import cut_blocks
from stageb.growth.types import Action, EnvironmentView, Op, Slots, SlotView, Stage
from stageb.growth.views import Measurements, Sizes
from stageb.runs.figures import interval

EMPTY: Slots = (SlotView(), SlotView(), SlotView())
SIZES = Sizes(epochs=8, steps=4, host_parameters=100, extra_parameters=0)


def measured(
    accuracy: float = 0.5, loss: float = 1.0, changed: float = 0.4, norm: float = 1.0
) -> Measurements:
    return Measurements(1.0, 0.6, loss, accuracy, (changed,) * 3, (norm,) * 3)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.0, 9.0)), min_size=1, max_size=12))
def test_a_view_remembers_what_it_should(figures: list[tuple[float, float]]) -> None:
    view: EnvironmentView | None = None
    for accuracy, loss in figures:
        view = views.view_after_epoch(view, EMPTY, measured(accuracy, loss), SIZES)
    assert view is not None
    losses = [loss for _, loss in figures]
    assert (view.epoch, view.steps) == (len(figures), 4 * len(figures))
    assert view.loss_history == tuple(losses[-5:])
    assert view.accuracy_history == tuple(accuracy for accuracy, _ in figures[-5:])
    assert (view.best_loss, view.best_accuracy) == (
        min(losses),
        max(accuracy for accuracy, _ in figures),
    )
    assert view.plateau == len(losses) - 1 - losses.index(min(losses))
    assert view.slots == EMPTY


def test_contributions_are_what_a_seed_adds_seen_or_not() -> None:
    """Judged with a slot turned: a seed that the host sees is out then, one that trains beside it
    is in."""
    training, blending = (
        SlotView(stage=stage, blueprint=0, seed_id=3, accuracy_at_entry=0.3)
        for stage in (Stage.TRAINING, Stage.BLENDING)
    )
    slots = training, blending, SlotView(stage=Stage.EMBARGOED, dwell=2)
    view = views.view_after_epoch(None, slots, measured(0.5, changed=0.4), SIZES)
    training, blending, embargoed = view.slots
    assert training.contribution == pytest.approx(-0.1)
    assert blending.contribution == pytest.approx(0.1)
    assert (training.accuracy_without, blending.accuracy_without) == (0.5, 0.4)
    assert training.improvement == blending.improvement == pytest.approx(0.2)
    assert (training.epochs_in_stage, training.age) == (1, 1)
    assert embargoed == SlotView(stage=Stage.EMBARGOED, dwell=2)
    assert view.germinated == 4


@pytest.mark.parametrize(
    ("norm", "vanishing", "exploding"),
    [(1.0, False, False), (1e-9, True, False), (1e9, False, True), (math.inf, False, True)],
)
def test_gradients_that_vanish_and_explode_are_told(
    norm: float, vanishing: bool, exploding: bool
) -> None:
    slots = (SlotView(stage=Stage.TRAINING, blueprint=0, seed_id=0), *EMPTY[1:])
    slot = views.view_after_epoch(None, slots, measured(norm=norm), SIZES).slots[0]
    assert (slot.vanishing, slot.exploding) == (vanishing, exploding)


# Pictures


def episode() -> play.Episode:
    """A seed in mid from the second epoch on, kept at the end; one in late that is culled."""
    stages = [(0, 0), (2, 2), (3, 6), (3, 7), (4, 8), (5, 0)]
    shown = []
    for epoch, (mid, late) in enumerate(stages, start=1):
        view = views.view_after_epoch(None, EMPTY, measured(0.4 + 0.1 * epoch), SIZES)
        grown = SlotView(stage=Stage(mid), blueprint=1, seed_id=0) if mid else SlotView()
        other = SlotView(
            stage=Stage(late), blueprint=0 if late == 2 else -1, seed_id=1 if late == 2 else -1
        )
        shown.append(
            replace(view, epoch=epoch, epochs=len(stages), slots=(SlotView(), grown, other))
        )
    actions = (Action(Op.GERMINATE, 1, 1), *(Action(),) * 4)
    return play.Episode("made up", ("norm", "mlp"), tuple(shown), actions, 0.91, ((1, 1),))


def test_an_episode_as_text_shows_stages_and_what_was_kept() -> None:
    early, mid, late, legend = play.write_text(episode())
    assert early == "early ······"
    assert mid == "mid   ·tbbPF  mlp"
    assert late == "late  ·t×er·"
    assert (
        legend.strip()
        == "· dormant, t training, b blending, P probationary, F fossilized, × culled, e "
        "embargoed, r resetting"
    )


def test_a_picture_shows_every_stage_in_its_colour(tmp_path: Path) -> None:
    """The cells of a slot lie in a row, as wide for each epoch; the same episode leaves the same
    bytes."""
    for name in ("one", "two"):
        play.draw(episode(), tmp_path / f"{name}.png")
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
    with Image.open(tmp_path / "one.png") as file:
        shown = file.convert("RGB")
        assert shown.size == (1100, 550)
        counts = {colour: count for count, colour in shown.getcolors(1 << 20) or []}

    def area(stage: Stage) -> int:
        colour = play.COLOURS[stage].lstrip("#")
        return counts.get((int(colour[:2], 16), int(colour[2:4], 16), int(colour[4:], 16)), 0)

    assert area(Stage.GERMINATED) < 100  # no epoch, no entry in the legend
    cell = area(Stage.PROBATIONARY)
    assert cell > 2000
    assert area(Stage.BLENDING) == pytest.approx(2 * cell, rel=0.25)
    for stage in (Stage.FOSSILIZED, Stage.CULLED, Stage.EMBARGOED, Stage.RESETTING):
        assert area(stage) == pytest.approx(cell, rel=0.35), stage


# What was compared


@pytest.mark.parametrize(("count", "quantile"), [(5, 2.776445), (10, 2.262157), (64, 1.998341)])
def test_an_interval_is_students(count: int, quantile: float) -> None:
    values = [math.sin(number) for number in range(count)]
    mean, half = interval(values)
    assert mean == pytest.approx(statistics.mean(values))
    assert half == pytest.approx(quantile * statistics.stdev(values) / math.sqrt(count), rel=3e-3)
    assert interval([1.0]) == (1.0, math.inf)


def outcomes(gain: float) -> list[Comparison]:
    """Eight environments in which ppo is above the other by ``gain``, and a little more in the
    later ones."""
    own = [
        Comparison(
            "ppo", each, 0.7 + gain + each / 100, 0.7, 0.1, 9, 1e6, ((0, 1),), ((0, each % 2),)
        )
        for each in range(8)
    ]
    return own + [
        Comparison("static-small", each, 0.7, 0.7, 0.0, 20, 1e6, (), ((0, each % 2),))
        for each in range(8)
    ]


def test_differences_are_paired_and_runs_count_too() -> None:
    mean, half = measure_gain([outcomes(0.1)], "ppo", "static-small")
    assert mean == pytest.approx(0.135)
    assert half == pytest.approx(interval([each / 100 for each in range(8)])[1])
    together, wider = measure_gain(
        [outcomes(0.1), outcomes(0.2), outcomes(0.3)], "ppo", "static-small"
    )
    assert together == pytest.approx(0.235)
    assert wider == pytest.approx(math.hypot(half, interval([0.1, 0.2, 0.3])[1]))
    lines = "\n".join(format_table([outcomes(0.1)], "ppo"))
    assert (
        "static-small           70.0%       1.00x    20.0       1 M  +13.50 +- 2.05 points" in lines
    )
    assert "the right slot and blueprint, and no other, in 50.0%" in lines
    assert "no growth in 0.0%" in lines


def coursed(controller: str, environment: int, *course: tuple[float, float]) -> Comparison:
    spent, accuracy = course[-1]
    return Comparison(controller, environment, accuracy, accuracy, 0.0, 2, spent, (), course=course)


def test_courses_are_means_over_environments_of_the_last_looks_before() -> None:
    one, two = ((10.0, 0.1), (20.0, 0.5), (20.0, 0.4)), ((12.0, 0.3), (21.0, 0.7))
    found = [[coursed("ppo", 0, *one), coursed("ppo", 1, *two)]]
    course = average_course(found, "ppo")
    assert [course.flops[0], course.flops[-1], len(course.flops)] == pytest.approx([12, 21, POINTS])
    for flops, mean, half in zip(course.flops[:-1], course.accuracy, course.half, strict=False):
        values = [
            max(point for point in each if point[0] <= flops or point is each[0])[1]
            for each in (one[:2], two)
        ]
        values[0] = 0.4 if flops >= 20 else values[0]
        assert [mean, half] == pytest.approx(interval(values)[:2])
    assert course.reaches(0.2) == 12.0 and course.reaches(0.35) == pytest.approx(20.0, abs=0.05)
    assert course.reaches(0.9) is None


def test_a_controller_pays_after_as_many_hosts_as_save_what_it_cost_to_learn() -> None:
    grows = [coursed("ppo", each, (10.0, 0.1), (40.0, 0.6), (100.0, 0.7)) for each in range(8)]
    slower = [coursed("static-small", each, (10.0, 0.1), (100.0, 0.5)) for each in range(8)]
    better = [coursed("oracle", each, (10.0, 0.1), (100.0, 0.8)) for each in range(8)]
    level = [
        coursed("random", each, (10.0, 0.1), (100.0, 0.7 + 0.1 * (-1) ** each)) for each in range(8)
    ]
    found = [grows + slower + better + level]
    reached = average_course(found, "ppo").reaches(0.5)
    assert reached is not None and reached == pytest.approx(40.0, abs=0.5)
    assert (
        estimate_break_even(found, "ppo", "static-small", 6000.0)
        == f"{math.ceil(6000 / (100 - reached)):,} hosts"
    )
    assert estimate_break_even(found, "ppo", "oracle", 6000.0) == "never"
    assert estimate_break_even(found, "ppo", "random", 6000.0) == "not shown"
    lines = format_table(found, "ppo", 6000.0)
    assert lines[0].endswith("ppo above it by         pays after") and lines[2].endswith(
        "points   101 hosts"
    )
    assert "learning cost 6 kFLOP, as much as 60 hosts here" in "\n".join(lines)


@given(st.integers(0, 50), st.integers(1, 9))
def test_blocks_hold_every_environment_once(count: int, block: int) -> None:
    blocks = cut_blocks(range(count), block)
    assert [number for each in blocks for number in each] == list(range(count))
    assert all(len(each) == block for each in blocks[:-1])
