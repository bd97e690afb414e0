"""What hosts learn from: teachers whose answer is known, and data from packages and folders."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from growth.grown_hosts import KEYS

from stageb.__main__ import main
from stageb.errors import ConfigError, InputError
from stageb.growth import blocks, hosts, tasks, training
from stageb.growth.config import HostConfig, TaskConfig

Kind = Literal["mlp", "conv1d", "conv2d"]


def taught(name: str, kind: Kind = "mlp", **more: Any) -> tuple[hosts.Plan, tasks.BlockTask]:
    """A task of made-up answers, for all members."""
    config = HostConfig(kind=kind, **more)
    task = tasks.load(TaskConfig(name), config)
    plan = hosts.make_plan(config, task.shape)
    return plan, tasks.make_lessons(task, plan, KEYS)


@pytest.mark.parametrize("kind", ["mlp", "conv1d", "conv2d"])
def test_a_pupil_lacks_exactly_what_its_teacher_has(kind: Kind) -> None:
    plan, lessons = taught("teacher", kind)
    assert lessons.right is not None and len(set(lessons.right)) > 2
    pupils = training.make_hosts(plan, lessons.start, "cpu", torch.float64)
    active, alphas = torch.full((len(KEYS), 3), -1), torch.ones(len(KEYS), 3)
    exams = tasks.Split(lessons.sets.test.inputs.double(), lessons.sets.test.targets)
    before = training.judge(pupils, exams, active, alphas[:, None]).accuracy
    for member, (key, ((slot, blueprint),)) in enumerate(zip(KEYS, lessons.right, strict=True)):
        active[member, slot] = blueprint
        name = hosts.name_segment(plan, slot, blueprint)
        teacher = blocks.draw(plan, name, [tasks.seed_key(key)], teaching=True)[0]
        pupils.weights[name][member] = teacher
    after = training.judge(pupils, exams, active, alphas[:, None]).accuracy
    assert (after > 0.999).all() and (before < 0.9).all()  # answers were given in float32
    assert all(answers.bincount().max() < 0.6 * len(exams) for answers in exams.targets)


def test_a_teacher_may_have_inner_weights_that_no_seed_germinates_with() -> None:
    config = HostConfig(blueprints=["low_rank"])
    given, own = (
        tasks.load(TaskConfig("teacher", inner=inner), config) for inner in ("teacher", "own")
    )
    plan = hosts.make_plan(config, given.shape)
    one, other = tasks.make_lessons(given, plan, KEYS), tasks.make_lessons(own, plan, KEYS)
    assert one.right == other.right and one.right is not None
    assert not torch.equal(one.sets.fit.targets, other.sets.fit.targets)
    # with the inner weights of a germinated seed, the last layer fitted
    for lessons, fits in ((one, True), (other, False)):
        for member, (key, ((slot, blueprint),)) in enumerate(zip(KEYS, one.right, strict=True)):
            name = hosts.name_segment(plan, slot, blueprint)
            drawn = blocks.draw(plan, name, [tasks.seed_key(key)], teaching=True)[0]
            pupils = training.make_hosts(plan, lessons.start[member : member + 1], "cpu")
            pupils.weights[name][0] = drawn
            active = torch.full((1, 3), -1)
            active[0, slot] = blueprint
            exam = tasks.Split(
                lessons.sets.test.inputs, lessons.sets.test.targets[member : member + 1]
            )
            [[found]] = training.judge(pupils, exam, active, torch.ones(1, 1, 3)).accuracy.tolist()
            assert (found > 0.99) == fits
    with pytest.raises(
        ConfigError, match=r"task.inner: 'own': teacher; any other is for task.name teacher"
    ):
        TaskConfig("digits", inner="own")


@pytest.mark.parametrize("count", [2, 3])
def test_a_teacher_may_have_several_seeds_and_its_pupil_needs_them_all(count: int) -> None:
    config = HostConfig(
        kind="conv1d", blueprints=["norm", "depthwise", "conv_light", "low_rank", "attention"]
    )
    task = tasks.load(TaskConfig("teacher", seeds=count, validation_examples=64), config)
    plan = hosts.make_plan(config, task.shape)
    lessons = tasks.make_lessons(task, plan, KEYS)
    assert (
        lessons.right is not None
        and len(set(lessons.right)) > 2
        and len(lessons.sets.validation) == 64
    )
    pupils = training.make_hosts(plan, lessons.start, "cpu")
    for member, (key, right) in enumerate(zip(KEYS, lessons.right, strict=True)):
        assert len(right) == len({slot for slot, _ in right}) == count
        for slot, blueprint in right:
            name = hosts.name_segment(plan, slot, blueprint)
            pupils.weights[name][member] = blocks.draw(
                plan, name, [tasks.seed_key(key)], teaching=True
            )[0]

    def accuracy(lacking: int) -> torch.Tensor:
        active = torch.full((len(KEYS), 3), -1)
        for member, right in enumerate(lessons.right or ()):
            for slot, blueprint in right[: count - lacking]:
                active[member, slot] = blueprint
        return training.judge(
            pupils, lessons.sets.test, active, torch.ones(len(KEYS), 1, 3)
        ).accuracy

    assert (accuracy(0) > 0.99).all() and (accuracy(1) < 0.95).all()
    first = tasks.make_lessons(tasks.load(TaskConfig("teacher"), config), plan, KEYS).right
    assert all(set(one) <= set(more) for one, more in zip(first or (), lessons.right, strict=True))
    for name, wrong in (("teacher", 4), ("teacher", 0), ("digits", 2)):
        with pytest.raises(
            ConfigError, match=rf"task.seeds: {wrong}: 1; or 2 or 3 for task.name teacher"
        ):
            TaskConfig(name, seeds=wrong)


def test_where_no_growth_pays_the_host_is_as_good_as_anybody_can_be() -> None:
    plan, lessons = taught("futile", seed_learning_rate=0.02)
    assert lessons.right is None
    pupils = training.make_hosts(plan, lessons.start, "cpu")
    active, ones = torch.full((len(KEYS), 3), -1), torch.ones(len(KEYS), 3)
    begun = training.judge(pupils, lessons.sets.test, active, ones[:, None]).accuracy
    for member, key in enumerate(KEYS):
        for slot in range(3):
            active[member, slot] = (member + slot) % len(plan.blueprints)
            pupils.germinate(member, slot, int(active[member, slot]), key)
    for epoch in range(5):
        batches = tasks.draw_batches(KEYS, epoch, 16, 64, len(lessons.sets.fit))
        training.train_epoch(pupils, active, ones, active >= 0, lessons.sets.fit, batches)
    ended = training.judge(pupils, lessons.sets.test, active, ones[:, None]).accuracy
    assert torch.equal(pupils.weights["host"], lessons.start)
    assert (ended < begun + 0.01).all() and (begun < 0.9).all() and (begun > 0.3).all()


def test_what_an_environment_learns_from_hangs_on_its_own_key_alone() -> None:
    plan, lessons = taught("teacher")
    task = tasks.load(TaskConfig("teacher"), HostConfig())
    one = tasks.make_lessons(task, plan, KEYS[3:4])
    torch.testing.assert_close(one.start[0], lessons.start[3])
    assert lessons.right is not None and one.right == (lessons.right[3],)
    assert (one.sets.fit.targets[0] == lessons.sets.fit.targets[3]).float().mean() > 0.99
    assert not torch.equal(lessons.start[0, :8], lessons.start[1, :8])
    batches = tasks.draw_batches(KEYS, 2, 7, 10, 30)  # two passes, and ten of a third
    assert torch.equal(tasks.draw_batches(KEYS[3:4], 2, 7, 10, 30)[0], batches[3])
    assert all(sorted(row.flatten()[:30].tolist()) == list(range(30)) for row in batches)
    assert not torch.equal(batches[0], batches[1]) and not torch.equal(
        batches, tasks.draw_batches(KEYS, 3, 7, 10, 30)
    )


def test_sets_share_no_example_and_are_the_same_every_time() -> None:
    task = tasks.load(TaskConfig("digits"), HostConfig())
    assert tuple(len(each) for each in task.sets) == (1197, 300, 300)
    rows = [{row.numpy().tobytes() for row in each.inputs} for each in task.sets]
    assert not rows[0] & rows[1] and not rows[0] & rows[2] and not rows[1] & rows[2]
    assert all(
        each.inputs.shape[1:] == task.shape.example and each.targets.unique().numel() == 10
        for each in task.sets
    )
    few = tasks.load(TaskConfig("digits", fit_examples=50), HostConfig()).sets
    assert torch.equal(few.fit.inputs, task.sets.fit.inputs[:50]) and torch.equal(
        few.test.inputs, task.sets.test.inputs
    )


def test_more_examples_than_there_are_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"task.validation_examples: 301: 1 to 300 for digits"):
        tasks.load(TaskConfig("digits", validation_examples=301), HostConfig())
    assert (
        len(tasks.load(TaskConfig("digits", validation_examples=50), HostConfig()).sets.validation)
        == 50
    )
    for name, most in (("digits", 1197), ("teacher", 1024)):
        with pytest.raises(ConfigError, match=rf"task.fit_examples: 5000: 1 to {most} for {name}"):
            tasks.load(TaskConfig(name, fit_examples=5000), HostConfig())


def test_an_unknown_task_and_a_missing_package_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ConfigError, match=r"task.name: 'imagenet': one of: teacher, futile, digits"
    ):
        tasks.load(TaskConfig("imagenet"), HostConfig())
    monkeypatch.setitem(__import__("sys").modules, "sklearn.datasets", None)
    with pytest.raises(InputError, match=r"task digits needs .*sklearn.*stageb\[growth\]"):
        tasks.load(TaskConfig("digits"), HostConfig())


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["--task.name=nothing"], "task.name"),
        (["--task.name=digits", "--task.fit_examples=5000"], "task.fit_examples"),
    ],
)
def test_what_cannot_be_learnt_from_is_told_by_validate_too(
    capsys: pytest.CaptureFixture[str], keys: list[str], said: str
) -> None:
    """As fit tells it, once its ranks have met."""
    assert main(["validate", "--loop=growth", *keys]) == 2
    assert said in capsys.readouterr().err


def test_validate_says_what_was_read_and_what_was_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--loop=growth", "--task.name=digits"]) == 0
    told = capsys.readouterr().out
    assert "The keys are valid, and so is the data of task digits: 1,197 training" in told
    assert "The loggers and the devices were not checked" in told
