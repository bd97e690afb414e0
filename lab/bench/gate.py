"""Tickets judged per second, by the probabilities of the verdicts and by sampled answers: what a gate's tickets cost.

``bin/bench gate --workload 4b-shared --tickets 128 --engine ours``. By probabilities: one ``score`` call weighs the two
verdict lines of every ticket. By samples: ``--samples`` answers of at most ``--new-tokens`` each.
"""

from __future__ import annotations

import statistics
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from lab.bench.contestants import CONTESTANTS
from lab.bench.ranks import FailedError, Ranks, fabric_of, facts, parser_of, workload_of
from lab.bench.rows import write
from stageb.errors import EngineError
from stageb.job.world import World, run

VERDICTS = {
    "demo": ("Verdict: pass", "Verdict: fail"),
    "made": ("w1 w2 w3", "w1 w2 w4"),  # as long, and as alike, as verdict lines are in most vocabularies
}


@dataclass(frozen=True, slots=True)
class Result:
    """One way to judge."""

    way: str
    tickets_per_s: float  # median over the passes
    tickets_per_s_range: tuple[float, float]  # of all passes


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = parser_of("gate", __doc__)
    parser.add_argument("--engine", default="ours", choices=list(CONTESTANTS), help="default: ours")
    given = parser.parse_args(arguments)
    ranks = Ranks(workload_of(given))

    def on_rank(world: World) -> int:
        ranks.bind(world)
        try:
            return ranks.lead(compare, ranks, given)
        except FailedError as error:
            raise EngineError(f"{error}\n{error.trace}") from error

    return run(fabric_of(given), on_rank)


def compare(ranks: Ranks, given: Namespace) -> int:
    """Measure and print both ways."""
    workload, machine = ranks.workload, facts(ranks.world)
    print(f"{workload.model}: {workload.tickets} tickets, {given.engine}")
    print(f"{machine['world_size']} x {machine['device_name']}, {machine['torch_threads']} threads a rank")
    ranks.load(given.engine)
    batches = ranks.batches(given.engine, workload.tickets)
    ways: dict[str, Callable[[], float]] = {
        "probabilities": lambda: ranks.score(batches, VERDICTS[workload.prompts]),
        f"{workload.samples} samples of {workload.new_tokens}": lambda: ranks.pass_over(batches).seconds,
    }
    results = []
    for way, once in ways.items():
        for _ in range(given.warmup):
            once()
        rates = [workload.tickets / once() for _ in range(given.repeats)]
        row = Result(way, statistics.median(rates), (min(rates), max(rates)))
        results.append(row)
        low, high = row.tickets_per_s_range
        print(f"{way:<20} {row.tickets_per_s:>8.1f} tickets/s ({low:.1f}-{high:.1f})", flush=True)
    write(given.json, {"workload": asdict(workload), "machine": machine, "ways": [asdict(row) for row in results]})
    return 0
