"""Two nodes, as ``programs.nodes`` makes them: the files of one node, and an end in time where a node vanishes.

``python tests/test_nodes.py [words]`` runs the cases of the real launchers whose names hold every word, and prints them
as a table with times. They are slow as tests; the others have forks in the places of what a launcher starts.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
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


def test_guidance_is_learnt_on_two_nodes_as_by_one_process(tmp_path: Path, nodes: tuple[Node, Node]) -> None:
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


def test_snake_learns_on_two_nodes_as_on_two_ranks_of_one(tmp_path: Path, nodes: tuple[Node, Node]) -> None:
    here = forks.run(snakes.brief(tmp_path / "here", 2), 2, tmp_path / "job")
    assert here.codes == (0, 0), here.err
    line = snakes.brief(tmp_path / "there", 2, fabric__devices=1)
    there = forks.Forks(line, 2, tmp_path / "jobs", nodes=nodes).wait()
    assert there.codes == (0, 0), there.err
    assert differing(content(tmp_path / "here" / "run"), content(tmp_path / "there" / "run")) == []


def test_a_node_that_vanishes_is_named_and_both_end(tmp_path: Path, nodes: tuple[Node, Node]) -> None:
    """No FIN and no RST tells of it; each side names the other."""
    tickets = small.write(tmp_path / "tickets.jsonl", "valves")
    keys = {"fabric.devices": 2, "fabric.timeout_s": 2, "runner.epochs": 1000}
    job = forks.Forks(small.arguments(tickets, tmp_path / "run", 4, keys), 4, tmp_path / "jobs", nodes=nodes)
    assert wait_until(lambda: any((tmp_path / "run").glob("*/timings.jsonl")), 30.0)
    nodes[1].unplug()
    began = time.monotonic()
    ended = job.wait(20.0)
    assert time.monotonic() - began < 6.0
    assert ended.codes == (1, 1, 1, 1), ended.err
    said = re.findall(r"^rank .*", ended.err, re.MULTILINE)
    assert len(said) == 2, ended.err
    here, there = said
    assert re.match(r"rank [23] failed at .*: no sign of life for 2 s from 10.77.0.2; check that machine", here)
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
        assert "rank 1 failed at launch: rank 0's machine is called 'node0', which is 127.0.0.1, this machine" in job.err


@dataclass(frozen=True)
class Case:
    """What is done to a cable between two nodes of two ranks, and what must come of it."""

    name: str
    launcher: str
    mishap: str = "none"  # job.py's word
    timeout_s: float = 3.0
    says: tuple[str, str] = ("", "")  # on the nodes; SLURM has one terminal for both
    code: int = 0
    within_s: float = 120.0  # from the mishap, or the start, until no process is left


@dataclass(frozen=True)
class Ended:
    """What came of it, for each node; SLURM's job counts as the first."""

    codes: list[int]
    seconds: list[float]
    orphans: int
    texts: list[str]

    def faults(self, case: Case) -> list[str]:
        """What is not as it must be."""
        found = [f"{self.orphans} processes left"] if self.orphans else []
        found += [f"exit code {code}" for code in self.codes if code != case.code]
        found += [f"took {seconds:.1f} s" for seconds in self.seconds if seconds > case.within_s]
        text = "".join(self.texts)
        found += [f"not said: {says}" for says in case.says if says not in text]
        if not case.code and text.count("result: ") != 1:
            found.append("no result")
        return found


def cases() -> list[Case]:
    """The matrix."""
    silent = "no sign of life for {} s from 10.77.0.{}"
    vanished = (silent.format(3, 2), silent.format(4.5, 1))
    found = []
    for launcher in LAUNCHERS:
        gone_s = 150 if "c10d" in launcher else 20  # its agent asks the one that it cannot reach, time and again
        found += [
            Case("squares", launcher),
            Case("plugged in late", launcher, timeout_s=60),
            Case("unplugged for two seconds", launcher, "api", timeout_s=6),
            Case("unplugged amid the work", launcher, "tick", says=vanished, code=1, within_s=gone_s),
            Case("unplugged while rank 0 reflects", launcher, "reflect_forever", says=vanished, code=1, within_s=gone_s),
        ]
    return found


