"""``stageb boxes`` never teaches what nobody annotated, and never breaks: each fault with its file,
its place, a remedy."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from times import TIMES

from stageb.errors import BadInputError, InputError
from stageb.two_channel.boxes.data import read
from stageb.two_channel.commands.boxes import main


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with pictures, in the places of VOC, too."""
    for folder in ("im/sub", "JPEGImages", "Annotations", "ImageSets/Main", "labels"):
        (tmp_path / folder).mkdir(parents=True)
    for name in (
        "im/a.png",
        "im/b.png",
        "im/a.jpg",
        "im/sub/c.png",
        "JPEGImages/a.png",
        "JPEGImages/b.png",
    ):
        Image.new("RGB", (64, 48)).save(tmp_path / name)
    return tmp_path


@pytest.fixture
def refused(root: Path) -> Callable[..., None]:
    """Asserts that words are refused, each fault with how it begins and ends, and that nothing is
    left behind."""

    def check(words: list[str], *said: tuple[Path, str]) -> None:
        with pytest.raises(BadInputError) as caught:
            main([*words, "--to", str(root / "out.jsonl")])
        assert caught.value.exit_code == 2
        assert [str(each) for each in caught.value.bad] == [
            f"{file}: {what}" for file, what in said
        ]
        assert not list(root.glob("*out*")) and ".unfinished" not in str(caught.value)

    return check


def coco(root: Path, **parts: list[Any]) -> list[str]:
    whole: dict[str, list[Any]] = {
        "images": [{"id": 1, "file_name": "a.png"}, {"id": 2, "file_name": "b.png"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 5, 5]}],
        "categories": [{"id": 1, "name": "cat"}],
    }
    (root / "c.json").write_text(json.dumps(whole | parts))
    return ["coco", str(root / "c.json"), "--images", str(root / "im")]


def studio(root: Path, *tasks: Any) -> list[str]:
    (root / "export.json").write_text(json.dumps(tasks))
    return ["label_studio", str(root / "export.json"), "--images", str(root / "im")]


def task(image: str, *results: Any, **more: Any) -> dict[str, Any]:
    return {"data": {"image": image}, "annotations": [{"result": list(results)}], **more}


def region(**more: Any) -> dict[str, Any]:
    value = {"rectanglelabels": ["cat"], "x": 1, "y": 1, "width": 10, "height": 10}
    return {"type": "rectanglelabels", "value": value, **more}


def voc(root: Path, **annotations: str) -> list[str]:
    for name, inner in annotations.items():
        (root / "Annotations" / f"{name}.xml").write_text(f"<annotation>{inner}</annotation>")
    return ["voc", str(root)]


def yolo(root: Path, **labels: str) -> list[str]:
    (root / "names.txt").write_text("cat\n")
    for name, text in labels.items():
        (root / "labels" / f"{name}.txt").write_text(text)
    return [
        "yolo",
        str(root / "labels"),
        "--images",
        str(root / "im"),
        "--names",
        str(root / "names.txt"),
    ]


ONE_PLACE = "put all objects of a picture in one place, and remove the other"


def test_a_picture_given_twice_is_told_with_both_places(
    root: Path, refused: Callable[..., None]
) -> None:
    names = ["a.png", "./a.png", "a.png/", "b.png", "sub//c.png", "sub/./c.png"]
    words = coco(
        root, images=[{"id": number, "file_name": name} for number, name in enumerate(names, 1)]
    )
    file = root / "c.json"
    refused(
        words,
        (file, f'image 2: "./a.png" is annotated at image 1 already; {ONE_PLACE}'),
        (file, f'image 3: "a.png/" is annotated at image 1 already; {ONE_PLACE}'),
        (file, f'image 6: "sub/./c.png" is annotated at image 5 already; {ONE_PLACE}'),
    )
    refused(
        studio(
            root, task("a.png", id=7), task("/data/upload/1/00112233-a.png", id=9), task("gone.png")
        ),
        (root / "export.json", f'task 9: "a.png" is annotated at task 7 already; {ONE_PLACE}'),
        (
            root / "export.json",
            f'task number 3: "gone.png": no such picture in {root}/im; put it there, under that '
            f"name",
        ),
    )
    xml = root / "Annotations"
    words = voc(
        root,
        a="<filename>a.png</filename>",
        b="<filename>./a.png</filename>",
        c="<filename>b.png</filename>",
    )
    said = f'"JPEGImages/./a.png" is annotated at {xml}/a.xml already; {ONE_PLACE}'
    refused(words, (xml / "b.xml", said))
    lists = root / "ImageSets" / "Main" / "train.txt"
    lists.write_text("a 1\nc\n\na -1\n")
    refused(
        [*words, "--split", "train"],
        (f"{lists}:4", 'annotation "a" is on line 1 already; remove one of the two'),
    )


