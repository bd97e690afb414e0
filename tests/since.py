"""Which tests a change needs: ``--since COMMIT`` leaves out those of loops that nothing since that
commit can have touched.

Loops know nothing of each other (``test_architecture.py``), so what lies in one loop's folders
touches no other loop. What lies anywhere else touches all of them, but for pages. Only a loop's own
tests are ever left out: its folder, and its conformance.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Set
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LOOPS = frozenset(path.parent.name for path in ROOT.glob("stageb/*/loop.py"))


def loop_of(item: pytest.Item) -> str | None:
    """The loop whose own test this is; None where it is of no one loop."""
    folder = item.path.relative_to(ROOT / "tests").parts[0]
    marker = item.get_closest_marker("loop")
    return folder if folder in LOOPS else marker.args[0] if marker else None


def find_touched_loops(paths: Iterable[str]) -> Set[str]:
    """The loops that a change of these files, named from the root, may touch."""
    touched = set[str]()
    for path in paths:
        top, _, rest = path.partition("/")
        loop = rest.partition("/")[0]
        if top in ("stageb", "tests") and loop in LOOPS and "/" in rest:
            touched.add(loop)
        elif not path.endswith(".md"):
            return LOOPS
    return touched


def list_changed_files(commit: str, root: Path = ROOT) -> list[str] | None:
    """What differs from ``commit``, named from the root, files that git does not know yet among
    them; None where git does not know the commit."""
    asked = (
        ["diff", "--name-only", "--no-renames", "-z", commit, "--"],
        ["ls-files", "--others", "--exclude-standard", "-z"],
    )
    found = list[str]()
    for words in asked:
        done = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, check=False
        )
        if done.returncode:
            return None
        found += filter(None, done.stdout.split("\0"))
    return found
