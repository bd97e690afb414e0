"""What a folder may decide: every key of every loop's config is data or authority."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

from stageb.cli import commands
from stageb.errors import InputError
from stageb.settings import AUTHORITY, CODE, DATA, describe_keys, inner_of, section_of, setting
from stageb.store import disk, trust


def find_undeclared(section: type) -> Iterator[str]:
    """The keys of a config that do not say what they name."""
    for name, key in describe_keys(section).items():
        if inner := section_of(key.annotation) or section_of(inner_of(key.annotation, list)):
            yield from (f"{name}.{each}" for each in find_undeclared(inner))
        elif key.trust == AUTHORITY:
            yield name


@pytest.mark.parametrize("loop", commands.loops())
def test_every_key_is_data_or_says_what_it_names(loop: str) -> None:
    """A new key whose values are texts must say so in its declaration."""
    assert list(find_undeclared(commands.load_config_class(commands.loops()[loop]))) == []


@dataclass(frozen=True)
class Inner:
    undeclared: str | None = None
    number: int | None = 1
    words: str = setting("", trust=DATA)
    code: str | None = setting(None, trust=CODE)


@dataclass(frozen=True)
class Outer:
    one: Inner = field(default_factory=Inner)
    many: list[Inner] = field(default_factory=list)


def test_authority_and_what_says_nothing_is_withheld() -> None:
    wanted = {"undeclared": "x", "number": 2, "words": "y", "code": None}
    found = trust.take_data("out/run", {"one": wanted}, Outer, asdict(Outer()))
    withheld = trust.WithheldValue("out/run", "one.undeclared", "x", AUTHORITY)
    assert found == {"one": wanted | {"undeclared": withheld}}
    with pytest.raises(InputError, match=r"add: --one\.undeclared x$"):
        trust.check(found)


@pytest.mark.parametrize(
    ("item", "is_taken"), [({"number": 2}, True), ({"number": 2, "code": "os:abort"}, False)]
)
def test_a_list_of_sections_is_taken_whole_or_not_at_all(
    item: dict[str, object], is_taken: bool
) -> None:
    found = trust.take_data("out/run", {"many": [item]}, Outer, asdict(Outer()))
    assert (found == {"many": [item]}) == is_taken


def test_a_file_beside_is_not_written_through_a_link(tmp_path: Path) -> None:
    """As a folder from elsewhere could bring one, for a report to be written over another file."""
    (tmp_path / "mine").write_text("mine")
    (tmp_path / f"{disk.UNFINISHED}report.html").symlink_to(tmp_path / "mine")
    disk.replace(tmp_path / "report.html", b"page")
    assert (tmp_path / "mine").read_text() == "mine"
    assert (tmp_path / "report.html").read_text() == "page"
