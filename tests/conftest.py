"""For all tests: temporary folders in memory, one thread a process, and a busy machine is no
failure."""

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from programs.shell import Shell
from since import LOOPS, find_touched_loops, list_changed_files, loop_of
from times import TIMES

from stageb.errors import CALLER

MEMORY = Path("/dev/shm")
SLOW = 3600  # seconds that a slow test may take
ROOM = 2 << 30  # bytes that are to be free there; containers may have 64 MiB

settings.register_profile(
    "stageb", deadline=None, max_examples=25 * TIMES, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("stageb")


UNTOUCHED = pytest.StashKey[list[str]]()  # loops whose tests are left out
UNKNOWN = pytest.StashKey[bool]()  # whether git does not know the commit


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--since COMMIT`` leaves out tests of loops that nothing since then can have touched; else
    all are run."""
    parser.addoption(
        "--since",
        metavar="COMMIT",
        default=os.environ.get("STAGEB_SINCE", ""),
        help=pytest_addoption.__doc__,
    )


def pytest_configure(config: pytest.Config) -> None:
    commit = config.getoption("since")
    changed = list_changed_files(commit) if commit else []
    config.stash[UNKNOWN] = changed is None
    config.stash[UNTOUCHED] = (
        sorted(LOOPS - find_touched_loops(changed)) if commit and changed is not None else []
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    untouched = config.stash[UNTOUCHED]
    config.hook.pytest_deselected(items=[item for item in items if loop_of(item) in untouched])
    items[:] = [item for item in items if loop_of(item) not in untouched]
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW))


def pytest_collection_finish() -> None:
    """What was imported stays, so no collection of garbage need look at it: tests take a sixth less
    of the processor."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    commit, untouched = config.getoption("since"), config.stash[UNTOUCHED]
    if config.stash[UNKNOWN]:
        terminalreporter.write_line(f"nothing was left out: git does not know the commit {commit}")
    elif commit:
        left_out = ", ".join(untouched) or "no loop"
        terminalreporter.write_line(
            f"left out, since nothing after {commit} touches them: tests of {left_out}"
        )


def usable(folder: Path) -> bool:
    """Whether temporary files may lie there, scripts among them."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    roomy = found.f_bavail * found.f_frsize >= ROOM
    return roomy and not found.f_flag & os.ST_NOEXEC and os.access(folder, os.W_OK | os.X_OK)


# Runs bring their files to the disk at every commit; on most disks that is what their tests would
# wait for.
if "TMPDIR" not in os.environ and usable(MEMORY):
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: tests run side by side

# A shell starts what it puts in the background with Ctrl-C ignored, and every process that a test
# starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def speaks_to_a_command_line() -> Iterator[None]:
    """Remedies do, until a test calls a function as a program does."""
    before = CALLER.set("shell")
    yield
    CALLER.reset(before)


@pytest.fixture(scope="session")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Where a shell finds ``stageb``, without the seconds of a start."""
    serving = Shell(tmp_path_factory.mktemp("shell") / "bin")
    yield serving
    serving.close()


@pytest.fixture
def quick_starts(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tested starts ``python -m stageb`` without the seconds of a start."""
    monkeypatch.setattr(sys, "executable", str(shell.python))