def lines(launcher: str, nodes: tuple[Node, Node], program: list[str]) -> list[list[str]]:
    """What is typed on each node."""
    place, torchrun = Path(sys.executable).parent, ["--nnodes=2", "--nproc-per-node=2"]
    static = ["--master-addr=node0", "--master-port=29500"]
    cpu = ["run", "--accelerator=cpu", "--strategy=ddp", "--devices=2", "--num-nodes=2"]
    main = ["--main-address=node0", "--main-port=29500"]
    typed = {
        "torchrun, c10d": lambda number: [*torchrun, "--rdzv-backend=c10d", "--rdzv-endpoint=node0:29500"],
        "torchrun, static": lambda number: [*torchrun, f"--node-rank={number}", *static],
        "fabric run": lambda number: [*cpu, f"--node-rank={number}", *main],
    }
    word = str(place / launcher.partition(",")[0].partition(" ")[0])
    return [node.line(word, *typed[launcher](number), *program) for number, node in enumerate(nodes)]


LAUNCHERS = ("torchrun, c10d", "torchrun, static", "fabric run", "slurm")


def start(launcher: str, nodes: tuple[Node, Node], folder: Path, arguments: list[str]) -> list[Job]:
    """A job of two ranks on each node."""
    if launcher != "slurm":
        typed = lines(launcher, nodes, [str(PROGRAM), *arguments])
        return [Job.start(line, folder / f"job-{number}") for number, line in enumerate(typed)]
    checkout = folder / "checkout"  # one whose bin/fit.py is the job
    (checkout / "bin").mkdir(parents=True)
    (checkout / ".venv").symlink_to(Path(sys.executable).parent.parent)
    (checkout / "bin" / "fit.py").write_text(f"import runpy\nrunpy.run_path({str(PROGRAM)!r}, run_name='__main__')\n")
    environment = {
        "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}",
        "SLURM_SUBMIT_DIR": str(checkout),
        "NODES": ",".join(str(node.first) for node in nodes),
        "TASKS_PER_NODE": "2",
    }
    script = Path(__file__).parent.parent / "bin" / "slurm.sh"
    return [Job.start([str(script), *arguments], folder / "job", environment)]


def run(case: Case) -> Ended:
    """Run it to its end."""
    with tempfile.TemporaryDirectory() as name, two_nodes(Path(name), DEBIAN) as nodes:
        ready = Path(name, "ready")
        if case.name == "plugged in late":
            nodes[1].unplug()
        arguments = ["--mishap", case.mishap, "--on", "0", "--timeout_s", str(case.timeout_s)]
        arguments += ["--items", "4" if case.mishap == "api" else "13"]
        jobs = start(case.launcher, nodes, Path(name), [*arguments, "--ready", str(ready)])
        if case.name == "plugged in late":
            time.sleep(10.0)
            nodes[1].plug()
        elif case.name.startswith("unplugged"):
            assert wait_until(ready.exists, 120.0), "".join(job.err for job in jobs)
            time.sleep(1.0)
            nodes[1].unplug()
        began = time.monotonic()
        if case.name == "unplugged for two seconds":
            time.sleep(2.0)
            nodes[1].plug()
        ends: dict[int, float] = {}

        def all_gone() -> bool:
            for number, job in enumerate(jobs):
                if number not in ends and job.parent.poll() is not None and not job.processes():
                    ends[number] = time.monotonic() - began
            return len(ends) == len(jobs)

        wait_until(all_gone, case.within_s + 30.0)
        orphans = sum(job.clear() for job in jobs)
        seconds = [ends.get(number, case.within_s + 30.0) for number in range(len(jobs))]
        return Ended([job.code for job in jobs], seconds, orphans, [job.out + job.err for job in jobs])


@pytest.mark.slow
@pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case.launcher}: {case.name}")
def test_two_nodes_under_every_launcher(case: Case) -> None:
    ended = run(case)
    assert ended.faults(case) == [], "\n---\n".join(ended.texts)


def main(words: list[str]) -> int:
    """Run and tabulate."""
    if WHY_NOT:
        print(WHY_NOT)
        return 2
    bad = 0
    print("| launcher | what is done | all gone after, by node | exit codes | last lines |\n|---|---|---|---|---|")
    for case in cases():
        if not all(word in f"{case.launcher}: {case.name}" for word in words):
            continue
        ended = run(case)
        faults = ended.faults(case)
        bad += bool(faults)
        seconds = ", ".join(f"{each:.1f} s" for each in ended.seconds)
        said = re.findall(r"^(?:rank|result).*", "\n".join(ended.texts), re.MULTILINE)
        flag = f" **{'; '.join(faults)}**" if faults else ""
        print(f"| {case.launcher} | {case.name} | {seconds} | {ended.codes} | {'; '.join(said)}{flag} |", flush=True)
    return bad


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
