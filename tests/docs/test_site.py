"""The site that ``bin/docs`` builds: it builds without a warning, and opens from disk without a network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs.pages import DOCS


def test_the_site_is_whole_and_asks_nothing_of_a_network(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="the extra docs is not installed: bin/docs brings it")
    build = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--builder", "html", str(DOCS), str(tmp_path)]
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
        assert not re.search(r"(@import|url\()\W*(https?:)?//", path.read_text(encoding="utf-8")), path.name
