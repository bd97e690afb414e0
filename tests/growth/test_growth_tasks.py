"""What hosts learn from: teachers whose answer is known, and data from packages and folders."""

from __future__ import annotations

import gzip
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from growth.grown_hosts import KEYS

from stageb.__main__ import main
from stageb.errors import ConfigError, InputError
from stageb.growth import blocks, counterfactual, data, hosts, tasks, training
from stageb.growth import data as images
from stageb.growth.config import HostConfig, TaskConfig

Kind = Literal["mlp", "conv1d", "conv2d", "transformer"]


def taught(name: str, kind: Kind = "mlp", **more: Any) -> tuple[hosts.Plan, tasks.BlockTask]:
    """A task of made-up answers, for all members."""
    config = HostConfig(kind=kind, **more)
    task = tasks.load(TaskConfig(name), config)
    plan = hosts.make_plan(config, task.form)
    return plan, tasks.make_lessons(task, plan, KEYS)


@pytest.mark.parametrize("kind", ["mlp", "conv1d", "conv2d", "transformer"])
def test_a_pupil_lacks_exactly_what_its_teacher_has(kind: Kind) -> None:
    plan, lessons = taught("teacher", kind)
    assert lessons.right is not None and len(set(lessons.right)) > 2
    pupils = training.make_hosts(plan, lessons.start, "cpu", torch.float64)
    active, alphas = torch.full((len(KEYS), 3), -1), torch.ones(len(KEYS), 3)
    exams = data.Split(lessons.sets.test.inputs.double(), lessons.sets.test.targets)
    before = counterfactual.judge(pupils, exams, active, alphas[:, None]).accuracy
    for member, (key, ((slot, blueprint),)) in enumerate(zip(KEYS, lessons.right, strict=True)):
        active[member, slot] = blueprint
        name = hosts.name_segment(plan, slot, blueprint)
        teacher = blocks.draw(plan, name, [tasks.seed_key(key)], teaching=True)[0]
        pupils.weights[name][member] = teacher
    after = counterfactual.judge(pupils, exams, active, alphas[:, None]).accuracy
    assert (after > 0.999).all() and (before < 0.9).all()  # answers were given in float32
    assert all(answers.bincount().max() < 0.6 * len(exams) for answers in exams.targets)


def test_a_teacher_may_have_inner_weights_that_no_seed_germinates_with() -> None:
    config = HostConfig(blueprints=["norm", "low_rank"])
    given, own = (
        tasks.load(TaskConfig("teacher", blueprint="low_rank", inner=inner), config) for inner in ("teacher", "own")
    )
    plan = hosts.make_plan(config, given.form)
    one, other = tasks.make_lessons(given, plan, KEYS), tasks.make_lessons(own, plan, KEYS)
    assert one.right == other.right and one.right is not None
    assert not torch.equal(one.sets.fit.targets, other.sets.fit.targets)
    for lessons, fits in ((one, True), (other, False)):  # with the inner weights of a germinated seed, the last layer fitted
        for member, (key, ((slot, blueprint),)) in enumerate(zip(KEYS, one.right, strict=True)):
            name = hosts.name_segment(plan, slot, blueprint)
            drawn = blocks.draw(plan, name, [tasks.seed_key(key)], teaching=True)[0]
            pupils = training.make_hosts(plan, lessons.start[member : member + 1], "cpu")
            pupils.weights[name][0] = drawn
            active = torch.full((1, 3), -1)
            active[0, slot] = blueprint
            exam = data.Split(lessons.sets.test.inputs, lessons.sets.test.targets[member : member + 1])
            [[found]] = counterfactual.judge(pupils, exam, active, torch.ones(1, 1, 3)).accuracy.tolist()
            assert (found > 0.99) == fits
    with pytest.raises(ConfigError, match=r"task.inner: 'own': teacher; any other is for task.name teacher"):
        TaskConfig("digits", inner="own")


