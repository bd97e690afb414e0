"""Files that a line, a list or an annotation names: what each reader takes, and that none leads out
of its folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from stageb.errors import BadInputError, InputError
from stageb.guidance.commands.use.summarize import stream_images
from stageb.guidance.tickets import tickets
from stageb.two_channel.boxes import data, imports
from stageb.untrusted import pictures
from stageb.untrusted.pictures import PictureError
from stageb.untrusted.strict_json import resolve_picture

SIZE = (40, 30)


def of_tickets(folder: Path, name: Any) -> Path:
    row = {
        "mission": "m",
        "group_id": "g",
        "label": "fail",
        "per_image": {"image_1": "x"},
        "images": [name],
    }
    path = folder / "tickets.jsonl"
    path.write_text(json.dumps(row))
    tickets.read_tickets([path], "error", use_images=True)
    return path


def of_summaries(folder: Path, name: Any) -> Path:
    path = folder / "lines.jsonl"
    path.write_text(json.dumps({"images": [name]}))
    stream_images(str(path), "what is it?").survey()
    return path


def of_boxes(folder: Path, name: Any) -> Path:
    path = folder / "boxes.jsonl"
    path.write_text(
        json.dumps({"images": [name], "width": SIZE[0], "height": SIZE[1], "objects": []})
    )
    data.read([path])
    return path


def of_coco(folder: Path, name: Any) -> Path:
    path = folder.parent / "coco.json"
    path.write_text(
        json.dumps({"images": [{"id": 1, "file_name": name}], "annotations": [], "categories": []})
    )
    imports.read_coco(path, folder)
    return path


READERS: dict[str, Callable[[Path, Any], Path]] = {
    "tickets": of_tickets,
    "summaries": of_summaries,
    "boxes": of_boxes,
    "coco": of_coco,
}


def picture(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", SIZE, "red").save(path)
    return path


@pytest.fixture(params=READERS)
def reader(request: pytest.FixtureRequest) -> Callable[[Path, Any], Path]:
    return READERS[request.param]


def refused(reader: Callable[[Path, Any], Path], folder: Path, name: Any) -> str:
    """What the reader says of a name; it begins with the file that names it."""
    with pytest.raises(BadInputError) as caught:
        reader(folder, name)
    (bad,) = caught.value.bad
    assert Path(bad.path).suffix in (".jsonl", ".json") and bad.line == (
        Path(bad.path).suffix == ".jsonl"
    )
    assert bad.remedy
    return str(bad)


@pytest.mark.timeout(20)
def test_no_name_leads_out_of_the_folder(
    tmp_path: Path, reader: Callable[[Path, Any], Path]
) -> None:
    folder, outside = tmp_path / "given", tmp_path / "private"
    picture(folder / "a.png")
    picture(outside / "secret.png")
    picture(tmp_path / "given-too" / "b.png")  # a folder whose name begins alike
    (folder / "link.png").symlink_to(outside / "secret.png")
    (folder / "relative.png").symlink_to("../private/secret.png")
    (folder / "chain.png").symlink_to("link.png")
    (folder / "photos").symlink_to(outside)
    (folder / "deep").mkdir()
    (folder / "deep" / "up").symlink_to("../..")
    (folder / "alike.png").symlink_to(tmp_path / "given-too" / "b.png")
    (folder / "zero.png").symlink_to("/dev/zero")
    names = [
        "link.png",
        "relative.png",
        "chain.png",
        "photos/secret.png",
        "deep/up/private/secret.png",
        "alike.png",
    ]
    for name in (
        *names,
        "zero.png",
        "../private/secret.png",
        "deep/../../private/secret.png",
        str(outside / "secret.png"),
    ):
        assert f"leads out of {folder}" in refused(reader, folder, name), name


@pytest.mark.timeout(20)
def test_links_within_the_folder_and_to_the_whole_of_it_are_followed(
    tmp_path: Path, reader: Callable[[Path, Any], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    picture(store / "2026" / "a.png")
    (store / "a.png").symlink_to("2026/a.png")
    (store / "latest").symlink_to(store / "2026")
    (tmp_path / "mine").symlink_to(store)
    for folder in (store, tmp_path / "mine"):
        for name in ("a.png", "latest/a.png", "./2026//a.png"):
            assert reader(folder, name).exists()
    monkeypatch.chdir(store)
    if reader is not of_coco:  # its images lie in a folder with a name
        assert reader(Path(), "latest/a.png").exists()


@pytest.mark.timeout(20)
def test_what_is_no_plain_file_is_refused_and_never_waited_for(
    tmp_path: Path, reader: Callable[[Path, Any], Path]
) -> None:
    folder = tmp_path / "given"
    (folder / "folder.png").mkdir(parents=True)
    os.mkfifo(folder / "pipe.png")
    (folder / "round.png").symlink_to("round.png")
    for name, said in {
        "folder.png": "folder.png: not a file",
        "pipe.png": "pipe.png: not a file",
        "round.png": "round.png: cannot be read: Too many levels of symbolic links",
        "gone.png": "gone.png: no such file",
        "a.png/b.png": "no such file",
        f"{'long' * 99}.png": "cannot be read: File name too long",
        "nul\0.png": "a name that holds the character U+0000",
        "file:///etc/passwd": "an address",
        "": "a name that holds an empty text",
    }.items():
        assert said in refused(reader, folder, name), name
    for value in (None, 7, ["a.png"], {"a": 1}, True):
        assert "write the name of a file" in refused(reader, folder, value)


def voc(folder: Path) -> Path:
    """A folder of VOC: one picture, and an annotation of it."""
    picture(folder / "JPEGImages" / "a.png")
    for inner in ("Annotations", "ImageSets/Main"):
        (folder / inner).mkdir(parents=True)
    (folder / "Annotations" / "a.xml").write_text(
        "<annotation><filename>a.png</filename></annotation>"
    )
    return folder


@pytest.mark.timeout(20)
def test_nothing_in_a_folder_of_voc_leads_out_of_it_or_is_waited_for(tmp_path: Path) -> None:
    folder, outside = voc(tmp_path / "given"), voc(tmp_path / "private")
    (tmp_path / "mine").symlink_to(folder)
    assert len(imports.read_voc(tmp_path / "mine", None).rows) == 1
    inside, lists = folder / "Annotations", folder / "ImageSets" / "Main"
    (inside / "b.xml").symlink_to(outside / "Annotations" / "a.xml")
    os.mkfifo(inside / "c.xml")
    (inside / "d.xml").symlink_to("/dev/zero")
    (inside / "e.xml").write_text("<annotation><filename>e.png</filename></annotation>")
    (folder / "JPEGImages" / "e.png").symlink_to(outside / "JPEGImages" / "a.png")
    with (inside / "f.xml").open("wb") as sparse:
        sparse.truncate(1 << 40)
    (inside / "g.xml").write_text("<annotation><filename>g.png</filename></annotation>")
    os.mkfifo(folder / "JPEGImages" / "g.png")
    with pytest.raises(BadInputError) as caught:
        imports.read_voc(folder, None)
    said = [str(bad) for bad in caught.value.bad]
    wanted = [
        (inside, f'"Annotations/b.xml" leads out of {folder} by a link; put it in there'),
        (inside / "c.xml", "not a file"),
        (inside, f'"Annotations/d.xml" leads out of {folder} by a link'),
        (inside / "e.xml", f'images: "JPEGImages/e.png" leads out of {folder} by a link'),
        (inside / "f.xml", "1048576 MiB, at most 4"),
        (inside / "g.xml", "images: JPEGImages/g.png: not a file"),
    ]
    assert len(said) == len(wanted)
    for line, (place, what) in zip(said, wanted, strict=True):
        assert line.startswith(f"{place}: ") and what in line

    (lists / "train.txt").write_text("a 1\n\n../../private/Annotations/a\ngone\nb")
    with pytest.raises(BadInputError) as caught:
        imports.read_voc(folder, "train")
    assert [(bad.path, bad.line) for bad in caught.value.bad] == [
        (str(lists / "train.txt"), line) for line in (3, 4, 5)
    ]
    assert "leads out of" in caught.value.bad[0].what and "no such file" in caught.value.bad[1].what
    os.mkfifo(lists / "pipe.txt")
    (lists / "link.txt").symlink_to(outside / "JPEGImages" / "a.png")
    for split, what in (
        ("pipe", "not a file"),
        ("link", "leads out of"),
        ("../../../private", "leads out of"),
    ):
        with pytest.raises(InputError, match=what):
            imports.read_voc(folder, split)


def test_what_was_looked_at_is_what_is_opened(tmp_path: Path) -> None:
    folder = tmp_path / "given"
    picture(folder / "a.png")
    picture(tmp_path / "secret.png")
    (folder / "link.png").symlink_to("a.png")
    path = resolve_picture("link.png", folder)
    (folder / "link.png").unlink()
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    assert pictures.read(path) == (folder / "a.png").read_bytes()
    (folder / "a.png").unlink()
    (folder / "a.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(PictureError, match="not a file"):
        pictures.read(path)
