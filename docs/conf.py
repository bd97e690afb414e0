"""How the pages are built into a site: ``bin/docs``. It opens from disk, and asks nothing of a
network.

Sphinx, since its searches work on pages opened from disk and it has been kept well for many years;
MyST reads Markdown as it stands, so that the pages read as well in the repository.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from pygments.lexers.shell import BashLexer

project = "stageb"
extensions = ["myst_parser", "sphinx.ext.autodoc"]  # the latter for api.md, from docstrings
myst_heading_anchors = 4  # links to headings, as on GitHub

html_theme = "furo"
html_title = "stageb"
html_copy_source = False
html_show_copyright = False
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": False}

# Files beside docs, and the pages of the site that include them.
ROOT = Path(__file__).parent.parent
ELSEWHERE = {
    "README.md": "docs/index.md",
    "CHANGELOG.md": "docs/changelog.md",
    "SECURITY.md": "docs/security.md",
}
ELSEWHERE["CONTRIBUTING.md"] = "docs/contributing.md"
ELSEWHERE |= {
    f"lab/notes/{page.name}": f"docs/notes/{page.name}" for page in ROOT.glob("lab/notes/*.md")
}
ELSEWHERE["lab/notes/README.md"] = "docs/notes/index.md"


def setup(app: Any) -> None:
    """What Sphinx calls first."""
    (ROOT / "docs/notes").mkdir(exist_ok=True)  # pages that only include a note; git ignores them
    for file in (file for file in ELSEWHERE if file.startswith("lab/notes/")):
        tree = "```{toctree}\n:hidden:\n:glob:\n\n*\n```\n" if file.endswith("README.md") else ""
        (ROOT / ELSEWHERE[file]).write_text(
            f"```{{include}} ../../{file}\n```\n\n{tree}", encoding="utf-8"
        )
    app.add_lexer("console", BashLexer)  # commands without a prompt before them
    app.connect("source-read", read)
    app.connect("include-read", included)


def read(app: Any, name: str, source: list[str]) -> None:
    """Have the links of a page lead where they should, of those that leave ``docs``."""
    page = f"docs/{name}"
    source[0] = relinked(source[0], dirname(page), page)


def included(app: Any, path: Any, name: str, source: list[str]) -> None:
    """The same for a file that a page includes."""
    file = (Path(app.srcdir) / path).resolve().relative_to(ROOT).as_posix()
    source[0] = relinked(source[0], dirname(file), ELSEWHERE[file])


def relinked(text: str, folder: str, page: str) -> str:
    """``text`` of a file in ``folder`` as it must read on ``page``, both from the root: its
    relative links, mended."""

    def mended(match: re.Match[str]) -> str:
        target = match[1]
        if ":" in target or not target:
            return match[0]
        whole = normpath(join(folder, target))
        return f"]({relpath(ELSEWHERE.get(whole, whole), dirname(page))}"

    return re.sub(r"\]\(([^)#\s]*)", mended, text)
