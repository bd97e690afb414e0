"""Images that ticket lines name: which are taken, and what is said of the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from programs import small

from stageb.__main__ import main
from stageb.config import FabricConfig
from stageb.errors import BadInputError
from stageb.guidance.config import UseImages
from stageb.guidance.rules.prompts import WORDS, rollout_prompt
from stageb.guidance.tickets.images import check_images
from stageb.guidance.tickets.tickets import fingerprint, read_tickets
from stageb.guidance.words.types import Guidance, Rule, Ticket
from stageb.job.world import World, run

GUIDANCE = Guidance("m", 0, (Rule("G0", "A ticket passes."),), 1)


def written(folder: Path, *images: Any, per_image: Any = None) -> Path:
    """A ticket file in ``folder``, a line for each of ``images``, and beside it a picture
    ``a/1.png``."""
    (folder / "a").mkdir(exist_ok=True)
    Image.new("RGB", (9, 9)).save(folder / "a" / "1.png")
    rows = [
        {
            "mission": "m",
            "group_id": f"g{n}",
            "label": "fail",
            "per_image": per_image or {"image_1": "x"},
            "images": value,
        }
        for n, value in enumerate(images)
    ]
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "t.jsonl"


def one(path: Path, use_images: UseImages) -> Ticket:
    ((ticket,), bad) = read_tickets([path], "error", use_images=use_images)
    assert not bad
    return ticket


def test_images_are_shown_beside_summaries_or_instead_of_them_and_otherwise_not_looked_at(
    tmp_path: Path,
) -> None:
    texts = {"image_1": "a door", "image_3": "a lock"}
    path = written(tmp_path, {"image_3": "a/3.png", "1": "a/1.png"}, per_image=texts)
    Image.new("RGB", (9, 9)).save(tmp_path / "a" / "3.png")
    beside, instead, plain = (one(path, how) for how in (True, "instead", False))
    asked = [rollout_prompt(ticket, GUIDANCE, WORDS["en"]) for ticket in (beside, instead, plain)]
    files = tuple(str(tmp_path / "a" / name) for name in ("1.png", "3.png"))
    assert [prompt.images for prompt in asked] == [files, files, ()]
    assert asked[0].user == asked[2].user == "image_1: a door\nimage_3: a lock"
    assert asked[1].user == "image_1: see image 1 above\nimage_3: see image 2 above"
    assert asked[0].system.startswith(f"{asked[2].system}\n\nThe ticket's images come first")
    # what they hold counts, not what they are called
    assert fingerprint([beside]) == fingerprint([plain])
    (tmp_path / "a" / "1.png").unlink()
    assert one(path, False) == plain
    # a line that names none
    line = {name: each for name, each in json.loads(path.read_text()).items() if name != "images"}
    path.write_text(json.dumps(line) + "\n")
    assert one(path, True).images is None and one(path, True) == one(path, False)


def test_the_digest_of_images_is_of_what_they_hold(tmp_path: Path) -> None:
    found: list[str] = []

    def tell(*tickets: Ticket) -> str:
        def look(world: World) -> int:
            found.append(check_images(world, tickets))
            return 0

        assert run(FabricConfig(accelerator="cpu"), look) == 0
        return found[-1]

    ticket = one(written(tmp_path, ["a/1.png"]), True)
    white = tell(ticket)
    Image.new("RGB", (9, 9), "red").save(tmp_path / "a" / "1.png")
    assert len({white, tell(ticket), tell()}) == 3
    written(tmp_path, ["a/1.png"])
    assert tell(ticket) == white


def test_a_run_goes_on_only_with_images_that_hold_what_they_held(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Image.new("RGB", (9, 9)).save(tmp_path / "1.png")
    rows = [
        {**row, "images": dict.fromkeys(row["per_image"], "1.png")} for row in small.rows(groups=30)
    ]
    path = tmp_path / "t.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    keys = {"sampler.use_images": True, "runner.epochs": 0}
    command = small.arguments(path, tmp_path / "out", keys=keys)
    assert main(command) == main(command) == 0
    Image.new("RGB", (9, 9), "red").save(tmp_path / "1.png")
    assert main(command) == 2
    assert "other ticket" in " ".join(capsys.readouterr().err.split())


def test_faults_name_file_line_and_remedy_and_can_be_skipped(tmp_path: Path) -> None:
    (tmp_path / "outside.png").symlink_to(tmp_path / "a" / "1.png")
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "words.png").write_text("words")
    faults = {
        "../outside.png": f"leads out of {inner}; put it in there",
        "a/../../outside.png": f"leads out of {inner}",
        str(tmp_path / "outside.png"): f"leads out of {inner}",
        "https://example.org/a.png": "an address; fetch it, and name the file",
        "gone.png": "gone.png: no such file; put it there",
        "a": "a: not a file; name a picture file",
        "words.png": "words.png: not a picture of a known format, or broken at its beginning; "
        "save it as one of BMP",
        "a\n.png": "a name that holds the character U+000A",
        "": "a name that holds an empty text",
    }
    others = [
        (7, "images 7"),
        ([], "images []"),
        ([7], "images: 7"),
        (["a/1.png"] * 2, "image_2 is in images alone"),
    ]
    others += [
        ({"one": "a/1.png"}, 'the key "one"'),
        ({"1": "a/1.png", "image_1": "a/1.png"}, "two keys for image 1"),
    ]
    others += [
        (
            {"2": "a/1.png"},
            "image_1 is in per_image alone; give every image a summary (stageb summarize makes "
            "them)",
        )
    ]
    path = written(
        inner, *([name] for name in faults), *(value for value, _ in others), ["a/1.png"]
    )
    with pytest.raises(BadInputError) as caught:
        read_tickets([path], "error", use_images=True)
    expected = [*faults.values(), *(what for _, what in others)]
    assert len(caught.value.bad) == len(expected)
    for number, (bad, what) in enumerate(zip(caught.value.bad, expected, strict=True), 1):
        assert str(bad).startswith(f"{path}:{number}: ")
        assert what in str(bad)
        assert bad.remedy
    tickets, skipped = read_tickets([path], "skip", use_images=True)
    assert [ticket.group_id for ticket in tickets] == [f"g{len(expected)}"]
    assert len(skipped) == len(expected)
