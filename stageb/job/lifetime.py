"""How a process of a job begins and ends; the standard library alone, so that it can stand guard
before torch is imported.

A job is one process per rank and whatever launched them. Three promises are kept here, each against
a measured default:

- *No orphan.* A process that a launcher made ends with that launcher, however that one ends
  (``die_with_launcher``). Unguarded, a SIGKILL of the parent, or of torchrun's agent, leaves busy
  ranks alive for good.
- *A signal ends the job at once.* Of several ranks it is acted on by a thread, so a main thread
  deep inside a library call need not return first, and no ``KeyboardInterrupt`` passes through
  libraries that swallow it (``watch_signals``). The last commit is intact.
- *The last line says why.* ``end`` prints one message, tells the other ranks and leaves by
  ``os._exit``: an orderly exit with gloo or NCCL threads in mid-air may hang or abort. No
  ``finally`` runs, so files must be right at every instant.

A single process is its caller's: nothing here ends it, and no handler of its signals is changed. On
the command line, which is that caller, a first signal raises ``KeyboardInterrupt``, and ``finally``
blocks run; a second one ends the process.

What a library forks, such as a worker of an environment's, is no rank: it answers signals as any
process does, and tells nobody here of those it receives (``_leave_job``).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from stageb.errors import shown

PARENT = "STAGEB_LAUNCHER_PID"
"""Set by rank 0 for the ranks that it starts (``placement.Children``): whom they must not
outlive."""

PR_SET_PDEATHSIG = 1  # of prctl.h
STANDARD = (1, 2)  # descriptors of standard output and standard error

_ending = threading.Lock()  # taken once, by the thread that ends the process; never given back
# by a further caller of ``end``, such as rank 0 when it ends the others
_asked_again = threading.Event()
_last_acts: list[Callable[[int], object]] = []
_launcher: int | None = None  # the process that this one must not outlive
_by = signal.SIGINT  # the first signal that ``watch_signals`` turned into a KeyboardInterrupt
_was_interrupted = False
# whether this process is the command line's own: one whose signals raise a KeyboardInterrupt
_of_command = False
# what an interruption keeps, in the words of the last message; None: there is nothing to resume
_kept: str | None = None
_binds: int | None = None  # the process whose forks end with it
_commit: Path | None = None  # there is something to resume once this file exists


def under_torchrun() -> bool:
    """Whether torchrun or ``fabric run`` (which is torchrun inside) made this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def under_slurm() -> bool:
    """Whether srun made this process (an interactive allocation does not count)."""
    return "SLURM_NTASKS" in os.environ and os.environ.get("SLURM_JOB_NAME") not in (
        "bash",
        "interactive",
    )


def under_agent() -> bool:
    """Whether torchrun, ``fabric run`` or srun made this process, and the others of its job."""
    return under_torchrun() or under_slurm()


def leads() -> bool:
    """Whether the environment makes this process rank 0, the one that prints; known before any
    library is loaded."""
    env = os.environ
    if under_torchrun():
        return env.get("RANK", "0") == "0"
    if under_slurm():
        return env.get("SLURM_PROCID", "0") == "0"
    return env.get("LOCAL_RANK", "0") == "0" and env.get("NODE_RANK", "0") == "0"


def is_command() -> bool:
    """Whether this process is the stageb command, which further ranks may run again, and not a
    program, test or notebook."""
    return _of_command


def leads_machine() -> bool:
    """Whether this process is the first on its machine, which prints errors that rank 0's machine
    cannot show."""
    return os.environ.get("SLURM_LOCALID" if under_slurm() else "LOCAL_RANK", "0") == "0"


def end(code: int, message: str = "") -> NoReturn:
    """Print ``message``, tell the others, leave with ``code``. The first caller's message stands;
    others wait."""
    if not _ending.acquire(blocking=False):
        _asked_again.set()
        threading.Event().wait()
    _flush(seconds=1.0)
    if message:
        # a progress bar may hold the current line, and hide the cursor
        lead_in = "\n\x1b[?25h" if os.isatty(2) else ""
        with contextlib.suppress(OSError):
            last = os.dup(2)
            # other threads go on for a moment: this is the last line
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            os.write(last, f"{lead_in}{message}\n".encode(errors="backslashreplace"))
    for act in reversed(_last_acts):
        act(code)
    os._exit(code)


def interruption() -> tuple[int, str]:
    """The exit code and the last line of a command that a ``KeyboardInterrupt`` ended."""
    return 128 + _by, interrupted(_by)


def has_lost_reader(error: BaseException) -> bool:
    """Whether ``error`` comes from printing to a closed pipe, as with ``| head``, and not from some
    other broken pipe."""
    while error.__cause__ is not None:
        error = error.__cause__
    # rich makes one of it, once it has opened standard output anew
    if isinstance(error, SystemExit):
        return isinstance(error.__context__, BrokenPipeError)
    return isinstance(error, BrokenPipeError) and any(map(_is_unread, STANDARD))