@pytest.mark.parametrize("count", [2, 3])
def test_a_teacher_may_have_several_seeds_and_its_pupil_needs_them_all(count: int) -> None:
    config = HostConfig(kind="conv1d", blueprints=["norm", "depthwise", "conv_light", "low_rank", "attention"])
    task = tasks.load(TaskConfig("teacher", seeds=count, validation_examples=64), config)
    plan = hosts.make_plan(config, task.form)
    lessons = tasks.make_lessons(task, plan, KEYS)
    assert lessons.right is not None and len(set(lessons.right)) > 2 and len(lessons.sets.validation) == 64
    pupils = training.make_hosts(plan, lessons.start, "cpu")
    for member, (key, right) in enumerate(zip(KEYS, lessons.right, strict=True)):
        assert len(right) == len({slot for slot, _ in right}) == count
        for slot, blueprint in right:
            name = hosts.name_segment(plan, slot, blueprint)
            pupils.weights[name][member] = blocks.draw(plan, name, [tasks.seed_key(key)], teaching=True)[0]

    def accuracy(lacking: int) -> torch.Tensor:
        active = torch.full((len(KEYS), 3), -1)
        for member, right in enumerate(lessons.right or ()):
            for slot, blueprint in right[: count - lacking]:
                active[member, slot] = blueprint
        return counterfactual.judge(pupils, lessons.sets.test, active, torch.ones(len(KEYS), 1, 3)).accuracy

    assert (accuracy(0) > 0.99).all() and (accuracy(1) < 0.95).all()
    first = tasks.make_lessons(tasks.load(TaskConfig("teacher"), config), plan, KEYS).right
    assert all(set(one) <= set(more) for one, more in zip(first or (), lessons.right, strict=True))
    for name, wrong in (("teacher", 4), ("teacher", 0), ("digits", 2)):
        with pytest.raises(ConfigError, match=rf"task.seeds: {wrong}: 1; or 2 or 3 for task.name teacher"):
            TaskConfig(name, seeds=wrong)


def test_where_no_growth_pays_the_host_is_as_good_as_anybody_can_be() -> None:
    plan, lessons = taught("futile", seed_learning_rate=0.02)
    assert lessons.right is None
    pupils = training.make_hosts(plan, lessons.start, "cpu")
    active, ones = torch.full((len(KEYS), 3), -1), torch.ones(len(KEYS), 3)
    begun = counterfactual.judge(pupils, lessons.sets.test, active, ones[:, None]).accuracy
    for member, key in enumerate(KEYS):
        for slot in range(3):
            active[member, slot] = (member + slot) % len(plan.blueprints)
            training.germinate(pupils, member, slot, int(active[member, slot]), key)
    for epoch in range(5):
        batches = tasks.draw_batches(KEYS, epoch, 16, 64, len(lessons.sets.fit))
        training.train_epoch(pupils, active, ones, active >= 0, lessons.sets.fit, batches)
    ended = counterfactual.judge(pupils, lessons.sets.test, active, ones[:, None]).accuracy
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
    assert not torch.equal(batches[0], batches[1]) and not torch.equal(batches, tasks.draw_batches(KEYS, 3, 7, 10, 30))


def test_a_task_may_name_what_its_teachers_have() -> None:
    config = HostConfig()
    task = tasks.load(TaskConfig("teacher", slot="late", blueprint="mlp"), config)
    plan = hosts.make_plan(config, task.form)
    assert tasks.make_lessons(task, plan, KEYS).right == (((2, 1),),) * len(KEYS)
    with pytest.raises(ConfigError, match=r"task.blueprint: 'attention'.*of host.blueprints: norm, mlp, low_rank"):
        tasks.load(TaskConfig("teacher", blueprint="attention"), config)
    with pytest.raises(ConfigError, match=r"task.slot: 'mid': null; it is for task.name teacher"):
        TaskConfig("digits", slot="mid")


