"""Which tests a change needs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from since import LOOPS, find_touched_loops, list_changed_files, loop_of


@pytest.mark.parametrize(
    ("paths", "touched"),
    [
        ([], set()),
        (["README.md", "docs/guides/tickets.md", "lab/notes/gate.md"], set()),
        (["stageb/ppo/envs/snake.py", "docs/snake.md"], {"ppo"}),
        (
            ["tests/growth/made_hosts.py", "stageb/two_channel/boxes/text.py"],
            {"growth", "two_channel"},
        ),
        (["stageb/guidance/rules/judge.py", "tests/guidance/made.py"], {"guidance"}),
        (["stageb/guidance/rules/judge.py", "stageb/store/journal.py"], LOOPS),
        (["tests/conformance.py"], LOOPS),
        (["tests/programs/snakes.py"], LOOPS),
        (["pyproject.toml"], LOOPS),
        (["lab/bench/labels.py"], LOOPS),
        (["stageb/ppo"], LOOPS),  # a file in the place of a folder
        (["configs/growth/demo.yaml"], LOOPS),
    ],
)
def test_a_change_touches_its_own_loop_and_what_all_stand_on_touches_all(
    paths: list[str], touched: set[str]
) -> None:
    assert find_touched_loops(paths) == touched


def test_changed_files_are_those_of_commits_those_not_committed_and_new_ones(
    tmp_path: Path,
) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(
            ["git", "-C", tmp_path, *who, *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    for name in ("kept", "moved", "edited", "committed"):
        (tmp_path / name).write_text(name)
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    first = git("rev-parse", "HEAD")
    (tmp_path / "committed").write_text("anew")
    git("mv", "moved", "there")
    git("commit", "--quiet", "--all", "--message", "second")
    (tmp_path / "edited").write_text("anew")
    (tmp_path / "é new").touch()
    assert set(list_changed_files(first, tmp_path) or ()) == {
        "committed",
        "moved",
        "there",
        "edited",
        "é new",
    }
    assert list_changed_files("no-such-commit", tmp_path) is None


def test_only_tests_of_a_loop_that_nothing_touched_are_left_out(
    request: pytest.FixtureRequest,
) -> None:
    loops = {
        item.nodeid: loop_of(item)
        for item in request.session.items
        if isinstance(item, pytest.Function)
    }  # whatever is run beside this one
    for name, loop in loops.items():
        folder = name.split("/")[1]
        assert loop == (folder if folder in LOOPS else loop)
        assert loop in {None, *LOOPS}
    assert loops[request.node.nodeid] is None