def test_a_picture_given_twice_in_the_data_is_told_however_it_is_spelt(root: Path) -> None:
    row = {"width": 64, "height": 48, "objects": []}
    (root / "d.jsonl").write_text(
        "".join(json.dumps({"images": [name], **row}) + "\n" for name in ("a.png", "./a.png"))
    )
    with pytest.raises(
        BadInputError, match=r'd.jsonl:2: image "./a.png" is at .*d.jsonl:1 already'
    ):
        read([root / "d.jsonl"], root / "im")


def test_annotations_of_no_image_are_told_with_the_file_that_holds_them(
    root: Path, refused: Callable[..., None]
) -> None:
    said = "has no annotated image; name one that has"
    refused(coco(root, images=[], annotations=[]), (root / "c.json", said))
    refused(studio(root), (root / "export.json", said))
    refused(
        studio(root, {"data": {"image": "a.png"}, "annotations": []}), (root / "export.json", said)
    )
    lists = root / "ImageSets" / "Main" / "none.txt"
    lists.write_text("\n")
    refused([*voc(root, a="<filename>a.png</filename>"), "--split", "none"], (lists, said))


def test_names_that_no_data_may_hold_are_told_where_they_stand(
    root: Path, refused: Callable[..., None]
) -> None:
    what = (
        "its name has the character U+0007, which is a line break, a control or invisible; "
        "remove it"
    )
    refused(
        coco(root, categories=[{"id": 1, "name": "c\aat"}]),
        (root / "c.json", f"category 1: {what}"),
    )
    value = region()["value"] | {"rectanglelabels": ["c\aat"]}
    refused(
        studio(root, task("a.png", region(value=value, id="r"), id=1)),
        (root / "export.json", f'task 1: region "r": {what}'),
    )
    inner = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>5</xmax><ymax>5</ymax></bndbox>"
    words = voc(root, a=f"<filename>a.png</filename><object><name>c\u200bat</name>{inner}</object>")
    refused(words, (root / "Annotations" / "a.xml", f"object 1: {what.replace('0007', '200B')}"))