@pytest.mark.parametrize(("name", "sizes"), [("digits", (1197, 300, 300)), ("mnist1d", (3000, 1000, 1000))])
def test_sets_share_no_example_and_are_the_same_every_time(name: str, sizes: tuple[int, ...]) -> None:
    streams = np.random.get_state()
    task = tasks.load(TaskConfig(name), HostConfig())
    np.testing.assert_equal(np.random.get_state(), streams)
    sets = (task.sets.fit, task.sets.validation, task.sets.test)
    assert tuple(len(each) for each in sets) == sizes
    rows = [{row.numpy().tobytes() for row in each.inputs} for each in sets]
    assert not rows[0] & rows[1] and not rows[0] & rows[2] and not rows[1] & rows[2]
    assert all(each.inputs.shape[1:] == task.form.shape and each.targets.unique().numel() == 10 for each in sets)
    few = tasks.load(TaskConfig(name, fit_examples=50), HostConfig()).sets
    assert torch.equal(few.fit.inputs, task.sets.fit.inputs[:50]) and torch.equal(few.test.inputs, task.sets.test.inputs)


def test_more_examples_than_there_are_are_refused() -> None:
    for name, most in (("digits", 1197), ("teacher", 1024)):
        with pytest.raises(ConfigError, match=rf"task.fit_examples: 5000: 1 to {most} for {name}"):
            tasks.load(TaskConfig(name, fit_examples=5000), HostConfig())


def cifar(folder: Path) -> Path:
    """Files of CIFAR-10's shape."""
    stream = np.random.default_rng(0)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        images = stream.integers(0, 256, (20, 3072), dtype=np.uint8)
        found = {b"data": images, b"labels": [each % 10 for each in range(20)], b"batch_label": name.encode()}
        (folder / name).write_bytes(pickle.dumps(found, protocol=2))
    return folder


def test_cifar10_is_read_from_its_usual_files(tmp_path: Path) -> None:
    config = HostConfig(kind="conv2d", width=4, blueprints=["conv_light", "norm"])
    task = tasks.load(TaskConfig("cifar10", str(cifar(tmp_path))), config)
    plan = hosts.make_plan(config, task.form)
    lessons = tasks.make_lessons(task, plan, KEYS[:2])
    assert [len(each) for each in (lessons.sets.fit, lessons.sets.validation, lessons.sets.test)] == [90, 10, 20]
    first = pickle.loads((tmp_path / "test_batch").read_bytes())[b"data"][0].reshape(3, 32, 32)  # planes of red, green, blue
    torch.testing.assert_close(lessons.sets.test.inputs[0, 3, 5, 1], torch.tensor(first[1, 3, 5] / 127.5 - 1).float())
    block = training.make_hosts(plan, lessons.start, "cpu")
    nothing = torch.full((2, 3), -1)
    batches = tasks.draw_batches(KEYS[:2], 0, 2, 16, 90)
    assert (
        training.train_epoch(block, nothing, torch.zeros(2, 3), nothing >= 0, lessons.sets.fit, batches)
        .loss.isfinite()
        .all()
    )


def fashion(folder: Path, count: int = 30) -> Path:
    """Files of Fashion-MNIST's shape."""
    stream = np.random.default_rng(0)
    for name in ("train", "t10k"):
        images, labels = stream.integers(0, 256, (count, 28, 28), dtype=np.uint8), np.arange(count, dtype=np.uint8) % 10
        for what, array in (("images-idx3", images), ("labels-idx1", labels)):
            head = bytes((0, 0, 8, array.ndim)) + b"".join(size.to_bytes(4, "big") for size in array.shape)
            (folder / f"{name}-{what}-ubyte.gz").write_bytes(gzip.compress(head + array.tobytes()))
    return folder


def archive(path: Path, shape: tuple[int, ...], **changed: np.ndarray) -> Path:
    """Such images as arrays."""
    stream = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for part, count in (("train", 30), ("test", 20)):
        arrays[f"x_{part}"] = stream.integers(0, 256, (count, *shape), dtype=np.uint8)
        arrays[f"y_{part}"] = np.arange(count) % 10
    np.savez(path, **(arrays | changed))
    return path.parent


