"""The site that ``bin/docs`` builds, links between its pages, and the page of all keys."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from docs.pages import DOCS, NOTES, PAGES, ROOT, anchors, blocks, links

from lab import keys
from stageb.cli import commands
from stageb.cli.draft import list_keys
from stageb.settings import section_of


@pytest.mark.slow
def test_the_site_is_whole_and_asks_nothing_of_a_network(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="the extra docs is not installed: bin/docs brings it")
    build = [
        sys.executable,
        "-m",
        "sphinx",
        "--quiet",
        "--fail-on-warning",
        "--builder",
        "html",
        str(DOCS),
        str(tmp_path),
    ]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = {path: path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")}
    assert len(pages) > len(list(DOCS.rglob("*.md")))
    for path, page in pages.items():
        loaded = [
            tag
            for tag in re.findall(r"<(?:script|img|iframe|link)\b[^>]*>", page)
            if re.search(r"""=["']?(https?:)?//""", tag)
        ]
        assert loaded == [], path.name
    for path in tmp_path.rglob("*.css"):
        assert not re.search(r"(@import|url\()\W*(https?:)?//", path.read_text(encoding="utf-8")), (
            path.name
        )


# Links


@pytest.mark.parametrize(
    "page", [*PAGES, *NOTES, ROOT / "SECURITY.md"], ids=lambda page: str(page.relative_to(ROOT))
)
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
            assert target.suffix == ".md" and url.fragment in anchors(target), (
                f"{link}: there is no such heading"
            )


def test_every_page_is_in_the_navigation() -> None:
    listed: set[Path] = set()
    found = {DOCS / "index.md"}
    while found - listed:
        for page in found - listed:
            listed.add(page)
            found |= {
                each
                for pattern in _toctree(page)
                for each in DOCS.rglob("*.md")
                if _fits(page, each, pattern)
            }
    assert set(DOCS.rglob("*.md")) - listed == set()


def test_what_lies_beside_the_pages_is_shown_by_one() -> None:
    shown = {
        (page.parent / urlsplit(link).path).resolve()
        for page in [*PAGES, *NOTES]
        for link in links(page)
    }
    lying = [*DOCS.rglob("*"), *(ROOT / "lab" / "notes").iterdir()]
    beside = {path for path in lying if path.suffix in (".png", ".gif", ".svg", ".jpg")}
    assert beside - shown == set()


def _toctree(page: Path) -> list[str]:
    """What the navigation of ``page`` lists: names without suffix, relative to it, maybe
    patterns."""
    trees = [block for block in blocks(page) if block.info == "{toctree}"]
    lines = [
        line
        for block in trees
        for line in block.text.splitlines()
        if line and not line.startswith(":")
    ]
    return [re.sub(r"^.*<(.*)>$", r"\1", line) for line in lines]


def _fits(page: Path, other: Path, pattern: str) -> bool:
    beneath = other != page and other.is_relative_to(page.parent)
    return beneath and fnmatch(str(other.relative_to(page.parent).with_suffix("")), pattern)


def test_what_the_program_says_to_read_is_there() -> None:
    """Messages and docstrings of the package name pages, and maybe headings of them."""
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "stageb").rglob("*.py")]
    named = {
        match
        for text in sources
        for match in re.findall(r"\b(?:docs|lab/notes)/[\w/-]+\.md(?:#[\w-]+)?", text)
    }
    assert named
    for link in named:
        path, _, heading = link.partition("#")
        assert (ROOT / path).exists(), link
        assert not heading or heading in anchors(ROOT / path), link


def test_the_map_of_the_house_names_files_that_are_there() -> None:
    rows = re.findall(
        r"^\| `(stageb/\w+)/`(.*)$",
        (DOCS / "architecture.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert rows
    for folder, row in rows:
        for name in re.findall(r"`(\w+(?:\.py|/))`", row):
            assert list((ROOT / folder).rglob(name.rstrip("/"))), f"{folder}: {name}"


# The page of all keys


def test_the_page_is_as_the_declarations_say() -> None:
    page = (DOCS / "keys.md").read_text(encoding="utf-8")
    assert page == keys.write_page(), "write it anew: python -m lab.keys > docs/keys.md"


@pytest.mark.parametrize("loop", commands.loops())
def test_every_key_is_documented(loop: str) -> None:
    kind = commands.load_config_class(commands.loops()[loop])
    sections = [
        kind,
        *filter(None, (section_of(annotation) for _, annotation in list_keys(kind, items=True))),
    ]
    bare = [
        f"{section.__name__}.{field.name}"
        for section in sections
        for field in dataclasses.fields(section)
        if field.name not in keys.read_docs(section)
        and section_of(dict(list_keys(section))[field.name]) is None
    ]
    assert bare == []