def test_what_only_the_written_lines_show_is_told_of_the_annotations(
    root: Path, refused: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No such fault is known: each reader finds what is wrong with its own format first."""
    monkeypatch.setattr("stageb.two_channel.boxes.imports.text_fault", lambda text: "")
    words = coco(root, categories=[{"id": 1, "name": "c\aat"}])
    what = (
        "object 1: its desc has the character U+0007, which is a line break, a control or "
        "invisible; remove it"
    )
    refused(words, (root / "c.json", f"image 1: {what}"))


def test_ids_of_coco_that_collide_or_are_missing_are_told_together(
    root: Path, refused: Callable[..., None]
) -> None:
    file = root / "c.json"
    images: list[dict[str, Any]] = [
        {"id": 1, "file_name": "a.png"},
        {"id": 1.0, "file_name": "b.png"},
        {"file_name": "a.jpg"},
        {"id": True, "file_name": "sub/c.png"},
    ]
    categories = [
        {"id": 1, "name": "cat"},
        {"id": 1, "name": "dog"},
        {"name": "cow"},
        {"id": [2], "name": "hen"},
    ]
    sound = {"image_id": 1, "category_id": 1, "bbox": [0, 0, 5, 5]}
    annotations = [
        {**sound, "id": 5},
        {key: value for key, value in sound.items() if key != "image_id"},
        {**sound, "id": 6, "category_id": None},
        {**sound, "id": 7, "image_id": True},
        {**sound, "id": 8, "category_id": 9},
        {**sound, "id": 8, "iscrowd": "0"},
    ]
    own = "its own id, a number or a text"
    refused(
        coco(root, images=images, categories=categories, annotations=annotations),
        (
            file,
            f'image number 2, "b.png": its id 1.0 is also that of image number 1; give every '
            f"image {own}",
        ),
        (file, f'image number 3, "a.jpg": no id; give every image {own}'),
        (file, f'image number 4, "sub/c.png": the id true; give every image {own}'),
        (
            file,
            f'category number 2, "dog": its id 1 is also that of category number 1; give every '
            f"category {own}",
        ),
        (file, f'category number 3, "cow": no id; give every category {own}'),
        (file, f'category number 4, "hen": the id [2]; give every category {own}'),
        (file, "annotation number 2: no image_id; give it the id of its image"),
        (file, "annotation 6: no category_id; give it the id of its category"),
        (file, "annotation 7: there is no image true; fix its image_id"),
        (file, "annotation number 5: no category with a name has the id 9; fix its category_id"),
        (file, 'annotation number 6: iscrowd "0"; write 0 or 1'),
    )


def test_ids_of_coco_may_be_texts_and_numbers_with_a_point(root: Path) -> None:
    """Spreadsheets make 1.0 of 1."""
    images = [{"id": "1", "file_name": "a.png"}, {"id": 1.0, "file_name": "b.png"}]
    crowd = {"image_id": 1, "category_id": "c", "iscrowd": 1, "segmentation": [[0, 0, 9, 0, 9, 9]]}
    annotations = [{"image_id": "1", "category_id": "c", "bbox": [0, 0, 5, 5]}, crowd]
    words = coco(
        root, images=images, annotations=annotations, categories=[{"id": "c", "name": "cat"}]
    )
    assert main([*words, "--polygons", "--to", str(root / "out.jsonl")]) == 0
    first, second = read([root / "out.jsonl"], root / "im")
    assert [len(first.objects), len(first.crowds), len(second.objects), len(second.crowds)] == [
        1,
        0,
        0,
        1,
    ]


def test_a_label_file_of_yolo_belongs_to_one_picture(
    root: Path, refused: Callable[..., None]
) -> None:
    remedy = "keep one of these pictures, or give each its own name"
    words = yolo(root, a="0 .5 .5 .1 .1\n", b="1 .5 .5 .1 .1")
    refused(
        words,
        (root / "labels" / "a.txt", f'"a.jpg" and "a.png" both have this name; {remedy}'),
        (
            f"{root}/labels/b.txt:1",
            "class 1, but only 1 have names; name the file that lists all classes",
        ),
    )
    yolo(root, b="")
    # with nothing to teach of either there is nothing to mistake
    (root / "labels" / "a.txt").unlink()
    assert main([*words, "--to", str(root / "out.jsonl")]) == 0


def test_a_picture_of_yolo_may_be_called_classes(root: Path) -> None:
    (root / "im" / "a.png").rename(root / "im" / "classes.png")
    words = yolo(root, classes="0 .5 .5 .1 .1\n")
    assert main([*words, "--to", str(root / "out.jsonl")]) == 0
    assert {each.key: len(each.objects) for each in read([root / "out.jsonl"], root / "im")}[
        "classes.png"
    ] == 1


@pytest.mark.parametrize("encoding", ["GBK", "utf-7", "nosuch", "hex", "idna", "undefined"])
def test_an_encoding_that_the_parser_does_not_know_is_a_fault(
    root: Path, refused: Callable[..., None], encoding: str
) -> None:
    words = voc(root, b="<filename>a.png</filename><object/>")
    file = root / "Annotations" / "a.xml"
    file.write_text(f"<?xml version='1.0' encoding='{encoding}'?><annotation/>")
    refused(
        words,
        (
            f"{file}:1",
            f'the encoding "{encoding}", which the parser does not know; save it as UTF-8, and '
            f"declare that",
        ),
        (root / "Annotations" / "b.xml", "object 1: no name; give it a name"),
    )


def test_what_label_studio_never_writes_is_a_fault(
    root: Path, refused: Callable[..., None]
) -> None:
    file = root / "export.json"
    tasks = [
        task("http://[bad/a.png", id=1),
        task("http://ex\u2100ample/a.png", id=2),
        task("b.png", region(original_width=[1], id="r"), id=3),
        task("b.png", region(original_width=64, original_height={"a": 1}), id=4),
        task("b.png", region(original_width=True, original_height=48), id=5),
        task("b.png", region(original_width=1e300, original_height=48), id=6),
    ]
    address = "write the name of a file, or a valid URL"
    size = "write the picture's size in pixels, or remove it"
    refused(
        studio(root, *tasks),
        (file, f'task 1: "http://[bad/a.png": not a URL; {address}'),
        (file, f'task 2: "http://ex\u2100ample/a.png": not a URL; {address}'),
        (file, f'task 3: region "r": original_width [1]; {size}'),
        (file, f'task 4: region number 1: original_height {{"a": 1}}; {size}'),
        (file, f"task 5: region number 1: original_width true; {size}"),
        (file, f"task 6: region number 1: original_width 1e+300; {size}"),
    )


STRANGE: list[Any] = [
    None, True, False, 0, -1, 1.5, 10**20, -(10**400), 10**4000, 1e308,
    "", " ", "a.png", "./b.png/", "b.png", "http://[x", "//[/a.png", "?d=%5B", "1", "nan", "9" * 5000, "c\aat", "\0",
    "../a.png", [], {}, [1], [[]], [None], ["cat", "dog"], {"a": 1}, [{}], [[[1, 2]]], [1, 2, 3, 4], [[0, 0, 1, 1, 2, True]],
    [10**400] * 4,
]  # fmt: skip

COCO_VALUE = {
    "images": [
        {"id": 1, "file_name": "a.png", "width": 64, "height": 48},
        {"id": 2, "file_name": "b.png"},
    ],
    "annotations": [
        {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 5, 5], "iscrowd": 0},
        {"id": 2, "image_id": 2, "category_id": 1, "segmentation": [[0, 0, 5, 5, 9, 1]]},
    ],
    "categories": [{"id": 1, "name": "cat"}],
}
SIDES = {"original_width": 64, "original_height": 48}
POLYGON = {
    "type": "polygonlabels",
    "value": {"polygonlabels": ["cat"], "points": [[0, 0], [9, 9], [0, 9]]},
    "id": "p",
}
STUDIO_VALUE = [
    {"id": 1, **task("a.png", region(**SIDES, id="r"), POLYGON)},
    {
        "id": 2,
        "data": {"image": "/data/local-files/?d=x/b.png"},
        "annotations": [{"result": [], "was_cancelled": False}],
    },
]

EACH = 1 if TIMES > 1 else 7  # of so many ways to bend a file; no strange thing is left out


def bent(value: Any) -> Iterator[Any]:
    """``value`` with one thing in it left out, or made a strange one; each in turn."""
    yield from STRANGE
    for key, each in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        for other in bent(each):
            made = value.copy()
            made[key] = other
            yield made
        left = value.copy()
        del left[key]
        yield left


def stands_it(words: list[str], root: Path) -> None:
    """Asserts that words are taken or refused, in words for people that name nothing that is
    gone."""
    to = root / "out.jsonl"
    try:
        main([*words, "--to", str(to)])
    except InputError as error:
        assert str(root) in str(error) and ".unfinished" not in str(error)
        assert not to.exists()
    else:
        assert read([to], root if words[0] == "voc" else root / "im")
        to.unlink()


@pytest.fixture(scope="module")
def kept() -> Any:
    """One folder for all examples of a test."""
    with tempfile.TemporaryDirectory() as name:
        for folder in ("im", "JPEGImages", "Annotations", "labels"):
            (Path(name) / folder).mkdir()
        for file in ("im/a.png", "im/b.png", "JPEGImages/a.png"):
            Image.new("RGB", (64, 48)).save(Path(name) / file)
        yield Path(name)


@pytest.mark.parametrize(("kind", "value"), [("coco", COCO_VALUE), ("label_studio", STUDIO_VALUE)])
def test_no_json_breaks_a_reader(kept: Path, kind: str, value: Any) -> None:
    for made in islice(bent(value), None, None, EACH):
        (kept / "bent.json").write_text(json.dumps(made))
        stands_it([kind, str(kept / "bent.json"), "--images", str(kept / "im"), "--polygons"], kept)


WORDS = st.sampled_from(
    [
        "",
        "a.png",
        "cat",
        "1",
        "1.5",
        "-3",
        "nan",
        "inf",
        "1e400",
        "9" * 5000,
        "<a/>",
        "\u2028",
        "a\nb",
        "\0",
        "&x;",
    ]
)
TAGS = "filename size width height object name bndbox xmin ymin xmax ymax annotation".split()
HEADS = [
    "",
    "<?xml version='1.0'?>",
    *(f"<?xml version='1.0' encoding='{each}'?>" for each in ("hex", "GBK", "ascii", "cp037")),
]


@given(
    head=st.sampled_from(HEADS),
    tags=st.lists(st.tuples(st.sampled_from(TAGS), WORDS), max_size=12),
    nest=st.booleans(),
)
def test_no_xml_breaks_a_reader(
    kept: Path, head: str, tags: list[tuple[str, str]], nest: bool
) -> None:
    inner = "".join(f"<{tag}>{word}" if nest else f"<{tag}>{word}</{tag}>" for tag, word in tags)
    ends = "".join(f"</{tag}>" for tag, _ in reversed(tags)) if nest else ""
    text = f"{head}<annotation><filename>a.png</filename>{inner}{ends}</annotation>"
    (kept / "Annotations" / "a.xml").write_text(text)
    stands_it(["voc", str(kept)], kept)


NAMES = [
    "cat\n",
    "names: [cat]\n",
    "names: {0: cat, 1: [x]}\n",
    "names: {'\u0661': cat}\n",
    f"names: {{0: cat, {'1' * 5000}: b}}\n",
]


@given(
    words=st.lists(st.lists(WORDS | st.sampled_from(["0", ".5", "0.1"]), max_size=9), max_size=4),
    names=st.sampled_from(NAMES) | st.text(max_size=20),
    suffix=st.sampled_from(["txt", "yaml"]),
)
def test_no_text_of_yolo_breaks_a_reader(
    kept: Path, words: list[list[str]], names: str, suffix: str
) -> None:
    (kept / "labels" / "a.txt").write_text("\n".join(map(" ".join, words)))
    (kept / f"names.{suffix}").write_bytes(names.encode("utf-8", "surrogatepass"))
    given_names = ["--names", str(kept / f"names.{suffix}")]
    stands_it(
        ["yolo", str(kept / "labels"), "--images", str(kept / "im"), *given_names, "--polygons"],
        kept,
    )


@pytest.mark.parametrize("content", ["mine\n", ""])
def test_lines_that_are_there_are_kept_unless_they_are_the_same(
    root: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words, to = coco(root), root / "train.jsonl"
    to.write_text(content)
    with pytest.raises(
        InputError, match=r"--to .*train.jsonl: has other content; move it, or name another file"
    ) as caught:
        main([*words, "--to", str(to)])
    assert (
        caught.value.exit_code == 2
        and to.read_text() == content
        and not list(root.glob(".unfinished*"))
    )
    to.unlink()
    assert main([*words, "--to", str(to)]) == 0
    before, said = to.stat(), capsys.readouterr().out
    assert main([*words, "--to", str(to)]) == 0
    assert capsys.readouterr().out == said
    assert (to.stat().st_ino, to.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    coco(root, categories=[{"id": 1, "name": "dog"}])
    with pytest.raises(InputError, match="has other content"):
        main([*words, "--to", str(to)])


def test_lines_do_not_take_the_place_of_a_link_or_a_pipe(root: Path) -> None:
    words, to = coco(root), root / "train.jsonl"
    to.symlink_to(root / "gone.jsonl")
    with pytest.raises(InputError, match="not a file; name a file to write"):
        main([*words, "--to", str(to)])
    assert to.is_symlink() and not (root / "gone.jsonl").exists()
    to.unlink()
    os.mkfifo(to)
    with pytest.raises(InputError, match="not a file; name a file to write"):
        main([*words, "--to", str(to)])


def test_shapes_replace_nothing(tmp_path: Path) -> None:
    def draw(*more: str) -> int:
        return main(
            ["shapes", "--to", str(tmp_path), "--train", "3", "--val", "1", "--test", "0", *more]
        )

    assert draw() == 0
    (tmp_path / "notes.txt").write_text("mine")  # beside what is drawn: in nobody's way
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert draw() == 0
    first = tmp_path / "train" / "00000.png"
    first.unlink()  # as where a call broke off
    (tmp_path / "train" / ".unfinished-00000.png").write_bytes(b"half")
    (tmp_path / "train.jsonl").unlink()
    assert draw() == 0
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    for words, file in (
        (["--seed", "18"], "train/00000.png"),
        (["--train", "4"], "train.jsonl"),
        (["--train", "2"], "train.jsonl"),
    ):
        with pytest.raises(
            InputError, match=rf"--to .*/{file}: has other content; move it, or name another folder"
        ):
            draw(*words)
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    (tmp_path / "val" / "cat.png").write_bytes(b"mine")
    with pytest.raises(
        InputError,
        match=r"val/cat.png: is in the folder to draw images into; move it, or name another folder",
    ) as caught:
        draw()
    assert caught.value.exit_code == 2
    (tmp_path / "val" / "cat.png").unlink()
    (tmp_path / "val" / "00000.png").unlink()
    (tmp_path / "val" / "00000.png").symlink_to(first)
    with pytest.raises(InputError, match="has other content"):
        draw()
    assert first.read_bytes() == before[first]


def test_a_place_that_cannot_be_is_a_fault_of_the_words(root: Path) -> None:
    file = root / "file"
    file.write_text("mine")
    for words in (
        ["shapes", "--to", str(file), "--train", "1"],
        ["shapes", "--to", str(file / "in"), "--train", "1"],
        [*coco(root), "--to", str(file / "a.jsonl")],
    ):
        with pytest.raises(InputError, match=r"file is no folder; give another --to"):
            main(words)
    assert file.read_text() == "mine"
