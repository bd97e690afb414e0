"""``stageb boxes``: what other formats say, what is set right and counted, and every fault."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from stageb.__main__ import main as stageb
from stageb.errors import BadInputError, InputError
from stageb.two_channel.boxes.data import read
from stageb.two_channel.commands.boxes import main
from stageb.two_channel.types import Object

BCCD = Path(__file__).parents[3] / "shared" / "data" / "bccd" / "BCCD"


def annotation(*objects: str, name: str = "a.jpg", size: str = "40,30") -> str:
    width, height = size.split(",")
    inner = f"<filename>{name}</filename><size><width>{width}</width><height>{height}</height></size>{''.join(objects)}"
    return f'<?xml version="1.0"?>\n<annotation>{inner}</annotation>'


def box(name: str, *corners: float) -> str:
    edges = "".join(
        f"<{key}>{at}</{key}>"
        for key, at in zip(("xmin", "ymin", "xmax", "ymax"), corners, strict=False)
    )
    return f"<object><name>{name}</name><bndbox>{edges}</bndbox></object>"


def voc(root: Path, **annotations: str) -> Path:
    for folder in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (40, 30)).save(root / "JPEGImages" / "a.jpg")
    Image.new("RGB", (40, 30)).save(root / "JPEGImages" / "b.jpg")
    for name, text in annotations.items():
        (root / "Annotations" / f"{name}.xml").write_text(text)
    return root


def test_voc(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = [
        box("cat", 1, 2, 11, 12),
        box("cat", 1, 2, 11, 12),
        box("dog", 5, 5, 5, 9),
        box("dog", -3, 0.5, 41, 30),
    ]
    root = voc(tmp_path / "voc", a=annotation(*objects), b=annotation(name="b.jpg", size="0,0"))
    (root / "ImageSets" / "Main" / "train.txt").write_text("a  1\n\n")
    to = tmp_path / "out" / "train.jsonl"
    assert main(["voc", str(root), "--split", "train", "--to", str(to)]) == 0
    said = capsys.readouterr().out
    assert (
        f"{to}: 1 images, 2 objects; 1 clipped to the image; 1 duplicates; 1 without area" in said
    )
    assert f"use it with --data.images {root}" in said
    (sample,) = read([to], images=root)
    assert sample.objects == (Object("cat", (1, 2, 11, 12)), Object("dog", (0, 0.5, 40, 30)))
    assert main(["voc", str(root), "--to", str(root / "all.jsonl")]) == 0
    assert "data.images" not in capsys.readouterr().out
    assert [each.key for each in read([root / "all.jsonl"])] == [
        "JPEGImages/a.jpg",
        "JPEGImages/b.jpg",
    ]


def test_voc_faults_are_told_together_and_leave_no_file(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE a [<!ENTITY x "xxxxxxxx">]><annotation>&x;</annotation>'
    faults = {
        "a": (annotation(box("", 1, 2, 3, 4)), "object 1: no name"),
        "b": (annotation(box("cat", 1, 2, 3)), "object 1: no bndbox of four numbers; give it"),
        "c": (annotation(name="../../c.jpg"), "leads out of"),
        "d": (annotation(size="30,40"), "annotated as 30 x 40, but"),
        "e": (bomb, "has a document type or entities; remove them"),
        "f": ("<annotation>", "not XML"),
        "g": ("<svg/>", 'the element "svg"'),
    }
    root = voc(tmp_path, **{name: text for name, (text, _) in faults.items()})
    with pytest.raises(BadInputError) as caught:
        main(["voc", str(root), "--to", str(tmp_path / "all.jsonl")])
    assert len(caught.value.bad) == len(faults)
    for bad, (name, (_, said)) in zip(caught.value.bad, faults.items(), strict=True):
        assert f"{name}.xml" in str(bad) and said in str(bad)
    for words, said in (
        (["voc", str(tmp_path / "none"), "--to", "a.jsonl"], "no Annotations"),
        (["voc", str(root), "--split", "none", "--to", "a.jsonl"], "--split names a list"),
        (["voc", str(root)], "the following arguments are required: --to"),
        (["shapes", "--to", str(tmp_path), "--train", "-1"], "give 0 to 100000"),
    ):
        with pytest.raises(InputError, match=said):
            main(words)
    (root / "Annotations").rename(root / "old")
    voc(root, a=annotation(), b=annotation())  # both of one image
    with pytest.raises(InputError, match="name a file that ends in"):
        main(["voc", str(root), "--to", str(tmp_path / "all.txt")])
    with pytest.raises(BadInputError, match="is annotated at"):
        main(["voc", str(root), "--to", str(tmp_path / "all.jsonl")])
    assert not list(tmp_path.glob("*all*"))


def test_coco(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = voc(tmp_path) / "JPEGImages"
    file = tmp_path / "instances.json"
    images = [
        {"id": 7, "file_name": "a.jpg", "width": 40, "height": 30},
        {"id": 9, "file_name": "b.jpg"},
    ]
    annotations = [
        {"id": 1, "image_id": 7, "category_id": 3, "bbox": [1, 2, 10, 10.5], "iscrowd": 0},
        {"id": 2, "image_id": 7, "category_id": 3, "bbox": [1, 2, 10, 10], "iscrowd": 1},
        {"id": 3, "image_id": 9, "category_id": 3, "bbox": [1, 2, 0, 10]},
    ]
    categories = [{"id": 3, "name": "cat"}]

    def write(**but: object) -> None:
        file.write_text(
            json.dumps(
                {"images": images, "annotations": annotations, "categories": categories} | but
            )
        )

    write()
    words = ["coco", str(file), "--images", str(root), "--to", str(tmp_path / "val.jsonl")]
    assert main(words) == 0
    assert "2 images, 1 objects; 1 crowds; 1 without area" in capsys.readouterr().out
    first, second = read([tmp_path / "val.jsonl"], images=root)
    assert first.objects == (Object("cat", (1, 2, 11, 12.5)),) and second.objects == ()
    bad: list[dict[str, object]] = [
        {"id": 4, "image_id": 8},
        {"id": 5, "image_id": 7, "category_id": 4},
    ]
    bad += [{"id": 6, "image_id": 7, "category_id": 3, "bbox": [1, 2, "x", 4]}]
    write(annotations=bad, images=[*images, {"id": 10, "file_name": "gone.jpg"}])
    with pytest.raises(BadInputError) as caught:
        main(words)
    for each, said in zip(
        caught.value.bad,
        (
            "there is no image 8",
            "no category with a name has the id 4",
            "bbox [1, 2,",
            "no such file",
        ),
        strict=True,
    ):
        assert said in str(each)
    for text, said in (
        ("{", "not JSON"),
        ("[]", "not in COCO format"),
        ('{"images": [7]}', "not in COCO format"),
    ):
        file.write_text(text)
        with pytest.raises(BadInputError, match=said):
            main(words)


def test_corners_in_another_order_are_put_in_order_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = voc(tmp_path, a=annotation(box("cat", 21, 12, 11, 2), box("dog", 1, 2, 3, 4)))
    assert main(["voc", str(root), "--to", str(tmp_path / "all.jsonl")]) == 0
    assert "1 images, 2 objects; 1 with corners in the other order" in capsys.readouterr().out
    [sample] = read([tmp_path / "all.jsonl"], images=root)
    assert [each.box for each in sample.objects] == [(11, 2, 21, 12), (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("boxes", "told"),
    [
        (
            [(0.1, 0.2, 0.5, 0.9), (0, 0, 1, 1)],
            "all boxes lie within 0 to 1; fractions[?] give pixels",
        ),
        (
            [(1, 2, 30, 20), (500, 400, 900, 1000)],
            "1 of 2 boxes lie outside of their images, .*; thousandths[?]",
        ),
        ([(0.1, 0.2, 0.5, 0.9), (0, 0, 2, 1)], None),
        ([(1, 2, 30, 20), (500, 400, 900, 1001)], None),
        # one slip of eleven
        ([(1, 2, 30, 20 + each / 100) for each in range(10)] + [(41, 2, 50, 10)], None),
    ],
)
def test_boxes_that_are_not_in_pixels_are_told(
    tmp_path: Path, boxes: list[tuple[float, ...]], told: str | None
) -> None:
    root = voc(tmp_path, a=annotation(*(box("cat", *each) for each in boxes)))
    words = ["voc", str(root), "--to", str(tmp_path / "all.jsonl")]
    if told is None:
        assert main(words) == 0
        return
    with pytest.raises(BadInputError, match=told):
        main(words)


def test_rows_in_fractions_are_told(tmp_path: Path) -> None:
    root = voc(tmp_path) / "JPEGImages"
    row = {
        "images": ["a.jpg"],
        "width": 40,
        "height": 30,
        "objects": [{"desc": "cat", "bbox_2d": [0.1, 0.1, 0.9, 1]}],
    }
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row))
    with pytest.raises(
        BadInputError, match=r"rows\.jsonl: all boxes lie within 0 to 1; fractions[?] give pixels"
    ):
        read([path], images=root)


@pytest.mark.skipif(not BCCD.is_dir(), reason="BCCD does not lie beside the checkout")
def test_blood_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = {}
    for split in ("train", "val", "test"):
        to = tmp_path / f"{split}.jsonl"
        assert main(["voc", str(BCCD), "--split", split, "--to", str(to)]) == 0
        samples[split] = read([to], images=BCCD)
    assert [len(each) for each in samples.values()] == [205, 87, 72]
    kinds = Counter(
        each.desc for split in samples.values() for sample in split for each in sample.objects
    )
    assert sum(kinds.values()) == 4886 and set(kinds) == {"RBC", "WBC", "Platelets"}
    assert capsys.readouterr().out.count("; 1 without area") == 2


def test_drawn_images_can_be_easy(tmp_path: Path) -> None:
    few = [
        "shapes",
        "--to",
        str(tmp_path),
        "--train",
        "9",
        "--val",
        "0",
        "--test",
        "0",
        "--side",
        "64",
    ]
    assert main([*few, "--most", "1"]) == 0
    drawn = read([tmp_path / "train.jsonl"])
    assert {(each.width, each.height, len(each.objects)) for each in drawn} == {(64, 64, 1)}
    with pytest.raises(InputError, match="--most 0: give 1 to 6"):
        main([*few, "--most", "0"])


def without(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Have ``modules`` look as if nobody had installed them."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: None if name in modules else find(name, *more),
    )
    for name in modules:
        monkeypatch.setitem(sys.modules, name, None)


def test_data_are_made_without_what_only_a_fit_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "faster_coco_eval", "scipy", "transformers")
    root = voc(tmp_path / "voc", a=annotation(box("cat", 1, 2, 11, 12)))
    assert stageb(["boxes", "voc", str(root), "--to", str(root / "all.jsonl")]) == 0
    counts = ["--train", "1", "--val", "0", "--test", "0"]
    assert stageb(["boxes", "shapes", "--to", str(tmp_path / "shapes"), *counts]) == 0


@pytest.mark.parametrize(
    "words",
    ["voc {0} --to {0}/all.jsonl", "shapes --to {0}/shapes", "coco a.json --images {0} --to b"],
)
def test_without_pillow_the_extra_that_brings_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    without(monkeypatch, "PIL")
    assert stageb(["boxes", *words.format(tmp_path).split()]) == 2
    said = capsys.readouterr().err
    assert "stageb boxes needs the extra images, of which PIL cannot be found: " in said
    assert "pip install 'stageb[images]'" in said
    assert not list(tmp_path.iterdir())
