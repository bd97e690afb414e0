"""``stageb boxes yolo`` and ``label_studio``; polygons as boxes, and crowds, from wherever they
come."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from stageb.errors import BadInputError, InputError
from stageb.two_channel.boxes.data import read
from stageb.two_channel.commands.boxes import main
from stageb.two_channel.types import Object

A = Object("cat", (10, 5, 30, 25))


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    (folder / "sub").mkdir(parents=True)
    for name in ("a.jpg", "sub/b.png"):
        Image.new("RGB", (40, 30)).save(folder / name)
    return folder


@pytest.fixture
def refused(tmp_path: Path) -> Callable[..., None]:
    """Asserts that words are refused, each fault with what is said of it, and that nothing is
    written."""

    def check(words: list[str], *said: str) -> None:
        with pytest.raises(BadInputError) as caught:
            main([*words, "--to", str(tmp_path / "all.jsonl")])
        assert len(caught.value.bad) == len(said), caught.value
        for bad, each in zip(caught.value.bad, said, strict=True):
            assert each in str(bad), bad
        assert not (tmp_path / "all.jsonl").exists()

    return check


def yolo(root: Path, names: str = "dog\ncat\n", **texts: str) -> list[str]:
    (root / "labels" / "sub").mkdir(parents=True, exist_ok=True)
    (root / "classes.txt").write_text(names)
    for name, text in texts.items():
        (root / "labels" / f"{name.replace('__', '/')}.txt").write_text(text)
    return [
        "yolo",
        str(root / "labels"),
        "--images",
        str(root / "images"),
        "--names",
        str(root / "classes.txt"),
    ]


def test_yolo(tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = yolo(tmp_path, a="1 0.5 0.5 0.5 0.66666667\n\n0 0.5 0.5 1.004 0.5 0.87\n")
    assert main([*words, "--to", str(tmp_path / "all.jsonl")]) == 0
    assert (
        "2 images, 2 objects; 1 clipped to the image; 1 pictures without a text file"
        in capsys.readouterr().out
    )
    first, second = read([tmp_path / "all.jsonl"], images)
    assert first.objects == (A, Object("dog", (0, 7.5, 40, 22.5))) and second.objects == ()
    polygon = "1 0.25 0.5 0.75 0.25 0.5 0.8\n"
    words = yolo(tmp_path, a="", sub__b=polygon)
    assert main([*words, "--polygons", "--to", str(tmp_path / "polygons.jsonl")]) == 0
    assert read([tmp_path / "polygons.jsonl"], images)[1].objects == (
        Object("cat", (10, 7.5, 30, 24)),
    )
    for text in (
        "names: [dog, cat]\n",
        "path: .\nnc: 2\nnames:\n  0: dog\n  1: cat\n",
        'names: {1: "cat", 0: dog}\n',
    ):
        (tmp_path / "data.yaml").write_text(text)
        named = [*words[:-1], str(tmp_path / "data.yaml"), "--polygons"]
        # the same lines, which may be there
        assert main([*named, "--to", str(tmp_path / "polygons.jsonl")]) == 0


def test_yolo_faults_are_told_with_file_and_line(
    tmp_path: Path, images: Path, refused: Callable[..., None]
) -> None:
    lines = (
        "2 .5 .5 .1 .1",
        "1 .5 .5 .1",
        "1 200 150 40 40",
        "x .5 .5 .1 .1",
        "1 nan .5 .1 .1",
        "1 .1 .1 .2 .2 .3 .3",
        "1.5 0 0 1 1",
    )
    words = yolo(tmp_path, a="\n".join(lines), gone="")
    refused(
        words,
        "labels/a.txt:1: class 2, but only 2 have names",
        "a.txt:2: 4 numbers",
        "a.txt:3: a number outside 0 to 1; write class x_center",
        "a.txt:4: a word that is not a number",
        "a.txt:5: a word that is not a number",
        "a.txt:6: a polygon; give --polygons",
        "a.txt:7: class 1.5",
        "gone.txt: there is no picture with that name; put it into",
    )
    for names, said in (
        ("", "no names"),
        ("a\n\nb\n", "class 1: an empty text"),
        ("a\x1b[2J\n", "class 0: the character"),
    ):
        refused(yolo(tmp_path, names=names, a=""), said)
    (tmp_path / "labels" / "gone.txt").unlink()
    (tmp_path / "labels" / "a.txt").unlink()
    (tmp_path / "labels" / "a.txt").symlink_to("/etc/hostname")
    refused(yolo(tmp_path), "leads out of")
    (tmp_path / "data.yaml").write_text("names: !!python/name:os.system\n")
    refused([*words[:-1], str(tmp_path / "data.yaml")], "the tag")
    with pytest.raises(InputError, match="no such folder"):
        main(["yolo", str(tmp_path / "none"), *words[2:], "--to", "all.jsonl"])


def task(number: int, image: str, *results: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": number,
        "data": {"image": image},
        "annotations": [{"result": list(results), **more}],
    }


def region(kind: str = "rectanglelabels", /, **value: Any) -> dict[str, Any]:
    size = {"original_width": 40, "original_height": 30}
    return {
        "id": "r",
        "type": kind,
        "from_name": "label",
        "to_name": "image",
        **size,
        "value": {kind: ["cat"], **value},
    }


def unlabelled(kind: str, **value: Any) -> dict[str, Any]:
    """As Label Studio writes a region that was drawn before a label was chosen."""
    return region(kind) | {"value": value}


BOX = {"x": 25, "y": 100 / 6, "width": 50, "height": 200 / 3, "rotation": 0}


def label_studio(root: Path, *tasks: Any) -> list[str]:
    (root / "export.json").write_text(json.dumps(tasks))
    return ["label_studio", str(root / "export.json"), "--images", str(root / "images")]


def test_label_studio(tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (images / "0a1b2c3d-a.jpg").write_bytes((images / "a.jpg").read_bytes())
    served = (
        "/data/upload/3/11223344-a.jpg",
        "/data/local-files/?d=here/images/sub/b.png",
        "s3://bucket/0a1b2c3d-a.jpg",
    )
    tasks = [task(number, image, region(**BOX)) for number, image in enumerate(served)]
    tasks[0]["annotations"] += [{"was_cancelled": True, "result": []}]
    tasks[1]["annotations"] += [{"ground_truth": True, "result": []}]
    unanswered = {"id": 9, "data": {"image": "gone.jpg"}, "annotations": []}
    words = label_studio(tmp_path, *tasks, unanswered)
    assert main([*words, "--to", str(tmp_path / "all.jsonl")]) == 0
    assert "3 images, 2 objects; 1 tasks without annotation" in capsys.readouterr().out
    first, second, third = read([tmp_path / "all.jsonl"], images)
    assert [each.key for each in (first, second, third)] == ["a.jpg", "sub/b.png", "0a1b2c3d-a.jpg"]
    assert first.objects == (A,) and second.objects == ()
    # about its upper left corner, (20, 0)
    turned = region(x=50, y=0, width=25, height=50, rotation=90)
    words = label_studio(
        tmp_path,
        task(1, "a.jpg", turned, region("polygonlabels", points=[[0, 0], [50, 10], [25, 100]])),
    )
    assert main([*words, "--polygons", "--to", str(tmp_path / "turned.jsonl")]) == 0
    [sample] = read([tmp_path / "turned.jsonl"], images)
    assert [each.box for each in sample.objects] == [(5, 0, 20, 10), (0, 0, 20, 30)]


def test_a_label_may_stand_beside_its_region(tmp_path: Path, images: Path) -> None:
    """The tags Rectangle and Labels; what is said of the picture as a whole is no region."""
    whole = {"id": "q", "type": "choices", "value": {"choices": ["sharp"]}}
    other = unlabelled("rectangle", x=0, y=0, width=10, height=10) | {"id": "s"}
    named = region("labels", **BOX) | {"id": "s"}
    words = label_studio(tmp_path, task(1, "a.jpg", whole, named, region(**BOX), other))
    assert main([*words, "--to", str(tmp_path / "all.jsonl")]) == 0
    [sample] = read([tmp_path / "all.jsonl"], images)
    assert [each.box for each in sample.objects] == [A.box, (0, 0, 4, 3)]


def test_label_studio_faults_are_told(
    tmp_path: Path, images: Path, refused: Callable[..., None]
) -> None:
    two = task(2, "a.jpg", region(**BOX))
    two["annotations"] *= 2
    faults = {
        "task 1: no annotations; export tasks as JSON": {"id": 1, "data": {"image": "a.jpg"}},
        "task 2: 2 annotations; keep one": two,
        "no such picture in": task(3, "gone.jpg", region(**BOX)),
        "a rotated rectangle; give --polygons": task(4, "a.jpg", region(**{**BOX, "rotation": 10})),
        "a polygon; give --polygons": task(
            5, "a.jpg", region("polygonlabels", points=[[0, 0], [50, 0], [50, 50]])
        ),
        '"brush"; keep only rectangles': task(6, "a.jpg", region("brushlabels", rle=[1])),
        "give x, y, width and height": task(7, "a.jpg", region(x=1, y=2, width="?", height=4)),
        "give it one label": task(8, "a.jpg", region(**BOX, rectanglelabels=["a", "b"])),
        "annotated as 40 x 31": task(9, "a.jpg", region(**BOX) | {"original_height": 31}),
        'region "r": no label; give it one label, or remove it': task(
            11, "a.jpg", unlabelled("rectangle", **BOX)
        ),
        '"ellipse"; keep only rectangles': task(12, "a.jpg", unlabelled("ellipse", radiusX=1)),
        'task 13: region "r": "brush"; keep only': task(13, "a.jpg", unlabelled("brush", rle=[1])),
        'task 14: labels of the region "r", which is not there': task(
            14, "a.jpg", region("labels", **BOX)
        ),
        'task 15: region "r": ["a", "b"]; give it one label': task(
            15, "a.jpg", region(**BOX, rectanglelabels=["a"]), region("labels", labels=["b"])
        ),
        'task 16: region "r": ["a", "b"]; give it one label': task(
            16,
            "a.jpg",
            unlabelled("rectangle", **BOX),
            region("labels", labels=["a"]),
            region("labels", labels=["b"]),
        ),
        '"videorectangle"; keep only': task(17, "a.jpg", unlabelled("videorectangle", **BOX)),
        "its data names no image": {
            "id": 10,
            "data": {"a": "x", "b": "y"},
            "annotations": [{"result": [region(**BOX)]}],
        },
    }
    refused(label_studio(tmp_path, *faults.values()), *faults)
    (images / "link.jpg").symlink_to("/etc/hostname")
    refused(label_studio(tmp_path, task(1, "link.jpg", region(**BOX))), "leads out of")
    words = label_studio(tmp_path)
    for text, said in (
        ("[\n{", "export.json:2: not JSON"),
        ('[{"image": "a.jpg"}]', "not a list of Label Studio's tasks"),
    ):
        (tmp_path / "export.json").write_text(text)
        refused(words, said)


def test_cocos_polygons_and_crowds(
    tmp_path: Path, images: Path, refused: Callable[..., None]
) -> None:
    segmented = {
        "id": 1,
        "image_id": 1,
        "category_id": 1,
        "segmentation": [[1, 2, 9, 2, 9, 8], [0, 5, 1, 5, 1, 6]],
    }
    crowd = {
        "id": 2,
        "image_id": 1,
        "category_id": 1,
        "bbox": [5, 5, 10, 10],
        "iscrowd": 1,
        "segmentation": {"counts": []},
    }
    told = {"images": [{"id": 1, "file_name": "a.jpg"}], "categories": [{"id": 1, "name": "cat"}]}
    (tmp_path / "coco.json").write_text(json.dumps(told | {"annotations": [segmented, crowd]}))
    words = ["coco", str(tmp_path / "coco.json"), "--images", str(images)]
    refused(words, "annotation 1: a segmentation and no bbox; give --polygons")
    assert main([*words, "--polygons", "--to", str(tmp_path / "all.jsonl")]) == 0
    [sample] = read([tmp_path / "all.jsonl"], images)
    assert sample.objects == (Object("cat", (0, 2, 9, 8)),) and sample.crowds == (
        Object("cat", (5, 5, 15, 15)),
    )


def test_polys_in_data_become_boxes_where_asked(tmp_path: Path, images: Path) -> None:
    def write(value: Any) -> Path:
        row = {
            "images": ["a.jpg"],
            "width": 40,
            "height": 30,
            "objects": [{"desc": "cat", **value}],
        }
        (tmp_path / "all.jsonl").write_text(json.dumps(row) + "\n")
        return tmp_path / "all.jsonl"

    with pytest.raises(
        BadInputError, match=r"jsonl:1: object 1: a poly; .* set data.polygons to box"
    ):
        read([write({"poly": [1, 2, 9, 2, 9, 8]})], images)
    assert read([write({"poly": [1, 2, 9, 2, 9, 8]})], images, "box")[0].objects == (
        Object("cat", (1, 2, 9, 8)),
    )
    for poly in ([1, 2, 3, 4], [1, 2, 9, 2, 9], [1, 2, 9, 2, 9, "8"], "x", [1, 2, 9, 2, 9, True]):
        with pytest.raises(BadInputError, match="write three points or more"):
            read([write({"poly": poly})], images, "box")
    with pytest.raises(BadInputError, match="both bbox_2d and poly; give one of the two"):
        read([write({"poly": [1, 2, 9, 2, 9, 8], "bbox_2d": [1, 2, 9, 8]})], images, "box")
    with pytest.raises(BadInputError, match="iscrowd 2; write 0 or 1"):
        read([write({"bbox_2d": [1, 2, 9, 8], "iscrowd": 2})], images)
