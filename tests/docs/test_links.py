"""Links between pages lead somewhere, and every page is in the site's navigation."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from docs.pages import DOCS, NOTES, PAGES, ROOT, anchors, blocks, links


@pytest.mark.parametrize("page", [*PAGES, *NOTES, ROOT / "SECURITY.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for link in links(page):
        url = urlsplit(link)
        if url.scheme:
            assert url.scheme in ("http", "https"), link
            continue
        target = (page.parent / unquote(url.path)).resolve() if url.path else page
        assert target.is_relative_to(ROOT), f"{link} leads out of the checkout"
        assert target.exists(), f"{link}: there is no such file"
        if url.fragment:
            assert target.suffix == ".md" and url.fragment in anchors(target), f"{link}: there is no such heading"


def test_every_page_is_in_the_navigation() -> None:
    listed: set[Path] = set()
    found = {DOCS / "index.md"}
    while found - listed:
        for page in found - listed:
            listed.add(page)
            found |= {each for pattern in _toctree(page) for each in DOCS.rglob("*.md") if _fits(page, each, pattern)}
    assert set(DOCS.rglob("*.md")) - listed == set()


def test_what_lies_beside_the_pages_is_shown_by_one() -> None:
    shown = {(page.parent / urlsplit(link).path).resolve() for page in [*PAGES, *NOTES] for link in links(page)}
    lying = [*DOCS.rglob("*"), *(ROOT / "lab" / "notes").iterdir()]
    beside = {path for path in lying if path.suffix in (".png", ".gif", ".svg", ".jpg")}
    assert beside - shown == set()


def _toctree(page: Path) -> list[str]:
    """What the navigation of ``page`` lists: names without suffix, relative to it, maybe patterns."""
    trees = [block for block in blocks(page) if block.info == "{toctree}"]
    lines = [line for block in trees for line in block.text.splitlines() if line and not line.startswith(":")]
    return [re.sub(r"^.*<(.*)>$", r"\1", line) for line in lines]


def _fits(page: Path, other: Path, pattern: str) -> bool:
    beneath = other != page and other.is_relative_to(page.parent)
    return beneath and fnmatch(str(other.relative_to(page.parent).with_suffix("")), pattern)


def test_what_the_program_says_to_read_is_there() -> None:
    """Messages and docstrings of the package name pages, and maybe headings of them."""
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "stageb").rglob("*.py")]
    named = {match for text in sources for match in re.findall(r"\b(?:docs|lab/notes)/[\w/-]+\.md(?:#[\w-]+)?", text)}
    assert named
    for link in named:
        path, _, heading = link.partition("#")
        assert (ROOT / path).exists(), link
        assert not heading or heading in anchors(ROOT / path), link


def test_the_map_of_the_house_names_files_that_are_there() -> None:
    rows = re.findall(r"^\| `(stageb/\w+)/`(.*)$", (DOCS / "architecture.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert rows
    for folder, row in rows:
        for name in re.findall(r"`(\w+(?:\.py|/))`", row):
            assert list((ROOT / folder).rglob(name.rstrip("/"))), f"{folder}: {name}"