def test_images_are_read_from_their_usual_files_and_from_arrays(tmp_path: Path) -> None:
    usual, arrays, colours = (tmp_path / name for name in ("usual", "arrays", "colours"))
    for folder in (usual, arrays, colours):
        folder.mkdir()
    host = HostConfig(kind="conv2d", width=4, blueprints=["conv_light", "norm"])
    one = tasks.load(TaskConfig("fashion_mnist", str(fashion(usual))), host)
    other = tasks.load(TaskConfig("fashion_mnist", str(archive(arrays / "any.npz", (28, 28)))), host)
    coloured = tasks.load(TaskConfig("cifar10", str(archive(colours / "any.npz", (32, 32, 3)))), host)
    for task, test in ((one, 30), (other, 20), (coloured, 20)):
        sets = task.sets
        assert [len(each) for each in (sets.fit, sets.validation, sets.test)] == [27, 3, test]
        assert sets.test.inputs.shape[1:] == task.form.shape and sets.test.inputs.abs().max() <= 1
    first = np.load(arrays / "any.npz")["x_test"][4, 3, 5]
    assert float(other.sets.test.inputs[4, 3, 5, 0]) == pytest.approx(first / 127.5 - 1, abs=1e-6)
    assert torch.equal(one.sets.fit.inputs, other.sets.fit.inputs)  # the same images, in the same order


