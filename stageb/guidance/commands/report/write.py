"""Writing a run's report: at the end of ``fit``, and by ``stageb report RUN``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from stageb.errors import JournalError, shown
from stageb.guidance.commands.report import REPORT
from stageb.guidance.commands.use.black_box import BlackBox
from stageb.guidance.config import LoopConfig
from stageb.guidance.words.types import Ticket
from stageb.store import disk
from stageb.store.commits import REMEDY
from stageb.store.output import check_target

# What comes of files that anybody may have written.
UNLIKE_A_RUN = (
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
)


def main(folder: Path, config: LoopConfig, arguments: Sequence[str]) -> int:
    """``stageb report RUN``: write one HTML file that shows the run, finished or not, and needs no
    network to read."""
    parser = argparse.ArgumentParser(prog="stageb report RUN", description=main.__doc__)
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help=f"where to write it (default RUN/{REPORT})"
    )
    more = (
        "the run's ticket files, unless they lie in or below the working directory, as its "
        "config names them"
    )
    parser.add_argument("--tickets", nargs="+", metavar="FILE", default=(), help=more)
    given = parser.parse_args(arguments)
    output = given.output or folder / REPORT
    check_target(output, {"tickets": given.tickets or config.files}, own=folder / REPORT)
    write_report(folder, config, output, files=given.tickets)
    print(f"Report: {output}")
    return 0


def write_report(
    folder: Path,
    config: LoopConfig,
    output: Path,
    tickets: Sequence[Ticket] | None = None,
    files: Sequence[str] = (),
    black_boxes: Mapping[str, BlackBox] | None = None,
) -> None:
    """Write the report of the run in ``folder`` to ``output``, as a whole or not at all.

    ``tickets`` are those of the run; None: they are read again from its ticket files, which the
    user may name as ``files``, if they are still the same. ``black_boxes`` are what
    ``measure_on_test`` says of them; None: they are measured.

    Raises ``InputError`` where nothing is committed yet, ``JournalError`` where files cannot be
    read or written.
    """
    from stageb.guidance.commands.report import page  # brings matplotlib
    from stageb.guidance.commands.report.read import read_run

    try:
        html = page.render_page(read_run(folder, config, tickets, files, black_boxes))
    except (*UNLIKE_A_RUN, page.TemplateError) as error:
        what = (
            f"{folder}: a file does not hold what a run writes ({shown(repr(error), 300)}); "
            f"{REMEDY}"
        )
        raise JournalError(shown(what)) from error
    disk.write(output, html.encode("utf-8", "xmlcharrefreplace"))


def write_at_end(
    folder: Path, config: LoopConfig, tickets: Sequence[Ticket], black_boxes: Mapping[str, BlackBox]
) -> str:
    """Write the report of a run that is over, and say in one line where it lies, or why there is
    none. Raises nothing: the run is done whatever becomes of its report."""
    output = folder / REPORT
    try:
        write_report(folder, config, output, tickets, black_boxes=black_boxes)
    except Exception as error:  # whatever it is
        why = shown(f"{type(error).__name__}: {error}", 300)
        return f"Report: none was written ({why}); once that is fixed: stageb report {folder}"
    return f"Report: {output}"
