"""``stageb`` as a shell finds it, without the seconds that each start takes to import torch.

A folder for ``PATH`` holds a ``stageb`` that hands its arguments, its folder, its environment and
its three streams to the tests, which run the command in a fork of the server of ``forks``. To the
shell it is the command: it waits, hands Ctrl-C on, and ends with its exit code. The ``python``
beside it does the same for ``python -m stageb``, and else is the real one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import sys
import threading
import types
from collections.abc import Mapping, Sequence
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

from programs.forks import SERVER

CLIENT = """#!{python} -IS
import json, os, signal, socket, sys
words = sys.argv[1:]
if os.path.basename(sys.argv[0]) == "python":
    if words[:2] != ["-m", "stageb"]:
        os.execv({python!r}, [{python!r}, *words])
    del words[:2]
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [b"."], [0, 1, 2])
    server.sendall(json.dumps([words, os.getcwd(), dict(os.environ)]).encode())
    server.shutdown(socket.SHUT_WR)
    process = int(server.recv(8))
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda number, frame: os.kill(process, number))
    sys.exit(int(server.recv(8) or 99))
"""


class Shell:
    """Serves ``stageb`` to shells whose ``PATH`` begins with ``folder``, until ``close``."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is made, and should have a short name: a socket lies in it."""
        folder.mkdir(parents=True)
        self.folder = folder
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / "socket"))
        self._listener.listen()
        self.python = folder / "python"
        for program in (folder / "stageb", self.python):
            program.write_text(CLIENT.format(python=sys.executable, address=str(folder / "socket")))
            program.chmod(0o755)
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        """Serve no more."""
        self._listener.close()

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=_serve, args=(client, str(self.python)), daemon=True).start()


class _Stream:
    """An open file that goes to another process."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __getstate__(self) -> Any:
        return DupFd(self.descriptor)

    def __setstate__(self, sent: Any) -> None:
        self.descriptor = sent.detach()


def _serve(client: socket.socket, python: str) -> None:
    """Run what ``client`` asks for, and tell it the process and the exit code."""
    with client:
        _, descriptors, _, _ = socket.recv_fds(client, 1, 3)
        asked = json.loads(b"".join(iter(lambda: client.recv(1 << 16), b"")))
        process = SERVER.Process(
            target=_command, args=(*asked, [_Stream(each) for each in descriptors], python)
        )
        process.start()
        client.sendall(f"{process.pid:8}".encode())
        for each in descriptors:
            os.close(each)
        process.join()
        code = process.exitcode or 0
        client.sendall(str(128 - code if code < 0 else code).encode())


def _command(
    arguments: Sequence[str],
    folder: str,
    environment: Mapping[str, str],
    streams: Sequence[_Stream],
    python: str,
) -> None:
    """The command, in its process; ``python`` is what it starts others with."""
    for place, stream in enumerate(streams):
        os.dup2(stream.descriptor, place)
        os.close(stream.descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - the server's own reads nothing
    sys.path[:0] = [path or folder for path in environment.get("PYTHONPATH", "").split(os.pathsep)]
    main = types.ModuleType("__main__")
    main.__spec__ = importlib.util.find_spec("stageb.__main__")  # what a launcher starts again
    sys.modules["__main__"] = main
    sys.executable = python
    sys.argv = [str(main.__spec__ and main.__spec__.origin), *arguments]

    from stageb.__main__ import main as run

    try:
        code: Any = run(arguments)
    except SystemExit as end:  # of a help screen
        code = end.code
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)
