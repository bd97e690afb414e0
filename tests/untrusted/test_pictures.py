"""Picture files of every kind that people have, and of those that harm."""

from __future__ import annotations

import json
import os
import struct
import sys
import threading
import zlib
from pathlib import Path

import pytest
from PIL import Image

from stageb.errors import BadInputError, InputError
from stageb.guidance.tickets import images
from stageb.guidance.tickets.tickets import read_tickets
from stageb.untrusted import pictures
from stageb.untrusted.pictures import PictureError

RED, BLUE = (255, 0, 0), (0, 0, 255)


def halves(size: tuple[int, int] = (60, 40), mode: str = "RGB") -> Image.Image:
    """Red on the left, blue on the right."""
    image = Image.new("RGB", size, RED)
    image.paste(BLUE, (size[0] // 2, 0, *size))
    return image.convert(mode)


def shown(path: Path, pixels: int = 1 << 20) -> Image.Image:
    data = pictures.read(str(path))
    image: Image.Image = pictures.open_picture(str(path), data, pixels)
    assert image.size == pictures.size_shown(str(path), data, pixels)
    return image


def near(image: Image.Image, place: tuple[int, int], wanted: tuple[int, ...]) -> bool:
    found = image.getpixel(place)
    assert isinstance(found, tuple)
    return max(abs(one - other) for one, other in zip(found, wanted, strict=True)) < 30


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.webp", "a.bmp", "a.tiff", "a.gif"])
def test_the_usual_formats_are_shown_alike(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    halves().save(path)
    assert pictures.look(str(path)) == (60, 40)
    assert len(pictures.examine(str(path))) == 32
    image = shown(path)
    assert (image.mode, image.size) == ("RGB", (60, 40))
    assert near(image, (5, 20), RED)
    assert near(image, (55, 20), BLUE)


def test_a_picture_is_shown_upright_on_white_and_not_too_large(tmp_path: Path) -> None:
    for name in ("held.jpg", "held.png", "held.tiff"):
        exif = Image.Exif()
        exif[pictures.ORIENTATION] = 6  # the camera was turned to the left
        exif[0x010F] = "a maker"
        halves().save(tmp_path / name, exif=exif)
        image = shown(tmp_path / name)
        assert image.size == (40, 60)
        assert near(image, (20, 5), RED)
        assert b"a maker" not in pictures.encode_png(image)
    glass = Image.new("RGBA", (30, 30), (0, 0, 0, 0))
    glass.save(tmp_path / "glass.png")
    assert shown(tmp_path / "glass.png").getpixel((3, 3)) == (255, 255, 255)
    halves(mode="P").save(tmp_path / "palette.gif", transparency=0)
    halves(mode="CMYK").save(tmp_path / "print.jpg")
    assert near(shown(tmp_path / "print.jpg"), (5, 20), RED)
    halves((3000, 1500)).save(tmp_path / "photo.jpg")
    small = shown(tmp_path / "photo.jpg", 20_000)
    assert small.size == (200, 100)
    assert near(small, (20, 50), RED)
    frames = [halves(), Image.new("RGB", (60, 40), "green")]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    assert near(shown(tmp_path / "moving.gif"), (5, 20), RED)


def deep(path: Path, *greys: int, order: str = "<") -> Path:
    """A picture of 16 bits whose columns have these values."""
    mode = {"<": "I;16", ">": "I;16B"}[order]
    row = b"".join(struct.pack(f"{order}H", grey) for grey in greys for _ in range(10))
    Image.frombytes(mode, (10 * len(greys), 30), row * 30).save(path)
    return path


@pytest.mark.parametrize(("name", "order"), [("a.png", "<"), ("a.tiff", "<"), ("big.tiff", ">")])
def test_greys_of_16_bits_are_shown_by_the_range_of_their_sensor(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
    order: str,
) -> None:
    monkeypatch.setattr(pictures, "_deep_told", threading.Lock())

    def greys(*values: int) -> list[int]:
        path = deep(tmp_path / name, *values, order=order)
        assert pictures.look_upright(str(path)) == (10 * len(values), 30)
        assert len(pictures.examine(str(path))) == 32
        image = shown(path)
        assert image.mode == "RGB"
        pixels = (image.getpixel((10 * at + 5, 15)) for at in range(len(values)))
        return [grey for grey, *_ in pixels]  # type: ignore[misc]

    assert greys(0, 257, 32896, 65535) == [0, 1, 128, 255]
    assert greys(0, 8192, 16383) == [0, 128, 255]  # 14 bits
    assert greys(0, 2048, 3000, 4095) == [0, 128, 187, 255]  # 12 bits
    for bits in (8, 10, 12, 14):
        assert greys(0, (1 << bits) - 1) == [0, 255]
        assert greys(0, 1 << bits) == [0, 64]  # one more takes two bits more
    assert greys(0, 3000) == [0, 187]  # whatever is brightest
    assert greys(0, 512, 1023) == [0, 128, 255]
    assert greys(0, 200) == [0, 200]
    assert greys(0, 0) == [0, 0]
    (record,) = caplog.records
    assert record.getMessage().startswith(
        f"{tmp_path / name}: 16 bits a channel; such pictures are shown with 8"
    )


def test_a_picture_of_16_bits_is_shown_small_and_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[pictures.ORIENTATION] = 6
    Image.open(deep(tmp_path / "a.png", 0, 65535)).resize((600, 400)).save(
        tmp_path / "held.png", exif=exif
    )
    image = shown(tmp_path / "held.png", 60 * 40)
    assert image.size == (40, 60)
    assert near(image, (20, 5), (0, 0, 0)) and near(image, (20, 55), (255, 255, 255))


def declared(width: int, height: int) -> bytes:
    """A PNG that says it is so large, and holds nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b""))
        + chunk(b"IEND", b"")
    )


def test_what_cannot_be_used_is_told_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(name: str, data: bytes | None = None) -> str:
        if data is not None:
            (tmp_path / name).write_bytes(data)
        with pytest.raises(PictureError) as caught:
            pictures.examine(str(tmp_path / name))
        assert str(caught.value).startswith(str(tmp_path / name))
        assert caught.value.remedy
        return caught.value.what

    assert told("gone.png") == "no such file"
    (tmp_path / "folder.png").mkdir()
    assert told("folder.png") == "not a file"
    os.mkfifo(tmp_path / "pipe.png")
    assert told("pipe.png") == "not a file"
    for name, data in (
        ("empty.png", b""),
        ("words.jpg", b"no picture at all"),
        ("page.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"),
        ("drawn.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
        ("icon.ico", b"\0\0\1\0\1\0\x10\x10\0\0\1\0\x20\0\x68\4\0\0\x16\0\0\0"),
    ):
        assert told(name, data) == "not a picture of a known format, or broken at its beginning"
    halves((400, 300)).save(tmp_path / "whole.jpg")
    halves((400, 300)).save(tmp_path / "whole.png")
    for name in ("whole.jpg", "whole.png"):
        data = (tmp_path / name).read_bytes()
        pictures.look(str(tmp_path / name))
        assert told(f"cut-{name}", data[: len(data) // 2]).startswith("broken: ")
    assert (
        told("strip.png", declared(5000, 40))
        == "5000 x 40 pixels: one side over 100 times the other"
    )
    Image.new("F", (30, 30)).save(tmp_path / "thermal.tiff")
    assert told("thermal.tiff") == "32 bits a channel"
    monkeypatch.setattr(pictures, "MAX_BYTES", 1 << 20)
    assert told("large.png", b"\0" * (2 << 20)) == "2 MiB, at most 1"


def test_a_decompression_bomb_is_refused_before_it_unfolds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("1", (9000, 8000)).save(tmp_path / "real.png")  # 72 million pixels in some kilobytes
    assert (tmp_path / "real.png").stat().st_size < 20_000
    (tmp_path / "declared.png").write_bytes(declared(2_000_000, 2_000_000))
    (tmp_path / "most.png").write_bytes(declared(2**31 - 1, 2**31 - 1))
    monkeypatch.setattr(Image.Image, "load", None)  # nothing is decoded
    for name in ("real.png", "declared.png", "most.png"):
        with pytest.raises(PictureError, match=r"pixels, at most 64 million; save it smaller"):
            pictures.look(str(tmp_path / name))
        with pytest.raises(PictureError, match=r"pixels, at most 64 million; save it smaller"):
            pictures.open_picture(name, (tmp_path / name).read_bytes(), 1 << 20)


def exif(*entries: bytes) -> bytes:
    """An EXIF block with ``entries``."""
    return (
        b"Exif\0\0II*\0\x08\0\0\0" + struct.pack("<H", len(entries)) + b"".join(entries) + bytes(4)
    )


def orientation(kind: int, value: bytes) -> bytes:
    return struct.pack("<HHI", pictures.ORIENTATION, kind, 1) + value


HALF = "broken: "
UNKNOWN = "not a picture of a known format, or broken at its beginning"
NONSENSE = {  # EXIF blocks, of which some stand in the way of reading how the camera was held
    "no header": b"Exif\0\0nonsense",
    "a header cut short": b"Exif\0\0II*\0",
    "a large header cut short": b"Exif\0\0II+\0\x08\0\0\0\x05\0\x12",
    "entries cut short": b"Exif\0\0II*\0\x08\0\0\0\x05\0\x12",
    "entries far away": b"Exif\0\0II*\0\xff\xff\xff\x7f",
    "held in words": exif(orientation(2, b"six\0")),
    "held in bytes": exif(orientation(7, b"\xff\xfe\xfd\xfc")),
    "held infinitely": exif(orientation(11, struct.pack("<f", float("inf")))),
    "held by nothing": exif(orientation(5, b"\x1a\0\0\0")) + b"\6" + bytes(7),  # 6 / 0
    "held by far too much": exif(orientation(4, b"\xff\xff\xff\xff")),
}
HOSTILE = (
    *((f"cut.{name}", HALF) for name in ("png", "jpg", "gif", "webp")),
    *((f"early.{name}", UNKNOWN) for name in ("png", "gif", "webp")),
    ("early.jpg", HALF),
    ("empty.png", UNKNOWN),
    ("bomb.png", "far too many pixels"),
    ("folder.png", "not a file"),
    ("pipe.png", "not a file"),
    ("png.jpg", ""),
    *((f"{name}.{suffix}", "") for name in NONSENSE for suffix in ("png", "jpg", "webp")),
)


def make(path: Path) -> None:
    """A picture file that is hostile in the way that its name says."""
    if path.stem == "folder":
        path.mkdir()
    elif path.stem == "pipe":
        os.mkfifo(path)
    elif path.stem == "bomb":
        path.write_bytes(declared(2_000_000, 2_000_000))
    elif path.stem in NONSENSE:
        halves().save(path, exif=NONSENSE[path.stem])
    elif path.stem == "png":
        halves().save(path, "PNG")
    else:
        Image.effect_noise((300, 200), 90).convert("RGB").save(path)
        data = path.read_bytes()
        path.write_bytes(data[: {"cut": len(data) // 2, "early": 9, "empty": 0}[path.stem]])


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's, of EXIF that is cut short
@pytest.mark.parametrize(("name", "told"), HOSTILE)
def test_a_hostile_picture_of_a_ticket_is_refused_at_the_start_or_can_be_shown(
    tmp_path: Path, name: str, told: str
) -> None:
    make(tmp_path / name)
    row = {
        "mission": "m",
        "group_id": "g",
        "label": "fail",
        "per_image": {"image_1": "x"},
        "images": [name],
    }
    tickets = tmp_path / "tickets.jsonl"
    tickets.write_text(json.dumps(row) + "\n")
    try:
        ((ticket,), _) = read_tickets([tickets], "error", use_images=True)
        pictures.examine(*images.list_image_files(ticket))
    except BadInputError as error:
        assert told
        assert f"{tickets}:1: images: {name}: {told}" in str(error)
    except PictureError as error:
        assert told == HALF
        assert str(error).startswith(f"{tmp_path / name}: {told}")
    else:
        assert not told
        assert pictures.look_upright(str(tmp_path / name)) == (60, 40)
        image = shown(tmp_path / name)
        assert image.size == (60, 40)
        assert near(image, (5, 20), RED)


def test_without_pillow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(
        InputError, match=r"images need the extra images.*pip install 'stageb\[images\]'"
    ):
        pictures.look(str(tmp_path / "a.png"))