def test_files_that_inflate_are_read_no_further_than_they_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few MB of .gz or .npz may hold GBs of zeros."""
    host = HostConfig(kind="conv2d", blueprints=["norm"])
    task = TaskConfig("fashion_mnist", str(fashion(tmp_path)))
    tasks.load(task, host)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    honest = path.read_bytes()
    path.write_bytes(gzip.compress(gzip.decompress(honest) + bytes(1)))
    with pytest.raises(InputError, match="more bytes than 30 x 28 x 28"):
        tasks.load(task, host)
    path.write_bytes(honest)
    monkeypatch.setattr(images, "MOST_IMAGE_BYTES", 20_000)
    with pytest.raises(InputError, match=r"train-images-idx3-ubyte\.gz: ValueError: 30 x 28 x 28 bytes are more than 0 MiB"):
        tasks.load(task, host)
    archive(tmp_path / "any.npz", (28, 28), more=np.zeros(100_000))
    with pytest.raises(InputError, match=r"any\.npz: ValueError: its arrays have more than"):
        tasks.load(task, host)


def test_files_of_images_that_are_none_are_refused_by_name(tmp_path: Path) -> None:
    host = HostConfig(kind="conv2d", blueprints=["norm"])
    task = TaskConfig("fashion_mnist", str(tmp_path))
    with pytest.raises(InputError, match=r"train-images-idx3-ubyte.gz: No such file.*task.folder"):
        tasks.load(task, host)
    fashion(tmp_path)
    for spoilt in (b"nonsense", gzip.compress(b"nonsense"), gzip.compress(bytes((0, 0, 8, 1, 0, 0, 0, 9)) + bytes(3))):
        (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(spoilt)
        with pytest.raises(InputError, match=r"t10k-labels-idx1-ubyte.gz: "):
            tasks.load(task, host)
    for changed in (
        {"x_train": np.zeros((30, 27, 28), np.uint8)},
        {"x_train": np.zeros((30, 28, 28))},
        {"y_train": np.full(30, 10)},
        {"y_train": np.arange(29) % 10},
        {"x_test": np.array([{"a": 1}], dtype=object)},
    ):
        archive(tmp_path / "a.npz", (28, 28), **changed)
        with pytest.raises(InputError, match=r"a.npz: "):
            tasks.load(task, host)


@pytest.mark.parametrize(
    ("name", "folder", "kind"),
    [
        ("fashion_mnist", "fashion_mnist", "mlp"),
        ("fashion_mnist", "fashion_mnist", "conv2d"),
        ("cifar10", "cifar10_small", "conv2d"),
    ],
)
def test_real_images_teach_a_host(name: str, folder: str, kind: Kind) -> None:
    place = Path(__file__).parents[3] / "shared" / "data" / folder
    if not place.is_dir():
        pytest.skip(f"{place} is not there")
    config = HostConfig(kind=kind, width=8, blueprints=["norm"])
    task = tasks.load(TaskConfig(name, str(place), validation="own", validation_examples=200, fit_examples=2000), config)
    plan = hosts.make_plan(config, task.form)
    lessons = tasks.make_lessons(task, plan, KEYS[:2])
    block, nothing = training.make_hosts(plan, lessons.start, "cpu"), torch.full((2, 3), -1)
    for epoch in range(2):
        batches = tasks.draw_batches(KEYS[:2], epoch, 16, 64, len(lessons.sets.fit))
        training.train_epoch(block, nothing, torch.zeros(2, 3), nothing >= 0, lessons.sets.fit, batches)
    found = counterfactual.judge(block, lessons.sets.validation, nothing, torch.zeros(2, 1, 3)).accuracy
    assert (found > 0.18).all()  # one in ten by chance


def test_each_environment_may_have_a_validation_part_of_its_own() -> None:
    config = HostConfig(blueprints=["norm"])
    shared = tasks.load(TaskConfig("digits"), config)
    task = tasks.load(TaskConfig("digits", validation="own", validation_examples=200, fit_examples=900), config)
    plan = hosts.make_plan(config, task.form)
    lessons = tasks.make_lessons(task, plan, KEYS)
    fit, validation, test = lessons.sets.fit, lessons.sets.validation, lessons.sets.test
    assert (len(fit), len(validation), len(test)) == (900, 200, 300)
    assert torch.equal(test.inputs, shared.sets.test.inputs)
    tested = {row.numpy().tobytes() for row in test.inputs}
    held = []
    for member in range(len(KEYS)):
        parts = []
        for split in (fit, validation):
            every = torch.arange(len(split)).expand(len(KEYS), -1)
            inputs, targets = split.batch(every)
            parts.append({row.numpy().tobytes() for row in inputs[member]})
            assert torch.equal(split.part(slice(None))[1], targets)
        assert not parts[0] & parts[1] and not (parts[0] | parts[1]) & tested and len(parts[1]) > 195
        held.append(parts[1])
    assert held[0] != held[1] and len(set.union(*held)) > 600
    again = tasks.make_lessons(task, plan, KEYS[3:4]).sets.validation
    assert torch.equal(again.part(slice(5, 9))[0][0], validation.part(slice(5, 9))[0][3])
    # Judged together as alone, and by halves as at once.
    block = training.make_hosts(plan, lessons.start, "cpu")
    nothing, zeros = torch.full((len(KEYS), 3), -1), torch.zeros(len(KEYS), 1, 3)
    whole = counterfactual.judge(block, validation, nothing, zeros).accuracy[:, 0]
    assert validation.own is not None
    halves = [
        counterfactual.judge(block, replace(validation, own=validation.own[:, half::2]), nothing, zeros).accuracy[:, 0]
        for half in (0, 1)
    ]
    torch.testing.assert_close(whole, (halves[0] + halves[1]) / 2)
    for member in range(len(KEYS)):
        inputs, targets = validation.part(slice(None))
        alone = data.Split(inputs[member], targets[member : member + 1])
        one = training.make_hosts(plan, lessons.start[member : member + 1], "cpu")
        found = counterfactual.judge(one, alone, nothing[:1], zeros[:1]).accuracy
        assert float(found) == pytest.approx(float(whole[member]))
    with pytest.raises(ConfigError, match=r"task.validation: 'own': shared; the examples of teacher are drawn"):
        TaskConfig("teacher", validation="own")
    with pytest.raises(ConfigError, match=r"task.validation_examples: 301: 1 to 300 for digits"):
        tasks.load(TaskConfig("digits", validation_examples=301), config)
    assert len(tasks.load(TaskConfig("digits", validation_examples=50), config).sets.validation) == 50


class Evil:
    """A pickle that would run a command."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch ran",)