def fall_silent() -> int:
    """Stop printing to closed pipes. Returns the exit code of a program that SIGPIPE ended, as most
    programs are."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in filter(_is_unread, STANDARD):
        os.dup2(nowhere, stream)
    os.close(nowhere)
    return 128 + signal.SIGPIPE


def _is_unread(stream: int) -> bool:
    """Whether this is a pipe that nobody holds the other end of."""
    asked = select.poll()
    asked.register(stream, 0)
    return any(state & (select.POLLERR | select.POLLHUP) for _, state in asked.poll(0))


def set_resume(kept: str | None = "the last commit stands", commit: Path | None = None) -> None:
    """Set what an interrupted process says last: what is ``kept``, and to resume with the same
    command, if the file ``commit`` exists by then. ``kept`` None: there is nothing to resume."""
    global _kept, _commit
    _kept, _commit = kept, commit


def interrupted(number: int) -> str:
    """The last line of a job that signal ``number`` ends; it says how to resume if there is a
    commit."""
    return f"interrupted by {signal.Signals(number).name}{_how_to_resume()}"


def _how_to_resume() -> str:
    if _kept is None or not (_commit is None or _commit.exists()):
        return ""
    if command := command_line():
        return f"; {_kept}; to resume: {shown(command)}"
    return f"; {_kept}; the same command resumes"


def command_line() -> str:
    """The command line of this job, quoted for a shell and without --fresh; empty if it cannot be
    known (srun)."""
    words = [sys.argv[0], *sys.argv[1:]]
    if under_torchrun():
        with contextlib.suppress(OSError):
            words = (
                Path(f"/proc/{os.getppid()}/cmdline").read_text(errors="replace").split("\0")[:-1]
            )
            words = (
                words[1:]
                if len(words) > 1 and Path(words[1]).name in ("torchrun", "fabric")
                else words
            )
        if not {"torchrun", "fabric", "torch.distributed.run"} & {
            Path(word).name for word in words[:3]
        }:
            return ""
    elif under_slurm():
        return ""
    if Path(words[0]).name == "__main__.py":
        words[:1] = ["python", "-m", Path(words[0]).parent.name]
    words[0] = (
        Path(words[0]).name if Path(words[0]).name in ("stageb", "torchrun", "fabric") else words[0]
    )
    return shlex.join(word for word in words if word != "--fresh")


def machine() -> str:
    """The scope in which process ids are unique: this boot of this machine, and the process
    namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:  # not Linux
        return socket.gethostname()


def before_end(act: Callable[[int], object] | None) -> None:
    """Register ``act(code)`` for ``end`` to call after its message, latest first; it must be quick
    and must not raise. None removes all: the job ended in good order."""
    _last_acts[:] = [*_last_acts, act] if act else []


def _flush(seconds: float) -> None:
    """Flush what was printed, unless the reader at the other end has stopped reading."""

    def flush() -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()

    thread = threading.Thread(target=flush, daemon=True)
    thread.start()
    thread.join(seconds)


def die_with_launcher() -> None:
    """Make this process end with the process that launched it. Does nothing in one that a person,
    or srun, started.

    Two ways at once. A thread looks at ``getppid`` and ends this process; it works everywhere, and
    leaves the ranks a moment in which one of them can say what happened. It cannot run while a
    library holds the interpreter's lock, so the kernel is asked as well (Linux,
    ``PR_SET_PDEATHSIG``).
    """
    global _launcher
    if _launcher is not None:
        return
    if PARENT in os.environ:
        parent = int(os.environ[PARENT])
    elif under_torchrun():
        parent = os.getppid()
    else:
        return
    _launcher = parent
    _ask_kernel()
    if os.getppid() != parent:  # it ended before the kernel was asked
        os._exit(1)
    threading.Thread(
        target=_watch_parent, args=(parent,), daemon=True, name="stageb-parent"
    ).start()


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process as soon as its ``parent`` has ended, and leave Ctrl-C to
    that."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):  # not Linux: it reads the end of its pipe
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it ended before the kernel was asked
        os._exit(1)


@contextlib.contextmanager
def bind_children() -> Iterator[None]:
    """Within, what this process forks ends with it, as ``die_with_parent`` has it."""
    global _binds
    before, _binds = _binds, os.getpid()
    try:
        yield
    finally:
        _binds = before


def _leave_job() -> None:
    """In a process that was forked here: handle signals as any process does. It would write them to
    its parent's pipe."""
    global _binds
    if caught := [
        each for each in watch_signals.caught if signal.getsignal(each) in (_interrupt, _no_op)
    ]:
        signal.set_wakeup_fd(-1)
        for number in caught:
            signal.signal(
                number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            )
    if _binds is not None:
        parent, _binds = _binds, None
        die_with_parent(parent)


os.register_at_fork(after_in_child=_leave_job)


