"""The command table: ``python -m stageb`` and the ``stageb`` script.

Exit codes: 0 done, 1 a run broke, 2 bad input and nothing was started, 130 interrupted. A loop's module is imported when
its command runs and not before, since it brings torch. Fabric's own launcher, ``fabric run`` and torchrun run this same
command line once per rank, so nothing here writes a file, and rank 0 alone speaks: all ranks meet the same bad input.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from stageb import __version__, launching
from stageb.cli import command_parser, parse
from stageb.errors import InputError, StagebError, shown
from stageb.guidance.config import LoopConfig


@dataclass(frozen=True)
class Command:
    """One line of the table."""

    summary: str  # what --help says
    config: type  # the dataclass whose fields are the keys
    entry: str  # "module:function", called with (config, its YAML text, fresh); returns the exit code


COMMANDS = {
    "fit": Command(
        summary="Learn written guidance for the missions of your tickets.",
        config=LoopConfig,
        entry="stageb.guidance.loop:fit",
    ),
}


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
    """Find the command, make its config, call its loop."""
    name, rest = split_command(arguments)
    command = COMMANDS[name]
    parser = command_parser(command.config, f"stageb {name}", command.summary)
    config, resolved_yaml, fresh = parse(parser, command.config, rest)
    launching.die_with_launcher()  # importing torch takes seconds, in which a launcher may already be gone
    module, _, function = command.entry.partition(":")
    code: int = getattr(importlib.import_module(module), function)(config, resolved_yaml, fresh)
    return code


def split_command(arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The command's name and what follows it; ``--help`` and ``--version`` print and exit."""
    table = "\n".join(f"  {name:<8}{command.summary}" for name, command in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="stageb",
        usage="stageb COMMAND [--config FILE] [--KEY VALUE ...]",
        description="Learns written guidance for inspection tickets with a language model. No weight changes.",
        epilog=f"commands:\n{table}\n\nstageb COMMAND --help lists a command's keys.",
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
