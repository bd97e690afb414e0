"""Two nodes, as ``programs.nodes`` makes them: the files of one node, and an end in time where a
node vanishes. Forks are in the places of what a launcher starts."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance import content, differing
from programs import forks, small, snakes
from programs.jobs import PROGRAM
from programs.nodes import Node, missing, two_nodes
from programs.processes import Job, wait_until

WHY_NOT = missing()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
DEBIAN = ("127.0.1.1 node0\n", "127.0.1.1 node1\n")
"""As Debian sets a machine up: its own name leads to itself alone."""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    with two_nodes(tmp_path, DEBIAN) as made:
        yield made


@pytest.mark.slow
def test_guidance_is_learnt_on_two_nodes_as_by_one_process(
    tmp_path: Path, nodes: tuple[Node, Node]
) -> None:
    """The second node sees nothing of what the first one writes."""
    tickets = small.write(tmp_path / "tickets.jsonl", "valves")
    alone = forks.run(small.arguments(tickets, tmp_path / "one"), 1, tmp_path / "job")
    assert alone.codes == (0,), alone.err
    (tmp_path / "two").mkdir()
    nodes[1].do("mount", "-t", "tmpfs", "none", str(tmp_path / "two"))
    line = small.arguments(tickets, tmp_path / "two", 4, {"fabric.devices": 2})
    ended = forks.Forks(line, 4, tmp_path / "jobs", nodes=nodes).wait()
    assert ended.codes == (0, 0, 0, 0), ended.err
    assert nodes[1].do("ls", str(tmp_path / "two")) == ""
    (one,) = (path for path in (tmp_path / "one").iterdir() if path.is_dir())
    (two,) = (path for path in (tmp_path / "two").iterdir() if path.is_dir())
    assert differing(content(one), content(two)) == []


@pytest.mark.slow
def test_snake_learns_on_two_nodes_as_on_two_ranks_of_one(
    tmp_path: Path, nodes: tuple[Node, Node]
) -> None:
    here = forks.run(snakes.brief(tmp_path / "here", 2), 2, tmp_path / "job")
    assert here.codes == (0, 0), here.err
    line = snakes.brief(tmp_path / "there", 2, fabric__devices=1)
    there = forks.Forks(line, 2, tmp_path / "jobs", nodes=nodes).wait()
    assert there.codes == (0, 0), there.err
    assert differing(content(tmp_path / "here" / "run"), content(tmp_path / "there" / "run")) == []


@pytest.mark.slow
def test_a_node_that_vanishes_is_named_and_both_end(
    tmp_path: Path, nodes: tuple[Node, Node]
) -> None:
    """No FIN and no RST tells of it; each side names the other."""
    tickets = small.write(tmp_path / "tickets.jsonl", "valves")
    keys = {"fabric.devices": 2, "fabric.timeout_s": 2, "runner.epochs": 1000}
    job = forks.Forks(
        small.arguments(tickets, tmp_path / "run", 4, keys), 4, tmp_path / "jobs", nodes=nodes
    )
    assert wait_until(lambda: any((tmp_path / "run").glob("*/timings.jsonl")), 30.0)
    nodes[1].unplug()
    began = time.monotonic()
    ended = job.wait(20.0)
    assert time.monotonic() - began < 6.0
    assert ended.codes == (1, 1, 1, 1), ended.err
    said = re.findall(r"^rank .*", ended.err, re.MULTILINE)
    assert len(said) == 2, ended.err
    here, there = said
    assert re.match(
        r"rank [23] failed at .*: no sign of life for 2 s from 10.77.0.2; check that machine", here
    )
    silent = "rank 0 failed at leading: no sign of life for 3 s from 10.77.0.1, as rank 2 sees it"
    assert there.startswith(f"{silent}; check that machine")


def test_a_machine_that_would_look_for_rank_0_on_itself_says_so(tmp_path: Path) -> None:
    with two_nodes(tmp_path, ("", "127.0.0.1 node0\n")) as nodes:
        line = [sys.executable, str(PROGRAM)]
        place = {
            "TORCHELASTIC_RUN_ID": "tests",
            "MASTER_ADDR": "node0",
            "MASTER_PORT": "29500",
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "1",
            "RANK": "1",
            "LOCAL_RANK": "0",
            "GROUP_RANK": "1",
        }
        job = Job.start(nodes[1].line(*line), tmp_path / "job", place)
        assert (job.wait(30.0), job.clear(), job.code) == (True, 0, 1), job.err
        assert (
            "rank 1 failed at launch: rank 0's machine is called 'node0', which is 127.0.0.1, "
            "this machine" in job.err
        )
