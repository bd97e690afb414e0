"""How often stageb audit gives a false alarm in a year, and how long it takes to see twice the
errors: bin/bench audit

People answer so many tickets a day, and the bound is looked at after each answer. False alarms: of
as many errors as the bound allows, all year. Delays: in answers, from the day on which errors
become twice as many.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import quantiles

from stageb.guidance.commands.audit.watch import is_alarm, trace_wealth
from stageb.seeds import stream, uniform

DAYS = 365


def main(arguments: Sequence[str]) -> int:
    """Print false alarms, and a line of delays for each past."""
    parser = argparse.ArgumentParser(prog="bin/bench audit", description=__doc__)
    parser.add_argument(
        "--max_error", type=float, default=0.02, metavar="X", help="that the bound allows"
    )
    parser.add_argument("--answers", type=int, default=10, metavar="N", help="a day")
    parser.add_argument("--years", type=int, default=200, metavar="N", help="to simulate")
    asked = parser.parse_args(arguments)
    limit, year = asked.max_error, DAYS * asked.answers
    alarms = sum(
        find_alarm(draw(limit, year, stream("alarm", n)), limit) is not None
        for n in range(asked.years)
    )
    print(f"false alarms: {alarms} of {asked.years} years")
    print("errors before  days before  delay: median  9 of 10  alarms before")
    for before in (limit, limit / 2):
        for days in (0, 30, 180):
            since, delays, early = days * asked.answers, list[int](), 0
            for n in range(asked.years // 2):
                held = draw(before, since, stream("held", n, days, str(before)))
                errors = held + draw(2 * limit, year, stream("broken", n, days, str(before)))
                at = find_alarm(errors, limit)
                early += at is not None and at < since
                if at is None or at >= since:
                    delays.append((len(errors) if at is None else at) - since)
            cuts = quantiles(delays, n=10)
            print(
                f"{before:13.3f}  {days:11}  {cuts[4]:13.0f}  {cuts[8]:7.0f}  {early} of "
                f"{asked.years // 2}",
                flush=True,
            )
    return 0


def draw(share: float, answers: int, key: int) -> list[bool]:
    """Answers of which such a share says that a verdict is wrong."""
    return [uniform(key, place) < share for place in range(answers)]


def find_alarm(errors: Sequence[bool], max_error: float) -> int | None:
    """How many answers come before an alarm; None where there is none."""
    return next(
        (place for place, wealth in enumerate(trace_wealth(errors, max_error)) if is_alarm(wealth)),
        None,
    )
