"""``stageb predict RUN``: boxes for a folder of pictures, whatever interrupts it, and what other
programs read of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from conformance import check_equal_bytes
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image
from programs import detectors

from stageb.__main__ import main
from stageb.store.commits import read_commit
from stageb.two_channel.boxes import predictions
from stageb.two_channel.boxes.data import DetectorData
from stageb.two_channel.boxes.metrics import Detections, choose_threshold, compute_f1, count_matches
from stageb.two_channel.boxes.predictions import BoxSelection
from stageb.two_channel.boxes.text import list_true_objects
from stageb.two_channel.commands.answerer import make_row
from stageb.two_channel.commands.card import advise
from stageb.two_channel.types import Box, Detection, Object, Sample


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that looked at val, which is the training images, and has learnt next to nothing."""
    root = tmp_path_factory.mktemp("trained")
    made = detectors.arguments(
        root,
        schedule__steps=2,
        evaluation__every=2,
        evaluation__pictures=0,
        schedule__pattern=["A"],
    )
    assert (
        main(
            [
                *made,
                next(each for each in made if each.startswith("--data.train=")).replace(
                    "train", "val", 1
                ),
            ]
        )
        == 0
    )
    return root / "run"


@pytest.fixture
def images(run: Path, tmp_path: Path) -> Path:
    """Twelve pictures, in two folders."""
    folder = tmp_path / "images"
    shutil.copytree(run.parent.parent / "shapes" / "train", folder / "first")
    shutil.copytree(run.parent.parent / "shapes" / "test", folder / "second")
    for path in sorted((folder / "first").glob("*.png"))[9:]:
        path.unlink()
    (folder / "notes.txt").write_text("no picture")
    (folder / ".hidden.png").write_text("no picture")
    return folder


