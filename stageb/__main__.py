"""The command table: ``python -m stageb`` and the ``stageb`` script.

Exit codes: 0 done, 1 a run broke, 2 bad input and nothing was started, 130 interrupted. A loop's module is imported when
its command runs and not before, since it brings torch. Fabric's own launcher, ``fabric run`` and torchrun run this same
command line once per rank, so nothing here writes a file, and rank 0 alone speaks: all ranks meet the same bad input.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stageb import __version__, launching, loops
from stageb.cli import parse
from stageb.errors import InputError, StagebError, shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    try:
        return run(sys.argv[1:] if arguments is None else arguments)
    except StagebError as error:
        if launching.leads():
            print(f"stageb: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:  # early; once a loop has launched, stageb.launching acts on signals
        return 130


def run(arguments: Sequence[str]) -> int:
    """Find the command and run it."""
    name, rest = split_command(arguments)
    return COMMANDS[name].run(rest)


def fit(arguments: Sequence[str]) -> int:
    """Find the loop, make its config, run it."""
    asked = parse(arguments)
    launching.die_with_launcher()  # importing torch takes seconds, in which a launcher may already be gone
    return loops.fit_of(asked.loop)(asked.config, asked.resolved_yaml, asked.fresh)


@dataclass(frozen=True)
class Command:
    """One line of the table."""

    summary: str  # what --help says
    run: Callable[[Sequence[str]], int]  # called with what follows the command's name; returns the exit code


COMMANDS = {"fit": Command("Learn: run the loop that --loop or its config names; guidance where none does.", fit)}


def split_command(arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The command's name and what follows it; ``--help`` and ``--version`` print and exit."""
    table = "\n".join(f"  {name:<8}{command.summary}" for name, command in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="stageb",
        usage="stageb COMMAND [--config FILE] [--KEY VALUE ...]",
        description="Rollout-driven learning on Lightning Fabric.",
        epilog=f"commands:\n{table}\n\nstageb COMMAND --help lists a command's options.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"stageb {__version__}")
    if arguments and arguments[0] in COMMANDS:
        return arguments[0], arguments[1:]
    if arguments and arguments[0] in ("-h", "--help", "--version"):
        parser.parse_args(arguments[:1])
    given = f"there is no command {shown(arguments[0], 60)}" if arguments else "no command was given"
    raise InputError(f"{given}; choose from: {', '.join(COMMANDS)} (stageb --help)")


if __name__ == "__main__":
    sys.exit(main())
