"""The command table: ``python -m stageb`` and the ``stageb`` script.

Exit codes: 0 done, 1 a run broke, or all is done and what it printed is lost, 2 bad input and
nothing was started, 128 + n interrupted by signal n, 141 nobody reads what is printed any more (``|
head``). A loop's module is imported when its command runs and not before, since it brings torch.
This same command line is run once per rank, by the first of them, torchrun or ``fabric run``, so
nothing here writes a file, and rank 0 alone speaks: all ranks meet the same bad input.
"""

from __future__ import annotations

import argparse
import errno
import gc
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

from stageb import __version__
from stageb.cli import commands
from stageb.cli.parsing import parse, parse_run, parse_tool
from stageb.errors import CALLER, ConfigError, InputError, StagebError, shown
from stageb.job import lifetime, process
from stageb.store import disk


def script(arguments: Sequence[str]) -> int:
    """Run the command line of this process, whose signals are the command's from now on. Returns
    the exit code, unless a signal has ended the command: then the process ends here, since threads
    that others left behind would hold it up."""
    process.secure()
    signals = lifetime.watch_signals(raises=True)
    signals.start()
    code = _end_of(arguments)
    if code > 128:
        lifetime.end(code)
    signals.release()
    # the interpreter's shutdown would look for garbage in all that torch has brought, for a second
    # or more
    gc.freeze()
    return code


def _end_of(arguments: Sequence[str]) -> int:
    """``main``; a command that has done its work is no success where what it printed is lost."""
    try:
        code = main(arguments)
    except SystemExit as error:
        if error.code or not process.find_loss():
            raise
        code = 0  # a screen of help
    if why := process.find_loss():
        print(
            f"stageb: {why}; what is printed ends there, and nothing else is lost", file=sys.stderr
        )
    return code or int(bool(why))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; without ``arguments`` that of this process."""
    if arguments is None:
        return script(sys.argv[1:])
    # a function of Python, such as ``fit``, may have begun this process
    CALLER.set(os.environ.get(CALLER.name, "shell"))
    try:
        lifetime.accept_signals()
        try:
            return run(arguments)
        finally:
            sys.stdout.flush()  # what is left, while an error can still be met
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        if lifetime.has_lost_reader(error):
            return lifetime.fall_silent()
        if isinstance(error, SystemExit):
            raise
        # Of a single process, or early: where there are several, stageb.job.lifetime acts on
        # signals. Libraries that are interrupted as they are imported may swallow that and fail of
        # what they lack then.
        if isinstance(error, KeyboardInterrupt) or lifetime.was_interrupted():
            code, said = lifetime.interruption()
        elif isinstance(error, StagebError):
            code, said = error.exit_code, f"stageb: {error}"
        elif isinstance(error, MemoryError):
            code, said = 1, f"stageb: {_MEMORY}"
        else:
            raise
        if lifetime.leads():
            print(said, file=sys.stderr)
        return code


_MEMORY = (
    "the memory is full; see what files it was given: one may be far larger than what it "
    "holds (a sparse file)"
)


def run(arguments: Sequence[str]) -> int:
    """Find the command and run it. A name may be two: with a run's folder a command of runs, with
    options alone a tool.

    Raises ``InputError`` for a path that cannot even be looked up, whichever command asks.
    """
    name, rest = split_command(arguments)
    names_run = bool(rest) and (rest[0] == "--" or not rest[0].startswith("-"))
    asks_run = name in commands.run_commands() and (names_run or name not in commands.tools())
    try:
        return (
            COMMANDS[name].run(rest)
            if name in COMMANDS
            else of_run(name, rest)
            if asks_run
            else of_tool(name, rest)
        )
    except OSError as error:
        if error.errno not in (errno.ENAMETOOLONG, errno.EACCES) or error.filename is None:
            raise
        raise InputError(
            f"{shown(str(error.filename), 200)}: {error.strerror}; name a path that can be read"
        ) from error


def fit(arguments: Sequence[str]) -> int:
    """Find the loop, make its config, run it."""
    parsed = parse(arguments)
    check_place(parsed.config)
    if parsed.seeds:
        return int(
            commands.import_object("stageb.cli.sweep:fit_all")(
                parsed.config, parsed.seeds, arguments
            )
        )
    # importing torch takes seconds, in which a launcher may already be gone
    lifetime.die_with_launcher()
    return commands.load_fit(parsed.loop)(parsed.config, parsed.resolved_yaml, parsed.fresh)


def validate(arguments: Sequence[str]) -> int:
    """Find the loop, make its config, check what it names; nothing is started and nothing
    written."""
    parsed = parse(arguments, "validate")
    check_place(parsed.config)
    check = commands.load_check(parsed.loop)
    if check is None:
        print(
            f"The keys are valid. Loop {parsed.loop} reads nothing else that could be checked "
            f"before it starts."
        )
        return 0
    return check(parsed.config)


def check_place(config: Any) -> None:
    """Raise ``ConfigError`` where a run's folder cannot be made."""
    try:
        disk.check_place(config.output.folder, "another folder")
    except InputError as error:
        raise ConfigError("output.root", config.output.root, str(error)) from None


