"""Two nodes on one machine, with a cable between them: each has a network, a host name, processes
and mounts of its own.

Linux namespaces, made by ``unshare`` and entered by ``nsenter``; the cable is a veth pair. Wants
root and iproute2.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

DEVICE = "eth0"
SPACES = ("--net", "--uts", "--mount", "--pid")
SET_UP = (
    'mount --bind "$1" /etc/hosts && hostname "$2" && ip link set lo up && echo ready && read line'
)


@dataclass(frozen=True)
class Node:
    """One machine, as its processes see it."""

    name: str
    address: str
    first: int  # the id of its first process, seen from outside

    def line(self, *words: str) -> list[str]:
        """The command line that runs ``words`` on this node, in this process's folder."""
        return ["nsenter", f"--target={self.first}", *SPACES, f"--wd={Path.cwd()}", "--", *words]

    def do(self, *words: str) -> str:
        """Run a command here; what it prints."""
        return subprocess.run(self.line(*words), check=True, capture_output=True, text=True).stdout

    def enter(self) -> None:
        """Go on as a process of this node: a fork does, and this process waits for it. There must
        be but one thread."""
        libc = ctypes.CDLL(None, use_errno=True)
        for space in ("net", "uts", "pid", "mnt"):  # the last hides the others' names
            with Path(f"/proc/{self.first}/ns/{space}").open() as entry:
                if libc.setns(entry.fileno(), 0):
                    raise OSError(ctypes.get_errno(), f"cannot enter {self.name}'s {space}")
        pid = os.fork()
        if pid:
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            os._exit(128 - code if code < 0 else code)

    def plug(self) -> None:
        """Put the cable in."""
        self.do("ip", "link", "set", DEVICE, "up")
        self.do("ip", "route", "add", "default", "dev", DEVICE)

    def unplug(self) -> None:
        """Pull the cable out: no packet leaves, and none arrives that would tell the other side of
        it."""
        self.do("ip", "link", "set", DEVICE, "down")


def missing() -> str:
    """Why there can be no nodes here; empty if there can."""
    for command in ("unshare", "nsenter", "ip", "mount", "hostname"):
        if not shutil.which(command):
            return f"needs {command}"
    tried = subprocess.run(
        ["unshare", *SPACES, "--fork", "--mount-proc", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"needs namespaces: {tried.stderr.strip()}" if tried.returncode else ""


@contextlib.contextmanager
def two_nodes(folder: Path, hosts: Sequence[str] = ("", "")) -> Iterator[tuple[Node, Node]]:
    """``node0`` and ``node1``, both plugged in; ``hosts`` are the first lines of their
    ``/etc/hosts``. All that runs on them ends with them."""
    names, addresses = ("node0", "node1"), ("10.77.0.1", "10.77.0.2")
    known = "127.0.0.1 localhost\n" + "".join(
        f"{address} {name}\n" for address, name in zip(addresses, names, strict=True)
    )
    with contextlib.ExitStack() as stack:
        nodes = []
        for name, address, first_lines in zip(names, addresses, hosts, strict=True):
            table = folder / f"{name}.hosts"
            table.write_text(first_lines + known)
            begin = [
                "unshare",
                *SPACES,
                "--fork",
                "--mount-proc",
                "--kill-child",
                "sh",
                "-c",
                SET_UP,
                "sh",
                str(table),
                name,
            ]
            holder = stack.enter_context(
                subprocess.Popen(begin, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            assert holder.stdout and holder.stdout.readline() == "ready\n"
            children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
            nodes.append(Node(name, address, int(children[0])))
        cable = ["ip", "link", "add", DEVICE, "netns", str(nodes[0].first), "type", "veth"]
        subprocess.run([*cable, "peer", "name", DEVICE, "netns", str(nodes[1].first)], check=True)
        for node in nodes:
            node.do("ip", "address", "add", f"{node.address}/24", "dev", DEVICE)
            node.plug()
        yield nodes[0], nodes[1]
