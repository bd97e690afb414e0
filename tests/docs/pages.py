"""The pages of the documentation, as the tests read them."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(DOCS.rglob("*.md")),
]
NOTES = sorted((ROOT / "lab" / "notes").glob("*.md"))
GUIDES = sorted((DOCS / "guides").glob("*.md"))
SEPARATORS = {"&&", "||", "|", ";", "&"}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int  # of the fence, from 1
    info: str  # what stands behind the fence
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of ``page``, in order."""
    tokens = MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8"))
    return [
        Block(page, (t.map or [0])[0] + 1, t.info.strip(), t.content)
        for t in tokens
        if t.type == "fence"
    ]


def links(page: Path) -> list[str]:
    """Where the links and the pictures of ``page`` lead."""
    inline = (each for t in _markdown(page) if t.type == "inline" for each in t.children or ())
    targets = (each.attrGet("href") or each.attrGet("src") for each in inline)
    return [str(target) for target in targets if target]


def anchors(page: Path) -> set[str]:
    """What a link to a heading of ``page`` may say behind the #, made as on GitHub."""
    tokens = _markdown(page)
    seen: Counter[str] = Counter()
    found = set()
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            text = "".join(each.content for each in inline.children or ())
            slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
    return found


def find_commands(text: str) -> Iterator[list[str]]:
    """The words of every command in ``text``, a shell's; variables set before one are left out."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word not in SEPARATORS:
                words.append(word)
            elif words:
                while re.match(r"\w+=", words[0]):
                    del words[0]
                yield words
                words = []


def _markdown(page: Path) -> list[Any]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))
