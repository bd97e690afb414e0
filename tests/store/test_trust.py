"""What a folder may decide: every key of every loop's config is data or authority."""

from __future__ import annotations

from pathlib import Path

import pytest

from stageb.cli import registry
from stageb.cli.draft import dotted, inner_of, section_of
from stageb.errors import InputError
from stageb.store import disk, trust


def keys() -> set[str]:
    """Every key that holds a value, of all loops."""
    kinds = map(registry.config_of, registry.LOOPS.values())
    return {
        key
        for kind in kinds
        for key, annotation in dotted(kind, items=True)
        if not section_of(annotation) and not section_of(inner_of(annotation, list))
    }


def test_every_key_is_data_or_authority() -> None:
    """A new key must be put into one of the two tables."""
    assert keys() - trust.DATA - trust.AUTHORITY.keys() == set()
    assert (trust.DATA | trust.AUTHORITY.keys()) - keys() == set()
    assert trust.DATA & trust.AUTHORITY.keys() == set()


def test_what_is_in_no_table_is_withheld() -> None:
    defaults = {"model": {"new": None, "image_pixels": 1}}
    found = trust.take_data("out/run", {"model": {"new": "x", "image_pixels": 2}}, defaults)
    assert found == {"model": {"new": trust.WithheldValue("out/run", "model.new", "x"), "image_pixels": 2}}
    with pytest.raises(InputError, match=r"add: --model\.new x$"):
        trust.check(found)


def test_a_file_beside_is_not_written_through_a_link(tmp_path: Path) -> None:
    """As a folder from elsewhere could bring one, for a report to be written over another file."""
    (tmp_path / "mine").write_text("mine")
    (tmp_path / f"{disk.UNFINISHED}report.html").symlink_to(tmp_path / "mine")
    disk.replace(tmp_path / "report.html", b"page")
    assert (tmp_path / "mine").read_text() == "mine"
    assert (tmp_path / "report.html").read_text() == "page"