def of_run(command: str, arguments: Sequence[str]) -> int:
    """Find the loop that left a run, and have it do ``command`` with that run."""
    usage = f"usage: stageb {command} RUN [options]; RUN is a run's folder, such as out/run"
    # as a program writes it before a name that may begin with a dash
    is_marked = list(arguments[:1]) == ["--"]
    arguments = arguments[is_marked:]
    if not arguments or (arguments[0].startswith("-") and not is_marked):
        if arguments and arguments[0] in ("-h", "--help"):
            print(f"{usage}; stageb {command} RUN --help lists what its loop takes")
            return 0
        raise InputError(f"stageb {command}: no run was named; {usage}")
    folder = Path(arguments[0])
    parsed = parse_run(folder)
    lifetime.die_with_launcher()
    return commands.load_command(parsed.loop, command)(folder, parsed.config, arguments[1:])


def of_tool(name: str, arguments: Sequence[str]) -> int:
    """Make the config of the tool ``name``, or hand it the bare words, and run it."""
    tool = commands.tools()[name]
    if not tool.config:
        return commands.load_tool(name)(arguments)
    if tool.operand and arguments and not arguments[0].startswith("-"):
        arguments = [f"--{tool.operand}={arguments[0]}", *arguments[1:]]
    config, fresh = parse_tool(name, tool, arguments)
    lifetime.die_with_launcher()
    return commands.load_tool(name)(config, *([fresh] if tool.fresh else []))


def doctor(arguments: Sequence[str]) -> int:
    """Say what can run here, and what to install for what cannot."""
    from stageb.cli.doctor import main

    return main(arguments)


def sweep(arguments: Sequence[str]) -> int:
    """Make runs with several values of keys, and say which did best."""
    return int(commands.import_object("stageb.cli.sweep:main")(arguments))


@dataclass(frozen=True)
class Command:
    """One line of the table."""

    summary: str  # what --help says
    # called with what follows the command's name; returns the exit code
    run: Callable[[Sequence[str]], int]


COMMANDS = {
    "fit": Command(
        "Learn rules from labelled tickets, or what the loop learns that --loop names.", fit
    ),
    "validate": Command(
        "Check tickets and keys for fit, and estimate its cost; nothing is started.", validate
    ),
    "sweep": Command("Search for the values of keys with which fit does best.", sweep),
    "doctor": Command(
        "Say what can run on this machine, and what to install for what cannot.", doctor
    ),
}


def summaries() -> dict[str, str]:
    """Every command's name, and what it does; those that every loop has come first."""
    table = {name: entry.summary for name, entry in COMMANDS.items()}
    return {name: table[name] for name in ("fit", "validate")} | commands.summaries() | table


def split_command(arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The command's name and what follows it; ``--help`` and ``--version`` print and exit."""
    names = summaries()
    lines = (
        fill(text, 116, initial_indent=f"  {name:<12}", subsequent_indent=" " * 14)
        for name, text in names.items()
    )
    table = "\n".join(lines)
    parser = argparse.ArgumentParser(
        prog="stageb",
        usage="stageb fit [--config FILE] [--KEY VALUE ...]\n       stageb COMMAND [RUN] [options]",
        description="Learn written rules for inspection tickets from labelled examples, and "
        "judge new tickets by them.\n"
        "There are loops that learn weights, too: stageb fit --help names them.",
        epilog=f"commands:\n{table}\n\nstageb COMMAND --help lists a command's options.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"stageb {__version__}")
    if arguments and arguments[0] in names:
        return arguments[0], arguments[1:]
    if arguments and arguments[0] in ("-h", "--help", "--version"):
        parser.parse_args(arguments[:1])
    given = (
        f"there is no command {shown(arguments[0], 60)}" if arguments else "no command was given"
    )
    raise InputError(f"{given}; choose from: {', '.join(names)} (stageb --help)")


if __name__ == "__main__":
    sys.exit(main())
