"""Data for detectors: what is read, and every fault with its file, line and remedy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from stageb.__main__ import main
from stageb.errors import BadInputError, InputError
from stageb.two_channel.boxes.data import DetectorData, read
from stageb.two_channel.boxes.metrics import ious
from stageb.two_channel.boxes.shapes import COLOURS, FORMS, MOST_OBJECTS, write_shapes
from stageb.two_channel.boxes.text import list_true_objects
from stageb.two_channel.commands.evaluate import read_samples
from stageb.two_channel.config import DataConfig, TwoChannelConfig
from stageb.two_channel.types import Object


def line(**but: Any) -> str:
    row = {
        "images": ["a.png"],
        "width": 40,
        "height": 30,
        "objects": [{"desc": "cat", "bbox_2d": [1, 2.5, 40, 30]}],
    }
    return json.dumps(
        {key: value for key, value in (row | but).items() if value is not ...}, ensure_ascii=False
    )


def written(folder: Path, *lines: str) -> Path:
    for name in ("a.png", "b.png"):
        Image.new("RGB", (40, 30)).save(folder / name)
    path = folder / "data.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_images_that_the_run_had_elsewhere_are_named_when_it_is_evaluated(tmp_path: Path) -> None:
    path = written(tmp_path, line(images=["c.png"]))
    config = TwoChannelConfig(
        data=DataConfig(train=str(path), val=str(path), images="/data/photos")
    )
    with pytest.raises(InputError, match="add: --images /data/photos"):
        read_samples(str(path), None, config)
    with pytest.raises(BadInputError):
        read_samples(str(path), str(tmp_path), config)


def test_samples_are_read_as_they_stand(tmp_path: Path) -> None:
    path = written(tmp_path, line(more=7), "", line(images=["b.png"], objects=[]))
    first, second = read([path])
    assert (first.key, first.image, first.width, first.height) == (
        "a.png",
        str(tmp_path / "a.png"),
        40,
        30,
    )
    assert first.objects == (Object("cat", (1.0, 2.5, 40.0, 30.0)),) and second.objects == ()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = path.rename(elsewhere / "data.jsonl")
    assert read([moved], images=tmp_path) == [first, second]
    held = Image.Exif()
    held[0x0112] = 6  # the camera lay on its side
    Image.new("RGB", (40, 30)).save(elsewhere / "c.jpg", exif=held)
    moved.write_text(line(images=["c.jpg"], width=30, height=40, objects=[]))
    assert (read([moved])[0].width, read([moved])[0].height) == (30, 40)


def test_every_fault_is_told_with_its_line_and_remedy(tmp_path: Path) -> None:
    def objects(*values: Any) -> str:
        return line(objects=list(values))

    box = [0, 0, 1, 1]
    faults = [
        ("{", "not JSON"),
        ("[]", "not a JSON object; write {"),
        (line(width=...), "no width; write {"),
        (line(images="a.png"), 'images "a.png"; name one image'),
        (line(images=["a.png", "b.png"]), "name one image"),
        (line(images=["../a.png"]), f"leads out of {tmp_path}"),
        (line(images=["gone.png"]), "gone.png: no such file"),
        (line(height=True), "height true; write the image's size"),
        (line(width=30, height=40), "30 x 40, but a.png shows 40 x 30"),
        (line(objects={}), "objects {}; write a list"),
        (objects(7), "object 1: 7; write"),
        (objects({"desc": "cat", "poly": [1]}), "object 1: a poly; give the box around it"),
        (objects({"desc": "cat", "poly": [1], "bbox_2d": box}), "object 1: both bbox_2d and poly"),
        (objects({"bbox_2d": box}), "object 1: no desc"),
        (objects({"desc": "cat", "bbox_2d": box}, {"desc": "cat"}), "object 2: no bbox_2d"),
        (objects({"desc": " ", "bbox_2d": box}), 'object 1: desc " "; name the object'),
        (objects({"desc": "a\nb", "bbox_2d": box}), "its desc has the character U+000A"),
        (
            objects({"desc": "cat ", "bbox_2d": box}),
            'desc "cat " begins or ends with a space; remove it',
        ),
        (objects({"desc": "cat", "bbox_2d": [0, 0, 1]}), "write four numbers"),
        (objects({"desc": "cat", "bbox_2d": [0, 0, 1, "1"]}), "write four numbers"),
        (objects({"desc": "cat", "bbox_2d": [0, 0, 0, 1]}), "has no area"),
        (
            objects({"desc": "cat", "bbox_2d": [0, 0, 41, 1]}),
            "is not within the image of 40 x 30; give pixels",
        ),
        (
            objects({"desc": "cat", "bbox_2d": box}, {"desc": "cat", "bbox_2d": box}),
            "object 2 repeats object 1; keep one",
        ),
        (line(), f'image "a.png" is at {tmp_path}/data.jsonl:1 already; put all objects'),
    ]
    path = written(tmp_path, line(), *(bad for bad, _ in faults))
    with pytest.raises(BadInputError) as caught:
        read([path, tmp_path / "none.jsonl"])
    assert len(caught.value.bad) == len(faults) + 1
    for number, ((_, said), bad) in enumerate(zip(faults, caught.value.bad, strict=False), 2):
        assert str(bad).startswith(f"{path}:{number}: ") and said in str(bad), (said, str(bad))
    assert "cannot be read" in str(caught.value.bad[-1])


def test_drawn_images_are_their_names_and_hold_what_is_said(tmp_path: Path) -> None:
    path = write_shapes(tmp_path, "train", 40, seed=3)
    samples = read([path])
    again = write_shapes(tmp_path / "again", "train", 40, seed=3)
    assert again.read_bytes() == path.read_bytes()
    names = [f"train/{number:05d}.png" for number in range(40)]
    assert all(
        (tmp_path / name).read_bytes() == (tmp_path / "again" / name).read_bytes() for name in names
    )
    assert write_shapes(tmp_path / "other", "train", 40, seed=4).read_bytes() != path.read_bytes()
    kinds = {each.desc for sample in samples for each in sample.objects}
    assert kinds == {f"{colour} {form}" for colour in COLOURS for form in FORMS}
    for sample in samples:
        assert 1 <= len(sample.objects) <= MOST_OBJECTS and len(list_true_objects(sample)) == len(
            sample.objects
        )
        assert {sample.width, sample.height} <= {64, 96}
        assert np.triu(ious(list_true_objects(sample), list_true_objects(sample)), k=1).max() < 0.12
        pixels = np.asarray(Image.open(sample.image))
        for each in sample.objects:  # nothing covers the middle of the foot of what was drawn last
            x1, _, x2, y2 = map(int, each.box)
            if each is sample.objects[-1]:
                red, green, blue = pixels[y2 - 1, (x1 + x2) // 2]
                assert (
                    max((red, "red"), (green, "green"), (blue, "blue"))[1] == each.desc.split()[0]
                )


@pytest.mark.parametrize("command", ["validate", "fit"])
def test_faults_are_told_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    bad = written(tmp_path, line(), line(width=41))
    wanted = ["--loop=two_channel", f"--output.root={tmp_path / 'out'}"]
    for named, said in (
        ([f"--data.train={tmp_path / 'none.jsonl'}"], "none.jsonl: cannot be read"),
        ([f"--data.train={bad}"], "41 x 30, but a.png shows 40 x 30"),
        ([], "data.train: None: name the JSON Lines to train on"),
        (["--data.train=null"], "data.train: None: name the JSON Lines to train on"),
    ):
        assert main([command, *wanted, *named]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_images_that_two_parts_share_are_counted(tmp_path: Path) -> None:
    one, other = (
        tuple(read([written(tmp_path, line(images=[name]))])) for name in ("a.png", "b.png")
    )
    assert DetectorData(one, other, ()).shared == DetectorData(one, (), other).shared == []
    assert DetectorData(one, one + other, one + other).shared == [
        "1 of 2 images of val stand in train, too: figures on them flatter.",
        "1 of 2 images of test stand in train, too: figures on them flatter.",
        "2 of 2 images of test stand in val, too: figures on them flatter.",
    ]


def test_validate_says_what_was_read_and_what_was_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = written(tmp_path, line(), line(images=["b.png"], objects=[]))
    given = [f"--data.train={train}", f"--data.val={train}", "--data.test=null"]
    assert main(["validate", "--loop=two_channel", *given]) == 0
    told = capsys.readouterr().out
    assert "The keys are valid, and so is every line of the data: 2 train" in told
    assert "2 val and 0 test samples" in told
    assert "\n2 of 2 images of val stand in train, too: figures on them flatter.\n" in told
    assert "The model, the loggers and the devices were not checked" in told