def test_files_of_cifar10_that_are_none_are_refused_by_name_and_run_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    host = HostConfig(kind="conv2d", blueprints=["norm"])
    with pytest.raises(InputError, match=r"data/cifar-10-batches-py/data_batch_1.*lay the unpacked"):
        tasks.load(TaskConfig("cifar10"), host)
    task = TaskConfig("cifar10", str(cifar(tmp_path)))
    for what in (Evil(), {b"data": Evil()}, {b"data": np.zeros((3, 5), np.uint8), b"labels": [0, 1, 2]}, {}, [1]):
        (tmp_path / "data_batch_3").write_bytes(pickle.dumps(what))
        with pytest.raises(InputError, match=r"data_batch_3: "):
            tasks.load(task, host)
    (tmp_path / "data_batch_3").write_bytes(b"nonsense")
    with pytest.raises(InputError, match=r"data_batch_3: "):
        tasks.load(task, host)
    assert not (tmp_path / "ran").exists()


def test_stories_are_read_from_their_usual_files(tmp_path: Path) -> None:
    host = HostConfig(kind="transformer", width=4, blueprints=["attention", "mlp"])
    task = TaskConfig("tinystories", str(tmp_path))
    with pytest.raises(InputError, match=r"TinyStories-train.txt: No such file.*task.folder"):
        tasks.load(task, host)
    story = "Once upon a time there was a small dog. It ran.\n<|endoftext|>\n"
    (tmp_path / "TinyStories-train.txt").write_text(story * 40)
    (tmp_path / "TinyStories-valid.txt").write_text(story)
    with pytest.raises(InputError, match=r"TinyStories-valid.txt: \d+ bytes are too few"):
        tasks.load(task, host)
    (tmp_path / "TinyStories-valid.txt").write_text(story * 10)
    found = tasks.load(task, host)
    plan = hosts.make_plan(host, found.form)
    lessons = tasks.make_lessons(found, plan, KEYS[:2])
    fit = lessons.sets.fit
    assert torch.equal(fit.inputs[:, 1:], fit.targets[0, :, :-1]) and fit.inputs.max() < 256 and (fit.inputs == 0).any()
    block = training.make_hosts(plan, lessons.start, "cpu")
    nothing = torch.full((2, 3), -1)
    for epoch in range(3):
        figures = training.train_epoch(
            block, nothing, torch.zeros(2, 3), nothing >= 0, fit, tasks.draw_batches(KEYS[:2], epoch, 4, 8, len(fit))
        )
    assert (figures.loss < 5.5).all()  # ln 256 is 5.55


def test_an_unknown_task_and_a_missing_package_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"task.name: 'imagenet': one of: teacher, futile, digits"):
        tasks.load(TaskConfig("imagenet"), HostConfig())
    monkeypatch.setitem(__import__("sys").modules, "sklearn.datasets", None)
    with pytest.raises(InputError, match=r"task digits needs .*sklearn.*stageb\[growth\]"):
        tasks.load(TaskConfig("digits"), HostConfig())


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["--task.name=tinystories", "--task.folder=NONE"], "TinyStories-train.txt: No such file"),
        (["--task.name=cifar10", "--task.folder=NONE"], "data_batch_1: FileNotFoundError"),
        (["--task.name=nothing"], "task.name"),
        (["--task.name=digits", "--task.fit_examples=5000"], "task.fit_examples"),
        (["--task.name=tinystories", "--task.folder=STORIES"], "host.kind"),
    ],
)
def test_what_cannot_be_learnt_from_is_told_by_validate_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], keys: list[str], said: str
) -> None:
    """As fit tells it, once its ranks have met."""
    for name in ("train", "valid"):
        (tmp_path / f"TinyStories-{name}.txt").write_text("a story " * 200)
    keys = [key.replace("NONE", str(tmp_path / "none")).replace("STORIES", str(tmp_path)) for key in keys]
    assert main(["validate", "--loop=growth", *keys]) == 2
    assert said in capsys.readouterr().err


def test_validate_says_what_was_read_and_what_was_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--loop=growth", "--task.name=digits"]) == 0
    told = capsys.readouterr().out
    assert "The keys are valid, and so is the data of task digits: 1,197 training" in told
    assert "The loggers and the devices were not checked" in told
    assert "task.folder" not in told
    assert main(["validate", "--loop=growth", "--task.name=digits", "--task.folder=/dev"]) == 0
    assert "task.folder is not used: task digits reads no folder" in capsys.readouterr().out