def words(run: Path, images: Path, to: Path, *more: str) -> list[str]:
    return [
        "predict",
        str(run),
        f"--images={images}",
        f"--to={to}",
        "--accelerator=cpu",
        "--batch=4",
        *more,
    ]


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def rows(to: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (to / "predictions.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_every_world_size_writes_the_same_bytes_and_so_does_a_call_that_was_killed(
    run: Path, images: Path, tmp_path: Path
) -> None:
    def line(name: str, world_size: int) -> list[str]:
        return words(run, images, tmp_path / name, f"--devices={world_size}")

    ended, *_ = check_equal_bytes(
        tmp_path, line, lambda name: content(tmp_path / name), kills=[(0.4, 1, 2)]
    )
    whole = tmp_path / "1"
    assert [row["images"][0] for row in rows(whole)] == sorted(
        row["images"][0] for row in rows(whole)
    )
    assert len(rows(whole)) == 12 == len(list((whole / "yolo" / "labels").rglob("*.txt")))
    assert (
        f"{whole}/predictions.jsonl: 12 pictures, " in ended.out and "(chosen on val)" in ended.out
    )


@pytest.mark.slow
def test_pictures_may_be_answered_in_the_views_that_a_run_has_learnt_from(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys: dict[str, object] = {
        "schedule__steps": 1,
        "evaluation__pictures": 0,
        "schedule__pattern": ["A"],
    }
    assert (
        main(detectors.arguments(tmp_path, augmentation__mirror=True, evaluation__views=2, **keys))
        == 0
    )
    one, two, again = (tmp_path / name for name in ("one", "two", "again"))
    assert main(words(tmp_path / "run", images, two)) == 0
    assert main(words(tmp_path / "run", images, again, "--views=2")) == 0
    assert main(words(tmp_path / "run", images, one, "--views=1")) == 0
    assert content(two) == content(again)
    assert [row["images"] for row in rows(one)] == [row["images"] for row in rows(two)]
    # rows of another number of views
    assert main(words(tmp_path / "run", images, two, "--views=1")) == 2
    capsys.readouterr()
    assert main(words(tmp_path / "run", images, one, "--views=3")) == 2
    assert "evaluation.views: 3: 1 to 2" in capsys.readouterr().err


def test_rows_stay_and_another_threshold_selects_from_them(
    run: Path, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "to"
    assert main(words(run, images, to)) == 0
    before = (to / "predictions.jsonl").read_bytes()
    assert main(words(run, images, to, "--threshold=1")) == 0
    assert "0 of them, with a score of at least 1 (as given)" in capsys.readouterr().out
    assert json.loads((to / "coco" / "results.json").read_text()) == []
    assert (to / "predictions.jsonl").read_bytes() == before
    assert main(words(run, images, to, "--fresh", "--formats=yolo", "--categories=b,a")) == 0
    assert (
        (to / "predictions.jsonl.1").read_bytes()
        == before
        == (to / "predictions.jsonl").read_bytes()
    )
    assert (to / "yolo" / "classes.txt").read_text() == "b\na\n"


def test_broken_pictures_are_named_and_left_out_where_asked(
    run: Path, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to, path = tmp_path / "to", images / "second" / "00001.jpg"
    Image.open(path.with_suffix(".png")).save(path)
    path.with_suffix(".png").unlink()
    sound = path.read_bytes()
    path.write_bytes(sound[: len(sound) // 2])  # its header is whole
    assert main(words(run, images, to)) == 2
    err = capsys.readouterr().err
    assert f"{path}: broken" in err and "--skip-broken leaves such files out" in err
    assert len(rows(to)) == 8  # of rounds before
    assert main(words(run, images, to, "--skip-broken")) == 0
    assert (
        "left out: 1 broken pictures: second/00001.jpg; the rows say why" in capsys.readouterr().out
    )
    assert [set(row) for row in rows(to)].count({"images", "error"}) == 1
    assert not (to / "yolo" / "labels" / "second" / "00001.txt").exists()
    path.write_bytes(sound)
    assert main(words(run, images, to)) == 2
    assert "have changed; give --fresh" in capsys.readouterr().err
    assert main(words(run, images, to, "--fresh")) == 0 and len(rows(to)) == 12
    path.write_bytes(b"no picture")
    capsys.readouterr()
    assert main(words(run, images, to)) == 2
    assert "1 unusable picture:" in capsys.readouterr().err


def test_what_cannot_be_used_is_said_before_anything_starts(
    run: Path, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(said: str, *more: str, of: Path = run, at: Path = images) -> None:
        assert main(words(of, at, tmp_path / "to", *more)) == 2
        err = capsys.readouterr().err
        assert said in err and "Traceback" not in err, err
        assert not (tmp_path / "to").exists()

    refused("no run lies there", of=tmp_path / "none")
    refused("no such folder", at=tmp_path / "none")
    (tmp_path / "empty").mkdir()
    refused("holds no pictures (bmp, gif", at=tmp_path / "empty")
    refused("--formats: 'voc': some of coco,label_studio,yolo", "--formats=coco,voc")
    refused("--threshold: 2.0: from 0 to 1", "--threshold=2")
    refused("--batch: 0: at least 1", "--batch=0")
    refused("each name once", "--categories=a,b,a")
    refused("--categories: '': names, with commas between", "--categories=")
    outside = tmp_path / "outside.png"
    Image.new("RGB", (64, 64)).save(outside)
    (images / "link.png").symlink_to(outside)
    refused("leads out of", "--batch=4")
    (images / "link.png").unlink()
    shutil.copy(images / "first" / "00000.png", images / "first" / "00000.bmp.png")
    Image.new("RGB", (64, 64)).save(images / "first" / "00000.bmp")
    refused(
        "first/00000.bmp and first/00000.png would share yolo/labels/first/00000.txt; rename one"
    )
    assert main(["predict", str(run), f"--images={images}"]) == 2
    assert "the following arguments are required: --to" in capsys.readouterr().err


def test_a_run_keeps_its_categories_and_a_threshold(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = read_commit(run)["state"]
    assert (
        state["categories"] == sorted(state["categories"]) and 0 <= state["best"]["threshold"] <= 1
    )
    other = tmp_path / "other"
    shutil.copytree(run, other)
    commit = json.loads((other / "commit.json").read_text())
    for wrong in (
        {"categories": ["a\nb"]},
        {"best": {**state["best"], "threshold": 7}},
        {"categories": "ab"},
        {"f1_50": -1},
    ):
        (other / "commit.json").write_text(json.dumps({**commit, "state": {**state, **wrong}}))
        assert main(words(other, run.parent.parent / "shapes" / "test", tmp_path / "to")) == 2
        assert (
            "the categories, the threshold or the F1 in its commit are invalid"
            in capsys.readouterr().err
        )
    del state["categories"]
    (other / "commit.json").write_text(json.dumps({**commit, "state": state}))
    assert main(words(other, run.parent.parent / "shapes" / "test", tmp_path / "to")) == 2
    assert "give --categories A,B" in capsys.readouterr().err


def test_a_detector_that_finds_nothing_is_not_used_without_a_word(
    run: Path, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    why = (
        "this detector found nothing where it was measured (F1 0): its boxes mean nothing; "
        "its README.md says what may help"
    )
    for times in (2, 1):  # before and behind the pictures; then there is none left
        assert main(words(run, images, tmp_path / "to")) == 0
        assert capsys.readouterr().err.count(f"{run}: {why}\n") == times
    advice = "t finds nothing on val (F1 0): raise schedule.steps: its loss was not low yet after 2"
    assert f"\n\nI{advice}.\n" in (run / "README.md").read_text()
    able = tmp_path / "able"
    shutil.copytree(run, able)
    commit = json.loads((able / "commit.json").read_text())
    commit["state"]["f1_50"] = 0.5
    (able / "commit.json").write_text(json.dumps(commit))
    assert main(words(able, images, tmp_path / "other")) == 0
    assert "means nothing" not in capsys.readouterr().err


def test_export_says_what_there_is_instead_of_onnx(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(run)]) == 2
    err = capsys.readouterr().err
    assert "stageb export: a detector is not written as ONNX" in err and "RUN/best" in err
    assert (
        "stageb predict RUN --images FOLDER --to FOLDER writes COCO, Label Studio and YOLO" in err
    )


def test_the_hindrance_is_found_by_what_was_learnt(tmp_path: Path) -> None:
    cat, dog = (
        Sample(desc, desc, 99, 99, (Object(desc, (0, 0, 9, 9)),)) for desc in ("cat", "dog")
    )
    empty = Sample("none", "none", 99, 99, ())

    def hinders(
        *losses: float | None, val: tuple[Sample, ...] = (cat,), f1: float = 0.0, count: int = 100
    ) -> str:
        rows = [{"loss/coordinates": loss} for loss in losses]
        return advise(
            DetectorData((cat,) * count, val, (cat,)), rows, {"val/f1_50": f1, "eval/f1_50": f1}
        )

    assert hinders(*[6.0] * 10, *[5.0] * 10, f1=0.01) == "" == hinders(6, 5, val=(empty,))
    assert hinders(6, 5, val=(dog,)).endswith(
        "give both the same names: train has no object that is called 'dog'"
    )
    for falling in ([], [6.0], [None, 6.0, None], [5, 6, 5, 6], [6.5] * 1800 + [6.0] * 200):
        assert hinders(*falling).endswith(
            f"raise schedule.steps: its loss was not low yet after {len(falling):,}"
        )
    learnt = hinders(*[6.0] * 900, *[3.0] * 100)
    assert "give it more to train on" in learnt and learnt.endswith(
        "it has learnt its 100 images, but not what others show"
    )
    assert hinders(*[6.0] * 1000, count=99).endswith(
        "(model.model_name_or_path): 99 images are few"
    )
    assert hinders(*[6.0] * 1000).endswith(
        "check that boxes fit their images: those of train are not learnt either"
    )
    assert hinders(6, 5, val=()).startswith("it finds nothing on test (F1 0): ")


def sample(*objects: tuple[str, Box]) -> Sample:
    # a pixel is a bin
    return Sample(str(objects), "none.png", 999, 999, tuple(Object(*each) for each in objects))


def test_pictures_do_not_take_the_place_of_what_was_told(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, to = run.parent.parent / "shapes" / "test.jsonl", str(tmp_path / "told.jsonl")
    assert (
        main(
            [
                "evaluate",
                str(run),
                "--data",
                str(data),
                "--told",
                to,
                "--to",
                to,
                "--accelerator",
                "cpu",
            ]
        )
        == 2
    )
    assert (
        "--told" in (said := capsys.readouterr().err)
        and "a file other than that of the pictures" in said
    )
    assert not Path(to).exists()


def test_the_threshold_is_that_of_the_largest_f1() -> None:
    true = sample(("a", (0, 0, 100, 100)), ("a", (200, 200, 300, 300)))
    one, other = list_true_objects(true)
    wrong = Detection("a", (500, 500, 600, 600))
    said = Detections((one, wrong, other), (0.9, 0.2, 0.4))
    assert choose_threshold([true], [said]) == pytest.approx(0.3)
    unsorted = Detections((one, wrong, other), (0.2, 0.9, 0.4))  # the surest is wrong: all stay
    assert choose_threshold([true], [unsorted]) == 0
    assert choose_threshold([true], [Detections((), ())]) == 0


SCORED = st.tuples(st.sampled_from([0.2, 0.3, 0.5, 0.9]), st.sampled_from([0, 1, None]))


@settings(max_examples=40)
@given(st.lists(st.lists(SCORED, max_size=4), min_size=1, max_size=3))
@example([[(0.9, 0), (0.3, 1), (0.3, None), (0.3, None)]])
@example([[(0.9, 0), (0.3, 1), (0.3, None), (0.3, None), (0.3, None)]])
def test_no_threshold_has_a_larger_f1_and_none_that_keeps_more_has_one_as_large(
    told: list[list[tuple[float, int | None]]],
) -> None:
    """``told``: of each object in each picture its score, and which of the two that are there it
    finds."""
    true = sample(("a", (0, 0, 100, 100)), ("a", (200, 200, 300, 300)))
    there, wrong = list_true_objects(true), Detection("a", (500, 500, 600, 600))
    samples = [true] * len(told)
    found = [
        Detections(
            tuple(wrong if which is None else there[which] for _, which in each),
            tuple(score for score, _ in each),
        )
        for each in told
    ]

    def judge(threshold: float) -> tuple[float, float]:
        """F1 of what a threshold keeps, and how many those are."""
        chosen = [
            tuple(
                one for one, score in zip(of.objects, of.scores, strict=True) if score >= threshold
            )
            for of in found
        ]
        counts = [count_matches(*pair) for pair in zip(samples, chosen, strict=True)]
        return compute_f1(counts)["f1_50"], sum(map(len, chosen))

    assert judge(choose_threshold(samples, found)) == max(map(judge, (0, 0.2, 0.3, 0.5, 0.9)))


def test_a_row_holds_boxes_with_area_once() -> None:
    shown = Sample("a.png", "a.png", 640, 480, ())
    told = Detections(
        (
            Detection("a", (0, 0, 999, 500)),
            Detection("a", (5, 5, 5, 9)),
            Detection("a", (0, 0, 999, 500)),
        ),
        (0.25, 1, 0.5),
    )
    assert make_row(shown, told) == {
        "images": ["a.png"],
        "width": 640,
        "height": 480,
        "objects": [{"desc": "a", "bbox_2d": (0, 0, 640, 240.24), "score": 0.5}],
    }


def test_exports_that_somebody_corrected_are_set_aside(
    run: Path, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "to"
    foreign, ours = to / "yolo" / "labels" / "first" / "00000.txt", to / "yolo" / "classes.txt"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("0 .5 .5 .2 .2\n")
    assert main(words(run, images, to)) == 0
    assert (
        "renamed to NAME.1, since they were changed: yolo/labels/first/00000.txt"
        in capsys.readouterr().out
    )
    assert foreign.with_name("00000.txt.1").read_text() == "0 .5 .5 .2 .2\n"
    ours.write_text("cat\n")
    for more in ((), ("--threshold=1",), ("--fresh",)):
        assert main(words(run, images, to, *more)) == 0
    assert [path.name for path in sorted(to.rglob("*.[0-9]"))] == [
        "predictions.jsonl.1",
        "classes.txt.1",
        "00000.txt.1",
    ]
    assert ours.with_name("classes.txt.1").read_text() == "cat\n"
    (to / predictions.NOTES).write_text("[")
    assert main(words(run, images, to)) == 0  # the same again: nothing is set aside
    assert len(list(to.rglob("*.[0-9]"))) == 3


def test_exports_that_only_stageb_changes_are_replaced(tmp_path: Path) -> None:
    """Each time anew, also where one call left a file out."""
    for names in ("ab", "ab", "b", "ab"):
        folder = predictions.ExportFolder(tmp_path)
        for name in names:
            folder.write(name, f"{name} of {names}, {len(list(tmp_path.iterdir()))}, {id(folder)}")
        folder.note()
        assert folder.aside == []


def test_exports_by_hand(tmp_path: Path) -> None:
    boxes = [
        {"desc": "b & c", "bbox_2d": [10, 20, 30, 60], "score": 0.5},
        {"desc": "a", "bbox_2d": [0, 0, 100, 80], "score": 0.2},
        {"desc": "strange", "bbox_2d": [0, 0, 1, 1], "score": 0.9},
    ]
    given: list[dict[str, Any]] = [
        {"images": ["x/no.png"], "error": "broken"},
        {"images": ["x/ü 1.png"], "width": 100, "height": 80, "objects": boxes},
        {"images": ["y.png"], "width": 10, "height": 10, "objects": []},
    ]
    for write in predictions.FORMATS.values():
        write(
            given,
            BoxSelection(("a", "b & c"), 0.5, "/files/?d=", "run"),
            predictions.ExportFolder(tmp_path),
        )

    def read(name: str) -> Any:
        return json.loads((tmp_path / name).read_text())

    assert read("coco/results.json") == [
        {"image_id": 2, "category_id": 2, "bbox": [10, 20, 20, 40], "score": 0.5}
    ]
    assert [image["id"] for image in read("coco/images.json")["images"]] == [2, 3]
    assert read("coco/images.json")["categories"] == [
        {"id": 1, "name": "a"},
        {"id": 2, "name": "b & c"},
    ]
    first, second = read("label_studio/tasks.json")
    assert (
        first["data"] == {"image": "/files/?d=x/%C3%BC%201.png"}
        and second["predictions"][0]["result"] == []
    )
    [result] = first["predictions"][0]["result"]
    assert result["value"] == {
        "x": 10,
        "y": 25,
        "width": 20,
        "height": 50,
        "rotation": 0,
        "rectanglelabels": ["b & c"],
    }
    assert (result["original_width"], result["original_height"], result["score"]) == (100, 80, 0.5)
    assert '<Label value="b &amp; c"/>' in (tmp_path / "label_studio" / "interface.xml").read_text()
    assert (
        tmp_path / "yolo" / "labels" / "x" / "ü 1.txt"
    ).read_text() == "1 0.200000 0.500000 0.200000 0.500000 0.5\n"
    assert (tmp_path / "yolo" / "labels" / "y.txt").read_text() == ""
    assert (tmp_path / "yolo" / "classes.txt").read_text() == "a\nb & c\n"
