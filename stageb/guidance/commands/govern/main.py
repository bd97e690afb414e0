"""``stageb guidance``: look at learnt guidance, compare it, take it elsewhere, decide which is in
use."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from stageb.cli.parsing import WordParser
from stageb.guidance.commands.govern import export, promote, resize, review, show
from stageb.guidance.commands.govern.sources import SOURCE

OPERANDS = {
    "source": "the guidance: see below",
    "a": "the guidance to compare with, usually the older one: a SOURCE, see below",
    "b": "the guidance to compare, usually the newer one: a SOURCE, see below",
    "file": "a shared file that promote created",
}


def main(arguments: Sequence[str]) -> int:
    """Run ``stageb guidance ARGUMENTS``; returns the exit code. Raises ``InputError``."""
    args = make_parser().parse_args(arguments)
    code: int = args.run(args)
    return code


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command and its subcommands."""
    parser = WordParser(
        prog="stageb guidance",
        description="Look at learnt guidance, compare it, take it elsewhere, decide which is in "
        "use.",
        epilog=f"{SOURCE}\n\nFor details of a command: stageb guidance COMMAND --help.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    command = partial(_add_command, commands)
    show.add_options(command("show", "Every rule, and where it comes from.", show.show, "source"))
    command(
        "diff", "What differs between two, rule by rule.", show.diff, "a", "b", more=show.DIFFERS
    )
    command(
        "history",
        "Every step: what made it, its gate figures, its accuracy on val.",
        show.history,
        "source",
    )
    export.add_options(
        command(
            "export",
            "The prompt that rollouts read, or the rules as text or code.",
            export.export,
            "source",
            more=export.EXPORTS,
        )
    )
    resize.add_options(
        command(
            "resize",
            "What a run has learnt by code, in another size.",
            resize.resize,
            "source",
            more=resize.RESIZES,
        )
    )
    promote.add_options(
        command(
            "promote",
            "Copy guidance into a shared file that many runs can use.",
            promote.promote,
            "source",
            more=promote.PROMOTES,
        )
    )
    review.add_options(
        command(
            "review",
            "Approve learnt rules one by one, into a shared file.",
            review.review,
            "source",
            more=review.REVIEWS,
        )
    )
    promote.add_rollback_options(
        command(
            "rollback",
            "Put a mission's guidance in a shared file back to an earlier step.",
            promote.roll_back,
            "file",
        )
    )
    return parser


def _add_command(
    commands: Any, name: str, summary: str, run: Callable[[Any], int], *sources: str, more: str = ""
) -> argparse.ArgumentParser:
    added: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary}\n\n{more}".rstrip(),
        epilog=SOURCE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for source in sources:
        added.add_argument(source, metavar=source.upper(), help=OPERANDS[source])
    added.add_argument("--mission", metavar="M", help="only this mission, named as in its tickets")
    added.set_defaults(run=run)
    return added
