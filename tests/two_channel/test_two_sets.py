"""``stageb boxes`` of whole sets: splits in folders as COCO and YOLO have them, which a run then
reads as it is advised."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from stageb.__main__ import main as stageb
from stageb.errors import BadInputError, InputError
from stageb.two_channel.boxes.data import read
from stageb.two_channel.commands.boxes import main
from stageb.two_channel.types import Object

# of a picture that is called the same in each
SIZES = {"train": (40, 30), "val": (50, 30), "test": (60, 30)}
A = Object("cat", (10, 7.5, 30, 22.5))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def picture(path: str, split: str = "train") -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", SIZES[split]).save(path)


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


def coco(path: str, split: str = "train", **more: Any) -> None:
    width, height = SIZES[split]
    images = [{"id": 1, "file_name": "a.png", "width": width, "height": height}]
    annotations = [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [10, 7.5, 20, 15]}]
    write(
        path,
        json.dumps(
            {
                "images": images,
                "annotations": annotations,
                "categories": [{"id": 1, "name": "cat"}],
                **more,
            }
        ),
    )


def yolo(yaml: str, *folders: str) -> None:
    """A set whose folders of images are ``folders``, and of labels those with the last word
    another."""
    write("set/data.yaml", yaml)
    for folder in folders:
        split = next(each for each in SIZES if each in folder)
        picture(f"set/{folder}/a.png", split)
        width = SIZES[split][0]
        write(
            f"set/{'labels'.join(folder.rsplit('images', 1))}/a.txt",
            f"0 {20 / width} .5 {20 / width} .5\n",
        )


def converted(words: str, capsys: pytest.CaptureFixture[str], count: int = 3) -> None:
    """Assert that a set is converted, and that a run takes what is advised then."""
    assert main([*words.split(), "--to", "out"]) == 0
    said = capsys.readouterr().out
    assert said.count(": 1 images, 1 objects") == count == len(list(Path("out").glob("*.jsonl")))
    images = said.split()[-1]
    assert read(["out/train.jsonl"], images)[0].objects == (A,)
    assert (
        stageb(["validate", "--loop=two_channel", *shlex.split(said.partition("use it with ")[2])])
        == 0
    )
    assert f"1 train, {count > 1:d} val and {count > 2:d} test samples" in capsys.readouterr().out


def refused(words: str, *said: str) -> None:
    with pytest.raises(InputError) as caught:
        main([*words.split(), "--to", "out"])
    assert caught.value.exit_code == 2 and not Path("out").exists()
    bad = caught.value.bad if isinstance(caught.value, BadInputError) else [caught.value]
    assert len(bad) == len(said)
    for one, what in zip(bad, said, strict=True):
        assert what in str(one)


def test_splits_of_coco_lie_in_folders(capsys: pytest.CaptureFixture[str]) -> None:
    for split, folder in (("train", "train2017"), ("val", "images/val2017"), ("test", "test")):
        picture(f"set/{folder}/a.png", split)
        coco(f"set/annotations/instances_{Path(folder).name}.json", split)
    coco("set/annotations/captions_train2017.json")
    converted("coco set", capsys)
    assert [each.key for each in read(["out/val.jsonl"], "set")] == ["images/val2017/a.png"]
    assert main(["coco", "set", "--to", "out"]) == 0  # the same lines, which may be there


def test_splits_of_coco_lie_with_their_annotations(capsys: pytest.CaptureFixture[str]) -> None:
    for split, folder in (("train", "train"), ("val", "valid"), ("test", "test")):
        picture(f"set/{folder}/a.png", split)
        coco(f"set/{folder}/_annotations.coco.json", split)
    converted("coco set", capsys)


@pytest.mark.parametrize(
    "words", ["yolo set", "yolo set/data.yaml", "yolo set/data.yaml --images set"]
)
@pytest.mark.parametrize(
    ("yaml", "folders"),
    [
        (
            "path: . # of the set\ntrain: images/train\nval: ./images/val\ntest: # "
            "optional\nnames:\n  0: cat\n"
            "download: |\n  from x import y\n  y: 1\n",
            ("images/train", "images/val"),
        ),
        (
            "train: ../train/images\nval: ../valid/images\ntest: ../test/images\nnc: 1\nnames: "
            "['cat']\n"
            "roboflow:\n  version: 3\n",
            ("train/images", "valid/images", "test/images"),
        ),
        ("train: train\nvalidation: val\nnames: [cat]\n", ("train", "val")),
        ("train: [images/train]\nnames: [cat]\n", ("images/train",)),
        ("train: train\nval: val\nnames: [cat]\n", ("train/images", "val/images")),
        ("train: images/train/images\nnames: [cat]\n", ("images/train/images",)),
    ],
)
def test_what_data_yaml_names_is_converted(
    words: str, yaml: str, folders: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    yolo(yaml, *folders)
    converted(words, capsys, len(folders))


def test_a_split_may_be_a_list_of_its_images(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    yolo("train: train.txt\nval: lists/val.txt\nnames: [cat]\n", "images/train", "images/val")
    for name in ("b.png", "c.png"):
        picture(f"set/images/val/{name}", "val")
    write("set/labels/val/b.txt", "of another split")
    write("set/train.txt", f"./images/train/a.png\n{here}/set/images/val/c.png\n")
    write("set/lists/val.txt", "../images/val/a.png\n")
    refused("yolo set", 'lists/val.txt:1: images: "lists/../images/val/a.png" leads out of set')
    write("set/lists/val.txt", f"\n{here}/set/images/val/a.png")
    assert main(["yolo", "set", "--to", "out"]) == 0
    assert (
        "train.jsonl: 2 images, 1 objects; 1 pictures without a text file"
        in capsys.readouterr().out
    )
    assert [each.key for each in read(["out/train.jsonl"], "set")] == [
        "images/train/a.png",
        "images/val/c.png",
    ]
    Path("out").rename("before")
    write("set/train.txt", "./images/train/a.png\n/etc/hostname\nimages/train/../train/a.png\n")
    refused("yolo set", 'train.txt:2: images: "/etc/hostname" leads out', "train.txt:3")
    write("set/train.txt", "./images/train/a.png\nimages/train/a.png\n")
    refused(
        "yolo set", 'train.txt:2: "images/train/a.png" is on line 1 already; remove one of the two'
    )


def test_the_path_of_data_yaml_lies_in_its_folder_or_is_given(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for inner in ("deep", str(here / "set" / "deep")):
        yolo(f"path: {inner}\ntrain: images/train\nnames: [cat]\n", "deep/images/train")
        converted("yolo set", capsys, 1)
    remedy = "or give the folder of the set as --images, or take out a split that it lacks"
    Path("out").rename("before")
    for inner in ("../other", "/datasets/other", "../set/deep"):
        yolo(f"path: {inner}\ntrain: images/train\nval: images/train\nnames: [cat]\n")
        refused(
            "yolo set",
            *(
                f'data.yaml: {split}: "{inner}/images/train" leads out of set'
                for split in ("train", "val")
            ),
        )
        refused("yolo set", remedy, remedy)
    Path("set/data.yaml").rename("other.yaml")
    converted("yolo other.yaml --images set/deep", capsys, 2)  # val is train


def test_nothing_in_a_set_leads_out_of_it(here: Path) -> None:
    picture("other/images/train/a.png")
    write("other/labels/train/a.txt", "0 .5 .5 .5 .5\n")
    for named in (
        "../../other/images/train",
        str(here / "other" / "images" / "train"),
        "images/../../other/images/train",
    ):
        yolo(f"train: {named}\nnames: [cat]\n")
        refused("yolo set", "leads out of set")
    Path("set/images").symlink_to(here / "other" / "images")
    yolo("train: images/train\nnames: [cat]\n")
    refused("yolo set", "leads out of set by a link")
    Path("set/images").unlink()
    yolo("train: images/train\nnames: [cat]\n", "images/train")
    Path("set/labels").rename("labels")
    Path("set/labels").symlink_to(here / "other" / "labels")
    refused("yolo set", '"labels/train" leads out of set by a link')
    Path("set/train").symlink_to(here / "other" / "images" / "train")
    coco("other/images/train/train.json")
    refused("coco set", "leads out of set by a link")


def test_faults_of_all_splits_are_told_together() -> None:
    yolo(
        "train: images/train\nval: images/val\ntest: images/gone\nnames: [cat]\n",
        "images/train",
        "images/val",
    )
    write("set/labels/train/a.txt", "1 .5 .5 .1 .1\n")
    write("set/labels/val/a.txt", "0 7 .5 .1 .1\n")
    refused(
        "yolo set",
        "train/a.txt:1: class 1",
        "val/a.txt:1: a number outside",
        "test: images/gone: no such file",
    )
    for yaml, said in (
        ("names: [cat]\n", "names no images; write the folder of the images as train"),
        ("train: a\nnames: [cat]\nnc: 2\n", "nc 2, but 1 names"),
        ("train: a.txt\nnames: [cat]\n", "train: a.txt: no such file"),
        ("train: data.yaml\nnames: [cat]\n", '"data.yaml": no folder'),
        ("train: 0\nnames: [cat]\n", "train: 0; write the name of a folder"),
        ("path: [a]\ntrain: a\nnames: [cat]\n", 'train: ["a"]; write the name of a folder'),
        ("train: https://x.y/z\nnames: [cat]\n", "no such file"),
        ("train: a\n", "no names"),
        ("train: !!python/name:os.system\n", "the tag"),
    ):
        yolo(yaml)
        refused("yolo set", said)
    for folder in ("train", "valid", "val"):
        coco(f"many/{folder}/a.json", images=[{"id": 1, "file_name": "gone.png"}])
    refused("coco many", "both val/a.json and valid/a.json are of the split val")
    Path("many/val/a.json").unlink()
    refused("coco many", "train/a.json: image 1", "valid/a.json: image 1")
    coco("none/annotations/instances_train.json")
    refused("coco none", "images/train: no such file")
    refused("coco set", "no split is found there; name a folder with train, valid and test")


def test_a_set_and_a_split_want_other_options(here: Path) -> None:
    coco("set/train/a.json")
    for words, said in (
        ("coco set --to out.jsonl", "--to out.jsonl: name a folder"),
        ("coco set --to out --images set", "--images set: leave it out"),
        ("coco set/train/a.json --to out.jsonl", "one split needs --images"),
        ("yolo set --to out.jsonl", "one split needs --images and --names"),
    ):
        with pytest.raises(InputError, match=said):
            main(words.split())


def test_splits_that_were_converted_alone_have_folders_of_their_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    keys = []
    for split in ("train", "val"):
        picture(f"images/{split}/a.png", split)
        coco(f"{split}.json", split)
        assert (
            main(
                [
                    "coco",
                    f"{split}.json",
                    "--images",
                    f"images/{split}",
                    "--to",
                    f"coco/{split}.jsonl",
                ]
            )
            == 0
        )
        said = capsys.readouterr().out
        key = f"--data.{split}_images images/{split}"
        assert (
            f"use it with --data.images images/{split}, or {key} if other splits have theirs "
            f"elsewhere" in said
        )
        keys += [f"--data.{split}=coco/{split}.jsonl", *key.split()]
    assert stageb(["validate", "--loop=two_channel", *keys]) == 0
    assert "1 train, 1 val and 0 test samples" in capsys.readouterr().out
    one = [
        "--data.train=coco/train.jsonl",
        "--data.val=coco/val.jsonl",
        "--data.images=images/train",
    ]
    assert stageb(["validate", "--loop=two_channel", *one]) == 2
    assert (
        "in images/train; if those of val are elsewhere, name their folder: --data.val_images"
        in capsys.readouterr().err
    )
    assert stageb(["validate", "--loop=two_channel", *one, "--data.val_images=images/val"]) == 0


PATHS = st.sampled_from(
    [
        ".",
        "..",
        "im",
        "./im",
        "../im",
        "labels",
        "list.txt",
        "im/list.txt",
        "gone",
        "/",
        "/etc",
        "~",
        "",
    ]
)
VALUES = PATHS | st.text(max_size=8) | st.none() | st.booleans() | st.integers() | st.floats()


@given(
    values=st.dictionaries(
        st.sampled_from(["path", "train", "val", "test", "nc"]),
        VALUES | st.lists(VALUES, max_size=3),
    ),
    listed=st.lists(
        PATHS | st.sampled_from(["im/a.png", "./im/a.png", "a.png"]) | st.text(max_size=8),
        max_size=3,
    ),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_data_yaml_breaks_a_reader(
    here: Path, values: dict[str, Any], listed: list[str]
) -> None:
    picture("set/im/a.png")
    write("set/labels/a.txt", "0 .5 .5 .5 .5\n")
    Path("set/list.txt").write_bytes("\n".join(listed).encode("utf-8", "surrogatepass"))
    write("set/data.yaml", json.dumps({**values, "names": ["cat"]}))
    try:
        main(["yolo", "set", "--to", "out"])
    except InputError as error:
        assert "set" in str(error) and "Traceback" not in str(error)
    for file in Path("out").glob("*"):
        assert read([file], "set")
        file.unlink()