def _ask_kernel() -> None:
    """Three seconds after the parent's death this process is killed, whatever its threads are
    doing.

    The signal asked for is SIGQUIT, number 3, and its handler is libc's own ``alarm``: so
    ``alarm(3)`` runs without the interpreter, and an unhandled SIGALRM kills. A plain SIGKILL would
    leave no time to name the rank that was lost.
    """
    with contextlib.suppress(OSError, AttributeError):  # not Linux: the thread alone
        libc = ctypes.CDLL(None, use_errno=True)
        prctl = libc.prctl
        libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
        libc.signal.restype = ctypes.c_void_p
        libc.signal(int(signal.SIGQUIT), ctypes.cast(libc.alarm, ctypes.c_void_p))
        prctl(PR_SET_PDEATHSIG, int(signal.SIGQUIT), 0, 0, 0)


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.25)
    if under_torchrun() and leads():
        end(1, f"the launcher of this job ended, and the job with it{_how_to_resume()}")
    # rank 0 speaks, or where it was the parent, rank 1: let the watchdog end this process
    time.sleep(1.0)
    end(1)


class watch_signals:  # noqa: N801 - reads as a function
    """From ``start`` on SIGINT, SIGTERM and what else asks a job to end (a closed terminal, SLURM
    before its time limit) end it with one line and exit code 128 + the signal's number; ``stop``
    gives them back.

    With ``raises`` the first one raises ``KeyboardInterrupt`` in the main thread; the process is
    ended by a second one, or where it still runs after ``grace_s``.

    Workers tell rank 0 (``end``), and hold still for up to a second: rank 0 speaks for all, and
    ends them. Under an agent rank 0 holds still for a moment too, because an agent also sends
    SIGTERM when a rank has died, and then the dead rank is what must be named.
    """

    # SLURM sends any of these; the last one comes of a limit on the processor's time (ulimit -t)
    caught = (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGXCPU,
    )
    grace_s = 5.0  # for a KeyboardInterrupt to come out at the command line

    def __init__(self, raises: bool = False) -> None:
        self._raises = raises
        self._before: dict[signal.Signals, Any] = {}
        self.started = False

    def start(self) -> None:
        """Install the handlers, if this is the main thread."""
        global _of_command
        self.started = True
        _of_command = _of_command or self._raises
        if threading.current_thread() is not threading.main_thread():
            return  # Python lets only the main thread set handlers
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in self.caught:
            # nohup and shells' background jobs ignore on purpose
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, _interrupt if self._raises else _no_op)
        self._thread = threading.Thread(target=self._watch, daemon=True, name="stageb-signals")
        self._thread.start()

    def stop(self) -> None:
        """Restore what handled the signals before."""
        if not self._before:
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
        signal.set_wakeup_fd(self._wakeup)
        os.write(self._write, b"\0")
        self._thread.join()
        os.close(self._read)
        os.close(self._write)

    def release(self) -> None:
        """With nothing left to do, let them end this process as they do by default: a
        ``KeyboardInterrupt`` amid the interpreter's shutdown, which takes a second or more once
        torch was imported, would come out as a traceback."""
        for number in self._before:
            signal.signal(number, signal.SIG_DFL)

    def _watch(self) -> None:
        while number := os.read(self._read, 1)[0]:
            if number in self._before:
                if (
                    self._raises
                    and select.select([self._read], [], [], self.grace_s)[0]
                    and not os.read(self._read, 1)[0]
                ):
                    return
                _end_by(signal.Signals(number))


@contextlib.contextmanager
def hand_over_signals(answer: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Within, SIGINT and SIGTERM call ``answer`` in the main thread, and nothing else: a service
    ends in good order, for which ``watch_signals`` would leave it no time."""
    wakeup = signal.set_wakeup_fd(-1)
    before = {number: signal.signal(number, answer) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Within, block signals in child processes until they call ``accept_signals``, since a starting
    Python answers Ctrl-C with a traceback. Only for the stageb command, whose ranks accept them
    within moments; another program's may take long."""
    if not _of_command:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watch_signals.caught)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def accept_signals() -> None:
    """Receive the signals that ``defer_signals`` held back, now that there are handlers for
    them."""
    if PARENT in os.environ:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, watch_signals.caught)


def was_interrupted() -> bool:
    """Whether a signal has raised a KeyboardInterrupt, even if something swallowed it."""
    return _was_interrupted


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _by, _was_interrupted
    _by, _was_interrupted = signal.Signals(number), True
    raise KeyboardInterrupt


def _no_op(number: int, frame: FrameType | None) -> None:
    """A Python handler must stand for the wakeup descriptor to be written to; the thread does the
    work."""


def _end_by(number: signal.Signals) -> NoReturn:
    if not leads():
        _last_acts.insert(0, lambda code: _asked_again.wait(1.0))  # when rank 0 was told
        end(128 + number)
    if under_agent():
        time.sleep(0.3)
    end(128 + number, interrupted(number))
